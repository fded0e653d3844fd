"""Sheets before they are written: addresses, names, ranges, blanks."""

from __future__ import annotations

import pytest

from specsim.export.workbook import formulas as f
from specsim.export.workbook.sheets import FIRST_ROW, Cell, Column, Sheet


def sheet(name: str = "Sweep", n: int = 30) -> Sheet:
    return Sheet(name, "", tuple(Column(f"c{i}", "") for i in range(n)))


@pytest.mark.parametrize(
    ("place", "letters"),
    [(0, "A"), (25, "Z"), (26, "AA"), (27, "AB"), (51, "AZ"), (52, "BA"), (701, "ZZ"),
     (702, "AAA"), (16_383, "XFD")],
)  # fmt: skip
def test_columns_go_on_behind_z(place: int, letters: str) -> None:
    assert sheet(n=place + 1).address(0, f"c{place}") == f"Sweep!${letters}$4"


def test_records_start_below_title_descriptions_and_headers() -> None:
    assert FIRST_ROW == 3
    made = sheet()
    assert made.address(6, "c1") == "Sweep!$B$10"
    assert made.ref(6, "c1").text == "Sweep!$B$10"


@pytest.mark.parametrize(
    ("name", "quoted"),
    [("Model+HW", "'Model+HW'"), ("Measured vs model", "'Measured vs model'"), ("SLO", "SLO")],
)
def test_names_that_are_no_word_are_quoted(name: str, quoted: str) -> None:
    assert sheet(name).address(0, "c0") == f"{quoted}!$A$4"
    assert sheet(name).column_range("c0", 0, 2).text == f"{quoted}!$A$4:$A$6"


def test_a_cell_is_referred_to_by_its_name() -> None:
    made = sheet()
    row = made.add({"c0": Cell(3.0, name="spares_S1"), "c1": Cell(2.0)})
    assert row == 0
    assert made.ref(0, "c0").text == "spares_S1"
    assert (made.ref(0, "c0") * made.ref(0, "c1")).value == 6.0
    # Ranges are by place: a name is one cell.
    assert made.row_range(0, "c0", "c1").text == "Sweep!$A$4:$B$4"


def test_what_is_filled_later_is_read_then() -> None:
    made = sheet()
    later = made.ref(1, "c0") + 1
    made.add({"c0": Cell(1.0)})
    made.add({"c0": Cell(41.0)})
    assert later.value == 42.0


def test_blank_and_empty_cells_read_as_an_empty_text_and_are_no_numbers() -> None:
    made = sheet(n=3)
    made.add({"c0": Cell(None), "c1": None, "c2": Cell(5.0)})
    assert made.ref(0, "c0").is_blank().value is True
    assert made.ref(0, "c1").is_blank().value is True
    assert made.ref(0, "c2").is_blank().value is False
    assert f.count(made.row_range(0, "c0", "c2")).value == 1.0
    assert list(made.records()) == [{"c0": None, "c1": None, "c2": 5.0}]


def test_ranges_hold_what_they_name() -> None:
    made = sheet(n=3)
    for i in range(3):
        made.add({f"c{j}": Cell(10.0 * i + j) for j in range(3)})
    assert made.column_range("c1", 1, 2).numbers == [11.0, 21.0]
    assert made.row_range(2, "c0", "c2").numbers == [20.0, 21.0, 22.0]
    assert made.row_range(2, "c1", "c1").text == "Sweep!$B$6:$B$6"


def test_an_unknown_column_is_an_error_by_its_name() -> None:
    made = sheet()
    with pytest.raises(KeyError, match="sheet Sweep has no column tpot, ttft"):
        made.add({"ttft": Cell(1.0), "c0": Cell(1.0), "tpot": None})
    with pytest.raises(KeyError, match="sheet Sweep has no column tpot"):
        made.address(0, "tpot")
    with pytest.raises(KeyError, match="sheet Sweep has no column tpot"):
        made.column_range("tpot", 0, 1)
    assert made.rows == []
