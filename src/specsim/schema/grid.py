"""What a sweep varies, and what it says of each point of its grid."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from pydantic import BaseModel

from specsim.schema.results import says
from specsim.schema.scenario import Scenario


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
    kv_tokens_off: int = says("tokens that the cache holds, off", "tokens")
    kv_tokens_on: int = says("tokens that the cache holds, on", "tokens")
    speedup: float = says("on / off: output_tok_s closed loop, tpot open loop")
    speedup_low: float = says("10th percentile; with --bands")
    speedup_high: float = says("90th percentile; with --bands")
    status: str = says("ok, unstable (an arm cannot serve the rate), infeasible or refused")
    reason: str = says("why there are no figures")


def _of_type(name: str) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(GridPoint) if f.type == name)


TEXTS, WHOLE = _of_type("str"), _of_type("int")
"""Columns of words, and of whole numbers; the others hold figures."""
BANDS = ("speedup_low", "speedup_high")


def columns(*, bands: bool) -> tuple[str, ...]:
    """Return the names of the columns beside the axes."""
    names = (field.name for field in dataclasses.fields(GridPoint))
    return tuple(name for name in names if bands or name not in BANDS)


@functools.cache
def scenario_keys() -> tuple[str, ...]:
    """Return the dotted keys of a scenario that hold a value: what an axis may vary."""
    return tuple(_keys(Scenario, ""))


def _keys(record: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in record.model_fields.items():
        inner = (field.annotation, *get_args(field.annotation))
        group = next((a for a in inner if isinstance(a, type) and issubclass(a, BaseModel)), None)
        if group is None:
            yield prefix + name
        else:
            yield from _keys(group, f"{prefix}{name}.")
