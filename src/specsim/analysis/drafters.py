"""Every way of drafting for a target beside the others, at one load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specsim.analysis.constants import Constants
from specsim.analysis.crossover import find_crossover
from specsim.analysis.curves import Pair, pair
from specsim.analysis.drafting import most_tokens
from specsim.analysis.points import build_points
from specsim.analysis.predict import kv_result
from specsim.analysis.prepare import N_SAMPLES, SEED, prepared
from specsim.analysis.resolve import Deployment
from specsim.analysis.warnings import late_warnings
from specsim.analysis.ways import Way
from specsim.errors import SpecsimError, UsageError
from specsim.physics import acceptance as law
from specsim.schema.calibration import Calibration
from specsim.schema.model import DrafterSpec
from specsim.schema.results import AcceptanceResult, BestK, KvResult, Point
from specsim.schema.scenario import Load, Scenario

Array = npt.NDArray[np.float64]

_STEPS, _SEARCHED_K = 200, 8
"""Steps of the per-token rate in which break-even is looked for, and most draft tokens tried:
those of `predict`."""


@dataclass(frozen=True)
class DrafterResult:
    """What a way of drafting does at a load, and what it costs."""

    way: Way
    """What is compared."""
    k: int
    """Draft tokens per step [tokens]."""
    acceptance: AcceptanceResult
    """Acceptance under each of its names."""
    point: Point
    """Both arms at the load."""
    speedup_at_one: float
    """On / off with one request in flight."""
    low_at_one: float
    """10th percentile."""
    high_at_one: float
    """90th percentile."""
    kv: KvResult
    """Memory off and on."""
    crossover: float | None
    """Load at which the gain turns into a loss; null: none."""
    crossover_state: str
    """Always, never or crosses, within what was searched."""
    break_even_length: float | None
    """Tokens per step at which it is worth nothing at the load; null: none is enough [tokens]."""
    best_k: int
    """Draft tokens that serve the load fastest; 0 is off [tokens]."""
    best_k_speedup: float
    """On / off with those."""
    warnings: tuple[str, ...]
    """What to know before trusting this."""


def compare_drafters(
    found: Sequence[Way],
    *,
    load: float,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> tuple[tuple[DrafterResult, ...], tuple[Way, ...]]:
    """Predict ways at a load: those that run here, fastest first, and those that do not.

    Parameters
    ----------
    found : sequence of Way
        As `ways` returns them.
    load : float
        Requests in flight, or arriving per second where the scenario's load is a rate.
    calibration : Calibration or path, optional
        As for `predict`.
    """
    results, refused = [], []
    for way in found:
        if way.scenario is None:
            refused.append(way)
            continue
        try:
            results.append(_result(way, way.scenario, load, search, calibration))
        except SpecsimError as problem:
            refused.append(replace(way, reason=str(problem)))
    results.sort(key=lambda r: -(r.point.speedup or 0.0))
    return tuple(results), tuple(refused)


def _result(
    way: Way,
    scenario: Scenario,
    load: float,
    search: Sequence[Path],
    calibration: Calibration | Path | str | None,
) -> DrafterResult:
    is_open = scenario.load.request_rate is not None
    at = Load(request_rate=(load,)) if is_open else Load(concurrency=(load,))
    scenario = scenario.model_copy(update={"load": at})
    deployment, laid = prepared(scenario, search, calibration)
    if deployment.acceptance is None:
        raise UsageError(f"{way.label}: nothing is drafted; name a speculation method")
    arms = pair(deployment, laid.point())
    sampled = pair(deployment, laid.sampled(N_SAMPLES, SEED))
    loads = np.array([load])
    searched = arms.searched_loads()
    if is_open:
        here = _gains(arms, sampled, loads)
        closed = replace(arms, is_open=False), replace(sampled, is_open=False)
        at_one = _gains(*closed, np.array([1.0]))
    else:
        # One evaluation of all loads costs little more than one of a single load.
        both = np.concatenate([loads, [1.0]])
        here, at_one = (g[:, None] for g in _gains(arms, sampled, both).T)
    gains = arms.speedup(searched)
    gain, low, high = here
    (point,) = build_points(
        deployment, arms.baseline, arms.speculative, loads, speedup=gain, low=low, high=high
    )
    best = _best_k(deployment, laid.point(), loads)
    sharp_loads, sharp = arms.sharpened(searched, gains)
    found = find_crossover(sharp_loads, sharp, sharp[None, :], sharp_loads)
    return DrafterResult(
        way=way,
        k=deployment.num_speculative_tokens,
        acceptance=deployment.acceptance.result(),
        point=point,
        speedup_at_one=float(at_one[0, 0]),
        low_at_one=float(at_one[1, 0]),
        high_at_one=float(at_one[2, 0]),
        kv=kv_result(scenario, search=search),
        crossover=found.load,
        crossover_state=found.state,
        break_even_length=_break_even_length(deployment, arms, loads),
        best_k=best.k,
        best_k_speedup=best.speedup,
        warnings=deployment.warnings + late_warnings(deployment, arms),
    )


def _gains(arms: Pair, sampled: Pair, loads: Array) -> Array:
    """Return on / off at loads with its 10th and 90th percentile, which hold it: three rows."""
    gain, samples = arms.speedup(loads), sampled.speedup(loads)
    # Samples in which the off arm cannot serve the rate have no ratio and say nothing.
    known = np.where(np.all(np.isnan(samples), axis=0), 0.0, samples)
    low, high = np.nanpercentile(known, [10.0, 90.0], axis=0)
    return np.stack([gain, np.minimum(low, gain), np.maximum(high, gain)])


def _break_even_length(deployment: Deployment, arms: Pair, load: Array) -> float | None:
    """Return the tokens per step at which a load is served as fast as without."""
    acceptance = deployment.acceptance
    assert acceptance is not None
    k, proposal = deployment.num_speculative_tokens, acceptance.proposal_rate
    # The gain rises with acceptance: find the tenth in which it passes 1, then look closer.
    rates = np.linspace(0.0, 1.0, _STEPS // 10 + 1)
    for _ in range(2):
        gain = arms.at_rates(rates, k, proposal).speedup(load)[:, 0]
        if not np.any(gain >= 1.0):
            return None
        i = int(np.argmax(gain >= 1.0))
        if i == 0:
            rate = rates[0]
            break
        rate = np.interp(1.0, gain[i - 1 : i + 1], rates[i - 1 : i + 1])
        rates = np.linspace(rates[i - 1], rates[i], 11)
    drafting = law.chain_length(rate, float(k))
    return float(law.over_all_steps(drafting_length=drafting, proposal_rate=proposal))


def _best_k(deployment: Deployment, constants: Constants, load: Array) -> BestK:
    """Return the draft tokens that serve a load fastest; a tree is compared with off only."""
    k, drafter = deployment.num_speculative_tokens, deployment.drafter
    most = most_tokens(drafter) if isinstance(drafter, DrafterSpec) else None
    largest = max(_SEARCHED_K, k) if most is None else min(max(_SEARCHED_K, k), most)
    ks = np.arange(1, largest + 1)
    if deployment.scenario.speculation.tree is not None:
        ks = np.array([k])
    gain = pair(deployment, constants, k=ks[:, None].astype(float)).speedup(load)[:, 0]
    gain = np.where(np.isfinite(gain), gain, 0.0)
    i = int(np.argmax(gain))
    if gain[i] <= 1.0:
        return BestK(float(load[0]), 0, 1.0)
    return BestK(float(load[0]), int(ks[i]), float(gain[i]))
