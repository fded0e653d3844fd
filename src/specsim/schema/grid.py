"""What a sweep says of each point of its grid: the columns beside the axes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from specsim.schema.results import says


@dataclass(frozen=True)
class GridPoint:
    """Both arms at one point; figures are empty where `status` is not 'ok'."""

    batch_off: float = says("running requests, speculation off", "requests")
    batch_on: float = says("running requests, speculation on", "requests")
    limited_by_off: str = says("what caps the batch, off")
    limited_by_on: str = says("what caps the batch, on")
    tokens_per_step: float = says("tokens that a step yields per request", "tokens")
    step_ms_off: float = says("one engine step without prefill, off", "ms")
    step_ms_on: float = says("one engine step without prefill, on", "ms")
    tpot_ms_off: float = says("time per output token, off", "ms")
    tpot_ms_on: float = says("time per output token, on", "ms")
    itl_ms_on: float = says("time between streamed chunks, on", "ms")
    ttft_ms_off: float = says("time to first token, waiting included, off", "ms")
    ttft_ms_on: float = says("time to first token, waiting included, on", "ms")
    output_tok_s_off: float = says("output tokens per second, off", "tok/s")
    output_tok_s_on: float = says("output tokens per second, on", "tok/s")
    usd_per_mtok_off: float = says("price of a million output tokens, off", "USD")
    usd_per_mtok_on: float = says("price of a million output tokens, on", "USD")
    kv_tokens_off: float = says("tokens that the cache holds, off", "tokens")
    kv_tokens_on: float = says("tokens that the cache holds, on", "tokens")
    speedup: float = says("on / off: output_tok_s closed loop, tpot open loop")
    speedup_low: float = says("10th percentile; with --bands")
    speedup_high: float = says("90th percentile; with --bands")
    status: str = says("ok, unstable (an arm cannot serve the rate), infeasible or refused")
    reason: str = says("why there are no figures")


TEXTS = ("limited_by_off", "limited_by_on", "status", "reason")
BANDS = ("speedup_low", "speedup_high")


def columns(*, bands: bool) -> tuple[str, ...]:
    """Return the names of the columns beside the axes."""
    names = (field.name for field in dataclasses.fields(GridPoint))
    return tuple(name for name in names if bands or name not in BANDS)
