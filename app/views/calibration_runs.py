"""Runs that were read, as the page Calibrate shows them: what they are, and against the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import streamlit as st
from controls import fits
from show import escaped, figure
from state import DEFAULTS, UNSAID, Asked, Side, calibration

from specsim.analysis.predict import predict
from specsim.calibration.remarks import mixed_acceptance
from specsim.calibration.stated import common, differences
from specsim.errors import SpecsimError
from specsim.export.figures.calibration import (
    TITLES,
    Metric,
    as_measured,
    load_of,
    measured,
    measured_rows,
    mixed_groups,
    read_rows,
    series_of_group,
    with_runs_acceptance,
)
from specsim.export.tables import count
from specsim.export.workbook.twins import csv_text
from specsim.schema.calibration import Calibration
from specsim.schema.measurement import Measurements
from specsim.schema.results import Prediction
from specsim.schema.scenario import Scenario

READABLE = (
    "results of vllm bench, SGLang, GuideLLM, aiperf, inference-perf, llm-d or InferenceX, a CSV "
    "or XLSX table, server logs and /metrics beside them"
)
_CONTROLS = {
    "target.model": "model", "hardware.accelerator": "gpu",
    "hardware.tensor_parallel_size": "tp", "speculation.method": "method",
    "speculation.num_speculative_tokens": "k", "speculation.drafter": "drafter",
}  # fmt: skip
"""Controls of the side bar by what they hold of a scenario; the engine's has two keys."""
_SHORT: dict[Metric, str] = {"tpot_ms": "Time per token", "output_tok_s": "Throughput"}
_MOST_NAMED = 3
_MOST_REASONS = 6
"""Of files that gave nothing: said in sentences; all are in the table."""


