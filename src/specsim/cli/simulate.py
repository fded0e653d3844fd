"""`specsim simulate`: single requests through both arms."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.catalog.scenario import LOADS
from specsim.cli.execution import (
    executor_of,
    requests_option,
    run_options,
    seed_option,
    slo_options,
)
from specsim.cli.options import (
    UNDER_LOAD,
    Request,
    calibration_option,
    keys_given,
    scenario_command,
    without_effect,
)
from specsim.cli.output import emit, json_option, output_option
from specsim.cli.parameters import EXECUTION, SIMULATION, FiniteRange, Option
from specsim.errors import InputError, UsageError
from specsim.schema.results import as_json as plain
from specsim.schema.scenario import LEAST_RATE, MOST_CONCURRENCY, MOST_RATE, RATES

if TYPE_CHECKING:
    from specsim.analysis.simulation.run import Pools
    from specsim.catalog.traces import Trace

_OF_THE_TRACE = (
    "load", *(f"load.{kind}" for kind in LOADS), "workload.input_tokens", "workload.output_tokens",
    "workload.input_tokens_p95", "workload.output_tokens_p95", "workload.burstiness",
    "workload.arrival", "workload.num_requests",
)  # fmt: skip
"""Keys of the scenario that a trace takes the place of."""
_MOST_REPLICAS, _DIGITS = 256, 6


@scenario_command(
    "simulate",
    more=UNDER_LOAD,
    extra=(
        calibration_option,
        click.option(
            "--trace", cls=Option, section=SIMULATION, metavar="FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Recorded arrivals and lengths, in place of the scenario's: Azure, BurstGPT, "
            "Mooncake, other CSV or JSONL, or a detailed result of `vllm bench serve`.",
        ),
        click.option(
            "--trace-rate", cls=Option, section=SIMULATION, metavar="RATE",
            type=FiniteRange(LEAST_RATE, MOST_RATE),
            help="Stretch the trace to this mean rate [requests/s].",
        ),
        *slo_options,
        click.option(
            "--pools", cls=Option, section=SIMULATION, metavar="ON:OFF",
            help="Replicas with speculation on and off behind one router, e.g. 2:1; "
            "all arms then have as many.",
        ),
        click.option(
            "--route-above", cls=Option, section=SIMULATION, metavar="N",
            type=FiniteRange(0, MOST_CONCURRENCY),
            help="With --pools: requests in an on replica from which new ones go to the off pool; "
            "absent: the crossover.",
        ),
        requests_option("Measured in each replication. Absent: 2000, of a trace all."),
        click.option(
            "--replications", cls=Option, section=SIMULATION, type=click.IntRange(1, 1000),
            default=5, show_default=True,
            help="Independent repeats, from which the intervals come.",
        ),
        seed_option,
        *run_options,
        click.option(
            "--loop", cls=Option, section=EXECUTION, type=click.Choice(["lists", "compiled"]),
            help="How the scheduler runs. Absent: compiled by numba where that is installed and "
            "pays.",
        ),
        json_option,
        output_option,
    ),
)  # fmt: skip
def command(
    request: Request,
    calibration: Path | None,
    trace: Path | None,
    trace_rate: float | None,
    slo: tuple[str, ...],
    goodput: tuple[str, ...],
    pools: str | None,
    route_above: float | None,
    requests: int | None,
    replications: int,
    seed: int | None,
    workers: int,
    scheduler: str | None,
    loop: Any,
    as_json: bool,
    output: Path | None,
) -> None:
    """Serve single requests on both arms: percentiles, SLOs and what the tail waits for.

    A scheduler like vLLM's runs iteration by iteration on the step times of `predict`: arrivals,
    chunked prompts, the token budget, blocks of the cache, preemption, acceptance by request.

    \b
    specsim simulate scenario.yaml --request-rate 8 --slo ttft_p95_ms=1000 --slo tpot_p99_ms=50
    specsim simulate scenario.yaml --trace azure_code.csv --trace-rate 4
    specsim simulate scenario.yaml --request-rate 30 --pools 2:1 --route-above 48
    """  # noqa: D301 - click reads the escape as "keep these lines"
    from specsim.analysis.prepare import SEED
    from specsim.analysis.simulation.simulate import simulate
    from specsim.catalog.traces import read_trace
    from specsim.cli.simulation_report import report
    from specsim.schema.slo import few_slowest, parse_slo

    promised = parse_slo(slo, goodput)
    if trace is None and trace_rate is not None:
        raise UsageError("--trace-rate without --trace: --request-rate sets the rate of both")
    recorded = None
    if trace is not None:
        _refuse_overruled()
        recorded = read_trace(trace)
        recorded = recorded if trace_rate is None else recorded.scaled(trace_rate)
        _refuse_rate(recorded)
    with executor_of(workers, scheduler) as executor:
        answer = simulate(
            request.scenario,
            slo=None if promised.is_empty() else promised,
            trace=recorded,
            pools=_pools(pools, route_above, request, calibration),
            num_requests=requests,
            replications=replications,
            seed=SEED if seed is None else seed,
            loop=loop,
            executor=executor,
            search=request.search,
            calibration=calibration,
        )
    few = few_slowest(
        promised.percentiles,
        requests=answer.load["requests_measured"],
        replications=replications,
    )
    unused = () if recorded is not None else without_effect(request.scenario)
    warnings = (*answer.warnings, *few, *unused, *request.notes)
    answer = dataclasses.replace(answer, warnings=warnings)
    emit(
        lambda: plain(answer),
        lambda screen: report(screen, answer),
        as_json=as_json,
        output=output,
    )


def _refuse_overruled() -> None:
    """Refuse flags for what a trace says itself."""
    given = keys_given()
    for key in _OF_THE_TRACE:
        if key in given:
            rate = "; --trace-rate RATE sets its rate" if key.startswith("load") else ""
            raise UsageError(
                f"{given[key]} together with --trace: arrivals and lengths are the trace's; give "
                f"one of them{rate}"
            )


def _refuse_rate(trace: Trace) -> None:
    if math.isfinite(trace.mean_rate) and not LEAST_RATE <= trace.mean_rate <= MOST_RATE:
        raise InputError(
            f"{trace.source}: {trace.mean_rate:.3g} requests/s, expected {RATES}; set its rate "
            "with --trace-rate"
        )


def _pools(
    text: str | None, route_above: float | None, request: Request, calibration: Path | None
) -> Pools | None:
    from specsim.analysis.predict import predict_crossover
    from specsim.analysis.simulation.run import Pools

    if text is None:
        if route_above is not None:
            raise UsageError("--route-above without --pools: give the replicas, e.g. --pools 2:1")
        return None
    parts = text.split(":")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise UsageError(f"--pools {text!r}: expected ON:OFF, such as 2:1")
    on, off = (int(part[:_DIGITS]) for part in parts)
    if min(on, off) < 1 or on + off > _MOST_REPLICAS or max(map(len, parts)) > _DIGITS:
        raise UsageError(
            f"--pools {text[:40]!r}: expected ON:OFF, both at least 1 and {_MOST_REPLICAS:,} "
            "together at most, such as 2:1"
        )
    if route_above is None:
        # Where it turns is a matter of the requests in a replica, not of their rate.
        closed = request.scenario.model_copy(
            update={"load": type(request.scenario.load)(concurrency=(1.0,))}
        )
        found = predict_crossover(closed, search=request.search, calibration=calibration)
        if found.state == "never":
            raise UsageError(
                "--pools: speculation wins at no load here, so there is nothing to route; give "
                "--route-above N to route all the same"
            )
        route_above = found.load if found.load is not None else found.searched[1]
    return Pools(on, off, route_above)
