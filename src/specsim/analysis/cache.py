"""What every kind of layer caches, as the blocks that vLLM V1 cuts its pool into."""

from __future__ import annotations

import math

from specsim.physics import memory
from specsim.physics.memory import CacheLayers, CachePool
from specsim.schema.base import KvDtype
from specsim.schema.model import (
    CompressedAttention,
    DrafterSpec,
    FullAttention,
    LayerGroup,
    LinearAttention,
    MlaAttention,
    ModelSpec,
)
from specsim.units import BYTES_PER_PARAM

# Layouts that vLLM's kernels fix (0.32). Latent attention: FlashMLA and the sparse indexer read
# pages of 64 tokens (v1/attention/backends/mla). DeepSeek-V4 (models/deepseek_v4/attention.py,
# compressor.py; v1/attention/backends/mla/sparse_swa.py): pages padded to the stride of FlashMLA,
# and beside the compressed entries a window cache per layer and a ring of fp32 partial sums per
# compressor.
_LATENT_BLOCK_TOKENS = 64
_COMPRESSED_BLOCK_TOKENS = 256
_COMPRESSED_WINDOW_BLOCK_TOKENS = 64
_COMPRESSED_PAGE_ALIGNMENT_BYTES = 576
_COMPRESSOR_BLOCK_TOKENS = {4: 4, 128: 8}


def cache_pool(
    model: ModelSpec,
    drafter: DrafterSpec | ModelSpec | None,
    *,
    num_speculative_tokens: int,
    kv_dtype: KvDtype,
    tensor_parallel_size: int,
    draft_tensor_parallel_size: int,
    pipeline_parallel_size: int,
    block_size: int,
) -> CachePool:
    """Return the block pool of one device for a model and the drafter beside it.

    Parameters
    ----------
    block_size : int
        The engine's tokens per block; kernels of latent attention need at least 64, DeepSeek-V4
        256, and hybrids grow it until a page holds a recurrent state. [tokens]
    """
    element = BYTES_PER_PARAM[kv_dtype]
    kinds = {type(group.attention) for group in model.layers}
    block = block_size
    if CompressedAttention in kinds:
        block = _COMPRESSED_BLOCK_TOKENS
    elif MlaAttention in kinds:
        block = max(block, _LATENT_BLOCK_TOKENS)
    if LinearAttention in kinds:
        block = _hybrid_block_tokens(
            model, element, block, k=num_speculative_tokens, tp=tensor_parallel_size
        )

    def layers(spec: DrafterSpec | ModelSpec, tp: int, of_drafter: bool) -> list[CacheLayers]:
        return [
            part
            for group in spec.layers
            for part in _cache_layers(
                group,
                element_bytes=element,
                block=block,
                k=num_speculative_tokens,
                tp=tp,
                of_drafter=of_drafter,
            )
        ]

    parts = layers(model, tensor_parallel_size, of_drafter=False)
    if drafter is not None:
        parts += layers(drafter, draft_tensor_parallel_size, of_drafter=True)
    if LinearAttention in kinds:
        parts = _padded_states(parts)
    return memory.build_pool(
        parts,
        pipeline_stages=pipeline_parallel_size,
        packed=CompressedAttention in kinds,
    )


def _cache_layers(
    group: LayerGroup, *, element_bytes: float, block: int, k: int, tp: int, of_drafter: bool
) -> list[CacheLayers]:
    attention = group.attention

    def full(bytes_per_token: float, *, latent: bool = False) -> CacheLayers:
        return CacheLayers(
            group.count,
            "full",
            bytes_per_token * block,
            block,
            latent=latent,
            of_drafter=of_drafter,
        )

    match attention:
        case None | FullAttention(shares_kv=True):
            return []
        case FullAttention():
            per_token = _attention_bytes(attention, element_bytes, tp)
            if attention.window is None:
                return [full(per_token)]
            kind: memory.CacheKind = "chunked" if attention.chunked else "sliding"
            page = per_token * block
            return [
                CacheLayers(group.count, kind, page, block, attention.window, of_drafter=of_drafter)
            ]
        case MlaAttention(indexer=indexer):
            latent = memory.latent_bytes_per_token(
                kv_lora_rank=attention.kv_lora_rank,
                rope_head_dim=attention.qk_rope_head_dim,
                bytes_per_element=element_bytes,
                sparse=indexer is not None,
            )
            parts = [full(latent, latent=True)]
            if indexer is not None and not indexer.shared:
                parts.append(full(indexer.key_bytes, latent=True))
            return parts
        case CompressedAttention():
            return _compressed_cache(attention, group.count, block, of_drafter=of_drafter)
        case LinearAttention():
            # Prefix caching is on by default: the state at a block boundary stays beside the
            # running one, and every draft token needs one [MambaSpec, cache mode 'align'].
            page = _state_bytes(attention, k, tp)
            return [
                CacheLayers(
                    group.count, "state", page, block, state_blocks=2 + k, of_drafter=of_drafter
                )
            ]


