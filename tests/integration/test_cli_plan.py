"""`specsim plan` as a user runs it: in a process of its own, on the simulator."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = str(EXAMPLES / "llama-3.1-8b-eagle3-h100.yaml")
QUICK = ("--requests", "300")
PROMISE = ("--slo", "ttft_p95_ms=500", "--slo", "tpot_p95_ms=30")


def specsim(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", "plan", *args],
        capture_output=True, text=True, encoding="utf-8", timeout=120,
    )  # fmt: skip


def answer(*args: str, code: int = 0) -> Any:
    done = specsim(*args, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_a_fleet_follows_from_the_load_at_the_slo() -> None:
    got = answer(EXAMPLE, "--avg-qps", "50", *PROMISE, *QUICK)
    assert [c["arm"] for c in got["candidates"]].count("baseline") == 1
    assert len(got["candidates"]) == 2
    for c in got["candidates"]:
        assert c["rejected_because"] is None
        assert c["replicas"] == math.ceil(125 / (c["load_at_slo"] * 0.7)) + 1
        assert c["gpus"] == c["replicas"]
        assert c["usd_per_month"] == pytest.approx(c["gpus"] * 3.43 * 729.6, rel=1e-5)
        assert c["usd_per_mtok_average"] == pytest.approx(
            c["usd_per_hour"] / (50 * 256 * 3600) * 1e6, rel=1e-5
        )
        assert c["one_down_ok"]
        assert {r["target"] for r in c["reached"]} == {"ttft_p95_ms", "tpot_p95_ms"}
        assert all(r["met"] for r in c["reached"])
        assert c["load_at_slo"] < c["stable_rate"]
        assert c["price"]["as_of"] == "2026-07-10"
    costs = [c["usd_per_month"] for c in got["candidates"]]
    assert costs == sorted(costs)
    assert got["best"]["candidate"] == 0
    assert got["traffic"]["peak_rate"] == 125
    assert any("peak_to_avg = 2.5" in text for text in got["defaults"])


def test_the_report_says_what_to_take_first() -> None:
    done = specsim(EXAMPLE, "--avg-qps", "50", *PROMISE, *QUICK, "--vary", "k=1,3")
    assert (done.returncode, done.stderr) == (0, "")
    titles = ("PLAN", "DEGRADED", "CANDIDATES", "ASSUMED FOR YOU", "BASED ON")
    places = [done.stdout.index(f"\n{title}") for title in titles]
    assert places == sorted(places)
    assert "REJECTED" not in done.stdout
    assert "$3.43 per GPU and hour, 2026-07-10" in done.stdout


def test_structure_is_varied_and_what_does_not_fit_is_named() -> None:
    got = answer(
        str(EXAMPLES / "llama-3.3-70b-4xh100.yaml"), "--peak-qps", "10", *QUICK,
        "--slo", "tpot_p95_ms=60", "--vary", "tp=1,4", "--vary", "gpu=h100_sxm",
    )  # fmt: skip
    rejected = [c for c in got["candidates"] if c["rejected_because"]]
    assert {c["varied"]["hardware.tensor_parallel_size"] for c in rejected} == {1}
    assert all("does not fit" in c["rejected_because"] for c in rejected)
    assert all(c["replicas"] is c["load_at_slo"] is None for c in rejected)
    assert "tp4" in got["best"]["deployment"]


def test_several_scenarios_compete() -> None:
    other = str(EXAMPLES / "llama-3.1-8b-ngram-code-edit.yaml")
    got = answer(EXAMPLE, "--also", other, "--avg-qps", "5", *PROMISE, *QUICK)
    assert {c["deployment"].split()[4] for c in got["candidates"] if c["arm"] == "speculative"} == {
        "eagle3", "ngram",
    }  # fmt: skip


def test_what_nothing_meets_exits_with_3() -> None:
    args = (EXAMPLE, "--avg-qps", "5", "--slo", "tpot_p99_ms=1", *QUICK)
    got = answer(*args, code=3)
    assert got["best"] is None
    assert "tpot_p99_ms" in got["verdict"]
    done = specsim(*args)
    assert done.returncode == 3
    assert "NO PLAN" in done.stdout
    assert "REJECTED" in done.stdout


def test_what_could_not_be_tested_claims_no_tests() -> None:
    done = specsim(
        str(EXAMPLES / "llama-3.3-70b-4xh100.yaml"), "--avg-qps", "5", "-tp", "1", *PROMISE
    )
    assert done.returncode == 3
    assert "does not fit" in done.stdout
    assert "load tests" not in done.stdout


def test_the_seed_and_not_the_workers_make_the_answer() -> None:
    args = (EXAMPLE, "--avg-qps", "50", *PROMISE, *QUICK, "--input-len-p95", "1500")
    one = answer(*args, "--seed", "7")
    assert answer(*args, "--seed", "7", "--workers", "2") == one
    assert answer(*args, "--seed", "8") != one


def test_prices_come_from_the_flag_the_list_or_the_profile(tmp_path: Path) -> None:
    listed = tmp_path / "prices.yaml"
    listed.write_text(
        "as_of: 2026-11-01\nsource: a quote\nprices:\n"
        "  h100_sxm: {usd_per_gpu_hour: 2.0, low: 2.0, high: 2.0}\n"
    )
    args = (EXAMPLE, "--avg-qps", "5", *PROMISE, *QUICK)
    price = answer(*args, "--prices", str(listed))["candidates"][0]["price"]
    assert (price["usd_per_gpu_hour"], price["as_of"]) == (2.0, "2026-11-01")
    flag = answer(*args, "--prices", str(listed), "--price", "h100=1.5")
    assert flag["candidates"][0]["price"]["usd_per_gpu_hour"] == 1.5


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    listed = tmp_path / "prices.yaml"
    listed.write_text(
        "as_of: 2026-01-01\nsource: q\nprices: {l4: {usd_per_gpu_hour: 1, low: 1, high: 1}}\n"
    )
    args = (EXAMPLE, "--avg-qps", "5", *PROMISE, *QUICK)
    told = " ".join(
        answer(
            *args, "--also", EXAMPLE, "--price", "h200=3", "--prices", str(listed),
            "--gpu", "h200_sxm", "--vary", "gpu=h100_sxm",
        )["warnings"]
    )  # fmt: skip
    assert f"--also {EXAMPLE}: is a deployment that is there already" in told
    assert "--price h200_sxm=3 has no effect: candidates run on h100_sxm" in told
    assert f"--prices {listed} has no effect: it has no price of h100_sxm" in told
    assert "--gpu has no effect beside --vary hardware.accelerator" in told
    # What a figure was measured at has one, and a device has to be given where there is no file.
    plain = answer(*args, "--price", "h100=3", "--spec-tokens", "3", "--vary", "k=1,3")
    assert "no effect" not in " ".join(plain["warnings"])
    flags = ("--model", "llama-3.1-8b", "--gpu", "h100_sxm", "--vary", "gpu=h100_sxm")
    plain = answer(*flags, "--avg-qps", "5", *PROMISE, *QUICK)
    assert "no effect" not in " ".join(plain["warnings"])


def test_one_price_for_all_leaves_a_list_nothing_to_say(tmp_path: Path) -> None:
    listed = tmp_path / "prices.yaml"
    listed.write_text(
        "as_of: 2026-01-01\nsource: q\nprices: {l4: {usd_per_gpu_hour: 1, low: 1, high: 1}}\n"
    )
    done = specsim(EXAMPLE, "--avg-qps", "5", "--price", "2", "--prices", str(listed))
    assert done.returncode == 2
    assert "--price 2 of every device together with --prices" in done.stderr


def test_an_answer_goes_to_a_file(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    done = specsim(EXAMPLE, "--avg-qps", "5", *PROMISE, *QUICK, "--json", "-o", str(out))
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads(out.read_text())["best"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "give --avg-qps, --requests-per-month or --peak-qps"),
        (("--avg-qps", "5", "--requests-per-month", "9"), "give one of them"),
        (("--avg-qps", "5", "--peak-qps", "3"), "--peak-qps (3) is below the average"),
        (("--avg-qps", "-5"), "--avg-qps -5"),
        (("--avg-qps", "5", "--peak-factor", "0.5"), "--peak-factor 0.5"),
        (("--avg-qps", "5", "--price", "h1000=3"), "unknown accelerator 'h1000'"),
        (("--avg-qps", "5", "--price", "free"), "expected USD per GPU and hour"),
        (("--avg-qps", "5", "--price", "2", "--price", "3"), "each GPU one price"),
        (("--avg-qps", "5", "--slo", "ttft=3"), "ttft_p95_ms"),
        (("--avg-qps", "5", "--arrival", "burst"), "--arrival steady"),
        (("--avg-qps", "5", "--also", "nowhere.yaml"), "nowhere.yaml"),
        (("--avg-qps", "5", "--also", "x.yaml", "-o", "./x.yaml"), "give another name"),
        (("--avg-qps", "5", "--vary", "input-len=100,200"), "varies the deployment"),
        (("--avg-qps", "1e-300"), "--avg-qps 1e-300"),
        (("--peak-qps", "1e300"), "--peak-qps 1e+300"),
        (("--avg-qps", "5", "--target-utilization", "1e-300"), "--target-utilization 1e-300"),
        (("--avg-qps", "5", "--hours-per-day", "1e-300"), "--hours-per-day 1e-300"),
        (("--avg-qps", "5", "--gpus-per-server", "1000000"), "--gpus-per-server"),
        (("--avg-qps", "5", "--price", "1e-300"), "expected USD per GPU and hour"),
        (("--avg-qps", "5", "--request-rate", "5"), "--request-rate: a plan sizes for its traffic"),
        (("--avg-qps", "5", "--max-concurrency", "5"), "--max-concurrency: a plan sizes for"),
        (("--avg-qps", "5", "--set", "load.request_rate=[5]"), "--set load.request_rate: a plan"),
        (
            ("--avg-qps", "5", "--acceptance-rate", "0.5", "--vary", "acceptance-rate=0.4"),
            "--acceptance-rate together with --vary",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(args: tuple[str, ...], said: str) -> None:
    done = specsim(EXAMPLE, *args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
