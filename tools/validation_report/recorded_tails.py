"""Recorded runs, and their requests served one by one: percentiles of both."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specsim.analysis.simulation.simulate import simulate
from specsim.calibration.calibrate import calibrate
from specsim.calibration.fit import fit
from specsim.calibration.fit_report import fitted_parameter
from specsim.calibration.parameters import fit_parameters
from specsim.catalog.files import read_mapping
from specsim.catalog.scenario import load_scenario
from specsim.catalog.traces import read_trace
from specsim.measure.read import read_measurements
from specsim.schema.calibration import Calibration
from specsim.schema.measurement import Latency, Measurement, Measurements
from specsim.schema.scenario import Scenario
from specsim.schema.simulation import Simulation
from specsim.schema.slo import Metric
from validation_report.calibration import LAB, ROOT, SCENARIO, model_of

OPEN_LOOPS = LAB / "open_loop"
SAME_EVENING = "2026-11-29-interleaved"
CLOSED_LOOPS = (SAME_EVENING, "2026-11-30")
H100 = ROOT / "validation" / "tails" / "llama31-8b-h100-inference-perf.csv"
H100_CASES = {"off": "samples--llama31-8b-inference-perf-off",
              "on": "samples--llama31-8b-inference-perf-eagle3"}  # fmt: skip
H100_FITTED = (0, 2)
"""Stages of each arm that are fitted, by rate; the others are predicted."""
BAR_PCT = 15.0
METRICS: tuple[Metric, ...] = ("ttft", "tpot", "itl", "e2e")
REPLICATIONS = 20
_Z = 1.96
_ACCEPTANCE = {"rate": 0.7, "spread": 0.0}
"""By construction: the drafter agrees on this share of the vocabulary, whatever the request."""


@dataclass(frozen=True)
class Tail:
    """One latency of one recorded run."""

    run: str
    metric: Metric
    mean: float
    p99: float
    """As measured. [ms]"""
    predicted_mean: float
    predicted_p99: float
    low: float
    high: float
    """Where 95 % of single runs have their p99. [ms]"""

    @property
    def mean_error_pct(self) -> float:
        """Predicted by measured mean, less 1."""
        return 100.0 * (self.predicted_mean / self.mean - 1.0)

    @property
    def error_pct(self) -> float:
        """Predicted by measured p99, less 1."""
        return 100.0 * (self.predicted_p99 / self.p99 - 1.0)

    @property
    def inside(self) -> bool:
        """Whether the interval holds the measured p99."""
        return self.low <= self.p99 <= self.high


def lab(**overrides: Any) -> Scenario:
    """Return the lab's scenario, its acceptance as it was built."""
    given = {"speculation.acceptance": _ACCEPTANCE, **overrides}
    return load_scenario(SCENARIO, overrides=given)


@functools.cache
def lab_calibration(sweep: str) -> Calibration:
    """Calibrate on a recorded sweep."""
    return calibrate(lab(), LAB / sweep, suggest=0).calibration


@functools.cache
def calibration_without(sweep: str, load: float) -> Calibration:
    """Calibrate on a recorded sweep without one of its loads: the fit alone, of the same scope."""
    model = model_of(LAB / sweep)
    part = model.only([i for i, run in enumerate(model.runs) if run.load != load])
    best = fit(part, fit_parameters([part.deployment(k) for k in sorted({r.k for r in part.runs})]))
    fitted = {
        "parameters": tuple(fitted_parameter(best, i) for i in range(len(best.parameters))),
        "covariance": tuple(tuple(float(v) for v in row) for row in best.covariance),
        "run_log_sd": best.run_sd,
    }
    return lab_calibration(sweep).model_copy(update=fitted)


def replicated(
    scenario: Scenario, calibration: Calibration, replications: int, **how: Any
) -> tuple[Simulation, ...]:
    """Serve a run's requests again and again, each time as one run.

    Parameters
    ----------
    how
        To `simulate`: a trace, or a number of requests.
    """
    return tuple(
        simulate(scenario, calibration=calibration, replications=1, seed=seed, **how)
        for seed in range(replications)
    )


