"""Deployments that simulations run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specsim.analysis.resolve import Deployment, resolve
from specsim.catalog.scenario import load_scenario
from specsim.schema.scenario import Scenario

BASE: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 64, "max_model_len": 8192},
    "speculation": {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "drafter": "eagle3-llama3.1-8b",
        "acceptance": {"length": 2.3},
    },
    "workload": {"input_tokens": 512, "output_tokens": 128},
    "load": {"request_rate": [10]},
}

Make = Callable[..., Scenario]


@pytest.fixture(scope="session")
def make() -> Make:
    """Return a scenario with some keys replaced."""

    def scenario(**overrides: Any) -> Scenario:
        return load_scenario(
            BASE, overrides={key.replace("__", "."): value for key, value in overrides.items()}
        )

    return scenario


@pytest.fixture(scope="session")
def deployment(make: Make) -> Deployment:
    """Return an 8B with EAGLE-3 on one H100."""
    return resolve(make())
