from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.analysis.maps import (
    Maps,
    SpeedupMap,
    contour,
    load_stops,
    prompt_maps,
    speedup_maps,
)
from specsim.analysis.predict import predict
from specsim.catalog.scenario import load_scenario
from specsim.errors import UsageError
from specsim.schema.scenario import Scenario

BASE: dict[str, Any] = {
    "target": {"model": "llama-3.1-70b"},
    "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 4},
    "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 512},
    "speculation": {
        "method": "eagle", "num_speculative_tokens": 4, "acceptance": {"length": 2.4},
    },
    "workload": {"input_tokens": 512, "output_tokens": 256},
    "load": {"concurrency": [32]},
}  # fmt: skip


def scenario(**overrides: Any) -> Scenario:
    return load_scenario(BASE, overrides=overrides)


@pytest.fixture(scope="module")
def maps() -> Maps:
    return speedup_maps(scenario())


def predicted(**overrides: Any) -> float:
    found = predict(scenario(**overrides)).points[0].speedup
    assert found is not None
    return found


def test_axes(maps: Maps) -> None:
    over = maps.acceptance
    assert over.speedup.shape == (21, over.loads.size)
    assert (over.loads[0], over.loads[-1]) == (1.0, 512.0)
    assert (over.rows[0], over.rows[-1]) == (0.0, 1.0)
    assert (maps.lengths[0], maps.lengths[-1]) == (1.0, 5.0)
    assert maps.own.load == 32.0
    assert maps.own.draft_acceptance_rate == pytest.approx(0.35)
    assert maps.own.acceptance_length == pytest.approx(2.4)


@pytest.mark.parametrize(("i", "j"), [(0, 0), (7, 10), (12, -1), (20, 25)])
def test_a_cell_is_what_predict_says(maps: Maps, i: int, j: int) -> None:
    load, length = float(maps.acceptance.loads[j]), float(maps.lengths[i])
    expected = predicted(**{
        "load.concurrency": [load], "speculation.acceptance": {"length": length}
    })  # fmt: skip
    assert maps.acceptance.speedup[i, j] == pytest.approx(expected, rel=1e-6)


def test_columns_are_the_loads_that_can_be_asked_about(maps: Maps) -> None:
    assert maps.k is not None
    expected = list(load_stops(512))
    assert expected[:19] == [*range(1, 17), 18, 20, 22]
    assert {50, 64, 72, 100, 144, 500, 512} <= set(expected)
    for each in (maps.acceptance, maps.k, prompt_maps(scenario()).whole):
        assert each.loads.tolist() == expected


@given(st.integers(1, 10_000))
def test_stops_of_the_load_rise_by_an_eighth_at_most(most: int) -> None:
    stops = load_stops(most)
    assert (stops[0], stops[-1]) == (1, most)
    assert list(stops) == sorted(set(stops))
    assert all(b - a <= max(1.0, a / 8.0) for a, b in itertools.pairwise(stops))
    # A shorter map has the same columns.
    assert set(stops) - {most} <= set(load_stops(2 * most))


@pytest.mark.parametrize(
    ("load", "overrides"),
    [
        (64, {}),
        (37, {"speculation.acceptance": {"draft_acceptance_rate": 0.37}}),
        (600, {"speculation.acceptance": {"per_position": [0.7, 0.5, 0.3, 0.1]}}),
        (5, {"speculation.num_speculative_tokens": 11, "workload.input_tokens": 777.0}),
        (90, {"speculation": {"method": "ngram", "num_speculative_tokens": 3,
                              "acceptance": {"length": 1.45}}}),
        (3, {"speculation.acceptance": {"length": 1.0}}),
    ],
)  # fmt: skip
def test_the_own_point_is_a_cell_of_every_map(load: float, overrides: dict[str, Any]) -> None:
    asked = scenario(**{**overrides, "load.concurrency": [load]})
    point = predict(asked).points[0]
    assert point.baseline is not None
    assert point.speculative is not None
    found, prompts = speedup_maps(asked), prompt_maps(asked)
    own = found.own
    assert found.k is not None
    for each, row in (
        (found.acceptance, own.draft_acceptance_rate),
        (found.k, float(own.k)),
        (prompts.whole, own.input_tokens),
    ):
        i, j = each.nearest(float(load), row)
        assert (each.loads[j], each.rows[i]) == (load, pytest.approx(row, abs=1e-12))
        assert each.speedup[i, j] == pytest.approx(point.speedup, rel=1e-9)
        assert each.tpot_ms_off[i, j] == pytest.approx(point.baseline.tpot_ms, rel=1e-9)
        assert each.tpot_ms_on[i, j] == pytest.approx(point.speculative.tpot_ms, rel=1e-9)
        assert np.all(np.diff(each.rows) > 1e-9)
        assert np.all(np.diff(each.loads) > 1e-9)


