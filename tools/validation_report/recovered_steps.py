"""The steps of a recorded run, read off its streams, and the scheduler fed with them.

All requests of a step receive their tokens together, so that a detailed result of `vllm bench
serve` is the server's log of iterations. With those times in place of the model's, what remains of
the error is the scheduler's: a diagnosis, not a prediction.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specsim.analysis.prepare import prepared
from specsim.analysis.simulation.engine import Engine
from specsim.analysis.simulation.requests import draw_requests
from specsim.analysis.simulation.served import served_tables
from specsim.analysis.simulation.simulate import served_arms
from specsim.analysis.simulation.statistics import sample, served
from specsim.catalog.traces import read_trace
from specsim.schema.scenario import Scenario
from specsim.schema.slo import Metric

Array = npt.NDArray[np.float64]

_TOGETHER_S = 0.015
"""Pieces of one step reach the client within 4 ms; two steps are 40 ms apart or more."""
_PAUSE_S = 1.2
"""Longer than any step: the server was idle."""
_REPLICATIONS = 20


@dataclass(frozen=True)
class RecoveredSteps:
    """Steps of a run, each with the one before it as its start."""

    step_s: Array
    decoding: Array
    """Requests that received further tokens."""
    prompts: Array
    """Requests that received their first."""


def recovered_steps(path: Path) -> RecoveredSteps:
    """Group the pieces that a client received into the steps that sent them."""
    run = json.loads(path.read_text(encoding="utf-8"))
    pieces = sorted(
        (start + ttft + after, i, n)
        for i, (start, ttft, gaps) in enumerate(
            zip(run["start_times"], run["ttfts"], run["itls"], strict=True)
        )
        for n, after in enumerate([0.0, *np.cumsum(gaps)])
    )
    steps: list[list[tuple[float, int, int]]] = []
    for piece in pieces:
        near = steps and piece[0] - steps[-1][-1][0] < _TOGETHER_S
        if near and piece[1] not in {i for _, i, _ in steps[-1]}:
            steps[-1].append(piece)
        else:
            steps.append([piece])
    end_s = np.array([step[-1][0] for step in steps])
    prompts = np.array([sum(n == 0 for _, _, n in step) for step in steps])
    sizes = np.array([len(step) for step in steps])
    step_s = np.diff(end_s)
    busy = step_s < _PAUSE_S
    return RecoveredSteps(step_s[busy], (sizes - prompts)[1:][busy], prompts[1:][busy])


@functools.cache
def scheduler_alone(path: Path, scenario: Scenario) -> dict[Metric, float]:
    """Return the p99 of each latency with the run's own step times. [ms].

    A step is a parabola in the decoding requests, by least squares over the steps without prompts,
    and a prompt adds its mean; a prompt that no one decodes beside costs what one beside a single
    request does, since in a full pass of its rows one more is nothing.
    """
    steps = recovered_steps(path)
    plain = steps.prompts == 0
    curve = np.polynomial.Polynomial.fit(steps.decoding[plain], steps.step_s[plain], 2)
    beside = (steps.prompts > 0) & (steps.decoding > 0)
    excess_s = float(
        np.mean((steps.step_s - curve(steps.decoding))[beside] / steps.prompts[beside])
    )
    trace = read_trace(path)
    deployment, laid = prepared(scenario, (), None)
    arm = served_arms(deployment, laid.point())[
        "baseline" if path.stem.startswith("off") else "speculative"
    ]
    runs = []
    for seed in np.random.SeedSequence(1).spawn(_REPLICATIONS):
        requests = draw_requests(scenario.workload, trace.n_requests, seed, trace=trace)
        tables = served_tables(arm, requests)
        decode_s, chunk_s = np.zeros_like(tables.decode_s), np.zeros_like(tables.chunk_s)
        batches = np.minimum(np.arange(1, tables.n_batches + 1), steps.decoding.max())
        decode_s[:, 1:] = curve(batches)[:, None]
        share = tables.chunk_at / requests.input_tokens[0]
        chunk_s[:] = excess_s * share
        chunk_s[:, 0] = (excess_s + float(curve(1))) * share
        engine = Engine(
            arm,
            requests,
            tables=replace(
                tables, decode_s=decode_s, chunk_s=chunk_s, past_s=np.zeros_like(tables.past_s)
            ),
        )
        engine.advance()
        runs.append(served([engine.result()], (0, requests.n)))
    metrics: tuple[Metric, ...] = ("ttft", "tpot", "itl", "e2e")
    return {m: float(np.mean([sample(run, m).percentile(99.0) for run in runs])) for m in metrics}
