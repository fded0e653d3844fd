"""CSV as specsim reads it: by column name, row by row, with line numbers in what is refused.

Traces of arrivals have millions of rows, so nothing is kept of what is not asked for.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from specsim.errors import InputError, nearest

MAX_BYTES = 2 * 2**30
"""A week of a large service is below 1 GiB; what is read is held in memory, a tenth of this."""
HEAD_BYTES = 64 * 1024
MAX_FIELD_CHARS = 16 * 2**20
"""A prompt of a long context; what the csv module allows by itself is 128 Ki."""
_DELIMITERS = ",;\t"
_MAGIC = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}


def head_of(path: Path, *, expected: str) -> str:
    """Return the first 64 KiB of a file of text.

    Raises
    ------
    InputError
        It is a folder, no plain file, larger than 2 GiB, compressed, no text or empty.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a folder; give {expected}")
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is a pipe or a device; write it to a file first")
        size = path.stat().st_size
        with path.open("rb") as stream:
            raw = stream.read(HEAD_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; give {expected}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"{str(path)!r}: is no path; give {expected}") from error
    if size > MAX_BYTES:
        raise InputError(
            f"{path}: {size / 2**30:.1f} GiB is too much (at most {MAX_BYTES / 2**30:.0f} GiB); "
            f"cut it with `head -n 10000000`"
        )
    for magic, name in _MAGIC.items():
        if raw.startswith(magic):
            raise InputError(f"{path}: is compressed ({name}); unpack it first")
    if b"\0" in raw:
        raise InputError(f"{path}: is not text (UTF-8); expected {expected}")
    # A multi-byte character may be cut at the end.
    text = raw.decode("utf-8-sig", errors="ignore")
    if not text.strip():
        raise InputError(f"{path}: is empty; expected {expected}")
    return text


@dataclass
class CsvTable:
    """An open CSV file, its header read.

    Attributes
    ----------
    header : list of str
        Names of the columns as they are written.
    """

    path: Path
    header: list[str]
    _reader: Any

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the line number and the fields of two or more columns, for each row not blank.

        Raises
        ------
        InputError
            A column that the header lacks, a row that is too short, broken quotes.
        """
        at = [self._index(name) for name in columns]
        pick, last, reader = itemgetter(*at), max(at), self._reader
        try:
            for row in reader:
                if len(row) > last:
                    fields = pick(row)
                    # A spreadsheet ends in rows of nothing but commas.
                    if fields[0] or any(field.strip() for field in row):
                        yield (reader.line_num, *fields)
                elif any(field.strip() for field in row):
                    raise InputError(
                        f"{self.path}: line {reader.line_num}: has {len(row)} of "
                        f"{len(self.header)} fields; it may be cut off: remove it"
                    )
        except csv.Error as error:
            raise InputError(f"{self.path}: line {reader.line_num}: is broken: {error}") from error

    def _index(self, name: str) -> int:
        if name not in self.header:
            close = nearest(name, self.header) or self.header[:8]
            raise InputError(
                f"{self.path}: has no column {name}; nearest: {', '.join(close)[:160]} "
                "(the first line names the columns)"
            )
        return self.header.index(name)


@contextmanager
def open_csv(path: Path, *, expected: str) -> Iterator[CsvTable]:
    """Open a CSV file (comma, semicolon or tab) and read its header."""
    first = head_of(path, expected=expected).lstrip().partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    # A stray byte in a column that nobody asks for is no reason to refuse a file.
    with (
        path.open(encoding="utf-8-sig", errors="replace", newline="") as stream,
        _long_fields(),
    ):
        reader = csv.reader(stream, delimiter=delimiter, strict=True, skipinitialspace=True)
        try:
            header = next((row for row in reader if any(map(str.strip, row))), [])
        except csv.Error as error:
            raise InputError(f"{path}: line {reader.line_num}: is broken: {error}") from error
        yield CsvTable(path, [name.strip() for name in header], reader)


@contextmanager
def _long_fields() -> Iterator[None]:
    """Allow long fields for a while: the limit is the whole process's."""
    before = csv.field_size_limit()
    csv.field_size_limit(max(before, MAX_FIELD_CHARS))
    try:
        yield
    finally:
        csv.field_size_limit(before)
