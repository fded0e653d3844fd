"""A calibration laid over the shipped constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.analysis.constants import Constants, shipped_discrepancy
from specsim.analysis.resolve import Deployment
from specsim.catalog.calibration import load_rules
from specsim.catalog.engines import parse_version
from specsim.catalog.models import canonical_id
from specsim.schema.calibration import (
    Calibration,
    CalibrationAcceptance,
    CalibrationScope,
    Scale,
)
from specsim.schema.scenario import Scenario
from specsim.schema.speculation import Acceptance

Array = npt.NDArray[np.float64]
_TRIES = 64
"""Draws per sample that is kept: the possible ones first."""
_FAR = 2.0
"""Lengths beyond this factor of what was measured are another workload."""
_NOT_OF_THE_MACHINE = frozenset({"acceptance", "decay", "tree"})
"""Families that no measured step time tells: they keep their own spread."""


@dataclass(frozen=True)
class Overlay:
    """Constants as a calibration has them; without one, as shipped."""

    calibration: Calibration | None = None
    widening: float = 0.0
    """How far the prior comes back: 0 inside the calibration's scope, 1 where it says nothing."""
    shipped_spread: float = 0.0
    """Relative spread of the speedup that is believed without a calibration."""
    fixed: frozenset[str] = frozenset()
    """Parameters that the scenario sets by hand: not calibrated."""
    notes: tuple[str, ...] = ()

    def provenance(self) -> dict[str, Any] | None:
        """Return what stands behind the constants, for a result; None without a calibration."""
        found = self.calibration
        if found is None:
            return None
        return {
            "created": found.created.isoformat(),
            "fitted": [p.name for p in found.parameters if p.identifiable],
            "kept": [p.name for p in found.parameters if not p.identifiable],
            "runs": len(found.runs),
            "left_out_speedup_pct": found.left_out.speedup_median_pct,
            "widened": self.widening > 0,
        }

    def point(self) -> Constants:
        """Return best values."""
        if self.calibration is None:
            return Constants()
        factors = [
            float(to_factor(s, x)) for s, x in zip(self._coordinates, self._means(), strict=True)
        ]
        return Constants(scales=self._scales(factors))

    def sampled(self, n_samples: int, seed: int) -> Constants:
        """Return samples: of the posterior, and of what no calibration tells."""
        if self.calibration is None:
            return Constants(n_samples, seed)
        parameters = self.calibration.parameters
        prior = np.diag([p.prior_sd**2 for p in parameters])
        kept = 1.0 - self.widening
        covariance = kept * np.array(self.calibration.covariance) + self.widening * prior
        drawn = draw_factors(self._coordinates, self._means(), covariance, n_samples, seed)
        return Constants(
            n_samples,
            seed,
            scales=self._scales(drawn[:, :, None]),
            # Outside its scope a calibration no longer answers for the constants that it held.
            varies=None if self.widening else _NOT_OF_THE_MACHINE,
            discrepancy=max(self.calibration.speedup_log_sd, self.shipped_spread)
            if self.widening
            else self.calibration.speedup_log_sd,
        )

    @property
    def _coordinates(self) -> list[Scale]:
        assert self.calibration is not None
        return [p.scale for p in self.calibration.parameters]

    def _means(self) -> Array:
        """Return best coordinates, drawn towards the shipped constants outside the scope."""
        assert self.calibration is not None
        x = [
            np.log(p.factor) if p.scale == "log" else p.factor - 1.0
            for p in self.calibration.parameters
        ]
        return np.asarray((1.0 - self.widening) * np.array(x))

    def _scales(self, factors: Sequence[float] | Array) -> dict[str, float | Array]:
        assert self.calibration is not None
        named = zip(self.calibration.parameters, factors, strict=True)
        return scales_of({p.name: factor for p, factor in named if p.name not in self.fixed})


def to_factor(scale: Scale, x: Array | float) -> Array:
    """Return factors from coordinates of the fit, in which 0 is the shipped constant."""
    return np.asarray(np.exp(x) if scale == "log" else np.maximum(1.0 + np.asarray(x), 0.0))


def draw_factors(
    scales: Sequence[Scale], means: Array, covariance: Array, n: int, seed: int
) -> Array:
    """Draw factors from a Gaussian in the coordinates of the fit: parameters x samples."""
    # The root of a covariance that may be singular, or off by rounding.
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    rng = np.random.default_rng([seed, *b"calibration"])
    drawn = means + rng.standard_normal((_TRIES * n, means.size)) @ root.T
    # A time below none is no sample. Cutting it to none instead would leave what it is traded
    # against (a lower bandwidth for a lower host time) behind, and all samples too slow.
    linear = np.array([s == "linear" for s in scales])
    possible = np.all(drawn[:, linear] >= -1.0, axis=1)
    drawn = np.concatenate([drawn[possible], drawn[~possible]])[:n]
    return np.stack([to_factor(s, x) for s, x in zip(scales, drawn.T, strict=True)])


def scales_of(factors: Mapping[str, float | Array]) -> dict[str, float | Array]:
    """Return the factor of every family, from those of the parameters."""
    rules = load_rules().parameters
    return {family: f for name, f in factors.items() for family in rules[name].families}


