"""The workbook as an output of several commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specsim.cli.parameters import Option
from specsim.errors import InputError, UsageError

if TYPE_CHECKING:
    from specsim.export.workbook.book import Book
    from specsim.export.workbook.subjects import Asked
    from specsim.schema.scenario import Scenario

_SECTION = "Workbook"

workbook_options = (
    click.option(
        "--xlsx", cls=Option, section=_SECTION, metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write a capacity-planning workbook with live formulas and charts.",
    ),
    click.option(
        "--csv-dir", cls=Option, section=_SECTION, metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="Write each of its sheets as a CSV file; a big sweep as Parquet too, where pyarrow is "
        "installed.",
    ),
    click.option(
        "--overwrite", cls=Option, section=_SECTION, is_flag=True,
        help="Replace a workbook or CSV files that are there, with what was typed into them.",
    ),
)  # fmt: skip


def refuse_workbook(xlsx: Path | None, csv_dir: Path | None, *, overwrite: bool) -> None:
    """Refuse what cannot be written, before the work is done.

    Raises
    ------
    UsageError, InputError
        The file is there and may hold what somebody typed, has another suffix, or is open.
    """
    from specsim.export.workbook.book import refuse_open

    if xlsx is not None:
        if xlsx.suffix.lower() != ".xlsx":
            raise UsageError(f"--xlsx {xlsx}: expected a name that ends in .xlsx")
        if not xlsx.parent.is_dir():
            raise InputError(f"{xlsx}: cannot be written: {xlsx.parent} is no folder")
        refuse_open(xlsx)
        if xlsx.exists() and not overwrite:
            raise UsageError(
                f"{xlsx}: is there already, maybe with what you typed into it; give --overwrite to "
                "replace it, or another name"
            )
    if csv_dir is not None and not overwrite and any(csv_dir.glob("*.csv")):
        raise UsageError(
            f"--csv-dir {csv_dir}: holds CSV files already; give --overwrite to replace those of "
            "the same names, or another folder"
        )


def worked_out(scenarios: Sequence[Scenario], asked: Asked) -> Book:
    """Work out the workbook, telling what is being done where somebody watches."""
    from specsim.export.workbook.book import book

    def told(name: str) -> None:
        click.echo(f"working out {name}", err=True)

    watched = sys.stderr is not None and sys.stderr.isatty()
    return book(scenarios, asked, progress=told if watched else None)


def save(made: Book, xlsx: Path | None, csv_dir: Path | None) -> None:
    """Write what was asked for, and say so on stderr."""
    for note in made.notes:
        click.echo(f"! {note}", err=True)
    if xlsx is not None:
        made.save(xlsx)
        click.echo(f"wrote {xlsx}: {len(made.sheets)} sheets and their charts", err=True)
    if csv_dir is not None:
        written = made.save_csv(csv_dir)
        click.echo(f"wrote {len(written)} files to {csv_dir}", err=True)
