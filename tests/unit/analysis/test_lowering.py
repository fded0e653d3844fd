from __future__ import annotations

import pytest

from specsim.analysis.constants import Constants
from specsim.analysis.lowering import (
    context_gemms,
    drafter_network,
    per_token_gemms,
    target_network,
)
from specsim.analysis.rank import Rank
from specsim.catalog.hardware import load_hardware
from specsim.catalog.models import load_drafter, load_model
from specsim.physics.forward import LinearState, Network, SoftmaxAttention
from specsim.physics.kernels import all_reduce
from specsim.schema.model import DrafterSpec


def rank(gpu: str = "h100_sxm", tp: int = 1, *, expert_parallel: bool = False) -> Rank:
    return Rank(
        load_hardware(gpu), Constants(), tensor_parallel_size=tp, expert_parallel=expert_parallel
    )


def target(
    name: str, tp: int = 1, kv_dtype: str = "bf16", *, expert_parallel: bool = False
) -> Network:
    model = load_model(name)
    return target_network(
        model,
        rank(tp=tp, expert_parallel=expert_parallel),
        weight_dtype=model.weight_dtype,
        expert_dtype=model.expert_dtype or model.weight_dtype,
        kv_dtype=kv_dtype,
    )


def head_of(
    name: str, tp: int = 1, target_tp: int | None = None
) -> tuple[DrafterSpec, Network | None]:
    drafter = load_drafter(name)
    assert isinstance(drafter, DrafterSpec)
    network = drafter_network(
        drafter,
        rank(tp=tp),
        target_rank=rank(tp=target_tp or tp),
        weight_dtype="bf16",
        expert_dtype="bf16",
        kv_dtype="bf16",
    )
    return drafter, network


def weights(network: Network) -> float:
    """Weights that a pass multiplies with, on one rank."""
    layers = sum(
        layer.count * sum(g.out_features * g.in_features for g in layer.gemms)
        for layer in network.layers
    )
    before = sum(g.out_features * g.in_features for g in network.before)
    assert network.head is not None
    return layers + before + network.head.gemm.out_features * network.head.gemm.in_features


def test_a_dense_model_multiplies_with_all_but_its_embedding_and_norms() -> None:
    llama = target("llama-3.1-8b")
    assert weights(llama) == 8_030_261_248 - 128256 * 4096 - 65 * 4096
    assert llama.n_layers == 32
    assert llama.table is None


def test_ranks_share_the_matrices() -> None:
    assert weights(target("llama-3.1-8b", tp=4)) == pytest.approx(
        weights(target("llama-3.1-8b")) / 4
    )


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    def entry_bytes(tp: int) -> float:
        attention = target("llama-3.1-8b", tp=tp).layers[0].attention
        assert isinstance(attention, SoftmaxAttention)
        return attention.entry_bytes

    # Eight heads of 128, key and value, two bytes.
    assert [entry_bytes(tp) for tp in (1, 2, 8, 16)] == [4096, 2048, 512, 512]


def test_cache_dtype_sets_the_bytes_read() -> None:
    attention = target("llama-3.1-8b", kv_dtype="fp8").layers[0].attention
    assert isinstance(attention, SoftmaxAttention)
    assert attention.entry_bytes == 2048
    assert attention.query_group == 4
    # Scores and values: 2 x 2 x 32 heads x 128.
    assert attention.flop_per_score == 4 * 32 * 128


def test_latent_attention_reads_one_latent_whatever_the_ranks() -> None:
    for tp in (1, 8):
        attention = target("deepseek-v3", tp=tp, kv_dtype="bf16").layers[0].attention
        assert isinstance(attention, SoftmaxAttention)
        assert attention.entry_bytes == 576 * 2
        assert attention.query_group == 128 / tp
        # q (kv_lora + rope) for the score, kv_lora for the value.
        assert attention.flop_per_score == 2 * (128 / tp) * (576 + 512)


def test_sliding_layers_keep_their_window() -> None:
    layers = target("gpt-oss-20b").layers
    windows = {
        layer.attention.window: layer.count
        for layer in layers
        if isinstance(layer.attention, SoftmaxAttention)
    }
    assert windows == {128.0: 12.0, None: 12.0}


