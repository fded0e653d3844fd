"""Catalog entries of every kind: find one by name, list them, print one for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from specsim.analysis.size import drafter_size, model_size
from specsim.catalog.acceptance import load_profile, load_profiles, profile_ids
from specsim.catalog.engines import engine_names, engine_versions, load_engine
from specsim.catalog.files import data_dir, read_mapping, read_shipped, user_files
from specsim.catalog.hardware import hardware_ids, hardware_index, load_hardware
from specsim.catalog.models import drafter_ids, load_drafter, load_model, model_ids
from specsim.cli.words import wrapped
from specsim.errors import NotFoundError, not_found
from specsim.export.terminal import Role, Screen
from specsim.schema.model import DrafterSpec
from specsim.schema.speculation import ProfilePoint

Kind = Literal["hardware", "model", "drafter", "acceptance", "engine"]
Search = Sequence[Path]


@dataclass(frozen=True)
class Found:
    """A catalog entry with its kind."""

    kind: Kind
    record: BaseModel


def find(name: str, *, search: Search = ()) -> Found:
    """Find an entry of any kind by name or path.

    Raises
    ------
    NotFoundError
        With the nearest names of all kinds.
    """
    path = Path(name)
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        return Found(kind_of(read_mapping(path)), _load_file(path, search))
    loaders: tuple[tuple[Kind, Callable[[], BaseModel]], ...] = (
        ("hardware", lambda: load_hardware(name, search=search)),
        ("model", lambda: load_model(name, search=search)),
        ("drafter", lambda: load_drafter(name, search=search)),
        ("acceptance", lambda: load_profile(name, search=search)),
        ("engine", lambda: _engine(name)),
    )
    for kind, load in loaders:
        if kind == "hardware" and ("/" in name or path.suffix == ".json"):
            continue  # a Hugging Face id, a path of a model, or an acceptance profile
        try:
            return Found(kind, load())
        except NotFoundError:
            continue
    known = [*hardware_ids(search), *model_ids(search), *drafter_ids(search)]
    known += [*profile_ids(search=search), *engine_names(), *_versions()]
    raise not_found("profile", name, known, "specsim profiles list")


def kind_of(data: dict[str, Any]) -> Kind:
    """Tell what a catalog file holds by the keys that only its kind has."""
    if "identity" in data:
        return "hardware"
    if "profiles" in data or "points" in data:
        return "acceptance"
    return "drafter" if "target_hidden_size" in data else "model"


def _load_file(path: Path, search: Search) -> BaseModel:
    kind = kind_of(read_mapping(path))
    if kind == "hardware":
        return load_hardware(str(path), search=search)
    if kind == "acceptance":
        own = profile_ids(search=[path])
        named = read_mapping(path).get("profiles", [read_mapping(path)])
        first = next((str(entry.get("id")) for entry in named), own[0])
        return load_profile(first, search=[path])
    return load_drafter(path, search=search) if kind == "drafter" else load_model(path)


def _engine(name: str) -> BaseModel:
    engine, _, version = name.partition("@")
    if version or "@" not in name:
        record, notes = load_engine(engine, version or None)
        if not notes:
            return record
    # Another release's constants would be shown under this name.
    raise not_found("engine version", name, _versions(), "specsim profiles list --engines")


def _versions() -> list[str]:
    return [f"{name}@{version}" for name in engine_names() for version in engine_versions(name)]


def listing(kind: Kind, *, word: str = "", search: Search = ()) -> list[dict[str, Any]]:
    """List the entries of a kind with what helps to choose, and where each comes from.

    Parameters
    ----------
    word : str
        Only entries that have it in a name: their own, an alias, the target's, the drafter's.

    Raises
    ------
    NotFoundError
        No entry has the word.
    """
    rows = _rows(kind, search)
    if not word:
        return rows
    found = [row for row in rows if any(word.lower() in name.lower() for name in _names(row))]
    if not found:
        known = [name for row in rows for name in _names(row)]
        raise not_found(kind, word, known, f"specsim profiles list --{_FLAGS.get(kind, kind)}")
    return found


_FLAGS: dict[Kind, str] = {"model": "models", "drafter": "drafters", "engine": "engines"}
_NAMED = ("id", "name", "architecture", "method", "dataset", "target", "drafter")


def _names(row: dict[str, Any]) -> list[str]:
    return [*(str(row[key]) for key in _NAMED if row.get(key)), *row.get("aliases", ())]


def _rows(kind: Kind, search: Search) -> list[dict[str, Any]]:
    if kind == "hardware":
        return [
            {
                "id": entry.id, "name": entry.name, "vendor": entry.vendor,
                "architecture": entry.architecture, "memory_gb": entry.memory_gb,
                "memory_bandwidth_gb_per_s": entry.memory_bandwidth_gb_per_s,
                "usd_per_gpu_hour": entry.usd_per_gpu_hour,
                "origin": "shipped" if entry.shipped else "user",
                "confidence": entry.confidence,
            }
            for entry in hardware_index(search)
        ]  # fmt: skip
    if kind == "engine":
        return [
            {"id": name, "versions": engine_versions(name), "origin": "shipped"}
            for name in engine_names()
        ]
    own = _own_ids(search)
    rows = []
    if kind == "acceptance":
        for name, profile in load_profiles(search=search).items():
            rows.append({
                "id": name, "method": profile.method, "dataset": profile.dataset,
                "drafter": profile.drafter, "target": profile.target,
                "temperatures": [point.temperature for point in profile.points],
                "num_speculative_tokens": [_drafted(point) for point in profile.points],
                "acceptance_length": [_length(point) for point in profile.points],
                "draft_acceptance_rate": [p.draft_acceptance_rate for p in profile.points],
                "origin": "user" if name in own else "shipped",
            })  # fmt: skip
        return rows
    ids = model_ids(search) if kind == "model" else drafter_ids(search)
    aliases = _aliases("models" if kind == "model" else "drafters")
    for name in ids:
        load = load_model if kind == "model" else load_drafter
        spec = load(name, search=search)
        row: dict[str, Any] = {"id": name}
        if isinstance(spec, DrafterSpec):
            row |= {"method": spec.kind, "target": spec.target}
            row["params_b"] = drafter_size(spec).total_params / 1e9
        else:
            size = model_size(spec)
            row["params_b"] = size.total_params / 1e9
            row["active_params_b"] = size.active_params / 1e9
            row["weight_dtype"], row["expert_dtype"] = spec.weight_dtype, spec.expert_dtype
        row["aliases"] = aliases.get(name, [])
        row |= {"origin": "user" if name in own else "shipped", "confidence": spec.confidence}
        rows.append(row)
    return rows


def _aliases(folder: str) -> dict[str, list[str]]:
    """Return the other names of shipped entries, by id."""
    names: dict[str, list[str]] = {}
    for alias, name in read_shipped(data_dir("aliases.yaml"))[folder].items():
        names.setdefault(name, []).append(alias)
    return names


def _drafted(point: ProfilePoint) -> int | None:
    return len(point.per_position) if point.per_position else point.num_speculative_tokens


def _length(point: ProfilePoint) -> float | None:
    """Return tokens per drafting step: one of the target's, and the drafts that it accepts."""
    return 1.0 + sum(point.per_position) if point.per_position else point.length


