"""Uploaded files: whatever they are and whatever they are called."""

from __future__ import annotations

import gc
import gzip
import io
import json
import tempfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openpyxl
import pytest
import uploads
from hypothesis import given
from hypothesis import strategies as st
from uploads import ModelFile, _Names, drop_model, read_case, read_uploads, uploaded_model

from specsim.catalog.models import load_model
from specsim.errors import SpecsimError
from specsim.measure.read import read_measurements
from specsim.schema.measurement import Measurement

REPO = Path(__file__).parents[2]
RUNS = REPO / "tests/data/lab"
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
    "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
}  # fmt: skip


class File:
    """An upload as Streamlit gives it."""

    def __init__(self, name: str, data: bytes, size: int | None = None) -> None:
        self.name, self.data = name, data
        self.size = len(data) if size is None else size

    def getbuffer(self) -> memoryview:
        assert self.size == len(self.data), "a file that is too large is not touched"
        return memoryview(self.data)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep temporary folders where they can be counted."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def reason(name: str, data: bytes, **more: Any) -> str:
    read = read_uploads([File(name, data, **more)])
    assert not read.rows
    (skipped,) = read.skipped
    return skipped.reason


def archive(*members: tuple[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as book:
        for name, data in members:
            book.writestr(name, data)
    return packed.getvalue()


def workbook(*rows: list[Any], at: str = "") -> bytes:
    book, packed = openpyxl.Workbook(), io.BytesIO()
    sheet: Any = book.active
    for row in rows:
        sheet.append(row)
    if at:
        sheet[at] = 1
    book.save(packed)
    return packed.getvalue()


def told(row: Measurement) -> tuple[Any, ...]:
    return (row.source.rpartition("/")[2], row.arm, row.arm_from, row.num_speculative_tokens,
            row.tpot_ms, row.acceptance, row.kv_tokens, row.engine_version)  # fmt: skip


@pytest.mark.parametrize("folder", [RUNS, RUNS / "closed_loop"], ids=["lab", "closed_loop"])
def test_uploads_say_what_the_folder_says(folder: Path, temporary: Path) -> None:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    given = [File(str(p.relative_to(folder)), p.read_bytes()) for p in files]
    read, straight = read_uploads(given), read_measurements(folder)
    assert sorted(map(told, read.rows), key=str) == sorted(map(told, straight.rows), key=str)
    assert {r.source for r in read.rows} <= {file.name for file in given}
    assert list(temporary.iterdir()) == []


def test_names_that_reach_outside_are_never_paths(temporary: Path) -> None:
    runs = b"concurrency,tpot_ms\n4,20\n"
    names = ["../../../../etc/passwd.csv", "/etc/cron.d/x.csv", "..", "C:\\windows\\x.csv",
             "a\0.csv", "x" * 5000 + ".csv", "", "con.csv", "-rf.csv", "\u202egpj.csv"]  # fmt: skip
    written: list[Path] = []
    before = Path.write_bytes

    def write(self: Path, data: Any) -> int:
        written.append(self)
        return before(self, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_bytes", write)
        read = read_uploads([File(name, runs) for name in names])
    assert len(written) == len(names)
    assert all(path.resolve().is_relative_to(temporary) for path in written)
    assert not any("passwd" in str(path) or ".." in path.parts for path in written)
    assert len(read.rows) == len(names)
    assert read.rows[0].source == "../../../../etc/passwd.csv#row 2"
    assert all(str(temporary) not in row.source for row in read.rows)
    assert list(temporary.iterdir()) == []


@given(st.lists(st.text(max_size=60), max_size=6))
def test_any_names_make_paths_of_our_own_words(names: list[str]) -> None:
    own = _Names()
    root = Path("/root/of/all")
    paths = [own.new(root, name) for name in names]
    assert len(set(paths)) == len(paths)
    for path in paths:
        assert path.is_relative_to(root)
        assert all(
            part[0].isascii() and part.isascii() and part not in (".", "..")
            for part in path.relative_to(root).parts
        )
        assert len(path.name) < 255


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("mtp_k3_c4.json", "mtp_k3_c4.json"),
        ("off-c16.json", "off-c16.json"),
        ("llama.after.prom", "w1.after.prom"),
        ("server_abc_3.log", "server_w1_3.log"),
        ("no_speculation.csv", "no_speculation.csv"),
        ("runs/on/c4.json", "c4.json"),
        ("result.exe", "w1.w2.txt"),
    ],
)
def test_words_that_mean_something_are_kept(name: str, own: str) -> None:
    assert _Names().new(Path("/r"), name).name == own


def test_dumps_around_a_run_find_each_other() -> None:
    dump = "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{} %d\n"
    files = [
        File("llama.before.prom", (dump % 1).encode()),
        File("llama.after.prom", (dump % 9).encode()),
    ]
    read = read_uploads(files)
    named = [r.source for r in read.rows] + [s.source for s in read.skipped]
    assert all("llama" in name and "w1" not in name for name in named)


def test_the_same_name_twice_is_two_files() -> None:
    read = read_uploads([File("a.csv", b"concurrency,tpot_ms\n4,20\n"),
                         File("a.csv", b"concurrency,tpot_ms\n8,30\n")])  # fmt: skip
    assert [r.source for r in read.rows] == ["a.csv#row 2", "a.csv (2)#row 2"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x.json", b"", "is empty"),
        ("x.json", b"\x00\xff\x01", "is binary"),
        ("x.json", b'{"a":', "broken or truncated"),
        ("x.json", b"[" * 100_000, "is nested too deeply"),
        ("x.json", b'{"a": 1' + b"0" * 5000 + b"}", "more than 4300 digits"),
        ("x.txt", b"hello", "no known format"),
        ("x.exe", b"MZ\x90\x00", "is binary"),
        ("x.gz", gzip.compress(b"a"), "is gzip"),
        ("x.zip", archive(("a", b"a")), "is a zip archive"),
        ("x.xlsx", b"PK\x03\x04nonsense", "is a broken workbook"),
        ("x.xlsx", archive(("a", b"a")), "is a broken workbook"),
        ("x.xlsx", archive(*((f"{n}", b"") for n in range(600))), "600 parts"),
        ("x.xlsx", workbook(["concurrency", "tpot_ms"], [4, 20], at="XFD9"), "column ZZ"),
        ("x.xlsx", workbook(["a", "b"], [4, 20]), "no headings"),
    ],
    ids=lambda value: value if isinstance(value, str) else "data",  # archives hold the time of day
)
def test_what_cannot_be_read_is_a_sentence(name: str, data: bytes, said: str) -> None:
    assert said in reason(name, data)


