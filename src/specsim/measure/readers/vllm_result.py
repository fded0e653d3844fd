"""A result of `vllm bench serve`, under the keys of its JSON, as a row.

Its JSON files, the console table and what harnesses make of that table state the same quantities;
the readers of each bring them under these keys, and this module holds what the quantities mean.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from specsim.measure.readers.numbers import count, number
from specsim.measure.readers.vllm_requests import answer_spread, items, latencies
from specsim.measure.source import Foreign
from specsim.schema.measurement import ArmSource, Latency, MeasuredAcceptance, Measurement

TOKENS_PER_STEP_TOLERANCE = 0.25
"""How far gaps and counters may disagree; request weighting alone moves them by a few per cent."""
WHOLE_K_TOLERANCE = 0.05
"""Steps near the end of an answer draft less, so draft tokens per draft fall a little below k."""

_LATENCY_KEY = re.compile(r"(mean|median|std|p[\d.]+)_(ttft|tpot|itl|e2el)_ms")
_IN_THE_ROW = frozenset(
    "date model_id num_prompts request_rate max_concurrency duration completed failed "
    "total_input_tokens total_output_tokens request_throughput output_throughput "
    "spec_decode_acceptance_rate spec_decode_acceptance_length spec_decode_num_drafts "
    "spec_decode_draft_tokens spec_decode_accepted_tokens "
    # of no use: sums of the above, a second name of the backend, peaks of one-second buckets that
    # count streamed pieces
    "endpoint_type total_token_throughput input_throughput rtfx max_output_tokens_per_s "
    "max_concurrent_requests".split()
)


def measurements(
    results: Iterable[Mapping[str, Any]],
    *,
    name: str,
    format: str,
    itl_of: Literal["step", "token"] = "step",
) -> list[Measurement]:
    """Return the rows of the results that one file holds.

    Parameters
    ----------
    results : iterable of mapping
        Keys of the JSON of `vllm bench serve`; all but `completed` may be absent.
    name : str
        What the file is called; several results become name#1, name#2 ...
    format : str
        What it was read as.
    itl_of : 'step' or 'token'
        What a gap between streamed pieces is of.

    Raises
    ------
    Foreign
        None of the results can be used; the reason is that of the first.
    """
    found = list(results)
    rows: list[Measurement] = []
    left_out: list[str] = []
    for number_of, values in enumerate(found, start=1):
        source = name if len(found) == 1 else f"{name}#{number_of}"
        try:
            rows.append(_measurement(values, source, format, itl_of))
        except Foreign as reason:
            left_out.append(str(reason) if len(found) == 1 else f"result {number_of}: {reason}")
    if not rows:
        raise Foreign(left_out[0] if left_out else "holds no result")
    if left_out:
        # Rows are all that a reader returns, so the first carries what became of its neighbours.
        warnings = (*rows[0].warnings, *(f"left out of this file: {text}" for text in left_out))
        rows[0] = dataclasses.replace(rows[0], warnings=warnings)
    return rows


def _measurement(
    values: Mapping[str, Any], source: str, format: str, itl_of: Literal["step", "token"]
) -> Measurement:
    completed = _completed(values)
    failed = count(values.get("failed"))
    stated = _stated(values)
    acceptance = _acceptance(values)
    k, k_warnings = _draft_tokens_per_step(acceptance, _listed(values), stated)
    arm, arm_from, arm_warnings = _arm(acceptance, stated)

    latency = latencies(values)
    tpot, itl = latency["tpot"], latency["itl"]
    total_input, total_output = (
        number(values.get(f"total_{which}_tokens")) for which in ("input", "output")
    )
    spread, spread_warnings = answer_spread(values)
    concurrency = number(values.get("max_concurrency")) or number(stated.get("concurrency"))
    return Measurement(
        source=source,
        format=format,
        arm=arm,
        arm_from=arm_from,
        method=_text(stated, "method", "speculative_config.method"),
        num_speculative_tokens=None if arm == "off" else k,
        model=_text(values, "model_id"),
        drafter=_text(stated, "drafter", "draft_model", "speculative_config.model"),
        accelerator=_text(stated, "accelerator", "gpu"),
        tensor_parallel_size=_count(stated, "tensor_parallel_size", "tp"),
        # The client speaks to any server; only the counters of drafts are vLLM's own.
        engine=_text(stated, "engine") or ("vllm" if acceptance else None),
        engine_version=_text(stated, "engine_version"),
        date=_iso(values.get("date")),
        repeat=_count(stated, "repeat", "run_number"),
        concurrency=concurrency,
        request_rate=number(values.get("request_rate")),
        completed=completed,
        failed=failed,
        input_tokens=number(stated.get("input_len"))
        if total_input is None
        else total_input / completed,
        output_tokens=number(stated.get("output_len"))
        if total_output is None
        else total_output / completed,
        output_tokens_std=spread,
        duration_s=number(values.get("duration")),
        output_tok_s=number(values.get("output_throughput")),
        request_per_s=number(values.get("request_throughput")),
        tpot_ms=tpot,
        itl_ms=itl,
        itl_of=itl_of if itl else "",
        ttft_ms=latency["ttft"],
        e2e_ms=latency["e2el"],
        acceptance=acceptance,
        metadata=_metadata(values),
        warnings=(
            *_failures(values, completed, failed),
            *arm_warnings,
            *k_warnings,
            *(_steps(itl, tpot, acceptance) if itl_of == "step" else ()),
            *_load(values, completed, concurrency),
            *spread_warnings,
        ),
    )


def _completed(values: Mapping[str, Any]) -> int:
    """Return the number of answered requests, or say why there is nothing to learn."""
    if "total_input_sequences" in values or "input_sequence_throughput" in values:
        raise Foreign("is a run of an embedding or pooling model: nothing is generated")
    if any(key.startswith("diffusion_") for key in values):
        raise Foreign("is a run of a diffusion language model: its steps are no speculation")
    if count(values.get("run_number")) == -1:
        raise Foreign("is the warm-up of a sweep")
    completed = count(values.get("completed"))
    if completed is None:
        raise Foreign("does not say how many requests were answered")
    if completed <= 0:
        n = count(values.get("failed")) or count(values.get("num_prompts")) or 0
        raise Foreign(f"all {n} requests failed{_first_error(values)}")
    return completed


def _failures(values: Mapping[str, Any], completed: int, failed: int | None) -> Iterator[str]:
    if failed:
        yield f"{failed} of {completed + failed} requests failed{_first_error(values)}"


def _first_error(values: Mapping[str, Any]) -> str:
    """Return ': ' and the first error; '' where the file has none."""
    listed = [*items(values.get("errors")), *items(values.get("failed_requests"))]
    texts = (str(e.get("error", "")) if isinstance(e, dict) else str(e) for e in listed if e)
    # The last line of a traceback is the one that says what happened.
    lines = (line for text in texts if (line := text.strip().rsplit("\n", 1)[-1].strip()))
    return next((f": {line[:200]}" for line in lines), "")


def _stated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the keys say that a user or a sweep added, under one spelling.

    `speculative_config` may be dotted keys, an object, or its JSON text.
    """
    stated: dict[str, Any] = {}
    for key, value in values.items():
        plain = key.replace("-", "_").lower()
        if plain == "speculative_config":
            stated |= {f"{plain}.{k}": v for k, v in _object(value).items()}
        else:
            stated.setdefault(plain, value)
    return stated


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _text(values: Mapping[str, Any], *keys: str) -> str | None:
    texts = (values.get(key) for key in keys)
    return next((str(t) for t in texts if isinstance(t, str | int | float) and t != ""), None)


