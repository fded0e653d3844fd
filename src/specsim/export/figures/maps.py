"""Heat maps of the speedup over concurrency and something else, with the line at which it is 1."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from specsim.analysis.maps import Array, Maps, OwnPoint, PromptMaps, Segment, SpeedupMap
from specsim.export.figures.look import HEIGHT, Rows, altair, dataset, load_title, with_data
from specsim.export.figures.map_cells import Picked

Kind = Literal["rate", "length", "k", "prompt"]
STEPS = (1 / 3, 0.5, 0.67, 0.8, 0.95, 1.05, 1.25, 1.5, 2.0, 3.0)
"""Speedups at which the colour changes: as far from 1 below as above, but for the middle."""
COLOURS = (
    "#7f3b08", "#b35806", "#e08214", "#f6a94c", "#fbd19b",
    "#f2f2f2",
    "#b8d8ec", "#7fb8dc", "#4393c3", "#2166ac", "#0b3c73",
)  # fmt: skip
"""From loss to gain, neutral from 0.95 to 1.05; told apart by all, for orange and blue differ in
every colour blindness and the lightness falls away from the middle."""
_INK, _HALO = "#1b1f24", "#ffffff"
"""Lines on the map: dark with a light rim, for the map is as light or dark in any theme."""
BEST = "#e69f00"
"""The staircase of the best k."""
_NEAR = 1.5
"""Doublings of the load within which the line's name would touch that of the own point."""


@dataclass(frozen=True)
class _Axis:
    """What stands on the vertical axis."""

    name: str
    title: str
    pattern: str
    ticks: str


_AXES: dict[Kind, _Axis] = {
    "rate": _Axis("draft_acceptance_rate", "accepted / drafted", ".0%", ".0%"),
    "length": _Axis("acceptance_length", "tokens per step", ".2f", ".1f"),
    "k": _Axis("k", "draft tokens k (0: off)", "d", "d"),
    "prompt": _Axis("input_tokens", "prompt [tokens]", ",.0f", "~s"),
}


def map_rows(
    found: SpeedupMap, kind: Kind, *, rows: Array | None = None, own: OwnPoint | None = None
) -> Rows:
    """Return a record per cell of a map.

    Parameters
    ----------
    rows : array, optional
        The same rows under another name: acceptance lengths for rates.
    own : OwnPoint, optional
        The user's: its cell comes first, then its load, then its row; the rest as it rises.
    """
    shown = found.rows if rows is None else rows
    name = _AXES[kind].name
    i, j = (index.ravel() for index in np.indices(found.speedup.shape))
    if own is not None:
        row = int(np.argmin(np.abs(shown - getattr(own, name))))
        order = np.lexsort((i, j, i != row, found.loads[j] != own.load))
        i, j = i[order], j[order]
    columns = (found.loads[j], shown[i], found.speedup[i, j], found.tpot_ms_off[i, j],
               found.tpot_ms_on[i, j])  # fmt: skip
    return [
        {"concurrency": load, name: row, "speedup": gain, "tpot_ms_off": off, "tpot_ms_on": on}
        for load, row, gain, off, on in zip(*(c.tolist() for c in columns), strict=True)
    ]


def acceptance_map(
    maps: Maps, kind: Literal["rate", "length"], *, picked: Picked | None = None
) -> dict[str, Any]:
    """Draw the speedup over concurrency and acceptance, by either of its names."""
    found, own = maps.acceptance, maps.own
    to_length = kind == "length"
    rows = maps.lengths if to_length else found.rows
    own_row = own.acceptance_length if to_length else own.draft_acceptance_rate
    lines: Sequence[Segment] = found.contour()
    if to_length:
        ends = np.interp([[a[1], a[3]] for a in lines], found.rows, rows).reshape(-1, 2)
        lines = [
            (a[0], low, a[2], high) for a, (low, high) in zip(lines, ends.tolist(), strict=True)
        ]
    datasets = {
        "cells": _cells(found, rows),
        "lines": [_line(s) for s in lines],
        "names": _line_name(lines, own.load),
        "own": _own(own, own.draft_acceptance_rate, shown=own_row),
        "picked": _outline(found, rows, "acceptance", picked),
    }
    return _drawn(kind, datasets)


