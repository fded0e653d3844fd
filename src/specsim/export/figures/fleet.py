"""A plan in pictures: what each candidate costs, holds at the SLO, and how loaded its fleet is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

from specsim.export.figures.fleet_words import needed, unrounded
from specsim.export.figures.look import (
    OFF,
    ON,
    TURN,
    Rows,
    altair,
    arm_colour,
    dataset,
    with_data,
)
from specsim.export.tables import MISSING, figure
from specsim.schema.plan import Candidate, Plan

USED = {"average": "#009e73", "peak": "#e69f00", "one down": "#d55e00"}
"""When a fleet is how loaded, in colours that the colour-blind tell apart."""
MOST_DRAWN = 16
"""Candidates of one picture: beyond that nobody compares bars."""
_TOLD = {
    "usd_per_month": ("$/month", ",.0f"),
    "gpus": ("GPUs", ",d"),
    "load_at_slo": ("requests/s at the SLO", ",.3~g"),
    "utilization_average": ("used on average", ".0%"),
    "utilization_peak": ("used at the peak", ".0%"),
    "utilization_one_down": ("used, one down", ".0%"),
}
"""What tooltips say of both arms, by the field of a candidate."""
_LISTED: tuple[tuple[str, str], ...] = (
    ("usd_per_month", "usd_per_month"), ("replicas", "replicas"), ("gpus", "gpus"),
    ("servers", "servers"), ("load_at_slo", "load_at_slo_requests_per_s"), ("binding", "binding"),
    ("usd_per_mtok_average", "usd_per_mtok_month"),
    ("usd_per_mtok_peak", "usd_per_mtok_peak"), ("utilization_average", "utilization_average"),
    ("utilization_peak", "utilization_peak"), ("utilization_one_down", "utilization_one_down"),
    ("one_down", "one_down"), ("ttft_p95_ms", "ttft_p95_ms"), ("tpot_p95_ms", "tpot_p95_ms"),
)  # fmt: skip
"""Fields of a candidate in the ranking, and their columns."""


def accepted(plan: Plan) -> list[Candidate]:
    """Return the candidates that meet the SLO, the best first."""
    return [c for c in plan.candidates if c.rejected_because is None]


def ranking(plan: Plan) -> Rows:
    """Return a record per candidate that meets the SLO, the best first."""
    return [
        {"rank": place, "deployment": c.deployment, "speculation": _arm(c),
         "replicas_needed": needed(plan, c),
         **{column: getattr(c, name) for name, column in _LISTED}}
        for place, c in enumerate(accepted(plan), start=1)
    ]  # fmt: skip


def rejected(plan: Plan) -> Rows:
    """Return each reason for which candidates were rejected, once, with their names."""
    names: dict[str, list[str]] = {}
    for c in plan.candidates:
        if c.rejected_because is not None:
            names.setdefault(c.rejected_because, []).append(c.name)
    return [{"candidates": held, "because": reason} for reason, held in names.items()]


def target_words(name: str) -> str:
    """Return what a target of the SLO is called: ttft_p95_ms is TTFT p95.

    >>> target_words("ttft_p95_ms"), target_words("attainment_pct"), target_words("capacity")
    ('TTFT p95', 'requests that meet all', 'capacity')
    """
    if name == "attainment_pct":
        return "requests that meet all"
    metric, _, statistic = name.removesuffix("_ms").partition("_")
    return f"{metric.upper()} {statistic}" if name.endswith("_ms") else name


def reached(candidate: Candidate) -> Rows:
    """Return a record per target of the SLO: what is reached of it, and which one binds."""
    return [
        {"target": f"{target_words(r.target)}, {'%' if r.target.endswith('_pct') else 'ms'}",
         "reached": r.value, "limit": r.limit, "used": round(r.excess, 3),
         "binds": r.target == candidate.binding}
        for r in candidate.reached
    ]  # fmt: skip


def arms(plan: Plan) -> tuple[Candidate | None, Candidate | None]:
    """Return the two arms of the deployment to take: off, and the best way of speculating.

    Of a plan that nothing meets, those of the candidate that is nearest to the SLO.
    """
    first = plan.candidates[0]
    return (_partner(plan, first, "baseline"), _partner(plan, first, "speculative"))


def off_on(plan: Plan) -> Rows:
    """Return a record per quantity with its value off and on, as text."""
    off, on = arms(plan)
    rows: Rows = []
    for title, read in _COMPARED:
        if title == "replicas":
            rows.append({
                "quantity": "replicas, unrounded",
                **{arm: MISSING if c is None else unrounded(needed(plan, c))
                   for arm, c in (("off", off), ("on", on))},
            })  # fmt: skip
        rows.append({"quantity": title, "off": _said(off, read), "on": _said(on, read)})
    return rows


def one_down(candidate: Candidate) -> tuple[str, str]:
    """Return in two words what one replica down means, and the colour of it."""
    if candidate.one_down_ok:
        return "holds", "green"
    if candidate.one_down_speculation_off:
        return "speculation off", "orange"
    return "not held", "red"


def pairs(plan: Plan) -> Rows:
    """Return what the pictures draw: candidates in the order of the ranking, the best first.

    Each record says of both arms of its deployment what tooltips tell.
    """
    shown = accepted(plan)
    common = shared_words([c.deployment for c in shown])
    rows: Rows = []
    for place, c in enumerate(shown[:MOST_DRAWN]):
        off = c if c.arm == "baseline" else _partner(plan, c, "baseline")
        on = c if c.arm == "speculative" else _partner(plan, c, "speculative")
        row: dict[str, Any] = {
            "place": place, "name": c.deployment.removeprefix(common), "arm": _arm(c),
            "deployment": c.deployment,
            "rank": place + 1, "replicas": c.replicas, "gpus": c.gpus,
            "gpus_per_replica": c.gpus_per_replica, "usd_per_month": c.usd_per_month,
            "load_at_slo": c.load_at_slo, "binding": target_words(c.binding),
        }  # fmt: skip
        for name in _TOLD:
            row |= {f"{name}_off": _of(off, name), f"{name}_on": _of(on, name)}
        rows.append(row)
    return rows


def cost(plan: Plan) -> dict[str, Any]:
    """Draw the price of a month of each candidate; its GPUs where no price is known."""
    rows = pairs(plan)
    priced = any(row["usd_per_month"] is not None for row in rows)
    for row in rows:
        usd = row["usd_per_month"]
        money = ("no price" if priced else "") if usd is None else f"${usd:,.0f}"
        fleet = f"{row['replicas']:,} × {row['gpus_per_replica']} GPUs"
        row |= {"value": usd if priced else row["gpus"]}
        row["label"] = " · ".join(filter(None, (f"{row['name']}, {row['arm']}", money, fleet)))
    title, pattern = ("price of a month", "$,.0f") if priced else ("GPUs", ",d")
    return _tall(with_data(_bars(title, pattern), {"candidates": rows}), _BAR * len(rows))


def load(plan: Plan) -> dict[str, Any]:
    """Draw the largest load of one replica at the SLO, and what forbids more."""
    rows = pairs(plan)
    for row in rows:
        said = f"{row['name']}, {row['arm']} · {figure(row['load_at_slo'])}"
        row |= {"value": row["load_at_slo"], "label": f"{said} · {row['binding']} binds"}
    form = _bars("load of one replica at the SLO [requests/s]", "~g")
    return _tall(with_data(form, {"candidates": rows}), _BAR * len(rows))


def _tall(form: dict[str, Any], rows_height: int) -> dict[str, Any]:
    """Return a chart as high as its rows, and its axis below them, are. [px]."""
    return {**form, "height": rows_height + _AXIS}


@functools.cache
def _bars(title: str, pattern: str) -> dict[str, Any]:
    alt = altair()
    axis = alt.Axis(format=pattern, tickCount=5, labelOverlap=True)
    base = alt.Chart(dataset(alt, "candidates")).encode(y=_row(alt), tooltip=_tooltip(alt))
    bars = base.mark_bar(height=14, yOffset=9, cornerRadiusEnd=2).encode(
        x=alt.X("value:Q", title=title, axis=axis), color=arm_colour(alt)
    )
    # Above its bar a label has the width of the page: beside it, none would fit on a phone.
    names = base.mark_text(align="left", dy=-7, fontSize=12, fontWeight=600)
    form = alt.layer(bars, names.encode(x=alt.value(0), text="label:N", color=arm_colour(alt)))
    return cast(dict[str, Any], form.to_dict())


def used(plan: Plan) -> Rows:
    """Return a record per candidate and state of its fleet: load / load at the SLO."""
    return [
        {**row, "state": state, "used": row[f"{name}_{row['arm']}"]}
        for row in pairs(plan)
        for state, name in zip(
            USED, ("utilization_average", "utilization_peak", "utilization_one_down"), strict=True
        )
        if row[f"{name}_{row['arm']}"] is not None
    ]


def utilization(plan: Plan) -> dict[str, Any]:
    """Draw how loaded each fleet is: on average, at the peak, and there with one replica down."""
    rows = used(plan)
    for row in rows:
        row |= {"label": f"{row['used']:.0%} {row['state']}", "colour": USED[row["state"]]}
    heads = [
        {"place": row["place"], "arm": row["arm"], "state": _HEAD,
         "label": f"{row['name']}, {row['arm']}", "colour": OFF if row["arm"] == "off" else ON}
        for row in pairs(plan)
    ]  # fmt: skip
    share = plan.traffic["target_utilization"]
    # What bars and the SLO's line leave free at the right is for the numbers.
    right = _ROOM * max([1.0, *(row["used"] for row in rows)])
    marks = [{"at": 1.0, "label": "SLO", "colour": TURN}, {"at": right}]
    if share < 1.0:
        marks.append({"at": share, "label": f"target {share:.0%}", "colour": OFF})
    datasets = {"used": rows, "heads": heads, "marks": marks}
    return _tall(with_data(_used_form(), datasets), _STATE_BAR * (1 + len(USED)) * len(heads))


_HEAD = "name"
_BAR, _STATE_BAR, _AXIS = 42, 22, 64
"""Height of a candidate, of one state of it, and of the axis with the marks' names. [px]"""
_ROOM = 1.4
"""Width of the picture, in widths of what is drawn."""


