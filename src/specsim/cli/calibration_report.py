"""What a calibration learned, as text: factors first, then what they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specsim.cli.words import joined, notes, wrapped
from specsim.export.tables import MISSING, Cell, column, exact, figure, table
from specsim.export.terminal import Curve, Plot, Screen
from specsim.schema.calibration import (
    CalibrationReport,
    Doubt,
    FitRow,
    HeldOut,
    ParameterReport,
)
from specsim.schema.measurement import Skipped

_UNTOLD = "not told"
_MOST_SKIPPED = 8
_FAR_PCT = 10.0


def report(
    screen: Screen,
    found: CalibrationReport,
    *,
    skipped: Sequence[Skipped] = (),
    notes_of_input: Sequence[str] = (),
    written: Sequence[Path] = (),
) -> list[str]:
    """Return the lines of the report."""
    return joined(
        [
            _heading(screen, found),
            _factors(screen, found),
            _untold(screen, found),
            _errors(screen, found),
            _speedups(screen, found),
            _held_out(screen, found.held_out),
            _residuals(screen, found.rows),
            _plot(screen, found.rows),
            _doubts(screen, found.doubts),
            _suggestions(screen, found),
            _skipped(screen, skipped),
            notes(screen, "WARNINGS", (*found.warnings, *notes_of_input), role="neutral"),
            _written(screen, written),
        ]
    )


def _heading(screen: Screen, found: CalibrationReport) -> list[str]:
    scope = found.calibration.scope
    speculation = "" if scope.method == "none" else f" · {scope.method} {scope.drafter or ''}"
    devices = f"{scope.tensor_parallel_size} x " if scope.tensor_parallel_size > 1 else ""
    title = (
        f"{scope.model} {scope.weight_dtype} · {devices}{scope.accelerator} · {scope.engine} "
        f"{scope.engine_version}{speculation}"
    )
    used = len(found.rows)
    arms = ", ".join(
        f"{sum(r.arm == arm for r in found.rows)} {arm}"
        for arm in ("off", "on")
        if any(r.arm == arm for r in found.rows)
    )
    n_loads = len({r.load for r in found.rows})
    lines = [
        screen.paint(title.rstrip(), "strong"),
        f"calibrated on {used} runs ({arms}) at {n_loads} load{'s' if n_loads > 1 else ''}",
    ]
    for counted in found.calibration.acceptance:
        drafts = "" if counted.counts is None else f", {counted.counts:,} drafts"
        lines.append(
            f"acceptance counted at k = {counted.num_speculative_tokens}: "
            f"{figure(counted.length)} tokens per drafting step{drafts}"
        )
    return lines


def _factors(screen: Screen, found: CalibrationReport) -> list[str]:
    rows = found.parameters
    key = column("parameter", ("",), rows, lambda p: p.name, left=True)
    columns = [
        column("factor", ("",), rows, _factor),
        column("95 % interval", ("",), rows, _interval),
        column("constant", ("",), rows, _constant),
        column("prior 95 %", ("",), rows, lambda p: _span(p.prior_low, p.prior_high)),
    ]
    lines = [screen.paint("FITTED", "strong") + "  factor on the shipped constant, 1 as shipped"]
    lines += table(screen, key, columns)
    told = {p.name for p in rows if p.identifiable}
    for pair in found.correlations:
        if {pair.one, pair.other} <= told:
            lines += wrapped(
                screen,
                f"{pair.one} and {pair.other} are told together, hardly apart: correlation "
                f"{pair.correlation:+.2f}",
            )
    for parameter in rows:
        if parameter.at_bound and parameter.identifiable:
            lines += wrapped(
                screen,
                f"{parameter.name} stands at the limit of what is allowed: no interval; something "
                "else differs from the scenario",
            )
    return lines


def _factor(parameter: ParameterReport) -> Cell:
    if parameter.factor is None:
        return Cell(_UNTOLD, "faint")
    return Cell(figure(parameter.factor), "neutral" if parameter.at_bound else "plain")


def _interval(parameter: ParameterReport) -> str:
    if parameter.low is None or parameter.high is None:
        return MISSING
    if parameter.at_bound:
        return "at its limit"
    return _span(parameter.low, parameter.high)


def _span(low: float, high: float) -> str:
    return f"{figure(low, 2)}–{figure(high, 2)}"


def _constant(parameter: ParameterReport) -> str:
    if parameter.value is None:
        return MISSING
    return f"{figure(parameter.value)} {parameter.unit}"


def _untold(screen: Screen, found: CalibrationReport) -> list[str]:
    """Say of every factor that the runs leave open which run would tell it."""
    by_tail: dict[str, list[str]] = {}
    for parameter in found.parameters:
        if parameter.identifiable:
            continue
        name = f"{parameter.name} ({parameter.description})"
        if parameter.at_most is not None:
            name += f": at most {figure(parameter.at_most, 2)} {parameter.unit}"
        tangled = [
            c.other if c.one == parameter.name else c.one
            for c in found.correlations
            if parameter.name in (c.one, c.other)
        ]
        if tangled:
            name += f", hardly told apart from {' and '.join(tangled)}"
        run = parameter.would_tell
        tail = f"a run at {run} would tell most" if run else "no single run would tell"
        by_tail.setdefault(tail, []).append(name)
    entries = [f"{'; '.join(names)}: {tail}" for tail, names in by_tail.items()]
    lines = notes(screen, "NOT TOLD BY THESE RUNS", entries)
    if lines:
        text = "left open, the prior around the shipped value decides"
        lines[0] += "  " + text
    return lines


def _errors(screen: Screen, found: CalibrationReport) -> list[str]:
    calibration = found.calibration
    left = calibration.left_out
    lines = [screen.paint("HOW GOOD", "strong"), *wrapped(screen, found.verdict)]
    scatter = f"runs scatter {100 * calibration.run_log_sd:.1f} % about the fit"
    if not left.loads:
        text = f"{scatter}; fewer than three loads: none can be left out to test the fit"
        return [*lines, *wrapped(screen, text)]
    figures = [
        f"{name} {value:.1f} %"
        for name, value in (
            ("time per token", left.tpot_median_pct),
            ("throughput", left.output_tok_s_median_pct),
            ("speedup", left.speedup_median_pct),
        )
        if value is not None
    ]
    text = (
        f"median error at loads that the fit did not see, each left out in turn ({left.loads}): "
        f"{', '.join(figures)}; {scatter}"
    )
    return [*lines, *wrapped(screen, text)]


def _speedups(screen: Screen, found: CalibrationReport) -> list[str]:
    """Return what the runs and the fit say of speculation itself."""
    if not found.speedups:
        return []
    rows = sorted(found.speedups, key=lambda s: (s.num_speculative_tokens, s.load))
    key = column("k", ("",), rows, lambda s: str(s.num_speculative_tokens), left=True)
    columns = [
        column("load", ("",), rows, lambda s: exact(s.load)),
        column("speedup", ("measured", "fitted", "steady"), rows,
               lambda s: f"{s.measured:.2f}", lambda s: f"{s.fitted:.2f}",
               lambda s: MISSING if s.predicted is None else f"{s.predicted:.2f}"),
    ]  # fmt: skip
    lines = [screen.paint("SPEEDUP", "strong"), *table(screen, key, columns)]
    lines += wrapped(
        screen,
        "fitted: for the same runs, with their start and end; steady: what predict says for a "
        "steady stream of such requests",
    )
    for one in found.crossovers:
        lines += wrapped(
            screen,
            f"crossover, k = {one.num_speculative_tokens}: measured {_crossing(one.measured)}, "
            f"fitted {_crossing(one.predicted)}",
        )
    return lines


def _held_out(screen: Screen, held: HeldOut | None) -> list[str]:
    """Return the test on loads that were kept from the fit."""
    if held is None:
        return []
    figures = [
        f"{name} {value:.1f} %" + ("" if scatter is None else f" (repeats scatter {scatter:.1f} %)")
        for name, value, scatter in (
            ("time per token", held.tpot_median_pct, held.run_scatter_pct),
            ("throughput", held.output_tok_s_median_pct, held.run_scatter_pct),
            ("speedup", held.speedup_median_pct, held.speedup_scatter_pct),
        )
        if value is not None
    ]
    lines = [
        screen.paint("HELD OUT", "strong")
        + f"  {len(held.rows)} runs kept from the fit and predicted",
        *wrapped(screen, f"median error: {'; '.join(figures)}"),
    ]
    for each in held.speedups:
        off = 100.0 * (each.predicted / each.measured - 1.0)
        lines += wrapped(
            screen,
            f"at {exact(each.load)}, k = {each.num_speculative_tokens}: speedup measured "
            f"{each.measured:.2f}, predicted {each.predicted:.2f} ({off:+.1f} %)",
        )
    for one in held.crossovers:
        lines += wrapped(
            screen,
            f"crossover, k = {one.num_speculative_tokens}: measured {_crossing(one.measured)}, "
            f"predicted {_crossing(one.predicted)}: {one.steps_apart} steps of the ladder apart",
        )
    return [*lines, *_runs(screen, held.rows)]


def _crossing(load: float | None) -> str:
    return "none on the ladder" if load is None else figure(load, 2)


def _residuals(screen: Screen, rows: Sequence[FitRow]) -> list[str]:
    return [
        screen.paint("RUNS AGAINST THE FIT", "strong"),
        *wrapped(screen, "slower: measured time over fitted; left out: fitted without this load"),
        *_runs(screen, rows),
    ]


def _runs(screen: Screen, rows: Sequence[FitRow]) -> list[str]:
    ordered = sorted(rows, key=lambda r: (r.num_speculative_tokens, r.load, r.source))
    key = column("run", ("",), ordered, _arm, left=True)
    columns = [
        column("load", ("",), ordered, lambda r: exact(r.load)),
        column("tpot ms", ("measured", "fitted", "80 %"), ordered,
               lambda r: figure(r.tpot_ms), lambda r: figure(r.fit_tpot_ms),
               lambda r: _band(r.fit_tpot_low_ms, r.fit_tpot_high_ms)),
        column("tok/s", ("measured", "fitted"), ordered,
               lambda r: figure(r.output_tok_s), lambda r: figure(r.fit_output_tok_s)),
        column("slower by %", ("fit", "left out"), ordered,
               lambda r: _pct(r.residual_pct), lambda r: _pct(r.left_out_pct)),
    ]  # fmt: skip
    return table(screen, key, columns)


def _arm(row: FitRow) -> str:
    return f"on k={row.num_speculative_tokens}" if row.num_speculative_tokens else "off"


def _band(low: float | None, high: float | None) -> str:
    return MISSING if low is None or high is None else f"{figure(low)}–{figure(high)}"


def _pct(value: float | None) -> Cell:
    if value is None:
        return Cell(MISSING)
    return Cell(f"{value:+.1f}", "neutral" if abs(value) > _FAR_PCT else "plain")


def _plot(screen: Screen, rows: Sequence[FitRow]) -> list[str]:
    """Draw measured over fitted time by load: a level line is a good fit."""
    curves = []
    for k in sorted({r.num_speculative_tokens for r in rows}):
        by_load: dict[float, list[float]] = {}
        for row in rows:
            if row.num_speculative_tokens == k:
                by_load.setdefault(row.load, []).append(1.0 + row.residual_pct / 100.0)
        loads = sorted(by_load)
        if len(loads) > 1:
            ratios = [sum(by_load[load]) / len(by_load[load]) for load in loads]
            name = f"on k={k}" if k else "off"
            curves.append(Curve(x=loads, y=ratios, name=name, dots=True))
    if not curves:
        return []
    ticks = sorted({x for curve in curves for x in curve.x})
    plot = Plot(
        curves=curves, x_title="measured time / fitted, over load", log_x=True, x_ticks=ticks,
        max_rows=9,
    )  # fmt: skip
    return plot.draw(screen)


def _doubts(screen: Screen, doubts: Sequence[Doubt]) -> list[str]:
    """Group runs by what is wrong with them."""
    by_reason: dict[tuple[bool, str], list[str]] = {}
    for doubt in doubts:
        by_reason.setdefault((doubt.used, doubt.reason), []).append(doubt.source)
    entries = []
    for (used, reason), sources in sorted(by_reason.items()):
        shown = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if sources[3:] else "")
        entries.append(f"{'used with care' if used else 'not used'}: {shown}: {reason}")
    return notes(screen, "DISTRUSTED", entries, role="neutral")


def _suggestions(screen: Screen, found: CalibrationReport) -> list[str]:
    if not found.suggestions:
        return []
    from specsim.calibration.advise import in_words

    title = f"RUN NEXT, to narrow {found.suggestions[0].narrows}"
    lines = notes(screen, title, in_words(found.suggestions))
    text = "80 % interval of what the factors say; acceptance and what the model lacks come on top"
    return [*lines, *wrapped(screen, text)]


def _skipped(screen: Screen, skipped: Sequence[Skipped]) -> list[str]:
    entries = [f"{s.source}: {s.reason}" for s in skipped[:_MOST_SKIPPED]]
    if len(skipped) > _MOST_SKIPPED:
        entries.append(f"and {len(skipped) - _MOST_SKIPPED} more (--json lists all)")
    return notes(screen, "FILES NOT READ", entries)


def _written(screen: Screen, written: Sequence[Path]) -> list[str]:
    if not written:
        return []
    lines = wrapped(screen, f"written: {', '.join(map(str, written))}")
    calibrations = [p for p in written if p.suffix != ".svg"]
    if calibrations:
        lines += wrapped(screen, f"use it: specsim predict ... --calibration {calibrations[0]}")
    return lines
