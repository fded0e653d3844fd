"""How well loads are predicted that a fit did not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specsim.calibration.fit import Fit, fit
from specsim.calibration.model import Predicted, RunModel
from specsim.schema.calibration import LeftOut

Array = npt.NDArray[np.float64]
_LEAST_LOADS = 3
"""With fewer, leaving one out leaves next to nothing to fit on."""


@dataclass(frozen=True)
class LeftOutFits:
    """Errors by run, each from a fit without its load."""

    errors: LeftOut
    log_errors: Array
    """Measured time over predicted, the run's mean; NaN where nothing was left out."""

    def residual_pct(self, i: int) -> float | None:
        """Return the error of a run. [%]."""
        error = self.log_errors[i]
        return float(100.0 * np.expm1(error)) if np.isfinite(error) else None


def leave_one_load_out(model: RunModel, best: Fit) -> LeftOutFits:
    """Fit again without each load in turn, both arms of it, and predict it."""
    runs = model.runs
    loads = sorted({(r.is_open, r.load) for r in runs})
    errors = np.full(len(runs), np.nan)
    if len(loads) < _LEAST_LOADS:
        return LeftOutFits(LeftOut(loads=0), errors)
    tpot: list[float] = []
    served: list[float] = []
    speedups: list[float] = []
    for load in loads:
        out = [i for i, r in enumerate(runs) if (r.is_open, r.load) == load]
        rest = [i for i in range(len(runs)) if i not in out]
        refitted = fit(model.only(rest), best.parameters, start=best.x)
        predicted = model.predict(refitted.factors())
        tpot_errors, served_errors = time_errors(model, predicted)
        tpot += [e for e in tpot_errors[out] if np.isfinite(e)]
        served += [e for e in served_errors[out] if np.isfinite(e)]
        speedups += list(speedup_errors(model, tpot_errors, served_errors, out).values())
        for i in out:
            both = [e for e in (tpot_errors[i], served_errors[i]) if np.isfinite(e)]
            if both:
                errors[i] = float(np.mean(both))
    return LeftOutFits(
        LeftOut(
            loads=len(loads),
            tpot_median_pct=median_pct(tpot),
            output_tok_s_median_pct=median_pct(served),
            speedup_median_pct=median_pct(speedups),
            speedup_log_sd=float(np.sqrt(np.mean(np.square(speedups)))) if speedups else None,
        ),
        errors,
    )


def time_errors(model: RunModel, predicted: Predicted) -> tuple[Array, Array]:
    """Return log errors of time per token and of throughput as a time, by run.

    Measured over predicted; NaN where not measured.
    """

    def measured(name: str) -> Array:
        values = [getattr(r, name) for r in model.runs]
        return np.array([np.nan if v is None else v for v in values])

    time = np.where(
        np.isfinite(measured("tpot_s")),
        np.log(measured("tpot_s") / predicted.tpot_s[0]),
        np.log(measured("step_s") / predicted.step_s[0]),
    )
    return time, np.log(predicted.output_tok_s[0] / measured("output_tok_s"))


def speedup_errors(
    model: RunModel, tpot: Array, served: Array, members: Sequence[int]
) -> dict[int, float]:
    """Return log errors of the speedup at one load, by k: repeats averaged, then on against off.

    Throughput where it was measured, else time per token (definitions.md section 3). Like
    `time_errors` it is measured over predicted; given logs of times instead of errors, it is the
    log speedup itself.
    """
    for errors in (served, tpot):
        by_k = {
            k: np.array([errors[i] for i in members if model.runs[i].k == k])
            for k in {model.runs[i].k for i in members}
        }
        means = {k: float(np.nanmean(e)) for k, e in by_k.items() if np.any(np.isfinite(e))}
        if 0 in means and len(means) > 1:
            return {k: means[0] - error for k, error in sorted(means.items()) if k}
    return {}


def median_pct(errors: Sequence[float]) -> float | None:
    """Return the median size of log errors. [%]."""
    return float(100.0 * np.median(np.abs(errors))) if errors else None
