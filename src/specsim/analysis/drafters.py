"""Every way of drafting for a target beside the others, at one load."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.analysis.best_k import best_k
from specsim.analysis.break_even import lengths_at, over_acceptance
from specsim.analysis.constants import Constants
from specsim.analysis.crossover import find_crossover
from specsim.analysis.curves import Pair, band, pair
from specsim.analysis.points import build_points
from specsim.analysis.predict import kv_of
from specsim.analysis.prepare import N_SAMPLES, SEED, prepared
from specsim.analysis.resolve import Deployment
from specsim.analysis.warnings import late_warnings
from specsim.analysis.ways import Way
from specsim.errors import SpecsimError, UsageError
from specsim.schema.calibration import Calibration
from specsim.schema.results import AcceptanceResult, Crossover, KvResult, Point
from specsim.schema.scenario import Load, Scenario

Array = npt.NDArray[np.float64]


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


@dataclass(frozen=True)
class Standing:
    """What a way of drafting does whatever the load: worked out once, asked at many loads."""

    deployment: Deployment
    constants: Constants
    arms: Pair
    sampled: Pair
    at_one: Array
    """On / off with one request in flight, and its band."""
    crossover: Crossover
    kv: KvResult
    at_loads: dict[float, DrafterResult] = field(default_factory=dict, compare=False, repr=False)
    """What was asked of it."""


OffArms = dict[tuple[float, float, frozenset[str]], tuple[dict[Any, Any], dict[Any, Any]]]
"""What off arms do, at best values and in samples, by the calibration that is laid over them."""


def compare_drafters(
    found: Sequence[Way],
    *,
    load: float,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
    stand: Callable[[Scenario], Standing] | None = None,
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
    stand : callable, optional
        `standing` as the caller keeps it; absent: worked out here.
    """
    without: OffArms = {}
    stand = stand or functools.partial(
        standing, search=search, calibration=calibration, without=without
    )
    results, refused = [], []
    for way in found:
        if way.scenario is None:
            refused.append(way)
            continue
        try:
            stands = stand(way.scenario)
            if load not in stands.at_loads:
                stands.at_loads[load] = _result(way, stands, load)
            results.append(replace(stands.at_loads[load], way=way))
        except SpecsimError as problem:
            refused.append(replace(way, reason=str(problem)))
    results.sort(key=lambda r: -(r.point.speedup or 0.0))
    return tuple(results), tuple(refused)


def standing(
    scenario: Scenario,
    *,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
    without: OffArms,
) -> Standing:
    """Return what a way of drafting does whatever the load.

    Parameters
    ----------
    without : dict
        What off arms do, kept for the next way of the same target and traffic: the target alone
        is the same whatever drafts for it, but for a calibration, which lays itself over the off
        arm in the measure in which it is of this method.

    Raises
    ------
    SpecsimError
        It does not run here.
    """
    deployment, laid = prepared(scenario, search, calibration)
    if deployment.acceptance is None:
        raise UsageError("nothing is drafted; name a speculation method")
    key = (laid.widening, laid.shipped_spread, laid.fixed)
    point, samples = without.setdefault(key, ({}, {}))
    constants = laid.point()
    arms = replace(pair(deployment, constants), without=point)
    sampled = replace(pair(deployment, laid.sampled(N_SAMPLES, SEED)), without=samples)
    searched, one = arms.searched_loads(), np.ones(1)
    if arms.is_open:
        closed, closed_sampled = (replace(p, is_open=False) for p in (arms, sampled))
        at_one = _with_band(closed.speedup(one), closed_sampled.speedup(one))
        gains = arms.speedup(searched)
    else:
        # One evaluation of all loads costs little more than one of a single load.
        gains = arms.speedup(np.concatenate([one, searched]))
        at_one, gains = _with_band(gains[:1], sampled.speedup(one)), gains[1:]
    loads, sharp = arms.sharpened(searched, gains)
    return Standing(
        deployment=deployment,
        constants=constants,
        arms=arms,
        sampled=sampled,
        at_one=at_one,
        crossover=find_crossover(loads, sharp, sharp[None, :], loads),
        kv=kv_of(deployment),
    )


def _result(way: Way, stands: Standing, load: float) -> DrafterResult:
    arms, loads = stands.arms, np.array([load])
    at = Load(request_rate=(load,)) if arms.is_open else Load(concurrency=(load,))
    scenario = stands.deployment.scenario.model_copy(update={"load": at})
    deployment = replace(stands.deployment, scenario=scenario)
    assert deployment.acceptance is not None, "the deployment speculates"
    gain = arms.speedup(loads)
    low, high = band(gain, stands.sampled.speedup(loads))
    (point,) = build_points(
        deployment, arms.baseline, arms.speculative, loads, speedup=gain, low=low, high=high,
        curves=arms.open_loops if arms.is_open else (None, None),
    )  # fmt: skip
    (best,) = best_k(deployment, stands.constants, arms, loads)
    return DrafterResult(
        way=way,
        k=deployment.num_speculative_tokens,
        acceptance=deployment.acceptance.result(),
        point=point,
        speedup_at_one=float(stands.at_one[0, 0]),
        low_at_one=float(stands.at_one[1, 0]),
        high_at_one=float(stands.at_one[2, 0]),
        kv=stands.kv,
        crossover=stands.crossover.load,
        crossover_state=stands.crossover.state,
        break_even_length=_break_even_length(deployment, arms, loads),
        best_k=best.k,
        best_k_speedup=best.speedup,
        warnings=deployment.warnings + late_warnings(deployment, arms),
    )


def _with_band(gain: Array, samples: Array) -> Array:
    """Return on / off at loads over the ends of its band: three rows."""
    return np.stack([gain, *band(gain, samples)])


def _break_even_length(deployment: Deployment, arms: Pair, load: Array) -> float | None:
    """Return the tokens per step at which a load is served as fast as without."""
    model, k = deployment.acceptance, deployment.num_speculative_tokens
    assert model is not None
    (rate,) = over_acceptance(arms, load, k=k, proposal_rate=model.proposal_rate).even
    return None if rate is None else float(lengths_at(model, np.asarray(rate), k)[0])
