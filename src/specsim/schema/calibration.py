"""A calibration: what measured runs said about the constants, and how well.

`Calibration` is the file that `specsim calibrate` writes and `--calibration` takes;
`CalibrationReport` is what the command shows beside it.
"""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from specsim.schema.base import Record
from specsim.schema.results import says
from specsim.schema.speculation import Method

Scale = Literal["log", "linear"]


class ParameterSpec(Record):
    """A factor that a fit may move."""

    description: str
    families: tuple[str, ...] = Field(description="constants that it multiplies")
    shown: str = Field(description="the constant whose value stands for it in reports")
    unit: str
    scale: Scale = Field(description="coordinate of the fit: log of the factor, or the factor")
    least_sd: float = Field(default=0.0, ge=0, description="least spread of the prior")
    least_share: float = Field(
        default=0.0, ge=0, description="the same, as a share of a plain step of one request"
    )
    factor: tuple[float, float] = Field(description="bounds")


class CalibrationRules(Record):
    """The shipped table of parameters, priors and thresholds."""

    parameters: dict[str, ParameterSpec]
    scope_widening: dict[str, float]
    identified_below: float = Field(gt=0, lt=1)
    default_run_sd: float = Field(gt=0)
    least_run_sd: float = Field(gt=0)
    least_speedup_sd: float = Field(gt=0)


class CalibrationScope(Record):
    """What a calibration was fitted on."""

    accelerator: str
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    engine: str
    engine_version: str
    model: str
    weight_dtype: str
    kv_dtype: str
    method: Method = "none"
    drafter: str | None = None


class CalibrationTraffic(Record):
    """What the runs were: a calibration says less of other traffic."""

    input_tokens: tuple[float, float] = Field(description="shortest and longest mean prompt")
    output_tokens: tuple[float, float] = Field(description="shortest and longest mean answer")
    lockstep: tuple[Literal["off", "on"], ...] = Field(
        default=(), description="arms whose requests went in lockstep"
    )


class FittedParameter(Record):
    """One factor on the shipped constants."""

    name: str
    scale: Scale = Field(description="coordinate of prior and covariance: log of factor, or factor")
    factor: float = Field(ge=0, description="best value; 1 is the shipped constant")
    low: float = Field(ge=0, description="2.5th percentile")
    high: float = Field(ge=0, description="97.5th percentile")
    prior_sd: float = Field(gt=0, le=1e9, description="spread of the prior around 1")
    identifiable: bool = Field(description="false: the runs do not tell it, the prior stands")
    at_bound: bool = False


class CalibrationAcceptance(Record):
    """Acceptance that the runs counted, at one k."""

    num_speculative_tokens: int = Field(gt=0, le=64)
    length: float = Field(ge=1, description="tokens per drafting step [tokens]")
    per_position: tuple[float, ...] | None = None
    counts: int | None = Field(default=None, gt=0, le=10**12, description="drafts behind it")
    proposal_rate: float | None = Field(
        default=None, gt=0, le=1, description="share of steps that draft at all (n-gram, suffix)"
    )

    @model_validator(mode="after")
    def _possible(self) -> CalibrationAcceptance:
        k, p = self.num_speculative_tokens, self.per_position
        if self.length > k + 1:
            raise ValueError(
                f"length {self.length:g} is above num_speculative_tokens + 1 = {k + 1}"
            )
        if p is not None:
            if len(p) != k or any(not 0 <= x <= 1 for x in p):
                raise ValueError(f"per_position must be {k} fractions, one for each draft token")
            if any(later > earlier + 1e-9 for earlier, later in itertools.pairwise(p)):
                raise ValueError("per_position must not rise")
        return self


class FittedRun(Record):
    """A run that the fit used."""

    source: str
    arm: Literal["off", "on"]
    num_speculative_tokens: int = 0
    concurrency: float | None = None
    request_rate: float | None = None


