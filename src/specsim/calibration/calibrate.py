"""Measured runs in, a calibration and what it is worth out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from specsim._version import __version__
from specsim.analysis.curves import pair
from specsim.analysis.overlay import overlay, scope_of, with_counted_acceptance
from specsim.analysis.predict import kv_result
from specsim.analysis.resolve import Deployment
from specsim.calibration.acceptance import counted_acceptance
from specsim.calibration.advise import Advisor
from specsim.calibration.fit import Fit, fit
from specsim.calibration.held_out import held_out, runs_per_speedup
from specsim.calibration.left_out import LeftOutFits, leave_one_load_out, time_errors
from specsim.calibration.model import Predicted, RunModel
from specsim.calibration.parameters import fit_parameters
from specsim.calibration.rows import matching_rows
from specsim.calibration.runs import Run, usable_runs
from specsim.catalog.calibration import load_rules
from specsim.catalog.general import load_general
from specsim.errors import CalibrationError, InfeasibleError, UsageError
from specsim.measure.read import read_measurements
from specsim.schema.calibration import (
    Calibration,
    CalibrationReport,
    CalibrationTraffic,
    Correlation,
    Doubt,
    FitRow,
    FitSpeedup,
    FittedParameter,
    FittedRun,
    HeldOutCrossover,
    ParameterReport,
)
from specsim.schema.measurement import Measurement, Measurements
from specsim.schema.scenario import Load, Scenario
from specsim.units import MILLI

Array = npt.NDArray[np.float64]
_N_SAMPLES, _SEED = 256, 20260710
_Z975, _Z90 = 1.959963984540054, 1.2815515655446004
_STRONG = 0.8
_OTHER_CACHE = 0.05
_POOR = 0.12
"""Error of left-out speedups beyond which a calibration says the direction at best."""
_NO_FIT = 0.15
"""Scatter about the fit beyond which it explains nothing."""
_OUTLIER = 0.6
"""Weight that the robust loss leaves a run, below which it is named."""


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
        _parameter_report(best, i, advisor.would_tell(p.name)) for i, p in enumerate(parameters)
    )
    calibration = Calibration(
        created=dt.date.today(),
        specsim=__version__,
        scope=scope_of(_speculating(deployments)),
        parameters=tuple(_fitted(best, i) for i in range(len(parameters))),
        covariance=tuple(tuple(float(v) for v in row) for row in best.covariance),
        run_log_sd=best.run_sd,
        speedup_log_sd=_speedup_spread(model, best, left, deployments[0]),
        traffic=_traffic(model),
        acceptance=counted,
        left_out=left.errors,
        runs=tuple(_fitted_run(r) for r in runs),
    )
    speedups, crossovers = _speedups(model, best, calibration, scenario, search)
    return CalibrationReport(
        calibration=calibration,
        parameters=reports,
        correlations=_correlations(best),
        rows=_rows(model, best, left, range(len(runs))),
        speedups=speedups,
        crossovers=crossovers,
        verdict=_verdict(best, left),
        held_out=held_out(whole, best, unseen, lambda members: _rows(whole, best, None, members))
        if unseen
        else None,
        doubts=(*doubts, *more, *_outliers(model, best)),
        suggestions=advisor.suggest(suggest),
        warnings=(
            *warnings,
            *_few(runs),
            *_no_fit(best),
            *_other_cache(rows, scenario, search),
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
    rules, general = load_rules(), load_general()
    found = left.errors.speedup_log_sd
    if found is None:
        shipped = general.discrepancy_measured
        if deployment.assumed_blocks:
            shipped = general.discrepancy_assumed
        return shipped.value
    noise = best.run_sd**2 * runs_per_speedup(model)
    return float(np.sqrt(max(found**2 - noise, rules.least_speedup_sd**2)))


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
    model: RunModel, best: Fit, calibration: Calibration, scenario: Scenario, search: Sequence[Path]
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


def _verdict(best: Fit, left: LeftOutFits) -> str:
    """Say in a sentence whether to trust the calibration."""
    scatter = 100.0 * best.run_sd
    if best.run_sd >= _NO_FIT:
        return (
            f"do not use it: runs are off the fit by {scatter:.0f} %, so that the model does not "
            "explain them within what factors may be"
        )
    error = left.errors.speedup_log_sd
    if error is None:
        return "not tested: measure three loads or more in both arms, low and high"
    if error >= _POOR:
        return (
            f"poor: speedups at loads that it did not see are off by {100 * error:.0f} % (root "
            "mean square); use it for the direction only"
        )
    return (
        f"speedups between the measured loads are good to about {100 * error:.0f} % (root mean "
        f"square at loads left out); runs scatter {scatter:.0f} %"
    )


def _speculating(deployments: Sequence[Deployment]) -> Deployment:
    return next((d for d in deployments if d.method != "none"), deployments[0])


def _interval(fitted: Fit, i: int, z: float) -> tuple[float, float]:
    parameter, x, sd = fitted.parameters[i], fitted.x[i], fitted.sd[i]
    low, high = parameter.bounds
    return (
        float(parameter.factor(max(x - z * sd, low))),
        float(parameter.factor(min(x + z * sd, high))),
    )


def _fitted(fitted: Fit, i: int) -> FittedParameter:
    parameter = fitted.parameters[i]
    low, high = _interval(fitted, i, _Z975)
    return FittedParameter(
        name=parameter.name,
        scale=parameter.spec.scale,
        factor=float(parameter.factor(fitted.x[i])),
        low=low,
        high=high,
        prior_sd=parameter.prior_sd,
        identifiable=bool(fitted.identifiable[i]),
        at_bound=bool(fitted.at_bound[i]),
    )


def _parameter_report(fitted: Fit, i: int, would_tell: str) -> ParameterReport:
    parameter = fitted.parameters[i]
    one = _fitted(fitted, i)
    known = one.identifiable
    prior = [float(parameter.factor(z * parameter.prior_sd)) for z in (-_Z975, _Z975)]
    return ParameterReport(
        name=parameter.name,
        description=parameter.spec.description,
        factor=one.factor if known else None,
        low=one.low if known else None,
        high=one.high if known else None,
        value=parameter.value * one.factor if known and parameter.value is not None else None,
        unit=parameter.spec.unit,
        prior_low=prior[0],
        prior_high=prior[1],
        identifiable=known,
        at_most=parameter.value * one.high
        if fitted.limited[i] and parameter.value is not None
        else None,
        at_bound=one.at_bound,
        would_tell=would_tell,
    )


def _correlations(fitted: Fit) -> tuple[Correlation, ...]:
    """Return the pairs of told factors that the runs can hardly tell apart."""
    sd = fitted.sd
    matrix = fitted.covariance / np.outer(sd, sd)
    names = [p.name for p in fitted.parameters]
    return tuple(
        Correlation(names[i], names[j], float(matrix[i, j]))
        for i in range(len(names))
        for j in range(i + 1, len(names))
        if abs(matrix[i, j]) >= _STRONG
    )


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


def _rows(
    model: RunModel, fitted: Fit, left: LeftOutFits | None, members: Sequence[int]
) -> tuple[FitRow, ...]:
    """Return the rows of some runs; without `left`, of runs that the fit did not see."""
    point = model.predict(fitted.factors())
    samples = model.predict(fitted.samples(_N_SAMPLES, _SEED))
    noise = np.exp(
        np.random.default_rng([_SEED, *b"runs"]).standard_normal((_N_SAMPLES, len(model.runs)))
        * fitted.run_sd
    )
    low_high = {
        name: np.percentile(samples.of(name) * noise, [10.0, 90.0], axis=0)
        for name in ("tpot_s", "output_tok_s")
    }
    tpot, served = time_errors(model, point)
    errors = np.nanmean(np.stack([tpot, served]), axis=0)
    return tuple(
        _row(
            model.runs[i],
            i,
            point,
            low_high,
            residual_pct=float(100.0 * np.expm1(errors[i])),
            left_out_pct=None if left is None else left.residual_pct(i),
            weight=0.0 if left is None else float(fitted.weights[i]),
        )
        for i in members
    )


def _row(
    run: Run, i: int, point: Predicted, bands: dict[str, Array], *,
    residual_pct: float, left_out_pct: float | None, weight: float,
) -> FitRow:  # fmt: skip
    def ms(seconds: float | None) -> float | None:
        return None if seconds is None else seconds / MILLI

    served = None if run.is_open else float(point.output_tok_s[0, i])
    low, high = bands["output_tok_s"][:, i]
    return FitRow(
        source=run.source,
        arm=run.arm,
        num_speculative_tokens=run.k,
        load=run.load,
        held=run.held,
        tpot_ms=ms(run.tpot_s),
        fit_tpot_ms=ms(float(point.tpot_s[0, i])),
        fit_tpot_low_ms=ms(float(bands["tpot_s"][0, i])),
        fit_tpot_high_ms=ms(float(bands["tpot_s"][1, i])),
        output_tok_s=run.output_tok_s,
        fit_output_tok_s=served,
        fit_output_tok_s_low=None if served is None else float(low),
        fit_output_tok_s_high=None if served is None else float(high),
        residual_pct=residual_pct,
        left_out_pct=left_out_pct,
        weight=weight,
    )


def _fitted_run(run: Run) -> FittedRun:
    return FittedRun(
        source=run.source,
        arm=run.arm,
        num_speculative_tokens=run.k,
        concurrency=None if run.is_open else run.load,
        request_rate=run.load if run.is_open else None,
    )


def _outliers(model: RunModel, fitted: Fit) -> tuple[Doubt, ...]:
    found = []
    for i, run in enumerate(model.runs):
        if fitted.weights[i] < _OUTLIER:
            off = 100.0 * np.expm1(fitted.residuals[i])
            found.append(
                Doubt(
                    run.source,
                    True,
                    f"{abs(off):.0f} % {'slower' if off > 0 else 'faster'} than the fit: an "
                    f"outlier, counted at {100 * fitted.weights[i]:.0f} % of its weight",
                )
            )
    return tuple(found)


def _other_cache(
    rows: Sequence[Measurement], scenario: Scenario, search: Sequence[Path]
) -> tuple[str, ...]:
    """Warn where the server had another KV cache than the scenario gives it."""
    try:
        memory = kv_result(scenario, search=search)
    except InfeasibleError as error:
        return (f"by the scenario this does not fit, and it ran: {error}",)
    notes = []
    for arm, budget in (("off", memory.baseline), ("on", memory.speculative)):
        printed = {r.kv_tokens for r in rows if r.arm == arm and r.kv_tokens}
        far = [n for n in printed if abs(n / budget.kv_tokens - 1.0) > _OTHER_CACHE]
        if far:
            notes.append(
                f"speculation {arm}: the server printed a cache of {min(far):,} tokens, the "
                f"scenario gives {budget.kv_tokens:,}; set engine.gpu_memory_utilization, "
                "max_num_seqs and max_model_len as the server had them, if requests wait for memory"
            )
    return tuple(notes)


def _no_fit(best: Fit) -> tuple[str, ...]:
    """Warn where no factors explain the runs."""
    if best.run_sd < _NO_FIT:
        return ()
    return (
        "the runs are not of this deployment, or something is at work that the model lacks: check "
        "model, device, dtypes, lengths and k of the scenario",
    )


def _few(runs: Sequence[Run]) -> tuple[str, ...]:
    notes = []
    if len({r.k for r in runs if r.k}) == 1:
        notes.append(
            "one k measured: a second tells the drafter's time from what else speculation adds"
        )
    arms = {r.arm for r in runs}
    if len(arms) == 1:
        only = arms.pop()
        notes.append(
            f"all runs have speculation {only}: nothing tells the other arm, whose constants stay "
            "the shipped ones"
        )
    if len({r.load for r in runs}) < 3:
        n = len({r.load for r in runs})
        notes.append(
            f"{n} load{'s' if n > 1 else ''} measured: memory and compute are told apart by "
            "runs at low and at high load"
        )
    return tuple(notes)
