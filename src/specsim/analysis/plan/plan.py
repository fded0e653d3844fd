"""The whole plan: test every candidate, size its fleet, rank, and say what to take."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.analysis.plan.candidates import (
    Option,
    Outcome,
    Setting,
    even_lengths,
    options,
    outcome,
)
from specsim.analysis.plan.choose import best_of, nothing_meets, rank, verdict
from specsim.analysis.plan.fleet import GPUS_PER_SERVER, Fleet, fleet
from specsim.analysis.plan.search import TOLERANCE, LoadTestFactory
from specsim.analysis.prepare import SEED
from specsim.catalog.calibration import load_calibration
from specsim.errors import InfeasibleError, UsageError
from specsim.schema.calibration import Calibration
from specsim.schema.plan import Candidate, Plan, PricePaid
from specsim.schema.scenario import Scenario
from specsim.schema.slo import Slo
from specsim.schema.traffic import Traffic

if TYPE_CHECKING:
    from specsim.analysis.simulation.simulate import Executor

NUM_REQUESTS = 5000
"""Of one load test. Near saturation queues need long to build up: an 8B on one H100 at a TTFT p95
of 500 ms holds 4 % more by tests of 2000 requests, and as much by 5000 as by 10,000 (within 1 %,
seeds within 3 %)."""
EVERY_DEVICE = "*"
"""Stands for all accelerators in a list of prices."""
_FLEET = tuple(field.name for field in dataclasses.fields(Fleet))
_SLOWEST = 10
"""A percentile of fewer slowest requests than this is noise."""
Progress = Callable[[int, int, str], None]
"""Told how many candidates of how many are done, and the name of the last."""


def plan(
    scenarios: Scenario | Sequence[Scenario],
    traffic: Traffic,
    slo: Slo,
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    prices: Mapping[str, PricePaid] | None = None,
    gpus_per_server: int = GPUS_PER_SERVER,
    num_requests: int = NUM_REQUESTS,
    seed: int = SEED,
    factory: LoadTestFactory | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> Plan:
    """Find the cheapest fleet that meets an SLO under a traffic.

    Parameters
    ----------
    scenarios : Scenario or sequence of Scenario
        Deployments to compare, each with speculation off and on. Their loads are ignored, and the
        workload of all is the first one's.
    axes : mapping, optional
        Values to vary in each, by key of the scenario:
        ``{"hardware.tensor_parallel_size": (1, 2)}``.
    prices : mapping, optional
        By accelerator, in place of its profile's; `EVERY_DEVICE` for all.
    num_requests, seed : int
        Of one load test; the same requests are sent at every load.
    factory : callable, optional
        Makes the load test of a deployment; absent: the request-level simulator.
    executor : Executor, optional
        Absent: in this process.

    Raises
    ------
    SpecsimError
        One line saying what is wrong and what to do. A candidate that cannot be served is no
        error: it is listed with the reason.
    """
    bases = (scenarios,) if isinstance(scenarios, Scenario) else tuple(scenarios)
    workload = bases[0].workload
    if workload.arrival == "burst":
        raise UsageError(
            "workload.arrival = burst: a plan sizes for requests that arrive over time; "
            "use --arrival steady"
        )
    if isinstance(calibration, Path | str):
        calibration = load_calibration(calibration)
    chosen = options(bases, axes or {}, peak_rate=traffic.peak_rate)
    setting = Setting(
        slo, traffic, factory or _simulated(num_requests, seed), tuple(search), calibration
    )
    outcomes = [_priced(o, prices or {}) for o in _tested(chosen, setting, executor, progress)]
    _raise_if_hopeless(outcomes)
    outcomes = _told_apart(outcomes)
    sized = list(_candidates(outcomes, traffic, workload.output_tokens, gpus_per_server))
    order = rank(sized)
    candidates, outcomes = [sized[i] for i in order], [outcomes[i] for i in order]
    best = best_of(candidates, outcomes)
    # Of a plan without an answer, what was assumed is told of the first that could be tested.
    tested = [o for o in outcomes if o.scenario is not None]
    shown = outcomes[best.candidate] if best else tested[0] if tested else None
    n_slowest = _few_slowest(slo, num_requests) if factory is None else ()
    return Plan(
        candidates=tuple(candidates),
        best=best,
        verdict=verdict(candidates, best) if best else nothing_meets(candidates),
        traffic={
            **traffic.model_dump(mode="json", exclude_none=True),
            "avg_rate": traffic.avg_rate,
            "peak_rate": traffic.peak_rate,
            "monthly_requests": traffic.monthly_requests,
            "monthly_output_tokens": traffic.monthly_requests * workload.output_tokens,
        },
        slo=slo.model_dump(mode="json"),
        workload=workload.model_dump(mode="json", exclude_none=True),
        defaults=tuple(_defaults(traffic, slo, bases[0], shown)),
        warnings=tuple(
            dict.fromkeys((*_unpriced(candidates), *n_slowest, *(shown.warnings if shown else ())))
        ),
        provenance={
            **((shown.provenance if shown else None) or {}),
            "load_test": {
                "requests": num_requests,
                "seed": seed,
                "tolerance_pct": 100.0 * TOLERANCE,
            },
        },
    )


def _simulated(num_requests: int, seed: int) -> LoadTestFactory:
    from specsim.analysis.simulation.load_test import load_test  # only where it is needed

    return functools.partial(load_test, num_requests=num_requests, seed=seed)


def _tested(
    chosen: Sequence[Option],
    setting: Setting,
    executor: Executor | None,
    progress: Progress | None,
) -> Iterator[Outcome]:
    """Test options here or elsewhere, in order."""
    if executor is None:
        found: Iterable[Outcome] = (outcome(option, setting) for option in chosen)
    else:
        futures = [executor.submit(outcome, option, setting) for option in chosen]
        found = (future.result() for future in futures)
    for done, tested in enumerate(found, start=1):
        if progress is not None:
            progress(done, len(chosen), tested.deployment)
        yield tested


def _raise_if_hopeless(outcomes: Sequence[Outcome]) -> None:
    """Raise what is wrong with all of an arm: that is the input, not a candidate."""
    for arm in ("baseline", "speculative"):
        errors = [o.error for o in outcomes if o.option.arm == arm]
        found = [e for e in errors if e is not None and not isinstance(e, InfeasibleError)]
        if found and len(found) == len(errors):
            raise found[0]


def _told_apart(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Tell candidates of one name apart: by number, and by the scenario that each is of."""
    seen: Counter[tuple[str, str]] = Counter()
    often = Counter((o.deployment, o.option.arm) for o in outcomes)
    named = []
    for o in outcomes:
        key = (o.deployment, o.option.arm)
        seen[key] += 1
        if often[key] > 1:
            words = filter(None, (f"#{seen[key]}", o.option.scenario.name))
            o = dataclasses.replace(o, deployment=f"{o.deployment} ({' '.join(words)})")
        named.append(o)
    return named


