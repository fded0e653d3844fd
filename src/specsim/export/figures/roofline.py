"""The roofline of a device with the target's passes under it, and what binds a step by load."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from specsim.analysis.roofline import Regime, Regimes, Roofline
from specsim.export.figures.look import (
    HEIGHT,
    LOAD,
    PARTS,
    WORDS,
    Rows,
    altair,
    arm_colour,
    dataset,
    load_axis,
    load_title,
    rules,
    with_data,
)
from specsim.export.tables import count

_LANES = {"off": 1.3, "on": 0.0}
"""Where the lane of each arm starts on the vertical axis; it is 1 high."""
_NAMED = (1.0, 16.0, 256.0)
"""Loads whose points have a name."""
_NARROWEST = 1.6
"""Bands whose ends are a smaller factor apart have no room for a name."""


def roofline_rows(found: Roofline) -> Rows:
    """Return a record per arm and load: the pass of the target on one device."""
    return [
        {
            "arm": each.arm, "concurrency": load, "batch": batch, "flop_per_byte": intensity,
            "tflop_per_s": rate, "pass_ms": seconds * 1e3,
        }
        for each in found.passes
        for load, batch, intensity, rate, seconds in zip(
            *(a.tolist() for a in (each.loads, each.batch, each.intensity, each.tflop_per_s,
                                   each.time_s)),
            strict=True,
        )
    ]  # fmt: skip


def roofline(found: Roofline) -> dict[str, Any]:
    """Draw the limits of the device and, by load, the target's passes of both arms."""
    rows = _both(roofline_rows(found), ("flop_per_byte", "tflop_per_s", "pass_ms"))
    ridge = max(roof.tflop_per_s for roof in found.roofs) * 1e3 / found.bandwidth_gb_per_s
    left = min(1.0, *(r["flop_per_byte"] for r in rows)) / 2.5
    right = max(ridge * 4.0, *(r["flop_per_byte"] * 1.5 for r in rows))
    own: Rows = [{**r, "label": ""} for r in rows if r["concurrency"] == found.own]
    if own:
        own[0]["label"] = "your load"
    datasets = {
        "passes": [{**r, "order": i} for i, r in enumerate(rows)],
        "roofs": _roofs(found, left, right),
        "roof_names": _roof_names(found, left, right),
        "loads": _load_names(rows),
        "own": own,
    }  # fmt: skip
    return with_data(_roofline_form(), datasets)


def _both(rows: Rows, names: Sequence[str], *, key: str = "concurrency") -> Rows:
    """Return records that say of both arms what tooltips tell: `pass_ms_off`, `pass_ms_on`."""
    known = {(row["arm"], row[key]): row for row in rows}
    return [
        {**row, **{f"{name}_{arm}": known.get((arm, row[key]), {}).get(name)
                   for name in names for arm in ("off", "on")}}
        for row in rows
    ]  # fmt: skip


def _load_names(rows: Rows) -> Rows:
    """Return the points with a name: the first of each arm, and few enough for a phone."""
    return [
        {**row, "label": f"{row['arm']}, 1 request" if row["concurrency"] == 1.0
         else f"{row['concurrency']:.0f}"}
        for row in rows
        if row["concurrency"] in _NAMED
    ]  # fmt: skip


def _roofs(found: Roofline, left: float, right: float) -> Rows:
    """Return the ends of each limit: the datasheet's, and what kernels reach of it."""
    rows: Rows = []
    for roof in found.roofs:
        for kind, gb, tflop in (
            ("datasheet", found.bandwidth_gb_per_s, roof.tflop_per_s),
            ("reached", found.reached_gb_per_s, roof.reached_tflop_per_s),
        ):
            ridge = tflop * 1e3 / gb
            rows += [
                {"flop_per_byte": x, "tflop_per_s": min(x * gb / 1e3, tflop), "kind": kind,
                 "roof": f"{roof.dtype} {kind}"}
                for x in sorted({left, ridge, right})
            ]  # fmt: skip
    return rows


def _roof_names(found: Roofline, left: float, right: float) -> Rows:
    """Return the name of each limit, above it: of memory halfway up the slope."""
    gb = found.bandwidth_gb_per_s
    names: Rows = [
        {"flop_per_byte": right, "tflop_per_s": roof.tflop_per_s,
         "label": f"{roof.dtype} compute {roof.tflop_per_s:,.0f} TFLOP/s"}
        for roof in found.roofs
    ]  # fmt: skip
    ridge = min(roof.tflop_per_s for roof in found.roofs) * 1e3 / gb
    middle = float(np.sqrt(left * ridge))
    memory = f"memory {gb / 1e3:.3g} TB/s"
    return [*names, {"flop_per_byte": middle, "tflop_per_s": middle * gb / 1e3, "label": memory}]


