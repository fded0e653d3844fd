"""What a sweep plans: servers, loads, prompts and their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specsim.catalog.scenario import load_scenario
from specsim.errors import InputError, UsageError
from specsim.measure.sweep.placement import place, visible_gpus
from specsim.measure.sweep.plan import (
    PLAN_FILE,
    Settings,
    check_same_sweep,
    dump_plan,
    load_plan,
    make_plan,
    merged,
    metadata,
    notes_of,
    runs_of,
)
from specsim.schema.sweep import SweepPlan

BASE: dict[str, Any] = {
    "target": {"model": "meta-llama/Llama-3.1-8B-Instruct"},
    "hardware": {"accelerator": "h100_sxm"},
    "speculation": {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "drafter": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    },
    "workload": {"input_tokens": 512, "output_tokens": 128},
    "load": {"concurrency": [1, 4, 16]},
}


def plan(overrides: dict[str, Any] | None = None, **settings: Any) -> SweepPlan:
    return make_plan(load_scenario(BASE, overrides=overrides), Settings(**settings))


def order(planned: SweepPlan, *, together: bool) -> list[str]:
    return [run.label for run in runs_of(planned, together=together)]


def test_the_arms_differ_in_speculation_alone() -> None:
    off, on = plan().arms
    assert (off.name, on.name) == ("off", "on_k3")
    at = on.command.index("--speculative-config")
    assert on.command[:at] + on.command[at + 2 :] == off.command
    assert off.command[:3] == ("vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct")


def test_the_first_arm_alternates_and_so_do_the_passes() -> None:
    assert order(plan(repeats=2), together=True) == [
        "off c1_r1", "on_k3 c1_r1", "on_k3 c4_r1", "off c4_r1", "off c16_r1", "on_k3 c16_r1",
        "on_k3 c1_r2", "off c1_r2", "off c4_r2", "on_k3 c4_r2", "on_k3 c16_r2", "off c16_r2",
    ]  # fmt: skip


def test_one_server_at_a_time_goes_abba_by_ladder() -> None:
    labels = order(plan(repeats=2), together=False)
    assert [label.split()[0] for label in labels] == ["off"] * 3 + ["on_k3"] * 6 + ["off"] * 3


def test_runs_that_are_compared_share_their_prompts() -> None:
    by_stem: dict[str, set[int]] = {}
    for run in runs_of(plan(repeats=3, draft_tokens=(1, 3)), together=True):
        by_stem.setdefault(run.stem, set()).add(run.seed)
    assert all(len(seeds) == 1 for seeds in by_stem.values())
    assert len({seed for seeds in by_stem.values() for seed in seeds}) == 9


@pytest.mark.parametrize(
    ("settings", "prompts"),
    [
        ({}, [16, 32, 128]),
        ({"prompts_per_load": 10}, [16, 40, 160]),
        ({"min_prompts": 6, "prompts_per_load": 2}, [6, 8, 32]),
    ],
)
def test_prompts_grow_with_the_load(settings: dict[str, Any], prompts: list[int]) -> None:
    assert [load.num_prompts for load in plan(**settings).loads] == prompts


def test_an_open_loop_has_a_minute_of_arrivals() -> None:
    planned = plan({"load.request_rate": [4, 0.5]})
    assert planned.load_kind == "request_rate"
    assert [(load.value, load.num_prompts) for load in planned.loads] == [(0.5, 30), (4, 240)]
    assert order(planned, together=True)[0] == "off q0.5_r1"


def test_several_draft_lengths_are_an_arm_each() -> None:
    planned = plan(draft_tokens=(1, 3, 1))
    assert [arm.name for arm in planned.arms] == ["off", "on_k1", "on_k3"]
    assert '"num_speculative_tokens": 1' in " ".join(planned.arms[1].command)
    assert [metadata(planned, arm)["k"] for arm in planned.arms] == ["0", "1", "3"]


@pytest.mark.parametrize(("only", "names"), [("off", ["off"]), ("on", ["on_k3"])])
def test_one_arm_alone(only: str, names: list[str]) -> None:
    assert [arm.name for arm in plan(only=only).arms] == names


def test_a_name_of_the_catalog_needs_a_path() -> None:
    with pytest.raises(UsageError, match="--model-path"):
        plan({"target.model": "llama-3.1-8b"})
    with pytest.raises(UsageError, match="--drafter-path"):
        plan({"speculation.drafter": "eagle3-llama3.1-8b"})
    planned = plan(
        {"target.model": "llama-3.1-8b", "speculation.drafter": "eagle3-llama3.1-8b"},
        model_path="/models/8b", drafter_path="/models/eagle",
    )  # fmt: skip
    command = planned.arms[1].command
    assert command[2] == "/models/8b"
    assert command[command.index("--served-model-name") + 1] == "llama-3.1-8b"
    assert "/models/eagle" in command[command.index("--speculative-config") + 1]
    # What the results say is the scenario's name, which a prediction can be made for.
    assert metadata(planned, planned.arms[1])["drafter"] == "eagle3-llama3.1-8b"


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(UsageError, match="does not speculate"):
        plan({"speculation": None})
    with pytest.raises(UsageError, match="--spec-tokens"):
        plan({"speculation.num_speculative_tokens": None})


def test_prompts_are_cached_only_where_the_scenario_caches() -> None:
    assert "--no-enable-prefix-caching" in plan().arms[0].command
    assert (
        "--no-enable-prefix-caching"
        not in plan({"workload.cached_prompt_tokens": 64}).arms[0].command
    )
    given = plan(serve_args="--enable-prefix-caching --block-size 32").arms[0].command
    assert given[-3:] == ("--enable-prefix-caching", "--block-size", "32")


def test_a_data_set_takes_the_place_of_random_tokens() -> None:
    own = "--dataset-name sharegpt --dataset-path 'my file.json'"
    planned = plan(dataset_args=own)
    assert planned.dataset == ("--dataset-name", "sharegpt", "--dataset-path", "my file.json")
    assert not planned.random_prompts
    assert plan(dataset_args="--dataset-name random --random-input-len 9").random_prompts


def test_random_prompts_are_warned_of_unless_the_drafter_is_the_labs() -> None:
    assert any("--dataset-args" in note for note in notes_of(plan()))
    own = plan(dataset_args="--dataset-name sharegpt")
    lab = plan({"speculation.drafter": "lab-6m"}, drafter_path="x")
    for planned in (own, lab):
        assert not any("--dataset-args" in note for note in notes_of(planned))
        assert any("prefix caching is off" in note for note in notes_of(planned))
    cached = plan(serve_args="--enable-prefix-caching")
    assert not any("prefix caching is off" in note for note in notes_of(cached))
    assert any("one repeat" in note for note in notes_of(plan(repeats=1)))


def test_a_plan_is_read_back_as_it_was(tmp_path: Path) -> None:
    planned = plan(draft_tokens=(1, 3), serve_args="--block-size 32")
    (tmp_path / PLAN_FILE).write_text(dump_plan(planned))
    assert load_plan(tmp_path) == planned
    assert load_plan(tmp_path / "absent") is None
    (tmp_path / PLAN_FILE).write_text("arms: 3\n")
    with pytest.raises(InputError, match=PLAN_FILE):
        load_plan(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "settings", "what"),
    [
        ({"workload.input_tokens": 100}, {}, "the prompts"),
        ({"engine.max_num_seqs": 8}, {}, "arm off"),
        ({"workload.temperature": 1.0}, {}, "the temperature"),
        ({"hardware.accelerator": "h200"}, {}, "the accelerator"),
        ({"load.request_rate": [1]}, {}, "the kind of load"),
    ],
)
def test_what_cannot_be_compared_is_kept_apart(
    overrides: dict[str, Any], settings: dict[str, Any], what: str
) -> None:
    with pytest.raises(UsageError, match=what):
        check_same_sweep(plan(overrides, **settings), plan(), Path("folder"))


def test_more_of_the_same_is_welcome() -> None:
    more = plan({"load.concurrency": [1, 64]}, repeats=4, draft_tokens=(1,))
    check_same_sweep(more, plan(), Path("folder"))
    assert [arm.name for arm in merged(more, plan()).arms] == ["off", "on_k1", "on_k3"]


def test_servers_are_together_where_there_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    monkeypatch.delenv("VLLM_TARGET_DEVICE", raising=False)
    two = plan({"hardware.tensor_parallel_size": 2})
    assert visible_gpus() == ["4", "5", "6", "7"]
    assert place(two).devices == {"off": "4,5", "on_k3": "6,7"}
    four = plan({"hardware.tensor_parallel_size": 4})
    assert not place(four).together
    forced = place(four.model_copy(update={"servers": "both"}))
    assert forced.together
    assert forced.shared
    with pytest.raises(UsageError, match="8 GPUs"):
        place(plan({"hardware.tensor_parallel_size": 8}))


def test_a_cpu_holds_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_TARGET_DEVICE", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert place(plan({"hardware.accelerator": "cpu_epyc_2core"})).together
    assert not place(plan()).together
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cpu")
    assert place(plan()).together
