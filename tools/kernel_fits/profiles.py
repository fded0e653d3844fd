"""Rewrite blocks of a profile in place: the other lines of the file stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsim.catalog.hardware_authoring import dump_profile


def number(value: float) -> float:
    """Round to four significant figures, as the profiles have them."""
    return round(float(f"{value:.4g}"), 5)


def interval(value: float, low: float, high: float) -> dict[str, float]:
    """Return a `Range` as plain data, with low <= value <= high."""
    v = number(value)
    return {"value": v, "low": min(number(max(low, 0.0)), v), "high": max(number(high), v)}


def _block(lines: list[str], name: str, indent: int, start: int, end: int) -> tuple[int, int]:
    """Return the lines [first, last) of key `name` at an indent, within lines [start, end)."""
    head = " " * indent + name + ":"
    for first in range(start, end):
        if lines[first] == head or lines[first].startswith(head + " "):
            last = first + 1
            while last < end and (
                not lines[last].strip() or len(lines[last]) - len(lines[last].lstrip()) > indent
            ):
                last += 1
            return first, last
    raise KeyError(name)


def replace_blocks(text: str, blocks: Mapping[tuple[str, ...], Mapping[str, Any]]) -> str:
    """Return the YAML text of a profile with blocks of `effective` replaced, or added.

    Parameters
    ----------
    blocks : mapping
        Path below `effective`, such as ('gemm', 'bf16') -> plain data.
    """
    lines = text.splitlines()
    for path, data in blocks.items():
        start, end = _block(lines, "effective", 0, 0, len(lines))
        for depth, key in enumerate(path):
            indent = 2 * (depth + 1)
            try:
                first, last = _block(lines, key, indent, start + 1, end)
            except KeyError:
                missing: Mapping[str, Any] = data
                for name in reversed(path[depth + 1 :]):
                    missing = {name: missing}
                lines[end:end] = _dumped(key, missing, indent)
                break
            if depth == len(path) - 1:
                lines[first:last] = _dumped(key, data, indent)
            start, end = first, last
    return "\n".join(lines) + "\n"


def _dumped(key: str, data: Mapping[str, Any], indent: int) -> list[str]:
    # Nested for the dump, so that long strings wrap where dump_profile would wrap them.
    nested: Mapping[str | int, Any] = {int(key) if key.isdigit() else key: data}
    for _ in range(indent // 2):
        nested = {"x": nested}
    return dump_profile(nested).splitlines()[indent // 2 :]  # type: ignore[arg-type]
