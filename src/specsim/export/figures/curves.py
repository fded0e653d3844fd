"""Both arms over load: throughput, time per token, speedup, and where the time of a step goes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

from specsim.export.figures.look import (
    HEIGHT,
    LOAD,
    PARTS,
    PHASES,
    TURN,
    WORDS,
    Rows,
    altair,
    apart,
    arm_colour,
    dataset,
    end_names,
    load_axis,
    load_title,
    rules,
    with_data,
)
from specsim.export.tables import count
from specsim.schema.results import Prediction

_TITLES = {
    "output_tok_s": "output tokens/s of a replica",
    "tpot_ms": "time per output token [ms]",
    "ttft_ms": "time to first token [ms]",
}


def rows_by_load(prediction: Prediction) -> Rows:
    """Return a record per load: both arms, the gain and its band."""
    rows: Rows = []
    for p in prediction.points:
        row: dict[str, Any] = {"load": p.concurrency if p.request_rate is None else p.request_rate}
        for arm, service in (("off", p.baseline), ("on", p.speculative)):
            for name in (*_TITLES, "usd_per_mtok"):
                row[f"{name}_{arm}"] = None if service is None else getattr(service, name)
        row |= {"speedup": p.speedup, "low": p.speedup_low, "high": p.speedup_high}
        rows.append(row)
    return rows


def curve(prediction: Prediction, metric: str, *, load: float) -> dict[str, Any]:
    """Draw a quantity of both arms over load, with the band of the gain around the on arm.

    Parameters
    ----------
    metric : str
        `output_tok_s`, `tpot_ms` or `ttft_ms`.
    load : float
        Marked as the user's own.
    """
    rows = rows_by_load(prediction)
    long = [
        {"load": row["load"], "arm": arm, "value": row[f"{metric}_{arm}"], **_told(row)}
        for row in rows
        for arm in ("off", "on")
        if row[f"{metric}_{arm}"] is not None
    ]
    of_arm = {arm: [r for r in long if r["arm"] == arm] for arm in ("off", "on")}
    ends = [max(each, key=lambda r: r["load"]) for each in of_arm.values() if each]
    ends = apart(ends, long)
    datasets = {"points": long, "ends": ends, "band": _band(rows, metric),
                "marks": _marks(prediction, load)}  # fmt: skip
    return with_data(_curve_form(metric, is_open=_is_open(prediction)), datasets)


@functools.cache
def _curve_form(metric: str, *, is_open: bool) -> dict[str, Any]:
    alt = altair()
    x = load_axis(alt, is_open=is_open)
    y = alt.Y("value:Q", title=_TITLES[metric], scale=alt.Scale(zero=metric != "tpot_ms"))
    colour = arm_colour(alt)
    area = alt.Chart(dataset(alt, "band")).mark_area(opacity=0.22)
    base = alt.Chart(dataset(alt, "points")).encode(x=x, y=y, color=colour)
    dots = base.mark_point(filled=True, size=55, opacity=1)
    form = alt.layer(
        area.encode(x=x, y="low:Q", y2="high:Q", color=colour),
        base.mark_line(strokeWidth=2.5),
        dots.encode(tooltip=_tooltip(alt, is_open=is_open)).add_params(
            alt.selection_point(name="picked", fields=["load"])
        ),
        end_names(alt, "arm", x="load:Q", y="value:Q", color=colour),
        rules(alt),
    ).properties(height=HEIGHT)
    return cast(dict[str, Any], form.to_dict())


def _is_open(prediction: Prediction) -> bool:
    return prediction.points[0].request_rate is not None


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in row if key != "load"}


def _tooltip(alt: Any, *, is_open: bool) -> list[Any]:
    shown = [alt.Tooltip("load:Q", title="requests/s" if is_open else "concurrency")]
    for name, title, pattern in (
        ("output_tok_s", "tok/s", ",.0f"),
        ("tpot_ms", "TPOT, ms", ".1f"),
        ("ttft_ms", "TTFT, ms", ",.0f"),
        ("usd_per_mtok", "$/Mtok", ".2f"),
    ):
        shown += [
            alt.Tooltip(f"{name}_{arm}:Q", title=f"{title} {arm}", format=pattern)
            for arm in ("off", "on")
        ]
    shown += [
        alt.Tooltip(f"{name}:Q", title=title, format=".2f")
        for name, title in (("speedup", "speedup"), ("low", "10th pct"), ("high", "90th pct"))
    ]
    return shown


def _band(rows: Rows, metric: str) -> Rows:
    """Return the on arm at the ends of the band of the gain."""
    if metric == "ttft_ms":
        return []
    found: Rows = []
    for row in rows:
        on, gain, low, high = (row[k] for k in (f"{metric}_on", "speedup", "low", "high"))
        if on is None or not gain or not low or not high:
            continue
        # A gain is more tokens per second, or less time per token.
        ends = (on * low / gain, on * high / gain)
        if metric == "tpot_ms":
            ends = (on * gain / high, on * gain / low)
        found.append({"load": row["load"], "arm": "on", "low": ends[0], "high": ends[1]})
    return found


def _marks(prediction: Prediction, load: float) -> Rows:
    label = f"your load: {count(load)}"
    marks: Rows = [{"load": load, "label": label, "colour": LOAD, "line": 0}]
    found = prediction.crossover
    if found is not None and found.load is not None:
        label = f"turns at {count(found.load)}"
        marks.append({"load": found.load, "label": label, "colour": TURN, "line": 1})
    return marks


def speedup(prediction: Prediction, *, load: float) -> dict[str, Any]:
    """Draw the gain over load with its band, and the line at which it is none."""
    rows = [{**r, "arm": "on"} for r in rows_by_load(prediction) if r["speedup"] is not None]
    datasets = {"points": rows, "one": [{"one": 1.0}], "marks": _marks(prediction, load)}
    return with_data(_speedup_form(is_open=_is_open(prediction)), datasets)


@functools.cache
def _speedup_form(*, is_open: bool) -> dict[str, Any]:
    alt = altair()
    y = alt.Y("speedup:Q", title="speedup, on / off", scale=alt.Scale(zero=False))
    base = alt.Chart(dataset(alt, "points")).encode(
        x=load_axis(alt, is_open=is_open), color=arm_colour(alt)
    )
    one = alt.Chart(dataset(alt, "one")).mark_rule(strokeDash=[4, 4], opacity=0.6)
    form = alt.layer(
        base.mark_area(opacity=0.22).encode(y=alt.Y("low:Q"), y2="high:Q"),
        one.encode(y="one:Q"),
        base.mark_line(strokeWidth=2.5).encode(y=y),
        base.mark_point(filled=True, size=55, opacity=1)
        .encode(y=y, tooltip=_tooltip(alt, is_open=is_open))
        .add_params(alt.selection_point(name="picked", fields=["load"])),
        rules(alt),
    ).properties(height=HEIGHT)
    return cast(dict[str, Any], form.to_dict())


def step_rows(prediction: Prediction) -> Rows:
    """Return a record per load, arm and cause of a step's time."""
    rows: Rows = []
    for p in prediction.points:
        at = p.concurrency if p.request_rate is None else p.request_rate
        for arm, service in (("off", p.baseline), ("on", p.speculative)):
            if service is not None:
                rows += [
                    {"load": at, "arm": arm, "part": part, "ms": ms}
                    for part, ms in service.parts_ms.items()
                ]
        if p.speculative is not None:
            rows += [
                {"load": at, "arm": "phases", "part": phase,
                 "ms": getattr(p.speculative, f"{phase}_ms")}
                for phase in PHASES
            ]  # fmt: skip
    return rows


