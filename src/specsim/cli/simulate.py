"""`specsim simulate`: single requests through both arms."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.cli.execution import executor_of, run_options, seed_option, slo_options
from specsim.cli.options import UNDER_LOAD, Request, calibration_option, scenario_command
from specsim.cli.output import emit, json_option, output_option
from specsim.errors import UsageError
from specsim.schema.results import as_json as plain

if TYPE_CHECKING:
    from specsim.analysis.simulation.run import Pools


@scenario_command(
    "simulate",
    more=UNDER_LOAD,
    extra=(
        calibration_option,
        click.option(
            "--trace", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
            help="Recorded arrivals and lengths: Azure, BurstGPT, Mooncake, other CSV or JSONL, or "
            "a detailed result of `vllm bench serve`.",
        ),
        click.option(
            "--trace-rate", type=float, metavar="RATE",
            help="Stretch the trace to this mean rate [requests/s].",
        ),
        *slo_options,
        click.option(
            "--pools", metavar="ON:OFF",
            help="Replicas with speculation on and off behind one router, e.g. 2:1; "
            "all arms then have as many.",
        ),
        click.option(
            "--route-above", type=click.FloatRange(min=0), metavar="N",
            help="With --pools: requests in an on replica from which new ones go to the off pool; "
            "absent: the crossover.",
        ),
        click.option(
            "--requests", type=click.IntRange(min=1), metavar="N",
            help="Measured in each replication. Absent: 2000, of a trace all.",
        ),
        click.option(
            "--replications", type=click.IntRange(1, 1000), default=5, show_default=True,
            help="Independent repeats, from which the intervals come.",
        ),
        seed_option,
        *run_options,
        click.option(
            "--loop", type=click.Choice(["lists", "compiled"]),
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
    from specsim.schema.slo import parse_slo

    promised = parse_slo(slo, goodput)
    recorded = None if trace is None else read_trace(trace)
    if trace_rate is not None:
        if recorded is None:
            raise UsageError("--trace-rate without --trace: --request-rate sets the rate of both")
        recorded = recorded.scaled(trace_rate)
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
    answer = dataclasses.replace(answer, warnings=(*answer.warnings, *request.notes))
    emit(
        lambda: plain(answer),
        lambda screen: report(screen, answer),
        as_json=as_json,
        output=output,
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
    if len(parts) != 2 or not all(part.isdecimal() for part in parts) or "0" in parts:
        raise UsageError(f"--pools {text!r}: expected ON:OFF, both at least 1, such as 2:1")
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
    return Pools(int(parts[0]), int(parts[1]), route_above)
