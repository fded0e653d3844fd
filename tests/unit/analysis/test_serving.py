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
    """A step takes `fixed_s` + `per_sequence_s` per sequence + `per_prompt_token_s` per token.

    A prompt's token may cost `per_score_s` for each token before it.
    """

    fixed_s: float = 10e-3
    per_sequence_s: float = 0.1e-3
    per_prompt_token_s: float = 20e-6
    per_score_s: float = 0.0
    tokens_per_step: float = 1.0
    verify_tokens: float = 1.0
    prefill_tokens: float = 1000.0
    cached_tokens: float = 0.0
    shared_prefix_tokens: float = 0.0
    stages: float = 1.0
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 100_000
    sampled: bool = False
    budget: Cache = field(default_factory=Cache)

    def step(
        self,
        sequences: Any,
        context: Any,
        *,
        prefill_tokens: Any = 0.0,
        prefill_context: Any = 0.0,
        prefill_sequences: Any = 1.0,
    ) -> StepTime:
        seen = prefill_context + 0.5 * prefill_tokens / prefill_sequences
        time_s = (
            self.fixed_s
            + self.per_sequence_s * np.asarray(sequences, dtype=float)
            + (self.per_prompt_token_s + self.per_score_s * seen) * prefill_tokens
        )
        total = Cost(memory_s=time_s)
        return StepTime(total, Cost(), total, Cost(), self.tokens_per_step, self.verify_tokens)


def arm(**changes: Any) -> Any:
    return Line(**changes)


def test_mean_context_is_the_prompt_and_half_the_answer() -> None:
    assert mean_context(CHAT) == 1100.5


def test_a_prompt_is_cut_into_what_decodes_leave() -> None:
    # 512 - 4 x 28 = 400 tokens of room: 1000 tokens in three chunks, beside 27 others.
    narrow = arm(max_num_batched_tokens=512, verify_tokens=4.0)
    served = closed_loop(narrow, CHAT, np.array([28.0]))
    mixed = 10e-3 + 27 * 0.1e-3 + 1000 / 3 * 20e-6
    assert served.ttft_s == pytest.approx([3 * mixed + 12.8e-3 * 27 / 28])
    # Equation (10): 84 chunks on 203 steps, each alone.
    slot = 3 * mixed + 200 * 12.8e-3 + 27 * 3 * (mixed - 12.8e-3)
    assert served.output_tokens_per_s == pytest.approx([28 * 201 / slot])


def test_cached_prompts_cost_a_step() -> None:
    # One prompt token in a step of nine others and it: 10.9 ms and 20 us.
    served = closed_loop(arm(prefill_tokens=0.0), CHAT, np.array([10.0]))
    assert served.ttft_s == pytest.approx([10.92e-3 + 11e-3 * 9 / 10])
    assert served.output_tokens_per_s == pytest.approx([2010 / (10 * 10.92e-3 + 191 * 11e-3)])


def test_closed_loop_by_hand() -> None:
    served = closed_loop(arm(), CHAT, np.array([1.0, 10.0]))
    # One alone: 30 ms of prefill, 200 steps of 10.1 ms.
    # Ten: 30.9 ms, 200 steps of 11 ms, nine other prompts that each add 19.9 ms.
    slots = np.array([0.030 + 200 * 10.1e-3, 0.0309 + 200 * 11e-3 + 9 * 19.9e-3])
    assert served.output_tokens_per_s == pytest.approx(np.array([1, 10]) * 201 / slots)
    assert served.tpot_s == pytest.approx([10.1e-3, 11e-3 + 9 * 19.9e-3 / 200])
    assert served.itl_s == pytest.approx(served.tpot_s)
    assert served.ttft_s == pytest.approx([0.030, 0.0309 + 11e-3 * 9 / 10])


def test_speculation_divides_the_steps() -> None:
    off, on = arm(), arm(fixed_s=12e-3, tokens_per_step=2.5)
    served = closed_loop(on, CHAT, np.array([1.0]))
    slot = 0.032 + 200 / 2.5 * 12.1e-3
    assert served.output_tokens_per_s == pytest.approx([201 / slot])
    assert served.tpot_s == pytest.approx([12.1e-3 / 2.5])
    assert served.itl_s == pytest.approx([12.1e-3])
    # Equation (10) at one request in flight.
    plain = closed_loop(off, CHAT, np.array([1.0]))
    speed = served.output_tokens_per_s / plain.output_tokens_per_s
    assert speed == pytest.approx([(0.030 + 200 * 10.1e-3) / slot])


