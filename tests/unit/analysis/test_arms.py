from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim.analysis.arms import Arm, baseline_arm, speculative_arm
from specsim.analysis.constants import Constants
from specsim.analysis.resolve import Deployment, resolve
from specsim.catalog.scenario import load_scenario
from specsim.physics.step import DraftPlan

BASE: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 256},
    "speculation": {
        "method": "eagle3", "num_speculative_tokens": 3, "drafter": "eagle3-llama3.1-8b",
        "acceptance": {"rate": 0.7},
    },
}  # fmt: skip
HEADS = {
    "eagle": ("llama-3.1-8b", "eagle-llama3-8b", 4),
    "eagle3": ("llama-3.1-8b", "eagle3-llama3.1-8b", 4),
    "mtp": ("deepseek-v3", "mtp-deepseek-v3", 4),
    "dflash": ("qwen3.6-27b", "dflash-qwen3.6-27b", 7),
    "dspark": ("qwen3-8b", "dspark-qwen3-8b", 7),
    "p_eagle": ("gpt-oss-20b", "p-eagle-gpt-oss-20b", 5),
    "draft_model": ("llama-3.1-8b", "llama-3.2-1b", 4),
    "pard": ("llama-3.1-8b", "llama-3.2-1b", 4),
}


def deployment(**overrides: Any) -> Deployment:
    dotted = {name.replace("__", "."): value for name, value in overrides.items()}
    return resolve(load_scenario(BASE, overrides=dotted))


def method(name: str, **overrides: Any) -> Deployment:
    model, drafter, k = HEADS[name]
    tp = 8 if model == "deepseek-v3" else 1
    return deployment(
        target__model=model,
        hardware__accelerator="h200_sxm",
        hardware__tensor_parallel_size=tp,
        speculation__method=name,
        speculation__drafter=drafter,
        speculation__num_speculative_tokens=k,
        **overrides,
    )


def plan(name: str, **overrides: Any) -> tuple[DraftPlan, int]:
    found = method(name, **overrides)
    drafting = speculative_arm(found).plan
    assert drafting is not None
    return drafting, found.num_speculative_tokens


@pytest.mark.parametrize(
    ("name", "first_rows", "later", "head_rows"),
    [
        # vllm_facts section 6, rows per sequence: the first pass, passes after it, rows of the
        # vocabulary in the first.
        ("eagle", lambda k: 1 + k, lambda k: k - 1, lambda k: 1),
        ("eagle3", lambda k: 1 + k, lambda k: k - 1, lambda k: 1),
        ("mtp", lambda k: 1 + k, lambda k: k - 1, lambda k: 1),
        ("draft_model", lambda k: 2 + k, lambda k: k - 1, lambda k: 1),
        ("dflash", lambda k: 1 + k, lambda k: 0, lambda k: k),
        ("dspark", lambda k: k, lambda k: 0, lambda k: k),
        ("p_eagle", lambda k: (1 + k) + (k - 1), lambda k: 0, lambda k: k),
        ("pard", lambda k: (1 + k) + k, lambda k: 0, lambda k: k),
    ],
)
def test_rows_and_passes(name: str, first_rows: Any, later: Any, head_rows: Any) -> None:
    found, k = plan(name)
    assert found.first_rows[0] + found.first_rows[1] * k == first_rows(k)
    assert max(found.later_passes[0] + found.later_passes[1] * k, 0) == later(k)
    assert found.first_head_rows[0] + found.first_head_rows[1] * k == head_rows(k)


@pytest.mark.parametrize(
    ("name", "version", "eager"),
    [
        ("draft_model", "0.33", True),
        ("draft_model", "0.29", False),
        ("eagle3", "0.33", False),
        ("p_eagle", "0.33", False),
    ],
)
def test_a_draft_model_of_the_v2_runner_has_no_graphs(name: str, version: str, eager: bool) -> None:
    assert plan(name, engine__version=version)[0].eager is eager


def test_without_graphs_nothing_is_captured() -> None:
    off = deployment(engine__cuda_graphs=False)
    arm = speculative_arm(off)
    assert arm.plan is not None
    assert arm.plan.eager
    assert arm.overheads.max_graph_tokens == 0


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        # min(max_num_seqs (1 + k) 2, 512 or 1024 on SM10x, max_num_batched_tokens)
        ({}, 512),
        ({"engine__max_num_seqs": 32}, 32 * 4 * 2),
        ({"engine__max_num_batched_tokens": 300}, 300),
        ({"hardware__accelerator": "b200_sxm"}, 1024),
        ({"engine__max_graph_tokens": 2048}, 2048),
    ],
)
def test_rows_that_graphs_cover(overrides: dict[str, Any], expected: int) -> None:
    assert speculative_arm(deployment(**overrides)).overheads.max_graph_tokens == expected


