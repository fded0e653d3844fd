from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from specsim.analysis.verdict import verdict
from specsim.schema.results import BaselinePoint, BreakEven, Crossover, Point, SpeculativePoint

OFF = BaselinePoint(
    batch=1.0, limited_by="load", step_ms=10.0, tpot_ms=10.0, ttft_ms=50.0, output_tok_s=100.0,
    usd_per_mtok=None, usd_per_mtok_total=None, bound="memory", parts_ms={},
)  # fmt: skip
ON = SpeculativePoint(
    batch=1.0, limited_by="load", step_ms=12.0, draft_ms=1.0, verify_ms=11.0, host_ms=0.0,
    tokens_per_step=2.0, verify_tokens=5.0, tpot_ms=6.0, itl_ms=12.0, ttft_ms=50.0,
    output_tok_s=160.0, usd_per_mtok=None, usd_per_mtok_total=None, bound="memory", parts_ms={},
)  # fmt: skip
ALWAYS = Crossover("always", None, None, None, None, ((1.0, 256.0),), (1.0, 256.0))
NEVER = Crossover("never", None, None, None, None, (), (1.0, 256.0))


def point(load: float, speedup: float | None, *, rate: bool = False) -> Point:
    return Point(
        concurrency=None if rate else load,
        request_rate=load if rate else None,
        baseline=OFF,
        speculative=ON,
        speedup=speedup,
        speedup_low=speedup,
        speedup_high=speedup,
        note="",
    )


def crosses(*wins: tuple[float, float]) -> Crossover:
    load = wins[0][1] if wins[0][1] < 256.0 else wins[0][0]
    return Crossover("crosses", load, load, None, None, wins, (1.0, 256.0))


def test_on() -> None:
    points = [point(1, 2.5), point(64, 1.2)]
    found = verdict(points, ALWAYS, (), 0.6)
    assert found.decision == "on"
    assert found.reason == (
        "from 1 to 64 concurrent requests it is 2.50× faster at best (at 1) and 1.20× faster at "
        "the highest; no loss up to 256 concurrent requests: a step takes 1.2 times as long and "
        "yields 2.0 tokens (memory-bound)"
    )
    ends = verdict(points, crosses((1.0, 90.0)), (), 0.6)
    assert "; the gain ends near 90 concurrent requests: a step takes " in ends.reason


def test_one_request_is_not_several() -> None:
    found = verdict([point(1, 2.5)], crosses((1.0, 90.0)), (), 0.6)
    assert found.reason.startswith("at 1 concurrent request it is 2.50× faster; the gain ends")
    assert verdict([point(1, 1.6, rate=True)], ALWAYS, (), 0.6).reason.startswith("at 1 requests/s")
    slower = verdict([point(1, 0.8)], NEVER, (), 0.6)
    assert "costs 20% at 1 concurrent request" in slower.reason
    assert "1 concurrent requests" not in slower.reason


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"bound": "compute"}, "yields 2.0 tokens (compute-bound)"),
        ({"bound": "kv"}, "yields 2.0 tokens (bound by reading the cache)"),
        ({"bound": "communication"}, "yields 2.0 tokens (bound by communication)"),
        ({"bound": "host"}, "yields 2.0 tokens (bound by launches and the host)"),
        ({"draft_ms": 6.0, "step_ms": 15.0}, "takes 1.5 times as long and yields 2.0 tokens (mem"),
        ({"draft_ms": 6.6, "step_ms": 15.0}, "takes 1.5 times as long and yields 2.0 tokens, 44%"),
    ],
)
def test_reason_names_what_the_step_is_spent_on(changes: dict[str, Any], cause: str) -> None:
    slow = replace(point(64, 0.8), speculative=replace(ON, **changes))
    assert cause in verdict([slow], NEVER, (), 0.6).reason


def test_off_says_what_would_be_needed() -> None:
    need = (BreakEven(8.0, 2.2, 0.5, 0.31), BreakEven(64.0, 3.0, 0.7, 0.52))
    found = verdict([point(8, 0.9), point(64, 0.8)], NEVER, need, 0.38)
    assert found.decision == "off"
    assert "costs 20% at 64 concurrent requests" in found.reason
    assert "a draft acceptance rate of 0.52 breaks even and it is 0.38: a step" in found.reason


