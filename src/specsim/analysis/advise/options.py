"""The ways to run a deployment, each simulated on the same requests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from specsim.analysis.prepare import prepared
from specsim.analysis.resolve import Deployment
from specsim.analysis.simulation.engine import Loop
from specsim.analysis.simulation.load import OfferedLoad, accepted, warm_up_requests
from specsim.analysis.simulation.run import Pools, serve
from specsim.analysis.simulation.served import ServedArm, served_arm
from specsim.analysis.simulation.statistics import Served
from specsim.catalog.engines import parse_version, version_before
from specsim.catalog.serve_flags import flag_table
from specsim.errors import UsageError
from specsim.schema.advice import OptionKind, Tiers
from specsim.schema.calibration import Calibration
from specsim.schema.results import Prediction
from specsim.schema.scenario import Scenario
from specsim.schema.simulation import Sample

LOADS = (
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448,
    512, 640, 768, 1024,
)  # fmt: skip
"""Loads that the best k is looked up at: where the ranges of a schedule may end."""
_SCHEDULE = "num_speculative_tokens_per_batch_size"


@dataclass(frozen=True)
class Option:
    """One way to run the deployment, ready to serve."""

    name: str
    kind: OptionKind
    k: int
    replicas: tuple[ServedArm, ...]
    schedule: Tiers | None = None
    pools: Pools | None = None


@dataclass(frozen=True)
class Trial:
    """One option on one draw of the requests: a task that can be sent to another process."""

    replicas: tuple[ServedArm, ...]
    every_arm: tuple[ServedArm, ...]
    """What one arm refuses is sent to none: all options serve the same."""
    load: OfferedLoad
    seed: np.random.SeedSequence
    loop: Loop
    pools: Pools | None = None


def run_trial(trial: Trial) -> tuple[Served, int]:
    """Serve the requests of a trial; also return how many were refused."""
    requests = trial.load.requests(trial.seed)
    n_refused = 0
    for arm in trial.every_arm:
        requests, more = accepted(requests, arm.arm)
        n_refused += more
    first, last = trial.load.measured
    measured = (min(first, requests.n), min(last, requests.n))
    reply = serve(trial.replicas, requests, trial.load, measured, trial.loop, pools=trial.pools)
    return reply, n_refused


def offered(deployment: Deployment, arms: Sequence[ServedArm], num_requests: int) -> OfferedLoad:
    """Return the highest load of the scenario."""
    workload, load = deployment.scenario.workload, deployment.scenario.load
    if load.request_rate is not None:
        rate = max(load.request_rate)
        warm_up = max(warm_up_requests(a.arm, workload, rate, num_requests) for a in arms)
        return OfferedLoad(workload, num_requests, request_rate=rate, warm_up=warm_up)
    most = max(load.concurrency or (1.0,))
    concurrency = int(most)
    if concurrency != most:
        raise UsageError(
            f"{most:g} concurrent requests: single requests are whole; give load.concurrency "
            f"[{math.ceil(most)}]"
        )
    if workload.arrival == "burst":
        n = workload.num_requests or concurrency
        return OfferedLoad(workload, n, concurrency=concurrency)
    return OfferedLoad(workload, num_requests, concurrency=concurrency, warm_up=2 * concurrency)


def for_replicas(load: OfferedLoad, n: int) -> OfferedLoad:
    """Return the load as often over as there are replicas to share it."""
    if n == 1 or load.request_rate is None:
        return load
    return replace(
        load,
        num_requests=load.num_requests * n,
        request_rate=load.request_rate * n,
        warm_up=load.warm_up * n,
    )


def peak_in_batch(replies: Sequence[Served], percentile: float) -> float:
    """Return a percentile over time of the requests in the batch."""
    return _over_time(replies).percentile(percentile)


def mean_in_batch(replies: Sequence[Served]) -> float:
    """Return the mean over time of the requests in the batch."""
    return _over_time(replies).mean()


def _over_time(replies: Sequence[Served]) -> Sample:
    """Return the requests in the batch, weighted by time; an idle engine has none."""
    values, seconds = [], []
    for reply in replies:
        for run in reply.runs:
            inside = (run.end_s > reply.start_s) & (run.end_s - run.step_s < reply.end_s)
            idle_s = max(reply.duration_s - float(np.sum(run.step_s[inside])), 0.0)
            values += [run.running[inside], np.zeros(1)]
            seconds += [run.step_s[inside], np.array([idle_s])]
    return Sample(np.concatenate(values), np.concatenate(seconds))


def with_k(deployment: Deployment, scenario: Scenario, k: int, schedule: Tiers | None) -> Scenario:
    """Return a scenario with another k or schedule, and the acceptance that it has by then."""
    given = deployment.scenario.speculation.acceptance
    if given is not None and given.measured_at_k is None and k != deployment.num_speculative_tokens:
        if given.length is not None or given.draft_acceptance_rate is not None:
            measured = {"measured_at_k": deployment.num_speculative_tokens}
            given = given.model_copy(update=measured)
    changed = {"num_speculative_tokens": k, "acceptance": given, _SCHEDULE: schedule}
    return scenario.model_copy(
        update={"speculation": scenario.speculation.model_copy(update=changed)}
    )


def smaller_ks(prediction: Prediction, most: int, peak: float) -> set[int]:
    """Return each smaller k that is best at some load up to the peak."""
    return {b.k for b in prediction.best_k if b.load <= peak and 0 < b.k < most}


def schedule_of(prediction: Prediction, most: int, largest_batch: int) -> Tiers | None:
    """Return vLLM's schedule from the best k by load; None where one k is best at all.

    Notes
    -----
    `LOADS` are where ranges end: between two loads the larger one's k holds,
    which is the smaller k as a rule. Loads at which requests wait for memory tell no batch.
    """
    by_load = {b.load: min(b.k, most) for b in prediction.best_k}
    ends = [
        (int(p.concurrency), by_load[p.concurrency])
        for p in prediction.points
        if p.concurrency in by_load
        and p.baseline is not None
        and p.baseline.limited_by == "load"
        and p.concurrency in LOADS
    ]
    tiers: list[tuple[int, int, int]] = []
    first = 1
    for k, group in itertools.groupby(zip(ends, _smoothed([k for _, k in ends]), strict=True),
                                      key=lambda pair: pair[1]):  # fmt: skip
        last = list(group)[-1][0][0]
        tiers.append((first, last, k))
        first = last + 1
    if len(tiers) < 2:
        return None
    start, last, k = tiers[-1]
    tiers[-1] = (start, max(last, largest_batch), k)
    return tuple(tiers)


def _smoothed(ks: list[int]) -> list[int]:
    """Return the k by load without runs that only dip to a neighbour and back: those are ties.

    >>> _smoothed([4, 4, 3, 4, 3, 3, 1])
    [4, 4, 4, 4, 3, 3, 1]
    """
    runs = [(k, len(list(group))) for k, group in itertools.groupby(ks)]
    smooth = [k for k, _ in runs]
    for i in range(1, len(runs) - 1):
        if smooth[i - 1] == smooth[i + 1] and abs(smooth[i] - smooth[i - 1]) == 1:
            smooth[i] = smooth[i - 1]
    return [k for k, (_, n) in zip(smooth, runs, strict=True) for _ in range(n)]


def can_schedule(deployment: Deployment) -> bool:
    """Return whether the engine takes a schedule of k by batch with this way of speculating."""
    speculation, engine = deployment.scenario.speculation, deployment.scenario.engine
    if engine.name != "vllm" or speculation.tree is not None or speculation.adaptive_verification:
        return False
    before = flag_table("vllm").data["speculative_fields"][_SCHEDULE].get("absent_to")
    version = parse_version(deployment.engine.version)
    return before is None or version_before(parse_version(before), version)


def options_of(
    scenario: Scenario,
    deployment: Deployment,
    prediction: Prediction,
    ks: Iterable[int],
    arms: dict[str, ServedArm],
    search: Sequence[Path],
    calibration: Calibration | Path | str | None,
) -> list[Option]:
    """Return the options beside off and on as given.

    Parameters
    ----------
    ks : iterable of int
        Smaller numbers of draft tokens to try.
    """

    def arm(k: int, schedule: Tiers | None) -> ServedArm:
        changed, laid = prepared(with_k(deployment, scenario, k, schedule), search, calibration)
        return served_arm(changed, "speculative", laid.point())

    speculation = deployment.scenario.speculation
    most = deployment.num_speculative_tokens
    found: list[Option] = []
    if speculation.tree is None and not speculation.adaptive_verification:
        smaller = sorted((k for k in ks if k < most), reverse=True)
        found += [Option(f"k = {k}", "cap", k, (arm(k, None),)) for k in smaller]
    if can_schedule(deployment):
        schedule = schedule_of(prediction, most, deployment.speculative_max_num_seqs)
        given = speculation.num_speculative_tokens_per_batch_size
        if schedule is not None and schedule != given:
            longest = max(k for _, _, k in schedule)
            found.append(
                Option(
                    "k by batch", "schedule", longest, (arm(longest, schedule),), schedule=schedule
                )
            )
    crossover = prediction.crossover
    is_open = scenario.load.request_rate is not None
    if is_open and crossover is not None and crossover.load is not None:
        pools = Pools(1, 1, crossover.load)
        pair = (arms["speculative"], arms["baseline"])
        found.append(Option("routed by load", "route", most, pair, pools=pools))
    return found
