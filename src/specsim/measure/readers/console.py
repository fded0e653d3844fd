"""The table that `vllm bench serve` prints, as people paste it: alone, in notes, in logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from specsim.measure.readers.vllm_result import measurements
from specsim.measure.source import Source
from specsim.schema.measurement import Measurement

FORMAT = "vllm bench serve, console"
SGLANG_FORMAT = "sglang bench_serving, console"

TAIL_BYTES = 64 * 1024
"""The table comes last in a log."""

_TITLE = re.compile(r"=+ Serving Benchmark Result =+\s*$", re.MULTILINE)
_END = re.compile(r"={20,}\s*$")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_MODEL = re.compile(r"Namespace\(.*?\bmodel='([^']+)'")

_LABELS = {
    "Successful requests": "completed",
    "Failed requests": "failed",
    "Maximum request concurrency": "max_concurrency",
    "Max request concurrency": "max_concurrency",
    "Request rate configured (RPS)": "request_rate",
    "Traffic request rate": "request_rate",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Request throughput (req/s)": "request_throughput",
    "Output token throughput (tok/s)": "output_throughput",
    "Acceptance rate (%)": "spec_decode_acceptance_rate",
    "Acceptance length": "spec_decode_acceptance_length",
    "Accept length": "spec_decode_acceptance_length",
    "Drafts": "spec_decode_num_drafts",
    "Draft tokens": "spec_decode_draft_tokens",
    "Accepted tokens": "spec_decode_accepted_tokens",
    "Backend": "engine",
}
_BEFORE_THE_TABLE = ("max_concurrency", "request_rate")
_STATISTICS = {"Mean": "mean", "Median": "median", "Std": "std"}
_METRICS = {"TTFT": "ttft", "TPOT": "tpot", "ITL": "itl", "E2EL": "e2el", "E2E Latency": "e2el"}

# Logs and notes put all kinds of things before the label.
_ROW = re.compile(
    rf"(?<![\w(])({'|'.join(map(re.escape, sorted(_LABELS, key=len, reverse=True)))})"
    r":\s+([^\s|]+)[\s|]*$"
)
_LATENCY = re.compile(rf"\b(Mean|Median|Std|P[\d.]+) ({'|'.join(_METRICS)}) \(ms\):\s+([^\s|]+)")
_POSITION = re.compile(r"\bPosition \d+:\s+([\d.]+)")


def recognises(source: Source) -> bool:
    """Say whether the title of a table stands at the beginning or the end of the file."""
    if not source.head:
        return False
    return bool(_TITLE.search(source.head) or _TITLE.search(_tail(source)))


def read(source: Source) -> list[Measurement]:
    """Return a row per table.

    Raises
    ------
    Foreign
        No table has an answered request.
    """
    tables = list(_tables(source.lines()))
    # SGLang prints the same table; on its own protocol it divides a gap by the tokens it brought.
    if any("engine" in table for table in tables):
        native = any(table.get("engine") in ("sglang", "sglang-native") for table in tables)
        itl_of: Literal["step", "token"] = "token" if native else "step"
        return measurements(tables, name=source.name, format=SGLANG_FORMAT, itl_of=itl_of)
    return measurements(tables, name=source.name, format=FORMAT)


def _tail(source: Source) -> str:
    with source.path.open("rb") as stream:
        stream.seek(max(0, source.size - TAIL_BYTES))
        return stream.read().decode("utf-8", errors="ignore")


def _tables(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield each table under the keys of the JSON."""
    before: dict[str, Any] = {}
    table: dict[str, Any] | None = None
    for raw in lines:
        line = _COLOUR.sub("", raw)
        if _TITLE.search(line):
            if table:
                yield table
            table, before = before, {}
        elif table is None:
            # What the client prints before it starts; old tables do not repeat it.
            key, value = _row(line)
            if key in _BEFORE_THE_TABLE:
                before[key] = value
            elif model := _MODEL.search(line):
                before["model_id"] = model[1]
        elif _END.search(line):
            yield table
            table = None
        elif position := _POSITION.search(line):
            rates = table.setdefault("spec_decode_per_position_acceptance_rates", [])
            rates.append(float(position[1]) / 100)
        else:
            key, value = _row(line)
            if key:
                table[key] = value
    if table:
        yield table


def _row(line: str) -> tuple[str, str]:
    """Return the key and the text of its value; ('', '') for a line that states none."""
    if latency := _LATENCY.search(line):
        statistic, metric, value = latency.groups()
        return f"{_STATISTICS.get(statistic, statistic.lower())}_{_METRICS[metric]}_ms", value
    if row := _ROW.search(line):
        return _LABELS[row[1]], row[2]
    return "", ""