class LeftOut(Record):
    """Errors on loads that the fit did not see (leave one load out)."""

    loads: int = Field(description="loads that were left out in turn")
    tpot_median_pct: float | None = None
    output_tok_s_median_pct: float | None = None
    speedup_median_pct: float | None = None
    speedup_log_sd: float | None = Field(default=None, description="root mean square of the log")


class Calibration(Record):
    """Fitted factors with their covariance, what they hold for, and their own error."""

    specsim_calibration: Literal[1] = 1
    created: dt.date
    specsim: str = Field(description="version that wrote the file")
    scope: CalibrationScope
    traffic: CalibrationTraffic
    parameters: tuple[FittedParameter, ...] = Field(min_length=1)
    covariance: tuple[tuple[float, ...], ...] = Field(
        description="in the coordinates and the order of `parameters`"
    )
    run_log_sd: float = Field(ge=0, description="scatter of one run about the fit")
    speedup_log_sd: float = Field(
        ge=0, le=2, description="spread of a speedup about its prediction"
    )
    acceptance: tuple[CalibrationAcceptance, ...] = ()
    left_out: LeftOut
    runs: tuple[FittedRun, ...] = ()

    @model_validator(mode="after")
    def _square(self) -> Calibration:
        n = len(self.parameters)
        if len(self.covariance) != n or any(len(row) != n for row in self.covariance):
            raise ValueError(f"covariance must be {n} x {n}, as there are {n} parameters")
        if any(self.covariance[i][i] < 0 for i in range(n)):
            raise ValueError("covariance has a negative variance on its diagonal")
        matrix = np.array(self.covariance)
        spread = np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))
        if np.any(np.abs(matrix - matrix.T) > 1e-3 * spread + 1e-12) or np.any(
            np.abs(matrix) > 1.001 * spread + 1e-12
        ):
            raise ValueError("covariance is none: it is not symmetric, or a correlation is above 1")
        for p in self.parameters:
            if not p.low <= p.factor * 1.001 or not p.factor <= p.high * 1.001:
                raise ValueError(
                    f"parameters: {p.name}: factor {p.factor:g} is not between low {p.low:g} and "
                    f"high {p.high:g}"
                )
            if p.scale == "log" and p.factor <= 0:
                raise ValueError(f"parameters: {p.name} is fitted as a logarithm; 0 has none")
        names = [p.name for p in self.parameters]
        if len(set(names)) != n:
            raise ValueError("parameters: a name stands twice")
        return self


@dataclass(frozen=True)
class ParameterReport:
    """One factor as the report shows it."""

    name: str = says("parameter")
    description: str = says("what it multiplies")
    factor: float | None = says("best value; null where the runs do not tell it")
    low: float | None = says("2.5th percentile")
    high: float | None = says("97.5th percentile")
    value: float | None = says("the constant itself, where one stands for it", "unit of its own")
    unit: str = says("its unit")
    prior_low: float = says("2.5th percentile of the prior")
    prior_high: float = says("97.5th percentile of the prior")
    identifiable: bool = says("the runs tell it")
    at_most: float | None = says("upper end of the constant, where that is all they tell")
    at_bound: bool = says("it stands at the limit of what is allowed")
    would_tell: str = says("the run that would tell it, or tell it better")


@dataclass(frozen=True)
class Correlation:
    """Two parameters that the runs cannot tell apart."""

    one: str = says("parameter")
    other: str = says("parameter")
    correlation: float = says("of the two")


@dataclass(frozen=True)
class FitRow:
    """One run against the fit."""

    source: str = says("file")
    arm: str = says("off or on")
    num_speculative_tokens: int = says("k; 0 off", "tokens")
    load: float = says("concurrency or request rate")
    held: float | None = says("requests that the run really held (Little's law)", "requests")
    tpot_ms: float | None = says("measured", "ms")
    fit_tpot_ms: float | None = says("fitted", "ms")
    fit_tpot_low_ms: float | None = says("10th percentile", "ms")
    fit_tpot_high_ms: float | None = says("90th percentile", "ms")
    output_tok_s: float | None = says("measured", "tokens/s")
    fit_output_tok_s: float | None = says("fitted", "tokens/s")
    fit_output_tok_s_low: float | None = says("10th percentile", "tokens/s")
    fit_output_tok_s_high: float | None = says("90th percentile", "tokens/s")
    residual_pct: float = says("measured time against fitted, the row's mean", "%")
    left_out_pct: float | None = says("the same, fitted without this load", "%")
    weight: float = says("weight that the robust loss left it, 1 is full")


