"""Requests per second of the simulator: interpreted, compiled, and a whole `simulate`.

Compare the two loops within one run; a machine's own speed is not a figure of specsim.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.analysis.resolve import resolve
from specsim.analysis.simulation.engine import Engine
from specsim.analysis.simulation.requests import draw_requests
from specsim.analysis.simulation.served import served_arm, served_tables
from specsim.catalog.scenario import load_scenario

N = 20_000
RATE = {"baseline": 10.0, "speculative": 18.0}
"""Both hold about 20 requests in the batch."""


@pytest.mark.parametrize("loop", ["lists", "compiled"])
@pytest.mark.parametrize("kind", ["baseline", "speculative"])
def test_requests_per_second(benchmark: Any, kind: Any, loop: Any) -> None:
    """20,000 requests of 512 in and 256 out: drawing steps, the loop, and the result."""
    if loop == "compiled":
        pytest.importorskip("numba")
    scenario = load_scenario("examples/llama-3.1-8b-eagle3-h100.yaml")
    served = served_arm(resolve(scenario), kind)
    sent = draw_requests(scenario.workload, N, np.random.SeedSequence(1), request_rate=RATE[kind])
    tables = served_tables(served, sent)

    def run() -> float:
        engine = Engine(served, sent, tables=tables, loop=loop)
        engine.advance()
        return float(engine.result().finish_s.max())

    run()  # compiles
    benchmark.extra_info["requests"] = N
    benchmark.pedantic(run, rounds=3)
    benchmark.extra_info["requests_per_s"] = round(N / benchmark.stats.stats.min)