@functools.cache
def _roofline_form() -> dict[str, Any]:
    alt = altair()
    log = alt.Scale(type="log", nice=False)
    values = [digit * 10.0**power for power in range(-2, 6) for digit in (1, 2, 5)]
    grid = alt.Axis(format="~g", grid=False, values=values, labelOverlap="greedy")
    x = alt.X("flop_per_byte:Q", title="arithmetic intensity [FLOP/byte]", scale=log, axis=grid)
    y = alt.Y("tflop_per_s:Q", title="TFLOP/s of one GPU", scale=log, axis=grid)
    roofs = alt.Chart(dataset(alt, "roofs")).mark_line(color="#7d8894", strokeWidth=2)
    passes = alt.Chart(dataset(alt, "passes")).encode(x=x, y=y, color=arm_colour(alt))
    tooltip = [
        alt.Tooltip("concurrency:Q", title=load_title(is_open=False), format=",.4~g"),
        alt.Tooltip("batch:Q", title="of them running", format=",.4~g"),
        *(
            alt.Tooltip(f"{name}_{arm}:Q", title=f"{title} {arm}", format=pattern)
            for name, title, pattern in (
                ("flop_per_byte", "FLOP/byte", ",.1f"),
                ("tflop_per_s", "TFLOP/s", ",.1f"),
                ("pass_ms", "one pass, ms,", ".2f"),
            )
            for arm in ("off", "on")
        ),
    ]
    own = alt.Chart(dataset(alt, "own")).encode(x=x, y=y)
    names = alt.Chart(dataset(alt, "roof_names")).encode(x=x, y=y, text="label:N")
    word: dict[str, Any] = {"color": "#7d8894", "fontSize": 11, "fontWeight": 600}
    loads = alt.Chart(dataset(alt, "loads")).encode(x=x, y=y, text="label:N", color=arm_colour(alt))
    form = alt.layer(
        roofs.encode(
            x=x,
            y=y,
            detail="roof:N",
            strokeDash=alt.StrokeDash(
                "kind:N",
                scale=alt.Scale(domain=["datasheet", "reached"], range=[[1, 0], [4, 4]]),
                legend=None,
            ),
        ),
        names.mark_text(align="right", dx=-5, dy=-9, **word),
        passes.mark_line(strokeWidth=1.5, opacity=0.7).encode(order="order:Q"),
        own.mark_point(size=190, strokeWidth=2.5, color=LOAD, opacity=1),
        own.mark_text(align="left", dx=14, dy=16, fontSize=11, fontWeight=600, color=LOAD).encode(
            text="label:N"
        ),
        passes.mark_point(filled=True, size=60, opacity=1).encode(tooltip=tooltip),
        loads.mark_text(
            fontSize=11,
            fontWeight=600,
            align="left",
            dx=6,
            dy=alt.ExprRef("datum.arm == 'on' ? 9 : 20"),
        ),
    ).properties(height=HEIGHT + 60)
    return cast(dict[str, Any], form.to_dict())


def regime_rows(found: Regimes) -> Rows:
    """Return a record per arm and load: the parts of a step, and the largest of them."""
    rows: Rows = []
    for each in found.arms:
        for j, load in enumerate(each.loads.tolist()):
            parts = {f"{part}_ms": float(ms[j]) for part, ms in each.parts_ms.items()}
            bound = max(each.shares, key=lambda part: each.shares[part][j])
            rows.append({"arm": each.arm, "concurrency": load, "bound": bound, **parts})
    return rows


def regimes(found: Regimes) -> dict[str, Any]:
    """Draw the shares of a step by load, a lane per arm, with a name on what binds where."""
    bands = [row for each in found.arms for row in _band_rows(each)]
    datasets = {
        "shares": [row for each in found.arms for row in _shares(each)],
        "bands": bands,
        "cuts": [row for row in bands if row["inner"]],
        "told": _parts_by_load(found),
        "lanes": [{"load": float(each.loads[0]), "y": _LANES[each.arm] + 1.12,
                   "label": f"speculation {each.arm}"} for each in found.arms],
        "marks": [] if found.own is None else [
            {"load": found.own, "label": f"your load: {count(found.own)}", "colour": LOAD,
             "line": 0}
        ],
    }  # fmt: skip
    return with_data(_regimes_form(), datasets)


