"""Ways of drafting beside each other: how fast with which interval, and at what cost in cache."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

from specsim.analysis.drafters import DrafterResult
from specsim.export.figures.look import LOAD, OFF, ON, Rows, altair, dataset, with_data
from specsim.export.tables import count

_SERIES = ("your load", "one request")
_ONE: Rows = [{"one": 1.0}]
_SMALL = (290.0, 240.0)
"""Of the frame on a phone, where names have to be kept apart. [px]"""
_LETTER, _LINE = 6.3, 13.0
"""Of a name. [px]"""
_ROW_HEIGHT, _FRAME, _NAME_WIDTH = 56, 80, 150
"""Of a row; what axis and legend take of the height; most of a name. [px]"""


def rows(results: Sequence[DrafterResult]) -> Rows:
    """Return a record per way of drafting, after one of speculation off."""
    found: Rows = [_row(result) for result in results]
    off = next((r.point.baseline for r in results if r.point.baseline is not None), None)
    base: dict[str, Any] = dict.fromkeys(found[0]) if found else {}
    base |= {"drafter": "off", "speedup": 1.0, "speedup_at_1": 1.0, "kv_lost_tokens": 0,
             "kv_lost_percent": 0.0, "drafter_weights_gib": 0.0}  # fmt: skip
    for name in ("usd_per_mtok", "tpot_ms"):
        base[name] = None if off is None else getattr(off, name)
    return [base, *found]


def _row(r: DrafterResult) -> dict[str, Any]:
    on = r.point.speculative
    return {
        "drafter": r.way.label,
        "k": r.k,
        "acceptance_length": r.acceptance.acceptance_length,
        "basis": r.way.basis,
        "speedup": r.point.speedup,
        "speedup_low": r.point.speedup_low,
        "speedup_high": r.point.speedup_high,
        "speedup_at_1": r.speedup_at_one,
        "low_at_1": r.low_at_one,
        "high_at_1": r.high_at_one,
        "kv_lost_tokens": r.kv.lost_tokens,
        "kv_lost_percent": 100.0 * r.kv.lost_fraction,
        "drafter_weights_gib": r.kv.speculative.drafter_weights_gib,
        "crossover": turn(r),
        "break_even_length": r.break_even_length,
        "best_k": r.best_k,
        "speedup_at_best_k": r.best_k_speedup,
        "tpot_ms": None if on is None else on.tpot_ms,
        "usd_per_mtok": None if on is None else on.usd_per_mtok,
        "acceptance_from": r.way.source,
        "note": r.point.note,
    }


def _told(r: DrafterResult) -> dict[str, Any]:
    """Return the record of a way of drafting, and beside it what tooltips tell of off."""
    off = r.point.baseline
    mark = " *" if r.way.basis == "carried" else ""
    told = {**_row(r), "drafter": r.way.label + mark}
    for name in ("tpot_ms", "usd_per_mtok"):
        told[f"{name}_off"] = None if off is None else getattr(off, name)
    return told


def turn(result: DrafterResult) -> str:
    """Return the load from which a way loses, in words."""
    if result.crossover is None:
        return {"always": "wins always", "never": "wins never"}[result.crossover_state]
    return count(result.crossover)


def dots(results: Sequence[DrafterResult]) -> dict[str, Any]:
    """Draw the speedup of each way at the load and at one request, with intervals."""
    long: Rows = []
    for r in results:
        shared = _told(r)
        for series, key, low, high in (
            (_SERIES[0], "speedup", "speedup_low", "speedup_high"),
            (_SERIES[1], "speedup_at_1", "low_at_1", "high_at_1"),
        ):
            if shared[key] is not None:
                long.append({**shared, "series": series, "value": shared[key],
                             "low": shared[low], "high": shared[high]})  # fmt: skip
    form = with_data(_dots_form(), {"points": long, "one": _ONE})
    return {**form, "height": _FRAME + _ROW_HEIGHT * max(len(results), 2)}


@functools.cache
def _dots_form() -> dict[str, Any]:
    alt = altair()
    y = alt.Y("drafter:N", sort=None, title=None, scale=alt.Scale(paddingInner=0.25),
              axis=alt.Axis(labelLimit=_NAME_WIDTH, labelFontSize=12, ticks=False, domain=False,
                            labelPadding=8))  # fmt: skip
    x = alt.X("value:Q", title="speedup, on / off", scale=alt.Scale(zero=False, padding=24),
              axis=alt.Axis(tickCount=8, format=".2~f"))  # fmt: skip
    scale = alt.Scale(domain=list(_SERIES), range=[LOAD, ON])
    base = alt.Chart(dataset(alt, "points")).encode(
        y=y,
        yOffset=alt.YOffset("series:N", sort=list(_SERIES)),
        color=alt.Color("series:N", title=None, scale=scale, legend=alt.Legend(orient="top")),
    )
    shape = alt.Shape(
        "series:N", title=None, legend=alt.Legend(orient="top"),
        scale=alt.Scale(domain=list(_SERIES), range=["circle", "diamond"]),
    )  # fmt: skip
    form = alt.layer(
        _off(alt, "x"),
        base.mark_rule(strokeWidth=2.5, opacity=0.5).encode(x=x, x2="high:Q").encode(x="low:Q"),
        base.mark_point(filled=True, size=90, opacity=1).encode(
            x=x, shape=shape, tooltip=_tooltip(alt)
        ),
        base.mark_text(align="left", dx=8, dy=-7, fontSize=11, fontWeight=600).encode(
            x=x, text=alt.Text("value:Q", format=".2f")
        ),
    )
    return cast(dict[str, Any], form.to_dict())


def trade(results: Sequence[DrafterResult]) -> dict[str, Any]:
    """Draw the speedup of each way against the share of the KV cache that it takes."""
    data = [row for row in map(_told, results) if row["speedup"] is not None]
    for row, (side, drop) in zip(data, _places(data), strict=True):
        row |= {"side": side, "drop": drop, "name": _short(row)}
    return with_data(_trade_form(), {"points": data, "one": _ONE})


def _short(row: Mapping[str, Any]) -> str:
    return str(row["drafter"]).removesuffix(" (draft model)")


def _places(data: Rows) -> list[tuple[str, int]]:
    """Return for each name its side of the point and how far below it is, clear of the others."""
    ends = [row[key] for row in data for key in ("speedup_low", "speedup_high", "speedup")]
    heights = [1.0, *(value for value in ends if value is not None)]
    across = _SMALL[0] / (max([row["kv_lost_percent"] for row in data], default=0.0) or 1.0)
    up = _SMALL[1] / ((max(heights) - min(heights)) or 1.0)
    points = [(row["kv_lost_percent"] * across, -row["speedup"] * up) for row in data]
    taken: list[tuple[float, float, float, float]] = [
        (x - 6.0, x + 6.0, y - 6.0, y + 6.0) for x, y in points
    ]
    found = []
    for row, (x, y) in zip(data, points, strict=True):
        wide = _LETTER * len(_short(row))
        inwards = ("left", "right") if x > 0.5 * _SMALL[0] else ("right", "left")
        choices: list[tuple[float, int, str, int, tuple[float, float, float, float]]] = []
        for drop in (0, 14, -14, 28, -28):
            for side in inwards:
                left = x - 9.0 - wide if side == "left" else x + 9.0
                box = (left, left + wide, y + drop - _LINE / 2, y + drop + _LINE / 2)
                outside = max(0.0, -box[0]) + max(0.0, box[1] - _SMALL[0])
                choices.append((sum(_overlap(box, other) for other in taken) + 10.0 * outside,
                                len(choices), side, drop, box))  # fmt: skip
        _, _, side, drop, box = min(choices)
        taken.append(box)
        found.append((side, drop))
    return found


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Return the area that two boxes share, each from left to right and from top to bottom."""
    wide = min(one[1], other[1]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[2], other[2])
    return max(wide, 0.0) * max(high, 0.0)


