"""`specsim calibrate`: fit the constants of a deployment to measured runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import click

from specsim.cli.calibration_report import report
from specsim.cli.options import Request, scenario_command
from specsim.cli.output import (
    emit,
    json_option,
    output_option,
    refuse_overwriting_read,
    replace_file,
)
from specsim.cli.parameters import NumberList
from specsim.errors import CalibrationError, UsageError
from specsim.schema.results import as_json as plain


@scenario_command(
    "calibrate",
    extra=(
        click.option("--measurements", "-m", type=click.Path(path_type=Path), multiple=True,
                     required=True, metavar="PATH",
                     help="Benchmark files, logs, metrics, or folders of them (repeatable)."),
        click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                     help="Write the calibration to this file, for --calibration."),
        click.option("--unknown-arm", type=click.Choice(["off", "on"]),
                     help="What runs are taken as where nothing says whether they speculate."),
        click.option("--suggest", type=click.IntRange(0, 20), default=3, show_default=True,
                     metavar="N", help="Runs to name that would narrow the crossover most."),
        click.option("--hold-out", type=NumberList(), metavar="LOAD[,LOAD...]",
                     help="Loads kept from the fit and predicted by it, as a test."),
        click.option("--hold-out-k", type=NumberList(), metavar="K[,K...]",
                     help="The same for draft tokens per step."),
        click.option("--charts", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
                     help="Write predicted against measured as SVG into this folder."),
        json_option,
        output_option,
    ),
)  # fmt: skip
def command(
    request: Request,
    measurements: tuple[Path, ...],
    out: Path | None,
    unknown_arm: Literal["off", "on"] | None,
    suggest: int,
    hold_out: list[float] | None,
    hold_out_k: list[float] | None,
    charts: Path | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """Fit the constants of a deployment to measured runs.

    The scenario says what was measured: model, device, engine, drafter. Loads and acceptance come
    from the runs. What the runs cannot tell keeps the shipped value, and the report names the run
    that would tell it.

    \b
    specsim calibrate scenario.yaml --measurements runs/ --out calibration.yaml
    specsim predict scenario.yaml --calibration calibration.yaml
    """  # noqa: D301 - click reads the escape as "keep these lines"
    from specsim.calibration.calibrate import calibrate
    from specsim.calibration.rows import assume_arm
    from specsim.catalog.calibration import dump_calibration
    from specsim.measure.read import read_measurements

    if out is not None and not out.parent.is_dir():
        raise UsageError(f"--out {out}: there is no folder {out.parent}")
    read = assume_arm(read_measurements(measurements), unknown_arm)
    refuse_overwriting_read((out, output), read.sources)
    if not read.rows:
        first = f": {read.skipped[0].source}: {read.skipped[0].reason}" if read.skipped else ""
        raise CalibrationError(
            f"nothing to fit: none of {len(read.skipped)} files could be read{first}"
        )
    found = calibrate(
        request.scenario,
        read,
        search=request.search,
        suggest=suggest,
        hold_out=tuple(hold_out or ()),
        hold_out_k=_whole(hold_out_k),
    )
    if out is not None:
        replace_file(out, dump_calibration(found.calibration), "yaml")
    drawn: list[Path] = []
    if charts is not None:
        from specsim.export.calibration_charts import write_charts

        drawn = write_charts(found, charts)
    emit(
        lambda: {**plain(found), "skipped": plain(read.skipped)},
        lambda screen: report(
            screen,
            found,
            skipped=read.skipped,
            notes_of_input=request.notes,
            written=[p for p in (out, *drawn) if p is not None],
        ),
        as_json=as_json,
        output=output,
    )


def _whole(ks: list[float] | None) -> tuple[int, ...]:
    """Return numbers of draft tokens."""
    if any(not math.isfinite(k) or k != round(k) for k in ks or ()):
        raise UsageError("--hold-out-k: draft tokens are whole numbers")
    return tuple(int(k) for k in ks or ())
