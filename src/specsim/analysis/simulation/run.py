"""One replication: the same requests through each arm, on one engine or on pools of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specsim.analysis.simulation.engine import Engine, Loop
from specsim.analysis.simulation.load import OfferedLoad, accepted
from specsim.analysis.simulation.requests import Requests
from specsim.analysis.simulation.served import ServedArm, served_tables
from specsim.analysis.simulation.statistics import Served, served
from specsim.schema.simulation import ArmName


@dataclass(frozen=True)
class Pools:
    """Replicas with speculation on and off behind one router."""

    on: int
    off: int
    route_above: float
    """Requests in the system of an on replica from which on new ones go to the off pool."""

    @property
    def replicas(self) -> int:
        """All of them."""
        return self.on + self.off


@dataclass(frozen=True)
class Replication:
    """A task that can be sent to another process."""

    baseline: ServedArm
    speculative: ServedArm | None
    load: OfferedLoad
    seed: np.random.SeedSequence
    loop: Loop
    pools: Pools | None = None


def replicate(task: Replication) -> tuple[dict[ArmName, Served], int]:
    """Run one replication; also return how many requests were refused."""
    arms = [arm for arm in (task.baseline, task.speculative) if arm is not None]
    requests = task.load.requests(task.seed)
    n_refused = 0
    for arm in arms:
        # What one arm refuses is not sent to the other either: both serve the same.
        requests, more = accepted(requests, arm.arm)
        n_refused += more
    first, last = task.load.measured
    measured = (min(first, requests.n), min(last, requests.n))
    if n_refused and last == task.load.num_requests + 2 * task.load.warm_up:
        measured = (0, requests.n)
    n = 1 if task.pools is None else task.pools.replicas
    answers: dict[ArmName, Served] = {
        arm.kind: serve([arm] * n, requests, task.load, measured, task.loop) for arm in arms
    }
    if task.pools is not None and task.speculative is not None:
        replicas = [task.speculative] * task.pools.on + [task.baseline] * task.pools.off
        answers["routed"] = serve(
            replicas, requests, task.load, measured, task.loop, pools=task.pools
        )
    return answers, n_refused


def serve(
    replicas: Sequence[ServedArm],
    requests: Requests,
    load: OfferedLoad,
    measured: tuple[int, int],
    loop: Loop,
    *,
    pools: Pools | None = None,
) -> Served:
    """Send requests to replicas, each to the one with the fewest in its pool."""
    if len(replicas) == 1:
        engine = Engine(
            replicas[0],
            requests,
            concurrency=load.concurrency,
            measured=measured,
            all_ages=load.all_ages,
            loop=loop,
        )
        engine.advance()
        return served([engine.result()], measured)
    tables = {
        id(arm): served_tables(arm, requests) for arm in {id(a): a for a in replicas}.values()
    }
    engines = [
        Engine(arm, requests, own=np.empty(0, dtype=np.int64), loop=loop, tables=tables[id(arm)])
        for arm in replicas
    ]
    on = range(pools.on) if pools is not None else range(len(engines))
    off = range(len(on), len(engines))
    for i, arrival_s in enumerate(requests.arrival_s.tolist()):
        for engine in engines:
            engine.advance(arrival_s)
        chosen = min(on, key=lambda j: engines[j].in_system, default=None)
        if pools is not None and (chosen is None or engines[chosen].in_system >= pools.route_above):
            chosen = min(off, key=lambda j: engines[j].in_system, default=chosen)
        assert chosen is not None, "there is a replica"
        engines[chosen].submit(i)
    for engine in engines:
        engine.advance()
    return served([engine.result() for engine in engines], measured)
