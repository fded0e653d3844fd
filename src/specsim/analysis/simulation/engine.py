"""One engine: a run of requests through an arm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from specsim.analysis.simulation import scheduler as s
from specsim.analysis.simulation.draws import per_request_positions, steps_needed
from specsim.analysis.simulation.requests import Requests
from specsim.analysis.simulation.served import ServedArm, footprint, served_tables
from specsim.analysis.simulation.steps import StepTables

Array = npt.NDArray[np.float64]
Loop = Literal["lists", "compiled"]

_LOG = 1 << 14


@dataclass(frozen=True)
class Run:
    """What became of the requests of one run, and the log of its iterations."""

    requests: Requests
    arrival_s: Array
    first_s: Array
    finish_s: Array
    """NaN: not served by the end of the run."""
    n_steps: Array | None
    """Decode steps that each answer takes; None where k changes under way."""
    joined_at: npt.NDArray[np.int64]
    """Iteration after which a request has decoded."""
    stall_s: Array
    stalls: npt.NDArray[np.int64]
    end_s: Array
    step_s: Array
    decoding: Array
    running: Array
    waiting: Array
    used: Array
    capacity: float
    most_used: float
    preemptions: int
    area: float
    """Requests in the system, summed over time by the scheduler. [requests s]"""
    tokens_out: float
    prompt_tokens: float
    submitted: npt.NDArray[np.bool_]
    """Requests that this engine was sent."""


class Engine:
    """A run in progress."""

    def __init__(
        self,
        served: ServedArm,
        requests: Requests,
        *,
        concurrency: int | None = None,
        measured: tuple[int, int] | None = None,
        own: npt.NDArray[np.int64] | None = None,
        all_ages: bool = False,
        loop: Loop = "lists",
        tables: StepTables | None = None,
    ) -> None:
        """Prepare a run.

        Parameters
        ----------
        concurrency : int, optional
            Closed loop: so many requests in the system; None: requests come when they come.
        measured : pair of int, optional
            The run ends when requests from..to-1 are served; None: when all are.
        own : int array, optional
            The requests that this engine is sent from the start; None: all of an open loop.
        all_ages : bool
            The first requests of a closed loop have a part of their answer behind them, as those
            of a stream would: all alike they would go on in lockstep.
        """
        self.requests, self.loop = requests, loop
        n = requests.n
        arm = served.arm
        blocks = footprint(arm, requests)
        self.capacity = blocks.capacity
        if tables is None:
            tables = served_tables(served, requests, concurrency=concurrency)
        self.tables = tables
        ks = [t.k for t in served.tiers]
        p = per_request_positions(
            served.p,
            deviates=requests.deviates,
            spread=served.spread,
            proposal_rate=served.proposal_rate,
        )
        tokens = requests.output_tokens - 1
        rng = np.random.default_rng(requests.seed)
        steps = steps_needed(tokens, p, rng, ks=ks)
        self.n_steps = steps
        self._rates = (tokens / np.maximum(steps, 1)).ravel()
        cached = np.minimum(arm.cached_tokens, requests.input_tokens - 1.0)
        shared = np.minimum(arm.shared_prefix_tokens, requests.input_tokens - 1.0)
        queue = np.arange(n) if own is None else own
        first, last = (0, n) if measured is None else measured
        self._limits = np.zeros(s.N_LIMITS)
        for place, value in (
            (s.MOST_RUNNING, tables.n_batches),
            (s.BUDGET, arm.max_num_batched_tokens * arm.stages),
            (s.CAPACITY, blocks.capacity),
            (s.BLOCKS_PER_TOKEN, blocks.per_token),
            (s.STAGES, arm.stages),
            (s.CONTEXT_STEP, tables.context_step),
            (s.N_CONTEXTS, tables.decode_s.shape[2]),
            (s.N_BATCHES, tables.n_batches),
            (s.N_CHUNKS, tables.chunk_at.size),
            (s.N_COARSE, tables.chunk_s.shape[1]),
            (s.PAST_STEP, tables.past_step),
            (s.N_PAST, tables.past_s.shape[2]),
            (s.N_TIERS, len(ks)),
            (s.N_REQUESTS, n),
            (s.IS_CLOSED, float(concurrency is not None)),
            (s.MEASURE_FROM, first),
            (s.MEASURE_TO, last),
        ):
            self._limits[place] = value
        ints = np.zeros(s.N_INTS, dtype=np.int64)
        ints[s.TO_MEASURE] = last - first
        ints[s.NEXT_FINISH] = 1 << 60
        ints[s.N_QUEUED] = queue.size if concurrency is None else min(concurrency, n)
        ints[s.NEXT_ID] = ints[s.N_QUEUED]
        ints[s.TIER] = int(tables.tier_of[1])
        places = np.zeros(n, dtype=np.int64)
        places[: queue.size] = queue
        left = tokens.astype(float)
        if all_ages:
            started = int(ints[s.N_QUEUED])
            ages = (np.arange(started) + 1.0) / started
            left[:started] = np.ceil(left[:started] * ages)
        zeros, counts = np.zeros(n), np.zeros(n, dtype=np.int64)
        self._state: list[Any] = [
            ints, np.zeros(s.N_REALS), self._limits,
            tables.decode_s.ravel(), tables.chunk_s.ravel(), tables.past_s.ravel(),
            tables.chunk_at, tables.coarse_below, tables.coarse_share, tables.tier_of,
            tables.query_tokens,
            requests.arrival_s.copy(), places, requests.input_tokens.astype(float),
            cached.copy(), shared.copy(), blocks.fixed, left, self._rates,
            zeros.copy(), counts.copy(), counts.copy(), np.full(n, -1.0), np.full(n, np.nan),
            counts.copy(), zeros.copy(), zeros.copy(), counts.copy(),
            counts.copy(), counts.copy(), counts.copy(),
        ]  # fmt: skip
        self._log: list[Any] = [np.zeros(_LOG) for _ in range(6)]
        if loop == "lists":
            self._state = [part.tolist() for part in self._state]
            self._log = [part.tolist() for part in self._log]
        self._advance = _loop(loop)

    @property
    def in_system(self) -> int:
        """Requests that are running or waiting at the engine's clock."""
        ints = self._state[0]
        running = ints[s.N_DECODING] + ints[s.N_PREFILLING] + ints[s.N_STACK]
        return int(running + ints[s.N_QUEUED] - ints[s.HEAD])

    def submit(self, request: int) -> None:
        """Send one more request, at its arrival time or later than all before it."""
        ints, queue = self._state[0], self._state[12]
        queue[ints[s.N_QUEUED]] = request
        ints[s.N_QUEUED] += 1

    def advance(self, until: float = np.inf) -> None:
        """Run iterations that start before a time."""
        while self._advance(until, *self._state, *self._log):
            self._log = [_longer(part) for part in self._log]

    def result(self) -> Run:
        """Return what the run has done so far."""
        ints, reals = self._state[0], self._state[1]
        logged = int(ints[s.LOGGED])
        log = [np.asarray(part[:logged], dtype=float) for part in self._log]
        part = self._state
        submitted = np.zeros(self.requests.n, dtype=bool)
        submitted[np.asarray(part[12][: int(ints[s.N_QUEUED])], dtype=np.int64)] = True
        return Run(
            requests=self.requests,
            arrival_s=np.asarray(part[11], dtype=float),
            first_s=np.asarray(part[22], dtype=float),
            finish_s=np.asarray(part[23], dtype=float),
            n_steps=self.n_steps[0].astype(float) if len(self.n_steps) == 1 else None,
            joined_at=np.asarray(part[24], dtype=np.int64),
            stall_s=np.asarray(part[25], dtype=float),
            stalls=np.asarray(part[27], dtype=np.int64),
            end_s=log[0],
            step_s=log[1],
            decoding=log[2],
            running=log[3],
            waiting=log[4],
            used=log[5],
            capacity=self.capacity,
            most_used=float(reals[s.MOST_USED]),
            preemptions=int(ints[s.PREEMPTIONS]),
            area=float(reals[s.AREA]),
            tokens_out=float(reals[s.TOKENS_OUT]),
            prompt_tokens=float(reals[s.PROMPT_TOKENS]),
            submitted=submitted,
        )


def _longer(part: Any) -> Any:
    if isinstance(part, list):
        return part + [0.0] * len(part)
    return np.concatenate([part, np.zeros_like(part)])


def _loop(loop: Loop) -> Any:
    if loop == "lists":
        return s.advance
    from specsim.analysis.simulation.compiled import advance

    return advance
