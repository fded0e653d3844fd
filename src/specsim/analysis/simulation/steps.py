"""Step times as tables that the scheduler reads with a few additions.

A step's time is that of `Arm.step`. It is taken apart so that tables of two dimensions hold it:

    T(n, S, prompts) = decode(n, S) + chunk(n, c) + sum over prompts of past(c_j, s_j)

n requests decode at a mean context S; c prompt tokens ride along, c_j of prompt j behind its s_j
cached ones. Attention adds to the rest of a pass (equation 7), so only what rows do to the matrix
multiplications is shared, and n and c together are those rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import Arm, StepTime
from specsim.analysis.simulation.scheduler import CHUNKS_PER_OCTAVE

Array = npt.NDArray[np.float64]

_CONTEXTS, _PASTS = 17, 9
_EVERY_BATCH = 64
"""Up to this batch every one is evaluated, above a geometric grid."""


@dataclass(frozen=True)
class Tier:
    """One way to make a step: a number of draft tokens, and the arm whose steps it has."""

    k: int
    arm: Arm
    query_tokens: float
    """Tokens of the budget that a decoding request takes."""
    prompts: Arm
    """The arm whose passes prompts go through (a drafter keeps its cache when k is 0)."""


@dataclass(frozen=True)
class StepTables:
    """What `scheduler.advance` reads; the first axis is the tier."""

    decode_s: Array
    """(tiers, n + 1, contexts)"""
    chunk_s: Array
    """(tiers, coarse batches, chunks): what c prompt tokens add to n decoding requests."""
    past_s: Array
    """(tiers, chunks, pasts): attention of c tokens of one prompt, s tokens behind it."""
    chunk_at: Array
    coarse_below: npt.NDArray[np.int64]
    """For each batch the place of the coarse one below it."""
    coarse_share: Array
    tier_of: npt.NDArray[np.int64]
    query_tokens: Array
    context_step: float
    past_step: float

    @property
    def n_batches(self) -> int:
        """The largest batch."""
        return int(self.decode_s.shape[1] - 1)


def step_tables(
    tiers: Sequence[Tier],
    tier_of: npt.NDArray[np.int64],
    *,
    most_tokens: float,
    most_chunk: float,
) -> StepTables:
    """Evaluate the tables of an engine.

    Parameters
    ----------
    tiers : sequence of Tier
    tier_of : int array (n + 1,)
        The tier by batch; its length sets the largest batch.
    most_tokens : float
        Of a sequence. [tokens]
    most_chunk : float
        Prompt tokens in a step. [tokens]
    """
    n = tier_of.size - 1
    contexts = np.linspace(0.0, most_tokens, _CONTEXTS)
    octaves = np.log2(max(min(most_chunk, n * most_tokens), 2.0))
    chunk_at = 2.0 ** (np.arange(int(np.ceil(octaves * CHUNKS_PER_OCTAVE)) + 2) / CHUNKS_PER_OCTAVE)
    pasts = np.linspace(0.0, most_tokens, _PASTS)
    coarse = np.unique(np.rint(np.geomspace(1.0, max(n, 2), 12)))
    coarse = np.concatenate([[0.0], coarse])
    below = np.clip(np.searchsorted(coarse, np.arange(n + 1), side="right") - 1, 0, coarse.size - 2)
    share = (np.arange(n + 1) - coarse[below]) / (coarse[below + 1] - coarse[below])
    return StepTables(
        decode_s=np.stack([_decode(t, n, contexts) for t in tiers]),
        chunk_s=np.stack([_chunk(t, coarse, chunk_at, most_tokens) for t in tiers]),
        past_s=np.stack([_past(t, chunk_at, pasts) for t in tiers]),
        chunk_at=chunk_at,
        coarse_below=below.astype(np.int64),
        coarse_share=share,
        tier_of=tier_of,
        query_tokens=np.array([t.query_tokens for t in tiers]),
        context_step=float(contexts[1]),
        past_step=float(pasts[1]),
    )


def _decode(tier: Tier, n: int, contexts: Array) -> Array:
    """Return (n + 1, contexts): steps without prompts; 0 where nobody decodes."""
    arm = tier.arm
    grid = np.unique(
        np.concatenate(
            [
                np.arange(1, min(n, _EVERY_BATCH) + 1),
                np.rint(np.geomspace(1, n, 96)),
                _cliff(arm, tier.query_tokens, n),
            ]
        )
    )
    total = _total(arm.step(grid[:, None], np.maximum(contexts, 1.0)), (grid.size, contexts.size))
    batches = np.arange(n + 1)
    table = np.stack([np.interp(batches, grid, column) for column in total.T], axis=1)
    table[0] = 0.0
    return table


def _cliff(arm: Arm, query_tokens: float, n: int) -> Array:
    """Return the batches on both sides of the largest captured graph."""
    last = np.floor(arm.overheads.max_graph_tokens / query_tokens) * arm.stages
    return np.array([b for b in (last, last + 1) if 1 <= b <= n], dtype=float)


def _chunk(tier: Tier, coarse: Array, chunk_at: Array, most_tokens: float) -> Array:
    """Return (coarse, chunks): what prompt tokens add, the attention among them left out."""
    arm = tier.prompts
    context = 0.5 * most_tokens
    n = coarse[:, None]
    # As many prompts as tokens: none sees another.
    with_prompts = arm.step(
        n, context, prefill_tokens=chunk_at, prefill_context=0.0, prefill_sequences=chunk_at
    )
    shape = (coarse.size, chunk_at.size)
    alone = _total(arm.step(np.maximum(n, 1.0), context), shape)
    return _total(with_prompts, shape) - np.where(n > 0, alone, 0.0)


def _past(tier: Tier, chunk_at: Array, pasts: Array) -> Array:
    """Return (chunks, pasts): attention of a piece of one prompt on itself and what is before."""
    arm = tier.prompts
    tokens = chunk_at[:, None]
    shape = (chunk_at.size, pasts.size)
    whole = arm.step(0.0, 1.0, prefill_tokens=tokens, prefill_context=pasts, prefill_sequences=1.0)
    apart = arm.step(0.0, 1.0, prefill_tokens=tokens, prefill_context=0.0, prefill_sequences=tokens)
    return np.maximum(_total(whole, shape) - _total(apart, shape), 0.0)


def _total(step: StepTime, shape: tuple[int, int]) -> Array:
    return np.array(np.broadcast_to(np.asarray(step.total.total_s, dtype=float), shape))
