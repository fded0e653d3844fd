from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.export.figures.drafters import _overlap, _places
from specsim.export.figures.look import apart, with_data
from specsim.export.figures.map_cells import Picked


def layer(name: str) -> dict[str, Any]:
    return {"data": {"name": name}, "mark": "line"}


def test_layers_without_rows_are_left_out() -> None:
    spec = {"layer": [layer("a"), {"layer": [layer("b"), layer("c")]}, {"layer": [layer("c")]}]}
    full = with_data(spec, {"a": [{"x": 1}], "b": [{"x": 1}], "c": [{"x": 1}]})
    assert full["layer"] == spec["layer"]
    found = with_data(spec, {"a": [{"x": 1}], "b": [{"x": 1}], "c": []})
    assert found["layer"] == [layer("a"), {"layer": [layer("b")]}]
    # The form itself, which is kept for the next picture, is as it was.
    assert len(spec["layer"]) == 3


@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=6))
def test_names_at_the_ends_of_curves_are_kept_apart(values: list[float]) -> None:
    ends = [{"value": value} for value in values]
    tall = (max(values) - min(values)) or 1.0
    named = apart(ends, ends)
    places = [-row["value"] / tall * 220.0 + row["dy"] for row in named]
    assert sorted(row["value"] for row in named) == sorted(values)
    assert all(low - high > 13.7 for low, high in pairwise(places))
    # About the middle of where they were.
    assert sum(row["dy"] for row in named) == pytest.approx(0.0, abs=0.5)


def test_names_far_apart_stay_at_their_ends() -> None:
    assert [row["dy"] for row in apart([{"value": 1.0}, {"value": 2.0}], [{"value": 0.0}])] == [
        0.0, 0.0,
    ]  # fmt: skip
    assert apart([], []) == []


def test_names_of_points_avoid_each_other() -> None:
    data = [
        {"drafter": f"llama-3.2-{i}b (draft model)", "kv_lost_percent": lost, "speedup": gain,
         "speedup_low": 0.4, "speedup_high": 2.0}
        for i, (lost, gain) in enumerate([(33.0, 0.53), (35.0, 0.53), (65.0, 0.35), (77.0, 0.5)])
    ]  # fmt: skip
    places = _places(data)
    assert places[-1][0] == "left"
    assert len({(*place, row["kv_lost_percent"] > 50) for place, row in zip(
        places, data, strict=True)}) > 1  # fmt: skip
    assert _overlap((0, 10, 0, 10), (5, 15, 5, 15)) == 25.0
    assert _overlap((0, 10, 0, 10), (10, 15, 0, 10)) == 0.0


def test_a_cell_goes_through_a_link() -> None:
    for cell in (Picked("k", 64.0, 0.0), Picked("acceptance", 1.0, 0.25)):
        assert Picked.read(str(cell)) == cell
    for text in ("", "k", "k,1", "k,1,2,3", "k,nan,2", "k,1,inf", "k,0,2", "x,1,2", "prompt,1,0"):
        assert Picked.read(text) is None
