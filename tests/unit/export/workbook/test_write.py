"""The .xlsx file as another library reads it: what a spreadsheet user meets."""

from __future__ import annotations

import math
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import openpyxl
import pytest
from openpyxl.utils import get_column_letter
from openpyxl.workbook import Workbook
from openpyxl.worksheet.worksheet import Worksheet

from specsim.export.workbook.book import Book
from specsim.export.workbook.formulas import Formula
from specsim.export.workbook.sheets import FIRST_ROW, Cell, Sheet
from specsim.export.workbook.styles import KINDS

EXCEL_2007 = {"IF", "AND", "OR", "NOT", "ISNUMBER", "MIN", "MAX", "SUM", "COUNT", "INDEX",
              "SUMPRODUCT", "ROUNDUP", "INT", "TEXT"}  # fmt: skip
SHEETS = ["README", "Charts", "Inputs", "SLO", "Model+HW", "Speculation", "Sweep", "Crossover",
          "Capacity", "Fleet", "Cost", "Sensitivity", "Acceptance", "Memory", "Measured vs model",
          "Assumptions"]  # fmt: skip


@pytest.fixture(scope="module")
def read(path: Path) -> Workbook:
    """Return the workbook with formulas."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return openpyxl.load_workbook(path)


def cells(sheet: Sheet) -> Iterator[tuple[str, str, Cell]]:
    """Yield the place, the column and each cell of a sheet."""
    for i, record in enumerate(sheet.rows):
        for j, column in enumerate(sheet.columns):
            if column.id in record:
                place = f"{get_column_letter(j + 1)}{FIRST_ROW + i + 1}"
                yield place, column.id, record[column.id]


def same(found: object, meant: object) -> bool:
    """Return whether a value was kept: the file has 16 digits of a number, and no empty texts."""
    if isinstance(meant, float) and isinstance(found, int | float):
        return math.isclose(found, meant, rel_tol=1e-15)
    return (found or None) == (meant or None)


def test_sheets_in_the_order_of_reading(read: Workbook) -> None:
    assert read.sheetnames == SHEETS


def test_every_cell_is_where_its_sheet_says(made: Book, read: Workbook) -> None:
    n = 0
    for sheet in made.sheets:
        page = read[sheet.name]
        assert [c.value for c in page[3]][: len(sheet.columns)] == [c.id for c in sheet.columns]
        for place, _, cell in cells(sheet):
            if isinstance(cell.content, Formula):
                assert page[place].value == f"={cell.content.text}"
                assert page[place].data_type == "f"
                n += 1
            elif cell.content not in (None, ""):
                assert same(page[place].value, cell.content)
    assert n > 2000


def test_values_stand_beside_formulas(made: Book, path: Path) -> None:
    """A program that only shows a file shows them; openpyxl reads numbers as they were written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        stored = openpyxl.load_workbook(path, data_only=True)
    for sheet in made.sheets:
        for place, _, cell in cells(sheet):
            assert same(stored[sheet.name][place].value, cell.value), (sheet.name, place)


def test_colours_say_what_a_cell_is(made: Book, read: Workbook) -> None:
    seen = set()
    for sheet in made.sheets:
        for place, _, cell in cells(sheet):
            background, ink, _ = KINDS[cell.kind]
            shown = read[sheet.name][place]
            assert shown.font.color.rgb == "FF" + ink[1:]
            if background != "#FFFFFF":
                assert shown.fill.fgColor.rgb == "FF" + background[1:]
            assert shown.protection.locked is (cell.kind not in ("input", "assumption"))
            seen.add(cell.kind)
    assert seen == set(KINDS)


def test_formulas_and_results_are_never_coloured_as_inputs(made: Book) -> None:
    for sheet in made.sheets:
        for place, column, cell in cells(sheet):
            typed = cell.kind in ("input", "assumption")
            is_formula = isinstance(cell.content, Formula)
            assert not (typed and is_formula), (sheet.name, place, column)
            if sheet.name != "README":  # which shows the colours themselves
                assert is_formula is (cell.kind == "formula"), (sheet.name, place, column)
                assert not typed or sheet.name == "Inputs"


