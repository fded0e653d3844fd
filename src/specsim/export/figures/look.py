"""What all figures share: colours that the colour-blind tell apart, axes, and direct labels."""

from __future__ import annotations

from collections.abc import Mapping
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


_POWERS_OF_TWO = [2.0**i for i in range(14)]
Rows = list[dict[str, Any]]


def load_axis(alt: Any, *, is_open: bool) -> Any:
    """Return the axis of loads: concurrent requests as powers of two, or requests per second."""
    if is_open:
        return alt.X("load:Q", title="requests per second and replica",
                     axis=alt.Axis(grid=False, tickCount=8))  # fmt: skip
    return alt.X(
        "load:Q",
        title="concurrent requests per replica",
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=_POWERS_OF_TWO, grid=False, format="~g", labelOverlap="greedy"),
    )


def with_data(spec: dict[str, Any], datasets: Mapping[str, Rows]) -> dict[str, Any]:
    """Return a Vega-Lite specification with the rows that its layers name.

    Altair checks and copies everything that it is given, rows too: 100 ms for a chart of five
    layers. So a figure's form is built once, and each picture of it is that form with other rows.
    """
    return {**spec, "datasets": dict(datasets)}


def dataset(alt: Any, name: str) -> Any:
    """Return a reference to rows that `with_data` brings."""
    return alt.NamedData(name=name)


def arm_colour(alt: Any, **more: Any) -> Any:
    """Return the colours of off and on."""
    return alt.Color(
        "arm:N", scale=alt.Scale(domain=["off", "on"], range=[OFF, ON]), legend=None, **more
    )


def rules(alt: Any) -> Any:
    """Return vertical rules with a label at the top: rows `marks` of load, label, colour, line.

    Labels stand on lines below each other, so that rules close together can be read.
    """
    base = alt.Chart(dataset(alt, "marks")).encode(
        x="load:Q", color=alt.Color("colour:N", scale=None, legend=None)
    )
    labels = [
        base.transform_filter(f"datum.line == {line}")
        .mark_text(align="left", baseline="top", dx=4, dy=14 * line, fontSize=11, fontWeight=600)
        .encode(y=alt.value(0), text="label:N")
        for line in (0, 1)
    ]
    return alt.layer(base.mark_rule(strokeDash=[5, 3], strokeWidth=1.5), *labels)
