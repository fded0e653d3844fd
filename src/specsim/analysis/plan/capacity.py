"""The load that one replica holds at an SLO, of both arms and over acceptance lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specsim.analysis.overlay import Overlay
from specsim.analysis.plan.search import LoadAtSlo, load_at_slo
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import open_loop
from specsim.analysis.simulation.load_test import load_test
from specsim.analysis.simulation.simulate import served_arms
from specsim.schema.plan import PlanArm, Reached
from specsim.schema.slo import Slo

SUSTAINED = "largest stable rate, closed form"
LOAD_TESTED = "load tests, simulated"


@dataclass(frozen=True)
class Capacity:
    """The largest rate of one replica at one acceptance length."""

    arm: PlanArm
    acceptance_length: float
    request_rate: float
    """0: no rate keeps the promise. [requests/s]"""
    binding: str
    """What forbids more: a target of the SLO, or capacity."""
    basis: str
    reached: tuple[Reached, ...]
    """The targets at that rate."""


def capacities(
    deployment: Deployment,
    laid: Overlay,
    slo: Slo,
    *,
    lengths: Sequence[float] = (),
    given: float | None = None,
    num_requests: int,
    seed: int,
) -> tuple[Capacity, ...]:
    """Return what a replica holds with speculation off, and on at each acceptance length.

    Parameters
    ----------
    lengths : sequence of float
        Of the arm with speculation; none: there is no such arm. [tokens]
    given : float, optional
        Which of them is the scenario's own: its acceptance is taken as it was given, in all
        positions; at the others its method's law has only the length.

    Notes
    -----
    With an SLO, the search of `specsim plan` on the same requests; without, the rate beyond which
    the closed form says that the queue grows.
    """
    found = [_capacity(deployment, laid, slo, "baseline", 1.0, num_requests, seed)]
    for length in lengths:
        at = deployment if length == given else _with_length(deployment, length)
        found.append(_capacity(at, laid, slo, "speculative", length, num_requests, seed))
    return tuple(found)


def _with_length(deployment: Deployment, length: float) -> Deployment:
    model = deployment.acceptance
    assert model is not None, "the deployment speculates"
    drafting = 1.0 + (length - 1.0) / model.proposal_rate
    return replace(
        deployment,
        acceptance=replace(model, known=None, rate=None, length=drafting, length_k=model.k),
    )


def _capacity(
    deployment: Deployment,
    laid: Overlay,
    slo: Slo,
    arm: PlanArm,
    length: float,
    num_requests: int,
    seed: int,
) -> Capacity:
    if slo.is_empty():
        served = served_arms(deployment, laid.point())[arm].arm
        curve = open_loop(served, deployment.scenario.workload)
        rate = float(np.max(curve.largest_stable_rate))
        return Capacity(arm, length, rate, curve.limited_by, SUSTAINED, ())
    test = load_test(deployment, laid, slo, num_requests=num_requests, seed=seed)
    load: LoadAtSlo = load_at_slo(test, arm, slo)
    binding = load.binding.target if load.binding else "capacity"
    return Capacity(arm, length, load.request_rate, binding, LOAD_TESTED, load.reached)
