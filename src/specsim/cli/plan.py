"""`specsim plan`: traffic, a promise and candidate deployments to a fleet."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
from pydantic import ValidationError

from specsim.cli.axes import parse_axes, vary_option
from specsim.cli.execution import executor_of, run_options, seed_option, slo_options
from specsim.cli.options import UNDER_LOAD, Option, Request, calibration_option, scenario_command
from specsim.cli.output import emit, json_option, output_option, refuse_overwriting
from specsim.errors import UsageError
from specsim.schema.results import as_json as plain
from specsim.schema.traffic import Traffic

if TYPE_CHECKING:
    from specsim.analysis.plan.plan import Progress
    from specsim.schema.plan import PricePaid

NOTHING_MEETS = 3
"""Exit code where no candidate meets the SLO."""
_FLAGS = {
    "avg_qps": "--avg-qps",
    "requests_per_month": "--requests-per-month",
    "peak_qps": "--peak-qps",
    "peak_to_avg": "--peak-factor",
    "hours_per_day": "--hours-per-day",
    "days_per_month": "--days-per-month",
    "growth_pct": "--growth-pct",
    "growth_years": "--growth-years",
    "target_utilization": "--target-utilization",
    "spares": "--spares",
}
"""Flags by the key of the traffic that each sets."""


def _traffic_option(key: str, kind: Any, text: str) -> Any:
    return click.option(
        _FLAGS[key], key.replace("-", "_"), cls=Option, section="Traffic", type=kind, help=text
    )


traffic_options = (
    _traffic_option("avg_qps", float, "Requests/s, averaged over the hours of operation."),
    _traffic_option("requests_per_month", float, "The same as requests of a month."),
    _traffic_option("peak_qps", float, "Requests/s at the peak, alone or beside the average."),
    _traffic_option("peak_to_avg", float, "Peak / average. Absent, and no peak: 2.5."),
    _traffic_option("hours_per_day", float, "Hours in which requests come. Absent: 24."),
    _traffic_option("days_per_month", float, "Days on which requests come. Absent: 30.4."),
    _traffic_option("growth_pct", float, "Growth of the load in a year. Absent: 0."),
    _traffic_option("growth_years", float, "Years ahead that are sized for. Absent: 1."),
    _traffic_option(
        "target_utilization", float,
        "Share of the load at the SLO that a replica gets at the peak: 0.7 interactive, 0.85 "
        "internal, 0.95 batch. Absent: 0.7.",
    ),
    _traffic_option("spares", int, "Replicas beyond those that the peak needs. Absent: 1 (N+1)."),
)  # fmt: skip
_FLEET = "Fleet"
fleet_options = (
    click.option(
        "--also", cls=Option, section=_FLEET, multiple=True,
        type=click.Path(dir_okay=False, path_type=Path), metavar="SCENARIO",
        help="A further deployment to compare; its workload is the first one's (repeatable).",
    ),
    click.option(
        "--price", cls=Option, section=_FLEET, multiple=True, metavar="[GPU=]USD",
        help="Price of a GPU and hour, of one device or of all (repeatable). Absent: the dated "
        "one of its profile.",
    ),
    click.option(
        "--prices", cls=Option, section=_FLEET, metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A list of prices, as `specsim profiles import-prices` writes it; --price wins.",
    ),
    click.option(
        "--gpus-per-server", cls=Option, section=_FLEET, type=click.IntRange(min=1), default=8,
        show_default=True, help="A replica that fits into a server is not split.",
    ),
)  # fmt: skip


@scenario_command(
    "plan",
    more=UNDER_LOAD,
    extra=(
        *traffic_options,
        *slo_options,
        *fleet_options,
        vary_option,
        calibration_option,
        click.option(
            "--requests", type=click.IntRange(min=1), metavar="N",
            help="Simulated in each load test. Absent: 5000.",
        ),
        seed_option,
        *run_options,
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
    gpus_per_server: int,
    vary: tuple[str, ...],
    calibration: Path | None,
    requests: int | None,
    seed: int | None,
    workers: int,
    scheduler: str | None,
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
    from specsim.analysis.plan.plan import NUM_REQUESTS, plan
    from specsim.analysis.prepare import SEED
    from specsim.catalog.scenario import load_scenario
    from specsim.cli.plan_report import report
    from specsim.schema.slo import parse_slo

    refuse_overwriting(output, *also)
    asked = traffic_of(traffic)
    promised = parse_slo(slo, goodput)
    axes = parse_axes(vary)
    paid = prices_of(price, prices, request.search)
    scenarios = (request.scenario, *map(load_scenario, also))
    with executor_of(workers, scheduler) as executor, _progress(sys.stderr) as progress:
        answer = plan(
            scenarios,
            asked,
            promised,
            axes=axes,
            prices=paid,
            gpus_per_server=gpus_per_server,
            num_requests=NUM_REQUESTS if requests is None else requests,
            seed=SEED if seed is None else seed,
            executor=executor,
            progress=progress,
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
    if answer.best is None:
        click.get_current_context().exit(NOTHING_MEETS)


def traffic_of(values: Mapping[str, float | None]) -> Traffic:
    """Make the traffic of its flags.

    Raises
    ------
    UsageError
        They are missing, contradict each other or are out of range.
    """
    try:
        return Traffic(**{key: value for key, value in values.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        text = first["msg"].removeprefix("Value error, ")
        if first["loc"]:
            key = str(first["loc"][0])
            text = f"{key} {first['input']:g}: {text[0].lower()}{text[1:]}"
        names = "|".join(_FLAGS)
        raise UsageError(re.sub(rf"\b({names})\b", lambda m: _FLAGS[m[1]], text)) from error


def prices_of(
    texts: Sequence[str], path: Path | None, search: Sequence[Path]
) -> dict[str, PricePaid]:
    """Return prices by accelerator: those of a list, and over them those of `--price`.

    Raises
    ------
    UsageError
        A price that is none, or two for one device.
    """
    from specsim.analysis.plan.plan import EVERY_DEVICE
    from specsim.catalog.hardware import load_hardware
    from specsim.schema.plan import PricePaid

    found: dict[str, PricePaid] = {}
    if path is not None:
        from specsim.catalog.prices import load_prices

        listed = load_prices(path, search=search)
        date = listed.as_of.isoformat()
        for name, price in listed.prices.items():
            found[name] = PricePaid(price.usd_per_gpu_hour, date, f"{path.name}: {listed.source}")
    given: dict[str, PricePaid] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        device = load_hardware(name, search=search).identity.id if name else EVERY_DEVICE
        if device in given or (equals and not name):
            raise UsageError(f"--price {text}: give each GPU one price, as h100_sxm=2.5")
        given[device] = PricePaid(_usd(number, text), None, "given with --price")
    return given if EVERY_DEVICE in given else {**found, **given}


def _usd(number: str, text: str) -> float:
    try:
        usd = float(number)
    except ValueError:
        usd = -1.0
    if not 0 < usd < 1e6:
        raise UsageError(f"--price {text}: expected USD per GPU and hour, as 2.5 or h100_sxm=2.5")
    return usd


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
