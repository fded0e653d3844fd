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


def test_exchange_of_expert_parallel_ranks_is_communication() -> None:
    experts = Experts(
        hidden_size=4.0, intermediate_size=2.0, n_experts=8.0, topk=2.0, weight_bytes=1.0,
        expert_groups=2.0, exchange_s=3.0, rates=MoeRates(0.0, 0.0, 1e30, 1e30, 1.0, 1.0, 1.0),
    )  # fmt: skip
    exchanged = cost(network(layers=(replace(LAYER, experts=experts),)))
    assert float(exchanged.communication_s) == pytest.approx(9.0)
