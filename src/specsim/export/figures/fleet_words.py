"""What is said of a plan beside its pictures: what was rounded, left out and divided by what."""

from __future__ import annotations

import math

from specsim.export.tables import MISSING, figure
from specsim.schema.plan import Candidate, Plan

_NEARLY = 0.1
"""Replicas above a whole number that are few."""
_LEAST_PCT = 0.1
_FEW_DRAFTS = 3
"""Draft tokens that are few: what to try where more of them lose."""


def needed(plan: Plan, candidate: Candidate) -> float | None:
    """Return the replicas that the peak needs, before they are rounded up and spares are added."""
    if not candidate.load_at_slo:
        return None
    filled = candidate.load_at_slo * float(plan.traffic["target_utilization"])
    return float(plan.traffic["peak_rate"]) / filled


def rounding(plan: Plan, candidate: Candidate) -> str:
    """Return how whole replicas follow from those that are needed, and whether that was close."""
    exact = needed(plan, candidate)
    if exact is None or candidate.replicas_base is None or candidate.replicas is None:
        return ""
    base, spares = candidate.replicas_base, candidate.replicas - candidate.replicas_base
    said = f"the peak needs {unrounded(exact)}, so {base:,}"
    if spares:
        said += f", and {spares:,} {'spare' if spares == 1 else 'spares'}"
    close = nearly(exact, base)
    return f"{said}. {close}" if close else f"{said}."


def nearly(exact: float, base: int) -> str:
    """Return what would save a replica where little is missing; empty where much is.

    >>> nearly(2.06, 3)
    'Nearly 2: 3.0 % more per replica would save one.'
    >>> nearly(2.4, 3), nearly(0.05, 1), nearly(2.0, 2)
    ('', '', '')
    """
    whole = math.floor(exact)
    if not 0 < whole < base or exact - whole > _NEARLY:
        return ""
    more = 100.0 * (exact / whole - 1.0)
    said = f"{more:.1f}" if more >= _LEAST_PCT else f"under {_LEAST_PCT:g}"
    return f"Nearly {whole:,}: {said} % more per replica would save one."


def unrounded(replicas: float | None) -> str:
    """Write replicas before they are made whole.

    >>> unrounded(2.06), unrounded(2.001), unrounded(2.0), unrounded(None)
    ('2.06', 'just over 2', '2.00', '–')
    """
    if replicas is None:
        return MISSING
    whole = math.floor(replicas)
    return f"just over {whole:,}" if 0.0 < replicas - whole < 0.005 else f"{replicas:,.2f}"


def fewer_drafts(plan: Plan) -> tuple[int, tuple[int, ...]] | None:
    """Return the one k that was compared where off won, and smaller ones that were not.

    None where speculation won, where several k were tried, or where there is no smaller one.
    """
    if plan.best is None or plan.best.arm != "baseline":
        return None
    on = [c.source.speculation for c in plan.candidates if c.arm == "speculative"]
    tried = {speculation.num_speculative_tokens for speculation in on}
    if len(tried) != 1 or any(speculation.tree is not None for speculation in on):
        return None
    k = tried.pop()
    if k is None or k == 1:
        return None
    return k, tuple(range(1, min(k, _FEW_DRAFTS + 1)))


def dollars(plan: Plan) -> str:
    """Return why a million tokens cost more in a plan than on one replica at one load."""
    traffic = plan.traffic
    spares = traffic["spares"]
    kept = {0: "no spare", 1: "1 spare"}.get(spares, f"{spares:,} spares")
    return (
        "$/Mtok is not What-if's: that has one replica kept at one load, with no idle hour and no "
        "promise to keep. Here a whole fleet is paid around the clock and shared out over the "
        "month's tokens: sized for the peak "
        f"({figure(traffic['peak_rate'] / traffic['avg_rate'], 2)} × the average), filled to "
        f"{traffic['target_utilization']:.0%} of what meets the SLO, with {kept}."
    )
