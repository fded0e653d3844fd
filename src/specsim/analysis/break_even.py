"""The acceptance at which speculation is worth nothing, load by load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specsim.analysis.acceptance import AcceptanceModel
from specsim.analysis.curves import Pair
from specsim.physics import acceptance as law

Array = npt.NDArray[np.float64]

_CURVE_RATES = 21
_FINE = 10
"""Where the curve passes 1, its steps are cut into so many."""


@dataclass(frozen=True)
class OverAcceptance:
    """The speedup over the per-token rate of acceptance (first axis) and load (last axis)."""

    rates: Array
    speedup: Array
    even: tuple[float | None, ...]
    """Rate at which each load is served as fast as without; None: none is enough."""


def over_acceptance(arms: Pair, loads: Array, *, k: int, proposal_rate: float) -> OverAcceptance:
    """Return the speedup over acceptance, and where it is 1.

    Parameters
    ----------
    loads : array
        In the unit of the pair's loads.
    k : int
        Draft tokens per step. [tokens]
    proposal_rate : float
        Share of steps that draft.
    """
    fine = np.linspace(0.0, 1.0, (_CURVE_RATES - 1) * _FINE + 1)
    tried = np.zeros(fine.size, dtype=bool)
    # Of few numbers one call with all of them is quicker than two with fewer.
    tried[:: 1 if loads.size == 1 and not arms.is_open else _FINE] = True
    speedup = np.full((fine.size, loads.size), np.nan)
    speedup[tried] = arms.at_rates(fine[tried], k, proposal_rate).speedup(loads)
    # The gain rises with acceptance: only the steps in which it passes 1 are looked at closer.
    passed = np.argmax(speedup[::_FINE] >= 1.0, axis=0)
    closer = np.zeros(fine.size, dtype=bool)
    for turn in np.unique(passed[passed > 0]):
        closer[(turn - 1) * _FINE : turn * _FINE] = True
    closer &= ~tried
    if np.any(closer):
        speedup[closer] = arms.at_rates(fine[closer], k, proposal_rate).speedup(loads)
    known = tried | closer
    return OverAcceptance(
        fine[::_FINE],
        speedup[::_FINE],
        tuple(_rate_at_one(fine[known], gain) for gain in speedup[known].T),
    )


def lengths_at(model: AcceptanceModel, rates: Array, k: int) -> tuple[Array, Array]:
    """Return tokens per step over all steps, and accepted / drafted, at per-token rates."""
    drafting = np.asarray(law.chain_length(rates, float(k)))
    lengths = law.over_all_steps(drafting_length=drafting, proposal_rate=model.proposal_rate)
    return np.asarray(lengths), (drafting - 1.0) / model.drafted_tokens()


def _rate_at_one(rates: Array, speedup: Array) -> float | None:
    """Return the rate at which a rising curve reaches 1, or None."""
    reached = np.flatnonzero(speedup >= 1.0)
    if reached.size == 0:
        return None
    i = int(reached[0])
    if i == 0:
        return 0.0
    share = (1.0 - speedup[i - 1]) / (speedup[i] - speedup[i - 1])
    return float(rates[i - 1] + share * (rates[i] - rates[i - 1]))
