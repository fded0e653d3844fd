from __future__ import annotations

import numpy as np
import pytest

from specsim.physics import kernels
from specsim.physics.cost import Cost
from specsim.physics.kernels import AllReduceTable, AttentionRates, GemmRates, MoeRates

EASY = GemmRates(launch_s=5e-6, bytes_per_s=1e12, flop_per_s=1e15, sharpness=1.0)
EASY_ATTENTION = AttentionRates(
    floor_s=10e-6, launch_s=30e-6, l2_bytes=1e6, bytes_per_s=1e12, flop_per_s=1e18
)
TABLE = AllReduceTable(
    message_bytes=(16384.0, 65536.0, 262144.0), time_s=(4e-6, 6e-6, 12e-6), skew_s=1e-6
)


def test_gemm_by_hand() -> None:
    # 100 rows through 2000 x 1000 in 2 bytes: 4 MB of weights, 0.2 MB in, 0.4 MB out; 0.4 GFLOP.
    cost = kernels.gemm(rows=100, out_features=2000, in_features=1000, weight_bytes=2.0, rates=EASY)
    assert float(cost.memory_s) == pytest.approx(4.6e-6)
    assert float(cost.compute_s) == pytest.approx(0.4e-6)
    assert float(cost.host_s) == 5e-6


def test_gemm_reads_weights_once() -> None:
    def memory_s(rows: float) -> float:
        cost = kernels.gemm(
            rows=rows, out_features=4096, in_features=4096, weight_bytes=1.0, rates=EASY
        )
        return float(cost.memory_s)

    weights = 4096 * 4096 / 1e12
    assert memory_s(8) - memory_s(4) == pytest.approx(4 * 4096 * 4 / 1e12)
    assert memory_s(1) == pytest.approx(weights, rel=2e-3)


def attention_cost(**changes: float) -> Cost:
    arguments = {
        "sequences": 8, "query_tokens": 1, "entries_read": 1000, "entries_scored": 1000,
        "entry_bytes": 4096, "flop_per_score": 16384, "query_group": 4,
    } | changes  # fmt: skip
    return kernels.decode_attention(**arguments, rates=EASY_ATTENTION)


def test_cache_is_read_once_whatever_the_query_tokens() -> None:
    # 8 x 1000 x 4096 bytes at 1 TB/s.
    assert float(attention_cost().kv_s) == pytest.approx(32.768e-6, rel=1e-3)
    assert float(attention_cost(query_tokens=8).kv_s) == pytest.approx(32.768e-6, rel=1e-3)


def test_fixed_time_of_attention_goes_from_floor_to_launch() -> None:
    assert float(attention_cost(entries_read=0, entries_scored=0).host_s) == 10e-6
    # A cache of twice the L2 is half way, one of the L2 a ninth: (1/2)^3 / (1 + (1/2)^3).
    half = attention_cost(sequences=1, entries_read=2e6 / 4096)
    assert float(half.host_s) == pytest.approx(20e-6)
    ninth = attention_cost(sequences=1, entries_read=1e6 / 4096)
    assert float(ninth.host_s) == pytest.approx(10e-6 + 20e-6 / 9)
    # 64 / 65 of the way at eight times the L2; sequences count as entries do.
    most = attention_cost(sequences=8, entries_read=1e6 / 4096)
    assert float(most.host_s) == pytest.approx(10e-6 + 20e-6 * 64 / 65)
    assert float(attention_cost(entries_read=1e9).host_s) == pytest.approx(30e-6, rel=1e-3)


def test_query_rows_are_padded_to_tiles_beyond_one() -> None:
    def flop(query_tokens: float) -> float:
        rates = AttentionRates(0.0, 0.0, 1.0, bytes_per_s=1e30, flop_per_s=1.0)
        cost = kernels.decode_attention(
            sequences=1, query_tokens=query_tokens, entries_read=1, entries_scored=10,
            entry_bytes=1, flop_per_score=100, query_group=16, rates=rates,
        )  # fmt: skip
        return float(cost.compute_s)

    assert flop(1) == 1000  # 16 rows, one tile: no padding
    assert flop(4) == 4000  # 64 rows, full
    assert flop(5) == pytest.approx(8000)  # 80 rows in two tiles of 64


