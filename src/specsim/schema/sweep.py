"""The two-server sweep: its plan, as `plan.yaml` keeps it, and what its runs show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from specsim.schema.base import Record
from specsim.schema.results import Crossover, says
from specsim.schema.scenario import Scenario

LoadKind = Literal["concurrency", "request_rate"]
Servers = Literal["both", "one", "auto"]


class SweepArm(Record):
    """One server of a sweep."""

    name: str = Field(description="name of its folder: off, on_k3", pattern=r"^[\w.-]+$")
    arm: Literal["off", "on"]
    method: str = Field(default="none", description="method of speculation")
    num_speculative_tokens: int = Field(default=0, ge=0, description="0: off")
    command: tuple[str, ...] = Field(description="words of `vllm serve`, without host and port")


class SweepLoad(Record):
    """One load, and how many requests a run at it sends."""

    value: float = Field(gt=0, description="concurrency or request rate")
    num_prompts: int = Field(gt=0)


class SweepPlan(Record):
    """Which servers are driven with what, and how often."""

    scenario: Scenario
    model: str = Field(description="what `vllm serve` loads: a Hugging Face id or a folder")
    drafter: str | None = Field(default=None, description="the same for the drafter")
    arms: tuple[SweepArm, ...] = Field(min_length=1)
    load_kind: LoadKind = "concurrency"
    loads: tuple[SweepLoad, ...] = Field(min_length=1)
    repeats: int = Field(default=1, gt=0, le=100)
    order: Literal["ABBA"] = Field(
        default="ABBA", description="arms alternate, and take turns at going first"
    )
    servers: Servers = Field(
        default="auto", description="up at once, one after the other, or by what there is room for"
    )
    dataset: tuple[str, ...] = Field(description="flags of `vllm bench serve` that make prompts")
    random_prompts: bool = Field(description="whether the prompts are random tokens")
    warmup_prompts: int = Field(default=8, ge=0, description="requests before the first run")


@dataclass(frozen=True)
class SweepPoint:
    """All runs of one arm at one load: means over its repeats."""

    load: float = says("concurrency or request rate")
    runs: int = says("repeats")
    output_tok_s: float = says("output tokens per second", "tokens/s")
    scatter_frac: float | None = says("standard deviation of output_tok_s over its mean")
    tpot_ms: float | None = says("mean time per output token", "ms")
    tpot_p50_ms: float | None = says("its median over requests", "ms")
    tpot_p99_ms: float | None = says("its 99th percentile", "ms")
    ttft_p50_ms: float | None = says("median time to first token", "ms")
    ttft_p99_ms: float | None = says("its 99th percentile", "ms")
    itl_p50_ms: float | None = says("median gap between streamed pieces", "ms")
    acceptance_length: float | None = says("tokens per drafting step, bonus included", "tokens")


@dataclass(frozen=True)
class SweepAcceptance:
    """Acceptance over all runs of an arm, weighted by drafts."""

    acceptance_length: float = says("tokens per drafting step, bonus included", "tokens")
    draft_acceptance_rate: float | None = says("accepted / drafted")
    per_position: tuple[float, ...] | None = says(
        "probability that this and all earlier are accepted"
    )
    drafts: int | None = says("request steps that drafted; null where a file does not count them")


@dataclass(frozen=True)
class SweepCurve:
    """One arm over load."""

    label: str = says("what tables and charts call it: off, k=3, or with its method")
    arm: Literal["off", "on"] = says("speculation off or on")
    method: str | None = says("method of speculation")
    num_speculative_tokens: int | None = says("draft tokens per step, k", "tokens")
    points: tuple[SweepPoint, ...] = says("by load")
    acceptance: SweepAcceptance | None = says("null for the off arm, or where none was counted")


@dataclass(frozen=True)
class SweepSpeedup:
    """On against off at one load."""

    load: float = says("concurrency or request rate")
    speedup: float = says("on / off: output_tok_s closed loop; off / on: tpot open loop")
    low: float | None = says("10th percentile, from the scatter of repeats; null: one repeat")
    high: float | None = says("90th percentile")
    pairs: int = says("repeats that both arms have; 0: means of unpaired runs")


@dataclass(frozen=True)
class SweepComparison:
    """One arm with speculation against the one without."""

    label: str = says("what tables and charts call it: k=3, or with its method")
    method: str | None = says("method of speculation")
    num_speculative_tokens: int | None = says("draft tokens per step, k", "tokens")
    points: tuple[SweepSpeedup, ...] = says("by load, where both arms were measured")
    crossover: Crossover = says("where the measured speedup crosses 1; low, high from repeats")
    has_interval: bool = says("whether there are repeats to make an interval from")
    scatter_frac: float | None = says("standard deviation of one run's speedup, all loads pooled")


@dataclass(frozen=True)
class SweepSummary:
    """What a sweep found."""

    load_kind: LoadKind = says("what a load counts")
    curves: tuple[SweepCurve, ...] = says("off first, then on by k")
    comparisons: tuple[SweepComparison, ...] = says("each on curve against off")
    scatter_frac: float | None = says(
        "relative standard deviation of output_tok_s, pooled over points; null: no repeats"
    )
    engine_versions: tuple[str, ...] = says("of all runs")
    warnings: tuple[str, ...] = says("what to know before trusting this")
