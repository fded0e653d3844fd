"""Files that are there: replaced by their own kind, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from specsim.cli.output import Format, refuse_replacing, replace_file
from specsim.errors import UsageError

REPORT = "a model\n\nVERDICT  ON  at 8 requests\n\nBY LOAD\n  1  2\n"
BRIEF = "a model\n\nVERDICT  OFF  at 8 requests\n"
SCENARIO = "target: {model: m}\nhardware: {accelerator: h}\nload: {concurrency: [1]}\n"


@pytest.mark.parametrize(
    ("name", "format", "old", "new"),
    [
        ("a.txt", "text", REPORT, BRIEF),
        ("a.txt", "text", BRIEF, REPORT),
        ("a.json", "json", '{"verdict": 1, "points": []}', '{"verdict": 2, "points": [], "k": 1}'),
        ("a.json", "json", '[{"id": 1}]', '[{"id": 1}, {"id": 2}]'),
        ("a.yaml", "yaml", SCENARIO, "target: {model: n}\nhardware: {accelerator: h}\n"),
        ("a.YML", "yaml", SCENARIO, SCENARIO),
        ("a.csv", "csv", "arm,load\non,1\n", "arm,load,ttft\non,1,2\n"),
        ("a", "json", "", "{}"),
    ],
)
def test_an_earlier_answer_is_replaced(
    tmp_path: Path, name: str, format: Format, old: str, new: str
) -> None:
    path = tmp_path / name
    path.write_text(old)
    path.chmod(0o640)
    replace_file(path, new, format)
    assert path.read_text() == new
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "format", "old", "new"),
    [
        ("Makefile", "text", "all: build\n", REPORT),
        ("main.py", "json", '{"verdict": 1}', '{"verdict": 1}'),
        ("a.json", "text", REPORT, REPORT),
        ("a.txt", "json", '{"verdict": 1}', '{"verdict": 1}'),
        ("notes.txt", "text", "to do: all of it\n", REPORT),
        ("package.json", "json", '{"name": "x", "version": 1}', '{"verdict": 1, "name": "y"}'),
        ("broken.json", "json", '{"verdict": ', '{"verdict": 1}'),
        ("compose.yaml", "yaml", "services: {}\nversion: 3\n", SCENARIO),
        ("list.yaml", "yaml", "- a\n- b\n", SCENARIO),
        ("people.csv", "csv", "name,born\nAda,1815\n", "arm,load\non,1\n"),
        ("image.csv", "csv", "\0\1", "arm,load\non,1\n"),
    ],
)
def test_another_file_is_not(tmp_path: Path, name: str, format: Format, old: str, new: str) -> None:
    path = tmp_path / name
    path.write_text(old)
    with pytest.raises(UsageError, match="is there") as refused:
        replace_file(path, new, format)
    assert "give another name, or remove it first" in str(refused.value)
    assert path.read_text() == old


def test_a_name_of_another_format_is_refused_before_the_work(tmp_path: Path) -> None:
    path = tmp_path / "plan.md"
    refuse_replacing(path, "json")
    refuse_replacing(None, "json")
    path.write_text("# Plan\n")
    with pytest.raises(UsageError, match=r"only \.json is replaced by JSON"):
        refuse_replacing(path, "json")


def test_a_device_takes_anything() -> None:
    replace_file(Path("/dev/null"), REPORT, "text")
