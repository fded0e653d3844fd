"""Help, version, wrong commands, a closed pipe, a bug: what holds for every command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import specsim
from specsim.cli import COMMANDS, main


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", *args], capture_output=True, text=True, timeout=60
    )


def test_version() -> None:
    assert run("--version").stdout == f"specsim, version {specsim.__version__}\n"


def test_help_of_every_command() -> None:
    for args in ([], *([name] for name in COMMANDS)):
        done = run(*args, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith("Usage: specsim")
    assert all(name in run("--help").stdout for name in COMMANDS)


def test_no_arguments_is_help_and_a_usage_error() -> None:
    done = run()
    assert done.returncode == 2
    assert "Commands:" in done.stdout


@pytest.mark.parametrize("args", [["predit"], ["--no-such-flag"], ["profiles", "lst"]])
def test_a_wrong_command_is_one_line(args: list[str]) -> None:
    done = run(*args)
    assert done.returncode == 2
    assert done.stderr.startswith("specsim: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["predict", "crossover", "kv", "simulate", "plan", "sweep"])
def test_without_a_scenario_a_command_points_to_its_own_help(name: str) -> None:
    done = run(name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"see `specsim {name} --help`\n")


@pytest.mark.parametrize("words", ["predict x.yaml", "plan x.yaml", "profiles list", "validate"])
def test_a_scenario_is_no_catalog(words: str) -> None:
    scenario = str(Path(__file__).parents[2] / "examples" / "llama-3.1-8b-eagle3-h100.yaml")
    done = run(*words.split(), "--catalog", scenario)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--catalog {scenario}: is a scenario, expected models" in done.stderr


def test_help_has_promises_and_the_simulation_apart_from_the_output() -> None:
    for name in ("simulate", "plan", "advise"):
        told = run(name, "--help").stdout
        output = told[told.index("\nOutput:\n") :]
        for flag in ("--slo", "--goodput", "--requests", "--seed", "--workers", "--calibration"):
            assert f"\n  {flag} " in told
            assert flag not in output
        assert "\nPromises (SLO):\n" in told


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m specsim profiles list --models --json | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[\n"
    assert done.stderr == ""


def test_a_bug_is_one_line_and_exit_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr("specsim.cli.profiles.listing", broken)
    with pytest.raises(SystemExit) as exit_:
        main(["profiles", "list"])
    assert exit_.value.code == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "internal error: ZeroDivisionError: by hand" in said
    assert "--debug" in said


def test_ctrl_c_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("specsim.cli.profiles.listing", stopped)
    with pytest.raises(SystemExit) as exit_:
        main(["profiles", "list"])
    assert exit_.value.code == 130
    assert capsys.readouterr().err.strip() == ""
