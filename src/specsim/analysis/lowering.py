"""From schema records to the numbers that physics takes: a model as one rank executes it."""

from __future__ import annotations

from dataclasses import replace

from specsim.analysis.rank import ARGMAX_BYTES, SOFTMAX_BYTES, Rank
from specsim.analysis.size import attention_dtype
from specsim.catalog.general import load_general
from specsim.physics.forward import (
    Experts,
    Gemm,
    Layer,
    LinearState,
    Network,
    SoftmaxAttention,
)
from specsim.physics.parameters import compressor_params
from specsim.schema.base import Range
from specsim.schema.model import (
    Attention,
    CompressedAttention,
    DenseMlp,
    DrafterSpec,
    FullAttention,
    LayerGroup,
    LinearAttention,
    MlaAttention,
    ModelSpec,
    Moe,
)
from specsim.units import BYTES_PER_PARAM, MICRO


def target_network(
    model: ModelSpec,
    rank: Rank,
    *,
    weight_dtype: str,
    expert_dtype: str,
    kv_dtype: str,
    drafts: bool = False,
) -> Network:
    """Lower a model; one that drafts takes the likeliest token, without a softmax."""
    rank = replace(rank, block_fp8=model.weight_block and weight_dtype == model.weight_dtype)
    around = attention_dtype(model, weight_dtype)
    layers = tuple(
        _layer(group, rank, model.hidden_size, weight_dtype, around, expert_dtype, kv_dtype)
        for group in model.layers
    )
    head = rank.head(
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        dtype="fp32" if weight_dtype == "fp32" else "bf16",
        bytes_per_logit=ARGMAX_BYTES if drafts else SOFTMAX_BYTES,
    )
    return rank.network(layers, head=head, hidden_size=model.hidden_size)


def drafter_network(
    drafter: DrafterSpec,
    rank: Rank,
    *,
    target_rank: Rank,
    weight_dtype: str,
    expert_dtype: str,
    kv_dtype: str,
) -> Network | None:
    """Lower a drafting head; None for one without layers (Medusa).

    A head that is shared with the target stays split over the target's ranks, wherever the
    drafter's own layers run.
    """
    if not drafter.layers:
        return None
    layers = tuple(
        _layer(group, rank, drafter.hidden_size, weight_dtype, weight_dtype, expert_dtype, kv_dtype)
        for group in drafter.layers
    )
    fuse: tuple[Gemm, ...] = ()
    if drafter.fc_in_features:
        out = drafter.fc_out_features or drafter.hidden_size
        fuse = (_gemm(rank, out, drafter.fc_in_features, weight_dtype),)
    if drafter.post_projection:
        fuse += (_gemm(rank, drafter.target_hidden_size, drafter.hidden_size, weight_dtype),)
    own_head = drafter.own_head or drafter.tied_embeddings or drafter.draft_vocab_size is not None
    head = (rank if own_head else target_rank).head(
        vocab_size=drafter.draft_vocab_size or drafter.vocab_size,
        hidden_size=drafter.hidden_size if own_head else drafter.target_hidden_size,
        dtype=drafter.head_dtype or "bf16",
        bytes_per_logit=ARGMAX_BYTES,
    )
    return rank.network(layers, head=head, hidden_size=drafter.hidden_size, before=fuse)


def context_gemms(drafter: DrafterSpec, rank: Rank, *, weight_dtype: str) -> tuple[Gemm, ...]:
    """Return what a block drafter runs on a prompt: fusion, then keys and values of its layers.

    vLLM stores the context's keys and values for DFlash and DSpark without running the layers.
    """
    gemms: list[Gemm] = []
    if drafter.fc_in_features:
        out = drafter.fc_out_features or drafter.hidden_size
        gemms.append(_gemm(rank, out, drafter.fc_in_features, weight_dtype))
    for group in drafter.layers:
        a = group.attention
        if isinstance(a, FullAttention):
            heads = max(1.0, a.n_kv_heads / rank.tensor_parallel_size)
            width = heads * (a.head_dim + (a.v_head_dim or a.head_dim))
            gemms += [_gemm(rank, width, drafter.hidden_size, weight_dtype)] * group.count
    return tuple(gemms)


def per_token_gemms(drafter: DrafterSpec, rank: Rank, *, weight_dtype: str) -> tuple[Gemm, ...]:
    """Matrices that run once per draft token: Medusa's heads, a Markov head."""
    tp = rank.tensor_parallel_size
    if drafter.n_medusa_heads:
        hidden = drafter.hidden_size
        return (
            _gemm(rank, hidden, hidden, weight_dtype),
            _gemm(rank, drafter.vocab_size / tp, hidden, weight_dtype),
        )
    if drafter.markov_rank:
        return (_gemm(rank, drafter.vocab_size / tp, drafter.markov_rank, "bf16"),)
    return ()


