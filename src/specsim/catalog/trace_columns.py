"""The columns of a trace, from text or numbers to arrays, a chunk of rows at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.errors import InputError

MAX_TOKENS = 10_000_000
"""No context window is as long; more is a wrong column."""
_CHUNK = 65536
_SINCE_1970 = (
    (1e17, 1e-9, "nanoseconds"),
    (1e14, 1e-6, "microseconds"),
    (1e11, 1e-3, "milliseconds"),
)
"""Times of this size cannot be seconds (the year 5138): smallest value, unit in seconds, name."""
_ISO = re.compile(
    r"\s*((?:19|20)\d\d-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)\d*)?"
    r"\s*(Z|UTC|[+-]\d\d:?\d\d)?\s*",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")


class Columns:
    """Times and lengths of requests in the order of the file.

    Parameters
    ----------
    names : sequence of str
        What the file calls the time and both lengths.
    time_unit_s : float, optional
        Unit of times that are numbers; None: seconds, unless they are too large for that.
    place : str
        What the numbers in front of the rows count.
    """

    def __init__(
        self, path: Path, names: Sequence[str], *, time_unit_s: float | None, place: str = "line"
    ) -> None:
        self.path = path
        self.names = names
        self.notes: list[str] = []
        self._unit_s = time_unit_s
        self._place = place
        self._is_date: bool | None = None
        self._has_zone: bool | None = None
        self._parts: tuple[list[Any], list[Any], list[Any]] = ([], [], [])

    def extend(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows of a line number, a time, a prompt's length and an answer's."""
        rows = iter(rows)
        while chunk := list(islice(rows, _CHUNK)):
            lines, times, inputs, outputs = zip(*chunk, strict=True)
            self._parts[0].append(self._times(lines, times))
            self._parts[1].append(self._lengths(lines, inputs, self.names[1]))
            self._parts[2].append(self._lengths(lines, outputs, self.names[2]))

    def arrays(
        self,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return seconds (after some moment) and both lengths."""
        if not self._parts[0]:
            return np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        times, inputs, outputs = (np.concatenate(part) for part in self._parts)
        if self._is_date:
            # Nanoseconds since 1970 do not fit into a float: subtract first.
            return (times - times.min()) / 1e9, inputs, outputs
        return (times - times.min()) * self._numbers_unit_s(times), inputs, outputs

    def _numbers_unit_s(self, times: npt.NDArray[np.float64]) -> float:
        if self._unit_s is not None:
            return self._unit_s
        for least, unit_s, name in _SINCE_1970:
            if times.min() > least:
                self.notes.append(f"{self.names[0]}: read as {name} since 1970")
                return unit_s
        return 1.0

    # Times

    def _times(self, lines: Sequence[int], values: Sequence[Any]) -> npt.NDArray[Any]:
        if self._is_date is None:
            self._is_date = isinstance(values[0], str) and _ISO.fullmatch(values[0]) is not None
        return self._dates(lines, values) if self._is_date else self._seconds(lines, values)

    def _seconds(self, lines: Sequence[int], values: Sequence[Any]) -> npt.NDArray[np.float64]:
        try:
            if bool in set(map(type, values)):
                raise TypeError
            times = np.array(list(map(float, values)))
        except (ValueError, TypeError, OverflowError):
            times = np.array([_number(value) for value in values])
        bad = np.flatnonzero(~np.isfinite(times))
        if bad.size:
            raise self._wrong(
                lines[bad[0]], self.names[0], values[bad[0]],
                "seconds, or a time such as 2023-11-16 18:15:46.68"
                + ("; the first row has seconds" if self._parts[0] or bad[0] else ""),
            )  # fmt: skip
        return times

    def _dates(self, lines: Sequence[int], values: Sequence[Any]) -> npt.NDArray[np.int64]:
        """Return nanoseconds since 1970, in UTC where a zone is given."""
        texts: list[str] = []
        zones: list[str | None] = []
        for line, value in zip(lines, values, strict=True):
            match = _ISO.fullmatch(value) if isinstance(value, str) else None
            if match is None:
                raise self._not_a_date(line, value)
            day, time, zone = match.groups()
            texts.append(f"{day}T{time}" if time else day)
            zones.append(zone)
        try:
            times = self._since_1970_ns(texts)
        except ValueError:
            # The month is 13, say: find the line.
            for line, value, text in zip(lines, values, texts, strict=True):
                try:
                    self._since_1970_ns([text])
                except ValueError as error:
                    raise self._not_a_date(line, value) from error
            raise
        return times - self._offsets_ns(lines, values, zones)

    def _since_1970_ns(self, texts: list[str]) -> npt.NDArray[np.int64]:
        if any("," in text for text in texts):
            texts = [text.replace(",", ".") for text in texts]
        return np.array(texts, dtype="datetime64[ns]").astype(np.int64)

    def _offsets_ns(
        self, lines: Sequence[int], values: Sequence[Any], zones: list[str | None]
    ) -> npt.NDArray[np.int64]:
        if self._has_zone is None:
            self._has_zone = zones[0] is not None
        known = {zone: _offset_ns(zone) for zone in set(zones)}
        if any((zone is not None) != self._has_zone for zone in known):
            at = next(i for i, zone in enumerate(zones) if (zone is not None) != self._has_zone)
            expected = f"one {'with' if self._has_zone else 'without'} a time zone, as the first"
            raise self._wrong(lines[at], self.names[0], values[at], expected)
        return np.array([known[zone] for zone in zones], dtype=np.int64)

    def _not_a_date(self, line: int, value: Any) -> InputError:
        return self._wrong(line, self.names[0], value, "a time such as 2023-11-16 18:15:46.68")

    # Lengths

    def _lengths(
        self, lines: Sequence[int], values: Sequence[Any], name: str
    ) -> npt.NDArray[np.int64]:
        try:
            if not set(map(type, values)) <= {int, str}:
                raise TypeError
            lengths = np.array(list(map(int, values)), dtype=np.int64)
        except (ValueError, TypeError, OverflowError):
            numbers = [_number(value) for value in values]
            lengths = np.array(
                [
                    int(x) if math.isfinite(x) and x == int(x) and abs(x) < 1e18 else -1
                    for x in numbers
                ],
                dtype=np.int64,
            )
        bad = np.flatnonzero((lengths < 0) | (lengths > MAX_TOKENS))
        if bad.size:
            expected = f"a whole number of tokens from 0 to {MAX_TOKENS:,}"
            raise self._wrong(lines[bad[0]], name, values[bad[0]], expected)
        return lengths

    def _wrong(self, line: int, name: str, value: Any, expected: str) -> InputError:
        shown = "nothing" if value in ("", None) else repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return InputError(
            f"{self.path}: {self._place} {line}: {name}: got {shown}, expected {expected}"
        )


def _number(value: Any) -> float:
    """Return a number, or NaN of what is none; `1,234` is one."""
    if isinstance(value, bool):
        return math.nan
    if isinstance(value, str) and _THOUSANDS.fullmatch(value.strip()):
        value = value.replace(",", "")
    try:
        return float(value)
    except (ValueError, TypeError, OverflowError):
        return math.nan


def _offset_ns(zone: str | None) -> int:
    """Return how far a zone such as +02:00 is ahead of UTC."""
    if zone is None or zone.upper() in ("Z", "UTC"):
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (-minutes if zone[0] == "-" else minutes) * 60 * 10**9
