from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from specsim.analysis.predict import kv_result, predict, predict_crossover
from specsim.catalog.scenario import load_scenario
from specsim.errors import UsageError
from specsim.schema.results import Prediction, as_json
from specsim.schema.scenario import Scenario

BASE: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 512},
    "speculation": {
        "method": "eagle3", "num_speculative_tokens": 3, "drafter": "eagle3-llama3.1-8b",
        "acceptance": {"length": 2.2},
    },
    "load": {"concurrency": (1, 16, 128, 512)},
}  # fmt: skip


def scenario(overrides: dict[str, Any] | None = None) -> Scenario:
    return load_scenario(BASE, overrides=overrides or {})


@pytest.fixture(scope="module")
def answer() -> Prediction:
    return predict(scenario())


def test_fields_of_the_contract(answer: Prediction) -> None:
    assert list(as_json(answer)) == [
        "scenario", "acceptance", "kv", "points", "crossover", "break_even", "best_k",
        "acceptance_curve", "transition", "verdict", "defaults", "warnings", "provenance",
    ]  # fmt: skip
    json.dumps(as_json(answer), allow_nan=False)


def test_points_are_sorted_and_once_each() -> None:
    found = predict(scenario({"load.concurrency": (16, 1, 16)}))
    assert [p.concurrency for p in found.points] == [1.0, 16.0]


def test_speedup_is_what_the_points_say(answer: Prediction) -> None:
    for p in answer.points:
        assert p.baseline is not None
        assert p.speculative is not None
        assert p.speedup == pytest.approx(p.speculative.output_tok_s / p.baseline.output_tok_s)


def test_prices_follow_tokens(answer: Prediction) -> None:
    # 3.43 $ an hour.
    for p in answer.points:
        assert p.baseline is not None
        price = 3.43 / 3600 / p.baseline.output_tok_s * 1e6
        assert p.baseline.usd_per_mtok == pytest.approx(price)
        # 512 in and 256 out: a third of all tokens is output.
        assert p.baseline.usd_per_mtok_total == pytest.approx(price / 3)


def test_parts_add_up_to_the_step(answer: Prediction) -> None:
    for p in answer.points:
        for side in (p.baseline, p.speculative):
            assert side is not None
            assert sum(side.parts_ms.values()) == pytest.approx(side.step_ms)
            assert side.bound == max(side.parts_ms, key=side.parts_ms.__getitem__)


def test_crossover_is_one_on_the_curve(answer: Prediction) -> None:
    assert answer.crossover is not None
    assert answer.crossover.state == "crosses"
    load = answer.crossover.load
    assert load is not None
    at = predict(scenario({"load.concurrency": (load,)})).points[0].speedup
    # Interpolated between whole loads, on steps of captured graphs.
    assert at == pytest.approx(1.0, abs=0.02)
    assert answer.crossover == predict_crossover(scenario())


def test_break_even_is_one_on_the_curve(answer: Prediction) -> None:
    for row in answer.break_even:
        assert row.acceptance_length is not None
        assert row.acceptance_rate is not None
        assert row.draft_acceptance_rate == pytest.approx((row.acceptance_length - 1) / 3)
        found = predict(
            scenario(
                {"speculation.acceptance": {"rate": row.acceptance_rate},
                 "load.concurrency": (row.load,)}
            )
        )  # fmt: skip
        assert found.points[0].speedup == pytest.approx(1.0, abs=5e-3)


def test_more_acceptance_is_needed_at_higher_load(answer: Prediction) -> None:
    needed = [row.draft_acceptance_rate or 2.0 for row in answer.break_even]
    assert needed == sorted(needed)


def test_best_k_is_the_best_of_all(answer: Prediction) -> None:
    row = answer.best_k[1]
    assert answer.acceptance is not None
    speedups = {
        k: predict(
            scenario(
                {"speculation.num_speculative_tokens": k, "load.concurrency": (row.load,),
                 "speculation.acceptance": {"per_position": answer.acceptance.per_position}}
            )
        ).points[0].speedup
        for k in range(1, 9)
    }  # fmt: skip
    assert row.speedup == pytest.approx(max(s or 0.0 for s in speedups.values()), rel=2e-3)


def test_best_k_falls_with_load(answer: Prediction) -> None:
    ks = [row.k for row in answer.best_k]
    assert ks == sorted(ks, reverse=True)
    assert ks[0] > ks[-1]