def test_the_off_arm_captures_for_itself() -> None:
    small = deployment(engine__max_num_seqs=32)
    assert baseline_arm(small).overheads.max_graph_tokens == 64


def test_only_the_proposer_that_is_used_costs() -> None:
    lookup = deployment(
        speculation__method="ngram", speculation__drafter=None, engine__version="0.25.1"
    )
    assert speculative_arm(lookup).overheads.proposer_host_s > 0
    assert speculative_arm(deployment()).overheads.proposer_host_s == 0.0
    assert baseline_arm(lookup).overheads.proposer_host_s == 0.0


def test_host_times_can_be_set() -> None:
    arm = speculative_arm(
        deployment(engine__host_ms=7.0, engine__speculative_host_ms=3.0, engine__draft_host_ms=0.5)
    )
    assert arm.overheads.host_s == pytest.approx(7e-3)
    assert arm.overheads.speculative_host_s == pytest.approx(3e-3)
    assert arm.overheads.draft_host_s == pytest.approx(0.5e-3)


def test_tokens_and_rows_of_a_step() -> None:
    arm = speculative_arm(deployment())
    # 1 + .7 + .49 + .343, a chain verifies k + 1.
    assert float(arm.tokens_per_step) == pytest.approx(2.533)
    assert arm.verify_tokens == 4.0


def test_k_can_be_swept_in_one_arm() -> None:
    swept = speculative_arm(deployment(), k=np.array([[1.0], [3.0]]))
    alone = [speculative_arm(deployment(speculation__num_speculative_tokens=k)) for k in (1, 3)]
    loads = np.array([1.0, 64.0])
    step = swept.step(loads, 512.0)
    assert np.ravel(step.tokens) == pytest.approx([1.7, 2.533])
    for i, one in enumerate(alone):
        assert step.total.total_s[i] == pytest.approx(one.step(loads, 512.0).total.total_s)


def test_phases_add_up_to_the_step() -> None:
    step = speculative_arm(deployment()).step(16.0, 512.0)
    parts = step.draft.total_s + step.verify.total_s + step.host.total_s
    assert float(step.total.total_s) == pytest.approx(float(parts))


def test_published_cost_of_drafting_on_an_8b() -> None:
    # SpecDecode-Bench: Llama-8B EAGLE, k = 3, H100: 2.135 ms fixed per step.
    eagle = deployment(
        speculation__method="eagle", speculation__drafter="eagle-llama3-8b",
        engine__version="0.10",
    )  # fmt: skip
    step = speculative_arm(eagle).step(1.0, 1.0)
    assert float(step.draft.total_s) == pytest.approx(2.135e-3, rel=0.12)


def test_published_step_of_a_1_7b() -> None:
    # adixg/vllm-specdecode-cost-model, vLLM 0.28, H100, full graphs: 1.93 ms at one token.
    small = deployment(
        target__model="qwen3-1.7b", speculation__method="none", speculation__drafter=None,
        engine__version="0.25.1", engine__host_ms=0.0,
    )  # fmt: skip
    step = baseline_arm(small).step(1.0, 1.0)
    assert float(step.total.total_s) == pytest.approx(1.93e-3, rel=0.15)


def test_pipeline_stages_run_groups() -> None:
    staged = baseline_arm(deployment(hardware__pipeline_parallel_size=2))
    flat = baseline_arm(deployment())
    # Two groups of 32 take turns: a request waits for a pass of 32 rows, and a hop.
    two = float(staged.step(64.0, 512.0).total.total_s)
    one = float(flat.step(32.0, 512.0).total.total_s)
    assert two == pytest.approx(one, abs=1e-4)
    assert two > one


def adaptive(**overrides: Any) -> Arm:
    return speculative_arm(method("dspark", speculation__adaptive_verification=True, **overrides))


def test_adaptive_verification_shortens_with_the_batch() -> None:
    step = adaptive().step(np.array([1.0, 64.0, 512.0]), 512.0)
    assert np.all(np.diff(step.verify_tokens) <= 0)
    assert step.verify_tokens[0] > step.verify_tokens[-1]
    assert np.all(step.tokens <= step.verify_tokens + 1e-9)


