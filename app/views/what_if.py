"""What-if: does it pay here, up to which load, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import streamlit as st
from commands import portable, predict_command
from show import beside, escaped, figure, predicted
from state import Asked, bound, calibration

from specsim.catalog.scenario import dump_scenario
from specsim.catalog.serve_command import format_serve_command
from specsim.errors import SpecsimError
from specsim.export.figures.curves import curve, rows_by_load, speedup, step, step_rows
from specsim.export.tables import count
from specsim.schema.results import NEUTRAL_HIGH, NEUTRAL_LOW, Point, Prediction
from specsim.schema.scenario import Scenario

_DECISIONS = {
    "on": ("Leave it on", "green"),
    "off": ("Turn it off", "red"),
    "schedule": ("Schedule it by load", "orange"),
    "neutral": ("It makes little difference", "gray"),
}
_CURVES = {
    "Throughput": "output_tok_s",
    "TPOT": "tpot_ms",
    "Speedup": "speedup",
    "TTFT": "ttft_ms",
}
_BADGES = {"measured": "green", "fitted": "blue", "calibrated": "violet", "assumed": "orange"}


def page(asked: Sequence[Asked]) -> None:
    """Draw the page."""
    beside(asked, _side)


def _side(asked: Asked) -> None:
    prediction = predicted(asked)
    if prediction is None or asked.scenario is None:
        return
    _verdict(asked, prediction)
    _curves(asked, prediction)
    _time(asked, prediction)
    _assumptions(prediction)
    _commands(asked, prediction)


def at_load(asked: Asked, prediction: Prediction) -> Point:
    """Return the point at the load that is asked about."""
    return next(
        p for p in prediction.points if asked.load in (p.concurrency, p.request_rate)
    )  # fmt: skip


def _verdict(asked: Asked, prediction: Prediction) -> None:
    words, colour = _DECISIONS[prediction.verdict.decision]
    point = at_load(asked, prediction)
    with st.container(border=True):
        here = ""
        if prediction.verdict.decision == "schedule" and point.speedup is not None:
            way = "on" if point.speedup > NEUTRAL_HIGH else "off"
            way = "no matter" if NEUTRAL_LOW <= point.speedup <= NEUTRAL_HIGH else way
            here = f": {way} at your {count(asked.load)}"
        st.subheader(f":{colour}[{words}]{here}", anchor=False)
        st.write(
            escaped(prediction.verdict.reason[0].upper() + prediction.verdict.reason[1:] + ".")
        )
        with st.container(horizontal=True, gap="medium"):
            for metric in _metrics(asked, prediction, point):
                st.metric(metric.label, metric.value, metric.under or None, help=metric.help,
                          delta_color="off", delta_arrow="off", width="content")  # fmt: skip
        st.caption(escaped(_besides(prediction, asked.load)))
    if prediction.warnings:
        with st.expander(f"To know before trusting this ({len(prediction.warnings)})"):
            st.markdown("\n".join(f"- {escaped(text)}" for text in prediction.warnings))


def _besides(prediction: Prediction, load: float) -> str:
    """Say what it would take to break even, the best k, and what the dollars rest on."""
    said = []
    even = next((row for row in prediction.break_even if row.load == load), None)
    if even is not None and even.acceptance_length is None:
        said.append("Even full acceptance would not pay at this load.")
    elif even is not None:
        said.append(
            f"Breaks even at {even.acceptance_length:.2f} tokens per step "
            f"({even.draft_acceptance_rate:.0%} of the drafts accepted)."
        )
    best = next((row for row in prediction.best_k if row.load == load), None)
    if best is not None:
        said.append(
            f"Best here: k = {best.k}, {best.speedup:.2f}×." if best.k else "Best here: off."
        )
    price = prediction.provenance["price"]
    if price is not None:
        said.append(
            f"Dollars: ${price['usd_per_gpu_hour']:.2f} per GPU and hour ({price['as_of']}), all "
            "charged to output tokens."
        )
    return " ".join(said)


class _Metric(NamedTuple):
    label: str
    value: str
    under: str
    help: str


def _metrics(asked: Asked, prediction: Prediction, point: Point) -> list[_Metric]:
    at = count(asked.load)
    cells = [
        _Metric(
            f"Speedup at {at}",
            "–" if point.speedup is None else f"{point.speedup:.2f}×",
            ""
            if point.speedup_low is None or point.speedup_high is None
            else f"{point.speedup_low:.2f} to {point.speedup_high:.2f}",
            f"Tokens per second on / off, with its 80 % interval. {point.note}".strip(),
        )
    ]
    if prediction.crossover is not None:
        c = prediction.crossover
        low, high = (count(v) if v is not None else "beyond" for v in (c.low, c.high))
        unit = "requests/s" if point.request_rate is not None else "in flight"
        cells.append(
            _Metric(
                f"Turns at, {unit}",
                c.state if c.load is None else count(c.load),
                "" if c.low is None and c.high is None else f"{low} to {high}",
                "The load at which speculation stops paying, with its 80 % interval.",
            )
        )
    kv = prediction.kv
    cells.append(
        _Metric(
            "KV cache lost",
            f"{kv.lost_fraction:.1%}",
            f"{count(kv.lost_tokens)} tokens",
            "What the drafter's weights and cache leave less room for.",
        )
    )
    for arm, service in (("off", point.baseline), ("on", point.speculative)):
        usd = None if service is None else service.usd_per_mtok
        cells.append(
            _Metric(
                f"$/Mtok {arm}",
                "–" if usd is None else f"${usd:.2f}",
                f"at {at}",
                "Dollars per million output tokens at this load.",
            )
        )
    return cells


def _curves(asked: Asked, prediction: Prediction) -> None:
    rows = rows_by_load(prediction)
    key = asked.side.key

    def picked(chart: str) -> None:
        """Take the load of a point that was clicked."""
        event = st.session_state.get(key(chart))
        points = [] if event is None else event.get("selection", {}).get("picked", [])
        if points and "load" in points[0]:
            load = points[0]["load"]
            name = "load" if prediction.points[0].request_rate is None else "request_rate"
            asked.side.put({name: int(load) if name == "load" else float(load)})

    # One chart at a time: those that nobody looks at cost as much.
    title = st.segmented_control(
        "Curve", list(_CURVES), default="Throughput", required=True,
        label_visibility="collapsed", **bound(key("curve")),
    )  # fmt: skip
    metric = _CURVES[title]
    if metric == "speedup" and prediction.crossover is None:
        st.info("Speculation is off: choose a method to compare.")
        return
    chart = (
        speedup(prediction, load=asked.load)
        if metric == "speedup"
        else curve(prediction, metric, load=asked.load)
    )
    figure(chart, rows, key=key(metric), alt=f"{title} over load, off and on",
           on_select=lambda: picked(metric))  # fmt: skip
    st.caption("Shaded: 80 % interval. Click a point to make it your load.")


def _time(asked: Asked, prediction: Prediction) -> None:
    st.subheader("Where a step's time goes", anchor=False)
    names = {"Off, by cause": "off"}
    if prediction.crossover is not None:
        names |= {"On, by cause": "on", "On, by phase": "phases"}
    title = st.segmented_control(
        "Step", list(names), default="Off, by cause", required=True,
        label_visibility="collapsed", **bound(asked.side.key("step")),
    )  # fmt: skip
    arm = names[title]
    rows = [r for r in step_rows(prediction) if r["arm"] == arm]
    figure(step(prediction, arm), rows, key=asked.side.key(f"step_{arm}"),
           alt=f"time of a step: {title}")  # fmt: skip


def _assumptions(prediction: Prediction) -> None:
    with st.expander("Assumptions used"):
        for name, block in prediction.provenance["constants"].items():
            if block["used"]:
                colour = _BADGES.get(block["basis"], "gray")
                st.markdown(f":{colour}-badge[{block['basis']}] {escaped(name)}: "
                            f"{escaped(block['source'])}")  # fmt: skip
        engine = prediction.provenance["engine"]
        st.markdown(f":{_BADGES.get(engine['basis'], 'gray')}-badge[{engine['basis']}] host times "
                    f"of {escaped(engine['name'])} {escaped(engine['version'])}")  # fmt: skip
        for text in prediction.defaults:
            st.markdown(f":gray-badge[default] {escaped(text)}")


def _commands(asked: Asked, prediction: Prediction) -> None:
    scenario = portable(asked)
    st.subheader("Take it with you", anchor=False)
    try:
        st.code(format_serve_command(_named(scenario, prediction)), language="bash",
                wrap_lines=True)  # fmt: skip
    except SpecsimError as problem:
        st.caption(escaped(str(problem)))
    calibrated = calibration() is not None
    st.code(predict_command(scenario, calibrated=calibrated), language="bash", wrap_lines=True)
    if calibrated:
        st.caption("The page Calibrate has this calibration as a file: download it beside.")
    st.code("specsim measure plan scenario.yaml --out sweep/", language="bash", wrap_lines=True)
    st.caption("Measure it: this writes the two-server sweep that verifies these numbers.")
    st.download_button("scenario.yaml", dump_scenario(scenario), "scenario.yaml",
                       "application/yaml", key=asked.side.key("scenario_file"), on_click="ignore",
                       icon=":material/download:")  # fmt: skip


def _named(scenario: Scenario, prediction: Prediction) -> Scenario:
    """Return the scenario with the drafter that was chosen for it, as a command needs it."""
    drafter = prediction.scenario["speculation"].get("drafter")
    speculation = scenario.speculation.model_copy(update={"drafter": drafter})
    return scenario.model_copy(update={"speculation": speculation})
