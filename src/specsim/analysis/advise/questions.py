"""The three questions: requests in flight, determinism of the output, acceptance."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from specsim.analysis.arms import Arm
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import mean_context, open_loop
from specsim.physics.cost import PARTS
from specsim.schema.advice import AcceptanceBasis, AcceptanceCheck, Peak, Side
from specsim.schema.results import FIELD_RULE, NEUTRAL_HIGH, BreakEven, Crossover, Prediction
from specsim.schema.scenario import Scenario, Workload
from specsim.schema.simulation import Percentiles
from specsim.schema.slo import Slo, few_slowest
from specsim.units import in_words

_COUNTED = "counted"
_SHORT_STEP_S = 0.004
"""Target step below which the host's work around it decides (questions.md, lints)."""
_WAITING = 0.4
"""Share of a drafter's pass that goes to communication where that is worth a word."""
_MARGIN = 0.005
"""Difference of accepted / drafted that two digits do not show."""
_SAMPLING_HALF = 0.5
_METRICS = (
    "vllm:spec_decode_num_accepted_tokens_total / vllm:spec_decode_num_draft_tokens_total over "
    "the peak hour of real traffic (`specsim measure` reads the server's /metrics)"
)


def peak_answer(concurrency: float, mean: float, basis: str, crossover: Crossover) -> Peak:
    """Hold the requests in flight at peak against the crossover of a closed loop."""
    pays = any(low <= concurrency <= high for low, high in crossover.wins)
    side = _side(concurrency, crossover)
    return Peak(
        concurrency=concurrency,
        mean=mean,
        basis=basis,
        crossover=crossover,
        side=side,
        pays=pays,
        sentence=_peak_sentence(concurrency, mean, basis, crossover, side, pays),
    )


def _side(peak: float, found: Crossover) -> Side:
    """Return where a peak lies; where the gain comes and goes, by the interval that it is in."""
    if found.state == "never":
        return "inside" if found.high is not None and peak <= found.high else "above"
    if found.state == "always":
        return "inside" if found.low is not None and peak >= found.low else "below"
    if len(found.wins) > 1 or found.wins[0][0] > found.searched[0]:
        return "below" if any(low <= peak <= high for low, high in found.wins) else "above"
    low = found.searched[0] if found.low is None else found.low
    if peak < low:
        return "below"
    return "above" if found.high is not None and peak > found.high else "inside"


def _peak_sentence(
    peak: float, mean: float, basis: str, found: Crossover, side: Side, pays: bool
) -> str:
    said = f"{_requests(peak)} in flight at peak ({basis}"
    said += f"; {mean:.3g} on average)" if basis.startswith("p") else ")"
    if found.state == "never":
        verdict = "speculation wins at no load"
        if side == "inside":
            verdict += f", though within the 80 % interval it may, up to {found.high:.3g}"
        return f"{said}: {verdict}"
    if found.state == "always":
        verdict = f"speculation wins at every load up to {found.searched[1]:g}"
        if found.low is not None:
            verdict += f", but at the low end of the 80 % interval only up to {found.low:.3g}" + (
                ": the peak lies beyond that" if side == "inside" else ": the peak lies below"
            )
        return f"{said}: {verdict}"
    if len(found.wins) > 1 or found.wins[0][0] > found.searched[0]:
        spans = " and ".join(f"{low:.3g} to {high:.3g}" for low, high in found.wins)
        where = "the peak lies in a gain" if pays else "the peak lies in none of them"
        return f"{said}: speculation wins from {spans}, {where}"
    low = "below 1" if found.low is None else f"{found.low:.3g}"
    high = f"above {found.searched[1]:g}" if found.high is None else f"{found.high:.3g}"
    text = (
        f"{said}; speculation pays below {found.load:.3g} (80 % interval {low} to {high}): the "
        f"peak lies {'inside that interval' if side == 'inside' else side}"
    )
    if side == "above" and found.load is not None and mean < found.load and basis.startswith("p"):
        text += ", the average below: what the mean gains is lost in the bursts"
    return text


