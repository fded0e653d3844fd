"""What to know before trusting a calibration: a verdict, doubts and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from specsim.analysis.predict import kv_result
from specsim.calibration.fit import Fit
from specsim.calibration.left_out import LeftOutFits
from specsim.calibration.model import RunModel
from specsim.calibration.runs import Run
from specsim.errors import InfeasibleError
from specsim.schema.calibration import Doubt
from specsim.schema.measurement import Measurement
from specsim.schema.scenario import Scenario

_OTHER_CACHE = 0.05
"""Relative difference of two cache sizes that is no rounding."""
_POOR = 0.12
"""Error of left-out speedups beyond which a calibration says the direction at best."""
_NO_FIT = 0.15
"""Scatter about the fit beyond which it explains nothing."""
_OUTLIER = 0.6
"""Weight that the robust loss leaves a run, below which it is named."""


def verdict(best: Fit, left: LeftOutFits) -> str:
    """Say in a sentence whether to trust the calibration."""
    scatter = 100.0 * best.run_sd
    if best.run_sd >= _NO_FIT:
        return (
            f"do not use it: runs are off the fit by {scatter:.0f} %, so that the model does not "
            "explain them within what factors may be"
        )
    error = left.errors.speedup_log_sd
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


def no_fit(best: Fit) -> tuple[str, ...]:
    """Warn where no factors explain the runs."""
    if best.run_sd < _NO_FIT:
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
