"""Where a curve of speedup over load crosses 1, as often as it does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specsim.schema.results import Crossover

Array = npt.NDArray[np.float64]
_LOW, _HIGH = 10.0, 90.0


def search_loads(largest: float, *, n: int = 160) -> Array:
    """Return whole concurrencies from 1 to `largest`, every one while few, then geometric."""
    top = max(1, int(largest))
    return np.unique(np.rint(np.geomspace(1, top, n))).astype(float)


def intervals_above_one(loads: Array, speedup: Array) -> list[tuple[float, float]]:
    """Return the intervals of load in which a curve is above 1.

    Ends between two loads are interpolated in the logarithm of the load. Points that are NaN
    (an arm that cannot serve the rate) end an interval.

    Examples
    --------
    >>> [(low, high)] = intervals_above_one(np.array([1.0, 10, 100]), np.array([2.0, 1.5, 0.5]))
    >>> low, round(high, 3)
    (1.0, 31.623)
    """
    above = speedup > 1.0
    found: list[tuple[float, float]] = []
    start: float | None = None
    for i in range(loads.size):
        if above[i] and start is None:
            start = float(loads[i]) if i == 0 else _between(loads, speedup, i - 1)
        if not above[i] and start is not None:
            found.append((start, _between(loads, speedup, i - 1)))
            start = None
    if start is not None:
        found.append((start, float(loads[-1])))
    return found


def _between(loads: Array, speedup: Array, i: int) -> float:
    """Return the load between i and i + 1 at which the curve is 1."""
    here, there = speedup[i], speedup[i + 1]
    if not (np.isfinite(here) and np.isfinite(there)) or here == there:
        return float(loads[i] if np.isfinite(here) else loads[i + 1])
    share = (1.0 - here) / (there - here)
    return float(loads[i] * (loads[i + 1] / loads[i]) ** share)


def first_loss(loads: Array, speedup: Array) -> float:
    """Return the load at which a gain first turns into a loss.

    0 where the first load already loses, infinity where nothing searched loses. Loads that
    neither arm can serve (NaN) are no loss.
    """
    served = np.isfinite(speedup)
    loads, speedup = loads[served], speedup[served]
    if loads.size == 0:
        return np.inf
    if not speedup[0] > 1.0:
        return 0.0
    end = intervals_above_one(loads, speedup)[0][1]
    return np.inf if end >= loads[-1] and speedup[-1] > 1.0 else end


def between_turns(loads: Array, speedup: Array, *, whole: bool, n: int = 16) -> Array:
    """Return loads between those where a curve passes 1: it is no straight line there.

    Parameters
    ----------
    whole : bool
        Loads are numbers of requests.
    n : int
        At most so many in each such gap.
    """
    above = speedup > 1.0
    gaps = np.flatnonzero((above[1:] != above[:-1]) & np.isfinite(speedup[1:] + speedup[:-1]))
    found = [np.linspace(loads[i], loads[i + 1], n + 2)[1:-1] for i in gaps]
    new = np.concatenate(found) if found else np.array([])
    return np.setdiff1d(np.rint(new) if whole else new, loads)


def find_crossover(
    loads: Array, speedup: Array, samples: Array, batch: Array, *, sampled: Array | None = None
) -> Crossover:
    """Describe where a curve crosses 1, with the interval that samples of it give.

    Parameters
    ----------
    loads, speedup, batch : array (n,)
        Loads searched, speedup and running requests of the off arm there.
    samples : array (n_samples, n) or (n_samples, m)
        The same curve under other constants.
    sampled : array (m,), optional
        Loads of the samples, where they are fewer.
    """
    finite = np.isfinite(speedup)
    if sampled is None:
        sampled, samples = loads[finite], samples[:, finite]
    loads, speedup, batch = loads[finite], speedup[finite], batch[finite]
    wins = intervals_above_one(loads, speedup)
    searched = (float(loads[0]), float(loads[-1]))
    crossings = np.array([first_loss(sampled, row) for row in samples])
    low, high = np.percentile(crossings, [_LOW, _HIGH], method="nearest")
    whole = len(wins) == 1 and wins[0] == searched and bool(np.all(speedup > 1.0))
    if not wins:
        return Crossover("never", None, None, None, _shown(high, searched), (), searched)
    if whole:
        return Crossover("always", None, None, _shown(low, searched), None, tuple(wins), searched)
    # A curve that starts with a loss turns into a gain first: that is its crossing then.
    load = wins[0][1] if wins[0][1] < searched[1] else wins[0][0]
    return Crossover(
        state="crosses",
        load=load,
        batch=float(np.interp(load, loads, batch)),
        low=min(load, x) if (x := _shown(low, searched)) is not None else None,
        high=max(load, x) if (x := _shown(high, searched)) is not None else None,
        wins=tuple(wins),
        searched=searched,
    )


def _shown(crossing: float, searched: tuple[float, float]) -> float | None:
    """Return a crossing that lies within what was searched, else None."""
    return float(crossing) if searched[0] <= crossing <= searched[1] else None