def _parts_by_load(found: Regimes) -> Rows:
    """Return a record per load with the parts of a step in both arms."""
    rows: dict[float, dict[str, Any]] = {}
    for each in found.arms:
        for j, load in enumerate(each.loads.tolist()):
            row = rows.setdefault(load, {"load": load})
            for part in PARTS:
                ms, share = float(each.parts_ms[part][j]), float(each.shares[part][j])
                row[f"{part}_{each.arm}"] = f"{ms:.3g} ms, {share:.0%}"
    return [rows[load] for load in sorted(rows)]


def _shares(regime: Regime) -> Rows:
    """Return the stacked shares of a step between each two loads."""
    rows: Rows = []
    low = np.full(regime.loads.size, _LANES[regime.arm])
    for part in PARTS:
        high = low + regime.shares[part]
        rows += [
            {"load": load, "low": float(low[j]), "high": float(high[j]),
             "part": WORDS.get(part, part), "arm": regime.arm}
            for j, load in enumerate(regime.loads.tolist())
        ]  # fmt: skip
        low = high
    return rows


def _band_rows(regime: Regime) -> Rows:
    """Return the bands with the place of their name: where their part is, in their middle."""
    rows: Rows = []
    below = np.cumsum([regime.shares[part] for part in PARTS], axis=0)
    names = list(PARTS)
    start = _LANES[regime.arm]
    for band in regime.bands:
        middle = float(np.sqrt(band.low * band.high))
        top = np.interp(np.log(middle), np.log(regime.loads), below[names.index(band.bound)])
        share = np.interp(np.log(middle), np.log(regime.loads), regime.shares[band.bound])
        wide = band.high / band.low > _NARROWEST
        rows.append({"load": band.low, "end": band.high, "middle": middle, "low": start,
                     "high": start + 1.0, "y": start + float(top - 0.5 * share),
                     "label": WORDS.get(band.bound, band.bound) if wide else "",
                     "inner": band.low > regime.loads[0]})  # fmt: skip
    return rows


@functools.cache
def _regimes_form() -> dict[str, Any]:
    alt = altair()
    x = load_axis(alt, is_open=False)
    y = alt.Y("low:Q", axis=None, scale=alt.Scale(nice=False, domain=[0.0, 2.55]))
    shares = alt.Chart(dataset(alt, "shares")).mark_area(interpolate="linear")
    parts = [WORDS.get(part, part) for part in PARTS]
    colour = alt.Color(
        "part:N",
        title=None,
        scale=alt.Scale(domain=parts, range=list(PARTS.values())),
        legend=alt.Legend(orient="top", columns=3),
    )
    told = [alt.Tooltip("load:Q", title=load_title(is_open=False), format=",.4~g")]
    told += [
        alt.Tooltip(f"{part}_{arm}:N", title=f"{WORDS.get(part, part)} {arm}")
        for part in PARTS
        for arm in ("off", "on")
    ]
    bands = alt.Chart(dataset(alt, "bands"))
    words = alt.Chart(dataset(alt, "lanes")).mark_text(
        align="left", fontSize=12, fontWeight=600, color="#7d8894"
    )
    strips = alt.layer(
        shares.encode(x=x, y=y, y2="high:Q", color=colour, detail="arm:N"),
        alt.Chart(dataset(alt, "cuts"))
        .mark_rule(color="#ffffff", strokeWidth=2)
        .encode(x="load:Q", y="low:Q", y2="high:Q"),
        bands.mark_text(color="#14181d", fontSize=13, fontWeight=700).encode(
            x="middle:Q", y="y:Q", text="label:N"
        ),
        words.encode(x="load:Q", y="y:Q", text="label:N"),
        # An area tells of its first point alone: what is hovered over is a rule at each load.
        alt.Chart(dataset(alt, "told"))
        .mark_rule(strokeWidth=14, opacity=0)
        .encode(x="load:Q", tooltip=told),
    )
    rim = alt.Chart(dataset(alt, "marks")).mark_rule(color="#ffffff", strokeWidth=4, opacity=0.6)
    both = alt.layer(strips, rim.encode(x="load:Q"), rules(alt)).resolve_scale(color="independent")
    form = both.properties(height=HEIGHT + 60)
    return cast(dict[str, Any], form.to_dict())
