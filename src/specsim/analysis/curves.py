"""Both arms over loads, in one evaluation: the building block of every answer."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import Arm, StepTime, baseline_arm, speculating
from specsim.analysis.constants import Constants
from specsim.analysis.crossover import between_turns, search_loads
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import (
    OpenLoop,
    Service,
    closed_loop,
    mean_context,
    open_loop,
)
from specsim.physics import acceptance as law
from specsim.physics.cost import Num
from specsim.schema.scenario import Workload

Array = npt.NDArray[np.float64]

_OPEN = "open loop"
_RATE_POINTS = 48
_LOAD_POINTS = 64


@dataclass(frozen=True)
class Pair:
    """Both arms of a deployment under one set of constants."""

    baseline: Arm
    speculative: Arm
    workload: Workload
    is_open: bool
    without: dict[bytes | str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What the off arm does by loads: whatever shares it with this pair asks once. A pair made with
    another off arm or workload needs an empty one of its own."""

    def speedup(self, loads: Array) -> Array:
        """Return on / off at loads (last axis).

        Closed loop: output tokens per second. Open loop: time per token; 0 where only the off arm
        can serve the rate, NaN where it cannot either.
        """
        if not self.is_open:
            served = closed_loop(self.speculative, self.workload, loads).output_tokens_per_s
            return np.asarray(served / self._served_without(loads))
        off_curve, on_curve = self.open_loops
        # An answer of one token has no time per token: its first token is all there is.
        metric = "tpot_s" if self.workload.output_tokens > 1.0 else "ttft_s"
        off, on = (curve.at(loads, getattr(curve, metric)) for curve in (off_curve, on_curve))
        return np.where(np.isfinite(off) & ~np.isfinite(on), 0.0, off / on)

    def at_rates(self, rates: Array, k: int, proposal_rate: float) -> Pair:
        """Return the pair at other constant per-token rates (a new axis before the loads)."""
        rate = rates[:, None]
        tokens = law.over_all_steps(
            drafting_length=law.chain_length(rate, float(k)), proposal_rate=proposal_rate
        )
        lengths = None
        if self.speculative.lengths is not None:
            lengths = law.over_all_steps(
                drafting_length=law.chain_length(rate[..., None], np.arange(k + 1.0)),
                proposal_rate=proposal_rate,
            )
        on = self.speculative.with_acceptance(tokens_per_step=tokens, lengths=lengths)
        return replace(self, speculative=on)

    @functools.cached_property
    def open_loops(self) -> tuple[OpenLoop, OpenLoop]:
        """Both arms by arrival rate."""
        if _OPEN not in self.without:
            self.without[_OPEN] = open_loop(self.baseline, self.workload)
        return self.without[_OPEN], open_loop(self.speculative, self.workload)

    def _served_without(self, loads: Array) -> Array:
        """Return output tokens per second of the off arm in a closed loop. [tokens/s]."""
        key = loads.tobytes()
        if key not in self.without:
            self.without[key] = closed_loop(self.baseline, self.workload, loads).output_tokens_per_s
        served: Array = self.without[key]
        return served

    def largest_stable_rates(self) -> tuple[float, float]:
        """Return the rates beyond which each arm queues without end. [requests/s]."""
        off, on = (float(np.max(curve.largest_stable_rate)) for curve in self.open_loops)
        return off, on

    def searched_loads(self) -> Array:
        """Return the loads among which a crossover is searched."""
        if not self.is_open:
            return search_loads(self.baseline.max_num_seqs, n=_LOAD_POINTS)
        # Close to saturation the answer turns within a per cent of the rate.
        top = self.largest_stable_rates()[0] * 0.999
        far = np.geomspace(top / 500.0, 0.5 * top, _RATE_POINTS)
        near = top * (1.0 - np.geomspace(0.5, 1e-3, 2 * _RATE_POINTS))
        return np.unique(np.concatenate([far, near]))

    def sharpened(self, loads: Array, speedup: Array) -> tuple[Array, Array]:
        """Return loads and speedups with more of both where the curve passes 1."""
        new = between_turns(loads, speedup, whole=not self.is_open)
        if new.size == 0:
            return loads, speedup
        everywhere = np.concatenate([loads, new])
        order = np.argsort(everywhere)
        return everywhere[order], np.concatenate([speedup, self.speedup(new)])[order]


def pair(
    deployment: Deployment, constants: Constants | None = None, *, k: Num | None = None
) -> Pair:
    """Return both arms."""
    baseline = baseline_arm(deployment, constants)
    return Pair(
        baseline=baseline,
        speculative=speculating(baseline, deployment, constants, k=k),
        workload=deployment.scenario.workload,
        is_open=deployment.scenario.load.request_rate is not None,
    )


def band(speedup: Array, samples: Array) -> tuple[Array, Array]:
    """Return the 10th and 90th percentile of samples (first axis), widened to hold the point.

    Samples in which the off arm cannot serve the rate have no ratio and say nothing.
    """
    known = np.where(np.all(np.isnan(samples), axis=0), 0.0, samples)
    low, high = np.nanpercentile(known, [10.0, 90.0], axis=0)
    return np.minimum(low, speedup), np.maximum(high, speedup)


def service_at_rates(
    arm: Arm, workload: Workload, rates: Array, curve: OpenLoop | None = None
) -> tuple[Service, OpenLoop]:
    """Return an arm under an open loop; NaN where a rate is above what it can serve.

    Parameters
    ----------
    curve : OpenLoop, optional
        Of this arm and workload, where it is known already.
    """
    curve = open_loop(arm, workload) if curve is None else curve
    batch = curve.at(rates, curve.batches)
    step: StepTime = arm.step(
        np.maximum(np.nan_to_num(batch, nan=1.0), 1.0), mean_context(workload)
    )
    service = Service(
        batch=batch,
        limited_by=np.full(batch.shape, "load", dtype=object),
        step=step,
        tpot_s=curve.at(rates, curve.tpot_s),
        itl_s=curve.at(rates, curve.itl_s),
        ttft_s=curve.at(rates, curve.ttft_s),
        output_tokens_per_s=rates * workload.output_tokens,
    )
    return service, curve