def test_off_where_nothing_would_be_enough() -> None:
    found = verdict([point(64, 0.8)], NEVER, (BreakEven(64.0, None, None, None),), 0.38)
    assert found.reason.startswith("at 64 concurrent requests ")
    assert "at 64 concurrent requests, where even full acceptance would not pay: " in found.reason


def test_schedule() -> None:
    found = verdict([point(1, 2.0), point(128, 0.8)], crosses((1.0, 60.0)), (), 0.6)
    assert found.decision == "schedule"
    assert found.reason == (
        "it pays below about 60 concurrent requests (2.00× faster at 1) and costs above "
        "(1.25× slower at 128): a step takes 1.2 times as long and yields 2.0 tokens "
        "(memory-bound); turn it off or draft fewer tokens there"
    )


def test_the_reason_is_that_of_the_load_where_it_turns() -> None:
    """Not of the highest, where something else may bind: there the cache is full."""
    full = replace(ON, limited_by="kv", batch=100.0)
    worst = replace(point(1024, 0.7), speculative=full)
    found = verdict([point(1, 2.0), point(128, 0.8), worst], crosses((1.0, 60.0)), (), 0.6)
    assert "(1.43× slower at 1024): at 128 a step takes 1.2 times as long" in found.reason


def test_schedule_the_other_way_round() -> None:
    points = [point(1, 0.8), point(128, 1.5)]
    assert "it pays above 60 concurrent requests (1.50× faster at 128) and costs below" in (
        verdict(points, crosses((60.0, 256.0)), (), 0.6).reason
    )
    middle = [point(1, 0.8), point(32, 1.5), point(128, 0.9)]
    assert "it pays from 8 to 60 concurrent requests" in (
        verdict(middle, crosses((8.0, 60.0)), (), 0.6).reason
    )


def test_several_intervals_are_named() -> None:
    points = [point(1, 1.5), point(16, 0.8), point(256, 1.3)]
    found = verdict(points, crosses((1.0, 4.0), (100.0, 256.0)), (), 0.6)
    assert found.decision == "schedule"
    assert "it pays at 1 to 4 and 100 to 256 concurrent requests" in found.reason


@pytest.mark.parametrize("speedups", [(0.96, 1.04), (1.0, 1.0), (1.05, 0.95)])
def test_neutral_is_five_percent_either_way(speedups: tuple[float, float]) -> None:
    points = [point(1, speedups[0]), point(2, speedups[1])]
    found = verdict(points, crosses((1.0, 1.5)), (), 0.6)
    assert found.decision == "neutral"
    assert "changes speed by less than 5%" in found.reason


def test_some_neutral_and_a_gain_is_on_some_neutral_and_a_loss_is_off() -> None:
    assert verdict([point(1, 1.3), point(8, 0.97)], crosses((1.0, 6.0)), (), 0.6).decision == "on"
    assert verdict([point(1, 1.02), point(8, 0.7)], crosses((1.0, 2.0)), (), 0.6).decision == "off"


def test_open_loop_speaks_of_rates() -> None:
    found = verdict([point(0.5, 1.6, rate=True)], ALWAYS, (), 0.6)
    assert found.reason.startswith("at 0.5 requests/s it is 1.60× faster")


def unserved(load: float, *, off: bool, on: bool) -> Point:
    note = "; ".join(
        f"{name}: unstable at this rate, the largest stable rate is 9 requests/s (kv)"
        for name, served in (("off", off), ("on", on))
        if not served
    )
    return replace(
        point(load, None, rate=True),
        baseline=OFF if off else None,
        speculative=ON if on else None,
        note=note,
    )


def test_a_rate_that_nobody_serves_is_said() -> None:
    found = verdict([unserved(99, off=False, on=False)], NEVER, (), 0.6)
    assert found.decision == "off"
    assert "no load of this list can be served: off: unstable at this rate" in found.reason


