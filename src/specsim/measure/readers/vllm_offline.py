"""`vllm bench latency`, `throughput` and `forward`: runs of an engine without a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from specsim.measure.readers.numbers import count, number
from specsim.measure.source import Foreign, Source, is_cut
from specsim.schema.measurement import Latency, Measurement

FORMAT = "vllm bench offline"

_LATENCY = ("avg_latency", "percentiles")
_THROUGHPUT = ("elapsed_time", "num_requests", "total_num_tokens", "requests_per_second")
_FORWARD = ("case", "median_us", "requests")


def recognises(source: Source) -> bool:
    """Say whether the keys are those of one of the three."""
    return source.looks_like_json and any(
        all(re.search(rf'"{key}"\s*:', source.head) for key in keys)
        for keys in (_LATENCY, _THROUGHPUT, _FORWARD)
    )


def read(source: Source) -> list[Measurement]:
    """Return a row, or one per case of `forward`.

    Raises
    ------
    Foreign
        It holds the keys, but not as a result.
    """
    found = [
        item
        for document in source.documents
        for item in (document if isinstance(document, list) else [document])
        if isinstance(item, dict)
    ]
    rows: list[Measurement] = []
    for index, values in enumerate(found, start=1):
        name = source.name if len(found) == 1 else f"{source.name}#{index}"
        if number(values.get("avg_latency")):
            rows.append(_latency(values, name))
        elif number(values.get("requests_per_second")):
            rows.append(_throughput(values, name))
        elif number(values.get("median_us")):
            rows.append(_case(values, name))
    if not rows:
        raise Foreign("holds the keys of an offline benchmark of vLLM, but no result")
    return rows


def _latency(values: Mapping[str, Any], name: str) -> Measurement:
    percentiles = values.get("percentiles")
    at = percentiles if isinstance(percentiles, dict) else {}
    seconds = {f"p{p}": number(at.get(str(p))) for p in (50, 90, 95, 99)}
    seconds |= {"mean": number(values.get("avg_latency")), "std": None}
    listed = values.get("latencies")
    each = [s for v in listed if (s := number(v))] if isinstance(listed, list) else []
    if len(each) > 1 and not is_cut(listed):
        seconds["std"] = float(np.std(each))
    return Measurement(
        source=name,
        format="vllm bench latency",
        arm="unknown",
        arm_from="",
        model=_text(values.get("model_id")),
        engine="vllm",
        e2e_ms=Latency(**{f: None if s is None else s * 1e3 for f, s in seconds.items()}),
        warnings=(
            "one batch over and over, of a size and lengths that the file does not state: "
            "E2E is the time of the whole batch",
        ),
    )


def _throughput(values: Mapping[str, Any], name: str) -> Measurement:
    metadata = {
        key: str(values[key]) for key in ("total_num_tokens", "tokens_per_second") if key in values
    }
    return Measurement(
        source=name,
        format="vllm bench throughput",
        arm="unknown",
        arm_from="",
        model=_text(values.get("model_id")),
        engine="vllm",
        completed=count(values.get("num_requests")),
        duration_s=number(values.get("elapsed_time")),
        request_per_s=number(values.get("requests_per_second")),
        metadata=metadata,
        warnings=(
            "tokens_per_second counts prompts and answers together: output tokens/s is not stated",
            "all requests were given at once: the batch shrinks as they finish",
        ),
    )


def _case(values: Mapping[str, Any], name: str) -> Measurement:
    """Return the time of one forward pass over an exact batch."""
    milliseconds = (number(values.get("median_us")) or 0.0) / 1e3
    requests = [r for r in _items(values.get("requests")) if isinstance(r, dict)]
    ranks = [r for r in _items(values.get("ranks")) if isinstance(r, dict)]
    tokens = next((n for r in ranks if (n := count(r.get("num_tokens"))) is not None), None)
    if tokens is None:
        tokens = sum(count(r.get("query_len")) or 0 for r in requests) or None
    metadata = {
        "case": str(values.get("case")),
        "median_us": str(values.get("median_us")),
        "num_tokens": None if tokens is None else str(tokens),
        "num_requests": str(len(requests)) if requests else None,
    }
    for key in ("query_len", "kv_len", "num_draft_tokens"):
        distinct = {n for r in requests if (n := count(r.get(key))) is not None}
        metadata[key] = str(distinct.pop()) if len(distinct) == 1 else None
    return Measurement(
        source=name,
        format="vllm bench forward",
        arm="unknown",
        arm_from="",
        engine="vllm",
        itl_ms=Latency(mean=milliseconds, p50=milliseconds, p90=None, p95=None, p99=None, std=None),
        itl_of="step",
        metadata={key: text for key, text in metadata.items() if text is not None},
        warnings=(
            "ITL is the median time of one exact batch, run alone: no arrivals, no scheduling",
        ),
    )


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
