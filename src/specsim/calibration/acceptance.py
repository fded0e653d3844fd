"""The acceptance that runs counted, pooled over runs of the same k."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from specsim.schema.calibration import CalibrationAcceptance
from specsim.schema.measurement import Measurement


def counted_acceptance(
    rows: Sequence[Measurement], *, method: str = "none"
) -> tuple[CalibrationAcceptance, ...]:
    """Pool acceptance by k, weighted by drafts where they were counted.

    Methods that draft on a match only also get the share of steps that drafted.

    Rows of a server (a log) count the same drafts as the runs they cover: they are used only
    where no run counted any.
    """
    on = [
        r
        for r in rows
        if r.arm == "on"
        and r.num_speculative_tokens
        and r.acceptance is not None
        and r.acceptance.acceptance_length is not None
    ]
    runs = [r for r in on if r.concurrency is not None or r.request_rate is not None]
    counted_by_runs = {r.num_speculative_tokens for r in runs}
    by_k: dict[int, list[Measurement]] = defaultdict(list)
    for row in on:
        k = row.num_speculative_tokens or 0
        if row in runs or k not in counted_by_runs:
            by_k[k].append(row)
    found = []
    for k, together in sorted(by_k.items()):
        one = _pooled(k, together, drafts_on_match=method in ("ngram", "suffix"))
        if one is not None:
            found.append(one)
    return tuple(found)


def _pooled(
    k: int, rows: Sequence[Measurement], *, drafts_on_match: bool
) -> CalibrationAcceptance | None:
    lengths, positions, weights = [], [], []
    for row in rows:
        acceptance = row.acceptance
        if acceptance is None or acceptance.acceptance_length is None:
            continue
        lengths.append(acceptance.acceptance_length)
        positions.append(acceptance.per_position)
        weights.append(acceptance.drafts or 0)
    if not lengths:
        return None
    counted = sum(weights) > 0
    w = np.array(weights if counted else [1] * len(lengths), dtype=float)
    length = float(np.clip(np.average(lengths, weights=w), 1.0, k + 1.0))
    per_position = None
    known = [(p, x) for p, x in zip(positions, w, strict=True) if p is not None and len(p) == k]
    if known and sum(x for _, x in known) > 0:
        mean = np.average([p for p, _ in known], axis=0, weights=[x for _, x in known])
        per_position = tuple(float(x) for x in np.minimum.accumulate(np.clip(mean, 0.0, 1.0)))
    return CalibrationAcceptance(
        num_speculative_tokens=k,
        length=length,
        per_position=per_position,
        counts=int(sum(weights)) or None,
        proposal_rate=_proposal_rate(rows) if drafts_on_match else None,
    )


def _proposal_rate(rows: Sequence[Measurement]) -> float | None:
    """Return drafts per step after the first: steps are answers less what drafts saved."""
    drafts = steps = 0.0
    for row in rows:
        found = row.acceptance
        if found is None or not found.drafts or found.accepted_tokens is None:
            continue
        if not row.completed or row.output_tokens is None:
            continue
        drafts += found.drafts
        steps += row.completed * (row.output_tokens - 1.0) - found.accepted_tokens
    return min(drafts / steps, 1.0) if drafts > 0 and steps > 0 else None
