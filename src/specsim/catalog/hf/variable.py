"""Models whose layers were pruned one by one (Nemotron-NAS, `block_configs`)."""

from __future__ import annotations

from typing import Any

from specsim.catalog.hf.fields import Fields
from specsim.schema.model import DenseMlp, FullAttention, LayerGroup


def block_config_layers(f: Fields, *, n_layers: int, hidden_size: int) -> tuple[LayerGroup, ...]:
    """Read one attention and one feed-forward description per layer; either may be absent.

    Notes
    -----
    vLLM 0.32, model_executor/models/nemotron_nas.py: KV heads are the heads divided by
    `n_heads_in_group`; a width is 2/3 * ffn_mult * hidden_size, rounded up to 256.
    """
    blocks = f.listing("block_configs", length=n_layers) or []
    heads = f.integer("num_attention_heads")
    head_dim = f.maybe("head_dim") or hidden_size // heads
    f.mark("num_key_value_heads", "intermediate_size", "architecture", "hidden_act")
    bias = f.flag("attention_bias")
    counts: dict[Any, int] = {}
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            raise f.error(f"block_configs[{index}] is no mapping; expected attention and ffn")
        one = Fields(block, what=f.what, path=f"block_configs[{index}].")
        attention, ffn = one.child("attention"), one.child("ffn")
        if attention is None or ffn is None:
            raise one.missing("attention" if attention is None else "ffn")
        mixer = _attention(attention, heads=heads, head_dim=head_dim, bias=bias)
        mlp = _ffn(ffn, hidden_size)
        one.refuse_unread(strict=False)
        row = (mixer, mlp)
        counts[row] = counts.pop(row, 0) + 1
    return tuple(
        LayerGroup(
            count=count,
            attention=mixer,
            mlp=mlp,
            norms=(mixer is not None) + (mlp is not None),
        )
        for (mixer, mlp), count in counts.items()
    )


def _attention(f: Fields, *, heads: int, head_dim: int, bias: bool) -> FullAttention | None:
    if f.flag("no_op"):
        f.mark(*f.data)
        return None
    if f.flag("replace_with_linear"):
        raise f.unsupported("replace_with_linear", "attention replaced by a matrix is not modelled")
    f.mark("sparsify", "window_length", "num_sink_tokens", "use_prefill_window_in_sink_attention")
    if f.flag("unshifted_sink"):
        raise f.unsupported("unshifted_sink")
    if f.maybe("window_length") is not None:
        raise f.unsupported("window_length", "sink attention with a window is not modelled")
    group = f.maybe("n_heads_in_group")
    kv_heads = heads // group if group else f.integer("num_key_value_heads")
    if kv_heads < 1:
        raise f.bad("n_heads_in_group", f"at most {heads}")
    return FullAttention(
        n_heads=heads, n_kv_heads=kv_heads, head_dim=head_dim, qkv_bias=bias, output_bias=bias
    )


def _ffn(f: Fields, hidden_size: int) -> DenseMlp | None:
    if f.flag("no_op"):
        f.mark(*f.data)
        return None
    if f.flag("replace_with_linear"):
        raise f.unsupported("replace_with_linear", "an MLP replaced by a matrix is not modelled")
    f.mark("sparsify", "gated", "hidden_act")
    width = f.maybe("intermediate_size")
    if width is None:
        if not f.has("ffn_mult"):
            raise f.missing("ffn_mult", "intermediate_size")
        width = -(-int(2 * f.number("ffn_mult", default=1.0) * hidden_size / 3) // 256) * 256
    return DenseMlp(intermediate_size=width)
