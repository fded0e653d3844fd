from __future__ import annotations

import pytest

from specsim.export.tables import column, count, described, exact, figure, grouped, table
from specsim.export.terminal import Screen
from specsim.schema.results import BaselinePoint


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0123456, "0.0123"), (0.5, "0.500"), (9.999, "10.0"), (99.96, "100"), (1234.5, "1,230"),
        (-3.14159, "-3.14"), (0.0, "0"), (None, "–"), (float("nan"), "–"), (float("inf"), "–"),
    ],
)  # fmt: skip
def test_figures_have_three_digits(value: float | None, shown: str) -> None:
    assert figure(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(1, "1"), (1024, "1,024"), (0.25, "0.25"), (91.87, "92"), (None, "–")]
)
def test_counts_have_two_digits_unless_whole(value: float | None, shown: str) -> None:
    assert count(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(1.0, "1"), (1024, "1,024"), (5.85, "5.85"), (0.125, "0.125")]
)
def test_loads_stay_as_they_were_given(value: float, shown: str) -> None:
    assert exact(value) == shown


def test_groups_have_their_names_above_them() -> None:
    made = grouped(Screen(), ["  a", "  b", "  c", "rest"], ["one", "one", "two"])
    assert made == ["  one", "  a", "  b", "  two", "  c", "rest"]


def test_units_come_from_the_record() -> None:
    assert described(BaselinePoint, "tpot_ms") == ("time per output token", "ms")
    with pytest.raises(KeyError):
        described(BaselinePoint, "tpot")


def test_what_is_too_wide_goes_into_a_further_table_with_the_key() -> None:
    rows = [1, 2]
    key = column("load", ("",), rows, str)
    wide = [column(f"column {i} " + "x" * 20, ("",), rows, str) for i in range(3)]
    narrow = table(Screen(width=80), key, wide)
    assert sum("load" in line for line in narrow) == 2
    assert max(map(len, narrow)) <= 80
    assert sum("load" in line for line in table(Screen(width=120), key, wide)) == 1
