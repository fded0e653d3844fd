"""Read and write scenarios (case_format: target, hardware, engine, speculation, workload, load)."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from specsim.catalog.files import kind_of_file, read_text
from specsim.catalog.yaml_text import MAX_VALUES, load_yaml
from specsim.errors import InputError, UsageError
from specsim.schema.base import parse
from specsim.schema.scenario import Load, Scenario

LOADS = tuple(Load.model_fields)
ACCEPTANCE_FORMS = ("length", "rate", "draft_acceptance_rate", "per_position", "profile")
_TEXT_KEYS = frozenset({"name", "version", "model", "accelerator", "drafter", "profile"})
"""Keys whose values are text: '1e3' is a number that lost its type anywhere else."""
_MAX_DEPTH = 20
"""Levels of a scenario, with room: it has four."""
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


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
    text = read_text(path, expected="a scenario in YAML")
    data = load_yaml(text, what=str(path), text_keys_only=True)
    if not isinstance(data, dict):
        found = "nothing" if data is None else type(data).__name__
        raise InputError(f"{path}: expected target, hardware, speculation ...; got {found}")
    kind = kind_of_file(data)
    if kind not in ("", "a scenario"):
        raise InputError(f"{path}: is {kind}, expected a scenario: target, hardware, speculation")
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
    if any(
        name == "speculation" or name.startswith("speculation.acceptance") for name in overrides
    ):
        return  # another acceptance, which was given for this k
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


def _refuse_lost_numbers(data: Any, *, what: str) -> None:
    """YAML 1.1 reads 1e3 as text; say so rather than let a number validator guess.

    Values that hold themselves, as an alias can, are found by their depth or their number.
    """
    pending: list[tuple[tuple[str, ...], int, Any]] = [((), 0, data)]
    seen = 0
    while pending:
        path, depth, value = pending.pop()
        seen += 1
        if depth > _MAX_DEPTH or seen > MAX_VALUES:
            raise InputError(
                f"{what}: {'.'.join(path[:4])}: holds itself, is nested deeper than {_MAX_DEPTH} "
                f"levels or stands for more than {MAX_VALUES} values"
            )
        if isinstance(value, dict):
            inner = [((*path, str(key)), depth + 1, item) for key, item in value.items()]
            pending += reversed(inner)
        elif isinstance(value, list | tuple):
            pending += [(path, depth + 1, item) for item in reversed(value)]
        elif isinstance(value, str) and path and path[-1] not in _TEXT_KEYS:
            if _EXPONENT.fullmatch(value.strip()):
                plain = f"{float(value):.12g}" if abs(float(value)) < 1e12 else "digits"
                raise InputError(
                    f"{what}: {'.'.join(path)}: got {value!r}, which YAML reads as text; "
                    f"write {plain}, without an exponent"
                )
