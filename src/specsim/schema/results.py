"""What predictions say: frozen records with the field names of `--json`.

Every field carries its description and unit, from which CLI help, app tooltips and workbook
headers are made. `as_json` turns any of them into plain JSON types.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

Bound = Literal["memory", "kv", "compute", "communication", "host"]
LimitedBy = Literal["load", "max_num_seqs", "kv"]
CrossoverState = Literal["always", "never", "crosses"]
Decision = Literal["on", "off", "schedule", "neutral"]

NEUTRAL_LOW, NEUTRAL_HIGH = 0.95, 1.05
"""Speedups between the two have no sign."""
FIELD_RULE = 0.5
"""The draft acceptance rate below which, people say, speculation does not pay at moderate load."""
DOES_NOT_START = "vLLM does not start"
"""How a warning begins that makes the deployment impossible as it is written."""


def says(description: str, unit: str = "", *, in_json: bool = True) -> Any:
    """Describe a field of a result."""
    hidden = {} if in_json else {"not_in_json": True}
    return field(metadata={"description": description, "unit": unit, **hidden})


@dataclass(frozen=True)
class AcceptanceResult:
    """Acceptance under each of its names (definitions.md section 1)."""

    acceptance_length: float = says("mean tokens per target step, over all steps", "tokens")
    acceptance_rate: float = says("per token, given that the ones before were accepted")
    draft_acceptance_rate: float = says("accepted / drafted, as vLLM prints it")
    per_position: tuple[float, ...] = says("probability that this and all earlier are accepted")
    source: str = says("where the figure comes from")


@dataclass(frozen=True)
class KvArm:
    """Memory of one arm."""

    weights_gib: float = says("weights on all devices of a replica, drafter included", "GiB")
    drafter_weights_gib: float = says("of these, the drafter's", "GiB")
    kv_gib: float = says("left for the cache on all devices, at vLLM's utilisation", "GiB")
    kv_gb_nameplate: float = says("marketed memory less weights", "GB")
    other_gib: float = says("activations, graphs and context on all devices", "GiB")
    bytes_per_token: float = says("cache bytes per token on one device", "bytes")
    kv_tokens: int = says("tokens that the cache holds, as vLLM's log prints it", "tokens")
    max_concurrency: float = says("requests of this workload in flight that fit", "requests")


@dataclass(frozen=True)
class KvResult:
    """Memory with speculation off and on."""

    baseline: KvArm = says("speculation off")
    speculative: KvArm = says("speculation on")
    lost_tokens: int = says("cache lost to the drafter", "tokens")
    lost_fraction: float = says("share of the cache lost to the drafter")
    memory_nameplate_gb: float = says("marketed memory of the replica", "GB")
    memory_usable_gib: float = says("what the driver reports, for the replica", "GiB")


@dataclass(frozen=True)
class BaselinePoint:
    """Speculation off at one load."""

    batch: float = says("running requests", "requests")
    limited_by: LimitedBy = says("what caps the batch")
    step_ms: float = says("one engine step without prefill", "ms")
    tpot_ms: float = says("time per output token", "ms")
    ttft_ms: float = says("time to first token, waiting included", "ms")
    output_tok_s: float = says("output tokens per second", "tok/s")
    usd_per_mtok: float | None = says("price of a million output tokens", "USD")
    usd_per_mtok_total: float | None = says("price of a million tokens, input and output", "USD")
    bound: Bound = says("largest share of the step")
    parts_ms: dict[str, float] = says("the step by cause", "ms")


@dataclass(frozen=True)
class SpeculativePoint:
    """Speculation on at one load."""

    batch: float = says("running requests", "requests")
    limited_by: LimitedBy = says("what caps the batch")
    step_ms: float = says("one engine step without prefill", "ms")
    draft_ms: float = says("drafting", "ms")
    verify_ms: float = says("the target's pass", "ms")
    host_ms: float = says("host time around the passes", "ms")
    tokens_per_step: float = says("tokens that a step yields per request", "tokens")
    verify_tokens: float = says("tokens verified per request and step", "tokens")
    tpot_ms: float = says("time per output token", "ms")
    itl_ms: float = says("time between streamed chunks", "ms")
    ttft_ms: float = says("time to first token, waiting included", "ms")
    output_tok_s: float = says("output tokens per second", "tok/s")
    usd_per_mtok: float | None = says("price of a million output tokens", "USD")
    usd_per_mtok_total: float | None = says("price of a million tokens, input and output", "USD")
    bound: Bound = says("largest share of the step")
    parts_ms: dict[str, float] = says("the step by cause", "ms")


@dataclass(frozen=True)
class Point:
    """Both arms at one load. An arm is null where the open-loop rate is above what it can serve."""

    concurrency: float | None = says("requests kept in the system (closed loop)", "requests")
    request_rate: float | None = says("arrivals (open loop)", "requests/s")
    baseline: BaselinePoint | None = says("speculation off")
    speculative: SpeculativePoint | None = says("speculation on")
    speedup: float | None = says("on / off: output_tok_s closed loop, tpot open loop")
    speedup_low: float | None = says("10th percentile")
    speedup_high: float | None = says("90th percentile")
    note: str = says("why an arm is missing")


@dataclass(frozen=True)
class Crossover:
    """Where speculation stops paying."""

    state: CrossoverState = says("always, never or crosses, within what was searched")
    load: float | None = says("load at which the gain first turns into a loss")
    batch: float | None = says("running requests of the off arm there", "requests")
    low: float | None = says("10th percentile of that load; null: below what was searched")
    high: float | None = says("90th percentile of that load; null: beyond what was searched")
    wins: tuple[tuple[float, float], ...] = says("intervals of load in which speculation wins")
    searched: tuple[float, float] = says("loads searched")


@dataclass(frozen=True)
class BreakEven:
    """The acceptance at which speculation is worth nothing; null where none is enough."""

    load: float = says("concurrency or request rate")
    acceptance_length: float | None = says("tokens per step", "tokens")
    acceptance_rate: float | None = says("per token")
    draft_acceptance_rate: float | None = says("accepted / drafted")


@dataclass(frozen=True)
class BestK:
    """The number of draft tokens that serves a load fastest; 0 is off."""

    load: float = says("concurrency or request rate")
    k: int = says("num_speculative_tokens")
    speedup: float = says("against off")


@dataclass(frozen=True)
class AcceptanceCurvePoint:
    """Speedup at one acceptance."""

    acceptance_rate: float = says("per token")
    acceptance_length: float = says("tokens per step", "tokens")
    draft_acceptance_rate: float = says("accepted / drafted")
    first: float | None = says("speedup at the first load")
    median: float | None = says("speedup at the median load")
    last: float | None = says("speedup at the last load")


@dataclass(frozen=True)
class Transition:
    """Where a pass of the target turns from memory- to compute-bound."""

    tokens: float | None = says("GEMM compute time equals GEMM memory time", "tokens")
    slowdown_10pct_tokens: float | None = says("10 % slower than one token", "tokens")
    slowdown_50pct_tokens: float | None = says("50 % slower than one token", "tokens")


@dataclass(frozen=True)
class Verdict:
    """What to do."""

    decision: Decision = says("on, off, schedule (by load) or neutral")
    reason: str = says("why, in a sentence")


@dataclass(frozen=True)
class Prediction:
    """The whole answer to one scenario: the object of `predict --json`."""

    scenario: dict[str, Any] = says("the input with every default filled in")
    acceptance: AcceptanceResult | None = says("null with method none")
    kv: KvResult = says("memory off and on")
    points: tuple[Point, ...] = says("both arms by load")
    crossover: Crossover | None = says("null with method none")
    break_even: tuple[BreakEven, ...] = says("by load")
    best_k: tuple[BestK, ...] = says("by load")
    acceptance_curve: tuple[AcceptanceCurvePoint, ...] = says("speedup over acceptance")
    transition: Transition = says("memory-bound to compute-bound")
    verdict: Verdict = says("what to do")
    defaults: tuple[str, ...] = says("every default that was used")
    warnings: tuple[str, ...] = says("what to know before trusting this")
    provenance: dict[str, Any] = says("constants by basis and source, versions")


def as_json(result: Any, *, digits: int = 6) -> Any:
    """Return JSON types: numbers to `digits` significant digits, null for what is not finite."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return {
            f.name: as_json(getattr(result, f.name), digits=digits)
            for f in dataclasses.fields(result)
            if not f.metadata.get("not_in_json")
        }
    if isinstance(result, BaseModel):
        return as_json(result.model_dump(mode="json"), digits=digits)
    if isinstance(result, dict):
        return {str(key): as_json(value, digits=digits) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [as_json(value, digits=digits) for value in result]
    if result is None or isinstance(result, (bool, str, int)):
        return result
    number = float(result)
    if not math.isfinite(number):
        return None
    return float(f"{number:.{digits}g}")
