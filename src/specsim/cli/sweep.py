"""`specsim sweep`: a grid of scenarios into a table."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.cli.axes import beside_axes, parse_axes, refuse_given_twice, vary_option
from specsim.cli.execution import executor_of, run_options
from specsim.cli.options import Request, calibration_option, scenario_command
from specsim.cli.output import emit, json_option
from specsim.errors import InfeasibleError, InputError, UsageError

if TYPE_CHECKING:
    from specsim.analysis.grid import Grid
    from specsim.export.grid_files import Progress

MOST_ON_SCREEN = 1000
_EVERY_S = 10.0
_REASONS = 3
"""Said where nothing can be predicted."""


@scenario_command(
    "sweep",
    extra=(
        vary_option,
        calibration_option,
        click.option("--bands", is_flag=True,
                     help="Also the 80 % interval of the speedup; two thousand points a second."),
        click.option(
            "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
            help="A .parquet or .csv file; absent: CSV to the screen, up to a thousand points.",
        ),
        click.option("--resume", is_flag=True, help="Go on where a stopped run left parts."),
        click.option("--overwrite", is_flag=True, help="Replace a FILE that is there."),
        *run_options,
        json_option,
    ),
)  # fmt: skip
def command(
    request: Request,
    vary: tuple[str, ...],
    calibration: Path | None,
    bands: bool,
    output: Path | None,
    resume: bool,
    overwrite: bool,
    workers: int,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Predict a whole grid of scenarios into a table.

    Axes are keys of the scenario or the names of their flags. Loads and acceptance are evaluated
    as arrays, a few hundred thousand points a second; what cannot be served is a row that says why.

    \b
    specsim sweep scenario.yaml --vary gpu=h100_sxm,h200_sxm --vary tp=1,2,4 -o grid.csv
    specsim sweep scenario.yaml --vary k=1:8:1 --vary acceptance-rate=0:1:0.01 \\
        --vary concurrency=1:256:1 -o grid.parquet --workers 4
    """  # noqa: D301 - click reads the escape as "keep these lines"
    from specsim.analysis.grid import Grid
    from specsim.catalog.calibration import load_calibration
    from specsim.export.grid_files import write_grid

    axes = parse_axes(vary)
    if not axes:
        raise UsageError("nothing is varied; give an axis, such as --vary concurrency=1:256:x2")
    refuse_given_twice(axes)
    for note in (*beside_axes(axes), *request.notes):
        click.echo(f"! {note}", err=True)
    grid = Grid(
        request.scenario,
        axes,
        request.search,
        None if calibration is None else load_calibration(calibration),
        bands,
    )
    if output is None:
        if resume or overwrite:
            raise UsageError("--resume and --overwrite belong to -o FILE")
        _to_screen(grid, workers, scheduler, as_json=as_json)
        return
    began = time.monotonic()
    try:
        with executor_of(workers, scheduler) as executor, _progress() as progress:
            counts = write_grid(
                grid, output, executor=executor, resume=resume, overwrite=overwrite,
                progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        click.echo(
            "specsim: stopped; what is done is kept, go on with the same command and --resume",
            err=True,
        )
        raise
    _refuse_nothing(grid, counts, output)
    seconds = time.monotonic() - began
    told = {"rows": grid.size, "file": str(output), "seconds": seconds, "status": counts}
    emit(
        lambda: told,
        lambda screen: [
            f"{grid.size:,} rows in {seconds:.1f} s: {_by_status(counts)}",
            f"written: {output}",
        ],
        as_json=as_json,
        output=None,
    )


def _to_screen(grid: Grid, workers: int, scheduler: str | None, *, as_json: bool) -> None:
    from specsim.export.grid_files import evaluated
    from specsim.export.grid_formats import by_status, write_csv

    if grid.size > MOST_ON_SCREEN:
        raise UsageError(
            f"the grid has {grid.size:,} points, at most {MOST_ON_SCREEN:,} go to the screen; give "
            "-o FILE.parquet or -o FILE.csv"
        )
    with executor_of(workers, scheduler) as executor:
        columns = evaluated(grid, executor)
    _refuse_nothing(grid, by_status(columns))
    if as_json:
        plain = [[_plain(name, v) for v in values.tolist()] for name, values in columns.items()]
        told = {"columns": list(columns), "rows": list(zip(*plain, strict=True))}
        emit(lambda: told, lambda screen: [], as_json=True, output=None)
        return
    text = io.StringIO()
    write_csv(text, columns, header=True)
    # Rows are for programs: no line is cut to the width of a screen.
    sys.stdout.write(text.getvalue())


def _plain(name: str, value: Any) -> Any:
    from specsim.export.grid_formats import digits_of

    if not isinstance(value, float):
        return value
    if value != value:
        return None
    return int(value) if value.is_integer() else float(f"{value:.{digits_of(name)}g}")


def _refuse_nothing(grid: Grid, counts: dict[str, int], output: Path | None = None) -> None:
    """Say why, where no point of the grid has figures.

    Raises
    ------
    InfeasibleError, InputError
        The first reasons.
    """
    if counts.keys() & {"ok", "unstable"}:
        return
    first = grid.evaluate(range(min(grid.n_tiles, _REASONS)))["reason"].tolist()
    reasons = "; or: ".join(list(dict.fromkeys(first))[:_REASONS])
    kind = InfeasibleError if set(counts) == {"infeasible"} else InputError
    where = "" if output is None else f" (their rows are in {output})"
    raise kind(f"none of the {grid.size:,} points can be predicted{where}: {reasons}")


def _by_status(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {status}" for status, number in sorted(counts.items()))


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """Give what tells rows done: a bar on a terminal, a line now and then elsewhere."""
    bar = None
    if sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            from rich.console import Console
            from rich.progress import Progress as Bar

            bar = Bar(console=Console(stderr=True))
    if bar is None:
        last = [time.monotonic()]

        def lines(done: int, total: int) -> None:
            if time.monotonic() - last[0] >= _EVERY_S:
                last[0] = time.monotonic()
                click.echo(f"{done:,} of {total:,} rows", err=True)

        yield lines
        return
    task = bar.add_task("rows", total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)
