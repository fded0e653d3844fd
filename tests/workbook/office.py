"""Workbooks with live formulas, tested by LibreOffice: recalculate, compare, edit, read, look.

XlsxWriter stores beside each formula the value that we computed; a reader shows that value
until something recalculates. A test of formulas therefore needs a spreadsheet program that
recalculates all of them, and LibreOffice does not do so by itself: it trusts the stored values
of files that look like Excel's, and XlsxWriter's do. Every conversion here runs with a profile
that forces it (``OOXMLRecalcMode`` 0, always).

Each call works in a new folder inside the one it is given and nothing is written beside the
workbook, so tests may run in parallel. A conversion takes about a second, the first start of a
profile included (1.0 s against 0.9 s with a used one), hence no profile is kept or copied.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import math
import os
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openpyxl
import programs
from openpyxl.cell import Cell
from openpyxl.utils.cell import rows_from_range
from openpyxl.workbook import Workbook

NAMES = ("soffice", "libreoffice")
PACKAGES = ("libreoffice-calc", "poppler-utils")
INSTALL = f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"
TIMEOUT_S = 180

FORCED = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>0</value></prop>
</item>
</oor:items>
"""


class OfficeError(RuntimeError):
    """LibreOffice failed, or the workbook cannot be tested."""


@dataclass(frozen=True)
class Difference:
    """A formula cell whose stored value is not what its formula gives."""

    sheet: str
    cell: str
    formula: str
    stored: object
    recalculated: object

    def __str__(self) -> str:
        return (
            f"{self.sheet}!{self.cell}: {self.formula} gives {self.recalculated!r}, "
            f"stored is {self.stored!r}"
        )


# Finding LibreOffice


def soffice() -> str | None:
    """Return the path of LibreOffice, installed first where that is possible; see `missing`."""
    return programs.found(NAMES, PACKAGES)[0]


def missing() -> str:
    """Return why there is no LibreOffice, with the command that installs it; empty if found."""
    return programs.found(NAMES, PACKAGES)[1]


def _run(command: Sequence[str], *, timeout_s: float = TIMEOUT_S, **environ: str) -> str:
    """Run a command and return its output.

    Raises
    ------
    OfficeError
        With the output, if the command fails or is not done in time.

    Notes
    -----
    ``soffice`` is a script that starts others: in a session of its own all of them can be ended.
    """
    if shutil.which(command[0]) is None:
        raise OfficeError(f"no {command[0]} on PATH: {INSTALL}")
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **environ},
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise OfficeError(f"not done in {timeout_s:g} s: {' '.join(command)}\n{output}") from None
    if process.returncode:
        raise OfficeError(f"exit {process.returncode}: {' '.join(command)}\n{output}")
    return output


# Running LibreOffice


def recalculated(path: Path, folder: Path) -> Path:
    """Return a copy of the workbook in which LibreOffice has recalculated every formula."""
    return converted(path, folder, "xlsx:Calc MS Excel 2007 XML")


def pictures(path: Path, folder: Path, *, dpi: int = 80) -> list[Path]:
    """Return the printed pages of the recalculated workbook as PNG files, to look at."""
    pdf = converted(path, folder, "pdf")
    _run(("pdftoppm", "-png", "-r", str(dpi), str(pdf), str(pdf.with_suffix(""))))
    return sorted(pdf.parent.glob("*.png"))


def converted(path: Path, folder: Path, to: str, *, forced: bool = True) -> Path:
    """Return the workbook as LibreOffice writes it.

    Parameters
    ----------
    path, folder
        The workbook, and where a new folder for the result is made.
    to
        What ``--convert-to`` takes: a suffix, and a filter after a colon.
    forced
        Whether all formulas are recalculated; without it stored values are taken as they are.

    Raises
    ------
    OfficeError
        With LibreOffice's output, if there is no result: its exit status is 0 even then.
    """
    program = soffice()
    if program is None:
        raise OfficeError(missing())
    out = _new(folder, path.stem)
    with tempfile.TemporaryDirectory(dir=out, ignore_cleanup_errors=True) as profile:
        if forced:
            settings = Path(profile, "user", "registrymodifications.xcu")
            settings.parent.mkdir()
            settings.write_text(FORCED, encoding="utf-8")
        where = f"-env:UserInstallation={Path(profile).resolve().as_uri()}"
        how = ("--headless", "--norestore", where, "--convert-to", to, "--outdir", str(out))
        output = _run((program, *how, str(path)))
    result = out / f"{path.stem}.{to.partition(':')[0]}"
    if not result.is_file():
        raise OfficeError(f"LibreOffice made no {result.name} of {path}:\n{output}")
    return result


def _new(folder: Path, name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))


# Comparing


def n_formulas(path: Path) -> int:
    """Return the number of cells that a formula fills."""
    return len(formulas(path))


def formulas(path: Path) -> dict[tuple[str, str], str]:
    """Return the formula of each cell by sheet and cell; an array formula fills its range."""
    found: dict[tuple[str, str], str] = {}
    for sheet in _loaded(path, values=False).worksheets:
        for cell in (cell for row in sheet.iter_rows() for cell in row if cell.data_type == "f"):
            text = cell.value if isinstance(cell.value, str) else getattr(cell.value, "text", "")
            for name in _cells(getattr(cell.value, "ref", cell.coordinate)):
                found[sheet.title, name] = str(text)
    return found


def _cells(ref: str) -> list[str]:
    rows: Iterable[tuple[str, ...]] = rows_from_range(ref)
    return [name for row in rows for name in row]


