"""NVIDIA's aiperf and its forerunner genai-perf: `profile_export_aiperf.json`, `*_genai_perf.json`.

Statistics stand at top level, each with its unit. `inter_token_latency` is one number per request,
(last - first) / (n - 1), which is vLLM's TPOT; `inter_chunk_latency` is the gap between streamed
pieces, which is vLLM's ITL, of a step [1]_. Acceptance rates are in percent. The CSV has two
blocks, `Metric,avg,min,...` and `Metric,Value`, and no word about the load.

References
----------
.. [1] aiperf 0.13.0, metrics/types; genai-perf 0.0.16, export_data.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from typing import Any

from specsim.errors import InputError
from specsim.measure.readers.mapping import has_keys, inner, mapping, texts, words
from specsim.measure.readers.numbers import count, latency, number
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Latency, MeasuredAcceptance, Measurement

FORMAT = "aiperf"

_STATISTICS = {"mean": "avg", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "std": "std"}
_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3}

Metrics = Mapping[str, Mapping[str, Any]]
"""Name of the JSON -> unit and statistics."""


def recognises(source: Source) -> bool:
    """Whether the head has a metric with `unit` and `avg`, or the column headers of the CSV."""
    head = source.head
    if re.match(r"Metric,avg,min,max,", head):
        return True
    has_metric = has_keys(head, "unit", "avg")
    return (
        source.looks_like_json
        and has_metric
        and (has_keys(head, "request_latency") or has_keys(head, "request_throughput"))
    )


def read(source: Source) -> list[Measurement]:
    """Read the run that the file describes.

    Raises
    ------
    Foreign
        Neither a latency nor a throughput of tokens is in it.
    """
    document = mapping(source) if source.looks_like_json else {}
    metrics = dict(_from_json(document) if document else _from_csv(source))
    warnings: list[str] = []
    tpot = _latency(metrics, "inter_token_latency", warnings)
    itl = _latency(metrics, "inter_chunk_latency", warnings)
    output_tok_s = _value(metrics, "output_token_throughput")
    if tpot is None and itl is None and output_tok_s is None:
        raise Foreign("is an aiperf export without latency or throughput of tokens")
    acceptance = _acceptance(metrics, warnings)
    concurrency, request_rate = _load(inner(document, "input_config"))
    duration = _latency(metrics, "benchmark_duration", warnings)
    return [
        Measurement(
            source=source.name,
            format=FORMAT,
            arm="unknown" if acceptance is None else "on",
            arm_from="" if acceptance is None else "counters",
            model=_model(inner(document, "input_config")),
            date=words(document.get("start_time")),
            concurrency=concurrency,
            request_rate=request_rate,
            completed=count(_value(metrics, "request_count")),
            failed=count(_value(metrics, "error_request_count")),
            input_tokens=_value(metrics, "input_sequence_length"),
            output_tokens=_value(metrics, "output_sequence_length"),
            output_tokens_std=_value(metrics, "output_sequence_length", "std"),
            duration_s=None if duration is None or duration.mean is None else duration.mean / 1e3,
            output_tok_s=output_tok_s,
            request_per_s=_value(metrics, "request_throughput"),
            tpot_ms=tpot,
            itl_ms=itl,
            itl_of="" if itl is None else "step",
            ttft_ms=_latency(metrics, "time_to_first_token", warnings),
            e2e_ms=_latency(metrics, "request_latency", warnings),
            acceptance=acceptance,
            metadata=texts(
                aiperf_version=document.get("aiperf_version"),
                benchmark_id=document.get("benchmark_id"),
            ),
            warnings=tuple(warnings),
        )
    ]


def _value(metrics: Metrics, name: str, statistic: str = "avg") -> float | None:
    return number(metrics.get(name, {}).get(statistic))


def _latency(metrics: Metrics, name: str, warnings: list[str]) -> Latency | None:
    metric = metrics.get(name, {})
    unit = words(metric.get("unit")) or ""
    found = latency(metric, _STATISTICS, to_ms=_MS.get(unit, 1.0))
    if found is not None and unit not in _MS:
        warnings.append(f"{name} is left out: its unit is {unit!r}, which is no unit of time")
        return None
    return found


def _acceptance(metrics: Metrics, warnings: list[str]) -> MeasuredAcceptance | None:
    length = _value(metrics, "spec_decode_token_weighted_acceptance_length")
    if length is None:
        length = _value(metrics, "spec_decode_acceptance_length")
        if length is not None:
            warnings.append("the acceptance length is a mean over requests, not over steps")
    rate = _share(metrics, "spec_decode_overall_draft_acceptance_rate")
    if rate is None:
        rate = _share(metrics, "spec_decode_draft_acceptance_rate")
    if length is None and rate is None:
        return None
    return MeasuredAcceptance(
        acceptance_length=length,
        draft_acceptance_rate=rate,
        per_position=None,
        drafts=_total(metrics, "total_spec_decode_steps", "spec_decode_steps"),
        draft_tokens=_total(metrics, "total_draft_tokens", "spec_decode_draft_tokens"),
        accepted_tokens=_total(
            metrics, "total_accepted_draft_tokens", "spec_decode_accepted_draft_tokens"
        ),
    )


def _share(metrics: Metrics, name: str) -> float | None:
    """Return a rate as a fraction; aiperf writes percent and says so in the unit."""
    found = _value(metrics, name)
    unit = words(metrics.get(name, {}).get("unit"))
    return found / 100 if found is not None and unit in ("%", "percent") else found


def _total(metrics: Metrics, total: str, per_request: str) -> int | None:
    found = _value(metrics, total)
    return count(_value(metrics, per_request, "sum") if found is None else found)


def _load(config: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return concurrency and request rate, wherever this version keeps them."""
    phases = config.get("phases")  # aiperf 0.13
    profiling = [
        p
        for p in (phases if isinstance(phases, list) else [])
        if isinstance(p, dict) and p.get("name") != "warmup"
    ]
    places: list[Mapping[str, Any]] = [
        inner(config, "loadgen"),  # aiperf up to 0.10
        inner(config, "perf_analyzer", "stimulus"),  # genai-perf
        *profiling,
    ]
    found: dict[str, float] = {}
    for place in places:
        for name in ("concurrency", "request_rate", "rate"):
            value = number(place.get(name))
            if value is not None:
                found.setdefault(name, value)
    return found.get("concurrency"), found.get("request_rate", found.get("rate"))


