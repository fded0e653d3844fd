"""What to do, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specsim.schema.results import (
    NEUTRAL_HIGH,
    NEUTRAL_LOW,
    BreakEven,
    Crossover,
    Point,
    SpeculativePoint,
    Verdict,
)

_DRAFT_BOUND = 0.4
"""Share of a step that drafting takes where it is named as the cause."""
_SLOW_START = 3.0
"""Ratio of times to first token that is worth a warning."""
_SLOW_START_MS = 200.0


def verdict(
    points: Sequence[Point],
    crossover: Crossover,
    break_even: Sequence[BreakEven],
    f: float,
    *,
    largest_rates: tuple[float, float] | None = None,
    does_not_start: bool = False,
) -> Verdict:
    """Decide on the loads that were asked for.

    Parameters
    ----------
    f : float
        The draft acceptance rate assumed, for the reason.
    largest_rates : pair of float, optional
        Largest stable rates off and on, in an open loop. [requests/s]
    does_not_start : bool
        The engine refuses the deployment as it is written.

    Notes
    -----
    Neutral is 0.95 to 1.05. On: no load loses and some load wins. Off: the other way round.
    Schedule: some win, some lose. Where neither arm serves any of the loads, the larger capacity
    decides.
    """
    found = _decide(points, crossover, break_even, f, largest_rates)
    reason = found.reason + _slow_start(points) + _too_much(points, largest_rates)
    if does_not_start:
        reason += "; as written vLLM does not start: see the first warning"
    return Verdict(found.decision, reason)


def _decide(
    points: Sequence[Point],
    crossover: Crossover,
    break_even: Sequence[BreakEven],
    f: float,
    largest_rates: tuple[float, float] | None,
) -> Verdict:
    is_open = points[0].request_rate is not None
    served = [p for p in points if p.baseline is not None or p.speculative is not None]
    if not served:
        return _overloaded(points, largest_rates)
    wins = [p for p in served if _value(p) > NEUTRAL_HIGH]
    losses = [p for p in served if _value(p) < NEUTRAL_LOW]
    span = _span(served, is_open)
    if wins and losses:
        return Verdict("schedule", _schedule_reason(served, crossover, is_open))
    if wins:
        best, last = max(wins, key=_value), served[-1]
        gains = f"it is {_times(best)}"
        if len(served) > 1:
            gains = f"it is {_times(best)} at best (at {_load(best):g})"
            if last is not best:
                gains += f" and {_times(last)} at the highest"
        limit = _limit(crossover, is_open)
        return Verdict("on", f"{span} {gains}{limit}{_because(best)}")
    if losses:
        worst = min(losses, key=_value)
        need = _need(break_even, worst, f)
        return Verdict("off", f"{span} {_loss(worst, is_open)}{need}{_because(worst)}")
    return Verdict("neutral", f"{span} it changes speed by less than {NEUTRAL_HIGH - 1:.0%}")


def _overloaded(points: Sequence[Point], largest_rates: tuple[float, float] | None) -> Verdict:
    if largest_rates is None:
        return Verdict("off", f"no load of this list can be served: {points[0].note}")
    off, on = largest_rates
    asked = max(_load(p) for p in points)
    reason = (
        f"{asked:g} requests/s overload a replica either way: it serves up to {off:.3g} with "
        f"speculation off and {on:.3g} on, so {math.ceil(asked / off)} replicas off or "
        f"{math.ceil(asked / on)} on are the least"
    )
    if on > NEUTRAL_HIGH * off:
        return Verdict("on", reason)
    return Verdict("off" if on < NEUTRAL_LOW * off else "neutral", reason)


def _too_much(points: Sequence[Point], largest_rates: tuple[float, float] | None) -> str:
    """Say which of the rates overload both arms, where others do not."""
    over = [_load(p) for p in points if p.baseline is None and p.speculative is None]
    if largest_rates is None or not over or len(over) == len(points):
        return ""
    off, on = largest_rates
    return (
        f"; {min(over):g} requests/s and more overload a replica: off serves {off:.3g}, on {on:.3g}"
    )


def _loss(worst: Point, is_open: bool) -> str:
    if worst.speculative is None:
        served = _amount(_load(worst), is_open)
        return f"it cannot serve {served}, which is served without ({worst.note})"
    return (
        f"it never gains more than {NEUTRAL_HIGH - 1:.0%} and costs {1 - _value(worst):.0%} at "
        f"{_amount(_load(worst), is_open)}"
    )


def _because(point: Point, at: str = "") -> str:
    """Say what speculation does to a step at this load, which `at` names where nothing else did."""
    off, on = point.baseline, point.speculative
    if off is None or on is None:
        return ""
    if on.limited_by != "load" and on.batch < off.batch:
        cause = "max_num_seqs" if on.limited_by == "max_num_seqs" else "the KV cache"
        room = f"only {on.batch:.0f} requests run at a time, {off.batch:.0f} without"
        return f": {at}{cause} lets {room}"
    longer = on.step_ms / off.step_ms
    yields = f"a step takes {longer:.1f} times as long and yields {on.tokens_per_step:.1f} tokens"
    return f": {at}{yields}{_cause(on)}"


def _cause(on: SpeculativePoint) -> str:
    if on.draft_ms > _DRAFT_BOUND * on.step_ms:
        launches = " (launches and the host)" if on.bound == "host" else ""
        return f", {on.draft_ms / on.step_ms:.0%} of it drafting{launches}"
    words = {
        "memory": "memory-bound",
        "kv": "bound by reading the cache",
        "compute": "compute-bound",
        "communication": "bound by communication",
        "host": "bound by launches and the host",
    }
    return f" ({words[on.bound]})"


def _slow_start(points: Sequence[Point]) -> str:
    """Warn where requests wait for a place in the smaller cache."""
    for p in points:
        off, on = p.baseline, p.speculative
        if off is None or on is None or on.limited_by == "load":
            continue
        if on.ttft_ms > max(_SLOW_START * off.ttft_ms, _SLOW_START_MS):
            return (
                f"; mind the first token at {_load(p):g}: {_ms(off.ttft_ms)} off, "
                f"{_ms(on.ttft_ms)} on, as only {on.batch:.0f} requests run at a time"
            )
    return ""


def _ms(value: float) -> str:
    return f"{value / 1000:.2g} s" if value >= 1000 else f"{value:.0f} ms"


def _schedule_reason(served: Sequence[Point], crossover: Crossover, is_open: bool) -> str:
    best = max(served, key=_value)
    worst = min(served, key=_value)
    unit = _unit(is_open)
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
    turn = _first_loss(served, crossover.load, worst)
    at = "" if turn is worst else f"at {_load(turn):g} "
    return (
        f"it pays below about {_about(crossover.load)} {unit} ({gain}) and costs above ({loss})"
        f"{_because(turn, at)}; turn it off or draft fewer tokens "
        "there"
    )


def _first_loss(served: Sequence[Point], crossover: float, worst: Point) -> Point:
    """Return the point beyond the crossover that tells why it costs: the first that does."""
    losing = [p for p in served if _load(p) > crossover and _value(p) < 1.0]
    return min(losing, key=_load, default=worst)


def _limit(crossover: Crossover, is_open: bool) -> str:
    if crossover.load is not None and crossover.load > crossover.wins[0][0]:
        return f"; the gain ends near {_amount(float(_about(crossover.load)), is_open)}"
    if crossover.state == "always":
        text = f"; no loss up to {_amount(float(_about(crossover.searched[1])), is_open)}"
        return (
            text
            if crossover.low is None
            else f"{text} (80 % interval: from {_about(crossover.low)})"
        )
    return ""


def _need(break_even: Sequence[BreakEven], worst: Point, f: float) -> str:
    for row in break_even:
        if row.load == _load(worst):
            if row.draft_acceptance_rate is None:
                return ", where even full acceptance would not pay"
            return (
                f", where a draft acceptance rate of {row.draft_acceptance_rate:.2f} breaks even "
                f"and it is {f:.2f}"
            )
    return ""


def _span(served: Sequence[Point], is_open: bool) -> str:
    first, last = _load(served[0]), _load(served[-1])
    if len(served) == 1:
        return f"at {_amount(first, is_open)}"
    return f"from {first:g} to {_amount(last, is_open)}"


def _amount(load: float, is_open: bool) -> str:
    if load == 1 and not is_open:
        return "1 concurrent request"
    return f"{load:g} {_unit(is_open)}"


def _unit(is_open: bool) -> str:
    return "requests/s" if is_open else "concurrent requests"


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
        return f"{speedup:.2f}× faster"
    return f"{1 / speedup:.2f}× slower"


def _about(load: float) -> str:
    """Return a load to two digits, since its band is wider than that; whole loads as they are."""
    if load == round(load):
        return f"{load:.0f}"
    return f"{float(f'{load:.2g}'):g}"