def test_index_scan_scores_all_heads_against_one_key() -> None:
    cost = kernels.index_scan(
        sequences=2, query_tokens=1, entries=1000, key_bytes=132, n_heads=64, head_dim=128,
        rates=AttentionRates(0.0, 0.0, 1.0, bytes_per_s=1e9, flop_per_s=1e30),
    )  # fmt: skip
    assert float(cost.kv_s) == pytest.approx(2 * 1000 * 132 / 1e9)


def test_prefill_attention_by_hand() -> None:
    cost = kernels.prefill_attention(tokens=1000, scored=500, flop_per_score=2.0, flop_per_s=1e6)
    assert cost.compute_s == pytest.approx(1000 * 500 * 2 / 1e6)
    assert cost.total_s == cost.compute_s


@pytest.mark.parametrize(
    ("start", "end", "cap", "mean"),
    [
        (0, 1000, 1e12, 500.0),  # causal: half of the prompt
        (4000, 5000, 1e12, 4500.0),  # and all that is cached before it
        (4000, 5000, 128, 128.0),  # a window
        (0, 1000, 250, (250 * 125 + 750 * 250) / 1000),  # a window that fills up
        (100, 300, 200, (100 * 150 + 100 * 200) / 200),
    ],
)
def test_mean_of_what_a_prompt_sees(start: float, end: float, cap: float, mean: float) -> None:
    assert float(kernels.mean_capped(start=start, end=end, cap=cap)) == pytest.approx(mean)


def test_no_prompt_sees_nothing() -> None:
    assert np.isfinite(kernels.mean_capped(start=700.0, end=700.0, cap=1e12))


@pytest.mark.parametrize("query_tokens", [1, 2, 4, 8])
def test_recurrent_verification_writes_a_state_per_token(query_tokens: int) -> None:
    cost = kernels.linear_attention(
        sequences=10, query_tokens=query_tokens, state_bytes=1e6, launch_s=0.0, bytes_per_s=1e12
    )
    one_token_s = 2 * 10 * 1e6 / 1e12
    assert float(cost.kv_s) == pytest.approx(one_token_s * (1 + query_tokens) / 2)


def distinct(sequences: float, query_tokens: float, **changes: float) -> float:
    arguments = {
        "n_experts": 128, "topk": 8, "concentration": 1.0, "sequence_overlap": 1.0,
        "prefill_tokens": 0.0,
    } | changes  # fmt: skip
    found = kernels.distinct_experts(sequences=sequences, query_tokens=query_tokens, **arguments)
    return float(found)


def test_independent_tokens_hit_experts_as_in_the_closed_form() -> None:
    # E (1 - (1 - topk / E)^T); the four tokens of one sequence at full overlap exponent.
    for tokens in (1, 2, 16, 300):
        expected = 128 * (1 - (1 - 8 / 128) ** tokens)
        assert distinct(tokens, 1) == pytest.approx(expected)
    assert distinct(1, 1, prefill_tokens=15) == pytest.approx(distinct(16, 1))


def test_four_consecutive_tokens_touch_two_and_a_half_times_the_experts() -> None:
    # Cohere 2026-04-21: 2.5x, beta = .66; independent tokens would touch ~3.65x.
    assert distinct(1, 4, sequence_overlap=0.66) / 8 == pytest.approx(2.5, abs=0.02)
    assert distinct(1, 4) / 8 == pytest.approx(3.65, abs=0.02)


def test_one_sequence_never_touches_more_than_independent_tokens_do() -> None:
    for query_tokens in (2, 8, 32):
        together = distinct(1, query_tokens, sequence_overlap=0.99)
        assert together <= distinct(query_tokens, 1) + 1e-9


def test_skewed_routing_shrinks_the_count_but_not_below_one_token() -> None:
    assert distinct(1, 1, concentration=0.85) == pytest.approx(8.0)
    ratio = distinct(64, 1) / 8
    assert distinct(64, 1, concentration=0.85) == pytest.approx(8 * ratio**0.85)


