"""One engine iteration: a plain decode step, and a speculative one (draft + verify + host)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from specsim.physics import kernels
from specsim.physics.cost import Cost, Num
from specsim.physics.forward import Gemm, Network, forward


@dataclass(frozen=True, slots=True)
class Overheads:
    """What the engine adds around the passes."""

    host_s: Num
    """Host time per step that the device waits for."""
    per_sequence_host_s: Num
    speculative_host_s: Num
    """Added once per step with speculation on."""
    speculative_per_sequence_host_s: Num
    """Added per running sequence with speculation on."""
    proposer_host_s: Num
    """Proposing on the host (n-gram, suffix), per step."""
    draft_host_s: Num
    """Per drafter pass."""
    eager_layer_s: Num
    """Launch time per layer where no graph covers the pass."""
    piecewise_layer_s: Num
    """Launch time per layer of a verification whose attention is outside the graphs."""
    draft_eager_layer_s: Num
    """The same for a drafter."""
    max_graph_tokens: Num
    """Rows that captured graphs cover; 0: graphs are off."""


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """What a drafting method runs per step.

    Rows and head rows are per sequence: `a + b k`, so that k can be an array.
    """

    network: Network | None
    """None: nothing on the device (n-gram, suffix, or Medusa's heads alone)."""
    first_rows: tuple[float, float] = (1.0, 1.0)
    first_head_rows: tuple[float, float] = (1.0, 0.0)
    later_passes: tuple[float, float] = (-1.0, 1.0)
    """Autoregressive passes after the first: k - 1, or none."""
    later_rows: float = 1.0
    per_token: tuple[Gemm, ...] = ()
    """Small matrices run once per draft token on one row per sequence (Markov head, Medusa)."""
    eager: bool = False
    """The engine runs the drafter without captured graphs."""
    fuses_once: bool = False
    """The input fusion takes the target's states in the first pass; later ones have their own."""
    context_gemms: tuple[Gemm, ...] = ()
    """What a block drafter runs on prompt tokens: its input fusion and its keys and values."""
    context_only: bool = False
    """A prompt passes through `context_gemms` alone."""


@dataclass(frozen=True, slots=True)
class SpeculativeStep:
    """A speculative step by phase."""

    draft: Cost
    verify: Cost
    host: Cost

    @property
    def total(self) -> Cost:
        """All phases together."""
        return self.draft + self.verify + self.host


def graph_rows(rows: Num, max_graph_tokens: Num) -> Num:
    """Return the rows of the captured graph that a pass of `rows` is padded to.

    Notes
    -----
    vLLM's capture sizes: 1, 2, 4, multiples of 8 up to 256, of 16 above (docs/method.md, graphs).
    Beyond the largest nothing is padded.

    Examples
    --------
    >>> [int(graph_rows(n, 512)) for n in (1, 3, 9, 250, 260, 600)]
    [1, 4, 16, 256, 272, 600]
    """
    rows = np.asarray(rows, dtype=float)
    padded = np.where(
        rows <= 2,
        np.ceil(rows),
        np.where(
            rows <= 4,
            4.0,
            np.where(rows <= 256, np.ceil(rows / 8.0) * 8.0, np.ceil(rows / 16.0) * 16.0),
        ),
    )
    return np.where(rows <= max_graph_tokens, np.maximum(padded, 1.0), rows)


def target_pass(
    target: Network,
    overheads: Overheads,
    *,
    sequences: Num,
    query_tokens: Num,
    context: Num,
    prefill_tokens: Num = 0.0,
    prefill_context: Num = 0.0,
    prefill_sequences: Num = 1.0,
) -> Cost:
    """One pass of the target, with the padding and the limit of captured graphs.

    Notes
    -----
    A pass with more rows than the largest graph is launched layer by layer: it takes at least
    layers x `eager_layer_s`. That is the cliff at n > 512 / (1 + k) sequences.
    """
    rows = sequences * query_tokens + prefill_tokens
    cost = forward(
        target,
        sequences=sequences,
        query_tokens=query_tokens,
        context=context,
        head_rows=sequences * query_tokens,
        prefill_tokens=prefill_tokens,
        prefill_context=prefill_context,
        prefill_sequences=prefill_sequences,
        padded_rows=graph_rows(rows, overheads.max_graph_tokens),
    )
    outside = rows > overheads.max_graph_tokens
    return cost.at_least(np.where(outside, target.n_layers * overheads.eager_layer_s, 0.0))


def baseline_step(
    target: Network,
    overheads: Overheads,
    *,
    sequences: Num,
    context: Num,
    prefill_tokens: Num = 0.0,
    prefill_context: Num = 0.0,
    prefill_sequences: Num = 1.0,
) -> Cost:
    """One step without speculation. Equation (8), first half."""
    step = target_pass(
        target,
        overheads,
        sequences=sequences,
        query_tokens=1.0,
        context=context,
        prefill_tokens=prefill_tokens,
        prefill_context=prefill_context,
        prefill_sequences=prefill_sequences,
    )
    return step + Cost(host_s=overheads.host_s + overheads.per_sequence_host_s * sequences)


def draft_cost(
    plan: DraftPlan,
    overheads: Overheads,
    *,
    sequences: Num,
    num_speculative_tokens: Num,
    context: Num,
    prefill_tokens: Num = 0.0,
    prefill_context: Num = 0.0,
    prefill_sequences: Num = 1.0,
) -> Cost:
    """Time to draft for all running sequences.

    Notes
    -----
    Autoregressive drafters: a first pass over the rows of the last target step, padded to its
    full width, then k - 1 passes of one row. Parallel drafters: one pass. Equation (7) for each.
    """
    k = num_speculative_tokens
    total = Cost()
    if plan.context_only:
        for gemm in plan.context_gemms if np.any(np.asarray(prefill_tokens) > 0) else ():
            total += _gemm(gemm, prefill_tokens)
        prefill_tokens = 0.0
    if plan.network is not None:
        first = forward(
            plan.network,
            sequences=sequences,
            query_tokens=plan.first_rows[0] + plan.first_rows[1] * k,
            context=context,
            head_rows=sequences * (plan.first_head_rows[0] + plan.first_head_rows[1] * k),
            prefill_tokens=prefill_tokens,
            prefill_context=prefill_context,
            prefill_sequences=prefill_sequences,
        )
        total += _launched(plan, overheads, first)
        passes = np.maximum(plan.later_passes[0] + plan.later_passes[1] * k, 0.0)
        if np.any(passes > 0):
            later = forward(
                replace(plan.network, before=()) if plan.fuses_once else plan.network,
                sequences=sequences,
                query_tokens=plan.later_rows,
                context=context,
                head_rows=sequences * plan.later_rows,
            )
            total += _launched(plan, overheads, later).times(passes)
    for gemm in plan.per_token:
        total += _gemm(gemm, sequences).times(k)
    return total


def _gemm(gemm: Gemm, rows: Num) -> Cost:
    return kernels.gemm(
        rows=rows,
        out_features=gemm.out_features,
        in_features=gemm.in_features,
        weight_bytes=gemm.weight_bytes,
        rates=gemm.rates,
    )


def _launched(plan: DraftPlan, overheads: Overheads, cost: Cost) -> Cost:
    network = plan.network
    if plan.eager and network is not None:
        cost = cost.at_least(network.n_layers * overheads.draft_eager_layer_s)
    return cost + Cost(host_s=overheads.draft_host_s)


def speculative_step(
    target: Network,
    plan: DraftPlan,
    overheads: Overheads,
    *,
    sequences: Num,
    num_speculative_tokens: Num,
    verify_tokens: Num,
    context: Num,
    prefill_tokens: Num = 0.0,
    prefill_context: Num = 0.0,
    prefill_sequences: Num = 1.0,
) -> SpeculativeStep:
    """One step with speculation. Equation (8), second half.

    Parameters
    ----------
    verify_tokens : float or array
        Rows per sequence in the target pass: k + 1 for a chain, the tree's tokens for a tree,
        their mean where the engine drafts on a match only. [tokens]
    """
    verify = target_pass(
        target,
        overheads,
        sequences=sequences,
        query_tokens=verify_tokens,
        context=context,
        prefill_tokens=prefill_tokens,
        prefill_context=prefill_context,
        prefill_sequences=prefill_sequences,
    ) + Cost(host_s=target.n_layers * overheads.piecewise_layer_s)
    draft = draft_cost(
        plan,
        overheads,
        sequences=sequences,
        num_speculative_tokens=num_speculative_tokens,
        context=context,
        prefill_tokens=prefill_tokens,
        prefill_context=prefill_context,
        prefill_sequences=prefill_sequences,
    )
    host = Cost(
        host_s=overheads.host_s
        + overheads.speculative_host_s
        + overheads.proposer_host_s
        + (overheads.per_sequence_host_s + overheads.speculative_per_sequence_host_s) * sequences
    )
    return SpeculativeStep(draft=draft, verify=verify, host=host)
