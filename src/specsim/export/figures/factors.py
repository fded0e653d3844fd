"""The factors that a fit found, with what was believed before."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

from specsim.export.figures.look import OFF, ON, Rows, altair, dataset, with_data
from specsim.schema.calibration import ParameterReport

_FACTORS = (0.1, 10.0)
"""Ends of the axis of factors: what lies beyond stands on the edge."""


def factor_rows(parameters: Sequence[ParameterReport]) -> Rows:
    """Return a record per factor: its interval, the prior's, and the constant itself."""
    return [
        {"parameter": p.name, "what": p.description, "told": p.identifiable,
         "factor": p.factor, "low": p.low, "high": p.high, "prior low": p.prior_low,
         "prior high": p.prior_high, "constant": p.value, "unit": p.unit,
         "at its limit": p.at_bound and p.identifiable, "would tell more": p.would_tell}
        for p in parameters
    ]  # fmt: skip


def factors(parameters: Sequence[ParameterReport]) -> dict[str, Any]:
    """Draw each factor with its 95 % interval over that of the prior; 1 is as shipped."""
    low, high = _FACTORS

    def held(value: float | None) -> float | None:
        return None if value is None else min(max(value, low), high)

    records = [
        {**row, "prior_from": held(row["prior low"]), "prior_to": held(row["prior high"]),
         "from": held(row["low"]), "to": held(row["high"]), "at": held(row["factor"]),
         "state": "" if row["told"] else "not told"}
        for row in factor_rows(parameters)
    ]  # fmt: skip
    datasets = {"factors": records, "told": [r for r in records if r["told"]],
                "one": [{"one": 1.0}]}  # fmt: skip
    return {**with_data(_factors_form(), datasets), "height": 28 * len(records) + 60}


@functools.cache
def _factors_form() -> dict[str, Any]:
    alt = altair()
    scale = alt.Scale(type="log", domain=list(_FACTORS), nice=False)
    axis = alt.Axis(values=[0.1, 0.2, 0.5, 1, 2, 5, 10], format="~g")
    title = "factor on the shipped constant"
    every = alt.Chart(dataset(alt, "factors")).encode(
        y=alt.Y("parameter:N", sort=None, title=None, axis=alt.Axis(labelLimit=200, ticks=False))
    )
    told = every.properties(data=dataset(alt, "told"))
    tooltip = [
        alt.Tooltip("parameter:N"), alt.Tooltip("what:N"),
        *(alt.Tooltip(f"{name}:Q", format=".3g")
          for name in ("factor", "low", "high", "prior low", "prior high", "constant")),
        alt.Tooltip("unit:N"), alt.Tooltip("would tell more:N"),
    ]  # fmt: skip
    x = alt.X("prior_from:Q", scale=scale, axis=axis, title=title)
    one = alt.Chart(dataset(alt, "one")).mark_rule(strokeDash=[4, 4], color=OFF)
    form = alt.layer(
        every.mark_bar(height=16, opacity=0.2, color=OFF).encode(
            x=x, x2="prior_to:Q", tooltip=tooltip
        ),
        one.encode(x=alt.X("one:Q", scale=scale)),
        told.mark_bar(height=6, color=ON, opacity=0.75).encode(
            x=alt.X("from:Q", scale=scale), x2="to:Q", tooltip=tooltip
        ),
        told.mark_point(filled=True, size=90, color=ON, opacity=1).encode(
            x=alt.X("at:Q", scale=scale), tooltip=tooltip
        ),
        every.mark_text(color=OFF, fontSize=11, align="left", dx=5).encode(
            x=alt.value(0), text="state:N"
        ),
    )
    return cast(dict[str, Any], form.to_dict())
