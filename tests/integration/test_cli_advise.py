"""`specsim advise` as a user runs it: the test that went well, and the endpoint that did not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CHAT = str(EXAMPLES / "chat-llama-3-70b-4xh100.yaml")
SUMMARIES = str(EXAMPLES / "summarisation-llama-3-70b-4xh100.yaml")
FEW = ("--requests", "100")


def specsim(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", "advise", *args],
        capture_output=True, text=True, encoding="utf-8", timeout=300, check=False,
    )  # fmt: skip


def answer(*args: str) -> Any:
    done = specsim(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def pair() -> Any:
    return answer(SUMMARIES, CHAT, "--seed", "20260710")


def by_kind(scenario: Any, kind: str) -> Any:
    return next(o for o in scenario["options"] if o["kind"] == kind)


def test_the_summaries_stay_on_and_come_almost_three_times_as_fast(pair: Any) -> None:
    summaries = pair["scenarios"][0]
    on = by_kind(summaries, "on")
    assert summaries["action"]["decision"] == "on"
    assert 2.5 < 1 / on["to_off"]["e2e"]["mean"] < 3.2
    assert summaries["peak"]["side"] == "below"
    assert summaries["acceptance"]["temperature"] == 0


def test_the_chat_gains_on_average_and_loses_at_p99(pair: Any) -> None:
    chat = pair["scenarios"][1]
    on = by_kind(chat, "on")
    assert on["to_off"]["tpot"]["mean"] < 0.95
    assert on["to_off"]["tpot"]["p99"] > 1.05
    assert on["to_off"]["ttft"]["p99"] > 1.05
    assert not on["meets"]
    assert chat["action"]["decision"] != "on"
    # Why: the mean lies below the crossover, the peak above it.
    assert chat["peak"]["mean"] < chat["peak"]["crossover"]["load"] < chat["peak"]["concurrency"]
    assert "requests decode beside them" in chat["action"]["tail"]


def test_what_is_advised_keeps_the_tail(pair: Any) -> None:
    chat = pair["scenarios"][1]
    taken = by_kind(chat, chat["action"]["decision"])
    assert taken["to_off"]["tpot"]["p99"] < 1.05
    assert chat["action"]["speculative_config"]["method"] == "eagle"
    assert "summarisation" in pair["together"]
    assert "chat" in pair["together"]


def test_json_is_the_contract(pair: Any) -> None:
    assert set(pair) == {"scenarios", "together", "slo", "seed"}
    for scenario in pair["scenarios"]:
        assert {"name", "peak", "acceptance", "action", "options", "lints"} <= set(scenario)
        assert {"decision", "schedule", "reason"} <= set(scenario["action"])
        for option in scenario["options"]:
            assert {"name", "k", "meets"} <= set(option)
            for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
                assert set(option[metric]) == {"mean", "p50", "p90", "p95", "p99"}


def test_the_report_answers_in_order() -> None:
    done = specsim(SUMMARIES, CHAT, *FEW)
    assert (done.returncode, done.stderr) == (0, "")
    places = [done.stdout.index(word) for word in ("TOGETHER", "= summarisation", "= chat")
              if word in done.stdout]  # fmt: skip
    assert places == sorted(places)
    for title in ("DO  ", "1 PEAK", "2 DETERMINISM", "3 ACCEPTANCE", "OPTIONS"):
        assert done.stdout.count(title) == 2
    assert "num_speculative_tokens_per_batch_size" in done.stdout


def test_the_answer_does_not_hang_on_workers() -> None:
    one = answer(CHAT, *FEW, "--seed", "3")
    assert answer(CHAT, *FEW, "--seed", "3", "--workers", "2") == one
    assert one["together"] == ""


def test_flags_hold_for_all_files() -> None:
    got = answer(SUMMARIES, CHAT, *FEW, "--gpu", "h200_sxm", "--set", "load.request_rate=[2]")
    for scenario in got["scenarios"]:
        assert scenario["scenario"]["hardware"]["accelerator"] == "h200_sxm"
        assert scenario["load"]["value"] == 2


def test_an_slo_is_held(tmp_path: Path) -> None:
    out = tmp_path / "advice.json"
    done = specsim(CHAT, *FEW, "--slo", "tpot_p99_ms=1", "--json", "-o", str(out))
    assert (done.returncode, done.stdout) == (0, "")
    chat = json.loads(out.read_text(encoding="utf-8"))["scenarios"][0]
    assert chat["action"]["decision"] == "off"
    assert chat["options"][0]["slo"][0]["target"] == "tpot_p99_ms"
    assert not any(o["meets"] for o in chat["options"])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "Missing argument"),
        (("nowhere.yaml",), "nowhere.yaml"),
        ((CHAT, "--set", "speculation.method=none"), "does not speculate"),
        ((CHAT, "--slo", "tpot=1"), "statistic"),
        ((CHAT, "-o", CHAT), "another name"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(args: tuple[str, ...], said: str) -> None:
    done = specsim(*args)
    assert done.returncode == 2
    assert done.stderr.startswith("specsim: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_an_overload_opens_the_answer() -> None:
    done = specsim(CHAT, "--set", "load.request_rate=[400]", "--requests", "50")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("DO  ")]
    assert line.startswith("DO  SIZE THE FLEET FIRST: overloaded: 400 requests/s arrive")
    assert "--speculative-config" not in done.stdout
    assert "TAKE" not in done.stdout
    assert "LEAVE IT ON" not in done.stdout


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    text = Path(CHAT).read_text(encoding="utf-8")
    for name in ("day", "night"):
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    pair = (str(tmp_path / "day.yaml"), str(tmp_path / "night.yaml"))
    got = answer(*pair, "--requests", "30")
    assert [s["name"] for s in got["scenarios"]] == ["chat (day)", "chat (night)"]
    same = answer(pair[0], pair[0], "--requests", "30")
    assert [s["name"] for s in same["scenarios"]] == ["chat (day) #1", "chat (day) #2"]


def test_few_requests_and_flags_without_effect_are_linted() -> None:
    got = answer(
        CHAT, "--requests", "30", "--set", "load.request_rate=null", "--set",
        "load.concurrency=[4]", "--set", "workload.burstiness=0.5",
    )  # fmt: skip
    lints = " ".join(got["scenarios"][0]["lints"])
    assert "p99 of 90 requests is that of the slowest: noise; give --requests 334" in lints
    assert "burstiness has no effect on a closed loop" in lints


def test_an_overloaded_peak_is_all_that_run_at_a_time() -> None:
    done = specsim(
        str(EXAMPLES / "llama-3.1-8b-eagle3-h100.yaml"), "--set", "load.concurrency=null",
        "--set", "load.request_rate=[100000]", "--requests", "100", "--json",
    )  # fmt: skip
    peak = json.loads(done.stdout)["scenarios"][0]["peak"]
    assert peak["concurrency"] == 256
    assert peak["basis"].startswith("overloaded: a replica serves")
