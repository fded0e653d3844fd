"""Sheets with a field per row and a scenario per column: scenarios side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from specsim.export.workbook.formulas import Formula, Range
from specsim.export.workbook.sheets import Cell, Column, Sheet
from specsim.export.workbook.subjects import Subject


@dataclass(frozen=True)
class Field:
    """One row."""

    id: str
    unit: str
    description: str
    cell: Callable[[Subject], Cell | None]


@dataclass(frozen=True)
class Fields:
    """The sheet, and where each field stands."""

    sheet: Sheet
    rows: dict[str, int] = field(default_factory=dict)

    def __call__(self, subject: Subject, field_id: str) -> Formula:
        """Refer to a field of a scenario."""
        return self.sheet.ref(self.rows[field_id], subject.id)

    def range(self, subject: Subject, first: str, last: str) -> Range:
        """Refer to neighbouring fields of a scenario."""
        return self.sheet.column_range(subject.id, self.rows[first], self.rows[last])

    def add(self, fields: Iterable[Field], found: Sequence[Subject]) -> None:
        """Append rows; every cell gets a name, such as `spares_S1`."""
        for each in fields:
            cells = {s.id: each.cell(s) for s in found}
            named = {
                label: c and Cell(c.content, c.kind, c.digits, f"{each.id}_{label}", c.allowed)
                for label, c in cells.items()
            }
            heads = {"field": each.id, "unit": each.unit, "description": each.description}
            words = {name: Cell(text, "text") for name, text in heads.items()}
            self.rows[each.id] = self.sheet.add({**words, **named})


def fields_sheet(name: str, about: str, found: Sequence[Subject]) -> Fields:
    """Return an empty sheet of this form."""
    columns = (
        Column("field", "what it is called", width=27),
        Column("unit", "what it is counted in", width=15),
        Column("description", "what it means", width=62),
        *(Column(s.id, s.name, width=24) for s in found),
    )
    return Fields(Sheet(name, about, columns))
