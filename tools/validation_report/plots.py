"""The plots of docs/validation.md, as SVG on a white ground."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from specsim.schema.validation import CaseCheck, CurveCheck, PointCheck
from specsim.validation.check import besides_load
from validation_report import figures

FOLDER = figures.ROOT / "docs" / "img"
TUNE, TEST, GREY, INK = "#0072B2", "#D55E00", "#9aa0a6", "#202124"
"""Blue and vermilion of Okabe and Ito: apart for every common kind of colour blindness."""
COLOURS = alt.Scale(domain=["tune", "test"], range=[TUNE, TEST])
SHAPES = alt.Scale(domain=["A", "B", "C"], range=["circle", "diamond", "cross"])
_LEAST_LOADS = 3
_COLUMNS = 5


def write() -> list[str]:
    """Draw all plots and return their names."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    charts = {
        "validation.svg": speedup(),
        "validation-tpot.svg": tpot(),
        "validation-curves.svg": curves(),
        "validation-coverage.svg": coverage(),
    }
    for name, chart in charts.items():
        _styled(chart).save(FOLDER / name)
    return list(charts)


def _data(*, values: list[Any]) -> Any:
    return alt.Data(values=values)  # type: ignore[no-untyped-call]


def _styled(chart: Any) -> Any:
    return (
        chart.configure(background="white")
        .configure_view(stroke="#dadce0")
        .configure_axis(
            labelColor=INK, titleColor=INK, gridColor="#eceef0", labelFontSize=11, titleFontSize=12
        )
        .configure_title(color=INK, anchor="start", fontSize=14, subtitleColor="#5f6368")
        .configure_legend(labelColor=INK, titleColor=INK, labelFontSize=11, titleFontSize=11)
        .configure_header(labelColor=INK)
    )


def _scored() -> Iterator[tuple[CaseCheck, PointCheck]]:
    for case in figures.validation().cases:
        if case.scored:
            for point in case.points:
                yield case, point


def _against(
    rows: list[dict[str, Any]], *, unit: str, within: float, limits: tuple[float, float],
    ticks: list[float], title: str,
) -> Any:  # fmt: skip
    """Return predicted over measured on logarithmic axes, with 1:1 and a margin either side."""
    low, high = limits
    ends = [low, high]
    margin = alt.Chart(
        _data(values=[{"x": x, "low": x * (1 - within), "high": x * (1 + within)} for x in ends])
    )
    scale = alt.Scale(type="log", domain=ends, nice=False)
    axis = alt.Axis(values=ticks, format="~g")
    band = margin.mark_area(color=GREY, opacity=0.22, clip=True).encode(
        x=alt.X("x:Q", scale=scale, axis=axis, title=f"measured {unit}"),
        y=alt.Y("low:Q", scale=scale, axis=axis, title=f"predicted {unit}"),
        y2="high:Q",
    )
    same = alt.Chart(_data(values=[{"x": x, "y": x} for x in ends])).mark_line(
        color=INK, strokeWidth=1
    )
    held = [
        {**row, **{k: min(max(row[k], low), high) for k in ("measured", "predicted")}}
        for row in rows
    ]
    dots = alt.Chart(_data(values=held)).mark_point(size=34, strokeWidth=1.3)
    return alt.layer(
        band,
        same.encode(x=alt.X("x:Q", scale=scale), y=alt.Y("y:Q", scale=scale)),
        dots.encode(
            x=alt.X("measured:Q", scale=scale),
            y=alt.Y("predicted:Q", scale=scale),
            color=alt.Color("role:N", scale=COLOURS, title="role"),
            shape=alt.Shape("grade:N", scale=SHAPES, title="grade"),
            opacity=alt.condition("datum.grade == 'C'", alt.value(0.45), alt.value(0.85)),
        ),
    ).properties(
        width=430,
        height=430,
        title=alt.Title(
            title,
            subtitle=[
                f"line: equal; grey: within {within:.0%}; beyond the axes: on the edge",
                "test: no constant was fitted on it; grade C (several inputs assumed) is faint",
            ],
        ),
    )


def speedup() -> Any:
    """Return predicted against measured speedup."""
    rows = [
        {"measured": p.measured_speedup, "predicted": p.predicted_speedup, "grade": c.grade,
         "role": c.role}
        for c, p in _scored()
        if p.measured_speedup and p.predicted_speedup
    ]  # fmt: skip
    return _against(
        rows,
        unit="speedup (on / off)",
        within=0.15,
        limits=(0.4, 5.0),
        ticks=[0.5, 0.7, 1, 1.5, 2, 3, 4, 5],
        title=f"Speedup of speculation, {len(rows)} published points",
    )


def tpot() -> Any:
    """Return predicted against measured time per token without speculation."""
    rows = [
        {"measured": a.measured, "predicted": a.predicted, "grade": c.grade, "role": c.role}
        for c, p in _scored()
        for a in p.arms
        if a.arm == "baseline" and a.metric == "tpot_ms"
    ]
    return _against(
        rows,
        unit="time per output token, ms",
        within=0.10,
        limits=(3.0, 200.0),
        ticks=[3, 5, 10, 20, 50, 100, 200],
        title=f"Time per token without speculation, {len(rows)} points",
    )


