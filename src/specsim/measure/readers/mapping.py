"""Reports in JSON or YAML: the mapping that a file holds, and what is inside it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

import yaml

from specsim.errors import InputError
from specsim.measure.source import Foreign, Source

MAX_YAML_BYTES = 16 * 2**20
"""YAML is read at about 1 MiB/s, and no report is nearly as long."""


def has_keys(text: str, *keys: str) -> bool:
    r"""Whether all keys stand in a piece of JSON or YAML, at any depth.

    Examples
    --------
    >>> has_keys('{"a": {"b": 1}}', "a", "b"), has_keys("a:\n  b: 1", "b"), has_keys("a b", "a")
    (True, True, False)
    """
    return all(re.search(rf'"{re.escape(k)}"\s*:|^[ \-]*{re.escape(k)}:', text, re.M) for k in keys)


def mapping(source: Source) -> dict[str, Any]:
    """Return the one mapping that a JSON or YAML file holds.

    Raises
    ------
    Foreign
        It holds something else.
    InputError
        Broken or truncated.
    """
    found = source.document if source.looks_like_json else _yaml(source)
    if not isinstance(found, dict):
        raise Foreign("holds no single mapping of names to values")
    return found


def _yaml(source: Source) -> Any:
    if source.size > MAX_YAML_BYTES:
        raise Foreign(f"{source.size} bytes of YAML is too much (at most {MAX_YAML_BYTES})")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(source.text(), Loader=loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"is broken or truncated: {reason}") from error


def inner(value: Any, *keys: str) -> dict[str, Any]:
    """Return the mapping at a path of keys; an empty one where there is none.

    Examples
    --------
    >>> inner({"a": {"b": {"c": 1}}}, "a", "b"), inner({"a": None}, "a", "b")
    ({'c': 1}, {})
    """
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return dict(value) if isinstance(value, Mapping) else {}


def words(value: Any) -> str | None:
    """Return a name or a plain number as text; None for anything else and for ''."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value).strip() or None


def texts(**values: Any) -> dict[str, str]:
    """Return those of the values that say something, as text: for `Measurement.metadata`."""
    return {
        name: f"{value:.6g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
        if value is not None and value != ""
    }


def iso(seconds: float | None) -> str | None:
    """Return the ISO date and time of seconds since 1970; None where they are no date."""
    if seconds is None:
        return None
    try:
        when = datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return when.isoformat(timespec="seconds")


def part_names(source: Source, n: int) -> list[str]:
    """Return what the rows of a file are called: its name, numbered where it holds several."""
    return [source.name] if n == 1 else [f"{source.name}#{i}" for i in range(1, n + 1)]
