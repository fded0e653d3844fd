"""Which factors a deployment's runs could tell, and what is believed of them beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import baseline_arm, speculative_arm
from specsim.analysis.constants import Z90, Constants
from specsim.analysis.overlay import overridden, to_factor
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import mean_context
from specsim.catalog.calibration import load_rules
from specsim.physics.cost import Num
from specsim.schema.base import Range
from specsim.schema.calibration import ParameterSpec, Scale
from specsim.units import MICRO, MILLI

Array = npt.NDArray[np.float64]
_UNIT_S = {"ms": MILLI, "us": MICRO}
_ALWAYS = frozenset({"prompt"})
"""Factors without a constant of their own."""


@dataclass(frozen=True)
class Parameter:
    """One factor of a fit. Its coordinate x is 0 for the shipped constant."""

    name: str
    spec: ParameterSpec
    prior_sd: float
    value: float | None
    """The shipped constant that stands for it."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and most of x."""
        low, high = self.spec.factor
        if self.spec.scale == "linear":
            return low - 1.0, high - 1.0
        return float(np.log(low)), float(np.log(high))

    def factor(self, x: Array | float) -> Array:
        """Return the factor of a coordinate."""
        return to_factor(self.spec.scale, x)


@dataclass(frozen=True)
class _Recorder(Constants):
    """Notes every constant that is asked for."""

    seen: dict[str, list[Range]] = field(default_factory=dict)

    def value(self, constant: Range, family: str, *, key: str = "") -> Num:
        self.seen.setdefault(key or family, []).append(constant)
        return super().value(constant, family, key=key)


def fit_parameters(deployments: Sequence[Deployment]) -> tuple[Parameter, ...]:
    """Return the factors that these deployments' predictions hang on.

    A constant that nothing uses, that is zero, or that the scenario sets by hand is no parameter.
    """
    recorder = _Recorder()
    fixed: set[str] = set()
    plain_step_s = 0.0
    for deployment in deployments:
        baseline = baseline_arm(deployment, recorder)
        context = mean_context(deployment.scenario.workload)
        plain_step_s = float(np.max(baseline.step(1.0, context).total.total_s))
        if deployment.method != "none" and deployment.acceptance is not None:
            speculative_arm(deployment, recorder)
        fixed |= set(overridden(deployment.scenario))
    found = []
    for name, spec in load_rules().parameters.items():
        ranges = [r for family in spec.families for r in recorder.seen.get(family, ())]
        used = [r for r in ranges if r.value > 0]
        if name in fixed or not (used or name in _ALWAYS):
            continue
        spread = max((_relative_sd(r, spec.scale) for r in used), default=0.0)
        shown = next((r.value for r in recorder.seen.get(spec.shown, ()) if r.value > 0), None)
        least = spec.least_sd
        if spec.least_share and shown is not None:
            least = spec.least_share * plain_step_s / (shown * _UNIT_S[spec.unit])
        found.append(Parameter(name, spec, max(spread, least), shown))
    return tuple(found)


def _relative_sd(constant: Range, scale: Scale) -> float:
    """Return the spread that a constant's own interval says, in the coordinate of the fit."""
    if scale == "linear":
        return (constant.high - constant.low) / constant.value / (2.0 * Z90)
    # A lower end of zero has no logarithm; the upper half then speaks for both.
    halves = [np.log(constant.high / constant.value)] if constant.high > constant.value else [0.0]
    if constant.low > 0:
        halves.append(np.log(constant.value / constant.low))
    return float(np.mean(halves)) / Z90
