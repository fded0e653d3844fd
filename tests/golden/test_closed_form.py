"""The closed form of `predict` against the simulator on the same steps (theory.md section 5)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specsim.analysis.curves import pair
from specsim.analysis.predict import predict
from specsim.analysis.resolve import resolve
from specsim.analysis.serving import open_loop
from specsim.analysis.simulation.simulate import simulate
from specsim.catalog.scenario import load_scenario

EXAMPLES = Path(__file__).parents[2] / "examples"
ALIKE = (
    "llama-3.1-8b-eagle3-h100",
    "llama-3.3-70b-4xh100",
    "llama-3.1-8b-ngram-code-edit",
    "llama-3.1-8b-long-context-h100",
    "deepseek-v3-mtp-8xh200",
)
"""Requests of one length, so that nothing but arrivals and acceptance is random."""


def both(name: str, key: str, load: float, *, requests: int, replications: int):
    scenario = load_scenario(EXAMPLES / f"{name}.yaml", overrides={f"load.{key}": [load]})
    point = predict(scenario).points[0]
    answer = simulate(scenario, num_requests=requests, replications=replications)
    decoded = scenario.workload.output_tokens - 1.0
    for closed, simulated in (
        (point.baseline, answer.baseline),
        (point.speculative, answer.speculative),
    ):
        assert abs(simulated.little_error) < 0.01
        e2e_ms = closed.ttft_ms + closed.tpot_ms * decoded
        yield closed.tpot_ms / simulated.tpot_ms.mean, e2e_ms / simulated.e2e_ms.mean


@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("name", ALIKE)
def test_open_loop_at_low_and_medium_load(name: str, share: float) -> None:
    """Poisson arrivals at a tenth and two fifths of what the slower arm can serve: 3 %."""
    scenario = load_scenario(EXAMPLES / f"{name}.yaml", overrides={"load.request_rate": [1.0]})
    arms = pair(resolve(scenario))
    rate = share * min(
        float(np.max(open_loop(arm, scenario.workload).largest_stable_rate))
        for arm in (arms.baseline, arms.speculative)
    )
    for tpot, e2e in both(name, "request_rate", rate, requests=1500, replications=3):
        assert tpot == pytest.approx(1.0, abs=0.03)
        assert e2e == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("concurrency", [1, 16])
@pytest.mark.parametrize("name", ALIKE)
def test_closed_loop(name: str, concurrency: int) -> None:
    """Requests kept in the system, of all ages: 1.5 %."""
    for tpot, e2e in both(name, "concurrency", concurrency, requests=400, replications=2):
        assert tpot == pytest.approx(1.0, abs=0.015)
        assert e2e == pytest.approx(1.0, abs=0.015)


def test_tails_of_alike_requests_widen_with_speculation() -> None:
    """p99 / mean of time per token: 1.03 off, 1.12 on at 1 request/s (theory.md section 5).

    A discrete-event simulation of 512/256 tokens, Llama-3.1-8B on H100, EAGLE-3 k = 3, with
    requests that all have the profile's acceptance. Its 1.11 and 1.32 at 32 requests/s belong to
    its own step times; both widths grow here too.
    """
    before = [0.0, 0.0]
    for rate, off, on in ((1.0, 1.03, 1.12), (24.0, 1.18, 1.29)):
        scenario = load_scenario(
            EXAMPLES / "llama-3.1-8b-eagle3-h100.yaml",
            overrides={
                "load.request_rate": [rate],
                "speculation.acceptance.spread": 0.0,
            },
        )
        answer = simulate(scenario, num_requests=2000, replications=2)
        assert answer.speculative is not None
        widths = [
            arm.tpot_ms.p99 / arm.tpot_ms.mean for arm in (answer.baseline, answer.speculative)
        ]
        assert widths == pytest.approx([off, on], abs=0.03)
        assert all(now > then for now, then in zip(widths, before, strict=True))
        before = widths
