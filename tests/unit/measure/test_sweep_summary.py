"""What a sweep shows: curves, speedups, their intervals and the crossover."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specsim.cli.sweep_report import report
from specsim.errors import InputError
from specsim.export.terminal import Screen
from specsim.measure.read import read_measurements
from specsim.measure.sweep.summary import summarise
from specsim.schema.measurement import Latency, MeasuredAcceptance, Measurement
from specsim.schema.results import as_json

LOADS = (1.0, 2.0, 4.0, 8.0, 16.0)


def latency(mean: float) -> Latency:
    return Latency(mean=mean, p50=mean, p90=mean, p95=mean, p99=2 * mean, std=0.0)


def row(arm: str, load: float, speed: float, repeat: int | None = 1, **more: Any) -> Measurement:
    known: dict[str, Any] = {
        "source": f"{arm}_c{load:g}_r{repeat}", "format": "made", "arm": arm,
        "arm_from": "metadata", "concurrency": load, "repeat": repeat, "output_tok_s": speed,
        "completed": int(10 * load), "failed": 0, "tpot_ms": latency(1000 * load / speed),
        "ttft_ms": latency(50.0),
    }  # fmt: skip
    if arm == "on":
        known |= {
            "num_speculative_tokens": 3, "method": "draft_model",
            "acceptance": MeasuredAcceptance(2.5, 0.5, (0.7, 0.5, 0.3), 100, 300, 150),
        }  # fmt: skip
    return Measurement(**(known | more))


def true_speedup(load: float) -> float:
    """A curve that crosses 1 at load 8."""
    return float(1.5 * load ** (-math.log(1.5) / math.log(8)))


def sweep(*, repeats: int, noise: float = 0.0, drift: float = 0.0, seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    rows = []
    for repeat in range(1, repeats + 1):
        for load in LOADS:
            common = math.exp(drift * random.standard_normal())
            for arm, factor in (("off", 1.0), ("on", true_speedup(load))):
                own = math.exp(noise * random.standard_normal())
                rows.append(row(arm, load, 20 * load**0.6 * factor * common * own, repeat))
    return rows


def test_curves_are_means_by_load() -> None:
    rows = [row("off", 4, 90, 1), row("off", 4, 110, 2), row("on", 4, 120, 1)]
    found = summarise(rows)
    off, on = found.curves
    assert (off.arm, off.num_speculative_tokens) == ("off", None)
    assert (on.arm, on.method, on.num_speculative_tokens) == ("on", "draft_model", 3)
    [point] = off.points
    assert (point.runs, point.output_tok_s) == (2, 100)
    assert point.scatter_frac == pytest.approx(math.sqrt(200) / 100)
    assert found.scatter_frac == point.scatter_frac
    assert point.tpot_p99_ms == pytest.approx(2 * point.tpot_p50_ms)


def test_the_crossover_is_where_the_curve_is_one() -> None:
    [found] = summarise(sweep(repeats=2)).comparisons
    assert [p.pairs for p in found.points] == [2] * 5
    assert found.crossover.state == "crosses"
    assert found.crossover.load == pytest.approx(8, rel=1e-6)
    assert found.points[0].speedup == pytest.approx(1.5)


def test_one_repeat_gives_no_interval() -> None:
    summary = summarise(sweep(repeats=1))
    [found] = summary.comparisons
    assert not found.has_interval
    assert found.points[0].low is None
    assert (found.crossover.low, found.crossover.high) == (None, None)
    assert summary.scatter_frac is None
    text = " ".join(" ".join(report(Screen(), summary)).split())
    assert "One repeat: no interval" in text


def test_pairing_takes_drift_out() -> None:
    drifting = summarise(sweep(repeats=3, noise=0.01, drift=0.2)).comparisons[0]
    assert drifting.scatter_frac == pytest.approx(0.01 * math.sqrt(2), rel=0.6)
    rows = [dataclasses.replace(r, repeat=None) for r in sweep(repeats=3, noise=0.01, drift=0.2)]
    unpaired = summarise(rows).comparisons[0]
    assert unpaired.scatter_frac == pytest.approx(0.2 * math.sqrt(2), rel=0.6)
    assert unpaired.points[0].pairs == 0


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    inside = crossing = 0
    n = 200
    for seed in range(n):
        [found] = summarise(sweep(repeats=2, noise=0.03, seed=seed)).comparisons
        inside += sum(
            p.low <= true_speedup(p.load) <= p.high  # type: ignore[operator]
            for p in found.points
        )
        low, high = found.crossover.low, found.crossover.high
        crossing += (low or 0.0) <= 8 <= (high or math.inf)
    assert inside / (n * len(LOADS)) == pytest.approx(0.8, abs=0.05)
    # Both ends of the interval are widened to hold the curve's own crossing.
    assert 0.7 <= crossing / n <= 0.95


def test_each_draft_length_is_a_curve_of_its_own() -> None:
    rows = sweep(repeats=2)
    rows += [
        dataclasses.replace(r, num_speculative_tokens=1) for r in rows if r.arm == "on"
    ]  # fmt: skip
    found = summarise(rows)
    assert [c.num_speculative_tokens for c in found.curves] == [None, 1, 3]
    assert [c.num_speculative_tokens for c in found.comparisons] == [1, 3]
    text = "\n".join(report(Screen(), found))
    assert "k=1" in text
    assert "k=3" in text


def test_methods_of_one_draft_length_are_told_apart() -> None:
    rows = sweep(repeats=1)
    rows += [dataclasses.replace(r, method="eagle3") for r in rows if r.arm == "on"]
    labels = [curve.label for curve in summarise(rows).curves]
    assert labels == ["off", "draft_model k=3", "eagle3 k=3"]


def test_an_open_loop_compares_time_per_token() -> None:
    rows = [
        row(arm, 1, 64.0, concurrency=None, request_rate=rate, tpot_ms=latency(tpot))
        for arm, tpots in (("off", (20.0, 30.0)), ("on", (10.0, 60.0)))
        for rate, tpot in zip((0.5, 2.0), tpots, strict=True)
    ]
    found = summarise(rows)
    assert found.load_kind == "request_rate"
    assert [p.speedup for p in found.comparisons[0].points] == pytest.approx([2.0, 0.5])
    assert "THROUGHPUT" not in "\n".join(report(Screen(), found))


def test_acceptance_is_weighted_by_drafts() -> None:
    one = MeasuredAcceptance(2.0, 0.4, (0.6, 0.4), 300, 600, 240)
    two = MeasuredAcceptance(3.0, 0.8, (1.0, 1.0), 100, 200, 160)
    rows = [row("off", 1, 10), row("on", 1, 10, 1, acceptance=one),
            row("on", 1, 10, 2, acceptance=two)]  # fmt: skip
    found = summarise(rows)
    acceptance = found.curves[1].acceptance
    assert acceptance is not None
    assert acceptance.acceptance_length == pytest.approx(2.25)
    assert acceptance.per_position == pytest.approx((0.7, 0.55))
    assert acceptance.drafts == 400
    assert any("different drafters" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"failed": 3}, "3 requests failed"),
        ({"engine_version": "0.31.0"}, "different engine versions"),
        ({"completed": 1, "concurrency": 4.0}, "fewer than 2 requests"),
        ({"output_tokens": 500.0}, "tokens long"),
    ],
)
def test_what_spoils_a_comparison_is_said(changes: dict[str, Any], warning: str) -> None:
    rows = [dataclasses.replace(r, engine_version="0.32.0", output_tokens=64.0)
            for r in sweep(repeats=1)]  # fmt: skip
    assert not summarise(rows).warnings
    rows[-1] = dataclasses.replace(rows[-1], **changes)
    assert any(warning in text for text in summarise(rows).warnings)


def test_rows_that_are_no_run_are_left_out() -> None:
    log = row("on", 1, 10, output_tok_s=None, concurrency=None)
    unknown = row("unknown", 1, 10)
    failed = row("off", 2, 1, completed=0)
    found = summarise([*sweep(repeats=1), log, unknown, failed])
    assert found == dataclasses.replace(summarise(sweep(repeats=1)), warnings=found.warnings)
    assert found.warnings[0].startswith("2 runs left out")
    with pytest.raises(InputError, match="no run of a sweep"):
        summarise([log, unknown])


def test_one_arm_is_shown_alone() -> None:
    found = summarise([row for row in sweep(repeats=1) if row.arm == "off"], notes=["first"])
    assert found.comparisons == ()
    assert found.warnings == ("first", "no run with speculation: there is nothing to compare")
    assert report(Screen(), found)


def test_the_report_fits_its_screen_and_json_is_plain() -> None:
    found = summarise(sweep(repeats=2, noise=0.02))
    for width in (80, 120):
        lines = report(Screen(width=width), found)
        assert max(map(len, lines)) <= width
    json.dumps(as_json(found), allow_nan=False)


def test_the_recorded_sweep(shared: Path) -> None:
    rows = read_measurements(shared / "lab" / "interleaved").rows
    summary = summarise(rows)
    off, on = summary.curves
    assert [point.runs for point in off.points] == [1] * 6
    assert [point.runs for point in on.points] == [2] * 6
    [found] = summary.comparisons
    assert found.num_speculative_tokens == 3
    assert found.points[0].speedup == pytest.approx(1.39, abs=0.02)
    assert found.crossover.state == "crosses"
    assert found.crossover.load == pytest.approx(8, rel=0.2)
    assert found.crossover.low is not None
    assert 4 < found.crossover.low < 8
    assert found.has_interval
    assert 0.01 < (summary.scatter_frac or 0) < 0.1
