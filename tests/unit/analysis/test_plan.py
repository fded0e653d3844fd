"""A plan on a load test whose answer is known: a queue with latency 1 / (1 - load / capacity)."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.analysis.overlay import Overlay
from specsim.analysis.plan.fleet import Fleet, fleet, servers
from specsim.analysis.plan.plan import EVERY_DEVICE, plan
from specsim.analysis.plan.search import TOLERANCE, load_at_slo
from specsim.analysis.resolve import Deployment
from specsim.catalog.scenario import load_scenario
from specsim.errors import InfeasibleError, UsageError
from specsim.schema.plan import Plan, PlanArm, PricePaid
from specsim.schema.results import as_json
from specsim.schema.scenario import Scenario
from specsim.schema.simulation import ArmSimulation, OverTime, Percentiles, Sample
from specsim.schema.slo import Slo, parse_slo
from specsim.schema.traffic import Traffic

BASE: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "engine": {"name": "vllm", "version": "0.33"},
    "speculation": {
        "method": "eagle3", "num_speculative_tokens": 3, "drafter": "eagle3-llama3.1-8b",
        "acceptance": {"length": 2.2},
    },
    "workload": {"input_tokens": 500, "output_tokens": 250},
}  # fmt: skip
SLO = parse_slo(["ttft_p95_ms=500"])
OFF, ON = 10.0, 14.0
"""Capacities. A time to first token of 50 ms / (1 - load / capacity) is 500 ms at 0.9 of them."""


def simulated(ttft_ms: float, tpot_ms: float, *, rate: float, overloaded: bool) -> ArmSimulation:
    ttft, tpot = (Percentiles.of(Sample(np.array([ms]))) for ms in (ttft_ms, tpot_ms))
    return ArmSimulation(
        ttft_ms=ttft, tpot_ms=tpot, itl_ms=tpot, e2e_ms=ttft, output_tok_s=rate * 250,
        request_per_s=rate, goodput=rate, attainment=1.0 if ttft_ms <= 500 else 0.5,
        completed=2000, rejected=0, preemptions=0, running=1.0, waiting=0.0, kv_used=0.1,
        kv_used_max=0.2, tokens_per_step=1.0, overloaded=overloaded, little_error=0.0,
        over_time=OverTime((), (), (), ()),
    )  # fmt: skip


@dataclass
class Queue:
    """The load test of the notes above."""

    capacity: dict[str, float]
    ttft_ms: float = 50.0
    rates: list[float] = field(default_factory=list)

    def stable_rate(self, arm: PlanArm) -> float:
        return self.capacity[arm]

    def at_rate(self, arm: PlanArm, request_rate: float) -> ArmSimulation:
        self.rates.append(request_rate)
        used = request_rate / self.capacity[arm]
        if used >= 1:
            return simulated(math.inf, 20.0, rate=request_rate, overloaded=True)
        tpot_ms = (10.0 if arm == "baseline" else 5.0) * (1 + used)
        return simulated(self.ttft_ms / (1 - used), tpot_ms, rate=request_rate, overloaded=False)


def queue(deployment: Deployment, laid: Overlay, slo: Slo) -> Queue:
    """Make a queue that serves in proportion to its devices, 40 % faster with speculation."""
    n = deployment.n_gpus
    return Queue({"baseline": OFF * n, "speculative": ON * n})


def scenario(**overrides: Any) -> Scenario:
    return load_scenario(BASE, overrides={k.replace("__", "."): v for k, v in overrides.items()})


def planned(traffic: Traffic | None = None, slo: Slo = SLO, **given: Any) -> Plan:
    given.setdefault("factory", queue)
    return plan(scenario(), traffic or Traffic(avg_qps=40, peak_qps=98), slo, **given)


# The load at the SLO


@pytest.mark.parametrize(("arm", "capacity"), [("baseline", OFF), ("speculative", ON)])
def test_the_load_at_the_slo_is_found_from_below_with_few_tests(
    arm: PlanArm, capacity: float
) -> None:
    test = Queue({"baseline": OFF, "speculative": ON})
    found = load_at_slo(test, arm, SLO)
    exact = 0.9 * capacity
    assert (1 - TOLERANCE) * exact <= found.request_rate <= exact
    assert found.simulations == len(test.rates) <= 8
    assert found.binding is not None
    assert found.binding.target == "ttft_p95_ms"


@given(limit_ms=st.floats(55.0, 1e5), capacity=st.floats(0.01, 1e4))
def test_any_limit_is_met_and_no_more_than_two_percent_is_given_away(
    limit_ms: float, capacity: float
) -> None:
    found = load_at_slo(
        Queue({"baseline": capacity}), "baseline", parse_slo([f"ttft_p95_ms={limit_ms}"])
    )
    exact = capacity * (1 - 50.0 / limit_ms)
    assert exact * (1 - TOLERANCE) - 1e-9 <= found.request_rate <= exact * (1 + 1e-9)


def test_without_a_promise_capacity_binds() -> None:
    found = load_at_slo(Queue({"baseline": OFF}), "baseline", Slo())
    assert found.request_rate >= (1 - TOLERANCE) * OFF
    assert found.binding is None


def test_what_is_missed_is_told_of_almost_no_load() -> None:
    test = Queue({"baseline": OFF}, ttft_ms=600.0)
    found = load_at_slo(test, "baseline", SLO)
    assert found.request_rate == 0
    assert test.rates[-1] == pytest.approx(0.01 * OFF)
    assert len(test.rates) == 6
    assert found.binding is not None
    assert found.binding.value == pytest.approx(600 / 0.99)


def test_bounds_on_every_request_count() -> None:
    found = load_at_slo(Queue({"baseline": OFF}), "baseline", parse_slo([], ["ttft:500"]))
    assert found.request_rate == pytest.approx(9.0, rel=TOLERANCE)
    assert found.binding is not None
    assert found.binding.target == "attainment_pct"


# The fleet, by hand


def sized(traffic: Traffic, **given: Any) -> Fleet:
    values: dict[str, Any] = {
        "load_at_slo": 9.0, "output_tokens": 250, "gpus_per_replica": 2, "usd_per_gpu_hour": 3.43,
        "tdp_w": 700.0,
    }  # fmt: skip
    return fleet(traffic, **{**values, **given})


def test_a_fleet_by_hand() -> None:
    # 100 / (9 x 0.7) = 15.87: 16 replicas and a spare, 34 GPUs, 4 replicas to a server.
    found = sized(Traffic(avg_qps=40, peak_qps=100))
    assert (found.replicas_base, found.replicas, found.gpus, found.servers) == (16, 17, 34, 5)
    assert found.utilization_peak == pytest.approx(100 / 153)
    assert found.utilization_average == pytest.approx(40 / 153)
    assert found.utilization_one_down == pytest.approx(100 / 144)
    assert found.one_down_ok
    # 34 x 3.43 = 116.62 an hour; 729.6 hours; 40 x 250 and 100 x 250 tokens/s.
    assert found.usd_per_hour == pytest.approx(116.62)
    assert found.usd_per_month == pytest.approx(85_085.95, abs=0.01)
    assert found.usd_per_mtok_average == pytest.approx(3.23944, abs=1e-5)
    assert found.usd_per_mtok_peak == pytest.approx(1.29578, abs=1e-5)
    # 34 x 700 W.
    assert found.power_kw == pytest.approx(23.8)
    assert found.kwh_per_month == pytest.approx(17_364.48)
    assert found.joule_per_token == pytest.approx(2.38)


def test_idle_hours_are_paid() -> None:
    always = sized(Traffic(avg_qps=40, peak_qps=100))
    half = sized(Traffic(avg_qps=40, peak_qps=100, hours_per_day=12))
    assert half.usd_per_month == always.usd_per_month
    assert half.usd_per_mtok_average == pytest.approx(2 * (always.usd_per_mtok_average or 0))
    assert half.usd_per_mtok_peak == always.usd_per_mtok_peak


def test_a_whole_quotient_is_not_rounded_up() -> None:
    # In floating point 14 / (2 x 0.7) is a little above 10.
    found = sized(Traffic(avg_qps=10, peak_qps=14), load_at_slo=2.0)
    assert found.replicas_base == 10


def test_growth_grows_the_fleet() -> None:
    # 100 x 1.5 x 1.5 = 225; 225 / 6.3 = 35.7.
    found = sized(Traffic(avg_qps=40, peak_qps=100, growth_pct=50, growth_years=2, spares=2))
    assert (found.replicas_base, found.replicas) == (36, 38)


def test_no_price_and_no_power_is_null() -> None:
    found = sized(Traffic(avg_qps=40), usd_per_gpu_hour=None, tdp_w=None)
    assert found.usd_per_month is found.usd_per_mtok_average is found.power_kw is None


@pytest.mark.parametrize(
    ("replicas", "per_replica", "wanted"),
    [(17, 1, 3), (5, 4, 3), (3, 8, 3), (2, 16, 4), (3, 3, 2), (1, 1, 1)],
)
def test_replicas_are_packed_into_servers(replicas: int, per_replica: int, wanted: int) -> None:
    assert servers(replicas, per_replica, 8) == wanted


# 20 / 7 gives 3 replicas; with one down the others get 10 each.
EDGE = Traffic(avg_qps=20, peak_qps=20, target_utilization=1.0, spares=0)


def test_one_down_may_need_speculation_off() -> None:
    found = sized(EDGE, load_at_slo=7.0, load_at_slo_off=11.0)
    assert (found.replicas, found.one_down_ok, found.one_down_speculation_off) == (3, False, True)
    assert "10 requests/s, above the 7" in found.one_down
    assert "speculation must then be off, which holds 11" in found.one_down


def test_one_down_may_be_held_by_neither_arm() -> None:
    found = sized(EDGE, load_at_slo=7.0, load_at_slo_off=9.0)
    assert (found.one_down_ok, found.one_down_speculation_off) == (False, False)
    assert "one more replica would hold it" in found.one_down


def test_one_replica_has_no_survivor() -> None:
    found = sized(EDGE, load_at_slo=30.0)
    assert found.replicas == 1
    assert found.utilization_one_down is None
    assert not found.one_down_ok


@given(
    peak=st.floats(0.1, 1e4),
    load=st.floats(0.01, 1e3),
    utilization=st.floats(0.1, 1.0),
    spares=st.integers(1, 3),
)
def test_a_fleet_is_large_enough_and_not_one_larger(
    peak: float, load: float, utilization: float, spares: int
) -> None:
    traffic = Traffic(
        avg_qps=peak / 2, peak_qps=peak, target_utilization=utilization, spares=spares
    )
    found = sized(traffic, load_at_slo=load)
    room = load * utilization
    assert found.replicas_base * room >= peak * (1 - 1e-6)
    assert (found.replicas_base - 1) * room < peak
    assert found.one_down_ok
    assert sized(traffic, load_at_slo=2 * load).replicas <= found.replicas
    double = traffic.model_copy(update={"peak_qps": 2 * peak})
    assert sized(double, load_at_slo=load).replicas >= found.replicas


# The whole


def test_the_cheapest_arm_is_best_and_says_what_it_saves() -> None:
    answer = planned()
    best = answer.best
    assert best is not None
    assert (best.arm, best.deployment) == (
        "speculative", "llama-3.1-8b bf16 h100_sxm tp1 eagle3 k3",
    )  # fmt: skip
    on, off = answer.candidates
    # 98 / (12.6 x 0.7) = 11.1 and 98 / (9 x 0.7) = 15.6, each and a spare.
    assert (on.replicas, off.replicas) == (13, 17)
    saving = best.saves_against_off
    assert saving is not None
    assert saving.usd_per_month == pytest.approx(4 * 3.43 * 729.6)
    assert saving.pct == pytest.approx(100 * 4 / 17)
    assert best.saves_against_on is None
    assert "speculation on: 13 replicas on 13 GPUs for $32,533 a month" in answer.verdict
    assert "saves $10,010 a month (24 %) against the same with speculation off" in answer.verdict


def test_one_down_says_whether_speculation_still_pays() -> None:
    on, off = planned().candidates
    rate = 98 / 12
    assert on.one_down_speedup == pytest.approx(2 * (1 + rate / OFF) / (1 + rate / ON))
    assert off.one_down_speedup is None
    assert "speculation still pays there" in (on.one_down or "")


def test_fields_of_the_contract() -> None:
    answer = as_json(planned())
    assert set(answer) >= {"candidates", "best", "warnings", "traffic", "slo", "defaults"}
    assert set(answer["candidates"][0]) >= {
        "deployment", "arm", "load_at_slo", "replicas", "gpus", "usd_per_hour", "usd_per_month",
        "usd_per_mtok_average", "usd_per_mtok_peak", "one_down_ok", "rejected_because",
    }  # fmt: skip
    assert answer["traffic"]["peak_rate"] == 98
    json.dumps(answer, allow_nan=False)


def test_ways_of_speculating_share_one_off_arm() -> None:
    axes = {"speculation.num_speculative_tokens": (1, 3, 5)}
    answer = planned(axes=axes)
    names = [(c.deployment, c.arm) for c in answer.candidates]
    assert len(names) == len(set(names)) == 4
    assert [arm for _, arm in names].count("baseline") == 1
    assert {c.varied.get("speculation.num_speculative_tokens") for c in answer.candidates} == {
        1, 3, 5, None,
    }  # fmt: skip


def test_equal_prices_go_to_what_is_faster() -> None:
    small = Traffic(avg_qps=1, peak_qps=1)
    answer = planned(small)
    assert [c.usd_per_month for c in answer.candidates] == pytest.approx([2 * 3.43 * 729.6] * 2)
    assert answer.best is not None
    assert answer.best.arm == "speculative"
    # 5 ms and 10 ms a token, at 0.5 requests/s of 14 and of 10.
    assert [c.tpot_p95_ms for c in answer.candidates] == pytest.approx([5 * 29 / 28, 10.5])
    assert "are slower: 10.5 ms per token (p95) at the peak against 5.18" in answer.best.reason
    assert "costs as much as the same with speculation off" in answer.verdict


def test_prices_given_rank_anew() -> None:
    axes = {"hardware.accelerator": ("h100_sxm", "h200_sxm")}
    cheap = PricePaid(1.0, None, "given")
    answer = planned(axes=axes, prices={"h200_sxm": cheap})
    assert answer.best is not None
    assert "h200_sxm" in answer.best.deployment
    answer = planned(axes=axes, prices={EVERY_DEVICE: cheap})
    paid = [c.usd_per_month for c in answer.candidates if c.arm == "speculative"]
    assert paid == pytest.approx([13 * 729.6] * 2)


def test_without_a_price_gpus_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsim.analysis.plan.candidates.listed_price", lambda profile: None)
    answer = planned()
    assert answer.best is not None
    assert answer.candidates[0].usd_per_month is None
    assert [c.gpus for c in answer.candidates] == [13, 17]
    assert "fewest GPUs" in answer.best.reason
    assert any("no price of h100_sxm" in text and "--price" in text for text in answer.warnings)


def test_what_cannot_be_met_names_the_target_and_the_nearest() -> None:
    answer = planned(slo=parse_slo(["ttft_p95_ms=500", "tpot_p99_ms=4"]))
    assert answer.best is None
    assert all(c.replicas is None for c in answer.candidates)
    # 5.05 and 10.1 ms at almost no load.
    assert answer.candidates[0].arm == "speculative"
    said = answer.candidates[0].rejected_because or ""
    assert "tpot_p99_ms is 5.05 at almost no load, 4 allowed (26% over)" in said
    assert "no candidate meets the SLO" in answer.verdict
    assert "speculation on" in answer.verdict


def test_what_does_not_fit_is_rejected_beside_what_does() -> None:
    base = scenario(
        target__model="llama-3.3-70b", speculation__method="ngram", speculation__drafter=None
    )
    axes = {"hardware.tensor_parallel_size": (1, 4)}
    answer = plan(base, Traffic(avg_qps=40), SLO, axes=axes, factory=queue)
    assert answer.best is not None
    assert "tp4" in answer.best.deployment
    rejected = [c for c in answer.candidates if c.rejected_because]
    assert {c.varied["hardware.tensor_parallel_size"] for c in rejected} == {1}
    assert all("does not fit" in (c.rejected_because or "") for c in rejected)
    only = plan(base, Traffic(avg_qps=40), SLO, factory=queue)
    assert only.best is None
    assert "does not fit" in only.verdict


def test_a_name_that_is_not_known_is_rejected_beside_others() -> None:
    answer = planned(axes={"hardware.accelerator": ("h100_sxm", "h1000")})
    assert answer.best is not None
    assert any(
        "unknown accelerator 'h1000'" in (c.rejected_because or "") for c in answer.candidates
    )


def test_what_is_wrong_with_all_is_an_error() -> None:
    base = scenario(speculation__acceptance=None)
    with pytest.raises(UsageError, match="acceptance"):
        plan(base, Traffic(avg_qps=40), SLO, factory=queue)


def test_a_refused_load_test_is_a_rejection() -> None:
    def refusing(deployment: Deployment, laid: Overlay, slo: Slo) -> Queue:
        raise InfeasibleError("every request is refused")

    answer = planned(factory=refusing)
    assert answer.best is None
    assert "every request is refused" in answer.verdict


def test_only_the_deployment_is_varied() -> None:
    with pytest.raises(UsageError, match="varies the deployment"):
        planned(axes={"workload.input_tokens": (100, 200)})
    with pytest.raises(UsageError, match="2000 deployments"):
        planned(axes={"engine.max_num_seqs": tuple(range(1, 2001))})


def test_bursts_are_refused() -> None:
    with pytest.raises(UsageError, match="--arrival steady"):
        plan(scenario(workload__arrival="burst"), Traffic(avg_qps=1), SLO, factory=queue)


def test_several_scenarios_serve_the_first_ones_requests() -> None:
    other = scenario(hardware__accelerator="h200_sxm", workload__input_tokens=9)
    answer = plan((scenario(), other), Traffic(avg_qps=40), SLO, factory=queue)
    assert len(answer.candidates) == 4
    assert answer.workload["input_tokens"] == 500


def test_an_executor_changes_nothing() -> None:
    axes = {"hardware.tensor_parallel_size": (1, 2)}
    told: list[tuple[int, int, str]] = []
    with ThreadPoolExecutor(2) as pool:
        there = planned(axes=axes, executor=pool, progress=lambda *said: told.append(said))
    assert there == planned(axes=axes)
    assert [done for done, _, _ in told] == [1, 2, 3, 4]


def test_candidates_of_one_name_are_told_apart() -> None:
    other = scenario(name="few", engine__max_num_seqs=64)
    answer = plan((scenario(), other), Traffic(avg_qps=40), SLO, factory=queue)
    names = {c.deployment for c in answer.candidates}
    assert len(names) == 4
    assert "llama-3.1-8b bf16 h100_sxm tp1 (#2 few)" in names


def test_a_combination_that_is_no_scenario_is_rejected_under_its_values() -> None:
    axes = {
        "hardware.accelerator": ("h100_sxm", "h200_sxm"),
        "hardware.tensor_parallel_size": (1, 128),
    }
    answer = planned(axes=axes)
    wrong = [c for c in answer.candidates if c.rejected_because]
    assert [c.varied["hardware.accelerator"] for c in wrong] == ["h100_sxm", "h200_sxm"]
    assert all("tensor_parallel_size=128" in c.deployment for c in wrong)
    assert all("less than or equal to 64" in (c.rejected_because or "") for c in wrong)


def test_another_way_of_speculating_drops_the_drafter() -> None:
    answer = planned(axes={"speculation.method": ("eagle3", "ngram", "none")})
    assert all(c.rejected_because is None for c in answer.candidates)
    assert {c.deployment.split()[4] for c in answer.candidates if c.arm == "speculative"} == {
        "eagle3", "ngram",
    }  # fmt: skip
    assert len(answer.candidates) == 3
