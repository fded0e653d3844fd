from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from specsim.analysis.maps import Maps, OwnPoint, PromptMaps, SpeedupMap
from specsim.analysis.roofline import Band, Pass, Regime, Regimes, Roof, Roofline
from specsim.export.figures.map_cells import Picked, best_k_words, cell_words
from specsim.export.figures.maps import (
    COLOURS,
    STEPS,
    acceptance_map,
    k_map,
    map_rows,
    prompt_map,
)
from specsim.export.figures.roofline import (
    regime_rows,
    regimes,
    roofline,
    roofline_rows,
)

LOADS = np.array([1.0, 4.0, 16.0])
OWN = OwnPoint(load=4.0, draft_acceptance_rate=0.5, acceptance_length=2.0, k=2, input_tokens=400.0)


def over(rows: list[float], speedup: list[list[float]], **more: Any) -> SpeedupMap:
    gain = np.array(speedup)
    return SpeedupMap(LOADS, np.array(rows), gain, 20.0 * np.ones_like(gain), 20.0 / gain, **more)


@pytest.fixture
def maps() -> Maps:
    return Maps(
        acceptance=over([0.0, 0.5, 1.0], [[0.8, 0.7, 0.5], [1.6, 1.3, 0.8], [2.6, 2.0, 1.2]]),
        lengths=np.array([1.0, 2.0, 3.0]),
        k=over([0.0, 1.0, 2.0], [[1.0, 1.0, 1.0], [1.4, 1.3, 0.9], [1.6, 1.2, 0.7]]),
        best_k=np.array([2, 1, 0]),
        own=OWN,
    )


