"""The scheduler's loop, compiled by numba: the same source, about ten times as fast."""

from __future__ import annotations

from typing import Any

from specsim.analysis.simulation import scheduler
from specsim.errors import MissingExtraError

try:
    from numba import njit
except ImportError as error:
    raise MissingExtraError(
        "the compiled simulator needs numba; install it with `pip install 'specsim-llm[fast]'`, "
        "or leave --loop away"
    ) from error

advance: Any = njit(cache=True)(scheduler.advance)