def tails(
    run: str, row: Measurement, simulations: Sequence[Simulation], run_log_sd: float
) -> Iterator[Tail]:
    """Set predicted percentiles beside the measured ones, a latency at a time."""
    arms = [s.speculative if row.arm == "on" else s.baseline for s in simulations]
    served = [arm for arm in arms if arm is not None]
    for metric in METRICS:
        measured: Latency | None = getattr(row, f"{metric}_ms")
        if measured is None or measured.mean is None or measured.p99 is None:
            continue
        p99 = np.array([arm.percentiles(metric).p99 for arm in served])
        scatter = math.hypot(float(np.std(np.log(p99), ddof=1)), run_log_sd)
        middle, reach = float(np.mean(p99)), math.exp(_Z * scatter)
        yield Tail(
            run=run,
            metric=metric,
            mean=measured.mean,
            p99=measured.p99,
            predicted_mean=float(np.mean([a.percentiles(metric).mean for a in served])),
            predicted_p99=middle,
            low=middle / reach,
            high=middle * reach,
        )


def _rows(path: Path) -> list[Measurement]:
    """Return the runs of a file or folder: off first, by load."""
    rows = read_measurements(path).rows
    return sorted(rows, key=lambda r: (r.arm, r.num_speculative_tokens or 0, _load(r)))


def _load(row: Measurement) -> float:
    return float(row.concurrency or row.request_rate or 0.0)


@functools.cache
def open_loops() -> tuple[Tail, ...]:
    """Predict the lab's open loops."""
    calibration = lab_calibration(SAME_EVENING)
    found: list[Tail] = []
    for row in _rows(OPEN_LOOPS):
        trace = read_trace(Path(row.source))
        served = replicated(lab(), calibration, REPLICATIONS, trace=trace)
        found += tails(f"{row.arm} {row.request_rate:g}/s", row, served, calibration.run_log_sd)
    return tuple(found)


@functools.cache
def closed_loops(sweep: str) -> tuple[Tail, ...]:
    """Predict each load of a recorded sweep from the others."""
    found: list[Tail] = []
    for row in _rows(LAB / sweep):
        assert row.completed is not None
        k, load = row.num_speculative_tokens or 3, _load(row)
        served = _closed_loop(sweep, k, load, row.completed)
        name = f"{'off' if row.arm == 'off' else f'k = {k}'}, {load:g}"
        found += tails(name, row, served, calibration_without(sweep, load).run_log_sd)
    return tuple(found)


@functools.cache
def _closed_loop(sweep: str, k: int, load: float, n: int) -> tuple[Simulation, ...]:
    """Serve a closed loop that starts as a burst; repeats and the off arm are of the same."""
    scenario = lab(
        **{
            "speculation.num_speculative_tokens": k,
            "workload.arrival": "burst",
            "workload.num_requests": n,
            "load": {"concurrency": [load]},
        }
    )
    return replicated(scenario, calibration_without(sweep, load), REPLICATIONS // 2)


@functools.cache
def h100() -> tuple[Tail, ...]:
    """Predict stages of the recorded rates on a H100 from others."""
    found: list[Tail] = []
    every = _rows(H100)
    for arm, case in H100_CASES.items():
        stages = [r for r in every if r.arm == arm]
        given = read_mapping(ROOT / "validation" / "cases" / f"{case}.yaml")["scenario"]
        given["workload"]["output_tokens"] = stages[0].output_tokens

        def scenario(rate: float, given: dict[str, Any] = given) -> Scenario:
            return load_scenario({**given, "load": {"request_rate": [rate]}})

        fitted = Measurements(tuple(stages[i] for i in H100_FITTED), ())
        calibration = calibrate(scenario(1.0), fitted, suggest=0).calibration
        for i, row in enumerate(stages):
            if i in H100_FITTED:
                continue
            assert row.request_rate is not None
            served = replicated(
                scenario(row.request_rate), calibration, 5, num_requests=row.completed
            )
            found += tails(f"{arm} {row.request_rate:g}/s", row, served, calibration.run_log_sd)
    return tuple(found)


def file_of(run: str) -> Path:
    """Return the file of an open loop."""
    arm, rate = run.removesuffix("/s").split()
    return OPEN_LOOPS / f"{'off' if arm == 'off' else 'dm_70_3'}_r{rate}.json"
