"""One forward pass: layers of kernels, then the head.

A `Network` is a model as one rank of its tensor-parallel group executes it: shapes already
divided, rates already chosen. `analysis` builds it; this module only adds times up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specsim.physics import kernels
from specsim.physics.cost import Cost, Num
from specsim.physics.kernels import AllReduceTable, AttentionRates, GemmRates, MoeRates

_UNLIMITED = 1e12


@dataclass(frozen=True, slots=True)
class Gemm:
    """A weight matrix on one rank."""

    out_features: float
    in_features: float
    weight_bytes: float
    rates: GemmRates


@dataclass(frozen=True, slots=True)
class SoftmaxAttention:
    """Attention over a cache. Windowed and long-range entries add up."""

    window: float | None
    """Recent tokens kept one entry each; None: no window."""
    tokens_per_entry: float | None
    """Tokens behind one long-range entry: 1 full, more compressed; None: no long range."""
    topk: float | None
    """Long-range entries that a query selects; None: all."""
    entry_bytes: float
    flop_per_score: float
    prefill_flop_per_score: float
    query_group: float
    rates: AttentionRates
    prefill_lengths: tuple[float, ...]
    prefill_flop_per_s: tuple[float, ...]
    prefill_scale: Num = 1.0
    chunked: bool = False
    """A token attends within its chunk of `window` tokens, not to the last `window` ones."""
    index_key_bytes: float = 0.0
    index_heads: float = 0.0
    index_head_dim: float = 0.0

    def entries(self, context: Num, query_tokens: Num) -> tuple[Num, Num]:
        """Return entries read per sequence and entries scored per query.

        Queries of one sequence may select different entries: up to topk each are read, never
        more than there are.
        """
        read: Num = 0.0
        scored: Num = 0.0
        if self.window is not None:
            read = scored = np.minimum(context, self.window)
            if self.chunked:  # beyond the first chunk, the one being filled is half full
                read = scored = np.where(context > self.window, 0.5 * self.window, context)
        if self.tokens_per_entry is not None:
            available = context / self.tokens_per_entry
            if self.topk is None:
                return read + available, scored + available
            read = read + np.minimum(available, self.topk * query_tokens)
            scored = scored + np.minimum(available, self.topk)
        return read, scored


@dataclass(frozen=True, slots=True)
class LinearState:
    """A recurrent layer on one rank."""

    state_bytes: float
    launch_s: Num
    bytes_per_s: Num
    prefill_flop_per_token: float
    prefill_flop_per_s: Num


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of a layer on one rank."""

    hidden_size: float
    intermediate_size: float
    n_experts: float
    topk: float
    weight_bytes: float
    expert_groups: float
    """Devices that experts are spread over; 1: each device holds a slice of all."""
    rates: MoeRates
    matrices: float = 3.0
    """Per expert: 3 with a gate, 2 without."""


@dataclass(frozen=True, slots=True)
class Layer:
    """`count` equal layers."""

    count: float
    gemms: tuple[Gemm, ...]
    attention: SoftmaxAttention | LinearState | None
    experts: Experts | None
    all_reduces: float = 2.0


@dataclass(frozen=True, slots=True)
class Head:
    """The projection to the vocabulary and the sampling after it."""

    gemm: Gemm
    vocab_size: float
    """Of all ranks together: each samples whole rows."""
    fixed_s: Num
    bytes_per_logit: float = 12.0


@dataclass(frozen=True, slots=True)
class Network:
    """A model as one rank runs it."""

    layers: tuple[Layer, ...]
    head: Head | None
    hidden_size: float
    elementwise_kernels: Num
    elementwise_launch_s: Num
    stream_bytes_per_s: Num
    """Rate of kernels that only stream. [bytes/s]"""
    before: tuple[Gemm, ...] = ()
    """Projections outside the layers, run on every row (a drafting head's input fusion)."""
    table: AllReduceTable | None = None
    """None: one device, nothing to reduce."""
    elementwise_growth_s: Num = 0.0
    """Per row and layer, while the rows are few. [s]"""
    stages: float = 1.0
    stage_hop_s: Num = 0.0
    n_layers: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_layers", sum(layer.count for layer in self.layers))


