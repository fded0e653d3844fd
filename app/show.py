"""What pages show with: a chart with its table and CSV, side by side for two scenarios."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st
from state import Asked, calibration, uploaded_path

from specsim.analysis.predict import predict
from specsim.errors import SpecsimError
from specsim.export.figures.curves import table
from specsim.export.tables import count
from specsim.export.workbook.twins import csv_text
from specsim.schema.calibration import Calibration
from specsim.schema.results import Prediction
from specsim.schema.scenario import Scenario

_MOST_DIFFERENCES = 6


@st.cache_data(show_spinner=False, max_entries=64)
def _predicted(text: str, fitted: str) -> Prediction:
    calibration = Calibration.model_validate_json(fitted) if fitted else None
    return predict(Scenario.model_validate_json(text), calibration=calibration)


def predicted(asked: Asked) -> Prediction | None:
    """Return the prediction of a side; where there is none, say in a sentence why."""
    if asked.scenario is None:
        st.error(escaped(asked.error))
        return None
    try:
        fitted = calibration()
        return _predicted(
            asked.scenario.model_dump_json(exclude_unset=True),
            "" if fitted is None else fitted.model_dump_json(),
        )
    except SpecsimError as problem:
        st.error(escaped(str(problem)))
        return None


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    text = text.replace("\\", "\\\\").replace("<", "&lt;").replace(">", "&gt;")
    # No link that nobody checked.
    text = text.replace("://", ":\u200b//").replace("www.", "www\u200b.")
    for sign in "`*_{}[]()#+!|~$:":
        text = text.replace(sign, f"\\{sign}")
    return text


def beside(asked: Sequence[Asked], draw: Callable[[Asked], None]) -> None:
    """Draw a page for one side, or for two beside each other, each under what it is of."""
    if len(asked) == 1:
        st.caption(escaped(words_of(asked[0])))
        draw(asked[0])
        return
    for side, column in zip(asked, st.columns(2, gap="large"), strict=True):
        with column:
            st.caption(f"**Scenario {side.title}** · {escaped(words_of(side))}")
            if side is not asked[0] and (changed := _differences(asked[0], side)):
                st.caption(f"Differs from {asked[0].title}: {escaped(changed)}")
            draw(side)


def words_of(asked: Asked) -> str:
    """Return a scenario in a line."""
    scenario = asked.scenario
    if scenario is None:
        return "not a scenario yet"
    hardware, speculation, workload = scenario.hardware, scenario.speculation, scenario.workload
    n_gpus = hardware.tensor_parallel_size * hardware.pipeline_parallel_size
    way = "no speculation"
    if speculation.method != "none":
        k = speculation.num_speculative_tokens
        way = speculation.method + ("" if k is None else f", k = {k}")
    unit = "in flight" if scenario.load.request_rate is None else "requests/s"
    model = scenario.target.model
    return " · ".join((
        "your config.json" if model == uploaded_path(asked.side) else model,
        f"{n_gpus} × {hardware.accelerator}",
        way,
        f"{workload.input_tokens:g} tokens in, {workload.output_tokens:g} out",
        f"{count(asked.load)} {unit}",
    ))  # fmt: skip


def _differences(one: Asked, other: Asked) -> str:
    """Return the keys in which a scenario differs from another, with their values."""
    if one.scenario is None or other.scenario is None:
        return ""
    before, after = (
        dict(flat(a.scenario.model_dump(mode="json", exclude={"name", "load"})))
        for a in (one, other)
        if a.scenario is not None
    )
    found = [f"{k} {v}" for k, v in after.items() if v != before.get(k)]
    if one.load != other.load:
        found.append(f"load {count(other.load)}")
    more = len(found) - _MOST_DIFFERENCES
    return ", ".join(found[:_MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")


def flat(data: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return the values of nested mappings by dotted key."""
    pairs: list[tuple[str, Any]] = []
    for key, value in data.items():
        if isinstance(value, Mapping):
            pairs += flat(value, f"{prefix}{key}.")
        else:
            pairs.append((prefix + key, value))
    return pairs


def figure(
    chart: Any,
    rows: Sequence[Mapping[str, Any]],
    *,
    key: str,
    alt: str,
    on_select: Callable[[], None] | None = None,
) -> None:
    """Show a chart, and under it its numbers as a table and as CSV."""
    more: dict[str, Any] = {} if on_select is None else {"on_select": on_select}
    if isinstance(chart, dict):
        st.vega_lite_chart(None, chart, key=key, alt=alt, **more)
    else:
        st.altair_chart(chart, key=key, alt=alt, **more)
    # Made when it is opened: a table costs as much as a chart.
    numbers = st.expander("Numbers", key=f"{key}_numbers", on_change="rerun")
    if numbers.open:
        with numbers:
            shown = table(rows)
            st.dataframe(shown, hide_index=True)
            st.download_button("CSV", csv_text(shown), f"{key}.csv", "text/csv", key=f"{key}_csv",
                               on_click="ignore")  # fmt: skip