def test_adaptive_verification_is_never_slower_per_token() -> None:
    loads = np.array([1.0, 16.0, 128.0, 512.0])
    chosen, fixed = (
        adaptive().step(loads, 512.0),
        speculative_arm(method("dspark")).step(loads, 512.0),
    )
    assert np.all(chosen.tokens / chosen.total.total_s >= fixed.tokens / fixed.total.total_s - 1e-9)


@pytest.mark.parametrize("name", ["dspark", "eagle3"])
def test_adaptive_verification_with_samples(name: str) -> None:
    found = method(name, speculation__adaptive_verification=True)
    loads = np.array([1.0, 64.0, 512.0])
    step = speculative_arm(found, Constants(n_samples=16, seed=1)).step(loads, 512.0)
    point = speculative_arm(found).step(loads, 512.0)
    assert np.shape(step.total.total_s) == np.shape(step.verify_tokens) == (16, 3)
    assert np.all(step.tokens <= step.verify_tokens + 1e-9)
    assert np.all(np.diff(step.verify_tokens, axis=-1) <= 0)
    assert np.median(step.total.total_s, axis=0) == pytest.approx(point.total.total_s, rel=0.15)


def test_adaptive_verification_chooses_the_length_that_pays_best() -> None:
    # By hand: the same drafts, verified to every length.
    k = 7
    loads = np.array([1.0, 64.0, 256.0, 512.0])
    step = adaptive().step(loads, 512.0)
    fixed = speculative_arm(method("dspark"))
    # 1 + .7 + ... + .7^v tokens of v + 1 rows.
    speeds = np.stack(
        [
            (1 - 0.7 ** (v + 1)) / 0.3
            / replace(fixed, verify_tokens=1.0 + v).step(loads, 512.0).total.total_s
            for v in range(k + 1)
        ]
    )  # fmt: skip
    assert step.verify_tokens == pytest.approx(1.0 + np.argmax(speeds, axis=0))
    assert step.tokens / step.total.total_s == pytest.approx(np.max(speeds, axis=0))


@pytest.mark.parametrize(
    ("name", "stored"),
    [("dflash", True), ("dspark", True), ("p_eagle", False), ("eagle3", False), ("pard", False)],
)
def test_who_runs_its_layers_on_a_prompt(name: str, stored: bool) -> None:
    found, _ = plan(name)
    assert found.context_only is stored
    if stored:
        # Fusion, and keys and values of five layers.
        assert len(found.context_gemms) == 6


def test_prompts_of_a_block_drafter_skip_its_layers() -> None:
    def prompt_s(name: str) -> float:
        arm = speculative_arm(method(name))
        with_prompt, without = (
            arm.step(1.0, 512.0, prefill_tokens=tokens) for tokens in (8192.0, 0.0)
        )
        return float(with_prompt.draft.total_s - without.draft.total_s)

    # Fusion of 20480 x 4096, and 2048 x 4096 in each of five layers: 2.06 TFLOP on 8192 tokens.
    flop = 2 * 8192 * (20480 * 4096 + 5 * 2048 * 4096)
    assert 1.0 < prompt_s("dspark") / (flop / 989e12) < 1.6


@pytest.mark.parametrize("tokens", [512, 2048, 8192])
def test_prompts_cost_a_step_their_flop(tokens: int) -> None:
    # 15 GFLOP a token for the 7.5 G weights of Llama-3.1-8B; beside them attention and the bytes.
    arm = baseline_arm(deployment())
    one = float(arm.step(0.0, 1.0, prefill_tokens=float(tokens)).total.total_s)
    assert one > tokens * 2 * 6.98e9 / 989.4e12


def test_samples_stand_on_a_leading_axis() -> None:
    arm = speculative_arm(deployment(), Constants(n_samples=16, seed=1))
    step = arm.step(np.array([1.0, 8.0, 64.0]), 512.0)
    assert np.shape(step.total.total_s) == (16, 3)
    assert np.shape(step.tokens) == (16, 1)


def test_draft_ranks() -> None:
    def communication_s(draft_tp: int) -> float:
        sharded = deployment(
            target__model="llama-3.1-70b", hardware__tensor_parallel_size=4,
            speculation__method="eagle", speculation__drafter="eagle-llama3-70b",
            speculation__draft_tensor_parallel_size=draft_tp,
        )  # fmt: skip
        return float(speculative_arm(sharded).step(16.0, 512.0).draft.communication_s)

    assert communication_s(1) == 0.0
    # Three passes of one layer: two sums and the gathering of logits, 8.8 us each at least.
    assert communication_s(4) > 3 * 3 * 8e-6
