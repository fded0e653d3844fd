from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.analysis.kv import KvBudget, kv_budget
from specsim.analysis.weights import sglang_embedding_copy_bytes
from specsim.catalog.engines import load_engine
from specsim.catalog.models import load_drafter, load_model
from specsim.errors import InfeasibleError
from specsim.schema.model import ModelSpec
from specsim.units import GIB

H100_USABLE_GIB = 79.18


def budget(model: ModelSpec | str, drafter: Any = None, **changes: Any) -> KvBudget:
    spec = load_model(model) if isinstance(model, str) else model
    engine, _ = load_engine("vllm", "0.33")
    settings: dict[str, Any] = {
        "method": "none",
        "num_speculative_tokens": 0,
        "weight_dtype": spec.weight_dtype,
        "expert_dtype": spec.expert_dtype,
        "drafter_weight_dtype": None,
        "kv_dtype": "bf16",
        "memory_usable_bytes": H100_USABLE_GIB * GIB,
        "memory_nameplate_bytes": 80e9,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "draft_tensor_parallel_size": None,
        "expert_parallel": False,
        "gpu_memory_utilization": 0.92,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "max_model_len": 8192,
        "engine": engine,
        "async_scheduling": True,
    } | changes
    if isinstance(drafter, str):
        drafter = load_drafter(drafter)
    return kv_budget(model=spec, drafter=drafter, **settings)


def test_parts_add_up_to_what_is_requested() -> None:
    b = budget("llama-3.1-8b", "eagle3-llama3.1-8b", method="eagle3", num_speculative_tokens=4)
    parts = b.device_weights_gib + b.device_drafter_weights_gib + b.activation_gib
    assert parts + b.non_torch_gib + b.graphs_gib + b.kv_gib == pytest.approx(b.requested_gib)
    assert b.requested_gib == pytest.approx(0.92 * H100_USABLE_GIB)


def test_weights_of_a_dense_model() -> None:
    # 8,030,261,248 parameters in 16 bits; embedding and head split like everything but norms.
    one, four = budget("llama-3.1-8b"), budget("llama-3.1-8b", tensor_parallel_size=4)
    assert one.weights_gib == pytest.approx(8_030_261_248 * 2 / GIB)
    assert four.device_weights_gib == pytest.approx(one.weights_gib / 4, rel=1e-3)


def test_the_field_example_on_the_nameplate() -> None:
    # Two 80 GB H100s and about 86 GB of weights leave about 74 GB of the nameplate.
    model = load_model("llama-3.1-70b")
    layers = (model.layers[0].model_copy(update={"count": 47}),)
    b = budget(model.model_copy(update={"layers": layers}), tensor_parallel_size=2)
    assert b.weights_gib * GIB / 1e9 == pytest.approx(86, abs=2)
    assert b.nameplate_gb == 160
    assert b.nameplate_kv_gb == pytest.approx(74, abs=2)
    # What vLLM leaves is less: 92 % of what the driver reports, less its own share.
    assert 2 * b.kv_gib * GIB / 1e9 < b.nameplate_kv_gb - 10


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_proposing_without_a_model_costs_no_cache(method: str) -> None:
    off = budget("llama-3.1-8b")
    on = budget("llama-3.1-8b", method=method, num_speculative_tokens=5)
    assert on == off


def test_a_hybrid_pays_a_state_per_draft_token_whatever_drafts() -> None:
    off = budget("qwen3.5-27b-text", tensor_parallel_size=2)
    on = budget(
        "qwen3.5-27b-text", method="ngram", num_speculative_tokens=3, tensor_parallel_size=2
    )
    [off_states], [on_states] = (
        [g.state_blocks for g in b.pool.groups if g.kind == "state"] for b in (off, on)
    )
    assert (off_states, on_states) == (2, 5)
    assert on.sequences_that_fit(1000.0) < 0.5 * off.sequences_that_fit(1000.0)


def test_a_drafter_on_one_rank_is_whole_on_every_device() -> None:
    common = {"method": "draft_model", "num_speculative_tokens": 4, "tensor_parallel_size": 4}
    split = budget("llama-3.1-70b", "llama-3.1-8b", **common)
    whole = budget("llama-3.1-70b", "llama-3.1-8b", draft_tensor_parallel_size=1, **common)
    assert whole.device_drafter_weights_gib == pytest.approx(8_030_261_248 * 2 / GIB)
    assert whole.drafter_weights_gib == pytest.approx(4 * whole.device_drafter_weights_gib)
    # 80 layers with 2 of 8 heads, 32 draft layers with 2 or all 8.
    assert split.bytes_per_token == (80 + 32) * 1024
    assert whole.bytes_per_token == (80 + 4 * 32) * 1024
    assert whole.kv_tokens < split.kv_tokens


