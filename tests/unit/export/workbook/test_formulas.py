"""Formulas: what they are written as, and what a spreadsheet makes of them, by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.export.workbook import formulas as f
from specsim.export.workbook.formulas import Formula, Range, Value


def cell(name: str, value: Value) -> Formula:
    return Formula(name, lambda: value)


def cells(*values: Value) -> Range:
    return Range("S!$A$1:$A$9", tuple(cell(f"A{i}", v) for i, v in enumerate(values, start=1)))


def refused() -> Value:
    raise AssertionError("a branch that is not taken is not computed")


X, Y, TEN, WORD, BLANK = cell("x", 7.0), cell("y", 2.0), cell("t", 10.0), cell("w", "on"), cell("b", "")  # noqa: E501  # fmt: skip
NEVER = Formula("never", refused)


@pytest.mark.parametrize(
    ("formula", "text", "value"),
    [
        (X + Y, "(x+y)", 9.0),
        (X + 1, "(x+1)", 8.0),
        (1 + X, "(1+x)", 8.0),
        (X - Y, "(x-y)", 5.0),
        (1 - X, "(1-x)", -6.0),
        (X * Y, "(x*y)", 14.0),
        (2.5 * X, "(2.5*x)", 17.5),
        (X / Y, "(x/y)", 3.5),
        (1 / Y, "(1/y)", 0.5),
        (X**Y, "(x^y)", 49.0),
        (X <= Y, "(x<=y)", False),
        (X < Y, "(x<y)", False),
        (X >= 7, "(x>=7)", True),
        (X > Y, "(x>y)", True),
        (X.equals(7), "(x=7)", True),
        (WORD.equals("on"), '(w="on")', True),
        (WORD.equals(1), "(w=1)", False),
        (X.is_blank(), '(x="")', False),
        (BLANK.is_blank(), '(b="")', True),
        (X.is_number(), "ISNUMBER(x)", True),
        (WORD.is_number(), "ISNUMBER(w)", False),
        (BLANK.is_number(), "ISNUMBER(b)", False),
        ((X > Y).is_number(), "ISNUMBER((x>y))", False),
        (f.not_(X > Y), "NOT((x>y))", False),
        (f.not_(BLANK.is_number()), "NOT(ISNUMBER(b))", True),
        # A difference is kept in brackets: 10 - (7 - 2), not 10 - 7 - 2.
        (TEN - (X - Y), "(t-(x-y))", 5.0),
        (TEN / (X / Y) * Y, "((t/(x/y))*y)", 10.0 / 3.5 * 2.0),
        (f.if_(X > Y, "more", NEVER), 'IF((x>y),"more",never)', "more"),
        (f.if_(X < Y, NEVER, BLANK), "IF((x<y),never,b)", ""),
        (f.both(X > Y, Y > 1), "AND((x>y),(y>1))", True),
        (f.both(X > Y, Y > 2), "AND((x>y),(y>2))", False),
        (f.either(X < Y, Y > 1), "OR((x<y),(y>1))", True),
        (f.either(X < Y, Y > 2), "OR((x<y),(y>2))", False),
        (f.smaller(X, Y, 3), "MIN(x,y,3)", 2.0),
        (f.larger(X, Y, 30.5), "MAX(x,y,30.5)", 30.5),
        (f.round_up(X / Y), "ROUNDUP((x/y),0)", 4.0),
        (f.round_up(X), "ROUNDUP(x,0)", 7.0),
        (f.round_down(X / Y), "INT((x/y))", 3.0),
        (f.joined("k = ", WORD, "!"), '"k = "&w&"!"', "k = on!"),
    ],
)  # fmt: skip
def test_text_and_value(formula: Formula, text: str, value: Value) -> None:
    assert formula.text == text
    assert formula.value == value
    assert type(formula.value) is type(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (3.0, "3"),
        (-2.0, "-2"),
        (0.1, "0.1"),
        (1e-9, "1E-09"),
        (1 / 3, "0.3333333333333333"),
        (1e14, "100000000000000"),
        (1e15, "1000000000000000.0"),
        (2.5e20, "2.5E+20"),
        ("plain", '"plain"'),
        ('say "k"', '"say ""k"""'),
        ("=cmd()", '"=cmd()"'),
        ("", '""'),
    ],
)
def test_constants(value: float | str, text: str) -> None:
    made = f.constant(value)
    assert made.text == text
    assert made.value == value
    assert f.constant(made) is made


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_no_digit_of_a_number_is_lost(number: float) -> None:
    assert float(f.constant(number).text) == number