def test_hybrids_have_recurrent_layers() -> None:
    layers = target("qwen3-next-80b-a3b").layers
    counts = {type(layer.attention): layer.count for layer in layers}
    assert counts[LinearState] == 36
    assert counts[SoftmaxAttention] == 12
    state = next(x.attention for x in layers if isinstance(x.attention, LinearState))
    # 32 value heads of a 128 x 128 state.
    assert state.state_bytes % (32 * 128 * 128) == 0


def test_experts_are_cut_or_spread() -> None:
    cut = target("qwen3-235b-a22b", tp=8).layers[0].experts
    spread = target("qwen3-235b-a22b", tp=8, expert_parallel=True).layers[0].experts
    assert cut is not None
    assert spread is not None
    assert (cut.intermediate_size, cut.expert_groups) == (1536 / 8, 1.0)
    assert (spread.intermediate_size, spread.expert_groups) == (1536.0, 8.0)


def test_two_collectives_per_layer() -> None:
    assert [layer.all_reduces for layer in target("llama-3.1-70b", tp=4).layers] == [2.0]
    # Spread experts keep the sum: vLLM exchanges tokens with data parallelism only.
    for spread in (False, True):
        layers = target("deepseek-v3", tp=8, expert_parallel=spread).layers
        assert {layer.all_reduces for layer in layers} == {2.0}


def test_measured_collectives_add_the_wait_of_ranks() -> None:
    table = rank(tp=4).all_reduce_table()
    assert table is not None
    # 16 KiB on four H100: 4.8 us measured, 4 us of skew.
    assert float(all_reduce(message_bytes=16384.0, table=table).total_s) == pytest.approx(
        8.8e-6, rel=0.01
    )


def megabytes_32(gpu: str, tp: int) -> float:
    """Return the time of a collective of 32 MiB."""
    table = rank(gpu, tp).all_reduce_table()
    assert table is not None
    return float(all_reduce(message_bytes=32 * 2.0**20, table=table).total_s)


def test_unmeasured_collectives_come_from_the_link() -> None:
    # 16 H100: a ring moves 2 x 15 / 16 of the message at .7 of 450 GB/s; 2.2 us of latency once
    # and per doubling, 4 us of skew.
    ring = 2 * 15 / 16 * 32 * 2**20 / (0.7 * 450e9)
    assert megabytes_32("h100_sxm", 16) == pytest.approx(ring + 5 * 2.2e-6 + 4e-6, rel=0.02)


def test_groups_over_pcie_share_root_ports() -> None:
    # Sixteen on one root port each reach an eighth of what a pair does.
    ring = 2 * 15 / 16 * 32 * 2**20 / (0.7 * 32e9)
    assert megabytes_32("l40s", 16) == pytest.approx(8 * ring, rel=0.02)


def test_eagle_heads_share_or_own_their_vocabulary() -> None:
    _, eagle = head_of("eagle-llama3-8b")
    assert eagle is not None
    assert eagle.head is not None
    assert eagle.head.vocab_size == 128256
    assert [(g.out_features, g.in_features) for g in eagle.before] == [(4096, 8192)]
    _, eagle3 = head_of("eagle3-llama3.1-8b")
    assert eagle3 is not None
    assert eagle3.head is not None
    assert eagle3.head.vocab_size == 32000
    assert [(g.out_features, g.in_features) for g in eagle3.before] == [(4096, 3 * 4096)]


def test_ranks_split_the_columns_of_a_head_and_sample_all_of_it() -> None:
    head = target("llama-3.1-8b", tp=4).head
    assert head is not None
    assert (head.gemm.out_features, head.vocab_size) == (128256 / 4, 128256)
    # fp32 logits are read, written and read again.
    assert head.bytes_per_logit == 3 * 4


def test_drafters_take_the_likeliest_of_16_bit_logits() -> None:
    _, eagle = head_of("eagle-llama3-8b")
    assert eagle is not None
    assert eagle.head is not None
    assert eagle.head.bytes_per_logit == 2
    small = target_network(
        load_model("llama-3.2-1b"), rank(), weight_dtype="bf16", expert_dtype="bf16",
        kv_dtype="bf16", drafts=True,
    ).head  # fmt: skip
    assert small is not None
    assert small.bytes_per_logit == 2


