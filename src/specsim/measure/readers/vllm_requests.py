"""Latencies of `vllm bench serve`: of its summary, and of each request where those are listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specsim.measure.readers.numbers import count, number
from specsim.measure.source import is_cut
from specsim.schema.measurement import Latency

METRICS = ("ttft", "tpot", "itl", "e2el")
_PERCENTILES = (50, 90, 95, 99)


def latencies(values: Mapping[str, Any]) -> dict[str, Latency | None]:
    """Return each metric as the summary states it, the rest from the requests themselves.

    Parameters
    ----------
    values : mapping
        Keys of the JSON of `vllm bench serve`: summaries in ms, arrays in seconds.
    """
    samples = _samples(values)
    return {metric: _latency(values, metric, samples.get(metric, ())) for metric in METRICS}


def answer_spread(values: Mapping[str, Any]) -> tuple[float | None, list[str]]:
    """Return the standard deviation of answer lengths, and what to know about it."""
    lengths = values.get("output_lens")
    answered = [v for v in _numbers(items(lengths)) if v > 0]
    if len(answered) < 2:
        return None, []
    cut = [f"the spread of answer lengths is of the first {len(answered)} requests"]
    return float(np.std(answered)), cut if is_cut(lengths) else []


def items(value: Any) -> list[Any]:
    """Return an array; [] for anything else."""
    return value if isinstance(value, list) else []


def _latency(values: Mapping[str, Any], metric: str, samples: Sequence[float]) -> Latency | None:
    found = {
        field: number(values.get(f"{field}_{metric}_ms"))
        for field in ("mean", *(f"p{p}" for p in _PERCENTILES), "std")
    }
    if found["p50"] is None:
        found["p50"] = number(values.get(f"median_{metric}_ms"))
    if found["mean"] == 0:
        return None  # The client writes zeros where no request had the quantity.
    if samples:
        computed = {f"p{p}": float(np.percentile(samples, p)) for p in _PERCENTILES}
        computed |= {"mean": float(np.mean(samples)), "std": float(np.std(samples))}
        found = {f: computed[f] if v is None else v for f, v in found.items()}
    return None if all(v is None for v in found.values()) else Latency(**found)


def _samples(values: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return latencies of each answered request (of each gap) in ms, where all are listed."""
    whole = {
        key: items(values.get(key)) if not is_cut(values.get(key)) else []
        for key in ("latencies", "ttfts", "output_lens", "itls")
    }
    lengths, ttfts, gaps = whole["output_lens"], whole["ttfts"], whole["itls"]
    if not (lengths and len(lengths) == len(ttfts) == len(gaps)):
        # Failed requests have latencies too, and nothing else says which they are.
        listed = [] if count(values.get("failed")) else whole["latencies"]
        return {"e2el": [v * 1e3 for v in _numbers(listed)]}
    found: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for length, ttft, between in zip(_numbers(lengths), _numbers(ttfts), gaps, strict=True):
        if length <= 0:
            continue  # a failed request
        pieces = [v * 1e3 for v in _numbers(items(between))]
        decode = sum(pieces)
        found["ttft"].append(ttft * 1e3)
        found["e2el"].append(ttft * 1e3 + decode)
        found["itl"] += pieces
        if length > 1:
            found["tpot"].append(decode / (length - 1))
    return found


def _numbers(values: Sequence[Any]) -> list[float]:
    return [number(v) or 0.0 for v in values]