@dataclass(frozen=True)
class FitSpeedup:
    """On against off at a load that the fit has seen."""

    num_speculative_tokens: int = says("k", "tokens")
    load: float = says("concurrency or request rate")
    measured: float = says("on / off, repeats averaged")
    fitted: float = says("for the same runs")
    predicted: float | None = says("by `predict`: a steady stream, acceptance pooled")


@dataclass(frozen=True)
class HeldOutSpeedup:
    """A speedup at a load that the fit did not see."""

    num_speculative_tokens: int = says("k", "tokens")
    load: float = says("concurrency or request rate")
    measured: float = says("on / off, repeats averaged")
    predicted: float = says("by the fit, for the same runs")
    is_rate: bool = says("the load is a request rate")


@dataclass(frozen=True)
class HeldOutCrossover:
    """Where the measured curve crosses 1, and where the predicted one does."""

    num_speculative_tokens: int = says("k", "tokens")
    measured: float | None = says("load; null: not on the ladder")
    predicted: float | None = says("load; null: not on the ladder")
    steps_apart: int = says("steps of the ladder between the first loads that lose")


@dataclass(frozen=True)
class HeldOut:
    """Runs that were kept from the fit on purpose, and how well they are predicted."""

    loads: tuple[float, ...] = says("of the runs kept from the fit")
    rows: tuple[FitRow, ...] = says("their runs against the prediction")
    tpot_median_pct: float | None = says("median error of the time per token", "%")
    output_tok_s_median_pct: float | None = says("median error of the throughput", "%")
    speedup_median_pct: float | None = says("median error of the speedup", "%")
    run_scatter_pct: float | None = says("standard deviation of repeats of a run", "%")
    speedup_scatter_pct: float | None = says("the same of a speedup of two runs", "%")
    speedups: tuple[HeldOutSpeedup, ...] = says("of which an arm was held out")
    crossovers: tuple[HeldOutCrossover, ...] = says("over the whole ladder, by k")


@dataclass(frozen=True)
class Doubt:
    """A run that is not used, or used with care."""

    source: str = says("file")
    used: bool = says("whether the fit used it")
    reason: str = says("why it is doubted")


@dataclass(frozen=True)
class Suggestion:
    """A run to make next."""

    arm: str = says("off or on")
    num_speculative_tokens: int = says("k; 0 off", "tokens")
    load: float = says("concurrency or request rate")
    band_before: float = says("relative half-width (10th to 90th) of what the run is to narrow")
    band_after: float = says("the same, with this run and those suggested before it")
    narrows: str = says("what: the crossover load, or the speedup where nothing crosses")


@dataclass(frozen=True)
class CalibrationReport:
    """What `specsim calibrate` learned: `--json` prints this."""

    calibration: Calibration = says("the file")
    parameters: tuple[ParameterReport, ...] = says("factors, and what tells them")
    correlations: tuple[Correlation, ...] = says("pairs beyond 0.8 in size")
    rows: tuple[FitRow, ...] = says("residuals")
    speedups: tuple[FitSpeedup, ...] = says("by load and k")
    crossovers: tuple[HeldOutCrossover, ...] = says("of the fit, for the same runs")
    verdict: str = says("whether to trust the calibration, in a sentence")
    held_out: HeldOut | None = says("with --hold-out: loads kept from the fit")
    doubts: tuple[Doubt, ...] = says("runs that are distrusted")
    suggestions: tuple[Suggestion, ...] = says("what to run next")
    warnings: tuple[str, ...] = says("what to know before trusting this")