def test_a_shared_head_stays_on_the_ranks_of_the_target() -> None:
    _, whole = head_of("eagle-llama3-70b")
    _, one_of_four = head_of("eagle-llama3-70b", tp=1, target_tp=4)
    assert whole is not None
    assert one_of_four is not None
    assert one_of_four.head is not None
    assert one_of_four.head.gemm.out_features == 128256 / 4
    # Its own layer is on one rank: all weights but three quarters of the head.
    assert weights(whole) - weights(one_of_four) == 3 / 4 * 128256 * 8192


def test_a_head_of_its_own_moves_with_the_drafter() -> None:
    _, eagle3 = head_of("eagle3-llama3.3-70b", tp=1, target_tp=4)
    assert eagle3 is not None
    assert eagle3.head is not None
    assert eagle3.head.gemm.out_features == 32000


def test_pooling_of_compressed_layers_is_computed() -> None:
    # DeepSeek-V4: layers without, with 4 and with 128 tokens per entry.
    none, four, many = (
        sum(g.out_features * g.in_features for g in layer.gemms)
        for layer in target("deepseek-v4-flash").layers
    )
    # A value and a gate of 512 each from 4096 features, a position per token and a norm.
    assert many - none == pytest.approx(2 * 4096 * 512 + 128 * 512 + 512)
    # Groups of four overlap: twice as wide; and the index (queries of 64 heads from 1024, a key
    # and weights).
    index = 1024 * 64 * 128 + 4096 * (128 + 64)
    assert four - none >= 2 * 4096 * 1024 + 4 * 1024 + 512 + index
    # In 16 bit, whatever the rest is in, and whole on every rank.
    for tp in (1, 8):
        gemms = target("deepseek-v4-flash", tp=tp).layers[2].gemms
        pooled = next(g for g in gemms if g.out_features * g.in_features == 4260352)
        assert pooled.weight_bytes == 2


@pytest.mark.parametrize(
    ("name", "tp", "shapes"),
    [
        # Hidden states of the target's layers into one; keys and values of 8 heads of 128.
        ("dflash-qwen3.6-27b", 1, [(5120, 25600)] + 5 * [(2 * 8 * 128, 5120)]),
        ("dspark-qwen3-8b", 1, [(4096, 20480)] + 5 * [(2 * 8 * 128, 4096)]),
        ("dspark-qwen3-8b", 4, [(4096, 20480)] + 5 * [(2 * 2 * 128, 4096)]),
        ("dspark-qwen3-8b", 16, [(4096, 20480)] + 5 * [(2 * 128, 4096)]),
    ],
)
def test_a_block_drafter_stores_keys_and_values_of_a_prompt(
    name: str, tp: int, shapes: list[tuple[int, int]]
) -> None:
    drafter = load_drafter(name)
    assert isinstance(drafter, DrafterSpec)
    found = context_gemms(drafter, rank(tp=tp), weight_dtype="bf16")
    assert [(g.out_features, g.in_features) for g in found] == shapes


def test_a_first_generation_head_is_mostly_vocabulary() -> None:
    # 525 M of the 743 M weights that a pass reads are its lm_head (theory of EAGLE on 128k words).
    _, eagle = head_of("eagle-llama3-8b")
    assert eagle is not None
    assert eagle.head is not None
    head = eagle.head.gemm.out_features * eagle.head.gemm.in_features
    assert head == pytest.approx(525e6, rel=0.01)
    # Its layer (218 M) and the fusion of embedding and hidden state (34 M).
    assert weights(eagle) - head == pytest.approx(252e6, rel=0.01)


def test_medusa_runs_a_block_and_a_head_per_token() -> None:
    drafter, network = head_of("medusa-vicuna-7b-5-heads")
    assert network is None
    small = per_token_gemms(drafter, rank(), weight_dtype="fp16")
    assert [(g.out_features, g.in_features) for g in small] == [(4096, 4096), (32000, 4096)]


def test_peak_of_a_dtype_that_the_sheet_lacks_is_that_of_16_bit() -> None:
    assert rank().peak_flop_per_s("fp8") == pytest.approx(1978.9e12)
    assert rank("a100_sxm_80").peak_flop_per_s("fp8") == pytest.approx(312e12)
