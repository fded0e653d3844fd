"""Time of a piece of work, split by what it waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Num: TypeAlias = Any
"""A float or a numpy array of floats; arguments of one call broadcast against each other."""

PARTS = ("memory_s", "kv_s", "compute_s", "communication_s", "host_s")


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds by cause; the parts add up to the whole.

    Where memory and compute overlap (the smooth knee), the time is shared out in proportion to
    the weight that each has in the norm, so that the parts stay additive.
    """

    memory_s: Num = 0.0
    """Reading weights and activations."""
    kv_s: Num = 0.0
    """Reading the KV cache or recurrent state."""
    compute_s: Num = 0.0
    communication_s: Num = 0.0
    """Collectives between the devices of a replica."""
    host_s: Num = 0.0
    """Launching kernels, scheduling, sampling bookkeeping: fixed times that no byte explains."""

    @property
    def total_s(self) -> Num:
        """Sum of the parts. [s]."""
        return self.memory_s + self.kv_s + self.compute_s + self.communication_s + self.host_s

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.memory_s + other.memory_s,
            self.kv_s + other.kv_s,
            self.compute_s + other.compute_s,
            self.communication_s + other.communication_s,
            self.host_s + other.host_s,
        )

    def times(self, factor: Num) -> Cost:
        """Return this cost `factor` times over (or per part, with an array)."""
        return Cost(
            self.memory_s * factor,
            self.kv_s * factor,
            self.compute_s * factor,
            self.communication_s * factor,
            self.host_s * factor,
        )

    def at_least(self, floor_s: Num) -> Cost:
        """Return this cost, waiting on the host where the whole is shorter than `floor_s`."""
        waiting = np.maximum(floor_s - self.total_s, 0.0)
        return self + Cost(host_s=waiting)


def smooth_roofline(memory_s: Num, compute_s: Num, sharpness: Num) -> tuple[Num, Num]:
    """Overlap a memory time and a compute time into one, and share it out.

    Parameters
    ----------
    memory_s, compute_s : float or array
        Times that each would take alone. [s]
    sharpness : float or array
        p of the norm: 1 adds them, infinity takes the larger.

    Returns
    -------
    (memory_part_s, compute_part_s)
        They add up to (memory^p + compute^p)^(1/p). [s]

    Notes
    -----
    theory.md equation (1). Written with the ratio of the two so that no power overflows.

    Examples
    --------
    >>> m, c = smooth_roofline(3.0, 4.0, 2.0)
    >>> round(float(m + c), 9), round(float(c / m), 6)
    (5.0, 1.777778)
    """
    total, ratio = _norm(memory_s, compute_s, sharpness)
    dominant = total / (1.0 + ratio)
    other = total - dominant
    memory_is_larger = memory_s >= compute_s
    return (
        np.where(memory_is_larger, dominant, other),
        np.where(memory_is_larger, other, dominant),
    )


def overlapped(one_s: Num, other_s: Num, sharpness: Num) -> Num:
    """Return the time of two things that overlap, not shared out. [s].

    Examples
    --------
    >>> round(float(overlapped(3.0, 4.0, 2.0)), 9)
    5.0
    """
    return _norm(one_s, other_s, sharpness)[0]


def _norm(one_s: Num, other_s: Num, sharpness: Num) -> tuple[Num, Num]:
    """Return the norm, and the share of the smaller time in it over that of the larger."""
    larger = np.maximum(one_s, other_s)
    smaller = np.minimum(one_s, other_s)
    ratio = np.power(smaller / np.maximum(larger, 1e-30), sharpness)
    return larger * np.power(1.0 + ratio, 1.0 / sharpness), ratio
