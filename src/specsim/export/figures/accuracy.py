"""Predicted against measured, drawn: every published point, and curve by curve."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, cast

from specsim.export.figures.accuracy_rows import (
    Checked,
    arm_rows,
    curve_rows,
    is_open,
    point_rows,
)
from specsim.export.figures.look import (
    HEIGHT,
    OFF,
    ON,
    TURN,
    altair,
    apart,
    dataset,
    end_names,
    load_axis,
    load_title,
    only_load,
    with_data,
)

TUNE, TEST = ON, TURN
_WITHIN = 0.15
_LIMITS = (0.4, 5.0)


def scatter(cases: Iterable[Checked]) -> dict[str, Any]:
    """Draw predicted over measured speedup with 80 % intervals; what lies beyond is on the edge."""
    low, high = _LIMITS
    rows = [
        {**row, **{f"{name}_at": min(max(row[name], low), high)
                   for name in ("measured", "predicted", "low", "high") if row[name] is not None}}
        for row in point_rows(cases)
    ]  # fmt: skip
    margin = [{"x": x, "low": x * (1 - _WITHIN), "high": x * (1 + _WITHIN)} for x in _LIMITS]
    return with_data(_scatter_form(), {"points": rows, "margin": margin})


@functools.cache
def _scatter_form() -> dict[str, Any]:
    alt = altair()
    scale = alt.Scale(type="log", domain=list(_LIMITS), nice=False)
    axis = alt.Axis(values=[0.5, 0.7, 1, 1.5, 2, 3, 4, 5], format="~g", grid=True)
    x = alt.X("measured_at:Q", scale=scale, axis=axis, title="measured speedup, on / off")
    y = alt.Y("predicted_at:Q", scale=scale, axis=axis, title="predicted speedup")
    colour = alt.Color(
        "role:N", scale=alt.Scale(domain=["tune", "test"], range=[TUNE, TEST]),
        legend=alt.Legend(orient="top", title="role"),
    )  # fmt: skip
    shape = alt.Shape(
        "grade:N", scale=alt.Scale(domain=["A", "B", "C"], range=["circle", "diamond", "cross"]),
        legend=alt.Legend(orient="top", title="grade"),
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("case:N"), alt.Tooltip("model:N"), alt.Tooltip("GPU:N"),
        alt.Tooltip("method:N"), alt.Tooltip("k:Q"), alt.Tooltip("load:Q"),
        *(alt.Tooltip(f"{name}:Q", title=title, format=".2f")
          for name, title in (("measured", "measured"), ("predicted", "predicted"),
                              ("low", "10th pct"), ("high", "90th pct"))),
        alt.Tooltip("error %:Q", format="+.1f"), alt.Tooltip("grade:N"), alt.Tooltip("role:N"),
        alt.Tooltip("source:N"),
    ]  # fmt: skip
    margin = alt.Chart(dataset(alt, "margin"))
    points = alt.Chart(dataset(alt, "points"))
    form = alt.layer(
        margin.mark_area(opacity=0.15, color=OFF, clip=True).encode(
            x=alt.X("x:Q", scale=scale), y=alt.Y("low:Q", scale=scale), y2="high:Q"
        ),
        margin.mark_line(color=OFF, strokeWidth=1.5).encode(
            x=alt.X("x:Q", scale=scale), y=alt.Y("x:Q", scale=scale)
        ),
        points.mark_rule(opacity=0.25, strokeWidth=1.5).encode(
            x=x, y=alt.Y("low_at:Q", scale=scale), y2="high_at:Q", color=colour
        ),
        points.mark_point(size=55, strokeWidth=1.6)
        .encode(
            x=x, y=y, color=colour, shape=shape, tooltip=tooltip,
            opacity=alt.condition("datum.grade == 'C'", alt.value(0.55), alt.value(1.0)),
        )
        .add_params(alt.selection_point(name="picked", fields=["case"])),
    ).properties(height=HEIGHT + 160)  # fmt: skip
    return cast(dict[str, Any], form.to_dict())


def curve(c: Checked, ladder: str) -> dict[str, Any] | None:
    """Draw the speedup of a ladder, measured and predicted; None where none was measured."""
    rows = [
        row for row in curve_rows(c, ladder)
        if row["measured"] is not None and row["predicted"] is not None and row["load"]
    ]  # fmt: skip
    if not rows:
        return None
    data = {"points": rows, "one": [{"one": 1.0}], "ends": [
        {"load": rows[-1]["load"], "value": rows[-1][name], "what": name}
        for name in ("measured", "predicted")
    ]}  # fmt: skip
    both = [{"value": row[name]} for row in rows for name in ("measured", "predicted")]
    data["ends"] = apart(data["ends"], both)
    return with_data(_curve_form(is_open=is_open(c, ladder), only=only_load(rows)), data)


@functools.cache
def _curve_form(*, is_open: bool, only: float | None) -> dict[str, Any]:
    alt = altair()
    x = load_axis(alt, is_open=is_open, only=only)
    scale = alt.Scale(zero=False)
    title = "speedup, on / off"
    base = alt.Chart(dataset(alt, "points")).encode(x=x)
    colour = alt.Color("what:N", scale=alt.Scale(domain=["measured", "predicted"],
                                                 range=[TURN, ON]), legend=None)  # fmt: skip
    tooltip = [alt.Tooltip("load:Q", title=load_title(is_open=is_open)), *(
        alt.Tooltip(f"{name}:Q", format=".2f") for name in ("measured", "predicted", "low", "high")
    ), alt.Tooltip("error %:Q", format="+.1f")]  # fmt: skip
    form = alt.layer(
        base.mark_area(opacity=0.2, color=ON).encode(
            y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q"
        ),
        alt.Chart(dataset(alt, "one"))
        .mark_rule(strokeDash=[4, 4], color=OFF)
        .encode(y=alt.Y("one:Q", scale=scale)),
        base.mark_line(strokeWidth=2.5, color=ON).encode(y="predicted:Q"),
        base.mark_point(filled=True, size=45, color=ON, opacity=1).encode(
            y="predicted:Q", tooltip=tooltip
        ),
        base.mark_line(strokeDash=[3, 3], color=TURN, opacity=0.6).encode(y="measured:Q"),
        base.mark_point(filled=True, size=75, color=TURN, opacity=1).encode(
            y="measured:Q", tooltip=tooltip
        ),
        end_names(alt, "what", x=x, y=alt.Y("value:Q", scale=scale), color=colour),
    ).properties(height=HEIGHT)
    return cast(dict[str, Any], form.to_dict())


def arms(c: Checked, ladder: str, metric: str) -> dict[str, Any] | None:
    """Draw an absolute figure of both arms: lines predicted, dots measured; None: not measured."""
    rows = arm_rows(c, ladder, metric)
    if not rows:
        return None
    ends = [max((r for r in rows if r["arm"] == arm), key=lambda r: cast(float, r["load"]))
            for arm in sorted({r["arm"] for r in rows})]  # fmt: skip
    ends = apart(ends, rows, value="predicted")
    form = _arms_form(metric, is_open=is_open(c, ladder), only=only_load(rows))
    return with_data(form, {"points": rows, "ends": ends})


@functools.cache
def _arms_form(metric: str, *, is_open: bool, only: float | None) -> dict[str, Any]:
    alt = altair()
    title = "time per output token [ms]" if metric == "tpot_ms" else "output tokens/s"
    x = load_axis(alt, is_open=is_open, only=only)
    colour = alt.Color("arm:N", scale=alt.Scale(domain=["off", "on"], range=[OFF, ON]), legend=None)
    base = alt.Chart(dataset(alt, "points")).encode(x=x, color=colour)
    tooltip = [alt.Tooltip("arm:N"), alt.Tooltip("load:Q", title=load_title(is_open=is_open)),
               alt.Tooltip("measured:Q", format=",.4g"), alt.Tooltip("predicted:Q", format=",.4g"),
               alt.Tooltip("error %:Q", format="+.1f")]  # fmt: skip
    form = alt.layer(
        base.mark_line(strokeWidth=2.5).encode(y=alt.Y("predicted:Q", title=title)),
        base.mark_point(filled=True, size=75, opacity=1).encode(y="measured:Q", tooltip=tooltip),
        end_names(alt, "arm", x=x, y="predicted:Q", color=colour),
    ).properties(height=HEIGHT)
    return cast(dict[str, Any], form.to_dict())
