"""Serve single requests on both arms, and say what their percentiles are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from specsim.analysis.prepare import SEED, prepared, provenance, scenario_json
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import open_loop
from specsim.analysis.simulation import statistics
from specsim.analysis.simulation.compare import intervals, slo_results
from specsim.analysis.simulation.engine import Loop
from specsim.analysis.simulation.load import OfferedLoad, warm_up_requests
from specsim.analysis.simulation.run import Pools, Replication, replicate
from specsim.analysis.simulation.served import ServedArm, served_arm
from specsim.analysis.simulation.statistics import Served
from specsim.analysis.simulation.tails import tail_causes, verdict
from specsim.analysis.warnings import blocking_first
from specsim.catalog.traces import Trace, read_trace
from specsim.errors import UsageError
from specsim.schema.calibration import Calibration
from specsim.schema.scenario import Load, Scenario
from specsim.schema.simulation import ArmName, ArmSimulation, Simulation
from specsim.schema.slo import Slo

NUM_REQUESTS, REPLICATIONS = 2000, 5
_USED = 0.7
"""Of what it serves that a replica is loaded with: planner's usual target for chat."""
_WORTH_COMPILING = 400_000
"""Requests above which loading the compiled loop costs less than it saves."""


class Executor(Protocol):
    """What runs tasks elsewhere: concurrent.futures, or what looks like it (Dask, Ray, MPI)."""

    def submit(self, fn: Any, /, *args: Any) -> Any:
        """Start a call; return a future with `.result()`."""


