from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.analysis.arms import baseline_arm
from specsim.analysis.predict import predict
from specsim.analysis.resolve import resolve
from specsim.analysis.roofline import pass_work, regimes, roofline
from specsim.catalog.scenario import load_scenario
from specsim.schema.scenario import Scenario

BASE: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 256},
    "speculation": {
        "method": "eagle3", "num_speculative_tokens": 3, "acceptance": {"length": 2.29},
    },
    "workload": {"input_tokens": 512, "output_tokens": 256},
    "load": {"concurrency": [32]},
}  # fmt: skip


def scenario(**overrides: Any) -> Scenario:
    return load_scenario(BASE, overrides=overrides)


def work(
    model: str, *, sequences: float = 1.0, context: float = 1000.0, tp: int = 1
) -> tuple[float, float]:
    arm = baseline_arm(resolve(load_scenario({
        "target": {"model": model},
        "hardware": {"accelerator": "h200_sxm", "tensor_parallel_size": tp},
    })))  # fmt: skip
    moved, flop = pass_work(arm.target, sequences=sequences, query_tokens=1.0, context=context)
    return float(moved), float(flop)


def test_work_of_a_dense_model_by_hand() -> None:
    # Llama-3.1-8B: 7.505e9 weights that a token is multiplied with (8.030e9 less the embedding's
    # 0.525e9 and the norms); 32 layers x 8 KV heads x 128 x 2 (k, v) x 2 bytes per cached token;
    # 32 x 32 heads x 128 x 4 FLOP per token and cached token.
    weights = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336) + 4096 * 128256
    moved, flop = work("llama-3.1-8b")
    assert flop == pytest.approx(2 * weights + 32 * 4096 * 4 * 1000, rel=1e-9)
    kv = 32 * 8 * 128 * 2 * 2 * 1000
    # Beyond weights and cache: activations in and out, and the logits.
    assert 0 < moved - (2 * weights + kv) < 0.001 * moved


def test_a_batch_reads_weights_once_and_caches_each() -> None:
    one, many = work("llama-3.1-8b"), work("llama-3.1-8b", sequences=64.0)
    assert many[1] == pytest.approx(64 * one[1])
    kv = 32 * 8 * 128 * 2 * 2 * 1000
    # And the activations of each, which are a few per cent of its cache.
    assert 63 * kv < many[0] - one[0] < 63 * kv * 1.1


@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3-30b-a3b", "qwen3-next-80b-a3b"])
def test_one_token_multiplies_with_what_is_active(model: str) -> None:
    active = {"deepseek-v3": 37e9, "qwen3-30b-a3b": 3.3e9, "qwen3-next-80b-a3b": 3.9e9}[model]
    flop = 8 * work(model, context=1.0, tp=8)[1]
    assert 0.75 * 2 * active < flop < 1.3 * 2 * active


def test_passes_stand_under_the_roof() -> None:
    found = roofline(scenario())
    assert found.bandwidth_gb_per_s == 3350.0
    [roof] = found.roofs
    assert (roof.dtype, roof.tflop_per_s) == ("bf16", 989.4)
    assert [p.arm for p in found.passes] == ["off", "on"]
    for each in found.passes:
        slope = each.intensity * found.bandwidth_gb_per_s / 1e3
        assert np.all(each.tflop_per_s < np.minimum(slope, roof.tflop_per_s))
        assert np.all(np.diff(each.intensity) > 0)


def test_verifying_does_more_per_byte() -> None:
    off, on = roofline(scenario()).passes
    assert off.intensity[0] == pytest.approx(1.0, abs=0.1)
    assert on.intensity[0] == pytest.approx(4.0, rel=0.05)


def test_loads_are_powers_of_two_and_the_own() -> None:
    found = roofline(scenario(), load=40.0)
    assert found.own == 40.0
    assert found.passes[0].loads.tolist() == [1, 2, 4, 8, 16, 32, 40, 64, 128, 256]


def test_a_pass_takes_what_a_step_does_but_for_the_host() -> None:
    off = roofline(scenario()).passes[0]
    point = predict(scenario()).points[0].baseline
    assert point is not None
    pass_ms = float(off.time_s[off.loads == 32.0][0]) * 1e3
    assert 0.8 * point.step_ms < pass_ms < point.step_ms


def test_experts_in_another_dtype_have_a_roof_of_their_own() -> None:
    found = roofline(load_scenario({
        "target": {"model": "gpt-oss-120b"}, "hardware": {"accelerator": "b200"},
    }))  # fmt: skip
    assert len({roof.dtype for roof in found.roofs}) == len(found.roofs) >= 1
    assert [p.arm for p in found.passes] == ["off"]


def test_parts_are_those_of_points() -> None:
    found = regimes(scenario(**{"load.concurrency": [1.0]}))
    point = predict(scenario(**{"load.concurrency": [1.0]})).points[0]
    for arm, service in zip(found.arms, (point.baseline, point.speculative), strict=True):
        assert service is not None
        first = {name: float(ms[0]) for name, ms in arm.parts_ms.items()}
        assert first == pytest.approx(service.parts_ms)
        assert arm.bands[0].bound == service.bound


def test_shares_are_whole_and_bands_meet() -> None:
    found = regimes(scenario())
    assert found.own == 32.0
    for arm in found.arms:
        assert sum(arm.shares.values()) == pytest.approx(np.ones(48))
        assert (arm.bands[0].low, arm.bands[-1].high) == (1.0, 256.0)
        for before, after in zip(arm.bands, arm.bands[1:], strict=False):
            assert before.high == after.low
            assert before.bound != after.bound


def test_long_contexts_are_bound_by_the_cache() -> None:
    found = regimes(scenario(**{"workload.input_tokens": 30000.0}))
    assert found.arms[0].bands[-1].bound == "kv"
    assert found.arms[1].bands[-1].bound == "kv"


def test_an_off_scenario_has_one_lane() -> None:
    found = regimes(load_scenario({**BASE, "speculation": {"method": "none"}}))
    assert [each.arm for each in found.arms] == ["off"]
