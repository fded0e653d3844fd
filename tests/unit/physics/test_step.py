from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim.physics.forward import Gemm, Head, Layer, Network, SoftmaxAttention
from specsim.physics.kernels import AttentionRates, GemmRates
from specsim.physics.step import (
    DraftPlan,
    Overheads,
    baseline_step,
    draft_cost,
    graph_rows,
    speculative_step,
    target_pass,
)

# A matrix takes a second per row, whatever its size: a pass takes as long as it has rows.
PER_ROW = GemmRates(launch_s=0.0, bytes_per_s=1e30, flop_per_s=2.0, sharpness=1.0)
UNIT = Gemm(out_features=1.0, in_features=1.0, weight_bytes=1.0, rates=PER_ROW)
NO_OVERHEADS = Overheads(
    piecewise_layer_s=0.0,
    draft_eager_layer_s=0.0,
    speculative_per_sequence_host_s=0.0,
    host_s=0.0, per_sequence_host_s=0.0, speculative_host_s=0.0, proposer_host_s=0.0,
    draft_host_s=0.0, eager_layer_s=0.0, max_graph_tokens=0.0,
)  # fmt: skip


def network(*, layers: float = 1.0, head: bool = False) -> Network:
    return Network(
        layers=(Layer(count=layers, gemms=(UNIT,), attention=None, experts=None),),
        head=Head(gemm=UNIT, vocab_size=0.0, fixed_s=0.0) if head else None,
        hidden_size=0.0,
        elementwise_kernels=0.0,
        elementwise_launch_s=0.0,
        stream_bytes_per_s=1e30,
    )


def draft_s(plan: DraftPlan, k: Any, overheads: Overheads = NO_OVERHEADS, **changes: Any) -> Any:
    arguments: dict[str, Any] = {"sequences": 10.0, "context": 1.0} | changes
    return draft_cost(plan, overheads, num_speculative_tokens=k, **arguments).total_s


