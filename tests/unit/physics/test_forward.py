"""A network small enough to add up by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specsim.physics.forward import (
    Experts,
    Gemm,
    Head,
    Layer,
    LinearState,
    Network,
    SoftmaxAttention,
    forward,
)
from specsim.physics.kernels import AllReduceTable, AttentionRates, GemmRates, MoeRates

# Reading costs a second per byte, everything else is free: the times are byte counts.
COUNT_BYTES = GemmRates(launch_s=0.0, bytes_per_s=1.0, flop_per_s=1e30, sharpness=2.0)
ATTENTION = SoftmaxAttention(
    window=None,
    tokens_per_entry=1.0,
    topk=None,
    entry_bytes=16.0,
    flop_per_score=1.0,
    prefill_flop_per_score=4.0,
    query_group=1.0,
    rates=AttentionRates(0.0, 0.0, 1.0, bytes_per_s=1.0, flop_per_s=1e30),
    prefill_lengths=(512.0, 1024.0),
    prefill_flop_per_s=(1.0, 2.0),
)
MATRIX = Gemm(out_features=8.0, in_features=4.0, weight_bytes=2.0, rates=COUNT_BYTES)
HEAD = Head(gemm=replace(MATRIX, out_features=32.0), vocab_size=32.0, fixed_s=7.0)
# A reduction takes a second per byte.
PER_BYTE = AllReduceTable(message_bytes=(1.0, 1e9), time_s=(1.0, 1e9), skew_s=0.0)
LAYER = Layer(count=3.0, gemms=(MATRIX,), attention=ATTENTION, experts=None)
TABLE = AllReduceTable(message_bytes=(1.0, 1e9), time_s=(5.0, 5.0), skew_s=0.5)


def network(**changes: Any) -> Network:
    parts: dict[str, Any] = {
        "layers": (LAYER,),
        "head": None,
        "hidden_size": 4.0,
        "elementwise_kernels": 0.0,
        "elementwise_launch_s": 0.0,
        "stream_bytes_per_s": 1e30,
    } | changes
    return Network(**parts)


def cost(net: Network, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "sequences": 2.0, "query_tokens": 3.0, "context": 100.0, "head_rows": 6.0,
    } | changes  # fmt: skip
    return forward(net, **arguments)


def test_layers_add_up() -> None:
    one = cost(network())
    # Per layer: 8 x 4 weights of 2 bytes, 6 rows of 4 in and 8 out, 2 bytes each.
    assert float(one.memory_s) == pytest.approx(3 * (64 + 6 * 8 + 6 * 16))
    # Per layer: two sequences of 100 entries, once for all three query tokens.
    assert float(one.kv_s) == pytest.approx(3 * 2 * 100 * 16)


def test_padding_counts_for_matrices_only() -> None:
    padded = cost(network(), padded_rows=8.0)
    assert float(padded.memory_s) == pytest.approx(3 * (64 + 8 * 8 + 8 * 16))
    assert float(padded.kv_s) == pytest.approx(3 * 2 * 100 * 16)
    fewer = cost(network(), padded_rows=1.0)
    assert float(fewer.memory_s) == pytest.approx(float(cost(network()).memory_s))


def test_head_runs_on_its_own_rows() -> None:
    with_head = cost(network(head=HEAD), head_rows=2.0)
    extra = float(with_head.memory_s) - float(cost(network()).memory_s)
    assert extra == pytest.approx(32 * 4 * 2 + 2 * 8 + 2 * 64)
    assert float(with_head.host_s) == pytest.approx(7.0)


def test_two_reductions_per_layer_and_one_gather_for_the_head() -> None:
    reduced = cost(network(table=TABLE, head=HEAD))
    assert float(reduced.communication_s) == pytest.approx((3 * 2 + 1) * 5.5)
    assert float(cost(network(head=HEAD)).communication_s) == 0.0


def test_every_rank_samples_the_whole_vocabulary() -> None:
    # Four ranks: eight columns each, but softmax over all 32 logits: 12 bytes each, six rows.
    split = replace(HEAD, gemm=replace(MATRIX, out_features=8.0))
    slow = network(stream_bytes_per_s=1.0)
    extra = float(cost(replace(slow, head=split)).memory_s) - float(cost(slow).memory_s)
    assert extra == pytest.approx((64 + 6 * 8 + 6 * 16) + 6 * 32 * 12)
    # A drafter takes the largest of 16-bit logits.
    argmax = replace(split, bytes_per_logit=2.0)
    fewer = float(cost(replace(slow, head=argmax)).memory_s) - float(cost(slow).memory_s)
    assert fewer == pytest.approx((64 + 6 * 8 + 6 * 16) + 6 * 32 * 2)


def test_gathering_logits_moves_half_of_reducing_them() -> None:
    # Six rows: twice per layer 4 features of 2 bytes; once 32 logits of 2 bytes, halved.
    reduced = cost(network(table=PER_BYTE, head=HEAD))
    assert float(reduced.communication_s) == pytest.approx(3 * 2 * 6 * 4 * 2 + 6 * 32)


def test_stages_add_a_hop_between_neighbours() -> None:
    assert float(cost(network(stages=4.0, stage_hop_s=2.0)).communication_s) == pytest.approx(6.0)


def test_fusing_projection_runs_once() -> None:
    fused = cost(network(before=(MATRIX,)))
    extra = float(fused.memory_s) - float(cost(network()).memory_s)
    assert extra == pytest.approx(64 + 6 * 8 + 6 * 16)


@pytest.mark.parametrize(
    ("window", "tokens_per_entry", "topk", "read", "scored"),
    [
        (None, 1.0, None, 1000.0, 1000.0),  # full
        (128.0, None, None, 128.0, 128.0),  # sliding window
        (2000.0, None, None, 1000.0, 1000.0),  # window longer than the context
        (None, 1.0, 64.0, 192.0, 64.0),  # sparse: three queries may choose apart
        (None, 1.0, 900.0, 1000.0, 900.0),  # never more than there are
        (128.0, 4.0, None, 378.0, 378.0),  # window and a compressed long range
        (128.0, 4.0, 50.0, 278.0, 178.0),
    ],
)
def test_entries_read_and_scored(
    window: float | None,
    tokens_per_entry: float | None,
    topk: float | None,
    read: float,
    scored: float,
) -> None:
    a = replace(ATTENTION, window=window, tokens_per_entry=tokens_per_entry, topk=topk)
    found = a.entries(1000.0, 3.0)
    assert [float(x) for x in found] == [read, scored]


def test_prompt_reaches_the_rate_of_its_length() -> None:
    def compute_s(tokens: float) -> float:
        riding = cost(network(), prefill_tokens=tokens)
        return float(riding.compute_s) - float(cost(network()).compute_s)

    # 3 layers x tokens x tokens / 2 scores x 4 FLOP, at 1 FLOP/s for 512 and 2 for 1024.
    assert compute_s(512) == pytest.approx(3 * 512 * 256 * 4 / 1, rel=1e-6)
    assert compute_s(1024) == pytest.approx(3 * 1024 * 512 * 4 / 2, rel=1e-6)


def prompt_s(a: SoftmaxAttention, tokens: float, **changes: float) -> float:
    """Return the compute time of a prompt in three layers, without any decoding beside it."""
    net = network(layers=(replace(LAYER, attention=a),))
    arguments = {"sequences": 0.0, "context": 1.0, "prefill_tokens": tokens} | changes
    return float(cost(net, **arguments).compute_s)


def test_prompts_that_share_a_pass_see_only_themselves() -> None:
    # Two of 512: each token sees 256 on average, at the rate of prompts of 512.
    two = prompt_s(ATTENTION, 1024, prefill_sequences=2.0)
    assert two == pytest.approx(2 * prompt_s(ATTENTION, 512), rel=1e-6)
    assert two == pytest.approx(3 * 1024 * 256 * 4 / 1, rel=1e-6)


def test_a_later_chunk_sees_the_earlier_ones() -> None:
    # 512 after 512: 768 on average, at the rate of 1024. Both chunks: the scores of the whole.
    later = prompt_s(ATTENTION, 512, prefill_context=512.0)
    assert later == pytest.approx(3 * 512 * 768 * 4 / 2, rel=1e-6)
    scores = prompt_s(ATTENTION, 512) * 1 + later * 2
    assert scores == pytest.approx(3 * 1024 * 512 * 4, rel=1e-6)


def test_a_prompt_in_a_window() -> None:
    # Up to token 128 the mean is 64, the other 896 see 128: 120 on average; all 128 later on.
    sliding = replace(ATTENTION, window=128.0, tokens_per_entry=None)
    assert prompt_s(sliding, 1024) == pytest.approx(3 * 1024 * 120 * 4 / 2, rel=1e-6)
    later = prompt_s(sliding, 1024, prefill_context=4096.0)
    assert later == pytest.approx(3 * 1024 * 128 * 4 / 2, rel=1e-6)


def test_a_prompt_over_compressed_entries() -> None:
    # 256 entries behind 1024 tokens, 128 on average; of 50 chosen: (50 x 25 + 206 x 50) / 256.
    compressed = replace(ATTENTION, window=128.0, tokens_per_entry=4.0)
    assert prompt_s(compressed, 1024) == pytest.approx(3 * 1024 * (120 + 128) * 4 / 2, rel=1e-6)
    chosen = replace(compressed, topk=50.0)
    seen = 120 + (50 * 25 + 206 * 50) / 256
    assert prompt_s(chosen, 1024) == pytest.approx(3 * 1024 * seen * 4 / 2, rel=1e-6)


def test_a_sparse_prompt_scores_every_index_key() -> None:
    # Beside the 50 chosen: four heads of 8 over the 512 entries before a token on average.
    sparse = replace(ATTENTION, topk=50.0, index_key_bytes=1.0, index_heads=4.0, index_head_dim=8.0)
    seen = (50 * 25 + 974 * 50) / 1024
    flop = 1024 * (seen * 4 + 512 * 2 * 4 * 8)
    assert prompt_s(sparse, 1024) == pytest.approx(3 * flop / 2, rel=1e-6)
    # Layers that reuse the choice of another scan nothing.
    shared = replace(sparse, index_key_bytes=0.0)
    assert prompt_s(shared, 1024) == pytest.approx(3 * 1024 * seen * 4 / 2, rel=1e-6)


def test_small_kernels_grow_with_few_rows_in_every_layer() -> None:
    growing = network(elementwise_growth_s=0.5)
    # Six rows in three layers, and padded to eight.
    assert float(cost(growing).host_s) == pytest.approx(3 * 6 * 0.5)
    assert float(cost(growing, padded_rows=8.0).host_s) == pytest.approx(3 * 8 * 0.5)
    assert float(cost(growing, prefill_tokens=1000.0).host_s) == pytest.approx(3 * 128 * 0.5)


def test_recurrent_state_is_read_and_written() -> None:
    state = LinearState(
        state_bytes=50.0, launch_s=1.0, bytes_per_s=1.0, prefill_flop_per_token=10.0,
        prefill_flop_per_s=2.0,
    )  # fmt: skip
    recurrent = network(layers=(replace(LAYER, attention=state),))
    one = cost(recurrent, prefill_tokens=7.0)
    assert float(one.kv_s) == pytest.approx(3 * 2 * 2 * 50 * (1 + 3) / 2)
    assert float(one.compute_s) == pytest.approx(3 * 7 * 10 / 2)
    assert float(cost(recurrent, context=1e6).kv_s) == pytest.approx(float(one.kv_s))


def test_expert_parallel_ranks_sum_as_tensor_parallel_ones_do() -> None:
    # vLLM exchanges tokens between ranks only with data parallelism.
    experts = Experts(
        hidden_size=4.0, intermediate_size=2.0, n_experts=8.0, topk=2.0, weight_bytes=1.0,
        expert_groups=2.0, rates=MoeRates(0.0, 0.0, 1e30, 1e30, 1.0, 1.0, 1.0),
    )  # fmt: skip
    spread = cost(network(layers=(replace(LAYER, experts=experts),), table=TABLE))
    assert float(spread.communication_s) == pytest.approx(3 * 2 * 5.5)


@pytest.mark.parametrize(("context", "read"), [(100.0, 100.0), (128.0, 128.0), (4096.0, 64.0)])
def test_a_chunk_that_is_being_filled_is_half_full(context: float, read: float) -> None:
    chunked = replace(ATTENTION, window=128.0, tokens_per_entry=None, chunked=True)
    assert chunked.entries(context, 1.0) == (read, read)
