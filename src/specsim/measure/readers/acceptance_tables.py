"""Acceptance alone, measured by somebody: tables by draft length, logs per token, profiles.

- InferenceX golden acceptance: YAML, model -> variant -> num_speculative_tokens: length.
- SpecDecode-Bench: JSON lines, one per request, whose `acc_<method>` lists say for each output
  token how many drafted tokens would have been accepted from there.
- Speculation profiles (NVIDIA Model-Optimizer and the like): JSON that names an acceptance length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from specsim.catalog.yaml_text import load_yaml
from specsim.measure.readers.numbers import count, number
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import MeasuredAcceptance, Measurement

FORMAT = "acceptance_table"

MAX_DEPTH = 64
"""Longest list per position that is kept."""

_GOLDEN = re.compile(r"golden.AL|acceptance length", re.IGNORECASE)
_GOLDEN_ROW = re.compile(r"^\s+[1-9]\d?:\s*\d+(?:\.\d+)?\s*(?:#.*)?$", re.MULTILINE)
_PER_TOKEN = re.compile(r'"acc_\w+"\s*:\s*\[\s*(?:\d|\])')
_PROFILE_NAME = "speculation_profile"
_LENGTHS = ("acceptance_length", "mean_acceptance_length", "average_acceptance_length")
_RATES = ("draft_acceptance_rate", "acceptance_rate")
_POSITIONS = ("per_position_acceptance_rates", "per_position_acceptance_rate", "per_position")
_DEPTHS = ("num_speculative_tokens", "num_spec_tokens", "draft_length")
_RUN = re.compile(r'"(?:\w*duration\w*|completed|\w*throughput\w*|\w*latency\w*|ttft\w*)"\s*:')
_PROFILE = re.compile(rf'"(?:{"|".join(_LENGTHS)})"\s*:')

_MEASURED_ON = re.compile(
    r"Measured on (\S+) \(([^,)]+), (\w+) ([\w.-]+)(?:, draft: ([^)\s]+))?\)", re.IGNORECASE
)
_DATASET = re.compile(r"dataset: ([^|\n]+)")
_ARTIFICIAL = re.compile(r"random|repeat|synthetic", re.IGNORECASE)


def recognises(source: Source) -> bool:
    """Whether this is one of the tables; benchmark results have latencies and are none."""
    head = source.head
    if source.looks_like_json:
        if _PER_TOKEN.search(head) or _PROFILE_NAME in source.path.name:
            return True
        return _PROFILE.search(head) is not None and _RUN.search(head) is None
    return _GOLDEN.search(head) is not None and _GOLDEN_ROW.search(head) is not None


def read(source: Source) -> list[Measurement]:
    """Return a row per model, variant and draft length.

    Raises
    ------
    Foreign
        Recognised, but without an acceptance length.
    """
    if not source.looks_like_json:
        rows = list(_golden(source))
    elif _PER_TOKEN.search(source.head):
        rows = list(_per_token(source))
    else:
        rows = list(_profiles(source))
    if not rows:
        raise Foreign("looks like acceptance, but no acceptance length was found in it")
    return rows


def _golden(source: Source) -> Iterator[Measurement]:
    """Read InferenceX's table; who measured it stands in its comments."""
    text = source.text()
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    document = load_yaml(text, what="the table")
    if not isinstance(document, Mapping):
        return
    measured = _MEASURED_ON.search(comments)
    dataset = found[1].strip() if (found := _DATASET.search(comments)) else None
    for path, table in _tables(document, ()):
        for k, length in table.items():
            depth, value = count(k), number(length)
            if not depth or value is None or not 1 <= value <= depth + 1:
                continue
            yield _row(
                source,
                f"{' '.join(path)} k={depth}",
                acceptance=_of_length(value, depth),
                k=depth,
                model=path[0] if path else None,
                method=measured[4].lower() if measured else None,
                drafter=measured[5] if measured else None,
                accelerator=measured[2] if measured else None,
                engine=measured[3].lower() if measured else None,
                metadata={"variant": " ".join(path[1:]), "dataset": dataset},
            )


def _tables(
    node: Mapping[Any, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[Any, Any]]]:
    """Yield the mappings from draft length to acceptance length, with the names above them."""
    if node and all(isinstance(key, int) for key in node):
        yield path, node
        return
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _tables(value, (*path, str(key)))


