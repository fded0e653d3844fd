"""Recorded arrivals: when requests came, and how long their prompts and answers were.

A file is recognised by what it holds: the Azure LLM inference traces, BurstGPT, Mooncake, a
detailed result of `vllm bench serve`, or any CSV or JSONL with a time and two lengths per request.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.catalog.csv_text import head_of, open_csv
from specsim.catalog.trace_columns import Columns
from specsim.errors import InputError, nearest

EXPECTED = (
    "a CSV or JSONL with timestamp, input_tokens and output_tokens per request (Azure, BurstGPT, "
    "Mooncake ...), or the JSON of `vllm bench serve --save-result --save-detailed`"
)
MAX_DOCUMENT_BYTES = 512 * 2**20
"""JSON that is one document is loaded whole."""
_LARGEST_GAP_S = 366 * 86400.0

_NAMES: dict[str, tuple[str, ...]] = {
    "timestamp": (
        "timestamp", "arrivaltime", "arrival", "arrivaltimestamp", "arrivedat", "starttime",
        "requesttime", "requesttimestamp", "time", "ts", "createdat", "startedat", "sendtime",
    ),
    "input_tokens": (
        "inputtokens", "prompttokens", "contexttokens", "requesttokens", "inputlength", "inputlen",
        "promptlength", "promptlen", "isl", "numprefilltokens", "prefilltokens", "numprompttokens",
        "numinputtokens", "inputtokencount", "prompttokencount",
    ),
    "output_tokens": (
        "outputtokens", "completiontokens", "generatedtokens", "responsetokens", "outputlength",
        "outputlen", "completionlength", "responselength", "osl", "numdecodetokens",
        "decodetokens", "generationtokens", "numoutputtokens", "outputtokencount",
        "completiontokencount",
    ),
}  # fmt: skip
"""Columns by their names in small letters and digits, the first of them preferred."""
_UNIT = re.compile(r"[\s_\-(\[]+(s|sec|seconds|ms|msec|milliseconds|us|ns)[)\]]?$", re.IGNORECASE)
_UNIT_S = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "milliseconds": 1e-3,
           "us": 1e-6, "ns": 1e-9}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival.

    Attributes
    ----------
    arrival_s : ndarray
        After the first request. [s]
    input_tokens, output_tokens : ndarray
        At least 1 each.
    source : str
        File, and what kind of trace it was taken for.
    notes : tuple of str
        What was left out or put in order.
    """

    arrival_s: npt.NDArray[np.float64]
    input_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    source: str
    notes: tuple[str, ...] = ()

    @property
    def n_requests(self) -> int:
        """How many requests."""
        return int(self.arrival_s.size)

    @property
    def duration_s(self) -> float:
        """From the first arrival to the last."""
        return float(self.arrival_s[-1])

    @property
    def mean_rate(self) -> float:
        """One over the mean gap, infinite if all come at once [requests/s]."""
        return (self.n_requests - 1) / self.duration_s if self.duration_s > 0 else math.inf

    def scaled(self, rate: float) -> Trace:
        """Return the same pattern compressed or stretched in time to a mean rate [requests/s]."""
        if not (math.isfinite(rate) and rate > 0):
            raise InputError(f"rate {rate:g} of a trace: expected a number of requests/s above 0")
        if self.duration_s <= 0:
            alike = "has one request" if self.n_requests == 1 else "all its requests arrive at once"
            raise InputError(
                f"{self.source}: {alike}, so it cannot be scaled to {rate:g} requests/s; use "
                f"--request-rate {rate:g} --input-len {np.mean(self.input_tokens):.0f} "
                f"--output-len {np.mean(self.output_tokens):.0f} in its place"
            )
        return replace(self, arrival_s=self.arrival_s * (self.mean_rate / rate))

    def head(self, n: int) -> Trace:
        """Return the first `n` requests, or all if there are fewer."""
        if n < 1:
            raise InputError(f"{n} requests of a trace: expected at least 1")
        return replace(
            self,
            arrival_s=self.arrival_s[:n],
            input_tokens=self.input_tokens[:n],
            output_tokens=self.output_tokens[:n],
        )


