"""The support itself: right values pass, a planted wrong one is found, an edit gives new ones."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import office as support
import programs
import pytest
import xlsxwriter
from office import Difference, OfficeError

Make = Callable[..., Path]

# What the formulas below give for an acceptance of 0.7 and k = 4, by hand.
TOKENS_PER_CYCLE = (1 - 0.7**5) / (1 - 0.7)  # 2.7731


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a workbook with one formula of each kind; `stored` replaces stored values."""

    def make(**stored: float | str | bool) -> Path:
        path = tmp_path / "a book.xlsx"
        with xlsxwriter.Workbook(path) as book:
            inputs, model = book.add_worksheet("Inputs"), book.add_worksheet("My model")
            inputs.write_row("A1", ("acceptance", 0.7))
            inputs.write_row("A2", ("k", 4))
            inputs.write_string("A3", "=cmd()")
            inputs.write_column("D1", ("H100", "H200", "B200"))
            inputs.write_column("E1", (3.35, 4.8, 8.0))
            book.define_name("acceptance", "=Inputs!$B$1")
            book.define_name("num_speculative_tokens", "=Inputs!$B$2")
            book.define_name("speeds", "=Inputs!$E$1:$E$3")
            model.write_row("A1", ("quantity", "value"))
            two_places = book.add_format({"num_format": "0.00"})
            rows: list[tuple[str, str, float | str | bool]] = [
                (
                    "tokens",
                    "=(1-POWER(acceptance,num_speculative_tokens+1))/(1-acceptance)",
                    TOKENS_PER_CYCLE,
                ),
                ("verdict", '=IF(B2>2,"use k="&num_speculative_tokens,"")', "use k=4"),
                ("no_warning", '=IF(B2<1,"less than one","")', ""),
                ("pays", "=B2>2", True),
                ("formatted", "=AND(B5,B2>1)", True),
                ("speed", '=INDEX(speeds,MATCH("H200",Inputs!D1:D3,0))', 4.8),
                ("sum", "=SUMPRODUCT(speeds,speeds)", 3.35**2 + 4.8**2 + 8.0**2),
                ("cycles", "=ROUNDUP(256/B2,0)", 93),
            ]
            for row, (name, formula, value) in enumerate(rows, start=1):
                model.write_string(row, 0, name)
                style = two_places if name == "formatted" else None
                model.write_formula(row, 1, formula, style, stored.get(name, value))
        return path

    return make


def test_right_values_show_no_difference(office: ModuleType, make: Make, tmp_path: Path) -> None:
    path = make()
    assert office.n_formulas(path) == 8
    new = office.recalculated(path, tmp_path)
    assert office.differences(path, new) == []
    assert office.value(new, "Inputs!A3") == "=cmd()"
    # An array formula is counted and compared in every cell that it fills.
    with xlsxwriter.Workbook(tmp_path / "array.xlsx") as book:
        sheet = book.add_worksheet("S")
        sheet.write_column("A1", (1, 2, 3))
        sheet.write_array_formula("B1:B3", "{=A1:A3*2}", None, 2)
        sheet.write_column("B2", (4, 7))
    array = tmp_path / "array.xlsx"
    assert office.n_formulas(array) == 3
    (only,) = office.differences(array, office.recalculated(array, tmp_path))
    assert (only.cell, only.stored, only.recalculated) == ("B3", 7, 6)


@pytest.mark.parametrize(
    ("name", "cell", "wrong", "right"),
    [
        ("cycles", "B9", 999, 93),
        ("tokens", "B2", TOKENS_PER_CYCLE * (1 + 1e-8), TOKENS_PER_CYCLE),
        ("verdict", "B3", "Use k=4", "use k=4"),
        ("no_warning", "B4", "less than one", None),
        ("pays", "B5", 1, True),
        ("formatted", "B6", False, 1),
        ("speed", "B7", "#N/A", 4.8),
    ],
)
def test_exactly_the_wrong_value_is_found(
    office: ModuleType,
    make: Make,
    tmp_path: Path,
    name: str,
    cell: str,
    wrong: object,
    right: object,
) -> None:
    path = make(**{name: wrong})
    (only,) = office.differences(path, office.recalculated(path, tmp_path))
    assert (only.sheet, only.cell, only.stored) == ("My model", cell, wrong)
    assert only.recalculated == (pytest.approx(right) if isinstance(right, float) else right)
    assert only.formula.startswith("=")


def test_stored_values_would_survive_if_recalculation_were_not_forced(
    office: ModuleType, make: Make, tmp_path: Path
) -> None:
    """Why it is forced: by default LibreOffice copies the planted value, a test of nothing."""
    path = make(cycles=999)
    unforced = office.converted(path, tmp_path, "xlsx:Calc MS Excel 2007 XML", forced=False)
    assert office.value(unforced, "'My model'!B9") == 999
    assert office.differences(path, unforced) == []