def test_prefill_hides_the_gain_of_short_answers() -> None:
    def speed(output_tokens: float) -> float:
        workload = Workload(input_tokens=1000, output_tokens=output_tokens)
        loads = np.array([64.0])
        off = closed_loop(arm(), workload, loads)
        on = closed_loop(arm(tokens_per_step=2.5), workload, loads)
        return float(np.asarray(on.output_tokens_per_s / off.output_tokens_per_s)[0])

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
    """L = C1 / (1 - rate C2) for a step that is a line: batch and step time (theory 11).

    All of the batch decode beside a prompt, which is not one of them. Who arrives at random finds
    the batch and is one more.
    """
    steps = 200 / on.tokens_per_step
    excess = 1000 * on.per_prompt_token_s
    c1, c2 = steps * (on.fixed_s + on.per_sequence_s), excess + steps * on.per_sequence_s
    latency = c1 / (1 - rate * c2)
    return rate * latency, latency / steps


@pytest.mark.parametrize("rate", [2.0, 4.0, 10.0, 20.0])
@pytest.mark.parametrize("tokens", [1.0, 2.5])
def test_open_loop_is_the_closed_form(rate: float, tokens: float) -> None:
    line = Line(tokens_per_step=tokens)
    curve = open_loop(arm(tokens_per_step=tokens), CHAT)
    batch, step_s = closed_form(rate, line)
    assert 1 < batch < 256
    assert curve.at(rate, curve.batches)[0] == pytest.approx(batch, rel=2e-3)
    assert curve.at(rate, curve.itl_s)[0] == pytest.approx(step_s, rel=2e-3)
    assert curve.at(rate, curve.tpot_s)[0] == pytest.approx(step_s / tokens, rel=2e-3)


def test_largest_stable_rate_is_where_the_batch_is_full() -> None:
    curve = open_loop(arm(max_num_seqs=64), CHAT)
    assert curve.limited_by == "max_num_seqs"
    full = 64 / (200 * (10e-3 + 6.4e-3) + 64 * 20e-3)
    assert float(curve.largest_stable_rate) == pytest.approx(full)
    assert np.isnan(curve.at(full * 1.01, curve.tpot_s)).all()
    assert np.isfinite(curve.at(full * 0.99, curve.tpot_s)).all()


def test_both_kinds_of_load_agree_at_one_request_in_flight() -> None:
    curve = open_loop(arm(), CHAT)
    alone = closed_loop(arm(), CHAT, np.array([1.0]))
    rarely = float(curve.rates[1])
    assert curve.at(rarely, curve.itl_s)[0] == pytest.approx(float(alone.itl_s[0]), rel=1e-3)
    # One that finds nobody waits for no step.
    assert curve.at(rarely, curve.ttft_s)[0] == pytest.approx(10e-3 + 1000 * 20e-6, rel=1e-3)
    assert float(alone.ttft_s[0]) == pytest.approx(30e-3, rel=1e-3)


def test_answers_of_one_token_have_a_time_per_token_in_an_open_loop() -> None:
    alone = Workload(input_tokens=1000, output_tokens=1)
    curve = open_loop(arm(), alone)
    # Prompts of 30 ms: at one a second the step is that of a request alone, 10.1 ms.
    assert curve.at(1.0, curve.itl_s)[0] == pytest.approx(10.1e-3, rel=0.1)


def test_prompts_come_one_at_a_time_while_they_are_fewer_than_steps() -> None:
    # 20 answers of 21 tokens: 20 prompts on 21 steps, one step without any.
    short = Workload(input_tokens=1000, output_tokens=21)
    served = closed_loop(arm(), short, np.array([20.0]))
    mixed = 10e-3 + 19 * 0.1e-3 + 20e-3
    assert served.output_tokens_per_s == pytest.approx([20 * 21 / (20 * mixed + 12e-3)])
    # The same as own prefill + N steps + those of the 19 others (equation 10).
    slot = mixed + 20 * 12e-3 + 19 * (mixed - 12e-3)
    assert served.output_tokens_per_s == pytest.approx([20 * 21 / slot])
    assert served.tpot_s == pytest.approx([(slot - mixed) / 20])


def test_prompts_share_steps_beyond() -> None:
    # 40 prompts on 5 steps, 4 of decoding and one of prefill each: eight prompts in a step beside
    # the 32 that decode. The law keeps up to 39 beside them, .4 % of these steps.
    short = Workload(input_tokens=1000, output_tokens=5)
    served = closed_loop(arm(), short, np.array([40.0]))
    mixed = 10e-3 + 32 * 0.1e-3 + 8 * 1000 * 20e-6
    assert served.output_tokens_per_s == pytest.approx([40 * 5 / (5 * mixed)], rel=5e-3)
    assert served.tpot_s == pytest.approx([mixed], rel=5e-3)
    assert served.ttft_s == pytest.approx([mixed + 14e-3 * 39 / 40], rel=5e-3)


