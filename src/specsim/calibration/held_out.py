"""How well runs are predicted that were kept from the fit on purpose."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from specsim.analysis.crossover import first_loss
from specsim.calibration.fit import Fit, repeat_sd
from specsim.calibration.left_out import median_pct, speedup_errors, time_errors
from specsim.calibration.model import RunModel
from specsim.schema.calibration import FitRow, HeldOut, HeldOutCrossover, HeldOutSpeedup

Array = npt.NDArray[np.float64]


def held_out(
    model: RunModel,
    fitted: Fit,
    members: Sequence[int],
    rows: Callable[[Sequence[int]], tuple[FitRow, ...]],
) -> HeldOut:
    """Compare some runs with what a fit without them predicts.

    Parameters
    ----------
    model : RunModel
        Of all runs, those of the fit included.
    members : sequence of int
        Runs that the fit did not see.
    rows : callable
        Makes report rows of runs by their index.

    Notes
    -----
    A speedup is held out where either of its arms is; the other may have been in the fit.
    """
    tpot, served = time_errors(model, model.predict(fitted.factors()))
    errors: list[float] = []
    speedups: list[HeldOutSpeedup] = []
    kept_out = {(model.runs[i].k, model.runs[i].is_open, model.runs[i].load) for i in members}
    for is_open, load in sorted({(is_open, load) for _, is_open, load in kept_out}):
        at = [i for i, r in enumerate(model.runs) if (r.is_open, r.load) == (is_open, load)]
        for k, error in speedup_errors(model, tpot, served, at).items():
            if (k, is_open, load) in kept_out or (0, is_open, load) in kept_out:
                measured = math.exp(_measured(model, at)[k])
                errors.append(error)
                predicted = measured * math.exp(-error)
                speedups.append(HeldOutSpeedup(k, load, measured, predicted, is_open))
    scatter = repeat_sd(model.runs)
    return HeldOut(
        loads=tuple(sorted({model.runs[i].load for i in members})),
        rows=rows(members),
        tpot_median_pct=median_pct([float(tpot[i]) for i in members if np.isfinite(tpot[i])]),
        output_tok_s_median_pct=median_pct(
            [float(served[i]) for i in members if np.isfinite(served[i])]
        ),
        speedup_median_pct=median_pct(errors),
        run_scatter_pct=None if scatter is None else 100.0 * scatter,
        speedup_scatter_pct=None
        if scatter is None
        else 100.0 * scatter * math.sqrt(runs_per_speedup(model)),
        speedups=tuple(speedups),
        crossovers=_crossovers(model, tpot, served),
    )


def runs_per_speedup(model: RunModel) -> float:
    """Return 1 / n off + 1 / n on: how the scatter of runs adds up in a speedup of their means."""
    counts = Counter((r.k, r.is_open, r.load) for r in model.runs)
    off = [n for (k, _, _), n in counts.items() if k == 0]
    on = [n for (k, _, _), n in counts.items() if k]
    return float(sum(1.0 / np.mean(n) for n in (off, on) if n))


def _measured(model: RunModel, members: Sequence[int]) -> dict[int, float]:
    """Return measured log speedups at one load, by k."""

    def logs(name: str, sign: float) -> Array:
        values = [getattr(r, name) for r in model.runs]
        return sign * np.log([np.nan if v is None else v for v in values])

    return speedup_errors(model, logs("tpot_s", 1.0), logs("output_tok_s", -1.0), members)


def _crossovers(model: RunModel, tpot: Array, served: Array) -> tuple[HeldOutCrossover, ...]:
    """Return where both curves cross 1 on the measured ladder."""
    curves: dict[int, list[tuple[float, float, float]]] = {}
    for is_open, load in sorted({(r.is_open, r.load) for r in model.runs}):
        at = [i for i, r in enumerate(model.runs) if (r.is_open, r.load) == (is_open, load)]
        measured = _measured(model, at)
        for k, error in speedup_errors(model, tpot, served, at).items():
            curves.setdefault(k, []).append((load, measured[k], measured[k] - error))
    found = []
    for k, curve in sorted(curves.items()):
        loads, measured_logs, predicted_logs = np.array(curve).T
        where = [first_loss(loads, np.exp(logs)) for logs in (measured_logs, predicted_logs)]
        # The first load of the ladder that loses; past its end where none does.
        first = [_first(logs < 0.0) for logs in (measured_logs, predicted_logs)]
        one, other = (w if 0.0 < w < math.inf else None for w in where)
        found.append(HeldOutCrossover(k, one, other, abs(first[0] - first[1])))
    return tuple(found)


def _first(loses: npt.NDArray[np.bool_]) -> int:
    at = np.flatnonzero(loses)
    return int(at[0]) if at.size else int(loses.size)
