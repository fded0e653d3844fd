"""Which fleet to take, and why, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.analysis.plan.candidates import Outcome
from specsim.schema.plan import Best, Candidate, Saving

_SAME = 5e-4
"""Prices closer than this share are the same."""


def rank(candidates: Sequence[Candidate]) -> list[int]:
    """Return the order of the candidates, the best first and rejected ones last.

    Notes
    -----
    By price of a month, then devices, then replicas; at the same of all, by time per token at the
    peak, then time to first token, and off before on. What has no price is behind what has one.
    Rejected ones by what is missed, the least first.
    """
    return sorted(range(len(candidates)), key=lambda i: _place(candidates[i]))


def _place(c: Candidate) -> tuple[object, ...]:
    if c.rejected_because is not None:
        untested = not c.reached
        return (1, untested, max((r.excess for r in c.reached), default=0.0), c.deployment)
    usd = c.usd_per_month
    money = (usd is None, usd or 0.0, c.gpus, c.replicas)
    return (0, *money, c.tpot_p95_ms or 0.0, c.ttft_p95_ms or 0.0, c.arm)


def best_of(candidates: Sequence[Candidate], outcomes: Sequence[Outcome]) -> Best | None:
    """Return the first of the ranked candidates and what it saves; None if all are rejected.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Of the candidates, in their order.
    """
    good = [i for i, c in enumerate(candidates) if c.rejected_because is None]
    if not good:
        return None
    first, off = candidates[0], outcomes[0].option.off
    others = [candidates[i] for i in good[1:]]
    same = next(
        (
            candidates[i]
            for i in good[1:]
            if outcomes[i].option.off == off and candidates[i].arm != first.arm
        ),
        None,
    )
    saves = None if same is None else _saving(first, same)
    return Best(
        deployment=first.deployment,
        arm=first.arm,
        candidate=0,
        reason=_reason(first, others[0] if others else None),
        saves_against_runner_up=_saving(first, others[0]) if others else None,
        saves_against_off=saves if first.arm == "speculative" else None,
        saves_against_on=saves if first.arm == "baseline" else None,
        scenario=outcomes[0].scenario or {},
    )


def _saving(first: Candidate, other: Candidate) -> Saving:
    gpus = (other.gpus or 0) - (first.gpus or 0)
    mine, theirs = first.usd_per_month, other.usd_per_month
    if mine is None or theirs is None:
        return Saving(other.name, gpus, None, None)
    return Saving(other.name, gpus, theirs - mine, 100.0 * (1.0 - mine / theirs))


def _reason(first: Candidate, runner_up: Candidate | None) -> str:
    if runner_up is None:
        return "it is the only candidate that meets the SLO"
    mine, theirs = first.usd_per_month, runner_up.usd_per_month
    gpus = [c.gpus or 0 for c in (first, runner_up)]
    if mine is None:
        if gpus[0] < gpus[1]:
            return "it needs the fewest GPUs (no prices are known)"
    elif theirs is None:
        return "it is the only candidate with a price"
    elif mine < theirs * (1.0 - _SAME):
        return "it costs least at the SLO"
    if gpus[0] < gpus[1] or (first.replicas or 0) < (runner_up.replicas or 0):
        return "others cost the same and need more devices or replicas"
    mine, theirs = first.tpot_p95_ms, runner_up.tpot_p95_ms
    if mine and theirs and mine < theirs * (1.0 - _SAME):
        return (
            f"others cost the same and are slower: {theirs:.3g} ms per token (p95) at the peak "
            f"against {mine:.3g}"
        )
    return "others cost the same and are no faster"


def verdict(candidates: Sequence[Candidate], best: Best) -> str:
    """Say what to take and what that saves."""
    first = candidates[best.candidate]
    usd = first.usd_per_month
    price = "" if usd is None else f" for ${usd:,.0f} a month"
    text = (
        f"{first.name}: {counted(first.replicas or 0, 'replica')} on "
        f"{counted(first.gpus or 0, 'GPU')}{price}; {best.reason}"
    )
    same, runner_up = best.saves_against_off or best.saves_against_on, best.saves_against_runner_up
    if same is not None:
        word = "off" if first.arm == "speculative" else "on"
        text += f"; {_saved(same, f'the same with speculation {word}')}"
    told = same is not None and same.against == (runner_up and runner_up.against)
    if runner_up is not None and not told and not _level(runner_up):
        text += f"; {_saved(runner_up, f'the runner-up ({runner_up.against})')}"
    return text


def _level(saving: Saving) -> bool:
    return saving.pct is not None and abs(saving.pct) < 100.0 * _SAME


def _saved(saving: Saving, against: str) -> str:
    usd, pct = saving.usd_per_month, saving.pct
    if usd is None or pct is None:
        if saving.gpus == 0:
            return f"as many GPUs as {against}"
        word = "fewer" if saving.gpus > 0 else "more"
        return f"{counted(abs(saving.gpus), 'GPU')} {word} than {against}"
    if _level(saving):
        return f"it costs as much as {against}"
    return f"it saves ${usd:,.0f} a month ({pct:.0f} %) against {against}"


def nothing_meets(candidates: Sequence[Candidate]) -> str:
    """Say which candidate is nearest to the SLO, and what keeps it from it."""
    first = candidates[0]
    if not first.reached:
        return f"no candidate can be served; {first.name}: {first.rejected_because}"
    return (
        f"no candidate meets the SLO at any load; nearest is {first.name}: {first.rejected_because}"
    )


def counted(n: int, what: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "GPU"), counted(1200, "replica")
    ('1 GPU', '1,200 replicas')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"
