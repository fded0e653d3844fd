"""JSON that a harness makes of console tables: a list of loads, each with its metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from specsim.measure.readers.numbers import count, number
from specsim.measure.readers.vllm_result import measurements
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Measurement

FORMAT = "harness of vllm bench serve"

_KEYS = ("concurrency", "metrics", "benchmark_duration_s", "output_token_throughput_tok_s")
# Key of the harness -> key of the JSON of `vllm bench serve`.
_NAMES = {
    "successful_requests": "completed",
    "failed_requests": "failed",
    "benchmark_duration_s": "duration",
    "total_generated_tokens": "total_output_tokens",
    "request_throughput_req_s": "request_throughput",
    "output_token_throughput_tok_s": "output_throughput",
    "spec_acceptance_rate_percent": "spec_decode_acceptance_rate",
    "spec_acceptance_length": "spec_decode_acceptance_length",
    "spec_drafts": "spec_decode_num_drafts",
    "spec_draft_tokens": "spec_decode_draft_tokens",
    "spec_accepted_tokens": "spec_decode_accepted_tokens",
}


def recognises(source: Source) -> bool:
    """Say whether it has the keys of such a list."""
    return source.looks_like_json and all(re.search(rf'"{key}"\s*:', source.head) for key in _KEYS)


def read(source: Source) -> list[Measurement]:
    """Return a row per load.

    Raises
    ------
    Foreign
        No load has an answered request.
    """
    found = source.document
    loads = [load for load in found if isinstance(load, dict)] if isinstance(found, list) else []
    if not loads:
        raise Foreign("holds the keys of a harness of vllm bench serve, but no list of loads")
    return measurements([_result(load) for load in loads], name=source.name, format=FORMAT)


def _result(load: Mapping[str, Any]) -> dict[str, Any]:
    """Return one load under the keys of the JSON of `vllm bench serve`."""
    metrics = load.get("metrics")
    stated: dict[str, Any] = metrics if isinstance(metrics, dict) else {}
    result: dict[str, Any] = {_NAMES.get(key, key): value for key, value in stated.items()}
    percent = result.pop("spec_per_position_acceptance_percent", None)
    if isinstance(percent, list):
        shares = [p / 100 for v in percent if (p := number(v)) is not None]
        result["spec_decode_per_position_acceptance_rates"] = shares
    result["max_concurrency"] = load.get("concurrency")
    # A load that failed has no metrics; its detail says why.
    result.setdefault("completed", 0)
    command = load.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    result["model_id"] = _option(words, "--model")
    result["num_prompts"] = _option(words, "--num-prompts")
    asked = count(result["num_prompts"])
    completed = count(result["completed"]) or 0
    if "failed" not in result and asked is not None:
        result["failed"] = max(0, asked - completed)
    if result.get("failed") and isinstance(load.get("detail"), str):
        result["errors"] = [load["detail"]]
    if dataset := _option(words, "--dataset-path") or _option(words, "--dataset-name"):
        result["dataset"] = dataset
    return result


def _option(words: Sequence[str], flag: str) -> str | None:
    """Return the value of a flag of a command line, written as one word or two."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == flag:
            return following or None
        if word.startswith(f"{flag}="):
            return word.split("=", 1)[1]
    return None
