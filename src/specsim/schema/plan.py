"""What a plan says: candidates with the fleet that each needs, and the one to take.

Field names are those of `plan --json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from specsim.schema.results import says
from specsim.schema.scenario import Scenario

PlanArm = Literal["baseline", "speculative"]


@dataclass(frozen=True)
class Reached:
    """One target of the SLO and what is reached of it."""

    target: str = says("such as ttft_p95_ms; attainment_pct for bounds on every request")
    value: float = says("reached", "ms or %")
    limit: float = says("asked for", "ms or %")
    met: bool = says("whether that is enough")
    excess: float = says("share of what is allowed that is used; above 1 is missed")


@dataclass(frozen=True)
class PricePaid:
    """What an hour of a device costs."""

    usd_per_gpu_hour: float = says("price of one device", "USD/hour")
    as_of: str | None = says("date of the price; null: undated")
    source: str = says("where it comes from")


@dataclass(frozen=True)
class Candidate:
    """One deployment with speculation off or on: the fleet that it needs, or why it has none.

    Of a rejected candidate what belongs to a fleet is null.
    """

    deployment: str = says("model, dtype, device, parallelism and way of speculating")
    arm: PlanArm = says("baseline: speculation off; speculative: on")
    varied: dict[str, Any] = says("values of what was varied, by key of the scenario")
    accelerator: str = says("device")
    gpus_per_replica: int | None = says("devices of one replica", "GPUs")
    load_at_slo: float | None = says("largest load of one replica at the SLO", "requests/s")
    stable_rate: float | None = says("load beyond which its queue grows", "requests/s")
    output_tok_s: float | None = says("output of one replica at that load", "tok/s")
    binding: str = says("what forbids more load: a target of the SLO, or capacity")
    reached: tuple[Reached, ...] = says("the targets at that load; at almost none if rejected")
    ttft_p95_ms: float | None = says("time to first token at the peak, no replica down", "ms")
    tpot_p95_ms: float | None = says("time per output token at the peak, no replica down", "ms")
    replicas_base: int | None = says("replicas that the peak needs", "replicas")
    replicas: int | None = says("the same with spares", "replicas")
    gpus: int | None = says("devices of all replicas", "GPUs")
    servers: int | None = says("servers for them, a replica on as few as possible", "servers")
    utilization_peak: float | None = says("load at the peak / load at the SLO")
    utilization_average: float | None = says("load on average / load at the SLO")
    utilization_one_down: float | None = says(
        "load at the peak / load at the SLO, one replica down; null: none is left"
    )
    one_down_ok: bool | None = says("whether one replica down leaves the peak within the SLO")
    one_down_speculation_off: bool | None = says(
        "whether the SLO is then met with speculation off, and not with it on"
    )
    one_down_speedup: float | None = says(
        "time per token off / on with one replica down; null: off, or one of them overloaded"
    )
    one_down: str | None = says("the same in a sentence")
    price: PricePaid | None = says("of the device; null: not known")
    usd_per_hour: float | None = says("price of all devices; null without one", "USD/hour")
    usd_per_month: float | None = says("the same for 30.4 days of 24 hours", "USD")
    usd_per_mtok_average: float | None = says(
        "price of a million output tokens at the load of the month, idle hours included", "USD"
    )
    usd_per_mtok_peak: float | None = says("the same at the peak", "USD")
    power_kw: float | None = says("all devices at their rated power: an upper bound", "kW")
    kwh_per_month: float | None = says("the same for a month: an upper bound", "kWh")
    joule_per_token: float | None = says("the same per output token: an upper bound", "J")
    rejected_because: str | None = says("why no fleet of it will do; null if one does")
    simulations: int = says("load tests that were simulated")
    warnings: tuple[str, ...] = says("what to know before trusting this")
    source: Scenario = says("the candidate as it was written", in_json=False)

    @property
    def name(self) -> str:
        """The deployment and whether it speculates."""
        return f"{self.deployment}, speculation {'off' if self.arm == 'baseline' else 'on'}"


@dataclass(frozen=True)
class Saving:
    """What the best candidate saves against another; below zero: it costs more."""

    against: str = says("the other candidate")
    gpus: int = says("devices saved", "GPUs")
    usd_per_month: float | None = says("money saved; null without prices", "USD")
    pct: float | None = says("of the price of the other; null without prices", "%")


@dataclass(frozen=True)
class Best:
    """The candidate to take."""

    deployment: str = says("model, dtype, device, parallelism and way of speculating")
    arm: PlanArm = says("baseline: speculation off; speculative: on")
    candidate: int = says("its place in `candidates`")
    reason: str = says("why, in a sentence")
    saves_against_runner_up: Saving | None = says("null: there is no other")
    saves_against_off: Saving | None = says(
        "against the same deployment with speculation off; null if that is the best, or rejected"
    )
    saves_against_on: Saving | None = says(
        "where off is best: against the best way of speculating on the same deployment"
    )
    scenario: dict[str, Any] = says("the input of one replica with every default filled in")


@dataclass(frozen=True)
class Plan:
    """Traffic, promise and candidates to a fleet: the object of `plan --json`."""

    candidates: tuple[Candidate, ...] = says("the cheapest first, rejected ones last")
    best: Best | None = says("null: no candidate meets the SLO")
    verdict: str = says("what to take, or what would have to change, in a sentence")
    traffic: dict[str, Any] = says("as given, and the rates that follow [requests/s]")
    slo: dict[str, Any] = says("what was promised")
    workload: dict[str, Any] = says("lengths and arrivals of the requests")
    defaults: tuple[str, ...] = says("every default that was used")
    warnings: tuple[str, ...] = says("what to know before trusting this")
    provenance: dict[str, Any] = says("constants by basis and source, versions")
