"""How many steps an answer takes: acceptance drawn per request, and per step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_BISECTIONS = 60
_FARTHEST = 12.0
"""Log-odds shift beyond which a rate is 0 or 1."""
_BLOCK = 1 << 20
"""Uniform numbers drawn at a time."""


def per_request_positions(
    p: Sequence[float], *, deviates: Array, spread: float, proposal_rate: float = 1.0
) -> Array:
    """Return P_1..P_k over all steps for each request.

    Parameters
    ----------
    p : sequence of float (k,)
        P over drafting steps of the profile.
    deviates : array (n,)
        Standard normal, one per request: how predictable it is.
    spread : float
        Standard deviation of the log-odds of the per-token rate between requests.
    proposal_rate : float
        Share of steps that draft at all.

    Returns
    -------
    array (n, k)

    Notes
    -----
    logit a_j of a request = logit a_j + shift + spread z. Tokens per step of a stream is all its
    tokens by all its steps (definitions.md section 1), so the shift is what makes
    1 / E[1 / tau(z)] equal the profile's tau: hard requests take more steps and weigh more.
    """
    profile = np.asarray(p, dtype=float)
    if spread == 0.0 or profile.size == 0:
        return np.broadcast_to(proposal_rate * profile, (deviates.size, profile.size))
    before = np.concatenate([[1.0], profile[:-1]])
    conditional = np.divide(profile, before, out=np.zeros_like(profile), where=before > 0)
    wanted = 1.0 + proposal_rate * profile.sum()
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        tau = 1.0 + proposal_rate * _shifted(conditional, middle + spread * _NODES).sum(axis=1)
        if 1.0 / np.sum(_WEIGHTS / tau) < wanted:
            low = middle
        else:
            high = middle
    return proposal_rate * _shifted(conditional, 0.5 * (low + high) + spread * deviates)


def _shifted(conditional: Array, shift: Array) -> Array:
    """Return P of conditional rates whose log-odds are shifted, one row per shift."""
    odds = np.exp(shift)[:, None] * conditional
    rate = odds / (odds + (1.0 - conditional))
    return np.asarray(np.cumprod(rate, axis=1))


def steps_needed(
    tokens: npt.NDArray[np.int64], p: Array, rng: np.random.Generator, *, ks: Sequence[int]
) -> npt.NDArray[np.int64]:
    """Draw how many steps each request takes for its tokens, for each k on the same numbers.

    Parameters
    ----------
    tokens : int array (n,)
        Tokens to decode after the first.
    p : array (n, K)
        P_1..P_K over all steps, by request.
    ks : sequence of int
        Draft tokens per step, each at most K.

    Returns
    -------
    int array (len(ks), n)

    Notes
    -----
    One uniform number u per step: it accepts the drafts j with u < P_j, so a step of k drafts
    yields 1 + #{j <= k: u < P_j} tokens. Longer drafts see the same luck.
    """
    steps = np.zeros((len(ks), tokens.size), dtype=np.int64)
    plain = [row for row, k in enumerate(ks) if k == 0]
    drafting = [(row, k) for row, k in enumerate(ks) if k > 0]
    for row in plain:
        steps[row] = tokens
    if not drafting:
        return steps
    fewest = min(k for _, k in drafting)
    slowest = 1.0 + p[:, :fewest].sum(axis=1)
    order = np.argsort(tokens / slowest, kind="stable")
    start = 0
    while start < order.size:
        last = min(order.size, start + 4096)
        # Room for the mean and six deviations: few requests need another round.
        width = _width(tokens[order[last - 1]], slowest[order[start:last]].min())
        while (last - start) * width > _BLOCK and last - start > 1:
            last = start + max(1, (last - start) // 2)
            width = _width(tokens[order[last - 1]], slowest[order[start:last]].min())
        _draw_block(order[start:last], width, tokens, p, rng, drafting, steps)
        start = last
    return steps


def _width(tokens: int, tokens_per_step: float) -> int:
    mean = tokens / tokens_per_step
    return int(min(float(tokens), mean + 6.0 * np.sqrt(mean) + 8.0)) or 1


def _draw_block(
    rows: npt.NDArray[np.int64],
    width: int,
    tokens: npt.NDArray[np.int64],
    p: Array,
    rng: np.random.Generator,
    drafting: Sequence[tuple[int, int]],
    steps: npt.NDArray[np.int64],
) -> None:
    """Draw for some requests until all have their tokens at every k."""
    missing = np.repeat(tokens[rows][None, :], len(drafting), axis=0)
    while np.any(missing > 0):
        open_rows = np.flatnonzero(np.any(missing > 0, axis=0))
        drawn = rng.random((open_rows.size, width), dtype=np.float32)
        chances = p[rows[open_rows]].astype(np.float32)
        gain = np.ones(drawn.shape, dtype=np.int32)
        done = 0
        by_k = dict.fromkeys(k for _, k in drafting)
        for k in sorted(by_k):
            for j in range(done, k):
                gain += drawn < chances[:, j : j + 1]
            done = k
            total = np.cumsum(gain, axis=1)
            for index, (row, asked) in enumerate(drafting):
                if asked != k:
                    continue
                need = missing[index, open_rows]
                # Steps before the tokens are there, and the one that brings the last.
                short = (total < need[:, None]).sum(axis=1)
                reached = short < width
                steps[row, rows[open_rows]] += np.where(need > 0, short + reached, 0)
                missing[index, open_rows] = np.where(reached, 0, need - total[:, -1])
