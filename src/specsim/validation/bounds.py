"""Measurements below what the hardware allows, however little speculation yields.

A prediction that is too high may rest on a wrong acceptance or on a kernel that is a little slow.
This is the other case: no draft length, acceptance or batch explains the figure, and the place to
look is the engine's path (a kernel that falls back, passes without graphs, a starved host).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from specsim.analysis.arms import Arm
from specsim.analysis.constants import Constants
from specsim.analysis.curves import pair, service_at_rates
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import closed_loop
from specsim.schema.case import Case, CasePoint
from specsim.validation.signs import measured_speedup

ADVICE = "measured below the bound: look at the engine path"
MARGIN = 2.0
"""With a known acceptance: how many times the slow end of the predicted step is beyond physics."""


def acceptance_is_known(case: Case, point: CasePoint) -> bool:
    """Whether the source states the acceptance of a point, so that its tokens per step are known.

    A bundled profile, or an acceptance that the case lists as assumed, is somebody else's text.
    """
    if point.acceptance_length is not None:
        return True
    given = case.scenario.speculation.acceptance
    assumed = any(name.startswith("speculation.acceptance") for name in case.assumed)
    return given is not None and given.profile is None and not assumed


def is_below_bound(
    deployment: Deployment,
    point: CasePoint,
    load: float,
    *,
    acceptance_known: bool,
    constants: Constants,
) -> bool:
    """Whether the speed with speculation is below the bound, absolutely or against the other arm.

    Parameters
    ----------
    constants : Constants
        Samples, of which the slow tenth is the bound.

    Notes
    -----
    With a known acceptance a speed gives the time of a step, B tokens / speed. The measurement is
    below the bound where that is more than twice the 90th percentile of the predicted step. With
    an assumed one, where it is slower than the 10th percentile at one token per step: that is what
    speculation costs if no draft is ever accepted.
    """
    arms = pair(deployment, constants)
    on, margin = arms.speculative, MARGIN
    if not acceptance_known:
        nothing = np.ones_like(np.asarray(on.tokens_per_step, dtype=float))
        lengths = None if on.lengths is None else np.ones_like(np.asarray(on.lengths))
        on, margin = on.with_acceptance(tokens_per_step=nothing, lengths=lengths), 1.0
        arms = replace(arms, speculative=on)
    loads = np.array([load])
    ratio = measured_speedup(point)
    if ratio is not None and ratio < _slow_end(arms.speedup(loads)) / margin:
        return True
    speed = _measured_speed(point)
    return speed is not None and speed < _slow_end(_speeds(on, deployment, point, loads)) / margin


def _measured_speed(point: CasePoint) -> float | None:
    """Return tokens/s of all requests, or of one where only its time per token was measured."""
    on = point.measured.speculative
    if on is None:
        return None
    if point.request_rate is None and on.output_tok_s:
        return on.output_tok_s
    return 1e3 / on.tpot_ms if on.tpot_ms else None


def _speeds(arm: Arm, deployment: Deployment, point: CasePoint, loads: np.ndarray) -> np.ndarray:
    """Return samples of what `_measured_speed` measures."""
    workload = deployment.scenario.workload
    if point.request_rate is not None:
        return np.asarray(1.0 / service_at_rates(arm, workload, loads)[0].tpot_s)
    service = closed_loop(arm, workload, loads)
    on = point.measured.speculative
    if on is not None and on.output_tok_s:
        return np.asarray(service.output_tokens_per_s)
    return np.asarray(1.0 / service.tpot_s)


def _slow_end(samples: np.ndarray) -> float:
    """Return the 10th percentile; 0 (nothing is below it) where a sample cannot be served."""
    return float(np.percentile(np.nan_to_num(samples, nan=0.0), 10.0))
