"""How the weights of a target and its drafter are spread over the devices of a replica."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specsim.analysis.size import ModelSize, attention_dtype, drafter_size, model_size, weight_bytes
from specsim.schema.base import WeightDtype
from specsim.schema.engine import EngineConstants
from specsim.schema.model import (
    CompressedAttention,
    DrafterSpec,
    FullAttention,
    MlaAttention,
    ModelSpec,
)
from specsim.units import BYTES_PER_PARAM


@dataclass(frozen=True, slots=True)
class DeviceWeights:
    """Weights of one model on the devices of a replica [bytes]."""

    all_devices: float
    """Summed, copies counted."""
    device: float
    """On the fullest device."""


def sglang_embedding_copy_bytes(
    *, vocab_size: int, hidden_size: int, bytes_per_param: float = 2.0, copies: int = 2
) -> float:
    """Return the bytes that SGLang loses to a drafter that shares embedding and head.

    Its EAGLE and NEXTN workers load a token embedding and a head of their own (sglang issue
    36452), which vLLM shares with the target.

    Examples
    --------
    >>> sglang_embedding_copy_bytes(vocab_size=248320, hidden_size=5120) / 1e9
    5.0855936
    """
    return copies * vocab_size * hidden_size * bytes_per_param


def stored_drafter(
    drafter: DrafterSpec | ModelSpec | None, model: ModelSpec, engine: EngineConstants
) -> tuple[DrafterSpec | ModelSpec | None, tuple[str, ...]]:
    """Return the drafter as the engine keeps it, and what to say about it.

    vLLM drops a drafter's embedding or head that equals the target's (v1/worker/gpu/spec_decode/
    eagle/utils.py), and drafters are trained on the target's, frozen: one of the same shape is
    taken as the same. A reduced draft vocabulary has a head of its own. SGLang's EAGLE and NEXTN
    workers load both tables a second time (see `sglang_embedding_copy_bytes`).
    """
    if not isinstance(drafter, DrafterSpec) or drafter.kind == "medusa":
        return drafter, ()
    if engine.copies_shared_embedding:
        if drafter.own_embedding and (drafter.own_head or drafter.tied_embeddings):
            return drafter, ()
        copies = {"own_embedding": True, "own_head": True, "tied_embeddings": False}
        return drafter.model_copy(update=copies), (
            f"{drafter.id}: holds copies of the target's embedding and head in this engine",
        )
    same_width = drafter.hidden_size == model.hidden_size
    same_rows = drafter.vocab_size == model.vocab_size
    if not (same_width and same_rows):
        return drafter, ()
    own_head = drafter.own_head and drafter.draft_vocab_size not in (None, model.vocab_size)
    dropped = [
        name
        for name, was, now in (
            ("embedding", drafter.own_embedding, False),
            ("head", drafter.own_head, own_head),
        )
        if was and not now
    ]
    if not dropped:
        return drafter, ()
    shared = drafter.model_copy(update={"own_embedding": False, "own_head": own_head})
    return shared, (
        f"{drafter.id}: its {' and '.join(dropped)} counted as shared with the target, as vLLM "
        "does when they are equal",
    )


def target_weights(
    model: ModelSpec,
    *,
    weight_dtype: WeightDtype,
    expert_dtype: WeightDtype | None,
    tensor_parallel_size: int,
    pipeline_parallel_size: int,
    expert_parallel: bool,
) -> DeviceWeights:
    """Return the target's weights; the fullest device is on the last pipeline stage."""
    size = model_size(model)
    tp, stages = tensor_parallel_size, pipeline_parallel_size
    total = weight_bytes(
        size,
        weight_dtype=weight_dtype,
        expert_dtype=expert_dtype,
        attention_dtype=attention_dtype(model, weight_dtype),
    )
    copied = _copied_bytes(model, size, weight_dtype=weight_dtype, tp=tp)
    plain = _plain_bytes(weight_dtype)
    ends = (size.embedding_params + size.head_params) * plain
    # Both ends of a pipeline hold one table; a tied one exists on both.
    end = max(size.embedding_params, size.head_params) * plain if stages > 1 else ends
    extra = (stages > 1 and not size.head_params) * end
    n_layers = sum(group.count for group in model.layers)
    stage = math.ceil(n_layers / stages) / n_layers
    device = ((total - ends - copied) / tp + copied) * stage + end / tp
    if expert_parallel:
        device += _uneven_experts_bytes(model, expert_dtype or weight_dtype, tp) * stage
    return DeviceWeights(all_devices=total + (tp - 1) * copied + extra, device=device)


