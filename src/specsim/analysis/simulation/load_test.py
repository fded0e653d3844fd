"""One replica of a deployment under a rate: what a plan asks for, again and again."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specsim.analysis.overlay import Overlay
from specsim.analysis.prepare import SEED
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import open_loop
from specsim.analysis.simulation import statistics
from specsim.analysis.simulation.engine import Loop
from specsim.analysis.simulation.load import OfferedLoad, accepted
from specsim.analysis.simulation.run import serve
from specsim.analysis.simulation.served import ArmKind, ServedArm
from specsim.analysis.simulation.simulate import served_arms
from specsim.schema.simulation import ArmSimulation
from specsim.schema.slo import Slo


@dataclass
class LoadTest:
    """Both arms of a deployment, on the same requests at every rate."""

    arms: dict[str, ServedArm]
    load: OfferedLoad
    slo: Slo
    seed: int
    loop: Loop = "lists"
    _known: dict[tuple[ArmKind, float], ArmSimulation] = field(default_factory=dict)

    def stable_rate(self, arm: ArmKind) -> float:
        """Return the rate beyond which the closed form says that the queue grows. [requests/s]."""
        curve = open_loop(self.arms[arm].arm, self.load.workload)
        return float(np.max(curve.largest_stable_rate))

    def at_rate(self, arm: ArmKind, request_rate: float) -> ArmSimulation:
        """Simulate one replica at a rate [requests/s]."""
        key = (arm, request_rate)
        if key not in self._known:
            served = self.arms[arm]
            load = self.load.at_rate(request_rate, served.arm)
            requests, refused = accepted(
                load.requests(np.random.SeedSequence(self.seed)), served.arm
            )
            first, last = load.measured
            measured = (min(first, requests.n - 1), min(last, requests.n))
            answer = serve([served], requests, load, measured, self.loop)
            self._known[key] = statistics.summary(
                [answer], self.slo, rejected=refused, closed=False
            )
        return self._known[key]


def load_test(
    deployment: Deployment,
    laid: Overlay,
    slo: Slo,
    *,
    num_requests: int = 2000,
    seed: int = SEED,
    loop: Loop = "lists",
) -> LoadTest:
    """Return the load test of a deployment."""
    load = OfferedLoad(deployment.scenario.workload, num_requests)
    return LoadTest(served_arms(deployment, laid.point()), load, slo, seed, loop)
