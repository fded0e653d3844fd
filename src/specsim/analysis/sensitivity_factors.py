"""The factors of a sensitivity: how far each is moved, why, and what follows by the closed form.

They are moved in the deployment that is resolved already, and under the constants that it has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.analysis.acceptance import AcceptanceModel
from specsim.analysis.arms import Arm, baseline_arm
from specsim.analysis.constants import Z90, Constants
from specsim.analysis.crossover import find_crossover
from specsim.analysis.curves import pair
from specsim.analysis.overlay import Overlay, to_factor
from specsim.analysis.plan.fleet import replicas_for
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import closed_loop, open_loop
from specsim.catalog.general import load_general
from specsim.physics.cost import Num
from specsim.physics.economics import usd_per_mtok
from specsim.schema.base import Range, parse
from specsim.schema.results import Crossover
from specsim.schema.scenario import MOST_RATE
from specsim.schema.sensitivity import SensitivityPoint
from specsim.schema.traffic import Traffic

Array = npt.NDArray[np.float64]
ByArm = tuple[float | None, float | None]
"""Speculation off and on."""

_LESS, _MORE, _ASSUMED = 0.8, 1.2, "+-20 % assumed"
_PERCENTILES = "10th to 90th percentile"
_PEAK_LOW, _PEAK_HIGH = 2.0, 3.0
"""What public guides take for peak / average (`schema.traffic.PEAK_TO_AVG` lies between)."""
_MOST_PEAK_TO_AVG = 1e4
"""As `Traffic` allows."""


@dataclass(frozen=True)
class Figures:
    """What the closed form says of a deployment."""

    crossover: Crossover | None
    speedup: float | None
    output_tok_s: ByArm
    """At the load; None where an arm does not serve it. [tokens/s]"""
    stable_qps: ByArm
    """Largest stable rate of one replica. [requests/s]"""


def figures_of(deployment: Deployment, constants: Constants, load: float) -> Figures:
    """Evaluate both arms at a load, and search where speculation stops paying."""
    if deployment.method == "none":
        arm = baseline_arm(deployment, constants)
        workload = deployment.scenario.workload
        stable_qps = float(np.max(open_loop(arm, workload).largest_stable_rate))
        tok_s = _served(deployment, arm, load, stable_qps)
        return Figures(None, None, (tok_s, None), (stable_qps, None))
    arms = pair(deployment, constants)
    searched = arms.searched_loads()
    speedup = arms.speedup(np.concatenate([[load], searched]))
    loads, sharp = arms.sharpened(searched, speedup[1:])
    off_qps, on_qps = arms.largest_stable_rates()
    off = _served(deployment, arms.baseline, load, off_qps)
    on = _served(deployment, arms.speculative, load, on_qps)
    return Figures(
        crossover=find_crossover(loads, sharp, sharp[None], loads),
        speedup=None if off is None or on is None else float(speedup[0]),
        output_tok_s=(off, on),
        stable_qps=(off_qps, on_qps),
    )


def _served(deployment: Deployment, arm: Arm, load: float, stable_qps: float) -> float | None:
    """Return the output at a load; None where the arm does not serve it. [tokens/s]."""
    workload = deployment.scenario.workload
    if deployment.scenario.load.request_rate is not None:
        return load * workload.output_tokens if load <= stable_qps else None
    return float(np.max(closed_loop(arm, workload, [load]).output_tokens_per_s))


@dataclass(frozen=True)
class Study:
    """A deployment, what it is judged by, and its figures as it is."""

    deployment: Deployment
    laid: Overlay
    load: float
    figures: Figures
    traffic: Traffic | None
    usd_per_gpu_hour: float | None
    capacity_qps: ByArm | None

    def point(self, figures: Figures | None = None) -> SensitivityPoint:
        """Return what follows from figures: the deployment's own, or others."""
        figures = figures or self.figures
        usd_off, usd_on = map(self._usd_per_mtok, figures.output_tok_s)
        replicas_off, replicas_on = map(self._replicas, self._capacities(figures))
        crossover = figures.crossover
        return SensitivityPoint(
            crossover=None if crossover is None else crossover.load,
            crossover_state=None if crossover is None else crossover.state,
            speedup=figures.speedup,
            usd_per_mtok_off=usd_off,
            usd_per_mtok_on=usd_on,
            replicas_off=replicas_off,
            replicas_on=replicas_on,
        )

    def moved(
        self, deployment: Deployment | None = None, constants: Constants | None = None
    ) -> SensitivityPoint:
        """Evaluate another deployment, or other constants."""
        deployment, constants = deployment or self.deployment, constants or self.laid.point()
        return self.point(figures_of(deployment, constants, self.load))

    def _usd_per_mtok(self, tok_s: float | None) -> float | None:
        price, n_gpus = self.usd_per_gpu_hour, self.deployment.n_gpus
        if price is None or tok_s is None:
            return None
        return float(usd_per_mtok(usd_per_gpu_hour=price, n_gpus=n_gpus, tokens_per_s=tok_s))

    def _replicas(self, qps: float | None) -> int | None:
        return None if self.traffic is None or qps is None else replicas_for(self.traffic, qps)

    def _capacities(self, figures: Figures) -> Iterator[float | None]:
        """Scale what each arm holds at the SLO as its largest stable rate moves."""
        known = self.capacity_qps or self.figures.stable_qps
        for qps, before, here in zip(
            known, self.figures.stable_qps, figures.stable_qps, strict=True
        ):
            yield None if qps is None or not before or not here else qps * (here / before)