def _gemm(rank: Rank, out_features: float, in_features: float, dtype: str) -> Gemm:
    return Gemm(
        out_features=out_features,
        in_features=in_features,
        weight_bytes=BYTES_PER_PARAM[dtype],
        rates=rank.gemm_rates(dtype),
    )


def _layer(
    group: LayerGroup,
    rank: Rank,
    hidden: int,
    weight_dtype: str,
    around_dtype: str,
    expert_dtype: str,
    kv_dtype: str,
) -> Layer:
    gemms: list[Gemm] = []
    attention: SoftmaxAttention | LinearState | None = None
    reductions = 0.0
    if group.attention is not None:
        gemms += _projections(group.attention, rank, hidden, around_dtype)
        attention = _attention(group.attention, rank, kv_dtype)
        reductions += 1.0
    if group.mlp is not None:
        gemms += _mlp(group.mlp, rank, hidden, weight_dtype)
        reductions += 1.0
    experts = None
    if group.moe is not None:
        gemms += _beside_experts(group.moe, rank, hidden, weight_dtype)
        experts = _experts(group.moe, rank, hidden, expert_dtype)
        reductions += 0.0 if group.mlp is not None else 1.0
    return Layer(
        count=float(group.count),
        gemms=tuple(gemms),
        attention=attention,
        experts=experts,
        all_reduces=reductions,
    )


def _projections(a: Attention, rank: Rank, hidden: int, dtype: str) -> list[Gemm]:
    tp = rank.tensor_parallel_size

    def gemm(out_features: float, in_features: float) -> Gemm:
        return _gemm(rank, out_features, in_features, dtype)

    if isinstance(a, FullAttention):
        value_dim = a.v_head_dim or a.head_dim
        heads, kv_heads = a.n_heads / tp, max(1.0, a.n_kv_heads / tp)
        query = heads * a.head_dim * (2.0 if a.output_gate else 1.0)
        stored = 0.0 if a.shares_kv else kv_heads * a.head_dim
        values = 0.0 if a.shares_kv or a.k_eq_v else kv_heads * value_dim
        return [
            gemm(query + stored + values, hidden * a.input_multiplier),
            gemm(hidden, heads * value_dim),
        ]
    if isinstance(a, MlaAttention):
        heads = a.n_heads / tp
        query_dim = heads * (a.qk_nope_head_dim + a.qk_rope_head_dim)
        latent = a.kv_lora_rank + a.qk_rope_head_dim
        up = gemm(heads * (a.qk_nope_head_dim + a.v_head_dim), a.kv_lora_rank)
        output = gemm(hidden, heads * a.v_head_dim)
        if a.q_lora_rank is None:
            gemms = [gemm(query_dim + latent, hidden), up, output]
        else:
            gemms = [
                gemm(a.q_lora_rank + latent, hidden),
                gemm(query_dim, a.q_lora_rank),
                up,
                output,
            ]
        if a.indexer is not None and not a.indexer.shared:
            keys = a.indexer.n_heads * a.indexer.head_dim
            gemms.append(gemm(keys, a.q_lora_rank or hidden))
            gemms.append(gemm(a.indexer.head_dim + a.indexer.n_heads, hidden))
        return gemms
    if isinstance(a, CompressedAttention):
        heads = a.n_heads / tp
        gemms = [
            gemm(a.q_lora_rank + a.head_dim, hidden),
            gemm(heads * a.head_dim, a.q_lora_rank),
            gemm(a.o_lora_rank, heads * a.head_dim),
            gemm(hidden, a.o_groups * a.o_lora_rank / tp),
        ]
        if a.indexer is not None and not a.indexer.shared:
            gemms.append(gemm(a.indexer.n_heads * a.indexer.head_dim, a.q_lora_rank))
            keys = compressor_params(
                hidden_size=hidden,
                head_dim=a.indexer.head_dim,
                compress_ratio=a.compress_ratio,
            )
            gemms.append(_gemm(rank, keys / hidden + a.indexer.n_heads, hidden, "bf16"))
        pooled = compressor_params(
            hidden_size=hidden, head_dim=a.head_dim, compress_ratio=a.compress_ratio
        )
        if pooled:
            gemms.append(_gemm(rank, pooled / hidden, hidden, "bf16"))
        return gemms
    keys, values = a.n_key_heads * a.key_dim, a.n_value_heads * a.value_dim
    return [
        gemm((2.0 * keys + 2.0 * values + 2.0 * a.n_value_heads) / tp, hidden),
        gemm(hidden, values / tp),
    ]