def _compressed_cache(
    attention: CompressedAttention, count: int, block: int, *, of_drafter: bool
) -> list[CacheLayers]:
    """Return what a DeepSeek-V4 layer caches: window, entries, index keys, partial sums."""

    def part(
        kind: memory.CacheKind, entries: float, entry_bytes: float, tokens: int, window: int = 0
    ) -> CacheLayers:
        align = _COMPRESSED_PAGE_ALIGNMENT_BYTES
        page = math.ceil(entries * entry_bytes / align) * align
        return CacheLayers(count, kind, page, tokens, window, latent=True, of_drafter=of_drafter)

    tokens = _COMPRESSED_WINDOW_BLOCK_TOKENS
    parts = [part("sliding", tokens, attention.entry_bytes, tokens, attention.window)]
    ratio = attention.compress_ratio
    if ratio <= 1:
        return parts
    # Groups of 4 overlap their neighbour, so that their compressor looks back twice as far.
    overlap = 2 if ratio == 4 else 1
    ring = _COMPRESSOR_BLOCK_TOKENS.get(ratio, 8)
    entries = block // ratio
    parts.append(part("full", entries, attention.entry_bytes, block))
    sums = 2 * overlap * attention.head_dim * 4
    parts.append(part("sliding", ring, sums, ring, overlap * ratio))
    indexer = attention.indexer
    if indexer is not None and not indexer.shared:
        parts.append(part("full", entries, indexer.key_bytes, block))
        sums = 2 * overlap * indexer.head_dim * 4
        parts.append(part("sliding", ring, sums, ring, overlap * ratio))
    return parts


def _attention_bytes(attention: FullAttention, element_bytes: float, tp: int) -> float:
    return float(
        memory.attention_bytes_per_token(
            n_kv_heads=attention.n_kv_heads,
            head_dim=attention.head_dim,
            v_head_dim=attention.v_head_dim or attention.head_dim,
            bytes_per_element=element_bytes,
            tensor_parallel_size=tp,
        )
    )


def _state_bytes(attention: LinearAttention, k: int, tp: int) -> float:
    return float(
        memory.recurrent_state_bytes(
            n_key_heads=attention.n_key_heads,
            n_value_heads=attention.n_value_heads,
            key_dim=attention.key_dim,
            value_dim=attention.value_dim,
            conv_kernel=attention.conv_kernel,
            state_bytes=attention.state_bytes,
            num_speculative_tokens=k,
            tensor_parallel_size=tp,
        )
    )


def _hybrid_block_tokens(
    model: ModelSpec, element_bytes: float, block: int, *, k: int, tp: int
) -> int:
    state = max(
        _state_bytes(g.attention, k, tp)
        for g in model.layers
        if isinstance(g.attention, LinearAttention)
    )
    for group in model.layers:
        attention = group.attention
        if isinstance(attention, FullAttention):
            per_token = _attention_bytes(attention, element_bytes, tp)
        elif isinstance(attention, MlaAttention):
            per_token = memory.latent_bytes_per_token(
                kv_lora_rank=attention.kv_lora_rank,
                rope_head_dim=attention.qk_rope_head_dim,
                bytes_per_element=element_bytes,
            )
            block = max(block, 2 * _LATENT_BLOCK_TOKENS)
        else:
            continue
        return memory.aligned_block_tokens(
            state_page_bytes=state, attention_bytes_per_token=per_token, block_tokens=block
        )
    return block  # no softmax attention at all


def _padded_states(parts: list[CacheLayers]) -> list[CacheLayers]:
    """Pad recurrent states to the target's attention page, which was raised to hold them."""
    page = max((x.page_bytes for x in parts if not x.of_drafter), default=0.0)
    return [
        CacheLayers(
            x.count,
            "state",
            page,
            x.block_tokens,
            state_blocks=x.state_blocks,
            of_drafter=x.of_drafter,
        )
        if x.kind == "state"
        else x
        for x in parts
    ]
