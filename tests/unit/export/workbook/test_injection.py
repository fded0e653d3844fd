"""Whatever a scenario is called stays a text: in no sheet, chart or CSV does it become more."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import warnings
import zipfile
from pathlib import Path

import openpyxl
import pytest
from hostile import NAMES

from specsim.catalog.scenario import load_scenario
from specsim.export.workbook.book import Book, assembled
from specsim.export.workbook.subjects import Asked, subjects
from specsim.export.workbook.twins import as_csv

EXAMPLE = Path(__file__).parents[4] / "examples" / "llama-3.1-8b-eagle3-h100.yaml"
LONGEST = 32_767


@pytest.fixture(scope="module")
def named() -> Book:
    """Return a workbook with a scenario of each name."""
    source = load_scenario(EXAMPLE, overrides={"speculation": {"method": "none"}})
    (one,) = subjects([source], Asked())
    return assembled(
        [dataclasses.replace(one, id=f"S{i}", name=n) for i, n in enumerate(NAMES, start=1)]
    )


@pytest.fixture(scope="module")
def file(named: Book, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("named") / "plan.xlsx"
    named.save(found)
    return found


def test_names_are_texts_in_the_workbook(named: Book, file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        read = openpyxl.load_workbook(file)
    page = read["Inputs"]
    (row,) = (r for r in page.iter_rows(min_row=4) if r[0].value == "name")
    assert [cell.data_type for cell in row[3 : 3 + len(NAMES)]] == ["s"] * len(NAMES)
    for cell, name in zip(row[3:], NAMES, strict=False):
        # What XML cannot hold is written as Excel reads it; openpyxl leaves it so.
        assert cell.value == name[:LONGEST].replace("\x07", "_x0007_")
        assert cell.hyperlink is None
        # Its header's description is the name too.
        assert page.cell(2, cell.column).data_type == "s"
    formulas = {sheet.name: 0 for sheet in named.sheets}
    for each in read.worksheets:
        for cell in (c for r in each.iter_rows() for c in r if c.data_type == "f"):
            formulas[each.title] += 1
            assert not any(name in cell.value for name in NAMES if len(name) > 3 and name != "TRUE")
    assert formulas["README"] == 0
    # As many of each scenario, whatever it is called.
    each, left = divmod(formulas["Inputs"], len(NAMES))
    assert each > 0
    assert left == 0


def test_no_link_leads_out_of_the_file(file: Path) -> None:
    with zipfile.ZipFile(file) as parts:
        for name in parts.namelist():
            text = parts.read(name).decode()
            assert "<hyperlink" not in text
            assert 'TargetMode="External"' not in text
            # Titles of charts refer to no cell either.
            places = re.findall(r"<c:f>(.*?)</c:f>", text)
            assert all(re.fullmatch(r"\w+!\$[A-Z]+\$\d+(:\$[A-Z]+\$\d+)?", p) for p in places)


def test_names_are_texts_in_csv_files(named: Book) -> None:
    seen = set()
    for sheet in named.sheets:
        for record in csv.reader(io.StringIO(as_csv(sheet))):
            for value in record:
                seen.add(value)
                if value.startswith(("=", "+", "-", "@", "\t", "\r")):
                    float(value)  # nothing but a number begins so
    for name in NAMES:
        begins = name.startswith(("=", "+", "-", "@", "\t"))
        assert (f"'{name}" if begins else name) in seen