def k_map(maps: Maps, *, picked: Picked | None = None) -> dict[str, Any]:
    """Draw the speedup over concurrency and k, with the best k as a staircase."""
    found, best = maps.k, maps.best_k
    assert found is not None, "a chain of draft tokens has other k"
    assert best is not None, "it has them together"
    edges = _edges(found.loads, log=True)
    stairs = [
        {"load": edge, "row": int(k)}
        for k, low, high in zip(best, edges, edges[1:], strict=False)
        for edge in (low, high)
    ]
    lines = found.steps()
    first = stairs[0]
    datasets = {
        "cells": _cells(found, found.rows),
        "lines": [_line(s) for s in lines],
        "names": [
            # At the top: the staircase ends where the line does, at the bottom.
            *_line_name(sorted(lines, key=lambda s: -s[3])[:1], None, dy=9),
            {**first, "label": "best k", "dy": 12 if first["row"] else -12},
        ],
        "staircase": stairs,
        "own": _own(maps.own, maps.own.k),
        "picked": _outline(found, found.rows, "k", picked),
    }
    return _drawn("k", datasets)


def prompt_map(maps: PromptMaps, *, decoding: bool, picked: Picked | None = None) -> dict[str, Any]:
    """Draw the speedup over concurrency and prompt length.

    Parameters
    ----------
    decoding : bool
        Of decoding alone, rather than of whole requests.
    """
    found = maps.decoding if decoding else maps.whole
    full: Rows = [
        {"load": fits, "row": row, "label": ""}
        for fits, row in zip(maps.fits.tolist(), found.rows.tolist(), strict=True)
        if found.loads[0] <= fits <= found.loads[-1]
    ]
    if full:
        full[len(full) // 2]["label"] = "KV cache full"
    lines = found.contour()
    datasets = {
        "cells": _cells(found, found.rows),
        "lines": [_line(s) for s in lines],
        "names": _line_name(lines, maps.own.load),
        "full": full,
        "own": _own(maps.own, maps.own.input_tokens),
        "picked": _outline(found, found.rows, "prompt", picked),
    }
    return _drawn("prompt", datasets)


def _edges(centres: Array, *, log: bool) -> list[float]:
    """Return where cells around these centres meet, in the middle between two."""
    x = np.log(centres) if log else np.asarray(centres, dtype=float)
    if x.size == 1:
        ends = np.array([x[0] - 0.5, x[0] + 0.5])
    else:
        middle = 0.5 * (x[1:] + x[:-1])
        ends = np.concatenate([[2.0 * x[0] - middle[0]], middle, [2.0 * x[-1] - middle[-1]]])
    return [float(f"{v:.6g}") for v in (np.exp(ends) if log else ends)]


def _cells(found: SpeedupMap, rows: Array) -> Rows:
    """Return the cells: `cell` is the row by which one is known, `row` how the axis calls it."""
    across = _edges(found.loads, log=True)
    up = _edges(rows, log=found.log_rows)
    columns = list(zip(found.loads.tolist(), across, across[1:], strict=False))
    gains, offs, ons = (
        np.round(a, digits).tolist()
        for a, digits in ((found.speedup, 3), (found.tpot_ms_off, 2), (found.tpot_ms_on, 2))
    )
    return [
        {"load": load, "cell": row, "row": shown, "x": left, "x2": right, "y": low, "y2": high,
         "speedup": gain, "off": off, "on": on}
        for row, shown, low, high, each_gain, each_off, each_on in zip(
            found.rows.tolist(), rows.tolist(), up, up[1:], gains, offs, ons, strict=False
        )
        for (load, left, right), gain, off, on in zip(
            columns, each_gain, each_off, each_on, strict=True
        )
    ]  # fmt: skip


def _line(segment: Segment) -> dict[str, float]:
    return dict(zip(("x", "y", "x2", "y2"), segment, strict=True))


def _line_name(lines: Sequence[Segment], own: float | None, *, dy: int = -8) -> Rows:
    """Return the name of the line, where it is far from the user's own point."""
    if not lines:
        return []
    rising = sorted(lines)
    places = [rising[int(share * (len(rising) - 1))] for share in (0.75, 0.25, 1.0, 0.0)]
    apart = [p for p in places if own is None or abs(math.log2(p[0] / own)) > _NEAR]
    load, row, _, end = (apart or places)[0]
    return [{"load": load, "row": 0.5 * (row + end), "label": "speedup 1", "dy": dy}]


def _own(own: OwnPoint, row: float, *, shown: float | None = None) -> Rows:
    """Return the user's own point, which is a cell too: whoever clicks it picks that."""
    if own.load is None:
        return []
    at = row if shown is None else shown
    return [{"load": own.load, "cell": row, "row": at, "label": "your load"}]


def _outline(found: SpeedupMap, rows: Array, on: str, picked: Picked | None) -> Rows:
    """Return the column of the load that was chosen, and on its own map the cell."""
    if picked is None:
        return []
    across, up = _edges(found.loads, log=True), _edges(rows, log=found.log_rows)
    here = picked.on == on
    i, j = found.nearest(picked.load, picked.row if here else float(found.rows[0]))
    column = {"x": across[j], "x2": across[j + 1], "y": up[0], "y2": up[-1]}
    cell = {**column, "y": up[i], "y2": up[i + 1]}
    return [column, cell] if here else [column]


def _drawn(kind: Kind, datasets: dict[str, Rows]) -> dict[str, Any]:
    every: dict[str, Rows] = {name: [] for name in ("staircase", "full")}
    drawn = with_data(_form(kind), {**every, **datasets})
    # To send one costs a millisecond, even without rows.
    return {**drawn, "datasets": {name: rows for name, rows in datasets.items() if rows}}


@functools.cache
def _form(kind: Kind) -> dict[str, Any]:
    alt = altair()
    box = _box(alt, kind)
    at: dict[str, Any] = {"x": "load:Q", "y": "row:Q"}
    cells = alt.Chart(dataset(alt, "cells")).mark_rect(strokeWidth=0, x2Offset=0.7, y2Offset=-0.7)
    axis = _AXES[kind]
    tooltip = [
        alt.Tooltip("load:Q", title=load_title(is_open=False)),
        alt.Tooltip("row:Q", title=axis.title, format=axis.pattern),
        alt.Tooltip("speedup:Q", title="speedup, on / off", format=".2f"),
        alt.Tooltip("off:Q", title="TPOT off [ms]", format=".2f"),
        alt.Tooltip("on:Q", title="TPOT on [ms]", format=".2f"),
    ]
    full = alt.Chart(dataset(alt, "full")).encode(**at)
    named = alt.Chart(dataset(alt, "names")).encode(**at)
    above = [
        *(
            alt.Chart(dataset(alt, "lines"))
            .mark_rule(color=ink, strokeWidth=width, strokeCap="round", tooltip=None)
            .encode(**box)
            for ink, width in ((_HALO, 4.5), (_INK, 2.0))
        ),
        *(
            alt.Chart(dataset(alt, "staircase"))
            .mark_line(color=ink, strokeWidth=width, strokeJoin="round", tooltip=None)
            .encode(**at, order="load:Q")
            for ink, width in ((_HALO, 6.0), (BEST, 3.0))
        ),
        *(
            alt.Chart(dataset(alt, "picked"))
            # Not filled: the cells inside can still be pointed at.
            .mark_rect(filled=False, stroke=ink, strokeWidth=width, tooltip=None)
            .encode(**box)
            for ink, width in ((_HALO, 3.5), (_INK, 1.5))
        ),
        full.mark_line(color=_INK, strokeDash=[3, 3], strokeWidth=1.5, tooltip=None).encode(
            order="row:Q"
        ),
        *_haloed(alt, full, dy=-6),
        *_haloed(alt, named, dy=alt.ExprRef("datum.dy")),
        *_mine(alt),
    ]
    form = alt.layer(
        cells.transform_calculate(doublings="log(datum.speedup) / LN2")
        .encode(**box, color=_colour(alt), tooltip=tooltip)
        .add_params(alt.selection_point(name="picked", fields=["load", "cell"])),
        *above,
    ).properties(height=HEIGHT + 100)
    return cast(dict[str, Any], form.to_dict())


def _box(alt: Any, kind: Kind) -> dict[str, Any]:
    """Return where cells and lines stand: from x to x2 and from y to y2."""
    axis = _AXES[kind]
    loads = alt.Axis(
        values=[2.0**i for i in range(14)], grid=False, format="~g", labelOverlap="greedy"
    )
    x = alt.X("x:Q", title=load_title(is_open=False), axis=loads,
              scale=alt.Scale(type="log", base=2, nice=False))  # fmt: skip
    scale = alt.Scale(zero=False, nice=False)
    ticks: dict[str, Any] = {"format": axis.ticks, "grid": False}
    if kind == "prompt":
        scale = alt.Scale(type="log", base=2, nice=False)
        thousands = "datum.value < 1024 ? datum.value : datum.value / 1024 + 'k'"
        ticks = {"values": [2.0**i for i in range(4, 21)], "labelExpr": thousands, "grid": False,
                 "labelOverlap": "greedy"}  # fmt: skip
    elif kind == "k":
        ticks["tickMinStep"] = 1
    y = alt.Y("y:Q", title=axis.title, scale=scale, axis=alt.Axis(**ticks))
    return {"x": x, "x2": "x2:Q", "y": y, "y2": "y2:Q"}


def _colour(alt: Any) -> Any:
    """Return the colours, by doublings: gain and loss of a factor are as wide in the legend."""
    steps = [math.log2(s) for s in STEPS]
    # Where steps are close together some are not written, the same ones on both sides.
    written = " || ".join(
        f"abs(abs(datum.value) - {math.log2(s):.3f}) < 0.05" for s in (1.25, 2, 3)
    )
    words = f"{written} ? format(pow(2, datum.value), '.2~f') : ''"
    return alt.Color(
        "doublings:Q",
        title="speedup, on / off; palest: 0.95 to 1.05",
        scale=alt.Scale(
            type="threshold", domain=steps, range=list(COLOURS)
        ),
        legend=alt.Legend(
            orient="top", values=steps, gradientLength=260,
            gradientThickness=10, titleFontWeight="normal", titleLimit=260,
            labelExpr=words,
        ),
    )  # fmt: skip


def _haloed(alt: Any, base: Any, *, dx: int = 8, **word: Any) -> list[Any]:
    """Return labels with a light rim, readable on any colour, on the side where there is room."""
    right = "scale('x', datum.load) > 0.65 * width"
    style = {"align": alt.ExprRef(f"{right} ? 'right' : 'left'"),
             "dx": alt.ExprRef(f"{right} ? {-dx} : {dx}"), "fontSize": 12, "fontWeight": 600,
             "tooltip": None, **word}  # fmt: skip
    rim = {"fill": _HALO, "stroke": _HALO, "strokeWidth": 3, "strokeJoin": "round"}
    return [
        base.mark_text(**style, **look).encode(text="label:N") for look in (rim, {"color": _INK})
    ]


def _mine(alt: Any) -> list[Any]:
    """Return the marks of the user's own point: a dot and its name."""
    base = alt.Chart(dataset(alt, "own")).encode(x="load:Q", y="row:Q")
    dot = base.mark_point(
        filled=True, fill=_HALO, stroke=_INK, strokeWidth=2.5, size=110, opacity=1
    )
    return [dot, *_haloed(alt, base, dx=10, dy=-9, fontWeight=700)]