def test_a_first_token_alone_is_all_prefill() -> None:
    # 64 x 512 tokens through 8192 at a time: four steps of 10 ms + 8192 x 20 us.
    alone = Workload(input_tokens=512, output_tokens=1)
    narrow = arm(prefill_tokens=512.0, max_num_batched_tokens=8192)
    served = closed_loop(narrow, alone, np.array([64.0]))
    mixed = 10e-3 + 8192 * 20e-6
    assert served.output_tokens_per_s == pytest.approx([64 / (4 * mixed)])
    # The largest rate of an open loop is the same: as many prompts as fit in every step.
    curve = open_loop(narrow, alone)
    assert curve.limited_by == "max_num_batched_tokens"
    assert float(curve.largest_stable_rate) == pytest.approx(16 / mixed, rel=5e-3)


def test_waiting_for_room_shows_before_the_first_token() -> None:
    # Two tokens each: 64 x (512 + 1) tokens need 4.01 steps of 8192, not two.
    two = Workload(input_tokens=512, output_tokens=2)
    narrow = arm(prefill_tokens=512.0, max_num_batched_tokens=8192)
    served = closed_loop(narrow, two, np.array([64.0]))
    steps = 64 * 513 / 8192
    # One of these steps decodes: 16 at a time, beside 8176 prompt tokens.
    mixed = 10e-3 + 64 / steps * 0.1e-3 + 64 * 512 / steps * 20e-6
    assert served.output_tokens_per_s == pytest.approx([128 / (steps * mixed)], rel=5e-3)
    assert served.tpot_s == pytest.approx([mixed], rel=5e-3)
    assert served.ttft_s == pytest.approx([(steps - 1) * mixed + 16.4e-3 * 63 / 64], rel=5e-3)


@pytest.mark.parametrize("output_tokens", [1, 2, 5, 64])
@pytest.mark.parametrize("verify_tokens", [1.0, 4.0])
def test_no_step_holds_more_prompt_tokens_than_it_has_room_for(
    output_tokens: int, verify_tokens: float
) -> None:
    # A step whose time is its prompt tokens alone: the prompt rate over it is at most the budget.
    counting = arm(
        fixed_s=1.0, per_sequence_s=0.0, per_prompt_token_s=0.0, prefill_tokens=512.0,
        max_num_batched_tokens=2048, verify_tokens=verify_tokens,
    )  # fmt: skip
    workload = Workload(input_tokens=512, output_tokens=output_tokens)
    loads = np.array([1.0, 16.0, 64.0, 256.0])
    served = closed_loop(counting, workload, loads)
    requests_per_step = served.output_tokens_per_s / output_tokens
    assert np.all(requests_per_step * 512 <= 2048 + 1e-6)
    # Little: the batch is what each request's steps hold.
    in_slot = served.batch / requests_per_step
    assert np.all(in_slot >= output_tokens - 1e-9)
    most = float(open_loop(counting, workload).largest_stable_rate)
    assert most * (512 + verify_tokens * (output_tokens - 1)) <= 2048 * 1.001


def test_several_prompts_per_step_in_an_open_loop() -> None:
    # Four steps of decoding: 100 requests in flight send 25 prompts into every step.
    short = Workload(input_tokens=1000, output_tokens=5)
    curve = open_loop(arm(), short)
    step_s = 10e-3 + 10.1e-3 + 25 * 1000 * 20e-6
    rate = 25 / step_s
    assert curve.at(rate, curve.batches)[0] == pytest.approx(100, rel=5e-3)
    assert curve.at(rate, curve.itl_s)[0] == pytest.approx(step_s, rel=5e-3)
    # A batch of 4 has one prompt in every step, of 2 in every other.
    half = 0.5 / (10.3e-3 + 0.5 * 20e-3)
    assert curve.at(half, curve.batches)[0] == pytest.approx(2, rel=5e-3)
    # Half of the steps take 10.3 ms and half 30.3: one that arrives at random meets
    # (10.3^2 + 30.3^2) / 2 / 20.3 = 25.23 ms, half of it still to come, unless nobody runs (e^-2);
    # as many as arrive in that time share its own step, 20 ms each.
    met = 25.23e-3 * (1 - np.exp(-2))
    ttft = 30.2e-3 + met / 2 + half * met * 20e-3
    assert curve.at(half, curve.ttft_s)[0] == pytest.approx(ttft, rel=5e-3)