@dataclass(frozen=True)
class Factor:
    """What is moved, how far and why, and what follows."""

    id: str
    unit: str
    low: float
    base: float
    high: float
    why: str
    at: Callable[[float], SensitivityPoint]
    """Asked for other values than `base` only."""


def factors(study: Study, price_is_given: bool) -> Iterator[Factor]:
    """Return the factors that the deployment has."""
    if study.deployment.acceptance is not None:
        yield _acceptance(study, study.deployment.acceptance)
    yield from _lengths(study)
    yield _host(study)
    if study.traffic is not None:
        yield _peak(study, study.traffic)
    if study.usd_per_gpu_hour is not None:
        yield _price(study, study.usd_per_gpu_hour, price_is_given)


# Acceptance


@dataclass(frozen=True)
class _Ends(Constants):
    """The 10th and the 90th percentile of one family in place of samples of all."""

    family: str = ""

    def deviate(self, family: str) -> Num:
        """Return both ends on the axis of samples."""
        z = Z90 if family == self.family else 0.0
        return np.array([[-z], [z]])


def _acceptance(study: Study, model: AcceptanceModel) -> Factor:
    """Move the acceptance length within its own error; its parts are independent of each other.

    Without counts nobody knows that error, and other requests differ by more: then it is moved as
    far as the lengths are.
    """
    p = np.asarray(model.positions(model.k))
    base = float(model.tokens_per_step(p))
    below, above, parts = 0.0, 0.0, []
    for family, words in (
        ("acceptance", _sampling(model)),
        ("decay", f"the decay by position that carries it to k = {model.k}"),
        ("tree", "what a tree adds to it"),
    ):
        ends = model.positions(model.k, _Ends(n_samples=2, family=family))
        change = np.asarray(model.tokens_per_step(ends)) - base
        below += min(float(np.min(change)), 0.0) ** 2
        above += max(float(np.max(change)), 0.0) ** 2
        if np.max(np.abs(change)) > 1e-6:
            parts.append(words)
    why = f"{_PERCENTILES}, from {' and '.join(parts)}; other requests can differ by more"

    def at(length: float) -> SensitivityPoint:
        known = tuple(map(float, _with_sum(p, (length - 1.0) / model.proposal_rate)))
        other = replace(model, known=known, length=None, rate=None)
        return study.moved(replace(study.deployment, acceptance=other))

    if model.counts is None and parts:
        less, more = (((base - 1.0) * (1.0 - share)) ** 2 for share in (_LESS, _MORE))
        below, above = below + less, above + more
        parts[0] = f"accepted tokens {_ASSUMED}, as other requests and temperatures differ"
        why = " and ".join(parts)
    return Factor(
        id="acceptance_length",
        unit="tokens",
        low=max(base - math.sqrt(below), 1.0),
        base=base,
        high=max(min(base + math.sqrt(above), 1.0 + model.proposal_rate * model.k), base),
        why=why if parts else "no draft is accepted: nothing to move",
        at=at,
    )


def _sampling(model: AcceptanceModel) -> str:
    if model.counts is not None:
        return f"the sampling error of {model.counts:,} drafts"
    spread = load_general().default_acceptance_sd.value
    return f"a spread of {100 * spread:g} % between repeats, assumed without counts"


def _with_sum(p: Array, accepted: float) -> Array:
    """Return P with another sum: all hits fewer, or all misses, by one factor."""
    before = float(np.sum(p))
    if accepted <= before:
        return np.asarray(p * (accepted / before))
    return np.asarray(p + (1.0 - p) * (accepted - before) / (p.size - before))


# Lengths and host time


def _lengths(study: Study) -> Iterator[Factor]:
    workload, longest = study.deployment.scenario.workload, float(study.deployment.max_model_len)
    prompt, answer = workload.input_tokens, workload.output_tokens
    # No answer is shorter than a token.
    less = max(_LESS, min(1.0 / answer, 1.0))
    for id, base, low, most, scaled in (
        ("output_tokens", answer, less * answer, longest - prompt, ("output",)),
        ("input_tokens", prompt, _LESS * prompt, longest - answer, ("input", "cached_prompt")),
        (
            "context",
            prompt + answer,
            less * (prompt + answer),
            longest,
            ("input", "cached_prompt", "output"),
        ),
    ):
        why = f"prompt and answer together: {_ASSUMED}" if id == "context" else _ASSUMED
        high = _MORE * base
        if high > most:
            high, why = max(most, base), f"{why}, up to max_model_len {longest:g}"
        at = functools.partial(_at_length, study, scaled, base)
        yield Factor(id, "tokens", low, base, high, why, at)


