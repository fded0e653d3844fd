"""A simulation as text: what it comes to, both arms' percentiles, promises, the tail."""

from __future__ import annotations

import math
from typing import Any

from specsim.cli.words import heading, joined, loads_in, notes, titled, wrapped
from specsim.export.tables import MISSING, Cell, Column, column, described, exact, figure, table
from specsim.export.terminal import Role, Screen
from specsim.schema.results import NEUTRAL_HIGH, NEUTRAL_LOW
from specsim.schema.simulation import (
    METRICS,
    STATISTICS,
    ArmName,
    ArmSimulation,
    OverTime,
    Percentiles,
    Simulation,
)
from specsim.schema.slo import Metric

WORDS: dict[ArmName, str] = {"baseline": "off", "speculative": "on", "routed": "routed"}
_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = ".:-=+*%#"


def arms_of(answer: Simulation) -> dict[ArmName, ArmSimulation]:
    """Return the arms that there are, off first."""
    arms: dict[ArmName, ArmSimulation | None] = {
        "baseline": answer.baseline,
        "speculative": answer.speculative,
        "routed": answer.routed,
    }
    return {name: arm for name, arm in arms.items() if arm is not None}


def report(screen: Screen, answer: Simulation) -> list[str]:
    """Return the lines of the report."""
    sections = [
        heading(screen, answer.scenario, answer.provenance),
        titled(screen, "UNDER LOAD", f"{_sent(answer)}; {answer.verdict}"),
        promises(screen, answer),
        percentiles(screen, answer),
        _service(screen, answer),
        _over_time(screen, answer),
        notes(screen, "WHAT THE SLOWEST WAIT FOR", [t.sentence for t in answer.tails]),
        notes(screen, "DEFAULTS", answer.defaults),
        notes(screen, "WARNINGS", answer.warnings, role="neutral"),
    ]
    return joined(sections)


def _sent(answer: Simulation) -> str:
    load = answer.load
    requests, times = load["requests_measured"], load["replications"]
    n = f"{requests:,} request{'s' if requests != 1 else ''}"
    n += f", {times} times over" if times > 1 else ""
    if load["kind"] == "concurrency":
        sent = loads_in(load["value"], "concurrent requests")
    elif load["kind"] == "trace":
        rate = f" ({figure(load['value'])} requests/s)" if load["value"] < math.inf else ""
        sent = f"the trace {load['trace']}{rate}"
    else:
        sent = loads_in(load["value"], "requests/s")
    pools = load["pools"]
    if pools is not None:
        sent += (
            f" on {pools['on'] + pools['off']} replicas (routed: {pools['on']} on, {pools['off']} "
            f"off, above {figure(pools['route_above'], 2)} requests in a replica)"
        )
    return f"{sent}, {n}, seed {answer.seed}"


def promises(screen: Screen, answer: Simulation) -> list[str]:
    """Return each promise with what each arm reaches."""
    if answer.slo is None:
        return []
    arms = arms_of(answer)
    rows = [
        {name: answer.slo_met[name][i] for name in arms}
        for i in range(len(answer.slo_met["baseline"]))
    ]
    key = column("promise", ("",), rows, lambda r: _promise(r["baseline"]), left=True)
    columns = [_reached(name, [row[name] for row in rows]) for name in arms]
    lines = [screen.paint("SLO", "strong")]
    if rows:
        lines += table(screen, key, columns)
    for name, arm in arms.items():
        if arm.goodput is not None and arm.attainment is not None:
            lines += wrapped(
                screen,
                f"{WORDS[name]}: {arm.attainment:.1%} of requests meet it each, goodput "
                f"{figure(arm.goodput)} requests/s",
            )
    return lines


def _reached(name: ArmName, results: list[dict[str, Any]]) -> Column:
    return column(
        WORDS[name],
        ("reached", ""),
        results,
        lambda result: figure(result["value"]),
        lambda result: _met(result["met"]),
    )


def _promise(result: dict[str, Any]) -> str:
    sign = ">=" if result["target"] == "attainment_pct" else "<="
    return f"{result['target']} {sign} {exact(result['limit'])}"


def _met(met: bool) -> Cell:
    return Cell("met", "good") if met else Cell("missed", "bad")


