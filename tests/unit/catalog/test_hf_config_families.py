"""Hand-written configs of families without a sample file, with their known sizes."""

from __future__ import annotations

from typing import Any

import pytest

from specsim.analysis.size import model_size
from specsim.catalog.hf_config import read_config
from specsim.schema.model import FullAttention, LinearAttention, MlaAttention, ModelSpec

Config = dict[str, Any]


def shape(
    model_type: str, hidden: int, layers: int, heads: int, vocab: int, kv: int | None = None,
    width: int | None = None, **more: Any,
) -> Config:  # fmt: skip
    config: Config = {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": vocab,
        "max_position_embeddings": 131072,
    }
    if kv is not None:
        config["num_key_value_heads"] = kv
    if width is not None:
        config["intermediate_size"] = width
    return config | more


def experts(n: int, topk: int, width: int, **more: Any) -> Config:
    return {"num_experts": n, "num_experts_per_tok": topk, "moe_intermediate_size": width} | more


HYBRID_8B = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"

# name, config, total [1e9], active [1e9] or None. Totals are those of the published checkpoints
# (model cards, safetensors), the text part of multimodal ones.
# fmt: off
TABLE: list[tuple[str, Config, float, float | None]] = [
    ("llama-1-7b", shape("llama", 4096, 32, 32, 32000, width=11008), 6.738, None),
    (
        "llama-3.2-1b",
        shape("llama", 2048, 16, 32, 128256, 8, 8192, tie_word_embeddings=True, head_dim=64),
        1.236,
        None,
    ),
    (
        "llama-4-scout",
        shape("llama4_text", 5120, 48, 40, 202048, 8, 8192, num_local_experts=16,
              num_experts_per_tok=1, interleave_moe_layer_step=1, intermediate_size_mlp=16384,
              attention_chunk_size=8192, head_dim=128, use_qk_norm=True),
        107.8, 17.2,
    ),
    (
        "mistral-7b",
        shape("mistral", 4096, 32, 32, 32000, 8, 14336, sliding_window=4096),
        7.242, None,
    ),
    (
        "mistral-large-3",
        shape("mistral4", 7168, 61, 128, 131072, 128, 16384, n_routed_experts=128,
              num_experts_per_tok=4, moe_intermediate_size=4096, n_shared_experts=1,
              first_k_dense_replace=3, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
              qk_rope_head_dim=64, v_head_dim=128),
        673.0, 39.0,
    ),
    ("gemma-2b", shape("gemma", 2048, 18, 8, 256000, 1, 16384, head_dim=256), 2.506, None),
    ("gemma-7b", shape("gemma", 3072, 28, 16, 256000, 16, 24576, head_dim=256), 8.538, None),
    (
        "gemma-2-9b",
        shape("gemma2", 3584, 42, 16, 256000, 8, 14336, head_dim=256, sliding_window=4096,
              query_pre_attn_scalar=256, hidden_activation="gelu_pytorch_tanh"),
        9.242, None,
    ),
    (
        "gemma-3-27b",
        {
            "model_type": "gemma3",
            "architectures": ["Gemma3ForConditionalGeneration"],
            "vision_config": {"hidden_size": 1152},
            "text_config": shape("gemma3_text", 5376, 62, 32, 262208, 16, 21504, head_dim=128,
                                 sliding_window=1024, sliding_window_pattern=6),
        },
        27.009,
        None,
    ),
    (
        "qwen-7b",
        shape("qwen", 4096, 32, 32, 151936, width=22016, kv_channels=128, no_bias=True,
              seq_length=8192, tie_word_embeddings=False),
        7.721, None,
    ),
    (
        "qwen1.5-moe-a2.7b",
        shape("qwen2_moe", 2048, 24, 16, 151936, 16, 5632, decoder_sparse_step=1,
              shared_expert_intermediate_size=5632, **experts(60, 4, 1408)),
        14.316, 2.69,
    ),
    (
        "qwen2-57b-a14b",
        shape("qwen2_moe", 3584, 28, 28, 151936, 4, 18944, decoder_sparse_step=1,
              shared_expert_intermediate_size=20480, **experts(64, 8, 2560)),
        57.41, 14.2,
    ),
    (
        "qwen2.5-vl-3b",
        shape("qwen2_5_vl", 2048, 36, 16, 151936, 2, 11008, tie_word_embeddings=True,
              use_sliding_window=False, sliding_window=32768, max_window_layers=70,
              architectures=["Qwen2_5_VLForConditionalGeneration"], vision_config={"depth": 32}),
        3.086, None,
    ),
    (
        "qwen3-next-80b-a3b",
        shape("qwen3_next", 2048, 48, 16, 151936, 2, 5120, head_dim=256,
              full_attention_interval=4, linear_conv_kernel_dim=4, linear_key_head_dim=128,
              linear_num_key_heads=16, linear_num_value_heads=32, linear_value_head_dim=128,
              shared_expert_intermediate_size=512, mlp_only_layers=[], decoder_sparse_step=1,
              **experts(512, 10, 512)),
        79.67, 3.9,
    ),
    ("phi-2", shape("phi", 2560, 32, 32, 51200, 32, 10240, hidden_act="gelu_new"), 2.780, None),
    (
        "phi-3-mini",
        shape("phi3", 3072, 32, 32, 32064, 32, 8192, sliding_window=262144),
        3.821, None,
    ),
    (
        "phi-3.5-moe",
        shape("phimoe", 4096, 32, 32, 32064, 8, 6400, num_local_experts=16, num_experts_per_tok=2,
              attention_bias=True, lm_head_bias=True, sliding_window=131072),
        41.87, 6.64,
    ),
    (
        "gpt2",
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257,
         "n_positions": 1024, "n_ctx": 1024, "activation_function": "gelu_new", "n_inner": None},
        0.12444, None,
    ),
    (
        "gpt-neox-20b",
        shape("gpt_neox", 6144, 44, 64, 50432, width=24576, tie_word_embeddings=False,
              use_parallel_residual=True, rotary_pct=0.25),
        20.555, None,
    ),
    (
        "gpt-j-6b",
        {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400,
         "n_positions": 2048, "rotary_dim": 64, "n_inner": None, "tie_word_embeddings": False},
        6.051, None,
    ),
    (
        "opt-6.7b",
        shape("opt", 4096, 32, 32, 50272, max_position_embeddings=2048, ffn_dim=16384,
              word_embed_proj_dim=4096, do_layer_norm_before=True),
        6.658, None,
    ),
    (
        "falcon-7b",
        shape("falcon", 4544, 32, 71, 65024, multi_query=True, new_decoder_architecture=False,
              parallel_attn=True, bias=False, alibi=False),
        6.922, None,
    ),
    (
        "falcon-40b",
        shape("falcon", 8192, 60, 128, 65024, num_kv_heads=8, new_decoder_architecture=True,
              bias=False),
        41.30, None,
    ),
    (
        "bloom-7b1",
        {"model_type": "bloom", "hidden_size": 4096, "n_layer": 30, "num_attention_heads": 32,
         "vocab_size": 250880, "seq_length": 2048},
        7.069, None,
    ),
    (
        "mpt-7b",
        {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50432,
         "expansion_ratio": 4, "max_seq_len": 2048, "no_bias": True,
         "attn_config": {"attn_type": "multihead_attention", "alibi": True, "qk_ln": False}},
        6.649, None,
    ),
    (
        "starcoder",
        {"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48,
         "vocab_size": 49152, "n_positions": 8192, "n_inner": 24576, "multi_query": True},
        15.52, None,
    ),
    (
        "starcoder2-7b",
        shape("starcoder2", 4608, 32, 36, 49152, 4, 18432, use_bias=True, mlp_type="default",
              hidden_act="gelu_pytorch_tanh", sliding_window=4096, norm_type="layer_norm"),
        7.174, None,
    ),
    (
        "stablelm-2-1.6b",
        shape("stablelm", 2048, 24, 32, 100352, 32, 5632, use_qkv_bias=True,
              tie_word_embeddings=False),
        1.644, None,
    ),
    ("internlm2-7b", shape("internlm2", 4096, 32, 32, 92544, 8, 14336, bias=False), 7.738, None),
    (
        "baichuan2-7b",
        shape("baichuan", 4096, 32, 32, 125696, width=11008, model_max_length=4096),
        7.506, None,
    ),
    (
        "chatglm3-6b",
        {"model_type": "chatglm", "architectures": ["ChatGLMModel"], "hidden_size": 4096,
         "num_layers": 28, "num_attention_heads": 32, "ffn_hidden_size": 13696,
         "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
         "padded_vocab_size": 65024, "seq_length": 8192, "add_qkv_bias": True,
         "add_bias_linear": False, "rmsnorm": True, "tie_word_embeddings": False},
        6.244, None,
    ),
    (
        "glm-4-9b",
        shape("glm4", 4096, 40, 32, 151552, 2, 13696, head_dim=128, attention_bias=True),
        9.400, None,
    ),
    (
        "glm-4.5-air",
        shape("glm4_moe", 4096, 46, 96, 151552, 8, 10944, head_dim=128, attention_bias=True,
              use_qk_norm=False, n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8,
              moe_intermediate_size=1408, first_k_dense_replace=1, num_nextn_predict_layers=1),
        106.85, 13.4,
    ),
    (
        "smollm3-3b",
        shape("smollm3", 2048, 36, 16, 128256, 4, 11008, use_sliding_window=False,
              no_rope_layers=[1, 1, 1, 0] * 9, no_rope_layer_interval=4,
              layer_types=["full_attention"] * 36),
        3.075, None,
    ),
    (
        "exaone-3.0-7.8b",
        {"model_type": "exaone", "hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 102400,
         "activation_function": "silu", "tie_word_embeddings": False},
        7.818, None,
    ),
    (
        "exaone-4.0-32b",
        shape("exaone4", 5120, 64, 40, 102400, 8, 27392, head_dim=128, sliding_window=4096,
              sliding_window_pattern="LLLG", tie_word_embeddings=False),
        32.00, None,
    ),
    ("olmo-7b", shape("olmo", 4096, 32, 32, 50304, 32, 11008), 6.888, None),
    ("olmo-2-7b", shape("olmo2", 4096, 32, 32, 100352, 32, 11008), 7.299, None),
    (
        "olmoe-1b-7b",
        shape("olmoe", 2048, 16, 16, 50304, 16, 1024, num_experts=64, num_experts_per_tok=8),
        6.919, 1.28,
    ),
    (
        "granite-3.1-8b",
        shape("granite", 4096, 40, 32, 49155, 8, 12800, tie_word_embeddings=True,
              embedding_multiplier=12.0, logits_scaling=16.0, residual_multiplier=0.22,
              attention_multiplier=0.0078125),
        8.171, None,
    ),
    (
        "granite-4.0-h-tiny",
        shape("granitemoehybrid", 1536, 40, 12, 100352, 4, 512, tie_word_embeddings=True,
              layer_types=(["mamba"] * 9 + ["attention"]) * 4, num_local_experts=64,
              num_experts_per_tok=6, shared_intermediate_size=1024, mamba_n_heads=48,
              mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4,
              mamba_expand=2, mamba_chunk_size=256, mamba_conv_bias=True, mamba_proj_bias=False),
        6.94, 1.47,
    ),
    (
        "bamba-9b",
        shape("bamba", 4096, 32, 32, 128256, 8, 14336, attn_layer_indices=[9, 18, 27],
              mamba_n_heads=128, mamba_d_head="auto", mamba_d_state=128, mamba_n_groups=1,
              mamba_d_conv=4, mamba_expand=2, tie_word_embeddings=False),
        9.78, None,
    ),
    (
        "nemotron-h-8b",
        shape("nemotron_h", 4096, 52, 32, 131072, 8, 21504, hybrid_override_pattern=HYBRID_8B,
              attention_head_dim=128, mamba_num_heads=128, mamba_head_dim=64, n_groups=8,
              ssm_state_size=128, conv_kernel=4, expand=2, mlp_hidden_act="relu2",
              tie_word_embeddings=False),
        8.10, None,
    ),
    (
        "jamba-v0.1",
        shape("jamba", 4096, 32, 32, 65536, 8, 14336, attn_layer_period=8, attn_layer_offset=4,
              expert_layer_period=2, expert_layer_offset=1, num_experts=16,
              num_experts_per_tok=2, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2,
              mamba_dt_rank=256, mamba_conv_bias=True, tie_word_embeddings=False),
        51.57, 12.1,
    ),
    (
        "falcon-h1-7b",
        shape("falcon_h1", 3072, 44, 12, 130048, 2, 12288, head_dim=128, mamba_d_ssm=3072,
              mamba_n_heads=24, mamba_d_head=128, mamba_n_groups=1, mamba_d_state=256,
              mamba_d_conv=4, mamba_expand=2, tie_word_embeddings=False),
        7.59, None,
    ),
    (
        "command-r-35b",
        shape("cohere", 8192, 40, 64, 256000, 64, 22528, use_qk_norm=False, logit_scale=0.0625),
        34.98, None,
    ),
    (
        "dbrx",
        {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40,
         "max_seq_len": 32768, "vocab_size": 100352, "tie_word_embeddings": False,
         "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
         "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4,
                        "moe_jitter_eps": 0.01, "moe_loss_weight": 0.05}},
        131.6, 36.5,
    ),
    (
        "arctic",
        shape("arctic", 7168, 35, 56, 32000, 8, 4864, num_local_experts=128,
              num_experts_per_tok=2, moe_layer_frequency=1, parallel_attn_mlp_res=True,
              use_residual=True, tie_word_embeddings=False),
        479.0, 17.0,
    ),
    (
        "hunyuan-a13b",
        shape("hunyuan_v1_moe", 4096, 32, 32, 128167, 8, 3072, tie_word_embeddings=True,
              attention_head_dim=128, num_experts=64, moe_topk=[8] * 32,
              moe_intermediate_size=[3072] * 32, num_shared_expert=[1] * 32,
              use_mixed_mlp_moe=True, use_qk_norm=True, use_cla=False, cla_share_factor=2),
        80.4, 13.0,
    ),
    (
        "hunyuan-large",
        shape("hunyuan", 6400, 64, 80, 129024, 8, 18304, tie_word_embeddings=True,
              num_experts=16, moe_topk=1, num_shared_expert=1, use_mixed_mlp_moe=True,
              use_cla=True, cla_share_factor=2, use_qk_norm=True, attention_bias=False),
        389.0, 52.0,
    ),
    (
        "ernie-4.5-21b-a3b",
        shape("ernie4_5_moe", 2560, 28, 20, 103424, 4, 12288, moe_num_experts=64, moe_k=6,
              moe_intermediate_size=1536, moe_num_shared_experts=2, moe_layer_start_index=1,
              moe_layer_end_index=-1, moe_layer_interval=1, tie_word_embeddings=True,
              use_bias=False),
        21.83, 3.0,
    ),
    (
        "dots1",
        shape("dots1", 4096, 62, 32, 152064, 32, 10944, head_dim=128, n_routed_experts=128,
              num_experts_per_tok=6, moe_intermediate_size=1408, n_shared_experts=2,
              first_k_dense_replace=1, moe_layer_freq=1, sliding_window=None),
        142.8, 14.0,
    ),
    (
        "deepseek-moe-16b",
        shape("deepseek", 2048, 28, 16, 102400, 16, 10944, n_routed_experts=64,
              num_experts_per_tok=6, moe_intermediate_size=1408, n_shared_experts=2,
              first_k_dense_replace=1, moe_layer_freq=1),
        16.375, 2.83,
    ),
    (
        "longcat-flash",
        {"model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28,
         "num_attention_heads": 64, "vocab_size": 131072, "ffn_hidden_size": 12288,
         "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "moe_topk": 12,
         "zero_expert_num": 256, "zero_expert_type": "identity", "q_lora_rank": 1536,
         "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
         "v_head_dim": 128, "attention_method": "MLA", "mla_scale_q_lora": True,
         "mla_scale_kv_lora": True, "tie_word_embeddings": False},
        560.6, 26.5,
    ),
    (
        "seed-oss-36b",
        shape("seed_oss", 5120, 64, 80, 155136, 8, 27648, head_dim=128, attention_bias=True,
              attention_out_bias=False, mlp_bias=False),
        36.15, None,
    ),
    (
        "apertus-8b",
        shape("apertus", 4096, 32, 32, 131072, 8, 21504, hidden_act="xielu", qk_norm=True),
        8.05, None,
    ),
    (
        "kimi-linear-48b-a3b",
        shape("kimi_linear", 2304, 27, 32, 163840, 32, 9216, head_dim=72, q_lora_rank=None,
              kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
              mla_use_nope=True, num_experts=256, num_experts_per_token=8,
              num_shared_experts=1, moe_intermediate_size=1024, first_k_dense_replace=1,
              moe_layer_freq=1, tie_word_embeddings=False,
              linear_attn_config={"kda_layers": [i for i in range(1, 27) if i % 4],
                                  "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                                  "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}),
        49.1, 3.48,
    ),
    (
        "minimax-text-01",
        shape("minimax_text_01", 6144, 80, 64, 200064, 8, 9216, head_dim=128,
              attn_type_list=([0] * 7 + [1]) * 10, num_local_experts=32, num_experts_per_tok=2,
              shared_intermediate_size=0, layernorm_full_attention_alpha=3.5,
              tie_word_embeddings=False),
        456.0, 45.9,
    ),
    (
        "step-3.5-flash",
        shape("step3p5", 4096, 45, 64, 128896, width=11264, num_attention_groups=8, head_dim=128,
              attention_other_setting={"attention_type": "sliding_attention",
                                       "num_attention_heads": 96, "num_attention_groups": 8,
                                       "head_dim": 128},
              layer_types=["full_attention"] + ["sliding_attention"] * 3
              + (["full_attention"] + ["sliding_attention"] * 3) * 11,
              sliding_window=512, use_moe=True, moe_num_experts=288, moe_top_k=8,
              moe_intermediate_size=1280, share_expert_dim=1280, use_moe_router_bias=True,
              moe_layers_enum=",".join(map(str, range(3, 45))), use_head_wise_attn_gate=True,
              num_nextn_predict_layers=3, tie_word_embeddings=False),
        196.0, 11.0,
    ),
    (
        "mimo-v2-flash",
        shape("mimo_v2_flash", 4096, 48, 64, 152576, 4, 16384, head_dim=192, v_head_dim=128,
              hybrid_layer_pattern=[0] + [1, 1, 1, 1, 1, 0] * 7 + [1, 1, 1, 1, 0],
              moe_layer_freq=[0] + [1] * 47, n_routed_experts=256, num_experts_per_tok=8,
              moe_intermediate_size=2048, n_shared_experts=None, sliding_window_size=128,
              sliding_window=128, swa_num_attention_heads=64, swa_num_key_value_heads=8,
              swa_head_dim=192, swa_v_head_dim=128, add_swa_attention_sink_bias=True,
              add_full_attention_sink_bias=False, attention_chunk_size=128,
              attention_value_scale=0.707, swa_rope_theta=10000, tie_word_embeddings=False),
        309.0, 15.0,
    ),
    (
        "ling-mini-2.0",
        shape("bailing_moe_v2", 2048, 20, 16, 157184, 4, 5120, head_dim=128, num_experts=256,
              num_experts_per_tok=8, moe_intermediate_size=512, num_shared_experts=1,
              first_k_dense_replace=1, use_qk_norm=True, use_bias=False, use_qkv_bias=False,
              moe_router_enable_expert_bias=True, tie_word_embeddings=False),
        16.26, 1.44,
    ),
]
# fmt: on


