"""`specsim simulate` as a user runs it: in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CHAT = str(EXAMPLES / "llama-3.1-8b-eagle3-h100.yaml")
FEW = ("--requests", "200", "--replications", "2")


def specsim(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", *args],
        capture_output=True, text=True, encoding="utf-8", timeout=120, cwd=cwd,
    )  # fmt: skip


def answer(*args: str) -> Any:
    done = specsim("simulate", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*args: str, code: int = 2) -> str:
    done = specsim("simulate", *args)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.startswith("specsim: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_simulated(path: Path) -> None:
    done = specsim("simulate", str(path), *FEW)
    assert (done.returncode, done.stderr) == (0, "")
    for title in ("UNDER LOAD", "LATENCY", "SERVICE", "OVER TIME", "WHAT THE SLOWEST WAIT FOR"):
        assert title in done.stdout


def test_json_is_the_contract() -> None:
    got = answer(CHAT, "--request-rate", "10", "--slo", "ttft_p95_ms=1000", *FEW)
    for arm in ("baseline", "speculative"):
        for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
            assert set(got[arm][metric]) == {"mean", "p50", "p90", "p95", "p99"}
        assert {"output_tok_s", "goodput", "preemptions", "completed"} <= set(got[arm])
    assert {"intervals", "seed"} <= set(got)
    assert got["slo_met"]["baseline"][0]["met"] is True


def test_the_answer_does_not_hang_on_workers_or_the_loop() -> None:
    given = (CHAT, "--request-rate", "10", "--seed", "3", *FEW)
    one = answer(*given)
    assert answer(*given, "--workers", "2") == one
    compiled = answer(*given, "--loop", "compiled")
    assert compiled["speculative"] == one["speculative"]


def test_a_ladder_takes_its_highest_load_and_says_so() -> None:
    got = answer(CHAT, *FEW)
    assert got["load"]["value"] == 256
    assert any(text.startswith("load = 256, the highest") for text in got["defaults"])


def test_promises_in_the_words_of_vllm() -> None:
    got = answer(CHAT, "--request-rate", "10", "--goodput", "ttft:500 tpot:50", *FEW)
    assert got["baseline"]["attainment"] == 1.0
    assert got["baseline"]["goodput"] == pytest.approx(10.0, rel=0.15)


def test_lengths_and_bursts_by_flag() -> None:
    got = answer(
        CHAT, "--request-rate", "10", "--input-len-p95", "1500", "--output-len-p95", "700",
        "--burstiness", "0.2", "--acceptance-spread", "0", *FEW,
    )  # fmt: skip
    workload = got["scenario"]["workload"]
    assert (workload["input_tokens_p95"], workload["burstiness"]) == (1500, 0.2)
    assert got["scenario"]["speculation"]["acceptance"]["spread"] == 0


def test_a_trace_from_a_file(tmp_path: Path) -> None:
    trace = tmp_path / "azure.csv"
    rows = [
        f"2023-11-16 18:15:{46 + i // 10:02}.{i % 10}000000,{300 + i},{50 + i}" for i in range(60)
    ]
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    got = answer(CHAT, "--trace", str(trace), "--replications", "2")
    assert got["load"]["kind"] == "trace"
    assert got["baseline"]["completed"] == 120
    assert got["load"]["value"] == pytest.approx(10.0, rel=0.05)
    faster = answer(CHAT, "--trace", str(trace), "--trace-rate", "20", "--replications", "2")
    assert faster["load"]["value"] == pytest.approx(20.0)


def test_pools_and_where_they_route() -> None:
    got = answer(CHAT, "--request-rate", "60", "--pools", "1:1", "--route-above", "16", *FEW)
    assert got["load"]["pools"] == {"on": 1, "off": 1, "route_above": 16}
    assert got["routed"]["completed"] == got["baseline"]["completed"]
    # Without --route-above: the crossover, in requests of a replica.
    assert answer(CHAT, "--request-rate", "60", "--pools", "1:1", *FEW)["load"]["pools"][
        "route_above"
    ] > 8  # fmt: skip


def test_a_pasted_schedule_is_followed() -> None:
    config = {
        "method": "eagle3", "model": "eagle3-llama3.1-8b", "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 1], [65, 256, 0]],
    }  # fmt: skip
    command = f"vllm serve meta-llama/Llama-3.1-8B-Instruct -sc '{json.dumps(config)}'"
    got = answer(
        "--from-command", command, "--gpu", "h100_sxm", "--acceptance-length", "2.3",
        "--request-rate", "12", *FEW,
    )  # fmt: skip
    # About 15 requests at a time: mostly one draft token, of three at 2.3 tokens per step.
    assert 1.2 < got["speculative"]["tokens_per_step"] < 2.2


def test_overload_is_answered_with_what_would_have_to_change() -> None:
    got = answer(CHAT, "--request-rate", "300", "--requests", "1500", "--replications", "2")
    assert got["baseline"]["overloaded"]
    assert "a replica serves about" in " ".join(got["warnings"])


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    assert "empty.csv" in refused(CHAT, "--trace", str(empty))
    assert "above max_model_len" in refused(CHAT, "--max-model-len", "600")
    assert "nearest" in refused(CHAT, "--slo", "tftt_p95_ms=1000")
    assert "--pools" in refused(CHAT, "--request-rate", "8", "--pools", "2")
    assert "give --request-rate" in refused(CHAT, "--max-concurrency", "8", "--pools", "1:1")
    assert "--route-above without --pools" in refused(CHAT, "--route-above", "4")
    assert "--trace-rate without --trace" in refused(CHAT, "--trace-rate", "4")
    assert "must lie between" in refused(CHAT, "--output-len-p95", "5000")
    assert "nobody answers" in refused(CHAT, "--scheduler", "tcp://127.0.0.1:9", *FEW)
    assert "is also read" in refused(CHAT, "-o", CHAT)
    assert "see `specsim simulate --help`" in refused()


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "azure.csv"
    rows = [f"2023-11-16 18:15:{10 + i}.0,300,50" for i in range(20)]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        "--input-len 100", "--output-len 100", "--input-len-p95 600", "--output-len-p95 300",
        "--burstiness 0.5", "--arrival burst", "--max-concurrency 4", "--request-rate 4",
        "--set load.request_rate=[4]", "--set workload.input_tokens=9",
    ],
)  # fmt: skip
def test_what_a_trace_says_is_not_said_twice(trace: str, words: str) -> None:
    said = refused(CHAT, "--trace", trace, *words.split())
    assert f"{words.partition('=')[0].rpartition(' ')[0]}" in said
    assert "together with --trace" in said
    assert ("--trace-rate RATE" in said) is ("rate" in words or "concurrency" in words)


@pytest.mark.parametrize("rate", ["-1", "0", "nan", "inf", "1e-300", "1e300"])
def test_a_rate_that_no_trace_has_names_its_flag(trace: str, rate: str) -> None:
    assert "--trace-rate" in refused(CHAT, "--trace", trace, "--trace-rate", rate)


def test_a_trace_of_a_request_a_year_needs_a_rate(tmp_path: Path) -> None:
    path = tmp_path / "rare.csv"
    path.write_text("timestamp,input_tokens,output_tokens\n0,9,9\n31000000,9,9\n")
    assert "set its rate with --trace-rate" in refused(CHAT, "--trace", str(path))
    got = answer(CHAT, "--trace", str(path), "--trace-rate", "1", "--replications", "1")
    assert got["load"]["value"] == 1.0


@pytest.mark.parametrize("load", ["nan", "inf", "-inf", "-1", "1e300"])
def test_where_to_route_is_a_number_of_requests(load: str) -> None:
    args = (CHAT, "--request-rate", "9", "--pools", "1:1", "--route-above", load)
    assert "--route-above" in refused(*args)


@pytest.mark.parametrize("pools", ["0:1", "1:0", "100000:1", "200:57", f"{'9' * 5000}:1"])
def test_pools_have_some_replicas_and_not_too_many(pools: str) -> None:
    assert "256 together at most" in refused(CHAT, "--request-rate", "9", "--pools", pools)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--request-rate 1e-11", "request_rate goes from 0.000001"),
        ("--request-rate 1e300", "request_rate goes from 0.000001"),
        ("--request-rate 5 --burstiness 1e-320", "burstiness"),
        ("--request-rate 5 --requests 1e9", "--requests"),
        ("--request-rate 5 --requests 1000000000", "--requests"),
        ("--request-rate 5 --workers 100000", "--workers"),
    ],
)
def test_figures_out_of_bounds(words: str, said: str) -> None:
    assert said in refused(CHAT, *words.split())


def test_the_least_rate_is_served() -> None:
    got = answer(CHAT, "--request-rate", "1e-6", "--requests", "50", "--replications", "1")
    idle = answer(CHAT, "--request-rate", "0.01", "--requests", "50", "--replications", "1")
    for arm in ("baseline", "speculative"):
        for metric in ("tpot_ms", "ttft_ms"):
            assert got[arm][metric]["p99"] == pytest.approx(idle[arm][metric]["p99"], rel=0.1)


def test_what_has_no_effect_is_said() -> None:
    few = ("--requests", "500", "--replications", "1")
    closed = answer(CHAT, "--max-concurrency", "4", "--burstiness", "0.5", *few)
    assert "burstiness has no effect on a closed loop" in " ".join(closed["warnings"])
    arriving = answer(CHAT, "--request-rate", "4", "--burstiness", "0.5", *few)
    assert "burstiness" not in " ".join(arriving["warnings"])


def test_a_percentile_of_few_requests_is_said() -> None:
    got = answer(CHAT, "--request-rate", "4", "--slo", "tpot_p99.99_ms=50", *FEW)
    said = "tpot_p99.99_ms of 400 requests is that of the slowest: noise"
    assert said in " ".join(got["warnings"])


def test_unsorted_timestamps_are_sorted_and_said(tmp_path: Path) -> None:
    trace = tmp_path / "log.csv"
    trace.write_text(
        "timestamp,input_tokens,output_tokens\n" + "\n".join(f"{t},100,20" for t in (3, 1, 2, 0, 5))
    )
    got = answer(CHAT, "--trace", str(trace), "--replications", "1")
    assert "order" in " ".join(got["defaults"] + got["warnings"])


def test_an_slo_that_nothing_meets_is_told_apart_from_one_that_is() -> None:
    done = specsim("simulate", CHAT, "--request-rate", "5", "--slo", "tpot_p99_ms=0.5", *FEW)
    assert done.returncode == 0
    assert done.stdout.count("missed") == 2
