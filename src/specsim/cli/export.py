"""`specsim export`: scenarios to a capacity-planning workbook."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from specsim.cli.advise import FOR_ALL, names_of
from specsim.cli.execution import requests_option, seed_option, slo_options
from specsim.cli.options import Request, calibration_option, read_request
from specsim.cli.output import (
    emit,
    json_option,
    output_option,
    refuse_overwriting,
    refuse_replacing,
)
from specsim.cli.parameters import ScenarioCommand
from specsim.cli.traffic import (
    TRAFFIC_KEYS,
    price_options,
    prices_of,
    prices_unused,
    traffic_of,
    traffic_options,
)
from specsim.cli.workbook import refuse_workbook, save, workbook_options, worked_out
from specsim.errors import InputError, UsageError

F = TypeVar("F", bound=Callable[..., Any])


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@click.command("export", cls=ScenarioCommand)
@click.argument(
    "scenarios", nargs=-1, required=True, type=click.Path(path_type=Path),
    metavar="SCENARIO [SCENARIO ...]",
)  # fmt: skip
@_options(
    *workbook_options,
    *traffic_options,
    *slo_options,
    *price_options,
    click.option(
        "--measurements", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
        help="Own benchmark files or folders, to be shown against the model (repeatable).",
    ),
    calibration_option,
    requests_option("Simulated in each load test. Absent: 5000."),
    seed_option,
    json_option,
    output_option,
)  # fmt: skip
def command(
    scenarios: tuple[Path, ...],
    xlsx: Path | None,
    csv_dir: Path | None,
    overwrite: bool,
    slo: tuple[str, ...],
    goodput: tuple[str, ...],
    price: tuple[str, ...],
    prices: Path | None,
    gpus_per_server: int | None,
    measurements: tuple[Path, ...],
    calibration: Path | None,
    requests: int | None,
    seed: int | None,
    as_json: bool,
    output: Path | None,
    **flags: Any,
) -> None:
    """Write a workbook whose formulas go on computing, and its sheets as CSV and JSON.

    Scenarios stand side by side, each with speculation off and on. Price, utilisation, peak factor,
    growth, spares, requests a month, load and acceptance length are changed in the sheet, and
    speedup, crossover, replicas, GPUs, cost and payback follow, in Excel and in LibreOffice. With
    an SLO, the rate at which a replica keeps it is found by load tests, as in `specsim plan`.

    \b
    specsim export scenario.yaml --xlsx plan.xlsx
    specsim export a.yaml b.yaml --xlsx plan.xlsx --requests-per-month 20e6 \\
        --slo ttft_p95_ms=1000 --slo tpot_p95_ms=60 --csv-dir sheets
    """  # noqa: D301 - click reads the escape as "keep these lines"
    from specsim.export.workbook.subjects import Asked
    from specsim.schema.slo import parse_slo

    traffic_flags = {name: flags.pop(name) for name in TRAFFIC_KEYS}
    if not (xlsx or csv_dir or as_json):
        raise UsageError(
            "nothing to write; give --xlsx plan.xlsx, --csv-dir DIR or --json; see `specsim export "
            "--help`"
        )
    read_from = (*scenarios, calibration, prices, *measurements, *flags["catalog"])
    for path in (xlsx, output):
        refuse_overwriting(path, *read_from)
    refuse_overwriting(output, xlsx)
    refuse_replacing(output, "json")
    if output is not None and not as_json:
        raise UsageError("-o goes with --json; the workbook is written with --xlsx")
    refuse_workbook(xlsx, csv_dir, overwrite=overwrite)
    given = any(value is not None for value in traffic_flags.values())
    read = [read_request({"scenario": path, **flags}, FOR_ALL) for path in scenarios]
    names = names_of([request.scenario.name for request in read], scenarios)
    search = read[0].search
    paid = prices_of(price, prices, search)
    asked = Asked(
        traffic=traffic_of(traffic_flags) if given else None,
        slo=parse_slo(slo, goodput),
        prices=paid,
        gpus_per_server=gpus_per_server,
        **({} if requests is None else {"num_requests": requests}),
        **({} if seed is None else {"seed": seed}),
        search=search,
        calibration=_calibration(calibration),
        measurements=_measurements(measurements),
    )
    made = worked_out(
        [r.scenario.model_copy(update={"name": n}) for r, n in zip(read, names, strict=True)],
        asked,
    )
    used = {s.deployment.hardware.identity.id for s in made.drawn.found}
    for note in (*prices_unused(paid, used, listed=prices), *_notes(read)):
        click.echo(f"! {note}", err=True)
    save(made, xlsx, csv_dir)
    if as_json:
        emit(made.as_json, lambda screen: [], as_json=True, output=output)


def _calibration(path: Path | None) -> Any:
    from specsim.catalog.calibration import load_calibration

    return None if path is None else load_calibration(path)


def _measurements(paths: tuple[Path, ...]) -> Any:
    if not paths:
        return None
    from specsim.measure.read import read_measurements

    found = read_measurements(paths)
    if not found.rows:
        reasons = "; ".join(f"{s.source}: {s.reason}" for s in found.skipped[:3]) or "no files"
        raise InputError(f"--measurements: nothing there is a measurement: {reasons}")
    return found


def _notes(read: Sequence[Request]) -> Iterator[str]:
    yield from dict.fromkeys(note for request in read for note in request.notes)


command.params = [command.params[0], *FOR_ALL, *command.params[1:]]
