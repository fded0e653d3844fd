"""`specsim advise`: the three questions, and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from specsim.cli.execution import (
    executor_of,
    requests_option,
    run_options,
    seed_option,
    slo_options,
)
from specsim.cli.options import (
    OPTIONS,
    calibration_option,
    read_request,
    without_effect,
)
from specsim.cli.output import (
    emit,
    json_option,
    output_option,
    refuse_overwriting,
    refuse_replacing,
)
from specsim.cli.parameters import ScenarioCommand
from specsim.schema.results import as_json as plain

FOR_ALL = tuple(option for option in OPTIONS if option.name in ("settings", "catalog", "gpu"))
"""What is said of all scenarios at once; the rest stands in their files."""


@click.command("advise", cls=ScenarioCommand)
@click.argument(
    "scenarios", nargs=-1, required=True, type=click.Path(path_type=Path),
    metavar="SCENARIO [SCENARIO ...]",
)  # fmt: skip
@calibration_option
@slo_options[0]
@slo_options[1]
@requests_option("Measured in each of three replications. Absent: 2000.")
@seed_option
@run_options[0]
@run_options[1]
@json_option
@output_option
def command(
    scenarios: tuple[Path, ...],
    calibration: Path | None,
    slo: tuple[str, ...],
    goodput: tuple[str, ...],
    requests: int | None,
    seed: int | None,
    workers: int,
    scheduler: str | None,
    as_json: bool,
    output: Path | None,
    **flags: Any,
) -> None:
    """Answer the three questions to ask before speculation is switched on.

    How many requests are in flight at peak, how deterministic is the output, what acceptance does
    the traffic have? Then off, on, a smaller k, k by batch and routing by load serve the same
    simulated requests, and the best that leaves p99 no worse (or meets the SLO) is advised. The
    highest load of a file is its peak. Several files: what holds for all, or who gets what.

    \b
    specsim advise summarisation.yaml chat.yaml
    specsim advise chat.yaml --set load.request_rate=[20] --slo tpot_p99_ms=50
    """  # noqa: D301 - click reads the escape as "keep these lines"
    from specsim.analysis.advise.advise import NUM_REQUESTS, advise
    from specsim.analysis.prepare import SEED
    from specsim.cli.advice_report import report
    from specsim.schema.slo import parse_slo

    refuse_overwriting(output, *scenarios, calibration, *flags["catalog"])
    refuse_replacing(output, "json" if as_json else "text")
    promised = parse_slo(slo, goodput)
    read = [read_request({"scenario": path, **flags}, FOR_ALL) for path in scenarios]
    names = names_of([request.scenario.name for request in read], scenarios)
    asked = [
        request.scenario.model_copy(update={"name": name})
        for request, name in zip(read, names, strict=True)
    ]
    with executor_of(workers, scheduler) as executor:
        answer = advise(
            asked,
            slo=None if promised.is_empty() else promised,
            search=read[0].search,
            calibration=calibration,
            num_requests=NUM_REQUESTS if requests is None else requests,
            seed=SEED if seed is None else seed,
            executor=executor,
        )
    told = tuple(
        dataclasses.replace(
            one, lints=(*one.lints, *without_effect(request.scenario), *request.notes)
        )
        for one, request in zip(answer.scenarios, read, strict=True)
    )
    answer = dataclasses.replace(answer, scenarios=told)
    emit(
        lambda: plain(answer),
        lambda screen: report(screen, answer),
        as_json=as_json,
        output=output,
    )


def names_of(names: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return what scenarios are called: the file's name where it has none, or shares it."""
    shared = [name for name in names if name and names.count(name) > 1]
    return [
        (f"{name} ({path.stem})" if name in shared else name) if name else path.stem
        for name, path in zip(names, paths, strict=True)
    ]


command.params = [command.params[0], *FOR_ALL, *command.params[1:]]
