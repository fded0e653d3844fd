"""A table that people keep: CSV, TSV or XLSX with one run per row and named columns.

`columns` says what headings mean. A row with a value that cannot be read or cannot be is dropped;
the first row that is left carries the warnings about those. Columns that are not ours are kept as
metadata. Speculation is 'on' or 'off' where a column says so: an arm, or k, of which 0 is off.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast, get_args

from specsim.errors import InputError, MissingExtraError
from specsim.measure.readers.columns import LATENCIES, LOADS, NUMBERS, PACES, TEXTS, Column, column
from specsim.measure.readers.numbers import number
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import (
    ArmSource,
    Latency,
    MeasuredAcceptance,
    MeasuredArm,
    Measurement,
)

FORMAT = "table"

HEADER_WITHIN = 20
"""Rows in which the headings are looked for: some tables have a title above."""
MAX_ROWS = 100_000
_EMPTY = ("", "-", "–", "—", "n/a", "na", "nan", "null", "none")
_UNLIMITED = ("inf", "infinity", "unlimited")
_ARMS: dict[str, MeasuredArm] = {
    **dict.fromkeys(("off", "baseline", "base", "none", "no", "false", "0", "plain"), "off"),
    **dict.fromkeys(("on", "speculative", "spec", "yes", "true", "1", "speculation"), "on"),
    "unknown": "unknown",
}
_POSITIVE = (*LATENCIES, *LOADS, "output_tok_s", "duration_s", "input_tokens", "output_tokens")
_WHOLE = ("num_speculative_tokens", "tensor_parallel_size", "repeat", "completed", "failed")
_WHOLE_COUNTS = ("drafts", "draft_tokens", "accepted_tokens", "kv_tokens")
_ACCEPTANCE = tuple(f.name for f in dataclasses.fields(MeasuredAcceptance))


class _Unreadable(Exception):
    """A value that drops its row; the message names it."""


def recognises(source: Source) -> bool:
    """Whether it is a workbook, or text with headings of a load or latency and of a pace."""
    if _is_workbook(source):
        return True
    lines = source.head.splitlines()[:HEADER_WITHIN]
    if not lines or source.looks_like_json:
        return False
    try:
        return _header(_split(lines)) is not None
    except InputError:
        return False


def read(source: Source) -> list[Measurement]:
    """Read every row that can be.

    Raises
    ------
    Foreign
        No headings that are ours, a column without a unit, or no row that is left.
    MissingExtraError
        A workbook, and openpyxl is not installed.
    InputError
        A workbook that is broken.
    """
    rows: list[Measurement] = []
    dropped: list[str] = []
    tables = _sheets(source) if _is_workbook(source) else [("", _split(source.lines()))]
    found_header = False
    for title, cells in tables:
        head = list(itertools.islice(cells, HEADER_WITHIN))
        header = _header(head)
        if header is None:
            continue
        found_header = True
        at, columns = header
        for refused in (c.refused for c in columns if c.refused):
            raise Foreign(refused)
        for n, values in enumerate(itertools.chain(head[at + 1 :], cells), start=at + 2):
            if n > MAX_ROWS:
                raise Foreign(f"has more than {MAX_ROWS} rows, so it is no table of runs")
            if not any(v.strip() for v in values):
                continue
            where = f"{title} row {n}".strip()
            try:
                rows.append(_row(f"{source.name}#{where}", columns, values))
            except _Unreadable as error:
                dropped.append(f"{where} is left out: {error}")
    if not found_header:
        raise Foreign("has no headings of a load or latency and of TPOT, ITL or tokens/s")
    if not rows:
        raise Foreign(dropped[0] if dropped else "has headings and no row")
    rows[0] = dataclasses.replace(rows[0], warnings=(*rows[0].warnings, *dropped))
    return rows


def _is_workbook(source: Source) -> bool:
    if source.path.suffix.lower() not in (".xlsx", ".xlsm"):
        return False
    with source.path.open("rb") as stream:
        return stream.read(2) == b"PK"


def _split(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield rows of cells; the delimiter is the one with which headings are found."""
    rest = iter(lines)
    head = list(itertools.islice(rest, HEADER_WITHIN))
    try:
        found = (d for d in ",;\t" if _header(csv.reader(head, delimiter=d)) is not None)
        yield from csv.reader(itertools.chain(head, rest), delimiter=next(found, ","))
    except csv.Error as error:
        raise InputError(f"is broken or truncated: {error}") from error


def _sheets(source: Source) -> Iterator[tuple[str, Iterator[list[str]]]]:
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError(
            "a workbook needs openpyxl: pip install 'specsim-llm[measure]'"
        ) from error
    try:
        book = openpyxl.load_workbook(source.path, read_only=True, data_only=True)
    except Exception as error:  # openpyxl raises whatever its zip and XML readers raise
        raise InputError(f"is a broken workbook: {type(error).__name__}") from error
    try:
        for sheet in book.worksheets:
            title = sheet.title if len(book.worksheets) > 1 else ""
            cells = sheet.iter_rows(values_only=True)
            yield title, (["" if v is None else str(v) for v in row] for row in cells)
    finally:
        book.close()