def simulate(
    scenario: Scenario,
    *,
    slo: Slo | None = None,
    trace: Trace | Path | str | None = None,
    pools: Pools | None = None,
    num_requests: int | None = None,
    replications: int = REPLICATIONS,
    seed: int = SEED,
    loop: Loop | None = None,
    executor: Executor | None = None,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> Simulation:
    """Serve the requests of a scenario one by one, with speculation off and on.

    Parameters
    ----------
    slo : Slo, optional
        What to hold the answers against.
    trace : Trace or path, optional
        Recorded arrivals and lengths, in place of the workload's and the load's.
    pools : Pools, optional
        Also route between replicas with speculation on and off; all arms then have as many
        replicas.
    num_requests : int, optional
        Measured in each replication; absent: 2000, of a trace all.
    replications : int
        Independent repeats, from which the intervals come; of a trace acceptance is drawn anew.
    seed : int
        The same seed gives the same answer, whatever the executor.
    loop : 'lists' or 'compiled', optional
        Absent: compiled where numba is installed and the work is worth its start.
    executor : Executor, optional
        Absent: in this process.

    Raises
    ------
    SpecsimError
        One line saying what is wrong and what to do.
    """
    if isinstance(trace, Path | str):
        trace = read_trace(Path(trace))
    if trace is not None:
        scenario = _of_trace(scenario, trace)
    deployment, laid = prepared(scenario, search, calibration)
    arms = served_arms(deployment, laid.point())
    load, chosen = _offered(deployment, arms, trace, num_requests, pools)
    if replications < 1:
        raise UsageError(f"replications {replications}: give at least 1")
    total = (load.num_requests + 2 * load.warm_up) * replications * len(arms)
    loop = loop or default_loop(total)
    tasks = [
        Replication(arms["baseline"], arms.get("speculative"), load, child, loop, pools)
        for child in np.random.SeedSequence(seed).spawn(replications)
    ]
    done = run_all(tasks, executor)
    rejected = sum(n for _, n in done)
    replies = [answers for answers, _ in done]
    summaries: dict[ArmName, ArmSimulation] = {
        name: statistics.summary(
            [r[name] for r in replies], slo, rejected=rejected, closed=load.is_closed
        )
        for name in replies[0]
    }
    off, on = summaries["baseline"], summaries.get("speculative")
    return Simulation(
        scenario=scenario_json(deployment),
        load=_load_json(load, replications, pools, loop),
        slo=slo,
        baseline=off,
        speculative=on,
        routed=summaries.get("routed"),
        intervals=intervals(replies, summaries, slo),
        slo_met={arm: slo_results(x, slo) for arm, x in summaries.items()} if slo else {},
        tails=tail_causes([r["speculative"] for r in replies], [r["baseline"] for r in replies])
        if on is not None
        else (),
        verdict=verdict(off, on, summaries.get("routed")),
        seed=seed,
        defaults=(*deployment.defaults, *chosen),
        warnings=blocking_first(
            (*deployment.warnings, *_warnings(deployment, arms, load, summaries, rejected, pools))
        ),
        provenance=provenance(deployment, laid),
    )


def _of_trace(scenario: Scenario, trace: Trace) -> Scenario:
    """Return the scenario with the trace's mean lengths and rate as its workload."""
    lengths = {
        "input_tokens": float(np.mean(trace.input_tokens)),
        "output_tokens": float(np.mean(trace.output_tokens)),
        "input_tokens_p95": None,
        "output_tokens_p95": None,
    }
    workload = scenario.workload.model_copy(update=lengths)
    cached = min(workload.cached_prompt_tokens, workload.input_tokens)
    workload = workload.model_copy(update={"cached_prompt_tokens": cached})
    load = scenario.load
    if math.isfinite(trace.mean_rate):
        load = Load(request_rate=(trace.mean_rate,))
    return scenario.model_copy(update={"workload": workload, "load": load})


def served_arms(deployment: Deployment, constants: Any) -> dict[str, ServedArm]:
    """Return both arms ready to serve; one with method none."""
    arms = {"baseline": served_arm(deployment, "baseline", constants)}
    if deployment.method != "none":
        arms["speculative"] = served_arm(deployment, "speculative", constants)
    return arms


def default_loop(total_requests: int) -> Loop:
    """Return the loop that is done first with so many requests."""
    worth = total_requests > _WORTH_COMPILING and find_spec("numba") is not None
    return "compiled" if worth else "lists"


def run_all(
    tasks: Sequence[Replication], executor: Executor | None
) -> list[tuple[dict[ArmName, Served], int]]:
    """Run replications here or elsewhere, in order."""
    if executor is None:
        return [replicate(task) for task in tasks]
    futures = [executor.submit(replicate, task) for task in tasks]
    return [future.result() for future in futures]


def _offered(
    deployment: Deployment,
    arms: Mapping[str, ServedArm],
    trace: Trace | None,
    num_requests: int | None,
    pools: Pools | None,
) -> tuple[OfferedLoad, list[str]]:
    """Return what is sent, and what was chosen for the user."""
    if num_requests is not None and num_requests < 1:
        raise UsageError(f"{num_requests} requests: give at least 1")
    workload, load = deployment.scenario.workload, deployment.scenario.load
    chosen: list[str] = []
    if trace is not None:
        n = trace.n_requests if num_requests is None else num_requests
        return OfferedLoad(workload, n, trace=trace, request_rate=trace.mean_rate), list(
            trace.notes
        )
    n = NUM_REQUESTS if num_requests is None else num_requests
    if num_requests is None:
        chosen.append(f"requests = {n} measured in each replication")
    values = load.concurrency if load.concurrency is not None else load.request_rate or ()
    value = max(values)
    if len(values) > 1:
        flag = "--max-concurrency" if load.concurrency is not None else "--request-rate"
        chosen.append(f"load = {value:g}, the highest of the scenario's (another: {flag} N)")
    if load.request_rate is not None:
        share = value / (1 if pools is None else pools.replicas)
        warm_up = max(warm_up_requests(a.arm, workload, share, n) for a in arms.values())
        warm_up = min(warm_up * (1 if pools is None else pools.replicas), n)
        return OfferedLoad(workload, n, request_rate=value, warm_up=warm_up), chosen
    if pools is not None:
        raise UsageError("pools route requests that arrive at a rate; give --request-rate R")
    if value != int(value):
        raise UsageError(
            f"{value:g} concurrent requests: single requests are whole; give --max-concurrency "
            f"{math.ceil(value)}"
        )
    concurrency = int(value)
    if workload.arrival == "burst":
        n = workload.num_requests or (concurrency if num_requests is None else n)
        return OfferedLoad(workload, n, concurrency=concurrency), chosen
    return OfferedLoad(workload, n, concurrency=concurrency, warm_up=2 * concurrency), chosen


def _load_json(
    load: OfferedLoad, replications: int, pools: Pools | None, loop: Loop
) -> dict[str, Any]:
    kind = "concurrency" if load.is_closed else "request_rate"
    return {
        "kind": "trace" if load.trace is not None else kind,
        "value": float(load.concurrency or load.request_rate or 0.0),
        "trace": None if load.trace is None else load.trace.source,
        "requests_measured": load.num_requests,
        "requests_before": load.warm_up,
        "replications": replications,
        "pools": None
        if pools is None
        else {"on": pools.on, "off": pools.off, "route_above": pools.route_above},
        "loop": loop,
    }


def _warnings(
    deployment: Deployment,
    arms: Mapping[str, ServedArm],
    load: OfferedLoad,
    summaries: Mapping[ArmName, ArmSimulation],
    rejected: int,
    pools: Pools | None,
) -> list[str]:
    found = []
    if rejected:
        found.append(
            f"{rejected} requests are refused: prompt and answer are longer than max_model_len "
            f"{deployment.max_model_len} or the cache; raise --max-model-len, use a larger device, "
            "or cut them"
        )
    served_by = 1 if pools is None else pools.replicas
    n = load.num_requests
    if n < 500:
        found.append(
            f"{n:,} request{'s' if n > 1 else ''} in a replication leave {max(n // 100, 1)} for "
            "the slowest 1 %; give --requests 2000 or more"
        )
    for name, arm in arms.items():
        if not summaries[name].overloaded or load.request_rate is None:  # type: ignore[index]
            continue
        stable = float(np.max(open_loop(arm.arm, load.workload).largest_stable_rate))
        word = "off" if name == "baseline" else "on"
        if load.request_rate <= stable * served_by:
            found.append(
                f"with speculation {word} the wait still grew at the end of the run, though a "
                f"replica serves {stable:.3g} requests/s on average: bursts as long as the run; "
                "give more --requests"
            )
            continue
        replicas = math.ceil(load.request_rate / stable / _USED)
        found.append(
            f"overloaded with speculation {word}: {load.request_rate:.3g} requests/s arrive and a "
            f"replica serves about {stable:.3g}, so the queue grows as long as they come and the "
            "percentiles tell the length of the run, not the service; lower --request-rate or use "
            f"{replicas:,} replicas (specsim plan)"
        )
    return found
