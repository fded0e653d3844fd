"""What must hold for any numbers at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.physics import acceptance as law
from specsim.physics import kernels
from specsim.physics.cost import PARTS, smooth_roofline
from specsim.physics.kernels import AttentionRates, GemmRates, MoeRates
from specsim.physics.step import graph_rows

rates = st.floats(0.0, 1.0)
decays = st.floats(0.5, 1.5)
drafts = st.integers(1, 16)
seconds = st.floats(0.0, 1e3)
sharpnesses = st.floats(0.5, 8.0)
rows = st.floats(1.0, 4096.0)
better = st.floats(1.0, 10.0)

GEMM = st.builds(
    GemmRates,
    launch_s=st.floats(0.0, 1e-4),
    bytes_per_s=st.floats(1e10, 1e13),
    flop_per_s=st.floats(1e12, 1e16),
    sharpness=sharpnesses,
)
ATTENTION = st.builds(
    AttentionRates,
    floor_s=st.floats(0.0, 1e-4),
    launch_s=st.floats(0.0, 1e-4),
    l2_bytes=st.floats(1e5, 1e8),
    bytes_per_s=st.floats(1e10, 1e13),
    flop_per_s=st.floats(1e12, 1e16),
)
MOE = st.builds(
    MoeRates,
    launch_s=st.floats(0.0, 1e-4),
    per_expert_s=st.floats(0.0, 1e-6),
    bytes_per_s=st.floats(1e10, 1e13),
    flop_per_s=st.floats(1e12, 1e16),
    sharpness=sharpnesses,
    concentration=st.floats(0.7, 1.0),
    sequence_overlap=st.floats(0.3, 1.0),
)


def gemm_s(m: float, r: GemmRates) -> float:
    cost = kernels.gemm(rows=m, out_features=4096, in_features=1024, weight_bytes=2.0, rates=r)
    return float(cost.total_s)


def attention_s(sequences: float, queries: float, context: float, r: AttentionRates) -> float:
    cost = kernels.decode_attention(
        sequences=sequences, query_tokens=queries, entries_read=context, entries_scored=context,
        entry_bytes=4096.0, flop_per_score=16384.0, query_group=4.0, rates=r,
    )  # fmt: skip
    return float(cost.total_s)


def experts_s(sequences: float, queries: float, r: MoeRates) -> float:
    cost = kernels.moe_layer(
        sequences=sequences, query_tokens=queries, prefill_tokens=0.0, hidden_size=2048.0,
        intermediate_size=768.0, n_experts=128.0, topk=8.0, weight_bytes=2.0, expert_groups=1.0,
        rates=r,
    )  # fmt: skip
    return float(cost.total_s)


@given(memory=seconds, compute=seconds, p=st.floats(1.0, 60.0))
def test_knee_lies_between_the_longer_and_the_sum(memory: float, compute: float, p: float) -> None:
    parts = smooth_roofline(memory, compute, p)
    total = float(sum(parts))
    assert max(memory, compute) * (1 - 1e-12) <= total <= (memory + compute) * (1 + 1e-12)
    assert min(float(x) for x in parts) >= 0


@given(m=rows, r=GEMM, factor=better)
def test_a_faster_device_multiplies_no_slower(m: float, r: GemmRates, factor: float) -> None:
    base = gemm_s(m, r)
    assert gemm_s(m, replace(r, bytes_per_s=r.bytes_per_s * factor)) <= base * (1 + 1e-12)
    assert gemm_s(m, replace(r, flop_per_s=r.flop_per_s * factor)) <= base * (1 + 1e-12)
    assert gemm_s(m * factor, r) >= base * (1 - 1e-12)


@given(n=rows, q=st.integers(1, 16), context=st.floats(1.0, 1e5), r=ATTENTION, factor=better)
def test_a_faster_device_attends_no_slower(
    n: float, q: int, context: float, r: AttentionRates, factor: float
) -> None:
    base = attention_s(n, q, context, r)
    assert attention_s(n, q, context, replace(r, bytes_per_s=r.bytes_per_s * factor)) <= base
    assert attention_s(n, q, context, replace(r, flop_per_s=r.flop_per_s * factor)) <= base
    assert attention_s(n, q, context * factor, r) >= base * (1 - 1e-12)


@given(
    start=st.floats(0.0, 1e5), tokens=st.floats(1.0, 1e5), part=st.floats(0.01, 0.99),
    cap=st.floats(1.0, 1e6),
)  # fmt: skip
def test_a_prompt_in_two_chunks_scores_what_it_does_in_one(
    start: float, tokens: float, part: float, cap: float
) -> None:
    end = start + tokens
    middle = start + part * tokens
    whole = kernels.mean_capped(start=start, end=end, cap=cap) * tokens
    first = kernels.mean_capped(start=start, end=middle, cap=cap) * (middle - start)
    second = kernels.mean_capped(start=middle, end=end, cap=cap) * (end - middle)
    assert float(first + second) == pytest.approx(float(whole), rel=1e-6)
    assert 0 <= float(whole) / tokens <= min(cap, end) * (1 + 1e-9)


@given(n=st.integers(1, 512), q=st.integers(1, 16), r=MOE)
def test_tokens_together_cost_no_more_than_one_by_one(n: int, q: int, r: MoeRates) -> None:
    assert experts_s(n, q, r) <= q * experts_s(n, 1, r) * (1 + 1e-9)


@given(
    n=st.integers(1, 512),
    q=st.integers(1, 16),
    topk=st.integers(1, 8),
    concentration=st.floats(0.7, 1.0),
    overlap=st.floats(0.3, 1.0),
)
def test_experts_touched_are_bounded(
    n: int, q: int, topk: int, concentration: float, overlap: float
) -> None:
    touched = float(
        kernels.distinct_experts(
            sequences=n, query_tokens=q, prefill_tokens=0.0, n_experts=128.0, topk=topk,
            concentration=concentration, sequence_overlap=overlap,
        )
    )  # fmt: skip
    assert topk - 1e-9 <= touched <= min(128.0, topk * n * q) + 1e-9


@given(m=st.floats(1.0, 2048.0), limit=st.sampled_from([0.0, 256.0, 512.0, 1024.0]))
def test_padding_never_drops_rows(m: float, limit: float) -> None:
    padded = float(graph_rows(m, limit))
    assert m <= padded <= max(m + 16, 2 * m)
    assert m <= limit or padded == m


@given(rate=rates, decay=decays, k=drafts)
def test_tokens_per_step_lie_within_one_and_k_plus_one(rate: float, decay: float, k: int) -> None:
    p = law.positions(first_rate=rate, decay=decay, k=k)
    assert np.all((p >= 0) & (p <= 1))
    assert np.all(np.diff(p) <= 1e-12)
    assert 1.0 <= float(law.length(p)) <= k + 1 + 1e-9


@given(target=st.floats(1.0, 9.0), decay=decays, k=st.integers(1, 8))
def test_any_possible_length_is_reached(target: float, decay: float, k: int) -> None:
    reachable = min(target, k + 1.0)
    first = law.first_rate_from_length(target_length=reachable, decay=decay, k=k)
    found = law.length(law.positions(first_rate=first, decay=decay, k=k))
    assert float(found) == pytest.approx(reachable, abs=1e-6)


@given(p=st.lists(rates, min_size=1, max_size=8), decay=decays, k=drafts)
def test_a_list_carried_on_stays_a_probability(p: list[float], decay: float, k: int) -> None:
    falling = tuple(sorted(p, reverse=True))
    carried = law.extend(falling, decay=decay, k=k)
    assert carried.shape == (k,)
    assert np.all((carried >= 0) & (carried <= 1))
    assert np.all(np.diff(carried) <= 1e-12)


@given(rate=rates, wide=st.floats(1.0, 64.0), exponent=st.floats(0.0, 1.0))
def test_a_tree_is_no_worse_than_its_chain(rate: float, wide: float, exponent: float) -> None:
    found = float(
        law.tree_first_rate(first_rate=rate, branches_per_level=wide, coverage_exponent=exponent)
    )
    assert rate - 1e-12 <= found <= 1.0


@settings(max_examples=50)
@given(values=st.lists(rows, min_size=1, max_size=6), r=GEMM, a=ATTENTION, e=MOE)
def test_a_scalar_equals_an_element(
    values: list[float], r: GemmRates, a: AttentionRates, e: MoeRates
) -> None:
    many = np.array(values)
    multiplied = kernels.gemm(
        rows=many, out_features=4096, in_features=1024, weight_bytes=2.0, rates=r
    )
    attended = kernels.decode_attention(
        sequences=many, query_tokens=3.0, entries_read=900.0, entries_scored=900.0,
        entry_bytes=4096.0, flop_per_score=16384.0, query_group=4.0, rates=a,
    )  # fmt: skip
    routed = kernels.moe_layer(
        sequences=many, query_tokens=3.0, prefill_tokens=0.0, hidden_size=2048.0,
        intermediate_size=768.0, n_experts=128.0, topk=8.0, weight_bytes=2.0, expert_groups=1.0,
        rates=e,
    )  # fmt: skip
    for i, m in enumerate(values):
        assert float(multiplied.total_s[i]) == pytest.approx(gemm_s(m, r))
        assert float(attended.total_s[i]) == pytest.approx(attention_s(m, 3.0, 900.0, a))
        assert float(routed.total_s[i]) == pytest.approx(experts_s(m, 3.0, e))
    assert all(np.min(getattr(multiplied, part)) >= 0 for part in PARTS)