@pytest.mark.parametrize(
    ("off", "on", "decision", "replicas"),
    [
        (9.0, 14.0, "on", (11, 8)),
        (9.0, 8.0, "off", (11, 13)),
        (9.0, 9.1, "neutral", (11, 11)),
        (49.5, 99.0, "on", (2, 1)),
    ],
)
def test_an_overload_is_counted_in_replicas(
    off: float, on: float, decision: str, replicas: tuple[int, int]
) -> None:
    points = [unserved(50, off=False, on=False), unserved(99, off=False, on=False)]
    found = verdict(points, NEVER, (), 0.6, largest_rates=(off, on))
    assert found.decision == decision
    assert found.reason == (
        f"99 requests/s overload a replica either way: it serves up to {off:g} with speculation "
        f"off and {on:g} on, so {replicas[0]} replicas off or {replicas[1]} on are the least"
    )


def waiting(
    off_ttft_ms: float, on_ttft_ms: float, limited_by: Literal["kv", "load"] = "kv"
) -> Point:
    on = replace(ON, ttft_ms=on_ttft_ms, limited_by=limited_by, batch=30.0)
    return replace(
        point(64, 1.3), baseline=replace(OFF, ttft_ms=off_ttft_ms), speculative=on
    )  # fmt: skip


def test_a_slow_first_token_is_said() -> None:
    found = verdict([point(1, 2.0), waiting(50, 2500)], ALWAYS, (), 0.6)
    assert found.decision == "on"
    assert found.reason.endswith(
        "; mind the first token at 64: 50 ms off, 2.5 s on, as only 30 requests run at a time"
    )


@pytest.mark.parametrize(
    "point_at_64",
    [
        waiting(50, 190),  # short all the same
        waiting(2000, 5000),  # not much longer than off
        waiting(50, 2500, "load"),  # nobody waits for a place
    ],
)
def test_a_first_token_as_usual_is_not(point_at_64: Point) -> None:
    assert "first token" not in verdict([point_at_64], ALWAYS, (), 0.6).reason


def test_what_vllm_refuses_is_said_beside_the_decision() -> None:
    found = verdict([point(1, 2.0)], ALWAYS, (), 0.6, does_not_start=True)
    assert found.decision == "on"
    assert found.reason.endswith("; as written vLLM does not start: see the first warning")


def test_a_rate_that_only_the_off_arm_serves_is_a_loss() -> None:
    only = verdict([unserved(16, off=True, on=False)], crosses((1.0, 10.0)), (), 0.6)
    assert only.decision == "off"
    assert "cannot serve 16 requests/s" in only.reason
    both = [point(1, 1.6, rate=True), unserved(16, off=True, on=False)]
    found = verdict(both, crosses((1.0, 10.0)), (), 0.6)
    assert found.decision == "schedule"
    assert "inf" not in found.reason


def test_a_rate_that_only_the_on_arm_serves_is_a_gain() -> None:
    points = [point(1, 1.6, rate=True), unserved(16, off=False, on=True)]
    found = verdict(points, ALWAYS, (), 0.6)
    assert found.decision == "on"
    assert "inf" not in found.reason


def test_a_cap_on_requests_is_the_cause_and_not_the_step() -> None:
    capped = replace(
        point(256, 0.7),
        baseline=replace(OFF, batch=256.0),
        speculative=replace(ON, batch=48.0, limited_by="max_num_seqs", step_ms=7.0),
    )
    reason = verdict([capped], NEVER, [], 0.5).reason
    assert "max_num_seqs lets only 48 requests run at a time, 256 without" in reason
    assert "times as long" not in reason


def test_drafting_that_waits_for_launches_says_so() -> None:
    slow = replace(
        point(1, 0.5), speculative=replace(ON, draft_ms=90.0, step_ms=100.0, bound="host")
    )
    assert "90% of it drafting (launches and the host)" in verdict([slow], NEVER, [], 0.5).reason


def test_a_gain_at_every_load_says_from_where_it_is_not_sure() -> None:
    unsure = replace(ALWAYS, low=210.0)
    reason = verdict([point(1, 2.0), point(256, 1.06)], unsure, [], 0.5).reason
    assert "no loss up to 256 concurrent requests (80 % interval: from 210)" in reason
