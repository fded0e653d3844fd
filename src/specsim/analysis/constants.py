"""Point values of constants, or samples of them.

Everything downstream broadcasts, so the same code gives the prediction (numbers) and its band
(arrays of samples along a leading axis).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from specsim.catalog.general import load_general
from specsim.physics.cost import Num
from specsim.schema.base import Range

Z90, Z95, Z975 = 1.2815515655446004, 1.6448536269514722, 1.959963984540054
"""Standard normal quantiles of 90, 95 and 97.5 %: `low` and `high` of a Range are 10th and 90th
percentiles; lengths are given with their 95th; fitted factors have 95 % intervals."""
_LEAST = 0.2
"""No sample falls below this share of the value (a rate of zero would stop the clock)."""


@dataclass(frozen=True)
class Constants:
    """Draws constants by family: the same family moves together everywhere it is used.

    Bandwidth that is lower than believed is lower for the target and for the drafter alike, so
    one standard normal deviate per family and sample is shared by all constants of that family.
    """

    n_samples: int = 0
    """0: point values."""
    seed: int = 0
    scales: Mapping[str, Num] = field(default_factory=dict)
    """Factors on constants, by family or key: a fit's, which replace what was believed before.

    Arrays keep a leading axis of their own: samples, or the trial points of a fit."""
    discrepancy: float | None = None
    """Relative spread of the speedup beyond its parameters; None: the shipped one."""
    varies: frozenset[str] | None = None
    """Families that are drawn; None: all. A fit is the uncertainty of those that it held."""
    _deviates: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def deviate(self, family: str) -> Num:
        """Return the standard normal deviates of a family, samples on a leading axis; 0 if none."""
        if self.n_samples == 0:
            return 0.0
        if family not in self._deviates:
            # Seeded by name, so that a new family does not reshuffle the others.
            key = [self.seed, *family.encode()]
            rng = np.random.default_rng(key)
            self._deviates[family] = rng.standard_normal((self.n_samples, 1))
        return self._deviates[family]

    def value(self, constant: Range, family: str, *, key: str = "") -> Num:
        """Return the constant, or samples of it (a normal with a half of its own on each side).

        Parameters
        ----------
        key : str
            What the constant goes by in `scales`, where that is not its family.
        """
        scale = self.scales.get(key or family)
        if scale is not None:
            return constant.value * scale
        if self.n_samples == 0 or constant.low == constant.high:
            return constant.value
        if self.varies is not None and family not in self.varies:
            return constant.value
        z = self.deviate(family)
        below = (constant.value - constant.low) / Z90
        above = (constant.high - constant.value) / Z90
        drawn = constant.value + np.where(z < 0, z * below, z * above)
        return np.maximum(drawn, _LEAST * constant.value if constant.value > 0 else constant.low)

    def factor(self, relative_sd: float, family: str) -> Num:
        """Return a factor around 1 with the given relative spread."""
        return np.exp(self.deviate(family) * relative_sd) if self.n_samples else 1.0


def shipped_discrepancy(*, assumed: bool) -> float:
    """Return the relative spread of a speedup beyond its parameters.

    Parameters
    ----------
    assumed : bool
        Some kernels of the deployment were never measured on its device.
    """
    general = load_general()
    return (general.discrepancy_assumed if assumed else general.discrepancy_measured).value
