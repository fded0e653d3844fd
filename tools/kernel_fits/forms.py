"""Fit a closed form to a table, and say how far it is off on shapes that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from kernel_fits.tables import Columns, where

Floats = NDArray[np.float64]
Form = Callable[[Mapping[str, float], Columns], Floats]
"""Constants and a table -> time of every row [us]."""

SPLITS = 4
"""Times that the shapes are split in two halves: each half is fitted, the other is predicted."""

OUTLIER = 0.1
"""Logarithmic residual from which a row weighs less: kernel dips are no fault of the form."""


@dataclass(frozen=True)
class Parameter:
    """One constant of a form: where the search starts and between what it stays."""

    name: str
    start: float
    low: float
    high: float


@dataclass(frozen=True)
class Fitted:
    """Constants, their scatter over halves of the shapes, and errors on unseen shapes."""

    values: dict[str, float]
    halves: dict[str, tuple[float, ...]]
    residual: Floats
    """log(measured / fitted) of every row, fitted on all shapes."""
    unseen: Floats
    """The same, from halves that lack the row's shape: SPLITS x rows."""
    unseen_corrected: Floats
    """The same after the row factors of those halves."""
    factor: tuple[float, ...]
    """Row factors at the knots, from all shapes."""


def solve(
    form: Form, table: Columns, parameters: Sequence[Parameter], weight: Floats
) -> dict[str, float]:
    """Return the constants with the least soft-L1 logarithmic error."""
    names = [p.name for p in parameters]
    low = np.array([p.low for p in parameters])
    high = np.array([p.high for p in parameters])
    scale = np.array([max(abs(p.start), 1e-3) for p in parameters])
    root = np.sqrt(weight)
    target = np.log(table["us"])

    def error(x: Floats) -> Floats:
        values = dict(zip(names, x * scale, strict=True))
        return np.asarray(root * (np.log(form(values, table)) - target))

    found = least_squares(
        error,
        np.array([p.start for p in parameters]) / scale,
        bounds=(low / scale, high / scale),
        loss="soft_l1",
        f_scale=OUTLIER,
    )
    return dict(zip(names, map(float, found.x * scale), strict=True))


def row_factor(rows: Floats, residual: Floats, knots: Sequence[float]) -> tuple[float, ...]:
    """Return the median of measured / closed form at each knot; 1 where nothing was measured.

    A knot stands for the rows nearer to it than to its neighbours, in the logarithm.
    """
    nearest = np.abs(np.log(rows)[:, None] - np.log(np.asarray(knots))).argmin(axis=1)
    return tuple(
        round(float(np.exp(np.median(residual[nearest == i]))), 2) if (nearest == i).any() else 1.0
        for i in range(len(knots))
    )


def log_factor(rows: Floats, knots: Sequence[float], factor: Sequence[float]) -> Floats:
    """Interpolate row factors: linear in the logarithm of the rows, held beyond the ends."""
    return np.log(np.interp(np.log(rows), np.log(knots), factor))


def fit(
    form: Form,
    table: Columns,
    parameters: Sequence[Parameter],
    *,
    shape: NDArray[np.int64],
    rows: Floats,
    weight: Floats,
    knots: Sequence[float],
    splits: int = SPLITS,
) -> Fitted:
    """Fit a form to a table, and to halves of its shapes.

    Parameters
    ----------
    shape : array of int
        Number of the shape of each row; a half holds whole shapes.
    rows : array
        Tokens of each row, for the row factors.
    weight : array
        What each row counts for.
    """
    values = solve(form, table, parameters, weight)
    residual = np.log(table["us"] / form(values, table))
    random = np.random.default_rng(0)
    shapes = np.unique(shape)
    halves: list[dict[str, float]] = []
    unseen = np.empty((splits, len(shape)))
    corrected = np.empty_like(unseen)
    for split in range(splits):
        first = np.isin(shape, random.permutation(shapes)[::2])
        for seen in (first, ~first):
            part = solve(form, where(table, seen), parameters, weight[seen])
            halves.append(part)
            left = np.log(table["us"] / form(part, table))
            factor = row_factor(rows[seen], left[seen], knots)
            unseen[split, ~seen] = left[~seen]
            corrected[split, ~seen] = (left - log_factor(rows, knots, factor))[~seen]
    return Fitted(
        values=values,
        halves={p.name: tuple(half[p.name] for half in halves) for p in parameters},
        residual=residual,
        unseen=unseen,
        unseen_corrected=corrected,
        factor=row_factor(rows, residual, knots),
    )


def share_of(residual: Floats, quantile: float) -> float:
    """Return a quantile of the relative error |fitted / measured - 1|."""
    return float(np.quantile(np.abs(np.expm1(-residual)), quantile))


def to_first(residual: Floats, shape: NDArray[np.int64], rows: Floats, first: float) -> Floats:
    """Return the residuals less that of the same shape at `first` rows: the error of T(m) / T(m1).

    Speedup is a ratio of passes with different rows, so this is the error that it sees.
    """
    base = {s: r for s, m, r in zip(shape, rows, residual, strict=True) if m == first}
    known = np.isin(shape, list(base))
    less = np.array([base.get(s, 0.0) for s in shape])
    return np.asarray((residual - less)[known & (rows > first)])


def numbered(*columns: Floats) -> NDArray[np.int64]:
    """Return the number of each row among the distinct rows of the columns."""
    _, number = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return np.asarray(number).reshape(-1)


def half_width(fitted: Fitted, name: str, least: float) -> tuple[float, float]:
    """Return the 10th to 90th percentile of a constant over halves, at least `least` either way."""
    value = fitted.values[name]
    low, high = np.quantile(fitted.halves[name], (0.1, 0.9))
    return min(float(low), value * (1 - least)), max(float(high), value * (1 + least))


def layer_scatter(residual: Floats, shape: NDArray[np.int64], mask: NDArray[np.bool_]) -> float:
    """Return the logarithmic half width of the shapes' own offsets, for the mean of a layer.

    A layer runs about four matrices of different shapes: their offsets average out by half.
    """
    offsets = [
        float(np.median(residual[mask & (shape == s)]))
        for s in np.unique(shape)
        if (mask & (shape == s)).any()
    ]
    low, high = np.quantile(offsets, (0.1, 0.9))
    return float(high - low) / 4.0
