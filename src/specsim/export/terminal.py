"""Drawing in a terminal: colour, a line plot with its band, and stacked bars.

Everything is drawn in Unicode; `Screen.fit` turns it into ASCII for a terminal that has no more.
A drawing is a list of lines without trailing blanks.
"""

from __future__ import annotations

import bisect
import codecs
import itertools
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TextIO

Role = Literal["good", "bad", "neutral", "strong", "faint", "plain"]

_SGR: dict[Role, str] = {
    "good": "32",
    "bad": "31",
    "neutral": "33",
    "strong": "1",
    "faint": "2",
    "plain": "",
}
_WIDTH_MIN, _WIDTH_MAX, _WIDTH_PIPED = 80, 120, 100
_BRAILLE = 0x2800
# Dot bits of a Braille cell by column, top to bottom (Unicode 15, block 2800).
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_ROW_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
FILLS = "█▓▒░╱·"
"""What the parts of a stacked bar are drawn with, in order."""

_ASCII = str.maketrans(
    {
        "█": "#", "▓": "=", "▒": "+", "░": ":", "╱": "/", "·": "-", "●": "o", "✕": "X",
        "╌": "-", "─": "-", "│": "|", "┤": "|", "├": "|", "┴": "+", "└": "+", "┬": "+",
        "×": "x", "–": "-", "—": "-", "→": "->", "≤": "<=", "≥": ">=", "µ": "u", "…": "...",
        "◄": "<", "►": ">",
    }
    | {chr(_BRAILLE + bits): "*" for bits in range(1, 256)}
)  # fmt: skip


@dataclass(frozen=True)
class Screen:
    """What the output can show."""

    width: int = _WIDTH_PIPED
    unicode: bool = True
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Screen:
        """Describe the terminal, file or pipe behind `stream`."""
        tty = stream.isatty()
        columns = shutil.get_terminal_size().columns if tty else _WIDTH_PIPED
        return cls(
            width=min(max(columns, _WIDTH_MIN), _WIDTH_MAX),
            unicode=is_unicode(stream),
            colour=tty and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb",
        )

    def paint(self, text: str, role: Role) -> str:
        """Colour `text`, where there is colour."""
        if not (self.colour and _SGR[role] and text):
            return text
        return f"\x1b[{_SGR[role]}m{text}\x1b[0m"

    def fit(self, text: str) -> str:
        """Return `text` with characters that the output has."""
        if self.unicode:
            return text
        return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def is_unicode(stream: TextIO) -> bool:
    """Whether `stream` writes UTF-8."""
    try:
        return codecs.lookup(stream.encoding or "ascii").name.startswith("utf")
    except LookupError:
        return False


