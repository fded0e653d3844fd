"""Spreadsheet formulas, each made together with its value.

An expression knows its text and how to compute itself, so a cell's stored value is never written
by hand. Only functions are used that Excel 2007 and LibreOffice have. Values are computed when they
are asked for, and of an `if_` only the branch that is taken, as a spreadsheet does.

Examples
--------
>>> price = Formula("Inputs!$C$5", lambda: 3.5)
>>> month = price * 729.6
>>> month.text, month.value
('(Inputs!$C$5*729.6)', 2553.6)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Value = float | str | bool
Operand: TypeAlias = "Formula | float | str"


class Formula:
    """An expression: its text without the equals sign, and its value."""

    __slots__ = ("_compute", "_value", "text")

    def __init__(self, text: str, compute: Callable[[], Value]) -> None:
        self.text = text
        self._compute = compute
        self._value: Value | None = None

    @property
    def value(self) -> Value:
        """The value, as a spreadsheet computes it: once, when it is asked for."""
        if self._value is None:
            self._value = self._compute()
        return self._value

    @property
    def number(self) -> float:
        """The value as a number; a text is an error, as in a spreadsheet."""
        value = self.value
        if isinstance(value, str):
            raise ValueError(f"{self.text} is the text {value!r}, where a number is needed")
        return float(value)

    def __add__(self, other: Operand) -> Formula:
        return _binary("+", self, other, lambda a, b: a + b)

    def __radd__(self, other: Operand) -> Formula:
        return constant(other) + self

    def __sub__(self, other: Operand) -> Formula:
        return _binary("-", self, other, lambda a, b: a - b)

    def __rsub__(self, other: Operand) -> Formula:
        return constant(other) - self

    def __mul__(self, other: Operand) -> Formula:
        return _binary("*", self, other, lambda a, b: a * b)

    def __rmul__(self, other: Operand) -> Formula:
        return constant(other) * self

    def __truediv__(self, other: Operand) -> Formula:
        return _binary("/", self, other, lambda a, b: a / b)

    def __rtruediv__(self, other: Operand) -> Formula:
        return constant(other) / self

    def __pow__(self, other: Operand) -> Formula:
        return _binary("^", self, other, lambda a, b: a**b)

    def __le__(self, other: Operand) -> Formula:
        return _binary("<=", self, other, lambda a, b: a <= b)

    def __lt__(self, other: Operand) -> Formula:
        return _binary("<", self, other, lambda a, b: a < b)

    def __ge__(self, other: Operand) -> Formula:
        return _binary(">=", self, other, lambda a, b: a >= b)

    def __gt__(self, other: Operand) -> Formula:
        return _binary(">", self, other, lambda a, b: a > b)

    def equals(self, other: Operand) -> Formula:
        """Compare for equality, texts too."""
        b = constant(other)
        return Formula(f"({self.text}={b.text})", lambda: self.value == b.value)

    def is_number(self) -> Formula:
        """Return whether the cell holds a number, and no text or nothing."""
        return Formula(
            f"ISNUMBER({self.text})", lambda: not isinstance(self.value, str | bool)
        )  # fmt: skip

    def is_blank(self) -> Formula:
        """Return whether the cell is empty or holds an empty text."""
        return self.equals("")


@dataclass(frozen=True)
class Range:
    """Neighbouring cells."""

    text: str
    cells: tuple[Formula, ...]

    @property
    def numbers(self) -> list[float]:
        """The numbers among the cells; texts are passed over, as spreadsheets do in ranges."""
        values = [cell.value for cell in self.cells]
        return [float(v) for v in values if not isinstance(v, str | bool)]


def constant(value: Operand) -> Formula:
    """Return a number or a text as an expression; an expression as it is."""
    if isinstance(value, Formula):
        return value
    if isinstance(value, str):
        quoted = value.replace('"', '""')
        return Formula(f'"{quoted}"', lambda: value)
    number = float(value)
    text = f"{number:.0f}" if number == round(number) and abs(number) < 1e15 else f"{number!r}"
    return Formula(text.upper(), lambda: number)


def _binary(
    sign: str, a: Formula, other: Operand, compute: Callable[[float, float], float | bool]
) -> Formula:
    b = constant(other)
    return Formula(f"({a.text}{sign}{b.text})", lambda: compute(a.number, b.number))


def if_(condition: Formula, yes: Operand, no: Operand) -> Formula:
    """Choose by a condition."""
    a, b = constant(yes), constant(no)
    return Formula(
        f"IF({condition.text},{a.text},{b.text})", lambda: a.value if condition.value else b.value
    )


def both(*conditions: Formula) -> Formula:
    """Return whether all hold."""
    return Formula(
        f"AND({_joined(conditions)})", lambda: all(bool(c.value) for c in conditions)
    )  # fmt: skip


def either(*conditions: Formula) -> Formula:
    """Return whether any holds."""
    return Formula(f"OR({_joined(conditions)})", lambda: any(bool(c.value) for c in conditions))


def not_(condition: Formula) -> Formula:
    """Return whether a condition does not hold."""
    return Formula(f"NOT({condition.text})", lambda: not condition.value)


def smaller(*values: Operand) -> Formula:
    """Return the least of some numbers."""
    of = [constant(v) for v in values]
    return Formula(f"MIN({_joined(of)})", lambda: min(v.number for v in of))


def larger(*values: Operand) -> Formula:
    """Return the greatest of some numbers."""
    of = [constant(v) for v in values]
    return Formula(f"MAX({_joined(of)})", lambda: max(v.number for v in of))


def round_up(value: Formula) -> Formula:
    """Round up to a whole number (of what is not negative)."""
    return Formula(f"ROUNDUP({value.text},0)", lambda: float(math.ceil(value.number)))


def round_down(value: Formula) -> Formula:
    """Round down to a whole number."""
    return Formula(f"INT({value.text})", lambda: float(math.floor(value.number)))


def joined(*parts: Operand) -> Formula:
    """Join texts."""
    of = [constant(part) for part in parts]
    return Formula("&".join(p.text for p in of), lambda: "".join(str(p.value) for p in of))


def as_text(value: Formula, pattern: str) -> Formula:
    """Write a number as text; patterns are `0`, `0.0` and `0.00`."""
    digits = len(pattern.partition(".")[2])

    def compute() -> str:
        # Half away from zero, as spreadsheets round.
        scaled = math.floor(abs(value.number) * 10**digits + 0.5) / 10**digits
        return f"{math.copysign(scaled, value.number) if scaled else 0.0:.{digits}f}"

    return Formula(f'TEXT({value.text},"{pattern}")', compute)


def count(values: Range) -> Formula:
    """Return how many numbers there are."""
    return Formula(f"COUNT({values.text})", lambda: float(len(values.numbers)))


def total(values: Range) -> Formula:
    """Return the sum of the numbers."""
    return Formula(f"SUM({values.text})", lambda: math.fsum(values.numbers))


def least(values: Range) -> Formula:
    """Return the smallest number; 0 if there is none, as spreadsheets do."""
    return Formula(f"MIN({values.text})", lambda: min(values.numbers, default=0.0))


def greatest(values: Range) -> Formula:
    """Return the largest number; 0 if there is none."""
    return Formula(f"MAX({values.text})", lambda: max(values.numbers, default=0.0))


def count_up_to(values: Range, limit: Operand) -> Formula:
    """Return how many of the numbers are at most `limit`.

    Notes
    -----
    MATCH(..., 1) would do for values that rise strictly. These may rest or dip, where the two
    programs search differently; a count is a count in both.
    """
    at_most = constant(limit)
    return Formula(
        f"SUMPRODUCT(--({values.text}<={at_most.text}))",
        lambda: float(sum(v <= at_most.number for v in values.numbers)),
    )


def at(values: Range, place: Operand) -> Formula:
    """Return the cell at a place, counted from 1."""
    i = constant(place)
    return Formula(
        f"INDEX({values.text},{i.text})", lambda: values.cells[int(i.number) - 1].value
    )  # fmt: skip


def between(values: Range, place: Formula, weight: Formula) -> Formula:
    """Read between the cell at `place` and the next, `weight` of the way."""
    low, high = at(values, place), at(values, place + 1)
    return low * (1.0 - weight) + high * weight


def _joined(values: Sequence[Formula]) -> str:
    return ",".join(v.text for v in values)
