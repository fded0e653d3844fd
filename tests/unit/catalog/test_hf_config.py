"""Reading config.json files: the samples, number formats, drafters, and every kind of bad input."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.analysis.size import drafter_size, model_size
from specsim.catalog.hf_config import mtp_drafter, read_config
from specsim.errors import ModelConfigError, SpecsimError
from specsim.schema.model import (
    CompressedAttention,
    DrafterSpec,
    FullAttention,
    LinearAttention,
    MlaAttention,
    ModelSpec,
)

Config = dict[str, Any]

LLAMA: Config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
}
MOE: Config = LLAMA | {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 64,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1024,
}

# file, total [1e9], active [1e9], weights, experts, KV cache
SAMPLES: list[tuple[str, float, float | None, str, str | None, str | None]] = [
    ("MiniMaxAI--MiniMax-M2.5_config", 229.0, 11.0, "fp8", None, None),
    ("MiniMaxAI--MiniMax-M2.7_config", 229.0, 11.0, "fp8", None, None),
    ("Qwen--Qwen3-0.6B_config", 0.596, None, "bf16", None, None),
    ("Qwen--Qwen3-235B-A22B-FP8_config", 235.09, 22.19, "fp8", None, None),
    ("Qwen--Qwen3-235B-A22B_config", 235.09, 22.19, "bf16", None, None),
    ("Qwen--Qwen3-30B-A3B-FP8_config", 30.532, 3.35, "fp8", None, None),
    ("Qwen--Qwen3-30B-A3B_config", 30.532, 3.35, "bf16", None, None),
    ("Qwen--Qwen3-32B-FP8-Static-PerTensor_config", 32.762, None, "fp8", None, "fp8"),
    ("Qwen--Qwen3-32B-FP8_config", 32.762, None, "fp8", None, None),
    ("Qwen--Qwen3-32B_config", 32.762, None, "bf16", None, None),
    ("Qwen--Qwen3-8B_config", 8.191, None, "bf16", None, None),
    ("Qwen--Qwen3-Coder-480B-A35B-Instruct_config", 480.15, 35.46, "bf16", None, None),
    ("Qwen--Qwen3-VL-235B-A22B-Instruct_config", 235.09, 22.19, "bf16", None, None),
    ("Qwen--Qwen3-VL-2B-Instruct_config", 1.721, None, "bf16", None, None),
    ("Qwen--Qwen3-VL-30B-A3B-Instruct_config", 30.532, 3.35, "bf16", None, None),
    ("Qwen--Qwen3-VL-32B-Instruct_config", 32.762, None, "bf16", None, None),
    ("Qwen--Qwen3-VL-32B-Thinking_config", 32.762, None, "bf16", None, None),
    ("Qwen--Qwen3-VL-4B-Instruct_config", 4.022, None, "bf16", None, None),
    ("Qwen--Qwen3.5-122B-A10B_config", 122.0, 10.0, "bf16", None, None),
    ("Qwen--Qwen3.5-27B_config", 27.0, None, "bf16", None, None),
    ("Qwen--Qwen3.5-35B-A3B_config", 35.0, 3.4, "bf16", None, None),
    ("Qwen--Qwen3.5-397B-A17B_config", 397.0, 17.2, "bf16", None, None),
    ("XiaomiMiMo--MiMo-7B-Base_config", 7.62, None, "bf16", None, None),
    ("codellama-34b-instruct-hf", 33.744, None, "bf16", None, None),
    ("deepseek-ai--DeepSeek-R1_config", 671.0, 37.5, "fp8", None, None),
    ("deepseek-ai--DeepSeek-V3.2_config", 671.9, 38.4, "fp8", None, None),
    ("deepseek-ai--DeepSeek-V3_config", 671.0, 37.5, "fp8", None, None),
    ("deepseek-ai--DeepSeek-V4-Flash_config", 284.0, 13.7, "fp8", "mxfp4", "fp8"),
    ("deepseek-v2-lite", 15.706, 2.66, "bf16", None, None),
    ("glm-5.2-fp8", 744.0, 41.0, "fp8", None, None),
    ("google--gemma-4-26B-A4B_config", 25.2, 3.8, "bf16", None, None),
    ("llama-2-7b-hf", 6.738, None, "fp16", None, None),
    ("llama-3.1-70b-instruct", 70.554, None, "bf16", None, None),
    ("llama-3.1-8b-instruct", 8.030, None, "bf16", None, None),
    ("meta-llama--Llama-4-Maverick-17B-128E-Instruct_config", 400.7, 17.2, "bf16", None, None),
    ("meta-llama--Meta-Llama-3.1-405B_config", 405.853, None, "bf16", None, None),
    ("meta-llama--Meta-Llama-3.1-70B_config", 70.554, None, "bf16", None, None),
    ("meta-llama--Meta-Llama-3.1-8B_config", 8.030, None, "bf16", None, None),
    ("mistral-nemo-instruct-2407", 12.248, None, "bf16", None, None),
    ("mistralai--Mixtral-8x22B-v0.1_config", 140.62, 39.15, "bf16", None, None),
    ("mistralai--Mixtral-8x7B-v0.1_config", 46.703, 12.88, "bf16", None, None),
    ("mixtral-8x7b-v0.1", 46.703, 12.88, "bf16", None, None),
    ("moonshotai--Kimi-K2-Instruct_config", 1026.4, 32.9, "fp8", None, None),
    ("moonshotai--Kimi-K2.5_config", 1026.4, 32.9, "bf16", "int4", None),
    ("nvidia--Gemma-4-31B-IT-NVFP4_config", 31.0, None, "nvfp4", None, "fp8"),
    ("nvidia--Llama-3.1-70B-Instruct-FP8_config", 70.554, None, "bf16", None, None),
    ("nvidia--Qwen3.6-27B-NVFP4_config", 27.0, None, "nvfp4", None, "fp8"),
    ("openai--gpt-oss-120b_config", 116.83, 5.7, "bf16", "mxfp4", None),
    ("openai--gpt-oss-20b_config", 20.91, 4.2, "bf16", "mxfp4", None),
    ("qwen2.5-7b-instruct", 7.616, None, "bf16", None, None),
    ("qwen3-14b", 14.768, None, "bf16", None, None),
    ("qwen3-30b-a3b", 30.532, 3.35, "bf16", None, None),
    ("sgl-project--DeepSeek-V4-Flash-FP8_config", 284.0, 13.7, "fp8", None, "fp8"),
    ("yi-34b", 34.389, None, "bf16", None, None),
    ("zai-org--GLM-5-FP8_config", 744.0, 41.5, "fp8", None, None),
    ("zai-org--GLM-5.1-FP8_config", 744.0, 41.5, "fp8", None, None),
    ("zai-org--GLM-5.1_config", 744.0, 41.5, "bf16", None, None),
    ("zai-org--GLM-5.2-FP8_config", 744.0, 41.0, "fp8", None, None),
    ("zai-org--GLM-5.2_config", 744.0, 41.0, "bf16", None, None),
    ("zai-org--GLM-5_config", 744.0, 41.5, "bf16", None, None),
]


def model(source: Path | Config) -> ModelSpec:
    spec = read_config(source)
    assert isinstance(spec, ModelSpec)
    return spec


def drafter(source: Config) -> DrafterSpec:
    spec = read_config(source)
    assert isinstance(spec, DrafterSpec)
    return spec


def without(config: Config, *names: str) -> Config:
    return {k: v for k, v in config.items() if k not in names}


# ---- the sample files ----


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "total", "active", "weights", "experts", "kv"), SAMPLES, ids=[r[0] for r in SAMPLES]
)
def test_sample(
    shared: Path, name: str, total: float, active: float | None, weights: str,
    experts: str | None, kv: str | None,
) -> None:  # fmt: skip
    spec = model(shared / "samples" / "hf_configs" / f"{name}.json")
    size = model_size(spec)
    assert size.total_params / 1e9 == pytest.approx(total, rel=0.0102)
    if active is not None:
        assert size.active_params / 1e9 == pytest.approx(active, rel=0.03)
    assert (spec.weight_dtype, spec.expert_dtype, spec.kv_dtype) == (weights, experts, kv)
    assert spec.id == name.removesuffix("_config")


@pytest.mark.shared
def test_every_sample_is_in_the_table(shared: Path) -> None:
    files = {p.stem for p in (shared / "samples" / "hf_configs").glob("*.json")}
    assert files == {row[0] for row in SAMPLES}


@pytest.mark.shared
def test_cache_of_deepseek_v4(shared: Path) -> None:
    """A 584-byte entry per 4 or 128 tokens and an index key of 132 per 4, as vLLM stores them."""
    spec = model(shared / "samples/hf_configs/deepseek-ai--DeepSeek-V4-Flash_config.json")
    layers = [(g.count, g.attention) for g in spec.layers]
    counts = {a.compress_ratio: n for n, a in layers if isinstance(a, CompressedAttention)}
    assert counts == {0: 2, 4: 21, 128: 20}
    per_token = 0.0
    for n, a in layers:
        assert isinstance(a, CompressedAttention)
        if a.compress_ratio:
            entry = a.entry_bytes + (a.indexer.key_bytes if a.indexer else 0)
            per_token += n * entry / a.compress_ratio
    assert per_token == 21 * (584 + 132) / 4 + 20 * 584 / 128 == 3850.25


@pytest.mark.shared
def test_shared_indexers_of_glm_5_2(shared: Path) -> None:
    spec = model(shared / "samples/hf_configs/zai-org--GLM-5.2_config.json")
    found: dict[bool, int] = {}
    for g in spec.layers:
        assert isinstance(g.attention, MlaAttention)
        assert g.attention.indexer is not None
        assert g.attention.indexer.key_bytes == 132
        found[g.attention.indexer.shared] = found.get(g.attention.indexer.shared, 0) + g.count
    assert found == {False: 21, True: 57}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("deepseek-ai--DeepSeek-V3", 11.61),
        ("Qwen--Qwen3.5-27B", 0.4247),
        ("Qwen--Qwen3.5-35B-A3B", 0.8446),
        ("deepseek-ai--DeepSeek-V4-Flash", 6.609),
        ("zai-org--GLM-5", 9.944),
    ],
)
def test_mtp_head(shared: Path, name: str, total: float) -> None:
    spec = model(shared / "samples" / "hf_configs" / f"{name}_config.json")
    head = mtp_drafter(spec)
    assert head is not None
    assert drafter_size(head).total_params / 1e9 == pytest.approx(total, rel=0.002)
    assert (head.kind, head.target, head.n_mtp_layers) == ("mtp", spec.id, 1)
    assert not isinstance(head.layers[0].attention, LinearAttention)


def test_no_mtp_head_without_mtp_layers() -> None:
    assert mtp_drafter(model(LLAMA)) is None


# ---- what a config leaves out ----


@pytest.mark.parametrize(
    ("model_type", "tied"),
    [("llama", False), ("qwen2", False), ("gemma", True), ("gemma3_text", True), ("cohere", True),
     ("smollm3", True), ("starcoder2", True), ("olmo2", False), ("qwen3", False)],
)  # fmt: skip
def test_tied_embeddings_by_family(model_type: str, tied: bool) -> None:
    config = without(LLAMA, "tie_word_embeddings", "architectures") | {"model_type": model_type}
    assert model(config).tied_embeddings is tied


def test_outer_tie_word_embeddings_counts_where_the_text_part_is_silent() -> None:
    inner = without(LLAMA, "tie_word_embeddings")
    config = {"model_type": "x_vl", "text_config": inner, "tie_word_embeddings": True}
    assert model(config).tied_embeddings
    assert "multimodal" in model(config).note


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config"])
def test_text_part(part: str) -> None:
    config = {"model_type": "some_vl", part: LLAMA, "vision_config": {"hidden_size": 1}}
    assert model(config).layers == model(LLAMA).layers


def test_thinker_of_an_omni_model() -> None:
    config = {"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": MOE},
              "talker_config": {"text_config": LLAMA}}  # fmt: skip
    assert model(config).layers == model(MOE).layers


def test_qk_norms() -> None:
    def norm(**more: Any) -> str:
        attention = model(LLAMA | {"architectures": None} | more).layers[0].attention
        assert isinstance(attention, FullAttention)
        return attention.qk_norm

    assert norm(model_type="qwen3") == "per_head"
    assert norm(model_type="olmo2") == "full"
    assert norm(model_type="llama") == "none"
    assert norm(model_type="cohere", use_qk_norm=True) == "per_head"
    assert norm(model_type="cohere", use_qk_norm=False) == "none"


def test_a_head_size_is_taken_from_the_family() -> None:
    attention = model(LLAMA | {"model_type": "qwen3", "hidden_size": 1024,
                               "num_attention_heads": 16}).layers[0].attention  # fmt: skip
    assert isinstance(attention, FullAttention)
    assert attention.head_dim == 128


@pytest.mark.parametrize(
    "more",
    [
        {"moe_gate": "topk", "moe_capacity": [64, 64], "moe_dropout_prob": 0.1},
        {"shared_moe_mode": "sigmoid", "moe_token_dropping": True, "num_expert_group": 1},
        {"use_mla": False, "kv_lora_rank": 512, "q_lora_rank": 1536, "v_head_dim": 192},
        {"sliding_window": -1, "mtp_loss_scaling_factor": 0.3, "router_aux_loss_coef": 0.01},
        {"layer_types": ["full_attention"] * 32, "sliding_window_pattern": 6},
        {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28},
        {"rope_scaling": {"factor": 8.0}, "rope_theta": 5e5, "partial_rotary_factor": 0.5},
    ],
)
def test_fields_that_cost_nothing_are_passed_over(more: Config) -> None:
    assert model(MOE | more).layers == model(MOE).layers


# ---- number formats ----

W4A16 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
QUANTISED: list[tuple[str, Config, tuple[str, str | None]]] = [
    ("awq", {"quant_method": "awq", "bits": 4, "group_size": 128}, ("int4", None)),
    ("gptq4", {"quant_method": "gptq", "bits": 4}, ("int4", None)),
    ("gptq8", {"quant_method": "gptq", "bits": 8}, ("int8", None)),
    ("auto-round", {"quant_method": "auto-round", "bits": 4, "data_type": "int"}, ("int4", None)),
    ("fbgemm", {"quant_method": "fbgemm_fp8"}, ("fp8", None)),
    ("nf4", {"quant_method": "bitsandbytes", "load_in_4bit": True}, ("int4", None)),
    ("bnb8", {"quant_method": "bitsandbytes", "load_in_8bit": True}, ("int8", None)),
    ("torchao", {"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8X"}}},
     ("fp8", None)),
    ("quark", {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}},
     ("mxfp4", None)),
    ("modelopt", {"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("nvfp4", None)),
    ("hf_quant", {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}},
     ("fp8", None)),
    ("w4a16", {"quant_method": "compressed-tensors",
               "config_groups": {"group_0": {"targets": ["Linear"], "weights": W4A16}}},
     ("int4", None)),
    ("w8a8", {"quant_method": "compressed-tensors",
              "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int"}}}}, ("int8", None)),
    ("fp8-dynamic", {"quant_method": "compressed-tensors",
                     "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}}},
     ("fp8", None)),
    ("nvfp4-pack", {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
                    "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float",
                                                        "group_size": 16}}}}, ("nvfp4", None)),
    ("attention in 16 bit", {"quant_method": "fp8", "ignored_layers":
                             [f"model.layers.{i}.self_attn" for i in range(32)]}, ("bf16", "fp8")),
    ("attention by regex", {"quant_method": "compressed-tensors", "ignore": ["re:.*self_attn.*"],
                            "config_groups": {"g": {"weights": W4A16}}}, ("bf16", "int4")),
    ("attention by glob", {"quant_method": "modelopt", "quant_algo": "NVFP4",
                           "ignore": ["*self_attn*", "lm_head"]}, ("bf16", "nvfp4")),
    ("only routers spared", {"quant_method": "fp8", "modules_to_not_convert":
                             ["lm_head", "model.layers.9.mlp.gate"]}, ("fp8", None)),
]  # fmt: skip


@pytest.mark.parametrize(("quant", "formats"), [r[1:] for r in QUANTISED],
                         ids=[r[0] for r in QUANTISED])  # fmt: skip
def test_weight_formats(quant: Config, formats: tuple[str, str | None]) -> None:
    spec = model(MOE | {"quantization_config": quant})
    assert (spec.weight_dtype, spec.expert_dtype) == formats


def test_kv_cache_format() -> None:
    for value in ("FP8", {"num_bits": 8, "type": "float"}):
        quant = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": value}
        assert model(LLAMA | {"quantization_config": quant}).kv_dtype == "fp8"


@pytest.mark.parametrize(
    "quant",
    [
        {"quant_method": "aqlm"},
        {"quant_method": "gguf"},
        {"quant_method": "gptq", "bits": 3},
        {"quant_method": "modelopt", "quant_algo": "FP2"},
        {"quant_method": "modelopt"},
        {"quant_method": "compressed-tensors", "config_groups": {}},
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4,
                                                                                   "type": "x"}}}},
        {"quant_method": "bitsandbytes"},
        {"quant_method": "quark"},
        {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 4}},
        {},
    ],
)  # fmt: skip
def test_unknown_formats_are_refused(quant: Config) -> None:
    config = LLAMA | {"quantization_config": quant or {"bits": 4}}
    with pytest.raises(ModelConfigError):
        read_config(config)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float16", "fp16"), ("bfloat16", "bf16"), ("float32", "fp32")]
)
def test_plain_dtype(dtype: str, expected: str) -> None:
    assert model(LLAMA | {"torch_dtype": dtype}).weight_dtype == expected
    assert model(without(LLAMA, "torch_dtype") | {"dtype": dtype}).weight_dtype == expected


def test_hf_quant_config_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    quant = {"producer": {"name": "modelopt"},
             "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}  # fmt: skip
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(quant))
    spec = model(tmp_path)
    assert (spec.weight_dtype, spec.kv_dtype, spec.id) == ("fp8", "fp8", tmp_path.name)


# ---- drafters ----


def test_eagle_is_known_by_its_class_only() -> None:
    layer = LLAMA | {"num_hidden_layers": 1}
    assert isinstance(read_config(layer), ModelSpec)
    head = drafter(layer | {"architectures": ["EagleLlamaForCausalLM"]})
    assert (head.kind, head.fc_in_features, head.own_head) == ("eagle", 8192, False)
    assert drafter_size(head).total_params / 1e9 == pytest.approx(0.2517, rel=1e-3)


def test_eagle3() -> None:
    head = drafter(LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1,
                            "draft_vocab_size": 32000})  # fmt: skip
    attention = head.layers[0].attention
    assert isinstance(attention, FullAttention)
    assert (head.kind, head.target, head.draft_vocab_size) == ("eagle3", "", 32000)
    assert attention.input_multiplier == 2
    assert drafter_size(head).total_params / 1e9 == pytest.approx(0.4247, rel=1e-3)


def test_eagle3_of_a_wider_target() -> None:
    head = drafter(LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1,
                            "draft_vocab_size": 32000, "hidden_size": 6144, "head_dim": 128,
                            "intermediate_size": 16384, "num_attention_heads": 48,
                            "target_hidden_size": 8192})  # fmt: skip
    assert head.fc_in_features == 3 * 8192
    assert drafter_size(head).total_params / 1e9 == pytest.approx(0.788, rel=1e-3)


def test_speculators_format() -> None:
    config = {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": 32000,
        "transformer_layer_config": LLAMA | {"num_hidden_layers": 1},
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [{"speculative_tokens": 5}],
            "verifier": {"name_or_path": "meta-llama/Llama-3.1-8B-Instruct"},
        },
    }
    head = drafter(config)
    assert (head.kind, head.target) == ("eagle3", "meta-llama/Llama-3.1-8B-Instruct")
    assert drafter_size(head).total_params / 1e9 == pytest.approx(0.4247, rel=1e-3)


def test_medusa() -> None:
    head = drafter({"model_type": "medusa", "medusa_num_heads": 5, "medusa_num_layers": 1,
                    "hidden_size": 4096, "vocab_size": 32000})  # fmt: skip
    assert (head.kind, head.n_medusa_heads) == ("medusa", 5)
    assert drafter_size(head).total_params / 1e9 == pytest.approx(0.739, rel=2e-3)


def test_dflash() -> None:
    config = LLAMA | {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5,
        "hidden_size": 5120, "intermediate_size": 17408, "head_dim": 128, "vocab_size": 248320,
        "block_size": 16, "dflash_config": {"target_layer_ids": [1, 16, 31, 46, 61],
                                            "mask_token_id": 248070},
    }  # fmt: skip
    head = drafter(config)
    assert (head.kind, head.block_size, head.fc_in_features) == ("dflash", 16, 25600)
    assert drafter_size(head).total_params / 1e9 == pytest.approx(1.7302, rel=2e-3)


# ---- what is refused ----

REFUSED: list[tuple[str, Config, str]] = [
    ("t5", LLAMA | {"is_encoder_decoder": True}, "is_encoder_decoder"),
    ("whisper", {"model_type": "whisper", "hidden_size": 8}, "whisper"),
    ("bert", {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8}, "encoder"),
    ("clip", {"model_type": "clip_vision_model", "hidden_size": 8}, "vision"),
    ("reward", LLAMA | {"architectures": ["LlamaForSequenceClassification"]}, "classifies"),
    ("mamba", {"model_type": "mamba2", "hidden_size": 8}, "Mamba"),
    ("rwkv", {"model_type": "rwkv", "hidden_size": 8}, "RWKV"),
    ("zamba", LLAMA | {"model_type": "zamba2"}, "shared between layers"),
    ("gemma3n", LLAMA | {"model_type": "gemma3n_text"}, "AltUp"),
    ("cross-attention", LLAMA | {"cross_attention_layers": [3, 8]}, "cross_attention_layers"),
    ("per-layer input", LLAMA | {"model_type": "gemma4_text", "hidden_size_per_layer_input": 256,
                                 "vocab_size_per_layer_input": 9}, "per_layer_input"),
    ("kv sharing", LLAMA | {"num_kv_shared_layers": 10}, "num_kv_shared_layers"),
    ("latent experts", MOE | {"moe_latent_size": 512}, "moe_latent_size"),
    ("engram", LLAMA | {"engram_layers": [1]}, "engram_layers"),
    ("layer kind", LLAMA | {"layer_types": ["conv"] * 32}, "layer_types holds 'conv'"),
    ("short list", LLAMA | {"layer_types": ["full_attention"] * 3}, "3 entries for 32 layers"),
    ("unknown model, unknown field", LLAMA | {"model_type": "zorglub", "architectures": None,
                                              "zorgs": 3}, "zorgs"),
    ("unknown model, tying unsaid", without(LLAMA, "tie_word_embeddings", "architectures")
     | {"model_type": "zorglub"}, "tie_word_embeddings"),
    ("unknown model, plain gelu", LLAMA | {"model_type": "zorglub", "architectures": None,
                                           "hidden_act": "gelu"}, "gated"),
    ("opt-350m", LLAMA | {"word_embed_proj_dim": 512}, "word_embed_proj_dim"),
    ("dict in a list", MOE | {"mlp_layer_types": [{}] * 32}, "mlp_layer_types"),
    ("superscript", MOE | {"moe_layers_enum": "4,²"}, "moe_layers_enum"),
    ("jetmoe", MOE | {"model_type": "jetmoe"}, "mixture of attention heads"),
    ("speculator", {"speculators_model_type": "independent"}, "speculators_model_type"),
    ("no size", without(LLAMA, "hidden_size"), "hidden_size"),
    ("no layers", without(LLAMA, "num_hidden_layers"), "num_hidden_layers"),
    ("no vocabulary", without(LLAMA, "vocab_size"), "vocab_size"),
    ("no heads", without(LLAMA, "num_attention_heads"), "num_attention_heads"),
    ("no width", without(LLAMA, "intermediate_size"), "intermediate_size"),
    ("no experts per token", without(MOE, "num_experts_per_tok"), "num_experts_per_tok"),
    ("text", LLAMA | {"hidden_size": "4096"}, "hidden_size is '4096'"),
    ("negative", LLAMA | {"num_hidden_layers": -1}, "num_hidden_layers is -1"),
    ("zero", LLAMA | {"vocab_size": 0}, "vocab_size"),
    ("huge", LLAMA | {"num_hidden_layers": 10**9}, "num_hidden_layers"),
    ("nan", LLAMA | {"hidden_size": float("nan")}, "hidden_size is nan"),
    ("list", LLAMA | {"vocab_size": [1, 2]}, "vocab_size is [1, 2]"),
    ("true", LLAMA | {"num_attention_heads": True}, "num_attention_heads is True"),
    ("flag", LLAMA | {"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
    ("dtype", LLAMA | {"torch_dtype": "complex64"}, "complex64"),
    ("heads", LLAMA | {"num_key_value_heads": 7}, "no multiple of 7"),
    ("topk", MOE | {"num_experts_per_tok": 100}, "100 experts per token of 64"),
    ("architectures", LLAMA | {"architectures": [3]}, "architectures"),
    ("empty", {}, "empty"),
    ("generation_config", {"do_sample": True, "temperature": 0.6}, "generation_config.json"),
    ("index", {"metadata": {"total_size": 1}, "weight_map": {"a": "b"}}, "safetensors index"),
    ("tokenizer", {"tokenizer_class": "X", "added_tokens_decoder": {}}, "tokenizer"),
    ("adapter", {"peft_type": "LORA", "r": 8}, "LoRA"),
    ("diffusers", {"_class_name": "Flux", "_diffusers_version": "1"}, "diffusion"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "named"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused_in_one_sentence(config: Config, named: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        read_config(config)
    message = str(caught.value)
    assert named in message
    assert "\n" not in message
    assert len(message) < 500


@pytest.mark.parametrize(
    "text", ["", "   \n", '{"hidden_size": 4096, "num_hi', "[1, 2]", "hello", "\x00\x01", "null",
             '{"a": ' * 3000]
)  # fmt: skip
def test_broken_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ModelConfigError) as caught:
        read_config(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match="no such file"):
        read_config(tmp_path / "none.json")
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ModelConfigError, match="not text"):
        read_config(tmp_path)


def test_attention_that_stays_in_another_format(shared: Path) -> None:
    samples = shared / "samples" / "hf_configs"
    gemma = read_config(samples / "nvidia--Gemma-4-31B-IT-NVFP4_config.json")
    qwen = read_config(samples / "nvidia--Qwen3.6-27B-NVFP4_config.json")
    assert isinstance(gemma, ModelSpec)
    assert isinstance(qwen, ModelSpec)
    assert (gemma.weight_dtype, gemma.attention_dtype) == ("nvfp4", "bf16")
    assert (qwen.weight_dtype, qwen.attention_dtype) == ("nvfp4", "fp8")


@pytest.mark.parametrize(
    ("quantization", "by_block"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, True),
        ({"quant_method": "fp8"}, False),
        ({"quant_method": "fp8", "weight_block_size": None}, False),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, True),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, False),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8_PB_REAL"}}, True),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "block"}}}}, True),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}, False),
        ({"quant_method": "awq", "bits": 4}, False),
    ],
)  # fmt: skip
def test_fp8_with_a_scale_per_block(quantization: Config, by_block: bool) -> None:
    assert model(LLAMA | {"quantization_config": quantization}).weight_block is by_block
    assert model(MOE | {"quantization_config": quantization}).weight_block is by_block


def test_a_name_that_says_quantised_without_a_config_of_it(tmp_path: Path) -> None:
    path = tmp_path / "nvidia--Llama-3.1-8B-Instruct-FP8_config.json"
    path.write_text(json.dumps(LLAMA))
    spec = read_config(path)
    assert spec.weight_dtype == "bf16"
    assert spec.confidence == "low"
    assert "says fp8" in spec.note
    assert "--weight-dtype fp8" in spec.note
    named_inside = read_config(LLAMA | {"_name_or_path": "org/Llama-3.1-8B-NVFP4/"})
    assert named_inside.confidence == "low"
    assert "says nvfp4" in named_inside.note


def test_a_name_that_says_quantised_and_is(tmp_path: Path) -> None:
    folder = tmp_path / "Llama-3.1-8B-Instruct-FP8"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert read_config(folder).confidence == "low"
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(beside))
    spec = read_config(folder)
    assert (spec.weight_dtype, spec.confidence, spec.note) == ("fp8", "high", "")
    assert read_config(LLAMA, id="Llama-3.1-8B-BF16").confidence == "high"


def test_experts_without_a_gate() -> None:
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"  # Nemotron-3 Nano 30B-A3B
    spec = model(
        {
            "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"],
            "hidden_size": 2688, "num_hidden_layers": 52, "hybrid_override_pattern": pattern,
            "vocab_size": 131072, "num_attention_heads": 32, "num_key_value_heads": 2,
            "head_dim": 128, "intermediate_size": 1856, "mlp_hidden_act": "relu2",
            "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856,
            "moe_shared_expert_intermediate_size": 3712, "n_shared_experts": 1,
            "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
            "conv_kernel": 4, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        }
    )  # fmt: skip
    experts = [(group.count, group.moe) for group in spec.layers if group.moe is not None]
    assert [count for count, _ in experts] == [23]
    moe = experts[0][1]
    assert moe is not None
    assert moe.gated is False
    assert moe.shared_intermediate_size == 3712
    # Two matrices per expert: 29.4e9 of the model's 31.6e9 parameters (model card).
    routed = 23 * moe.n_experts * 2 * spec.hidden_size * moe.intermediate_size
    assert routed == pytest.approx(29.4e9, rel=0.01)
    assert all(group.moe is None or group.moe.gated for group in model(MOE).layers)


def test_an_unknown_model_that_says_everything_is_read_as_llama() -> None:
    spec = model(LLAMA | {"model_type": "zorglub", "architectures": None, "rope_theta": 1e6})
    assert spec.layers == model(LLAMA).layers
    assert spec.confidence == "medium"
    assert "zorglub" in spec.note


# ---- nothing but our own errors ----

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**12), st.floats(), st.text(max_size=6),
    st.lists(st.one_of(st.integers(-2, 40), st.text(max_size=4), st.none()), max_size=40),
    st.dictionaries(st.text(max_size=4), st.integers(-1, 9), max_size=3),
)  # fmt: skip
V4: Config = without(LLAMA, "intermediate_size") | {
    "model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"], "head_dim": 512,
    "compress_ratios": [0, 4, 128, 4] * 8, "q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8,
    "qk_rope_head_dim": 64, "sliding_window": 128, "index_n_heads": 64, "index_head_dim": 128,
    "index_topk": 512, "n_routed_experts": 64, "num_experts_per_tok": 4, "n_shared_experts": 1,
    "moe_intermediate_size": 1024, "hc_mult": 4, "expert_dtype": "fp4",
    "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip
HYBRID: Config = MOE | {
    "model_type": "granitemoehybrid", "layer_types": (["mamba"] * 7 + ["attention"]) * 4,
    "mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_d_state": 128, "mamba_n_groups": 1,
    "mamba_expand": 2, "shared_intermediate_size": 1024, "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "compressed-tensors", "ignore": ["re:.*attn.*"],
                            "config_groups": {"g": {"targets": ["Linear"], "weights": W4A16}}},
}  # fmt: skip
MLA: Config = MOE | {
    "model_type": "glm_moe_dsa", "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64, "v_head_dim": 256, "index_topk": 2048, "index_n_heads": 32,
    "index_head_dim": 128, "first_k_dense_replace": 3, "indexer_types": ["full", "shared"] * 16,
    "sliding_window": None, "layer_types": None, "n_shared_experts": 1,
}  # fmt: skip
EAGLE3: Config = {
    "speculators_model_type": "eagle3", "draft_vocab_size": 32000,
    "transformer_layer_config": LLAMA | {"num_hidden_layers": 1},
    "speculators_config": {"verifier": {"name_or_path": "x"}, "proposal_methods": [{}]},
}  # fmt: skip
BASES = [LLAMA, MOE, V4, HYBRID, MLA, EAGLE3, {"text_config": MLA, "model_type": "some_vl"}]


def test_bases_are_readable() -> None:
    for config in BASES:
        read_config(config)


@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_mutated_configs_never_raise_anything_else(data: st.DataObject) -> None:
    config = dict(data.draw(st.sampled_from(BASES)))
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3)):
        if data.draw(st.booleans()):
            config.pop(key, None)
        elif isinstance(config.get(key), dict) and config[key] and data.draw(st.booleans()):
            inner = data.draw(st.sampled_from(sorted(config[key])))
            config[key] = config[key] | {inner: data.draw(JUNK)}
        else:
            config[key] = data.draw(JUNK)
    spec = None
    with contextlib.suppress(SpecsimError):  # any other exception fails the test
        spec = read_config(config)
    if spec is not None:
        size = model_size(spec) if isinstance(spec, ModelSpec) else drafter_size(spec)
        assert size.total_params > 0
        if isinstance(spec, ModelSpec):
            mtp_drafter(spec)
