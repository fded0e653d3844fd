"""From what each option does to the same requests to what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from specsim.analysis.advise.options import Option
from specsim.analysis.simulation import statistics
from specsim.analysis.simulation.compare import slo_results
from specsim.analysis.simulation.statistics import Served
from specsim.schema.advice import OptionResult, ScenarioAdvice
from specsim.schema.results import NEUTRAL_HIGH, NEUTRAL_LOW
from specsim.schema.simulation import METRICS, ArmSimulation
from specsim.schema.slo import Metric, Slo
from specsim.units import in_words

_UNNOTICED_MS = 200.0
"""A delay of the first token that is no reason against an option, as in `predict`'s verdict: about
the pause between two speakers (Stivers et al. 2009). Who promises less says so with an SLO."""
_LEVEL = NEUTRAL_HIGH
"""Options whose means are closer than this are alike: then the simplest is taken."""
_WORDS: dict[Metric, str] = {
    "ttft": "first token", "tpot": "time per token", "itl": "gap between chunks",
    "e2e": "whole answer",
}  # fmt: skip


def option_result(
    option: Option,
    replies: Sequence[Served],
    off: ArmSimulation | None,
    slo: Slo | None,
    *,
    closed: bool,
    rejected: int,
) -> tuple[OptionResult, ArmSimulation]:
    """Return what an option reaches, against off on as many replicas (None: it is that)."""
    found = statistics.summary(replies, slo, rejected=rejected, closed=closed)
    n = len(option.replicas)
    reached = slo_results(found, slo) if slo is not None else []
    to_off: dict[str, dict[str, float]] = {
        m: _ratios(found, found if off is None else off, m) for m in METRICS
    }
    if slo is not None:
        misses = tuple(_missed(r) for r in reached if not r["met"])
    else:
        misses = () if off is None else tuple(_worse(found, off))
    result = OptionResult(
        name=option.name,
        kind=option.kind,
        k=option.k,
        schedule=option.schedule,
        route_above=None if option.pools is None else option.pools.route_above,
        replicas=n,
        **{f"{m}_ms": found.percentiles(m) for m in METRICS},
        output_tok_s=found.output_tok_s / n,
        running=found.running / n,
        tokens_per_step=found.tokens_per_step,
        overloaded=found.overloaded,
        to_off=to_off,
        slo=reached,
        meets=not misses,
        misses=misses,
    )
    return result, found


def _ratios(one: ArmSimulation, off: ArmSimulation, metric: Metric) -> dict[str, float]:
    a, b = one.percentiles(metric), off.percentiles(metric)
    return {"mean": a.mean / b.mean, "p99": a.p99 / b.p99}


def _missed(result: dict[str, object]) -> str:
    return f"{result['target']} is {result['value']:.4g}, promised {result['limit']:.4g}"


def _worse(one: ArmSimulation, off: ArmSimulation) -> Iterator[str]:
    """Yield what is worse at p99 than without speculation, by more than it takes to matter."""
    if one.overloaded and not off.overloaded:
        yield "cannot hold this load, which off serves"
    bounds: tuple[tuple[Metric, float], ...] = (("tpot", 0.0), ("ttft", _UNNOTICED_MS))
    for metric, unnoticed_ms in bounds:
        p99, of_off = one.percentiles(metric).p99, off.percentiles(metric).p99
        if p99 > NEUTRAL_HIGH * of_off and p99 - of_off > unnoticed_ms:
            yield f"p99 {_WORDS[metric]} {p99 / of_off:.2f}x off's"


def pace(option: OptionResult) -> float:
    """Return the mean time per token against off; of answers of one token, the first's."""
    ratio = option.to_off["tpot"]["mean"]
    return ratio if math.isfinite(ratio) else option.to_off["ttft"]["mean"]


def choose(options: Sequence[OptionResult]) -> OptionResult:
    """Return the option to take, off first among `options` and simpler ones before others.

    Notes
    -----
    Of those that are no worse at p99 than off (or meet the SLO, where there is one) the one with
    the best mean time per token. What gains less than 5 % on an off that does as well (of two
    replicas for what is routed) is not worth its trouble. Where none is left, off.
    """
    off = options[0]
    pair = next((o for o in options if o.kind == "off" and o.replicas > 1), off)
    candidates = []
    for o in options:
        instead = pair if o.replicas > 1 else off
        if o.kind != "off" and o.meets and not (instead.meets and pace(o) >= NEUTRAL_LOW):
            candidates.append(o)
    if not candidates:
        return off
    best = min(candidates, key=pace)
    return next(o for o in candidates if pace(o) <= _LEVEL * pace(best))


def overload(request_rate: float | None, most: float) -> str:
    """Say that more arrives than any option serves; '' where one does.

    Parameters
    ----------
    request_rate : float or None
        Arrivals at one replica; None: a closed loop, which waits for answers. [requests/s]
    most : float
        The largest rate that an option serves. [requests/s]
    """
    if request_rate is None or request_rate <= most:
        return ""
    return (
        f"overloaded: {in_words(request_rate)} requests/s arrive, a replica serves "
        f"{in_words(most)} at most; size the fleet first (`specsim plan`)"
    )


def reason(
    chosen: OptionResult, options: Sequence[OptionResult], slo: Slo | None, overloaded: str = ""
) -> str:
    """Say why an option is taken and speculation as given is not; an overload goes first."""
    if not overloaded:
        return _reason(chosen, options, slo)
    if slo is not None and not chosen.meets:
        return overloaded
    what = "speculation off, " if chosen.kind == "off" else ""
    return f"{overloaded}. At this load for what it is worth: {what}{_reason(chosen, options, slo)}"


