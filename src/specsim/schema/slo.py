"""Service-level objectives: what a served request, and the mass of them, is promised.

Words as in the field (vLLM, guidellm): `ttft` time to first token, queueing included; `tpot` time
per output token after the first; `itl` gap between streamed chunks; `e2e` time to the last token.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar, get_args

from pydantic import Field, field_validator, model_validator

from specsim.errors import InputError, UsageError, nearest
from specsim.schema.base import Record
from specsim.schema.scenario import MOST_REQUESTS
from specsim.units import MILLI

Metric = Literal["ttft", "tpot", "itl", "e2e"]

METRICS: tuple[Metric, ...] = get_args(Metric)
_BY_NAME: dict[str, Metric] = {**{metric: metric for metric in METRICS}, "e2el": "e2e"}
"""Metrics by the names that people write; vLLM says e2el."""
_MS_PER: dict[str, float] = {"ms": 1.0, "s": 1.0 / MILLI}
_LEAST_MS, _MOST_MS = 1e-6, 1e12
"""Bounds of a bound: a nanosecond and thirty years."""
_SLOWEST = 10
"""A percentile of fewer slowest requests than this is noise."""
_ATTAINMENT_PCT = 99.0
"""What people promise of every request, where they do not say (guidellm's examples)."""
K = TypeVar("K", bound=str)
_SLO_FORM = "write it as ttft_p95_ms=1000, e2e_mean_s=5 or attainment_pct=99"
_GOODPUT_FORM = "write it as ttft:1000 [ms]"
_NO_GAP = (
    "a request has one gap per step and no single itl, so vLLM knows no goodput by it either; "
    "use tpot, or --slo itl_p99_ms=... over all gaps"
)


class SloTarget(Record):
    """A bound on the mean or on a percentile of a latency, over requests (itl: over gaps)."""

    metric: Metric
    statistic: str = Field(description="mean, or a percentile such as p50, p99 or p99.9")
    at_most_ms: float = Field(ge=_LEAST_MS, le=_MOST_MS, description="[ms]")

    @field_validator("statistic")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value == "mean":
            return value
        if not re.fullmatch(r"p\d{1,3}(\.\d{1,6})?", value) or not 0 < float(value[1:]) < 100:
            raise ValueError("expected mean, or a percentile above p0 and below p100 such as p99")
        return f"p{float(value[1:]):.10g}"

    @property
    def percentile(self) -> float | None:
        """The percentile, between 0 and 100; None for the mean."""
        return None if self.statistic == "mean" else float(self.statistic[1:])

    @property
    def name(self) -> str:
        """What it is called in flags and results, such as ttft_p95_ms."""
        return f"{self.metric}_{self.statistic}_ms"


class Slo(Record):
    """Service-level objectives of a deployment."""

    targets: tuple[SloTarget, ...] = ()
    goodput_ms: dict[Metric, float] = Field(
        default_factory=dict, description="bounds on every single request, as vLLM's --goodput [ms]"
    )
    attainment_pct: float | None = Field(
        default=None, gt=0, le=100,
        description="share of requests that must meet all bounds on a request; absent: 99 with "
        "--goodput, else targets alone decide",
    )  # fmt: skip

    @field_validator("goodput_ms")
    @classmethod
    def _are_bounds_on_a_request(cls, value: dict[Metric, float]) -> dict[Metric, float]:
        if "itl" in value:
            raise ValueError(_NO_GAP)
        for metric, bound in value.items():
            if not _LEAST_MS <= bound <= _MOST_MS:
                raise ValueError(f"{metric} should be from {_LEAST_MS:.6f} to {_MOST_MS:,.0f} ms")
        return value

    @model_validator(mode="after")
    def _have_one_bound_each(self) -> Slo:
        names = [target.name for target in self.targets]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"target {name} is given twice")
        return self

    @property
    def request_thresholds_ms(self) -> dict[Metric, float]:
        """What a request is judged by: `goodput_ms`, else the bound of the highest percentile.

        Half of the requests may miss a bound on the median and all be served as promised. Targets
        on itl bound gaps and say nothing of a request.
        """
        if self.goodput_ms:
            return dict(self.goodput_ms)
        rising = sorted(self.targets, key=lambda target: target.percentile or 0.0)
        return {t.metric: t.at_most_ms for t in rising if t.metric != "itl"}

    @property
    def required_attainment_pct(self) -> float | None:
        """The share of requests that must meet all bounds on one, if a share is promised."""
        if self.attainment_pct is not None:
            return self.attainment_pct
        return _ATTAINMENT_PCT if self.goodput_ms else None

    @property
    def percentiles(self) -> dict[str, float]:
        """The percentiles over requests that are promised, by name; gaps (itl) are many."""
        return {
            t.name: t.percentile
            for t in self.targets
            if t.percentile is not None and t.metric != "itl"
        }

    def is_empty(self) -> bool:
        """Return whether nothing is promised."""
        return not self.targets and not self.goodput_ms


def few_slowest(
    percentiles: Mapping[str, float], *, requests: int, replications: int = 1
) -> tuple[str, ...]:
    """Warn of percentiles that so few requests cannot tell.

    Parameters
    ----------
    percentiles : mapping
        By what each is called: ``{"ttft_p99.9_ms": 99.9}``.
    requests, replications : int
        Measured in each replication, and how many of these are taken together.
    """
    total = requests * replications
    found = []
    for name, percentile in percentiles.items():
        share = 1.0 - percentile / 100.0
        slowest = total * share
        if slowest >= _SLOWEST - 1e-6:
            continue
        needed = math.ceil(_SLOWEST / share / replications - 1e-6)
        remedy = f"give --requests {needed} or more"
        if needed > MOST_REQUESTS:
            remedy = "no run is long enough for it, take a lower percentile"
        of_them = "slowest" if slowest < 2.0 else f"{int(slowest)} slowest"
        found.append(
            f"{name} of {total:,} request{'s' if total > 1 else ''} is that of the {of_them}: "
            f"noise; {remedy}"
        )
    return tuple(found)


