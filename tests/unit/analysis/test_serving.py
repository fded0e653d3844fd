"""Loads on an arm whose step is a line, so that every answer has a closed form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from specsim.analysis.arms import StepTime
from specsim.analysis.serving import (
    closed_loop,
    largest_batch,
    mean_context,
    open_loop,
    prefill,
    throughput_speedup,
)
from specsim.physics.cost import Cost
from specsim.schema.scenario import Workload

CHAT = Workload(input_tokens=1000, output_tokens=201)


@dataclass
class Cache:
    tokens: float = 1e12

    def sequences_that_fit(self, tokens: float, *, shared_prefix_tokens: float = 0.0) -> float:
        return self.tokens / tokens


@dataclass
class Line:
    """A step takes `fixed_s` + `per_sequence_s` per sequence + `per_prompt_token_s` per token."""

    fixed_s: float = 10e-3
    per_sequence_s: float = 0.1e-3
    per_prompt_token_s: float = 20e-6
    tokens: float = 1.0
    verify_tokens: float = 1.0
    prefill_tokens: float = 1000.0
    cached_tokens: float = 0.0
    shared_prefix_tokens: float = 0.0
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 100_000
    budget: Cache = field(default_factory=Cache)

    def step(
        self, sequences: Any, context: Any, *, prefill_tokens: Any = 0.0, prefill_context: Any = 0.0
    ) -> StepTime:
        time_s = (
            self.fixed_s
            + self.per_sequence_s * np.asarray(sequences, dtype=float)
            + self.per_prompt_token_s * prefill_tokens
        )
        total = Cost(memory_s=time_s)
        return StepTime(total, Cost(), total, Cost(), self.tokens, self.verify_tokens)

    def prefill_step(self, sequences: Any, context: Any, *, tokens: Any, offset: Any) -> Any:
        return self.step(sequences, context, prefill_tokens=tokens).total.total_s


def arm(**changes: Any) -> Any:
    return Line(**changes)


def test_mean_context_is_the_prompt_and_half_the_answer() -> None:
    assert mean_context(CHAT) == 1100.5


def test_one_prompt_by_hand() -> None:
    # 9 others riding along: 10 ms + .9 ms + 20 ms; without the prompt a step of ten takes 11 ms.
    found = prefill(arm(), CHAT, 10.0, 11e-3)
    assert float(found.own_s) == pytest.approx(30.9e-3)
    assert float(found.excess_s) == pytest.approx(19.9e-3)


def test_a_prompt_is_cut_into_what_decodes_leave() -> None:
    # 512 - 4 x 28 = 400 tokens of room: 1000 tokens in three chunks.
    narrow = arm(max_num_batched_tokens=512, verify_tokens=4.0)
    found = prefill(narrow, CHAT, 28.0, narrow.step(28.0, 1.0).total.total_s)
    mixed = 10e-3 + 27 * 0.1e-3 + 1000 / 3 * 20e-6
    assert float(found.own_s) == pytest.approx(3 * mixed)
    assert float(found.excess_s) == pytest.approx(3 * (mixed - 12.8e-3))


def test_cached_prompts_cost_a_step() -> None:
    found = prefill(arm(prefill_tokens=0.0), CHAT, 10.0, 11e-3)
    assert (float(found.own_s), float(found.excess_s)) == (11e-3, 0.0)


def test_closed_loop_by_hand() -> None:
    served = closed_loop(arm(), CHAT, np.array([1.0, 10.0]))
    # One alone: 30 ms of prefill, 200 steps of 10.1 ms.
    # Ten: 30.9 ms, 200 steps of 11 ms, nine other prompts that each add 19.9 ms.
    slots = np.array([0.030 + 200 * 10.1e-3, 0.0309 + 200 * 11e-3 + 9 * 19.9e-3])
    assert served.output_tokens_per_s == pytest.approx(np.array([1, 10]) * 201 / slots)
    assert served.tpot_s == pytest.approx([10.1e-3, 11e-3 + 9 * 19.9e-3 / 200])
    assert served.itl_s == pytest.approx(served.tpot_s)
    assert served.ttft_s == pytest.approx([0.030 + 10.1e-3 / 2, 0.0309 + 11e-3 / 2])


def test_speculation_divides_the_steps() -> None:
    off, on = arm(), arm(fixed_s=12e-3, tokens=2.5)
    served = closed_loop(on, CHAT, np.array([1.0]))
    slot = 0.032 + 200 / 2.5 * 12.1e-3
    assert served.output_tokens_per_s == pytest.approx([201 / slot])
    assert served.tpot_s == pytest.approx([12.1e-3 / 2.5])
    assert served.itl_s == pytest.approx([12.1e-3])
    # Equation (10) at one request in flight.
    speed = throughput_speedup(closed_loop(off, CHAT, np.array([1.0])), served)
    assert speed == pytest.approx([(0.030 + 200 * 10.1e-3) / slot])


def test_prefill_hides_the_gain_of_short_answers() -> None:
    def speed(output_tokens: float) -> float:
        workload = Workload(input_tokens=1000, output_tokens=output_tokens)
        loads = np.array([64.0])
        off = closed_loop(arm(), workload, loads)
        on = closed_loop(arm(tokens=2.5), workload, loads)
        return float(throughput_speedup(off, on)[0])

    assert 1.0 < speed(16) < speed(64) < speed(2000) < 2.5


@pytest.mark.parametrize(
    ("cache", "seqs", "expected"),
    [
        (1e12, 8, (8.0, "max_num_seqs")),
        (1100.5 * 5.7, 8, (5.0, "kv")),
        (300.0, 8, (1.0, "kv")),
    ],
)
def test_what_caps_the_batch(cache: float, seqs: int, expected: tuple[float, str]) -> None:
    assert largest_batch(arm(budget=Cache(cache), max_num_seqs=seqs), CHAT) == expected


def test_verified_rows_share_the_token_budget_of_a_step() -> None:
    # vLLM: each decode request takes 1 + k of max_num_batched_tokens.
    wide = arm(max_num_batched_tokens=2048, verify_tokens=16.0)
    assert largest_batch(wide, CHAT)[0] == 128.0


def test_requests_of_a_burst_are_all_long_at_the_end() -> None:
    capped = arm(budget=Cache(1201 * 5.0))
    assert largest_batch(capped, CHAT.model_copy(update={"arrival": "burst"})) == (5.0, "kv")


def test_what_does_not_fit_waits() -> None:
    capped = arm(max_num_seqs=10)
    served = closed_loop(capped, CHAT, np.array([10.0, 30.0]))
    assert served.batch.tolist() == [10.0, 10.0]
    assert served.limited_by.tolist() == ["load", "max_num_seqs"]
    assert served.output_tokens_per_s[0] == pytest.approx(served.output_tokens_per_s[1])
    # Little: 20 wait for a place, and 10 leave per time in a slot.
    slot = 10 * 201 / served.output_tokens_per_s[0]
    assert served.ttft_s[1] - served.ttft_s[0] == pytest.approx(2 * slot)


def test_burst_prefills_in_waves_and_decodes_undisturbed() -> None:
    burst = CHAT.model_copy(update={"arrival": "burst", "num_requests": 25})
    served = closed_loop(arm(), burst, np.array([10.0]))
    # 10,000 prompt tokens in one step of 10 + 200 ms, then 200 steps of 11 ms; the last wave has
    # five requests.
    wave, rest = 0.210 + 200 * 11e-3, 0.110 + 200 * 10.5e-3
    assert served.output_tokens_per_s == pytest.approx([25 * 201 / (2 * wave + rest)])
    assert served.tpot_s == pytest.approx([11e-3])


def closed_form(rate: float, on: Line) -> tuple[float, float]:
    """L = C1 / (1 - rate C2) for a step that is a line: batch and step time (theory 11)."""
    steps = 200 / on.tokens
    excess = 1000 * on.per_prompt_token_s - on.per_sequence_s
    c1, c2 = steps * on.fixed_s, excess + steps * on.per_sequence_s
    latency = c1 / (1 - rate * c2)
    return rate * latency, latency / steps


@pytest.mark.parametrize("rate", [2.0, 4.0, 10.0, 20.0])
@pytest.mark.parametrize("tokens", [1.0, 2.5])
def test_open_loop_is_the_closed_form(rate: float, tokens: float) -> None:
    line = Line(tokens=tokens)
    curve = open_loop(arm(tokens=tokens), CHAT)
    batch, step_s = closed_form(rate, line)
    assert 1 < batch < 256
    assert curve.at(rate, curve.batches)[0] == pytest.approx(batch, rel=2e-3)
    assert curve.at(rate, curve.itl_s)[0] == pytest.approx(step_s, rel=2e-3)
    assert curve.at(rate, curve.tpot_s)[0] == pytest.approx(step_s / tokens, rel=2e-3)


def test_largest_stable_rate_is_where_the_batch_is_full() -> None:
    curve = open_loop(arm(max_num_seqs=64), CHAT)
    assert curve.limited_by == "max_num_seqs"
    full = 64 / (200 * (10e-3 + 6.4e-3) + 64 * 19.9e-3)
    assert float(curve.largest_stable_rate) == pytest.approx(full)
    assert np.isnan(curve.at(full * 1.01, curve.tpot_s)).all()
    assert np.isfinite(curve.at(full * 0.99, curve.tpot_s)).all()


def test_both_kinds_of_load_agree_at_one_request_in_flight() -> None:
    curve = open_loop(arm(), CHAT)
    alone = closed_loop(arm(), CHAT, np.array([1.0]))
    rarely = float(curve.rates[1])
    assert curve.at(rarely, curve.itl_s)[0] == pytest.approx(float(alone.itl_s[0]), rel=1e-3)
    assert curve.at(rarely, curve.ttft_s)[0] == pytest.approx(float(alone.ttft_s[0]), rel=1e-3)


def test_answers_of_one_token_have_a_time_per_token_in_an_open_loop() -> None:
    alone = Workload(input_tokens=1000, output_tokens=1)
    curve = open_loop(arm(), alone)
    # Prompts of 30 ms: at one a second the step is that of a request alone, 10.1 ms.
    assert curve.at(1.0, curve.itl_s)[0] == pytest.approx(10.1e-3, rel=0.1)


def test_the_rarest_request_is_alone() -> None:
    # Two tokens after a long prompt: .005 in flight is 17 % of the time in prefill.
    short = Workload(input_tokens=20_000, output_tokens=2)
    curve = open_loop(arm(prefill_tokens=20_000.0), short)
    assert curve.at(1e-6, curve.itl_s)[0] == pytest.approx(10.1e-3, rel=1e-3)
    assert curve.at(1e-6, curve.batches)[0] < 1e-4
