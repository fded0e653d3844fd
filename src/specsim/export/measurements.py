"""Measured rows as a CSV table that reads back."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence

from specsim.schema.measurement import Latency, MeasuredAcceptance, Measurement

_LATENCIES = ("tpot_ms", "itl_ms", "ttft_ms", "e2e_ms")
_LEFT_OUT = ("metadata",)


def measurements_csv(rows: Sequence[Measurement]) -> str:
    """Return rows as CSV: a column per field, percentiles as `tpot_ms.p99`.

    Columns that no row fills are left out. `specsim.read_measurements` reads it back.
    """
    records = [_flat(row) for row in rows]
    names = [name for name in _names() if any(record.get(name, "") != "" for record in records)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _names() -> list[str]:
    names = []
    for field in dataclasses.fields(Measurement):
        if field.name in _LATENCIES:
            names += [_statistic(field.name, f.name) for f in dataclasses.fields(Latency)]
        elif field.name == "acceptance":
            names += [f.name for f in dataclasses.fields(MeasuredAcceptance)]
        elif field.name not in _LEFT_OUT:
            names.append(field.name)
    return names


def _statistic(latency: str, name: str) -> str:
    return latency if name == "mean" else f"{latency}.{name}"


def _flat(row: Measurement) -> dict[str, object]:
    flat: dict[str, object] = {}
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if isinstance(value, Latency):
            for f in dataclasses.fields(value):
                flat[_statistic(field.name, f.name)] = getattr(value, f.name)
        elif isinstance(value, MeasuredAcceptance):
            flat |= {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        else:
            flat[field.name] = value
    return {name: _cell(value) for name, value in flat.items()}


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "; ".join(str(v) for v in value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return f"'{value}"  # a spreadsheet would take it for a formula
    return value
