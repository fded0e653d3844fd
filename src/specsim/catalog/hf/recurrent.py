"""Layers with a state instead of a cache: gated DeltaNet, KDA, lightning attention, Mamba."""

from __future__ import annotations

import math

from specsim.catalog.hf.fields import Fields
from specsim.schema.model import LinearAttention

_STATE_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "auto": 4.0}


def linear_attention(f: Fields, *, n_heads: int, head_dim: int) -> LinearAttention:
    """Read the linear-attention layer that a config describes, whichever fields it uses."""
    f.mark("linear_attn_config")
    if f.has("linear_num_value_heads"):
        return LinearAttention(
            n_key_heads=f.integer("linear_num_key_heads"),
            n_value_heads=f.integer("linear_num_value_heads"),
            key_dim=f.integer("linear_key_head_dim"),
            value_dim=f.integer("linear_value_head_dim"),
            conv_kernel=f.integer("linear_conv_kernel_dim", default=4, low=0),
            state_bytes=_state_bytes(f),
        )
    kda = f.child("linear_attn_config")
    if kda is not None or f.has("linear_num_heads"):
        where, prefix = (kda, "") if kda is not None else (f, "linear_")
        kernel = "short_conv_kernel_size" if kda is not None else "linear_conv_kernel_dim"
        heads = where.integer(f"{prefix}num_heads")
        size = where.integer(f"{prefix}head_dim")
        return LinearAttention(
            n_key_heads=heads,
            n_value_heads=heads,
            key_dim=size,
            value_dim=size,
            conv_kernel=where.integer(kernel, default=4, low=0),
            variant="kda",
        )
    if f.has("mamba_n_heads", "mamba_num_heads"):
        return mamba2(f)
    # MiniMax lightning attention: q, k, v and a full output gate, decay fixed per head. The gated
    # DeltaNet record differs from it by two scalars per head and token.
    f.mark("block_size")
    return LinearAttention(
        n_key_heads=n_heads,
        n_value_heads=n_heads,
        key_dim=head_dim,
        value_dim=head_dim,
        conv_kernel=0,
    )


def mamba2(f: Fields) -> LinearAttention:
    """Read a Mamba-2 layer (Bamba, Granite-4, Nemotron-H, Falcon-H1)."""
    heads = f.integer("mamba_n_heads", "mamba_num_heads")
    hidden = f.integer("hidden_size")
    expand = f.number("mamba_expand", "expand", default=2.0)
    inner = f.maybe("mamba_d_ssm") or int(expand * hidden)
    found = f.get("mamba_d_head", "mamba_head_dim")
    if found is None or found[1] == "auto":
        if inner % heads:
            raise f.bad("mamba_n_heads", f"a divisor of the inner size {inner}")
        size = inner // heads
    else:
        size = f.whole(*found)
    f.flag("mamba_proj_bias")
    f.flag("mamba_conv_bias", "use_conv_bias")
    f.mark("mamba_rms_norm", "mamba_norm_before_gate", "mamba_use_mlp", "mamba_step_rank")
    return LinearAttention(
        n_key_heads=f.integer("mamba_n_groups", "n_groups", default=1),
        n_value_heads=heads,
        key_dim=f.integer("mamba_d_state", "ssm_state_size", "mamba_state_dim"),
        value_dim=size,
        conv_kernel=f.integer("mamba_d_conv", "conv_kernel", default=4, low=0),
        state_bytes=_state_bytes(f),
        variant="mamba2",
    )


def is_mamba1(f: Fields) -> bool:
    """Tell whether the state-space layers are of the first generation (Jamba)."""
    return not f.has("mamba_n_heads", "mamba_num_heads")


def mamba1(f: Fields) -> tuple[LinearAttention, int]:
    """Read a Mamba-1 layer as the nearest record and the weights that the record lacks.

    The record is Mamba-2 with a single head as wide as the inner size: same in, out and
    convolution weights, same state. Missing are the projections to step size and state inputs and
    the rates per channel (arXiv 2312.00752, section 3.4).
    """
    hidden = f.integer("hidden_size")
    inner = int(f.number("mamba_expand", default=2.0) * hidden)
    state = f.integer("mamba_d_state", "state_size", default=16)
    found = f.get("mamba_dt_rank", "time_step_rank")
    rank = math.ceil(hidden / 16) if found is None or found[1] == "auto" else f.whole(*found)
    f.flag("mamba_conv_bias")
    f.flag("mamba_proj_bias")
    record = LinearAttention(
        n_key_heads=1,
        n_value_heads=1,
        key_dim=state,
        value_dim=inner,
        conv_kernel=f.integer("mamba_d_conv", default=4, low=0),
        variant="mamba2",
    )
    return record, inner * (2 * rank + 2 * state + 1) + inner * state


def _state_bytes(f: Fields) -> float:
    name = f.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default="float32")
    if name not in _STATE_BYTES:
        raise f.bad("mamba_ssm_dtype", " or ".join(_STATE_BYTES))
    return _STATE_BYTES[name]
