"""Why the slowest requests are slow: what they have in common against all."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specsim.analysis.simulation.statistics import Served
from specsim.schema.results import NEUTRAL_HIGH, NEUTRAL_LOW
from specsim.schema.simulation import ArmSimulation, TailCause

Array = npt.NDArray[np.float64]

_TAIL = 0.01
_LEAST_TAIL = 10
_LEAST_SHARE = 0.25
"""Of the tail's excess (in logarithms) that a cause must explain to be named."""


def tail_causes(on: Sequence[Served], off: Sequence[Served]) -> tuple[TailCause, ...]:
    """Say what makes the slowest requests of the on arm slow, per token and to the first token."""
    return _per_token(on, off), _first_token(on, off)


def _joined(arms: Sequence[Served], name: str) -> Array:
    return np.concatenate([getattr(r, name) for r in arms])


def _slowest(values: Array) -> npt.NDArray[np.bool_]:
    n = max(math.ceil(_TAIL * values.size), min(_LEAST_TAIL, values.size))
    return np.asarray(values >= np.partition(values, values.size - n)[values.size - n])


def _per_token(on: Sequence[Served], off: Sequence[Served]) -> TailCause:
    """Split the tail's time per token into step time (batch, prompts), acceptance and waiting.

    TPOT = gap / tokens per step, gap = stall + step; logarithms add.
    """
    tpot, decoded = _joined(on, "tpot_s"), _joined(on, "output_tokens") > 1
    if not np.any(decoded):
        return TailCause("tpot", "", "answers of one token have no time per token")
    tpot = tpot[decoded]
    columns = {
        name: _joined(on, name)[decoded]
        for name in ("output_tokens", "n_steps", "mean_batch", "prompt_share", "stalls")
    }
    yielded = (columns["output_tokens"] - 1.0) / columns["n_steps"]
    gap_s = tpot * yielded
    tail = _slowest(tpot)
    typical = np.abs(tpot - np.median(tpot)) <= np.quantile(np.abs(tpot - np.median(tpot)), 0.5)

    def means(values: Array) -> tuple[float, float]:
        return float(np.mean(values[tail])), float(np.mean(values[typical]))

    slow_s, usual_s = means(tpot)
    few, usual_yield = means(yielded)
    slow_gap_s, usual_gap_s = means(gap_s)
    batch, usual_batch = means(columns["mean_batch"])
    prompts, usual_prompts = means(columns["prompt_share"])
    excess = math.log(max(slow_s / usual_s, 1.0))
    by_acceptance = math.log(usual_yield / few)
    by_step = math.log(slow_gap_s / usual_gap_s)
    stalled = float(np.mean(columns["stalls"][tail] > 0))
    off_tpot = _joined(off, "tpot_s")
    off_tpot = off_tpot[np.isfinite(off_tpot)]
    off_ratio = float(np.percentile(off_tpot, 99) / np.median(off_tpot)) if off_tpot.size else 1.0
    n = int(tail.sum())
    lead = (
        f"the {n} slowest of {tpot.size:,} requests take {slow_s / usual_s:.2f}x the usual time "
        "per token"
    )
    parts = []
    cause = ""
    if excess > 0.02:
        if by_acceptance / excess >= _LEAST_SHARE:
            parts.append(
                f"{usual_yield / few:.2f}x because few of their drafts are accepted ({few:.2f} "
                f"tokens per step, usually {usual_yield:.2f})"
            )
        if by_step / excess >= _LEAST_SHARE:
            why = f"{batch:.0f} requests decode beside them, usually {usual_batch:.0f}"
            if prompts - usual_prompts > 0.1:
                why += (
                    f"; {prompts:.0%} of their time is steps with prompts in them, usually "
                    f"{usual_prompts:.0%}"
                )
            if stalled > 0.25:
                why = f"{stalled:.0%} of them lost their cache to others and were computed again"
            parts.append(f"{slow_gap_s / usual_gap_s:.2f}x because their steps take longer ({why})")
        cause = "acceptance"
        if by_step > by_acceptance:
            cause = "preemption" if stalled > 0.25 else "batch"
            if cause == "batch" and prompts - usual_prompts > 0.1 and batch < 1.2 * usual_batch:
                cause = "prefill"
    if not parts:
        return TailCause("tpot", "", f"{lead}: nothing in particular sets them apart")
    against = f"; with speculation off the p99 is {off_ratio:.2f}x the median"
    return TailCause("tpot", cause, f"{lead}: {' and '.join(parts)}{against}")


