"""Rows made by hand, and runs of a deployment whose factors are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from specsim.calibration.model import RunModel
from specsim.calibration.runs import Run
from specsim.catalog.scenario import load_scenario
from specsim.schema.measurement import Latency, MeasuredAcceptance, Measurement, Measurements
from specsim.schema.scenario import Scenario

LADDER = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS_PER_STEP = 2.4
TRUTH = {
    "bandwidth": 0.9,
    "compute": 0.8,
    "sharpness": 1.1,
    "host": 3.0,
    "per_sequence_host": 5.0,
    "speculative_host": 2.5,
    "draft": 1.4,
    "prompt": 1.25,
}


def _scenario(**changes: dict[str, Any]) -> Scenario:
    parts: dict[str, Any] = {
        "target": {"model": "llama-3.1-8b"},
        "hardware": {"accelerator": "h100_sxm"},
        "engine": {"version": "0.33"},
        "speculation": {
            "method": "eagle3",
            "num_speculative_tokens": 3,
            "acceptance": {"length": TOKENS_PER_STEP},
        },
        "workload": {"input_tokens": 1024, "output_tokens": 256},
        "load": {"concurrency": [1, 2]},
    }
    return load_scenario({key: {**part, **changes.get(key, {})} for key, part in parts.items()})


def _run(k: int = 0, load: float = 4.0, **changes: Any) -> Run:
    run = Run(
        source=f"{f'k{k}' if k else 'off'}_c{load:g}", arm="on" if k else "off", k=k,
        load=float(load), is_open=False, held=None if changes.get("is_open") else float(load),
        input_tokens=1024.0,
        output_tokens=256.0, num_requests=None, tokens_per_step=TOKENS_PER_STEP if k else None,
        tpot_s=1.0, step_s=None, ttft_s=None, output_tok_s=1.0, engine_version="0.33",
    )  # fmt: skip
    return replace(run, **changes)


def _row(arm: str = "off", **changes: Any) -> Measurement:
    """Return 40 requests at concurrency 4 that hold it: 5.2 s each, 52 s in all."""
    values: dict[str, Any] = {
        "source": f"{arm}.json", "format": "made", "arm": arm, "arm_from": "name",
        "concurrency": 4.0, "completed": 40, "failed": 0, "input_tokens": 1024.0,
        "output_tokens": 256.0, "duration_s": 52.0, "output_tok_s": 196.9,
        "tpot_ms": Latency(mean=20.0, p50=None, p90=None, p95=None, p99=None, std=None),
        "ttft_ms": Latency(mean=100.0, p50=None, p90=None, p95=None, p99=None, std=None),
    }  # fmt: skip
    if arm == "on":
        values |= {"num_speculative_tokens": 3, "acceptance": _accepted(2.6)}
    return Measurement(**(values | changes))


def _accepted(
    length: float | None,
    drafts: int | None = None,
    per_position: tuple[float, ...] | None = None,
) -> MeasuredAcceptance:
    return MeasuredAcceptance(
        acceptance_length=length, draft_acceptance_rate=None, per_position=per_position,
        drafts=drafts, draft_tokens=None, accepted_tokens=None,
    )  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """Runs as a server whose constants are `truth` times the shipped ones would give them."""

    scenario: Scenario
    truth: dict[str, float]
    tokens_per_step: float = TOKENS_PER_STEP

    def runs(
        self,
        loads: Sequence[float] = LADDER,
        ks: Sequence[int] = (0, 3),
        *,
        seed: int = 0,
        noise: float = 0.03,
        together: bool = False,
    ) -> tuple[Run, ...]:
        """Return both arms over loads; a run's figures share its noise, or have their own."""
        bare = [
            # No step yields more than its drafts and one.
            _run(k, load, tokens_per_step=min(self.tokens_per_step, 0.8 * k + 1.0) if k else None)
            for k in ks
            for load in loads
        ]
        exact = RunModel(bare, self.scenario).predict(self.truth)
        drawn = np.random.default_rng(seed).standard_normal((2, len(bare)))
        slower = np.exp(noise * drawn)
        faster = 1.0 / slower[0] if together else slower[1]
        return tuple(
            replace(
                run,
                tpot_s=float(exact.tpot_s[0, i] * slower[0, i]),
                output_tok_s=float(exact.output_tok_s[0, i] * faster[i]),
            )
            for i, run in enumerate(bare)
        )

    def measurements(self, loads: Sequence[float] = LADDER, **changes: Any) -> Measurements:
        """Return the same as rows that a reader could have read."""
        return as_measurements(self.runs(loads, **changes))


def as_measurements(runs: Sequence[Run]) -> Measurements:
    rows = [
        _row(
            run.arm, source=run.source, concurrency=run.load, completed=int(100 * run.load),
            engine="vllm", engine_version="0.33", duration_s=None, ttft_ms=None,
            output_tok_s=run.output_tok_s,
            tpot_ms=Latency(mean=1e3 * (run.tpot_s or 0.0), p50=None, p90=None, p95=None,
                            p99=None, std=None),
            acceptance=_accepted(run.tokens_per_step, 1000) if run.k else None,
            num_speculative_tokens=run.k or None,
        )
        for run in runs
    ]  # fmt: skip
    return Measurements(rows=tuple(rows), skipped=())


@pytest.fixture(scope="session")
def make_scenario() -> Callable[..., Scenario]:
    """Return the builder of Llama-3.1-8B with EAGLE-3 on an H100, parts of it changed."""
    return _scenario


@pytest.fixture(scope="session")
def scenario() -> Scenario:
    """Return Llama-3.1-8B with EAGLE-3 at k = 3 on an H100."""
    return _scenario()


@pytest.fixture(scope="session")
def planted(scenario: Scenario) -> Planted:
    """Return a server whose constants are known."""
    return Planted(scenario, TRUTH)


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Run]:
    """Return the builder of a run for a fit."""
    return _run


@pytest.fixture(scope="session")
def make_row() -> Callable[..., Measurement]:
    """Return the builder of a row that a reader could have read."""
    return _row


@pytest.fixture(scope="session")
def accepted() -> Callable[..., MeasuredAcceptance]:
    """Return the builder of counted acceptance."""
    return _accepted


@pytest.fixture(scope="session")
def to_measurements() -> Callable[[Sequence[Run]], Measurements]:
    """Return what turns runs back into rows."""
    return as_measurements