def test_a_prompt_sees_what_is_before_it_however_it_is_cut() -> None:
    # 1 ns per score: 20,000 tokens see 10,000 each, in one step or in twenty.
    long = Workload(input_tokens=20_000, output_tokens=201)

    def own_s(budget: int) -> float:
        line = arm(prefill_tokens=20_000.0, per_score_s=1e-9, max_num_batched_tokens=budget)
        served = closed_loop(line, long, np.array([1.0]))
        return float(served.ttft_s[0])

    assert own_s(100_000) == pytest.approx(10e-3 + 0.4 + 0.2)
    # 999 of room a step for one decoding token: 21 chunks.
    assert own_s(1000) == pytest.approx(21 * 10e-3 + 0.4 + 0.2)


def burst_prefill_s(prompt: float, batch: float, budget: int, **changes: Any) -> float:
    """Return the time of a burst before its decoding: 200 undisturbed steps."""
    line = arm(
        prefill_tokens=prompt, per_score_s=1e-9, max_num_batched_tokens=budget, **changes
    )  # fmt: skip
    burst = Workload(input_tokens=prompt, output_tokens=201, arrival="burst")
    served = closed_loop(line, burst, np.array([batch]))
    whole_s = batch * 201 / float(np.asarray(served.output_tokens_per_s)[0])
    return whole_s - 200 * (10e-3 + batch * 0.1e-3)


def test_short_prompts_of_a_burst_share_a_step() -> None:
    # Ten of 1000 in three steps of 4000; each token sees half of its own prompt, 500.
    assert burst_prefill_s(1000, 10, 4000) == pytest.approx(3 * 10e-3 + 10_000 * (20e-6 + 500e-9))


def test_a_long_prompt_of_a_burst_sees_its_earlier_chunks() -> None:
    # Two of 20,000 in five steps of 8000; each token sees half of its own prompt, 10,000.
    assert burst_prefill_s(20_000, 2, 8000) == pytest.approx(5 * 10e-3 + 40_000 * (20e-6 + 1e-5))
    # Behind 4000 cached ones: 4000 more.
    assert burst_prefill_s(20_000, 2, 8000, cached_tokens=4000.0) == pytest.approx(
        5 * 10e-3 + 40_000 * (20e-6 + 1.4e-5)
    )


def test_the_rarest_request_is_alone() -> None:
    # Two tokens after a long prompt: .005 in flight is 17 % of the time in prefill.
    short = Workload(input_tokens=20_000, output_tokens=2)
    curve = open_loop(arm(prefill_tokens=20_000.0), short)
    assert curve.at(1e-6, curve.itl_s)[0] == pytest.approx(10.1e-3, rel=1e-3)
    assert curve.at(1e-6, curve.batches)[0] < 1e-4


@pytest.mark.parametrize("stages", [1.0, 2.0, 4.0])
def test_prompts_pass_through_pipeline_stages_side_by_side(stages: float) -> None:
    # 16 prompts of 20 ms for 16 answers of 101 tokens, N = 100 steps of 11.6 ms: one's own prompt
    # takes 20 ms more than a step, each of the 15 others delays it by one stage's share.
    line = arm(stages=stages)
    chat = Workload(input_tokens=1000, output_tokens=101)
    got = closed_loop(line, chat, np.array([16.0]))
    slot_s = 101 * 11.6e-3 + 20e-3 * (16 / stages + (1 - 1 / stages))
    # The mixed step has the sequences that are not in a prefill of their own, so a little less.
    assert got.output_tokens_per_s[0] == pytest.approx(16 * 101 / slot_s, rel=2e-3)


def test_an_open_loop_and_a_burst_count_stages_too() -> None:
    # Prompts only, nearly: S stages take S times as many.
    short = Workload(input_tokens=1000, output_tokens=2)
    one, four = (
        float(np.max(open_loop(arm(stages=s, fixed_s=1e-6, per_sequence_s=1e-7), short).rates))
        for s in (1.0, 4.0)
    )
    assert four == pytest.approx(4 * one, rel=0.05)
    burst = Workload(input_tokens=1000, output_tokens=2, arrival="burst", num_requests=64)
    served = [
        closed_loop(arm(stages=s, max_num_batched_tokens=1000), burst, np.array([64.0])).ttft_s[0]
        for s in (1.0, 4.0)
    ]
    # 64 steps of a prompt each, one after the other, or over four stages: 67 quarters.
    assert served[1] / served[0] == pytest.approx(67 / 4 / 64)
