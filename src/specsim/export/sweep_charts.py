"""The curves of a sweep as SVG, through Altair."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

from specsim.export.charts import COLOURS, altair, stroke_legend, write_svg
from specsim.schema.sweep import SweepSummary

_WIDTH, _HEIGHT = 460, 260
_TITLES = {"concurrency": "concurrent requests", "request_rate": "requests per second"}


def write_charts(summary: SweepSummary, folder: Path) -> list[Path]:
    """Write `throughput.svg`, `speedup.svg`, `tpot.svg` and `ttft.svg`; return those written.

    Raises
    ------
    MissingExtraError
        Altair or its renderer is not installed.
    """
    alt = altair()
    charts: dict[str, Any] = {
        "throughput": _curves(alt, summary, "output tokens/s", {"": "output_tok_s"}),
        "tpot": _curves(alt, summary, "time per output token [ms]",
                        {" p50": "tpot_p50_ms", " p99": "tpot_p99_ms"}),
        "ttft": _curves(alt, summary, "time to first token [ms]",
                        {" p50": "ttft_p50_ms", " p99": "ttft_p99_ms"}),
        "speedup": _speedup(alt, summary),
    }  # fmt: skip
    return [
        write_svg(chart, folder / f"{name}.svg")
        for name, chart in charts.items()
        if chart is not None
    ]


def _curves(alt: Any, summary: SweepSummary, title: str, fields: dict[str, str]) -> Any | None:
    """Draw a quantity of all arms over load; its percentiles by dash."""
    values = [
        {"load": point.load, "value": value, "server": curve.label, "of": suffix.strip()}
        for curve in summary.curves
        for point in curve.points
        for suffix, name in fields.items()
        if (value := getattr(point, name)) is not None
    ]
    if not values:
        return None
    base = alt.Chart(alt.Data(values=values), width=_WIDTH, height=_HEIGHT).encode(
        x=_load_axis(alt, summary), y=alt.Y("value:Q", title=title), color=_colour(alt, summary)
    )
    line = base.mark_line()
    if len(fields) > 1:
        legend = stroke_legend(alt, symbolStrokeColor="#444444")
        line = line.encode(strokeDash=alt.StrokeDash("of:N", title=None, legend=legend))
    # Dots of their own: in one mark with the dashed line they would hide its legend.
    dots = base.mark_point(filled=True, opacity=1).encode(detail="of:N")
    return alt.layer(line, dots)


def _speedup(alt: Any, summary: SweepSummary) -> Any | None:
    values = [
        {"load": p.load, "speedup": p.speedup, "low": p.low if p.low is not None else p.speedup,
         "high": p.high if p.high is not None else p.speedup, "server": each.label}
        for each in summary.comparisons for p in each.points
    ]  # fmt: skip
    if not values:
        return None
    colour = _colour(alt, summary, drawn={each.label for each in summary.comparisons})
    base = alt.Chart(alt.Data(values=values), width=_WIDTH, height=_HEIGHT).encode(
        x=_load_axis(alt, summary), color=colour
    )
    scale = alt.Scale(zero=False)
    line = base.mark_line(point=True).encode(
        y=alt.Y("speedup:Q", title="measured speedup, on / off", scale=scale)
    )
    bars = base.mark_rule().encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    one = alt.Chart(alt.Data(values=[{"one": 1}])).mark_rule(strokeDash=[4, 4]).encode(y="one:Q")
    return alt.layer(one, bars, line)


def _load_axis(alt: Any, summary: SweepSummary) -> Any:
    loads = sorted({point.load for curve in summary.curves for point in curve.points})
    return alt.X(
        "load:Q",
        title=_TITLES[summary.load_kind],
        scale=alt.Scale(type="log", base=2),
        axis=alt.Axis(values=loads, grid=False, format="~g"),
    )


def _colour(alt: Any, summary: SweepSummary, drawn: Container[str] | None = None) -> Any:
    """Return the colours of servers, the same in every chart; `drawn`: those in this one."""
    # Off is grey in every chart, whether it is in it or not.
    own = COLOURS if summary.curves[0].arm == "off" else COLOURS[1:]
    labels = [curve.label for curve in summary.curves]
    shown = [(n, c) for n, c in zip(labels, own, strict=False) if drawn is None or n in drawn]
    scale = alt.Scale(domain=[n for n, _ in shown], range=[c for _, c in shown])
    return alt.Color("server:N", title=None, scale=scale, legend=stroke_legend(alt))
