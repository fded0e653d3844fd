"""Measured runs over the model's curves, what a fit makes of them, and the factors it found."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, cast

from specsim.analysis.overlay import with_counted_acceptance
from specsim.calibration.acceptance import counted_acceptance
from specsim.calibration.remarks import AcceptanceGroup, acceptance_groups
from specsim.export.figures.look import (
    HEIGHT,
    OFF,
    ON,
    TURN,
    Rows,
    altair,
    apart,
    dataset,
    end_names,
    load_axis,
    load_title,
    only_load,
    with_data,
)
from specsim.schema.calibration import CalibrationReport, FitRow
from specsim.schema.measurement import Measurement
from specsim.schema.results import BaselinePoint, Point, Prediction, SpeculativePoint
from specsim.schema.scenario import Load, Scenario

Metric = Literal["tpot_ms", "output_tok_s"]
TITLES: dict[Metric, str] = {
    "tpot_ms": "time per output token [ms]",
    "output_tok_s": "output tokens/s of a replica",
}
_COLOURS = (ON, TURN, "#009e73", "#cc79a7", "#b87700", "#56b4e9")
"""Of runs with speculation, by k."""
_LADDER = tuple(2.0**i for i in range(11))


def load_of(row: Measurement) -> tuple[float, bool] | None:
    """Return the load of a run and whether it is a request rate; None where it has none."""
    if row.request_rate and row.request_rate > 0:
        return row.request_rate, True
    return None if row.concurrency is None else (row.concurrency, False)


def series_of(k: int) -> str:
    """Return what the runs of one k are called in charts: `off` is k = 0."""
    return f"on, k = {k}" if k else "off"


def series_of_group(group: AcceptanceGroup) -> str:
    """Return what runs are called that differ from others of their k in acceptance."""
    return f"{series_of(group.num_speculative_tokens)}, {group.length:.2f} a step"


def mixed_groups(rows: Sequence[Measurement]) -> tuple[AcceptanceGroup, ...]:
    """Return the runs by acceptance, of each k that has more than one."""
    found = acceptance_groups(rows).values()
    return tuple(group for groups in found if len(groups) > 1 for group in groups)


def names_of_mixed(rows: Sequence[Measurement]) -> dict[str, str]:
    """Return what charts call runs that are not named by their k alone, by source."""
    return {row.source: series_of_group(g) for g in mixed_groups(rows) for row in g.rows}


def read_rows(rows: Iterable[Measurement]) -> Rows:
    """Return a record per row that was read: of runs, and of what logs and metrics lend them."""
    found: Rows = []
    for row in rows:
        load = load_of(row)
        acceptance = row.acceptance
        found.append(
            {
                "file": row.source,
                "read as": row.format,
                "speculation": row.arm,
                "said by": row.arm_from,
                "k": row.num_speculative_tokens,
                "load": None if load is None else load[0],
                "load is": "" if load is None else "requests/s" if load[1] else "in flight",
                "input_tokens": row.input_tokens,
                "output_tokens": row.output_tokens,
                "tpot_ms": None if row.tpot_ms is None else row.tpot_ms.mean,
                "ttft_ms": None if row.ttft_ms is None else row.ttft_ms.mean,
                "output_tok_s": row.output_tok_s,
                "tokens per step": None if acceptance is None else acceptance.acceptance_length,
                "to know": "; ".join(row.warnings),
            }
        )
    return found


def as_measured(scenario: Scenario, rows: Sequence[Measurement]) -> Scenario:
    """Return a scenario with the loads, lengths and acceptance of runs where they say them.

    Where runs are at request rates and at concurrencies, the commoner kind counts.
    """
    runs = [(row, load) for row in rows if (load := load_of(row)) is not None]
    if not runs:
        return scenario
    is_open = sum(load[1] for _, load in runs) * 2 > len(runs)
    loads = {load[0] for _, load in runs if load[1] == is_open}
    if not is_open:
        loads |= {x for x in _LADDER if min(loads) <= x <= max(loads)}
    ordered = tuple(sorted(loads))
    ladder = Load(request_rate=ordered) if is_open else Load(concurrency=ordered)
    lengths = {
        name: statistics.median(stated)
        for name in ("input_tokens", "output_tokens")
        if (stated := [v for row, _ in runs if (v := getattr(row, name))])
    }
    workload = scenario.workload.model_copy(update=lengths)
    changed = scenario.model_copy(update={"load": ladder, "workload": workload})
    return with_runs_acceptance(changed, rows)


def with_runs_acceptance(scenario: Scenario, rows: Sequence[Measurement]) -> Scenario:
    """Return a scenario with the acceptance that runs counted in place of its own."""
    counted = counted_acceptance(rows, method=scenario.speculation.method)
    return with_counted_acceptance(without_acceptance(scenario, rows), counted)[0]


def without_acceptance(scenario: Scenario, rows: Sequence[Measurement]) -> Scenario:
    """Return a scenario that leaves its acceptance to runs, where they counted it."""
    if scenario.speculation.method == "none":
        return scenario
    if not counted_acceptance(rows, method=scenario.speculation.method):
        return scenario
    speculation = scenario.speculation.model_copy(update={"acceptance": None})
    return scenario.model_copy(update={"speculation": speculation})


def measured_rows(
    prediction: Prediction,
    rows: Sequence[Measurement],
    metric: Metric,
    of_groups: Mapping[str, Prediction] = MappingProxyType({}),
) -> Rows:
    """Return a record per run, and per load of the prediction: measured, or predicted.

    Parameters
    ----------
    of_groups : mapping
        Predictions for runs that differ in acceptance, by what these are called.
    """
    is_open = prediction.points[0].request_rate is not None
    predicted_k = int(prediction.scenario["speculation"].get("num_speculative_tokens") or 0)
    names = names_of_mixed(rows)
    found: Rows = []
    for row in rows:
        load = load_of(row)
        value = row.output_tok_s
        if metric == "tpot_ms":
            value = None if row.tpot_ms is None else row.tpot_ms.mean
        if load is None or load[1] != is_open or value is None or row.arm == "unknown":
            continue
        k = (row.num_speculative_tokens or predicted_k) if row.arm == "on" else 0
        run = names.get(row.source, series_of(k))
        found.append({"what": "measured", "load": load[0], "run": run,
                      "value": value, "file": row.source})  # fmt: skip
    on = dict(of_groups) or {series_of(predicted_k): prediction}
    curves: list[tuple[str, list[tuple[Point, BaselinePoint | SpeculativePoint | None]]]]
    curves = [(series_of(0), [(p, p.baseline) for p in prediction.points])]
    curves += [(run, [(p, p.speculative) for p in one.points]) for run, one in on.items()]
    for run, services in curves:
        for p, service in services:
            at = p.concurrency if p.request_rate is None else p.request_rate
            if service is not None and (value := getattr(service, metric)) is not None:
                found.append({"what": "predicted", "load": at, "run": run, "value": value,
                              "file": ""})  # fmt: skip
    return found


def measured(
    prediction: Prediction,
    rows: Sequence[Measurement],
    metric: Metric,
    of_groups: Mapping[str, Prediction] = MappingProxyType({}),
) -> dict[str, Any]:
    """Draw runs as dots over the curves that are predicted for their loads."""
    return _runs_chart(
        measured_rows(prediction, rows, metric, of_groups),
        TITLES[metric],
        is_open=prediction.points[0].request_rate is not None,
    )


def fit_records(
    report: CalibrationReport, metric: Metric, names: Mapping[str, str] = MappingProxyType({})
) -> Rows:
    """Return a record per run of a fit, and of those held out: measured, fitted and its band.

    Parameters
    ----------
    names : mapping
        What runs are called that are not named by their k alone, by source.
    """
    fields = ("tpot_ms", "fit_tpot_ms", "fit_tpot_low_ms", "fit_tpot_high_ms")
    if metric == "output_tok_s":
        fields = ("output_tok_s", "fit_output_tok_s", "fit_output_tok_s_low",
                  "fit_output_tok_s_high")  # fmt: skip
    held = () if report.held_out is None else report.held_out.rows
    return [
        record
        for rows, what in ((report.rows, "measured"), (held, "held out"))
        for row in rows
        if (record := _fit_record(row, fields, what, names)) is not None
    ]


def _fit_record(
    row: FitRow, fields: tuple[str, ...], what: str, names: Mapping[str, str]
) -> dict[str, Any] | None:
    value, fit, low, high = (getattr(row, name) for name in fields)
    if value is None or fit is None:
        return None
    run = names.get(row.source, series_of(row.num_speculative_tokens))
    return {"what": what, "load": row.load, "run": run,
            "value": value, "fitted": fit, "low": low, "high": high,
            "slower %": row.residual_pct, "left out, slower %": row.left_out_pct,
            "weight": row.weight, "file": row.source}  # fmt: skip


def fitted(
    report: CalibrationReport, metric: Metric, names: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Draw runs as dots over the fit's curves and 80 % bands; those held out are hollow."""
    records = fit_records(report, metric, names)
    curves: Rows = []
    for run, load in sorted({(r["run"], r["load"]) for r in records}):
        same = [r for r in records if (r["run"], r["load"]) == (run, load)]
        # Runs of one load differ a little in what they held: the curve goes through their middle.
        curve = {"what": "predicted", "run": run, "load": load, "file": "",
                 "value": statistics.mean(r["fitted"] for r in same)}  # fmt: skip
        if all(r["low"] is not None and r["high"] is not None for r in same):
            curve |= {"low": statistics.mean(r["low"] for r in same),
                      "high": statistics.mean(r["high"] for r in same)}  # fmt: skip
        curves.append(curve)
    open_loads = {r.request_rate for r in report.calibration.runs if r.request_rate is not None}
    return _runs_chart([*records, *curves], TITLES[metric], is_open=bool(open_loads))