def test_off_is_the_best_k_where_nothing_pays() -> None:
    found = predict(scenario({"speculation.acceptance": {"rate": 0.05}}))
    assert [(row.k, row.speedup) for row in found.best_k][-1] == (0, 1.0)


def test_acceptance_curve_spans_everything(answer: Prediction) -> None:
    curve = answer.acceptance_curve
    assert (curve[0].acceptance_rate, curve[-1].acceptance_rate) == (0.0, 1.0)
    assert (curve[0].acceptance_length, curve[-1].acceptance_length) == (1.0, 4.0)
    first = [point.first or 0.0 for point in curve]
    assert first == sorted(first)


def test_transition_is_where_compute_takes_over(answer: Prediction) -> None:
    # Weights of 2 bytes at .873 x 3.35 TB/s against 2 FLOP at .816 x 989 TFLOP/s: 276 tokens,
    # more with the activations.
    found = answer.transition
    assert found.tokens is not None
    assert 276 < found.tokens < 400
    assert found.slowdown_10pct_tokens is not None
    assert found.slowdown_50pct_tokens is not None
    assert found.slowdown_10pct_tokens < found.slowdown_50pct_tokens


def test_memory_of_both_arms(answer: Prediction) -> None:
    kv = answer.kv
    assert kv == kv_result(scenario())
    assert kv.lost_tokens == kv.baseline.kv_tokens - kv.speculative.kv_tokens
    # One layer of the same shape beside 32 (+4096 / 131072 bytes), and its weights.
    assert 1 / 33 < kv.lost_fraction < 0.07
    assert kv.speculative.max_concurrency < kv.baseline.max_concurrency


def test_lookup_loses_no_cache() -> None:
    found = kv_result(scenario({"speculation.method": "ngram", "speculation.drafter": None}))
    assert found.lost_tokens == 0


def test_band_holds_the_point_and_is_seeded(answer: Prediction) -> None:
    for p in answer.points:
        assert p.speedup_low is not None
        assert p.speedup is not None
        assert p.speedup_high is not None
        assert p.speedup_low <= p.speedup <= p.speedup_high
        assert p.speedup_high - p.speedup_low < 0.5
    assert as_json(predict(scenario())) == as_json(answer)


def test_counts_narrow_the_band(answer: Prediction) -> None:
    def width(counts: int) -> float:
        found = predict(scenario({"speculation.acceptance.counts": counts})).points[0]
        return (found.speedup_high or 0.0) - (found.speedup_low or 0.0)

    assert width(10_000) < width(100)


def test_open_loop_has_rates_and_says_what_is_too_much() -> None:
    found = predict(scenario({"load.request_rate": (1.0, 500.0)}))
    served, beyond = found.points
    assert served.request_rate == 1.0
    assert served.concurrency is None
    assert served.baseline is not None
    assert served.speculative is not None
    assert served.baseline.output_tok_s == pytest.approx(256.0)
    assert served.speedup == pytest.approx(served.baseline.tpot_ms / served.speculative.tpot_ms)
    assert (beyond.baseline, beyond.speculative, beyond.speedup) == (None, None, None)
    assert "off: unstable at this rate, the largest stable rate is" in beyond.note


def test_rates_around_the_largest_stable_one() -> None:
    note = predict(scenario({"load.request_rate": (500.0,)})).points[0].note
    largest = float(note.split("largest stable rate is ")[1].split()[0])
    below, above = predict(scenario({"load.request_rate": (largest * 0.98, largest * 1.02)})).points
    assert below.baseline is not None
    assert np.isfinite(below.baseline.output_tok_s)
    assert above.baseline is None


def test_a_crossing_in_open_loop_is_no_artefact_of_saturation() -> None:
    found = predict(
        scenario({"load.request_rate": (1.0,), "speculation.acceptance": {"rate": 0.97}})
    ).crossover
    assert found is not None
    if found.state == "always":
        assert found.low is None


def test_without_speculation() -> None:
    found = predict(load_scenario({"target": BASE["target"], "hardware": BASE["hardware"]}))
    assert found.acceptance is None
    assert found.crossover is None
    assert all(p.speculative is None and p.speedup is None for p in found.points)
    assert found.kv.lost_tokens == 0
    with pytest.raises(UsageError, match="a crossover needs speculation: method is none"):
        predict_crossover(load_scenario({"target": BASE["target"], "hardware": BASE["hardware"]}))


def test_limits_are_warned_of() -> None:
    found = predict(scenario({"hardware.accelerator": "l4", "target.weight_dtype": "fp8",
                              "engine.max_num_seqs": 256, "engine.max_model_len": 8192,
                              "load.concurrency": (1, 256)}))  # fmt: skip
    assert any("the KV cache holds" in w for w in found.warnings)


