"""Numbers as benchmark files write them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from specsim.schema.measurement import Latency


def number(value: Any) -> float | None:
    """Return a finite number, from a number or its text; None for anything else.

    'inf', Infinity, NaN, null, true and text are None: a rate of 'inf' is no rate.

    Examples
    --------
    >>> number("1000"), number("inf"), number(None), number(True)
    (1000.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def count(value: Any) -> int | None:
    """Return a whole number of things, or None."""
    found = number(value)
    return None if found is None else round(found)


def latency(
    values: Mapping[str, Any], names: Mapping[str, str], *, to_ms: float = 1.0
) -> Latency | None:
    """Return a latency from a mapping; None where it has none of the values.

    Parameters
    ----------
    names : mapping
        Field of Latency -> key of `values`.
    to_ms : float
        1 for ms, 1000 for seconds.
    """
    found = {field: number(values.get(key)) for field, key in names.items()}
    if all(v is None for v in found.values()):
        return None
    return Latency(
        **{f: None if (v := found.get(f)) is None else v * to_ms for f in _FIELDS},
    )


_FIELDS = ("mean", "p50", "p90", "p95", "p99", "std")
