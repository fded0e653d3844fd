"""Find models and drafters: by catalog id, alias, Hugging Face id, or path.

A lookup by name reads the one file that it needs, and the alias table if the name is no id. A
user's own file wins over a shipped one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from specsim.catalog.files import data_dir, kind_of_file, read_mapping, read_shipped, user_files
from specsim.errors import InputError, NotFoundError, not_found
from specsim.schema.base import WeightDtype, parse
from specsim.schema.model import DrafterKind, DrafterSpec, ModelSpec

Folder = Literal["models", "drafters"]
Spec = ModelSpec | DrafterSpec
S = TypeVar("S", ModelSpec, DrafterSpec)

_FILE_SUFFIXES = (".json", ".yaml", ".yml")


def load_model(name: str | Path, *, search: Sequence[Path] = ()) -> ModelSpec:
    """Return the model called `name`.

    Parameters
    ----------
    name : str or Path
        Catalog id, alias or Hugging Face id (a suffix such as '-FP8' sets `weight_dtype`), or
        the path of a config.json, of a folder that holds one, or of a YAML file as the catalog's.
    search : sequence of Path
        The user's own catalog files and folders.

    Raises
    ------
    NotFoundError
        With the nearest names, if no catalog has it.
    """
    path = _as_path(name)
    if path is not None:
        spec = _read_path(path)
        if isinstance(spec, DrafterSpec):
            raise InputError(f"{path}: is a drafter ({spec.kind}), expected a model to draft for")
        return spec
    found = _find(str(name), "models", search, ModelSpec)
    if found is None:
        raise _unknown("model", str(name), _known("models", search), "models")
    return found


def load_drafter(name: str | Path, *, search: Sequence[Path] = ()) -> Spec:
    """Return the drafter called `name`, or the model of that name as a stand-alone draft model.

    Names are those of `load_model`.
    """
    path = _as_path(name)
    if path is not None:
        return _read_path(path)
    text = str(name)
    found: Spec | None = _find(text, "drafters", search, DrafterSpec)
    if found is None:
        found = _find(text, "models", search, ModelSpec)
    if found is None:
        known = _known("drafters", search) + _known("models", search)
        raise _unknown("drafter", text, known, "drafters")
    return found


def model_ids(search: Sequence[Path] = ()) -> list[str]:
    """Return the ids of all models, sorted."""
    return _ids("models", search)


def drafter_ids(search: Sequence[Path] = ()) -> list[str]:
    """Return the ids of all drafters, sorted."""
    return _ids("drafters", search)


def drafters_for(
    model_id: str, kind: DrafterKind | None = None, search: Sequence[Path] = ()
) -> list[DrafterSpec]:
    """Return the drafters that were trained for a model, the user's own first.

    Parameters
    ----------
    model_id : str
        Id or any other name of the target.
    kind : str, optional
        Only drafters of this kind.
    """
    wanted = canonical_id(model_id) or model_id
    found: dict[str, DrafterSpec] = {}
    for path, data in _user_entries("drafters", search):
        target = str(data.get("target", ""))
        if (canonical_id(target) or target) == wanted:
            spec = _parse(DrafterSpec, path, data)
            found.setdefault(spec.id, spec)
    for stem in _target_index().get(wanted, ()):
        path = data_dir("drafters") / f"{stem}.yaml"
        spec = _parse(DrafterSpec, path, read_shipped(path))
        found.setdefault(spec.id, spec)
    return [spec for spec in found.values() if kind is None or spec.kind == kind]


def canonical_id(name: str) -> str | None:
    """Return the id of the shipped model or drafter that goes by `name`, or None."""
    return _lookup(name, "models")[0] or _lookup(name, "drafters")[0]


def resolve_name(name: str) -> tuple[str | None, WeightDtype | None]:
    """Return the shipped model or drafter behind a name and the dtype that the name ends in.

    Examples
    --------
    >>> resolve_name("Qwen/Qwen3-32B-AWQ")
    ('qwen3-32b', 'int4')
    >>> resolve_name("qwen3-32b")
    ('qwen3-32b', None)
    """
    model = _lookup(name, "models")
    return model if model[0] is not None else _lookup(name, "drafters")


def repository(name: str) -> str:
    """Return the Hugging Face repository of a shipped entry, as serving commands need it.

    A name that has an owner already, or that no repository is known of, is returned as it is.

    Examples
    --------
    >>> repository("llama-3.1-8b"), repository("eagle3-llama3.1-8b")
    ('meta-llama/Llama-3.1-8B-Instruct', 'yuhuili/EAGLE3-LLaMA3.1-Instruct-8B')
    """
    if "/" in name or _as_path(name) is not None:
        return name
    folders: tuple[Folder, ...] = ("models", "drafters")
    for folder in folders:
        entry, dtype = _lookup(name, folder)
        if entry is not None and dtype is None:
            known = [a for a, of in _names()[folder].items() if of == entry and "/" in a]
            return min(known, key=lambda a: _unlike(a, name), default=name)
    return name


def _unlike(repo: str, name: str) -> tuple[bool, bool]:
    """Rank repositories of an entry: those that are called like the name, and answer people."""
    last = repo.rpartition("/")[2].lower()
    return not last.startswith(name.lower()), not ("instruct" in last or "chat" in last)


def _find(name: str, folder: Folder, search: Sequence[Path], record: type[S]) -> S | None:
    entry_id, dtype = _lookup(name, folder)
    for path, data in _user_entries(folder, search):
        own_id = str(data.get("id", path.stem)).lower()
        if own_id == name.lower():
            return _parse(record, path, data)
        if entry_id is not None and own_id == entry_id.lower():
            return _converted(_parse(record, path, data), dtype, name)
    if entry_id is None:
        return None
    path = data_dir(folder) / f"{_stem(entry_id)}.yaml"
    return _converted(_parse(record, path, read_shipped(path)), dtype, name)


def _parse(record: type[S], path: Path, data: dict[str, Any]) -> S:
    return parse(record, {"id": path.stem, **data}, what=str(path))


def _converted(spec: S, dtype: WeightDtype | None, name: str) -> S:
    """Apply the dtype in a checkpoint's name to all linear layers, experts included."""
    if dtype is None:
        return spec
    update: dict[str, Any] = {"weight_dtype": dtype, "expert_dtype": None}
    if isinstance(spec, ModelSpec):
        native = spec.weight_block and dtype == spec.weight_dtype
        update |= {
            "attention_dtype": None,
            "weight_block": native or (dtype == "fp8" and _scaled_by_block(name)),
        }
    return spec.model_copy(update=update)