def test_bombs_are_not_opened() -> None:
    bomb = archive(("xl/worksheets/sheet1.xml", b"0" * (65 * 2**20)))
    assert len(bomb) < 2**20
    assert "unpacks to 65 MiB" in reason("bomb.xlsx", bomb)
    assert "is a zip archive" in reason("bomb.json", bomb)


def test_sizes_are_limited() -> None:
    assert "has 200 MiB; at most 64 MiB" in reason("x.json", b"", size=200 * 2**20)
    file = File("x.csv", b"concurrency,tpot_ms\n4,20\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uploads, "MAX_TOTAL_BYTES", 2 * file.size)
        patch.setattr(uploads, "MAX_FILES", 4)
        read = read_uploads([file] * 5)
    assert len(read.rows) == 2
    assert "at a time" in read.skipped[0].reason
    assert "beyond the 4 files" in read.skipped[-1].reason


def test_a_workbook_is_read() -> None:
    data = workbook(["concurrency", "tpot_ms", "arm"], [1, 10.0, "off"], [4, 12.0, "off"])
    read = read_uploads([File("my runs.xlsx", data)])
    assert [(r.source, r.arm, r.concurrency) for r in read.rows] == [
        ("my runs.xlsx#row 2", "off", 1.0), ("my runs.xlsx#row 3", "off", 4.0),
    ]  # fmt: skip


def test_a_config_json_is_a_model_until_it_is_dropped(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state: dict[str, Any] = {}
    monkeypatch.setattr(uploads, "st", SimpleNamespace(session_state=state))
    path = uploaded_model(File("../my model/config.json", json.dumps(CONFIG).encode()))
    assert path.is_relative_to(temporary)
    assert load_model(path).hidden_size == 2048
    second = uploaded_model(File("config.json", json.dumps(CONFIG).encode()))
    assert not path.exists()
    assert second.exists()
    drop_model()
    assert list(temporary.iterdir()) == []
    assert state == {}


def test_a_model_goes_with_its_session(temporary: Path) -> None:
    found = ModelFile(File("config.json", json.dumps(CONFIG).encode()))
    assert found.path.exists()
    del found
    gc.collect()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"{}", "is empty; expected the config.json"),
        (b"[1]", "expected a mapping"),
        (b'{"model_type": "t5"}', "config.json"),
        (b"\xff\xfe\x01", "is not text"),
        (b'{"model_type": "llama", "hidden_size": -1}', "config.json"),
    ],
)
def test_what_is_no_model_is_a_sentence(data: bytes, said: str, temporary: Path) -> None:
    with pytest.raises(SpecsimError) as caught:
        ModelFile(File("config.json", data))
    assert said in str(caught.value)
    assert str(temporary) not in str(caught.value)
    assert list(temporary.iterdir()) == []


def test_a_case_is_read_and_others_are_refused(temporary: Path) -> None:
    path = next((REPO / "validation/cases").glob("glm47*mtp-k1.yaml"))
    assert read_case(File("mine.yaml", path.read_bytes())).case == "glm47flash-h100pcie/mtp-k1"
    with pytest.raises(SpecsimError, match=r"^mine\.yaml: "):
        read_case(File("mine.yaml", b"a: 1"))
    assert list(temporary.iterdir()) == []
