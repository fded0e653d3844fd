"""Errors of a fit in the words of the report."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_fits.forms import Floats, share_of, to_first

WORTH = 0.9
"""Row factors are kept where they cut the errors on unseen shapes to this share of themselves."""

_ERRORS = ("median_percent", "p90_percent", "ratio_median_percent", "ratio_p90_percent")


def percent(value: float) -> float:
    """Return a share in percent, to a tenth."""
    return round(100.0 * value, 1)


def level(residual: Floats) -> dict[str, float]:
    """Return the median, the 90th percentile and the bias of the time."""
    return {
        "median_percent": percent(share_of(residual, 0.5)),
        "p90_percent": percent(share_of(residual, 0.9)),
        "bias_percent": percent(float(np.median(np.expm1(-residual)))),
    }


def ratio(
    unseen: Floats, shape: NDArray[np.int64], rows: Floats, *, first: float, last: float
) -> dict[str, float]:
    """Return the error of T(m) / T(first) for m up to `last`, over the splits together."""
    kept = rows <= last
    left = np.concatenate([to_first(one[kept], shape[kept], rows[kept], first) for one in unseen])
    return {
        "ratio_median_percent": percent(share_of(left, 0.5)),
        "ratio_p90_percent": percent(share_of(left, 0.9)),
    }


def worth_it(plain: dict[str, Any], corrected: dict[str, Any]) -> bool:
    """Say whether a correction pays: the four errors, on average, fall to WORTH of themselves."""
    shares = [corrected[name] / max(plain[name], 0.1) for name in _ERRORS]
    return float(np.mean(shares)) <= WORTH
