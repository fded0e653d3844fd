"""What a calibration learned, as the page Calibrate shows it: the fit, then what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st
from show import escaped, figure

from specsim.calibration.advise import in_words
from specsim.calibration.remarks import verdict, what_decides
from specsim.export.figures.accuracy_rows import percent
from specsim.export.figures.calibration import (
    Metric,
    fit_records,
    fitted,
    series_of,
    speedup_rows,
    speedups,
)
from specsim.export.figures.factors import factor_rows, factors
from specsim.export.tables import exact
from specsim.export.tables import figure as digits
from specsim.schema.calibration import (
    Calibration,
    CalibrationReport,
    CalibrationScope,
    Doubt,
    HeldOut,
    HeldOutCrossover,
    Suggestion,
)

_METRICS: dict[str, Metric] = {"Time per token": "tpot_ms", "Throughput": "output_tok_s"}
_SPEEDUP = "Speedup"


def report(found: CalibrationReport, names: Mapping[str, str]) -> None:
    """Draw it, below how good it is.

    Parameters
    ----------
    names : mapping
        What charts call runs that are not named by their k alone, by source.
    """
    _fit(found, names)
    _factors(found)
    _held_out(found.held_out)
    _run_next(found.suggestions)
    _distrusted(found.doubts)


def scope_words(scope: CalibrationScope) -> str:
    """Return what a calibration holds for, as Markdown."""
    devices = f"{scope.tensor_parallel_size} × " if scope.tensor_parallel_size > 1 else ""
    words = [f"{scope.model} {scope.weight_dtype}", f"{devices}{scope.accelerator}",
             f"{scope.engine} {scope.engine_version}"]  # fmt: skip
    if scope.method != "none":
        words.append(f"{scope.method} {scope.drafter or ''}".rstrip())
    return escaped(" · ".join(words))


def verdict_words(found: Calibration) -> str:
    """Return whether to trust a calibration, as Markdown."""
    said = verdict(found)
    return f"**{escaped(said[:1].upper() + said[1:])}.**"


def _bullets(texts: Sequence[str]) -> None:
    st.markdown("\n".join(f"- {escaped(text)}" for text in texts))


def how_good(found: CalibrationReport) -> None:
    """Draw what a fit is worth, before it is offered."""
    calibration = found.calibration
    left = calibration.left_out
    arms = ", ".join(
        f"{n} {arm}" for arm in ("off", "on") if (n := sum(r.arm == arm for r in found.rows))
    )
    loads = len({r.load for r in found.rows})
    with st.container(border=True):
        st.markdown(
            f"{scope_words(calibration.scope)}: {len(found.rows)} runs ({arms}) at {loads} "
            f"load{'s' if loads > 1 else ''}."
        )
        st.markdown(verdict_words(calibration))
        with st.container(horizontal=True, gap="medium"):
            st.metric("Runs off the fit", percent(100 * calibration.run_log_sd), width="content",
                      help="Spread of all runs about the fit.")  # fmt: skip
            for name, value in (
                ("Time per token", left.tpot_median_pct),
                ("Throughput", left.output_tok_s_median_pct),
                ("Speedup", left.speedup_median_pct),
            ):
                if value is not None:
                    text = f"Median error at {left.loads} loads, each left out of the fit in turn."
                    st.metric(f"{name}, unseen", percent(value), help=text, width="content")
        said = what_decides(calibration)
        st.caption(escaped(f"{said[:1].upper()}{said[1:]}."))
        for one in calibration.acceptance:
            drafts = "" if one.counts is None else f", {one.counts:,} drafts"
            st.caption(
                f"Acceptance counted at k = {one.num_speculative_tokens}: {digits(one.length)} "
                f"tokens per drafting step{drafts}."
            )
    if found.warnings:
        with st.expander(f"To know before trusting this ({len(found.warnings)})"):
            _bullets(found.warnings)


def _fit(found: CalibrationReport, names: Mapping[str, str]) -> None:
    figures = [name for name, metric in _METRICS.items() if fit_records(found, metric)]
    figures += [_SPEEDUP] if found.speedups else []
    chosen = st.segmented_control(
        "Fit", figures, default=figures[0], required=True, key="calibrate_fitted",
        label_visibility="collapsed",
    )  # fmt: skip
    if chosen == _SPEEDUP:
        figure(speedups(found), speedup_rows(found), key="calibrate_fit_speedup",
               alt="measured and fitted speedup over load")  # fmt: skip
        st.caption("Lines: the fit for the same runs, with their start and end. The table has "
                   "what it says for a steady stream too.")  # fmt: skip
        _bullets([_crossing(c, "fitted") for c in found.crossovers])
        return
    metric = _METRICS.get(chosen or figures[0], "tpot_ms")
    figure(fitted(found, metric, names), fit_records(found, metric, names),
           key=f"calibrate_fit_{metric}",
           alt=f"{chosen}: measured runs and the fit over load")  # fmt: skip
    st.caption("Dots: measured; hollow: held out. Lines and shade: fitted, with the 80 % interval. "
               "In the table, slower is measured time over fitted.")  # fmt: skip


def _crossing(one: HeldOutCrossover, word: str) -> str:
    def at(load: float | None) -> str:
        return "none on the ladder" if load is None else digits(load, 2)

    return (
        f"crossover, {series_of(one.num_speculative_tokens)}: measured {at(one.measured)}, {word} "
        f"{at(one.predicted)}; {one.steps_apart} steps of the ladder apart"
    )


def _factors(found: CalibrationReport) -> None:
    st.subheader("What the runs tell", anchor=False)
    figure(factors(found.parameters), factor_rows(found.parameters), key="calibrate_factors",
           alt="fitted factors with their intervals")  # fmt: skip
    st.caption("Blue: fitted, with the 95 % interval. Pale: what was believed before, which "
               "stands where they do not tell.")  # fmt: skip
    told = {p.name for p in found.parameters if p.identifiable}
    notes = [
        f"{c.one} and {c.other} are told together, hardly apart: correlation {c.correlation:+.2f}"
        for c in found.correlations
        if {c.one, c.other} <= told
    ]
    notes += [
        f"{p.name} stands at the limit of what is allowed: no interval; something else differs "
        "from the scenario"
        for p in found.parameters
        if p.at_bound and p.identifiable
    ]
    notes += _untold(found)
    if notes:
        _bullets(notes)


def _untold(found: CalibrationReport) -> list[str]:
    """Say of the factors that the runs leave open which run would tell them."""
    by_run: dict[str, list[str]] = {}
    for p in found.parameters:
        if p.identifiable:
            continue
        name = f"{p.name} ({p.description})"
        if p.at_most is not None:
            name += f": at most {digits(p.at_most, 2)} {p.unit}"
        tangled = [c.other if c.one == p.name else c.one for c in found.correlations
                   if p.name in (c.one, c.other)]  # fmt: skip
        if tangled:
            name += f", hardly told apart from {' and '.join(tangled)}"
        by_run.setdefault(p.would_tell, []).append(name)
    return [
        f"not told: {'; '.join(names)}: "
        + (f"a run at {run} would tell most" if run else "no single run would tell")
        for run, names in by_run.items()
    ]


def _held_out(held: HeldOut | None) -> None:
    if held is None:
        return
    st.subheader("Held out", anchor=False)
    with st.container(horizontal=True, gap="medium"):
        for name, value, scatter in (
            ("Time per token", held.tpot_median_pct, held.run_scatter_pct),
            ("Throughput", held.output_tok_s_median_pct, held.run_scatter_pct),
            ("Speedup", held.speedup_median_pct, held.speedup_scatter_pct),
        ):
            if value is not None:
                noise = "" if scatter is None else f" Repeats scatter {percent(scatter)}."
                st.metric(f"{name}, held out", percent(value), width="content",
                          help=f"Median error over {len(held.rows)} runs.{noise}")  # fmt: skip
    lines = [
        f"at {exact(s.load)}, {series_of(s.num_speculative_tokens)}: speedup measured "
        f"{s.measured:.2f}, predicted {s.predicted:.2f}"
        for s in held.speedups
    ]
    lines += [_crossing(c, "predicted") for c in held.crossovers]
    if lines:
        _bullets(lines)


def _run_next(suggestions: Sequence[Suggestion]) -> None:
    if not suggestions:
        return
    st.subheader("Run next", anchor=False)
    st.markdown(f"To narrow {escaped(suggestions[0].narrows)}:")
    _bullets(in_words(suggestions))
    st.caption("80 % interval of what the factors say; acceptance and what the model lacks come on "
               "top.")  # fmt: skip


def _distrusted(doubts: Sequence[Doubt]) -> None:
    """List runs by what is wrong with them."""
    if not doubts:
        return
    st.subheader("Distrusted", anchor=False)
    rows = [
        {"file": d.source, "in the fit": "with care" if d.used else "no", "why": d.reason}
        for d in sorted(doubts, key=lambda d: (d.used, d.source))
    ]
    st.dataframe(rows, hide_index=True, key="calibrate_distrusted")