def test_an_edited_input_gives_new_values(office: ModuleType, make: Make, tmp_path: Path) -> None:
    values = {"acceptance": 0.5, "num_speculative_tokens": 1, "'Inputs'!$D$3": "=B200"}
    copy = office.edited(make(), values, tmp_path)
    with pytest.raises(OfficeError, match=r"6 of 8 formulas of .* no stored value, .*!B2 \(1\.5\)"):
        office.differences(copy, office.recalculated(copy, tmp_path))
    new = office.recalculated(copy, tmp_path)
    assert office.value(new, "acceptance") == 0.5
    assert office.value(new, "Inputs!D3") == "=B200"
    assert office.value(new, "Inputs!A3") == "=cmd()"
    model = {row["quantity"]: row["value"] for row in office.table(new, "My model")}
    assert model["tokens"] == pytest.approx(1.5, rel=1e-12)
    assert model["verdict"] is None
    assert model["pays"] is False
    assert model["cycles"] == math.ceil(256 / 1.5)


def test_an_error_is_a_difference_even_where_it_was_stored(
    office: ModuleType, make: Make, tmp_path: Path
) -> None:
    path = make(speed="#N/A")
    copy = office.recalculated(office.edited(path, {"Inputs!D2": "GB200"}, tmp_path), tmp_path)
    assert [(d.stored, d.recalculated) for d in office.differences(path, copy)] == [
        ("#N/A", "#N/A")
    ]


@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="needs pdftoppm of poppler-utils")
def test_pictures_show_the_pages(office: ModuleType, make: Make, tmp_path: Path) -> None:
    pages = office.pictures(make(cycles=999), tmp_path)
    assert [page.read_bytes()[:4] for page in pages] == [b"\x89PNG"] * 2


def test_what_libreoffice_cannot_read_is_said(office: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(OfficeError, match=r"made no absent\.xlsx of .*"):
        office.recalculated(tmp_path / "absent.xlsx", tmp_path)


# Without LibreOffice


def test_cells_are_read_by_name_or_place(make: Make) -> None:
    path = make()
    assert support.value(path, "num_speculative_tokens") == 4
    assert support.value(path, "'My model'!B2") == support.value(path, "My model!$B$2")
    assert support.table(path, "My model")[1] == {"quantity": "verdict", "value": "use k=4"}


def test_unknown_names_are_answered_with_the_nearest(make: Make, tmp_path: Path) -> None:
    path = make()
    with pytest.raises(KeyError, match=r"'acceptence', nearest: acceptance"):
        support.edited(path, {"acceptence": 0.5}, tmp_path)
    with pytest.raises(KeyError, match=r"no name or cell 'Input!A1', nearest: Inputs"):
        support.value(path, "Input!A1")
    with pytest.raises(KeyError, match="speeds is not one cell"):
        support.value(path, "speeds")
    with pytest.raises(KeyError, match=r"no sheet 'Model' .* Inputs, My model"):
        support.table(path, "Model")
    with pytest.raises(OfficeError, match=r"My model!B2 is not an input, it holds ="):
        support.edited(path, {"My model!B2": 3}, tmp_path)


def test_a_workbook_without_formulas_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.xlsx"
    with xlsxwriter.Workbook(path) as book:
        book.add_worksheet().write_string("A1", "=1+1")
    assert support.n_formulas(path) == 0
    with pytest.raises(OfficeError, match="has no formula"):
        support.differences(path, path)


def test_a_difference_says_where_and_what() -> None:
    difference = Difference("Model", "B2", "=A1*21", 999, 42)
    assert str(difference) == "Model!B2: =A1*21 gives 42, stored is 999"


def test_a_command_that_hangs_is_ended_with_its_children() -> None:
    with pytest.raises(OfficeError, match=r"not done in 0\.2 s: sh .*\nstarted"):
        support._run(("sh", "-c", "echo started; sleep 99 & sleep 99"), timeout_s=0.2)
    with pytest.raises(OfficeError, match="no soffice-of-nobody on PATH: apt-get install"):
        support._run(("soffice-of-nobody",))


@pytest.mark.parametrize("works", [True, False])
def test_two_workers_install_once(tmp_path: Path, works: bool) -> None:
    """With an apt-get of our own: the second worker waits, and learns how it went."""
    program = tmp_path / "soffice"
    body = f"printf '#!/bin/sh\\n' >{program}; /bin/chmod +x {program}" if works else "exit 100"
    fake = tmp_path / "apt-get"
    fake.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >>{tmp_path}/calls\n'
        f'case "$*" in *install*) /bin/sleep 0.5; echo "no network"; {body};; esac\n'
    )
    fake.chmod(0o755)
    ask = (
        "import os; os.geteuid = lambda: 0\n"
        "import programs; print(programs.found(('soffice',), ('libreoffice-calc',)))"
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", ask],
            env={
                **os.environ,
                "PATH": str(tmp_path),
                "TMPDIR": str(tmp_path),
                "PYTHONPATH": str(Path(programs.__file__).parent),
                "PYTEST_XDIST_TESTRUNUID": "one run",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    first, second = (worker.communicate(timeout=60)[0] for worker in workers)
    assert first == second
    assert ("no network" in first) is not works
    assert (str(program) in first) is works
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [("install" in call, "update" in call) for call in calls] == [
        (False, True),
        (True, False),
    ]
