"""How many weights each block of a transformer has.

Numbers in, counts out. All counts are whole matrices over all ranks [parameters]. Sources: the
public model definitions of each family, in the form of the DeepSeek-V2/V3 papers (arXiv
2405.04434, 2412.19437), gpt-oss (2508.10925), Qwen3-Next and the EAGLE-3 paper (2503.01840).
"""

from __future__ import annotations


def full_attention_params(
    *,
    hidden_size: int,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    v_head_dim: int | None = None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: str = "none",
    output_gate: bool = False,
    sinks: bool = False,
    k_eq_v: bool = False,
    shares_kv: bool = False,
    input_multiplier: int = 1,
) -> int:
    """Count the weights of one softmax attention block (MHA, GQA, MQA).

    Parameters
    ----------
    output_gate : bool
        The query projection also yields a gate of the same size, which doubles it.
    k_eq_v : bool
        One projection serves keys and values.
    shares_kv : bool
        The block reads another layer's cache: only the query and output projections exist.
    input_multiplier : int
        q, k and v read this many hidden sizes (2 in EAGLE-3: token embedding and features).

    Returns
    -------
    int
        H*(nh + 2*nkv)*hd + nh*hd*H, plus biases, norms and sinks. [parameters]

    Examples
    --------
    >>> full_attention_params(hidden_size=4096, n_heads=32, n_kv_heads=8, head_dim=128)
    41943040
    """
    v_dim = head_dim if v_head_dim is None else v_head_dim
    q_out = n_heads * head_dim * (2 if output_gate else 1)
    k_out = 0 if shares_kv else n_kv_heads * head_dim
    v_out = 0 if shares_kv or k_eq_v else n_kv_heads * v_dim
    qkv_out = q_out + k_out + v_out

    total = input_multiplier * hidden_size * qkv_out + n_heads * v_dim * hidden_size
    if qkv_bias:
        total += qkv_out
    if output_bias:
        total += hidden_size
    if qk_norm == "per_head":
        total += head_dim * (1 if shares_kv else 2)
    elif qk_norm == "full":
        total += n_heads * head_dim + k_out
    if sinks:
        total += n_heads
    return total


def mla_params(
    *,
    hidden_size: int,
    n_heads: int,
    q_lora_rank: int | None,
    kv_lora_rank: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    v_head_dim: int,
) -> int:
    """Count the weights of one multi-head latent attention block, without an indexer.

    Notes
    -----
    H*ql + ql + ql*nh*(nope + rope) + H*(kl + rope) + kl + kl*nh*(nope + v) + nh*v*H; without a
    query rank the first three terms are H*nh*(nope + rope). arXiv 2405.04434, section 2.1.
    """
    q_out = n_heads * (qk_nope_head_dim + qk_rope_head_dim)
    if q_lora_rank is None:
        queries = hidden_size * q_out
    else:
        queries = hidden_size * q_lora_rank + q_lora_rank + q_lora_rank * q_out
    latent = hidden_size * (kv_lora_rank + qk_rope_head_dim) + kv_lora_rank
    expand = kv_lora_rank * n_heads * (qk_nope_head_dim + v_head_dim)
    return queries + latent + expand + n_heads * v_head_dim * hidden_size


def indexer_params(*, hidden_size: int, q_lora_rank: int, n_heads: int, head_dim: int) -> int:
    """Count the weights of a sparse-attention indexer: queries, one shared key, head weights.

    Notes
    -----
    ql*nh*hd + H*hd + 2*hd (a layer norm with bias) + H*nh. DeepSeek-V3.2 report, section 2.1.
    """
    queries = q_lora_rank * n_heads * head_dim
    key = hidden_size * head_dim + 2 * head_dim
    return queries + key + hidden_size * n_heads


def compressor_params(*, hidden_size: int, head_dim: int, compress_ratio: int) -> int:
    """Count the weights that pool `compress_ratio` tokens into one cache entry (DeepSeek-V4).

    Notes
    -----
    A value and a gate projection, a learned position per token of the group, one norm. Groups of
    4 overlap their neighbour, which doubles all but the norm. A ratio of 0 or 1 has no compressor.
    """
    if compress_ratio <= 1:
        return 0
    width = head_dim * (2 if compress_ratio == 4 else 1)
    return 2 * hidden_size * width + compress_ratio * width + head_dim


