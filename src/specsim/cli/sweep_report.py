"""What a sweep found, as text: the curves, the crossover, latencies and the scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specsim.cli.words import crossover_in_words, joined, notes, wrapped
from specsim.export.tables import MISSING, Cell, Column, column, exact, figure, table
from specsim.export.terminal import Curve, Plot, Role, Screen
from specsim.schema.measurement import Skipped
from specsim.schema.results import NEUTRAL_HIGH, NEUTRAL_LOW
from specsim.schema.sweep import (
    SweepComparison,
    SweepPoint,
    SweepSpeedup,
    SweepSummary,
)

_UNITS = {"concurrency": "concurrent requests", "request_rate": "requests/s"}
_LEGEND = (
    "tok/s: output tokens per second, mean over repeats; speedup: on / off, with the 80 % interval "
    "that the scatter of repeats gives; TPOT: time per output token, TTFT: time to first token, "
    "percentiles over requests"
)
_LEGEND_OPEN = (
    "tok/s: output tokens per second; speedup: time per output token, off / on, with the 80 % "
    "interval that the scatter of repeats gives; TTFT: time to first token, percentiles over "
    "requests"
)
_SHOWN_SKIPPED = 8


def report(screen: Screen, summary: SweepSummary, skipped: Sequence[Skipped] = ()) -> list[str]:
    """Return the whole report."""
    unit = _UNITS[summary.load_kind]
    return joined(
        [
            _heading(screen, summary),
            *(_crossover(screen, each, unit) for each in summary.comparisons),
            _speedup_plot(screen, summary, unit),
            _throughput_plot(screen, summary, unit),
            _by_load(screen, summary),
            _acceptance(screen, summary),
            _scatter(screen, summary),
            notes(screen, "WARNINGS", summary.warnings, role="neutral"),
            _skipped(screen, skipped),
        ]
    )


def _heading(screen: Screen, summary: SweepSummary) -> list[str]:
    runs = sum(point.runs for curve in summary.curves for point in curve.points)
    loads = len({point.load for curve in summary.curves for point in curve.points})
    versions = f" · vllm {', '.join(summary.engine_versions)}" if summary.engine_versions else ""
    ways = sorted({curve.method for curve in summary.curves if curve.method})
    way = f" · {', '.join(ways)}" if ways else ""
    text = f"{runs} runs of {len(summary.curves)} servers at {loads} loads{way}{versions}"
    return [screen.paint(text, "strong")]


def _crossover(screen: Screen, each: SweepComparison, unit: str) -> list[str]:
    found = each.crossover
    if each.has_interval or found.load is None:
        text = crossover_in_words(found, unit)
    else:
        wins = " and from ".join(f"{figure(a)} to {figure(b)}" for a, b in found.wins)
        text = (
            f"Speculation wins from {wins} {unit}; the curves cross at about "
            f"{figure(found.load, 2)}."
        )
    text = text.replace("(searched:", "(measured:")
    if not each.has_interval:
        several = any(point.pairs > 1 for point in each.points)
        text += f" {'Too few repeats' if several else 'One repeat'}: no interval."
    return [
        screen.paint(f"MEASURED CROSSOVER, {each.label}", "strong"),
        *wrapped(screen, text),
    ]


def _speedup_plot(screen: Screen, summary: SweepSummary, unit: str) -> list[str]:
    several = len(summary.comparisons) > 1
    curves = [
        Curve(
            x=[p.load for p in each.points],
            y=[p.speedup for p in each.points],
            # Bands of several curves would hide one another.
            low=[] if several else [p.speedup if p.low is None else p.low for p in each.points],
            high=[] if several else [p.speedup if p.high is None else p.high for p in each.points],
            name=each.label if several else "",
            dots=True,
        )
        for each in summary.comparisons
        if len(each.points) > 1
    ]
    if not curves:
        return []
    mark = span = None
    found = summary.comparisons[0].crossover
    if not several and found.load is not None:
        mark = (found.load, f"crossover {figure(found.load, 2)}")
        if summary.comparisons[0].has_interval:
            first, last = found.searched
            span = (
                first / 2 if found.low is None else found.low,
                last * 2 if found.high is None else found.high,
            )
    band = "; shaded: 80 % interval" if not several else ""
    plot = Plot(
        curves=curves,
        x_title=f"measured speedup over {unit}{band}",
        log_x=True,
        x_ticks=sorted({x for curve in curves for x in curve.x}),
        mark=mark,
        mark_span=span,
    )
    return [screen.paint("SPEEDUP", "strong"), *plot.draw(screen)]


def _throughput_plot(screen: Screen, summary: SweepSummary, unit: str) -> list[str]:
    curves = [curve for curve in summary.curves if len(curve.points) > 1]
    if not curves or summary.load_kind == "request_rate":
        return []  # in an open loop throughput is what arrives
    one = curves[0].points[0]
    plot = Plot(
        curves=[
            Curve(
                x=[p.load for p in curve.points],
                y=[p.output_tok_s / one.output_tok_s for p in curve.points],
                name=curve.label,
                dots=True,
            )
            for curve in curves
        ],
        x_title=f"throughput over {unit}; 1×: {figure(one.output_tok_s)} tok/s, "
        f"{curves[0].label} at {exact(one.load)}",
        log_x=True,
        x_ticks=sorted({p.load for curve in curves for p in curve.points}),
        max_rows=14,
    )
    return [screen.paint("THROUGHPUT", "strong"), *plot.draw(screen)]


def _by_load(screen: Screen, summary: SweepSummary) -> list[str]:
    loads = sorted({point.load for curve in summary.curves for point in curve.points})
    heads = [curve.label for curve in summary.curves]
    points = [{p.load: p for p in curve.points} for curve in summary.curves]

    def cells(name: str) -> list[Callable[[float], str]]:
        return [_cell(by_load, name) for by_load in points]

    key = column("load", ("",), loads, exact)
    columns: list[Column] = []
    for each in summary.comparisons:
        own = {p.load: p for p in each.points}
        title = "speedup" if len(summary.comparisons) == 1 else f"speedup {each.label}"
        columns.append(
            column(title, ("", "80 % interval"), loads, _speedup(own), _interval(own))
            if each.has_interval
            else column(title, ("",), loads, _speedup(own))
        )
    columns += [
        column(title, heads, loads, *cells(name))
        for title, name in (
            ("tok/s", "output_tok_s"), ("TPOT p50 ms", "tpot_p50_ms"),
            ("TPOT p99 ms", "tpot_p99_ms"), ("TTFT p50 ms", "ttft_p50_ms"),
            ("TTFT p99 ms", "ttft_p99_ms"), ("ITL p50 ms", "itl_p50_ms"),
        )
    ]  # fmt: skip
    columns.append(column("runs", heads, loads, *cells("runs")))
    legend = _LEGEND if summary.load_kind == "concurrency" else _LEGEND_OPEN
    return [
        screen.paint("BY LOAD", "strong"),
        *table(screen, key, columns),
        *(screen.paint(line, "faint") for line in wrapped(screen, legend)),
    ]


def _cell(points: dict[float, SweepPoint], name: str) -> Callable[[float], str]:
    def text(load: float) -> str:
        value = getattr(points[load], name) if load in points else None
        if value is None:
            return MISSING
        return str(value) if name == "runs" else figure(value)

    return text


def _speedup(points: dict[float, SweepSpeedup]) -> Callable[[float], Cell]:
    def cell(load: float) -> Cell:
        if load not in points:
            return Cell(MISSING)
        value = points[load].speedup
        role: Role = "neutral"
        if not NEUTRAL_LOW <= value <= NEUTRAL_HIGH:
            role = "good" if value > 1 else "bad"
        return Cell(f"{value:.2f}×", role)

    return cell


def _interval(points: dict[float, SweepSpeedup]) -> Callable[[float], str]:
    def text(load: float) -> str:
        point = points.get(load)
        if point is None or point.low is None or point.high is None:
            return MISSING
        return f"{point.low:.2f}–{point.high:.2f}"

    return text


def _acceptance(screen: Screen, summary: SweepSummary) -> list[str]:
    lines = []
    for curve in summary.curves:
        found = curve.acceptance
        if curve.arm == "off" or found is None:
            continue
        parts = [f"{curve.label}: length {found.acceptance_length:.2f} tokens per step"]
        if found.per_position:
            parts.append("by position " + " ".join(f"{p:.2f}" for p in found.per_position))
        if found.draft_acceptance_rate is not None:
            parts.append(f"draft acceptance rate {found.draft_acceptance_rate:.2f}")
        if found.drafts is not None:
            parts.append(f"{found.drafts:,} drafts")
        lines += wrapped(screen, " · ".join(parts))
    return [screen.paint("ACCEPTANCE", "strong"), *lines] if lines else []


def _scatter(screen: Screen, summary: SweepSummary) -> list[str]:
    if summary.scatter_frac is None:
        text = "One repeat: not known. Measure each load twice (--repeats 2)."
    else:
        own = [each.scatter_frac for each in summary.comparisons if each.scatter_frac is not None]
        text = f"Throughput {summary.scatter_frac:.1%} (pooled over points)"
        if own:
            text += f", speedup of one pair of runs {' and '.join(f'{x:.1%}' for x in own)}"
        text += ": standard deviations of single runs."
    return [screen.paint("SCATTER OF REPEATS", "strong"), *wrapped(screen, text)]


def _skipped(screen: Screen, skipped: Sequence[Skipped]) -> list[str]:
    said = [f"{each.source}: {each.reason}" for each in skipped[:_SHOWN_SKIPPED]]
    more = len(skipped) - _SHOWN_SKIPPED
    return notes(screen, "NOT READ", [*said, *([f"{more} more"] if more > 0 else [])])
