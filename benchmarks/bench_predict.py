"""One whole prediction from Python: both arms, bands, crossover, break-even, best k."""

from __future__ import annotations

from typing import Any

import specsim

SCENARIO = {
    "target": {"model": "llama-3.1-70b"},
    "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 4},
    "speculation": {
        "method": "eagle3", "num_speculative_tokens": 4, "drafter": "eagle3-llama3.3-70b",
        "acceptance": {"length": 2.6},
    },
}  # fmt: skip


def test_predict_closed_loop(benchmark: Any) -> None:
    scenario = specsim.load_scenario(SCENARIO)
    assert benchmark(specsim.predict, scenario).crossover is not None


def test_predict_open_loop(benchmark: Any) -> None:
    scenario = specsim.load_scenario(SCENARIO | {"load": {"request_rate": [0.5, 1, 2, 4, 8]}})
    assert benchmark(specsim.predict, scenario).crossover is not None


def test_crossover_alone(benchmark: Any) -> None:
    scenario = specsim.load_scenario(SCENARIO)
    assert benchmark(specsim.crossover, scenario).state in ("always", "never", "crosses")