def _reason(chosen: OptionResult, options: Sequence[OptionResult], slo: Slo | None) -> str:
    given = next(o for o in options if o.kind == "on")
    held = "meets the SLO" if slo is not None else "keeps p99"
    against = _why_not(given)
    if chosen.kind == "off":
        if slo is not None and not chosen.meets:
            return (
                "a replica does not meet the SLO at this load with any option: with speculation "
                f"off {'; '.join(chosen.misses)}; size the fleet first (specsim plan)"
            )
        text = f"as given, k = {given.k}: {against}"
        others = [o for o in options if o.kind not in ("off", "on")]
        if others:
            best = min(others, key=pace)
            text += f"; at best otherwise, {best.name}: {_why_not(best)}"
        level = [o for o in others if o.kind == "schedule" and o.meets]
        if level:
            text += f"; {level[0].name} costs nothing here and gains where fewer are in flight"
        return text
    gains = _gains(chosen)
    tpot, ttft = chosen.to_off["tpot"]["p99"], chosen.to_off["ttft"]["p99"]
    if math.isfinite(tpot):
        gains += f", {_times(tpot)} at p99"
    gains += f"; p99 first token {_times(ttft)}"
    if ttft > NEUTRAL_HIGH:
        gains += f" (+{chosen.ttft_ms.p99 * (1.0 - 1.0 / ttft):.0f} ms)"
    if chosen.kind == "on":
        return f"k = {chosen.k} as given {held}: {gains}"
    how = {
        "cap": f"drafting {chosen.k} token{'s' if chosen.k > 1 else ''} instead of {given.k}",
        "schedule": "k by batch",
        "route": "an on pool up to the crossover and an off pool above it",
    }[chosen.kind]
    return f"{how} {held}: {gains}. As given, k = {given.k}: {against}"


def _gains(option: OptionResult) -> str:
    """Say how fast an option is on average, and at what: answers of one token have no pace."""
    what = "per token" if math.isfinite(option.to_off["tpot"]["mean"]) else "to the first token"
    return f"{_times(pace(option))} {what} on average"


def _why_not(option: OptionResult) -> str:
    """Say what an option gains, and what it fails."""
    gains = _gains(option)
    word = "but" if pace(option) < NEUTRAL_LOW else "and"
    return f"{gains}, {word} {' and '.join(option.misses)}" if option.misses else gains


def _listed(names: Sequence[str], word: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def _times(ratio: float) -> str:
    if not math.isfinite(ratio):
        return "unknown"
    if NEUTRAL_LOW <= ratio <= NEUTRAL_HIGH:
        return "level"
    return f"{1 / ratio:.2f}× faster" if ratio < 1 else f"{ratio:.2f}× slower"


def hidden_tail(option: OptionResult) -> list[Metric]:
    """Return the latencies whose mean is better than off's and whose p99 is worse."""
    return [
        m
        for m in ("tpot", "ttft", "e2e")
        if option.to_off[m]["mean"] < NEUTRAL_LOW and option.to_off[m]["p99"] > NEUTRAL_HIGH
    ]


def together(answers: Sequence[ScenarioAdvice]) -> str:
    """Say in a sentence what holds for all scenarios, or which endpoint gets what."""
    if len(answers) < 2:
        return ""
    beyond = [a.name for a in answers if a.action.size_first]
    if beyond:
        are = "is" if len(beyond) == 1 else "are"
        return (
            f"{_listed(beyond, 'and')} {are} beyond one replica: size the fleet first "
            f"(`specsim plan`); what suits all is asked at the load of a replica"
        )
    decisions = {_decided(a) for a in answers}
    if len(decisions) == 1:
        names = _listed([a.name for a in answers], "and")
        return f"one setting serves {names}: {decisions.pop()}"
    each = "; ".join(f"{a.name} gets {_decided(a)} ({_because(a)})" for a in answers)
    return f"{each}; {_shared_setting(answers)}"


def _decided(a: ScenarioAdvice) -> str:
    action = a.action
    if action.decision == "off":
        return "speculation off"
    if action.decision == "schedule":
        return "k by batch"
    if action.decision == "route":
        return f"routing above {action.route_above:.3g} in flight"
    return f"k = {action.k}"


def _because(a: ScenarioAdvice) -> str:
    where = {"below": "below", "inside": "about at", "above": "past"}[a.peak.side]
    accepted, temperature = a.acceptance.draft_acceptance_rate, a.acceptance.temperature
    return (
        f"{a.peak.concurrency:.3g} in flight at peak, {where} the crossover; {accepted:.2f} of "
        f"drafts accepted at temperature {temperature:g}"
    )


def _shared_setting(answers: Sequence[ScenarioAdvice]) -> str:
    """Name the one k that every scenario could live with, where one deployment serves them all."""
    lead = "vLLM takes one --speculative-config per server: run them as two"
    if len({_deployment(a) for a in answers}) > 1:
        return lead
    by_k = [{o.k: o for o in a.options if o.kind in ("on", "cap") and o.meets} for a in answers]
    common = set(by_k[0]).intersection(*by_k[1:])
    if not common:
        return f"{lead}; no k is good for all"
    k = min(common, key=lambda k: max(pace(options[k]) for options in by_k))
    costs = [f"{a.name} {_gains(options[k])}" for a, options in zip(answers, by_k, strict=True)]
    return f"{lead}, or, if it has to be one, take k = {k} ({', '.join(costs)})"


def _deployment(a: ScenarioAdvice) -> str:
    speculation = {k: v for k, v in a.scenario["speculation"].items() if k != "acceptance"}
    return repr((a.scenario["target"], a.scenario["hardware"], a.scenario["engine"], speculation))
