"""Latent and sparse attention: MLA, its indexer (DSA), and DeepSeek-V4's compressed attention."""

from __future__ import annotations

from typing import Any

from specsim.catalog.hf.fields import Fields, shown
from specsim.schema.model import CompressedAttention, Indexer

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
LATENT_FIELDS = (
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
)  # fmt: skip
# Latent configs also state these; they follow from the latent fields or do not apply.
KV_MARKS = (
    "num_key_value_heads", "num_kv_heads", "head_dim", "qk_head_dim", "mla_scale_q_lora",
    "mla_scale_kv_lora", "use_sliding_window", "attention_method", "mla_use_nope",
)  # fmt: skip


def latent_fields(f: Fields) -> dict[str, Any]:
    """Read the ranks and head sizes of multi-head latent attention."""
    f.mark(*KV_MARKS)
    return {
        "n_heads": f.integer(*HEADS),
        "q_lora_rank": f.maybe("q_lora_rank"),
        "kv_lora_rank": f.integer("kv_lora_rank"),
        "qk_nope_head_dim": f.integer("qk_nope_head_dim"),
        "qk_rope_head_dim": f.integer("qk_rope_head_dim"),
        "v_head_dim": f.integer("v_head_dim"),
    }


def indexers(f: Fields, n: int) -> list[Indexer | None]:
    """Return the selector of each of `n` layers; None where attention is dense."""
    if f.maybe("index_topk") is None:
        f.mark("index_n_heads", "index_head_dim", "index_topk")
        return [None] * n
    size = f.integer("index_head_dim")
    heads = f.integer("index_n_heads")
    topk = f.integer("index_topk")
    shared = _shared_selection(f, n)
    return [
        Indexer(
            n_heads=heads,
            head_dim=size,
            topk=topk,
            key_bytes=index_key_bytes(size),
            shared=flag,
        )
        for flag in shared
    ]


def _shared_selection(f: Fields, n: int) -> list[bool]:
    """Tell for each layer whether it reuses the selection of an earlier one (GLM-5.2)."""
    types = f.texts("indexer_types", length=n)
    frequency = f.integer("index_topk_freq", default=1)
    offset = f.integer("index_skip_topk_offset", default=2, low=0)
    pattern = f.get("index_topk_pattern")
    if types is None and pattern is not None:
        if not isinstance(pattern[1], str) or set(pattern[1]) - {"F", "S"}:
            raise f.bad("index_topk_pattern", "letters F (full) and S (shared)")
        if len(pattern[1]) < n:
            raise f.bad("index_topk_pattern", f"{n} letters, one per layer")
        return [letter == "S" for letter in pattern[1][:n]]
    if types is None:
        # vLLM 0.32, models/deepseek_v2.py: max(layer - offset + 1, 0) % freq != 0
        return [max(i - offset + 1, 0) % frequency != 0 for i in range(n)]
    if set(types) - {"full", "shared"}:
        raise f.bad("indexer_types", "'full' or 'shared' per layer")
    return [kind == "shared" for kind in types]


def index_key_bytes(head_dim: int) -> float:
    """Return the stored bytes of one index key: fp8 values and an fp32 scale per 128 of them.

    Source: vLLM 0.32, models/deepseek_v4/attention.py (`k_cache_head_dim`), 132 for 128.
    """
    return float(head_dim + -(-head_dim // 128) * 4)


def compressed_attention(f: Fields, n_layers: int) -> list[CompressedAttention]:
    """Read DeepSeek-V4 attention: a window, and behind it pooled entries, indexed or not.

    Notes
    -----
    vLLM 0.32 (models/deepseek_v4/attention.py) stores an entry as fp8 values of the part without
    positions, bf16 of the rotary part, and a scale byte per 64 values plus one of padding: 448 +
    128 + 8 = 584 bytes at head_dim 512. Layers that pool 4 tokens have an indexer, those that
    pool 128 attend to all their entries.
    """
    head_dim = f.integer("head_dim")
    rope = f.integer("qk_rope_head_dim", default=64)
    if rope >= head_dim:
        raise f.bad("qk_rope_head_dim", f"less than head_dim {head_dim}")
    entry_bytes = (head_dim - rope) + 2 * rope + -(-(head_dim - rope) // 64) + 1
    f.mark("num_key_value_heads", "kv_lora_rank", "v_head_dim", "qk_nope_head_dim")
    common: dict[str, Any] = {
        "n_heads": f.integer(*HEADS),
        "head_dim": head_dim,
        "q_lora_rank": f.integer("q_lora_rank"),
        "o_lora_rank": f.integer("o_lora_rank"),
        "o_groups": f.integer("o_groups"),
        "window": f.integer("sliding_window", "window_size"),
        "entry_bytes": float(entry_bytes),
    }
    index_dim = f.integer("index_head_dim")
    indexer = Indexer(
        n_heads=f.integer("index_n_heads"),
        head_dim=index_dim,
        topk=f.integer("index_topk"),
        key_bytes=index_key_bytes(index_dim),
    )
    return [
        CompressedAttention(**common, compress_ratio=ratio, indexer=indexer if ratio == 4 else None)
        for ratio in _compress_ratios(f, n_layers)
    ]


def _compress_ratios(f: Fields, n_layers: int) -> list[int]:
    ratios = f.integers("compress_ratios", length=n_layers)
    if ratios is None:
        rates = f.child("compress_rates")
        names = f.texts("layer_types", length=n_layers)
        if names is None:
            raise f.missing("compress_ratios", "layer_types")
        by_name = {
            "sliding_attention": 0,
            "compressed_sparse_attention": 4,
            "heavily_compressed_attention": 128,
        }
        if rates is not None:
            by_name |= {k: rates.integer(k, low=0) for k in by_name if rates.has(k)}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise f.error(f"layer_types holds {shown(unknown[0])}; known: {', '.join(by_name)}")
        ratios = [by_name[name] for name in names]
    f.mark("layer_types", "compress_rates")
    odd = sorted(set(ratios) - {0, 1, 4, 128})
    if odd:
        # vLLM asserts the same: how an entry is pooled and whether it is indexed depends on it.
        raise f.bad("compress_ratios", f"0, 4 or 128 per layer (found {odd[0]})")
    return [0 if ratio == 1 else ratio for ratio in ratios]
