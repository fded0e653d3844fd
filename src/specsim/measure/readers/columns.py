"""What the columns of a hand-made table mean: field, statistic, unit, each from the heading.

Case, blanks and brackets do not count: `p99_ttft_ms`, `TTFT p99 [ms]` and specsim's own
`ttft_ms.p99` are the same. A time without a unit is never guessed: such a column is refused.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

_STATISTICS = {
    "mean": "mean",
    "avg": "mean",
    "average": "mean",
    "median": "p50",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "std": "std",
    "stddev": "std",
}
_TIME_MS = {
    "us": 1e-3,
    "ms": 1.0,
    "msec": 1.0,
    "s": 1e3,
    "sec": 1e3,
    "secs": 1e3,
    "second": 1e3,
    "seconds": 1e3,
}


LATENCIES = ("tpot_ms", "itl_ms", "ttft_ms", "e2e_ms")
_LATENCY_OF = {
    "tpot": "tpot_ms",
    "time_per_output_token": "tpot_ms",
    "itl": "itl_ms",
    "inter_token_latency": "itl_ms",
    "icl": "itl_ms",
    "inter_chunk_latency": "itl_ms",
    "step": "itl_ms",
    "step_time": "itl_ms",
    "ttft": "ttft_ms",
    "time_to_first_token": "ttft_ms",
    "e2e": "e2e_ms",
    "e2el": "e2e_ms",
    "e2e_latency": "e2e_ms",
    "request_latency": "e2e_ms",
}
_OF_A_STEP = ("icl", "inter_chunk_latency", "step", "step_time")

TEXTS = {
    "arm": ("mode", "spec", "speculation", "speculative", "spec_decode"),
    "arm_from": (),
    "method": ("spec_method", "speculative_method"),
    "model": ("model_name", "target_model"),
    "drafter": ("draft_model",),
    "accelerator": ("gpu", "hw", "hardware", "device"),
    "engine": (),
    "engine_version": ("vllm_version",),
    "date": (),
    "itl_of": (),
    "per_position": (),
    "warnings": (),
}
NUMBERS = {
    "concurrency": ("conc", "c", "max_concurrency", "users", "concurrent_requests"),
    "request_rate": ("qps", "rps", "requested_rate"),
    "num_speculative_tokens": ("k", "depth", "spec_tokens"),
    "tensor_parallel_size": ("tp", "tp_size", "tensor_parallel"),
    "repeat": ("trial", "repetition"),
    "completed": ("num_completed", "completed_requests"),
    "failed": ("num_failed", "failed_requests"),
    "input_tokens": ("isl", "prompt_tokens", "input_len", "prompt_len", "input_length"),
    "output_tokens": ("osl", "output_len", "output_length"),
    "output_tokens_std": (),
    "duration_s": ("wall_s", "elapsed_s"),
    "output_tok_s": (
        *("tok_s", "toks_s", "t_s", "tokens_s", "tok_per_s"),
        *("tokens_per_s", "tokens_per_sec", "tokens_per_second", "tokens_sec"),
        *("output_tokens_per_s", "output_tokens_per_second", "output_tokens_s"),
        *("throughput_tok_s", "throughput_tokens_s", "throughput_tokens_per_s"),
        *("output_throughput", "output_token_throughput"),
    ),
    "request_per_s": ("requests_per_s", "req_s", "throughput_req_s", "request_throughput"),
    "acceptance_length": ("accept_length", "accept_len", "acceptance_len", "al", "tau"),
    "draft_acceptance_rate": ("acceptance_rate", "accept_rate", "draft_acceptance"),
    "drafts": ("num_drafts",),
    "draft_tokens": ("num_draft_tokens",),
    "accepted_tokens": ("num_accepted_tokens",),
    "kv_tokens": ("kv_cache_tokens",),
    "weights_gib": (),
}
_FIELD_OF = {
    name: field
    for fields in (TEXTS, NUMBERS)
    for field, others in fields.items()
    for name in (field, *others)
}
_PERCENT = ("_percent", "_pct")
_SELF_EVIDENT = ("_req_s", "_requests_s", "_rps", "_tok_s", "_tokens_s", "_tokens", "_requests")
"""Units that say nothing new after a name that is known without them."""
_WITHOUT_BONUS = ("excl_bonus", "excluding_bonus", "without_bonus", "no_bonus")

PACES = ("tpot_ms", "itl_ms", "output_tok_s")
"""Fields of which a table needs one."""
LOADS = ("concurrency", "request_rate")


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Attributes
    ----------
    heading : str
        As in the table.
    field : str
        Of Measurement or MeasuredAcceptance; '' for what is none: it becomes metadata.
    statistic : str
        Of a latency.
    scale : float
        Factor to the field's unit.
    offset : float
        Added after that: 1 for accepted tokens without the bonus token.
    of_a_step : bool
        A gap that the heading calls a step.
    refused : str
        Why it cannot be used, and what to write.
    """

    heading: str
    field: str = ""
    statistic: str = "mean"
    scale: float = 1.0
    offset: float = 0.0
    of_a_step: bool = False
    refused: str = ""