def _attention(a: Attention, rank: Rank, kv_dtype: str) -> SoftmaxAttention | LinearState:
    if isinstance(a, LinearAttention):
        return _linear_state(a, rank)
    tp = rank.tensor_parallel_size
    heads = a.n_heads / tp
    kv_bytes = BYTES_PER_PARAM[kv_dtype]
    prefill = rank.hardware.effective.prefill_attention
    assert prefill is not None, "the catalog borrows this block where a profile lacks it"
    spread = Range(value=1.0, low=prefill.relative_low, high=prefill.relative_high)
    indexer = getattr(a, "indexer", None)
    if isinstance(a, FullAttention):
        value_dim = a.v_head_dim or a.head_dim
        kv_heads = max(1.0, a.n_kv_heads / tp)
        per_score = prefill_per_score = 2.0 * heads * (a.head_dim + value_dim)
        window, tokens_per_entry, topk = a.window, None if a.window else 1.0, None
        entry_bytes, group = kv_heads * (a.head_dim + value_dim) * kv_bytes, heads / kv_heads
    elif isinstance(a, MlaAttention):
        latent = a.kv_lora_rank + a.qk_rope_head_dim
        per_score = 2.0 * heads * (latent + a.kv_lora_rank)
        prefill_per_score = 2.0 * heads * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim)
        window, tokens_per_entry = None, 1.0
        topk = float(indexer.topk) if indexer else None
        entry_bytes, group = latent * kv_bytes, heads
    else:
        per_score = prefill_per_score = 4.0 * heads * a.head_dim
        window = a.window
        tokens_per_entry = float(a.compress_ratio) if a.compress_ratio else None
        topk = float(indexer.topk) if indexer else None
        entry_bytes, group = a.entry_bytes, heads
    return SoftmaxAttention(
        window=float(window) if window else None,
        tokens_per_entry=tokens_per_entry,
        topk=topk,
        entry_bytes=entry_bytes,
        flop_per_score=per_score,
        prefill_flop_per_score=prefill_per_score,
        query_group=group,
        rates=rank.attention_rates(kv_dtype, latent=not isinstance(a, FullAttention)),
        prefill_lengths=tuple(float(n) for n in prefill.lengths),
        prefill_flop_per_s=tuple(f * rank.peak_flop_per_s("bf16") for f in prefill.compute_frac),
        prefill_scale=rank.constants.value(spread, "prefill"),
        chunked=isinstance(a, FullAttention) and a.chunked,
        index_key_bytes=indexer.key_bytes if indexer and not indexer.shared else 0.0,
        index_heads=float(indexer.n_heads) if indexer else 0.0,
        index_head_dim=float(indexer.head_dim) if indexer else 0.0,
    )


def _linear_state(a: LinearAttention, rank: Rank) -> LinearState:
    c = rank.hardware.effective.linear_attention
    assert c is not None, "the catalog borrows this block where a profile lacks it"
    heads = a.n_value_heads / rank.tensor_parallel_size
    state = heads * a.key_dim * a.value_dim
    # Chunked form: two state products per token, plus scores inside a chunk.
    general = load_general()
    chunk = general.linear_chunk_tokens.value
    flop = 4.0 * state + 2.0 * heads * chunk * (a.key_dim + a.value_dim)
    draw = rank.constants.value
    return LinearState(
        state_bytes=state * a.state_bytes,
        launch_s=draw(c.launch_us, "launch") * MICRO
        + draw(general.linear_small_kernels_us.range, "elementwise") * MICRO,
        bytes_per_s=draw(c.bandwidth_frac, "kv_bandwidth") * rank.bandwidth_bytes_per_s,
        prefill_flop_per_token=flop,
        prefill_flop_per_s=draw(general.linear_prefill_frac.range, "prefill")
        * rank.peak_flop_per_s("bf16"),
    )


def _mlp(mlp: DenseMlp, rank: Rank, hidden: int, dtype: str) -> list[Gemm]:
    inner = mlp.intermediate_size / rank.tensor_parallel_size
    return [
        _gemm(rank, inner * (2.0 if mlp.gated else 1.0), hidden, dtype),
        _gemm(rank, hidden, inner, dtype),
    ]


def _beside_experts(moe: Moe, rank: Rank, hidden: int, dtype: str) -> list[Gemm]:
    gemms = [_gemm(rank, moe.n_experts, hidden, "bf16")]
    if moe.shared_intermediate_size:
        gemms += _mlp(DenseMlp(intermediate_size=moe.shared_intermediate_size), rank, hidden, dtype)
    return gemms


def _experts(moe: Moe, rank: Rank, hidden: int, dtype: str) -> Experts:
    tp = float(rank.tensor_parallel_size)
    return Experts(
        hidden_size=float(hidden),
        intermediate_size=moe.intermediate_size / (1.0 if rank.expert_parallel else tp),
        n_experts=float(moe.n_experts),
        topk=float(moe.topk),
        weight_bytes=BYTES_PER_PARAM[dtype],
        matrices=3.0 if moe.gated else 2.0,
        expert_groups=tp if rank.expert_parallel else 1.0,
        rates=rank.moe_rates(dtype),
    )