def read_trace(path: Path) -> Trace:
    """Read a trace of any known layout.

    Raises
    ------
    InputError
        No trace, or one with a value that cannot be right; the message names the line.
    """
    head = head_of(path, expected=EXPECTED)
    return _read_json(path) if head.lstrip()[0] in "{[" else _read_csv(path)


# CSV


def _read_csv(path: Path) -> Trace:
    with open_csv(path, expected=EXPECTED) as table:
        names = _columns(path, table.header)
        plain = {_plain(name) for name in table.header}
        kind = "a CSV"
        if {"contexttokens", "generatedtokens"} <= plain:
            kind = "Azure LLM inference trace"
        elif {"requesttokens", "responsetokens", "logtype"} <= plain:
            kind = "BurstGPT"
        columns = Columns(path, names, time_unit_s=_unit_s(names[0]))
        columns.extend(table.rows(names))
    return _trace(columns, kind)


def _columns(path: Path, known: Sequence[str]) -> tuple[str, str, str]:
    """Return the names of the time and of both lengths."""
    by_plain: dict[str, str] = {}
    for name in known:
        by_plain.setdefault(_plain(_UNIT.sub("", name)), name)
        by_plain.setdefault(_plain(name), name)
    found: list[str] = []
    for wanted, spellings in _NAMES.items():
        names = [by_plain[spelling] for spelling in spellings if spelling in by_plain]
        if not names:
            close = nearest(wanted, known)
            hint = f"nearest: {', '.join(close)}" if close else f"it has {', '.join(known)[:120]}"
            raise InputError(
                f"{path}: has no {wanted}; {hint}; name it {wanted} or one of "
                f"{', '.join(spellings[:4])} (case, '_' and spaces do not matter)"
            )
        found.append(names[0])
    return found[0], found[1], found[2]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _unit_s(name: str) -> float | None:
    """Return the unit that a name such as `arrival_ms` ends with, in seconds."""
    unit = _UNIT.search(name)
    return _UNIT_S[unit[1].lower()] if unit else None


# JSON


def _read_json(path: Path) -> Trace:
    """Read one record per line, or one document: a list of records, or a result of vLLM."""
    try:
        document: Any = json.loads(_first_line(path))
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and not _is_vllm(document):
        return _of_records(path, document, _json_lines(path))
    document = _document(path)
    if isinstance(document, dict) and _is_vllm(document):
        return _of_vllm(path, document)
    records = document if isinstance(document, list) else [document]
    if not records:
        raise InputError(f"{path}: holds no requests; expected {EXPECTED}")
    return _of_records(path, records[0], enumerate(records, start=1), place="entry")


def _first_line(path: Path) -> str:
    """Return the first line that is not blank: a record with its prompt can be long."""
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        while line := stream.readline(MAX_DOCUMENT_BYTES):
            if line.strip():
                return line
    return ""


def _document(path: Path) -> Any:
    size = path.stat().st_size
    if size > MAX_DOCUMENT_BYTES:
        raise InputError(
            f"{path}: {size} bytes of one JSON document are too much (at most "
            f"{MAX_DOCUMENT_BYTES}); write one request per line (JSONL)"
        )
    try:
        return json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        more = "; of several runs in one file, keep one" if reason.startswith("Extra data") else ""
        raise InputError(f"{path}: is broken or truncated: {reason}{more}") from error


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except (ValueError, RecursionError) as error:
                    reason = " ".join(str(error).split())[:120]
                    raise InputError(f"{path}: line {number}: is broken: {reason}") from error


def _of_records(
    path: Path, first: Any, records: Iterator[tuple[int, Any]] | enumerate[Any], place: str = "line"
) -> Trace:
    """Read records that have the names of the first one."""
    if not isinstance(first, Mapping):
        raise InputError(f"{path}: holds no records; expected {EXPECTED}")
    names = _columns(path, [str(key) for key in first])
    unit_s, kind = _unit_s(names[0]), "JSON records"
    if "hash_ids" in first:
        kind, unit_s = "Mooncake", unit_s or 1e-3

    def rows() -> Iterator[tuple[Any, ...]]:
        for number, record in records:
            try:
                yield (number, *(record[name] for name in names))
            except (KeyError, TypeError, IndexError) as error:
                lacking = next((n for n in names if not _has(record, n)), names[0])
                raise InputError(
                    f"{path}: {place} {number}: has no {lacking!r}, which the first one has"
                ) from error

    columns = Columns(path, names, time_unit_s=unit_s, place=place)
    columns.extend(rows())
    return _trace(columns, kind)


