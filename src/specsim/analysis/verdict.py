"""What to do, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specsim.schema.results import BreakEven, Crossover, Point, Verdict

NEUTRAL_LOW, NEUTRAL_HIGH = 0.95, 1.05


def verdict(
    points: Sequence[Point], crossover: Crossover, break_even: Sequence[BreakEven], f: float
) -> Verdict:
    """Decide on the loads that were asked for.

    Parameters
    ----------
    f : float
        The draft acceptance rate assumed, for the reason.

    Notes
    -----
    Neutral is 0.95 to 1.05. On: no load loses and some load wins. Off: the other way round.
    Schedule: some win, some lose.
    """
    served = [p for p in points if p.baseline is not None or p.speculative is not None]
    unit = "requests/s" if points[0].request_rate is not None else "concurrent requests"
    if not served:
        return Verdict("off", f"no load of this list can be served: {points[0].note}")
    wins = [p for p in served if _value(p) > NEUTRAL_HIGH]
    losses = [p for p in served if _value(p) < NEUTRAL_LOW]
    first, last = served[0], served[-1]
    span = _span(first, last, unit)
    if wins and losses:
        return Verdict("schedule", _schedule_reason(served, crossover, unit))
    if wins:
        best = max(wins, key=_value)
        return Verdict(
            "on",
            f"{span} it is {_times(best)} at best (at {_load(best):g}) and "
            f"{_times(last)} at the highest{_limit(crossover, unit)}",
        )
    if losses:
        worst = min(losses, key=_value)
        return Verdict("off", f"{span} {_loss(worst, unit)}{_need(break_even, worst, f)}")
    return Verdict("neutral", f"{span} it changes speed by less than {NEUTRAL_HIGH - 1:.0%}")


def _loss(worst: Point, unit: str) -> str:
    if worst.speculative is None:
        return f"it cannot serve {_load(worst):g} {unit}, which is served without ({worst.note})"
    return (
        f"it never gains more than {NEUTRAL_HIGH - 1:.0%} and costs {1 - _value(worst):.0%} at "
        f"{_load(worst):g} {unit}"
    )


def _schedule_reason(scored: Sequence[Point], crossover: Crossover, unit: str) -> str:
    best = max(scored, key=_value)
    worst = min(scored, key=_value)
    gain = f"{_times(best)} at {_load(best):g}"
    loss = f"{_times(worst)} at {_load(worst):g}"
    if crossover.load is None:
        return f"it gives {gain} and {loss} {unit}: switch it by load"
    if len(crossover.wins) > 1:
        where = " and ".join(f"{_about(a)} to {_about(b)}" for a, b in crossover.wins)
        return f"it pays at {where} {unit} ({gain}) and not outside ({loss})"
    low, high = crossover.wins[0]
    if low > crossover.searched[0]:
        if high >= crossover.searched[1]:
            return f"it pays above {_about(low)} {unit} ({gain}) and costs below ({loss})"
        where = f"{_about(low)} to {_about(high)} {unit}"
        return f"it pays from {where} ({gain}) and costs outside ({loss})"
    return (
        f"it pays below about {_about(crossover.load)} {unit} ({gain}) and costs above ({loss}): "
        "turn it off or draft fewer tokens there"
    )


def _limit(crossover: Crossover, unit: str) -> str:
    if crossover.load is not None and crossover.load > crossover.wins[0][0]:
        return f"; the gain ends near {_about(crossover.load)} {unit}"
    if crossover.state == "always":
        return f"; no loss up to {crossover.searched[1]:.3g} {unit}"
    return ""


def _need(break_even: Sequence[BreakEven], worst: Point, f: float) -> str:
    for row in break_even:
        if row.load == _load(worst):
            if row.draft_acceptance_rate is None:
                return ": there even full acceptance would not pay"
            return (
                f": there a draft acceptance rate of {row.draft_acceptance_rate:.2f} breaks even, "
                f"and it is {f:.2f}"
            )
    return ""


def _span(first: Point, last: Point, unit: str) -> str:
    if first is last:
        return f"at {_load(first):g} {unit}"
    return f"from {_load(first):g} to {_load(last):g} {unit}"


def _load(point: Point) -> float:
    return float(point.concurrency if point.concurrency is not None else point.request_rate or 0.0)


def _value(point: Point) -> float:
    """Return the speedup; without end where only the on arm can serve, 0 where only the off."""
    if point.speedup is not None:
        return point.speedup
    return 0.0 if point.speculative is None else math.inf


def _times(point: Point) -> str:
    speedup = _value(point)
    if speedup == 0.0:
        return "not served at all"
    if math.isinf(speedup):
        return "the only way to serve"
    if abs(speedup - 1.0) < 0.005:
        return "level"
    if speedup >= 1:
        return f"{speedup:.2f}x faster"
    return f"{1 / speedup:.2f}x slower"


def _about(load: float) -> str:
    """Return a load to two digits, since its band is wider than that; whole loads as they are."""
    if load == round(load):
        return f"{load:.0f}"
    return f"{float(f'{load:.2g}'):g}"
