"""What an answer hangs on: one factor moved at a time, by the closed form (a tornado chart)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from specsim.analysis.prepare import prepared
from specsim.analysis.resolve import Deployment
from specsim.analysis.sensitivity_factors import Factor, Study, factors, figures_of
from specsim.catalog.hardware import price_usd_per_gpu_hour
from specsim.errors import UsageError
from specsim.schema.calibration import Calibration
from specsim.schema.prices import LEAST_USD, MOST_USD
from specsim.schema.scenario import Scenario
from specsim.schema.sensitivity import Sensitivity, SensitivityPoint
from specsim.schema.traffic import Traffic

_ORDER = (("usd_per_mtok_off", "usd_per_mtok_on"), ("speedup",), ("replicas_off", "replicas_on"))


def sensitivity(
    scenario: Scenario,
    *,
    traffic: Traffic | None = None,
    load: float | None = None,
    capacity_qps: tuple[float | None, float | None] | None = None,
    usd_per_gpu_hour: float | None = None,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> tuple[Sensitivity, ...]:
    """Move one factor at a time between its low and its high, the largest swing first.

    Parameters
    ----------
    traffic : Traffic, optional
        Sizes the fleets; without it replicas are None and the peak factor is not moved.
    load : float, optional
        Concurrency or request rate of speedup and price; absent: the middle of the scenario's
        loads.
    capacity_qps : (off, on), optional
        Load of one replica at the SLO, by arm; None for an arm that has none. Absent: the closed
        form's largest stable rate. [requests/s]
    usd_per_gpu_hour : float, optional
        Absent: the price of the hardware profile; without either, prices are None.
    search, calibration
        As for `predict`.

    Returns
    -------
    tuple of Sensitivity
        By the relative change of the price of a token, then of the speedup, then of the fleet. A
        load that an arm no longer serves is the largest change there is.

    Raises
    ------
    SpecsimError
        One line saying what is wrong and what to do.

    Notes
    -----
    Assumed: where a factor moves a replica's largest stable rate, its load at the SLO moves by the
    same ratio. Longer prompts keep the share of them that is cached. With another acceptance the
    hits, or the misses, of all draft positions change by one factor. Limits that follow from the
    scenario as it is, such as the longest context, stay.
    """
    deployment, laid = prepared(scenario, search, calibration)
    load = _load(deployment, load)
    for qps in capacity_qps or ():
        if qps is not None and not 0 < qps < math.inf:
            raise UsageError(f"capacity_qps: got {qps:g}; expected requests/s above 0, or None")
    price = price_usd_per_gpu_hour(deployment.hardware)
    if usd_per_gpu_hour is not None:
        price = usd_per_gpu_hour
        if not LEAST_USD <= price <= MOST_USD:
            raise UsageError(
                f"usd_per_gpu_hour: got {price:g}; expected {LEAST_USD:g} to {MOST_USD:,.0f}"
            )
    study = Study(
        deployment=deployment,
        laid=laid,
        load=load,
        figures=figures_of(deployment, laid.point(), load),
        traffic=traffic,
        usd_per_gpu_hour=price,
        capacity_qps=capacity_qps,
    )
    base = study.point()
    moved = [_moved(factor, base, load) for factor in factors(study, usd_per_gpu_hour is not None)]
    return tuple(sorted(moved, key=_swing, reverse=True))


def _load(deployment: Deployment, load: float | None) -> float:
    given = deployment.scenario.load
    if load is None:
        loads = sorted(set(given.concurrency or given.request_rate or ()))
        return float(loads[len(loads) // 2])
    if given.concurrency is not None and not 1.0 <= load < math.inf:
        raise UsageError(f"load: got {load:g}; expected a concurrency of 1 or more")
    if not 0.0 < load < math.inf:
        raise UsageError(f"load: got {load:g}; expected a request rate above 0 [requests/s]")
    return float(load)


def _moved(factor: Factor, base: SensitivityPoint, load: float) -> Sensitivity:
    low, high = (
        base if value == factor.base else factor.at(value) for value in (factor.low, factor.high)
    )
    return Sensitivity(
        factor=factor.id,
        unit=factor.unit,
        low=factor.low,
        base=factor.base,
        high=factor.high,
        why=factor.why,
        load=load,
        at_low=low,
        at_base=base,
        at_high=high,
    )


def _swing(found: Sensitivity) -> tuple[float, ...]:
    """Return the largest relative change of the price of a token, the speedup and the fleet."""
    points = (found.at_low, found.at_base, found.at_high)
    return tuple(
        max(_change([getattr(point, name) for point in points]) for name in names)
        for names in _ORDER
    )


def _change(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return math.inf if known else 0.0
    # Rounded, or the last bit of a figure that does not move would decide.
    return round((max(known) - min(known)) / known[1], 9)