@pytest.mark.parametrize(
    ("overrides", "slower"),
    [
        # A layer of 516 rows on four H200 takes less than its launches, on one L4 far more.
        ({"hardware.accelerator": "h200_sxm", "hardware.tensor_parallel_size": 4}, True),
        ({"hardware.accelerator": "l4", "target.weight_dtype": "fp8",
          "engine.max_model_len": 8192, "workload.input_tokens": 64,
          "workload.output_tokens": 64}, False),
        # Graphs of 2048 rows cover all loads; nothing is captured at all.
        ({"hardware.accelerator": "h200_sxm", "hardware.tensor_parallel_size": 4,
          "engine.max_graph_tokens": 2048}, False),
        ({"hardware.accelerator": "h200_sxm", "hardware.tensor_parallel_size": 4,
          "engine.cuda_graphs": False}, False),
        ({"hardware.accelerator": "h200_sxm", "hardware.tensor_parallel_size": 4,
          "load.concurrency": (1, 128)}, False),
    ],
)  # fmt: skip
def test_the_end_of_graphs_is_warned_of_where_it_costs(
    overrides: dict[str, Any], slower: bool
) -> None:
    found = predict(scenario({"load.concurrency": (1, 512)} | overrides))
    cliff = [w for w in found.warnings if "launched without CUDA graphs, which is slower" in w]
    assert len(cliff) == slower
    if slower:
        # 512 rows, four a request.
        assert cliff[0].startswith("above 128 requests a speculative step has more than 512 tokens")


def test_what_does_not_start_comes_first() -> None:
    found = predict(scenario({"hardware.accelerator": "l4", "engine.max_num_seqs": 8,
                              "load.concurrency": (1,)}))  # fmt: skip
    assert found.warnings[0].startswith("vLLM does not start")
    assert found.verdict.reason.endswith("; as written vLLM does not start: see the first warning")


def test_memory_of_a_drafter_of_unknown_acceptance() -> None:
    unknown = load_scenario(BASE, overrides={"speculation.acceptance": None})
    assert kv_result(unknown) == kv_result(scenario())
    with pytest.raises(UsageError, match="acceptance is not given"):
        predict(unknown)


@pytest.mark.parametrize(
    ("model", "method", "drafter", "k"),
    [
        ("qwen3-8b", "dspark", "dspark-qwen3-8b", 7),
        ("llama-3.1-8b", "eagle3", "eagle3-llama3.1-8b", 5),
    ],
)
def test_adaptive_verification(model: str, method: str, drafter: str, k: int) -> None:
    fixed = {
        "target.model": model, "speculation.method": method, "speculation.drafter": drafter,
        "speculation.num_speculative_tokens": k, "speculation.acceptance": {"rate": 0.7},
    }  # fmt: skip
    chosen = predict(scenario(fixed | {"speculation.adaptive_verification": True}))
    for a, b in zip(chosen.points, predict(scenario(fixed)).points, strict=True):
        assert a.speedup is not None
        assert a.speedup_low is not None
        assert a.speedup_high is not None
        assert a.speedup >= (b.speedup or 0.0) - 1e-9
        assert a.speedup_low < a.speedup < a.speedup_high
    rows = [p.speculative.verify_tokens for p in chosen.points if p.speculative]
    assert rows[0] == k + 1
    assert rows[-1] < k + 1


def test_medusa_is_never_told_to_draft_more_than_its_heads() -> None:
    found = predict(
        scenario(
            {"target.model": "vicuna-7b-v1.3", "engine.version": "0.17.1",
             "speculation.method": "medusa", "speculation.drafter": "medusa-vicuna-7b-5-heads",
             "speculation.acceptance": {"rate": 0.99}, "load.concurrency": (1,),
             "workload.input_tokens": 256}
        )
    )  # fmt: skip
    assert [row.k for row in found.best_k] == [5]


def test_loads_that_off_cannot_serve_have_no_break_even() -> None:
    found = predict(scenario({"load.request_rate": (1.0, 500.0)}))
    assert [row.load for row in found.break_even] == [1.0]
    assert [row.load for row in found.best_k] == [1.0]
    nobody = predict(scenario({"load.request_rate": (500.0,)}))
    assert (nobody.break_even, nobody.best_k) == ((), ())
    assert "500 requests/s overload a replica either way" in nobody.verdict.reason