def test_inputs_take_what_is_allowed(made: Book, read: Workbook) -> None:
    page = read["Inputs"]
    rules = {str(rule.sqref): rule for rule in page.data_validations.dataValidation}
    (sheet,) = (s for s in made.sheets if s.name == "Inputs")
    bounds = {cell.name: rules.get(place) for place, _, cell in cells(sheet)}
    known = {n: (r.type, float(r.formula1), float(r.formula2)) for n, r in bounds.items() if r}
    assert known["target_utilization_pct_S1"] == ("decimal", 1, 100)
    assert known["spares_S1"] == ("whole", 0, 1000)
    assert known["peak_to_avg_S2"] == ("decimal", 1, 1e4)
    assert known["growth_pct_S1"] == ("decimal", pytest.approx(-100 + 1e-6, abs=1e-9), 10_000)
    assert known["hours_per_day_S1"] == ("decimal", 0.1, 24)
    assert known["acceptance_length_S1"] == ("decimal", 1, 4)
    assert known["commit_discount_pct_S1"] == ("decimal", 0, 100)
    assert known["load_S1"] == ("whole", 1, 256)
    assert known["load_S2"][0] == "decimal"
    # What is not said is "between".
    assert {(rule.operator, rule.showErrorMessage) for rule in rules.values()} == {(None, True)}
    # All that is typed as a number has bounds, and nothing else has.
    typed = {c.name for _, _, c in cells(sheet) if c.kind in ("input", "assumption")}
    words = {f"{name}_{s}" for name in ("name", "owner_team", "notes") for s in ("S1", "S2")}
    assert set(known) == typed - words
    # What was exported is within them.
    for _, _, cell in cells(sheet):
        if cell.allowed is not None and cell.value is not None:
            assert isinstance(cell.value, float)
            assert cell.allowed.low <= cell.value <= cell.allowed.high, cell.name


def test_names_point_at_their_cells(made: Book, read: Workbook) -> None:
    named = {c.name: (s.name, p) for s in made.sheets for p, _, c in cells(s) if c.name}
    found = {}
    for name, defined in read.defined_names.items():
        ((title, place),) = defined.destinations
        found[name] = (title, place.replace("$", ""))
    assert found == named
    field = read["Inputs"][f"A{found['acceptance_length_S1'][1][1:]}"].value
    assert field == "acceptance_length"
    # Excel takes no name for what may be a cell, and none longer than 255.
    cell = re.compile(r"^(R|C|[A-Z]{1,3}\d+|R\d*C\d*)$", re.IGNORECASE)
    assert not [n for n in found if cell.match(n) or len(n) > 255]


def test_names_in_formulas_are_defined(made: Book, read: Workbook) -> None:
    for sheet in made.sheets:
        for _, _, cell in cells(sheet):
            if isinstance(cell.content, Formula):
                used = set(re.findall(r"\b[a-z]\w*_S\d+\b", _outside_texts(cell.content.text)))
                assert used <= set(read.defined_names)


def test_functions_are_those_of_excel_2007(made: Book) -> None:
    used: set[str] = set()
    for sheet in made.sheets:
        for _, _, cell in cells(sheet):
            if isinstance(cell.content, Formula):
                used |= set(re.findall(r"([A-Za-z_.0-9]+)\(", _outside_texts(cell.content.text)))
                assert len(cell.content.text) < 8192
                assert _depth(cell.content.text) <= 64
    assert used <= EXCEL_2007, used - EXCEL_2007
    assert {"IF", "INDEX", "SUMPRODUCT", "ROUNDUP"} <= used


def _outside_texts(formula: str) -> str:
    return re.sub(r'"[^"]*"', "", formula)


def _depth(formula: str) -> int:
    """Return how deep brackets stand, of which Excel takes 64."""
    deepest = depth = 0
    for sign in _outside_texts(formula):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        deepest = max(deepest, depth)
    return deepest