def forward(
    network: Network,
    *,
    sequences: Num,
    query_tokens: Num,
    context: Num,
    head_rows: Num,
    prefill_tokens: Num = 0.0,
    prefill_context: Num = 0.0,
    prefill_sequences: Num = 1.0,
    padded_rows: Num | None = None,
) -> Cost:
    """Time of one pass over running sequences and, riding along, a chunk of a prompt.

    Parameters
    ----------
    sequences : float or array
        Sequences in decode. [sequences]
    query_tokens : float or array
        Tokens of each in this pass: 1 plain, 1 + k in verification. [tokens]
    context : float or array
        Mean tokens in their caches. [tokens]
    head_rows : float or array
        Rows that need logits. [tokens]
    prefill_tokens, prefill_context : float or array
        Prompt tokens in the pass, and cached tokens before them. [tokens]
    prefill_sequences : float or array
        Prompts that these tokens belong to, in equal shares. [sequences]
    padded_rows : float or array, optional
        Rows that matrix multiplications run on where the engine pads to a captured graph.

    Returns
    -------
    Cost

    Notes
    -----
    Equation (7). Pipeline stages are run through one after the other: the time of a pass is the
    sum over them plus a hop between neighbours.
    """
    rows = sequences * query_tokens + prefill_tokens
    gemm_rows = rows if padded_rows is None else np.maximum(rows, padded_rows)
    prefilling = bool(np.any(np.asarray(prefill_tokens) > 0))
    total = Cost()
    for gemm in network.before:
        total += _gemm(gemm, gemm_rows)
    reduce = Cost()
    if network.table is not None:
        reduce = kernels.all_reduce(
            message_bytes=gemm_rows * network.hidden_size * 2.0, table=network.table
        )
    small = kernels.elementwise(
        rows=gemm_rows,
        width=network.hidden_size,
        kernels=network.elementwise_kernels,
        launch_s=network.elementwise_launch_s,
        bytes_per_s=network.stream_bytes_per_s,
        growth_s=network.elementwise_growth_s,
    )
    for layer in network.layers:
        one = small
        for gemm in layer.gemms:
            one += _gemm(gemm, gemm_rows)
        if isinstance(layer.attention, SoftmaxAttention):
            one += _attention(layer.attention, sequences, query_tokens, context)
            if prefilling:
                one += _prefill(layer.attention, prefill_tokens, prefill_context, prefill_sequences)
        elif isinstance(layer.attention, LinearState):
            one += _linear(layer.attention, sequences, query_tokens, prefill_tokens)
        if layer.experts is not None:
            one += _experts(layer.experts, sequences, query_tokens, prefill_tokens)
        if network.table is not None:
            one += reduce.times(layer.all_reduces)
        total += one.times(layer.count)
    if network.head is not None:
        total += _head(network, network.head, head_rows)
    hops = network.stages - 1.0
    return total + Cost(communication_s=hops * network.stage_hop_s)


def matrix_times(network: Network, tokens: Num) -> tuple[Num, Num]:
    """Return the memory time and the compute time of a pass's matrix multiplications, each alone.

    Notes
    -----
    Where they are equal a pass turns from memory- to compute-bound (definitions.md section 2).
    Tokens are of different sequences, so that each brings its own experts. [s]
    """
    memory_s: Num = 0.0
    compute_s: Num = 0.0
    pieces = [(gemm, 1.0) for gemm in network.before]
    pieces += [(gemm, layer.count) for layer in network.layers for gemm in layer.gemms]
    pieces += [(network.head.gemm, 1.0)] if network.head is not None else []
    for gemm, count in pieces:
        moved, flop = kernels.gemm_work(
            rows=tokens,
            out_features=gemm.out_features,
            in_features=gemm.in_features,
            weight_bytes=gemm.weight_bytes,
        )
        memory_s = memory_s + count * moved / gemm.rates.bytes_per_s
        compute_s = compute_s + count * flop / gemm.rates.flop_per_s
    for layer in network.layers:
        if layer.experts is not None:
            cost = _experts(layer.experts, tokens, 1.0, 0.0)
            memory_s = memory_s + layer.count * cost.memory_s
            compute_s = compute_s + layer.count * cost.compute_s
    return memory_s, compute_s