def _requests(number: float) -> str:
    return f"{in_words(number)} request{'s' if number != 1 else ''}"


def acceptance_answer(
    deployment: Deployment, prediction: Prediction, peak: float
) -> AcceptanceCheck:
    """Hold the acceptance against what the peak needs, and say how sure it is."""
    acceptance = prediction.acceptance
    assert acceptance is not None, "the deployment speculates"
    even = break_even_at(prediction, peak)
    needed = None if even is None else even.draft_acceptance_rate
    margin = None if needed is None else acceptance.draft_acceptance_rate - needed
    given = deployment.scenario.speculation.acceptance
    counts = None if given is None else given.counts
    basis: AcceptanceBasis = "given"
    if acceptance.source.startswith(_COUNTED) or counts is not None:
        basis = "counted"
    elif acceptance.source.startswith("profile"):
        basis = "profile"
    answer = AcceptanceCheck(
        temperature=deployment.scenario.workload.temperature,
        acceptance_length=acceptance.acceptance_length,
        draft_acceptance_rate=acceptance.draft_acceptance_rate,
        break_even_length=None if even is None else even.acceptance_length,
        break_even_rate=needed,
        margin=margin,
        basis=basis,
        source=acceptance.source,
        measure="" if basis == "counted" else _how_to_count(deployment),
        sentence="",
    )
    return replace(answer, sentence=_acceptance_sentence(answer, peak))


def break_even_at(prediction: Prediction, load: float) -> BreakEven | None:
    """Return the break-even of the load nearest to one; None where none is served."""
    known = prediction.break_even
    return min(known, key=lambda b: abs(b.load - load)) if known else None


def _how_to_count(deployment: Deployment) -> str:
    if deployment.scenario.engine.name == "vllm":
        return _METRICS
    if deployment.scenario.engine.name == "sglang":
        return (
            "sglang:spec_accept_length of /metrics over the peak hour of real traffic: (it - 1) / k"
        )
    return "accepted / drafted tokens of the server's log over the peak hour of real traffic"


def _acceptance_sentence(a: AcceptanceCheck, peak: float) -> str:
    f, needed = a.draft_acceptance_rate, a.break_even_rate
    said = f"{f:.2f} of the drafted tokens are accepted ({a.acceptance_length:.2f} tokens per step)"
    if needed is None:
        said += f"; at {peak:.3g} in flight no acceptance is enough"
    elif a.margin is not None:
        short = f"{abs(a.margin):.2f} {'to spare' if a.margin > 0 else 'short'}"
        length = "" if a.break_even_length is None else f" ({a.break_even_length:.2f})"
        said += (
            f"; at {peak:.3g} in flight it takes {needed:.2f}{length} to break even: "
            f"{'just that' if abs(a.margin) < _MARGIN else short}"
        )
    side = "below" if f < FIELD_RULE else "above"
    return f"{said}. The field's rule of thumb, {FIELD_RULE:g} at moderate load: {side}"


def determinism(temperature: float) -> str:
    """Say what a temperature does to the acceptance of drafts."""
    if temperature == 0:
        return "temperature 0: always the likeliest token, which a drafter guesses best"
    if temperature < _SAMPLING_HALF:
        return f"temperature {temperature:g}: close to deterministic"
    return f"temperature {temperature:g}: sampled, so fewer drafts match than at temperature 0"


def lints(
    scenario: Scenario,
    deployment: Deployment,
    arms: tuple[Arm, Arm],
    prediction: Prediction,
    peak: Peak,
    acceptance: AcceptanceCheck,
) -> tuple[str, ...]:
    """Return what to look at first, beside the prediction's own warnings."""
    baseline, speculative = arms
    found = list(prediction.warnings)
    if "load" not in scenario.model_fields_set:
        found.append(
            f"no load is given, so a peak of {_requests(peak.concurrency)} in flight is looked "
            "at; give yours: --set load.concurrency=[N] or --set load.request_rate=[R]"
        )
    if acceptance.margin is not None and acceptance.margin < -_MARGIN:
        found.append(
            f"acceptance is below break-even at the peak: {acceptance.acceptance_length:.2f} tokens"
            f" per step, {acceptance.break_even_length:.2f} needed"
        )
    found += _above_capacity(scenario, arms)
    found += _host_bound(baseline, deployment)
    found += _drafter_tensor_parallel(speculative, deployment)
    found += _longer_draft(deployment, prediction, peak)
    return tuple(dict.fromkeys(found))


