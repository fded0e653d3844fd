"""`specsim profiles`: list, show, check and new."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from specsim.cli import main

ROOT = Path(__file__).parents[2]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main(["profiles", *args])
    out = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, out.out, out.err


def parsed(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    code, out, err = run(capsys, *args, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--hardware", "h100_sxm"),
        ("--models", "llama-3.1-8b"),
        ("--drafters", "eagle3-llama3.1-8b"),
        ("--acceptance", "eagle3/sharegpt"),
        ("--engines", "vllm"),
    ],
)
def test_lists_name_what_ships(capsys: pytest.CaptureFixture[str], flag: str, name: str) -> None:
    rows = {row["id"]: row for row in parsed(capsys, "list", flag)}
    assert rows[name]["origin"] == "shipped"
    code, out, _ = run(capsys, "list", flag)
    assert code == 0
    assert name in out


def test_a_word_finds_ids_and_aliases(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = parsed(capsys, "list", "--models", "meta-llama/Llama-3.3")
    assert row["id"] == "llama-3.1-70b"
    _, out, _ = run(capsys, "list", "--models", "llama-3.3")
    assert "llama-3.3-70b +" in out
    drafters = {row["id"]: row for row in parsed(capsys, "list", "--drafters", "llama-3.1-8b")}
    assert drafters["eagle3-llama3.1-8b"]["target"] == "llama-3.1-8b"
    code, _, err = run(capsys, "list", "--models", "lamma-3.3-70b")
    assert code == 2
    assert "llama-3.3-70b" in err


def test_experts_have_a_dtype_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = parsed(capsys, "list", "--models", "gpt-oss-20b")
    assert (row["weight_dtype"], row["expert_dtype"]) == ("bf16", "mxfp4")
    assert "bf16, mxfp4 experts" in run(capsys, "list", "--models", "gpt-oss-20b")[1]


def test_acceptance_is_listed_with_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["id"]: row for row in parsed(capsys, "list", "--acceptance")}
    # arXiv 2601.11580: EAGLE-3 on Llama-3.1-70B with ShareGPT, 2.29 at k = 3
    assert rows["eagle3/sharegpt"]["target"] == "llama-3.1-70b"
    assert rows["eagle3/sharegpt"]["acceptance_length"] == [2.29]
    assert rows["eagle3/sharegpt"]["num_speculative_tokens"] == [3]
    lines = run(capsys, "list", "--acceptance")[1].splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["eagle3/sharegpt"])
    assert lines[at].split() == ["eagle3/sharegpt", "ShareGPT", "0", "3", "2.29"]
    assert lines[at - 1] == "  eagle3 on llama-3.1-70b"


def test_hardware_is_listed_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["id"]: row for row in parsed(capsys, "list")}
    assert rows["h100_sxm"]["memory_gb"] == 80
    assert rows["h100_sxm"]["confidence"] == "high"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("h100", "hardware"),
        ("meta-llama/Llama-3.1-8B-Instruct", "model"),
        ("eagle-llama3-70b", "drafter"),
        ("eagle3/sharegpt", "acceptance"),
        ("vllm@0.33", "engine"),
    ],
)
def test_show_finds_every_kind(capsys: pytest.CaptureFixture[str], name: str, kind: str) -> None:
    got = parsed(capsys, "show", name)
    assert got["kind"] == kind
    assert "source" in json.dumps(got["profile"])


def test_show_prints_basis_interval_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "show", "h100_sxm")
    assert "bf16  [measured]" in out
    assert re.search(r"bandwidth_frac: 0\.\d+ \(0\.\d+–", out)
    assert "usd_per_gpu_hour: " in out


def test_show_of_a_wrong_name_lists_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "show", "eagle-lama3-70b")
    assert code == 2
    assert "eagle-llama3-70b" in err


def test_shipped_profiles_and_examples_pass_their_check(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folders = [
        *sorted(path for path in (ROOT / "hardware_profiles").iterdir() if path.is_dir()),
        ROOT / "examples",
    ]
    rows = parsed(capsys, "check", *map(str, folders))
    assert {row["path"]: row["problems"] for row in rows if row["problems"]} == {}
    assert len(rows) > 40


def test_a_new_device_is_usable_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "my_gpu.yaml"
    figures = "--memory-gb 96 --bandwidth-gb-per-s 1800 --bf16-tflops 250".split()
    code, out, _ = run(
        capsys, "new", "my_gpu", *figures, "--architecture", "blackwell", "-o", str(path)
    )
    assert (code, f"--catalog {path}" in out) == (0, True)
    assert run(capsys, "check", str(path))[0] == 0
    mine = {row["id"]: row for row in parsed(capsys, "list", "--catalog", str(path))}["my_gpu"]
    assert (mine["origin"], mine["memory_bandwidth_gb_per_s"]) == ("user", 1800)
    shown = parsed(capsys, "show", "my_gpu", "--catalog", str(path))["profile"]
    assert shown["effective"]["gemm"]["bf16"]["basis"] == "assumed"
    with pytest.raises(SystemExit) as exit_:
        main(["predict", "--model", "llama-3.1-8b", "--gpu", "my_gpu", "--catalog", str(path)])
    assert exit_.value.code == 0
    assert "1 × my_gpu" in capsys.readouterr().out


def test_a_new_device_needs_three_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "new", "my_gpu", "--memory-gb", "96")
    assert code == 2
    assert "--bandwidth-gb-per-s, --bf16-tflops" in err


def test_a_new_model_from_a_config(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, shared: Path
) -> None:
    config = shared / "samples" / "hf_configs" / "Qwen--Qwen3-8B_config.json"
    path = tmp_path / "mine.yaml"
    assert run(capsys, "new", "mine", "--config", str(config), "-o", str(path))[0] == 0
    assert run(capsys, "check", str(path))[0] == 0
    rows = {
        row["id"]: row for row in parsed(capsys, "list", "--models", "--catalog", str(tmp_path))
    }
    assert rows["mine"]["origin"] == "user"
    assert rows["mine"]["params_b"] == pytest.approx(rows["qwen3-8b"]["params_b"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("identity: [", "broken or truncated"),
        ("identity: {id: x}\n", "missing key"),
        ("layers: []\nhidden_size: 3\nvocab: 4\n", "unknown key 'vocab'"),
    ],
)
def test_check_says_what_is_wrong_and_exits_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    code, out, _ = run(capsys, "check", str(path))
    assert code == 2
    assert "wrong" in out
    assert said in out


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (["--bandwidth-gb-per-s", "3.35"], "is the unit GB/s?"),
        (["--bandwidth-gb-per-s", "3350", "--memory-usable-gib", "200"], "is above memory_gb"),
        (["--bandwidth-gb-per-s", "3350", "--fp8-tflops", "1"], "is below bf16"),
    ],
)
def test_new_refuses_what_check_would(
    capsys: pytest.CaptureFixture[str], figures: list[str], said: str
) -> None:
    device = ["x", "--memory-gb", "96", "--bf16-tflops", "250", "--architecture", "blackwell"]
    code, out, err = run(capsys, "new", *device, *figures)
    assert (code, out) == (2, "")
    assert said in err


def test_new_makes_a_model_or_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "new", "m", "--config", "config.json", "--memory-gb", "96")
    assert code == 2
    assert "--config together with --memory-gb" in err


@pytest.mark.parametrize("name", ["vllm@99", "vllm@"])
def test_an_engine_version_without_constants_is_not_shown(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, out, err = run(capsys, "show", name)
    assert (code, out) == (2, "")
    assert "vllm@0." in err
