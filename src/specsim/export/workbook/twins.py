"""The same sheets as CSV files and as one JSON object: values without formulas."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from specsim.export.workbook.formulas import Value
from specsim.export.workbook.sheets import Sheet

_DIGITS = 12
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet that opens a CSV takes what begins so for a formula."""


def file_stem(sheet: Sheet) -> str:
    """Return the name of a sheet as part of a file name.

    Examples
    --------
    >>> file_stem(Sheet("Model+HW", "", ())), file_stem(Sheet("Measured vs model", "", ()))
    ('model_hw', 'measured_vs_model')
    """
    return re.sub(r"[^a-z0-9]+", "_", sheet.name.lower()).strip("_")


def as_csv(sheet: Sheet) -> str:
    """Return a sheet as CSV."""
    return csv_text(list(sheet.records()), names=[column.id for column in sheet.columns])


def csv_text(
    records: Sequence[Mapping[str, Value | None]], *, names: Sequence[str] | None = None
) -> str:
    """Return records as CSV: headers, then rows; texts that look like formulas get a quote."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(records[0]) if names is None and records else list(names or ())
    writer.writerow(names)
    for record in records:
        writer.writerow([_csv(record[name]) for name in names])
    return text.getvalue()


def as_json(sheets: Sequence[Sheet]) -> dict[str, Any]:
    """Return all sheets by name: what each says, its columns and its records."""
    return {
        sheet.name: {
            "about": sheet.about,
            "columns": {column.id: column.description for column in sheet.columns},
            "records": [_plain(record) for record in sheet.records()],
        }
        for sheet in sheets
    }


def _plain(record: Mapping[str, Value | None]) -> dict[str, Value | None]:
    return {name: _rounded(value) for name, value in record.items()}


def _rounded(value: Value | None) -> Value | None:
    if isinstance(value, float):
        rounded = float(f"{value:.{_DIGITS}g}")
        return int(rounded) if rounded == round(rounded) and abs(rounded) < 1e15 else rounded
    return None if value == "" else value


def _csv(value: Value | None) -> object:
    known = _rounded(value)
    if known is None:
        return ""
    if isinstance(known, str) and known.startswith(_FORMULA_SIGNS):
        return f"'{known}"
    return known
