"""`specsim measure list`: what was read from files, row by row, before anything is made of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from specsim.cli.output import (
    emit,
    json_option,
    output_option,
    refuse_overwriting,
    refuse_overwriting_read,
    replace_file,
)
from specsim.cli.words import joined, notes
from specsim.errors import InputError
from specsim.export.tables import MISSING, Cell, clipped, column, exact, figure, table
from specsim.export.terminal import Screen
from specsim.schema.measurement import Latency, Measurement, Measurements
from specsim.schema.results import as_json as plain

_NAME = 34


@click.command("list")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...",
                type=click.Path(path_type=Path))  # fmt: skip
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write all rows as a table that reads back.")  # fmt: skip
@json_option
@output_option
def command(
    paths: tuple[Path, ...], csv_file: Path | None, as_json: bool, output: Path | None
) -> None:
    """List what benchmark files, logs and metrics say, and which files give nothing.

    One row per run, in one set of units, with what says whether speculation was on.
    """
    from specsim.export.measurements import measurements_csv
    from specsim.measure.read import read_measurements

    found = read_measurements(paths)
    if not found.rows:
        reasons = "; ".join(f"{s.source}: {s.reason}" for s in found.skipped[:3])
        raise InputError(f"nothing could be read{': ' + reasons if reasons else ''}")
    refuse_overwriting(csv_file, output)
    refuse_overwriting_read((csv_file, output), found.sources)
    if csv_file is not None:
        replace_file(csv_file, measurements_csv(found.rows), "csv")
    emit(
        lambda: plain(found),
        lambda screen: _report(screen, found),
        as_json=as_json,
        output=output,
    )


def _report(screen: Screen, found: Measurements) -> list[str]:
    rows = sorted(found.rows, key=lambda r: _natural(r.source))
    # What all names begin with says nothing of any.
    folder = os.path.commonpath([Path(r.source).parent for r in rows])
    shown = {r.source: os.path.relpath(r.source, folder) for r in rows}
    key = column("file", ("",), rows, lambda r: clipped_left(shown[r.source], _NAME), left=True)
    columns = [
        column("speculation", ("", "said by"), rows, _arm, lambda r: r.arm_from or MISSING),
        column("load", ("",), rows, _load),
        column("requests", ("",), rows, lambda r: _count(r.completed)),
        column("tok/s", ("",), rows, lambda r: figure(r.output_tok_s)),
        column("tpot ms", ("mean", "p99"), rows,
               lambda r: _of(r.tpot_ms, "mean"), lambda r: _of(r.tpot_ms, "p99")),
        column("ttft ms", ("",), rows, lambda r: _of(r.ttft_ms, "mean")),
        column("accepted", ("length",), rows, _length),
        column("kind of file", ("",), rows, lambda r: clipped(r.format, 30), left=True),
    ]  # fmt: skip
    warned = [f"{r.source}: {text}" for r in rows for text in r.warnings]
    return joined(
        [
            [
                screen.paint(f"{len(rows)} rows", "strong") + f"  {folder}",
                *table(screen, key, columns),
            ],
            notes(screen, "WARNINGS", warned, role="neutral"),
            notes(screen, "NOT READ", [f"{s.source}: {s.reason}" for s in found.skipped]),
        ]
    )


def clipped_left(text: str, width: int) -> str:
    """Cut the beginning of a text that is longer than `width`: names differ at their ends.

    >>> clipped_left("sweeps/monday/off/c1_r1.json", 15)
    '…off/c1_r1.json'
    """
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts c2 before c16."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]


def _arm(row: Measurement) -> Cell:
    if row.arm == "unknown":
        return Cell("unknown", "neutral")
    k = row.num_speculative_tokens
    return Cell(row.arm if row.arm == "off" or k is None else f"k={k}")


def _load(row: Measurement) -> str:
    if row.request_rate is not None:
        return f"{exact(row.request_rate)}/s"
    return MISSING if row.concurrency is None else exact(row.concurrency)


def _count(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def _of(latency: Latency | None, name: str) -> str:
    return figure(None if latency is None else getattr(latency, name))


def _length(row: Measurement) -> str:
    return figure(None if row.acceptance is None else row.acceptance.acceptance_length)