def _count(values: Mapping[str, Any], *keys: str) -> int | None:
    return next((n for key in keys if (n := count(values.get(key))) is not None), None)


def _arm(
    acceptance: MeasuredAcceptance | None, stated: Mapping[str, Any]
) -> tuple[Literal["off", "on", "unknown"], ArmSource, tuple[str, ...]]:
    """Return which arm it is, and what says so.

    Counters are absent also where /metrics was out of reach, before vLLM 0.17, and in a tier of a
    dynamic schedule that drafts nothing: they prove 'on', never 'off'. For the same reason k = 0
    alone is no statement that the server runs without speculation.
    """
    arm = str(stated.get("arm", "")).strip().lower()
    if acceptance:
        contradiction = "metadata says off, but draft tokens were counted"
        return "on", "counters", (contradiction,) if arm == "off" else ()
    if arm == "off":
        return "off", "metadata", ()
    configured = any(key.startswith("speculative_config.") for key in stated)
    if arm == "on" or configured or (_stated_k(stated) or 0) > 0:
        nothing = "no draft token was counted: /metrics was out of reach, or nothing was drafted"
        return "on", "metadata", (nothing,)
    return "unknown", "", ()


def _stated_k(stated: Mapping[str, Any]) -> int | None:
    return _count(
        stated, "k", "num_speculative_tokens", "speculative_config.num_speculative_tokens"
    )


