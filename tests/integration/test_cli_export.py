"""`specsim export` as a user runs it: what is written, what is refused, what stays as it was."""

from __future__ import annotations

import csv
import json
import resource
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "llama-3.1-8b-eagle3-h100.yaml"
LAB = ROOT / "tests" / "data" / "lab" / "closed_loop"
TYPED = b"what somebody typed"


def specsim(
    *words: object, before: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", *map(str, words)],
        capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
        preexec_fn=before,
    )  # fmt: skip


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a scenario without speculation, and of which nothing was published."""
    data = {
        "target": {"model": "llama-3.2-3b"},
        "hardware": {"accelerator": "mi325x"},
        "speculation": {"method": "none"},
        "load": {"concurrency": [8]},
    }
    path = tmp_path_factory.mktemp("quick") / "quick.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture
def export(quick: Path) -> Any:
    def run(*words: object, before: Callable[[], None] | None = None) -> Any:
        return specsim("export", quick, *words, before=before)

    return run


def refused(done: subprocess.CompletedProcess[str], *says: str) -> None:
    """Check for one line on stderr that says what is wrong, and nothing else."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    for text in says:
        assert text in done.stderr


def read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the stored values of all sheets but the charts: records by column."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        book = openpyxl.load_workbook(path, data_only=True)
    found = {}
    for page in book.worksheets:
        if page.title == "Charts":
            continue
        header, *rows = page.iter_rows(min_row=3, values_only=True)
        columns = [name for name in header if name]
        found[page.title] = [dict(zip(columns, row, strict=False)) for row in rows]
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a workbook of two scenarios of one name, and its twins."""
    folder = tmp_path_factory.mktemp("export")
    shutil.copy(EXAMPLE, folder / "copy.yaml")
    done = specsim(
        "export", EXAMPLE, folder / "copy.yaml", "--requests-per-month",
        "20e6", "--growth-pct", "10", "--price", "2.5", "--xlsx", folder / "plan.xlsx", "--csv-dir",
        folder / "sheets", "--json", "-o", folder / "plan.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert f"wrote {folder / 'plan.xlsx'}: 15 sheets and their charts\n" in done.stderr
    assert f"wrote 15 files to {folder / 'sheets'}\n" in done.stderr
    return folder


def test_csv_and_json_hold_what_the_sheets_hold(written: Path) -> None:
    """Numbers to 12 digits, texts as they are; blanks are null, or nothing."""
    sheets, twin = read(written / "plan.xlsx"), json.loads((written / "plan.json").read_text())
    assert list(twin) == list(sheets)
    files = {p.stem for p in (written / "sheets").iterdir()}
    assert len(files) == len(sheets)
    n = 0
    for name, rows in sheets.items():
        stem = "".join(c if c.isalnum() else "_" for c in name.lower())
        records = twin[name]["records"]
        with (written / "sheets" / f"{stem}.csv").open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        assert len(records) == len(lines) == len(rows)
        for stored, record, line in zip(rows, records, lines, strict=True):
            assert list(record) == list(line) == list(stored)
            for column, value in stored.items():
                n += _same(value, record[column], line[column])
    assert n > 5000


def _same(stored: Any, in_json: Any, in_csv: str) -> bool:
    """Compare a cell with its twins, and return whether there is something in it."""
    if stored in (None, ""):
        assert (in_json, in_csv) == (None, "")
        return False
    if isinstance(stored, int | float) and not isinstance(stored, bool):
        assert in_json == pytest.approx(stored, rel=1e-11)
        assert float(in_csv) == in_json
    else:
        assert in_json == stored
        assert in_csv.removeprefix("'") == stored
    return True


def test_what_was_given_stands_in_the_inputs(written: Path) -> None:
    fields = {row["field"]: row for row in read(written / "plan.xlsx")["Inputs"]}
    assert fields["requests_per_month"]["S1"] == 20e6
    assert fields["growth_pct"]["S2"] == 10
    assert fields["gpu_hour_usd"]["S1"] == 2.5
    # Two scenarios of one name are told apart by their files.
    names = [fields["name"]["S1"], fields["name"]["S2"]]
    assert names == [f"llama-3.1-8b-eagle3-h100 ({stem})" for stem in (EXAMPLE.stem, "copy")]


def test_the_sheets_are_what_predict_and_plan_say(written: Path) -> None:
    sheets = read(written / "plan.xlsx")
    row = sheets["Crossover"][0]
    done = specsim("predict", EXAMPLE, "--json")
    (point,) = (p for p in json.loads(done.stdout)["points"] if p["concurrency"] == row["load"])
    assert row["speedup_at_load"] == pytest.approx(point["speedup"], rel=1e-5)
    assert row["tpot_on_ms"] == pytest.approx(point["speculative"]["tpot_ms"], rel=1e-5)
    done = specsim(
        "plan", EXAMPLE, "--requests-per-month", "20e6", "--growth-pct", "10", "--price", "2.5",
        "--requests", "200", "--json",
    )  # fmt: skip
    for candidate in json.loads(done.stdout)["candidates"]:
        cost = sheets["Cost"][0 if candidate["arm"] == "baseline" else 1]
        assert cost["gpus_total"] == candidate["gpus"]
        assert cost["monthly_total_usd"] == pytest.approx(candidate["usd_per_month"], rel=1e-5)


# What is refused


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", ("nothing to write", "--xlsx plan.xlsx", "--csv-dir", "--json")),
        ("--xlsx plan.xls", ("plan.xls", "ends in .xlsx")),
        ("--xlsx plan", ("expected a name that ends in .xlsx",)),
        ("--xlsx plan.xlsm", ("plan.xlsm", ".xlsx")),
        ("--csv-dir sheets -o x.json", ("-o goes with --json",)),
        ("--xlsx a.xlsx --json -o a.xlsx", ("a.xlsx",)),
        ("--xlsx plan.xlsx --slo ttft_p95_ms=0", ("ttft_p95_ms",)),
        ("--xlsx plan.xlsx --avg-qps 1 --requests-per-month 5", ("--avg-qps", "drop one|give one")),
        ("--xlsx plan.xlsx --price h999=2", ("h999",)),
        ("--xlsx plan.xlsx --measurements absent.json", ("absent.json",)),
    ],
)
def test_what_cannot_be_done_is_said_at_once(
    export: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, says: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = export(*words.split())
    refused(done)
    for text in says:
        assert any(part in done.stderr for part in text.split("|"))
    assert list(tmp_path.iterdir()) == []


def test_more_scenarios_than_can_be_read_side_by_side(tmp_path: Path) -> None:
    done = specsim("export", *[EXAMPLE] * 21, "--xlsx", tmp_path / "plan.xlsx")
    refused(done, "21 scenarios", "1 to 20", "specsim sweep")


def test_a_file_that_is_there_is_replaced_only_when_told(export: Any, tmp_path: Path) -> None:
    path = tmp_path / "plan.xlsx"
    path.write_bytes(TYPED)
    path.chmod(0o640)
    refused(export("--xlsx", path), str(path), "--overwrite")
    assert path.read_bytes() == TYPED
    done = export("--xlsx", path, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert read(path)["Inputs"][0]["field"] == "name"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_csv_files_that_are_there_are_replaced_only_when_told(export: Any, tmp_path: Path) -> None:
    (tmp_path / "cost.csv").write_bytes(TYPED)
    (tmp_path / "notes.csv").write_bytes(TYPED)
    refused(export("--csv-dir", tmp_path), "--overwrite")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cost.csv", "notes.csv"]
    assert export("--csv-dir", tmp_path, "--overwrite").returncode == 0
    assert (tmp_path / "cost.csv").read_text().startswith("scenario_id,arm,")
    assert (tmp_path / "notes.csv").read_bytes() == TYPED


def test_a_scenario_is_not_written_over(tmp_path: Path) -> None:
    source = tmp_path / "plan.xlsx"
    shutil.copy(EXAMPLE, source)
    done = specsim("export", source, "--xlsx", source, "--overwrite")
    assert done.returncode == 2
    assert source.read_bytes() == EXAMPLE.read_bytes()


@pytest.mark.parametrize("lock", [".~lock.plan.xlsx#", "~$plan.xlsx"])
def test_a_workbook_that_is_open_elsewhere_is_left_alone(
    export: Any, tmp_path: Path, lock: str
) -> None:
    path = tmp_path / "plan.xlsx"
    path.write_bytes(TYPED)
    (tmp_path / lock).write_text("somebody")
    refused(export("--xlsx", path, "--overwrite"), "is open", lock, "close it")
    assert path.read_bytes() == TYPED


def test_a_lock_of_a_workbook_that_is_gone_is_old(export: Any, tmp_path: Path) -> None:
    (tmp_path / "~$plan.xlsx").write_text("somebody")
    assert export("--xlsx", tmp_path / "plan.xlsx").returncode == 0


@pytest.mark.parametrize(
    "place", ["absent/plan.xlsx", "file.txt/plan.xlsx", "/proc/plan.xlsx", "folder.xlsx"]
)
def test_a_place_that_cannot_be_written_to(export: Any, tmp_path: Path, place: str) -> None:
    (tmp_path / "file.txt").write_text("a file")
    (tmp_path / "folder.xlsx").mkdir()
    before = sorted(tmp_path.rglob("*"))
    path = Path(place) if place.startswith("/") else tmp_path / place
    refused(export("--xlsx", path, "--overwrite"), path.name)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("place", ["file.txt", "file.txt/sheets", "/proc/sheets"])
def test_a_folder_that_cannot_be_made(export: Any, tmp_path: Path, place: str) -> None:
    (tmp_path / "file.txt").write_text("a file")
    path = Path(place) if place.startswith("/") else tmp_path / place
    refused(export("--csv-dir", path), str(path))
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def _full_disk() -> None:
    """Let no file grow beyond 2 kB: writing more fails, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


