"""What to know before trusting a calibration: a verdict, doubts and warnings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from specsim.analysis.predict import kv_result
from specsim.calibration.fit import Fit
from specsim.calibration.model import RunModel
from specsim.calibration.runs import Run
from specsim.errors import InfeasibleError
from specsim.schema.calibration import Calibration, Doubt
from specsim.schema.measurement import Measurement
from specsim.schema.scenario import Scenario

_OTHER_CACHE = 0.05
"""Relative difference of two cache sizes that is no rounding."""
_POOR = 0.12
"""Error of left-out speedups beyond which a calibration says the direction at best."""
_NO_FIT = 0.15
"""Scatter about the fit beyond which it explains nothing."""
_GAP = 0.1
"""Relative distance of neighbouring acceptance lengths that no drafter has between its runs."""
_MOST_NAMED = 3
_OUTLIER = 0.6
"""Weight that the robust loss leaves a run, below which it is named."""


def refused(calibration: Calibration) -> bool:
    """Whether its runs are too far off its fit for it to be used."""
    return calibration.run_log_sd >= _NO_FIT


def verdict(calibration: Calibration) -> str:
    """Say in a sentence whether to trust a calibration."""
    scatter = 100.0 * calibration.run_log_sd
    if refused(calibration):
        return (
            f"do not use it: runs are off the fit by {scatter:.0f} %, so that the model does not "
            "explain them within what factors may be"
        )
    error = calibration.left_out.speedup_log_sd
    if error is None:
        return "not tested: measure three loads or more in both arms, low and high"
    if error >= _POOR:
        return (
            f"poor: speedups at loads that it did not see are off by {100 * error:.0f} % (root "
            "mean square); use it for the direction only"
        )
    return (
        f"speedups between the measured loads are good to about {100 * error:.0f} % (root mean "
        f"square at loads left out); runs scatter {scatter:.0f} %"
    )


def what_decides(calibration: Calibration) -> str:
    """Say in a sentence what the figures beside a verdict are, and which of them it goes by."""
    limit, poor = f"{100 * _NO_FIT:.0f} %", f"{100 * _POOR:.0f} %"
    if not calibration.left_out.loads:
        return (
            f"the spread of the runs about the fit decides ({limit} is too much); fewer than three "
            "loads: none can be left out to test the fit"
        )
    medians = "unseen errors are medians: half of them are larger"
    if refused(calibration):
        return (
            f"the spread of all runs about the fit decides ({limit} is too much), and runs that "
            f"are far off count in it; {medians}, by whatever"
        )
    return (
        f"the spread of all runs about the fit decides first ({limit} is too much), then the root "
        f"mean square of unseen speedups (poor from {poor}); {medians}"
    )


def acceptance_groups(rows: Sequence[Measurement]) -> dict[int, tuple[AcceptanceGroup, ...]]:
    """Return the runs of a k by the acceptance that they counted, shortest first.

    Runs of one drafter on one kind of prompt differ by a few percent; a gap is wider than that.
    """
    by_k: dict[int, list[tuple[float, Measurement]]] = {}
    for row in rows:
        counted = None if row.acceptance is None else row.acceptance.acceptance_length
        is_run = row.concurrency is not None or row.request_rate is not None
        if row.arm == "on" and is_run and row.num_speculative_tokens and counted:
            by_k.setdefault(row.num_speculative_tokens, []).append((counted, row))
    found = {}
    for k, members in sorted(by_k.items()):
        ordered = sorted(members, key=lambda m: m[0])
        groups = [[ordered[0]]]
        for before, one in pairwise(ordered):
            if one[0] > before[0] * (1.0 + _GAP):
                groups.append([])
            groups[-1].append(one)
        of = {id(row): group[0][0] for group in groups for _, row in group}
        found[k] = tuple(
            AcceptanceGroup(
                k,
                statistics.median(length for length, _ in group),
                tuple(row for _, row in members if of[id(row)] == group[0][0]),
            )
            for group in groups
        )
    return found


@dataclass(frozen=True)
class AcceptanceGroup:
    """Runs of one k that counted much the same acceptance."""

    num_speculative_tokens: int
    length: float
    """Median over the runs, tokens per drafting step."""
    rows: tuple[Measurement, ...]

    @property
    def named(self) -> str:
        """Its files in a few words."""
        sources = [row.source.rpartition("/")[2] for row in self.rows]
        more = len(sources) - _MOST_NAMED
        return ", ".join(sources[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def mixed_acceptance(rows: Sequence[Measurement]) -> tuple[str, ...]:
    """Warn where runs of one k are of drafters, or prompts, that differ in acceptance."""
    return tuple(
        f"runs at k = {k} are of {len(groups)} acceptances, mixed: "
        + "; ".join(f"{g.length:.3g} tokens per step in {g.named}" for g in groups)
        + ". Their pooled acceptance is that of no run: where drafter or prompts differ, calibrate "
        "each alone"
        for k, groups in acceptance_groups(rows).items()
        if len(groups) > 1
    )


def outliers(model: RunModel, fitted: Fit) -> tuple[Doubt, ...]:
    """Name the runs that the robust loss counts for little."""
    found = []
    for i, run in enumerate(model.runs):
        if fitted.weights[i] < _OUTLIER:
            off = 100.0 * np.expm1(fitted.residuals[i])
            found.append(
                Doubt(
                    run.source,
                    True,
                    f"{abs(off):.0f} % {'slower' if off > 0 else 'faster'} than the fit: an "
                    f"outlier, counted at {100 * fitted.weights[i]:.0f} % of its weight",
                )
            )
    return tuple(found)


def few_runs(runs: Sequence[Run]) -> tuple[str, ...]:
    """Warn of what the choice of runs leaves open."""
    notes = []
    if len({r.k for r in runs if r.k}) == 1:
        notes.append(
            "one k measured: a second tells the drafter's time from what else speculation adds"
        )
    arms = {r.arm for r in runs}
    if len(arms) == 1:
        only = arms.pop()
        notes.append(
            f"all runs have speculation {only}: nothing tells the other arm, whose constants stay "
            "the shipped ones"
        )
    if len({r.load for r in runs}) < 3:
        n = len({r.load for r in runs})
        notes.append(
            f"{n} load{'s' if n > 1 else ''} measured: memory and compute are told apart by "
            "runs at low and at high load"
        )
    return tuple(notes)


def no_fit(calibration: Calibration) -> tuple[str, ...]:
    """Warn where no factors explain the runs."""
    if not refused(calibration):
        return ()
    return (
        "the runs are not of this deployment, or something is at work that the model lacks: check "
        "model, device, dtypes, lengths and k of the scenario",
    )


def other_cache(
    rows: Sequence[Measurement], scenario: Scenario, search: Sequence[Path]
) -> tuple[str, ...]:
    """Warn where the server had another KV cache than the scenario gives it."""
    try:
        memory = kv_result(scenario, search=search)
    except InfeasibleError as error:
        return (f"by the scenario this does not fit, and it ran: {error}",)
    notes = []
    for arm, budget in (("off", memory.baseline), ("on", memory.speculative)):
        printed = {r.kv_tokens for r in rows if r.arm == arm and r.kv_tokens}
        far = [n for n in printed if abs(n / budget.kv_tokens - 1.0) > _OTHER_CACHE]
        if far:
            notes.append(
                f"speculation {arm}: the server printed a cache of {min(far):,} tokens, the "
                f"scenario gives {budget.kv_tokens:,}; set engine.gpu_memory_utilization, "
                "max_num_seqs and max_model_len as the server had them, if requests wait for memory"
            )
    return tuple(notes)
