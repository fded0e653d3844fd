"""What the page Capacity asks for: traffic, a promise, candidates beside the own, prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st
from show import escaped
from state import Asked, bound, devices

from specsim.analysis.plan.candidates import listed_price
from specsim.analysis.plan.fleet import GPUS_PER_SERVER
from specsim.catalog.hardware import load_hardware
from specsim.errors import SpecsimError
from specsim.export.tables import exact
from specsim.export.tables import figure as digits
from specsim.schema.base import parse
from specsim.schema.plan import Plan, PricePaid
from specsim.schema.prices import LEAST_USD, MOST_USD
from specsim.schema.scenario import LEAST_RATE, MOST_RATE
from specsim.schema.slo import Slo
from specsim.schema.traffic import DAYS_PER_MONTH, PEAK_TO_AVG, Traffic

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
_TARGET_UTILIZATION, _SPARES = 0.7, 1
"""What the page starts from, beside the schema's."""
_GIVEN = "given on this page"


@dataclass(frozen=True)
class Setting:
    """What all sides are sized for."""

    traffic: Traffic
    slo: Slo
    prices: dict[str, PricePaid]
    gpus_per_server: int


def controls(asked: Sequence[Asked]) -> tuple[Setting | None, dict[str, dict[str, Any]]]:
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


def assumptions(found: Plan) -> list[str]:
    """Return what a plan was made for that is as the page starts, and may be nobody's."""
    traffic, slo = found.traffic, Slo.model_validate(found.slo)
    said = [
        f"{exact(start)} {words}" for words, (key, start, *_) in _LOADS.items()
        if traffic.get(key) == start
    ]  # fmt: skip
    if traffic.get("peak_to_avg") == PEAK_TO_AVG:
        said.append(f"peak {PEAK_TO_AVG:g} × the average")
    if traffic["target_utilization"] == _TARGET_UTILIZATION:
        said.append(f"target use {_TARGET_UTILIZATION:.0%}")
    if traffic["spares"] == _SPARES:
        said.append("1 spare (N+1)")
    promised = {f"{t.metric}_{t.statistic}": t.at_most_ms for t in slo.targets}
    if promised == PRESETS[_START] and not slo.goodput_ms:
        said.append(f"the promise of “{_START}”")
    return said


def _number(name: str, label: str, low: float, high: float, start: float | None,
            **more: Any) -> Any:  # fmt: skip
    pattern = None if isinstance(low, int) else "%g"
    return st.number_input(label, low, high, start, format=pattern,
                           **bound(f"capacity_{name}"), **more)  # fmt: skip


def _traffic() -> tuple[Traffic, int]:
    st.markdown("**Traffic**")
    words = st.selectbox("Load, given as", list(_LOADS), **bound("capacity_traffic"))
    kind, start, low, high = _LOADS[words]
    data: dict[str, float] = {}
    fields: tuple[tuple[Any, ...], ...] = (
        (kind, "Requests/s" if "/s" in words else "Req./month", low, high, start, None, ""),
        ("peak_to_avg", "Peak factor", 1.0, 1e4, PEAK_TO_AVG, 0.5,
         "Peak / average: 2 to 3 if unknown."),
        ("hours_per_day", "Hours a day", 0.1, 24.0, 24.0, 1.0,
         "In which requests come; GPUs are paid for all 24."),
        ("growth_pct", "Growth, %", -99.0, 1e4, 0.0, 10.0, "Of the load, a year."),
        ("target_utilization", "Target use", 0.01, 1.0, _TARGET_UTILIZATION, 0.05,
         "Share of the load at the SLO that a replica gets at the peak: 0.7 interactive, 0.85 "
         "internal, 0.95 batch."),
        ("spares", "Spares", 0, 1000, _SPARES, 1,
         "Replicas beyond those that the peak needs: 1 is N+1."),
    )  # fmt: skip
    for row in zip(fields[::2], fields[1::2], strict=True):
        with st.container(horizontal=True, gap="xsmall"):
            for name, label, least, most, first, step, text in row:
                data[name] = _number(name, label, least, most, first, step=step, help=text or None,
                                     width=94)  # fmt: skip
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
        "Promise like", [*PRESETS, _OWN], index=list(PRESETS).index(_START),
        on_change=taken, help="guidellm's examples, kept for 99 % of requests; change any bound.",
        **bound("capacity_slo"),
    )  # fmt: skip
    bounds: dict[tuple[str, str], float] = {}
    for metric in _METRICS:
        with st.container(horizontal=True, gap="xsmall"):
            for statistic in _STATISTICS:
                name = f"{metric}_{statistic}"
                bounds[metric, statistic] = _number(
                    name, f"{_METRICS[metric]} {statistic}", 0.0, 1e12,
                    PRESETS[_START].get(name, 0.0), step=10.0, width=76,
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
            said + labels[name], list(offered[name]),
            placeholder=f"beside {own[name]}", **bound(asked.side.key(f"capacity_{name}")),
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
                      listed, step=0.1, placeholder="no price known",
                      help=None if known is None else escaped(known.source))  # fmt: skip
        if usd is not None and usd != listed:
            found[name] = PricePaid(usd, None, _GIVEN)
            st.caption(_GIVEN + ("" if listed is None else f"; the catalog has \\${listed:g}"))
        elif known is not None:
            st.caption("undated" if known.as_of is None else f"as of {known.as_of}")
        else:
            st.caption("no price: candidates are ranked by GPUs")
    return found