def counted(n: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def what_was_read(read: Measurements) -> None:
    """Draw what was read, and which files gave nothing."""
    rows = read_rows(read.rows)
    runs = sum(load_of(row) is not None for row in read.rows)
    unknown = sum(row.arm == "unknown" and load_of(row) is not None for row in read.rows)
    said = f"{counted(runs, 'run')} read"
    if len(rows) > runs:
        said += f", {counted(len(rows) - runs, 'more row')} without a load (logs, metrics)"
    if read.skipped:
        said += f"; {counted(len(read.skipped), 'file')} gave nothing"
    st.markdown(f"**{said}.**")
    if unknown:
        st.warning(
            f"{unknown} of them say nowhere whether they speculate: name files or folders `off` or "
            "`on`, upload the server's log, or say below what they are taken as."
        )
    with st.expander(f"What was read ({counted(len(rows), 'row')})", expanded=not runs):
        if rows:
            st.dataframe(rows, hide_index=True)
            st.download_button("CSV", csv_text(rows), "runs.csv", "text/csv",
                               key="calibrate_read_csv", on_click="ignore")  # fmt: skip
        else:
            st.write("Not one run.")
    if read.skipped:
        _what_gave_nothing(read, runs)


def _what_gave_nothing(read: Measurements, runs: int) -> None:
    """Say which files gave nothing, why, and what is read."""
    by_reason: dict[str, list[str]] = {}
    for s in read.skipped:
        by_reason.setdefault(s.reason, []).append(s.source)
    lines = []
    for reason, sources in list(by_reason.items())[:_MOST_REASONS]:
        more = len(sources) - _MOST_NAMED
        named = ", ".join(sources[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        lines.append(f"- {escaped(named)}: {escaped(reason)}")
    if len(by_reason) > _MOST_REASONS:
        lines.append("- the others: in the table below")
    if not any("what is read: " in reason for reason in by_reason):
        lines.append(f"\nWhat is read: {READABLE}.")
    (st.warning if runs else st.error)("\n".join(lines))
    with st.expander(f"Files that gave nothing ({len(read.skipped)})"):
        skipped = [{"file": s.source, "why": s.reason} for s in read.skipped]
        st.dataframe(skipped, hide_index=True, key="calibrate_skipped")


def of_another(chosen: Asked, scenario: Scenario, read: Measurements) -> None:
    """Warn, before a fit, of what runs say that they are of and the side bar has otherwise."""
    found = differences(read.rows, scenario)
    if not found:
        return
    lines = "\n".join(f"- {escaped(each.sentence)}" for each in found)
    st.warning(f"**These runs may be of something else than the side bar says.**\n{lines}")
    values = _controls_of(common(found), chosen.side)
    if values:
        words = ", ".join(f"{name} {value}" for name, value in values.items())
        st.button(f"Set the side bar to theirs: {escaped(words)}", key="calibrate_take",
                  on_click=chosen.side.put, args=(values,))  # fmt: skip


def _controls_of(stated: Mapping[str, str | int], side: Side) -> dict[str, Any]:
    """Return controls of the side bar for what runs state, of those that can hold it."""
    values: dict[str, Any] = {
        control: stated[key] for key, control in _CONTROLS.items() if key in stated
    }
    engine, version = stated.get("engine.name", "vllm"), stated.get("engine.version")
    if "engine.name" in stated or version:
        values["engine"] = f"{engine}@{version}" if version else engine
        if values["engine"] == "vllm":
            values["engine"] = UNSAID["engine"]
    now = {name: side.get(name) for name in DEFAULTS}
    values = {n: v for n, v in values.items() if fits(n, v, {**now, **values})}
    if {"model", "method"} & set(values) and now["drafter"] != UNSAID["drafter"]:
        # That of another model or method cannot stay.
        values = {"drafter": UNSAID["drafter"], **values}
    return values


def of_one_acceptance(read: Measurements) -> tuple[Measurements, tuple[str, ...]]:
    """Let runs of one k be told apart that counted different acceptance.

    Returns
    -------
    (runs to go on with, names of the groups that are among them)
    """
    groups = {series_of_group(group): group for group in mixed_groups(read.rows)}
    if not groups:
        return read, ()
    st.warning("\n".join(f"- {escaped(text)}" for text in mixed_acceptance(read.rows)))
    chosen = st.pills(
        "Runs with speculation to go on with", list(groups), selection_mode="multi",
        default=list(groups), key=f"calibrate_groups_{'_'.join(groups)}",
    )  # fmt: skip
    dropped = {row.source for name, g in groups.items() if name not in chosen for row in g.rows}
    rows = tuple(row for row in read.rows if row.source not in dropped)
    return dataclasses.replace(read, rows=rows), tuple(chosen)


@st.cache_data(show_spinner=False, max_entries=16)
def _prediction(text: str, fitted: str) -> Prediction:
    found = Calibration.model_validate_json(fitted) if fitted else None
    return predict(Scenario.model_validate_json(text), calibration=found)


def against_the_model(scenario: Scenario, read: Measurements) -> None:
    """Draw runs over the curves that the model has for their loads."""
    st.subheader("Runs against the model", anchor=False)
    fitted = calibration()
    try:
        asked = as_measured(scenario, read.rows)
        constants = "" if fitted is None else fitted.model_dump_json()
        found = _prediction(asked.model_dump_json(exclude_unset=True), constants)
        apart = {
            series_of_group(group): _prediction(
                with_runs_acceptance(asked, group.rows).model_dump_json(exclude_unset=True),
                constants,
            )
            for group in mixed_groups(read.rows)
            if group.num_speculative_tokens == scenario.speculation.num_speculative_tokens
        }
    except SpecsimError as problem:
        st.error(escaped(str(problem)))
        return
    metric = _metric("calibrate_metric")
    rows = measured_rows(found, read.rows, metric, apart)
    if not any(row["what"] == "measured" for row in rows):
        st.info(f"No run says its {TITLES[metric]} and its arm.")
    figure(measured(found, read.rows, metric, apart), rows, key=f"calibrate_model_{metric}",
           alt=f"{_SHORT[metric]} of measured runs over the model's curves")  # fmt: skip
    lengths = f"{count(asked.workload.input_tokens)} in, {count(asked.workload.output_tokens)} out"
    of = "shipped constants" if fitted is None else "calibrated constants"
    st.caption(f"Lines: the side bar's deployment with {of}, at the runs' loads and lengths "
               f"({lengths} tokens). Dots: measured.")  # fmt: skip


def _metric(key: str) -> Metric:
    chosen: Metric | None = st.segmented_control(
        "Figure", list(_SHORT), default="tpot_ms", required=True, key=key,
        format_func=_SHORT.__getitem__, label_visibility="collapsed",
    )  # fmt: skip
    return chosen or "tpot_ms"