def overlay(deployment: Deployment, calibration: Calibration | None) -> Overlay:
    """Lay a calibration over a deployment, saying where it is used outside its scope."""
    if calibration is None:
        return Overlay()
    fitted, here = calibration.scope, scope_of(deployment)
    shipped = shipped_discrepancy(assumed=bool(deployment.assumed_blocks))
    widening, notes = 0.0, []
    for name, share in load_rules().scope_widening.items():
        one, other = getattr(fitted, name), getattr(here, name)
        if name == "engine_version":
            one, other = (".".join(map(str, parse_version(v)[:2])) for v in (one, other))
        if one == other or (name in ("method", "drafter") and other in ("none", None)):
            continue
        widening += share
        notes.append(f"{name} {one}, here {other}")
    if notes:
        notes = [
            f"the calibration was fitted on another deployment ({'; '.join(notes)}): its band is "
            "widened; calibrate on this one for a narrow band"
        ]
    by_hand = overridden(deployment.scenario)
    fixed = [p.name for p in calibration.parameters if p.name in by_hand]
    if fixed:
        notes.append(
            f"the scenario sets {', '.join(by_hand[n] for n in fixed)} itself: what was "
            f"calibrated as {', '.join(fixed)} is not used"
        )
    notes += _other_traffic(calibration, deployment.scenario)
    return Overlay(calibration, min(widening, 1.0), shipped, frozenset(fixed), tuple(notes))


def _other_traffic(calibration: Calibration, scenario: Scenario) -> list[str]:
    """Warn of lengths, loads and arrivals that no run was like."""
    notes = []
    workload, ran = scenario.workload, calibration.traffic
    for name, value, known in (
        ("input_tokens", workload.input_tokens, ran.input_tokens),
        ("output_tokens", workload.output_tokens, ran.output_tokens),
    ):
        if not known[0] / _FAR <= value <= known[1] * _FAR:
            notes.append(
                f"{name} {value:g} is far from the calibration's runs ({known[0]:g} to "
                f"{known[1]:g}): kernels that they hardly used keep the shipped constants"
            )
    if ran.lockstep and workload.arrival == "steady" and scenario.load.concurrency is not None:
        arms = " and ".join(ran.lockstep)
        notes.append(
            f"the calibration's runs with speculation {arms} went in lockstep (equal answers, all "
            "prompts of a round at once), and this predicts a steady stream: TPOT carries other "
            "requests' prompts and TTFT does not wait for them, so figures differ from the runs'"
        )
    return notes


def overridden(scenario: Scenario) -> dict[str, str]:
    """Return the parameters that a scenario fixes by hand, each with the key that does it."""
    engine = scenario.engine
    keys = {"host": "host_ms", "speculative_host": "speculative_host_ms"}
    return {name: f"engine.{key}" for name, key in keys.items() if getattr(engine, key) is not None}


def scope_of(deployment: Deployment) -> CalibrationScope:
    """Return what a calibration on this deployment holds for."""
    scenario = deployment.scenario
    return CalibrationScope(
        accelerator=deployment.hardware.identity.id,
        tensor_parallel_size=scenario.hardware.tensor_parallel_size,
        pipeline_parallel_size=scenario.hardware.pipeline_parallel_size,
        engine=scenario.engine.name,
        engine_version=scenario.engine.version or deployment.engine.version,
        model=deployment.model.id,
        weight_dtype=deployment.expert_dtype,
        kv_dtype=deployment.kv_dtype,
        method=scenario.speculation.method,
        drafter=None if deployment.drafter is None else deployment.drafter.id,
    )


def counted_here(scope: CalibrationScope, scenario: Scenario) -> bool:
    """Whether acceptance was counted for this target, method and drafter."""
    speculation, target = scenario.speculation, scenario.target.model
    drafter = speculation.drafter
    return (
        scope.method == speculation.method
        and (canonical_id(target) or target) == scope.model
        and (drafter is None or (canonical_id(drafter) or drafter) == scope.drafter)
    )


def with_counted_acceptance(
    scenario: Scenario, counted: Sequence[CalibrationAcceptance]
) -> tuple[Scenario, tuple[str, ...]]:
    """Fill in the acceptance that runs counted, where a scenario gives none.

    That of the same k, else of the nearest longer one, of which a part is known; else the longest.

    Returns
    -------
    (scenario, notes)
    """
    speculation = scenario.speculation
    if speculation.method == "none" or speculation.acceptance is not None or not counted:
        return scenario, ()
    k = speculation.num_speculative_tokens
    one = min(
        counted,
        key=lambda a: (
            k is not None and a.num_speculative_tokens < k,
            abs(a.num_speculative_tokens - (math.inf if k is None else k)),
            -a.num_speculative_tokens,
        ),
    )
    measured_k = one.num_speculative_tokens
    more = {"counts": one.counts, "proposal_rate": one.proposal_rate}
    # A length counts all steps, those that do not draft too.
    length = 1.0 + (one.length - 1.0) * (one.proposal_rate or 1.0)
    acceptance = Acceptance(length=length, measured_at_k=measured_k, **more)
    if one.per_position is not None:
        acceptance = Acceptance(per_position=one.per_position, **more)
    filled = {"acceptance": acceptance, "num_speculative_tokens": k or measured_k}
    speculation = speculation.model_copy(update=filled)
    note = (
        f"speculation.acceptance = {one.length:.3g} tokens per drafting step at k = {measured_k} "
        "(counted in the measured runs)"
    )
    return scenario.model_copy(update={"speculation": speculation}), (note,)
