"""The script of a sweep: what it holds, and that bash takes it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from specsim.catalog.scenario import load_scenario
from specsim.measure.sweep.plan import Settings, make_plan
from specsim.measure.sweep.script import script

SCENARIO: dict[str, Any] = {
    "name": "a name\nof $(two) lines",
    "target": {"model": "org/model"},
    "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 2},
    "speculation": {"method": "ngram", "num_speculative_tokens": 3},
    "load": {"concurrency": [1, 64]},
}


def text(**settings: Any) -> str:
    return script(make_plan(load_scenario(SCENARIO), Settings(**settings)))


@pytest.mark.parametrize(
    "settings",
    [{}, {"draft_tokens": (1, 3, 5)}, {"only": "off"}, {"warmup_prompts": 0},
     {"dataset_args": "--dataset-name custom --dataset-path \"it's $HOME here.jsonl\""}],
)  # fmt: skip
def test_bash_takes_it(settings: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(text(**settings))
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_holds_the_plan() -> None:
    made = text(repeats=3)
    for line in ("set -euo pipefail", "ARMS=(off on_k3)", "LOADS=(1 64)", "PROMPTS=(16 512)",
                 "REPEATS=3", "GPUS_EACH=2"):  # fmt: skip
        assert line in made.splitlines()
    assert "arm=on k=3 method=ngram" in made
    assert made.splitlines()[1].startswith("# The two-server sweep of a name of $(two) lines")


def test_words_of_the_user_are_quoted() -> None:
    made = text(dataset_args="--dataset-name custom --dataset-path 'a $HOME.jsonl'")
    assert shlex.quote("a $HOME.jsonl") in made