def compressed_attention_params(
    *,
    hidden_size: int,
    n_heads: int,
    head_dim: int,
    q_lora_rank: int,
    o_lora_rank: int,
    o_groups: int,
    compress_ratio: int,
    index_heads: int = 0,
    index_head_dim: int = 0,
) -> int:
    """Count the weights of one DeepSeek-V4 attention block.

    Parameters
    ----------
    compress_ratio : int
        Tokens per compressed entry; 0 for a layer with only its window.
    index_heads, index_head_dim : int
        Shape of the indexer; 0 heads for a layer without one. It pools its keys from the hidden
        state with a compressor of its own.

    Notes
    -----
    H*ql + ql + ql*nh*hd + H*hd + hd + nh*hd*ol + groups*ol*H + nh sinks, plus compressor and
    indexer. The output projection maps each of `o_groups` groups of heads to rank `o_lora_rank`,
    then all groups to H.
    """
    queries = hidden_size * q_lora_rank + q_lora_rank + q_lora_rank * n_heads * head_dim
    key_value = hidden_size * head_dim + head_dim
    output = n_heads * head_dim * o_lora_rank + o_groups * o_lora_rank * hidden_size
    total = queries + key_value + output + n_heads
    total += compressor_params(
        hidden_size=hidden_size, head_dim=head_dim, compress_ratio=compress_ratio
    )
    if index_heads:
        total += q_lora_rank * index_heads * index_head_dim + hidden_size * index_heads
        total += compressor_params(
            hidden_size=hidden_size, head_dim=index_head_dim, compress_ratio=compress_ratio
        )
    return total


def linear_attention_params(
    *,
    hidden_size: int,
    n_key_heads: int,
    n_value_heads: int,
    key_dim: int,
    value_dim: int,
    conv_kernel: int,
    variant: str = "gdn",
) -> int:
    """Count the weights of one recurrent block.

    Notes
    -----
    All variants project q, k (nk*dk each) and v (nv*dv), convolve them, and project nv*dv back.

    - ``gdn``: a full gate z, two scalars per value head and token (decay, write strength), a
      decay bias and rate per head, one norm over dv. H*(2*nk*dk + 2*nv*dv) + 2*H*nv + ...
    - ``kda``: the decay is per channel and, like the output gate, of low rank (one head size);
      the write strength is a scalar per head.
    - ``mamba2``: nk groups of state size dk; gate z; one time step per head; rate, skip and
      bias per head; one norm over nv*dv; the convolution has a bias.
    """
    conv_channels = 2 * n_key_heads * key_dim + n_value_heads * value_dim
    inner = n_value_heads * value_dim
    total = hidden_size * conv_channels + conv_kernel * conv_channels + inner * hidden_size
    if variant == "kda":
        decay = hidden_size * key_dim + key_dim * n_value_heads * key_dim
        gate = hidden_size * value_dim + value_dim * inner
        per_head = n_value_heads * (1 + key_dim)
        return total + decay + gate + hidden_size * n_value_heads + per_head + value_dim
    total += hidden_size * inner
    if variant == "mamba2":
        return total + hidden_size * n_value_heads + conv_channels + 3 * n_value_heads + inner
    return total + 2 * hidden_size * n_value_heads + 2 * n_value_heads + value_dim


def mlp_params(
    *, hidden_size: int, intermediate_size: int, gated: bool = True, bias: bool = False
) -> int:
    """Count the weights of one feed-forward block: three matrices if gated, else two.

    Examples
    --------
    >>> mlp_params(hidden_size=4096, intermediate_size=14336)
    176160768
    """
    n_in = 2 if gated else 1
    total = (n_in + 1) * hidden_size * intermediate_size
    return total + n_in * intermediate_size + hidden_size if bias else total


def router_params(
    *, hidden_size: int, n_experts: int, bias: bool = False, shared_gate: bool = False
) -> int:
    """Count the weights that choose experts: H per expert, a bias each, H for a shared gate."""
    return hidden_size * (n_experts + shared_gate) + n_experts * bias


def embedding_params(*, vocab_size: int, hidden_size: int) -> int:
    """Count the weights of a token embedding or of an lm_head."""
    return vocab_size * hidden_size


def medusa_block_params(*, hidden_size: int) -> int:
    """Count the residual block in front of one Medusa head, a square matrix and its bias.

    Its vocabulary projection is an lm_head of its own. arXiv 2401.10774, section 2.1.
    """
    return hidden_size * hidden_size + hidden_size


def markov_params(*, vocab_size: int, rank: int) -> int:
    """Count the low-rank table of token-to-token corrections: one factor for each side."""
    return 2 * vocab_size * rank
