"""The page Capacity & cost: from traffic and a promise to a fleet, without a browser."""

import datetime as dt
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from playwright.sync_api import Browser, expect
from streamlit.testing.v1 import AppTest

import specsim
from specsim.errors import SpecsimError
from specsim.export.figures.fleet import target_words
from specsim.export.figures.fleet_words import dollars, rounding
from specsim.schema.calibration import (
    Calibration,
    CalibrationScope,
    CalibrationTraffic,
    FittedParameter,
    LeftOut,
)
from specsim.schema.plan import Plan, PricePaid
from specsim.schema.slo import parse_slo
from specsim.schema.traffic import Traffic

N = 500
APP = Path(__file__).parents[2] / "app"
# `AppTest` switches between files, and the pages of the app are functions: the page is drawn alone.
PAGE = f"""
import sys
sys.path[:0] = [p for p in [{str(APP)!r}] if p not in sys.path]
from inputs import sidebar
from views import capacity
capacity.NUM_REQUESTS = {N}  # of 5000: short load tests, and so short tests
capacity.page(sidebar())
"""
# An 8B on one H100 with n-grams.
SMALL = {"model": "llama-3.1-8b", "tp": "1", "method": "ngram", "k": "3", "length": "1.6"}
SCENARIO = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 1},
    "speculation": {"method": "ngram", "num_speculative_tokens": 3, "acceptance": {"length": 1.6}},
    "workload": {"input_tokens": 512, "output_tokens": 256, "temperature": 0.7},
}  # fmt: skip
DAYS = 30.4


def opened(**query: str) -> AppTest:
    at = AppTest.from_string(PAGE, default_timeout=120)
    for name, value in {**SMALL, **query}.items():
        at.query_params[name] = value
    at.run()
    assert not at.exception
    return at


def sized(at: AppTest) -> AppTest:
    at.button(key="capacity_size").click().run()
    assert not at.exception
    return at


def planned(traffic: Traffic, *slo: str, **more: Any) -> Plan:
    scenario = specsim.load_scenario(SCENARIO)
    return specsim.plan(scenario, traffic, parse_slo(slo), num_requests=N, **more)


def metrics(at: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in at.metric}


def words(at: AppTest) -> str:
    return "\n".join(e.value for e in (*at.markdown, *at.caption, *at.info)).replace("\\", "")


