"""What is sent in a run: how many requests before, among and after those that are measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from specsim.analysis.arms import Arm
from specsim.analysis.serving import open_loop
from specsim.analysis.simulation.requests import Requests, draw_requests
from specsim.analysis.simulation.served import refused
from specsim.catalog.traces import Trace
from specsim.errors import InfeasibleError
from specsim.schema.scenario import Workload

_LEAST_WARM_UP = 50
_WARM_UP_BATCHES = 3.0
"""Requests sent before those measured, in batches of the closed form: after two or three stays of
a request the start from an empty server is forgotten."""


@dataclass(frozen=True)
class OfferedLoad:
    """One load, the same for both arms."""

    workload: Workload
    num_requests: int
    """Measured in one replication."""
    concurrency: int | None = None
    request_rate: float | None = None
    """Of a trace: the rate that it is stretched to."""
    trace: Trace | None = None
    warm_up: int = 0
    """Requests sent before the measured ones; as many follow them."""

    @property
    def measured(self) -> tuple[int, int]:
        """First request measured, and the one after the last."""
        return self.warm_up, self.warm_up + self.num_requests

    @property
    def all_ages(self) -> bool:
        """Whether a closed loop starts with requests of all ages."""
        return self.concurrency is not None and self.workload.arrival == "steady"

    @property
    def is_closed(self) -> bool:
        """Whether an answer sends the next request."""
        return self.concurrency is not None

    def requests(self, seed: np.random.SeedSequence) -> Requests:
        """Draw what is sent in one replication."""
        return draw_requests(
            self.workload,
            self.num_requests + 2 * self.warm_up,
            seed,
            request_rate=None if self.trace is not None else self.request_rate,
            trace=self.trace,
        )

    def at_rate(self, request_rate: float, arm: Arm) -> OfferedLoad:
        """Return the same requests at another rate, with the warm-up that an arm needs there."""
        warm_up = warm_up_requests(arm, self.workload, request_rate, self.num_requests)
        return replace(self, request_rate=request_rate, warm_up=warm_up)


def warm_up_requests(arm: Arm, workload: Workload, request_rate: float, most: int) -> int:
    """Return how many requests to send before the measured ones, at most as many as those."""
    curve = open_loop(arm, workload)
    batch = float(np.ravel(curve.at(request_rate, curve.batches))[-1])
    if not np.isfinite(batch):
        batch = float(np.max(curve.batches))
    return int(min(max(_WARM_UP_BATCHES * batch, _LEAST_WARM_UP), most))


def accepted(requests: Requests, arm: Arm) -> tuple[Requests, int]:
    """Return the requests that the server takes, and how many it refuses.

    Raises
    ------
    InfeasibleError
        It takes none.
    """
    too_long = refused(arm, requests)
    n_refused = int(too_long.sum())
    if n_refused == 0:
        return requests, 0
    longest = int(np.max(requests.input_tokens + requests.output_tokens))
    if n_refused == requests.n:
        shortest = int(np.min(requests.input_tokens + requests.output_tokens))
        budget = arm.budget
        if shortest > budget.max_model_len:
            what = f"max_model_len {budget.max_model_len}: raise --max-model-len"
        else:
            what = (
                f"the KV cache of {budget.kv_tokens} tokens: use more devices "
                "(--tensor-parallel-size), a narrower --kv-cache-dtype"
            )
        raise InfeasibleError(
            f"every request is refused: prompt and answer have {shortest} to {longest} tokens, "
            f"above {what}, or shorten the lengths"
        )
    return requests.only(~too_long), n_refused