def _acceptance(values: Mapping[str, Any]) -> MeasuredAcceptance | None:
    drafts, draft_tokens, accepted = (
        count(values.get(f"spec_decode_{which}"))
        for which in ("num_drafts", "draft_tokens", "accepted_tokens")
    )
    percent = number(values.get("spec_decode_acceptance_rate"))
    length = number(values.get("spec_decode_acceptance_length"))
    if draft_tokens == 0 or not any((drafts, draft_tokens, percent, length)):
        return None
    rate = None if percent is None else percent / 100
    if draft_tokens and accepted is not None:
        rate = accepted / draft_tokens
    if drafts and accepted is not None:
        length = 1 + accepted / drafts
    listed = _listed(values)
    k = _whole_k(drafts, draft_tokens)
    if k and not any(listed[k:]):
        listed = listed[:k]  # The Rust client lists the configured k, not the scheduled one.
    return MeasuredAcceptance(
        acceptance_length=length or None,
        draft_acceptance_rate=rate,
        per_position=listed or None,
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted_tokens=accepted,
    )


def _listed(values: Mapping[str, Any]) -> tuple[float, ...]:
    listed = [number(v) for v in items(values.get("spec_decode_per_position_acceptance_rates"))]
    return tuple(v for v in listed if v is not None)


def _whole_k(drafts: int | None, draft_tokens: int | None) -> int | None:
    """Return draft tokens per step where all steps drafted as many."""
    if not drafts or not draft_tokens:
        return None
    mean = draft_tokens / drafts
    return round(mean) if abs(mean - round(mean)) <= WHOLE_K_TOLERANCE else None


def _draft_tokens_per_step(
    acceptance: MeasuredAcceptance | None, listed: Sequence[float], stated: Mapping[str, Any]
) -> tuple[int | None, list[str]]:
    """Return k: as counted where all steps drafted alike, else as stated, else as listed."""
    said = _stated_k(stated)
    if acceptance is None or not acceptance.drafts or not acceptance.draft_tokens:
        return said or len(listed) or None, []
    k = _whole_k(acceptance.drafts, acceptance.draft_tokens)
    if k is None:
        mean = acceptance.draft_tokens / acceptance.drafts
        return said or len(listed) or None, [
            f"steps drafted {mean:.2f} tokens on average: k varied"
        ]
    if said and said != k:
        return k, [f"metadata says {said} draft tokens per step, {k} were counted"]
    return k, []


def _steps(
    itl: Latency | None, tpot: Latency | None, acceptance: MeasuredAcceptance | None
) -> Iterator[str]:
    """Compare tokens per step by the gaps with those by the counters."""
    if itl is None or tpot is None or not itl.mean or not tpot.mean:
        return
    by_gaps = itl.mean / tpot.mean
    counted = acceptance.acceptance_length if acceptance else None
    if counted is None:
        if by_gaps > 1 + TOKENS_PER_STEP_TOLERANCE:
            yield (
                f"a streamed piece holds {by_gaps:.2f} tokens, though no draft was counted: "
                "the server speculates, or streams several steps at once"
            )
    elif abs(by_gaps / counted - 1) > TOKENS_PER_STEP_TOLERANCE:
        yield (
            f"ITL / TPOT says {by_gaps:.2f} tokens per step, the counters {counted:.2f}: "
            "they cover only the steps that drafted"
        )


def _load(values: Mapping[str, Any], completed: int, concurrency: float | None) -> Iterator[str]:
    """Say where the load was not steady."""
    if concurrency and completed < 2 * concurrency:
        yield (
            f"only {completed} answered at concurrency {concurrency:g}: "
            "filling and draining are most of the run"
        )
    rate = values.get("request_rate")
    if concurrency is None and rate is not None and number(rate) is None:
        yield f"all {completed} requests were sent at once: the load falls during the run"
    if values.get("ramp_up_strategy"):
        yield "the rate of arrivals was ramped up during the run"


def _iso(date: Any) -> str | None:
    """Return an ISO date; the Python client writes 20260716-194726, the Rust client ISO."""
    try:
        return datetime.strptime(str(date), "%Y%m%d-%H%M%S").isoformat()
    except ValueError:
        pass
    try:
        return str(date) if datetime.fromisoformat(str(date)) else None
    except ValueError:
        return None


def _metadata(values: Mapping[str, Any]) -> dict[str, str]:
    """Return as text what the row has no field for, and all that users added."""
    found = {
        key.rstrip(":"): value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
        if isinstance(value, str | int | float)
        and key not in _IN_THE_ROW
        and not _LATENCY_KEY.fullmatch(key)
    }
    if isinstance(values.get("steady_state"), dict):
        found["steady_state"] = "left out: its output_throughput counts streamed pieces, not tokens"
    return found
