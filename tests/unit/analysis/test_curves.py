from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.analysis.constants import Constants
from specsim.analysis.curves import Pair, pair, service_at_rates
from specsim.analysis.resolve import resolve
from specsim.analysis.serving import closed_loop, open_loop
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


def test_answers_of_one_token_are_compared_by_the_first() -> None:
    both = arms({"load.request_rate": (1.0,), "workload.output_tokens": 1})
    rates = np.array([1.0, 20.0, 60.0])
    off, _ = service_at_rates(both.baseline, both.workload, rates)
    on, _ = service_at_rates(both.speculative, both.workload, rates)
    assert both.speedup(rates) == pytest.approx(off.ttft_s / on.ttft_s)
    # Nothing is decoded, so that a drafter only adds its prefill.
    assert np.all(both.speedup(rates) < 1.0)


def flop_per_s(both: Pair, requests_per_s: float) -> float:
    """Return the FLOP of serving: two per weight and token."""
    workload = both.workload
    tokens = workload.input_tokens + workload.output_tokens - 1
    return 2 * 8.03e9 * tokens * requests_per_s


@pytest.mark.parametrize("input_tokens", [16, 512, 4000])
@pytest.mark.parametrize("output_tokens", [1, 2, 8])
def test_no_load_beats_the_device(input_tokens: int, output_tokens: int) -> None:
    both = arms(
        {"workload.input_tokens": input_tokens, "workload.output_tokens": output_tokens,
         "engine.max_num_seqs": 1024}
    )  # fmt: skip
    loads = np.array([1.0, 16.0, 64.0, 256.0, 1024.0])
    for arm in (both.baseline, both.speculative):
        served = closed_loop(arm, both.workload, loads).output_tokens_per_s / output_tokens
        # H100: 989 TFLOP/s of bf16.
        assert max(flop_per_s(both, float(rate)) for rate in served) < 989.4e12
        largest = float(np.max(open_loop(arm, both.workload).largest_stable_rate))
        assert flop_per_s(both, largest) < 989.4e12
        # And neither wastes it: prompts fill their steps.
        assert flop_per_s(both, largest) > 0.5 * 989.4e12


@pytest.mark.parametrize(
    ("model", "gpu", "tp"), [("qwen3-4b", "h200_sxm", 1), ("llama-3.1-8b", "h200_sxm", 4)]
)
def test_graphs_are_never_slower_than_none(model: str, gpu: str, tp: int) -> None:
    shape = {
        "target.model": model, "hardware.accelerator": gpu, "hardware.tensor_parallel_size": tp,
        "speculation.method": "ngram", "speculation.drafter": None, "engine.max_num_seqs": 1024,
    }  # fmt: skip
    loads = np.array([64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0])
    captured, eager = arms(shape), arms(shape | {"engine.cuda_graphs": False})
    for a, b in (
        (captured.baseline, eager.baseline), (captured.speculative, eager.speculative),
    ):  # fmt: skip
        with_graphs = closed_loop(a, captured.workload, loads)
        without = closed_loop(b, eager.workload, loads)
        assert np.all(with_graphs.output_tokens_per_s >= without.output_tokens_per_s * (1 - 1e-9))
        assert np.all(with_graphs.tpot_s <= without.tpot_s * (1 + 1e-9))


@pytest.mark.parametrize("input_tokens", [512, 4000])
def test_waiting_is_in_the_first_token_not_in_the_next(input_tokens: int) -> None:
    both = arms({"workload.input_tokens": input_tokens, "workload.output_tokens": 2})
    loads = np.array([64.0])
    for arm in (both.baseline, both.speculative):
        served = closed_loop(arm, both.workload, loads)
        full_s = arm.step(
            64.0, input_tokens + 1.0, prefill_tokens=8192.0,
            prefill_sequences=8192.0 / input_tokens,
        ).total.total_s  # fmt: skip
        assert float(served.tpot_s[0]) <= float(np.ravel(full_s)[0]) * (1 + 1e-9)
        # Little: 64 in the system; what is not in the second token is before the first.
        in_system_s = 64 / float(served.output_tokens_per_s[0] / 2)
        assert float(served.ttft_s[0]) == pytest.approx(
            in_system_s - float(served.tpot_s[0]), rel=0.05
        )


def test_verified_rows_take_room_from_the_batch() -> None:
    # 2048 tokens a step: 2048 requests off, 2048 / 16 with 15 drafts each.
    both = arms(
        {"engine.max_num_batched_tokens": 2048, "engine.max_num_seqs": 1024,
         "speculation.num_speculative_tokens": 15}
    )  # fmt: skip
    loads = np.array([1000.0])
    on = closed_loop(both.speculative, both.workload, loads)
    assert float(on.batch[0]) == 128.0
    assert on.limited_by[0] == "max_num_seqs"
    assert float(closed_loop(both.baseline, both.workload, loads).batch[0]) > 500


def test_a_rate_that_only_one_arm_serves() -> None:
    # A poor drafter lowers the largest stable rate.
    both = arms({"load.request_rate": (1.0,), "speculation.acceptance.rate": 0.2})
    limits = [
        float(open_loop(arm, both.workload).largest_stable_rate)
        for arm in (both.baseline, both.speculative)
    ]
    assert limits[1] < limits[0]
    assert both.largest_stable_rates()[0] == pytest.approx(limits[0])
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
