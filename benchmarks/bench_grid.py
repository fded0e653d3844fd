"""Points per second through the full model: batch x k, both arms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.analysis.curves import pair
from specsim.analysis.resolve import Deployment, resolve
from specsim.catalog.scenario import load_scenario

CASES: dict[str, dict[str, Any]] = {
    "llama-3.1-70b": {
        "target": {"model": "llama-3.1-70b"},
        "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 4},
        "speculation": {
            "method": "eagle3", "num_speculative_tokens": 4, "drafter": "eagle3-llama3.3-70b",
            "acceptance": {"length": 2.6},
        },
    },
    "deepseek-v3": {
        "target": {"model": "deepseek-v3"},
        "hardware": {"accelerator": "h200_sxm", "tensor_parallel_size": 8},
        "speculation": {
            "method": "mtp", "num_speculative_tokens": 4, "drafter": "mtp-deepseek-v3",
            "acceptance": {"length": 2.6},
        },
    },
}  # fmt: skip
BATCHES = np.linspace(1.0, 300.0, 300)
KS = np.arange(1.0, 65.0)[:, None]


def grid(deployment: Deployment) -> np.ndarray:
    """Speedup at 300 batches and 64 numbers of draft tokens."""
    return pair(deployment, k=KS).speedup(BATCHES)


@pytest.mark.parametrize("name", CASES)
def test_grid_of_300_batches_and_64_ks(benchmark: Any, figures: list[str], name: str) -> None:
    deployment = resolve(load_scenario(CASES[name]))
    speedup = benchmark(grid, deployment)
    assert speedup.shape == (64, 300)
    assert np.all(np.isfinite(speedup) & (speedup > 0))
    if benchmark.stats is not None:
        best_s = benchmark.stats.stats.min
        benchmark.extra_info["points_per_s"] = round(speedup.size / best_s)
        figures.append(
            f"{name}: 300 x 64 grid in {best_s * 1e3:.1f} ms (bar 50), "
            f"{speedup.size / best_s:,.0f} on/off points/s (bar 300,000)"
        )
