"""Where catalog files live and how they are read.

Order of search: what the caller names (`--catalog`), `$SPECSIM_CATALOG` (a path list), the user's
configuration folder, the files that ship with specsim. A user's file with the name of a shipped
one wins, and `profiles list` says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from specsim.catalog.yaml_text import load_yaml
from specsim.errors import InputError, NotFoundError

MAX_BYTES = 4 * 2**20
"""No catalog file or config.json is anywhere near this; larger is a wrong file."""

_OUTSIDE_PACKAGE = {"hardware_profiles": "hardware_profiles", "cases": "validation/cases"}
"""Folders that live at the top of the repository, where people look for them."""


def data_dir(name: str) -> Path:
    """Return the folder of shipped data: 'hardware_profiles', 'models', 'engines', 'cases' ..."""
    if name not in _OUTSIDE_PACKAGE:
        return Path(__file__).parent / "data" / name
    packaged = Path(__file__).parents[1] / "_data" / name
    in_repository = Path(__file__).parents[3] / _OUTSIDE_PACKAGE[name]
    return packaged if packaged.is_dir() else in_repository


def user_paths(search: Sequence[Path] = ()) -> list[Path]:
    """Return files and folders of the user's own catalog entries, most important first."""
    paths = list(search)
    paths += [Path(p) for p in os.environ.get("SPECSIM_CATALOG", "").split(os.pathsep) if p]
    for path in paths:
        if not path.exists():
            raise NotFoundError(
                f"catalog path {str(path)!r} does not exist; give a file or a folder"
            )
    # platformdirs costs 20 ms; its Linux answer is the common case and is checked first by name.
    from platformdirs import user_config_path

    own = user_config_path("specsim")
    return [*paths, own] if own.is_dir() else paths


def user_files(search: Sequence[Path] = ()) -> Iterator[Path]:
    """Yield the user's YAML files, most important first."""
    for path in user_paths(search):
        if path.is_dir():
            yield from sorted(path.rglob("*.yaml"))
        else:
            yield path


def read_text(path: Path, *, expected: str = "a YAML or JSON file") -> str:
    """Read a file of text; every failure is an `InputError` of one line."""
    try:
        if path.is_dir():
            # An empty path is the current folder to pathlib.
            name = "'' or '.'" if path == Path() else str(path)
            raise InputError(f"{name}: no such file, but a folder; give {expected}")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{path}: {size} bytes is too much (at most {MAX_BYTES})")
        with path.open("rb") as stream:
            # A device or a pipe has no size to tell beforehand.
            raw = stream.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise InputError(f"{path}: is too much (at most {MAX_BYTES} bytes)")
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; give {expected}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not text (UTF-8); expected {expected}") from error
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"{str(path)!r}: is no path; expected {expected}") from error
    if not text.strip():
        raise InputError(f"{path}: is empty; expected {expected}")
    return text


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file that must hold one mapping; every failure is one line."""
    text = read_text(path)
    if path.suffix == ".json":
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path}: is broken or truncated: {reason[:160]}") from error
    else:
        data = load_yaml(text, what=str(path))
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a mapping of keys, got {type(data).__name__}")
    return data


def kind_of_file(data: Mapping[str, Any]) -> str:
    """Return what a file holds, such as 'a scenario', by the keys that only it has; else ''."""
    if "model_type" in data or "architectures" in data:
        return "a config.json"
    if "identity" in data and "datasheet" in data:
        return "a hardware profile"
    if "scenario" in data and "points" in data:
        return "a case"
    if isinstance(data.get("target"), Mapping) or isinstance(data.get("hardware"), Mapping):
        return "a scenario"
    if "dataset" in data and "points" in data:
        return "an acceptance profile"
    if "target_hidden_size" in data:
        return "a drafter"
    return "a model" if "hidden_size" in data and "layers" in data else ""


@lru_cache(maxsize=512)
def read_shipped(path: Path) -> dict[str, Any]:
    """Read a file that ships with specsim, once per process. Do not modify the result."""
    return read_mapping(path)
