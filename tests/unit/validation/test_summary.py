"""The scoring rules of the case format on checks made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from specsim.schema.validation import ArmCheck, CaseCheck, CurveCheck, PointCheck, SweepCheck
from specsim.validation.summary import summarise


def point(
    measured: float | None = None,
    predicted: float | None = None,
    *,
    low: float | None = None,
    high: float | None = None,
    arms: tuple[ArmCheck, ...] = (),
    failed: str = "",
) -> PointCheck:
    return PointCheck(
        index=0,
        load=1.0,
        override={},
        num_speculative_tokens=3,
        measured_speedup=measured,
        predicted_speedup=predicted,
        speedup_low=predicted if low is None else low,
        speedup_high=predicted if high is None else high,
        arms=arms,
        failed=failed,
    )


def case(*points: PointCheck, **changes: Any) -> CaseCheck:
    fields: dict[str, Any] = {
        "case": "source/name", "grade": "A", "role": "test", "scored": True, "points": points,
        "curves": (), "sweeps": (), "failed": "",
    }  # fmt: skip
    return CaseCheck(**{**fields, **changes})


def test_speedup_errors_are_relative_to_the_measurement() -> None:
    found = summarise([case(point(2.0, 2.2), point(1.0, 0.8), point(0.5, 0.51))])["speedup"]
    # +10 %, -20 %, +2 %
    assert found["n"] == 3
    assert found["median_abs_pct"] == pytest.approx(10.0)
    assert found["p90_abs_pct"] == pytest.approx(18.0)
    assert found["bias_pct"] == pytest.approx(2.0)


def test_signs_count_only_where_the_measurement_is_5_percent_from_one() -> None:
    points = (point(1.05, 0.9), point(1.04, 0.5), point(0.94, 0.99), point(0.9, 1.01))
    found = summarise([case(*points)])
    assert found["sign"] == {"n": 3, "agree": 1}
    assert found["slower"] == {"n": 2, "agree": 1}


def test_a_band_holds_its_ends() -> None:
    points = (
        point(1.0, 1.1, low=1.0, high=1.2),
        point(1.2, 1.1, low=1.0, high=1.2),
        point(1.21, 1.1, low=1.0, high=1.2),
    )
    assert summarise([case(*points)])["coverage_80"] == {"n": 3, "inside": 2}


@pytest.mark.parametrize(
    ("measured", "predicted", "right"),
    [(2, 2, True), (2, 3, True), (2, 1, True), (0, 1, True), (2, 0, False), (1, 3, False)],
)
def test_a_crossover_is_right_within_one_step(measured: int, predicted: int, right: bool) -> None:
    curve = CurveCheck((1.0, 2.0, 4.0), measured, predicted)
    found = summarise([case(curves=(curve,))])["crossover"]
    assert found == {"n": 1, "within_one_step": int(right)}


def test_a_curve_that_never_loses_has_no_crossover() -> None:
    assert summarise([case(curves=(CurveCheck((1.0, 2.0), 2, 0),))])["crossover"]["n"] == 0


@pytest.mark.parametrize(("chosen_speed", "good"), [(98.0, 1), (97.9, 0)])
def test_best_k_is_judged_by_the_measured_speed_at_the_predicted_k(
    chosen_speed: float, good: int
) -> None:
    sweep = SweepCheck(1.0, (1, 2, 3), (90.0, chosen_speed, 100.0), (1.0, 1.3, 1.2))
    assert sweep.share_of_best == pytest.approx(chosen_speed / 100.0)
    assert summarise([case(sweeps=(sweep,))])["best_k"] == {"n": 1, "good": good}


def test_absolute_figures_are_counted_by_arm() -> None:
    arms = (
        ArmCheck("baseline", "tpot_ms", 10.0, 11.0),
        ArmCheck("speculative", "tpot_ms", 10.0, 13.0),
        ArmCheck("speculative", "output_tok_s", 100.0, 95.0),
    )
    found = summarise([case(point(arms=arms))])
    assert found["tpot"] == {"n": 2, "median_abs_pct": pytest.approx(20.0)}
    assert found["tpot_baseline"] == {"n": 1, "median_abs_pct": pytest.approx(10.0)}
    assert found["output_tok_s"] == {"n": 1, "median_abs_pct": pytest.approx(5.0)}
    assert found["speedup"] == {
        "n": 0, "median_abs_pct": None, "p90_abs_pct": None, "bias_pct": None,
    }  # fmt: skip


def test_a_suspect_engine_path_is_reported_and_not_scored() -> None:
    found = summarise([case(point(1.0, 5.0), scored=False), case(point(1.0, 1.1))])
    assert found["speedup"]["n"] == 1
    assert found["speedup"]["median_abs_pct"] == pytest.approx(10.0)


def test_points_that_cannot_be_served_are_counted_as_failed() -> None:
    found = summarise([case(point(1.5, None, failed="unstable at this rate: on"))])
    assert found["failed"] == {"n": 1}
    assert found["speedup"]["n"] == 0
