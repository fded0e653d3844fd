"""What no run can have measured: such figures are dropped, and the row says so."""

from __future__ import annotations

import dataclasses
from typing import Any

from specsim.schema.measurement import Latency, Measurement

_RANGES: dict[str, tuple[float, float]] = {
    "concurrency": (1.0, 1e6),
    "request_rate": (1e-6, 1e7),
    "completed": (0.0, 1e9),
    "failed": (0.0, 1e9),
    "input_tokens": (0.1, 1e8),
    "output_tokens": (0.1, 1e8),
    "output_tokens_std": (0.0, 1e8),
    "duration_s": (1e-3, 1e8),
    "output_tok_s": (1e-4, 1e9),
    "request_per_s": (1e-8, 1e7),
    "kv_tokens": (1.0, 1e12),
    "weights_gib": (0.0, 1e6),
}
"""Least and most of a figure, far beyond anything that is served."""
_LATENCY_MS = (1e-4, 1e8)
"""A tenth of a microsecond to a day."""


def plausible(row: Measurement) -> Measurement:
    """Return a row without figures that nothing can have, and with text that can be written."""
    changes: dict[str, Any] = {}
    dropped: list[str] = []
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if isinstance(value, Latency):
            cleaned = _latency(value, field.name, dropped)
            if cleaned != value:
                changes[field.name] = cleaned
        elif field.name in _RANGES and value is not None:
            least, most = _RANGES[field.name]
            if not least <= value <= most:
                dropped.append(f"{field.name} {value:g}")
                changes[field.name] = None
        elif isinstance(value, str):
            changes[field.name] = _writable(value)
    changes["metadata"] = {_writable(k): _writable(v) for k, v in row.metadata.items()}
    warnings = tuple(map(_writable, row.warnings))
    if dropped:
        warnings += (f"left out, since no run can have it: {', '.join(dropped)}",)
    return dataclasses.replace(row, **changes, warnings=warnings)


def _latency(value: Latency, name: str, dropped: list[str]) -> Latency | None:
    kept: dict[str, float | None] = {}
    for field in dataclasses.fields(value):
        one = getattr(value, field.name)
        least = 0.0 if field.name == "std" else _LATENCY_MS[0]
        if one is not None and not least <= one <= _LATENCY_MS[1]:
            # A gap of nothing between pieces that were streamed together is no fault.
            if one != 0.0:
                dropped.append(f"{name} {field.name} {one:g}")
            one = None if one != 0.0 or field.name == "mean" else one
        kept[field.name] = one
    return Latency(**kept) if any(v is not None for v in kept.values()) else None


def _writable(text: str) -> str:
    """Return text without halves of characters, which no encoding can write."""
    return text.encode("utf-8", "replace").decode("utf-8")
