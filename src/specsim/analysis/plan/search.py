"""The largest load at which one replica keeps a promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from specsim.analysis.overlay import Overlay
from specsim.analysis.resolve import Deployment
from specsim.schema.plan import PlanArm, Reached
from specsim.schema.simulation import ArmSimulation
from specsim.schema.slo import Metric, Slo

TOLERANCE = 0.005
"""The load is found to this share, from below. Percentiles of some thousand requests, and the
constants behind them, are known no better than some per cent; but all loads are found with the same
requests, and a coarser search would add its own jumps to what differs between them."""
_LADDER = (0.8, 0.4, 0.2, 0.1, 0.05, 0.01)
"""Of the stable rate, tried until one is kept: what even the last misses, every load misses. From
above, since most promises bind near saturation and a nearly idle replica takes a simulation
longest: as many steps for fewer requests in each."""
_ATTAINMENT = "attainment_pct"


class LoadTest(Protocol):
    """One replica of a deployment, with the same requests at every rate."""

    def stable_rate(self, arm: PlanArm, /) -> float:
        """Return the rate beyond which the queue grows. [requests/s]."""

    def at_rate(self, arm: PlanArm, request_rate: float, /) -> ArmSimulation:
        """Simulate one replica at a rate [requests/s]."""


LoadTestFactory = Callable[[Deployment, Overlay, Slo], LoadTest]


@dataclass(frozen=True)
class LoadAtSlo:
    """The end of a search."""

    request_rate: float
    """0: even almost no load misses the SLO. [requests/s]"""
    stable_rate: float
    output_tok_s: float
    n_refused: int
    """Requests of the test that the server does not take: too long for it."""
    reached: tuple[Reached, ...]
    """The targets at that load; at almost none if that misses."""
    binding: Reached | None
    """The target missed by most at the least load that is too much; None: capacity."""
    simulations: int


def load_at_slo(test: LoadTest, arm: PlanArm, slo: Slo) -> LoadAtSlo:
    """Find the largest rate at which one replica meets the SLO.

    Notes
    -----
    Latencies rise with the rate, so the answer is bracketed from above, below the rate that the
    closed form holds for stable, and bisected until the bracket is 0.5 % wide.
    """
    stable = test.stable_rate(arm)
    high, binding, simulations = stable, None, 0
    for share in _LADDER:
        low = share * stable
        best = test.at_rate(arm, low)
        simulations += 1
        reached = judged(best, slo)
        if _kept(best, reached):
            break
        high, binding = low, worst(reached)
    else:
        return LoadAtSlo(
            0.0, stable, best.output_tok_s, best.rejected, reached, binding, simulations
        )
    while high - low > TOLERANCE * high:
        rate = 0.5 * (low + high)
        tried = test.at_rate(arm, rate)
        simulations += 1
        found = judged(tried, slo)
        if _kept(tried, found):
            low, best, reached = rate, tried, found
        else:
            high, binding = rate, worst(found)
    return LoadAtSlo(low, stable, best.output_tok_s, best.rejected, reached, binding, simulations)


def _kept(simulation: ArmSimulation, reached: tuple[Reached, ...]) -> bool:
    return not simulation.overloaded and all(r.met for r in reached)


def judged(simulation: ArmSimulation, slo: Slo) -> tuple[Reached, ...]:
    """Hold a simulation against every target."""
    found = [
        _latency(t.name, _statistic(simulation, t.metric, t.statistic), t.at_most_ms)
        for t in slo.targets
    ]
    required = slo.required_attainment_pct
    if required is not None:
        found.append(_attained(100.0 * (simulation.attainment or 0.0), required))
    return tuple(found)


def worst(reached: tuple[Reached, ...]) -> Reached | None:
    """Return the target that is missed by most; None if none is missed."""
    missed = [r for r in reached if not r.met]
    return max(missed, key=lambda r: r.excess, default=None)


def _statistic(simulation: ArmSimulation, metric: Metric, name: str) -> float:
    return float(getattr(simulation, f"{metric}_ms").statistic(name))


def _latency(name: str, value: float, limit: float) -> Reached:
    # Answers of one token have no time per token, and none that is too long.
    excess = 0.0 if math.isnan(value) else value / limit
    return Reached(name, value, limit, excess <= 1.0, excess)


def _attained(value: float, asked: float) -> Reached:
    misses, allowed = 100.0 - value, 100.0 - asked
    met = value >= asked
    excess = misses / allowed if allowed > 0 else 0.0 if met else 1.0 + misses
    return Reached(_ATTAINMENT, value, asked, met, excess)


def metric_of(reached: Reached) -> str:
    """Return ttft, tpot, itl, e2e or attainment."""
    return reached.target.partition("_")[0]
