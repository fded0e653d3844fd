"""What a benchmark file says, whoever wrote it: one row per run, in one set of units.

Readers (`measure/`) fill in what their file states and leave the rest null. They never guess:
speculation is 'on' or 'off' only where something says so (`arm_from`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from specsim.schema.results import says

MeasuredArm = Literal["off", "on", "unknown"]
ArmSource = Literal["counters", "metadata", "log", "metrics", "name", "flag", ""]
"""What says which arm a run is: counters of accepted tokens, metadata or configuration in the file,
the server's log or metrics beside it, the file's or folder's name, the caller."""


@dataclass(frozen=True)
class Latency:
    """A latency over the requests (or tokens) of a run."""

    mean: float | None = says("arithmetic mean", "ms")
    p50: float | None = says("median", "ms")
    p90: float | None = says("90th percentile", "ms")
    p95: float | None = says("95th percentile", "ms")
    p99: float | None = says("99th percentile", "ms")
    std: float | None = says("standard deviation", "ms")


@dataclass(frozen=True)
class MeasuredAcceptance:
    """Acceptance that a run counted (definitions.md section 1)."""

    acceptance_length: float | None = says("tokens per step that drafted, bonus included", "tokens")
    draft_acceptance_rate: float | None = says("accepted / drafted, a fraction")
    per_position: tuple[float, ...] | None = says(
        "probability that this and all earlier are accepted"
    )
    drafts: int | None = says("request steps that drafted")
    draft_tokens: int | None = says("tokens drafted")
    accepted_tokens: int | None = says("draft tokens accepted")


@dataclass(frozen=True)
class Measurement:
    """One run, or what a log or an acceptance table says about one server."""

    source: str = says("file, and which part of it where it holds several")
    format: str = says("what kind of file it was read as")
    arm: MeasuredArm = says("speculation off or on")
    arm_from: ArmSource = says("what says so")
    method: str | None = field(default=None, metadata={"description": "method of speculation"})
    num_speculative_tokens: int | None = field(
        default=None, metadata={"description": "draft tokens per step, k", "unit": "tokens"}
    )
    model: str | None = field(default=None, metadata={"description": "as the file names it"})
    drafter: str | None = field(default=None, metadata={"description": "as the file names it"})
    accelerator: str | None = field(default=None, metadata={"description": "as the file names it"})
    tensor_parallel_size: int | None = field(
        default=None, metadata={"description": "devices that share every layer"}
    )
    engine: str | None = field(default=None, metadata={"description": "vllm, sglang ..."})
    engine_version: str | None = field(default=None, metadata={"description": "as logged"})
    date: str | None = field(default=None, metadata={"description": "ISO date and time of the run"})
    repeat: int | None = field(default=None, metadata={"description": "number of the repeat"})
    concurrency: float | None = field(
        default=None, metadata={"description": "requests kept in the system", "unit": "requests"}
    )
    request_rate: float | None = field(
        default=None, metadata={"description": "arrivals asked for", "unit": "requests/s"}
    )
    completed: int | None = field(default=None, metadata={"description": "requests answered"})
    failed: int | None = field(default=None, metadata={"description": "requests that failed"})
    input_tokens: float | None = field(
        default=None, metadata={"description": "mean prompt length", "unit": "tokens"}
    )
    output_tokens: float | None = field(
        default=None, metadata={"description": "mean answer length", "unit": "tokens"}
    )
    output_tokens_std: float | None = field(
        default=None, metadata={"description": "spread of answer lengths", "unit": "tokens"}
    )
    duration_s: float | None = field(
        default=None, metadata={"description": "wall time of the run", "unit": "s"}
    )
    output_tok_s: float | None = field(
        default=None, metadata={"description": "output tokens per second", "unit": "tokens/s"}
    )
    request_per_s: float | None = field(
        default=None, metadata={"description": "requests finished per second", "unit": "1/s"}
    )
    tpot_ms: Latency | None = field(
        default=None,
        metadata={"description": "(E2E - TTFT) / (output tokens - 1), over requests", "unit": "ms"},
    )
    itl_ms: Latency | None = field(
        default=None, metadata={"description": "gap between streamed pieces", "unit": "ms"}
    )
    itl_of: Literal["step", "token", ""] = field(
        default="",
        metadata={
            "description": "what a gap is of: a step (vLLM streams all tokens of a step at once) "
            "or a token"
        },
    )
    ttft_ms: Latency | None = field(
        default=None, metadata={"description": "time to first token", "unit": "ms"}
    )
    e2e_ms: Latency | None = field(
        default=None, metadata={"description": "whole request", "unit": "ms"}
    )
    acceptance: MeasuredAcceptance | None = field(
        default=None, metadata={"description": "null where nothing was counted"}
    )
    kv_tokens: int | None = field(
        default=None,
        metadata={"description": "cache size that the server printed", "unit": "tokens"},
    )
    weights_gib: float | None = field(
        default=None, metadata={"description": "model loading, per device", "unit": "GiB"}
    )
    metadata: dict[str, str] = field(
        default_factory=dict, metadata={"description": "what else the file says, as text"}
    )
    warnings: tuple[str, ...] = field(
        default=(), metadata={"description": "what to know before using this row"}
    )


@dataclass(frozen=True)
class Skipped:
    """A file that gave no row."""

    source: str = says("file")
    reason: str = says("why, in a sentence")


@dataclass(frozen=True)
class Measurements:
    """What was found under the paths that were given."""

    rows: tuple[Measurement, ...] = says("runs, and what logs and tables say")
    skipped: tuple[Skipped, ...] = says("files that gave nothing, each with its reason")

    @property
    def sources(self) -> list[str]:
        """Names of all that was read."""
        return [r.source for r in self.rows] + [s.source for s in self.skipped]