def step(prediction: Prediction, arm: str) -> dict[str, Any]:
    """Draw where the time of a step goes, stacked by load.

    Parameters
    ----------
    arm : str
        `off` or `on` by cause, or `phases`: the on arm by what is done.
    """
    every = step_rows(prediction)
    ms = {(r["arm"], r["load"], r["part"]): r["ms"] for r in every}
    order = list(PHASES if arm == "phases" else PARTS)
    rows = [
        {**r, "part": WORDS.get(r["part"], r["part"]), "order": order.index(r["part"]),
         **{f"{other}_ms": ms.get((other, r["load"], r["part"])) for other in ("off", "on")}}
        for r in every
        if r["arm"] == arm
    ]  # fmt: skip
    form = _step_form(phases=arm == "phases", is_open=_is_open(prediction))
    return with_data(form, {"parts": rows})


@functools.cache
def _step_form(*, phases: bool, is_open: bool) -> dict[str, Any]:
    alt = altair()
    colours = {WORDS.get(k, k): colour for k, colour in (PHASES if phases else PARTS).items()}
    title = load_title(is_open=is_open)
    both = [alt.Tooltip(f"{arm}_ms:Q", title=f"{arm} [ms]", format=".2f") for arm in ("off", "on")]
    form = (
        alt.Chart(dataset(alt, "parts"))
        .mark_bar()
        .encode(
            x=alt.X("load:O", title=title, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("ms:Q", title="one step [ms]"),
            color=alt.Color(
                "part:N",
                title=None,
                scale=alt.Scale(domain=list(colours), range=list(colours.values())),
                legend=alt.Legend(orient="top", columns=3),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("load:O", title=title),
                "part:N",
                *([alt.Tooltip("ms:Q", title="on [ms]", format=".2f")] if phases else both),
            ],
        )
        .properties(height=HEIGHT + 60)
    )
    return cast(dict[str, Any], form.to_dict())


def table(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Return records with no more digits than they are worth."""
    return [
        {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in rows
    ]