def _has(record: Any, name: str) -> bool:
    return isinstance(record, Mapping) and name in record


def _is_vllm(document: Mapping[str, Any]) -> bool:
    return "input_lens" in document or "request_throughput" in document


def _of_vllm(path: Path, document: Mapping[str, Any]) -> Trace:
    """Read a detailed result; requests that failed have an error text or no answer."""
    inputs, outputs = document.get("input_lens"), document.get("output_lens")
    starts = document.get("start_times")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise InputError(
            f"{path}: is a benchmark result without its single requests; run it again with "
            "--save-result --save-detailed"
        )
    if not isinstance(starts, list):
        raise InputError(
            f"{path}: has no start_times: vLLM records when requests were sent from version 0.17 "
            "on; run it again with that, or use --request-rate with the rate it was run at"
        )
    if not len(inputs) == len(outputs) == len(starts):
        raise InputError(
            f"{path}: has {len(starts)} start_times, {len(inputs)} input_lens and {len(outputs)} "
            "output_lens; expected as many of each"
        )
    errors = document.get("errors")
    texts = (
        errors if isinstance(errors, list) and len(errors) == len(inputs) else [""] * len(inputs)
    )
    # Without an answer a request is left out like any failed one, whatever its record says.
    rows = (
        (number, start, n_in, 0 if text else n_out)
        for number, (start, n_in, n_out, text) in enumerate(
            zip(starts, inputs, outputs, texts, strict=True), start=1
        )
    )
    names = ("start_times", "input_lens", "output_lens")
    columns = Columns(path, names, time_unit_s=1.0, place="request")
    columns.extend(rows)
    trace = _trace(columns, "vllm bench serve")
    limit = document.get("max_concurrency")
    if limit is None:
        return trace
    note = (
        f"it was run with --max-concurrency {limit}: requests were sent as earlier ones ended, "
        "so these arrivals follow that server's speed"
    )
    return replace(trace, notes=(*trace.notes, note))


# Any layout


def _trace(columns: Columns, kind: str) -> Trace:
    """Put the requests in order and leave out those without an answer."""
    path = columns.path
    arrival_s, inputs, outputs = columns.arrays()
    notes = list(columns.notes)
    if arrival_s.size == 0:
        raise InputError(f"{path}: holds no requests; expected {EXPECTED}")
    answered = (inputs > 0) & (outputs > 0)
    n_left_out = int((~answered).sum())
    if n_left_out == arrival_s.size:
        raise InputError(
            f"{path}: none of its {n_left_out} requests was answered (0 tokens each); "
            f"expected {EXPECTED}"
        )
    if n_left_out:
        notes.append(f"{n_left_out} of {answered.size} requests failed (0 tokens): left out")
        arrival_s, inputs, outputs = arrival_s[answered], inputs[answered], outputs[answered]
    n_late = int((arrival_s < np.maximum.accumulate(arrival_s)).sum())
    if n_late:
        notes.append(f"{n_late} of {arrival_s.size} requests were out of order: sorted by time")
        order = np.argsort(arrival_s, kind="stable")
        arrival_s, inputs, outputs = arrival_s[order], inputs[order], outputs[order]
    widest_s = float(np.max(np.diff(arrival_s), initial=0.0))
    if widest_s > _LARGEST_GAP_S:
        raise InputError(
            f"{path}: {widest_s / 86400:.0f} days pass between two requests; check "
            f"{columns.names[0]}: it is read as seconds (milliseconds if named timestamp_ms)"
        )
    return Trace(arrival_s - arrival_s[0], inputs, outputs, f"{path} ({kind})", tuple(notes))
