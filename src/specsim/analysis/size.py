"""Parameter counts of a model or a drafter, by part, and the bytes they occupy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.physics import parameters
from specsim.schema.model import (
    Attention,
    CompressedAttention,
    DrafterSpec,
    FullAttention,
    LayerGroup,
    LinearAttention,
    MlaAttention,
    ModelSpec,
)
from specsim.units import BYTES_PER_PARAM

_UNQUANTISED = ("fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Weights of a model by what they do, over all ranks [parameters].

    Parts that are tied to another part or shared with the target count once, where they are
    stored: a head tied to its embedding is 0 here.
    """

    embedding_params: float
    head_params: float
    attention_params: float
    dense_mlp_params: float
    routed_expert_params: float
    shared_expert_params: float
    router_params: float
    norm_params: float
    other_params: float
    """Fusing and back projections, Medusa blocks, Markov tables, whatever a config adds."""
    inactive_params: float
    """Routed experts that one token does not visit."""

    @property
    def total_params(self) -> float:
        """All stored weights [parameters]."""
        return (
            self.embedding_params
            + self.head_params
            + self.attention_params
            + self.dense_mlp_params
            + self.routed_expert_params
            + self.shared_expert_params
            + self.router_params
            + self.norm_params
            + self.other_params
        )

    @property
    def active_params(self) -> float:
        """Weights that one token visits, embedding and head included [parameters]."""
        return self.total_params - self.inactive_params


def model_size(spec: ModelSpec) -> ModelSize:
    """Count the weights of a model, without its MTP layers (those are a drafter)."""
    table = parameters.embedding_params(vocab_size=spec.vocab_size, hidden_size=spec.hidden_size)
    return _size(
        spec.layers,
        hidden_size=spec.hidden_size,
        embedding=table,
        head=0 if spec.tied_embeddings else table,
        final_norms=1,
        other=spec.extra_params,
    )


def drafter_size(spec: DrafterSpec) -> ModelSize:
    """Count the weights that a drafter stores beside its target.

    An embedding or a head shared with the target counts 0.
    """
    hidden = spec.hidden_size
    table = parameters.embedding_params(vocab_size=spec.vocab_size, hidden_size=hidden)
    head = parameters.embedding_params(
        vocab_size=spec.draft_vocab_size or spec.vocab_size, hidden_size=hidden
    )
    n_heads = spec.n_medusa_heads or (1 if spec.own_head and not spec.tied_embeddings else 0)
    other = spec.extra_params + spec.fc_in_features * (spec.fc_out_features or hidden)
    other += spec.n_medusa_heads * parameters.medusa_block_params(hidden_size=hidden)
    if spec.post_projection:
        other += hidden * spec.target_hidden_size
    if spec.markov_rank:
        other += parameters.markov_params(vocab_size=spec.vocab_size, rank=spec.markov_rank)
    return _size(
        spec.layers,
        hidden_size=hidden,
        embedding=table if spec.own_embedding else 0,
        head=n_heads * head,
        # EAGLE-1 and Medusa hand their output to the head as it is.
        final_norms=0 if spec.kind in ("eagle", "medusa") else 1,
        other=other,
    )


def attention_dtype(spec: ModelSpec, weight_dtype: str) -> str:
    """Return the dtype of attention weights: the checkpoint's own where its format is kept."""
    if spec.attention_dtype is not None and weight_dtype == spec.weight_dtype:
        return spec.attention_dtype
    return weight_dtype


def weight_bytes(
    size: ModelSize,
    *,
    weight_dtype: str,
    expert_dtype: str | None = None,
    attention_dtype: str | None = None,
    head_dtype: str | None = None,
    unquantised_dtype: str | None = None,
) -> float:
    """Return the memory that the weights occupy, summed over all ranks of a tensor-parallel group.

    Parameters
    ----------
    weight_dtype : str
        Of the linear layers: attention, MLP, shared experts. A key of `units.BYTES_PER_PARAM`.
    expert_dtype : str, optional
        Of the routed experts; `weight_dtype` if absent (gpt-oss: bf16 with mxfp4 experts).
    attention_dtype : str, optional
        Of the attention, where quantisation leaves it alone; `weight_dtype` if absent.
    head_dtype : str, optional
        Of the lm_head; as the embedding if absent.
    unquantised_dtype : str, optional
        Of what quantisation leaves alone: embedding, head, norms, router and the small rest.
        Absent: `weight_dtype` if that is not a quantised format, else bf16.

    Returns
    -------
    float
        [bytes]
    """
    if unquantised_dtype is None:
        unquantised_dtype = weight_dtype if weight_dtype in _UNQUANTISED else "bf16"
    linear = size.dense_mlp_params + size.shared_expert_params
    plain = size.embedding_params + size.router_params + size.norm_params + size.other_params
    return (
        linear * BYTES_PER_PARAM[weight_dtype]
        + size.attention_params * BYTES_PER_PARAM[attention_dtype or weight_dtype]
        + size.routed_expert_params * BYTES_PER_PARAM[expert_dtype or weight_dtype]
        + size.head_params * BYTES_PER_PARAM[head_dtype or unquantised_dtype]
        + plain * BYTES_PER_PARAM[unquantised_dtype]
    )


