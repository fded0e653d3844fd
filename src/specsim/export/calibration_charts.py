"""Predicted against measured, as SVG, through Altair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specsim.export.charts import COLOURS, altair, stroke_legend, write_svg
from specsim.schema.calibration import CalibrationReport, FitRow

_SIZE = 420


def write_charts(report: CalibrationReport, folder: Path) -> list[Path]:
    """Write `tpot_fit.svg` and `throughput_fit.svg`; return those written.

    Raises
    ------
    MissingExtraError
        Altair or its renderer is not installed.
    InputError
        The folder cannot be written to.
    """
    alt = altair()
    written = []
    for name, title, fields in (
        ("tpot_fit", "time per output token [ms]",
         ("tpot_ms", "fit_tpot_ms", "fit_tpot_low_ms", "fit_tpot_high_ms")),
        ("throughput_fit", "output tokens/s",
         ("output_tok_s", "fit_output_tok_s", "fit_output_tok_s_low", "fit_output_tok_s_high")),
    ):  # fmt: skip
        values = [v for row in report.rows if (v := _value(row, fields)) is not None]
        if not values:
            continue
        written.append(write_svg(_chart(alt, values, title), folder / f"{name}.svg"))
    return written


def _value(row: FitRow, fields: tuple[str, str, str, str]) -> dict[str, Any] | None:
    measured, fitted, low, high = (getattr(row, name) for name in fields)
    if measured is None or fitted is None:
        return None
    k = row.num_speculative_tokens
    return {
        "load": row.load,
        "measured": measured,
        "fitted": fitted,
        "low": low,
        "high": high,
        "run": f"on, k = {k}" if k else "off",
    }


def _chart(alt: Any, values: list[dict[str, Any]], title: str) -> Any:
    """Draw curves over load: lines and bands are fitted, dots are measured."""
    runs = sorted({v["run"] for v in values}, key=lambda run: (run != "off", run))
    colour = alt.Color(
        "run:N",
        title=None,
        scale=alt.Scale(domain=runs, range=list(COLOURS[: len(runs)])),
        legend=stroke_legend(alt),
    )
    loads = sorted({v["load"] for v in values})
    x = alt.X(
        "load:Q",
        title="load",
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=loads, format="~g", grid=False),
    )
    base = alt.Chart(alt.Data(values=values), width=_SIZE, height=_SIZE * 0.7).encode(
        x=x, color=colour
    )
    scale = alt.Scale(zero=False)
    band = base.mark_area(opacity=0.15, clip=True).encode(
        y=alt.Y("mean(low):Q", title=title, scale=scale), y2="mean(high):Q"
    )
    line = base.mark_line(strokeWidth=2).encode(y="mean(fitted):Q")
    dots = base.mark_point(filled=True, size=55, opacity=0.9).encode(y="measured:Q")
    heading = alt.Title(
        "Fitted and measured", subtitle="lines and 80 % bands fitted, dots measured", anchor="start"
    )
    return alt.layer(band, line, dots).properties(title=heading).configure_view(stroke=None)