@functools.cache
def _used_form() -> dict[str, Any]:
    alt = altair()
    colour = alt.Color("colour:N", scale=None, legend=None)
    places = {
        "y": _row(alt),
        "yOffset": alt.YOffset("state:N", scale=alt.Scale(domain=[_HEAD, *USED], paddingInner=0.1)),
    }
    x = alt.X("used:Q", title="load / load at the SLO, of each replica",
              axis=alt.Axis(labelExpr="datum.value > 1 ? '' : format(datum.value, '.0%')",
                            tickCount=6, labelOverlap=True))  # fmt: skip
    base = alt.Chart(dataset(alt, "used")).encode(x=x, tooltip=_tooltip(alt), **places)
    heads = alt.Chart(dataset(alt, "heads")).mark_text(
        align="left", dy=-2, fontSize=12, fontWeight=600
    )
    marks = alt.Chart(dataset(alt, "marks")).encode(x="at:Q", color=colour)
    names = marks.mark_text(align="left", baseline="bottom", dx=3, fontSize=11, fontWeight=600)
    form = alt.layer(
        base.mark_bar(cornerRadiusEnd=2).encode(color=colour),
        base.mark_text(align="right", fontSize=11, fontWeight=600, color=OFF).encode(
            x=alt.value("width"), text="label:N"
        ),
        heads.encode(x=alt.value(0), text="label:N", color=colour, **places),
        marks.mark_rule(strokeDash=[5, 3], strokeWidth=1.5),
        names.encode(y=alt.value(0), text="label:N"),
    )
    return cast(dict[str, Any], form.to_dict())


