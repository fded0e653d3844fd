"""The answer of the page Capacity: what to take, what it costs, what binds, what was rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st
from show import escaped, figure
from state import Asked, bound

from specsim.export.figures import fleet, fleet_words
from specsim.export.tables import figure as digits
from specsim.schema.plan import Candidate, Plan
from specsim.schema.slo import Slo
from views.fleet_inputs import assumptions

_PICTURES: dict[str, tuple[Callable[[Plan], Any], Callable[[Plan], Any]]] = {
    "Cost": (fleet.cost, fleet.pairs),
    "Load at the SLO": (fleet.load, fleet.pairs),
    "Utilisation": (fleet.utilization, fleet.used),
}


def answer(asked: Asked, found: Plan, *, wide: bool) -> None:
    """Draw a plan; `wide`: it has the whole page."""
    _made_for(found)
    _verdict(found)
    left, right = st.columns([6, 5], gap="small") if wide else (st.container(), st.container())
    with left:
        _pictures(asked, found)
        _reached(found)
    with right:
        st.dataframe(fleet.off_on(found), hide_index=True, height="content", column_config={
            "quantity": st.column_config.TextColumn("off and on", width=170),
            "off": st.column_config.TextColumn(width=90),
            "on": st.column_config.TextColumn(width=90),
        })  # fmt: skip
    _ranking(found)
    _basis(found)


def _made_for(found: Plan) -> None:
    traffic, slo = found.traffic, Slo.model_validate(found.slo)
    said = [f"{fleet.target_words(t.name)} ≤ {t.at_most_ms:g} ms" for t in slo.targets]
    if slo.required_attainment_pct is not None:
        each = slo.request_thresholds_ms.items()
        bounds = ", ".join(f"{metric.upper()} ≤ {ms:g} ms" for metric, ms in each)
        said.append(f"{slo.required_attainment_pct:g} % of requests with {bounds}")
    rates = f"{digits(traffic['avg_rate'])} requests/s, {digits(traffic['peak_rate'])} at the peak"
    st.caption(escaped(f"Sized for {rates} · {' · '.join(said) or 'no promise'}"))


def _verdict(found: Plan) -> None:
    best = None if found.best is None else found.candidates[found.best.candidate]
    with st.container(border=True):
        if best is None:
            st.subheader(":red[No candidate meets the SLO]", anchor=False)
        else:
            arm = "off" if best.arm == "baseline" else "on"
            colour = "gray" if arm == "off" else "blue"
            st.subheader(f":{colour}[Speculation {arm}: {best.gpus:,} GPUs]", anchor=False)
        st.write(escaped(found.verdict[0].upper() + found.verdict[1:] + "."))
        if best is None:
            return
        words, colour = fleet.one_down(best)
        st.markdown(f":{colour}-badge[one replica down: {words}] {escaped(best.one_down or '')}")
        binding = escaped(fleet.target_words(best.binding))
        st.markdown(f":blue-badge[bound by {binding}] a replica holds "
                    f"{digits(best.load_at_slo)} requests/s at the SLO")  # fmt: skip
        with st.container(horizontal=True, gap="medium"):
            for label, value, text in _metrics(best):
                st.metric(label, value, help=text, width="content")
        _how(found, best)


def _how(found: Plan, best: Candidate) -> None:
    """Say how the numbers above came about: what was rounded, assumed, and left to compare."""
    for arm, c in zip(("off", "on"), fleet.arms(found), strict=True):
        said = "" if c is None else fleet_words.rounding(found, c)
        if said and (c is best or "Nearly" in said):
            st.markdown(f":gray-badge[replicas, {arm}] {escaped(said)}")
    tried = fleet_words.fewer_drafts(found)
    if tried is not None:
        k, fewer = tried
        st.markdown(f":orange-badge[k = {k} only] compared with off, and it loses. Fewer drafts "
                    "cost less at high load: add "
                    f"{', '.join(map(str, fewer))} under “Also draft tokens, k”.")  # fmt: skip
    assumed = assumptions(found)
    if assumed:
        st.markdown(f":orange-badge[assumed] {escaped(' · '.join(assumed))}. They are what this "
                    "page starts with: set your own above.")  # fmt: skip
    if best.usd_per_mtok_average is not None:
        st.caption(escaped(fleet_words.dollars(found)))


def _metrics(best: Candidate) -> list[tuple[str, str, str]]:
    def usd(value: float | None, pattern: str) -> str:
        return "–" if value is None else f"${value:{pattern}}"

    return [
        ("$/month", usd(best.usd_per_month, ",.0f"), "30.4 days of 24 hours, idle hours included."),
        ("$/Mtok, month", usd(best.usd_per_mtok_average, ".2f"),
         "Per million output tokens at the load of the month: idle hours are paid too."),
        ("$/Mtok, peak", usd(best.usd_per_mtok_peak, ".2f"), "The same at the peak."),
        ("Replicas", f"{best.replicas:,}", f"{best.replicas_base} for the peak, and spares."),
        ("GPUs", f"{best.gpus:,}", f"{best.gpus_per_replica} a replica."),
        ("Servers", f"{best.servers:,}", "A replica that fits into a server is not split."),
    ]  # fmt: skip


def _pictures(asked: Asked, found: Plan) -> None:
    if not fleet.accepted(found):
        return
    name = st.segmented_control(
        "Picture", list(_PICTURES), default="Cost", required=True, label_visibility="collapsed",
        **bound(asked.side.key("capacity_picture")),
    )  # fmt: skip
    draw, rows = _PICTURES[name]
    key = asked.side.key(f"capacity_{name.split()[0].lower()}")
    figure(draw(found), rows(found), key=key, alt=f"{name} of each candidate, off and on")
    if len(fleet.accepted(found)) > fleet.MOST_DRAWN:
        st.caption(f"The best {fleet.MOST_DRAWN}; all are in the ranking.")


def _reached(found: Plan) -> None:
    first = found.candidates[0]
    if not first.reached:
        return
    st.caption(f"The promise, at the most that a replica holds: {escaped(first.name)}")
    st.dataframe(fleet.reached(first), hide_index=True, column_config={
        "reached": st.column_config.NumberColumn(format="%.3g"),
        "limit": st.column_config.NumberColumn(format="%g"),
        "used": st.column_config.NumberColumn(format="percent"),
    })  # fmt: skip


def _ranking(found: Plan) -> None:
    rows = fleet.ranking(found)
    if rows:
        st.subheader("Candidates, the cheapest first", anchor=False)
        st.dataframe(rows, hide_index=True, column_config={
            "rank": st.column_config.NumberColumn("#", width="small"),
            "gpus": "GPUs",
            "replicas_needed": st.column_config.NumberColumn("needed, unrounded", format="%.2f"),
            "load_at_slo_requests_per_s": st.column_config.NumberColumn(
                "at SLO, requests/s", format="%.3g"),
            "usd_per_month": st.column_config.NumberColumn("$/month", format="$%,.0f"),
            "usd_per_mtok_month": st.column_config.NumberColumn("$/Mtok, month", format="$%.2f"),
            "usd_per_mtok_peak": st.column_config.NumberColumn("$/Mtok, peak", format="$%.2f"),
            **{f"utilization_{when}": st.column_config.NumberColumn(title, format="percent")
               for when, title in (("average", "used on average"), ("peak", "used at peak"),
                                   ("one_down", "used, one down"))},
            "one_down": "one replica down",
            "ttft_p95_ms": st.column_config.NumberColumn("TTFT p95, ms", format="%.0f"),
            "tpot_p95_ms": st.column_config.NumberColumn("TPOT p95, ms", format="%.1f"),
        })  # fmt: skip
    refused = fleet.rejected(found)
    if refused:
        with st.expander(f"Rejected ({len(refused)})", expanded=not rows):
            for row in refused:
                st.markdown(f"- **{escaped('; '.join(row['candidates']))}**: "
                            f"{escaped(row['because'])}")  # fmt: skip


def _basis(found: Plan) -> None:
    if found.warnings:
        with st.expander(f"To know before trusting this ({len(found.warnings)})"):
            st.markdown("\n".join(f"- {escaped(text)}" for text in found.warnings))
    with st.expander("Assumptions used"):
        test, n = found.provenance["load_test"], sum(c.simulations for c in found.candidates)
        st.markdown(f":violet-badge[simulated] {n} load tests of {test['requests']:,} requests, "
                    f"seed {test['seed']}; the load at the SLO is found to "
                    f"{test['tolerance_pct']:g} %")  # fmt: skip
        for device, price in {c.accelerator: c.price for c in found.candidates}.items():
            if price is not None:
                dated = f", {price.as_of}" if price.as_of else ""
                st.markdown(f":green-badge[price] {escaped(device)}: "
                            f"\\${price.usd_per_gpu_hour:g} per GPU and hour{dated} "
                            f"({escaped(price.source)})")  # fmt: skip
        for text in found.defaults:
            st.markdown(f":gray-badge[default] {escaped(text)}")
