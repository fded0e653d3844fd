"""`specsim calibrate` as a user runs it: on committed runs of the lab, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests/data/lab"
CASE = ROOT / "validation/cases/specsim-lab-cpu--interleaved-a70-k3.yaml"
CAN_DRAW = all(importlib.util.find_spec(name) for name in ("altair", "vl_convert"))


def specsim(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", *map(str, args)],
        input="", capture_output=True, text=True, encoding="utf-8", timeout=120,
    )  # fmt: skip


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("specsim: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the lab's scenario, without what its runs say."""
    data: dict[str, Any] = yaml.safe_load(CASE.read_text(encoding="utf-8"))["scenario"]
    for key in ("num_requests", "arrival"):
        del data["workload"][key]
    del data["speculation"]["acceptance"]
    path = tmp_path_factory.mktemp("lab") / "scenario.yaml"
    path.write_text(yaml.safe_dump({**data, "load": {"concurrency": [1, 4, 16]}}))
    return path


@pytest.fixture(scope="module")
def calibrated(scenario: Path) -> tuple[Path, str]:
    """Return the file and the report of one calibration."""
    out = scenario.parent / "calibration.yaml"
    done = specsim("calibrate", scenario, "-m", RUNS, "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    return out, done.stdout


def test_the_report_says_what_was_learned(calibrated: tuple[Path, str]) -> None:
    out, text = calibrated
    titles = ("FITTED", "HOW GOOD", "RUNS AGAINST THE FIT", "NOT TOLD BY THESE RUNS", "RUN NEXT")
    for title in titles:
        assert title in text
    assert text.startswith("lab-152m fp32 · cpu_epyc_2core · vllm 0.")
    assert text.splitlines()[0].endswith(" · draft_model lab-6m")
    assert "calibrated on 10 runs (4 off, 6 on) at 3 loads" in text
    assert "acceptance counted at k = 3:" in text
    assert f"--calibration {out}" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100


def test_json_has_the_report_and_the_file(scenario: Path) -> None:
    done = specsim("calibrate", scenario, "-m", RUNS / "closed_loop", "--json", "--suggest", "2")
    assert (done.returncode, done.stderr) == (0, "")
    got = json.loads(done.stdout)
    assert set(got) >= {
        "calibration", "parameters", "correlations", "rows", "doubts", "suggestions", "warnings",
        "skipped",
    }  # fmt: skip
    assert set(got["calibration"]) >= {
        "specsim_calibration", "scope", "parameters", "covariance", "acceptance", "left_out",
        "runs",
    }  # fmt: skip
    assert set(got["rows"][0]) >= {"source", "arm", "load", "tpot_ms", "fit_tpot_ms", "weight"}
    assert [r["arm"] for r in got["rows"]].count("on") == 2
    assert len(got["suggestions"]) == 2
    assert got["skipped"] == []
    (counted,) = got["calibration"]["acceptance"]
    assert counted["num_speculative_tokens"] == 3
    assert 2.3 < counted["length"] < 2.7
    untold = [p for p in got["parameters"] if not p["identifiable"]]
    assert untold
    assert all(p["factor"] is None and p["value"] is None for p in untold)


def test_a_prediction_takes_the_file(scenario: Path, calibrated: tuple[Path, str]) -> None:
    out, _ = calibrated
    done = specsim("predict", scenario, "--calibration", out, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    got = json.loads(done.stdout)
    assert got["provenance"]["calibration"]["runs"] == 10
    assert not got["provenance"]["calibration"]["widened"]
    assert 2.3 < got["acceptance"]["acceptance_length"] < 2.7  # the scenario gives none
    alone = got["points"][0]["baseline"]["tpot_ms"]  # nobody else's prompts are in the way
    assert alone == pytest.approx(44.9, rel=0.25)
    bare = specsim("predict", scenario)
    assert bare.returncode == 2
    assert "acceptance" in bare.stderr


def test_crossover_takes_the_file(scenario: Path, calibrated: tuple[Path, str]) -> None:
    out, _ = calibrated
    done = specsim("crossover", scenario, "--calibration", out, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    whole = json.loads(specsim("predict", scenario, "--calibration", out, "--json").stdout)
    assert json.loads(done.stdout) == whole["crossover"]


def test_nothing_that_can_be_read(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.bin").write_bytes(b"\x00\x01")
    (tmp_path / "empty.json").write_text("")
    said = one_line(specsim("calibrate", scenario, "-m", tmp_path), 4)
    assert "none of 2 files could be read" in said
    assert "empty.json: is empty" in said


def test_nothing_that_can_be_fitted(scenario: Path) -> None:
    said = one_line(specsim("calibrate", scenario, "-m", RUNS / "closed_loop/server_off.log"), 4)
    assert "can be fitted" in said
    assert "docs/calibration.md" in said


def test_a_broken_file_does_not_stop_the_others(scenario: Path, tmp_path: Path) -> None:
    for name in ("off_c4_rep1.json", "dm_70_3_c4_rep1.json"):
        shutil.copy(RUNS / name, tmp_path)
    (tmp_path / "cut.json").write_text((RUNS / "off_c4_rep1.json").read_text()[:700])
    done = specsim("calibrate", scenario, "-m", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "FILES NOT READ" in done.stdout
    assert "cut.json" in done.stdout
    assert "calibrated on 2 runs (1 off, 1 on) at 1 load\n" in done.stdout


ERRORS = [
    (["-m", "no/such/folder"], 2, "'no/such/folder' does not exist"),
    ([], 2, "--measurements"),
    (["-m", str(RUNS), "--suggest", "21"], 2, "--suggest"),
    (["-m", str(RUNS), "--unknown-arm", "maybe"], 2, "--unknown-arm"),
    (["-m", str(RUNS), "--out", "no/such/folder/c.yaml"], 2, "there is no folder"),
    (["-m", str(RUNS), "--spec-method", "none"], 4, "the scenario does not"),
]


@pytest.mark.parametrize(("args", "code", "said"), ERRORS, ids=lambda value: str(value)[-40:])
def test_an_error_is_one_line_with_its_exit_code(
    scenario: Path, args: list[str], code: int, said: str
) -> None:
    assert said in one_line(specsim("calibrate", scenario, *args), code)


@pytest.mark.parametrize("flag", ["--out", "-o"])
@pytest.mark.parametrize("given", ["the file", "its folder"])
def test_a_measurement_is_never_overwritten(
    scenario: Path, tmp_path: Path, flag: str, given: str
) -> None:
    runs = [shutil.copy(RUNS / n, tmp_path) for n in ("off_c4_rep1.json", "dm_70_3_c4_rep1.json")]
    before = Path(runs[0]).read_bytes()
    measured = ["-m", tmp_path] if given == "its folder" else ["-m", runs[0], "-m", runs[1]]
    done = specsim("calibrate", scenario, *measured, flag, runs[0])
    assert Path(runs[0]).read_bytes() == before
    said = one_line(done, 2)
    assert any(
        word in said
        for word in ("is also read or written by", "was read by", "is replaced by a report")
    )


def test_a_scenario_is_no_calibration(scenario: Path) -> None:
    said = one_line(specsim("predict", scenario, "--calibration", scenario), 2)
    assert "is no calibration; make one with `specsim calibrate" in said
    missing = one_line(specsim("predict", scenario, "--calibration", "nowhere.yaml"), 2)
    assert "nowhere.yaml" in missing


def test_charts(scenario: Path, tmp_path: Path) -> None:
    folder = tmp_path / "charts"
    done = specsim("calibrate", scenario, "-m", RUNS / "closed_loop", "--charts", folder)
    if not CAN_DRAW:
        assert "specsim-llm[charts]" in one_line(done, 2)
        assert not folder.exists()
        return
    assert (done.returncode, done.stderr) == (0, "")
    drawn = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert set(drawn) == {"tpot_fit.svg", "throughput_fit.svg"}
    for name, svg in drawn.items():
        assert svg.startswith("<svg")
        assert "Fitted and measured" in svg
        assert "on, k = 3" in svg
        assert name in done.stdout


def test_runs_of_an_unknown_arm(scenario: Path, tmp_path: Path) -> None:
    for load in (4, 16):
        shutil.copy(RUNS / f"off_c{load}_rep1.json", tmp_path / f"run_c{load}.json")
    said = one_line(specsim("calibrate", scenario, "-m", tmp_path), 4)
    assert "--unknown-arm off" in said
    done = specsim("calibrate", scenario, "-m", tmp_path, "--unknown-arm", "off")
    assert (done.returncode, done.stderr) == (0, "")
    assert "calibrated on 2 runs (2 off) at 2 loads" in done.stdout
    assert "all runs have speculation off" in " ".join(done.stdout.split())
