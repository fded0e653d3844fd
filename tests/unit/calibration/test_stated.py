"""What runs state and a scenario has otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specsim.calibration.stated import common, differences
from specsim.schema.measurement import Measurement
from specsim.schema.scenario import Scenario

Row = Callable[..., Measurement]


def test_nothing_is_said_of_runs_that_state_the_same_or_nothing(
    make_row: Row, scenario: Scenario
) -> None:
    same = make_row(
        "on", model="meta-llama/Llama-3.1-8B-Instruct", accelerator="NVIDIA H100 80GB HBM3",
        tensor_parallel_size=1, engine="vllm", engine_version="0.33.1", method="eagle3",
    )  # fmt: skip
    assert differences([make_row(), same, make_row(model="llama-3.1-8b")], scenario) == ()


@pytest.mark.parametrize(
    ("changes", "words", "set_to"),
    [
        ({"model": "Qwen/Qwen3-8B"}, "model: x says qwen3-8b, the scenario has llama-3.1-8b; a fit "
         "to this scenario leaves such runs out", {"target.model": "qwen3-8b"}),
        ({"model": "target"}, "model: x says target, the scenario has llama-3.1-8b; the catalog "
         "does not know that name", {}),
        ({"accelerator": "NVIDIA H200"}, "accelerator: x says NVIDIA H200, the scenario has "
         "h100_sxm", {"hardware.accelerator": "h200_sxm"}),
        ({"metadata": {"device": "cpu"}}, "accelerator: x says cpu, the scenario has h100_sxm", {}),
        ({"tensor_parallel_size": 2}, "tensor parallel size: x says 2, the scenario has 1",
         {"hardware.tensor_parallel_size": 2}),
        ({"engine": "sglang"}, "engine: x says sglang, the scenario has vllm",
         {"engine.name": "sglang"}),
        ({"engine": "vllm", "engine_version": "v0.29.1"}, "engine version: x says 0.29.1, the "
         "scenario has 0.33", {"engine.version": "0.29"}),
        ({"arm": "on", "method": "ngram"}, "method: x says ngram, the scenario has eagle3",
         {"speculation.method": "ngram"}),
        ({"arm": "on", "num_speculative_tokens": 5}, "draft tokens per step: x says 5, the "
         "scenario has 3", {"speculation.num_speculative_tokens": 5}),
    ],
)  # fmt: skip
def test_what_differs_is_a_sentence_and_can_be_taken(
    make_row: Row, scenario: Scenario, changes: dict[str, Any], words: str, set_to: dict[str, Any]
) -> None:
    (one,) = found = differences([make_row(**{"source": "x", **changes})], scenario)
    assert one.sentence.startswith(words)
    assert common(found) == set_to
    for key, value in set_to.items():
        assert one.advice.endswith(f"; to take theirs: --set {key}={value}")


def test_files_of_one_mind_are_counted(make_row: Row, scenario: Scenario) -> None:
    rows = [make_row(source=str(i), tensor_parallel_size=2 + i // 3) for i in range(4)]
    found = differences(rows, scenario)
    assert [each.sentence.partition(",")[0] for each in found] == [
        "tensor parallel size: 3 files say 2", "tensor parallel size: 3 says 3",
    ]  # fmt: skip
    assert common(found) == {}  # which of them, nobody can say


def test_a_second_k_is_no_difference(make_row: Row, scenario: Scenario) -> None:
    rows = [make_row("on", num_speculative_tokens=k) for k in (1, 3)]
    assert differences(rows, scenario) == ()


@pytest.mark.parametrize("name", ["H100", "h100-80gb", "NVIDIA-H100-80GB-HBM3"])
def test_a_name_that_leaves_the_make_open_differs_from_none(
    make_row: Row, make_scenario: Callable[..., Scenario], name: str
) -> None:
    for here in ("h100_sxm", "h100_pcie", "h100_nvl"):
        scenario = make_scenario(hardware={"accelerator": here})
        assert differences([make_row(accelerator=name)], scenario) == ()


def test_a_name_that_is_a_path_is_not_read(
    make_row: Row, scenario: Scenario, tmp_path: Any
) -> None:
    path = tmp_path / "gpu.yaml"
    path.write_text("identity: {id: secret}")
    row = make_row(accelerator=str(path), model=str(path))
    assert "secret" not in " ".join(each.sentence for each in differences([row], scenario))
