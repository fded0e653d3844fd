"""What a request-level simulation says: percentiles of both arms, with intervals.

Field names are those of `simulate --json`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from specsim.errors import InputError
from specsim.schema.results import says
from specsim.schema.slo import Metric, Slo

ArmName = Literal["baseline", "speculative", "routed"]
METRICS: tuple[Metric, ...] = ("ttft", "tpot", "itl", "e2e")
PERCENTILES = (50.0, 90.0, 95.0, 99.0)
STATISTICS = ("mean", *(f"p{p:g}" for p in PERCENTILES))


@dataclass(frozen=True)
class Sample:
    """Values and how often each was seen, of which any percentile can be read."""

    values: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64] | None = None

    def mean(self) -> float:
        """Return the mean; NaN of nothing."""
        if self.values.size == 0:
            return math.nan
        return float(np.average(self.values, weights=self.weights))

    def percentile(self, p: float) -> float:
        """Return the value that a share p (0 to 100) of the sample does not exceed.

        Notes
        -----
        Unweighted as numpy.percentile interpolates; weighted the smallest value whose cumulated
        weight reaches p, since gaps between tokens come by the hundred thousand.
        """
        if self.values.size == 0:
            return math.nan
        if self.weights is None:
            return float(np.percentile(self.values, p))
        order = np.argsort(self.values)
        cumulated = np.cumsum(self.weights[order])
        at = np.searchsorted(cumulated, p / 100.0 * cumulated[-1])
        return float(self.values[order][min(int(at), self.values.size - 1)])

    def statistic(self, name: str) -> float:
        """Return 'mean' or a percentile such as 'p99' or 'p99.9'."""
        if name == "mean":
            return self.mean()
        try:
            percentile = float(name.removeprefix("p"))
        except ValueError:
            percentile = -1.0
        if not (name.startswith("p") and 0 <= percentile <= 100):
            raise InputError(f"statistic {name!r}: expected mean or a percentile such as p99")
        return self.percentile(percentile)


def pooled(samples: list[Sample]) -> Sample:
    """Return one sample of several."""
    values = np.concatenate([s.values for s in samples]) if samples else np.array([])
    if all(s.weights is None for s in samples):
        return Sample(values)
    weights = [np.ones_like(s.values) if s.weights is None else s.weights for s in samples]
    return Sample(values, np.concatenate(weights))


@dataclass(frozen=True)
class Percentiles:
    """A latency over requests (gaps between tokens: over gaps)."""

    mean: float = says("mean", "ms")
    p50: float = says("median", "ms")
    p90: float = says("90th percentile", "ms")
    p95: float = says("95th percentile", "ms")
    p99: float = says("99th percentile", "ms")
    sample: Sample = field(
        default_factory=lambda: Sample(np.array([])),
        repr=False,
        compare=False,
        metadata={"not_in_json": True},
    )

    @classmethod
    def of(cls, sample: Sample) -> Percentiles:
        """Return the statistics of a sample of ms."""
        mean, p50, p90, p95, p99 = (sample.statistic(name) for name in STATISTICS)
        return cls(mean, p50, p90, p95, p99, sample=sample)

    def statistic(self, name: str) -> float:
        """Return 'mean' or any percentile, such as 'p99.9'. [ms]."""
        return float(getattr(self, name)) if name in STATISTICS else self.sample.statistic(name)


@dataclass(frozen=True)
class OverTime:
    """The state of an arm in slices of the measured time, of the first replication."""

    time_s: tuple[float, ...] = says("middle of a slice", "s")
    running: tuple[float, ...] = says("requests in the batch, mean of the slice", "requests")
    waiting: tuple[float, ...] = says("requests in the queue, mean of the slice", "requests")
    kv_used: tuple[float, ...] = says("share of the cache in use, mean of the slice")


@dataclass(frozen=True)
class ArmSimulation:
    """One arm under one load."""

    ttft_ms: Percentiles = says("time to first token, waiting included", "ms")
    tpot_ms: Percentiles = says("time per output token after the first, by request", "ms")
    itl_ms: Percentiles = says("gap between streamed chunks: a step", "ms")
    e2e_ms: Percentiles = says("time to the last token", "ms")
    output_tok_s: float = says("output tokens per second, served", "tok/s")
    request_per_s: float = says("requests per second, served", "requests/s")
    goodput: float | None = says("requests per second that meet the SLO, each", "requests/s")
    attainment: float | None = says("share of requests that meet the SLO, each")
    completed: int = says("requests that were served and measured", "requests")
    rejected: int = says("requests that the server refuses: too long for it", "requests")
    preemptions: int = says("times a request lost its cache and was computed again")
    running: float = says("requests in the batch, mean over time", "requests")
    waiting: float = says("requests in the queue, mean over time", "requests")
    kv_used: float = says("share of the cache in use, mean over time")
    kv_used_max: float = says("share of the cache in use, at most")
    tokens_per_step: float = says("tokens per step of a request, all tokens by all steps", "tokens")
    overloaded: bool = says("the queue grows as long as requests come")
    little_error: float = says("how far Little's law is missed: mean in system / (rate x stay) - 1")
    over_time: OverTime = says("queue, batch and cache over time")

    def percentiles(self, metric: Metric) -> Percentiles:
        """Return the percentiles of a metric."""
        found: Percentiles = getattr(self, f"{metric}_ms")
        return found


@dataclass(frozen=True)
class TailCause:
    """What the slowest requests have in common, against all."""

    metric: Metric = says("the latency whose slowest requests are looked at")
    cause: str = says("batch, acceptance, prefill, queue or preemption; '' if none stands out")
    sentence: str = says("the mechanism in a sentence")


@dataclass(frozen=True)
class Simulation:
    """Both arms on the same requests: the object of `simulate --json`."""

    scenario: dict[str, Any] = says("the input with every default filled in")
    load: dict[str, Any] = says("what was sent: kind, value, requests, replications, lengths")
    slo: Slo | None = says("what was asked for, if anything")
    baseline: ArmSimulation = says("speculation off")
    speculative: ArmSimulation | None = says("speculation on; null with method none")
    routed: ArmSimulation | None = says("pools of both, routed by load; null unless asked for")
    intervals: dict[str, Any] = says("95 % intervals by arm, metric and statistic; ratios on / off")
    slo_met: dict[str, Any] = says("by arm and target: value, limit, met")
    tails: tuple[TailCause, ...] = says("why the tail of the on arm is what it is")
    verdict: str = says("means and tails of on against off, in a sentence")
    seed: int = says("the seed that gives the same answer again")
    defaults: tuple[str, ...] = says("every default that was used")
    warnings: tuple[str, ...] = says("what to know before trusting this")
    provenance: dict[str, Any] = says("constants by basis and source, versions")