def test_an_own_load_between_two_stops_is_a_column_of_its_own() -> None:
    found = speedup_maps(scenario(load={"request_rate": [5.0]}))
    assert found.own.load is not None
    assert found.own.load % 1.0
    assert found.own.load in found.acceptance.loads


def test_more_acceptance_is_faster_at_every_load(maps: Maps) -> None:
    assert np.all(np.diff(maps.acceptance.speedup, axis=0) > 0)


def test_best_k_is_predicts(maps: Maps) -> None:
    assert maps.k is not None
    assert maps.best_k is not None
    loads = maps.k.loads[::8].tolist()
    best = predict(scenario(**{"load.concurrency": loads})).best_k
    assert [b.k for b in best] == maps.best_k[::8].tolist()
    for b, gains in zip(best, maps.k.speedup[:, ::8].T, strict=True):
        assert gains[b.k] == pytest.approx(b.speedup)


def test_no_draft_tokens_is_off(maps: Maps) -> None:
    assert maps.k is not None
    assert np.all(maps.k.speedup[0] == 1.0)
    assert np.array_equal(maps.k.tpot_ms_off[0], maps.k.tpot_ms_on[0])
    assert np.array_equal(maps.k.rows, np.arange(9.0))


def test_times_are_of_both_arms(maps: Maps) -> None:
    over, (i, j) = maps.acceptance, maps.acceptance.nearest(32.0, 0.35)
    length = float(maps.lengths[i])
    point = predict(scenario(**{
        "load.concurrency": [float(over.loads[j])], "speculation.acceptance": {"length": length},
    })).points[0]  # fmt: skip
    assert point.baseline is not None
    assert point.speculative is not None
    assert over.tpot_ms_off[i, j] == pytest.approx(point.baseline.tpot_ms)
    assert over.tpot_ms_on[i, j] == pytest.approx(point.speculative.tpot_ms)


def test_an_own_load_beyond_the_batch_is_on_the_map() -> None:
    found = speedup_maps(scenario(), load=900.0)
    assert found.own.load == found.acceptance.loads[-1] == 900.0


def test_an_arrival_rate_is_placed_by_what_it_keeps_in_flight() -> None:
    rate = scenario(**{"load": {"request_rate": [5.0]}})
    found = speedup_maps(rate)
    baseline = predict(rate).points[0].baseline
    assert baseline is not None
    assert found.own.load == pytest.approx(max(baseline.batch, 1.0))
    # The maps are of a closed loop all the same.
    assert found.acceptance.speedup[12, 0] == speedup_maps(scenario()).acceptance.speedup[12, 0]
    assert speedup_maps(rate, load=1e4).own.load is None


def test_a_tree_has_no_other_k() -> None:
    tree = scenario(**{"speculation.tree": {"topk": 4, "num_draft_tokens": 9},
                       "engine": {"name": "sglang"}})  # fmt: skip
    found = speedup_maps(tree)
    assert found.k is None
    assert found.best_k is None
    assert found.acceptance.rows[-1] == pytest.approx(4 / 8)


def test_a_map_needs_two_arms() -> None:
    with pytest.raises(UsageError, match="method is none; give --spec-method"):
        speedup_maps(load_scenario({**BASE, "speculation": {"method": "none"}}))


def test_longer_prompts_win_again_in_decoding() -> None:
    found = prompt_maps(scenario())
    rows = found.decoding.rows
    assert (rows[0], rows[-1]) == (128.0, 131072.0 - 256.0)
    at_256 = found.decoding.speedup[:, found.decoding.nearest(256.0, 512.0)[1]]
    assert at_256[0] < 1.0 < at_256[-1]
    # Prefill is most of a long request, and speculation does not shorten it.
    assert np.all(found.whole.speedup[-1] < found.decoding.speedup[-1])
    assert np.all(np.diff(found.fits[np.isfinite(found.fits)]) < 0)