def asked_of(at: AppTest) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the traffic and the SLO that an answer was made for."""
    found = at.session_state["capacity_sized"].plan
    return found.traffic, found.slo


def fitted() -> Calibration:
    """Return a calibration of the deployment that leaves its constants as they are."""
    return Calibration(
        created=dt.date(2026, 7, 10),
        specsim="0.1.0",
        scope=CalibrationScope(
            accelerator="h100_sxm", engine="vllm", engine_version="0.33", model="llama-3.1-8b",
            weight_dtype="bf16", kv_dtype="bf16", method="ngram",
        ),
        traffic=CalibrationTraffic(input_tokens=(512.0, 512.0), output_tokens=(256.0, 256.0)),
        parameters=(FittedParameter(name="bandwidth", scale="log", factor=1.0, low=0.5, high=2.0,
                                    prior_sd=0.3, identifiable=True),),
        covariance=((0.0,),),
        run_log_sd=0.02,
        speedup_log_sd=0.015,
        left_out=LeftOut(loads=0),
    )  # fmt: skip


def test_answers_as_plan_does() -> None:
    at = opened()
    assert "Not sized yet" in words(at)
    sized(at)
    expected = planned(Traffic(avg_qps=20), "ttft_p95_ms=500", "tpot_p99_ms=50")
    best = expected.candidates[0]
    assert metrics(at) == {
        "$/month": f"${best.usd_per_month:,.0f}",
        "$/Mtok, month": f"${best.usd_per_mtok_average:.2f}",
        "$/Mtok, peak": f"${best.usd_per_mtok_peak:.2f}",
        "Replicas": f"{best.replicas}",
        "GPUs": f"{best.gpus}",
        "Servers": f"{best.servers}",
    }
    said = words(at)
    assert expected.verdict[1:] in said
    assert best.one_down is not None
    assert best.one_down in said
    assert f"bound by {target_words(best.binding)}" in said
    assert "TTFT p95 ≤ 500 ms" in said
    ranking = next(d.value for d in at.dataframe if "speculation" in d.value)
    assert list(ranking["usd_per_month"]) == pytest.approx(
        [c.usd_per_month for c in expected.candidates]
    )
    assert rounding(expected, best) in said
    assert "assumed" in said
    assert (
        "20 average requests/s · peak 2.5 × the average · target use 70% · 1 spare (N+1) · "
        "the promise of “interactive”"
    ) in said
    assert dollars(expected) in said
    # Each price with its date and where it is from.
    assert "as of 2026-07-10" in said
    assert not at.warning


def test_another_price_says_so_and_costs_no_load_test() -> None:
    at = sized(opened())
    known = dict(at.session_state["capacity_tests"])
    ran = {key: len(test._known) for key, test in known.items()}
    at.number_input(key="capacity_usd_h100_sxm").set_value(2.0).run()
    assert "prices" in at.warning[0].value
    assert "given on this page" in words(at)
    sized(at)
    assert not at.warning
    expected = planned(
        Traffic(avg_qps=20), "ttft_p95_ms=500", "tpot_p99_ms=50",
        prices={"h100_sxm": PricePaid(2.0, None, "given on this page")},
    )  # fmt: skip
    assert metrics(at)["$/month"] == f"${expected.candidates[0].usd_per_month:,.0f}"
    assert {k: len(t._known) for k, t in at.session_state["capacity_tests"].items()} == ran
    # The load of the side bar is not the plan's.
    at.select_slider(key="load").set_value(128).run()
    assert not at.warning


@pytest.mark.parametrize(
    ("query", "average", "peak"),
    [
        ({"capacity_avg_qps": "8", "capacity_peak_to_avg": "3"}, 8.0, 24.0),
        ({"capacity_traffic": "peak requests/s", "capacity_peak_qps": "30"}, 12.0, 30.0),
        (
            {
                "capacity_traffic": "requests per month",
                "capacity_requests_per_month": f"{10 * 3600 * 8 * 20}",
                "capacity_hours_per_day": "8",
                "capacity_days_per_month": "20",
            },
            10.0,
            25.0,
        ),
        ({"capacity_growth_pct": "50", "capacity_growth_years": "2"}, 45.0, 112.5),
    ],
)
def test_traffic_as_it_is_given(query: dict[str, str], average: float, peak: float) -> None:
    at = sized(opened(capacity_slo="batch", capacity_ttft_p95="0", capacity_tpot_p99="0", **query))
    traffic, slo = asked_of(at)
    assert (traffic["avg_rate"], traffic["peak_rate"]) == pytest.approx((average, peak))
    assert slo["targets"] == []
    assert "Sized for" in words(at)


def test_what_is_the_users_own_is_not_called_assumed() -> None:
    at = sized(opened(capacity_slo="batch", capacity_ttft_p95="0", capacity_tpot_p99="0",
                      capacity_avg_qps="21", capacity_peak_to_avg="3", capacity_spares="2",
                      capacity_target_utilization="0.6"))  # fmt: skip
    assert "assumed" not in words(at)
    at.number_input(key="capacity_spares").set_value(1).run()
    assert "1 spare (N+1). They are what this page starts with" in words(sized(at))


def test_fewer_drafts_are_offered_where_the_own_k_loses() -> None:
    at = sized(opened(length="1.05", k="4"))
    assert "Speculation off" in at.subheader[0].value
    assert "k = 4 only" in words(at)
    assert "add 1, 2, 3 under “Also draft tokens, k”" in words(at)
    at.multiselect(key="capacity_k").set_value([1]).run()
    assert "k = 4 only" not in words(sized(at))


@pytest.mark.parametrize(
    "query",
    [
        {"capacity_peak_to_avg": "0.1"}, {"capacity_traffic": "bogus"}, {"capacity_spares": "inf"},
        {"capacity_spares": "nan"}, {"capacity_avg_qps": "-inf"}, {"capacity_k": "99"},
        {"capacity_picture": "bogus"}, {"capacity_slo": "bogus"},
    ],
)  # fmt: skip
def test_a_link_that_asks_for_what_cannot_be_is_survived(query: dict[str, str]) -> None:
    at = opened(**query)
    assert not at.error
    assert at.number_input(key="capacity_spares").value == 1
    assert at.number_input(key="capacity_peak_to_avg").value == 2.5
    assert not at.button(key="capacity_size").disabled


def test_room_spares_and_servers() -> None:
    at = sized(opened(capacity_target_utilization="0.5", capacity_spares="3",
                      capacity_gpus_per_server="2"))  # fmt: skip
    expected = planned(
        Traffic(avg_qps=20, target_utilization=0.5, spares=3),
        "ttft_p95_ms=500", "tpot_p99_ms=50", gpus_per_server=2,
    ).candidates[0]  # fmt: skip
    assert metrics(at)["Replicas"] == f"{expected.replicas}"
    assert metrics(at)["Servers"] == f"{expected.servers}"


def test_promises_by_preset_and_by_hand() -> None:
    at = opened()
    at.selectbox(key="capacity_slo").set_value("RAG").run()
    bounds = {n.key: n.value for n in at.number_input}
    assert (bounds["capacity_ttft_p99"], bounds["capacity_tpot_p99"]) == (300.0, 100.0)
    assert (bounds["capacity_e2e_p99"], bounds["capacity_ttft_p95"]) == (3000.0, 0.0)
    for name in ("ttft_p99", "tpot_p99", "e2e_p99"):
        at.number_input(key=f"capacity_{name}").set_value(0.0)
    for name, bound in (("tpot_p95", 40.0), ("e2e_p95", 9000.0), ("ttft_each", 800.0)):
        at.number_input(key=f"capacity_{name}").set_value(bound)
    at.run()
    at.number_input(key="capacity_attainment_pct").set_value(95.0).run()
    _, slo = asked_of(sized(at))
    assert {f"{t['metric']}_{t['statistic']}": t["at_most_ms"] for t in slo["targets"]} == {
        "tpot_p95": 40.0, "e2e_p95": 9000.0,
    }  # fmt: skip
    assert slo["goodput_ms"] == {"ttft": 800.0}
    assert slo["attainment_pct"] == 95.0


def test_candidates_varied_and_pictures() -> None:
    at = opened()
    at.multiselect(key="capacity_k").set_value([1]).run()
    at.multiselect(key="capacity_gpu").set_value(["h200_sxm"]).run()
    assert at.number_input(key="capacity_usd_h200_sxm").value == 4.5
    sized(at)
    found = at.session_state["capacity_sized"].plan
    assert {(c.accelerator, c.arm) for c in found.candidates} == {
        (gpu, arm) for gpu in ("h100_sxm", "h200_sxm") for arm in ("baseline", "speculative")
    }
    assert len(found.candidates) == 6
    picture = json.loads(at.get("vega_lite_chart")[0].proto.spec)
    assert picture["layer"][0]["encoding"]["x"]["title"] == "price of a month"
    for name, layers in (("Load at the SLO", 2), ("Utilisation", 5)):
        at.segmented_control(key="capacity_picture").set_value(name).run()
        picture = json.loads(at.get("vega_lite_chart")[0].proto.spec)
        assert len(picture["layer"]) == layers
    at.multiselect(key="capacity_tp").set_value([2]).run()
    assert "candidates" in at.warning[0].value


def test_what_cannot_be_promised_is_rejected_with_the_reason() -> None:
    at = sized(opened(capacity_ttft_p95="1"))
    assert at.subheader[0].value == ":red[No candidate meets the SLO]"
    assert "ttft_p95_ms is" in words(at)
    assert not at.get("vega_lite_chart")


def test_errors_are_a_sentence() -> None:
    at = opened(capacity_growth_pct="10000", capacity_growth_years="20")
    assert "expected" in at.error[0].value
    at.number_input(key="capacity_growth_years").set_value(1.0).run()
    assert not at.error
    at = opened(settings="engine.nonsense=1")
    assert "nonsense" in at.error[0].value
    assert at.button(key="capacity_size").disabled
    at = sized(opened(model="llama-3.1-405b"))
    assert at.subheader[0].value == ":red[No candidate meets the SLO]"
    assert "no candidate can be served" in words(at).lower()
    assert not [b for b in at.button if "workbook" in b.label]


def test_two_sides() -> None:
    at = sized(opened(compare="true", b_model="llama-3.1-8b", b_tp="1", b_method="none",
                      b_gpu="h200_sxm", capacity_slo="batch", capacity_ttft_p95="0",
                      capacity_tpot_p99="0"))  # fmt: skip
    one, two = (at.session_state[f"{p}capacity_sized"].plan for p in ("", "b_"))
    assert {c.accelerator for c in one.candidates} == {"h100_sxm"}
    assert [(c.accelerator, c.arm) for c in two.candidates] == [("h200_sxm", "baseline")]
    months = [m.value for m in at.metric if m.label == "$/month"]
    assert months == [f"${p.candidates[0].usd_per_month:,.0f}" for p in (one, two)]


def test_a_stop_keeps_what_was_tested_and_leaves_the_page() -> None:
    at = opened()
    at.session_state["capacity_stopped"] = True  # what the button does while a plan is made
    at.run()
    assert "Stopped" in words(at)
    assert at.button(key="capacity_size")
    assert "Stopped" not in words(at.run())


@pytest.mark.parametrize(
    ("query", "price"),
    [
        ({}, None),
        (
            {
                "capacity_traffic": "requests per month", "capacity_hours_per_day": "12",
                "capacity_growth_pct": "30", "capacity_growth_years": "2",
                "capacity_spares": "2", "capacity_gpus_per_server": "4",
                "capacity_target_utilization": "0.8", "capacity_slo": "batch",
                "capacity_ttft_p95": "0", "capacity_tpot_p99": "0", "capacity_ttft_each": "800",
                "capacity_attainment_pct": "95", "settings": "engine.max_num_seqs=64",
            },
            2.5,
        ),
    ],
)  # fmt: skip
def test_the_command_says_what_the_page_does(query: dict[str, str], price: float | None) -> None:
    at = opened(**query)
    at.multiselect(key="capacity_k").set_value([1]).run()
    if price is not None:
        at.number_input(key="capacity_usd_h100_sxm").set_value(price).run()
    sized(at)
    command = shlex.split(next(c.value for c in at.code if c.value.startswith("specsim plan")))
    program = Path(sys.executable).parent / command[0]
    told = subprocess.run([program, *command[1:], "--requests", str(N), "--json"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    found = at.session_state["capacity_sized"].plan
    assert [
        (c["deployment"], c["arm"], c["replicas"], c["servers"], round(c["usd_per_month"]))
        for c in json.loads(told.stdout)["candidates"]
    ] == [
        (c.deployment, c.arm, c.replicas, c.servers, round(c.usd_per_month))
        for c in found.candidates
    ]


def test_the_command_of_a_calibrated_session_says_so() -> None:
    at = opened()
    at.session_state["calibration"] = fitted()
    at.run()
    assert not at.exception
    assert "--calibration calibration.yaml" in words(at)


def test_a_workbook_that_cannot_be_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened()
    import specsim.export.workbook.book as books

    def refuse(*_: Any) -> None:
        raise SpecsimError("no workbook: give it another name")

    monkeypatch.setattr(books, "book", refuse)
    at.button(key="capacity_book_make").click().run()
    assert not at.exception
    assert [e.value for e in at.error] == ["no workbook\\: give it another name"]


def test_a_plan_is_stopped_in_a_browser(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(f"{address}/capacity?capacity_tp=1&capacity_tp=2&capacity_k=1")
    size = page.get_by_role("button", name="Size the fleet")
    size.click(timeout=30_000)
    expect(page.get_by_text(re.compile("load tests$"))).to_be_visible(timeout=15_000)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_text("Stopped. What was tested is kept")).to_be_visible(timeout=30_000)
    expect(page.get_by_text("Not sized yet")).to_be_visible()
    expect(size).to_be_enabled()
    page.close()


def test_the_workbook_holds_the_page() -> None:
    at = sized(opened(capacity_avg_qps="40", capacity_peak_to_avg="2", capacity_spares="2",
                 capacity_usd_h100_sxm="2.5", capacity_target_utilization="0.8",
                 capacity_slo="batch", capacity_ttft_p95="0", capacity_tpot_p99="0"))  # fmt: skip
    at.button(key="capacity_book_make").click().run()
    assert not at.exception
    made = at.session_state["capacity_book"]
    assert "Download fleet.xlsx" in [b.label for b in at.get("download_button")]
    at.run()
    assert at.session_state["capacity_book"] is made
    book = openpyxl.load_workbook(io.BytesIO(made[1]), data_only=True)
    rows = list(book["Fleet"].values)
    head = next(i for i, row in enumerate(rows) if "peak_qps" in row)
    fleet = {
        row[rows[head].index("arm")]: dict(zip(rows[head], row, strict=True))
        for row in rows[head + 1 :]
        if row[rows[head].index("arm")] in ("off", "on")
    }
    expected = planned(
        Traffic(avg_qps=40, peak_to_avg=2, spares=2, target_utilization=0.8),
        prices={"h100_sxm": PricePaid(2.5, None, "given on this page")},
    )  # fmt: skip
    for c in expected.candidates:
        row = fleet["off" if c.arm == "baseline" else "on"]
        assert row["peak_qps"] == pytest.approx(80.0)
        assert (row["target_util_pct"], row["redundancy"]) == (80.0, 2)
        # Without a promise the workbook holds the closed form for what a replica sustains.
        assert row["replicas_total"] == pytest.approx(c.replicas, abs=1)
    assert any(2.5 in row for row in book["Inputs"].values)
