"""Dumps of /metrics (Prometheus text) of vLLM and SGLang: one, or the difference of two.

Names of samples are matched, not of families: vLLM's counters end in `_total` while their TYPE line
may not, and 0.8.5 wrote `_total_total`. Engines of one server are summed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsim.errors import InputError, MissingExtraError
from specsim.measure.readers.numbers import count, latency, number
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import ArmSource, MeasuredAcceptance, Measurement

FORMAT = "prometheus"

_HEAD = re.compile(
    r"^# TYPE [a-zA-Z_:][\w:]* (?:counter|gauge|histogram|summary|untyped|unknown)\s*$"
    r"|^(?:vllm|sglang):\w+(?:\{.*\})? [-+.\deENainf]+\s*$",
    re.MULTILINE,
)
_DELTAS = re.compile(r'"(?:spec_decode_num_\w+|generation_tokens)_delta"\s*:')
_SAMPLE = re.compile(r"(vllm|sglang):(\w+)")
_WORD = re.compile(r"(?<![a-z0-9])(before|after|pre|post|start|end)(?![a-z0-9])", re.IGNORECASE)
_BEFORE = {"after": "before", "post": "pre", "end": "start"}

# Histograms: field of Measurement -> names, newest first.
_LATENCIES = {
    "ttft_ms": ("time_to_first_token_seconds",),
    "itl_ms": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "tpot_ms": ("request_time_per_output_token_seconds",),
    "e2e_ms": ("e2e_request_latency_seconds",),
}
_CUMULATIVE = re.compile(
    r"(?:spec_decode_num_\w+|prompt_tokens|generation_tokens|num_preemptions|request_success"
    r"|\w+_sum|\w+_count)\Z"
)


@dataclass(frozen=True)
class Dump:
    """What one dump says.

    Attributes
    ----------
    engine : str
        'vllm' or 'sglang'.
    values : mapping
        Name without prefix and `_total` -> sum over engines and labels.
    per_position : mapping
        Draft position -> accepted tokens.
    success : mapping
        Reason of finishing -> requests.
    started : float or None
        Start of the process, seconds since 1970.
    """

    engine: str
    model: str | None
    values: Mapping[str, float]
    per_position: Mapping[int, float]
    success: Mapping[str, float]
    kv_tokens: int | None
    started: float | None
    engines: int


def recognises(source: Source) -> bool:
    """Whether this is Prometheus text, or differences of its counters as JSON."""
    pattern = _DELTAS if source.looks_like_json else _HEAD
    return pattern.search(source.head) is not None


def read(source: Source) -> list[Measurement]:
    """Return what the server has counted since it started."""
    if source.looks_like_json:
        return [_snapshot(source)]
    dump = parse(source)
    return [
        _row(
            dump,
            source.name,
            "counters since the server started: warm-up and other traffic are in them",
        )
    ]


def pair_up(paths: Iterable[Path]) -> list[tuple[Path, Path]]:
    """Return dumps before and after one run: same folder, names equal but for that word.

    Examples
    --------
    >>> pair_up([Path("c4.after.prom"), Path("c4.before.prom"), Path("c8.before.prom")])
    [(PosixPath('c4.before.prom'), PosixPath('c4.after.prom'))]
    """
    known = {_pair_key(path): path for path in paths}
    pairs = []
    for (folder, name, word), after in known.items():
        if word in _BEFORE and (before := known.get((folder, name, _BEFORE[word]))):
            pairs.append((before, after))
    return pairs


def difference(before: Source, after: Source) -> Measurement:
    """Return what happened between two dumps of one server.

    Raises
    ------
    Foreign
        The server was started anew in between.
    """
    first, last = parse(before), parse(after)
    restarted = (
        first.started is not None and last.started is not None and last.started > first.started + 1
    )
    for name, value in first.values.items():
        if _CUMULATIVE.match(name) and last.values.get(name, 0.0) < value:
            restarted = True
    if restarted:
        raise Foreign(
            "counters went down or vanished between the two dumps: the server was started anew"
        )
    both = Dump(
        engine=last.engine,
        model=last.model,
        values=_minus(last.values, first.values),
        per_position=_minus(last.per_position, first.per_position),
        success=_minus(last.success, first.success),
        kv_tokens=last.kv_tokens,
        started=last.started,
        engines=last.engines,
    )
    return _row(both, f"{before.name}, {after.name}", "")


def parse(source: Source) -> Dump:
    """Parse a dump.

    Raises
    ------
    Foreign
        No metrics of vLLM or SGLang.
    InputError
        Broken or truncated.
    MissingExtraError
        prometheus_client is not installed.
    """
    # A dict keeps the last of equal samples: of scrapes one after another, the newest counts.
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for name, labels, value in _samples(source.text()):
        samples[name, frozenset(labels.items())] = value
    started = samples.get(("process_start_time_seconds", frozenset()))

    values: dict[str, float] = defaultdict(float)
    per_position: dict[int, float] = defaultdict(float)
    success: dict[str, float] = defaultdict(float)
    prefixes: set[str] = set()
    engines: set[str] = set()
    models: set[str] = set()
    caches: list[int] = []
    for (name, pairs), value in samples.items():
        found = _SAMPLE.match(name)
        if not found or name.endswith(("_created", "_bucket")):
            continue
        prefixes.add(found[1])
        labels = dict(pairs)
        base = found[2] if name.endswith(("_sum", "_count")) else _without_total(found[2])
        engines.add(labels.get("engine", labels.get("engine_id", "")))
        models |= {labels["model_name"]} if labels.get("model_name") else set()
        if base == "spec_decode_num_accepted_tokens_per_pos":
            per_position[count(labels.get("position")) or 0] += value
        elif base == "cache_config_info":
            if size := count(labels.get("kv_cache_size_tokens")):
                caches.append(size)
            continue
        elif base == "max_total_num_tokens":  # SGLang's name of the cache's size
            caches.append(round(value))
        elif base == "request_success":
            success[labels.get("finished_reason", "")] += value
        elif base == "spec_accept_length":  # a mean already
            values[base] = max(values[base], value)
            continue
        values[base] += value
    if not prefixes:
        raise Foreign("Prometheus text without metrics of vLLM or SGLang")
    return Dump(
        engine="vllm" if "vllm" in prefixes else "sglang",
        model=models.pop() if len(models) == 1 else None,
        values=values,
        per_position=per_position,
        success=success,
        # Engines of one server are replicas; each has a cache of its own.
        kv_tokens=min(caches, default=None),
        started=started,
        engines=len(engines - {""}),
    )


def _samples(text: str) -> Iterable[tuple[str, dict[str, str], float]]:
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        raise MissingExtraError(
            "reading /metrics needs prometheus-client: pip install 'specsim-llm[measure]'"
        ) from error
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if (value := number(sample.value)) is not None:
                    yield sample.name, sample.labels, value
    except (ValueError, KeyError, IndexError) as error:
        reason = " ".join(str(error).split())[:120] or "a line that is no metric"
        raise InputError(f"is broken or truncated: {reason}") from error


def _row(dump: Dump, name: str, since_start: str) -> Measurement:
    """Build a row; `since_start` is the warning of a single dump, '' for a difference."""
    values = dump.values
    acceptance = _acceptance(values, dump.per_position)
    registered = "spec_decode_num_drafts" in values
    arm_from: ArmSource = "metrics"
    arm: Any = "unknown"
    warnings = [since_start] if since_start else []
    if registered:
        arm = "on"
        if not since_start and acceptance:
            arm_from = "counters"
        if not values["spec_decode_num_drafts"]:
            warnings.append("speculation is configured but nothing was drafted")
    elif values.get("spec_accept_length"):
        arm = "on"  # SGLang: zero, or absent, without speculation
        length = values["spec_accept_length"]
        acceptance = MeasuredAcceptance(length, None, None, None, None, None)
        warnings.append("SGLang's acceptance length is that of its latest batches only")
    elif {"num_requests_running", "generation_tokens"} <= values.keys() and dump.engine == "vllm":
        arm = "off"  # the counters exist only where speculation is configured
    else:
        arm_from = ""
    done = sum(dump.success.get(reason, 0) for reason in ("stop", "length", "repetition"))
    failed = sum(dump.success.get(reason, 0) for reason in ("abort", "error"))
    # The latencies of a server's life mix every load it was under: no figure of a run.
    latencies = {} if since_start else _latencies(values)
    step = "itl_ms" in latencies
    return Measurement(
        source=name,
        format=FORMAT,
        arm=arm,
        arm_from=arm_from,
        num_speculative_tokens=len(dump.per_position) or None,
        model=dump.model,
        engine=dump.engine,
        completed=round(done) if dump.success else None,
        failed=round(failed) if dump.success else None,
        input_tokens=_mean(values, "request_prompt_tokens"),
        output_tokens=_mean(values, "request_generation_tokens"),
        itl_of="" if not step else "step" if dump.engine == "vllm" else "token",
        acceptance=acceptance,
        kv_tokens=dump.kv_tokens,
        metadata=_metadata(dump),
        warnings=tuple(warnings),
        **latencies,
    )


def _acceptance(
    values: Mapping[str, float], per_position: Mapping[int, float]
) -> MeasuredAcceptance | None:
    drafts = values.get("spec_decode_num_drafts", 0.0)
    if drafts <= 0:
        return None
    drafted = values.get("spec_decode_num_draft_tokens", 0.0)
    accepted = values.get("spec_decode_num_accepted_tokens", 0.0)
    return MeasuredAcceptance(
        acceptance_length=1 + accepted / drafts,
        draft_acceptance_rate=accepted / drafted if drafted else None,
        per_position=tuple(per_position[p] / drafts for p in sorted(per_position)) or None,
        drafts=round(drafts),
        draft_tokens=round(drafted),
        accepted_tokens=round(accepted),
    )


def _latencies(values: Mapping[str, float]) -> dict[str, Any]:
    found = {}
    for field, names in _LATENCIES.items():
        means = [m for name in names if (m := _mean(values, name)) is not None]
        if means:
            found[field] = latency({"mean": means[0]}, {"mean": "mean"}, to_ms=1e3)
    return found


def _mean(values: Mapping[str, float], histogram: str) -> float | None:
    n = values.get(f"{histogram}_count", 0.0)
    return values.get(f"{histogram}_sum", 0.0) / n if n > 0 else None


def _metadata(dump: Dump) -> dict[str, str]:
    names = ("prompt_tokens", "generation_tokens", "num_preemptions")
    found = {name: f"{dump.values[name]:.0f}" for name in names if name in dump.values}
    return found | ({"engines": str(dump.engines)} if dump.engines > 1 else {})


def _snapshot(source: Source) -> Measurement:
    """Read differences that somebody's harness has taken already."""
    document = source.document
    if not isinstance(document, dict):
        raise Foreign("differences of counters, but not as one JSON object")
    values = {
        key.removesuffix("_delta"): found
        for key, value in document.items()
        if key.endswith("_delta") and (found := number(value)) is not None
    }
    dump = Dump("vllm", None, values, {}, {}, None, None, 1)
    return _row(dump, source.name, "")


def _minus(last: Mapping[Any, float], first: Mapping[Any, float]) -> dict[Any, float]:
    return {key: value - first.get(key, 0.0) for key, value in last.items()}


def _without_total(name: str) -> str:
    while name.endswith("_total"):
        name = name.removesuffix("_total")
    return name


def _pair_key(path: Path) -> tuple[Path, str, str]:
    """Return folder, name with a mark for the word, and the word ('' if there is none)."""
    words = list(_WORD.finditer(path.name))
    if not words:
        return path.parent, path.name, ""
    at = words[-1]
    return path.parent, f"{path.name[: at.start()]}\0{path.name[at.end() :]}", at[1].lower()
