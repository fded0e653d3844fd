"""One kernel each: GEMM, attention, mixture of experts, linear attention, collectives.

Equation numbers are those of docs/method.md. All numeric arguments broadcast; times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.physics.cost import Cost, Num, overlapped, smooth_roofline


@dataclass(frozen=True, slots=True)
class GemmRates:
    """What a matrix multiplication reaches on a device in one dtype."""

    launch_s: Num
    bytes_per_s: Num
    flop_per_s: Num
    sharpness: Num
    per_in_feature_s: Num = 0.0
    """Walk of one block through one input feature, however wide the matrix."""
    factor_rows: tuple[float, ...] = (1.0,)
    factor: tuple[float, ...] = (1.0,)
    """Measured over closed form at `factor_rows`: tiles and waves."""


@dataclass(frozen=True, slots=True)
class AttentionRates:
    """What decode attention reaches."""

    floor_s: Num
    """Time of the kernel on almost no cache."""
    launch_s: Num
    """Fixed time once the cache that it reads is larger than the L2."""
    l2_bytes: Num
    bytes_per_s: Num
    flop_per_s: Num


@dataclass(frozen=True, slots=True)
class MoeRates:
    """What a fused mixture-of-experts layer reaches."""

    launch_s: Num
    per_expert_s: Num
    bytes_per_s: Num
    flop_per_s: Num
    sharpness: Num
    concentration: Num
    sequence_overlap: Num
    """beta: q tokens of one sequence touch as many experts as q^beta independent ones."""


@dataclass(frozen=True, slots=True)
class AllReduceTable:
    """Measured time by message size for one group size."""

    message_bytes: tuple[float, ...]
    time_s: tuple[float, ...]
    skew_s: Num
    scale: Num = 1.0


def gemm_work(
    *,
    rows: Num,
    out_features: Num,
    in_features: Num,
    weight_bytes: Num,
    activation_bytes: float = 2.0,
) -> tuple[Num, Num]:
    """Return the bytes that a matrix multiplication moves and its FLOP. Equation (1)."""
    moved = (
        in_features * out_features * weight_bytes
        + rows * in_features * activation_bytes
        + 2.0 * rows * out_features
    )
    return moved, 2.0 * rows * in_features * out_features


def gemm(
    *,
    rows: Num,
    out_features: Num,
    in_features: Num,
    weight_bytes: Num,
    rates: GemmRates,
    activation_bytes: float = 2.0,
) -> Cost:
    """Multiply `rows` activations by an (in x out) weight matrix.

    Parameters
    ----------
    rows : float or array
        Tokens. [tokens]
    weight_bytes, activation_bytes : float
        Stored bytes per weight (scales included) and per activation. [bytes]

    Notes
    -----
    Equation (1): f(m) { t0 + [(bytes / memory rate)^p + (k w)^p + (2 m n k / compute rate)^p]^(1/p)
    }. Weights are read once whatever the number of rows. k w is the walk of one block through the
    input features: a matrix too narrow to fill the device is no faster for being small. f(m) is
    measured, 1 for most devices: what tiles and waves add at some numbers of rows.
    """
    moved, flop = gemm_work(
        rows=rows,
        out_features=out_features,
        in_features=in_features,
        weight_bytes=weight_bytes,
        activation_bytes=activation_bytes,
    )
    walk_s = in_features * rates.per_in_feature_s
    read_s = overlapped(moved / rates.bytes_per_s, walk_s, rates.sharpness)
    memory_s, compute_s = smooth_roofline(read_s, flop / rates.flop_per_s, rates.sharpness)
    cost = Cost(memory_s=memory_s, compute_s=compute_s, host_s=rates.launch_s)
    if len(rates.factor) == 1:
        return cost
    logarithm = np.log(np.maximum(rows, 1.0))
    return cost.times(np.interp(logarithm, np.log(rates.factor_rows), rates.factor))


def decode_attention(
    *,
    sequences: Num,
    query_tokens: Num,
    entries_read: Num,
    entries_scored: Num,
    entry_bytes: Num,
    flop_per_score: Num,
    query_group: Num,
    rates: AttentionRates,
    query_tile: float = 64.0,
) -> Cost:
    """Attend from the last `query_tokens` of each sequence to its cache.

    Parameters
    ----------
    entries_read : float or array
        Cache entries read per sequence: once, however many queries use them. [entries]
    entries_scored : float or array
        Entries that each query attends to. [entries]
    entry_bytes : float
        Bytes per entry on one device, keys and values together. [bytes]
    flop_per_score : float
        FLOP for one query token and one entry, all heads of the device together. [FLOP]
    query_group : float
        Query heads that share a KV head.

    Notes
    -----
    Equation (2). The fixed time grows from the kernel's floor to its asymptote as the cache
    outgrows the L2: floor + (launch - floor) x^3 / (1 + x^3), x = bytes / (2 L2). Tables show the
    floor while the cache fits the L2; max(floor, launch + ...) would charge a batch of one the
    asymptote. Queries are padded to `query_tile` rows of the tensor core once they pass one.
    """
    kv_bytes = sequences * entries_read * entry_bytes
    reading_s = kv_bytes / rates.bytes_per_s
    spill = (kv_bytes / (2.0 * rates.l2_bytes)) ** 3
    fixed_s = rates.floor_s + np.maximum(rates.launch_s - rates.floor_s, 0.0) * spill / (1 + spill)
    group_rows = query_tokens * query_group
    padding = np.where(
        group_rows > query_tile, np.ceil(group_rows / query_tile) * query_tile / group_rows, 1.0
    )
    flop = sequences * query_tokens * entries_scored * flop_per_score * padding
    kv_s, compute_s = smooth_roofline(reading_s, flop / rates.flop_per_s, 2.0)
    return Cost(kv_s=kv_s, compute_s=compute_s, host_s=fixed_s)


def index_scan(
    *,
    sequences: Num,
    query_tokens: Num,
    entries: Num,
    key_bytes: float,
    n_heads: float,
    head_dim: float,
    rates: AttentionRates,
) -> Cost:
    """Score every cached index key, as sparse attention does before it selects (DSA).

    Notes
    -----
    DeepSeek-V3.2 report (2025): one shared key of `head_dim` per entry, `n_heads` scoring heads.
    """
    return decode_attention(
        sequences=sequences,
        query_tokens=query_tokens,
        entries_read=entries,
        entries_scored=entries,
        entry_bytes=key_bytes,
        flop_per_score=2.0 * n_heads * head_dim,
        query_group=n_heads,
        rates=rates,
    )


def mean_capped(*, start: Num, end: Num, cap: Num) -> Num:
    """Return the mean of min(x, cap) for x spread evenly over start..end.

    Examples
    --------
    >>> float(mean_capped(start=0.0, end=4.0, cap=2.0))
    1.5
    """
    below = np.clip(cap, start, end)
    width = np.maximum(end - start, 1e-9)
    return (0.5 * (below + start) * (below - start) + (end - below) * cap) / width


def prefill_attention(*, tokens: Num, scored: Num, flop_per_score: Num, flop_per_s: Num) -> Cost:
    """Causal attention of prompt tokens that each attend to `scored` entries on average.

    Notes
    -----
    `flop_per_s` already holds the share of the peak that prompts of this length reach.
    """
    return Cost(compute_s=tokens * scored * flop_per_score / flop_per_s)


def linear_attention(
    *,
    sequences: Num,
    query_tokens: Num,
    state_bytes: Num,
    launch_s: Num,
    bytes_per_s: Num,
) -> Cost:
    """Advance recurrent states by `query_tokens` each.

    Notes
    -----
    Equation (3): t(1) (1 + q) / 2. One state is read and q states are written, since any of the
    drafts may turn out to be the last one accepted. Measured on H100 for q = 2, 4, 8 (docs/method).
    """
    one_token_s = 2.0 * sequences * state_bytes / bytes_per_s
    return Cost(kv_s=one_token_s * (1.0 + query_tokens) / 2.0, host_s=launch_s)


def distinct_experts(
    *,
    sequences: Num,
    query_tokens: Num,
    prefill_tokens: Num,
    n_experts: float,
    topk: float,
    concentration: Num,
    sequence_overlap: Num,
) -> Num:
    """Return the number of experts that at least one token of a pass is routed to.

    Notes
    -----
    Equation (4). Independent tokens: E (1 - (1 - topk/E)^T). The q tokens of one sequence share
    experts (Cohere 2026-04-21: 4 consecutive tokens activate 2.5x one token's, not 3.65x), so a
    sequence touches topk q^beta, never more than q independent tokens would. Skewed routing
    shrinks the whole: topk (A/topk)^concentration.

    Examples
    --------
    >>> independent = dict(n_experts=128, topk=8, concentration=1.0, sequence_overlap=1.0)
    >>> round(float(distinct_experts(sequences=1, query_tokens=1, prefill_tokens=0, **independent)))
    8
    """
    miss_one = 1.0 - topk / n_experts
    independent_hit = 1.0 - miss_one**query_tokens
    hit = np.minimum(topk / n_experts * query_tokens**sequence_overlap, independent_hit)
    touched = n_experts * (1.0 - (1.0 - hit) ** sequences * miss_one**prefill_tokens)
    ratio = np.maximum(touched / topk, 1e-9)
    return topk * np.where(ratio > 1.0, ratio**concentration, ratio)


def moe_layer(
    *,
    sequences: Num,
    query_tokens: Num,
    prefill_tokens: Num,
    hidden_size: float,
    intermediate_size: float,
    n_experts: float,
    topk: float,
    weight_bytes: float,
    expert_groups: float,
    rates: MoeRates,
    matrices: float = 3.0,
) -> Cost:
    """Run the routed experts of one layer.

    Parameters
    ----------
    intermediate_size : float
        Of one expert on one device (already divided by the tensor-parallel size).
    expert_groups : float
        Devices that the experts are spread over (expert parallelism), else 1.

    Notes
    -----
    Equation (4): t0 + te A + smooth roofline of 3 H I bytes per distinct expert and
    6 H I FLOP per routed token.
    """
    rows = sequences * query_tokens + prefill_tokens
    active = (
        distinct_experts(
            sequences=sequences,
            query_tokens=query_tokens,
            prefill_tokens=prefill_tokens,
            n_experts=n_experts,
            topk=topk,
            concentration=rates.concentration,
            sequence_overlap=rates.sequence_overlap,
        )
        / expert_groups
    )
    routed = rows * topk / expert_groups
    expert_params = matrices * hidden_size * intermediate_size
    moved = active * expert_params * weight_bytes + routed * (
        4.0 * hidden_size + 6.0 * intermediate_size
    )
    memory_s, compute_s = smooth_roofline(
        moved / rates.bytes_per_s, 2.0 * routed * expert_params / rates.flop_per_s, rates.sharpness
    )
    return Cost(
        memory_s=memory_s,
        compute_s=compute_s,
        host_s=rates.launch_s + rates.per_expert_s * active,
    )


def all_reduce(*, message_bytes: Num, table: AllReduceTable) -> Cost:
    """Sum a message over the devices of a replica.

    Notes
    -----
    Equation (5): measured times, interpolated in the logarithm of the size; beyond the largest
    measured size at its bandwidth. `skew_s` is the wait for the slowest rank, which tables that
    start all ranks together do not show.
    """
    sizes = np.asarray(table.message_bytes)
    times = np.asarray(table.time_s)
    message = np.maximum(np.asarray(message_bytes, dtype=float), 1.0)
    inside = np.exp(np.interp(np.log(message), np.log(sizes), np.log(times)))
    beyond = times[-1] * message / sizes[-1]
    measured = np.where(message > sizes[-1], beyond, inside)
    return Cost(communication_s=measured * table.scale + table.skew_s)


def elementwise(
    *,
    rows: Num,
    width: Num,
    kernels: Num,
    launch_s: Num,
    bytes_per_s: Num,
    growth_s: Num = 0.0,
    growth_rows: float = 128.0,
) -> Cost:
    """Norms, rotary embedding, activation: small kernels that stream their inputs.

    Notes
    -----
    Equation (6): n (launch + 4 bytes per element / bandwidth), two bytes in and two out, and
    `growth_s` per row up to `growth_rows`: small kernels grow with the rows long before they fill
    the device.
    """
    growing_s = growth_s * np.minimum(rows, growth_rows)
    streaming_s = kernels * rows * width * 4.0 / bytes_per_s
    return Cost(memory_s=streaming_s, host_s=kernels * launch_s + growing_s)


def sampling(
    *, rows: Num, vocab_size: Num, bytes_per_logit: Num, fixed_s: Num, bytes_per_s: Num
) -> Cost:
    """Turn logits into tokens, over the whole vocabulary on every rank (equation 6).

    Parameters
    ----------
    bytes_per_logit : float
        12 for a softmax in fp32, read and written; 2 for an argmax over 16-bit logits. [bytes]
    """
    return Cost(memory_s=rows * vocab_size * bytes_per_logit / bytes_per_s, host_s=fixed_s)