def _scaled_by_block(name: str) -> bool:
    """Tell whether a checkpoint that is named as fp8 has a scale per block of 128 x 128."""
    known: dict[str, list[str]] = _names()["fp8_by_block"]
    owner, _, rest = name.lower().rpartition("/")
    return rest.endswith(tuple(known["suffixes"])) or (
        owner in known["owners"] and rest.endswith("-fp8")
    )


def _lookup(name: str, folder: Folder) -> tuple[str | None, WeightDtype | None]:
    """Resolve a name against the shipped entries: an id first, then aliases, then suffixes."""
    if _stem(name) in _stems(folder):
        return str(read_shipped(data_dir(folder) / f"{_stem(name)}.yaml")["id"]), None
    names = _alias_table(folder)
    base, dtype = split_suffix(name)
    for candidate, found_dtype in ((name, None), (base, dtype)):
        key = candidate.lower()
        # A copy of a known checkpoint under another owner's name has the same shape.
        for entry in (names.get(key), names.get(key.rpartition("/")[2])):
            if entry is not None:
                return entry, found_dtype
    return None, None


@lru_cache(maxsize=2)
def _alias_table(folder: Folder) -> dict[str, str]:
    """Map lower-case aliases, also without their owner, and file stems to ids."""
    aliases: dict[str, str] = _names()[folder]
    table = {alias.lower().rpartition("/")[2]: entry for alias, entry in aliases.items()}
    table |= {alias.lower(): entry for alias, entry in aliases.items()}
    # What has no alias is its own name; ids that are no file stems all have one (tested).
    by_stem = {_stem(entry): entry for entry in table.values()}
    return table | {stem: by_stem.get(stem, stem) for stem in _stems(folder)}


