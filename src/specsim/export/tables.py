"""Results as text: figures with no more digits than they are worth, and tables that fit a width."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specsim.export.terminal import Role, Screen

MISSING = "–"
_GAP = 2


def figure(value: float | None, digits: int = 3) -> str:
    """Write a number with `digits` significant digits, thousands apart and without an exponent.

    >>> [figure(x) for x in (0.04127, 1.0, 12345.6, None)]
    ['0.0413', '1.00', '12,300', '–']
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)
    return f"{rounded:,.{decimals}f}"


def exact(value: float) -> str:
    """Write a number that a person gave, with every digit of it.

    >>> exact(1024.0), exact(5.85), exact(0.5)
    ('1,024', '5.85', '0.5')
    """
    return f"{value:,.10g}"


def clipped(text: str, width: int) -> str:
    """Cut a text that is longer than `width`.

    >>> clipped("repeated prefixes", 9)
    'repeated…'
    """
    return text if len(text) <= width else text[: width - 1] + "…"


def count(value: float | None) -> str:
    """Write a number of tokens or a crossing: whole as it is, else with two digits.

    >>> count(256.0), count(0.5), count(96.3), count(1234.5), count(None)
    ('256', '0.5', '96', '1,200', '–')
    """
    if value is not None and value == round(value):
        return f"{value:,.0f}"
    return figure(value, 2) if value is None or abs(value) >= 1 else f"{value:.2g}"


def described(record: type[Any], name: str) -> tuple[str, str]:
    """Return the description and the unit that a result record states for one of its fields."""
    for field in dataclasses.fields(record):
        if field.name == name:
            return field.metadata["description"], field.metadata["unit"]
    raise KeyError(name)


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    role: Role = "plain"


@dataclass(frozen=True)
class Column:
    """Neighbouring sub-columns under one title, such as `off` and `on` under `TPOT ms`."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    left: bool = False

    def widths(self) -> list[int]:
        """Return the width of each sub-column; the last takes up what the title needs."""
        widths = [
            max([len(head), *(len(row[i].text) for row in self.rows)])
            for i, head in enumerate(self.heads)
        ]
        widths[0] += max(0, len(self.title) - sum(widths) - _GAP * (len(widths) - 1))
        return widths

    @property
    def width(self) -> int:
        """Return the width of the whole column."""
        widths = self.widths()
        return sum(widths) + _GAP * (len(widths) - 1)


def column(
    title: str, heads: Sequence[str], records: Sequence[Any], *cells: Callable[[Any], Cell | str],
    left: bool = False,
) -> Column:  # fmt: skip
    """Build a column from records and one function per sub-column."""

    def entry(record: Any, make: Callable[[Any], Cell | str]) -> Cell:
        made = make(record)
        return made if isinstance(made, Cell) else Cell(made)

    rows = [tuple(entry(record, make) for make in cells) for record in records]
    return Column(title, tuple(heads), rows, left)


def table(screen: Screen, key: Column, columns: Sequence[Column]) -> list[str]:
    """Lay columns beside `key`; what is too wide goes into a further table with `key` repeated."""
    lines: list[str] = []
    shown: list[Column] = [key]
    for following in [*columns, None]:
        used = sum(c.width for c in shown) + (_GAP + 1) * (len(shown) - 1)
        if following is not None and (
            len(shown) == 1 or used + _GAP + 1 + following.width <= screen.width - 2
        ):
            shown.append(following)
            continue
        lines += ([""] if lines else []) + _block(screen, shown)
        shown = [key] + ([following] if following is not None else [])
    return lines


def grouped(screen: Screen, entries: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Put the name of its group above each run of lines of one group.

    Lines beyond the groups, as a table that did not fit has them, follow as they are.
    """
    lines: list[str] = []
    for i, (entry, group) in enumerate(zip(entries, groups, strict=False)):
        if i == 0 or group != groups[i - 1]:
            lines.append(f"  {screen.paint(group, 'strong')}")
        lines.append(entry)
    return [*lines, *entries[len(groups) :]]


def _block(screen: Screen, columns: Sequence[Column]) -> list[str]:
    gap = " " * (_GAP + 1)
    titles = gap.join(
        f"{c.title:<{c.width}}" if c.left else f"{c.title:>{c.width}}"
        if len(c.heads) == 1
        else f" {c.title} ".center(c.width, "─") if len(c.title) + 4 <= c.width
        else f"{c.title:^{c.width}}"
        for c in columns
    )  # fmt: skip
    lines = [screen.paint(titles.rstrip(), "strong")]
    if any(head for c in columns for head in c.heads):
        heads = gap.join(
            _aligned(screen, c, [Cell(head, "faint") for head in c.heads]) for c in columns
        )
        lines.append(heads.rstrip())
    for row in range(len(columns[0].rows)):
        lines.append(gap.join(_aligned(screen, c, c.rows[row]) for c in columns).rstrip())
    return ["  " + line for line in lines]


def _aligned(screen: Screen, column: Column, cells: Sequence[Cell]) -> str:
    side = "<" if column.left else ">"
    return (" " * _GAP).join(
        screen.paint(f"{cell.text:{side}{width}}", cell.role)
        for cell, width in zip(cells, column.widths(), strict=True)
    )
