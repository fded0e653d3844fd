"""`specsim sweep` as a user runs it: files, resume, workers, a cluster."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CHAT = str(EXAMPLES / "llama-3.1-8b-eagle3-h100.yaml")
SMALL = ("--vary", "gpu=h100_sxm,l40s", "--vary", "k=1,3", "--vary", "concurrency=1:64:x4")
LARGE = ("--vary", "input-len=100:2000:50", "--vary", "k=1:4:1",
         "--vary", "acceptance-rate=0.1:0.9:0.1", "--vary", "concurrency=1:64:1")  # fmt: skip


def specsim(*args: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", "sweep", *args],
        capture_output=True, text=True, encoding="utf-8", timeout=timeout,
    )  # fmt: skip


def done(*args: str) -> str:
    ran = specsim(*args)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_small_grid_goes_to_the_screen() -> None:
    rows = list(csv.DictReader(done(CHAT, *SMALL).splitlines()))
    assert len(rows) == 2 * 2 * 4
    assert rows[0]["hardware.accelerator"] == "h100_sxm"
    assert float(rows[0]["speedup"]) > 1.0


def test_json_of_a_small_grid_and_of_a_file(tmp_path: Path) -> None:
    shown: Any = json.loads(done(CHAT, *SMALL, "--json"))
    assert len(shown["rows"]) == 16
    assert shown["columns"][:3] == [
        "hardware.accelerator", "speculation.num_speculative_tokens", "load.concurrency",
    ]  # fmt: skip
    told = json.loads(done(CHAT, *SMALL, "-o", str(tmp_path / "grid.csv"), "--json"))
    assert told["rows"] == 16
    assert told["status"] == {"ok": 16}


def test_csv_and_parquet_say_the_same(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    done(CHAT, *SMALL, "-o", str(tmp_path / "grid.csv"))
    done(CHAT, *SMALL, "-o", str(tmp_path / "grid.parquet"))
    table = pq.read_table(tmp_path / "grid.parquet").to_pylist()
    for one, other in zip(rows_of(tmp_path / "grid.csv"), table, strict=True):
        assert list(one) == list(other)
        for name, text in one.items():
            value = other[name]
            if isinstance(value, float):
                assert float(text) == pytest.approx(value, rel=1e-5)
            else:
                assert text == ("" if value is None else str(value))


def test_workers_do_not_change_a_byte(tmp_path: Path) -> None:
    files = [tmp_path / f"workers{n}.csv" for n in (1, 2)]
    for n, file in enumerate(files, start=1):
        done(CHAT, *LARGE, "-o", str(file), "--workers", str(n))
    assert files[0].read_bytes() == files[1].read_bytes()
    assert len(rows_of(files[0])) == 39 * 4 * 9 * 64


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    done(CHAT, *LARGE, "-o", str(whole))
    running = subprocess.Popen(
        [sys.executable, "-m", "specsim", "sweep", CHAT, *LARGE, "-o", str(cut)],
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    parts = tmp_path / "cut.csv.parts"
    for _ in range(600):
        if len(list(parts.glob("part-*.csv"))) >= 2 or running.poll() is not None:
            break
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert not cut.exists()
    kept = len(list(parts.glob("part-*.csv")))
    assert kept >= 1
    again = specsim(CHAT, *LARGE, "-o", str(cut))
    assert again.returncode == 2
    assert "--resume" in again.stderr
    other = specsim(CHAT, *SMALL, "-o", str(cut), "--resume")
    assert "holds parts of another grid" in other.stderr
    done(CHAT, *LARGE, "-o", str(cut), "--resume")
    assert cut.read_bytes() == whole.read_bytes()
    assert not parts.exists()


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "specsim", "sweep", CHAT, *LARGE, "-o", str(tmp_path / "grid.csv")],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    parts = tmp_path / "grid.csv.parts"
    for _ in range(600):
        if list(parts.glob("part-*.csv")) or running.poll() is not None:
            break
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "--resume" in said
    assert "Traceback" not in said
    assert (parts / "manifest.json").exists()


def test_a_folder_of_the_users_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "grid.csv.parts" / "mine.txt"
    theirs.parent.mkdir()
    theirs.write_text("precious\n")
    for more in ((), ("--resume",)):
        ran = specsim(CHAT, *SMALL, "-o", str(tmp_path / "grid.csv"), *more)
        assert ran.returncode == 2
        assert "not of a sweep" in ran.stderr
    assert theirs.read_text() == "precious\n"


def test_parquet_says_what_its_columns_are(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    done(CHAT, *SMALL, "-o", str(tmp_path / "grid.parquet"))
    schema = pq.read_schema(tmp_path / "grid.parquet")
    assert schema.field("tpot_ms_on").metadata[b"unit"] == b"ms"
    assert schema.field("kv_tokens_off").type == "int64"
    assert json.loads(schema.metadata[b"scenario"])["target"]["model"] == "llama-3.1-8b"


def test_axes_in_a_file_are_exact() -> None:
    rows = list(csv.DictReader(
        done(CHAT, "--vary", "concurrency=1234567", "--vary", "input-len=1000.125").splitlines()
    ))  # fmt: skip
    assert rows[0]["load.concurrency"] == "1234567"
    assert rows[0]["workload.input_tokens"] == "1000.125"


@pytest.mark.slow
def test_a_dask_cluster_does_the_same(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    done(CHAT, *SMALL, "-o", str(tmp_path / "here.csv"))
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    )
    with cluster:
        done(CHAT, *SMALL, "-o", str(tmp_path / "there.csv"), "--scheduler",
             cluster.scheduler_address)  # fmt: skip
    assert (tmp_path / "here.csv").read_bytes() == (tmp_path / "there.csv").read_bytes()


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path) -> None:
    there = tmp_path / "there.csv"
    there.write_text("mine\n")
    for args, said in (
        ((CHAT,), "nothing is varied"),
        ((CHAT, *LARGE), "give -o FILE"),
        ((CHAT, *SMALL, "-o", str(tmp_path / "grid.xlsx")), ".parquet or .csv"),
        ((CHAT, *SMALL, "-o", str(there)), "--overwrite"),
        ((CHAT, *SMALL, "-o", str(tmp_path / "no" / "grid.csv")), "there is no folder"),
        ((CHAT, *SMALL, "--resume"), "belong to -o"),
        ((CHAT, "--vary", "tpp=1"), "nearest: tp"),
        ((CHAT, "--acceptance-length", "2", "--vary", "acceptance-rate=0.5"), "one of them"),
        ((CHAT, "--max-concurrency", "2", "--vary", "request-rate=1"), "one of them"),
        ((CHAT, "--vary", "concurrency=many"), "expected a number"),
        ((CHAT, *SMALL, "--scheduler", "tcp://127.0.0.1:9"), "nobody answers"),
        ((CHAT, *SMALL, "-o", CHAT), "is also read"),
    ):
        ran = specsim(*args)
        assert ran.returncode == 2, args
        assert ran.stderr.count("\n") == 1
        assert said in ran.stderr
    assert there.read_text() == "mine\n"
    assert not (tmp_path / "no").exists()
    done(CHAT, *SMALL, "-o", str(there), "--overwrite")
    assert len(rows_of(there)) == 16


def test_a_grid_in_which_nothing_fits_is_an_error_with_rows(tmp_path: Path) -> None:
    path = tmp_path / "grid.csv"
    ran = specsim(str(EXAMPLES / "llama-3.3-70b-4xh100.yaml"), "--vary", "tp=1", "-o", str(path))
    assert ran.returncode == 3
    assert "does not fit" in ran.stderr
    assert {row["status"] for row in rows_of(path)} == {"infeasible"}
    mixed = specsim(str(EXAMPLES / "llama-3.3-70b-4xh100.yaml"), "--vary", "tp=1,3")
    assert mixed.returncode == 2
    assert "does not fit" in mixed.stderr
    assert "does not divide" in mixed.stderr


def test_flags_that_an_axis_takes_the_place_of_are_said() -> None:
    ran = specsim(CHAT, "--gpu", "l40s", "--vary", "gpu=h100_sxm", "--vary", "request-rate=1e-3,2")
    assert ran.returncode == 0
    assert ran.stderr == "! --gpu has no effect beside --vary hardware.accelerator\n"
    rows = list(csv.DictReader(ran.stdout.splitlines()))
    assert [row["load.request_rate"] for row in rows] == ["0.001", "2"]
    # k says what a figure was measured at, and a device has to be given where there is no file.
    flags = ("--model", "llama-3.1-8b", "--gpu", "h100_sxm", "--spec-method", "ngram",
             "--spec-tokens", "3", "--acceptance-length", "2")  # fmt: skip
    ran = specsim(*flags, "--vary", "gpu=h100_sxm,l40s", "--vary", "k=2,3")
    assert (ran.returncode, ran.stderr) == (0, "")
