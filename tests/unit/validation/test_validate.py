"""Folders of cases: a bad file is listed and the others go on; the object of `--json`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specsim.errors import NotFoundError
from specsim.validation.summary import validate

Write = Callable[..., Path]
ENTRY = {
    "speedup": {"n", "median_abs_pct", "p90_abs_pct", "bias_pct"},
    "sign": {"n", "agree"},
    "crossover": {"n", "within_one_step"},
    "best_k": {"n", "good"},
    "tpot": {"n", "median_abs_pct"},
    "output_tok_s": {"n", "median_abs_pct"},
    "coverage_80": {"n", "inside"},
}
POINT = {"concurrency": 1, "measured": {"speedup": 1.8, "speedup_of": "output_tok_s"}}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", "validate", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def folder(write: Write, tmp_path: Path) -> Path:
    """Return a folder of two good cases, one of an unknown model, and one that is no YAML."""
    write("good", [POINT])
    write("tuned", [POINT], role="tune", grade="C")
    path = write("unknown", [POINT])
    path.write_text(path.read_text(encoding="utf-8").replace("llama-3.1-8b", "no-such-model"))
    (tmp_path / "broken.yaml").write_text("case: [", encoding="utf-8")
    return tmp_path


def test_a_bad_file_is_listed_and_the_others_go_on(folder: Path) -> None:
    found = validate(folder, n_samples=0)
    assert [c.case for c in found.cases if not c.failed and not c.points[0].failed] == [
        "made/good", "made/tuned",
    ]  # fmt: skip
    assert len(found.failed) == 2
    assert "broken.yaml" in found.failed[0]
    assert "no-such-model" in found.failed[1]
    assert found.summary["all"]["speedup"]["n"] == 2
    assert found.summary["test"]["speedup"]["n"] == 1
    assert found.summary["AB"]["speedup"]["n"] == 1
    assert found.summary["C"]["speedup"]["n"] == 1


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no case files"):
        validate(tmp_path)


def test_json_has_the_keys_of_the_contract(folder: Path) -> None:
    done = run("--cases", str(folder), "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    assert {"summary", "cases", "failed"} <= set(found)
    for group in ("all", "AB", "A", "B", "C", "tune", "test"):
        entry = found["summary"][group]
        for metric, names in ENTRY.items():
            assert set(entry[metric]) == names, f"{group} {metric}"
    for case in found["cases"]:
        assert {"case", "grade", "role", "scored", "points", "failed"} <= set(case)
    (point,) = next(c for c in found["cases"] if c["case"] == "made/good")["points"]
    assert point["measured_speedup"] == 1.8
    assert point["speedup_low"] <= point["predicted_speedup"] <= point["speedup_high"]
    assert point["below_bound"] is False


def test_the_report_names_what_could_not_be_run(folder: Path) -> None:
    done = run("--cases", str(folder))
    assert done.returncode == 0
    assert "COULD NOT BE RUN" in done.stdout
    assert "no-such-model" in done.stdout


def test_the_report_says_where_to_look_below_the_bound(write: Write) -> None:
    slow = {"baseline": {"output_tok_s": 140.0}, "speculative": {"output_tok_s": 50.0}}
    done = run("--cases", str(write("slow", [{"concurrency": 1, "measured": slow}])))
    text = " ".join(done.stdout.split())
    assert "made/slow, point 1" in text
    assert "measured below the bound: look at the engine path" in text
