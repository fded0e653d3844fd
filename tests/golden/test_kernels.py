"""Kernels under the shipped H100 constants against measured and published times."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.catalog.hardware import attention_constants, gemm_constants, load_hardware
from specsim.physics import kernels
from specsim.physics.kernels import AllReduceTable, AttentionRates, GemmRates
from specsim.units import GB, KIB, MICRO, MILLI, TFLOP

H100 = load_hardware("h100_sxm")
BYTES_PER_S = H100.datasheet.memory_bandwidth_gb_per_s * GB
BF16_FLOP_PER_S = H100.datasheet.dense_tflops.bf16 * TFLOP

# Matrices of one Llama-3.1-8B layer, out x in.
LAYER = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))


def gemm_rates() -> GemmRates:
    c = gemm_constants(H100, "bf16")
    return GemmRates(
        launch_s=c.launch_us.value * MICRO,
        bytes_per_s=c.bandwidth_frac.value * BYTES_PER_S,
        flop_per_s=c.compute_frac.value * BF16_FLOP_PER_S,
        sharpness=c.sharpness.value,
    )


def layer_s(rows: float) -> float:
    parts = (
        kernels.gemm(
            rows=rows, out_features=out, in_features=into, weight_bytes=2.0, rates=gemm_rates()
        ).total_s
        for out, into in LAYER
    )
    return float(sum(parts))


@pytest.mark.parametrize(
    ("rows", "measured"),
    [(64, 1.11), (128, 1.12), (192, 1.21), (256, 1.35), (512, 1.76), (1024, 3.42)],
)
def test_verify_ramp_of_an_8b_layer(rows: int, measured: float) -> None:
    # aiconfigurator-core 0.12.0, T(m) / T(1); scatter between shapes is 12 to 18 % at the 90th
    # percentile.
    assert layer_s(rows) / layer_s(1) == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize(
    ("cached_tokens", "published_ms"),
    [(32768, 1.174), (131072, 4.734), (262144, 9.389), (524288, 18.578)],
)
def test_context_slope_of_qwen3_1_7b(cached_tokens: int, published_ms: float) -> None:
    # adixg/vllm-specdecode-cost-model, vLLM 0.28, H100: 28 layers, 8 KV heads of 128, two bytes.
    c = attention_constants(H100, "bf16")
    rates = AttentionRates(
        floor_s=0.0,
        launch_s=0.0,
        l2_bytes=50e6,
        bytes_per_s=c.bandwidth_frac.value * BYTES_PER_S,
        flop_per_s=c.compute_frac.value * BF16_FLOP_PER_S,
    )
    one_layer = kernels.decode_attention(
        sequences=16,
        query_tokens=1,
        entries_read=cached_tokens / 16,
        entries_scored=cached_tokens / 16,
        entry_bytes=2 * 8 * 128 * 2,
        flop_per_score=4 * 16 * 128,
        query_group=2,
        rates=rates,
    )
    assert 28 * float(one_layer.total_s) / MILLI == pytest.approx(published_ms, rel=0.03)


@pytest.mark.parametrize(("query_tokens", "measured_us"), [(1, 39), (2, 56), (4, 94), (8, 170)])
def test_recurrent_verification(query_tokens: int, measured_us: float) -> None:
    # KDA on H100, batch 64: the law holds whatever the state is, so only its shape is compared.
    def time_s(q: int) -> float:
        cost = kernels.linear_attention(
            sequences=64, query_tokens=q, state_bytes=1e6, launch_s=0.0, bytes_per_s=1e12
        )
        return float(cost.total_s)

    assert time_s(query_tokens) / time_s(1) == pytest.approx(measured_us / 39, rel=0.05)


@pytest.mark.parametrize(
    ("size", "kib", "measured_us"),
    [
        (2, 16, 4.5), (2, 128, 4.8), (2, 512, 6.3), (2, 2048, 12.4),
        (4, 16, 4.8), (4, 128, 5.8), (4, 512, 11.4), (4, 2048, 18.6),
        (8, 16, 5.5), (8, 128, 7.9), (8, 512, 12.0), (8, 2048, 19.4),
    ],
)  # fmt: skip
def test_all_reduce_of_hopper(size: int, kib: float, measured_us: float) -> None:
    block = H100.effective.all_reduce[size]
    table = AllReduceTable(
        message_bytes=tuple(x * KIB for x in block.kib),
        time_s=tuple(x * MICRO for x in block.us),
        skew_s=0.0,
    )
    found = kernels.all_reduce(message_bytes=kib * KIB, table=table).total_s
    assert float(found) / MICRO == pytest.approx(measured_us, rel=0.03)


def test_knee_lies_between_one_and_three_hundred_tokens() -> None:
    # Published: the knee is at 128 to 256 tokens on every data-centre GPU.
    rows = np.arange(1, 600)
    ramp = np.array([layer_s(float(m)) for m in rows]) / layer_s(1)
    tenth = int(rows[np.argmax(ramp >= 1.1)])
    half = int(rows[np.argmax(ramp >= 1.5)])
    assert 100 <= tenth <= 200
    assert 256 <= half <= 512