@functools.cache
def _trade_form() -> dict[str, Any]:
    alt = altair()
    x = alt.X("kv_lost_percent:Q", title="KV cache lost [%]",
              scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=8))  # fmt: skip
    y = alt.Y("speedup:Q", title="speedup at your load", scale=alt.Scale(zero=False, padding=12))
    base = alt.Chart(dataset(alt, "points")).encode(x=x, y=y)
    names = base.mark_text(
        align=alt.ExprRef("datum.side == 'left' ? 'right' : 'left'"),
        dx=alt.ExprRef("datum.side == 'left' ? -9 : 9"), dy=alt.ExprRef("datum.drop"),
        fontSize=11, color=LOAD, fontWeight=600,
    )  # fmt: skip
    form = alt.layer(
        _off(alt, "y"),
        base.mark_rule(strokeWidth=1.5, opacity=0.4, color=LOAD).encode(
            y=alt.Y("speedup_low:Q"), y2="speedup_high:Q"
        ),
        base.mark_point(filled=True, size=110, opacity=1, color=LOAD).encode(tooltip=_tooltip(alt)),
        names.encode(text="name:N"),
    ).properties(height=340)
    return cast(dict[str, Any], form.to_dict())


def _off(alt: Any, axis: str) -> Any:
    """Return the line at which nothing is gained: speculation off."""
    data = alt.Chart(dataset(alt, "one"))
    rule = data.mark_rule(strokeDash=[4, 4], color=OFF, strokeWidth=1.5)
    style = {"text": "off", "color": OFF, "fontSize": 11, "fontWeight": 600}
    if axis == "x":
        text = data.mark_text(dx=13, **style).encode(x="one:Q", y=alt.value(6))
        return alt.layer(rule.encode(x="one:Q"), text)
    text = data.mark_text(dy=-7, align="right", **style).encode(y="one:Q", x=alt.value("width"))
    return alt.layer(rule.encode(y="one:Q"), text)


def _tooltip(alt: Any) -> list[Any]:
    return [
        alt.Tooltip(f"{name}:{kind}", title=title, **({"format": pattern} if pattern else {}))
        for name, kind, title, pattern in (
            ("drafter", "N", "drafter", ""),
            ("speedup", "Q", "speedup, your load", ".2f"),
            ("speedup_low", "Q", "10th pct", ".2f"),
            ("speedup_high", "Q", "90th pct", ".2f"),
            ("speedup_at_1", "Q", "speedup, one request", ".2f"),
            ("acceptance_length", "Q", "tokens per step", ".2f"),
            ("basis", "N", "acceptance", ""),
            ("break_even_length", "Q", "break-even tokens per step", ".2f"),
            ("crossover", "N", "turns at", ""),
            ("best_k", "Q", "best k", "d"),
            ("kv_lost_percent", "Q", "KV cache lost [%]", ".1f"),
            ("drafter_weights_gib", "Q", "drafter weights [GiB]", ".2f"),
            ("tpot_ms_off", "Q", "TPOT off [ms]", ".1f"),
            ("tpot_ms", "Q", "TPOT on [ms]", ".1f"),
            ("usd_per_mtok_off", "Q", "$/Mtok off", ".2f"),
            ("usd_per_mtok", "Q", "$/Mtok on", ".2f"),
        )
    ]
