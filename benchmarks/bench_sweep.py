"""Points per second of a sweep, on one core: loads, acceptance and draft tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.analysis.grid import Grid
from specsim.catalog.scenario import load_scenario


def test_points_per_second(benchmark: Any) -> None:
    """207,000 points of eight deployments."""
    grid = Grid(
        load_scenario("examples/llama-3.1-8b-eagle3-h100.yaml"),
        {
            "speculation.num_speculative_tokens": tuple(range(1, 9)),
            "speculation.acceptance.rate": tuple(np.linspace(0.0, 1.0, 101).tolist()),
            "load.concurrency": tuple(range(1, 257)),
        },
    )

    def run() -> int:
        return sum(grid.evaluate(part)["speedup"].size for part in grid.parts())

    assert run() == grid.size
    benchmark.pedantic(run, rounds=3)
    benchmark.extra_info["points_per_s"] = round(grid.size / benchmark.stats.stats.min)
