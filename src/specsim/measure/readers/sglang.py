"""SGLang's `bench_serving` records: one JSON object per run, appended to a .jsonl file.

Its native backend divides the gap between two streamed pieces by the tokens of the later one, so
that `itl` is **per token** and about equals `tpot` with speculation too; with vLLM's tool `itl` is
per step [1]_. `request_rate` is the JSON token Infinity where all requests are sent at once.
`accept_length` is null without speculation, but also where the server did not tell.

References
----------
.. [1] sglang 0.5.23, bench_serving.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsim.measure.readers.mapping import has_keys, inner, part_names, texts, words
from specsim.measure.readers.numbers import count, latency, number
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import (
    ArmSource,
    Latency,
    MeasuredAcceptance,
    MeasuredArm,
    Measurement,
)

FORMAT = "sglang bench_serving"

SGLANG_BACKENDS = ("sglang", "sglang-native", "sglang-oai", "sglang-oai-chat", "sglang-embedding")


def recognises(source: Source) -> bool:
    """Whether the head has the keys that only SGLang's records have together."""
    keys = ("backend", "request_rate", "sharegpt_output_len", "random_range_ratio")
    return source.looks_like_json and has_keys(source.head, *keys)


def read(source: Source) -> list[Measurement]:
    """Read every record of the file.

    Raises
    ------
    Foreign
        No record has a request that was answered.
    """
    records = [d for d in source.documents if isinstance(d, dict)]
    names = part_names(source, len(records))
    rows = [
        _row(record, name)
        for record, name in zip(records, names, strict=True)
        if number(record.get("duration")) and count(record.get("completed")) != 0
    ]
    if not rows:
        raise Foreign("holds records of SGLang's bench_serving in which no request was answered")
    return rows


def _row(record: Mapping[str, Any], name: str) -> Measurement:
    backend = words(record.get("backend")) or ""
    server = inner(record, "server_info")
    accept_length = number(record.get("accept_length"))
    arm, arm_from = _arm(server, accept_length)
    completed = count(record.get("completed"))
    itl = _latency(record, "itl")
    return Measurement(
        source=name,
        format=FORMAT,
        arm=arm,
        arm_from=arm_from,
        method=(words(server.get("speculative_algorithm")) or "").lower() or None,
        num_speculative_tokens=_depth(server) if arm == "on" else None,
        model=words(server.get("model_path")) or words(record.get("model")),
        drafter=words(server.get("speculative_draft_model_path")),
        tensor_parallel_size=count(server.get("tp_size")),
        engine="sglang" if backend in SGLANG_BACKENDS else backend or None,
        engine_version=words(server.get("version")),
        concurrency=number(record.get("max_concurrency")),
        request_rate=number(record.get("request_rate")),
        completed=completed,
        input_tokens=_per_request(record.get("total_input_tokens"), completed),
        output_tokens=_per_request(record.get("total_output_tokens"), completed),
        duration_s=number(record.get("duration")),
        output_tok_s=number(record.get("output_throughput")),
        request_per_s=number(record.get("request_throughput")),
        tpot_ms=_latency(record, "tpot"),
        itl_ms=itl,
        itl_of="" if itl is None else ("token" if backend in SGLANG_BACKENDS else "step"),
        ttft_ms=_latency(record, "ttft"),
        e2e_ms=_latency(record, "e2e_latency"),
        acceptance=None
        if accept_length is None
        else MeasuredAcceptance(
            acceptance_length=accept_length,
            draft_acceptance_rate=None,
            per_position=None,
            drafts=None,
            draft_tokens=None,
            accepted_tokens=None,
        ),
        metadata=texts(
            tag=record.get("tag"),
            dataset=record.get("dataset_name"),
            mean_request_concurrency=number(record.get("concurrency")),
            eagle_topk=count(server.get("speculative_eagle_topk")),
        ),
    )


def _arm(server: Mapping[str, Any], accept_length: float | None) -> tuple[MeasuredArm, ArmSource]:
    if accept_length is not None:
        return "on", "counters"
    if "speculative_algorithm" not in server:
        return "unknown", ""
    return ("on" if words(server["speculative_algorithm"]) else "off"), "metadata"


def _depth(server: Mapping[str, Any]) -> int | None:
    """Return vLLM's k: the steps of a chain; a tree (topk > 1) has no such number."""
    topk = count(server.get("speculative_eagle_topk"))
    if topk is not None and topk > 1:
        return None
    steps = count(server.get("speculative_num_steps"))
    if steps is not None:
        return steps
    # The width of the check counts the root, the token before the drafts.
    width = count(server.get("speculative_num_draft_tokens"))
    return None if width is None else width - 1


def _per_request(total: Any, completed: int | None) -> float | None:
    found = number(total)
    return found / completed if found is not None and completed else None


def _latency(record: Mapping[str, Any], name: str) -> Latency | None:
    names = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}
    names["std"] = "std"
    return latency(record, {field: f"{key}_{name}_ms" for field, key in names.items()})