def percentiles(screen: Screen, answer: Simulation) -> list[str]:
    """Return the table of latencies, arms side by side, and on / off with its interval."""
    arms = arms_of(answer)
    rows = [(metric, name) for metric in METRICS for name in STATISTICS]
    key = column("ms", ("",), rows, lambda r: f"{r[0].upper()} {r[1]}", left=True)
    columns = [_latency(name, arm, rows, answer.intervals[name]) for name, arm in arms.items()]
    for arm in ("speculative", "routed"):
        ratios = answer.intervals.get(f"{arm}_to_baseline")
        if ratios is not None:
            title = "on / off" if arm == "speculative" else "routed / off"
            columns.append(_ratio_column(title, rows, ratios))
    legend = "; ".join(f"{m.upper()}: {described(ArmSimulation, f'{m}_ms')[0]}" for m in METRICS)
    lines = [screen.paint("LATENCY", "strong"), *table(screen, key, columns)]
    faint = wrapped(
        screen, f"{legend}; on / off: below 1 is faster, both arms get the same requests"
    )
    return lines + [screen.paint(line, "faint") for line in faint]


def _latency(
    name: ArmName,
    arm: ArmSimulation,
    rows: list[tuple[Metric, str]],
    intervals: dict[str, Any],
) -> Column:
    return column(
        WORDS[name],
        ("", "95 %"),
        rows,
        lambda row: figure(arm.percentiles(row[0]).statistic(row[1])),
        lambda row: _bounds(intervals[f"{row[0]}_ms"][row[1]]),
    )


def _ratio_column(title: str, rows: list[Any], ratios: dict[str, Any]) -> Column:
    def entry(row: Any) -> dict[str, Any]:
        found: dict[str, Any] = ratios[f"{row[0]}_ms"][row[1]]
        return found

    def ratio(row: Any) -> Cell:
        value = entry(row)["value"]
        if value != value:
            return Cell(MISSING)
        role: Role = "bad" if value > NEUTRAL_HIGH else "good" if value < NEUTRAL_LOW else "neutral"
        return Cell(f"{value:.2f}×", role)

    def bounds(row: Any) -> str:
        low, high = entry(row)["low"], entry(row)["high"]
        return MISSING if low is None else f"{low:.2f}–{high:.2f}"

    return column(title, ("", "95 %"), rows, ratio, bounds)


def _bounds(bounds: tuple[float, float] | None) -> str:
    return MISSING if bounds is None else f"{figure(bounds[0])}–{figure(bounds[1])}"


_SERVICE = (
    "output_tok_s", "request_per_s", "tokens_per_step", "running", "waiting", "kv_used",
    "kv_used_max", "preemptions", "completed", "rejected",
)  # fmt: skip


def _service(screen: Screen, answer: Simulation) -> list[str]:
    arms = arms_of(answer)
    key = column(
        "", ("",), _SERVICE,
        lambda name: ", ".join(filter(None, described(ArmSimulation, name))), left=True,
    )  # fmt: skip

    def value(arm: ArmSimulation, name: str) -> str:
        number = getattr(arm, name)
        if name.startswith("kv_used"):
            return f"{number:.0%}"
        return f"{number:,}" if isinstance(number, int) else figure(number)

    columns = [
        column(WORDS[name], ("",), [value(arm, field) for field in _SERVICE], str)
        for name, arm in arms.items()
    ]
    return [screen.paint("SERVICE", "strong"), *table(screen, key, columns)]


def _over_time(screen: Screen, answer: Simulation) -> list[str]:
    """Draw batch and queue over time, on one scale for all arms."""
    arms = arms_of(answer)
    top = {
        part: max(max(getattr(arm.over_time, part)) for arm in arms.values())
        for part in ("running", "waiting")
    }
    lines = [screen.paint("OVER TIME (first replication)", "strong")]
    for part, most in top.items():
        if most <= 0:
            continue
        for name, arm in arms.items():
            bars = _bars(screen, arm.over_time, part, most)
            lines.append(f"  {part:8} {WORDS[name]:7} {bars} up to {figure(most, 2)}")
    end = answer.baseline.over_time.time_s[-1]
    return [*lines, *wrapped(screen, f"from left to right {figure(end)} s")]


def _bars(screen: Screen, over_time: OverTime, part: str, most: float) -> str:
    marks = _BARS if screen.unicode else _PLAIN_BARS
    values = getattr(over_time, part)
    places = (min(int(v / most * len(marks)), len(marks) - 1) for v in values)
    return "".join(" " if v <= 0 else marks[i] for v, i in zip(values, places, strict=True))


def brief(percentile: Percentiles) -> str:
    """Return mean and p99 in a few words."""
    return f"{figure(percentile.mean)} ms on average, {figure(percentile.p99)} at p99"
