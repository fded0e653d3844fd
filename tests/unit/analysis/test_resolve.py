from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from specsim.analysis.arms import baseline_arm
from specsim.analysis.resolve import Deployment, resolve
from specsim.catalog.models import load_model
from specsim.catalog.scenario import load_scenario
from specsim.errors import (
    InfeasibleError,
    InputError,
    ModelConfigError,
    NotFoundError,
    SpecsimError,
    UsageError,
)

BASE: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "speculation": {
        "method": "eagle3", "num_speculative_tokens": 3, "drafter": "eagle3-llama3.1-8b",
        "acceptance": {"rate": 0.7},
    },
}  # fmt: skip


MEDUSA: dict[str, Any] = {
    "target.model": "vicuna-7b-v1.3", "engine.version": "0.17.1", "speculation.method": "medusa",
    "speculation.drafter": "medusa-vicuna-7b-5-heads",
}  # fmt: skip


def resolved(overrides: dict[str, Any] | None = None) -> Deployment:
    return resolve(load_scenario(BASE, overrides=overrides or {}))


def error(kind: type[SpecsimError], overrides: dict[str, Any]) -> str:
    """Return the message of what is refused: one line, whatever refuses it."""
    with pytest.raises(kind) as caught:
        baseline_arm(resolved(overrides))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults_are_the_engines_and_are_listed() -> None:
    found = resolved()
    # H100, vLLM 0.33: 8192 batched tokens, 1024 sequences, utilisation .92.
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (8192, 1024)
    assert found.gpu_memory_utilization == 0.92
    assert found.scenario.engine.version == "0.33"
    assert found.scenario.target.weight_dtype == "bf16"
    assert found.scenario.speculation.draft_tensor_parallel_size == 1
    text = " / ".join(found.defaults)
    for name in (
        "workload.input_tokens = 512", "output_tokens = 256", "load.concurrency",
        "engine.version = 0.33", "max_num_seqs = 1024", "gpu_memory_utilization = 0.92",
    ):  # fmt: skip
        assert name in text


def test_what_is_given_is_no_default() -> None:
    found = resolved({"engine.max_num_seqs": 64, "workload.input_tokens": 100})
    assert found.max_num_seqs == 64
    assert not any("max_num_seqs" in d or "input_tokens" in d for d in found.defaults)


def test_scheduler_defaults_follow_the_device() -> None:
    small = resolved({"hardware.accelerator": "rtx_4090", "target.weight_dtype": "fp8",
                      "engine.max_model_len": 4096})  # fmt: skip
    assert (small.max_num_batched_tokens, small.max_num_seqs) == (2048, 256)
    large = resolved({"hardware.accelerator": "b200_sxm"})
    assert (large.max_num_batched_tokens, large.max_num_seqs) == (16384, 1024)


def test_the_only_drafter_of_the_method_is_taken_with_a_warning() -> None:
    found = resolved({"speculation.drafter": None})
    assert getattr(found.drafter, "id", None) == "eagle3-llama3.1-8b"
    assert any("no drafter was named: eagle3-llama3.1-8b" in w for w in found.warnings)


def test_several_drafters_are_listed() -> None:
    message = error(
        UsageError,
        {"target.model": "qwen3.5-27b-text", "speculation.method": "dflash",
         "speculation.drafter": None},
    )  # fmt: skip
    assert "has several drafters: dflash-qwen3.6-27b, dflash2-qwen3.8-27b" in message
    assert message.endswith("name one with --spec-model")


def test_no_drafter_of_the_method() -> None:
    message = error(UsageError, {"speculation.method": "dflash", "speculation.drafter": None})
    assert "method dflash needs a drafter and the catalog has none for llama-3.1-8b" in message
    assert "it has drafters for" in message


def test_no_speculation_needs_no_acceptance() -> None:
    found = resolve(load_scenario({"target": BASE["target"], "hardware": BASE["hardware"]}))
    assert (found.method, found.num_speculative_tokens, found.acceptance) == ("none", 0, None)


def test_memory_needs_no_acceptance() -> None:
    unknown = {"speculation.acceptance": None}
    found = resolve(load_scenario(BASE, overrides=unknown), for_memory=True)
    assert found.acceptance is None
    assert (found.method, found.num_speculative_tokens) == ("eagle3", 3)
    assert resolve(load_scenario(BASE), for_memory=True).acceptance is not None
    assert "acceptance is not given" in error(UsageError, unknown)


@pytest.mark.parametrize(("asked", "k"), [(None, 5), (1, 1), (5, 5)])
def test_medusa_drafts_up_to_its_heads(asked: int | None, k: int) -> None:
    found = resolved(MEDUSA | {"speculation.num_speculative_tokens": asked})
    assert found.num_speculative_tokens == k


def test_medusa_has_no_more_heads() -> None:
    message = error(UsageError, MEDUSA | {"speculation.num_speculative_tokens": 6})
    assert message.endswith("drafts at most 5 tokens per step, got 6")


def test_constants_that_a_deployment_uses() -> None:
    dense = resolved().used_blocks
    assert {"elementwise", "prefill_attention"} < set(dense)
    assert not any("moe" in name or "all_reduce" in name for name in dense)
    mixture = resolved(
        {"target.model": "qwen3-30b-a3b", "hardware.tensor_parallel_size": 2,
         "speculation.method": "ngram", "speculation.drafter": None}
    ).used_blocks  # fmt: skip
    assert "all_reduce.2" in mixture
    assert any("moe" in name for name in mixture)
    assert set(resolved().assumed_blocks) <= set(dense)


