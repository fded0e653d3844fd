"""A short sweep of the real vLLM, where `make lab` has installed it."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAB = ROOT / "tools" / "lab"
VENV = ROOT / ".lab-venv"


@pytest.mark.slow
def test_the_real_vllm_is_measured(tmp_path: Path) -> None:
    if not (VENV / "recipe").exists():
        pytest.skip("no .lab-venv with vLLM; `make lab` installs it")
    python, checkpoints = str(VENV / "bin" / "python"), VENV / "checkpoints"
    subprocess.run([python, str(LAB / "checkpoints.py"), str(checkpoints)], check=True)
    out = tmp_path / "sweep"
    environment = dict(os.environ) | runpy.run_path(str(LAB / "install.py"))["ENVIRONMENT"]
    command = [
        sys.executable, "-m", "specsim", "measure", "run", str(LAB / "scenario.yaml"),
        "--out", str(out), "--vllm", str(VENV / "bin" / "vllm"),
        "--model-path", str(checkpoints / "target"),
        "--drafter-path", str(checkpoints / "drafter_70"),
        "--max-concurrency", "4", "--repeats", "1", "--min-prompts", "12", "--warmup", "2",
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    shown = subprocess.run(
        [sys.executable, "-m", "specsim", "measure", "show", str(out), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(shown.stdout)
    off, on = found["curves"]
    assert off["points"][0]["output_tok_s"] > 0
    # The checkpoints are made to accept 0.7 of the tokens; a few hundred drafts leave 0.03 each.
    assert on["acceptance"]["per_position"] == pytest.approx([0.7, 0.49, 0.343], abs=0.12)
    assert on["acceptance"]["acceptance_length"] == pytest.approx(2.533, abs=0.25)
    assert found["engine_versions"] == ["0.32.0"]