def _gemm(gemm: Gemm, rows: Num) -> Cost:
    return kernels.gemm(
        rows=rows,
        out_features=gemm.out_features,
        in_features=gemm.in_features,
        weight_bytes=gemm.weight_bytes,
        rates=gemm.rates,
    )


def _attention(a: SoftmaxAttention, sequences: Num, query_tokens: Num, context: Num) -> Cost:
    read, scored = a.entries(context, query_tokens)
    cost = kernels.decode_attention(
        sequences=sequences,
        query_tokens=query_tokens,
        entries_read=read,
        entries_scored=scored,
        entry_bytes=a.entry_bytes,
        flop_per_score=a.flop_per_score,
        query_group=a.query_group,
        rates=a.rates,
    )
    if a.index_key_bytes > 0 and a.tokens_per_entry is not None:
        cost += kernels.index_scan(
            sequences=sequences,
            query_tokens=query_tokens,
            entries=context / a.tokens_per_entry,
            key_bytes=a.index_key_bytes,
            n_heads=a.index_heads,
            head_dim=a.index_head_dim,
            rates=a.rates,
        )
    return cost


def _prefill(a: SoftmaxAttention, tokens: Num, context: Num, sequences: Num) -> Cost:
    """Charge the prompt's attention: what each token sees, by window and by long range."""
    end = context + tokens / np.maximum(sequences, 1.0)
    lengths = np.log(a.prefill_lengths)
    rate = np.interp(np.log(np.maximum(end, 1.0)), lengths, a.prefill_flop_per_s)
    flop_per_s = rate * a.prefill_scale
    scored: Num = 0.0
    cost = Cost()
    if a.window is not None:
        scored = kernels.mean_capped(start=context, end=end, cap=a.window)
    if a.tokens_per_entry is not None:
        first, last = context / a.tokens_per_entry, end / a.tokens_per_entry
        cap = _UNLIMITED if a.topk is None else a.topk
        scored = scored + kernels.mean_capped(start=first, end=last, cap=cap)
        if a.index_key_bytes > 0:
            cost += kernels.prefill_attention(
                tokens=tokens,
                scored=0.5 * (first + last),
                flop_per_score=2.0 * a.index_heads * a.index_head_dim,
                flop_per_s=flop_per_s,
            )
    return cost + kernels.prefill_attention(
        tokens=tokens,
        scored=scored,
        flop_per_score=a.prefill_flop_per_score,
        flop_per_s=flop_per_s,
    )


def _linear(a: LinearState, sequences: Num, query_tokens: Num, prefill_tokens: Num) -> Cost:
    cost = kernels.linear_attention(
        sequences=sequences,
        query_tokens=query_tokens,
        state_bytes=a.state_bytes,
        launch_s=a.launch_s,
        bytes_per_s=a.bytes_per_s,
    )
    prefill_s = prefill_tokens * a.prefill_flop_per_token / a.prefill_flop_per_s
    return cost + Cost(compute_s=prefill_s)


def _experts(e: Experts, sequences: Num, query_tokens: Num, prefill_tokens: Num) -> Cost:
    return kernels.moe_layer(
        sequences=sequences,
        query_tokens=query_tokens,
        prefill_tokens=prefill_tokens,
        hidden_size=e.hidden_size,
        intermediate_size=e.intermediate_size,
        n_experts=e.n_experts,
        topk=e.topk,
        weight_bytes=e.weight_bytes,
        expert_groups=e.expert_groups,
        matrices=e.matrices,
        rates=e.rates,
    )


def _head(network: Network, head: Head, rows: Num) -> Cost:
    cost = _gemm(head.gemm, rows) + kernels.sampling(
        rows=rows,
        vocab_size=head.vocab_size,
        bytes_per_logit=head.bytes_per_logit,
        fixed_s=head.fixed_s,
        bytes_per_s=network.stream_bytes_per_s,
    )
    if network.table is not None:
        # Gathering moves half of what reducing a message of the same size does.
        cost += kernels.all_reduce(message_bytes=rows * head.vocab_size, table=network.table)
    return cost
