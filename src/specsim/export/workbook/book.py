"""The whole workbook: scenarios to a file, and to its twins."""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsim.catalog.calibration import load_calibration
from specsim.errors import InputError, UsageError
from specsim.export.whole_file import written_whole
from specsim.export.workbook import evidence, twins
from specsim.export.workbook.charts import Drawn
from specsim.export.workbook.cost import cost
from specsim.export.workbook.crossover import crossover
from specsim.export.workbook.fleet import capacity, fleet
from specsim.export.workbook.inputs import inputs
from specsim.export.workbook.points import points
from specsim.export.workbook.readme import NAME as README
from specsim.export.workbook.readme import readme
from specsim.export.workbook.sheets import Sheet
from specsim.export.workbook.speculation import model_and_hardware, speculation
from specsim.export.workbook.subjects import Asked, Progress, Subject, subjects
from specsim.export.workbook.sweep import sweep
from specsim.export.workbook.write import write_xlsx
from specsim.schema.calibration import Calibration
from specsim.schema.measurement import Measurements
from specsim.schema.plan import PricePaid
from specsim.schema.scenario import Scenario
from specsim.schema.slo import Slo
from specsim.schema.traffic import Traffic

MOST_SCENARIOS = 20


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from looking at cells that all live until the end.

    There are hundreds of thousands, and nothing to collect: half of the time would go into looking.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True)
class Book:
    """The sheets of a workbook, before they are written."""

    sheets: tuple[Sheet, ...]
    drawn: Drawn
    title: str
    created: dt.datetime
    notes: tuple[str, ...] = ()
    """What to say beside it: what nobody would look for in its cells."""

    def save(self, path: Path) -> None:
        """Write the .xlsx file, whole or not at all.

        Raises
        ------
        InputError
            It cannot be written, or a program has it open.
        """
        refuse_open(path)
        # First in memory: XlsxWriter's own file would still be closing when the error is said.
        file = io.BytesIO()
        with uncollected():
            write_xlsx(
                file,
                self.sheets,
                title=self.title,
                created=self.created,
                draw=self.drawn,
                after=README,
            )
        with written_whole(path) as temporary:
            temporary.write_bytes(file.getvalue())

    def save_csv(self, folder: Path) -> list[Path]:
        """Write a CSV file per sheet, and return their paths."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot be made: {error.strerror or error}") from error
        written = []
        for sheet in self.sheets:
            path = folder / f"{twins.file_stem(sheet)}.csv"
            with written_whole(path) as temporary:
                temporary.write_text(twins.as_csv(sheet), encoding="utf-8")
            written.append(path)
        return written

    def as_json(self) -> dict[str, Any]:
        """Return all sheets as JSON types."""
        return twins.as_json(self.sheets)


def export_workbook(
    scenarios: Scenario | Sequence[Scenario],
    path: Path | str,
    *,
    traffic: Traffic | None = None,
    slo: Slo | None = None,
    prices: Mapping[str, PricePaid] | None = None,
    csv_dir: Path | str | None = None,
    measurements: Measurements | None = None,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> None:
    """Write a capacity-planning workbook whose formulas go on computing.

    Parameters
    ----------
    scenarios : Scenario or sequence of Scenario
        Shown side by side, each with speculation off and on.
    path : path
        The .xlsx file.
    traffic : Traffic, optional
        Absent: what one replica serves, as an example to be replaced in the sheet Inputs.
    slo : Slo, optional
        With one, the rate at which a replica keeps it is found by load tests, as in `plan`;
        without, it is the largest stable rate.
    prices : mapping, optional
        By accelerator, in place of its profile's.
    csv_dir : path, optional
        Folder for a CSV file per sheet.
    measurements : Measurements, optional
        Own benchmark files (`read_measurements`), to be shown against the model.

    Raises
    ------
    SpecsimError
        One line saying what is wrong and what to do; a file that was there is left as it was.
    """
    bases = (scenarios,) if isinstance(scenarios, Scenario) else tuple(scenarios)
    if isinstance(calibration, Path | str):
        calibration = load_calibration(calibration)
    asked = Asked(
        traffic=traffic, slo=slo or Slo(), prices=prices, search=tuple(search),
        calibration=calibration, measurements=measurements,
    )  # fmt: skip
    made = book(bases, asked)
    made.save(Path(path))
    if csv_dir is not None:
        made.save_csv(Path(csv_dir))


def book(scenarios: Sequence[Scenario], asked: Asked, *, progress: Progress | None = None) -> Book:
    """Work out all sheets.

    Raises
    ------
    UsageError
        No scenario, or more than can be read side by side.
    """
    if not 0 < len(scenarios) <= MOST_SCENARIOS:
        raise UsageError(
            f"that is {len(scenarios)} scenarios; a workbook shows 1 to {MOST_SCENARIOS} side by "
            "side: choose among them, or write a table of all with `specsim sweep`"
        )
    return assembled(tuple(subjects(scenarios, asked, progress)))


@uncollected()
def assembled(found: Sequence[Subject]) -> Book:
    """Build all sheets of what was worked out."""
    made = inputs(found)
    deployed = model_and_hardware(found)
    speculated = speculation(found, made)
    swept = sweep(found, made, speculated)
    crossed = crossover(found, made, speculated, swept)
    held = capacity(found)
    sized = fleet(found, made, speculated, held, swept)
    paid = cost(found, made, sized)
    curve, memory = evidence.acceptance(found), evidence.memory(found)
    tornado, listed = evidence.sensitivity(found), points(found)
    tables = (
        made.sheet,
        evidence.slo(found, made),
        deployed.sheet,
        speculated.fields.sheet,
        swept.sheet,
        *(() if listed is None else (listed,)),
        crossed.sheet,
        held.sheet,
        sized.sheet,
        paid.sheet,
        tornado,
        curve,
        memory,
        evidence.measured(found),
        evidence.assumptions(found),
    )
    now = dt.datetime.now().replace(microsecond=0)
    return Book(
        sheets=(readme(found, tables, now.date().isoformat()), *tables),
        drawn=Drawn(found, swept, crossed, curve, memory, paid, tornado),
        title="specsim: " + ", ".join(s.name for s in found),
        created=now,
        notes=tuple(_notes(found)),
    )


def _notes(found: Sequence[Subject]) -> Iterator[str]:
    for s in found:
        without = [name for name, rate in _rates(s) if rate == 0]
        if without:
            arms = " and ".join(without)
            yield (
                f"{s.id} {s.name[:80]}: no rate keeps the promise with speculation {arms}, so the "
                "sheets Fleet and Cost are blank there; loosen it, or see `specsim plan` for why"
            )


def _rates(s: Subject) -> Iterator[tuple[str, float]]:
    """Return the rate at the SLO of each arm, at the acceptance that was given."""
    yield "off", s.capacity_off.request_rate
    if s.capacity_on is not None:
        yield "on", s.capacity_on.request_rate


def refuse_open(path: Path) -> None:
    """Refuse a workbook that a spreadsheet program has open: it would not see the new one.

    Raises
    ------
    InputError
        Excel's or LibreOffice's lock file stands beside it.
    """
    if not path.exists():
        return
    for lock in (f"~${path.name}", f".~lock.{path.name}#"):
        beside = path.parent / lock
        if os.path.lexists(beside):
            raise InputError(
                f"{path}: is open in a spreadsheet program (it left {beside.name}); close it "
                "there, or give another file; if nothing has it open, remove that file"
            )


def json_text(made: Book) -> str:
    """Return the twin as JSON text."""
    return json.dumps(made.as_json(), indent=2, allow_nan=False)
