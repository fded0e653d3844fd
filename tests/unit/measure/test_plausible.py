"""Figures that no run can have are dropped and said; copies of a run are no repeats."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from specsim.measure.plausible import plausible
from specsim.measure.read import read_measurements
from specsim.schema.measurement import Latency, Measurement

LAB = Path(__file__).parents[2] / "data" / "lab" / "closed_loop"
ROW = Measurement(
    source="a", format="x", arm="off", arm_from="flag", concurrency=4.0, duration_s=10.0,
    tpot_ms=Latency(20.0, 19.0, None, None, 30.0, 0.0), output_tok_s=200.0,
)  # fmt: skip


def test_a_run_as_it_should_be_stays_as_it_is() -> None:
    assert plausible(ROW) == ROW


@pytest.mark.parametrize(
    ("name", "value"),
    [("duration_s", -1.0), ("output_tok_s", 1e308), ("output_tok_s", -5.0), ("concurrency", 0.0),
     ("input_tokens", -5.0), ("request_rate", 5e-324), ("completed", 10**12)],
)  # fmt: skip
def test_what_no_run_can_have_is_dropped(name: str, value: float) -> None:
    row = plausible(replace(ROW, **{name: value}))
    assert getattr(row, name) is None
    assert any(name in warning for warning in row.warnings)


def test_latencies_below_none_are_dropped() -> None:
    row = plausible(replace(ROW, tpot_ms=Latency(-3.0, 19.0, None, None, 9.3e18, 2.0)))
    assert row.tpot_ms == Latency(None, 19.0, None, None, None, 2.0)


def test_half_a_character_can_be_written() -> None:
    row = plausible(replace(ROW, model="\ud800x", metadata={"a": "\udcff"}))
    assert (row.model or "").encode("utf-8")
    assert row.metadata["a"].encode("utf-8")


def test_copies_are_no_repeats(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        shutil.copy(LAB / "off_c1.json", tmp_path / name)
    found = read_measurements(tmp_path)
    assert len(found.rows) == 1
    assert "is the same run as" in found.skipped[0].reason
