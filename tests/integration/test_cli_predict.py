"""`specsim predict`, `crossover` and `kv` as a user runs them: in a process of their own."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = str(EXAMPLES / "llama-3.3-70b-4xh100.yaml")
CONFIG = {"method": "eagle3", "num_speculative_tokens": 3, "model": "eagle3-llama3.1-8b"}
SERVE = (
    "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 128 --port 8000 -sc "
    + shlex.quote(json.dumps(CONFIG))
)
FLAGS = "--model llama-3.1-8b --gpu h100_sxm --spec-method eagle3 --spec-tokens 3".split()


def specsim(
    *args: str, stdin: str = "", env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", *args],
        input=stdin, capture_output=True, text=True, encoding="utf-8", env=env, timeout=60, cwd=cwd,
    )  # fmt: skip


def answer(*args: str, stdin: str = "") -> Any:
    done = specsim(*args, "--json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_predicted(path: Path) -> None:
    done = specsim("predict", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    for title in ("VERDICT", "ACCEPTANCE", "BY LOAD", "CROSSOVER", "MEMORY", "BASED ON"):
        assert title in done.stdout


def test_json_has_the_keys_of_the_contract() -> None:
    got = answer("predict", EXAMPLE)
    assert set(got) >= {
        "scenario", "acceptance", "kv", "points", "crossover", "break_even", "best_k",
        "acceptance_curve", "transition", "verdict", "warnings", "provenance",
    }  # fmt: skip
    assert set(got["acceptance"]) >= {
        "acceptance_length", "acceptance_rate", "draft_acceptance_rate", "per_position",
    }  # fmt: skip
    assert set(got["kv"]) >= {"baseline", "speculative", "lost_tokens", "lost_fraction"}
    assert set(got["kv"]["baseline"]) >= {"weights_gib", "kv_tokens", "max_concurrency"}
    point = got["points"][0]
    assert point["concurrency"] == 1
    assert set(point) >= {"speedup", "speedup_low", "speedup_high"}
    assert set(point["baseline"]) >= {
        "batch", "limited_by", "step_ms", "tpot_ms", "ttft_ms", "output_tok_s", "usd_per_mtok",
        "bound",
    }  # fmt: skip
    assert set(point["speculative"]) >= {
        "batch", "limited_by", "step_ms", "draft_ms", "verify_ms", "host_ms", "tokens_per_step",
        "tpot_ms", "itl_ms", "ttft_ms", "output_tok_s", "usd_per_mtok", "bound",
    }  # fmt: skip
    assert set(got["crossover"]) >= {"state", "load", "batch", "low", "high", "wins"}
    assert set(got["verdict"]) == {"decision", "reason"}
    # the scenario comes back with the defaults that the file leaves to the engine
    assert got["scenario"]["engine"]["max_num_seqs"] == 1024


def test_the_three_ways_say_the_same() -> None:
    common = ("--acceptance-length", "2.4", "--max-concurrency", "1,8")
    flags = answer("predict", *FLAGS, "--max-num-seqs", "128", *common)
    pasted = answer("predict", "--from-command", SERVE, "--gpu", "h100_sxm", *common)
    piped = answer("predict", "--from-command", "-", "--gpu", "h100_sxm", *common, stdin=SERVE)
    assert flags["points"] == pasted["points"] == piped["points"]
    assert any("--port" in warning for warning in pasted["warnings"])


def test_flags_override_a_file() -> None:
    got = answer(
        "predict", EXAMPLE, "--gpu", "h200_sxm", "-tp", "8", "--spec-tokens", "2",
        "--draft-acceptance-rate", "0.5", "--request-rate", "0.5,1", "--engine", "vllm@0.29",
        "--set", "workload.output_tokens=300", "--kv-cache-dtype", "fp8_e4m3", "--dtype", "fp8",
    )["scenario"]  # fmt: skip
    assert got["hardware"]["accelerator"] == "h200_sxm"
    assert got["hardware"]["tensor_parallel_size"] == 8
    assert got["speculation"]["num_speculative_tokens"] == 2
    assert got["speculation"]["acceptance"] == {"draft_acceptance_rate": 0.5}
    assert got["load"] == {"request_rate": [0.5, 1.0]}
    assert got["engine"]["version"] == "0.29"
    assert got["workload"]["output_tokens"] == 300
    assert got["target"]["kv_dtype"] == "fp8"
    assert got["target"]["weight_dtype"] == "fp8"


def test_flags_override_a_command() -> None:
    got = answer(
        "predict", "--from-command", SERVE, "--gpu", "h100_sxm", "--max-num-seqs", "64",
        "--spec-tokens", "2", "--acceptance-rate", "0.7",
    )["scenario"]  # fmt: skip
    assert got["engine"]["max_num_seqs"] == 64
    assert got["speculation"]["num_speculative_tokens"] == 2
    assert got["speculation"]["drafter"] == "eagle3-llama3.1-8b"


def test_another_method_brings_its_own_drafter() -> None:
    got = answer("predict", EXAMPLE, "--spec-method", "ngram")["scenario"]["speculation"]
    assert got["method"] == "ngram"
    assert "drafter" not in got
    config = '{"method": "ngram", "num_speculative_tokens": 5, "draft_tensor_parallel_size": 4}'
    got = answer("predict", EXAMPLE, "-sc", config)["scenario"]["speculation"]
    assert (got["method"], got["num_speculative_tokens"]) == ("ngram", 5)


def test_words_of_vllm_mean_what_they_mean_in_a_command() -> None:
    got = answer("predict", EXAMPLE, "--quantization", "awq_marlin")["scenario"]
    assert got["target"]["weight_dtype"] == "int4"


ERRORS = [
    ([], 2, "nothing to predict"),
    (["nowhere.yaml"], 2, "no such file"),
    (["--model", "llama-3.1-8b"], 2, "profiles list"),
    (["--model", "llama-3.1-8b", "--gpu", "h10_sxm"], 2, "h100_sxm"),
    (["--model", "lama-3.1-8b", "--gpu", "h100_sxm"], 2, "llama-3.1-8b"),
    (["--model", "x", "--from-command", "vllm serve x"], 2, "--from-command together with --model"),
    ([EXAMPLE, "--from-command", "vllm serve x"], 2, "together with a scenario file"),
    (["--from-command", "ls -l", "--gpu", "h100_sxm"], 2, "vllm serve MODEL"),
    ([EXAMPLE, "--acceptance-rate", "0.7", "--acceptance-length", "2"], 2, "give one of them"),
    ([EXAMPLE, "--max-concurrency", "1", "--request-rate", "1"], 2, "give one of them"),
    ([EXAMPLE, "--acceptance-rate", "1.2"], 2, "acceptance.rate"),
    ([EXAMPLE, "--acceptance-rate", "nan"], 2, "acceptance.rate"),
    ([EXAMPLE, "--spec-tokens", "0"], 2, "num_speculative_tokens"),
    ([EXAMPLE, "--max-concurrency", "1,two"], 2, "'1,two' is not a number or a list"),
    ([EXAMPLE, "--set", "engine.host_msec=1"], 2, "host_ms"),
    ([EXAMPLE, "--set", "engine.host_ms"], 2, "KEY=VALUE"),
    ([EXAMPLE, "--engine", "vllm@"], 2, "vllm@0.33"),
    ([EXAMPLE, "--draft-tensor-parallel-size", "2"], 2, "1 or the target's"),
    ([EXAMPLE, "-sc", "{broken"], 2, "JSON"),
    ([EXAMPLE, "--catalog", "no/such/folder"], 2, "does not exist"),
    (
        ["--model", "llama-3.1-8b", "--gpu", "h100_sxm", "--acceptance-rate", "0.7"],
        2,
        "spec-method",
    ),
    ([EXAMPLE, "--modl", "x"], 2, "--model"),
    ([EXAMPLE, "-o", "no/such/folder/out.txt"], 2, "cannot be written"),
    (["--model", "llama-3.1-405b", "--gpu", "h100_sxm"], 3, "--tensor-parallel-size 16"),
]


@pytest.mark.parametrize(("args", "code", "said"), ERRORS, ids=lambda value: str(value)[-40:])
def test_an_error_is_one_line_with_its_exit_code(args: list[str], code: int, said: str) -> None:
    done = specsim("predict", *args)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("specsim: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr


def test_debug_shows_the_traceback() -> None:
    done = specsim("--debug", "predict", "nowhere.yaml")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_a_saved_scenario_predicts_the_same(tmp_path: Path) -> None:
    saved = tmp_path / "saved.yaml"
    first = answer("predict", *FLAGS, "--acceptance-rate", "0.7", "--save-scenario", str(saved))
    assert yaml.safe_load(saved.read_text())["speculation"]["num_speculative_tokens"] == 3
    assert answer("predict", str(saved))["points"] == first["points"]
    assert [path.name for path in tmp_path.iterdir()] == ["saved.yaml"]


def test_output_goes_to_a_file(tmp_path: Path) -> None:
    page, data = tmp_path / "report.txt", tmp_path / "answer.json"
    assert specsim("predict", EXAMPLE, "-o", str(page)).stdout == ""
    assert "VERDICT" in page.read_text(encoding="utf-8")
    assert specsim("predict", EXAMPLE, "--json", "-o", str(data)).stdout == ""
    assert json.loads(data.read_text(encoding="utf-8"))["verdict"]["decision"] == "schedule"


def test_a_stated_acceptance_is_of_the_asked_temperature() -> None:
    warnings = answer("predict", EXAMPLE, "--temperature", "0.8")["warnings"]
    assert any("taken as measured at temperature 0.8" in text for text in warnings)
    profile = ("--acceptance-profile", "eagle/sharegpt", "--temperature", "0.8")
    warnings = answer("predict", EXAMPLE, *profile)["warnings"]
    assert not any("taken as measured at temperature" in text for text in warnings)


def test_a_private_model_is_told_what_to_do() -> None:
    done = specsim("predict", "--model", "acme-8b", "--gpu", "h100_sxm")
    assert done.returncode == 2
    assert "give its config.json" in done.stderr


def test_brief_is_the_verdict_and_the_table() -> None:
    out = specsim("predict", EXAMPLE, "--brief").stdout
    assert "VERDICT" in out
    assert "BY LOAD" in out
    assert "CROSSOVER" not in out


def test_a_terminal_without_unicode_gets_ascii() -> None:
    done = specsim("predict", EXAMPLE, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "?" not in done.stdout


def test_no_speculation_is_an_answer_too() -> None:
    got = answer("predict", "--model", "llama-3.1-8b", "--gpu", "h100_sxm")
    assert got["acceptance"] is None
    assert got["crossover"] is None
    assert specsim("predict", "--model", "llama-3.1-8b", "--gpu", "h100_sxm").returncode == 0


def test_overload_is_said_not_drawn() -> None:
    done = specsim("predict", EXAMPLE, "--request-rate", "0.5,4000")
    assert done.returncode == 0
    assert "unstable at this rate" in done.stdout
    assert "inf" not in done.stdout
    assert "nan" not in done.stdout


def test_crossover_is_the_one_of_predict() -> None:
    assert answer("crossover", EXAMPLE) == answer("predict", EXAMPLE)["crossover"]
    assert "It stops paying at about" in " ".join(specsim("crossover", EXAMPLE).stdout.split())
    done = specsim("crossover", "--model", "llama-3.1-8b", "--gpu", "h100_sxm")
    assert done.returncode == 2
    assert "--spec-method" in done.stderr


def test_kv_is_the_one_of_predict() -> None:
    assert answer("kv", EXAMPLE) == answer("predict", EXAMPLE)["kv"]
    out = " ".join(specsim("kv", EXAMPLE).stdout.split())
    assert "GB nameplate" in out
    assert "requests of this workload fit" in out


def test_kv_needs_no_acceptance_and_one_arm_is_one_row() -> None:
    out = specsim("kv", *FLAGS).stdout
    assert [line[:5] for line in out.splitlines()].count("  on ") == 2  # its bar, and its figures
    out = specsim("kv", "--model", "llama-3.1-8b", "--gpu", "h100_sxm").stdout
    assert "  off " in out
    assert "  on " not in out


def test_a_tree_is_drawn_over_the_acceptance_it_can_reach() -> None:
    tree = ["--engine", "sglang", "--set", "speculation.tree={topk: 4, num_draft_tokens: 16}"]
    done = specsim("predict", *FLAGS, "--acceptance-rate", "0.7", *tree)
    assert (done.returncode, done.stderr) == (0, "")
    assert "WHAT ACCEPTANCE IS WORTH" in done.stdout


@pytest.mark.parametrize(
    ("flags", "both"),
    [
        (["-sc", '{"method": "ngram", "num_speculative_tokens": 5}'],
         "--speculative-config together with --spec-method"),
        (["--set", "target.model=qwen3-8b"], "--set target.model together with --model"),
        (["--max-concurrency", "4", "--set", "load.concurrency=[1, 8]"],
         "--set load.concurrency together with --max-concurrency"),
    ],
)  # fmt: skip
def test_two_values_for_one_thing_are_refused(flags: list[str], both: str) -> None:
    done = specsim("predict", *FLAGS, "--acceptance-rate", "0.7", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert both in done.stderr
    assert done.stderr.count("\n") == 1


def test_acceptance_of_another_k_is_not_as_given() -> None:
    done = specsim("predict", EXAMPLE, "--spec-tokens", "2", "--brief")
    assert "as given at k = 4, carried to 2" in done.stdout


def test_sources_of_an_own_device_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "my_gpu.yaml"
    made = specsim(
        "profiles", "new", "my_gpu", "--memory-gb", "96", "--bandwidth-gb-per-s", "1792",
        "--bf16-tflops", "250", "--architecture", "blackwell", "--price", "1.9",
        "--price-as-of", "2026-03-01", "-o", str(path),
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    price = yaml.safe_load(path.read_text())["price"]
    assert price == [
        {"usd_per_gpu_hour": 1.9, "source": "given by the user", "as_of": "2026-03-01"}
    ]
    done = specsim("predict", *FLAGS, "--acceptance-rate", "0.7", "--gpu", "my_gpu",
                   "--catalog", "my_gpu.yaml", cwd=tmp_path)  # fmt: skip
    assert "specsim profiles show my_gpu --catalog my_gpu.yaml" in " ".join(done.stdout.split())


def test_a_validation_of_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_bytes(b"\xff\xfe\x00")
    done = specsim("validate", "--cases", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "could be run (1 failed)" in done.stderr
    assert done.stderr.count("\n") == 1
