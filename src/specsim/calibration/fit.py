"""Fit factors to runs: robust least squares on logarithms, with a weak prior (MAP)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.analysis.constants import Z975
from specsim.analysis.overlay import draw_factors
from specsim.calibration.model import METRICS, Predicted, RunModel
from specsim.calibration.parameters import Parameter
from specsim.calibration.runs import Run
from specsim.catalog.calibration import load_rules

Array = npt.NDArray[np.float64]
_STEP = 1e-4
"""Of the prior's spread, for derivatives: small, yet large against rounding."""
_UNSERVED_S = 100.0
_EXPECTED = 4.0
"""Runs that the expected scatter counts for, against what the fit leaves."""
_CLEARLY = 2.0
"""Spreads of the prior beyond which a factor was moved by the runs, however wide it is left."""
_AT_BOUND = 1e-3


@dataclass(frozen=True)
class Fit:
    """A maximum of the posterior, in the coordinates of the parameters."""

    parameters: tuple[Parameter, ...]
    x: Array
    covariance: Array
    run_sd: float
    """Relative scatter of one run about the fit."""
    weights: Array
    """Per run: what the robust loss left of it."""
    residuals: Array
    """Per run: mean log of measured time over fitted."""

    @property
    def sd(self) -> Array:
        """Spread of each coordinate."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @property
    def identifiable(self) -> npt.NDArray[np.bool_]:
        """Which factors the runs tell: much narrower than the prior, or clearly off it."""
        prior = np.array([p.prior_sd for p in self.parameters])
        narrow = self.sd < load_rules().identified_below * prior
        told = narrow | (np.abs(self.x) > _CLEARLY * prior)
        # A host time that may as well be none has an upper limit and no value.
        linear = np.array([p.spec.scale == "linear" for p in self.parameters])
        return np.asarray(told & ~(linear & (self.x - Z975 * self.sd <= -1.0)))

    @property
    def limited(self) -> npt.NDArray[np.bool_]:
        """Which factors the runs do not tell, but bound from above."""
        prior = np.array([p.prior_sd for p in self.parameters])
        narrow = self.sd < load_rules().identified_below * prior
        return np.asarray(narrow & ~self.identifiable)

    @property
    def at_bound(self) -> npt.NDArray[np.bool_]:
        """Which factors stand at the limit of what is allowed."""
        low, high = np.array([p.bounds for p in self.parameters]).T
        near = _AT_BOUND * np.array([p.prior_sd for p in self.parameters])
        return np.asarray((self.x - low < near) | (high - self.x < near))

    def factors(self) -> dict[str, float]:
        """Return best values by name."""
        return {p.name: float(p.factor(x)) for p, x in zip(self.parameters, self.x, strict=True)}

    def samples(self, n: int, seed: int) -> dict[str, Array]:
        """Draw factors from the posterior (Gaussian in the coordinates)."""
        scales = [p.spec.scale for p in self.parameters]
        drawn = draw_factors(scales, self.x, self.covariance, n, seed)
        return {p.name: f for p, f in zip(self.parameters, drawn, strict=True)}


@dataclass(frozen=True)
class Data:
    """Measured figures as times, one entry per run and metric."""

    run: npt.NDArray[np.int_]
    metric: tuple[str, ...]
    log_s: Array
    share: Array
    """1 / figures of the run: they share its luck and count as one."""


def data_of(runs: Sequence[Run]) -> Data:
    """Return the figures of runs that a fit sees."""
    at, metric, logs = [], [], []
    for i, run in enumerate(runs):
        for name in METRICS:
            value = getattr(run, name)
            if value is not None:
                at.append(i)
                metric.append(name)
                logs.append(-np.log(value) if name == "output_tok_s" else np.log(value))
    index = np.array(at, dtype=int)
    counts = np.bincount(index, minlength=len(runs))
    return Data(index, tuple(metric), np.array(logs), 1.0 / counts[index])


def log_times(predicted: Predicted, data: Data) -> Array:
    """Return predicted logs in the order of the data; throughput as its inverse, a time."""
    columns = []
    for i, name in zip(data.run, data.metric, strict=True):
        # Where a trial cannot serve the rate at all, it is far off, and not without a value.
        log = np.log(np.nan_to_num(predicted.of(name)[:, i], nan=_UNSERVED_S))
        columns.append(-log if name == "output_tok_s" else log)
    return np.stack(columns, axis=1)


def repeat_sd(runs: Sequence[Run]) -> float | None:
    """Return the relative scatter of repeats of the same point; None without repeats.

    Pooled over points; a run's figures are averaged first, since they share its luck.
    """
    data = data_of(runs)
    together: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for i, run in enumerate(runs):
        mean = float(np.mean(data.log_s[data.run == i]))
        lengths = (round(run.input_tokens), round(run.output_tokens))
        together[(run.arm, run.k, run.load, run.is_open, *lengths, run.n_metrics)].append(mean)
    repeated = [np.array(logs) for logs in together.values() if len(logs) > 1]
    if not repeated:
        return None
    squares = sum(float(np.sum((x - x.mean()) ** 2)) for x in repeated)
    return float(np.sqrt(squares / sum(x.size - 1 for x in repeated)))


def log_slopes(model: RunModel, parameters: Sequence[Parameter], x: Array, data: Data) -> Array:
    """Return how the logs of predicted times change with each coordinate: figures x factors."""
    low, high = np.array([p.bounds for p in parameters]).T
    # One-sided at a bound: beyond it a time would be negative.
    reach = _STEP * np.array([p.prior_sd for p in parameters])
    above, below = np.minimum(x + reach, high), np.maximum(x - reach, low)
    points = np.concatenate([_replaced(x, above), _replaced(x, below)])
    values = log_times(model.predict(factors_at(parameters, points)), data)
    return np.asarray((values[: x.size] - values[x.size :]).T / (above - below))


def factors_at(parameters: Sequence[Parameter], points: Array) -> dict[str, Array]:
    """Return factors by name at trial points (points x coordinates)."""
    return {p.name: p.factor(points[:, i]) for i, p in enumerate(parameters)}


def fit(model: RunModel, parameters: Sequence[Parameter], *, start: Array | None = None) -> Fit:
    """Find the factors that explain the runs best.

    Parameters
    ----------
    start : array, optional
        Coordinates to begin at; absent: the shipped constants.

    Notes
    -----
    Minimises sum of soft_l1(log(measured / predicted) / sd) over figures plus the prior's squares,
    by `scipy.optimize.least_squares` within bounds. The scatter sd of a run is that of repeats, or
    a default. The covariance is the inverse of the Gauss-Newton Hessian, prior included, at the
    scatter that the fit leaves if that is larger, so that what the runs do not tell keeps the
    prior's spread (docs/calibration.md).
    """
    from scipy.optimize import least_squares

    rules = load_rules()
    data = data_of(model.runs)
    prior_sd = np.array([p.prior_sd for p in parameters])
    low, high = np.array([p.bounds for p in parameters]).T
    n_data, n = data.log_s.size, len(parameters)
    repeats = repeat_sd(model.runs)
    expected = rules.default_run_sd if repeats is None else repeats
    run_sd = max(expected, rules.least_run_sd)

    def logs_at(points: Array) -> Array:
        return log_times(model.predict(factors_at(parameters, points)), data)

    def weight() -> Array:
        return np.sqrt(data.share) / run_sd

    def residuals(x: Array) -> Array:
        misfit = (logs_at(x[None, :])[0] - data.log_s) * weight()
        return np.concatenate([misfit, x / prior_sd])

    def jacobian(x: Array) -> Array:
        slopes = log_slopes(model, parameters, x, data)
        return np.concatenate([slopes * weight()[:, None], np.diag(1.0 / prior_sd)])

    def soft_for_data(z: Array) -> Array:
        """Soft for data, quadratic for the prior."""
        rho = np.empty((3, z.size))
        root = np.sqrt(1.0 + z)
        rho[0], rho[1], rho[2] = 2.0 * (root - 1.0), 1.0 / root, -0.5 / root**3
        rho[0, n_data:], rho[1, n_data:], rho[2, n_data:] = z[n_data:], 1.0, 0.0
        return rho

    loss: Any = soft_for_data  # the stubs know no loss that keeps the shape of its argument
    x = np.zeros(n) if start is None else np.clip(start, low, high)
    x = least_squares(residuals, x, jac=jacobian, bounds=(low, high), loss=loss, x_scale=prior_sd).x
    misfit = logs_at(x[None, :])[0] - data.log_s
    soft = 1.0 / np.sqrt(1.0 + (misfit * weight()) ** 2)
    soft_mean, soft_square = _soft_means(float(np.mean(data.share)))
    # The robust loss counts a far point for less, in the fit and in what the fit knows.
    kept = np.minimum(soft / soft_mean, 1.0)
    slopes = log_slopes(model, parameters, x, data)
    information = (slopes * (kept * data.share)[:, None]).T @ slopes
    prior = np.diag(1.0 / prior_sd**2)
    told = float(n - np.trace(np.linalg.solve(information / run_sd**2 + prior, prior)))
    free = max(len(model.runs) - told, 0.0)
    squares = float(np.sum(soft * data.share * misfit**2)) / soft_square
    # Few runs fit by chance: what they leave is averaged with what was expected.
    left = float(np.sqrt((_EXPECTED * run_sd**2 + squares) / (_EXPECTED + free)))
    # What the fit leaves widens what it knows. It does not weaken the runs against the prior:
    # a misfit is no noise, and a fit that believes less after every look ends at the prior.
    run_sd = max(left, run_sd)
    covariance = np.linalg.inv(information / run_sd**2 + prior)
    return Fit(
        parameters=tuple(parameters),
        x=x,
        covariance=covariance,
        run_sd=run_sd,
        weights=_by_run(data, kept, len(model.runs)),
        residuals=_by_run(data, -misfit, len(model.runs)),
    )


def _by_run(data: Data, values: Array, n_runs: int) -> Array:
    """Return the mean over the figures of each run."""
    return np.bincount(data.run, weights=values * data.share, minlength=n_runs).astype(float)


def _soft_means(variance: float) -> tuple[float, float]:
    """Return the means of w and w z^2 over clean data, w = 1 / sqrt(1 + variance z^2).

    soft_l1 counts even clean data at w on average; by these, weights and scatter are taken back
    to what they mean.
    """
    z, mass = np.polynomial.hermite_e.hermegauss(40)
    w = 1.0 / np.sqrt(1.0 + variance * z**2)
    mass = mass / mass.sum()
    return float(mass @ w), float(mass @ (w * z**2))


def _replaced(x: Array, values: Array) -> Array:
    """Return copies of x, each with one entry replaced by that of `values`."""
    points = np.tile(x, (x.size, 1))
    np.fill_diagonal(points, values)
    return points