@dataclass(frozen=True)
class Curve:
    """One line of a plot, with its band, its name and whether its points are marked."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    name: str = ""
    dots: bool = False


@dataclass(frozen=True)
class Plot:
    """Curves over an axis, and a level that they are read against."""

    curves: Sequence[Curve]
    x_title: str
    log_x: bool = False
    x_ticks: Sequence[float] = ()
    level: float = 1.0
    mark: tuple[float, str] | None = None
    mark_span: tuple[float, float] | None = None
    max_rows: int = 18
    span: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        every = [x for curve in self.curves for x in curve.x]
        object.__setattr__(self, "span", (min(every), max(every)))

    def draw(self, screen: Screen) -> list[str]:
        """Draw the plot in lines of at most the width of the screen."""
        margin = 8
        names = max((len(curve.name) for curve in self.curves), default=0)
        columns = max(20, screen.width - margin - names - 4)
        step, top, rows = self._rows()
        cells: list[list[tuple[str, Role]]] = [[(" ", "plain")] * columns for _ in range(rows)]
        level_row = round((top - self.level) / step)
        for curve in self.curves:
            self._shade(cells, curve, top, step)
        cells[level_row] = [("╌", "plain") if c == " " else (c, r) for c, r in cells[level_row]]
        for curve in self.curves:
            self._trace(cells, curve, top, step)
        lines = []
        every = 1 if rows <= 7 else 2
        tags = self._tags(top, step, rows)
        for row, line in enumerate(cells):
            value = top - row * step
            labelled = (row - level_row) % every == 0
            label = f"{value:.{_decimals(step * every)}f}×" if labelled else ""
            edge = "┤" if labelled else "│"
            drawn = "".join(screen.paint(text, role) for text, role in _runs(line))
            lines.append(f"{label:>{margin - 1}}{edge}{drawn} {tags.get(row, '')}".rstrip())
        return lines + self._axis(columns, margin)

    def _rows(self) -> tuple[float, float, int]:
        """Return the value of a row, that of the top row, and how many rows there are."""
        values = [self.level]
        for curve in self.curves:
            values += [*curve.y, *curve.low, *curve.high]
        for step in _row_steps():
            # A row stands for level + n x step, so the level always has a row of its own.
            up = math.ceil((max(values) - self.level) / step - 1e-9)
            down = math.ceil((self.level - min(values)) / step - 1e-9)
            if up + down + 1 <= self.max_rows:
                break
        return step, self.level + up * step, up + down + 1

    def _position(self, x: float, columns: int) -> float:
        first, last = self.span
        if first == last:
            return (columns - 1) / 2
        if self.log_x:
            return math.log(x / first) / math.log(last / first) * (columns - 1)
        return (x - first) / (last - first) * (columns - 1)

    def _shade(
        self, cells: list[list[tuple[str, Role]]], curve: Curve, top: float, step: float
    ) -> None:
        if not curve.low:
            return
        columns = len(cells[0])
        places = [self._position(x, columns) for x in curve.x]
        for column in range(columns):
            low, high = _at(places, curve.low, column), _at(places, curve.high, column)
            if low is None or high is None:
                continue
            for row in range(len(cells)):
                value = top - row * step
                if min(high, value + step / 2) - max(low, value - step / 2) >= step / 2:
                    cells[row][column] = ("░", "faint")

    def _trace(
        self, cells: list[list[tuple[str, Role]]], curve: Curve, top: float, step: float
    ) -> None:
        rows, columns = len(cells), len(cells[0])
        places = [self._position(x, columns) for x in curve.x]
        bits = [[0] * columns for _ in range(rows)]
        before: int | None = None
        for dot in range(columns * 2):
            value = _at(places, curve.y, (dot - 0.5) / 2)
            if value is None:
                before = None
                continue
            # Four dots to a row, a row's value at its middle.
            height = min(max(round((top - value) / step * 4 + 1.5), 0), rows * 4 - 1)
            start = height if before is None else before + (height > before) - (height < before)
            for dot_row in range(min(start, height), max(start, height) + 1):
                bits[dot_row // 4][dot // 2] |= _DOTS[dot % 2][dot_row % 4]
            before = height
        for row, column in itertools.product(range(rows), range(columns)):
            if bits[row][column]:
                value = top - row * step
                cells[row][column] = (chr(_BRAILLE + bits[row][column]), self._role(value, step))
        if curve.dots:
            for place, y in zip(places, curve.y, strict=True):
                row = min(max(round((top - y) / step), 0), rows - 1)
                cells[row][round(place)] = ("●", self._role(y, step))

    def _role(self, value: float, step: float) -> Role:
        if abs(value - self.level) < step / 2:
            return "neutral"
        return "good" if value > self.level else "bad"

    def _tags(self, top: float, step: float, rows: int) -> dict[int, str]:
        """Place each curve's name at its right end, one name to a row."""
        tags: dict[int, str] = {}
        named = [curve for curve in self.curves if curve.name]
        for curve in sorted(named, key=lambda curve: -curve.y[-1]):
            row = min(max(round((top - curve.y[-1]) / step), 0), rows - 1)
            free = [r for r in range(rows) if r not in tags and r >= max(tags, default=-1)]
            row = min(free or range(rows), key=lambda r: abs(r - row))
            tags[row] = curve.name
        return tags

    def _axis(self, columns: int, margin: int) -> list[str]:
        ruler, labels = ["─"] * columns, [" "] * (columns + margin)
        end = -2
        for tick in self.x_ticks:
            place = round(self._position(tick, columns))
            if not 0 <= place < columns:
                continue  # beyond what the curves reach
            text = f"{tick:,.10g}"
            start = min(max(place - len(text) // 2, 0), columns + margin - len(text))
            ruler[place] = "┴"
            if start > end + 1:
                labels[start : start + len(text)] = text
                end = start + len(text)
        pad = " " * (margin - 1)
        lines = [f"{pad}└{''.join(ruler)}", f"{pad} {''.join(labels).rstrip()}"]
        if self.mark is not None:
            lines.append(f"{pad} {self._mark_line(columns)}")
        lines.append(f"{pad} {self.x_title:^{columns}}".rstrip())
        return lines

    def _mark_line(self, columns: int) -> str:
        """Draw the marked place of the axis with its interval; arrows where it goes on."""
        assert self.mark is not None
        at, text = self.mark
        line = [" "] * columns
        exact_place = self._position(at, columns)
        place = min(max(round(exact_place), 0), columns - 1)
        if self.mark_span is not None:
            exact = [self._position(x, columns) for x in self.mark_span]
            left, right = (min(max(round(p), 0), columns - 1) for p in exact)
            line[left : right + 1] = "─" * (right - left + 1)
            line[left] = "◄" if exact[0] < -0.5 else "├"
            line[right] = "►" if exact[1] > columns - 0.5 else "┤"
        outside = "◄" if exact_place < -0.5 else "►" if exact_place > columns - 0.5 else ""
        line[place] = outside or "✕"
        bar = "".join(line).rstrip()
        if len(bar) + len(text) + 1 <= columns + 4:
            return f"{bar} {text}"
        free = len(bar) - len(bar.lstrip()) - 1
        return f"{text:>{free}} {bar.lstrip()}" if len(text) <= free else f"{bar} {text}"


def _row_steps() -> Iterator[float]:
    """Yield what a row may stand for, without end."""
    yield from _ROW_STEPS
    for power in itertools.count(2):
        yield from (1.0 * 10.0**power, 2.0 * 10.0**power, 5.0 * 10.0**power)


def _at(places: Sequence[float], values: Sequence[float], x: float) -> float | None:
    """Interpolate between the known places; None outside them (half a cell of grace)."""
    if not places or x < places[0] - 0.5 or x > places[-1] + 0.5:
        return None
    after = min(max(bisect.bisect_left(places, x), 1), len(places) - 1) if len(places) > 1 else 0
    if after == 0:
        return values[0]
    left, right = places[after - 1], places[after]
    share = min(max((x - left) / (right - left), 0.0), 1.0) if right > left else 0.0
    return values[after - 1] + share * (values[after] - values[after - 1])


def _runs(cells: Sequence[tuple[str, Role]]) -> list[tuple[str, Role]]:
    """Join neighbours of one colour, so that colour codes stay few."""
    grouped = itertools.groupby(cells, key=lambda cell: cell[1])
    return [("".join(text for text, _ in run), role) for role, run in grouped]


def _decimals(step: float) -> int:
    return next(n for n in range(4) if abs(step - round(step, n)) < 1e-9)


def stacked_bar(shares: Sequence[float], *, width: int, fills: str = FILLS) -> str:
    """Draw parts of a whole as one bar of `width` cells.

    Parts fill cells in proportion by largest remainder; a part above zero has at least one cell.
    """
    total = sum(shares)
    if total <= 0:
        return ""
    exact = [share / total * width for share in shares]
    cells = [max(int(e), 1 if e > 0 else 0) for e in exact]
    while sum(cells) != width:
        step = 1 if sum(cells) < width else -1
        movable = [i for i, n in enumerate(cells) if step > 0 or n > 1]
        if not movable:
            break
        cells[max(movable, key=lambda i: step * (exact[i] - cells[i]))] += step
    return "".join(fills[i % len(fills)] * n for i, n in enumerate(cells))