def _header(rows: Iterable[Sequence[str]]) -> tuple[int, list[Column]] | None:
    for at, cells in enumerate(itertools.islice(rows, HEADER_WITHIN)):
        columns = [column(c) for c in cells]
        fields = {c.field for c in columns}
        has_load = bool(fields & {*LOADS, *LATENCIES})
        has_pace = bool(fields & set(PACES))
        if has_load and has_pace and len(fields) > 1:
            return at, columns
    return None


def _row(name: str, columns: Sequence[Column], cells: Sequence[str]) -> Measurement:
    values: dict[str, Any] = {}
    latencies: dict[str, dict[str, float]] = {}
    metadata: dict[str, str] = {}
    for at, text in zip(columns, (c.strip() for c in cells), strict=False):
        if at.field in TEXTS and text:
            values.setdefault(at.field, text)
        elif at.field in LATENCIES:
            value = _number(at, text)
            if value is not None:
                latencies.setdefault(at.field, {}).setdefault(at.statistic, value)
                if at.of_a_step:
                    values.setdefault("itl_of", "step")
        elif at.field in NUMBERS:
            value = _number(at, text)
            if value is not None:
                whole = at.field in _WHOLE or at.field in _WHOLE_COUNTS
                values.setdefault(at.field, round(value) if whole else value)
        elif text and at.heading:
            metadata[at.heading.strip()] = text
    if not any(latencies.get(f) or values.get(f) for f in PACES):
        raise _Unreadable("it has no TPOT, ITL or tokens/s")
    speculation = _speculation(values)
    # Acceptance of a run without speculation is a filler: 1 token per step, 0 accepted.
    acceptance = None if speculation["arm"] == "off" else _acceptance(values)
    warnings = (values.pop("warnings"),) if "warnings" in values else ()
    plain = {k: v for k, v in values.items() if k not in (*_ACCEPTANCE, *speculation)}
    if plain.get("itl_of") not in ("step", "token"):
        plain["itl_of"] = ""
    plain.update((f, _latency(found)) for f, found in latencies.items())
    return Measurement(
        source=name,
        format=FORMAT,
        **speculation,
        **plain,
        acceptance=acceptance,
        metadata=metadata,
        warnings=warnings,
    )


def _number(at: Column, text: str) -> float | None:
    """Return the value in the field's unit, None for an empty cell."""
    if text.lower() in _EMPTY or (at.field in LOADS and text.lower() in _UNLIMITED):
        return None
    is_percent = at.field == "draft_acceptance_rate" and text.endswith("%")
    value = number(text.removesuffix("%") if is_percent else text)
    if value is None:
        raise _Unreadable(f"column {at.heading!r} holds {text[:40]!r}, which is no number")
    value = value * (0.01 if is_percent else at.scale) + at.offset
    if not _can_be(at, value):
        raise _Unreadable(f"column {at.heading!r} holds {text[:40]}, which cannot be")
    return value


def _can_be(at: Column, value: float) -> bool:
    if at.field == "draft_acceptance_rate":
        return 0 <= value <= 1
    if at.field == "acceptance_length":
        return value >= 1
    if at.field in _WHOLE and not value.is_integer():
        return False
    if at.field in _POSITIVE and at.statistic != "std":
        return value > 0
    return value >= 0 and math.isfinite(value)


def _latency(found: Mapping[str, float]) -> Latency:
    return Latency(**{f.name: found.get(f.name) for f in dataclasses.fields(Latency)})


def _acceptance(values: Mapping[str, Any]) -> MeasuredAcceptance | None:
    found = {name: values.get(name) for name in _ACCEPTANCE}
    if isinstance(found["per_position"], str):
        parts = [
            number(p) for p in found["per_position"].strip("()[] ").replace(";", ",").split(",")
        ]
        rates = tuple(p for p in parts if p is not None and 0 <= p <= 1)
        found["per_position"] = rates if len(rates) == len(parts) else None
    if all(v is None for v in found.values()):
        return None
    return MeasuredAcceptance(**cast(dict[str, Any], found))


def _speculation(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return arm, what says so, method and k."""
    k = values.get("num_speculative_tokens")
    method = values.get("method")
    text = str(values.get("arm", "")).lower()
    if method is not None and method.lower() in ("off", "none", "baseline"):
        method, k = None, 0 if k is None else k
    arm = _ARMS.get(text, "unknown")
    if text not in _ARMS and number(text) is not None:
        raise _Unreadable(f"its arm is {text!r}; write off or on, and k in a column 'k'")
    if text and text not in _ARMS and k != 0:
        # A mode named after a method, such as 'ngram', is kept as one and says no more.
        method = method or values["arm"]
    if arm == "unknown":
        if k is not None:
            arm = "off" if k == 0 else "on"
    elif arm == "on" and k == 0:
        raise _Unreadable("it says that speculation is on with 0 draft tokens per step")
    told = values.get("arm_from", "")
    arm_from = told if told in get_args(ArmSource) else ""
    return {
        "arm": arm,
        "arm_from": "" if arm == "unknown" else arm_from or "metadata",
        "method": None if arm == "off" else method,
        "num_speculative_tokens": k if arm == "on" else None,
    }