def stable_rate(arm: Arm, workload: Workload) -> float:
    """Return the rate beyond which the queue of a replica grows. [requests/s]."""
    return float(np.max(open_loop(arm, workload).largest_stable_rate))


def measured_lints(
    workload: Workload, slo: Slo | None, tpot: Percentiles, *, requests: int, replications: int
) -> tuple[str, ...]:
    """Return what to know of the figures that the simulation gave.

    Parameters
    ----------
    tpot : Percentiles
        Of the off arm.
    requests, replications : int
        Measured in each replication, and how many of these.
    """
    found = []
    if not math.isfinite(tpot.mean):
        found.append(
            "no answer has more than one token, so there is no time per token: options are held "
            "against the time to first token"
        )
    judged = {"p99": 99.0} if slo is None else slo.percentiles
    if workload.arrival == "steady":
        found += few_slowest(judged, requests=requests, replications=replications)
    return tuple(found)


def _above_capacity(scenario: Scenario, arms: tuple[Arm, Arm]) -> list[str]:
    """Warn where more arrives than a replica serves: then only the backlog is measured."""
    rate = max(scenario.load.request_rate or (0.0,))
    off, on = (stable_rate(arm, scenario.workload) for arm in arms)
    if rate <= min(off, on):
        return []
    return [
        f"{in_words(rate)} requests/s arrive and a replica serves about {in_words(off)} with "
        f"speculation off, {in_words(on)} on: percentiles above that tell the length of the run, "
        "not the service; size the fleet first (specsim plan)"
    ]


def _host_bound(baseline: Arm, deployment: Deployment) -> list[str]:
    """Warn where a step is so short that the host's part of it decides."""
    step = baseline.step(1.0, mean_context(deployment.scenario.workload)).total
    parts = {name: float(getattr(step, name)) for name in PARTS}
    total_s = float(step.total_s)
    if total_s >= _SHORT_STEP_S or max(parts, key=lambda name: parts[name]) != "host_s":
        return []
    return [
        f"a step of the target takes {total_s * 1e3:.2g} ms, most of it launches and the host: "
        "drafting adds more of the same, so there is little to gain on so small a model"
    ]


def _drafter_tensor_parallel(speculative: Arm, deployment: Deployment) -> list[str]:
    """Warn where a small drafter is split over devices and mostly waits for them."""
    devices = deployment.draft_tensor_parallel_size
    draft = speculative.step(1.0, mean_context(deployment.scenario.workload)).draft
    waiting, total = float(draft.communication_s), float(draft.total_s)
    if deployment.drafter is None or devices == 1 or waiting < _WAITING * total:
        return []
    return [
        f"{waiting / total:.0%} of drafting is communication between {devices} devices: the "
        "drafter is too small to be split; try draft_tensor_parallel_size 1"
    ]


def _longer_draft(deployment: Deployment, prediction: Prediction, peak: Peak) -> list[str]:
    best = min(prediction.best_k, key=lambda b: abs(b.load - peak.concurrency), default=None)
    point = min(
        (p for p in prediction.points if p.speedup is not None and p.concurrency is not None),
        key=lambda p: abs((p.concurrency or 0.0) - peak.concurrency),
        default=None,
    )
    k = deployment.num_speculative_tokens
    if best is None or point is None or point.speedup is None or best.k <= k:
        return []
    if best.speedup < NEUTRAL_HIGH * point.speedup:
        return []
    return [
        f"a longer draft may pay more: k = {best.k} is predicted {best.speedup:.2f}x as fast as "
        f"off at the peak, k = {k} {point.speedup:.2f}x; its acceptance is carried on "
        f"from k = {k}, so measure it"
    ]
