"""Files are told apart by content, and none stops the others."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

import specsim
from specsim.errors import NotFoundError
from specsim.measure import read
from specsim.measure.readers import server_log
from specsim.measure.source import Source
from specsim.schema.measurement import Measurements

LAB = Path(__file__).parents[2] / "data" / "lab" / "closed_loop"
FILES = (
    "off_c1.json",
    "dm_70_3_c1.json",
    "metrics_dm_70_3.prom",
    "server_dm_70_3.log",
)


def names(found: Measurements) -> list[str]:
    return [Path(row.source).name for row in found.rows]


def reasons(found: Measurements) -> dict[str, str]:
    return {Path(skip.source).name: skip.reason for skip in found.skipped}


def test_every_reader_is_listed() -> None:
    """Modules of readers, as opposed to what they share, have a FORMAT."""
    folder = Path(read.__file__).parent / "readers"
    modules = {p.stem for p in folder.glob("*.py") if "\nFORMAT = " in p.read_text("utf-8")}
    assert set(read.READERS) == modules


def test_a_folder(tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(LAB / name, tmp_path)
    (tmp_path / "notes.txt").write_text("nothing of interest")
    found = specsim.read_measurements(tmp_path)
    assert names(found) == sorted(FILES)
    assert reasons(found)["notes.txt"].startswith("no known format")
    assert {row.format for row in found.rows} == {"vllm bench serve", "prometheus", "server_log"}


def test_one_path_or_several_and_each_file_once() -> None:
    one = read.read_measurements(str(LAB / "off_c1.json"))
    assert names(one) == ["off_c1.json"]
    several = read.read_measurements([LAB / "off_c1.json", LAB, LAB / "off_c1.json"])
    assert len(several.rows) == len(read.read_measurements(LAB).rows)
    assert names(several)[0] == "off_c1.json"


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="does not exist; give a file or a folder"):
        read.read_measurements([LAB, tmp_path / "absent"])


def test_nothing_to_read_is_no_error(tmp_path: Path) -> None:
    assert read.read_measurements(tmp_path) == Measurements((), ())
    assert read.read_measurements([]) == Measurements((), ())


def test_files_of_no_use_are_skipped_with_their_reason(tmp_path: Path) -> None:
    whole = (LAB / "dm_70_3_c1.json").read_bytes()
    (tmp_path / "truncated.json").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "broken.json").write_text("{]")
    (tmp_path / "foreign.json").write_text('{"some": "thing"}')
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "weights.bin").write_bytes(bytes(range(256)))
    (tmp_path / "wide.txt").write_text("text", encoding="utf-16")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")
    shutil.copy(LAB / "off_c1.json", tmp_path)
    found = read.read_measurements(tmp_path)
    assert names(found) == ["off_c1.json"]
    said = reasons(found)
    assert "truncated" in said["truncated.json"]
    assert "broken or truncated" in said["broken.json"]
    assert said["foreign.json"].startswith("no known format; ")
    assert said["empty.log"] == "is empty"
    assert "binary" in said["weights.bin"]
    assert "UTF-16" in said["wide.txt"]
    assert "broken or truncated" in said["deep.json"]
    assert "link to nothing" in said["nowhere.json"]
    assert "is no file" in said["pipe"]
    assert len(said) == 9


def test_what_a_sweep_writes_besides_results_is_passed_over(tmp_path: Path) -> None:
    for name in ("scenario.yaml", "plan.yaml", "sweep.sh", "README.md", "requirements.txt"):
        (tmp_path / name).write_text("text: 1")
    (tmp_path / ".hidden").write_text("text")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_text("text")
    assert read.read_measurements(tmp_path) == Measurements((), ())
    # Named by hand, it gets its reason.
    assert len(read.read_measurements(tmp_path / "plan.yaml").skipped) == 1


def test_the_client_s_output_in_a_sweep_repeats_its_results(tmp_path: Path) -> None:
    (tmp_path / "bench.log").write_text("text")
    assert len(read.read_measurements(tmp_path).skipped) == 1
    shutil.copy(LAB / "metrics_off.prom", tmp_path / "c1_r1.before.prom")
    assert read.read_measurements(tmp_path).skipped == ()


def test_links_are_not_followed_in_circles(tmp_path: Path) -> None:
    inner = tmp_path / "runs"
    inner.mkdir()
    shutil.copy(LAB / "off_c1.json", inner)
    (inner / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "again").symlink_to(inner, target_is_directory=True)
    (tmp_path / "same.json").symlink_to(inner / "off_c1.json")
    assert names(read.read_measurements(tmp_path)) == ["off_c1.json"]


def test_dumps_around_a_run_belong_to_it(tmp_path: Path) -> None:
    text = (LAB / "metrics_dm_70_3.prom").read_text(encoding="utf-8")
    zeroed = "\n".join(
        line if line.startswith("#") or "process_" in line or "info" in line
        else line.rsplit(" ", 1)[0] + " 0.0"
        for line in text.splitlines()
    ) + "\n"  # fmt: skip
    (tmp_path / "c1_r1.before.prom").write_text(zeroed)
    (tmp_path / "c1_r1.after.prom").write_text(text)
    shutil.copy(LAB / "dm_70_3_c1.json", tmp_path / "c1_r1.json")
    found = read.read_measurements(tmp_path)
    assert names(found) == ["c1_r1.json"]
    [row] = found.rows
    assert row.kv_tokens == 80640
    assert "2.49 in the counters around the run" in row.warnings[0]

    (tmp_path / "c1_r1.json").unlink()
    [row] = read.read_measurements(tmp_path).rows
    assert row.completed == 194

    (tmp_path / "c1_r1.before.prom").write_text(text)
    (tmp_path / "c1_r1.after.prom").write_text(zeroed)
    found = read.read_measurements(tmp_path)
    assert found.rows == ()
    assert "started anew" in found.skipped[0].reason
    assert found.skipped[0].source.count("c1_r1") == 2


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), OverflowError(), TypeError()])
def test_a_reader_that_fails_skips_its_file(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Source) -> None:
        raise error

    monkeypatch.setattr(server_log, "read", fail)
    found = read.read_measurements([LAB / "server_off.log", LAB / "off_c1.json"])
    assert len(found.rows) == 1
    assert found.skipped[0].reason.startswith(
        f"cannot be read as server_log: {type(error).__name__}"
    )


def test_a_recogniser_that_fails_leaves_the_file_to_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(source: Source) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(server_log, "recognises", fail)
    assert len(read.read_measurements(LAB / "off_c1.json").rows) == 1
    (tmp_path / "x.txt").write_text("text")
    reason = read.read_measurements(tmp_path).skipped[0].reason
    assert reason == "cannot be read: Permission denied"


@pytest.mark.parametrize("name", FILES)
def test_no_damage_to_a_file_is_an_error(name: str, tmp_path: Path) -> None:
    """Cut and mutate our own files at many places: rows or reasons, never an exception."""
    whole = (LAB / name).read_bytes()
    draw = random.Random(name)
    folder = tmp_path / "damaged"
    folder.mkdir()
    n = 40
    for i in range(n):
        cut = whole[: draw.randrange(len(whole))] if i % 2 else whole
        damaged = bytearray(cut)
        for _ in range(draw.choice((0, 1, 30)) if len(damaged) else 0):
            at = draw.randrange(len(damaged))
            damaged[at : at + draw.choice((0, 1, 4))] = draw.choice(
                (
                    b"\xff",
                    b"\0",
                    b'"',
                    b"{",
                    b"}",
                    b"[",
                    b",",
                    b"-1",
                    b"1e999",
                    b"null",
                    b"NaN",
                    b"\n",
                )
            )
        (folder / f"{i:03}_{name}").write_bytes(damaged)
    found = read.read_measurements(folder)
    files = {Path(s).name for s in [*(r.source for r in found.rows), *reasons(found)]}
    assert len({name.split(" ")[0] for name in files}) == n
    assert all(skip.reason for skip in found.skipped)


def test_what_is_shared_with_us(shared: Path) -> None:
    """Nothing of the real files is an error; what gives no row has its reason."""
    found = read.read_measurements([shared / "samples", shared / "lab"])
    assert len(found.rows) > 100
    assert all(len(skip.reason) > 8 for skip in found.skipped)
    repeat = [row for row in found.rows if "closed_loop_repeat" in row.source]
    assert {(row.arm, row.arm_from) for row in repeat} == {("on", "counters")}
    alternating = [row for row in found.rows if "interleaved/off" in row.source]
    assert {(row.arm, row.arm_from) for row in alternating} == {("off", "name")}
