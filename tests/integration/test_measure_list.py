"""`specsim measure list`: what was read, and what was not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

LAB = Path(__file__).parents[1] / "data" / "lab"


def specsim(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "specsim", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_rows_and_files_that_give_none(tmp_path: Path) -> None:
    shutil.copytree(LAB / "closed_loop", tmp_path / "runs")
    (tmp_path / "runs" / "notes.txt").write_text("nothing measured\n")
    done = specsim("measure", "list", tmp_path / "runs", "--csv", tmp_path / "rows.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert "off_c1.json" in done.stdout
    assert "counters" in done.stdout
    assert "NOT READ" in done.stdout
    assert "notes.txt" in done.stdout
    again = specsim("measure", "list", tmp_path / "rows.csv", "--json")
    assert {row["arm"] for row in json.loads(again.stdout)["rows"]} == {"off", "on"}


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing measured\n")
    done = specsim("measure", "list", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "notes.txt" in done.stderr