def long_curves() -> Iterator[tuple[CaseCheck, CurveCheck, list[PointCheck], str]]:
    """Yield every ladder of at least three loads, with its points and what tells it apart."""
    for case in figures.validation().cases:
        ladders = [c for c in case.curves if len(c.loads) >= _LEAST_LOADS]
        taken: set[int] = set()
        for curve in ladders:
            points = _points(case, curve, taken)
            taken |= {p.index for p in points}
            label = _label(points[0]) if len(ladders) > 1 else ""
            yield case, curve, points, label


def _points(case: CaseCheck, curve: CurveCheck, taken: set[int]) -> list[PointCheck]:
    """Return the points of a ladder: those not taken that share the settings of its first."""
    free = [
        p for p in case.points
        if p.index not in taken and p.error_pct is not None and p.load in curve.loads
    ]  # fmt: skip
    groups: dict[str, list[PointCheck]] = {}
    for p in free:
        groups.setdefault(repr(besides_load(p)), []).append(p)
    found = next(
        g for g in groups.values() if tuple(sorted(float(p.load or 0) for p in g)) == curve.loads
    )
    return sorted(found, key=lambda p: p.load or 0.0)


def _label(point: PointCheck) -> str:
    return f", k = {point.num_speculative_tokens}"


def curves() -> Any:
    """Return measured points on predicted curves, a panel each."""
    panels = [_panel(case, points, label) for case, _, points, label in long_curves()]
    return alt.concat(*panels, columns=_COLUMNS, spacing=14).properties(
        title=alt.Title(
            "Speedup over load, curve by curve",
            subtitle=[
                "dots: measured; line and shade: predicted with its 80 % interval; dashed: even",
                "x: concurrent requests (req/s where said); grade and role behind the name; "
                "vermilion: test; empty dots: not scored",
            ],
        )
    )


def _panel(case: CaseCheck, points: list[PointCheck], label: str) -> Any:
    colour = TEST if case.role == "test" else TUNE
    rows = [
        {"load": p.load, "measured": p.measured_speedup, "predicted": p.predicted_speedup,
         "low": p.speedup_low, "high": p.speedup_high}
        for p in points
    ]  # fmt: skip
    is_open = figures.cases()[case.case].points[points[0].index].request_rate is not None
    base = alt.Chart(_data(values=rows)).encode(
        x=alt.X(
            "load:Q",
            title=None,
            scale=alt.Scale(type="log", base=2),
            axis=alt.Axis(values=[r["load"] or 0.0 for r in rows], format="~g", grid=False,
                          labelOverlap=True, labelFontSize=9),
        )
    )  # fmt: skip
    y = alt.Y("low:Q", title=None, scale=alt.Scale(zero=False, nice=True),
              axis=alt.Axis(tickCount=4, labelFontSize=9))  # fmt: skip
    even = alt.Chart(_data(values=[{"y": 1}])).mark_rule(color=GREY, strokeDash=[4, 3])
    source, _, name = case.case.partition("/")
    return alt.layer(
        base.mark_area(color=colour, opacity=0.16).encode(y=y, y2="high:Q"),
        even.encode(y="y:Q"),
        base.mark_line(color=colour, strokeWidth=1.8).encode(y="predicted:Q"),
        base.mark_point(color=INK, filled=case.scored, size=26, opacity=1).encode(y="measured:Q"),
    ).properties(
        width=150,
        height=96,
        title=alt.Title(
            _short(source, 30),
            subtitle=_short(
                f"{name}{label}{', req/s' if is_open else ''} · {case.grade} {case.role}", 38
            ),
            fontSize=10,
            subtitleFontSize=9,
        ),
    )


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def coverage() -> Any:
    """Return how many measurements the 80 % band holds, by grade and role."""
    summary = figures.validation().summary
    rows = [
        {"cases": figures.GROUPS[name], "inside": value,
         "text": f"{value:.0f} % of {summary[name]['coverage_80']['n']:.0f}"}
        for name in ("A", "B", "C", "tune_AB", "test_AB")
        if (value := figures.coverage(summary[name])) is not None
    ]  # fmt: skip
    order = [str(row["cases"]) for row in rows]
    low, high = figures.COVERAGE
    wanted = alt.Chart(_data(values=[{"from": low, "to": high}])).mark_rect(
        color=GREY, opacity=0.25
    )
    base = alt.Chart(_data(values=rows)).encode(
        y=alt.Y("cases:N", sort=order, title=None),
        x=alt.X("inside:Q", title="measurements inside the 80 % interval, %",
                scale=alt.Scale(domain=[0, 100])),
    )  # fmt: skip
    return alt.layer(
        wanted.encode(x="from:Q", x2="to:Q"),
        base.mark_bar(color=TUNE, height=14),
        base.mark_text(align="left", dx=5, color=INK, fontSize=11).encode(text="text:N"),
    ).properties(
        width=430,
        height=150,
        title=alt.Title("Coverage of the interval", subtitle="grey: 70 to 90 %, as it should be"),
    )