@pytest.mark.parametrize(
    ("name", "config", "total", "active"), TABLE, ids=[row[0] for row in TABLE]
)
def test_total_within_one_percent(
    name: str, config: Config, total: float, active: float | None
) -> None:
    spec = read_config(config, id=name)
    assert isinstance(spec, ModelSpec)
    size = model_size(spec)
    assert size.total_params / 1e9 == pytest.approx(total, rel=0.01)
    if active is not None:
        # Published active counts leave out embeddings or round; a wrong structure is off by more.
        assert size.active_params / 1e9 == pytest.approx(active, rel=0.16)


def by_name(name: str) -> ModelSpec:
    spec = read_config(next(c for n, c, _, _ in TABLE if n == name))
    assert isinstance(spec, ModelSpec)
    return spec


def softmax(spec: ModelSpec) -> list[tuple[int, FullAttention]]:
    return [(g.count, g.attention) for g in spec.layers if isinstance(g.attention, FullAttention)]


def test_chunked_layers_of_llama_4() -> None:
    kinds = {(a.chunked, a.window): n for n, a in softmax(by_name("llama-4-scout"))}
    assert kinds == {(True, 8192): 36, (False, None): 12}


def test_windows_by_pattern() -> None:
    for name, windowed, window in (
        ("gemma-2-9b", 21, 4096),
        ("gemma-3-27b", 52, 1024),
        ("exaone-4.0-32b", 48, 4096),
        ("mistral-7b", 32, 4096),
        ("step-3.5-flash", 33, 512),
        ("mimo-v2-flash", 39, 128),
    ):
        counts = [n for n, a in softmax(by_name(name)) if a.window == window]
        assert sum(counts) == windowed, name