def _priced(found: Outcome, prices: Mapping[str, PricePaid]) -> Outcome:
    given = prices.get(found.accelerator, prices.get(EVERY_DEVICE))
    return found if given is None else dataclasses.replace(found, price=given)


def _candidates(
    outcomes: Sequence[Outcome], traffic: Traffic, output_tokens: float, gpus_per_server: int
) -> Iterator[Candidate]:
    off = {
        o.option.off: o.load.request_rate
        for o in outcomes
        if o.option.arm == "baseline" and o.load is not None and o.rejected_because is None
    }
    for o in outcomes:
        load = o.load
        sized = None
        if load is not None and o.rejected_because is None and o.gpus_per_replica is not None:
            sized = fleet(
                traffic,
                load_at_slo=load.request_rate,
                load_at_slo_off=off.get(o.option.off) if o.option.arm == "speculative" else None,
                one_down_speedup=o.one_down_speedup,
                output_tokens=output_tokens,
                gpus_per_replica=o.gpus_per_replica,
                gpus_per_server=gpus_per_server,
                usd_per_gpu_hour=None if o.price is None else o.price.usd_per_gpu_hour,
                tdp_w=o.tdp_w,
            )
        of_fleet = (
            dict.fromkeys(_FLEET) if sized is None else {n: getattr(sized, n) for n in _FLEET}
        )
        yield Candidate(
            deployment=o.deployment,
            arm=o.option.arm,
            varied=o.option.varied,
            accelerator=o.accelerator,
            gpus_per_replica=o.gpus_per_replica,
            load_at_slo=load.request_rate if load and sized else None,
            stable_rate=load.stable_rate if load else None,
            output_tok_s=load.output_tok_s if load and sized else None,
            binding="" if load is None else load.binding.target if load.binding else "capacity",
            reached=load.reached if load else (),
            ttft_p95_ms=o.ttft_p95_ms if sized else None,
            tpot_p95_ms=o.tpot_p95_ms if sized else None,
            price=o.price,
            rejected_because=o.rejected_because,
            simulations=load.simulations if load else 0,
            warnings=o.warnings,
            source=o.option.scenario,
            **of_fleet,
        )


def _defaults(traffic: Traffic, slo: Slo, base: Scenario, shown: Outcome | None) -> Iterator[str]:
    yield from traffic.assumptions
    if slo.is_empty():
        yield "slo: none, so a replica is loaded up to what it sustains"
    yield from even_lengths(base.workload)
    yield "the fleet is paid around the clock, 30.4 days a month"
    yield from shown.defaults if shown else ()


def _unpriced(candidates: Sequence[Candidate]) -> Iterator[str]:
    fleets = [c for c in candidates if c.rejected_because is None]
    missing = dict.fromkeys(c.accelerator for c in fleets if c.price is None)
    some = any(c.price is not None for c in fleets)
    for device in missing:
        where = "behind what has a price, by GPUs" if some else "by GPUs"
        yield (
            f"no price of {device} is known: its dollars are null and it is ranked {where}; give "
            f"--price {device}=USD per GPU and hour"
        )


def _few_slowest(slo: Slo, num_requests: int) -> tuple[str, ...]:
    """Warn of percentiles that so few requests cannot tell."""
    return tuple(
        f"{t.name} of {num_requests} requests is that of the {max(int(slowest), 1)} slowest: "
        f"noise; give --requests {_SLOWEST * num_requests / slowest:.0f} or more"
        for t in slo.targets
        if t.percentile is not None and t.metric != "itl"
        if (slowest := num_requests * (1.0 - t.percentile / 100.0)) < _SLOWEST - 1e-6
    )