def test_experts_layer_by_hand() -> None:
    rates = MoeRates(
        launch_s=30e-6, per_expert_s=1e-7, bytes_per_s=1e12, flop_per_s=1e30, sharpness=1.0,
        concentration=1.0, sequence_overlap=1.0,
    )  # fmt: skip
    cost = kernels.moe_layer(
        sequences=1, query_tokens=1, prefill_tokens=0, hidden_size=4096, intermediate_size=1536,
        n_experts=128, topk=8, weight_bytes=1.0, expert_groups=1.0, rates=rates,
    )  # fmt: skip
    weights = 8 * 3 * 4096 * 1536
    activations = 8 * (4 * 4096 + 6 * 1536)
    assert float(cost.memory_s) == pytest.approx((weights + activations) / 1e12)
    assert float(cost.host_s) == pytest.approx(30e-6 + 8e-7)


def test_expert_parallel_ranks_read_their_share() -> None:
    rates = MoeRates(0.0, 0.0, 1e12, 1e15, 1.0, 0.9, 0.6)

    def total_s(groups: float) -> float:
        cost = kernels.moe_layer(
            sequences=64, query_tokens=4, prefill_tokens=0, hidden_size=4096,
            intermediate_size=1536, n_experts=128, topk=8, weight_bytes=1.0, expert_groups=groups,
            rates=rates,
        )  # fmt: skip
        return float(cost.total_s)

    assert total_s(1) / total_s(8) == pytest.approx(8.0)


def test_all_reduce_reads_its_table() -> None:
    def reduce_s(message_bytes: float) -> float:
        return float(kernels.all_reduce(message_bytes=message_bytes, table=TABLE).total_s)

    assert reduce_s(65536) == pytest.approx(7e-6)
    # Geometric mean of both, half way in the logarithm of the size.
    assert reduce_s(131072) == pytest.approx((6e-6 * 12e-6) ** 0.5 + 1e-6)
    assert reduce_s(1) == pytest.approx(5e-6)
    # Beyond the table at the bandwidth of its end.
    assert reduce_s(4 * 262144) == pytest.approx(49e-6)


def test_small_kernels_by_hand() -> None:
    cost = kernels.elementwise(rows=10, width=1000, kernels=4, launch_s=2e-6, bytes_per_s=1e12)
    assert cost.host_s == pytest.approx(8e-6)
    assert cost.memory_s == pytest.approx(4 * 10 * 1000 * 4 / 1e12)
    for bytes_per_logit in (4 * 3, 2):
        cost = kernels.sampling(
            rows=5, vocab_size=1e5, bytes_per_logit=bytes_per_logit, fixed_s=60e-6, bytes_per_s=1e12
        )
        assert cost.total_s == pytest.approx(60e-6 + 5 * 1e5 * bytes_per_logit / 1e12)


@pytest.mark.parametrize(("rows", "growing"), [(1, 1), (64, 64), (128, 128), (4096, 128)])
def test_small_kernels_grow_with_rows_until_they_fill_the_device(rows: int, growing: int) -> None:
    cost = kernels.elementwise(
        rows=rows, width=1000, kernels=4, launch_s=2e-6, bytes_per_s=1e12, growth_s=0.15e-6
    )
    assert float(cost.host_s) == pytest.approx(8e-6 + growing * 0.15e-6)
    assert cost.memory_s == pytest.approx(4 * rows * 1000 * 4 / 1e12)


def test_arrays_give_what_scalars_give() -> None:
    rows = np.array([1.0, 64.0, 4096.0])
    together = kernels.gemm(
        rows=rows, out_features=4096, in_features=4096, weight_bytes=2.0, rates=EASY
    ).total_s
    one_by_one = [
        kernels.gemm(
            rows=m, out_features=4096, in_features=4096, weight_bytes=2.0, rates=EASY
        ).total_s
        for m in rows
    ]
    assert together == pytest.approx(one_by_one)
