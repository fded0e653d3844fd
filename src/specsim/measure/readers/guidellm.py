"""GuideLLM's `benchmarks.json` (YAML, CSV): one row per benchmark.

Its names mislead twice [1]_. `time_per_output_token_ms` is (last - start) / n, so it includes the
time to first token; it is not read. `inter_token_latency_ms` is (last - first) / (n - 1) of each
request, which is vLLM's TPOT; a mean over tokens, that is, long answers weigh more. It is read as
`tpot_ms`. Gaps between chunks are not recorded. Request latency is in seconds, the others in ms.

Report version 1 keeps its arguments under `args`, version 2 under `config`.

References
----------
.. [1] guidellm 0.8.1, schemas/request_stats.py and benchmark/outputs/csv.py.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specsim.errors import InputError
from specsim.measure.readers.mapping import has_keys, inner, iso, mapping, part_names, texts, words
from specsim.measure.readers.numbers import count, latency, number
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Latency, Measurement

FORMAT = "guidellm"

SPECULATION_TOKENS_PER_ITERATION = 1.05
"""A server without speculation streams one token per iteration; 1.001 is measured."""

_STATISTICS = {
    "mean": "mean",
    "p50": "median",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "std": "std_dev",
}


@dataclass(frozen=True)
class _Benchmark:
    """What JSON and CSV have in common."""

    kind: str
    """synchronous, concurrent, throughput, constant, poisson ..."""
    level: float | None
    """Streams or rate, as the kind has it."""
    metrics: Mapping[str, Mapping[str, Any]]
    """Name as in the JSON -> statistics of the successful requests."""
    requests: Mapping[str, Any]
    duration_s: float | None
    date: str | None
    model: str | None
    version: str | None


def recognises(source: Source) -> bool:
    """Whether the head names GuideLLM, or is its three rows of column headers."""
    head = source.head
    if _is_csv(head):
        return True
    named = "guidellm_version" in head and has_keys(head, "guidellm_version")
    return named or ("generative_benchmark" in head and has_keys(head, "benchmarks"))


def read(source: Source) -> list[Measurement]:
    """Read every benchmark that answered at least one request.

    Raises
    ------
    Foreign
        No benchmark answered any.
    """
    found = list(_from_csv(source) if _is_csv(source.head) else _from_report(mapping(source)))
    names = part_names(source, len(found))
    rows = [
        _row(benchmark, name)
        for benchmark, name in zip(found, names, strict=True)
        if benchmark.metrics.get("request_latency")
    ]
    if not rows:
        raise Foreign("is a GuideLLM report in which no request succeeded")
    return rows


def _row(benchmark: _Benchmark, name: str) -> Measurement:
    metrics = benchmark.metrics
    per_iteration = _mean(metrics, "iter_tokens_per_iteration")
    warnings: tuple[str, ...] = ()
    if per_iteration is not None and per_iteration > SPECULATION_TOKENS_PER_ITERATION:
        warnings = (
            f"{per_iteration:.2f} tokens came per streamed piece: near the acceptance length if "
            "the server speculated, but counted by the client",
        )
    is_rate = benchmark.kind in ("constant", "poisson")
    is_closed = benchmark.kind in ("synchronous", "concurrent")
    return Measurement(
        source=name,
        format=FORMAT,
        arm="unknown",
        arm_from="",
        model=benchmark.model,
        date=benchmark.date,
        concurrency=benchmark.level if is_closed else None,
        request_rate=benchmark.level if is_rate else None,
        completed=count(benchmark.requests.get("successful")),
        failed=count(benchmark.requests.get("errored")),
        input_tokens=_mean(metrics, "prompt_token_count"),
        output_tokens=_mean(metrics, "output_token_count"),
        output_tokens_std=number(metrics.get("output_token_count", {}).get("std_dev")),
        duration_s=benchmark.duration_s,
        output_tok_s=_mean(metrics, "output_tokens_per_second"),
        request_per_s=_mean(metrics, "requests_per_second"),
        tpot_ms=_latency(metrics, "inter_token_latency_ms"),
        itl_of="token",
        ttft_ms=_latency(metrics, "time_to_first_token_ms"),
        e2e_ms=_latency(metrics, "request_latency", to_ms=1000.0),
        metadata=texts(
            strategy=benchmark.kind,
            mean_request_concurrency=_mean(metrics, "request_concurrency"),
            tokens_per_iteration=per_iteration,
            incomplete=count(benchmark.requests.get("incomplete")) or None,
            guidellm_version=benchmark.version,
        ),
        warnings=warnings,
    )


def _mean(metrics: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    return number(metrics.get(name, {}).get("mean"))


def _latency(
    metrics: Mapping[str, Mapping[str, Any]], name: str, *, to_ms: float = 1.0
) -> Latency | None:
    return latency(metrics.get(name, {}), _STATISTICS, to_ms=to_ms)


def _from_report(report: Mapping[str, Any]) -> Iterator[_Benchmark]:
    benchmarks = report.get("benchmarks")
    for entry in benchmarks if isinstance(benchmarks, list) else []:
        # Up to 0.3 a benchmark had `args` for `config`, and `run_stats` for the totals.
        config = inner(entry, "config") or inner(entry, "args")
        kind, level = _strategy(inner(config, "strategy"))
        yield _Benchmark(
            kind=kind,
            level=level,
            metrics=_successful(inner(entry, "metrics")),
            requests=inner(entry, "metrics", "request_totals")
            or inner(entry, "run_stats", "requests_made"),
            duration_s=number(inner(entry).get("duration")),
            date=iso(number(inner(entry).get("start_time"))),
            model=words(inner(config, "backend").get("model"))
            or words(inner(report, "args").get("model"))
            or words(inner(report, "config", "spec", "backend").get("model")),
            version=words(inner(report, "metadata").get("guidellm_version")),
        )


def _strategy(strategy: Mapping[str, Any]) -> tuple[str, float | None]:
    kind = words(strategy.get("type_")) or ""
    if kind == "synchronous":
        return kind, 1.0
    if kind == "concurrent":
        streams = number(strategy.get("streams"))
        return kind, number(strategy.get("max_concurrency")) if streams is None else streams
    return kind, number(strategy.get("rate"))


def _successful(metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {}
    for name in metrics:
        statistics = inner(metrics, name, "successful")
        # Where nothing was measured GuideLLM writes zeros with a count of zero.
        if statistics and statistics.get("count") != 0:
            found[name] = {**statistics, **inner(statistics, "percentiles")}
    return found


# The CSV: three rows of column headers (group, status and unit, statistic), a row per benchmark.

_COLUMNS = {
    "request_latency": ("Request Latency", "Successful Sec"),
    "time_to_first_token_ms": ("Time to First Token", "Successful ms"),
    "inter_token_latency_ms": ("Inter Token Latency", "Successful ms"),
    "prompt_token_count": ("Token Metrics", "Successful Input Tokens"),
    "output_token_count": ("Token Metrics", "Successful Output Tokens"),
    "output_tokens_per_second": ("Token Throughput", "Successful Output Tokens/Sec"),
    "requests_per_second": ("Server Throughput", "Successful Requests/Sec"),
    "request_concurrency": ("Server Throughput", "Successful Concurrency"),
    "iter_tokens_per_iteration": ("Token Streaming", "Successful Iter Tokens/Iter"),
}
_CSV_PERCENTILES = ("min", "p001", "p01", "p05", "p10", "p25", "p75", "p90", "p95", "p99", "max")


def _is_csv(head: str) -> bool:
    first, _, rest = head.partition("\n")
    return first.startswith("Run Info,") and "Strategy" in rest.partition("\n")[0]


def _from_csv(source: Source) -> Iterator[_Benchmark]:
    # Cells hold whole configurations; the default limit of 128 KiB is too little for some.
    limit = csv.field_size_limit(16 * 2**20)
    try:
        rows = list(csv.reader(source.lines()))
    except csv.Error as error:
        raise InputError(f"is broken or truncated: {error}") from error
    finally:
        csv.field_size_limit(limit)
    if len(rows) < 4:
        raise Foreign("has the column headers of a GuideLLM table and no benchmark")
    columns = list(zip(*rows[:3], strict=False))
    for row in rows[3:]:
        cells = dict(zip(columns, row, strict=False))
        kind, _, level = cells.get(("Benchmark", "Strategy", ""), "").partition("@")
        metrics = {name: _csv_statistics(cells, *column) for name, column in _COLUMNS.items()}
        yield _Benchmark(
            kind=kind,
            level=1.0 if kind == "synchronous" else number(level),
            metrics={name: found for name, found in metrics.items() if found},
            requests={
                status.lower(): cells.get(("Request Counts", status, ""))
                for status in ("Successful", "Incomplete", "Errored")
            },
            duration_s=number(cells.get(("Timings", "Duration", "Sec"))),
            date=words(cells.get(("Timings", "Start Time", ""))),
            model=words(_json_cell(cells, "Run Info", "Backend").get("model")),
            version=words(_json_cell(cells, "Runtime Info", "Metadata").get("guidellm_version")),
        )


def _csv_statistics(
    cells: Mapping[tuple[str, ...], str], group: str, status: str
) -> dict[str, Any]:
    named = {"mean": "Mean", "median": "Median", "std_dev": "Std Dev"}
    found: dict[str, Any] = {
        key: value
        for key, statistic in named.items()
        if (value := cells.get((group, status, statistic))) not in (None, "")
    }
    percentiles = cells.get((group, status, "Percentiles"), "").strip("[] ").split(",")
    if len(percentiles) == len(_CSV_PERCENTILES):
        found.update(zip(_CSV_PERCENTILES, percentiles, strict=True))
    return found


def _json_cell(cells: Mapping[tuple[str, ...], str], group: str, name: str) -> dict[str, Any]:
    try:
        return inner(json.loads(cells.get((group, name, ""), "")))
    except (ValueError, RecursionError):
        return {}
