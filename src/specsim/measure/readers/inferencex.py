"""InferenceX's results, as a file per run or one list of all: latencies in seconds.

Its post-processing strips `_ms` from the names of vLLM's benchmark and divides by 1000, so
`median_tpot` is in **seconds**; `median_intvty` is 1 / `median_tpot`. Throughput is per GPU: of one
node, or of those that decode where prefill is apart.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from specsim.measure.readers.mapping import has_keys, part_names, texts, words
from specsim.measure.readers.numbers import count, latency, number
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import ArmSource, Latency, MeasuredArm, Measurement

FORMAT = "inferencex"

_STATISTICS = {
    "mean": "mean",
    "p50": "median",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "std": "std",
}


def recognises(source: Source) -> bool:
    """Whether the head has throughput per GPU, or vLLM's latencies without their unit."""
    return source.looks_like_json and (
        has_keys(source.head, "tput_per_gpu", "hw")
        or has_keys(source.head, "median_ttft", "median_tpot")
    )


def read(source: Source) -> list[Measurement]:
    """Read every result of the file.

    Raises
    ------
    Foreign
        No result has a latency or a throughput.
    """
    found = [r for d in source.documents for r in (d if isinstance(d, list) else [d])]
    results = [r for r in found if isinstance(r, dict)]
    names = part_names(source, len(results))
    rows = [_row(result, name) for result, name in zip(results, names, strict=True)]
    usable = [r for r in rows if r.tpot_ms or r.itl_ms or r.output_tok_s is not None]
    if not usable:
        raise Foreign("is a result of InferenceX without latency or throughput of tokens")
    return usable


def _row(result: Mapping[str, Any], name: str) -> Measurement:
    spec = (words(result.get("spec_decoding")) or "").lower()
    arm, arm_from = _arm(spec)
    completed = count(result.get("completed"))
    output_tok_s, warnings = _output_tok_s(result)
    itl = _latency(result, "itl")
    concurrency = number(result.get("conc"))
    return Measurement(
        source=name,
        format=FORMAT,
        arm=arm,
        arm_from=arm_from,
        method=spec if arm == "on" else None,
        model=words(result.get("model")) or words(result.get("model_id")),
        accelerator=words(result.get("hw")),
        tensor_parallel_size=count(result.get("tp")),
        engine=words(result.get("framework")),
        date=_date(words(result.get("date"))),
        concurrency=number(result.get("max_concurrency")) if concurrency is None else concurrency,
        request_rate=number(result.get("request_rate")),
        completed=completed,
        input_tokens=_length(result, "isl", "total_input_tokens", completed),
        output_tokens=_length(result, "osl", "total_output_tokens", completed),
        duration_s=number(result.get("duration")),
        output_tok_s=output_tok_s,
        request_per_s=number(result.get("request_throughput")),
        tpot_ms=_tpot(result),
        itl_ms=itl,
        itl_of="" if itl is None else "step",
        ttft_ms=_latency(result, "ttft"),
        e2e_ms=_latency(result, "e2el"),
        metadata=texts(
            image=result.get("image"),
            precision=result.get("precision"),
            ep=result.get("ep"),
            dp_attention=result.get("dp_attention"),
            disagg=result.get("disagg"),
            tput_per_gpu=number(result.get("tput_per_gpu")),
        ),
        warnings=warnings,
    )


def _date(stamp: str | None) -> str | None:
    """Return the ISO form of vLLM's 20260213-075844; what is no such stamp as it is."""
    try:
        return datetime.datetime.strptime(stamp or "", "%Y%m%d-%H%M%S").isoformat()
    except ValueError:
        return stamp


def _arm(spec: str) -> tuple[MeasuredArm, ArmSource]:
    if not spec:
        return "unknown", ""
    return ("off" if spec in ("none", "off", "false") else "on"), "metadata"


def _latency(result: Mapping[str, Any], name: str) -> Latency | None:
    names = {field: f"{key}_{name}" for field, key in _STATISTICS.items()}
    return latency(result, names, to_ms=1000.0)


def _tpot(result: Mapping[str, Any]) -> Latency | None:
    found = _latency(result, "tpot")
    if found is not None:
        return found
    # Each interactivity is 1 / TPOT of the same statistic, except for the spread.
    seconds = {
        field: 1 / value
        for field, key in _STATISTICS.items()
        if field != "std" and (value := number(result.get(f"{key}_intvty")))
    }
    return latency(seconds, {field: field for field in _STATISTICS}, to_ms=1000.0)


def _length(
    result: Mapping[str, Any], name: str, total: str, completed: int | None
) -> float | None:
    tokens = number(result.get(total))
    if tokens is not None and completed:
        return tokens / completed
    return number(result.get(name))


def _output_tok_s(result: Mapping[str, Any]) -> tuple[float | None, tuple[str, ...]]:
    stated = number(result.get("output_throughput"))
    if stated is not None:
        return stated, ()
    per_gpu = number(result.get("output_tput_per_gpu"))
    if per_gpu is None:
        return None, ("output tokens per second are not stated",)
    gpus = number(result.get("num_decode_gpu"))
    if gpus is None and not result.get("is_multinode") and not result.get("disagg"):
        gpus = number(result.get("tp"))
    if not gpus:
        return None, (
            f"{per_gpu:.4g} output tokens/s per GPU, and the number of GPUs is not known",
        )
    return per_gpu * gpus, ()
