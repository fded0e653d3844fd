"""Read and write scenarios (case_format: target, hardware, engine, speculation, workload, load)."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from specsim.catalog.files import MAX_BYTES
from specsim.errors import InputError, UsageError
from specsim.schema.base import parse
from specsim.schema.scenario import Load, Scenario

LOADS = tuple(Load.model_fields)
ACCEPTANCE_FORMS = ("length", "rate", "draft_acceptance_rate", "per_position", "profile")
_TEXT_KEYS = frozenset({"name", "version", "model", "accelerator", "drafter", "profile"})
"""Keys whose values are text: '1e3' is a number that lost its type anywhere else."""
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice (plain YAML silently keeps the last one)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                shown = key_node.value if isinstance(key_node, yaml.ScalarNode) else key
                raise InputError(f"line {key_node.start_mark.line + 1}: key {shown!r} is not text")
            if key in seen:
                line = key_node.start_mark.line + 1
                raise InputError(f"line {line}: key {key!r} is given twice; keep one of them")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def load_scenario(
    source: str | Path | Mapping[str, Any], *, overrides: Mapping[str, Any] | None = None
) -> Scenario:
    """Read a scenario from a YAML file or a mapping, with single values replaced.

    Parameters
    ----------
    source : path or mapping
        A YAML file, or its content.
    overrides : mapping, optional
        Values by dotted name: ``{"speculation.num_speculative_tokens": 3}``. None removes the
        key. A kind of load, or a form of acceptance, takes the place of the other ones. Another
        number of draft tokens leaves the acceptance what it was at the old one.

    Raises
    ------
    InputError
        One line that names the file and the key.
    """
    what, data = _read(source)
    measured_at_k = _k(data)
    for name, value in (overrides or {}).items():
        _override(data, name, value)
    _keep_k_of_acceptance(data, measured_at_k, overrides or {})
    _refuse_lost_numbers(data, what=what)
    load = data.get("load")
    if isinstance(load, dict):
        for kind in LOADS:
            if isinstance(load.get(kind), int | float) and not isinstance(load[kind], bool):
                load[kind] = [load[kind]]
    return parse(Scenario, data, what=what)


def dump_scenario(scenario: Scenario) -> str:
    """Return a scenario as YAML that loads back equal; defaults are left out."""
    data = scenario.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, allow_unicode=True)


def _read(source: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(source, Mapping):
        return "scenario", copy.deepcopy(dict(source))
    path = Path(source)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: is no scenario (more than {MAX_BYTES} bytes)")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; give the path of a scenario in YAML") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text (UTF-8)"
        raise InputError(f"{path}: cannot be read: {reason}") from error
    try:
        data = yaml.load(text, Loader=_Loader)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: is broken or truncated: {reason[:160]}") from error
    if not isinstance(data, dict):
        found = "nothing" if data is None else type(data).__name__
        raise InputError(f"{path}: expected target, hardware, speculation ...; got {found}")
    return str(path), data


def _k(data: Mapping[str, Any]) -> Any:
    speculation = data.get("speculation")
    return speculation.get("num_speculative_tokens") if isinstance(speculation, dict) else None


def _keep_k_of_acceptance(data: dict[str, Any], k: Any, overrides: Mapping[str, Any]) -> None:
    """Note at which k a kept length was measured when only k is overridden.

    The same length at fewer draft tokens would be a better drafter.
    """
    if k is None or _k(data) in (k, None):
        return
    if any(name.startswith("speculation.acceptance") for name in overrides):
        return
    speculation = data["speculation"]
    acceptance = speculation.get("acceptance")
    if not isinstance(acceptance, dict) or speculation.get("tree") is not None:
        return
    if "length" in acceptance or "draft_acceptance_rate" in acceptance:
        acceptance.setdefault("measured_at_k", k)


def _override(data: dict[str, Any], name: str, value: Any) -> None:
    *parents, key = name.split(".")
    if not key or not all(parents):
        raise UsageError(f"override {name!r} is not a dotted name such as 'hardware.accelerator'")
    here = data
    for parent in parents:
        inner = here.get(parent)
        if inner is None:
            if value is None:
                return
            inner = here[parent] = {}
        if not isinstance(inner, dict):
            raise UsageError(f"override {name!r}: {parent!r} is a value and has no keys inside")
        here = inner
    if value is None:
        here.pop(key, None)
        return
    for others, at in ((LOADS, ["load"]), (ACCEPTANCE_FORMS, ["speculation", "acceptance"])):
        if parents == at and key in others:
            for other in others:
                here.pop(other, None)
            # The number of drafts behind the old figure says nothing about the new one.
            here.pop("counts", None)
            here.pop("measured_at_k", None)
    here[key] = value


def _refuse_lost_numbers(data: Any, *, what: str, path: tuple[str, ...] = ()) -> None:
    """YAML 1.1 reads 1e3 as text; say so rather than let a number validator guess."""
    if isinstance(data, dict):
        for key, value in data.items():
            _refuse_lost_numbers(value, what=what, path=(*path, str(key)))
    elif isinstance(data, list | tuple):
        for value in data:
            _refuse_lost_numbers(value, what=what, path=path)
    elif isinstance(data, str) and path and path[-1] not in _TEXT_KEYS:
        if _EXPONENT.fullmatch(data.strip()):
            plain = f"{float(data):.12g}" if abs(float(data)) < 1e12 else "digits"
            raise InputError(
                f"{what}: {'.'.join(path)}: got {data!r}, which YAML reads as text; "
                f"write {plain}, without an exponent"
            )
