"""Sheets as tables of cells, before they are written anywhere: one table per sheet."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from specsim.export.workbook.formulas import Formula, Range, Value

Kind = Literal["input", "assumption", "formula", "output", "fixed", "text"]
"""What a cell is, which its colour says. input: yours to change. assumption: the same, and nobody
gave it yet. formula: computed in the sheet. output: computed by specsim, does not change in the
sheet. fixed: what specsim computed it from. text: words."""

FIRST_ROW = 3
"""Zero-based row of the first record: a title, descriptions and headers stand above."""
HEADER_ROW = 2


@dataclass(frozen=True)
class Allowed:
    """What may be typed into a cell."""

    low: float
    high: float
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell."""

    content: Formula | Value | None
    kind: Kind = "output"
    digits: str = ""
    """A number format in place of the column's (`write.NUMBER_FORMATS`)."""
    name: str = ""
    """Defined name that points at it."""
    allowed: Allowed | None = None

    @property
    def value(self) -> Value | None:
        """What is seen in it."""
        return self.content.value if isinstance(self.content, Formula) else self.content


@dataclass(frozen=True)
class Column:
    """A column: its header is its id, which carries the unit."""

    id: str
    description: str
    digits: str = "general"
    width: float = 12.0
    folded: bool = False
    """Part of an outline group that is closed at first."""


@dataclass
class Sheet:
    """One table."""

    name: str
    about: str
    """What it says, in a sentence or two; stands above the table."""
    columns: tuple[Column, ...]
    rows: list[dict[str, Cell]] = field(default_factory=list)
    landscape: bool = True
    frozen_columns: int = 1

    def __post_init__(self) -> None:
        self._places = {column.id: i for i, column in enumerate(self.columns)}

    def add(self, cells: Mapping[str, Cell | None]) -> int:
        """Append a record and return its place, from 0. What is missing or None is blank."""
        unknown = cells.keys() - self._places.keys()
        if unknown:
            raise KeyError(f"sheet {self.name} has no column {', '.join(sorted(unknown))}")
        self.rows.append({name: cell for name, cell in cells.items() if cell is not None})
        return len(self.rows) - 1

    def place(self, column_id: str) -> int:
        """Return the zero-based place of a column."""
        try:
            return self._places[column_id]
        except KeyError:
            raise KeyError(f"sheet {self.name} has no column {column_id}") from None

    def ref(self, row: int, column_id: str) -> Formula:
        """Refer to a cell, by its name where it has one. It may be filled later."""

        def compute() -> Value:
            cell = self.rows[row].get(column_id)
            value = None if cell is None else cell.value
            # A blank cell is an empty text where texts are compared.
            return "" if value is None else value

        cell = self.rows[row].get(column_id) if row < len(self.rows) else None
        text = cell.name if cell is not None and cell.name else self.address(row, column_id)
        return Formula(text, compute)

    def address(self, row: int, column_id: str) -> str:
        """Return the absolute address of a cell, such as `'Model+HW'!$C$7`."""
        return f"{self._quoted}!{_absolute(FIRST_ROW + row, self.place(column_id))}"

    def column_range(self, column_id: str, first: int, last: int) -> Range:
        """Refer to a column from record `first` to `last`, both included."""
        place = self.place(column_id)
        low, high = (_absolute(FIRST_ROW + row, place) for row in (first, last))
        cells = tuple(self.ref(row, column_id) for row in range(first, last + 1))
        return Range(f"{self._quoted}!{low}:{high}", cells)

    def row_range(self, row: int, first: str, last: str) -> Range:
        """Refer to a record from column `first` to `last`, both included."""
        a, b = self.place(first), self.place(last)
        low, high = (_absolute(FIRST_ROW + row, place) for place in (a, b))
        cells = tuple(self.ref(row, column.id) for column in self.columns[a : b + 1])
        return Range(f"{self._quoted}!{low}:{high}", cells)

    @property
    def _quoted(self) -> str:
        return self.name if self.name.isidentifier() else f"'{self.name}'"

    def records(self) -> Iterator[dict[str, Value | None]]:
        """Return the values of each record by column."""
        for row in self.rows:
            yield {
                column.id: row[column.id].value if column.id in row else None
                for column in self.columns
            }


def _absolute(row: int, column: int) -> str:
    return f"${_letters(column)}${row + 1}"


@functools.cache
def _letters(column: int) -> str:
    letters = ""
    rest = column + 1
    while rest:
        rest, digit = divmod(rest - 1, 26)
        letters = chr(65 + digit) + letters
    return letters
