"""Does the prediction lie on the measured side of 1? Measured against predicted direction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.analysis.curves import pair
from specsim.analysis.predict import predict
from specsim.analysis.resolve import resolve
from specsim.catalog.case import case_points
from specsim.errors import SpecsimError
from specsim.schema.case import Case, CasePoint, Direction
from specsim.schema.results import NEUTRAL_HIGH, NEUTRAL_LOW, Point
from specsim.schema.scenario import Scenario


@dataclass(frozen=True)
class Sign:
    """One point of a case: which way it went, and which way the prediction goes."""

    case: str
    index: int
    """Of the point in its case, from 0."""
    measured: Direction | None
    """None: the source has no comparison of on with off here."""
    measured_speedup: float | None
    predicted_speedup: float | None
    """None: could not be run, and `reason` says why."""
    low: float | None
    high: float | None
    right: bool | None
    """None: not counted, as nothing was measured, it is neutral, it could not be run, or the
    source itself shows a problem of the engine's path."""
    reason: str = ""
    """Why there is no prediction."""
    prediction: Point | None = None


def measured_speedup(point: CasePoint) -> float | None:
    """Return on / off as cases are scored: None where the source has no two arms and no ratio.

    Notes
    -----
    Closed loop: output tokens per second of both arms, else time per token, else the stated
    ratio. Open loop: time per token, else the stated ratio; the served rate is the same there.
    """
    off, on = point.measured.baseline, point.measured.speculative
    if off is not None and on is not None:
        if point.request_rate is None and off.output_tok_s and on.output_tok_s:
            return on.output_tok_s / off.output_tok_s
        if off.tpot_ms and on.tpot_ms:
            return off.tpot_ms / on.tpot_ms
    return point.measured.speedup


def direction(speedup: float) -> Direction:
    """Return the word for a speedup; neutral is 0.95 to 1.05."""
    if NEUTRAL_LOW < speedup < NEUTRAL_HIGH:
        return "neutral"
    return "faster" if speedup > 1.0 else "slower"


def measured_direction(point: CasePoint) -> Direction | None:
    """Return what the source says: its own word, else what its figures say."""
    if point.measured.direction is not None:
        return point.measured.direction
    speedup = measured_speedup(point)
    return None if speedup is None else direction(speedup)


def signs(case: Case, *, search: Sequence[Path] = ()) -> list[Sign]:
    """Predict every point of a case and compare directions.

    A point that cannot be run is listed with its reason, and the others go on.
    """
    return [
        _sign(case, index, point, scenario, search)
        for index, (point, scenario) in enumerate(case_points(case))
    ]


def share_right(compared: Iterable[Sign]) -> tuple[int, int]:
    """Return how many directions are right, and of how many that count."""
    counted = [sign.right for sign in compared if sign.right is not None]
    return sum(counted), len(counted)


def _sign(
    case: Case, index: int, point: CasePoint, scenario: Scenario, search: Sequence[Path]
) -> Sign:
    measured, measured_value = measured_direction(point), measured_speedup(point)
    predicted: Point | None = None
    speedup = low = high = None
    reason = ""
    try:
        predicted = predict(scenario, search=search).points[0]
        speedup, low, high = predicted.speedup, predicted.speedup_low, predicted.speedup_high
        if speedup is None and predicted.speculative is None:
            speedup, reason = _overloaded(scenario, search), predicted.note
    except SpecsimError as error:
        reason = str(error)
    right = None
    scored = measured is not None and measured != "neutral" and not case.engine_path_suspect
    if speedup is not None and scored:
        right = (speedup > 1.0) == (measured == "faster")
    return Sign(
        case=case.case,
        index=index,
        measured=measured,
        measured_speedup=measured_value,
        predicted_speedup=speedup,
        low=low,
        high=high,
        right=right,
        reason=reason,
        prediction=predicted,
    )


def _overloaded(scenario: Scenario, search: Sequence[Path]) -> float | None:
    """Return on / off at a rate that speculation cannot serve: the ratio of the largest rates."""
    if scenario.speculation.method == "none" or scenario.load.request_rate is None:
        return None
    arms = pair(resolve(scenario, search=search))
    off, on = arms.largest_stable_rates()
    return on / off if math.isfinite(on / off) else None
