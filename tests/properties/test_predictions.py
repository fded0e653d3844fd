"""What must hold for any deployment that can be asked for."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specsim.analysis.arms import baseline_arm, speculative_arm
from specsim.analysis.curves import Pair, pair, service_at_rates
from specsim.analysis.kv import KvBudget
from specsim.analysis.predict import kv_result, predict
from specsim.analysis.resolve import Deployment, resolve
from specsim.analysis.serving import closed_loop, open_loop
from specsim.catalog.scenario import load_scenario
from specsim.errors import InfeasibleError
from specsim.schema.hardware import HardwareProfile
from specsim.schema.results import as_json

# Target, tensor-parallel size, method, drafter, and the ks it can draft.
PAIRINGS: tuple[tuple[str, int, str, str | None, tuple[int, ...]], ...] = (
    ("llama-3.1-8b", 1, "eagle3", "eagle3-llama3.1-8b", (1, 3, 7)),
    ("llama-3.1-8b", 1, "draft_model", "llama-3.2-1b", (1, 4)),
    ("llama-3.1-8b", 2, "ngram", None, (2, 5)),
    ("llama-3.1-70b", 4, "eagle", "eagle-llama3-70b", (2, 4)),
    ("llama-3.1-70b", 8, "pard", "llama-3.2-1b", (4, 8)),
    ("qwen3-8b", 1, "dspark", "dspark-qwen3-8b", (3, 7)),
    ("qwen3-30b-a3b", 2, "suffix", None, (4, 8)),
    ("qwen3-next-80b-a3b", 4, "mtp", "mtp-qwen3-next-80b-a3b", (1, 2, 4)),
    ("gpt-oss-120b", 2, "eagle3", "eagle3-gpt-oss-120b", (1, 3)),
    ("gpt-oss-20b", 1, "p_eagle", "p-eagle-gpt-oss-20b", (3, 5)),
    ("deepseek-v3", 16, "mtp", "mtp-deepseek-v3", (1, 3)),
    ("qwen3.5-27b-text", 2, "dflash", "dflash-qwen3.6-27b", (4, 7)),
    ("gemma-4-31b", 2, "ngram", None, (3,)),
)
DEVICES = ("h100_sxm", "h200_sxm", "a100_sxm_80", "b200_sxm", "mi300x", "rtx_pro_6000", "l40s")
ATTENTION_ONLY = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-8b", "gpt-oss-20b", "deepseek-v3")
LOADS = np.array([1.0, 4.0, 32.0, 200.0, 900.0])

fractions = st.floats(0.0, 1.0)


@st.composite
def acceptances(draw: st.DrawFn, k: int) -> dict[str, Any]:
    form = draw(st.sampled_from(("rate", "draft_acceptance_rate", "length", "per_position")))
    if form == "length":
        return {form: draw(st.floats(1.0, k + 1.0))}
    if form == "per_position":
        positions = draw(st.lists(fractions, min_size=1, max_size=k + 2))
        return {form: tuple(sorted(positions, reverse=True))}
    return {form: draw(fractions)}


@st.composite
def questions(draw: st.DrawFn, *, load: str = "concurrency") -> dict[str, Any]:
    model, tp, method, drafter, ks = draw(st.sampled_from(PAIRINGS))
    k = draw(st.sampled_from(ks))
    loads = (1.0, 16.0, 300.0) if load == "concurrency" else (0.05, 2.0, 60.0)
    return {
        "target": {
            "model": model,
            "kv_dtype": draw(st.sampled_from(("bf16", "fp8"))),
            "weight_dtype": draw(st.sampled_from((None, "fp8"))),
        },
        "hardware": {
            "accelerator": draw(st.sampled_from(DEVICES)), "tensor_parallel_size": tp,
        },
        "engine": {
            "name": "vllm", "version": "0.33", "cuda_graphs": draw(st.booleans()),
            "max_num_seqs": draw(st.sampled_from((16, 256, 1024))),
        },
        "speculation": {
            "method": method, "num_speculative_tokens": k, "drafter": drafter,
            "acceptance": draw(acceptances(k)),
        },
        "workload": {
            "input_tokens": draw(st.sampled_from((16, 512, 8000))),
            "output_tokens": draw(st.sampled_from((1, 64, 2000))),
            "arrival": draw(st.sampled_from(("steady", "burst")))
            if load == "concurrency"
            else "steady",
        },
        "load": {load: loads},
    }  # fmt: skip


def resolved(question: dict[str, Any]) -> Deployment:
    return resolve(load_scenario(question))


def both(deployment: Deployment) -> Pair:
    try:
        return pair(deployment)
    except InfeasibleError:
        assume(False)
        raise


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return list(itertools.chain.from_iterable(map(numbers, value.values())))
    if isinstance(value, (list, tuple)):
        return list(itertools.chain.from_iterable(map(numbers, value)))
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def faster(
    hardware: HardwareProfile, *, bandwidth: float = 1.0, compute: float = 1.0
) -> HardwareProfile:
    sheet = hardware.datasheet
    peaks = {
        name: None if peak is None else peak * compute
        for name, peak in sheet.dense_tflops.model_dump().items()
    }
    return hardware.model_copy(
        update={
            "datasheet": sheet.model_copy(
                update={
                    "memory_bandwidth_gb_per_s": sheet.memory_bandwidth_gb_per_s * bandwidth,
                    "dense_tflops": type(sheet.dense_tflops)(**peaks),
                }
            )
        }
    )


@settings(max_examples=80)
@given(load=st.sampled_from(("concurrency", "request_rate")), data=st.data())
def test_every_number_of_an_answer_is_finite_and_none_is_negative(
    load: str, data: st.DataObject
) -> None:
    question = data.draw(questions(load=load))
    try:
        found = predict(load_scenario(question))
    except InfeasibleError:
        return
    for name, value in as_json(found, digits=12).items():
        for number in numbers(value):
            assert math.isfinite(number), name
            assert number >= 0, name
    for p in found.points:
        for side in (p.baseline, p.speculative):
            if side is not None:
                assert all(math.isfinite(x) and x >= 0 for x in numbers(vars(side)))
                assert side.output_tok_s > 0
        if p.speedup is not None:
            assert p.speedup_low is not None
            assert p.speedup_high is not None
            assert 0 < p.speedup
            assert 0 <= p.speedup_low <= p.speedup <= p.speedup_high
            assert math.isfinite(p.speedup_high)
        else:
            assert "unstable at this rate, the largest stable rate is" in p.note
        if p.speculative is not None:
            k = found.scenario["speculation"]["num_speculative_tokens"]
            assert 1.0 - 1e-9 <= p.speculative.tokens_per_step <= k + 1 + 1e-9
            assert p.speculative.verify_tokens <= k + 1 + 1e-9


@settings(max_examples=10)
@given(question=questions())
def test_the_same_question_has_the_same_answer(question: dict[str, Any]) -> None:
    scenario = load_scenario(question)
    try:
        first = predict(scenario)
    except InfeasibleError:
        return
    assert first == predict(scenario)


@given(question=questions(), factor=st.floats(1.0, 4.0))
def test_a_faster_device_is_never_slower(question: dict[str, Any], factor: float) -> None:
    deployment = resolved(question)
    slow = both(deployment)
    for change in ({"bandwidth": factor}, {"compute": factor}):
        fast = both(replace(deployment, hardware=faster(deployment.hardware, **change)))
        for a, b in ((slow.baseline, fast.baseline), (slow.speculative, fast.speculative)):
            before = np.asarray(a.step(LOADS, 2000.0).total.total_s)
            after = np.asarray(b.step(LOADS, 2000.0).total.total_s)
            assert np.all(after <= before * (1 + 1e-9))


@given(question=questions(), context=st.floats(1.0, 50_000.0), more=st.floats(1.0, 50_000.0))
def test_a_longer_context_is_never_faster(
    question: dict[str, Any], context: float, more: float
) -> None:
    arms = both(resolved(question))
    for arm in (arms.baseline, arms.speculative):
        short = np.asarray(arm.step(LOADS, context).total.total_s)
        long = np.asarray(arm.step(LOADS, context + more).total.total_s)
        assert np.all(long >= short * (1 - 1e-9))


@given(question=questions())
def test_a_larger_batch_is_never_faster_per_step(question: dict[str, Any]) -> None:
    arms = both(resolved(question))
    # Full graphs only: a step that falls out of the largest graph and back is a cliff.
    loads = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0])
    for arm in (arms.baseline, arms.speculative):
        times = np.asarray(arm.step(loads, 2000.0).total.total_s)
        assert np.all(np.diff(times) >= -1e-12)


@given(question=questions())
def test_graphs_are_never_slower_than_none(question: dict[str, Any]) -> None:
    # Whole multiples of 16 rows are padded to nothing.
    loads = np.array([16.0, 64.0, 128.0, 512.0])
    eager, captured = (
        both(resolved(question | {"engine": question["engine"] | {"cuda_graphs": graphs}}))
        for graphs in (False, True)
    )
    for a, b in ((captured.baseline, eager.baseline), (captured.speculative, eager.speculative)):
        with_graphs = np.asarray(a.step(loads, 2000.0).total.total_s)
        assert np.all(with_graphs <= np.asarray(b.step(loads, 2000.0).total.total_s) * (1 + 1e-9))


@given(question=questions())
def test_time_in_the_system_follows_little(question: dict[str, Any]) -> None:
    question["workload"] |= {"arrival": "steady"}
    arms = both(resolved(question))
    output_tokens = arms.workload.output_tokens
    for arm in (arms.baseline, arms.speculative):
        served = closed_loop(arm, arms.workload, LOADS)
        latency_s = served.ttft_s + (output_tokens - 1.0) * served.tpot_s
        # A request also waits a step for the others, if there are any.
        others = 1.0 - 1.0 / served.batch
        latency_s = latency_s - others * served.step.total.total_s
        in_system = latency_s * served.output_tokens_per_s / output_tokens
        assert in_system == pytest.approx(LOADS, rel=1e-6)


@given(question=questions(), batch=st.integers(1, 1024))
def test_verifying_costs_no_more_than_as_many_steps(question: dict[str, Any], batch: int) -> None:
    deployment = resolved(question)
    arms = both(deployment)
    verified = float(np.max(arms.speculative.verify_tokens))
    # Graphs on both sides: with graphs off both are launched layer by layer, too.
    limit = float(arms.baseline.overheads.max_graph_tokens)
    assume(limit == 0 or batch * verified <= limit)
    verify = float(arms.speculative.step(float(batch), 1000.0).verify.total_s)
    host = float(arms.baseline.overheads.host_s)
    one = float(arms.baseline.step(float(batch), 1000.0).total.total_s) - host
    assert verify <= math.ceil(verified) * one * (1 + 1e-9)


@given(question=questions())
def test_lookup_loses_no_cache_on_attention_only_models(question: dict[str, Any]) -> None:
    assume(question["target"]["model"] in ATTENTION_ONLY)
    question["speculation"] |= {"method": "ngram", "drafter": None}
    try:
        found = kv_result(load_scenario(question))
    except InfeasibleError:
        return
    assert found.lost_tokens == 0
    assert found.lost_fraction == 0.0


@given(question=questions())
def test_a_drafter_never_adds_cache(question: dict[str, Any]) -> None:
    try:
        found = kv_result(load_scenario(question))
    except InfeasibleError:
        return
    assert found.lost_tokens >= 0
    assert found.speculative.max_concurrency <= found.baseline.max_concurrency


@given(question=questions())
def test_speedup_rises_with_acceptance(question: dict[str, Any]) -> None:
    deployment = resolved(question)
    arms = both(deployment)
    k = deployment.num_speculative_tokens
    speedup = arms.at_rates(np.linspace(0.0, 1.0, 11), k, 1.0).speedup(LOADS)
    assert np.all(np.diff(speedup, axis=0) >= -1e-9)


@given(question=questions())
def test_a_load_alone_is_as_among_others(question: dict[str, Any]) -> None:
    arms = both(resolved(question))
    together = arms.speedup(LOADS)
    alone = [float(arms.speedup(np.array([load]))[0]) for load in LOADS]
    assert together == pytest.approx(alone, rel=1e-12)


@given(question=questions())
def test_a_k_alone_is_as_in_a_sweep(question: dict[str, Any]) -> None:
    deployment = resolved(question)
    k = deployment.num_speculative_tokens
    arms = both(deployment)
    swept = pair(deployment, k=np.array([[1.0], [float(k)]])).speedup(LOADS)
    assert swept[1] == pytest.approx(arms.speedup(LOADS), rel=1e-12)


@given(question=questions(load="request_rate"))
def test_both_kinds_of_load_agree_at_one_request_in_flight(question: dict[str, Any]) -> None:
    # Long answers, so that half a percent of a request in flight leaves next to no prefill.
    question["workload"]["output_tokens"] = 2000
    # 512 tokens just fill the largest graph; with a hundredth of a request beside them they do not.
    question["workload"]["input_tokens"] = min(question["workload"]["input_tokens"], 400)
    arms = both(resolved(question))
    for arm in (arms.baseline, arms.speculative):
        rare = np.array([float(open_loop(arm, arms.workload).rates[1])])
        seldom, _ = service_at_rates(arm, arms.workload, rare)
        alone = closed_loop(arm, arms.workload, np.array([1.0]))
        assert seldom.itl_s == pytest.approx(alone.itl_s, rel=0.03)
        assert seldom.ttft_s == pytest.approx(alone.ttft_s, rel=0.05)


@given(question=questions(load="request_rate"))
def test_latency_rises_with_the_rate_until_it_is_unstable(question: dict[str, Any]) -> None:
    arms = both(resolved(question))
    for arm in (arms.baseline, arms.speculative):
        curve = open_loop(arm, arms.workload)
        largest = float(np.max(curve.largest_stable_rate))
        assert 0 < largest < math.inf
        rates = np.geomspace(largest / 1000, largest * 0.999, 30)
        tpot = curve.at(rates, curve.tpot_s)
        assert np.all(np.isfinite(tpot) & (tpot > 0))
        assert np.all(np.isnan(curve.at(np.array([largest * 1.001]), curve.tpot_s)))


def test_budgets_are_points_whatever_the_samples() -> None:
    # The band moves times, never what fits.
    deployment = resolved(
        {
            "target": {"model": "llama-3.1-8b"}, "hardware": {"accelerator": "h100_sxm"},
            "speculation": {"method": "ngram", "num_speculative_tokens": 3,
                            "acceptance": {"rate": 0.5}},
        }
    )  # fmt: skip
    budgets: list[KvBudget] = [
        baseline_arm(deployment).budget, speculative_arm(deployment).budget,
    ]  # fmt: skip
    assert budgets[0].kv_tokens == budgets[1].kv_tokens


@given(question=questions())
def test_more_requests_never_serve_less(question: dict[str, Any]) -> None:
    # Launched layer by layer throughout: no cliff at the largest graph.
    question["workload"] |= {"arrival": "steady"}
    question["engine"] |= {"cuda_graphs": False}
    arms = both(resolved(question))
    for arm in (arms.baseline, arms.speculative):
        served = np.asarray(closed_loop(arm, arms.workload, LOADS).output_tokens_per_s)
        assert np.all(np.diff(served) >= -0.02 * served[:-1])