def test_a_full_disk_leaves_the_old_workbook(export: Any, tmp_path: Path) -> None:
    path = tmp_path / "plan.xlsx"
    path.write_bytes(TYPED)
    refused(export("--xlsx", path, "--overwrite", before=_full_disk), f"{path}: cannot be written")
    assert path.read_bytes() == TYPED
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_csv_file(export: Any, tmp_path: Path) -> None:
    path = tmp_path / "readme.csv"
    path.write_bytes(TYPED)
    done = export("--csv-dir", tmp_path, "--overwrite", before=_full_disk)
    refused(done, f"{path}: cannot be written")
    assert path.read_bytes() == TYPED
    assert list(tmp_path.iterdir()) == [path]


# Where else it comes from


def test_predict_writes_one_beside_its_answer(quick: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.xlsx"
    done = specsim("predict", quick, "--json", "--xlsx", path)
    assert done.returncode == 0, done.stderr
    (point,) = json.loads(done.stdout)["points"]
    (row,) = read(path)["Crossover"]
    assert row["tpot_off_ms"] == pytest.approx(point["baseline"]["tpot_ms"], rel=1e-5)
    again = specsim("predict", quick, "--xlsx", path)
    refused(again, str(path), "--overwrite")


@pytest.mark.slow
def test_plan_writes_its_candidates_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "plan.xlsx"
    done = specsim(
        "plan", EXAMPLE, "--vary", "k=2,4", "--avg-qps", "20", "--slo", "ttft_p95_ms=1000",
        "--requests", "200", "--json", "--xlsx", path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    candidates = json.loads(done.stdout)["candidates"]
    sheets = read(path)
    fields = {row["field"]: row for row in sheets["Speculation"]}
    assert {fields["num_speculative_tokens"][s] for s in ("S1", "S2")} == {2, 4}
    names = {row["field"]: row for row in sheets["Inputs"]}["name"]
    for label in ("S1", "S2"):
        (candidate,) = (c for c in candidates if c["deployment"] == names[label])
        (row,) = (r for r in sheets["Fleet"] if (r["scenario_id"], r["arm"]) == (label, "on"))
        assert row["replicas_total"] == candidate["replicas"]
        rate = row["max_qps_per_replica_at_slo"]
        assert rate == pytest.approx(candidate["load_at_slo"], rel=1e-5)


def _measured(folder: Path, path: Path) -> list[dict[str, Any]]:
    scenario = ROOT / "tools" / "lab" / "scenario.yaml"
    done = specsim("export", scenario, "--measurements", folder, "--xlsx", path)
    assert done.returncode == 0, done.stderr
    rows = read(path)["Measured vs model"]
    return [row for row in rows if row["what"] == "own measurement"]


def test_own_measurements_stand_beside_the_model(tmp_path: Path) -> None:
    own = _measured(LAB, tmp_path / "plan.xlsx")
    assert {row["arm"] for row in own} >= {"off", "on"}
    for row in own:
        if row["predicted"] is not None:
            error = 100 * (row["predicted"] / row["measured"] - 1)
            assert row["error_pct"] == pytest.approx(error, rel=1e-9)
    assert any(row["predicted"] is not None for row in own)


def test_measurements_of_the_lab(shared: Path, tmp_path: Path) -> None:
    own = _measured(shared / "lab" / "closed_loop", tmp_path / "plan.xlsx")
    assert {"off", "on", "on / off"} <= {row["arm"] for row in own}
    assert {row["metric"] for row in own} >= {"tpot_ms", "speedup"}
