"""`specsim plan`: traffic, a promise and candidate deployments to a fleet."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from specsim.cli.axes import beside_axes, parse_axes, refuse_given_twice, vary_option
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
)
from specsim.cli.output import emit, json_option, output_option, refuse_overwriting
from specsim.cli.parameters import Option
from specsim.cli.traffic import (
    FLEET,
    price_options,
    prices_of,
    prices_unused,
    traffic_of,
    traffic_options,
)
from specsim.cli.workbook import refuse_workbook, save, workbook_options, worked_out
from specsim.errors import UsageError
from specsim.schema.results import as_json as plain
from specsim.schema.traffic import Traffic

if TYPE_CHECKING:
    from specsim.analysis.plan.plan import Progress
    from specsim.schema.scenario import Scenario

NOTHING_MEETS = 3
"""Exit code where no candidate meets the SLO."""
also_option = click.option(
    "--also", cls=Option, section=FLEET, multiple=True,
    type=click.Path(dir_okay=False, path_type=Path), metavar="SCENARIO",
    help="A further deployment to compare; its workload is the first one's (repeatable).",
)  # fmt: skip


@scenario_command(
    "plan",
    more=UNDER_LOAD,
    extra=(
        *traffic_options,
        *slo_options,
        also_option,
        *price_options,
        vary_option,
        calibration_option,
        requests_option("Simulated in each load test. Absent: 5000."),
        seed_option,
        *run_options,
        *workbook_options,
        json_option,
        output_option,
    ),
)  # fmt: skip
def command(
    request: Request,
    slo: tuple[str, ...],
    goodput: tuple[str, ...],
    also: tuple[Path, ...],
    price: tuple[str, ...],
    prices: Path | None,
    gpus_per_server: int | None,
    vary: tuple[str, ...],
    calibration: Path | None,
    requests: int | None,
    seed: int | None,
    workers: int,
    scheduler: str | None,
    xlsx: Path | None,
    csv_dir: Path | None,
    overwrite: bool,
    as_json: bool,
    output: Path | None,
    **traffic: float | None,
) -> None:
    """Size the fleet that meets an SLO: replicas, GPUs, dollars, one replica down.

    Each candidate is load-tested in simulation, with speculation off and on, for the largest rate
    at which one replica meets the SLO; the fleet follows from that. The load in the scenario is
    ignored: the traffic is what these flags say. Exit code 3: no candidate meets the SLO.

    \b
    specsim plan scenario.yaml --avg-qps 50 --slo ttft_p95_ms=500 --slo tpot_p99_ms=50
    specsim plan scenario.yaml --requests-per-month 40e6 --hours-per-day 12 --peak-factor 3 \\
        --slo ttft_p95_ms=1000 --vary gpu=h100_sxm,h200_sxm --vary tp=1,2 --vary k=1,3,5
    """  # noqa: D301 - click reads the escape as "keep these lines"
    from specsim.analysis.plan.fleet import GPUS_PER_SERVER
    from specsim.analysis.plan.plan import NUM_REQUESTS, plan
    from specsim.analysis.prepare import SEED
    from specsim.catalog.calibration import load_calibration
    from specsim.catalog.scenario import load_scenario
    from specsim.cli.plan_report import report
    from specsim.export.workbook.subjects import Asked, shown_of
    from specsim.schema.slo import parse_slo

    for path in (output, xlsx):
        refuse_overwriting(path, *also)
    refuse_workbook(xlsx, csv_dir, overwrite=overwrite)
    asked = traffic_of(traffic)
    promised = parse_slo(slo, goodput)
    _refuse_loads(asked)
    axes = parse_axes(vary)
    refuse_given_twice(axes)
    paid = prices_of(price, prices, request.search)
    scenarios = (request.scenario, *map(load_scenario, also))
    with executor_of(workers, scheduler) as executor, _progress(sys.stderr) as progress:
        answer = plan(
            scenarios,
            asked,
            promised,
            axes=axes,
            prices=paid,
            gpus_per_server=gpus_per_server or GPUS_PER_SERVER,
            num_requests=NUM_REQUESTS if requests is None else requests,
            seed=SEED if seed is None else seed,
            executor=executor,
            progress=progress,
            search=request.search,
            calibration=calibration,
        )
    notes = (
        *_compared_once(scenarios, also, axes),
        *beside_axes(axes),
        *prices_unused(paid, {c.accelerator for c in answer.candidates}, listed=prices),
        *request.notes,
    )
    answer = dataclasses.replace(answer, warnings=(*answer.warnings, *notes))
    emit(
        lambda: plain(answer),
        lambda screen: report(screen, answer),
        as_json=as_json,
        output=output,
    )
    if xlsx is not None or csv_dir is not None:
        asked_of_all = Asked(
            traffic=asked, slo=promised, prices=paid, gpus_per_server=gpus_per_server,
            num_requests=NUM_REQUESTS if requests is None else requests,
            seed=SEED if seed is None else seed, search=request.search,
            calibration=None if calibration is None else load_calibration(calibration),
        )  # fmt: skip
        shown = shown_of(answer, request.scenario.load)
        if shown:
            save(worked_out(shown, asked_of_all), xlsx, csv_dir)
        else:
            click.echo("! no workbook: no candidate could be tested, see why above", err=True)
    if answer.best is None:
        click.get_current_context().exit(NOTHING_MEETS)


def _refuse_loads(traffic: Traffic) -> None:
    """Refuse a load beside the traffic, which is what a plan is sized for."""
    given = keys_given()
    flag = next((given[key] for key in given if key.partition(".")[0] == "load"), None)
    if flag is not None:
        raise UsageError(
            f"{flag}: a plan sizes for its traffic ({traffic.avg_rate:.3g} requests/s on average, "
            f"{traffic.peak_rate:.3g} at the peak); drop it, or say another with --avg-qps or "
            "--peak-qps"
        )


def _compared_once(
    scenarios: Sequence[Scenario], also: Sequence[Path], axes: Mapping[str, Any]
) -> Iterator[str]:
    """Tell which further deployments are one that is there already, beside what is varied."""
    deployments = [s.model_dump(exclude={"name", "workload", "load"}) for s in scenarios]
    for deployment in deployments:
        for group, _, key in (axis.partition(".") for axis in axes):
            deployment[group].pop(key, None)
    for i, path in enumerate(also, start=1):
        if deployments[i] in deployments[:i]:
            yield f"--also {path}: is a deployment that is there already, and compared once"


@contextlib.contextmanager
def _progress(stream: TextIO | None) -> Iterator[Progress | None]:
    """Draw a bar where there is a terminal to draw on."""
    if stream is None or not stream.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        yield None
        return
    bar = Progress(
        TextColumn("load tests"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.description}"), console=Console(file=stream), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task("", total=None)

        def told(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name)

        yield told