@pytest.mark.parametrize(
    ("number", "pattern", "text"),
    [
        (2.5, "0", "3"),
        (-2.5, "0", "-3"),
        (0.125, "0.00", "0.13"),
        (1234.56, "0.0", "1234.6"),
        (-0.04, "0.0", "0.0"),
        (7.0, "0.00", "7.00"),
    ],
)
def test_numbers_as_text_round_half_away_from_zero(number: float, pattern: str, text: str) -> None:
    made = f.as_text(cell("x", number), pattern)
    assert made.text == f'TEXT(x,"{pattern}")'
    assert made.value == text


MIXED = cells(3.0, "", 1.0, "text", 4.0, True)
"""A spreadsheet passes over texts and truth values in ranges: 3, 1 and 4 are left."""


@pytest.mark.parametrize(
    ("make", "name", "mixed", "none"),
    [
        (f.count, "COUNT", 3.0, 0.0),
        (f.total, "SUM", 8.0, 0.0),
        (f.least, "MIN", 1.0, 0.0),
        (f.greatest, "MAX", 4.0, 0.0),
    ],
)
def test_texts_of_a_range_are_no_numbers(
    make: Callable[[Range], Formula], name: str, mixed: float, none: float
) -> None:
    assert make(MIXED).text == f"{name}(S!$A$1:$A$9)"
    assert make(MIXED).value == mixed
    assert make(cells("", "")).value == none


@pytest.mark.parametrize(
    ("limit", "n"), [(0.5, 0), (1, 1), (2, 4), (2.5, 4), (5, 5), (100, 6), (-1, 0)]
)
def test_counting_up_to_a_limit_needs_no_rising_numbers(limit: float, n: int) -> None:
    """They rest at 2 and dip from 5 to 2: MATCH would find either."""
    made = f.count_up_to(cells(1.0, 2.0, 2.0, 5.0, 2.0, 9.0, ""), limit)
    assert made.text == f"SUMPRODUCT(--(S!$A$1:$A$9<={f.constant(limit).text}))"
    assert made.value == n


def test_places_count_from_one() -> None:
    values = cells(10.0, 20.0, 40.0)
    assert f.at(values, 1).text == "INDEX(S!$A$1:$A$9,1)"
    assert [f.at(values, i).value for i in (1, 2, 3)] == [10.0, 20.0, 40.0]
    assert f.at(values, cell("p", 2.0)).text == "INDEX(S!$A$1:$A$9,p)"


@pytest.mark.parametrize(
    ("place", "weight", "value"), [(1, 0.0, 10.0), (1, 0.25, 12.5), (2, 0.5, 30.0), (2, 1.0, 40.0),
                                   (2, 1.5, 50.0)]
)  # fmt: skip
def test_between_two_places_runs_a_straight_line(place: int, weight: float, value: float) -> None:
    made = f.between(cells(10.0, 20.0, 40.0), cell("p", float(place)), cell("w", weight))
    assert made.value == pytest.approx(value, rel=1e-14)
    assert made.text == (
        "((INDEX(S!$A$1:$A$9,p)*(1-w))+(INDEX(S!$A$1:$A$9,(p+1))*w))"
    )  # fmt: skip


def test_a_text_where_a_number_is_needed_is_an_error() -> None:
    with pytest.raises(ValueError, match="w is the text 'on', where a number is needed"):
        _ = (WORD + 1).value
    with pytest.raises(ZeroDivisionError):
        _ = (X / cell("z", 0.0)).value


def test_a_value_is_computed_when_asked_for_and_once() -> None:
    asked: list[int] = []

    def compute() -> Value:
        asked.append(1)
        return 3.0

    made = Formula("x", compute)
    twice = made + made
    assert asked == []
    assert (twice.value, twice.value, asked) == (6.0, 6.0, [1])