def _per_token(source: Source) -> Iterator[Measurement]:
    """Count, per method, how many tokens had at least 1, 2, 3 ... accepted after them."""
    counts: dict[str, list[int]] = {}
    for request in source.documents:
        if not isinstance(request, Mapping):
            continue
        for key, spans in request.items():
            if not str(key).startswith("acc_") or not isinstance(spans, list):
                continue
            histogram = counts.setdefault(str(key).removeprefix("acc_"), [0] * (MAX_DEPTH + 1))
            for span in spans:
                if (n := count(span)) is not None and n >= 0:
                    histogram[min(n, MAX_DEPTH)] += 1
    for method, histogram in counts.items():
        tokens = sum(histogram)
        depth = max((n for n, times in enumerate(histogram) if times), default=0)
        if not tokens or not depth:
            continue
        at_least = [sum(histogram[j:]) for j in range(1, depth + 1)]
        yield _row(
            source,
            method,
            acceptance=MeasuredAcceptance(
                acceptance_length=1 + sum(at_least) / tokens,
                draft_acceptance_rate=sum(at_least) / (tokens * depth),
                per_position=tuple(n / tokens for n in at_least),
                drafts=tokens,
                draft_tokens=tokens * depth,
                accepted_tokens=sum(at_least),
            ),
            k=depth,
            method=method,
            warnings=(
                "every output token is counted as the start of a step, and k is the longest span "
                "in the file",
            ),
        )


def _profiles(source: Source) -> Iterator[Measurement]:
    """Read JSON that names an acceptance length, at the top or one or two levels below."""
    for document in source.documents:
        for path, entry in _objects(document, (), 3):
            length = _first(entry, _LENGTHS)
            if length is None or length < 1:
                continue
            positions = next((v for p in _POSITIONS if isinstance(v := entry.get(p), list)), [])
            rates = tuple(r for v in positions if (r := number(v)) is not None)
            k = count(_first(entry, _DEPTHS)) or len(rates) or None
            rate = _first(entry, _RATES)
            yield _row(
                source,
                " ".join(path),
                acceptance=MeasuredAcceptance(
                    acceptance_length=length,
                    draft_acceptance_rate=(length - 1) / k if k else rate,
                    per_position=rates or None,
                    drafts=None,
                    draft_tokens=None,
                    accepted_tokens=None,
                ),
                k=k,
                method=_text(entry, "method", "speculation_method", "mode"),
                model=_text(entry, "model", "model_id", "target_model"),
                drafter=_text(entry, "draft_model", "drafter"),
                metadata={"dataset": _text(entry, "dataset", "dataset_name")},
            )


def _objects(
    node: Any, path: tuple[str, ...], levels: int
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if isinstance(node, Mapping):
        yield path, node
        inner: Iterator[tuple[Any, Any]] = iter(node.items())
    elif isinstance(node, list):
        inner = iter(enumerate(node, start=1))
    else:
        return
    if levels:
        for key, value in inner:
            yield from _objects(value, (*path, str(key)), levels - 1)


def _of_length(length: float, k: int) -> MeasuredAcceptance:
    return MeasuredAcceptance(
        acceptance_length=length,
        draft_acceptance_rate=(length - 1) / k,
        per_position=None,
        drafts=None,
        draft_tokens=None,
        accepted_tokens=None,
    )


def _row(
    source: Source,
    part: str,
    *,
    acceptance: MeasuredAcceptance,
    k: int | None,
    method: str | None = None,
    model: str | None = None,
    drafter: str | None = None,
    accelerator: str | None = None,
    engine: str | None = None,
    metadata: Mapping[str, str | None] | None = None,
    warnings: tuple[str, ...] = (),
) -> Measurement:
    said = {key: value for key, value in (metadata or {}).items() if value}
    dataset = said.get("dataset", source.path.name)
    if _ARTIFICIAL.search(dataset):
        warnings += (f"artificial text ({dataset}): acceptance of real traffic is another",)
    return Measurement(
        source=f"{source.name} [{part}]" if part else source.name,
        format=FORMAT,
        arm="on",
        arm_from="metadata",
        method=method,
        num_speculative_tokens=k,
        model=model,
        drafter=drafter,
        accelerator=accelerator,
        engine=engine,
        acceptance=acceptance,
        metadata=said,
        warnings=warnings,
    )


def _first(entry: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    return next((v for name in names if (v := number(entry.get(name))) is not None), None)


def _text(entry: Mapping[str, Any], *names: str) -> str | None:
    return next((v for name in names if isinstance(v := entry.get(name), str) and v), None)