def parse_slo(slo: Sequence[str] = (), goodput: Sequence[str] = ()) -> Slo:
    """Read the texts of `--slo` and `--goodput`, each with one or several pairs.

    Parameters
    ----------
    slo : sequence of str
        Such as `ttft_p95_ms=1000`, `e2e_mean_s=5` or `attainment_pct=99`.
    goodput : sequence of str
        As vLLM's: `ttft:1000 tpot:50`. [ms]

    Raises
    ------
    InputError
        An unknown metric or statistic, or a value that is no bound.
    UsageError
        Two values for one objective, or two units for one value.
    """
    bounds: dict[str, float] = {}
    targets: dict[str, SloTarget] = {}
    for pair in _pairs(slo):
        name, value = _split(pair, "=", flag="--slo", form=_SLO_FORM)
        if name == "attainment_pct":
            _set_once(bounds, name, _attainment(value, pair), flag="--slo")
            continue
        target = _target(name, value, pair)
        _set_once(bounds, target.name, target.at_most_ms, flag="--slo")
        targets[target.name] = target
    goodput_ms: dict[Metric, float] = {}
    for pair in _pairs(goodput):
        name, value = _split(pair, ":", flag="--goodput", form=_GOODPUT_FORM)
        what = f"--goodput {pair}"
        metric = _metric(name, what)
        if metric == "itl":
            raise InputError(f"{what}: {_NO_GAP}")
        _set_once(goodput_ms, metric, _bound_ms(value, what), flag="--goodput")
    if "attainment_pct" in bounds and not (targets or goodput_ms):
        raise UsageError(
            "--slo attainment_pct says how many requests, and not what they must meet; add "
            "--goodput ttft:1000, or another --slo"
        )
    return Slo(
        targets=tuple(targets.values()),
        goodput_ms=goodput_ms,
        attainment_pct=bounds.get("attainment_pct"),
    )


def _pairs(texts: Sequence[str]) -> list[str]:
    return [pair for text in texts for pair in text.split()]


def _split(pair: str, sign: str, *, flag: str, form: str) -> tuple[str, str]:
    name, found, value = pair.partition(sign)
    if not found or not name or not value:
        raise InputError(f"{flag} {pair}: expected a name, {sign!r} and a value; {form}")
    return name.lower(), value


def _set_once(known: dict[K, float], name: K, value: float, *, flag: str) -> None:
    if known.setdefault(name, value) != value:
        raise UsageError(
            f"{flag} {name} is given as {known[name]:g} and as {value:g}; keep one of them"
        )


def _target(name: str, value: str, pair: str) -> SloTarget:
    """Read one bound: metric, statistic and unit from its name, the rest from its value."""
    what = f"--slo {pair}"
    first, _, rest = name.partition("_")
    metric = _metric(first, what)
    statistic, _, unit = rest.rpartition("_") if rest.endswith(("_ms", "_s")) else (rest, "", "")
    if rest in ("", *_MS_PER):
        raise InputError(
            f"{what}: says no statistic; write {metric}_p95_ms=..., {metric}_mean_ms=..., "
            f"or --goodput {metric}:... to bound every request"
        )
    own = next((u for u in _MS_PER if value.lower().endswith(u)), "")
    if unit and own and unit != own:
        raise UsageError(f"{what}: the name says {unit} and the value {own}; keep one of them")
    if not (unit or own):
        raise InputError(f"{what}: has no unit; write {name}_ms=... or {name}_s=...")
    bound_ms = _bound_ms(value[: len(value) - len(own)], what, ms_per_unit=_MS_PER[unit or own])
    try:
        return SloTarget(metric=metric, statistic=statistic, at_most_ms=bound_ms)
    except ValueError as error:
        raise InputError(
            f"{what}: statistic {statistic!r} is not known; expected mean, or a percentile above "
            f"p0 and below p100 such as {metric}_p99_ms"
        ) from error


def _metric(name: str, what: str) -> Metric:
    if name not in _BY_NAME:
        close = ", ".join(nearest(name, _BY_NAME)) or ", ".join(_BY_NAME)
        raise InputError(f"{what}: metric {name!r} is not known; nearest: {close}")
    return _BY_NAME[name]


def _positive(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise InputError(f"{what}: {text!r} is not a number; give one above 0") from error
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{what}: {text} is no bound; give a finite number above 0")
    return value


def _bound_ms(text: str, what: str, *, ms_per_unit: float = 1.0) -> float:
    value = _positive(text, what) * ms_per_unit
    if not _LEAST_MS <= value <= _MOST_MS:
        raise InputError(f"{what}: is no bound; give {_LEAST_MS:.6f} to {_MOST_MS:,.0f} ms")
    return value


def _attainment(text: str, pair: str) -> float:
    value = _positive(text, f"--slo {pair}")
    if value > 100:
        raise InputError(f"--slo {pair}: is more than all requests; give a percentage up to 100")
    if value <= 1:
        raise InputError(
            f"--slo {pair}: is in percent; write attainment_pct={100 * value:g} for that share"
        )
    return value
