"""Measured rows as a table that reads back."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from specsim.export.measurements import measurements_csv
from specsim.measure.read import read_measurements
from specsim.schema.measurement import Measurement

LAB = Path(__file__).parents[2] / "data" / "lab"
OF_THE_FILE = {"source", "format", "metadata"}


def test_a_table_reads_back_equal(tmp_path: Path) -> None:
    rows = read_measurements(LAB / "closed_loop").rows
    runs = [row for row in rows if row.concurrency is not None]
    table = tmp_path / "rows.csv"
    table.write_text(measurements_csv(runs), encoding="utf-8")
    back = read_measurements(table)
    assert back.skipped == ()
    assert len(back.rows) == len(runs) > 1
    for one, other in zip(runs, back.rows, strict=True):
        for field in dataclasses.fields(Measurement):
            if field.name not in OF_THE_FILE:
                assert getattr(one, field.name) == getattr(other, field.name), field.name


@pytest.mark.parametrize("name", ["=cmd()", "+1", "-1", "@x"])
def test_a_name_is_never_a_formula(name: str) -> None:
    row = Measurement(source=name, format="x", arm="off", arm_from="flag", concurrency=1.0)
    [record] = csv.DictReader(measurements_csv([row]).splitlines())
    assert record["source"] == f"'{name}"


def test_columns_that_nobody_fills_are_left_out() -> None:
    row = Measurement(source="a", format="x", arm="off", arm_from="flag", concurrency=2.0)
    assert measurements_csv([row]).splitlines()[0] == "source,format,arm,arm_from,concurrency"
