"""What pages show with: a chart with its table and CSV, side by side for two scenarios."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st
from state import Asked, calibration

from specsim.analysis.predict import predict
from specsim.errors import SpecsimError
from specsim.export.figures.curves import table
from specsim.export.workbook.twins import csv_text
from specsim.schema.calibration import Calibration
from specsim.schema.results import Prediction
from specsim.schema.scenario import Scenario


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
    """Draw a part of a page for one side, or for two beside each other."""
    if len(asked) == 1:
        draw(asked[0])
        return
    for side, column in zip(asked, st.columns(2, gap="large"), strict=True):
        with column:
            st.caption(f"Scenario {side.title}")
            draw(side)


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
