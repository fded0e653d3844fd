"""Parameter counts against sums done by hand and against exact public checkpoints."""

import pytest

from specsim.physics import parameters

GQA = {"hidden_size": 4096, "n_heads": 32, "n_kv_heads": 8, "head_dim": 128}
Q = OUT = 4096 * 4096
KV = 4096 * 1024


def full(**changes):
    return parameters.full_attention_params(**{**GQA, **changes})


def test_gqa():
    assert full() == Q + 2 * KV + OUT


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"qkv_bias": True}, 4096 + 2 * 1024),
        ({"output_bias": True}, 4096),
        ({"qk_norm": "per_head"}, 2 * 128),
        ({"qk_norm": "full"}, 4096 + 1024),
        ({"output_gate": True}, Q),
        ({"sinks": True}, 32),
        ({"k_eq_v": True}, -KV),
        ({"shares_kv": True}, -2 * KV),
        ({"input_multiplier": 2}, Q + 2 * KV),
        ({"v_head_dim": 64}, -KV // 2 - OUT // 2),
    ],
)
def test_options_of_full_attention(changes, difference):
    assert full(**changes) - full() == difference


def test_shared_cache_normalises_queries_only():
    assert full(shares_kv=True, qk_norm="per_head") == Q + OUT + 128


def test_mla_of_deepseek_v3():
    # config: H 7168, 128 heads, ranks 1536 / 512, nope 128, rope 64, v 128
    expected = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512
    expected += 512 * 128 * 256 + 128 * 128 * 7168
    got = parameters.mla_params(
        hidden_size=7168,
        n_heads=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )
    assert got == expected == 187_107_328


def test_mla_without_query_rank():
    got = parameters.mla_params(
        hidden_size=2048,
        n_heads=16,
        q_lora_rank=None,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )
    assert got == 2048 * 16 * 192 + 2048 * 576 + 512 + 512 * 16 * 256 + 16 * 128 * 2048


def test_indexer_of_deepseek_v3_2():
    got = parameters.indexer_params(hidden_size=7168, q_lora_rank=1536, n_heads=64, head_dim=128)
    assert got == 1536 * 8192 + 7168 * 128 + 256 + 7168 * 64


def test_compressor_overlaps_groups_of_four_only():
    four = parameters.compressor_params(hidden_size=4096, head_dim=512, compress_ratio=4)
    many = parameters.compressor_params(hidden_size=4096, head_dim=512, compress_ratio=128)
    assert four == 2 * 4096 * 1024 + 4 * 1024 + 512
    assert many == 2 * 4096 * 512 + 128 * 512 + 512
    assert parameters.compressor_params(hidden_size=4096, head_dim=512, compress_ratio=0) == 0


def test_compressed_attention_of_deepseek_v4_flash():
    shape = {
        "hidden_size": 4096,
        "n_heads": 64,
        "head_dim": 512,
        "q_lora_rank": 1024,
        "o_lora_rank": 1024,
        "o_groups": 8,
    }
    window = parameters.compressed_attention_params(**shape, compress_ratio=0)
    # A peer's published figure is 107e6 weights per layer.
    assert window == pytest.approx(107e6, rel=0.001)
    indexed = parameters.compressed_attention_params(
        **shape, compress_ratio=4, index_heads=64, index_head_dim=128
    )
    main = parameters.compressor_params(hidden_size=4096, head_dim=512, compress_ratio=4)
    keys = parameters.compressor_params(hidden_size=4096, head_dim=128, compress_ratio=4)
    assert indexed - window == main + keys + 1024 * 8192 + 4096 * 64


LINEAR = {
    "hidden_size": 2048,
    "n_key_heads": 16,
    "n_value_heads": 32,
    "key_dim": 128,
    "value_dim": 128,
    "conv_kernel": 4,
}


def test_gated_delta_net_of_qwen3_next():
    channels = 2 * 2048 + 4096
    expected = 2048 * (channels + 4096) + 4 * channels + 4096 * 2048 + 2 * 2048 * 32 + 64 + 128
    assert parameters.linear_attention_params(**LINEAR) == expected


def test_kda_has_low_rank_gates():
    shape = {**LINEAR, "n_key_heads": 32}
    channels = 3 * 4096
    projections = 2048 * channels + 4 * channels + 4096 * 2048
    gates = 2 * (2048 * 128 + 128 * 4096) + 2048 * 32
    got = parameters.linear_attention_params(**shape, variant="kda")
    assert got == projections + gates + 32 + 4096 + 128


def test_mamba2_of_a_130m_checkpoint():
    # state-spaces/mamba2-130m: H 768, inner 1536 in 24 heads of 64, one group of state 128
    got = parameters.linear_attention_params(
        hidden_size=768,
        n_key_heads=1,
        n_value_heads=24,
        key_dim=128,
        value_dim=64,
        conv_kernel=4,
        variant="mamba2",
    )
    in_projection = 768 * (2 * 1536 + 2 * 128 + 24)
    assert got == in_projection + 1792 * 5 + 3 * 24 + 1536 + 1536 * 768


def test_mlp():
    shape = {"hidden_size": 10, "intermediate_size": 7}
    assert parameters.mlp_params(**shape) == 210
    assert parameters.mlp_params(**shape, gated=False) == 140
    assert parameters.mlp_params(**shape, bias=True) == 210 + 14 + 10
    assert parameters.mlp_params(**shape, gated=False, bias=True) == 140 + 7 + 10


def test_router():
    assert parameters.router_params(hidden_size=10, n_experts=4) == 40
    assert parameters.router_params(hidden_size=10, n_experts=4, bias=True) == 44
    assert parameters.router_params(hidden_size=10, n_experts=4, shared_gate=True) == 50


def test_tables():
    assert parameters.embedding_params(vocab_size=32000, hidden_size=4096) == 131_072_000
    assert parameters.medusa_block_params(hidden_size=4096) == 4096 * 4097
    assert parameters.markov_params(vocab_size=1000, rank=8) == 16_000