def shared_words(names: Sequence[str]) -> str:
    """Return the words that all names begin with, if something is left of each without them.

    >>> shared_words(["llama h100 tp4", "llama h100 tp4 eagle k4"])
    'llama h100 '
    """
    split = [name.split(" ") for name in names]
    n = 0
    while split and all(len(words) > n + 1 and words[n] == split[0][n] for words in split):
        n += 1
    return "".join(f"{word} " for word in split[0][:n]) if split else ""


def _row(alt: Any) -> Any:
    """Return the place of a candidate: a row without an axis, since its label names it."""
    return alt.Y("place:O", axis=None, sort=None)


def _tooltip(alt: Any) -> list[Any]:
    shown = [alt.Tooltip("deployment:N"), alt.Tooltip("arm:N", title="speculation"),
             alt.Tooltip("rank:Q"), alt.Tooltip("binding:N", title="what binds")]  # fmt: skip
    return shown + [
        alt.Tooltip(f"{name}_{arm}:Q", title=f"{title} {arm}", format=pattern)
        for name, (title, pattern) in _TOLD.items()
        for arm in ("off", "on")
    ]


def _arm(c: Candidate) -> str:
    return "off" if c.arm == "baseline" else "on"


def _same(one: Candidate, other: Candidate) -> bool:
    """Return whether two candidates differ at most in their way of speculating."""
    without = {"name", "load", "workload", "speculation"}
    return one.source.model_dump(exclude=without) == other.source.model_dump(exclude=without)


def _partner(plan: Plan, c: Candidate, arm: str) -> Candidate | None:
    """Return the best candidate of an arm on the same deployment: the candidate itself first."""
    if c.arm == arm:
        return c
    return next((o for o in plan.candidates if o.arm == arm and _same(o, c)), None)


def _of(c: Candidate | None, name: str) -> Any:
    return None if c is None else getattr(c, name)


def _said(c: Candidate | None, read: Callable[[Candidate], str]) -> str:
    return MISSING if c is None else read(c)


def _whole(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def _dollars(value: float | None, pattern: str) -> str:
    return MISSING if value is None else f"${value:{pattern}}"


def _share(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0%}"


_COMPARED: tuple[tuple[str, Callable[[Candidate], str]], ...] = (
    ("$/month", lambda c: _dollars(c.usd_per_month, ",.0f")),
    ("$/Mtok out, month", lambda c: _dollars(c.usd_per_mtok_average, ",.2f")),
    ("$/Mtok out, peak", lambda c: _dollars(c.usd_per_mtok_peak, ",.2f")),
    ("replicas", lambda c: _whole(c.replicas)),
    ("GPUs", lambda c: _whole(c.gpus)),
    ("servers", lambda c: _whole(c.servers)),
    ("a replica holds, requests/s", lambda c: figure(c.load_at_slo)),
    ("what binds", lambda c: target_words(c.binding) or MISSING),
    ("used on average", lambda c: _share(c.utilization_average)),
    ("used at peak", lambda c: _share(c.utilization_peak)),
    ("used, one down", lambda c: _share(c.utilization_one_down)),
    ("TTFT p95 at peak, ms", lambda c: figure(c.ttft_p95_ms)),
    ("TPOT p95 at peak, ms", lambda c: figure(c.tpot_p95_ms)),
    ("rated power, kW", lambda c: figure(c.power_kw)),
)
"""What is told of both arms, beside each other."""