def test_tables_can_be_filtered_and_scrolled(made: Book, read: Workbook) -> None:
    for sheet in made.sheets:
        page = read[sheet.name]
        assert page.freeze_panes == f"{get_column_letter(sheet.frozen_columns + 1)}4"
        last = get_column_letter(len(sheet.columns))
        rows = max(FIRST_ROW + len(sheet.rows), FIRST_ROW)
        assert page.auto_filter.ref.replace("$", "") == f"A3:{last}{rows}"
        assert list(page.merged_cells.ranges) == []
        folded = [c.id for c in sheet.columns if c.folded]
        hidden = [
            c.id
            for j, c in enumerate(sheet.columns)
            if _dimension(page, j).hidden
        ]  # fmt: skip
        assert hidden == folded
    assert "slot_ms_1" in folded_of(made, "Sweep")


def _dimension(page: Worksheet, place: int) -> openpyxl.worksheet.dimensions.ColumnDimension:
    """Return the properties of a column: neighbours that are alike are stored once."""
    for dimension in page.column_dimensions.values():
        if dimension.min <= place + 1 <= dimension.max:
            return dimension
    raise AssertionError(f"{page.title} says nothing of column {place + 1}")


def folded_of(made: Book, name: str) -> set[str]:
    (sheet,) = (s for s in made.sheets if s.name == name)
    return {c.id for c in sheet.columns if c.folded}


def test_pages_print(made: Book, read: Workbook) -> None:
    for page in read.worksheets:
        assert page.page_setup.paperSize == 9
        assert page.sheet_properties.pageSetUpPr.fitToPage
        assert page.page_setup.fitToHeight == 0
    for sheet in made.sheets:
        page = read[sheet.name]
        assert page.print_title_rows == "$3:$3"
        assert page.print_title_cols.startswith("$A:")
        landscape = page.page_setup.orientation == "landscape"
        assert landscape is sheet.landscape
        assert "&P" in (page.oddFooter.right.text or "")


def test_charts_are_over_cells(path: Path, read: Workbook) -> None:
    assert [s.title for s in read.worksheets if s._charts] == ["Charts"]
    with zipfile.ZipFile(path) as parts:
        charts = [n for n in parts.namelist() if re.fullmatch(r"xl/charts/chart\d+\.xml", n)]
        texts = [parts.read(name).decode() for name in charts]
    # Memory and cost of all; of each scenario: load, speedup, acceptance, what inputs are worth.
    assert len(charts) == 2 + 2 * 4
    assert len(read["Charts"]._charts) == len(charts)
    for text in texts:
        ranges = re.findall(r"<c:f>(.*?)</c:f>", text)
        assert len(ranges) >= 2
        for place in ranges:
            title, _, cell_range = place.replace("'", "").partition("!")
            block = read[title][cell_range.replace("$", "")]
            first = block[0][0] if isinstance(block, tuple) else block
            assert first.row > FIRST_ROW
            values = [c.value for row in (block if isinstance(block, tuple) else ((block,),))
                      for c in row]  # fmt: skip
            assert any(v is not None for v in values), place


def test_no_links_no_macros_no_connections(path: Path) -> None:
    with zipfile.ZipFile(path) as parts:
        names = parts.namelist()
        relations = [parts.read(n).decode() for n in names if n.endswith(".rels")]
        types = parts.read("[Content_Types].xml").decode()
    assert not [n for n in names if re.search(r"vba|externalLink|connections|embed|query", n)]
    assert not [text for text in relations if 'TargetMode="External"' in text]
    assert "macroEnabled" not in types


def test_nothing_is_infinite_or_an_error(made: Book) -> None:
    for sheet in made.sheets:
        for place, _, cell in cells(sheet):
            if isinstance(cell.value, float):
                assert abs(cell.value) < 1e300, (sheet.name, place)
            elif isinstance(cell.value, str):
                assert not cell.value.startswith("#")
                assert cell.value not in ("nan", "inf", "None")
