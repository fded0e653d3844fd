"""From how often drafts are accepted to tokens per step.

P_j is the probability that draft positions 1..j are all accepted (unconditional, non-increasing).
Vectors of P have the position as their last axis. Real acceptance is not geometric: the
conditional rate falls (or, for n-gram matches, rises) with the position. The two-parameter law

    P_j = prod over i <= j of min(1, a1 d^(i-1))

fits published vectors within about 0.02; a1 is the rate at the first position, d the decay.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specsim.physics.cost import Num

_SECTIONS, _ROUNDS = 16, 12
"""Of a search: 48 bits."""


def chain_length(rate: Num, k: Num) -> Num:
    """Return tokens per step of a chain with a constant per-token rate.

    Notes
    -----
    (1 - a^(k+1)) / (1 - a), Leviathan et al., arXiv 2211.17192, equation (1).

    Examples
    --------
    >>> chain_length(0.5, 3)
    1.875
    >>> chain_length(1.0, 3)
    4.0
    """
    rate = np.asarray(rate, dtype=float)
    safe = np.where(rate < 1.0, rate, 0.0)
    length = np.where(rate < 1.0, (1.0 - safe ** (k + 1.0)) / (1.0 - safe), k + 1.0)
    return length if length.ndim else float(length)


def positions(*, first_rate: Num, decay: Num, k: int) -> Num:
    """Return P_1..P_k of the law above, with `k` as the last axis.

    Examples
    --------
    >>> positions(first_rate=0.8, decay=1.0, k=3).round(3).tolist()
    [0.8, 0.64, 0.512]
    """
    first = np.asarray(first_rate, dtype=float)[..., None]
    d = np.asarray(decay, dtype=float)[..., None]
    conditional = np.minimum(1.0, first * d ** np.arange(k))
    return np.cumprod(conditional, axis=-1)


def length(p: Num) -> Num:
    """Return tokens per step, 1 + sum of P. definitions.md section 1, equation (9)."""
    return 1.0 + np.sum(p, axis=-1)


def lengths_by_k(p: Num) -> Num:
    """Return tokens per step for k = 0..K from P_1..P_K (last axis K + 1)."""
    p = np.asarray(p, dtype=float)
    start = np.ones((*p.shape[:-1], 1))
    return np.concatenate([start, 1.0 + np.cumsum(p, axis=-1)], axis=-1)


def first_rate_from_length(*, target_length: Num, decay: Num, k: int) -> Num:
    """Solve the law for a1, given tokens per step at k.

    Parameters
    ----------
    target_length : float or array
        In 1..k+1; outside it is clipped. [tokens]

    Examples
    --------
    >>> round(float(first_rate_from_length(target_length=1.875, decay=1.0, k=3)), 6)
    0.5
    """
    if np.ndim(target_length) == np.ndim(decay) == 0:
        return _first_rate(float(target_length), float(decay), k)
    return _solved(target_length, decay, k)


@functools.lru_cache(maxsize=1024)
def _first_rate(target_length: float, decay: float, k: int) -> float:
    return float(_solved(target_length, decay, k))


def _solved(target_length: Num, decay: Num, k: int) -> npt.NDArray[np.float64]:
    target, d = np.broadcast_arrays(
        np.clip(np.asarray(target_length, dtype=float), 1.0, k + 1.0), np.asarray(decay, float)
    )
    low, high = np.zeros_like(target), np.maximum(1.0, d ** -(k - 1.0)) * np.ones_like(target)
    # Several sections at a time: calls of numpy cost more than the few numbers in them.
    shares = np.arange(1.0, _SECTIONS) / _SECTIONS
    for _ in range(_ROUNDS):
        width = high - low
        inside = low[..., None] + width[..., None] * shares
        reached = length(positions(first_rate=inside, decay=d[..., None], k=k))
        below = np.sum(reached < target[..., None], axis=-1)
        low, high = low + width * below / _SECTIONS, low + width * (below + 1.0) / _SECTIONS
    return np.asarray(0.5 * (low + high))


def extend(p: Sequence[float], *, decay: Num, k: int) -> Num:
    """Return P_1..P_k from a measured list: its prefix, or its end carried on by the law.

    Notes
    -----
    Beyond the list the conditional rate goes on from the last measured one, times `decay` at each
    further position (definitions.md section 1).
    """
    known = np.asarray(p, dtype=float)
    d = np.asarray(decay, dtype=float)[..., None]
    if k <= known.size:
        return np.broadcast_to(known[:k], (*d.shape[:-1], k))
    before = known[-2] if known.size > 1 else 1.0
    last = known[-1] / before if before > 0 else 0.0
    conditional = np.minimum(1.0, last * d ** np.arange(1, k - known.size + 1))
    tail = known[-1] * np.cumprod(conditional, axis=-1)
    return np.concatenate([np.broadcast_to(known, (*tail.shape[:-1], known.size)), tail], axis=-1)


def conditional_rate(p: Num) -> Num:
    """Return the constant per-token rate that gives the same tokens per step as P.

    Examples
    --------
    >>> round(float(conditional_rate([0.8, 0.64, 0.512])), 6)
    0.8
    """
    p = np.asarray(p, dtype=float)
    return first_rate_from_length(target_length=length(p), decay=1.0, k=p.shape[-1])


def tree_first_rate(*, first_rate: Num, branches_per_level: Num, coverage_exponent: Num) -> Num:
    """Return the first-position rate of a tree with several candidates per level.

    Notes
    -----
    The chance that none of w candidates is right falls as w^-e: 1 - (1 - a) w^-e. With e = 0.36
    this turns the published chain of 2.25 tokens per step into the 2.92 of a 21-token tree
    (SGLang 0.5.9, Qwen3-8B, GSM8K; arXiv 2601.11580). The form is assumed.
    """
    miss = (1.0 - np.asarray(first_rate, dtype=float)) * np.power(
        np.maximum(branches_per_level, 1.0), -coverage_exponent
    )
    return 1.0 - miss


def over_all_steps(*, drafting_length: Num, proposal_rate: Num) -> Num:
    """Tokens per step over all steps, from the length over the steps that drafted.

    Notes
    -----
    1 + proposal_rate (AL - 1): n-gram and suffix drafting propose only on a match
    (definitions.md section 1).
    """
    return 1.0 + proposal_rate * (drafting_length - 1.0)


def best_verify_length(*, lengths: Num, step_time_s: Num) -> Num:
    """Return the index v (last axis) that maximises tokens per second.

    Notes
    -----
    Adaptive verification: argmax of expected tokens over step time, the goodput rule of
    SmartSpec (arXiv 2406.14066) and of vLLM's enable_adaptive_verification.
    """
    return np.argmax(lengths / step_time_s, axis=-1)
