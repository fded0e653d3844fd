"""Language models and drafters, as the shapes that cost time and memory.

A model is a list of layer groups (how many layers, which attention, which feed-forward), not a
vendor's config.json: `catalog` turns those into this. The order of layers does not matter here,
their number per kind does.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from specsim.schema.base import Confidence, KvDtype, Record, WeightDtype


class FullAttention(Record):
    """Softmax attention with a key and a value per KV head (MHA, GQA, MQA), windowed or not."""

    kind: Literal["full"] = "full"
    n_heads: int = Field(gt=0, description="query heads")
    n_kv_heads: int = Field(gt=0, description="key/value heads")
    head_dim: int = Field(gt=0, description="size of a query and key head")
    v_head_dim: int | None = Field(default=None, gt=0, description="size of a value head, if other")
    window: int | None = Field(default=None, gt=0, description="sliding window [tokens]")
    chunked: bool = Field(default=False, description="attends inside chunks of `window` tokens")
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "per_head", "full"] = "none"
    output_gate: bool = Field(default=False, description="q projection also yields a gate")
    sinks: bool = Field(default=False, description="a learned sink logit per head")
    k_eq_v: bool = Field(default=False, description="one projection serves K and V")
    shares_kv: bool = Field(default=False, description="reads another layer's cache, stores none")
    input_multiplier: int = Field(default=1, ge=1, description="q/k/v read this many hidden sizes")


class Indexer(Record):
    """The selector of sparse attention: scores all cached keys, keeps the best."""

    n_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    topk: int = Field(gt=0, description="keys kept per query [entries]")
    key_bytes: float = Field(default=132.0, gt=0, description="stored bytes per index key")
    shared: bool = Field(default=False, description="reuses another layer's selection, no weights")


class MlaAttention(Record):
    """Multi-head latent attention (DeepSeek-V2/V3, Kimi-K2, GLM-5), dense or sparse (DSA)."""

    kind: Literal["mla"] = "mla"
    n_heads: int = Field(gt=0)
    q_lora_rank: int | None = Field(default=None, gt=0)
    kv_lora_rank: int = Field(gt=0)
    qk_nope_head_dim: int = Field(gt=0)
    qk_rope_head_dim: int = Field(gt=0)
    v_head_dim: int = Field(gt=0)
    indexer: Indexer | None = None


class CompressedAttention(Record):
    """DeepSeek-V4 attention: a sliding window plus a compressed, possibly indexed, long range."""

    kind: Literal["compressed"] = "compressed"
    n_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0, description="size of the one shared key-value head")
    q_lora_rank: int = Field(gt=0)
    o_lora_rank: int = Field(gt=0)
    o_groups: int = Field(gt=0)
    window: int = Field(gt=0, description="recent tokens kept uncompressed")
    compress_ratio: int = Field(ge=0, description="tokens per compressed entry; 0 = window only")
    entry_bytes: float = Field(gt=0, description="stored bytes per cache entry")
    indexer: Indexer | None = None


class LinearAttention(Record):
    """A recurrent layer with a state per sequence (gated DeltaNet, KDA, Mamba-2)."""

    kind: Literal["linear"] = "linear"
    n_key_heads: int = Field(gt=0)
    n_value_heads: int = Field(gt=0)
    key_dim: int = Field(gt=0)
    value_dim: int = Field(gt=0)
    conv_kernel: int = Field(default=4, ge=0)
    state_bytes: float = Field(default=4.0, gt=0, description="bytes per state element")
    variant: Literal["gdn", "kda", "mamba2"] = "gdn"


Attention = Annotated[
    FullAttention | MlaAttention | CompressedAttention | LinearAttention,
    Field(discriminator="kind"),
]


class DenseMlp(Record):
    """A feed-forward block."""

    intermediate_size: int = Field(gt=0)
    gated: bool = Field(default=True, description="three matrices (SwiGLU), else two")
    bias: bool = False


class Moe(Record):
    """A mixture of experts."""

    n_experts: int = Field(gt=0)
    topk: int = Field(gt=0, description="routed experts per token")
    intermediate_size: int = Field(gt=0, description="of one routed expert")
    shared_intermediate_size: int = Field(default=0, ge=0, description="of all shared experts")
    shared_gate: bool = Field(default=False, description="a scalar gate on the shared expert")
    gated: bool = Field(default=True, description="three matrices per expert (SwiGLU), else two")
    expert_bias: bool = False
    router_bias: bool = False


class LayerGroup(Record):
    """`count` layers of the same kind."""

    count: int = Field(gt=0)
    attention: Attention | None = None
    mlp: DenseMlp | None = None
    moe: Moe | None = None
    norms: int = Field(default=2, ge=0, description="norm vectors of hidden size per layer")


class Reference(Record):
    """A published total that the computed one is checked against."""

    total_params_b: float = Field(gt=0, description="[1e9 parameters]")
    active_params_b: float | None = Field(default=None, gt=0, description="[1e9 parameters]")
    kind: str = Field(description="exact, marketed, derived ...")


class ModelSpec(Record):
    """A target model (or a stand-alone draft model)."""

    id: str
    hidden_size: int = Field(gt=0)
    vocab_size: int = Field(gt=0)
    tied_embeddings: bool = False
    layers: tuple[LayerGroup, ...] = Field(min_length=1)
    extra_params: float = Field(default=0.0, ge=0, description="weights outside the layers' shapes")
    max_position_embeddings: int | None = Field(default=None, gt=0)
    weight_dtype: WeightDtype = Field(default="bf16", description="of the checkpoint")
    expert_dtype: WeightDtype | None = Field(
        default=None, description="of the routed experts, where it differs from weight_dtype"
    )
    attention_dtype: WeightDtype | None = Field(
        default=None, description="of the mixers' matrices, where it differs from weight_dtype"
    )
    weight_block: bool = Field(
        default=False, description="fp8 weights scaled by block of 128 x 128"
    )
    kv_dtype: KvDtype | None = Field(default=None, description="where the checkpoint fixes it")
    n_mtp_layers: int = Field(default=0, ge=0, description="MTP layers in the checkpoint")
    reference: Reference | None = None
    confidence: Confidence = "high"
    source: str = ""
    note: str = ""


DrafterKind = Literal["eagle", "eagle3", "mtp", "medusa", "dflash", "dspark", "p_eagle"]


class DrafterSpec(Record):
    """A trained drafting head: layers that read the target's hidden states.

    A stand-alone draft model is a `ModelSpec`.
    """

    id: str
    kind: DrafterKind
    target: str = Field(description="catalog id of the model it was trained for")
    hidden_size: int = Field(gt=0)
    target_hidden_size: int = Field(gt=0)
    vocab_size: int = Field(gt=0)
    draft_vocab_size: int | None = Field(default=None, gt=0, description="rows of its own lm_head")
    layers: tuple[LayerGroup, ...] = ()
    fc_in_features: int = Field(default=0, ge=0, description="inputs of the fusing projection")
    fc_out_features: int | None = Field(default=None, gt=0, description="absent: hidden_size")
    post_projection: bool = Field(default=False, description="maps back to target size")
    own_embedding: bool = Field(default=False, description="stores its own token embedding")
    own_head: bool = Field(default=False, description="stores its own lm_head")
    tied_embeddings: bool = False
    n_medusa_heads: int = Field(default=0, ge=0)
    n_mtp_layers: int = Field(default=1, ge=1, description="distinct MTP layers; reused beyond")
    block_size: int | None = Field(default=None, gt=0, description="most tokens per pass")
    markov_rank: int | None = Field(default=None, gt=0)
    extra_params: float = Field(default=0.0, ge=0)
    max_position_embeddings: int | None = Field(default=None, gt=0)
    weight_dtype: WeightDtype = "bf16"
    expert_dtype: WeightDtype | None = None
    head_dtype: WeightDtype | None = Field(
        default=None, description="of its own lm_head, where that is quantised"
    )
    reference: Reference | None = None
    confidence: Confidence = "high"
    source: str = ""
    note: str = ""

    @model_validator(mode="after")
    def _medusa_has_heads(self) -> DrafterSpec:
        if self.kind == "medusa" and self.n_medusa_heads == 0:
            raise ValueError("a medusa drafter needs n_medusa_heads, the number of its heads")
        return self
