"""The bar of the simulator: p99 of TTFT and TPOT of recorded runs within 15 % after calibration.

What is missed is in docs/validation.md with its cause; it is not asserted away here, and a run that
is missed is named.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from validation_report import tails  # noqa: E402
from validation_report.recorded_tails import (  # noqa: E402
    BAR_PCT,
    OPEN_LOOPS,
    Tail,
    closed_loops,
    h100,
    lab,
    open_loops,
)
from validation_report.recovered_steps import (  # noqa: E402 - tools are no package of ours
    recovered_steps,
    scheduler_alone,
)

MISSED = {("on 0.8/s", "ttft"), ("on 0.8/s", "tpot")}
"""Steps of this run were a tenth shorter than those of the calibration (docs/validation.md)."""


def of(found: Sequence[Tail], metric: str) -> list[Tail]:
    return [tail for tail in found if tail.metric == metric]


def within(found: Sequence[Tail], limit_pct: float) -> int:
    return sum(abs(tail.error_pct) <= limit_pct for tail in found)


def test_steps_are_read_off_the_streams() -> None:
    steps = recovered_steps(OPEN_LOOPS / "off_r0.2.json")
    assert steps.decoding.sum() == 60 * 63
    # The other prompts of 60 came after a pause, so that their step has no known start.
    assert steps.prompts.sum() == 34
    alone = steps.step_s[(steps.prompts == 0) & (steps.decoding == 1)]
    assert np.median(alone) == pytest.approx(0.0473, abs=0.0005)


@pytest.mark.parametrize("name", ["off_r0.2", "off_r0.8", "dm_70_3_r0.2", "dm_70_3_r0.8"])
def test_the_scheduler_alone(name: str) -> None:
    """Fed the run's own step times it leaves little: what is left is the client's."""
    p99 = scheduler_alone(OPEN_LOOPS / f"{name}.json", lab())
    measured = {t.metric: t.p99 for t in open_loops() if t.run == _run(name)}
    assert p99["tpot"] == pytest.approx(measured["tpot"], rel=0.05)
    assert p99["e2e"] == pytest.approx(measured["e2e"], rel=0.05)
    assert p99["itl"] == pytest.approx(measured["itl"], rel=0.08)
    assert p99["ttft"] == pytest.approx(measured["ttft"], rel=0.12)


def _run(name: str) -> str:
    stem, _, rate = name.rpartition("_r")
    return f"{'off' if stem == 'off' else 'on'} {rate}/s"


@pytest.mark.parametrize("metric", ["ttft", "tpot"])
def test_open_loops_of_the_lab(metric: str) -> None:
    found = of(open_loops(), metric)
    assert len(found) == 4
    for tail in found:
        if (tail.run, metric) not in MISSED:
            assert abs(tail.error_pct) <= BAR_PCT, tail
        assert abs(tail.error_pct) <= 2 * BAR_PCT, tail


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["ttft", "tpot"])
@pytest.mark.parametrize("sweep", ["2026-11-29-interleaved", "2026-11-30"])
def test_closed_loops_whose_load_was_held_out(sweep: str, metric: str) -> None:
    """Runs of 6 to 96 requests: a single one may miss, the bar holds for the rest."""
    found = of(closed_loops(sweep), metric)
    assert within(found, BAR_PCT) >= 0.9 * len(found)
    assert np.median(np.abs([t.error_pct for t in found])) <= 8.0
    assert max(abs(t.error_pct) for t in found) <= 25.0


def test_rates_on_an_h100() -> None:
    """TTFT is missed, by what client and HTTP take: it is on the page, and not asserted."""
    found = h100()
    assert within(of(found, "tpot"), BAR_PCT) >= 3
    assert max(abs(t.error_pct) for t in of(found, "tpot")) <= 30.0


def test_the_kept_figures_are_those_of_today() -> None:
    """They are made by tools/make_validation.py; the last digit may differ between machines."""
    kept = tails.kept()
    for then, now in ((kept.open_loops, open_loops()), (kept.h100, h100())):
        assert [(t.run, t.metric) for t in then] == [(t.run, t.metric) for t in now]
        for old, new in zip(then, now, strict=True):
            assert new.predicted_p99 == pytest.approx(old.predicted_p99, rel=0.02)
