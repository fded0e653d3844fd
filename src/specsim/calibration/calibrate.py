"""Measured runs in, a calibration and what it is worth out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from specsim._version import __version__
from specsim.analysis.constants import shipped_discrepancy
from specsim.analysis.curves import pair
from specsim.analysis.overlay import overlay, scope_of, with_counted_acceptance
from specsim.analysis.resolve import Deployment
from specsim.calibration.acceptance import counted_acceptance
from specsim.calibration.advise import Advisor
from specsim.calibration.fit import Fit, fit
from specsim.calibration.fit_report import (
    correlations,
    fit_rows,
    fitted_parameter,
    parameter_report,
)
from specsim.calibration.held_out import held_out, runs_per_speedup
from specsim.calibration.left_out import LeftOutFits, leave_one_load_out
from specsim.calibration.model import RunModel
from specsim.calibration.parameters import fit_parameters
from specsim.calibration.remarks import (
    few_runs,
    mixed_acceptance,
    no_fit,
    other_cache,
    outliers,
    verdict,
)
from specsim.calibration.rows import matching_rows
from specsim.calibration.runs import Run, usable_runs
from specsim.catalog.calibration import load_rules
from specsim.errors import CalibrationError, UsageError
from specsim.measure.read import read_measurements
from specsim.schema.calibration import (
    Calibration,
    CalibrationReport,
    CalibrationTraffic,
    Doubt,
    FitSpeedup,
    FittedRun,
    HeldOutCrossover,
)
from specsim.schema.measurement import Measurements
from specsim.schema.scenario import Load, Scenario


def calibrate(
    scenario: Scenario,
    measurements: Measurements | Iterable[Path | str] | Path | str,
    *,
    search: Sequence[Path] = (),
    suggest: int = 3,
    hold_out: Sequence[float] = (),
    hold_out_k: Sequence[int] = (),
) -> CalibrationReport:
    """Fit the constants of a deployment to measured runs.

    Parameters
    ----------
    scenario : Scenario
        What was measured: model, device, engine, drafter. Loads and acceptance come from the runs.
    measurements : Measurements, or paths
        Read rows, or files and folders to read.
    suggest : int
        Runs to name that would narrow the crossover most.
    hold_out : sequence of float
        Loads that are kept from the fit and predicted by it: a test.
    hold_out_k : sequence of int
        The same for draft tokens per step.

    Raises
    ------
    CalibrationError
        No run can be used, or the runs speculate and the scenario does not.

    References
    ----------
    docs/calibration.md
    """
    if not isinstance(measurements, Measurements):
        measurements = read_measurements(measurements)
    rows, doubts, warnings = matching_rows(measurements.rows, scenario, search=search)
    counted = counted_acceptance(rows, method=scenario.speculation.method)
    scenario, _ = with_counted_acceptance(scenario, counted)
    every, more = usable_runs(rows, scenario, left_out=doubts)
    whole = RunModel(every, scenario, search=search)
    every, unserved = _served(whole)
    if unserved:
        more = (*more, *unserved)
        whole = RunModel(every, scenario, search=search)
    kept = _kept(every, hold_out, hold_out_k)
    unseen = [i for i in range(len(every)) if i not in kept]
    model = whole.only(kept)
    runs = model.runs
    deployments = [model.deployment(k) for k in sorted({r.k for r in runs})]
    parameters = fit_parameters(deployments)
    best = fit(model, parameters)
    left = leave_one_load_out(model, best)
    advisor = Advisor.of(model, best, scenario)
    reports = tuple(
        parameter_report(best, i, advisor.would_tell(p.name)) for i, p in enumerate(parameters)
    )
    calibration = Calibration(
        created=dt.date.today(),
        specsim=__version__,
        scope=scope_of(_speculating(deployments)),
        parameters=tuple(fitted_parameter(best, i) for i in range(len(parameters))),
        covariance=tuple(tuple(float(v) for v in row) for row in best.covariance),
        run_log_sd=best.run_sd,
        speedup_log_sd=_speedup_spread(model, best, left, deployments[0]),
        traffic=_traffic(model),
        acceptance=counted,
        left_out=left.errors,
        runs=tuple(_fitted_run(r) for r in runs),
    )
    speedups, crossovers = _speedups(model, best, calibration)
    return CalibrationReport(
        calibration=calibration,
        parameters=reports,
        correlations=correlations(best),
        rows=fit_rows(model, best, left, range(len(runs))),
        speedups=speedups,
        crossovers=crossovers,
        verdict=verdict(calibration),
        held_out=held_out(whole, best, unseen, lambda members: fit_rows(whole, best, None, members))
        if unseen
        else None,
        doubts=(*doubts, *more, *outliers(model, best)),
        suggestions=advisor.suggest(suggest),
        warnings=(
            *warnings,
            *few_runs(runs),
            *mixed_acceptance(rows),
            *no_fit(calibration),
            *other_cache(rows, scenario, search),
        ),
    )


def _served(model: RunModel) -> tuple[tuple[Run, ...], tuple[Doubt, ...]]:
    """Leave out rates beyond what the model can serve, of which it has nothing to say.

    Raises
    ------
    CalibrationError
        No other runs are there.
    """
    fine = np.isfinite(model.predict({}).tpot_s[0])
    kept = tuple(r for r, ok in zip(model.runs, fine, strict=True) if ok)
    if not kept:
        raise CalibrationError(
            "all runs have request rates above what the model can serve, and none says how many "
            "requests it held: give its duration and E2E times, or rates below"
        )
    reason = "its rate is above what the model serves, and nothing says what it held"
    return kept, tuple(
        Doubt(r.source, False, reason) for r, ok in zip(model.runs, fine, strict=True) if not ok
    )


def _speedup_spread(model: RunModel, best: Fit, left: LeftOutFits, deployment: Deployment) -> float:
    """Return the spread of a speedup about its prediction: of left-out loads, less their noise."""
    found = left.errors.speedup_log_sd
    if found is None:
        return shipped_discrepancy(assumed=bool(deployment.assumed_blocks))
    noise = best.run_sd**2 * runs_per_speedup(model)
    return float(np.sqrt(max(found**2 - noise, load_rules().least_speedup_sd ** 2)))


def _traffic(model: RunModel) -> CalibrationTraffic:
    inputs = [r.input_tokens for r in model.runs]
    outputs = [r.output_tokens for r in model.runs]
    arms: tuple[Literal["off", "on"], ...] = ("off", "on")
    lockstep = tuple(
        arm
        for arm in arms
        if any(
            r.arm == arm and r.load > 1 and share >= 1.0
            for r, share in zip(model.runs, model.burst_share, strict=True)
        )
    )
    return CalibrationTraffic(
        input_tokens=(min(inputs), max(inputs)),
        output_tokens=(min(outputs), max(outputs)),
        lockstep=lockstep,
    )


def _speedups(
    model: RunModel, best: Fit, calibration: Calibration
) -> tuple[tuple[FitSpeedup, ...], tuple[HeldOutCrossover, ...]]:
    """Return speedups of the runs: measured, fitted, and as `predict` would say them."""
    seen = held_out(model, best, range(len(model.runs)), lambda members: ())
    predicted: dict[tuple[int, bool, float], float] = {}
    for k, is_open in sorted({(r.k, r.is_open) for r in model.runs if r.k}):
        deployment = model.deployment(k)
        loads = np.array(sorted({r.load for r in model.runs if (r.k, r.is_open) == (k, is_open)}))
        load = Load(request_rate=tuple(loads)) if is_open else Load(concurrency=tuple(loads))
        asked = deployment.scenario.model_copy(update={"load": load})
        constants = overlay(deployment, calibration).point()
        found = pair(replace(deployment, scenario=asked), constants).speedup(loads)
        predicted |= {
            (k, is_open, x): y for x, y in zip(loads.tolist(), found.tolist(), strict=True)
        }
    rows = tuple(
        FitSpeedup(
            s.num_speculative_tokens,
            s.load,
            s.measured,
            s.predicted,
            _finite(predicted.get((s.num_speculative_tokens, s.is_rate, s.load))),
        )
        for s in seen.speedups
    )
    return rows, seen.crossovers


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


def _speculating(deployments: Sequence[Deployment]) -> Deployment:
    return next((d for d in deployments if d.method != "none"), deployments[0])


def _kept(runs: Sequence[Run], loads: Sequence[float], ks: Sequence[int]) -> list[int]:
    """Return the runs to fit: those of no load and no k that is held out.

    Raises
    ------
    UsageError
        What is to be held out was not measured, or nothing is left.
    """
    kept = [i for i, r in enumerate(runs) if r.load not in loads and r.k not in ks]
    for flag, asked, measured in (
        ("--hold-out", loads, sorted({r.load for r in runs})),
        ("--hold-out-k", ks, sorted({r.k for r in runs if r.k})),
    ):
        unknown = [x for x in asked if x not in measured]
        if unknown or (asked and not kept):
            what = f"{unknown[0]:g} was not measured" if unknown else "nothing is left to fit on"
            raise UsageError(
                f"{flag}: {what}; measured: {', '.join(f'{x:g}' for x in measured) or 'none'}"
            )
    return kept


def _fitted_run(run: Run) -> FittedRun:
    return FittedRun(
        source=run.source,
        arm=run.arm,
        num_speculative_tokens=run.k,
        concurrency=None if run.is_open else run.load,
        request_rate=run.load if run.is_open else None,
    )
