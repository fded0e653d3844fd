"""Sheets to an .xlsx file: each formula with its value beside it, inputs with their bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import xlsxwriter

from specsim.export.workbook import styles
from specsim.export.workbook.formulas import Formula
from specsim.export.workbook.sheets import (
    FIRST_ROW,
    HEADER_ROW,
    Allowed,
    Cell,
    Column,
    Kind,
    Sheet,
)

_LONGEST_TEXT = 32_767
"""Characters that a cell holds."""
_WRAPPED = 30.0
"""Columns as wide as this are meant for sentences."""
_PER_WIDTH = 1.12
"""Characters of text per unit of width, on average."""
_PAGE_WIDTH = 170.0
"""Units of width that can be read on a page across."""
_LINE, _MOST_LINES = 15.0, 20
Draw = Callable[[Any], None]
"""Adds what is no table, such as charts, to the open workbook."""


def write_xlsx(
    file: BinaryIO, sheets: Sequence[Sheet], *, title: str, created: Any, draw: Draw, after: str
) -> None:
    """Write sheets in order, and what `draw` adds behind the sheet named `after`.

    Texts are written as texts whatever they begin with, so that none becomes a formula or a link.
    """
    book = xlsxwriter.Workbook(
        file,
        {
            "in_memory": True,
            "strings_to_formulas": False,
            "strings_to_urls": False,
            "strings_to_numbers": False,
            "nan_inf_to_errors": False,
        },
    )
    book.set_properties({"title": title, "created": created, "comments": "Made by specsim."})
    # Whatever opens it computes anew; those that do not, show the stored values.
    book.set_calc_mode("auto")
    writer = _Writer(book)
    for sheet in sheets:
        writer.write(sheet)
        if sheet.name == after:
            draw(book)
    book.close()


class _Writer:
    def __init__(self, book: Any) -> None:
        self.book = book
        self.formats: dict[tuple[str, str, bool], Any] = {}
        self.title, self.about, self.description, self.header = (
            book.add_format(p)
            for p in (styles.TITLE, styles.ABOUT, styles.DESCRIPTION, styles.HEADER)
        )

    def write(self, sheet: Sheet) -> None:
        page = self.book.add_worksheet(sheet.name)
        self._head(page, sheet)
        wrapped = [column for column in sheet.columns if column.width >= _WRAPPED]
        for i, record in enumerate(sheet.rows):
            page.set_row(FIRST_ROW + i, _height(record, wrapped))
            for j, column in enumerate(sheet.columns):
                cell = record.get(column.id)
                if cell is not None:
                    self._cell(page, FIRST_ROW + i, j, cell, column)
                    if cell.name:
                        self.book.define_name(cell.name, f"={sheet.address(i, column.id)}")
        _printed(page, sheet)

    def _head(self, page: Any, sheet: Sheet) -> None:
        page.write_string(0, 0, sheet.name, self.title)
        page.write_string(0, 1, sheet.about, self.about)
        page.set_row(1, 36)
        for j, column in enumerate(sheet.columns):
            page.write_string(1, j, column.description, self.description)
            page.write_string(HEADER_ROW, j, column.id, self.header)
            folded = {"level": 1, "hidden": True} if column.folded else {}
            page.set_column(j, j, _width(column), None, folded)
        last = FIRST_ROW + len(sheet.rows) - 1
        page.autofilter(HEADER_ROW, 0, max(last, HEADER_ROW), len(sheet.columns) - 1)
        page.freeze_panes(FIRST_ROW, sheet.frozen_columns)
        if any(column.folded for column in sheet.columns):
            page.set_column(len(sheet.columns), len(sheet.columns), 3, None, {"collapsed": True})

    def _cell(self, page: Any, row: int, place: int, cell: Cell, column: Column) -> None:
        value = cell.value
        # Words keep to their kind's colour, and wrap where their column is meant for sentences.
        digits = cell.digits or column.digits
        style = self._format(
            cell.kind, styles.number_format(digits, value), isinstance(value, str) and
            column.width >= _WRAPPED,
        )  # fmt: skip
        if isinstance(cell.content, Formula):
            page.write_formula(row, place, f"={cell.content.text}", style, value)
        elif value is None:
            page.write_blank(row, place, None, style)
        elif isinstance(value, bool):
            page.write_boolean(row, place, value, style)
        elif isinstance(value, str):
            page.write_string(row, place, value[:_LONGEST_TEXT], style)
        else:
            page.write_number(row, place, value, style)
        if cell.allowed is not None:
            page.data_validation(row, place, row, place, _validation(cell.allowed))

    def _format(self, kind: Kind, pattern: str, wrapped: bool) -> Any:
        key = (kind, pattern, wrapped)
        if key not in self.formats:
            found = styles.properties(kind, pattern) | ({"text_wrap": True} if wrapped else {})
            self.formats[key] = self.book.add_format(found)
        return self.formats[key]


def _width(column: Column) -> float:
    return max(column.width, len(column.id) + 3.0)


def _height(record: dict[str, Cell], wrapped: Sequence[Column]) -> float:
    """Return the height of a row: programs that only show a file do not wrap texts themselves."""
    lines = 1
    for column in wrapped:
        cell = record.get(column.id)
        if cell is not None and isinstance(cell.value, str):
            lines = max(lines, math.ceil(len(cell.value) / (column.width * _PER_WIDTH)))
    return _LINE * min(lines, _MOST_LINES)


def _validation(allowed: Allowed) -> dict[str, Any]:
    kind = "a whole number" if allowed.whole else "a number"
    text = f"Expected {kind} from {allowed.low:.6g} to {allowed.high:.6g}."
    return {
        "validate": "integer" if allowed.whole else "decimal",
        "criteria": "between",
        "minimum": allowed.low,
        "maximum": allowed.high,
        "ignore_blank": True,
        "error_title": "Outside what is allowed",
        "error_message": text,
        "input_title": "",
        "input_message": text,
    }


def _printed(page: Any, sheet: Sheet) -> None:
    if sheet.landscape:
        page.set_landscape()
    page.set_paper(9)  # A4
    width = sum(_width(column) for column in sheet.columns if not column.folded)
    page.fit_to_pages(max(round(width / _PAGE_WIDTH), 1), 0)
    page.repeat_rows(HEADER_ROW)
    page.repeat_columns(0, sheet.frozen_columns - 1)
    page.set_footer("&L&F&C&A&R&P / &N")