def test_a_window_beyond_the_context_is_none() -> None:
    assert all(a.window is None for _, a in softmax(by_name("phi-3-mini")))


def test_multi_query_and_grouped_heads() -> None:
    assert softmax(by_name("falcon-7b"))[0][1].n_kv_heads == 1
    assert softmax(by_name("falcon-40b"))[0][1].n_kv_heads == 8
    assert softmax(by_name("starcoder"))[0][1].n_kv_heads == 1
    assert softmax(by_name("chatglm3-6b"))[0][1].n_kv_heads == 2
    assert softmax(by_name("llama-1-7b"))[0][1].n_kv_heads == 32


def test_windowed_layers_with_their_own_heads() -> None:
    heads = {a.window: (a.n_heads, a.n_kv_heads) for _, a in softmax(by_name("mimo-v2-flash"))}
    assert heads == {None: (64, 4), 128: (64, 8)}
    heads = {a.window: (a.n_heads, a.n_kv_heads) for _, a in softmax(by_name("step-3.5-flash"))}
    assert heads == {None: (64, 8), 512: (96, 8)}


def test_cross_layer_attention_stores_no_cache() -> None:
    counts = {a.shares_kv: n for n, a in softmax(by_name("hunyuan-large"))}
    assert counts == {False: 32, True: 32}


