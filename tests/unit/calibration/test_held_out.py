from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim.calibration.calibrate import calibrate
from specsim.calibration.runs import Run
from specsim.errors import UsageError
from specsim.schema.calibration import HeldOut
from specsim.schema.measurement import Measurements
from specsim.schema.scenario import Scenario

ToMeasurements = Callable[[Sequence[Run]], Measurements]


@pytest.fixture(scope="module")
def crossing(planted: Any, make_scenario: Callable[..., Scenario]) -> Any:
    """Return a planted server whose speculation stops paying between 64 and 128 requests."""
    little = make_scenario(speculation={"acceptance": {"length": 1.8}})
    return replace(planted, scenario=little, tokens_per_step=1.8)


def slower(runs: Sequence[Run], k: int, load: float, by: float) -> list[Run]:
    return [
        replace(r, tpot_s=by * (r.tpot_s or 0.0), output_tok_s=(r.output_tok_s or 0.0) / by)
        if (r.k, r.load) == (k, load)
        else r
        for r in runs
    ]


def speedups(runs: Sequence[Run]) -> dict[float, float]:
    served = {(r.k, r.load): r.output_tok_s or 0.0 for r in runs}
    return {load: served[3, load] / served[0, load] for k, load in served if k == 0}


def crossover(curve: dict[float, float]) -> float:
    """Return the load at which a curve falls through 1, a straight line over the log of load."""
    loads, values = np.array(sorted(curve)), np.array([curve[x] for x in sorted(curve)])
    i = int(np.flatnonzero(values < 1.0)[0])
    share = (values[i - 1] - 1.0) / (values[i - 1] - values[i])
    return float(loads[i - 1] * (loads[i] / loads[i - 1]) ** share)


def held(planted: Any, runs: Sequence[Run], to_measurements: ToMeasurements, **out: Any) -> HeldOut:
    found = calibrate(planted.scenario, to_measurements(runs), **out).held_out
    assert found is not None
    return found


# On slow where it just pays: it measures as losing one load too early. Off slow where speculation
# just loses: it measures as paying one load too long.
@pytest.mark.parametrize(("k", "load"), [(3, 64.0), (0, 128.0)])
def test_a_slow_arm_is_measured_and_not_predicted(
    crossing: Any, to_measurements: ToMeasurements, k: int, load: float
) -> None:
    truth = crossing.runs(noise=0.0)
    made = slower(truth, k, load, 1.2)
    got = held(crossing, made, to_measurements, hold_out=[load])
    assert got.loads == (load,)
    (one,) = got.speedups
    assert (one.num_speculative_tokens, one.load) == (3, load)
    exact = speedups(truth)[load]
    assert one.measured == pytest.approx(exact / 1.2 if k else exact * 1.2)
    # The fit never saw the slow run: it predicts the planted server.
    assert one.predicted == pytest.approx(exact, rel=0.02)
    assert got.speedup_median_pct == pytest.approx(
        100 * abs(np.log(one.predicted / one.measured)), rel=1e-6
    )
    (cross,) = got.crossovers
    assert cross.measured == pytest.approx(crossover(speedups(made)))
    assert cross.predicted == pytest.approx(crossover(speedups(truth)), rel=0.05)
    assert cross.steps_apart == 1
    assert cross.measured is not None
    assert (cross.measured < 64.0) if k else (cross.measured > 128.0)
    by_arm = {r.num_speculative_tokens: r.residual_pct for r in got.rows}
    assert by_arm[k] == pytest.approx(20.0, abs=2.0)
    assert by_arm[3 - k] == pytest.approx(0.0, abs=2.0)


def test_the_report_has_the_same_signs_without_holding_out(
    crossing: Any, to_measurements: ToMeasurements
) -> None:
    made = slower(crossing.runs(noise=0.0), 3, 64.0, 1.2)
    found = calibrate(crossing.scenario, to_measurements(made))
    one = next(s for s in found.speedups if s.load == 64.0)
    assert one.measured == pytest.approx(speedups(made)[64.0])
    assert one.measured < 0.9 * one.fitted
    (cross,) = found.crossovers
    assert cross.measured == pytest.approx(crossover(speedups(made)))
    assert cross.predicted is not None
    assert cross.predicted > 64.0


def test_a_held_out_k_is_predicted_from_the_others(
    planted: Any, to_measurements: ToMeasurements
) -> None:
    runs = planted.runs([1, 8, 64, 256], ks=(0, 1, 3), noise=0.0)
    got = held(planted, runs, to_measurements, hold_out_k=[1])
    assert {s.num_speculative_tokens for s in got.speedups} == {1}
    for one in got.speedups:
        assert one.predicted == pytest.approx(one.measured, rel=0.05)


def test_what_was_not_measured_cannot_be_held_out(
    planted: Any, to_measurements: ToMeasurements
) -> None:
    runs = to_measurements(planted.runs([1, 8], noise=0.0))
    with pytest.raises(UsageError, match="--hold-out: 7 was not measured; measured: 1, 8"):
        calibrate(planted.scenario, runs, hold_out=[7])
    with pytest.raises(UsageError, match="nothing is left to fit on"):
        calibrate(planted.scenario, runs, hold_out=[1, 8])