def _own_ids(search: Search) -> set[str]:
    ids: set[str] = set()
    for path in user_files(search):
        data = read_mapping(path)
        entries = data.get("profiles", [data])
        if isinstance(entries, list):
            ids |= {str(entry.get("id", path.stem)) for entry in entries if isinstance(entry, dict)}
    return ids


def pretty(screen: Screen, found: Found) -> list[str]:
    """Print an entry: its blocks in order, intervals beside values, basis and source by block."""
    return _lines(screen, found.record.model_dump(mode="json", exclude_none=True), indent=2)


def _lines(screen: Screen, data: dict[str, Any], indent: int) -> list[str]:
    lines: list[str] = []
    pad = " " * indent
    for key, value in data.items():
        if key in ("basis", "source") and "basis" in data:
            continue  # shown in the title of the block
        if isinstance(value, dict) and not _is_range(value):
            if not value:
                continue
            title = screen.paint(str(key), "strong")
            if "basis" in value:
                role: Role = "good" if value["basis"] in ("measured", "calibrated") else "neutral"
                title += f"  {screen.paint('[' + str(value['basis']) + ']', role)}"
                lines.append(f"{pad}{title}")
                text = wrapped(screen, f"source: {value.get('source', '')}", first=pad + "  ")
                lines += [screen.paint(line, "faint") for line in text]
            else:
                lines.append(f"{pad}{title}")
            lines += _lines(screen, value, indent + 2)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines.append(f"{pad}{screen.paint(str(key), 'strong')}")
            for entry in value:
                inner = _lines(screen, entry, indent + 4)
                inner[0] = f"{pad}  - {inner[0].lstrip()}"
                lines += inner
        elif value not in ("", []):
            lines += wrapped(screen, f"{key}: {_plain(value)}", first=pad, rest=pad + "    ")
    return lines


def _is_range(value: dict[str, Any]) -> bool:
    return set(value) == {"value", "low", "high"}


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['value']:.4g} ({value['low']:.4g}–{value['high']:.4g})"
    if isinstance(value, list):
        return ", ".join(_plain(entry) for entry in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