def differences(
    path: Path, recalculated_path: Path, rtol: float = 1e-9, atol: float = 0.0
) -> list[Difference]:
    """Return every formula cell whose stored value is not its recalculated one.

    Numbers are compared within the tolerances, text and booleans exactly; an empty text is an
    empty cell. An error value such as ``#N/A`` is always a difference, on both sides too.

    Raises
    ------
    OfficeError
        If there is no formula to compare, or a formula has no stored value where LibreOffice
        computes one: such a workbook shows nothing until it is recalculated.
    """
    cells = formulas(path)
    if not cells:
        raise OfficeError(f"{path} has no formula: nothing would be compared")
    stored, new = _loaded(path, values=True), _loaded(recalculated_path, values=True)
    found, absent = [], []
    for (sheet, cell), formula in cells.items():
        was, now = stored[sheet][cell], new[sheet][cell]
        if _empty(was.value) and not _empty(now.value):
            absent.append(f"{sheet}!{cell} ({now.value!r})")
        elif "e" in (was.data_type, now.data_type) or not _same(was.value, now.value, rtol, atol):
            found.append(Difference(sheet, cell, formula, was.value, now.value))
    if absent:
        raise OfficeError(
            f"{len(absent)} of {len(cells)} formulas of {path} have no stored value, or an empty "
            f"one where LibreOffice has another: {', '.join(absent[:5])}"
        )
    return found


def _empty(value: object) -> bool:
    return value is None or value == ""


def _same(was: Any, now: Any, rtol: float, atol: float) -> bool:
    if _empty(was) or _empty(now):
        return _empty(was) and _empty(now)
    if type(was) in (int, float) and type(now) in (int, float):
        return math.isclose(was, now, rel_tol=rtol, abs_tol=atol)
    # LibreOffice knows booleans by their format only: in a cell formatted as a number it writes
    # TRUE as 1. A number stored where it writes a boolean is wrong.
    return bool(was == now) and isinstance(now, bool) <= isinstance(was, bool)


# Editing and reading


def edited(path: Path, values: Mapping[str, float | str], folder: Path) -> Path:
    """Return a copy of the workbook with other inputs, not yet recalculated, without charts.

    Parameters
    ----------
    path, folder
        The workbook, and where a new folder for the copy is made.
    values
        New values by defined name or by cell (``'Sheet!A1'``). Text stays text, ``=`` or not.

    Raises
    ------
    KeyError
        If a name is unknown, with the nearest ones.
    OfficeError
        If the cell holds a formula: an edit of it would test another workbook.
    """
    book = _load(path, values=False)
    for name, value in values.items():
        cell = _cell(book, name)
        if cell.data_type == "f":
            raise OfficeError(f"{name} is not an input, it holds {cell.value}")
        cell.value = value
        if isinstance(value, str):
            cell.data_type = "s"
    copy = _new(folder, path.stem) / path.name
    book.save(copy)
    return copy


def value(path: Path, name: str) -> Any:
    """Return the stored value of a cell by defined name or as ``'Sheet!A1'``."""
    return _cell(_loaded(path, values=True), name).value


def table(path: Path, sheet: str, header_row: int = 1) -> list[dict[str, Any]]:
    """Return the stored values of the rows below a header, down to the first empty row.

    Columns without a header are left out.

    Raises
    ------
    KeyError
        If there is no such sheet.
    OfficeError
        If the header is empty or names a column twice.
    """
    book = _loaded(path, values=True)
    if sheet not in book.sheetnames:
        raise KeyError(f"no sheet {sheet!r} in {path}, there are {', '.join(book.sheetnames)}")
    header, *rows = book[sheet].iter_rows(min_row=header_row, values_only=True)
    keys = {i: str(text) for i, text in enumerate(header) if not _empty(text)}
    if not keys or len(set(keys.values())) < len(keys):
        raise OfficeError(f"row {header_row} of {sheet} in {path} is no header: {header}")
    found = []
    for row in rows:
        if all(map(_empty, row)):
            break
        found.append({key: row[i] for i, key in keys.items()})
    return found


def _cell(book: Workbook, name: str) -> Cell:
    """Return the one cell that a defined name or ``'Sheet!A1'`` stands for."""
    names = dict(book.defined_names)
    for sheet in book.worksheets:
        names.update(sheet.defined_names)
    if name in names:
        places = list(names[name].destinations)
        if len(places) != 1 or ":" in places[0][1]:
            raise KeyError(f"{name} is not one cell but {names[name].attr_text}")
        title, place = places[0]
    else:
        title, _, place = name.rpartition("!")
        title = title.removeprefix("'").removesuffix("'").replace("''", "'")
        if title not in book.sheetnames:
            known = [*names, *book.sheetnames]
            near = difflib.get_close_matches(name, known, 3, 0.5) or known[:10]
            raise KeyError(f"no name or cell {name!r}, nearest: {', '.join(near)}")
    cell = book[title][place.replace("$", "")]
    if not isinstance(cell, Cell):
        raise KeyError(f"{name!r} is not one cell")
    return cell


def _loaded(path: Path, *, values: bool) -> Workbook:
    """Return the workbook to read, parsed once as long as the file stays as it is."""
    status = path.stat()
    return _parsed(path.resolve(), values, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=6)
def _parsed(path: Path, values: bool, _mtime_ns: int, _size: int) -> Workbook:
    return _load(path, values=values)


def _load(path: Path, *, values: bool) -> Workbook:
    """Return the workbook with stored values, or with formulas."""
    with warnings.catch_warnings():
        # openpyxl warns of parts it drops (extensions of Excel 2010): tests only read cells.
        warnings.simplefilter("ignore", UserWarning)
        return openpyxl.load_workbook(path, data_only=values)
