"""Ways of drafting beside each other: how fast with which interval, and at what cost in cache."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

from specsim.analysis.drafters import DrafterResult
from specsim.export.figures.look import LOAD, OFF, ON, Rows, altair, dataset, with_data
from specsim.export.tables import count

_SERIES = ("your load", "one request")
_ONE: Rows = [{"one": 1.0}]
_NEAR_X, _NEAR_Y = 0.1, 0.07
"""Shares of the frame within which two names would touch."""
_ROW_HEIGHT, _FRAME, _NAME_WIDTH = 44, 80, 150
"""Of a row; what axis and legend take of the height; most of a name. [px]"""


def rows(results: Sequence[DrafterResult]) -> Rows:
    """Return a record per way of drafting, after one of speculation off."""
    found: Rows = [_row(result) for result in results]
    off = next((r.point.baseline for r in results if r.point.baseline is not None), None)
    base: dict[str, Any] = dict.fromkeys(found[0]) if found else {}
    base |= {"drafter": "off", "speedup": 1.0, "speedup_at_1": 1.0, "kv_lost_tokens": 0,
             "kv_lost_percent": 0.0, "drafter_weights_gib": 0.0}  # fmt: skip
    base["usd_per_mtok"] = None if off is None else off.usd_per_mtok
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
        "usd_per_mtok": None if on is None else on.usd_per_mtok,
        "acceptance_from": r.way.source,
        "note": r.point.note,
    }


def turn(result: DrafterResult) -> str:
    """Return the load from which a way loses, in words."""
    if result.crossover is None:
        return {"always": "wins always", "never": "wins never"}[result.crossover_state]
    return count(result.crossover)


def dots(results: Sequence[DrafterResult]) -> dict[str, Any]:
    """Draw the speedup of each way at the load and at one request, with intervals."""
    long: Rows = []
    for r in results:
        shared = _row(r)
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
    scale = alt.Scale(domain=list(_SERIES), range=[ON, LOAD])
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
        base.mark_text(align="left", dx=6, fontSize=11, fontWeight=600).encode(
            x="high:Q", text=alt.Text("value:Q", format=".2f")
        ),
    )
    return cast(dict[str, Any], form.to_dict())


def trade(results: Sequence[DrafterResult]) -> dict[str, Any]:
    """Draw the speedup of each way against the share of the KV cache that it takes."""
    data = [row for row in map(_row, results) if row["speedup"] is not None]
    most = max([row["kv_lost_percent"] for row in data], default=0.0)
    gains = [row["speedup"] for row in data]
    tall = max(gains, default=1.0) - min(gains, default=0.0)
    # Names lie inwards of the frame, and below their point where another's is in the way.
    for i, row in enumerate(data):
        near = any(
            abs(row["kv_lost_percent"] - other["kv_lost_percent"]) < _NEAR_X * most
            and abs(row["speedup"] - other["speedup"]) < _NEAR_Y * tall
            for other in data[:i]
        )
        side = "left" if row["kv_lost_percent"] > 0.5 * most > 0 else "right"
        row |= {"side": side, "drop": 15 if near else 0}
    return with_data(_trade_form(), {"points": data, "one": _ONE})


@functools.cache
def _trade_form() -> dict[str, Any]:
    alt = altair()
    x = alt.X("kv_lost_percent:Q", title="KV cache lost [%]",
              scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=8))  # fmt: skip
    y = alt.Y("speedup:Q", title="speedup at your load", scale=alt.Scale(zero=False, padding=12))
    base = alt.Chart(dataset(alt, "points")).encode(x=x, y=y)
    names = [
        base.transform_filter(f"datum.side == '{side}' && datum.drop == {drop}")
        .mark_text(align="right" if side == "left" else "left", dx=-9 if side == "left" else 9,
                   dy=drop, fontSize=11, color=ON, fontWeight=600)
        .encode(text="drafter:N")
        for side in ("left", "right")
        for drop in (0, 15)
    ]  # fmt: skip
    form = alt.layer(
        _off(alt, "y"),
        base.mark_rule(strokeWidth=1.5, opacity=0.4, color=ON).encode(
            y=alt.Y("speedup_low:Q"), y2="speedup_high:Q"
        ),
        base.mark_point(filled=True, size=110, opacity=1, color=ON).encode(tooltip=_tooltip(alt)),
        *names,
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
            ("kv_lost_percent", "Q", "KV cache lost %", ".1f"),
            ("drafter_weights_gib", "Q", "drafter weights GiB", ".2f"),
            ("usd_per_mtok", "Q", "$/Mtok", ".2f"),
        )
    ]
