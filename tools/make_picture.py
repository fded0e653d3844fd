"""Draw docs/img/crossover.svg, the picture of the README, from the first example."""

from __future__ import annotations

from pathlib import Path

import altair as alt

from specsim import load_scenario, predict
from specsim.cli.words import two_digits

ROOT = Path(__file__).parents[1]
SCENARIO = ROOT / "examples" / "llama-3.3-70b-4xh100.yaml"
PICTURE = ROOT / "docs" / "img" / "crossover.svg"
BLUE, GREY, RED = "#2458a6", "#8a8f98", "#b3261e"


def chart() -> alt.LayerChart:
    """Return speedup over load with its interval, the line at 1 and the crossover."""
    prediction = predict(load_scenario(SCENARIO))
    points = [
        {"load": p.concurrency, "speedup": p.speedup, "low": p.speedup_low, "high": p.speedup_high}
        for p in prediction.points
        if p.speedup is not None
    ]
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("load:Q", title="concurrent requests",
                scale=alt.Scale(type="log", base=2),
                axis=alt.Axis(values=[p["load"] for p in points], grid=False, format="d")),
    )  # fmt: skip
    band = base.mark_area(opacity=0.18, color=BLUE, interpolate="monotone").encode(
        y=alt.Y("low:Q", title="speedup, speculation on / off", scale=alt.Scale(zero=False)),
        y2="high:Q",
    )
    line = base.mark_line(color=BLUE, interpolate="monotone", strokeWidth=2.5).encode(y="speedup:Q")
    dots = base.mark_point(color=BLUE, filled=True, size=55, opacity=1).encode(y="speedup:Q")
    even = alt.Chart(alt.Data(values=[{"y": 1}])).mark_rule(color=GREY, strokeDash=[5, 4])
    layers: list[alt.Chart] = [band, even.encode(y="y:Q"), line, dots]
    crossover = prediction.crossover
    if crossover is not None and crossover.load is not None:
        at = alt.Chart(alt.Data(values=[{
            "load": crossover.load, "y": 1,
            "text": f"stops paying near {two_digits(crossover.load)}",
        }])).encode(x="load:Q", y="y:Q")  # fmt: skip
        layers += [
            at.mark_point(shape="cross", angle=45, size=130, filled=True, color=RED, opacity=1),
            at.mark_text(align="left", dx=10, dy=-12, fontSize=13, color=RED).encode(text="text:N"),
        ]
    return (
        alt.layer(*layers)
        .properties(
            width=620,
            height=300,
            title=alt.Title(
                "Llama-3.3-70B on 4 H100 with an EAGLE head, k = 4",
                subtitle="512 tokens in, 256 out; shaded: 80 % interval",
                anchor="start",
            ),
        )
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=13, gridColor="#e7e9ec")
    )


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    chart().save(PICTURE)