def test_borrowed_constants_are_said() -> None:
    found = resolved({"hardware.accelerator": "l4", "target.weight_dtype": "fp8"})
    assert found.assumed_blocks
    assert any("l4 has no measurements of" in w and "assumed" in w for w in found.warnings)
    assert resolved().assumed_blocks == ()


def test_eagle_and_cached_prompts() -> None:
    cached = {"workload.cached_prompt_tokens": 200}
    assert any("costs prefix-cache hits" in w for w in resolved(cached).warnings)
    both = cached | {"workload.cached_prompt_tokens_speculative": 100}
    assert not any("prefix-cache" in w for w in resolved(both).warnings)


# --- Bad input, each one line -------------------------------------------------------------------


def test_unknown_device() -> None:
    message = error(NotFoundError, {"hardware.accelerator": "h100_smx"})
    assert "'h100_smx'" in message
    assert "h100_sxm" in message
    assert "specsim profiles list" in message


def test_unknown_model() -> None:
    message = error(NotFoundError, {"target.model": "llama-3.1-8"})
    assert "unknown model 'llama-3.1-8'; nearest: llama-3.1-8b" in message


def test_unknown_key() -> None:
    message = error(InputError, {"engine.max_num_seq": 64})
    assert "unknown key 'engine.max_num_seq'; nearest known: max_num_seqs" in message


@pytest.mark.parametrize("k", [0, -1, 65])
def test_impossible_k(k: int) -> None:
    message = error(InputError, {"speculation.num_speculative_tokens": k})
    assert f"speculation.num_speculative_tokens: got {k}" in message


@pytest.mark.parametrize(
    ("form", "value", "why"),
    [
        ("rate", 1.2, "less than or equal to 1"),
        ("rate", -0.1, "greater than or equal to 0"),
        ("draft_acceptance_rate", 81, "less than or equal to 1"),
        ("length", 0.5, "greater than or equal to 1"),
        ("length", 4.5, "above num_speculative_tokens + 1 = 4, which no step can yield"),
        ("per_position", (0.5, 0.7), "must not rise"),
        ("per_position", (1.5,), "must lie in 0..1"),
        ("rate", math.nan, "finite number"),
        ("rate", math.inf, "finite number"),
    ],
)
def test_acceptance_outside_its_range(form: str, value: Any, why: str) -> None:
    assert why in error(InputError, {"speculation.acceptance": {form: value}})


def test_two_forms_of_acceptance() -> None:
    message = error(InputError, {"speculation.acceptance": {"rate": 0.5, "length": 2.0}})
    assert "exactly one of" in message
    assert "got length, rate" in message


@pytest.mark.parametrize("name", ["workload.input_tokens", "workload.temperature"])
def test_nan(name: str) -> None:
    assert f"{name}: got nan" in error(InputError, {name: math.nan})


def test_a_drafter_bigger_than_the_target() -> None:
    message = error(
        UsageError,
        {"speculation.method": "draft_model", "speculation.drafter": "llama-3.1-70b"},
    )
    assert (
        "the drafter llama-3.1-70b (70.6B) is not smaller than the target llama-3.1-8b (8.03B)"
        in message
    )


def test_vocabularies_that_differ() -> None:
    message = error(
        UsageError,
        {"speculation.method": "draft_model", "speculation.drafter": "qwen3-0.6b"},
    )
    assert "vocabularies differ: qwen3-0.6b has 151936 tokens, llama-3.1-8b has 128256" in message


def test_a_model_that_does_not_fit() -> None:
    message = error(
        InfeasibleError,
        {
            "target.model": "llama-3.1-70b",
            "speculation.drafter": None,
            "speculation.method": "ngram",
        },
    )
    assert InfeasibleError.exit_code == 3
    # 131 GiB of weights on a device of 79 GiB; two hold them only on paper.
    assert "131" in message
    assert "GiB" in message
    assert "tensor_parallel_size" in message


def test_draft_ranks_that_vllm_refuses() -> None:
    message = error(
        UsageError,
        {"hardware.tensor_parallel_size": 4, "speculation.draft_tensor_parallel_size": 2},
    )
    assert "draft_tensor_parallel_size 2 is refused by vLLM; allowed: 1 or" in message
    assert message.endswith("4")


def test_ranks_that_do_not_divide_the_heads() -> None:
    message = error(UsageError, {"hardware.tensor_parallel_size": 3})
    assert "tensor_parallel_size 3 does not divide the 32 heads of llama-3.1-8b" in message
    assert "1, 2, 4, 8" in message


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"speculation.method": "medusa", "speculation.drafter": None}, "has no method 'medusa'"),
        ({"speculation.tree": {"topk": 4, "num_draft_tokens": 8}}, "drafts chains only"),
        (
            {"speculation.adaptive_verification": True, "engine.version": "0.19.1"},
            "has no adaptive verification",
        ),
        ({"workload.input_tokens": 200_000}, "is above max_model_len 131072"),
        ({"hardware.expert_parallel": True}, "has no experts"),
        ({"hardware.pipeline_parallel_size": 64}, "above the 32 layers"),
        ({"speculation.method": "eagle"}, "which drafts by eagle3; use --spec-method eagle3"),
        ({"speculation.method": "draft_model"}, "needs a stand-alone model"),
        ({"target.model": "qwen3-8b"}, "vocabularies differ"),
        ({"speculation.num_speculative_tokens": None}, "needs num_speculative_tokens"),
    ],
)  # fmt: skip
def test_contradictions(overrides: dict[str, Any], why: str) -> None:
    assert why in error(UsageError, overrides)


@pytest.mark.parametrize(
    "content", ["", "{", '{"architectures": ["LlamaForCausalLM"], "hidden_si', "{}", "[]", "null"]
)
def test_an_empty_or_truncated_config(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises((InputError, ModelConfigError)) as caught:
        load_model(path)
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