def test_whole_requests_are_what_predict_says() -> None:
    found = prompt_maps(scenario())
    i, j = found.whole.nearest(64.0, 4000.0)
    expected = predicted(**{
        "workload.input_tokens": float(found.whole.rows[i]),
        "load.concurrency": [float(found.whole.loads[j])],
    })  # fmt: skip
    assert found.whole.speedup[i, j] == pytest.approx(expected, rel=1e-6)


def test_prompts_are_no_shorter_than_what_is_cached() -> None:
    found = prompt_maps(scenario(**{"workload.cached_prompt_tokens": 400}))
    assert found.whole.rows[0] == 400.0
    assert np.all(np.isfinite(found.whole.speedup))


def of(speedup: list[list[float]], **more: Any) -> SpeedupMap:
    values = np.array(speedup)
    loads = np.array([1.0, 4.0, 16.0])[: values.shape[1]]
    return SpeedupMap(loads, np.arange(1.0, len(speedup) + 1), values, values, values, **more)


def test_contour_between_two_loads_is_in_the_middle_of_the_logarithm() -> None:
    [(a, b, c, d)] = of([[1.5, 0.5], [1.5, 0.5]]).contour()
    assert (a, c) == (pytest.approx(2.0), pytest.approx(2.0))
    assert {b, d} == {1.0, 2.0}


def test_contour_across_a_corner() -> None:
    [(a, b, c, d)] = of([[0.5, 1.5], [1.5, 1.5]]).contour()
    assert {(round(a, 9), round(b, 9)), (round(c, 9), round(d, 9))} == {(2.0, 1.0), (1.0, 1.5)}


@pytest.mark.parametrize(("high", "cut_off"), [(1.9, (4.0, 1.0)), (1.3, (1.0, 1.0))])
def test_a_saddle_goes_by_its_middle(high: float, cut_off: tuple[float, float]) -> None:
    # High at (1, 1) and (4, 2), low at the others; a line around a corner ends on its two sides.
    lines = of([[high, 0.4], [0.4, high]]).contour()
    around = [
        line
        for line in lines
        if cut_off[0] in (line[0], line[2]) and cut_off[1] in (line[1], line[3])
    ]
    assert (len(lines), len(around)) == (2, 1)


def test_no_line_without_a_turn_and_none_through_what_is_unknown() -> None:
    assert of([[1.5, 1.4], [1.3, 1.2]]).contour() == ()
    assert of([[math.nan, 0.5], [1.5, 0.5]]).contour() == ()


def test_a_logarithmic_axis_has_its_middle_in_the_logarithm() -> None:
    values = np.array([[0.5, 0.5], [1.5, 1.5]])
    found = SpeedupMap(np.array([1.0, 2.0]), np.array([100.0, 400.0]), values, values, values,
                       log_rows=True)  # fmt: skip
    assert {round(x[1], 6) for x in found.contour()} == {200.0}


@given(st.lists(st.lists(st.floats(0.2, 4.0), min_size=3, max_size=3), min_size=2, max_size=5))
def test_a_line_lies_within_the_map(speedup: list[list[float]]) -> None:
    found = of(speedup)
    for a, b, c, d in contour(found.loads, found.rows, found.speedup):
        assert 1.0 - 1e-9 <= min(a, c) <= max(a, c) <= 16.0 + 1e-9
        assert 1.0 - 1e-9 <= min(b, d) <= max(b, d) <= len(speedup) + 1e-9


def test_steps_of_whole_rows() -> None:
    # Rows 1 and 2 turn once each; row 3 never wins, so that a line closes row 2 above.
    found = of([[1.5, 0.5, 0.4], [2.0, 1.5, 0.5], [0.5, 0.5, 0.5]]).steps()
    rounded = [tuple(round(x, 9) for x in line) for line in found]
    assert rounded == [
        (2.0, 0.5, 2.0, 1.5), (8.0, 1.5, 8.0, 2.5), (2.0, 1.5, 8.0, 1.5), (1.0, 2.5, 8.0, 2.5),
    ]  # fmt: skip


def test_no_step_beside_off() -> None:
    assert of([[1.0, 1.0, 1.0], [1.5, 1.4, 1.3]]).steps() == ()