@pytest.mark.parametrize(
    ("rows", "padded"),
    [
        (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (9, 16), (248, 248), (249, 256), (256, 256),
        (257, 272), (496, 496), (500, 512), (512, 512), (513, 513), (4096, 4096),
    ],
)  # fmt: skip
def test_captured_sizes_of_vllm(rows: int, padded: int) -> None:
    # 1, 2, 4, multiples of 8 to 256, of 16 to 512.
    assert float(graph_rows(rows, 512)) == padded


def test_nothing_is_padded_without_graphs() -> None:
    assert graph_rows(np.array([1.0, 3.0, 300.0]), 0).tolist() == [1.0, 3.0, 300.0]


def test_a_fraction_of_a_sequence_fills_a_graph() -> None:
    assert float(graph_rows(0.25, 512)) == 1.0


def test_baseline_adds_host_time() -> None:
    overheads = replace(NO_OVERHEADS, host_s=3.0, per_sequence_host_s=0.5, speculative_host_s=99.0)
    step = baseline_step(network(), overheads, sequences=10.0, context=1.0)
    assert float(step.compute_s) == pytest.approx(10.0)
    assert float(step.host_s) == pytest.approx(8.0)


def test_passes_beyond_the_largest_graph_wait_for_launches() -> None:
    overheads = replace(NO_OVERHEADS, max_graph_tokens=16.0, eager_layer_s=100.0)
    inside, outside = (
        target_pass(network(layers=4.0), overheads, sequences=n, query_tokens=4.0, context=1.0)
        for n in (4.0, 5.0)
    )
    assert float(inside.total_s) == pytest.approx(4 * 16)
    assert float(outside.total_s) == pytest.approx(4 * 100)
    assert float(outside.compute_s) == pytest.approx(4 * 20)


def test_a_prompt_chunk_counts_towards_the_limit_of_graphs() -> None:
    overheads = replace(NO_OVERHEADS, max_graph_tokens=16.0, eager_layer_s=100.0)
    step = target_pass(
        network(), overheads, sequences=4.0, query_tokens=1.0, context=1.0, prefill_tokens=13.0
    )
    assert float(step.total_s) == pytest.approx(100.0)


def test_autoregressive_drafter_repeats_the_step_then_runs_single_rows() -> None:
    # vllm_facts section 6: n (1 + k) rows, then k - 1 passes of n.
    plan = DraftPlan(network=network())
    assert float(draft_s(plan, 4.0)) == pytest.approx(10 * 5 + 3 * 10)
    assert float(draft_s(plan, 1.0)) == pytest.approx(10 * 2)


def test_its_head_runs_on_one_row_per_pass() -> None:
    plan = DraftPlan(network=network(head=True))
    assert float(draft_s(plan, 4.0)) == pytest.approx((10 * 5 + 3 * 10) + 4 * 10)


def test_draft_model_also_runs_the_bonus_token() -> None:
    plan = DraftPlan(network=network(), first_rows=(2.0, 1.0))
    assert float(draft_s(plan, 4.0)) == pytest.approx(10 * 6 + 3 * 10)


def test_parallel_drafter_runs_one_pass() -> None:
    plan = DraftPlan(
        network=network(head=True), first_rows=(1.0, 1.0), first_head_rows=(0.0, 1.0),
        later_passes=(0.0, 0.0),
    )  # fmt: skip
    assert float(draft_s(plan, 7.0)) == pytest.approx(10 * 8 + 10 * 7)


def test_branches_widen_the_later_passes() -> None:
    plan = DraftPlan(network=network(), later_rows=4.0)
    assert float(draft_s(plan, 3.0)) == pytest.approx(10 * 4 + 2 * 40)


def test_small_matrices_run_once_per_draft_token() -> None:
    plan = DraftPlan(network=None, per_token=(UNIT, UNIT))
    assert float(draft_s(plan, 5.0)) == pytest.approx(2 * 10 * 5)


def test_eager_drafter_waits_for_every_layer_of_every_pass() -> None:
    overheads = replace(NO_OVERHEADS, draft_eager_layer_s=1000.0, draft_host_s=1.0)
    plan = DraftPlan(network=network(layers=2.0), eager=True)
    assert float(draft_s(plan, 3.0, overheads)) == pytest.approx(3 * (2 * 1000 + 1))


def test_prompts_are_prefilled_by_the_drafter_once() -> None:
    plan = DraftPlan(network=network())
    more = draft_s(plan, 4.0, prefill_tokens=100.0) - draft_s(plan, 4.0)
    assert float(more) == pytest.approx(100.0)


def test_a_block_drafter_only_stores_a_prompt() -> None:
    # Two matrices (fusion, keys and values) see the prompt; the ten layers do not.
    plan = DraftPlan(
        network=network(layers=10.0), later_passes=(0.0, 0.0), context_only=True,
        context_gemms=(UNIT, UNIT),
    )  # fmt: skip
    more = draft_s(plan, 4.0, prefill_tokens=100.0) - draft_s(plan, 4.0)
    assert float(more) == pytest.approx(2 * 100.0)
    assert float(draft_s(plan, 4.0)) == pytest.approx(10 * 10 * 5)
    # With or without matrices of its own to run on the prompt.
    bare = replace(plan, context_gemms=())
    assert float(draft_s(bare, 4.0, prefill_tokens=100.0)) == pytest.approx(10 * 10 * 5)


def test_chunks_of_many_prompts_reach_target_and_drafter() -> None:
    seeing = SoftmaxAttention(
        window=None, tokens_per_entry=1.0, topk=None, entry_bytes=0.0, flop_per_score=0.0,
        prefill_flop_per_score=1.0, query_group=1.0,
        rates=AttentionRates(0.0, 0.0, 1.0, 1.0, 1.0), prefill_lengths=(1.0, 2.0),
        prefill_flop_per_s=(1.0, 1.0),
    )  # fmt: skip
    attending = replace(
        network(), layers=(Layer(count=1.0, gemms=(), attention=seeing, experts=None),)
    )
    step = speculative_step(
        attending, DraftPlan(network=attending), NO_OVERHEADS, sequences=0.0,
        num_speculative_tokens=1.0, verify_tokens=2.0, context=1.0, prefill_tokens=100.0,
        prefill_context=30.0, prefill_sequences=5.0,
    )  # fmt: skip
    # Five prompts of 20 after 30 cached: 40 seen on average.
    assert float(step.verify.compute_s) == pytest.approx(100 * 40)
    assert float(step.draft.compute_s) == pytest.approx(100 * 40)
    plain = baseline_step(
        attending, NO_OVERHEADS, sequences=0.0, context=1.0, prefill_tokens=100.0,
        prefill_context=30.0, prefill_sequences=5.0,
    )  # fmt: skip
    assert float(plain.compute_s) == pytest.approx(100 * 40)


def test_k_may_be_an_array() -> None:
    plan = DraftPlan(network=network())
    assert draft_s(plan, np.array([1.0, 2.0, 4.0])) == pytest.approx([20.0, 40.0, 80.0])


def test_speculative_step_by_phase() -> None:
    overheads = replace(
        NO_OVERHEADS, host_s=1.0, per_sequence_host_s=0.1, speculative_host_s=2.0,
        proposer_host_s=4.0,
    )  # fmt: skip
    step = speculative_step(
        network(),
        DraftPlan(network=network()),
        overheads,
        sequences=10.0,
        num_speculative_tokens=4.0,
        verify_tokens=5.0,
        context=1.0,
    )
    assert float(step.verify.total_s) == pytest.approx(50.0)
    assert float(step.draft.total_s) == pytest.approx(80.0)
    assert float(step.host.total_s) == pytest.approx(8.0)
    assert float(step.total.total_s) == pytest.approx(138.0)


def test_nothing_drafts_on_the_device_for_prompt_lookup() -> None:
    assert DraftPlan(network=None).network is None
    assert draft_cost(
        DraftPlan(network=None), NO_OVERHEADS, sequences=8.0, num_speculative_tokens=4.0,
        context=1.0,
    ).total_s == 0.0  # fmt: skip


def test_eagle3_fuses_the_targets_states_once() -> None:
    fusing = DraftPlan(network=replace(network(), before=(UNIT,)))
    # Ten sequences, k = 4: 50 rows in the first pass and 3 x 10 later, each through both matrices.
    assert draft_s(fusing, 4) == pytest.approx(2 * (50 + 30))
    assert draft_s(replace(fusing, fuses_once=True), 4) == pytest.approx(2 * 50 + 30)
