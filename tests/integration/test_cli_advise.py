"""`specsim advise`: the story of the summarisation test and the chat endpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PAIR = [str(EXAMPLES / f"{name}-llama-3-70b-4xh100.yaml") for name in ("summarisation", "chat")]


def specsim(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", "advise", *args],
        capture_output=True, text=True, encoding="utf-8", timeout=180,
    )  # fmt: skip


@pytest.fixture(scope="module")
def told() -> Any:
    done = specsim(*PAIR, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def option(scenario: Any, name: str) -> Any:
    return next(o for o in scenario["options"] if o["name"] == name)


def test_the_summarisation_test_runs_about_three_times_faster(told: Any) -> None:
    """Published: almost three times faster on summaries at low load."""
    summarisation = told["scenarios"][0]
    on = option(summarisation, "on, k = 4")
    assert 2.5 < 1 / on["to_off"]["tpot"]["mean"] < 3.5
    assert on["to_off"]["tpot"]["p99"] < 1
    assert summarisation["peak"]["side"] == "below"
    assert summarisation["action"]["decision"] == "on"
    assert summarisation["acceptance"]["margin"] > 0.5


def test_on_chat_the_mean_is_better_and_the_p99_worse_and_the_mechanism_is_named(told: Any) -> None:
    chat = told["scenarios"][1]
    on = option(chat, "on, k = 4")
    assert on["to_off"]["tpot"]["mean"] < 0.95
    assert on["to_off"]["tpot"]["p99"] > 1.05
    assert on["to_off"]["ttft"]["p99"] > 1.05
    assert on["meets"] is False
    assert "steps take longer" in chat["action"]["tail"]
    assert "decode beside them" in chat["action"]["tail"]
    assert chat["peak"]["side"] == "above"
    assert chat["peak"]["concurrency"] > chat["peak"]["crossover"]["high"]
    assert chat["acceptance"]["margin"] < 0
    assert chat["action"]["decision"] != "on"


def test_every_option_shows_its_percentiles(told: Any) -> None:
    for scenario in told["scenarios"]:
        assert scenario["options"][0]["name"] == "off"
        for one in scenario["options"]:
            for metric in ("ttft_ms", "tpot_ms", "itl_ms"):
                assert one[metric]["mean"] <= one[metric]["p99"]
    assert {"routed by load", "k by batch"} <= {o["name"] for o in told["scenarios"][1]["options"]}


def test_the_config_can_be_pasted(told: Any) -> None:
    config = told["scenarios"][0]["action"]["speculative_config"]
    assert config["num_speculative_tokens"] == 4
    assert told["together"]


def test_the_report_answers_in_the_first_lines() -> None:
    done = specsim(*PAIR, "--requests", "300")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("TOGETHER")
    for title in ("1 PEAK", "2 DETERMINISM", "3 ACCEPTANCE", "OPTIONS"):
        assert done.stdout.count(title) == 2


def test_what_is_wrong_is_said_in_a_line() -> None:
    for args, said in (
        (["no.yaml"], "no.yaml"),
        ([PAIR[0], "--set", "speculation.method=none"], ""),
        ([PAIR[0], "--slo", "tpot=3"], "--slo"),
        ([], "SCENARIO"),
    ):
        done = specsim(*args)
        assert done.returncode == 2, args
        assert done.stderr.count("\n") == 1
        assert said in done.stderr
