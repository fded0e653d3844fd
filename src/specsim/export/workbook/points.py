"""The sheet of a long ladder: every load that was asked for, as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from specsim.export.workbook.sheets import Cell, Column, Sheet
from specsim.export.workbook.subjects import MOST_LIVE_LOADS, Subject
from specsim.export.workbook.sweep import ARMS
from specsim.schema.results import BaselinePoint, SpeculativePoint

NAME = "Points"
_LEFT_OUT = ("parts_ms",)
_DIGITS = {"ms": "ms", "tok/s": "tok_s", "USD": "usd", "requests": "load", "tokens": "three"}


def points(found: Sequence[Subject]) -> Sheet | None:
    """Build the sheet; None where every load stands in the sheet Sweep."""
    long = [s for s in found if len(s.prediction.points) > MOST_LIVE_LOADS]
    if not long:
        return None
    fields = {f.name: f for r in (BaselinePoint, SpeculativePoint) for f in dataclasses.fields(r)}
    columns = tuple(
        Column(f.name, f.metadata["description"], _DIGITS.get(f.metadata["unit"], "general"))
        for f in fields.values()
        if f.name not in _LEFT_OUT
    )
    sheet = Sheet(
        NAME,
        "Every load of a ladder that is too long to be live: what specsim predicts at the values "
        "that were exported.",
        (
            Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
            Column("arm", "speculation off or on", width=7),
            Column("load", "concurrency or requests/s", "load"),
            Column("ratio_vs_off", "on / off", "ratio"),
            Column("ratio_low", "10th percentile", "ratio"),
            Column("ratio_high", "90th percentile", "ratio"),
            *columns,
        ),
        frozen_columns=3,
    )
    for s in long:
        for arm in ARMS if s.on is not None else ("baseline",):
            _add(sheet, s, arm)
    return sheet


def _add(sheet: Sheet, s: Subject, arm: str) -> None:
    for p in s.prediction.points:
        service = getattr(p, arm)
        if service is None:
            continue
        cells: dict[str, Cell | None] = {
            "scenario_id": Cell(s.id, "text"),
            "arm": Cell(ARMS[arm], "text"),
            "load": Cell(p.request_rate if s.is_open else p.concurrency, "fixed"),
        }
        if arm == "speculative" and p.speedup is not None:
            cells |= {"ratio_vs_off": Cell(p.speedup)}
            for name, value in (("ratio_low", p.speedup_low), ("ratio_high", p.speedup_high)):
                cells[name] = None if value is None else Cell(value)
        for f in dataclasses.fields(service):
            value = getattr(service, f.name)
            if f.name not in _LEFT_OUT and value is not None:
                cells[f.name] = Cell(value)
        sheet.add(cells)
