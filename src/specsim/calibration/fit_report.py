"""A fit as records: its factors, what is tangled, and its runs against it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specsim.analysis.constants import Z975
from specsim.calibration.fit import Fit
from specsim.calibration.left_out import LeftOutFits, time_errors
from specsim.calibration.model import Predicted, RunModel
from specsim.calibration.runs import Run
from specsim.schema.calibration import Correlation, FitRow, FittedParameter, ParameterReport
from specsim.units import MILLI

Array = npt.NDArray[np.float64]
_N_SAMPLES, _SEED = 256, 20260710
_STRONG = 0.8
"""Size of a correlation from which two factors are hardly told apart."""


def fitted_parameter(fitted: Fit, i: int) -> FittedParameter:
    """Return a factor as the calibration's file keeps it."""
    parameter = fitted.parameters[i]
    low, high = _interval(fitted, i)
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


def parameter_report(fitted: Fit, i: int, would_tell: str) -> ParameterReport:
    """Return a factor as the report shows it: without a number where the runs do not tell it."""
    parameter = fitted.parameters[i]
    one = fitted_parameter(fitted, i)
    known = one.identifiable
    prior = [float(parameter.factor(z * parameter.prior_sd)) for z in (-Z975, Z975)]
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


def correlations(fitted: Fit) -> tuple[Correlation, ...]:
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


def fit_rows(
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


def _interval(fitted: Fit, i: int) -> tuple[float, float]:
    parameter, x, sd = fitted.parameters[i], fitted.x[i], fitted.sd[i]
    low, high = parameter.bounds
    return (
        float(parameter.factor(max(x - Z975 * sd, low))),
        float(parameter.factor(min(x + Z975 * sd, high))),
    )
