"""`vllm bench serve`: its JSON (also appended, detailed, of the Rust client) and its sweeps."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from specsim.measure.readers.vllm_result import measurements
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Measurement

FORMAT = "vllm bench serve"

# SGLang writes many of the same keys, but neither a tokenizer nor burstiness. The second set is for
# files whose keys someone sorted, where detailed arrays come before the rest.
_KEYS = (
    ("tokenizer_id", "num_prompts", "request_throughput"),
    ("burstiness", "completed", "duration"),
    # What people keep of a result when they shorten it.
    ("num_prompts", "completed", "duration", "mean_tpot_ms"),
    ("max_concurrency", "completed", "mean_tpot_ms", "output_throughput", "model_id"),
)
_FAILURE_KEYS = ("error_type", "error", "serve_overrides")
# InferenceX keeps the keys but states latencies in seconds, without a suffix.
_IN_SECONDS = re.compile(r'"(mean|median)_(ttft|tpot|e2el)"\s*:')


def recognises(source: Source) -> bool:
    """Say whether it is a result, a sweep's table of results, or its note of a failed run."""
    if source.looks_like_json:
        return not _IN_SECONDS.search(source.head) and any(
            all(re.search(rf'"{key}"\s*:', source.head) for key in keys)
            for keys in (*_KEYS, _FAILURE_KEYS)
        )
    columns = source.head.split("\n", 1)[0].strip().split(",")
    return any(set(keys) <= set(columns) for keys in _KEYS)


def read(source: Source) -> list[Measurement]:
    """Return a row per run.

    Raises
    ------
    Foreign
        A run that failed, warms up or embeds, or a summary of runs that lie beside it.
    """
    if source.path.name in ("summary.json", "summary.csv") and _has_runs_beside(source):
        raise Foreign("repeats the runs beside it")
    results = list(_objects(source.documents) if source.looks_like_json else _table(source))
    if any("benchmark" in r and "metric" in r for r in results):
        raise Foreign("repeats a run in the layout of PyTorch's dashboard")
    for failure in results:
        if set(_FAILURE_KEYS) <= set(failure):
            raise Foreign(f"is a failed run: {failure['error_type']}: {failure['error']}"[:200])
    return measurements((r for r in results if "completed" in r), name=source.name, format=FORMAT)


def _has_runs_beside(source: Source) -> bool:
    """Whether a sweep's runs are in the folder, or in its folders of combinations."""
    folder = source.path.parent
    return any(any(folder.glob(pattern)) for pattern in ("run=*.json", "*/run=*.json"))


def _objects(documents: list[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        for item in document if isinstance(document, list) else [document]:
            if isinstance(item, dict):
                yield item


def _table(source: Source) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a sweep's summary.csv as objects; what is empty there was absent."""
    try:
        for row in csv.DictReader(source.lines()):
            yield {key: _cell(text) for key, text in row.items() if key and text}
    except csv.Error as error:
        raise Foreign(f"is a table that cannot be read ({error}): give the run=*.json") from error


def _cell(text: str) -> Any:
    """Return a cell; only arrays are taken apart, numbers are understood as text."""
    if not text.startswith("["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