def column(heading: str) -> Column:
    """Return what a heading means.

    Examples
    --------
    >>> column("p99 TTFT [s]").field, column("p99 TTFT [s]").statistic, column("TTFT [s]").scale
    ('ttft_ms', 'p99', 1000.0)
    >>> column("acceptance rate (%)").scale, column("weather").field
    (0.01, '')
    >>> column("TPOT").refused
    "column 'TPOT' has no unit: write 'TPOT (ms)' or 'TPOT (s)'"
    """
    name = re.sub(r"[^a-z0-9]+", "_", heading.lower().replace("%", " percent ").replace("µ", "u"))
    name = name.strip("_")
    field = _field(name)
    if field:
        return Column(heading, field)
    if name == "throughput":
        why = f"column {heading!r} has no unit: write 'throughput (tok/s)'"
        return Column(heading, "output_tok_s", refused=why)
    if name.endswith(_PERCENT) and _field(_without(name, _PERCENT)) == "draft_acceptance_rate":
        return Column(heading, "draft_acceptance_rate", scale=0.01)
    if "accepted_per_step" in name and any(words in name for words in _WITHOUT_BONUS):
        return Column(heading, "acceptance_length", offset=1.0)
    parts = name.split("_")
    statistic = next((_STATISTICS[p] for p in parts if p in _STATISTICS), "mean")
    rest = "_".join(p for p in parts if p not in _STATISTICS)
    found = _latency(heading, rest, statistic)
    if found is None and rest != name and statistic == "mean":
        return dataclasses.replace(column(rest), heading=heading)
    return found or Column(heading)


def _field(name: str) -> str:
    candidates = (name, _without(name, _SELF_EVIDENT), name.removeprefix("acceptance_"))
    return next((_FIELD_OF[c] for c in candidates if c in _FIELD_OF), "")


def _without(name: str, endings: tuple[str, ...]) -> str:
    ending = next((e for e in endings if name.endswith(e)), "")
    return name.removesuffix(ending)


def _latency(heading: str, name: str, statistic: str) -> Column | None:
    base, _, unit = name.rpartition("_")
    if base in _LATENCY_OF and unit in _TIME_MS:
        return Column(
            heading,
            _LATENCY_OF[base],
            statistic,
            scale=_TIME_MS[unit],
            of_a_step=base in _OF_A_STEP,
        )
    # A bare 'step' is a number of steps, not their time.
    if name not in _LATENCY_OF or name == "step":
        return None
    why = f"column {heading!r} has no unit: write '{heading} (ms)' or '{heading} (s)'"
    return Column(heading, _LATENCY_OF[name], statistic, refused=why)
