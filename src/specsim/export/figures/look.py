"""What all figures share: colours that the colour-blind tell apart, axes, and direct labels."""

from __future__ import annotations

from typing import Any

from specsim.errors import MissingExtraError

OFF, ON, TURN, LOAD = "#7d8894", "#2b8cc4", "#d55e00", "#e69f00"
"""Speculation off and on, the crossover, the load that is asked about: on white and on black."""
PARTS = {
    "memory": "#2b8cc4", "kv": "#56b4e9", "compute": "#d55e00", "communication": "#cc79a7",
    "host": "#7d8894",
}  # fmt: skip
PHASES = {"draft": "#e69f00", "verify": "#2b8cc4", "host": "#7d8894"}
HEIGHT = 300


def altair() -> Any:
    """Return the module Altair.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        import altair as alt
    except ImportError as error:
        raise MissingExtraError(
            "figures need Altair: pip install 'specsim-llm[app]'"
        ) from error  # fmt: skip
    return alt


def load_axis(alt: Any, *, is_open: bool, values: list[float] | None = None) -> Any:
    """Return the axis of loads: concurrent requests as powers of two, or requests per second."""
    if is_open:
        return alt.X("load:Q", title="requests per second and replica",
                     axis=alt.Axis(grid=False, tickCount=8))  # fmt: skip
    shown = [v for v in values or [] if v > 0 and v == int(v) and int(v) & (int(v) - 1) == 0]
    return alt.X(
        "load:Q",
        title="concurrent requests per replica",
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=shown, grid=False, format="~g", labelOverlap="greedy"),
    )


def arm_colour(alt: Any, **more: Any) -> Any:
    """Return the colours of off and on."""
    return alt.Color(
        "arm:N", scale=alt.Scale(domain=["off", "on"], range=[OFF, ON]), legend=None, **more
    )


def rule_at(alt: Any, load: float, label: str, colour: str, *, dash: list[int]) -> Any:
    """Return a vertical rule with a label at its top."""
    data = alt.Data(values=[{"load": load, "label": label}])
    rule = alt.Chart(data).mark_rule(color=colour, strokeDash=dash, strokeWidth=1.5)
    text = alt.Chart(data).mark_text(
        align="left", baseline="top", dx=4, color=colour, fontSize=11, fontWeight=600
    )
    return alt.layer(
        rule.encode(x="load:Q"), text.encode(x="load:Q", y=alt.value(0), text="label:N")
    )