def test_kv_heads_are_copied_beyond_their_number() -> None:
    eight = budget("llama-3.1-70b", tensor_parallel_size=8)
    sixteen = budget("llama-3.1-70b", tensor_parallel_size=16)
    assert eight.bytes_per_token == sixteen.bytes_per_token
    assert sixteen.weights_gib > eight.weights_gib


def test_a_pipeline_halves_cache_and_weights_per_device() -> None:
    one, two = (
        budget("llama-3.1-70b", tensor_parallel_size=2, pipeline_parallel_size=p) for p in (1, 2)
    )
    assert two.devices == 4
    assert two.bytes_per_token == one.bytes_per_token / 2
    assert two.device_weights_gib == pytest.approx(one.device_weights_gib / 2, rel=0.01)


def test_latents_are_not_split() -> None:
    common = {"kv_dtype": "fp8", "memory_usable_bytes": 140 * GIB}
    per_token = [
        budget("deepseek-v3.2", weight_dtype="fp8", tensor_parallel_size=tp, **common)
        for tp in (8, 16)
    ]
    assert {b.bytes_per_token for b in per_token} == {61 * (656 + 132)}
    assert {b.block_size for b in per_token} == {64}


def test_lookahead_slots() -> None:
    spec = {"num_speculative_tokens": 7}
    assert budget("qwen3-8b", "dspark-qwen3-8b", method="dspark", **spec).lookahead_tokens == 7
    assert budget("qwen3-8b", "dspark-qwen3-8b", method="dflash", **spec).lookahead_tokens == 8


def test_a_frozen_copy_of_the_target_tables_is_shared() -> None:
    b = budget("qwen3-8b", "dspark-qwen3-8b", method="dspark", num_speculative_tokens=7)
    # 2.371e9 parameters, of which embedding and head 151,936 x 4096 each.
    assert b.drafter_weights_gib * GIB == pytest.approx(
        (2.371e9 - 2 * 151_936 * 4096) * 2, rel=0.01
    )
    assert "shared with the target" in b.notes[0]


def test_sglang_copies_embedding_and_head() -> None:
    engine, _ = load_engine("sglang")
    kept, copied = (
        budget(
            "qwen3.5-27b-text",
            "mtp-qwen3.5-27b",
            method="mtp",
            num_speculative_tokens=3,
            engine=engine.model_copy(update={"copies_shared_embedding": flag}),
        )
        for flag in (False, True)
    )
    # sglang issue 36452: 2 tables of 248,320 x 5,120 in 16 bits, 5.09 GB.
    lost = sglang_embedding_copy_bytes(vocab_size=248_320, hidden_size=5120)
    assert lost == pytest.approx(5.09e9, rel=1e-3)
    assert kept.kv_gib - copied.kv_gib == pytest.approx(lost / GIB)
    assert "copies of the target's embedding" in copied.notes[0]
    assert not kept.notes


def test_a_given_cache_size_replaces_the_utilisation() -> None:
    b = budget("llama-3.1-8b", kv_cache_bytes=2 * GIB)
    assert b.kv_gib == 2
    assert b.num_blocks == 2 * GIB // (16 * 131_072)


def test_sequences_follow_length_and_prefix() -> None:
    b = budget("llama-3.1-8b")
    fit = b.sequences_that_fit(np.array([512.0, 2048.0, 8192.0]))
    assert np.all(np.diff(fit) < 0)
    assert fit[2] == pytest.approx(b.num_blocks * 16 / 8192, rel=0.01)
    assert b.sequences_that_fit(2048.0, shared_prefix_tokens=1024.0) > 1.9 * fit[1]


def test_a_length_that_does_not_fit_once_is_noted() -> None:
    b = budget("llama-3.1-8b", max_model_len=131_072, memory_usable_bytes=23.6 * GIB)
    assert b.max_concurrency < 1
    assert "lower --max-model-len" in b.notes[-1]


class TestDoesNotFit:
    def test_names_the_smallest_tensor_parallel_size(self) -> None:
        with pytest.raises(InfeasibleError, match=r"--tensor-parallel-size 2$") as error:
            budget("llama-3.1-70b")
        assert error.value.exit_code == 3
        assert "131.4 GiB of weights" in str(error.value)
        assert "available 72.8 of 79.2 GiB" in str(error.value)

    def test_a_drafter_can_be_what_does_not_fit(self) -> None:
        fits = {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.9}
        budget("llama-3.1-70b", **fits)
        with pytest.raises(
            InfeasibleError, match=r"with drafter llama-3\.1-8b .* --tensor-parallel-size 4$"
        ):
            budget(
                "llama-3.1-70b",
                "llama-3.1-8b",
                method="draft_model",
                num_speculative_tokens=4,
                **fits,
            )

    def test_says_so_when_no_size_helps(self) -> None:
        with pytest.raises(InfeasibleError, match="no --tensor-parallel-size"):
            budget("llama-3.1-405b", memory_usable_bytes=8 * GIB)