def rows_of(chart: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chart["datasets"][name]
    return found


def drawn(chart: dict[str, Any]) -> list[str]:
    """Return the names of the rows of each layer, outermost first."""
    names: list[str] = []
    for layer in chart["layer"]:
        names += drawn(layer) if "layer" in layer else [layer.get("data", {}).get("name", "")]
    return [name for name in names if name]


def luminance(colour: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_diverge_from_one_and_keep_apart_without_hue() -> None:
    assert len(COLOURS) == len(STEPS) + 1
    middle = len(COLOURS) // 2
    assert (STEPS[middle - 1], STEPS[middle]) == (0.95, 1.05)
    light = [luminance(c) for c in COLOURS]
    assert light[middle] == max(light)
    assert light[: middle + 1] == sorted(light[: middle + 1])
    assert light[middle:] == sorted(light[middle:], reverse=True)
    # As far below 1 as above.
    assert [a * b for a, b in zip(STEPS, reversed(STEPS), strict=True)] == pytest.approx(
        [1.0] * len(STEPS), abs=0.01
    )


def test_rows_of_the_table(maps: Maps) -> None:
    rows = map_rows(maps.acceptance, "rate")
    assert len(rows) == 9
    assert rows[4] == {
        "concurrency": 4.0, "draft_acceptance_rate": 0.5, "speedup": 1.3, "tpot_ms_off": 20.0,
        "tpot_ms_on": 20.0 / 1.3,
    }  # fmt: skip
    assert map_rows(maps.acceptance, "length", rows=maps.lengths)[4]["acceptance_length"] == 2.0


@pytest.mark.parametrize(("kind", "rows"), [("rate", [0.0, 0.5, 1.0]), ("length", [1.0, 2.0, 3.0])])
def test_the_table_begins_with_the_own_cell(
    maps: Maps, kind: Literal["rate", "length"], rows: list[float]
) -> None:
    name = {"rate": "draft_acceptance_rate", "length": "acceptance_length"}[kind]
    low, own, high = rows
    found = map_rows(maps.acceptance, kind, rows=np.array(rows), own=OWN)
    assert [(row["concurrency"], row[name]) for row in found] == [
        (4.0, own), (4.0, low), (4.0, high), (1.0, own), (16.0, own),
        (1.0, low), (1.0, high), (16.0, low), (16.0, high),
    ]  # fmt: skip
    assert found[0]["speedup"] == 1.3
    plain = map_rows(maps.acceptance, kind, rows=np.array(rows))
    assert sorted(map(str, found)) == sorted(map(str, plain))
    # A rate that cannot be served off is no load of the map: its row is there all the same.
    lost = map_rows(maps.acceptance, kind, rows=np.array(rows), own=replace(OWN, load=None))
    assert [row[name] for row in lost[:3]] == [own] * 3


def test_cells_meet_halfway(maps: Maps) -> None:
    cell = rows_of(acceptance_map(maps, "rate"), "cells")[4]
    assert (cell["x"], cell["x2"]) == (2.0, 8.0)
    assert (cell["y"], cell["y2"]) == (0.25, 0.75)
    assert (cell["speedup"], cell["off"], cell["on"]) == (1.3, 20.0, 15.38)


@pytest.mark.parametrize(("kind", "own"), [("rate", 0.5), ("length", 2.0)])
def test_acceptance_by_both_names(maps: Maps, kind: Literal["rate", "length"], own: float) -> None:
    chart = acceptance_map(maps, kind)
    assert rows_of(chart, "own") == [{"load": 4.0, "cell": 0.5, "row": own, "label": "your load"}]
    # The line at 1 goes through the own row where it turns: between loads 4 and 16.
    row = {"rate": 0.5, "length": 2.0}[kind]
    [x] = {round(s["x"], 6) for s in rows_of(chart, "lines") if s["y"] == pytest.approx(row)}
    assert x == pytest.approx(4.0 * 4.0**0.6)
    # A cell is known by the same row whatever it is called.
    assert (rows_of(chart, "cells")[4]["cell"], rows_of(chart, "cells")[4]["row"]) == (0.5, own)
    assert "staircase" not in drawn(chart)


def test_best_k_is_a_staircase(maps: Maps) -> None:
    chart = k_map(maps)
    assert [(s["load"], s["row"]) for s in rows_of(chart, "staircase")] == [
        (0.5, 2), (2.0, 2), (2.0, 1), (8.0, 1), (8.0, 0), (32.0, 0),
    ]  # fmt: skip
    assert drawn(chart).count("staircase") == 2
    assert rows_of(chart, "own")[0]["row"] == 2


def test_what_is_picked_is_a_column_everywhere_and_a_cell_at_home(maps: Maps) -> None:
    picked = Picked("k", 4.0, 1.0)
    column = {"x": 2.0, "x2": 8.0, "y": -0.5, "y2": 2.5}
    assert rows_of(k_map(maps, picked=picked), "picked") == [
        column,
        {**column, "y": 0.5, "y2": 1.5},
    ]
    [elsewhere] = rows_of(acceptance_map(maps, "rate", picked=picked), "picked")
    assert (elsewhere["x"], elsewhere["x2"], elsewhere["y"], elsewhere["y2"]) == (
        2.0, 8.0, -0.25, 1.25,
    )  # fmt: skip
    assert "picked" not in drawn(k_map(maps))


@pytest.mark.parametrize("cell", [None, Picked("k", 4.0, 1.0)])
def test_only_what_has_rows_is_sent_and_only_cells_can_be_picked(
    maps: Maps, cell: Picked | None
) -> None:
    for chart in (acceptance_map(maps, "length", picked=cell), k_map(maps, picked=cell)):
        assert set(chart["datasets"]) == set(drawn(chart))
        assert all(chart["datasets"].values())
        [param] = [p for p in chart["params"] if p["name"] == "picked"]
        fields = param["select"]["fields"]
        assert {
            name for name, rows in chart["datasets"].items() if set(fields) <= rows[0].keys()
        } == {"cells", "own"}
        # What is outlined does not cover what is inside.
        outlines = [each for each in chart["layer"] if each["data"]["name"] == "picked"]
        assert len(outlines) == (2 if cell else 0)
        assert all(each["mark"]["filled"] is False for each in outlines)


def test_a_load_that_cannot_be_served_is_not_marked(maps: Maps) -> None:
    lost = Maps(maps.acceptance, maps.lengths, maps.k, maps.best_k,
                OwnPoint(None, 0.5, 2.0, 2, 400.0))  # fmt: skip
    assert "own" not in k_map(lost)["datasets"]
    assert "own" not in drawn(k_map(lost))


def test_cells_in_words(maps: Maps) -> None:
    assert maps.k is not None
    assert cell_words(maps.acceptance, Picked("acceptance", 4.1, 0.45)) == (
        "At 4 requests in flight and 50% of the drafts accepted: speedup 1.30×, "
        "time per output token 20 ms off and 15.4 ms on."
    )
    assert cell_words(maps.k, Picked("k", 16.0, 1.0)).startswith(
        "At 16 requests in flight and k = 1: speedup 0.90×"
    )
    assert cell_words(maps.k, Picked("k", 16.0, 0.0)) == (
        "At 16 requests in flight, off: time per output token 20 ms."
    )
    assert best_k_words(maps, 4.0) == " Best at this load: k = 1, 1.30×."
    assert best_k_words(maps, 16.0) == " No k pays at this load: off is best."
    assert best_k_words(Maps(maps.acceptance, maps.lengths, None, None, OWN), 4.0) == ""


def test_prompts_have_the_line_of_a_full_cache() -> None:
    found = over([100.0, 400.0, 1600.0], [[1.5, 1.2, 0.8]] * 3, log_rows=True)
    maps = PromptMaps(found, found, np.array([np.inf, 12.0, 3.0]), OWN)
    chart = prompt_map(maps, decoding=True)
    assert [(r["load"], r["row"]) for r in rows_of(chart, "full")] == [(12.0, 400.0), (3.0, 1600.0)]
    assert [r["label"] for r in rows_of(chart, "full")] == ["", "KV cache full"]
    cell = rows_of(chart, "cells")[3]
    assert (cell["y"], cell["y2"]) == (200.0, 800.0)
    assert chart["layer"][0]["encoding"]["y"]["scale"]["type"] == "log"
    assert "2,000" not in cell_words(found, Picked("prompt", 1.0, 400.0))
    assert "prompts of 400 tokens" in cell_words(found, Picked("prompt", 1.0, 400.0))


def passes() -> tuple[Pass, ...]:
    loads = np.array([1.0, 8.0, 20.0])
    return tuple(
        Pass(arm, loads, loads, q * loads * 2e10, np.full(3, 2e10), np.full(3, 0.01))
        for arm, q in (("off", 1.0), ("on", 4.0))
    )


def test_roofline() -> None:
    found = Roofline(2000.0, 1800.0, (Roof("bf16", 1000.0, 800.0),), passes(), own=20.0)
    rows = roofline_rows(found)
    assert rows[4] == {
        "arm": "on", "concurrency": 8.0, "batch": 8.0, "flop_per_byte": 32.0, "tflop_per_s": 64.0,
        "pass_ms": 10.0,
    }  # fmt: skip
    chart = roofline(found)
    ridges = {r["kind"]: r for r in rows_of(chart, "roofs")[1::3]}
    assert ridges["datasheet"]["flop_per_byte"] == 500.0
    assert ridges["datasheet"]["tflop_per_s"] == 1000.0
    assert ridges["reached"]["tflop_per_s"] == 800.0
    assert [r["arm"] for r in rows_of(chart, "own")] == ["off", "on"]
    assert [r["label"] for r in rows_of(chart, "own")] == ["your load", ""]
    told = rows_of(chart, "passes")[0]
    assert (told["pass_ms_off"], told["pass_ms_on"]) == (10.0, 10.0)
    assert [r["label"] for r in rows_of(chart, "loads")] == [
        "off, 1 request", "on, 1 request",
    ]  # fmt: skip
    names = [r["label"] for r in rows_of(chart, "roof_names")]
    assert names == ["bf16 compute 1,000 TFLOP/s", "memory 2 TB/s"]


def test_regimes() -> None:
    loads = np.array([1.0, 100.0])
    shares = {
        "memory": np.array([0.7, 0.2]), "kv": np.zeros(2), "compute": np.array([0.2, 0.7]),
        "communication": np.zeros(2), "host": np.array([0.1, 0.1]),
    }  # fmt: skip
    arm = Regime("on", loads, {k: 10.0 * v for k, v in shares.items()}, shares,
                 (Band("memory", 1.0, 10.0), Band("compute", 10.0, 100.0)))  # fmt: skip
    chart = regimes(Regimes((arm,), own=32.0))
    stacked = [r for r in rows_of(chart, "shares") if r["load"] == 100.0]
    assert [round(r["high"], 9) for r in stacked] == [0.2, 0.2, 0.9, 0.9, 1.0]
    assert [(r["label"], r["inner"]) for r in rows_of(chart, "bands")] == [
        ("memory", False), ("compute", True),
    ]  # fmt: skip
    assert rows_of(chart, "marks")[0]["label"] == "your load: 32"
    assert [r["bound"] for r in regime_rows(Regimes((arm,), None))] == ["memory", "compute"]
    assert rows_of(chart, "told")[1]["compute_on"] == "7 ms, 70%"
    unmarked = regimes(Regimes((arm,), None))
    assert unmarked["datasets"]["marks"] == []
    assert "marks" not in drawn(unmarked)