def _first_token(on: Sequence[Served], off: Sequence[Served]) -> TailCause:
    """Say whether the slowest first tokens wait in the queue or for their prompt."""
    ttft, ttft_off = _joined(on, "ttft_s"), _joined(off, "ttft_s")
    p99, p99_off = float(np.percentile(ttft, 99)), float(np.percentile(ttft_off, 99))
    median = float(np.median(ttft))
    waiting = max(_peak_waiting(r) for r in on)
    waiting_off = max(_peak_waiting(r) for r in off)
    lead = f"the p99 of the first token is {p99 / median:.1f}x its median"
    if waiting >= 1.0:
        against = "none" if waiting_off < 1.0 else f"{waiting_off:.0f}"
        limit = _limit(on)
        return TailCause(
            "ttft",
            "queue",
            f"{lead}: up to {waiting:.0f} requests wait for {limit} (with speculation off "
            f"{against})",
        )
    word = "longer" if p99 > NEUTRAL_HIGH * p99_off else "as long"
    return TailCause(
        "ttft", "prefill" if p99 > 1.5 * median else "",
        f"{lead}: nobody waits for a slot; prompts wait for the step under way and for each other "
        f"({word} with speculation on)",
    )  # fmt: skip


def _peak_waiting(r: Served) -> float:
    return max(
        (float(np.percentile(run.waiting, 99.5)) for run in r.runs if run.waiting.size), default=0.0
    )


def _limit(arms: Sequence[Served]) -> str:
    fullest = max(run.most_used / run.capacity for r in arms for run in r.runs)
    return "blocks of the cache" if fullest > 0.97 else "a slot or room in the step"


def verdict(off: ArmSimulation, on: ArmSimulation | None, routed: ArmSimulation | None) -> str:
    """Return means and tails of on against off in a sentence."""
    if on is None:
        return "no speculation was asked for: give --spec-method to compare"
    said = [
        _against(
            "time per token", on.tpot_ms.mean / off.tpot_ms.mean, on.tpot_ms.p99 / off.tpot_ms.p99
        ),
        _against(
            "first token", on.ttft_ms.mean / off.ttft_ms.mean, on.ttft_ms.p99 / off.ttft_ms.p99
        ),
        _against("whole answer", on.e2e_ms.mean / off.e2e_ms.mean, on.e2e_ms.p99 / off.e2e_ms.p99),
    ]
    text = "with speculation on: " + "; ".join(said)
    hidden = [
        name
        for name, a, b in (
            ("time per token", on.tpot_ms, off.tpot_ms),
            ("the first token", on.ttft_ms, off.ttft_ms),
            ("the whole answer", on.e2e_ms, off.e2e_ms),
        )
        if a.mean < NEUTRAL_LOW * b.mean and a.p99 > NEUTRAL_HIGH * b.p99
    ]
    if hidden:
        text += (
            f"; the mean hides the tail of {' and '.join(hidden)}: better on average, worse at p99"
        )
    if on.overloaded and not off.overloaded:
        text = "speculation cannot hold this load, which is served without it; " + text
    if routed is not None:
        text += (
            f"; routed by load: p99 per token {routed.tpot_ms.p99 / off.tpot_ms.p99:.2f}x that "
            "of off, "
            f"mean {routed.tpot_ms.mean / off.tpot_ms.mean:.2f}x"
        )
    return text


def _against(what: str, mean: float, p99: float) -> str:
    return f"{what} {_times(mean)} on average, {_times(p99)} at p99"


def _times(ratio: float) -> str:
    if not math.isfinite(ratio):
        return "unknown"
    if NEUTRAL_LOW <= ratio <= NEUTRAL_HIGH:
        return "level"
    return f"{1 / ratio:.2f}× faster" if ratio < 1 else f"{ratio:.2f}× slower"