def _size(
    layers: Sequence[LayerGroup],
    *,
    hidden_size: int,
    embedding: float,
    head: float,
    final_norms: int,
    other: float,
) -> ModelSize:
    attention = dense = routed = shared = router = inactive = 0.0
    n_norms = final_norms
    for group in layers:
        n_norms += group.count * group.norms
        if group.attention is not None:
            attention += group.count * attention_params(group.attention, hidden_size=hidden_size)
        if group.mlp is not None:
            dense += group.count * parameters.mlp_params(
                hidden_size=hidden_size,
                intermediate_size=group.mlp.intermediate_size,
                gated=group.mlp.gated,
                bias=group.mlp.bias,
            )
        if group.moe is not None:
            moe = group.moe
            expert = parameters.mlp_params(
                hidden_size=hidden_size,
                intermediate_size=moe.intermediate_size,
                gated=moe.gated,
                bias=moe.expert_bias,
            )
            routed += group.count * moe.n_experts * expert
            inactive += group.count * (moe.n_experts - moe.topk) * expert
            shared += group.count * parameters.mlp_params(
                hidden_size=hidden_size, intermediate_size=moe.shared_intermediate_size
            )
            router += group.count * parameters.router_params(
                hidden_size=hidden_size,
                n_experts=moe.n_experts,
                bias=moe.router_bias,
                shared_gate=moe.shared_gate,
            )
    return ModelSize(
        embedding_params=embedding,
        head_params=head,
        attention_params=attention,
        dense_mlp_params=dense,
        routed_expert_params=routed,
        shared_expert_params=shared,
        router_params=router,
        norm_params=n_norms * hidden_size,
        other_params=other,
        inactive_params=inactive,
    )


def attention_params(attention: Attention, *, hidden_size: int) -> int:
    """Count the weights of one attention block of any kind [parameters]."""
    match attention:
        case FullAttention():
            return parameters.full_attention_params(
                hidden_size=hidden_size,
                n_heads=attention.n_heads,
                n_kv_heads=attention.n_kv_heads,
                head_dim=attention.head_dim,
                v_head_dim=attention.v_head_dim,
                qkv_bias=attention.qkv_bias,
                output_bias=attention.output_bias,
                qk_norm=attention.qk_norm,
                output_gate=attention.output_gate,
                sinks=attention.sinks,
                k_eq_v=attention.k_eq_v,
                shares_kv=attention.shares_kv,
                input_multiplier=attention.input_multiplier,
            )
        case MlaAttention(indexer=indexer):
            total = parameters.mla_params(
                hidden_size=hidden_size,
                n_heads=attention.n_heads,
                q_lora_rank=attention.q_lora_rank,
                kv_lora_rank=attention.kv_lora_rank,
                qk_nope_head_dim=attention.qk_nope_head_dim,
                qk_rope_head_dim=attention.qk_rope_head_dim,
                v_head_dim=attention.v_head_dim,
            )
            if indexer is not None and not indexer.shared:
                total += parameters.indexer_params(
                    hidden_size=hidden_size,
                    q_lora_rank=attention.q_lora_rank or hidden_size,
                    n_heads=indexer.n_heads,
                    head_dim=indexer.head_dim,
                )
            return total
        case CompressedAttention(indexer=indexer):
            return parameters.compressed_attention_params(
                hidden_size=hidden_size,
                n_heads=attention.n_heads,
                head_dim=attention.head_dim,
                q_lora_rank=attention.q_lora_rank,
                o_lora_rank=attention.o_lora_rank,
                o_groups=attention.o_groups,
                compress_ratio=attention.compress_ratio,
                index_heads=indexer.n_heads if indexer is not None else 0,
                index_head_dim=indexer.head_dim if indexer is not None else 0,
            )
        case LinearAttention():
            return parameters.linear_attention_params(
                hidden_size=hidden_size,
                n_key_heads=attention.n_key_heads,
                n_value_heads=attention.n_value_heads,
                key_dim=attention.key_dim,
                value_dim=attention.value_dim,
                conv_kernel=attention.conv_kernel,
                variant=attention.variant,
            )
