import json

import pytest

from specsim.errors import InputError
from specsim.measure import source as module
from specsim.measure.source import Source, is_cut


@pytest.fixture
def streamed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STREAM_ABOVE_BYTES", 0)

    def read(text: str) -> list[object]:
        path = tmp_path / "x.json"
        path.write_text(text)
        return Source(path).documents

    return read


def test_streaming_changes_nothing_of_a_short_file(streamed):
    value = {"a": [1, 2.5, None, True, "x", {"b": []}], "c": {"d": [[1], [2, 3]]}}
    assert streamed(json.dumps(value) + "\n" + json.dumps([value])) == [value, [value]]


def test_long_arrays_are_cut_and_say_so(streamed):
    n = module.MAX_ITEMS
    (found,) = streamed(
        json.dumps({"long": list(range(n + 5)), "short": [1], "deep": [[0] * n * 2]})
    )
    assert len(found["long"]) == n
    assert is_cut(found["long"])
    assert is_cut(found["deep"])
    assert not is_cut(found["short"])
    assert not is_cut([1])


def test_arrays_of_arrays_share_a_budget(streamed, monkeypatch):
    monkeypatch.setattr(module, "MAX_NESTED_ITEMS", 1000)
    (found,) = streamed(json.dumps({"gaps": [[1] * 300] * 10, "after": list(range(500))}))
    kept = [len(each) for each in found["gaps"]]
    assert kept[:3] == [300] * 3
    assert kept[-1] == module.ALWAYS_KEPT
    assert is_cut(found["gaps"])
    assert found["after"] == list(range(500))


def test_what_python_writes_for_no_number(streamed):
    text = json.dumps({"rate": float("inf"), "x": [float("nan"), 1], "said": "NaN, Infinity"})
    (found,) = streamed(text)
    assert found["rate"] is None
    assert found["x"] == [None, 1]


def test_truncated(streamed):
    with pytest.raises(InputError, match="truncated"):
        streamed('{"a": [1, 2')
