"""No command writes over what it reads, whatever way leads there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAB = ROOT / "tests" / "data" / "lab" / "closed_loop"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(LAB, tmp_path / "S")
    shutil.copy(ROOT / "tools" / "lab" / "scenario.yaml", tmp_path / "sc.yaml")
    for name, text in (
        ("notes.txt", "to do"), ("Makefile", "all:"), ("package.json", '{"name": "x"}'),
        ("compose.yaml", "services: {}"), ("people.csv", "name,born\nAda,1815"),
        ("own.yaml", "profiles: []"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "in").symlink_to(tmp_path / "S")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "calibrate sc.yaml -m S --out sc.yaml",
        "calibrate sc.yaml -m S --save-scenario S/off_c1.json --out c.yaml",
        "calibrate sc.yaml -m S --save-scenario c.yaml --out c.yaml",
        "calibrate sc.yaml -m link --out S/off_c1.json",
        "calibrate sc.yaml -m S -o S/server_off.log",
        "measure list S --csv S/off_c1.json",
        "measure list S -o S/off_c1.json",
        "measure list S --csv x.csv -o x.csv",
        "measure show S -o S/off_c1.json",
        "predict sc.yaml -o notes.txt",
        "predict sc.yaml -o Makefile",
        "predict sc.yaml --json -o package.json",
        "predict sc.yaml --json -o sc.yaml",
        "predict sc.yaml --save-scenario compose.yaml",
        "predict sc.yaml --save-scenario notes.txt",
        "predict sc.yaml --catalog own.yaml -o own.yaml",
        "crossover sc.yaml --json -o package.json",
        "kv sc.yaml -o notes.txt",
        "simulate sc.yaml --requests 20 -o notes.txt",
        "plan sc.yaml --avg-qps 1 --requests 20 -o Makefile",
        "advise sc.yaml --requests 20 -o Makefile",
        "profiles list -o notes.txt",
        "profiles new x --memory-gb 9 --bandwidth-gb-per-s 9 --bf16-tflops 9 -o compose.yaml",
        "calibrate sc.yaml -m S --out compose.yaml",
        "measure list S --csv people.csv",
    ],
)
def test_it_is_refused(folder: Path, words: str) -> None:
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    done = subprocess.run(
        [sys.executable, "-m", "specsim", *words.split()],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert {p: p.read_bytes() for p in before} == before
    assert done.returncode == 2, done.stdout[-500:]
    assert done.stderr.count("\n") == 1
