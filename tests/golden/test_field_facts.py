"""Facts from the field, in direction and rough size.

Llama-3-70B on four H100, long contexts, mixtures of experts, the drafter's share of memory: what
people have measured and written about, asked of the whole model with its shipped constants.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from specsim.analysis.crossover import first_loss, search_loads
from specsim.analysis.curves import pair
from specsim.analysis.predict import kv_result, predict
from specsim.analysis.resolve import resolve
from specsim.catalog.models import load_model
from specsim.catalog.scenario import load_scenario
from specsim.schema.results import Prediction
from specsim.schema.scenario import Scenario

LADDER = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

# Chat-length traffic: 512 tokens in, 256 out.
LLAMA_70B: dict[str, Any] = {
    "target": {"model": "llama-3.1-70b", "weight_dtype": "bf16"},
    "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 4},
    "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 1024},
    "speculation": {
        "method": "eagle", "num_speculative_tokens": 4, "drafter": "eagle-llama3-70b",
        "acceptance": {"rate": 0.81},
    },
    "workload": {"input_tokens": 512, "output_tokens": 256},
    "load": {"concurrency": LADDER},
}  # fmt: skip
LLAMA_8B: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 1024},
    "speculation": {
        "method": "eagle3", "num_speculative_tokens": 3, "drafter": "eagle3-llama3.1-8b",
        "acceptance": {"length": 2.2},
    },
    "load": {"concurrency": LADDER},
}  # fmt: skip
DRAFT_MODEL = {
    "speculation.method": "draft_model",
    "speculation.drafter": "llama-3.1-8b",
    "speculation.draft_tensor_parallel_size": 4,
}


def scenario(base: dict[str, Any], overrides: dict[str, Any] | None = None) -> Scenario:
    return load_scenario(base, overrides=overrides or {})


def answer(base: dict[str, Any], overrides: dict[str, Any] | None = None) -> Prediction:
    return predict(scenario(base, overrides))


def speedups(base: dict[str, Any], overrides: dict[str, Any] | None = None) -> dict[float, float]:
    points = answer(base, overrides).points
    return {p.concurrency or 0.0: p.speedup or 0.0 for p in points}


# --- Llama-3-70B on four H100 -------------------------------------------------------------------


def test_a_large_gain_at_low_load_is_gone_at_512() -> None:
    speedup = speedups(LLAMA_70B)
    # Headline gains of 3.5 to 4x are of better drafters at batch 1.
    assert 2.0 < speedup[1] < 4.0
    assert speedup[4] > 2.0
    assert speedup[512] <= 1.0
    assert list(speedup.values()) == sorted(speedup.values(), reverse=True)


def test_poor_acceptance_loses_by_128_where_good_still_wins() -> None:
    good, poor = speedups(LLAMA_70B), speedups(LLAMA_70B, {"speculation.acceptance.rate": 0.38})
    assert good[128] > 1.05
    assert poor[128] < 0.95
    assert poor[1] > 1.05


def test_the_published_pair_read_as_draft_acceptance_rates() -> None:
    # 0.81 at temperature 0 and 0.38 at 1, accepted over drafted: 1.5 accepted of four drafts still
    # break even at 128, a per-token rate of 0.38 (0.6 accepted) does not.
    def of(f: float) -> dict[float, float]:
        return speedups(LLAMA_70B, {"speculation.acceptance": {"draft_acceptance_rate": f}})

    good, poor = of(0.81), of(0.38)
    assert good[128] > 1.05
    assert poor[256] < 0.95
    assert all(good[load] > poor[load] for load in LADDER)


@pytest.mark.parametrize("version", ["0.17.1", "0.29", "0.33"])
def test_an_8b_draft_model_with_poor_acceptance_loses_from_batch_one(version: str) -> None:
    poor = DRAFT_MODEL | {"speculation.acceptance.rate": 0.38, "engine.version": version}
    assert all(speedup < 0.95 for speedup in speedups(LLAMA_70B, poor).values())


def test_a_captured_8b_draft_model_pays_at_low_load_if_it_is_accepted() -> None:
    # Without graphs (0.33) the same drafter is bound by launches: 103 to 126 ms per round of three
    # were measured on four GH200.
    captured = speedups(LLAMA_70B, DRAFT_MODEL | {"engine.version": "0.29"})
    eager = speedups(LLAMA_70B, DRAFT_MODEL | {"engine.version": "0.33"})
    assert captured[1] > 1.5
    assert eager[1] < captured[1] - 0.5
    assert captured[256] < 1.0


def test_an_eager_8b_draft_model_takes_what_was_measured() -> None:
    # 70B with an 8B draft model, TP4, k = 3, four GH200: 103 to 126 ms per round, where a plain
    # step takes 15.8 ms.
    found = answer(
        LLAMA_70B,
        DRAFT_MODEL | {"hardware.accelerator": "gh200", "speculation.num_speculative_tokens": 3},
    ).points[0]
    assert found.baseline is not None
    assert found.speculative is not None
    assert found.baseline.step_ms == pytest.approx(15.8, rel=0.15)
    assert 80 < found.speculative.step_ms < 150


def test_break_even_at_moderate_load_lies_beside_the_rule_of_thumb() -> None:
    # "Below roughly 0.5, speculation adds latency at moderate load."
    rows = {row.load: row.draft_acceptance_rate for row in answer(LLAMA_70B).break_even}
    assert set(rows) == set(LADDER)
    moderate = [rows[load] for load in (128, 256)]
    assert all(f is not None for f in moderate)
    assert 0.3 < float(np.mean([f or 0.0 for f in moderate])) < 0.7
    assert (rows[1] or 1.0) < 0.2


def test_more_draft_tokens_win_more_early_and_lose_more_late() -> None:
    few, many = (speedups(LLAMA_70B, {"speculation.num_speculative_tokens": k}) for k in (2, 7))
    assert many[1] > few[1]
    assert many[512] < few[512]


def test_higher_acceptance_moves_the_crossover_later() -> None:
    loads = []
    for rate in (0.38, 0.5, 0.6, 0.7):
        found = answer(LLAMA_70B, {"speculation.acceptance.rate": rate}).crossover
        assert found is not None
        assert found.load is not None
        loads.append(found.load)
    assert loads == sorted(loads)


def test_starved_bandwidth_turns_later() -> None:
    # The same compute behind less bandwidth: an H20 has 4 TB/s and a seventh of H100's compute, an
    # H200 more bandwidth at H100's compute.
    h100, h200, h20 = (
        answer(LLAMA_8B, {"hardware.accelerator": gpu}).crossover
        for gpu in ("h100_sxm", "h200_sxm", "h20")
    )
    assert h100 is not None
    assert h200 is not None
    assert h20 is not None
    assert (h20.load or 0.0) < (h200.load or np.inf) <= (h100.load or np.inf)


def test_old_engines_slow_down_at_high_rates() -> None:
    # vLLM 0.6, Llama-3-70B on four H100: up to 2.8x with n-gram on summaries at low rates, 1.4x
    # and 1.8x slower at high ones.
    lookup = {
        "engine.version": "0.6",
        "speculation.method": "ngram",
        "speculation.drafter": None,
        "speculation.acceptance": {"length": 3.2},
        "engine.max_num_seqs": 256,
    }
    speedup = speedups(LLAMA_70B, lookup)
    assert 1.8 < speedup[1] < 3.2
    weak = speedups(LLAMA_70B, lookup | {"speculation.acceptance": {"length": 1.4}})
    assert 1 / 1.9 < weak[256] < 1 / 1.2


# --- Context and prompts ------------------------------------------------------------------------


def test_long_context_takes_the_loss_away() -> None:
    short = speedups(LLAMA_8B)
    long = speedups(
        LLAMA_8B,
        # Room for many long requests: the loss must go because of the reads, not of a small batch.
        {"hardware.accelerator": "b300_sxm", "workload.input_tokens": 16_384,
         "workload.output_tokens": 4096},
    )  # fmt: skip
    assert min(short.values()) < 1.0
    assert min(long.values()) > 1.2


def test_long_contexts_are_bound_by_the_cache() -> None:
    found = answer(
        LLAMA_8B, {"workload.input_tokens": 16_384, "workload.output_tokens": 4096}
    ).points[-1]
    assert found.baseline is not None
    assert found.baseline.bound == "kv"
    assert found.speedup is not None
    assert found.speedup > 1.2


def test_prompts_hide_the_gain_of_short_answers() -> None:
    long = speedups(LLAMA_8B, {"workload.input_tokens": 16_384, "workload.output_tokens": 4096})
    short = speedups(LLAMA_8B, {"workload.input_tokens": 16_384, "workload.output_tokens": 128})
    assert abs(short[64] - 1.0) < 0.15
    assert all(abs(short[load] - 1) < abs(long[load] - 1) for load in LADDER)


def test_verification_reads_the_cache_once() -> None:
    arms = pair(resolve(scenario(LLAMA_8B)))
    longer = [
        float(
            arms.speculative.step(8.0, context).verify.kv_s
            / arms.baseline.step(8.0, context).total.kv_s
        )
        for context in (4096.0, 65536.0)
    ]
    # Where reading and computing overlap, the knee gives a per cent of the reading to compute.
    assert longer == pytest.approx([1.0, 1.0], abs=0.02)


# --- Ranks of the drafter -----------------------------------------------------------------------


def test_a_drafter_on_all_ranks_pays_for_its_collectives() -> None:
    def communication_s(draft_tp: int) -> float:
        arms = pair(
            resolve(scenario(LLAMA_70B, {"speculation.draft_tensor_parallel_size": draft_tp}))
        )
        return float(arms.speculative.step(1.0, 512.0).draft.communication_s)

    assert communication_s(1) == 0.0
    # Four passes: two sums in the one layer and one gathering each, 8 to 10 us.
    assert communication_s(4) == pytest.approx(4 * 3 * 9e-6, rel=0.15)


def test_a_drafter_on_one_rank_reads_all_its_weights() -> None:
    one, four = (
        answer(LLAMA_70B, {"speculation.draft_tensor_parallel_size": tp}).points[0].speculative
        for tp in (1, 4)
    )
    assert one is not None
    assert four is not None
    # The head, half of what it reads, is the target's and stays split over the four.
    assert 1.2 * four.draft_ms < one.draft_ms < 4 * four.draft_ms


# --- Mixtures of experts ------------------------------------------------------------------------

MIXTURES = {
    "gpt-oss-120b": ("h100_sxm", 1, "eagle3", "eagle3-gpt-oss-120b"),
    "qwen3-235b-a22b": ("h200_sxm", 8, "ngram", None),
    "deepseek-v3": ("h200_sxm", 8, "mtp", "mtp-deepseek-v3"),
}


def mixture(name: str, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    gpu, tp, method, drafter = MIXTURES[name]
    return {
        "target": {"model": name},
        "hardware": {"accelerator": gpu, "tensor_parallel_size": tp},
        "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 1024},
        "speculation": {
            "method": method, "num_speculative_tokens": 3, "drafter": drafter,
            "acceptance": {"per_position": (0.7, 0.45, 0.28)},
        },
        "workload": {"input_tokens": 64, "output_tokens": 1024},
        "load": {"concurrency": (*LADDER, 1024)},
    } | (overrides or {})  # fmt: skip


def dip_and_peak(speedup: dict[float, float]) -> tuple[float, float]:
    """Return the worst load of 2 to 16, and the best load beyond it."""
    dip = min((load for load in speedup if 1 < load <= 16), key=speedup.__getitem__)
    return dip, max((load for load in speedup if load > dip), key=speedup.__getitem__)


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_is_poor_at_small_batch_recovers_and_falls(name: str) -> None:
    speedup = speedups(mixture(name))
    # Each further token loads experts of its own, until all are loaded anyway.
    dip, peak = dip_and_peak(speedup)
    assert 32 <= peak <= 128
    assert speedup[dip] < speedup[1] - 0.1
    assert speedup[dip] < speedup[peak] - 0.1
    assert speedup[1024] < speedup[256] < speedup[peak]


@pytest.mark.parametrize("name", ["gpt-oss-120b", "qwen3-235b-a22b"])
def test_a_mixture_is_best_at_moderate_batch(name: str) -> None:
    # Of loads above one. DeepSeek-V3 on eight ranks is not among these: its experts are so thin
    # there that launches hide them at batch 2.
    above_one = {load: s for load, s in speedups(mixture(name)).items() if load > 1}
    assert 32 <= max(above_one, key=above_one.__getitem__) <= 128


def test_a_dense_model_falls_from_the_start() -> None:
    speedup = speedups(LLAMA_70B, {"workload.input_tokens": 64, "workload.output_tokens": 1024})
    assert list(speedup.values()) == sorted(speedup.values(), reverse=True)


def test_tokens_of_one_sequence_share_experts() -> None:
    # Cohere 2026-04-21: verifying four tokens at batch 1 takes 1.25x a step.
    arms = pair(resolve(load_scenario(mixture("qwen3-235b-a22b"))))
    verify = float(arms.speculative.step(1.0, 500.0).verify.total_s)
    one = float(arms.baseline.step(1.0, 500.0).total.total_s)
    assert 1.0 < verify / one < 1.35


# --- Memory -------------------------------------------------------------------------------------


@pytest.fixture
def model_of_86_gb(tmp_path: Path) -> str:
    """Return a catalog file of a dense model with 86 GB of weights."""
    layers = load_model("qwen2.5-32b").layers
    path = tmp_path / "dense-43b.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "id": "dense-43b", "hidden_size": 5120, "vocab_size": 152064,
                "layers": [layers[0].model_copy(update={"count": 85}).model_dump(mode="json",
                           exclude_none=True)],
            }
        )
    )  # fmt: skip
    return str(path)


def worked_example(model: str, overrides: dict[str, Any] | None = None) -> Scenario:
    return load_scenario(
        {
            "target": {"model": model},
            "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 2},
            "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 256},
            "speculation": {
                "method": "draft_model", "drafter": "qwen2.5-7b", "num_speculative_tokens": 4,
                "acceptance": {"rate": 0.8},
            },
            "workload": {"input_tokens": 2000, "output_tokens": 1000},
            "load": {"concurrency": (1, 16, 64, 128)},
        },
        overrides=overrides,
    )  # fmt: skip


def test_two_80_gb_devices_with_86_gb_of_weights(model_of_86_gb: str) -> None:
    found = kv_result(worked_example(model_of_86_gb))
    off = found.baseline
    assert found.memory_nameplate_gb == 160.0
    assert off.weights_gib * 2**30 / 1e9 == pytest.approx(86.0, abs=0.2)
    # About 74 GB of cache on paper; the driver, the engine's share and its buffers leave less.
    assert off.kv_gb_nameplate == pytest.approx(74.0, abs=0.2)
    usable_gb = off.kv_gib * 2**30 / 1e9
    assert 55 < usable_gb < 70
    assert off.kv_tokens == pytest.approx(off.kv_gib * 2**30 / 2 / off.bytes_per_token, rel=1e-3)


def test_a_drafter_shrinks_the_cache_and_the_batch(model_of_86_gb: str) -> None:
    found = predict(worked_example(model_of_86_gb))
    off, on = found.kv.baseline, found.kv.speculative
    # 15.2 GB of weights, and 28,672 more bytes of cache beside 174,080 per token and rank.
    assert off.kv_gb_nameplate - on.kv_gb_nameplate == pytest.approx(15.2, abs=0.1)
    assert on.bytes_per_token - off.bytes_per_token == 28 * 2 * 2 * 128 * 2
    assert found.kv.lost_fraction == pytest.approx(1 - 46.52 / 60.70 * 174_080 / 202_752, abs=0.01)
    assert on.max_concurrency < 0.7 * off.max_concurrency
    # The circle: at 64 requests the on arm queues and the off arm does not.
    at_64 = found.points[2]
    assert at_64.baseline is not None
    assert at_64.speculative is not None
    assert at_64.baseline.batch == 64
    assert at_64.speculative.batch < 64
    assert at_64.speculative.limited_by == "kv"
    assert any("the KV cache holds" in warning for warning in found.warnings)


def test_a_smaller_cache_moves_the_crossover(model_of_86_gb: str) -> None:
    # The same device with memory that is no limit: batches grow until drafts no longer pay, where
    # a cache that is full caps the batch before that, or caps the on arm earlier than the off arm.
    tight = resolve(worked_example(model_of_86_gb, {"engine.version": "0.29"}))
    sheet = tight.hardware.datasheet.model_copy(update={"memory_usable_gib": 400.0})
    roomy = replace(tight, hardware=tight.hardware.model_copy(update={"datasheet": sheet}))
    loads = search_loads(256)
    ends = [first_loss(loads, pair(deployment).speedup(loads)) for deployment in (tight, roomy)]
    assert np.isfinite(ends[1])
    assert not np.isclose(ends[0], ends[1], rtol=0.2)


def test_lookup_costs_no_memory(model_of_86_gb: str) -> None:
    lookup = {"speculation.method": "ngram", "speculation.drafter": None}
    found = kv_result(worked_example(model_of_86_gb, lookup))
    assert found.lost_tokens == 0
    assert found.speculative == found.baseline


@pytest.mark.parametrize(
    ("target", "drafter", "method", "bytes_ratio"),
    [
        ("llama-3.1-8b", "eagle3-llama3.1-8b", "eagle3", 4096 / 131072),
        ("llama-3.1-70b", "eagle-llama3-70b", "eagle", 0.0125),
        ("qwen3-8b", "qwen3-0.6b", "draft_model", 114688 / 147456),
    ],
)
def test_cache_bytes_that_a_drafter_adds(
    target: str, drafter: str, method: str, bytes_ratio: float
) -> None:
    tp = 4 if "70b" in target else 1
    found = kv_result(
        load_scenario(
            {
                "target": {"model": target},
                "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": tp},
                "speculation": {
                    "method": method, "drafter": drafter, "num_speculative_tokens": 3,
                    "draft_tensor_parallel_size": tp, "acceptance": {"rate": 0.6},
                },
            }
        )
    )  # fmt: skip
    added = found.speculative.bytes_per_token / found.baseline.bytes_per_token - 1
    assert added == pytest.approx(bytes_ratio, rel=0.01)


# --- Recurrent layers and dollars ---------------------------------------------------------------


def test_verification_of_recurrent_layers_is_not_free() -> None:
    def verify_over_one(model: str) -> float:
        arms = pair(
            resolve(
                load_scenario(
                    {
                        "target": {"model": model},
                        "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 4},
                        "speculation": {
                            "method": "ngram", "num_speculative_tokens": 3,
                            "acceptance": {"rate": 0.6},
                        },
                    }
                )
            )
        )  # fmt: skip
        verify = arms.speculative.step(64.0, 1000.0).verify.kv_s
        return float(verify / arms.baseline.step(64.0, 1000.0).total.kv_s)

    assert verify_over_one("qwen3-32b") == pytest.approx(1.0, abs=0.05)
    # Mostly states: (1 + 4) / 2 of one token's traffic, and some softmax layers that read once.
    assert 1.5 < verify_over_one("qwen3-next-80b-a3b") < 2.5


def test_a_slower_endpoint_costs_more_per_token() -> None:
    found = answer(LLAMA_70B, {"speculation.acceptance.rate": 0.38}).points[-1]
    assert found.baseline is not None
    assert found.speculative is not None
    assert found.baseline.usd_per_mtok is not None
    assert found.speculative.usd_per_mtok is not None
    ratio = found.speculative.usd_per_mtok / found.baseline.usd_per_mtok
    assert ratio == pytest.approx(1 / (found.speedup or 1.0))
    assert ratio > 1.3
