"""Sizes by part, and the bytes that they occupy."""

import pytest

from specsim.analysis.size import drafter_size, model_size, weight_bytes
from specsim.catalog.models import load_drafter, load_model
from specsim.units import GIB


def test_parts_of_llama_8b_add_up_to_the_exact_checkpoint():
    size = model_size(load_model("llama-3.1-8b"))
    assert size.total_params == size.active_params == 8_030_261_248
    assert size.embedding_params == size.head_params == 128256 * 4096
    assert size.norm_params == 65 * 4096
    assert size.routed_expert_params == size.router_params == size.other_params == 0


def test_a_tied_head_is_not_stored_twice():
    size = model_size(load_model("qwen3-0.6b"))
    assert size.head_params == 0
    assert size.total_params == 596_049_920


def test_active_parameters_of_a_mixture():
    size = model_size(load_model("mixtral-8x7b"))
    assert size.total_params == 46_702_792_704
    assert size.inactive_params == pytest.approx(size.routed_expert_params * 6 / 8)
    assert size.active_params == pytest.approx(12.88e9, rel=0.001)


def test_shared_experts_are_always_active():
    size = model_size(load_model("deepseek-v3"))
    assert size.shared_expert_params == 58 * 3 * 7168 * 2048
    assert size.dense_mlp_params == 3 * 3 * 7168 * 18432


def test_bf16_checkpoint_is_two_bytes_per_weight():
    size = model_size(load_model("llama-3.1-8b"))
    assert weight_bytes(size, weight_dtype="bf16") == 2 * size.total_params
    assert weight_bytes(size, weight_dtype="fp32") == 4 * size.total_params


def test_quantised_checkpoint_keeps_embedding_and_head_in_16_bit():
    size = model_size(load_model("llama-3.1-8b"))
    tables = 2 * 128256 * 4096
    expected = 2 * (tables + size.norm_params) + (size.total_params - tables - size.norm_params)
    assert weight_bytes(size, weight_dtype="fp8") == expected


def test_gpt_oss_120b_has_the_size_of_its_checkpoint():
    # The published checkpoint is 60.8 GiB (model card, arXiv 2508.10925 table 1).
    spec = load_model("gpt-oss-120b")
    size = model_size(spec)
    stored = weight_bytes(size, weight_dtype=spec.weight_dtype, expert_dtype=spec.expert_dtype)
    assert stored / GIB == pytest.approx(60.8, rel=0.005)


def test_eagle3_shares_the_embedding_and_owns_a_small_head():
    size = drafter_size(load_drafter("eagle3-llama3.1-8b"))
    assert size.embedding_params == 0
    assert size.head_params == 32000 * 4096
    assert size.other_params == 3 * 4096 * 4096


def test_eagle3_whose_hidden_size_differs_stores_its_embedding():
    size = drafter_size(load_drafter("eagle3-llama3.3-70b"))
    assert size.embedding_params == 128256 * 6144


def test_medusa_is_heads_only():
    size = drafter_size(load_drafter("medusa-vicuna-7b (5 heads)"))
    assert size.head_params == 5 * 32000 * 4096
    assert size.other_params == 5 * 4096 * 4097
    assert size.attention_params == 0


def test_mtp_is_one_layer_of_the_target():
    target, mtp = model_size(load_model("deepseek-v3")), load_drafter("mtp-deepseek-v3")
    size = drafter_size(mtp)
    assert size.attention_params == target.attention_params / 61
    assert size.routed_expert_params == target.routed_expert_params / 58
    assert size.embedding_params == size.head_params == 0
    assert size.other_params == 2 * 7168 * 7168


def test_assistant_ties_its_own_table_and_projects_both_ways():
    size = drafter_size(load_drafter("mtp-gemma-4-31b"))
    assert size.embedding_params == 262144 * 1024
    assert size.head_params == 0
    assert size.other_params == 3 * 5376 * 1024


def test_quantised_draft_head():
    spec = load_drafter("mtp-qwen3.8-27b-40k-head")
    size = drafter_size(spec)
    plain = weight_bytes(size, weight_dtype=spec.weight_dtype)
    stored = weight_bytes(size, weight_dtype=spec.weight_dtype, head_dtype=spec.head_dtype)
    assert plain - stored == pytest.approx(40000 * 5120 * (2 - 0.515625))
