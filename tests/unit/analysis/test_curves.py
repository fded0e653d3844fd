from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.analysis.constants import Constants
from specsim.analysis.curves import Pair, pair, service_at_rates
from specsim.analysis.resolve import resolve
from specsim.analysis.serving import open_loop
from specsim.catalog.scenario import load_scenario

BASE: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 256},
    "speculation": {
        "method": "eagle3", "num_speculative_tokens": 3, "drafter": "eagle3-llama3.1-8b",
        "acceptance": {"rate": 0.7},
    },
}  # fmt: skip
LOADS = np.array([1.0, 8.0, 64.0, 256.0])


def arms(overrides: dict[str, Any] | None = None, **changes: Any) -> Pair:
    return pair(resolve(load_scenario(BASE, overrides=overrides or {})), **changes)


def test_closed_loop_compares_throughput() -> None:
    both = arms()
    speedup = both.speedup(LOADS)
    assert speedup.shape == (4,)
    assert np.all(np.diff(speedup) < 0)
    assert speedup[0] > 1.5


def test_one_load_or_many_give_the_same() -> None:
    both = arms()
    together = both.speedup(LOADS)
    alone = [float(both.speedup(np.array([load]))[0]) for load in LOADS]
    assert together == pytest.approx(alone)


def test_rates_of_acceptance_are_a_leading_axis() -> None:
    both = arms()
    found = both.at_rates(np.array([0.0, 0.7, 1.0]), 3, 1.0).speedup(LOADS)
    assert found.shape == (3, 4)
    assert found[1] == pytest.approx(both.speedup(LOADS))
    assert np.all(found[0] < 1.0)
    assert np.all(np.diff(found, axis=0) > 0)


def test_a_sweep_of_k_is_a_leading_axis() -> None:
    ks = np.array([[1.0], [3.0], [6.0]])
    swept = arms(k=ks).speedup(LOADS)
    assert swept.shape == (3, 4)
    for i, k in enumerate((1, 3, 6)):
        one = arms({"speculation.num_speculative_tokens": k}).speedup(LOADS)
        # Only the number of captured rows, which depends on the scenario's k, may differ.
        assert swept[i] == pytest.approx(one, rel=1e-6)


def test_samples_scatter_around_the_point() -> None:
    sampled = arms(constants=Constants(n_samples=256, seed=4)).speedup(LOADS)
    assert sampled.shape == (256, 4)
    assert np.median(sampled, axis=0) == pytest.approx(arms().speedup(LOADS), rel=0.02)


def test_open_loop_compares_time_per_token() -> None:
    both = arms({"load.request_rate": (1.0,)})
    rates = np.array([1.0, 10.0])
    off, _ = service_at_rates(both.baseline, both.workload, rates)
    on, _ = service_at_rates(both.speculative, both.workload, rates)
    assert both.speedup(rates) == pytest.approx(off.tpot_s / on.tpot_s)
    assert off.output_tokens_per_s == pytest.approx([256.0, 2560.0])


def test_a_rate_that_only_one_arm_serves() -> None:
    # A poor drafter lowers the largest stable rate.
    both = arms({"load.request_rate": (1.0,), "speculation.acceptance.rate": 0.2})
    limits = [
        float(open_loop(arm, both.workload).largest_stable_rate)
        for arm in (both.baseline, both.speculative)
    ]
    assert limits[1] < limits[0]
    assert both.largest_stable_rate() == pytest.approx(limits[0])
    between, beyond = sum(limits) / 2, 2 * limits[0]
    speedup = both.speedup(np.array([limits[1] * 0.99, between, beyond]))
    assert 0 < speedup[0] < 1
    assert speedup[1] == 0.0
    assert np.isnan(speedup[2])


def test_batch_follows_little() -> None:
    both = arms({"load.request_rate": (1.0,)})
    rates = np.array([2.0, 8.0])
    found, _ = service_at_rates(both.baseline, both.workload, rates)
    # Requests in flight = rate x time in decode.
    assert found.batch == pytest.approx(rates * 255 * found.tpot_s, rel=5e-3)
