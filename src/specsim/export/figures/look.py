"""What all figures share: colours that the colour-blind tell apart, axes, and direct labels."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from specsim.errors import MissingExtraError

OFF, ON, TURN, LOAD = "#7d8894", "#2b8cc4", "#d55e00", "#00946c"
"""Speculation off and on, the crossover, the load that is asked about: read on white and black."""
PARTS = {
    "memory": "#2b8cc4", "kv": "#56b4e9", "compute": "#d55e00", "communication": "#cc79a7",
    "host": "#7d8894",
}  # fmt: skip
PHASES = {"draft": "#e69f00", "verify": "#2b8cc4", "host": "#7d8894"}
WORDS = {"kv": "KV cache"}
"""What charts call a part, where its own name says too little."""
HEIGHT = 300
_APART, _FRAME_HEIGHT = 14.0, 220.0
"""Between the middles of two names; of the frame of a chart, without its axes. [px]"""


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


def load_title(*, is_open: bool) -> str:
    """Return what the axis of loads is called."""
    return "requests per second and replica" if is_open else "concurrent requests per replica"


def only_load(rows: Rows) -> float | None:
    """Return the load of rows that have but one; None of others."""
    loads = {row["load"] for row in rows if row["load"]}
    return float(loads.pop()) if len(loads) == 1 else None


def load_axis(alt: Any, *, is_open: bool, only: float | None = None) -> Any:
    """Return the axis of loads: concurrent requests as powers of two, or requests per second.

    Parameters
    ----------
    only : float, optional
        The one load that is drawn: an axis without a width would have all its ticks in one place.
    """
    if is_open:
        return alt.X("load:Q", title=load_title(is_open=True),
                     axis=alt.Axis(grid=False, tickCount=8))  # fmt: skip
    return alt.X(
        "load:Q",
        title=load_title(is_open=False),
        scale=alt.Scale(type="log", base=2, nice=False, **_around(only)),
        axis=alt.Axis(values=_POWERS_OF_TWO, grid=False, format="~g", labelOverlap="greedy"),
    )


def _around(only: float | None) -> dict[str, Any]:
    return {} if only is None else {"domain": [only / 2.0, only * 2.0]}


def with_data(spec: dict[str, Any], datasets: Mapping[str, Rows]) -> dict[str, Any]:
    """Return a Vega-Lite specification with the rows that its layers name.

    Altair checks and copies everything that it is given, rows too: 100 ms for a chart of five
    layers. So a figure's form is built once, and each picture of it is that form with other rows.
    Layers without rows are left out: the browser would warn of an axis without an extent.
    """
    empty = {name for name, rows in datasets.items() if not rows}
    return {**_without(spec, empty), "datasets": dict(datasets)}


def _without(spec: dict[str, Any], names: Set[str]) -> dict[str, Any]:
    if not names or "layer" not in spec:
        return spec
    layers = [
        _without(each, names)
        for each in spec["layer"]
        if each.get("data", {}).get("name") not in names
    ]
    return {**spec, "layer": [each for each in layers if each.get("layer", True)]}


def dataset(alt: Any, name: str) -> Any:
    """Return a reference to rows that `with_data` brings."""
    return alt.NamedData(name=name)


def arm_colour(alt: Any, **more: Any) -> Any:
    """Return the colours of off and on."""
    return alt.Color(
        "arm:N", scale=alt.Scale(domain=["off", "on"], range=[OFF, ON]), legend=None, **more
    )


def rules(alt: Any) -> Any:
    """Return vertical rules with their names above the frame: rows `marks` of load, label, colour.

    Names stand on the `line` that the row says, so that those of rules close together can be read,
    and on the side where there is room.
    """
    base = alt.Chart(dataset(alt, "marks")).encode(
        x="load:Q", color=alt.Color("colour:N", scale=None, legend=None)
    )
    names = base.mark_text(
        align=alt.ExprRef(f"{_RIGHT_HALF} ? 'right' : 'left'"), baseline="bottom",
        dx=alt.ExprRef(f"{_RIGHT_HALF} ? 2 : -2"), dy=alt.ExprRef("-3 - 13 * datum.line"),
        fontSize=11, fontWeight=600,
    )  # fmt: skip
    rule = base.mark_rule(strokeDash=[5, 3], strokeWidth=1.5)
    return alt.layer(rule, names.encode(y=alt.value(0), text="label:N"))


_RIGHT_HALF = "scale('x', datum.load) > width / 2"


def apart(ends: Rows, drawn: Rows, *, value: str = "value") -> Rows:
    """Return the names at the right ends of curves with `dy`, so far apart that all can be read.

    Parameters
    ----------
    ends : list of dict
        A record per name, with its place on the vertical axis under `value`.
    drawn : list of dict
        All that is drawn, which says how high the axis is.
    """
    heights = [row[value] for row in drawn]
    tall = (max(heights) - min(heights) if heights else 0.0) or 1.0
    rising = sorted(ends, key=lambda row: row[value])
    places = [-row[value] / tall * _FRAME_HEIGHT for row in rising]
    moved = list(places)
    for i in range(1, len(moved)):
        moved[i] = min(moved[i], moved[i - 1] - _APART)
    # What is pushed up is shared out: names stay about the middle of their ends.
    back = sum(a - b for a, b in zip(places, moved, strict=True)) / max(len(moved), 1)
    return [
        {**row, "dy": round(new - old + back, 1)}
        for row, old, new in zip(rising, places, moved, strict=True)
    ]


def end_names(alt: Any, text: str, **more: Any) -> Any:
    """Return the names at the right ends of curves: rows `ends`, kept apart by `apart`."""
    base = alt.Chart(dataset(alt, "ends")).mark_text(
        align="left", dx=7, dy=alt.ExprRef("datum.dy"), fontWeight=600, fontSize=12
    )
    return base.encode(text=f"{text}:N", **more)
