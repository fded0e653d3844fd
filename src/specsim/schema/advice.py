"""What `specsim advise` says: three questions answered for each scenario, and what to do.

Field names are those of `advise --json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from specsim.schema.results import Crossover, says
from specsim.schema.simulation import Percentiles
from specsim.schema.slo import Slo

OptionKind = Literal["off", "on", "cap", "schedule", "route"]
Side = Literal["below", "inside", "above"]
AcceptanceBasis = Literal["given", "profile", "counted"]
Tiers = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Peak:
    """The first question: requests in flight at peak, against the crossover."""

    concurrency: float = says("requests in the batch at peak, speculation off", "requests")
    mean: float = says("requests in the batch, mean over time, speculation off", "requests")
    basis: str = says("where the peak comes from")
    crossover: Crossover = says("where speculation stops paying, in requests kept in the system")
    side: Side = says("where the peak lies against the crossover's 80 % interval")
    pays: bool = says("the peak lies in an interval of load in which speculation wins")
    sentence: str = says("the answer in a sentence")


@dataclass(frozen=True)
class AcceptanceCheck:
    """The second and third: how deterministic the output is, and what is accepted of drafts."""

    temperature: float = says("of sampling; 0 always takes the likeliest token")
    acceptance_length: float = says("mean tokens per target step", "tokens")
    draft_acceptance_rate: float = says("accepted / drafted, as vLLM prints it")
    break_even_length: float | None = says("needed at the peak; null: none is enough", "tokens")
    break_even_rate: float | None = says("the same as accepted / drafted")
    margin: float | None = says("accepted / drafted above what is needed at the peak")
    basis: AcceptanceBasis = says("given, of a bundled profile, or counted in runs")
    source: str = says("where the figure comes from")
    measure: str = says("how to count it on real traffic; '' where it is counted")
    sentence: str = says("the answer in a sentence")


@dataclass(frozen=True)
class OptionResult:
    """One way to run the deployment, on the same requests as the others."""

    name: str = says("what is done")
    kind: OptionKind = says("off, on as given, k capped, k scheduled by batch, or routed by load")
    k: int = says("most draft tokens per step; 0 is off")
    schedule: Tiers | None = says("first and last batch, and k there")
    route_above: float | None = says("requests in an on replica from which on others go to off")
    replicas: int = says("replicas that share the load; each gets the scenario's")
    ttft_ms: Percentiles = says("time to first token, waiting included", "ms")
    tpot_ms: Percentiles = says("time per output token after the first, by request", "ms")
    itl_ms: Percentiles = says("gap between streamed chunks: a step", "ms")
    e2e_ms: Percentiles = says("time to the last token", "ms")
    output_tok_s: float = says("output tokens per second and replica", "tok/s")
    running: float = says("requests in the batch of a replica, mean over time", "requests")
    tokens_per_step: float = says("tokens per step of a request", "tokens")
    overloaded: bool = says("the queue grows as long as requests come")
    to_off: dict[str, dict[str, float]] = says("mean and p99 by metric, against off")
    slo: list[dict[str, Any]] = says("each promise with what is reached")
    meets: bool = says("no worse at p99 than off, or the SLO met where one is given")
    misses: tuple[str, ...] = says("what it fails")


@dataclass(frozen=True)
class Action:
    """What to do."""

    decision: OptionKind = says("the option to take")
    k: int = says("num_speculative_tokens; 0 is off")
    schedule: Tiers | None = says("first and last batch, and k there")
    route_above: float | None = says("requests in an on replica from which on others go to off")
    speculative_config: dict[str, Any] | None = says(
        "vLLM's --speculative-config; null: leave it away, or not an option of this engine"
    )
    reason: str = says("why, in a sentence")
    size_first: bool = says(
        "no option will do: more arrives than a replica serves, or each misses the SLO"
    )
    tail: str = says("why p99 worsens though means improve, as given; '' where it does not")


@dataclass(frozen=True)
class ScenarioAdvice:
    """The answer to one scenario."""

    name: str = says("the scenario's, or its file's")
    scenario: dict[str, Any] = says("the input with every default filled in")
    load: dict[str, Any] = says("what was sent: kind, value, requests, replications")
    peak: Peak = says("requests in flight against the crossover")
    acceptance: AcceptanceCheck = says("acceptance against break-even at the peak")
    action: Action = says("what to do")
    options: tuple[OptionResult, ...] = says("each way to run it, off first")
    lints: tuple[str, ...] = says("what to look at first")
    defaults: tuple[str, ...] = says("every default that was used")
    provenance: dict[str, Any] = says("constants by basis and source, versions")


@dataclass(frozen=True)
class Advice:
    """The object of `advise --json`."""

    scenarios: tuple[ScenarioAdvice, ...] = says("one answer each")
    together: str = says("what holds for all, or who gets what; '' of a single scenario")
    slo: Slo | None = says("what was asked for, if anything")
    seed: int = says("the seed that gives the same answer again")