def _runs_chart(records: Rows, title: str, *, is_open: bool) -> dict[str, Any]:
    lines = [r for r in records if r["what"] == "predicted"]
    # Runs without a line, of a k that the scenario does not have, are named at their last dot.
    ends = [
        max(
            (r for r in lines if r["run"] == run) if run in drawn else
            (r for r in records if r["run"] == run),
            key=lambda r: (cast(float, r["load"]), cast(float, r["value"])),
        )
        for drawn in [{r["run"] for r in lines}]
        for run in _ordered(records)
    ]  # fmt: skip
    form = _runs_form(title, tuple(_ordered(records)), is_open=is_open, only=only_load(records))
    return with_data(
        form,
        {
            "lines": lines,
            "bands": [r for r in lines if r.get("low") is not None],
            "dots": [r for r in records if r["what"] == "measured"],
            "held": [r for r in records if r["what"] == "held out"],
            "ends": apart(ends, records),
        },
    )


def _ordered(records: Rows) -> list[str]:
    return sorted({r["run"] for r in records}, key=lambda run: (run != "off", len(run), run))


@functools.cache
def _runs_form(
    title: str, runs: tuple[str, ...], *, is_open: bool, only: float | None
) -> dict[str, Any]:
    alt = altair()
    on = [run for run in runs if run != "off"]
    colours = {"off": OFF} | {run: _COLOURS[i % len(_COLOURS)] for i, run in enumerate(on)}
    colour = alt.Color(
        "run:N", legend=None, scale=alt.Scale(domain=list(runs), range=[colours[r] for r in runs])
    )
    x = load_axis(alt, is_open=is_open, only=only)
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
    tooltip = [
        alt.Tooltip("what:N", title="point"), alt.Tooltip("run:N", title="speculation"),
        alt.Tooltip("load:Q", title=load_title(is_open=is_open)),
        alt.Tooltip("value:Q", title=title, format=",.4g"),
        alt.Tooltip("file:N"),
    ]  # fmt: skip
    dots = alt.Chart(dataset(alt, "dots")).mark_point(filled=True, size=65, opacity=0.9)
    held = alt.Chart(dataset(alt, "held")).mark_point(size=65, strokeWidth=2, opacity=0.9)
    lines = alt.Chart(dataset(alt, "lines")).encode(x=x, y=y, color=colour)
    band = alt.Chart(dataset(alt, "bands")).mark_area(opacity=0.18)
    form = alt.layer(
        band.encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        lines.mark_line(strokeWidth=2.5),
        dots.encode(x=x, y=y, color=colour, tooltip=tooltip),
        held.encode(x=x, y=y, color=colour, tooltip=tooltip),
        end_names(alt, "run", x=x, y=y, color=colour),
    ).properties(height=HEIGHT)
    return cast(dict[str, Any], form.to_dict())


def speedup_rows(report: CalibrationReport) -> Rows:
    """Return a record per load and k: the measured speedup, that of the fit, and in a stream."""
    held = () if report.held_out is None else report.held_out.speedups
    found: Rows = [
        {"what": "measured", "run": series_of(s.num_speculative_tokens), "load": s.load,
         "measured": s.measured, "fitted": s.fitted, "steady": s.predicted}
        for s in report.speedups
    ]  # fmt: skip
    found += [
        {"what": "held out", "run": series_of(s.num_speculative_tokens), "load": s.load,
         "measured": s.measured, "fitted": s.predicted, "steady": None}
        for s in held
    ]  # fmt: skip
    return sorted(found, key=lambda r: (r["run"], r["load"]))


def speedups(report: CalibrationReport) -> dict[str, Any]:
    """Draw the measured speedups over the fit's: a line for the runs as they were."""
    records = [{**r, "value": r["measured"], "file": ""} for r in speedup_rows(report)]
    lines = [{**r, "what": "predicted", "value": r["fitted"]} for r in records]
    is_open = any(r.request_rate is not None for r in report.calibration.runs)
    return _runs_chart([*records, *lines], "speedup, on / off", is_open=is_open)
