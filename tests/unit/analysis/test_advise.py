"""The three questions: against hand-made crossovers, and on two endpoints of one deployment."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from specsim.analysis.advise import decide
from specsim.analysis.advise.advise import advise
from specsim.analysis.advise.options import smaller_ks
from specsim.analysis.advise.questions import determinism, peak_answer
from specsim.analysis.advise.vllm_config import speculative_config
from specsim.catalog.scenario import load_scenario
from specsim.catalog.serve_flags import flag_table
from specsim.catalog.serve_speculative import read_speculative_config
from specsim.errors import UsageError
from specsim.schema.advice import Advice, OptionResult, Peak
from specsim.schema.results import BestK, Crossover
from specsim.schema.simulation import Percentiles
from specsim.schema.slo import Slo, parse_slo

EXAMPLES = Path(__file__).parents[3] / "examples"
CHAT = EXAMPLES / "chat-llama-3-70b-4xh100.yaml"
SUMMARIES = EXAMPLES / "summarisation-llama-3-70b-4xh100.yaml"


def crossing(**changes: Any) -> Crossover:
    found = {
        "state": "crosses", "load": 100.0, "batch": 100.0, "low": 80.0, "high": 120.0,
        "wins": ((1.0, 100.0),), "searched": (1.0, 1024.0),
    }  # fmt: skip
    return Crossover(**{**found, **changes})


def peak(concurrency: float, found: Crossover, mean: float = 0.0) -> Peak:
    return peak_answer(concurrency, mean, "p99 over time", found)


@pytest.mark.parametrize(
    ("concurrency", "side", "pays"),
    [(8, "below", True), (79, "below", True), (90, "inside", True), (110, "inside", False),
     (121, "above", False)],
)  # fmt: skip
def test_a_peak_is_held_against_the_interval(concurrency: float, side: str, pays: bool) -> None:
    got = peak(concurrency, crossing())
    assert (got.side, got.pays) == (side, pays)


def test_the_mean_below_and_the_peak_above_is_said() -> None:
    assert "the average below" in peak(200, crossing(), mean=60).sentence
    assert "the average below" not in peak(200, crossing(), mean=160).sentence


def test_an_interval_that_ends_beyond_the_search() -> None:
    assert peak(500, crossing(high=None)).side == "inside"
    assert peak(2, crossing(low=None)).side == "inside"


def test_no_crossing_at_all() -> None:
    always = crossing(state="always", load=None, batch=None, low=91.0, high=None,
                      wins=((1.0, 1024.0),))  # fmt: skip
    assert [peak(n, always).side for n in (8, 200)] == ["below", "inside"]
    never = crossing(state="never", load=None, batch=None, low=None, high=3.0, wins=())
    assert [peak(n, never).side for n in (2, 8)] == ["inside", "above"]
    assert not peak(2, never).pays


def test_several_gains_are_told_apart() -> None:
    twice = crossing(wins=((1.0, 10.0), (100.0, 400.0)), load=10.0)
    assert [peak(n, twice).side for n in (5, 50, 200)] == ["below", "above", "below"]
    assert "1 to 10 and 100 to 400" in peak(50, twice).sentence


def test_determinism_is_the_temperature() -> None:
    assert "likeliest" in determinism(0.0)
    assert "sampled" in determinism(1.0)


def option(kind: str, mean: float, p99: float, *, ttft: float = 100.0, **changes: Any) -> Any:
    """Return an option with a mean and p99 of time per token, against an off of 20 and 30 ms."""
    tpot = Percentiles(mean, mean, mean, mean, p99)
    first = Percentiles(50.0, 50.0, 50.0, 50.0, ttft)
    to_off = {
        "tpot": {"mean": mean / 20.0, "p99": p99 / 30.0},
        "ttft": {"mean": 1.0, "p99": ttft / 100.0},
        "e2e": {"mean": mean / 20.0, "p99": 1.0},
    }
    given: dict[str, Any] = {
        "name": kind, "kind": kind, "k": 0 if kind == "off" else 4, "schedule": None,
        "route_above": None, "replicas": 1, "ttft_ms": first, "tpot_ms": tpot, "itl_ms": tpot,
        "e2e_ms": tpot, "output_tok_s": 1.0, "running": 1.0, "tokens_per_step": 1.0,
        "overloaded": False, "to_off": to_off, "slo": [], "meets": p99 <= 31.5, "misses": (),
    }  # fmt: skip
    return OptionResult(**{**given, **changes})


OFF = option("off", 20.0, 30.0)


def test_the_best_mean_of_those_whose_p99_is_no_worse() -> None:
    worse = option("on", 10.0, 40.0)
    capped = option("cap", 15.0, 29.0, k=2)
    assert decide.choose([OFF, worse, capped]) is capped
    assert decide.choose([OFF, option("on", 12.0, 25.0), capped]).kind == "on"


def test_what_is_level_with_off_is_off() -> None:
    assert decide.choose([OFF, option("on", 19.5, 29.0)]) is OFF
    assert decide.choose([OFF, option("on", 10.0, 40.0)]) is OFF


def test_a_first_token_must_be_later_by_more_than_a_pause() -> None:
    def misses(ttft_ms: float) -> list[str]:
        off: Any = option("off", 20.0, 30.0, ttft=1000.0)
        one: Any = option("on", 10.0, 20.0, ttft=ttft_ms)
        for arm in (off, one):
            object.__setattr__(arm, "percentiles", lambda m, arm=arm: getattr(arm, f"{m}_ms"))
        return list(decide._worse(one, off))

    assert misses(1040.0) == []
    assert misses(1190.0) == []
    assert misses(1300.0) == ["p99 first token 1.30x off's"]


def test_of_two_alike_the_simpler_is_taken() -> None:
    on, schedule = option("on", 10.1, 20.0), option("schedule", 10.0, 20.0)
    assert decide.choose([OFF, on, schedule]) is on


def test_an_slo_that_off_misses_makes_even_a_level_option_worth_it() -> None:
    missed = option("off", 20.0, 30.0, meets=False)
    level = option("on", 20.0, 25.0, meets=True)
    assert decide.choose([missed, level]) is level
    # Two replicas without speculation do as well as two that route: nothing is gained by it.
    pair = option("off", 20.0, 30.0, meets=True, replicas=2)
    assert decide.choose([missed, pair, option("route", 19.5, 25.0, replicas=2)]) is missed


def test_a_mean_that_hides_a_tail() -> None:
    assert decide.hidden_tail(option("on", 17.0, 36.0)) == ["tpot"]
    assert decide.hidden_tail(option("on", 10.0, 20.0)) == []


def test_smaller_ks_are_those_that_some_load_up_to_the_peak_wants() -> None:
    best = [BestK(1, 5, 2.0), BestK(8, 3, 1.5), BestK(32, 1, 1.1), BestK(64, 0, 1.0)]
    predicted: Any = type("Predicted", (), {"best_k": tuple(best)})
    assert smaller_ks(predicted, 4, 64) == {3, 1}
    assert smaller_ks(predicted, 4, 8) == {3}


@pytest.mark.parametrize("schedule", [None, ((1, 16, 4), (17, 256, 0))])
@pytest.mark.parametrize("name", [CHAT.name, "llama-3.1-8b-ngram-code-edit.yaml"])
def test_what_is_pasted_is_read_back(name: str, schedule: Any) -> None:
    scenario = load_scenario(EXAMPLES / name)
    config = speculative_config(scenario, scenario, 4, schedule)
    assert config is not None
    read = read_speculative_config(
        config, version="0.33", tensor_parallel_size=4, model="m", table=flag_table("vllm")
    ).speculation
    assert read["method"] == scenario.speculation.method
    assert read["num_speculative_tokens"] == 4
    assert read.get("num_speculative_tokens_per_batch_size") == (
        None if schedule is None else [list(tier) for tier in schedule]
    )
    assert speculative_config(scenario, scenario, 0, None) is None


@pytest.fixture(scope="module")
def pair() -> Advice:
    return advise(
        [load_scenario(SUMMARIES), load_scenario(CHAT)], num_requests=600, replications=2, seed=5
    )


def test_the_peak_is_that_of_the_busiest_percent_of_the_time(pair: Advice) -> None:
    quiet, busy = pair.scenarios
    assert quiet.peak.side == "below"
    assert quiet.peak.concurrency < 12
    assert busy.peak.side == "above"
    assert busy.peak.concurrency > 1.5 * busy.peak.mean


def test_acceptance_is_held_against_what_the_peak_needs(pair: Advice) -> None:
    quiet, busy = (a.acceptance for a in pair.scenarios)
    assert quiet.draft_acceptance_rate == pytest.approx(0.81)
    assert quiet.acceptance_length == pytest.approx(1 + 4 * 0.81)
    assert busy.acceptance_length == pytest.approx(1 + 4 * 0.38)
    assert quiet.margin is not None
    assert quiet.margin > 0.5
    assert busy.margin is not None
    assert busy.margin < 0
    assert busy.break_even_rate == pytest.approx(busy.draft_acceptance_rate - busy.margin)
    assert busy.basis == "given"
    assert "spec_decode_num_accepted_tokens" in busy.measure


def test_each_endpoint_gets_its_own(pair: Advice) -> None:
    quiet, busy = pair.scenarios
    assert quiet.action.decision == "on"
    assert busy.action.decision != "on"
    assert quiet.name in pair.together
    assert busy.name in pair.together


def test_every_option_serves_the_same_requests(pair: Advice) -> None:
    kinds = [o.kind for o in pair.scenarios[1].options]
    assert kinds[:2] == ["off", "on"]
    assert {"cap", "schedule", "route"} <= set(kinds)
    one = [o for o in pair.scenarios[1].options if o.replicas == 1]
    rates = [o.output_tok_s for o in one]
    assert max(rates) < 1.1 * min(rates)


def test_the_schedule_covers_every_batch_once(pair: Advice) -> None:
    schedule = next(o.schedule for o in pair.scenarios[1].options if o.schedule is not None)
    assert schedule[0][0] == 1
    assert all(b[0] == a[1] + 1 for a, b in itertools.pairwise(schedule))
    assert all(0 <= k <= 4 for _, _, k in schedule)


def test_the_seed_decides() -> None:
    chat = load_scenario(CHAT)
    one, again = (advise(chat, num_requests=100, replications=1, seed=3) for _ in range(2))
    assert one == again
    assert one.together == ""


def test_with_an_slo_meeting_it_decides() -> None:
    chat = load_scenario(CHAT)

    def decided(slo: Slo) -> Any:
        return advise(chat, slo=slo, num_requests=200, replications=1, seed=3).scenarios[0]

    hopeless = decided(parse_slo(["tpot_p99_ms=1"]))
    assert hopeless.action.decision == "off"
    assert "specsim plan" in hopeless.action.reason
    lax = decided(parse_slo(["tpot_p99_ms=5000"]))
    assert all(o.meets for o in lax.options)
    best = min(decide.pace(o) for o in lax.options)
    chosen = next(o for o in lax.options if o.k == lax.action.k and o.kind == lax.action.decision)
    assert decide.pace(chosen) <= 1.05 * best


def test_a_closed_loop_has_its_peak_given_and_no_routing() -> None:
    chat = load_scenario(CHAT, overrides={"load.request_rate": None, "load.concurrency": [4, 32]})
    got = advise(chat, num_requests=100, replications=1).scenarios[0]
    assert (got.peak.concurrency, got.peak.basis) == (32, "as given")
    assert "route" not in {o.kind for o in got.options}


def test_too_many_requests_are_linted() -> None:
    chat = load_scenario(CHAT, overrides={"load.request_rate": [40]})
    got = advise(chat, num_requests=100, replications=1).scenarios[0]
    assert any("40 requests/s arrive" in text for text in got.lints)


def test_an_overload_is_said_before_anything_else() -> None:
    assert decide.overload(None, 10.0) == ""
    assert decide.overload(10.0, 10.0) == ""
    said = decide.overload(1000.0, 44.71)
    assert said == (
        "overloaded: 1,000 requests/s arrive, a replica serves 44.7 at most; size the fleet first "
        "(`specsim plan`)"
    )
    on = option("on", 10.0, 20.0)
    assert decide.reason(on, [OFF, on], None, said).startswith(f"{said}. At this load")
    missed = option("off", 20.0, 30.0, meets=False)
    assert decide.reason(missed, [missed, on], parse_slo(["tpot_p99_ms=1"]), said) == said


@pytest.mark.parametrize(("rate", "size_first"), [(2.0, False), (400.0, True)])
def test_beyond_a_replica_no_option_is_the_answer(rate: float, size_first: bool) -> None:
    chat = load_scenario(CHAT, overrides={"load.request_rate": [rate]})
    action = advise(chat, num_requests=50, replications=1).scenarios[0].action
    assert action.size_first is size_first
    assert action.reason.startswith("overloaded: 400 requests/s arrive") is size_first


def test_what_none_serves_is_said_of_several() -> None:
    many = [load_scenario(CHAT, overrides={"load.request_rate": [r]}) for r in (2.0, 400.0)]
    got = advise(many, num_requests=50, replications=1)
    assert [a.name for a in got.scenarios] == ["chat #1", "chat #2"]
    assert got.together.startswith("chat #2 is beyond one replica: size the fleet first")


def test_an_slo_that_nothing_meets_sizes_the_fleet_first() -> None:
    slo = parse_slo(["tpot_p99_ms=1"])
    got = advise(load_scenario(CHAT), slo=slo, num_requests=50, replications=1).scenarios[0]
    assert got.action.size_first


def test_answers_of_one_token_have_no_time_per_token() -> None:
    chat = load_scenario(
        CHAT, overrides={"workload.output_tokens": 1, "workload.output_tokens_p95": None}
    )
    got = advise(chat, num_requests=50, replications=1).scenarios[0]
    assert "per token" not in got.action.reason
    assert "to the first token on average" in got.action.reason
    assert any("no answer has more than one token" in text for text in got.lints)


def test_few_requests_are_linted() -> None:
    chat = load_scenario(CHAT)

    def said(n: int, *slo: str) -> str:
        promised = parse_slo(slo) if slo else None
        got = advise(chat, slo=promised, num_requests=n, replications=1).scenarios[0]
        return " ".join(got.lints)

    assert "p99 of 50 requests is that of the slowest: noise; give --requests 1000" in said(50)
    assert "tpot_p99.9_ms of 50 requests" in said(50, "tpot_p99.9_ms=50")
    assert "noise" not in said(200, "tpot_p95_ms=50")


def test_a_part_of_a_request_is_none() -> None:
    chat = load_scenario(CHAT, overrides={"load.request_rate": None, "load.concurrency": [4, 32.5]})
    with pytest.raises(UsageError, match=r"32.5 concurrent requests: .* give load.concurrency"):
        advise(chat, num_requests=10)


@pytest.mark.parametrize("asked", [[], [{"speculation.method": "none"}]])
def test_nothing_to_advise_on(asked: list[dict[str, Any]]) -> None:
    with pytest.raises(UsageError):
        advise([load_scenario(CHAT, overrides=one) for one in asked], num_requests=10)


def test_the_mean_over_time_is_that_of_the_arm(pair: Advice) -> None:
    for answer in pair.scenarios:
        assert answer.peak.mean == pytest.approx(answer.options[0].running, rel=0.03)