def _model(config: Mapping[str, Any]) -> str | None:
    named = inner(config, "endpoint").get("model_names") or config.get("model_names")
    named = named or config.get("model") or config.get("models")
    if isinstance(named, list) and named:
        named = named[0]
    return words(named.get("name") if isinstance(named, Mapping) else named)


def _from_json(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, metric in document.items():
        if isinstance(metric, dict) and "unit" in metric:
            yield name, metric


_CSV_NAMES = {
    "acceptance_length": "spec_decode_acceptance_length",
    "draft_acceptance_rate": "spec_decode_draft_acceptance_rate",
    "token_weighted_acceptance_length": "spec_decode_token_weighted_acceptance_length",
    "overall_draft_acceptance_rate": "spec_decode_overall_draft_acceptance_rate",
    "accepted_draft_tokens": "spec_decode_accepted_draft_tokens",
    "draft_tokens": "spec_decode_draft_tokens",
}
"""Where the CSV's heading is not the JSON's name with spaces."""


def _from_csv(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    header: list[str] = []
    try:
        rows = list(csv.reader(source.lines()))
    except csv.Error as error:
        raise InputError(f"is broken or truncated: {error}") from error
    for row in rows:
        if row and row[0] == "Metric":
            # The blocks about GPUs have more columns than a value or statistics.
            header = ["avg"] if row[1:] == ["Value"] else row[1:]
            if "GPU" in header:
                return
        elif row and header:
            match = re.fullmatch(r"(.*?)(?: \(([^()]*)\))?", row[0])
            heading, unit = match.groups() if match else (row[0], None)
            name = re.sub(r"[ -]+", "_", heading.strip().lower())
            values = {k: v.replace(",", "") for k, v in zip(header, row[1:], strict=False)}
            yield _CSV_NAMES.get(name, name), {"unit": unit or "", **values}
        elif not row:
            header = []