def drafter_weights(
    drafter: DrafterSpec | ModelSpec | None,
    *,
    weight_dtype: WeightDtype,
    tensor_parallel_size: int,
    devices: int,
) -> DeviceWeights:
    """Return the drafter's weights; it lives on the last stage, on every rank of it."""
    if drafter is None:
        return DeviceWeights(0.0, 0.0)
    size = drafter_size(drafter) if isinstance(drafter, DrafterSpec) else model_size(drafter)
    head_dtype = drafter.head_dtype if isinstance(drafter, DrafterSpec) else None
    total = weight_bytes(
        size, weight_dtype=weight_dtype, expert_dtype=drafter.expert_dtype, head_dtype=head_dtype
    )
    copied = _copied_bytes(drafter, size, weight_dtype=weight_dtype, tp=tensor_parallel_size)
    device = (total - copied) / tensor_parallel_size + copied
    return DeviceWeights(all_devices=device * devices, device=device)


def _copied_bytes(
    spec: ModelSpec | DrafterSpec, size: ModelSize, *, weight_dtype: WeightDtype, tp: int
) -> float:
    """Return what every rank holds in full: low-rank projections, routers, norms, spare heads."""
    linear = BYTES_PER_PARAM[weight_dtype]
    copied = 0.0
    for group in spec.layers:
        match group.attention:
            case FullAttention(shares_kv=False) as full if tp > full.n_kv_heads:
                # A rank holds one head, tp / n times its even share of the n heads.
                n = full.n_kv_heads
                width = full.head_dim + (full.v_head_dim or full.head_dim) * (not full.k_eq_v)
                kv = n * width * spec.hidden_size * full.input_multiplier
                copied += group.count * kv * (tp / n - 1) / (tp - 1)
            case MlaAttention() as mla:
                rank = mla.kv_lora_rank + mla.qk_rope_head_dim + (mla.q_lora_rank or 0)
                indexer = mla.indexer
                if indexer is not None and not indexer.shared:
                    rank += indexer.head_dim + indexer.n_heads
                    wide = (mla.q_lora_rank or spec.hidden_size) * indexer.n_heads
                    copied += group.count * wide * indexer.head_dim
                copied += group.count * rank * spec.hidden_size
            case CompressedAttention() as own:
                copied += group.count * (own.q_lora_rank + own.head_dim) * spec.hidden_size
    plain = _plain_bytes(weight_dtype)
    return copied * linear + (size.router_params + size.norm_params + size.other_params) * plain


def _uneven_experts_bytes(model: ModelSpec, dtype: WeightDtype, tp: int) -> float:
    """Return what the fullest rank holds above an even share of whole experts."""
    total = 0.0
    for group in model.layers:
        if group.moe is not None:
            spare = math.ceil(group.moe.n_experts / tp) - group.moe.n_experts / tp
            matrices = 3 if group.moe.gated else 2
            expert = matrices * model.hidden_size * group.moe.intermediate_size
            total += group.count * spare * expert
    return total * BYTES_PER_PARAM[dtype]


def _plain_bytes(weight_dtype: WeightDtype) -> float:
    """Return the bytes per weight of what quantisation leaves alone, as `weight_bytes` does."""
    return BYTES_PER_PARAM[weight_dtype if weight_dtype in ("fp32", "bf16", "fp16") else "bf16"]
