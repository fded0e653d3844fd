"""Scenario files: overrides, YAML traps, one-line errors, and writing them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from specsim.catalog.scenario import dump_scenario, load_scenario
from specsim.errors import InputError, UsageError

BASE = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "speculation": {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "drafter": "eagle3-llama3.1-8b",
        "acceptance": {"length": 2.4, "counts": 500},
    },
    "load": {"concurrency": [1, 2, 4]},
}


def test_a_mapping_loads_and_is_left_alone():
    scenario = load_scenario(BASE, overrides={"speculation.num_speculative_tokens": 4})
    assert scenario.speculation.num_speculative_tokens == 4
    assert BASE["speculation"]["num_speculative_tokens"] == 3


def test_a_file_loads(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "target: {model: llama-3.1-8b, weight_dtype: bf16}\n"
        "hardware: {accelerator: h100_sxm, tensor_parallel_size: 2}\n"
        "engine: {version: '0.33'}\n"
        "workload: {input_tokens: 1000, output_tokens: 200}\n"
        "load: {concurrency: 8}\n"
    )
    scenario = load_scenario(path)
    assert scenario.load.concurrency == (8,)
    assert scenario.hardware.tensor_parallel_size == 2
    assert load_scenario(str(path)) == scenario


def test_one_kind_of_load_replaces_the_other():
    scenario = load_scenario(BASE, overrides={"load.request_rate": [0.5, 1]})
    assert scenario.load.concurrency is None
    assert scenario.load.request_rate == (0.5, 1.0)
    assert load_scenario(BASE, overrides={"load.request_rate": 2}).load.request_rate == (2.0,)


def test_one_form_of_acceptance_replaces_the_others_and_the_counts_behind_them():
    scenario = load_scenario(BASE, overrides={"speculation.acceptance.rate": 0.7})
    assert scenario.speculation.acceptance.rate == 0.7
    assert scenario.speculation.acceptance.length is None
    assert scenario.speculation.acceptance.counts is None


def test_none_removes_and_missing_parents_are_made():
    gone = load_scenario(BASE, overrides={"load": None, "workload.cached_prompt_tokens": None})
    assert gone.load.concurrency[-1] == 256
    assert load_scenario(BASE, overrides={"engine.max_num_seqs": 64}).engine.max_num_seqs == 64


@pytest.mark.parametrize("name", ["", ".", "target.", ".model", "a..b"])
def test_an_override_must_be_a_dotted_name(name):
    with pytest.raises(UsageError, match="not a dotted name"):
        load_scenario(BASE, overrides={name: 1})


def test_an_override_cannot_go_below_a_value():
    with pytest.raises(UsageError, match="'model' is a value"):
        load_scenario(BASE, overrides={"target.model.name": "x"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "target: {model: a}\nhardwear: {accelerator: b}\n",
            "unknown key 'hardwear'; nearest known: hardware",
        ),
        ("target: {model: a}\n", "missing key 'hardware'"),
        ("target: {model: a}\ntarget: {model: b}\n", "line 2: key 'target' is given twice"),
        ("target: {model: a, model: b}\n", "key 'model' is given twice"),
        ("target: {model: a}\non: {}\n", "line 2: key 'on' is not text"),
        ("", "is empty; expected a scenario in YAML"),
        ("- 1\n- 2\n", "got list"),
        ("target: {model: a\n", "is broken or truncated"),
        (
            "target: {model: a}\nhardware: {accelerator: b}\nworkload: {input_tokens: 1e3}\n",
            "workload.input_tokens: got '1e3', which YAML reads as text; write 1000",
        ),
        (
            "target: {model: a}\nhardware: {accelerator: b}\nload: {concurrency: [1, 1e2]}\n",
            "load.concurrency: got '1e2'",
        ),
        (
            "target: {model: a}\nhardware: {accelerator: b}\nworkload: {input_tokens: .nan}\n",
            "workload.input_tokens: got nan",
        ),
        (
            "target: {model: a}\nhardware: {accelerator: b}\nengine: {version: [0.10]}\n",
            "engine.version: got [0.1]; input should be a valid string",
        ),
        (
            "target: {model: a}\nhardware: {accelerator: b}\nengine: {max_num_seqs: true}\n",
            "engine.max_num_seqs: got true, a truth value; input should be a number",
        ),
        (
            "target: {model: a}\nhardware: {accelerator: b}\nengine: {max_num_seqs: 1:30}\n",
            "engine.max_num_seqs: got '1:30'",
        ),
        (
            "target: {model: a}\nhardware: {accelerator: b}\nload: {concurrency: [1, true]}\n",
            "load.concurrency: got true, a truth value",
        ),
        (
            "target: {model: a}\nhardware: {accelerator: b}\nload: {concurrency: []}\n",
            "load.concurrency: got []; there is no load in it; give at least one",
        ),
        (
            "target: &t {model: llama-3.1-8b, x: *t}\nhardware: {accelerator: b}\n",
            "line 1: alias *t is inside its own anchor",
        ),
        (
            "base: &b {accelerator: b}\nhardware:\n  <<: *b\n",
            "line 3: merge keys (<<) are not supported",
        ),
        (
            "hidden_size: 64\nlayers: []\n",
            "is a model, expected a scenario",
        ),
        (
            "identity: {id: x}\ndatasheet: {memory_gb: 80}\n",
            "is a hardware profile, expected a scenario",
        ),
        (
            "target: {model: a}\nhardware: {accelerator: b}\n"
            "speculation: {method: eagle3, num_speculative_tokens: 0}\n",
            "speculation.num_speculative_tokens: got 0",
        ),
        (
            "target: {model: a}\nhardware: {accelerator: b}\n"
            "load: {concurrency: [1], request_rate: [1]}\n",
            "give concurrency or request_rate",
        ),
    ],
)
def test_errors_are_one_line_naming_file_and_key(tmp_path, text, message):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_binary_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_scenario(tmp_path / "none.yaml")
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="not text"):
        load_scenario(binary)
    with pytest.raises(InputError, match="no such file, but a folder"):
        load_scenario(tmp_path)


@pytest.mark.parametrize("empty", ["", Path()])
def test_an_empty_path_is_no_file(empty):
    with pytest.raises(InputError, match=r"^'' or '\.': no such file"):
        load_scenario(empty)


def test_versions_in_a_file_are_the_text_that_is_written(tmp_path):
    path = tmp_path / "s.yaml"
    for written in ("0.33", "0.10", "'0.10'", "1", "0.10.2"):
        path.write_text(
            f"target: {{model: a}}\nhardware: {{accelerator: b}}\nengine:\n  version: {written}\n"
        )
        assert load_scenario(path).engine.version == written.strip("'")


def test_a_version_as_a_number_only_where_nothing_is_lost():
    assert load_scenario(BASE, overrides={"engine.version": 0.33}).engine.version == "0.33"
    with pytest.raises(InputError, match=r"quotes: '0\.1' or '0\.10'"):
        load_scenario(BASE, overrides={"engine.version": 0.10})


def test_values_that_hold_themselves_are_refused():
    inside: list[Any] = []
    inside.append(inside)
    with pytest.raises(InputError, match="a: holds itself"):
        load_scenario(BASE, overrides={"a": inside})
    bomb: list[Any] = ["x"]
    for _ in range(9):
        bomb = [bomb] * 9
    with pytest.raises(InputError, match="more than 100000 values"):
        load_scenario(BASE, overrides={"workload.input_tokens": bomb})


def test_names_that_look_like_numbers_stay_names():
    data = {**BASE, "name": "1e3", "target": {"model": "1e3"}}
    assert load_scenario(data).target.model == "1e3"


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"speculation": None},
        {"speculation.acceptance.per_position": [0.7, 0.5, 0.3], "name": "on: a 'test'"},
        {"load.request_rate": [0.5, 1.0], "engine.version": "0.10", "engine.cuda_graphs": False},
    ],
)
def test_what_is_written_loads_back_equal(tmp_path, overrides):
    scenario = load_scenario(BASE, overrides=overrides)
    path = tmp_path / "s.yaml"
    path.write_text(dump_scenario(scenario))
    assert load_scenario(path) == scenario


@pytest.mark.shared
def test_every_published_scenario_loads_and_is_written_back(shared: Path, tmp_path: Path):
    paths = sorted((shared / "cases" / "published").glob("*.yaml"))
    assert len(paths) > 50
    for path in paths:
        scenario = load_scenario(yaml.safe_load(path.read_text())["scenario"])
        written = tmp_path / path.name
        written.write_text(dump_scenario(scenario))
        assert load_scenario(written) == scenario, path.name


def test_another_way_of_speculating_brings_its_own_acceptance() -> None:
    base = {
        "target": {"model": "llama-3.1-8b"},
        "hardware": {"accelerator": "h100_sxm"},
        "speculation": {
            "method": "eagle3", "num_speculative_tokens": 3, "acceptance": {"length": 2.2},
        },
    }  # fmt: skip
    fewer = load_scenario(base, overrides={"speculation.num_speculative_tokens": 2})
    assert fewer.speculation.acceptance is not None
    assert fewer.speculation.acceptance.measured_at_k == 3
    other = {"method": "ngram", "num_speculative_tokens": 4, "acceptance": {"length": 1.5}}
    replaced = load_scenario(base, overrides={"speculation": other})
    assert replaced.speculation.acceptance is not None
    assert replaced.speculation.acceptance.measured_at_k is None