@lru_cache(maxsize=2)
def _stems(folder: Folder) -> frozenset[str]:
    return frozenset(path.stem for path in data_dir(folder).glob("*.yaml"))


def split_suffix(name: str) -> tuple[str, WeightDtype | None]:
    """Split 'Qwen3-8B-FP8' into 'Qwen3-8B' and 'fp8'; the longest known ending counts."""
    lower = name.lower()
    matches = [
        (len(suffix), dtype)
        for dtype, suffixes in _names()["quantisation_suffixes"].items()
        for suffix in suffixes
        if lower.endswith(suffix)
    ]
    if not matches:
        return name, None
    length, dtype = max(matches)
    return name[:-length], dtype


def _names() -> dict[str, Any]:
    return read_shipped(data_dir("aliases.yaml"))


def _stem(entry_id: str) -> str:
    """Return the file stem of an entry: its id with only letters, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", entry_id.lower()).strip("-")


@lru_cache(maxsize=1)
def _target_index() -> dict[str, list[str]]:
    """Map each target to the stems of its drafters; `target` is a top-level line of every file."""
    index: dict[str, list[str]] = {}
    for path in sorted(data_dir("drafters").glob("*.yaml")):
        line = re.search(r"^target: (\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if line is not None:
            index.setdefault(line[1], []).append(path.stem)
    return index


def _user_entries(folder: Folder, search: Sequence[Path]) -> list[tuple[Path, dict[str, Any]]]:
    entries = [(path, read_mapping(path)) for path in user_files(search)]
    return [(path, data) for path, data in entries if _folder_of(data) == folder]


def _folder_of(data: dict[str, Any]) -> Folder | None:
    """Tell a drafter and a model from other catalog files."""
    folders: dict[str, Folder] = {"a drafter": "drafters", "a model": "models"}
    return folders.get(kind_of_file(data))


def _ids(folder: Folder, search: Sequence[Path]) -> list[str]:
    shipped = {str(read_shipped(p)["id"]) for p in data_dir(folder).glob("*.yaml")}
    own = {str(data.get("id", path.stem)) for path, data in _user_entries(folder, search)}
    return sorted(shipped | own)


def _known(folder: Folder, search: Sequence[Path]) -> list[str]:
    return [*_ids(folder, search), *_names()[folder]]


def _unknown(kind: str, name: str, known: list[str], folder: Folder) -> NotFoundError:
    """Build the error of a name that is in no catalog, as that of a private model is in none."""
    error = not_found(kind, name, known, f"{_list_command(folder)} WORD")
    return NotFoundError(
        f"{error}; a private {kind}: give its config.json, or the name of a public one of its shape"
    )


def _list_command(folder: Folder) -> str:
    return f"specsim profiles list --{folder}"


def _as_path(name: str | Path) -> Path | None:
    """Return `name` as the file to read if it is a path, else None."""
    text = str(name)
    if not text.strip():
        raise InputError(
            f"model {text!r}: no such file; give a name of `{_list_command('models')}` or a path"
        )
    path = Path(text).expanduser()
    with suppress(OSError):  # a name too long for the file system is no path
        if (path / "config.json").is_file():
            return path / "config.json"
        if path.is_file():
            return path
    if text.lower().endswith(_FILE_SUFFIXES) or text.startswith(("/", "./", "../", "~")):
        raise InputError(
            f"model {text!r}: no such file, and no folder with a config.json; give the path of "
            f"one, or a name of `{_list_command('models')}`"
        )
    return None


def _read_path(path: Path) -> Spec:
    data = read_mapping(path)
    kind = kind_of_file(data)
    if kind == "a drafter":
        return _parse(DrafterSpec, path, data)
    if kind not in ("", "a model", "a config.json"):
        raise InputError(f"{path}: is {kind}, expected a model or a drafter")
    if kind == "a model" or (kind == "" and path.suffix != ".json"):
        return _parse(ModelSpec, path, data)
    # Only a config.json needs the reader of vendor formats.
    from specsim.catalog.hf_config import read_config

    return read_config(path)
