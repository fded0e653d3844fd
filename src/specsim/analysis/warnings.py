"""Warnings that need the prediction, not only the input."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from specsim.analysis.arms import Arm
from specsim.analysis.curves import Pair
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import largest_batch, mean_context
from specsim.schema.results import DOES_NOT_START
from specsim.schema.scenario import Workload


def late_warnings(deployment: Deployment, arms: Pair) -> tuple[str, ...]:
    """Return warnings that need the prediction: the cache circle, the limit of graphs."""
    found = list(dict.fromkeys(arms.baseline.budget.notes + arms.speculative.budget.notes))
    if deployment.scenario.speculation.num_speculative_tokens_per_batch_size is not None:
        found.append(
            f"k = {deployment.num_speculative_tokens} is predicted at every load: the schedule of "
            "k by batch size is followed by `specsim simulate`"
        )
    asked = max(deployment.scenario.load.concurrency or (0.0,))
    for name, arm in (("off", arms.baseline), ("on", arms.speculative)):
        most, why = largest_batch(arm, arms.workload)
        if why == "kv" and float(most) < asked:
            found.append(
                f"with speculation {name} the KV cache holds {float(most):g} requests of this "
                "length at a time: above that they wait"
            )
    most, _ = largest_batch(arms.speculative, arms.workload)
    cliff = _graph_cliff(arms.speculative, arms.workload)
    if cliff is not None and cliff < min(asked, float(most)):
        limit = float(arms.speculative.overheads.max_graph_tokens)
        found.append(
            f"above {cliff} requests a speculative step has more than {limit:g} tokens and is "
            "launched without CUDA graphs, which is slower than the device here; raise "
            "max_cudagraph_capture_size (engine.max_graph_tokens)"
        )
    found += _drafter_without_graphs(deployment, arms.speculative, arms.workload)
    return tuple(found)


def _drafter_without_graphs(deployment: Deployment, arm: Arm, workload: Workload) -> list[str]:
    """Warn where a drafter waits for launches because its engine version captures no graphs."""
    if not (arm.plan is not None and arm.plan.eager and deployment.scenario.engine.cuda_graphs):
        return []
    graphed = replace(arm, plan=replace(arm.plan, eager=False))
    context = mean_context(workload)
    as_is, captured = (float(a.step(1.0, context).draft.total_s) for a in (arm, graphed))
    if as_is < 1.5 * captured:
        return []
    engine = deployment.scenario.engine.name
    return [
        f"{engine} {deployment.engine.version} runs a {deployment.method} drafter without CUDA "
        f"graphs: at one request drafting takes {as_is * 1e3:.3g} ms per step, mostly launches, "
        f"where captured graphs would take {captured * 1e3:.3g} ms; another engine version may "
        "capture them"
    ]


def blocking_first(warnings: tuple[str, ...]) -> tuple[str, ...]:
    """Put what keeps the engine from starting before the rest."""
    return tuple(sorted(warnings, key=lambda text: not text.startswith(DOES_NOT_START)))


def _graph_cliff(arm: Arm, workload: Workload) -> int | None:
    """Return the requests above which launching without graphs outlasts the work, if any."""
    limit = float(arm.overheads.max_graph_tokens)
    cliff = math.floor(limit / float(np.max(arm.verify_tokens)))
    if limit <= 0 or cliff < 1:
        return None
    graphed = replace(arm, overheads=replace(arm.overheads, max_graph_tokens=math.inf))
    context = mean_context(workload)
    slower = arm.step(cliff + 1.0, context).verify.total_s
    return cliff if slower > 1.02 * graphed.step(cliff + 1.0, context).verify.total_s else None