def test_provenance_says_what_was_used() -> None:
    found = predict(
        scenario({"target.model": "gpt-oss-20b", "speculation.method": "ngram",
                  "speculation.drafter": None, "load.concurrency": (1,)})
    ).provenance  # fmt: skip
    assert found["expert_dtype"] == "mxfp4"
    used = {name for name, block in found["constants"].items() if block["used"]}
    assert used == {
        "gemm.bf16", "decode_attention.bf16", "moe.mxfp4", "prefill_attention", "elementwise",
    }  # fmt: skip
    assert {"all_reduce.2", "linear_attention", "mla_attention"} <= set(found["constants"]) - used
    assert found["price"]["usd_per_gpu_hour"] == 3.43
    assert found["price"]["source"]


def test_scenario_is_given_back_with_every_default(answer: Prediction) -> None:
    again = load_scenario(answer.scenario)
    assert dataclasses.replace(predict(again), defaults=()) == dataclasses.replace(
        answer, defaults=(), scenario=predict(again).scenario
    )


ECHOED: dict[str, dict[str, Any]] = {
    "a method that is scheduled synchronously": {
        "speculation.method": "suffix", "speculation.drafter": None,
    },
    "fewer tokens batched than the default of requests": {
        "engine.max_num_seqs": None, "engine.max_num_batched_tokens": 64,
    },
    "an engine that caps requests with speculation on": {
        "engine.name": "sglang", "engine.version": None, "engine.max_num_seqs": None,
    },
    "experts of another dtype, and a head of the target's own": {
        "target.model": "deepseek-v4-pro", "hardware.accelerator": "h200_sxm",
        "hardware.tensor_parallel_size": 8, "speculation.method": "mtp",
        "speculation.drafter": None, "speculation.num_speculative_tokens": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize("what", ECHOED)
def test_the_scenario_of_an_answer_gives_that_answer_again(what: str) -> None:
    first = predict(scenario(ECHOED[what]))
    again = predict(load_scenario(json.loads(json.dumps(first.scenario))))
    assert [p.speedup for p in again.points] == [p.speedup for p in first.points]
    assert again.kv == first.kv


def test_a_default_of_requests_is_lowered_to_the_tokens_of_a_batch() -> None:
    few = {"engine.max_num_seqs": None, "engine.max_num_batched_tokens": 64}
    (busy,) = (p for p in predict(scenario(few)).points if p.concurrency == 512)
    assert busy.baseline is not None
    assert (busy.baseline.batch, busy.baseline.limited_by) == (64, "max_num_seqs")


def test_a_cache_that_prints_more_with_speculation_has_lost_nothing() -> None:
    kv = kv_result(
        scenario(
            {
                "target.model": "gemma-4-31b", "hardware.accelerator": "b200_sxm",
                "hardware.tensor_parallel_size": 8, "engine.name": "sglang",
                "engine.version": "0.5.9", "speculation.method": "mtp",
                "speculation.drafter": None, "workload.input_tokens": 30000,
            }
        )
    )  # fmt: skip
    assert kv.speculative.kv_tokens > kv.baseline.kv_tokens
    assert (kv.lost_tokens, kv.lost_fraction) == (0, 0.0)


def test_a_drafter_without_graphs_is_named_with_what_graphs_would_give() -> None:
    draft = {
        "target.model": "llama-3.1-70b", "hardware.tensor_parallel_size": 4,
        "speculation.method": "draft_model", "speculation.drafter": "llama-3.1-8b",
    }  # fmt: skip
    eager = [w for w in predict(scenario(draft)).warnings if "without CUDA graphs" in w]
    (said,) = [w for w in eager if "drafter" in w]
    assert "vllm 0.33" in said
    assert "another engine version may capture them" in said
    for other in ({"engine.version": "0.32"}, {"engine.cuda_graphs": False}):
        assert said not in predict(scenario({**draft, **other})).warnings


def test_requests_without_a_burst_are_warned_about() -> None:
    assert any(
        "num_requests" in w for w in predict(scenario({"workload.num_requests": 9})).warnings
    )


def test_samples_without_an_off_arm_are_no_loss() -> None:
    # Near the largest rate without speculation many samples cannot serve it, all with can.
    few = {"engine.max_num_seqs": 32, "load.concurrency": None}
    (near,) = predict(scenario({**few, "load.request_rate": (14.7,)})).points
    assert near.speedup is not None
    assert near.speedup_low is not None
    assert near.baseline is not None
    assert near.speedup_low > 1.5
    assert near.note == ""
