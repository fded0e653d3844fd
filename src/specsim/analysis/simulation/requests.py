"""The requests that are sent: when, how long, and how predictable."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from specsim.analysis.constants import Z95
from specsim.catalog.traces import Trace
from specsim.schema.scenario import Workload

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Requests:
    """Requests in order of arrival."""

    arrival_s: Array
    """All 0 in a closed loop, where an answer sends the next request. [s]"""
    input_tokens: Ints
    output_tokens: Ints
    deviates: Array
    """How predictable a request is: standard normal."""
    seed: np.random.SeedSequence
    """Of what is drawn per step."""

    @property
    def n(self) -> int:
        """How many."""
        return int(self.input_tokens.size)

    def only(self, chosen: npt.NDArray[np.bool_]) -> Requests:
        """Return some of them."""
        return replace(
            self,
            arrival_s=self.arrival_s[chosen],
            input_tokens=self.input_tokens[chosen],
            output_tokens=self.output_tokens[chosen],
            deviates=self.deviates[chosen],
        )


def draw_requests(
    workload: Workload,
    n: int,
    seed: np.random.SeedSequence,
    *,
    request_rate: float | None = None,
    trace: Trace | None = None,
) -> Requests:
    """Draw requests, with a stream of random numbers of its own for each of their traits.

    Parameters
    ----------
    request_rate : float, optional
        Of an open loop [requests/s]; None: all at once, for a closed loop to send on.
    trace : Trace, optional
        Recorded arrivals and lengths in place of drawn ones, repeated where n is longer.

    Notes
    -----
    Gaps between arrivals are gamma distributed with shape `burstiness` and mean 1 / rate, as in
    `vllm bench serve` (1: a Poisson process). Lengths with a 95th percentile are lognormal with
    the given mean. Arrivals at another rate are the same arrivals on another clock, and both arms
    are sent the same requests: what differs between two runs is not luck.
    """
    arrivals, inputs, outputs, deviates, steps = seed.spawn(5)
    normal = np.random.default_rng(deviates).standard_normal(n)
    if trace is not None:
        repeats = np.arange(n) // trace.n_requests
        which = np.arange(n) % trace.n_requests
        period = trace.duration_s + (1.0 / trace.mean_rate if trace.n_requests > 1 else 1.0)
        return Requests(
            trace.arrival_s[which] + repeats * period,
            trace.input_tokens[which],
            trace.output_tokens[which],
            normal,
            steps,
        )
    arrival_s = np.zeros(n)
    if request_rate is not None:
        shape = workload.burstiness
        gaps = np.random.default_rng(arrivals).gamma(shape, 1.0 / shape, n)
        arrival_s = np.cumsum(gaps) / request_rate
    return Requests(
        arrival_s,
        _lengths(workload.input_tokens, workload.input_tokens_p95, n, inputs),
        _lengths(workload.output_tokens, workload.output_tokens_p95, n, outputs),
        normal,
        steps,
    )


def _lengths(mean: float, p95: float | None, n: int, seed: np.random.SeedSequence) -> Ints:
    """Draw whole lengths of at least 1 with a mean and, lognormal, a 95th percentile."""
    rng = np.random.default_rng(seed)
    if p95 is None or p95 == mean:
        # A mean such as 100.5 is kept by rounding up as often as its fraction says.
        return np.maximum(np.floor(mean + rng.random(n)), 1).astype(np.int64)
    # ln(p95 / mean) = z sigma - sigma^2 / 2: the smaller root, the narrower distribution.
    gap = Z95 * Z95 - 2.0 * np.log(p95 / mean)
    sigma = Z95 - np.sqrt(max(gap, 0.0))
    drawn = np.exp(np.log(mean) - 0.5 * sigma * sigma + sigma * rng.standard_normal(n))
    whole: Ints = np.maximum(np.rint(drawn), 1).astype(np.int64)
    return whole
