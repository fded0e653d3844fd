"""`specsim profiles measure-cpu` from end to end, in its quick mode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from specsim.catalog.hardware import load_hardware


def specsim(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", "profiles", *args],
        cwd=cwd, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_measured_profile_is_written_and_loads(tmp_path: Path) -> None:
    done = specsim("measure-cpu", "--quick", "-o", "here.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for told in ("memory read", "GFLOP/s", "threads", "wrote here.yaml"):
        assert told in done.stdout
    profile = load_hardware(str(tmp_path / "here.yaml"))
    assert profile.identity.id == "here"
    assert profile.effective.gemm["fp32"].basis == "measured"

    again = specsim("measure-cpu", "--quick", "--id", "here", cwd=tmp_path)
    assert again.returncode == 2
    assert "is there already" in again.stderr

    other = specsim("measure-cpu", "--quick", "--id", "there", "--json", cwd=tmp_path)
    answer = json.loads(other.stdout)
    assert answer["path"] == "there.yaml"
    assert answer["profile"]["identity"]["id"] == "there"
    assert answer["measured"]["gemms"]
    assert (tmp_path / "there.yaml").is_file()
