"""The wheel alone, in a clean environment outside the repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_predicts_without_the_repository(tmp_path: Path) -> None:
    def run(*args: str | Path) -> str:
        done = subprocess.run(args, capture_output=True, text=True, cwd=tmp_path, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT)
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    (wheel,) = (tmp_path / "dist").glob("specsim_llm-*.whl")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    shutil.copy(ROOT / "examples" / "llama-3.3-70b-4xh100.yaml", tmp_path / "scenario.yaml")
    specsim = tmp_path / "clean" / "bin" / "specsim"
    assert "predict" in run(specsim, "--help")
    assert "VERDICT" in run(specsim, "predict", "scenario.yaml", "--brief")
    assert "h100_sxm" in run(specsim, "profiles", "list")
