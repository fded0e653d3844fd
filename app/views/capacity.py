"""Capacity & cost: traffic and a promise to replicas, GPUs and dollars, off and on."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st
from show import beside, escaped, predicted
from state import BOUND, Asked, calibration, devices

from specsim.analysis.overlay import Overlay
from specsim.analysis.plan.candidates import listed_price
from specsim.analysis.plan.fleet import GPUS_PER_SERVER
from specsim.analysis.plan.plan import NUM_REQUESTS, plan
from specsim.analysis.plan.search import LoadTest
from specsim.analysis.prepare import SEED
from specsim.analysis.resolve import Deployment
from specsim.analysis.simulation.load_test import load_test
from specsim.catalog.hardware import load_hardware
from specsim.errors import SpecsimError
from specsim.export.tables import figure as digits
from specsim.export.workbook.subjects import Asked as AskedOfBook
from specsim.export.workbook.subjects import shown_of
from specsim.schema.base import parse
from specsim.schema.plan import Plan, PricePaid
from specsim.schema.prices import LEAST_USD, MOST_USD
from specsim.schema.scenario import LEAST_RATE, MOST_RATE, Scenario
from specsim.schema.slo import Slo
from specsim.schema.traffic import DAYS_PER_MONTH, PEAK_TO_AVG, Traffic
from views.fleet_answer import answer

PRESETS: dict[str, dict[str, float]] = {
    "interactive": {"ttft_p95": 500.0, "tpot_p99": 50.0},
    "chat": {"ttft_p99": 200.0, "tpot_p99": 50.0},
    "RAG": {"ttft_p99": 300.0, "tpot_p99": 100.0, "e2e_p99": 3000.0},
    "agent": {"e2e_p99": 5000.0},
    "code generation": {"ttft_p99": 500.0, "tpot_p99": 150.0},
    "code completion": {"e2e_p99": 2000.0},
    "internal": {"ttft_p99": 600.0, "tpot_p99": 200.0},
    "batch": {},
}
"""Bounds [ms] by the widget of each; the examples of guidellm's guide, for 99 % of requests each,
whose ITL is the mean gap of a request: TPOT here. Batch promises nothing but throughput."""
_OWN, _START = "own", "interactive"
_METRICS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}
_STATISTICS = ("p95", "p99", "each")
"""Of requests; `each` bounds every request, of which a share must keep it: goodput."""
_LOADS = {
    "average requests/s": ("avg_qps", 20.0, LEAST_RATE, MOST_RATE),
    "requests per month": ("requests_per_month", 50e6, 1.0, 1e15),
    "peak requests/s": ("peak_qps", 50.0, LEAST_RATE, MOST_RATE),
}
"""Ways of giving the load, as a link has them: key of the traffic, start, least and most."""
_AXES = {
    "k": "speculation.num_speculative_tokens",
    "gpu": "hardware.accelerator",
    "tp": "hardware.tensor_parallel_size",
}
_GIVEN = "given on this page"
_STOPPED, _TESTS = "capacity_stopped", "capacity_tests"
_MOST_TESTS = 200
"""Load tests that a session keeps."""


@dataclass(frozen=True)
class Setting:
    """What all sides are sized for."""

    traffic: Traffic
    slo: Slo
    prices: dict[str, PricePaid]
    gpus_per_server: int


@dataclass(frozen=True)
class Sized:
    """An answer, and what it was made for: texts by what each is of."""

    inputs: dict[str, str]
    plan: Plan | None
    error: str


def page(asked: Sequence[Asked]) -> None:
    """Draw the page."""
    setting, axes = _controls(asked)
    if setting is None:
        return
    ready = [a for a in asked if a.scenario is not None]
    with st.container(horizontal=True, vertical_alignment="center"):
        wanted = st.button("Size the fleet", type="primary", key="capacity_size",
                           disabled=not ready, icon=":material/dns:")  # fmt: skip
        st.caption(
            "Load tests of one replica in simulation: some seconds per candidate. What is tested "
            "is kept: another price, traffic or spare costs next to nothing."
        )
    if st.session_state.pop(_STOPPED, False):
        st.info("Stopped. What was tested is kept: sizing again goes on from there.")
    if wanted:
        _size(ready, setting, axes)
    beside(asked, lambda a: _side(a, setting, axes[a.side.prefix], wide=len(asked) == 1))


def _controls(asked: Sequence[Asked]) -> tuple[Setting | None, dict[str, dict[str, Any]]]:
    """Draw what is asked of all sides; None, and why in a sentence, where it is no traffic."""
    left, middle, right = st.columns([5, 6, 5], gap="small")
    try:
        with left, st.container(border=True):
            traffic, gpus_per_server = _traffic()
        with middle, st.container(border=True):
            slo = _slo()
        with right, st.container(border=True):
            st.markdown("**Candidates and prices**")
            axes = {a.side.prefix: _axes(a, several=len(asked) > 1) for a in asked}
            prices = _prices(asked, axes)
    except SpecsimError as problem:
        st.error(escaped(str(problem)))
        return None, {}
    return Setting(traffic, slo, prices, gpus_per_server), axes


def _number(name: str, label: str, low: float, high: float, start: float | None,
            **more: Any) -> Any:  # fmt: skip
    pattern = None if isinstance(low, int) else "%g"
    return st.number_input(label, low, high, start, key=f"capacity_{name}", format=pattern,
                           **BOUND, **more)  # fmt: skip


def _traffic() -> tuple[Traffic, int]:
    st.markdown("**Traffic**")
    words = st.selectbox("Load, given as", list(_LOADS), key="capacity_traffic", **BOUND)
    kind, start, low, high = _LOADS[words]
    data: dict[str, float] = {}
    fields: tuple[tuple[Any, ...], ...] = (
        (kind, "Requests/s" if "/s" in words else "A month", low, high, start, None, ""),
        ("peak_to_avg", "Peak factor", 1.0, 1e4, PEAK_TO_AVG, 0.5,
         "Peak / average: 2 to 3 if unknown."),
        ("hours_per_day", "Hours a day", 0.1, 24.0, 24.0, 1.0,
         "In which requests come; GPUs are paid for all 24."),
        ("growth_pct", "Growth, %", -99.0, 1e4, 0.0, 10.0, "Of the load, a year."),
        ("target_utilization", "Target use", 0.01, 1.0, 0.7, 0.05,
         "Share of the load at the SLO that a replica gets at the peak: 0.7 interactive, 0.85 "
         "internal, 0.95 batch."),
        ("spares", "Spares", 0, 1000, 1, 1, "Replicas beyond those that the peak needs: 1 is N+1."),
    )  # fmt: skip
    for row in zip(fields[::2], fields[1::2], strict=True):
        with st.container(horizontal=True, gap="xsmall"):
            for name, label, least, most, first, step, text in row:
                data[name] = _number(name, label, least, most, first, step=step, help=text or None,
                                     width=98)  # fmt: skip
    with st.expander("More"):
        data["days_per_month"] = _number("days_per_month", "Days per month", 0.1, DAYS_PER_MONTH,
                                         DAYS_PER_MONTH)  # fmt: skip
        data["growth_years"] = _number("growth_years", "Years of growth", 0.0, 20.0, 1.0)
        per_server = _number("gpus_per_server", "GPUs per server", 1, 10_000, GPUS_PER_SERVER)
    traffic = parse(Traffic, data, what="traffic")
    st.caption(escaped(
        f"{digits(traffic.avg_rate)} requests/s on average, {digits(traffic.peak_rate)} at the "
        f"peak, {digits(traffic.monthly_requests)} requests a month"
    ))  # fmt: skip
    return traffic, int(per_server)


def _slo() -> Slo:
    st.markdown("**Promise (SLO), in ms**")

    def taken() -> None:
        bounds = PRESETS.get(st.session_state["capacity_slo"])
        for metric in _METRICS if bounds is not None else ():
            for name in (f"{metric}_{statistic}" for statistic in _STATISTICS):
                st.session_state[f"capacity_{name}"] = (bounds or {}).get(name, 0.0)

    st.selectbox(
        "Promise like", [*PRESETS, _OWN], index=list(PRESETS).index(_START), key="capacity_slo",
        on_change=taken, help="guidellm's examples, kept for 99 % of requests; change any bound.",
        **BOUND,
    )  # fmt: skip
    bounds: dict[tuple[str, str], float] = {}
    for metric in _METRICS:
        with st.container(horizontal=True, gap="xsmall"):
            for statistic in _STATISTICS:
                name = f"{metric}_{statistic}"
                bounds[metric, statistic] = _number(
                    name, f"{_METRICS[metric]} {statistic}", 0.0, 1e12,
                    PRESETS[_START].get(name, 0.0), step=10.0, width=78,
                )  # fmt: skip
    goodput = {m: ms for (m, s), ms in bounds.items() if s == "each" and ms}
    data: dict[str, Any] = {
        "targets": [
            {"metric": m, "statistic": s, "at_most_ms": ms}
            for (m, s), ms in bounds.items()
            if s != "each" and ms
        ],
        "goodput_ms": goodput,
    }
    if goodput:
        data["attainment_pct"] = _number("attainment_pct", "Requests that must meet all, %",
                                         1.0, 100.0, 99.0)  # fmt: skip
    slo = parse(Slo, data, what="SLO")
    st.caption("TTFT includes queueing. *Each* bounds every request: goodput, as vLLM has it. "
               + ("No promise: a replica is loaded up to what it sustains." if slo.is_empty() else
                  "0 promises nothing."))  # fmt: skip
    return slo


def _axes(asked: Asked, *, several: bool) -> dict[str, Any]:
    """Return what is varied of a side: its own value and those that are tried beside it."""
    if asked.scenario is None:
        return {}
    scenario, said = asked.scenario, f"{asked.title}: " if several else ""
    speculates = scenario.speculation.method != "none"
    own = {
        "k": scenario.speculation.num_speculative_tokens,
        "gpu": scenario.hardware.accelerator,
        "tp": scenario.hardware.tensor_parallel_size,
    }
    offered = {"k": range(1, 11) if speculates else (), "gpu": devices(), "tp": (1, 2, 4, 8, 16)}
    labels = {"k": "Also draft tokens, k", "gpu": "Also GPUs", "tp": "Also TP"}
    axes = {}
    for name, key in _AXES.items():
        if not offered[name]:
            continue
        chosen = st.multiselect(
            said + labels[name], list(offered[name]), key=asked.side.key(f"capacity_{name}"),
            placeholder=f"beside {own[name]}", **BOUND,
        )  # fmt: skip
        if chosen:
            axes[key] = tuple(dict.fromkeys(v for v in (own[name], *chosen) if v is not None))
    return axes


def _prices(asked: Sequence[Asked], axes: dict[str, dict[str, Any]]) -> dict[str, PricePaid]:
    """Return the prices that differ from those of the catalog."""
    used: dict[str, None] = {}
    for a in asked:
        if a.scenario is not None:
            own = (a.scenario.hardware.accelerator,)
            used |= dict.fromkeys(axes[a.side.prefix].get(_AXES["gpu"], own))
    found = {}
    for device in used:
        profile = load_hardware(device)
        name = profile.identity.id
        known = listed_price(profile)
        listed = None if known is None else known.usd_per_gpu_hour
        usd = _number(f"usd_{name}", f"{escaped(name)}, $ per GPU and hour", LEAST_USD, MOST_USD,
                      listed, step=0.1, placeholder="no price known")  # fmt: skip
        if usd is not None and usd != listed:
            found[name] = PricePaid(usd, None, _GIVEN)
            st.caption(_GIVEN + ("" if listed is None else f"; the catalog has \\${listed:g}"))
        elif known is not None:
            date = "undated" if known.as_of is None else f"as of {known.as_of}"
            st.caption(f"{date} · {escaped(known.source)}")
        else:
            st.caption("no price: candidates are ranked by GPUs")
    return found


def _inputs(asked: Asked, setting: Setting, axes: dict[str, Any]) -> dict[str, str]:
    """Return what an answer depends on: its load is that of the traffic."""
    assert asked.scenario is not None
    fitted = calibration()
    return {
        "scenario": asked.scenario.model_dump_json(exclude={"load", "name"}),
        "traffic": setting.traffic.model_dump_json(),
        "SLO": setting.slo.model_dump_json(),
        "prices": repr(sorted(setting.prices.items())),
        "servers": str(setting.gpus_per_server),
        "candidates": repr(axes),
        "calibration": "" if fitted is None else fitted.model_dump_json(),
    }


@dataclass(frozen=True)
class _Watched:
    """A load test that tells of each simulation, which is where a stop takes hold."""

    test: LoadTest
    told: Callable[[], None]

    def stable_rate(self, arm: Any) -> float:
        return self.test.stable_rate(arm)

    def at_rate(self, arm: Any, request_rate: float) -> Any:
        self.told()
        return self.test.at_rate(arm, request_rate)


def _tested(
    deployment: Deployment, laid: Overlay, slo: Slo, *, told: Callable[[], None], fitted: str
) -> LoadTest:
    """Return the load test of a deployment, with what this session has simulated of it before."""
    known = st.session_state.setdefault(_TESTS, {})
    key = (deployment.scenario.model_dump_json(exclude={"load", "name"}), repr(slo), fitted)
    if key not in known:
        if len(known) >= _MOST_TESTS:
            known.clear()
        known[key] = load_test(deployment, laid, slo, num_requests=NUM_REQUESTS, seed=SEED)
    return _Watched(known[key], told)


def _size(asked: Sequence[Asked], setting: Setting, axes: dict[str, dict[str, Any]]) -> None:
    """Size the fleet of each side, watched, and keep what is found."""
    place = st.empty()
    with place.container(border=True):
        bar = st.progress(0.0, "Load tests")
        st.button("Stop", key="capacity_stop", icon=":material/stop_circle:",
                  on_click=lambda: st.session_state.update({_STOPPED: True}))  # fmt: skip
        for a in asked:
            _size_one(a, setting, axes[a.side.prefix], bar, f"{a.title}: " * (len(asked) > 1))
    place.empty()


def _size_one(
    asked: Asked, setting: Setting, axes: dict[str, Any], bar: Any, title: str
) -> None:  # fmt: skip
    assert asked.scenario is not None, "the button is not offered without one"
    state: dict[str, Any] = {"share": 0.0, "said": "first candidate", "n": 0}

    def told() -> None:
        state["n"] += 1
        bar.progress(state["share"], f"{title}{state['said']} · {state['n']} load tests")

    def progress(done: int, total: int, name: str) -> None:
        state.update(share=done / total, said=f"{done} of {total} candidates · {escaped(name)}")
        bar.progress(state["share"], f"{title}{state['said']} · {state['n']} load tests")

    inputs = _inputs(asked, setting, axes)
    found: Plan | None = None
    error = ""
    try:
        found = plan(
            asked.scenario, setting.traffic, setting.slo, axes=axes, prices=setting.prices,
            gpus_per_server=setting.gpus_per_server, num_requests=NUM_REQUESTS, progress=progress,
            calibration=calibration(),
            factory=functools.partial(_tested, told=told, fitted=inputs["calibration"]),
        )  # fmt: skip
    except SpecsimError as problem:
        error = str(problem)
    st.session_state[asked.side.key("capacity_sized")] = Sized(inputs, found, error)


def _side(asked: Asked, setting: Setting, axes: dict[str, Any], *, wide: bool) -> None:
    if asked.scenario is None:
        st.error(escaped(asked.error))
        return
    sized: Sized | None = st.session_state.get(asked.side.key("capacity_sized"))
    if sized is None:
        st.info("Not sized yet: press “Size the fleet”.")
        _workbook(asked, setting, None)
        return
    now = _inputs(asked, setting, axes)
    changed = [name for name, text in now.items() if sized.inputs.get(name) != text]
    if changed:
        st.warning(f"Changed since this was sized: {', '.join(changed)}. Size the fleet again.")
    if sized.plan is None:
        st.error(escaped(sized.error))
    else:
        answer(asked, sized.plan, wide=wide)
    _workbook(asked, setting, None if changed else sized.plan)


def workbook(scenarios: Sequence[Scenario], asked: AskedOfBook) -> bytes:
    """Return the workbook of scenarios as a file."""
    from specsim.export.workbook.book import book  # only where it is asked for

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.xlsx"
        book(scenarios, asked).save(path)
        return path.read_bytes()


def _workbook(asked: Asked, setting: Setting, found: Plan | None) -> None:
    """Offer the workbook: of the plan's deployments, or before there is one of the scenario.

    What is worked out at a click has nowhere to say that it cannot be: that is seen to before.
    """
    assert asked.scenario is not None
    if found is None:
        shown = [] if predicted(asked) is None else [asked.scenario]
    else:
        shown = shown_of(found, asked.scenario.load)
    if not shown:
        return
    of_book = AskedOfBook(
        traffic=setting.traffic, slo=setting.slo, prices=setting.prices,
        gpus_per_server=setting.gpus_per_server, calibration=calibration(),
    )  # fmt: skip
    st.download_button(
        "Workbook (.xlsx)", functools.partial(workbook, shown, of_book), "fleet.xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        key=asked.side.key("capacity_workbook"), on_click="ignore", icon=":material/download:",
        help="With live formulas, this page's traffic, SLO and prices. It is worked out when you "
        "click: about 10 s for each of its deployments.",
    )  # fmt: skip