def test_hybrids_keep_a_state_and_few_caches() -> None:
    for name, n_linear, variant in (
        ("qwen3-next-80b-a3b", 36, "gdn"),
        ("kimi-linear-48b-a3b", 20, "kda"),
        ("granite-4.0-h-tiny", 36, "mamba2"),
        ("nemotron-h-8b", 24, "mamba2"),
        ("jamba-v0.1", 28, "mamba2"),
        ("falcon-h1-7b", 44, "mamba2"),
        ("minimax-text-01", 70, "gdn"),
    ):
        linear = [g for g in by_name(name).layers if isinstance(g.attention, LinearAttention)]
        assert sum(g.count for g in linear) == n_linear, name
        assert {g.attention.variant for g in linear if g.attention} == {variant}, name


def test_longcat_has_two_latent_attentions_per_layer() -> None:
    latent = [g for g in by_name("longcat-flash").layers if isinstance(g.attention, MlaAttention)]
    assert sum(g.count for g in latent) == 56
    assert sum(g.count for g in latent if g.moe is not None) == 28


def test_pruned_layers_of_nemotron_nas() -> None:
    def block(attention: Config, ffn: Config) -> Config:
        return {"attention": {"no_op": False, "replace_with_linear": False} | attention,
                "ffn": {"no_op": False, "replace_with_linear": False} | ffn}  # fmt: skip

    config = shape("nemotron-nas", 8192, 3, 64, 128256, tie_word_embeddings=False)
    config["block_configs"] = [
        block({"n_heads_in_group": 8}, {"ffn_mult": 5.25}),
        block({"no_op": True}, {"ffn_mult": 1.3125}),
        block({"n_heads_in_group": 8}, {"no_op": True}),
    ]
    spec = read_config(config)
    assert isinstance(spec, ModelSpec)
    widths = [g.mlp.intermediate_size if g.mlp else None for g in spec.layers]
    assert widths == [28672, 7168, None]
    assert [g.attention is None for g in spec.layers] == [False, True, False]
    attention = 2 * (8192 * (64 + 2 * 8) * 128 + 64 * 128 * 8192)
    mlps = 3 * 8192 * (28672 + 7168)
    expected = 2 * 128256 * 8192 + attention + mlps + 5 * 8192
    assert model_size(spec).total_params == expected