def _at_length(
    study: Study, scaled: tuple[str, ...], base: float, tokens: float
) -> SensitivityPoint:
    """Scale lengths with all that is said of them, so that the workload stays valid."""
    workload = study.deployment.scenario.workload
    update = {
        name: value * (tokens / base)
        for name, value in workload
        if name.startswith(tuple(f"{s}_tokens" for s in scaled)) and value is not None
    }
    if "output_tokens" in update:
        update["output_tokens"] = max(update["output_tokens"], 1.0)
    return study.moved(_with(study.deployment, "workload", update))


def _with(deployment: Deployment, part: str, update: dict[str, Any]) -> Deployment:
    """Return a deployment with other values in one part of its scenario."""
    changed = getattr(deployment.scenario, part).model_copy(update=update)
    return replace(deployment, scenario=deployment.scenario.model_copy(update={part: changed}))


def _host(study: Study) -> Factor:
    """Move the host time of a step: of both arms, by one factor where they differ."""
    deployment, engine = study.deployment, study.deployment.engine
    given = deployment.scenario.engine.host_ms
    if given is not None:
        return Factor(
            id="host_ms",
            unit="ms",
            low=_LESS * given,
            base=given,
            high=_MORE * given,
            why=f"given; {_ASSUMED}",
            at=lambda ms: study.moved(_with(deployment, "engine", {"host_ms": ms})),
        )
    shipped = engine.host_ms if deployment.async_scheduling else engine.sync_host_ms
    calibrated = _calibrated_host(study.laid, shipped)
    whose = f"{deployment.scenario.engine.name} {engine.version}"
    why = f"{_PERCENTILES} of {whose if calibrated is None else 'the calibration'}"
    if deployment.method != "none" and (
        deployment.async_scheduling != deployment.speculative_async_scheduling
    ):
        why += ", speculation off; on, where steps are scheduled otherwise, by the same factor"

    def at(ms: float) -> SensitivityPoint:
        constants = study.laid.point()
        scales = {**constants.scales, "host": ms / shipped.value}
        return study.moved(constants=replace(constants, scales=scales))

    known = calibrated or shipped
    low, high = (known.low, known.high) if shipped.value > 0 else (known.value, known.value)
    return Factor("host_ms", "ms", low, known.value, high, why, at)


def _calibrated_host(laid: Overlay, shipped: Range) -> Range | None:
    """Return the host time as a calibration has it; None where it says nothing of it."""
    if laid.calibration is None:
        return None
    for i, p in enumerate(laid.calibration.parameters):
        if p.name == "host":
            # As `Overlay` has it: outside the calibration's scope the prior comes back.
            kept = 1.0 - laid.widening
            x = kept * (math.log(p.factor) if p.scale == "log" else p.factor - 1.0)
            variance = kept * laid.calibration.covariance[i][i] + laid.widening * p.prior_sd**2
            ends = x + np.array([-Z90, 0.0, Z90]) * math.sqrt(variance)
            low, value, high = (shipped.value * float(f) for f in to_factor(p.scale, ends))
            return Range(value=value, low=low, high=high)
    return None


# Traffic and price


def _peak(study: Study, traffic: Traffic) -> Factor:
    """Move the peak and leave the average."""
    base = traffic.peak_rate / traffic.avg_rate
    low, high, why = _LESS * base, _MORE * base, f"{_ASSUMED}, the average as it is"
    given = traffic.model_dump(exclude_unset=True, exclude_none=True)
    if not given.keys() & {"peak_to_avg", "peak_qps"}:
        low, high = _PEAK_LOW, _PEAK_HIGH
        why = f"not given: public guides take {low:g} to {high:g}"
    if not given.keys() & {"avg_qps", "requests_per_month"}:
        given["avg_qps"] = traffic.avg_rate / traffic.growth
    given.pop("peak_qps", None)

    def at(ratio: float) -> SensitivityPoint:
        other = parse(Traffic, {**given, "peak_to_avg": ratio}, what="traffic")
        return replace(study, traffic=other).point()

    most = min(_MOST_PEAK_TO_AVG, MOST_RATE / traffic.avg_rate)
    low, high = min(max(low, 1.0), base), max(min(high, most), base)
    return Factor("peak_to_avg", "", low, base, high, why, at)


def _price(study: Study, base: float, is_given: bool) -> Factor:
    low, high, why = _LESS * base, _MORE * base, _ASSUMED
    # As `price_usd_per_gpu_hour` ranks them.
    first = min(study.deployment.hardware.price, key=lambda p: p.kind != "typical", default=None)
    if is_given:
        why = f"given; {_ASSUMED}"
    elif first is not None and first.low is not None and first.high is not None:
        low, high = min(first.low, base), max(first.high, base)
        why = f"range of the profile's price, {first.as_of or 'undated'}"
    return Factor(
        id="usd_per_gpu_hour",
        unit="USD/hour",
        low=low,
        base=base,
        high=high,
        why=why,
        at=lambda usd: replace(study, usd_per_gpu_hour=usd).point(),
    )
