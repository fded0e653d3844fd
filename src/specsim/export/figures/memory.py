"""Memory off and on, and throughput over concurrency with the caps that memory sets."""

from __future__ import annotations

import functools
from typing import Any, cast

from specsim.analysis.circle import MemoryCircle
from specsim.export.figures.look import (
    HEIGHT,
    LOAD,
    OFF,
    ON,
    Rows,
    altair,
    apart,
    arm_colour,
    dataset,
    end_names,
    load_axis,
    rules,
    with_data,
)
from specsim.export.tables import count, figure

COLOURS = {
    "weights": "#2b8cc4", "drafter": "#d55e00", "KV cache": "#56b4e9",
    "activations, graphs": "#cc79a7", "not used": "#9aa3ad",
}  # fmt: skip
_WIDE_ENOUGH = 0.1
"""Share of a bar from which a part has room for its number."""


def part_rows(circle: MemoryCircle) -> Rows:
    """Return a record per arm and part of memory."""
    return [
        {"arm": p.arm, "part": p.part, "gpu_gib": p.gpu_gib, "replica_gib": p.replica_gib}
        for p in circle.parts
    ]


def parts(circle: MemoryCircle, *, whole_replica: bool) -> dict[str, Any]:
    """Draw where memory goes, off and on, of one device or of all."""
    unit = "replica_gib" if whole_replica else "gpu_gib"
    data = part_rows(circle)
    gib = {(row["arm"], row["part"]): row for row in data}
    total = sum(row[unit] for row in data if row["arm"] == "off")
    for arm in ("off", "on"):
        start = 0.0
        for i, row in enumerate(r for r in data if r["arm"] == arm):
            wide = row[unit] > _WIDE_ENOUGH * total
            row |= {"gib": row[unit], "order": i, "middle": start + row[unit] / 2.0,
                    "label": figure(row[unit]) if wide else ""}  # fmt: skip
            for other in ("off", "on"):
                same = gib.get((other, row["part"]), {})
                row |= {f"{of}_{other}": same.get(f"{of}_gib") for of in ("gpu", "replica")}
            start += row[unit]
    return with_data(_parts_form(whole_replica=whole_replica), {"parts": data})


@functools.cache
def _parts_form(*, whole_replica: bool) -> dict[str, Any]:
    alt = altair()
    of = "the replica" if whole_replica else "one GPU"
    axis = alt.Axis(labelFontSize=13, labelFontWeight=600, ticks=False, domain=False)
    y = alt.Y("arm:N", title=None, sort=["off", "on"], axis=axis)
    base = alt.Chart(dataset(alt, "parts")).encode(y=y)
    bars = base.mark_bar(height={"band": 0.75}).encode(
        x=alt.X("gib:Q", title=f"memory of {of} [GiB]", scale=alt.Scale(nice=False),
                axis=alt.Axis(grid=False, tickCount=8)),
        color=alt.Color("part:N", title=None,
                        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
                        legend=alt.Legend(orient="top", columns=3)),
        order=alt.Order("order:Q"),
        tooltip=["part:N", *(
            alt.Tooltip(f"{of}_{arm}:Q", title=f"{title} {arm} [GiB]", format=".2f")
            for of, title in (("gpu", "one GPU"), ("replica", "the replica"))
            for arm in ("off", "on")
        )],
    )  # fmt: skip
    texts = base.mark_text(color="#101418", fontWeight=600, fontSize=12).encode(
        x="middle:Q", text="label:N"
    )
    form = alt.layer(bars, texts).properties(height=230)
    return cast(dict[str, Any], form.to_dict())


def throughput_rows(circle: MemoryCircle) -> Rows:
    """Return a record per load: output tokens per second of both arms."""
    found: Rows = []
    for i, load in enumerate(circle.loads):
        row: dict[str, Any] = {"load": load, "off_tok_s": circle.off_tok_s[i]}
        if circle.on_tok_s:
            row |= {"on_tok_s": circle.on_tok_s[i], "on_cache_whole_tok_s": circle.free_tok_s[i]}
        found.append(row)
    return found


def throughput(circle: MemoryCircle, *, load: float | None) -> dict[str, Any]:
    """Draw throughput over concurrency; rules mark how many requests run at a time in each arm.

    Parameters
    ----------
    load : float, optional
        The user's own, where it is a concurrency.
    """
    wide = throughput_rows(circle)
    series = {"off_tok_s": "off", "on_tok_s": "on"}
    shown = [(name, arm) for name, arm in series.items() if name in wide[0]]
    long = [{**row, "arm": arm, "value": row[name]} for name, arm in shown for row in wide]
    ends = [{"load": wide[-1]["load"], "arm": arm, "value": wide[-1][name]} for name, arm in shown]
    ends = apart(ends, long)
    whole = [
        {"load": row["load"], "arm": "on", "value": row["on_cache_whole_tok_s"]}
        for row in wide
        if "on_cache_whole_tok_s" in row
    ]
    datasets = {"points": long, "ends": ends, "whole": whole, "marks": _marks(circle, load)}
    return with_data(_throughput_form(), datasets)


def _marks(circle: MemoryCircle, load: float | None) -> Rows:
    """Return what is marked on the axis of loads: the caps of both arms, the user's load."""
    marks: Rows = []
    caps = (("off", circle.off, OFF), ("on", circle.on, ON))
    for line, (name, cap, colour) in enumerate(caps):
        if cap is not None:
            why = "cache full" if cap.limited_by == "kv" else "max_num_seqs"
            marks.append({"load": cap.running, "label": f"{name}: {cap.running:,.0f}, {why}",
                          "colour": colour, "line": line})  # fmt: skip
    if load is not None and 1 <= load <= circle.loads[-1]:
        label = f"your load: {count(load)}"
        marks.append({"load": load, "label": label, "colour": LOAD, "line": 2})
    return marks


@functools.cache
def _throughput_form() -> dict[str, Any]:
    alt = altair()
    x, colour = load_axis(alt, is_open=False), arm_colour(alt)
    y = alt.Y("value:Q", title="output tokens/s of a replica")
    base = alt.Chart(dataset(alt, "points")).encode(x=x, y=y, color=colour)
    whole = alt.Chart(dataset(alt, "whole")).mark_line(strokeWidth=1.5, strokeDash=[3, 3])
    tips = [alt.Tooltip("load:Q", title="concurrency", format=",.0f")]
    tips += [
        alt.Tooltip(f"{name}:Q", title=title, format=",.0f")
        for name, title in (
            ("off_tok_s", "tok/s off"),
            ("on_tok_s", "tok/s on"),
            ("on_cache_whole_tok_s", "tok/s on, cache whole"),
        )
    ]
    form = alt.layer(
        base.mark_line(strokeWidth=2.5),
        whole.encode(x=x, y=y, color=colour),
        base.mark_point(filled=True, size=28, opacity=0.9).encode(tooltip=tips),
        end_names(alt, "arm", x="load:Q", y="value:Q", color=colour),
        rules(alt),
    ).properties(height=HEIGHT + 20)
    return cast(dict[str, Any], form.to_dict())
