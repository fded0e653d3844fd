from __future__ import annotations

import numpy as np
import pytest

from specsim.analysis.crossover import (
    find_crossover,
    first_loss,
    intervals_above_one,
    search_loads,
)
from specsim.schema.results import Crossover

LOADS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
NAN = float("nan")


def crossover(speedup: list[float], samples: list[list[float]] | None = None) -> Crossover:
    curve = np.array(speedup)
    others = np.array(samples) if samples is not None else curve[None]
    return find_crossover(LOADS, curve, others, LOADS)


def test_loads_searched_are_whole_and_hold_both_ends() -> None:
    loads = search_loads(1024)
    assert loads[0] == 1
    assert loads[-1] == 1024
    assert loads[:8].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert np.all(np.diff(loads) >= 1)
    assert search_loads(1).tolist() == [1.0]


@pytest.mark.parametrize(
    ("speedup", "wins"),
    [
        ([1.5, 1.4, 1.3, 1.2, 1.1], [(1.0, 16.0)]),
        ([0.9, 0.8, 0.7, 0.6, 0.5], []),
        ([1.0, 1.0, 1.0, 1.0, 1.0], []),
        # Half way between 4 and 8 in the logarithm.
        ([1.5, 1.4, 1.2, 0.8, 0.5], [(1.0, 4 * 2**0.5)]),
        ([0.8, 1.2, 1.3, 1.4, 1.5], [(2**0.5, 16.0)]),
        ([1.2, 0.8, 0.8, 1.2, 1.4], [(1.0, 2**0.5), (4 * 2**0.5, 16.0)]),
        ([0.8, 1.2, 0.8, 1.2, 0.8], [(2**0.5, 2 * 2**0.5), (4 * 2**0.5, 8 * 2**0.5)]),
        # What cannot be served ends an interval at the last load that can.
        ([1.5, 1.4, 1.3, NAN, NAN], [(1.0, 4.0)]),
        ([NAN, 1.4, 1.3, 0.7, 0.5], [(2.0, 4 * 2**0.5)]),
    ],
)
def test_intervals_of_gain(speedup: list[float], wins: list[tuple[float, float]]) -> None:
    found = intervals_above_one(LOADS, np.array(speedup))
    assert np.array(found).ravel() == pytest.approx(np.array(wins).ravel())


@pytest.mark.parametrize(
    ("speedup", "load"),
    [
        ([1.5, 1.4, 1.2, 0.8, 0.5], 4 * 2**0.5),
        ([0.8, 1.2, 1.2, 1.2, 1.2], 0.0),
        ([1.5, 1.4, 1.3, 1.2, 1.1], np.inf),
        ([NAN, 1.4, 1.3, 1.2, 1.1], np.inf),
        ([1.2, 0.8, 0.8, 1.2, 1.4], 2**0.5),
    ],
)
def test_first_loss(speedup: list[float], load: float) -> None:
    assert first_loss(LOADS, np.array(speedup)) == pytest.approx(load)


def test_always_and_never() -> None:
    always = crossover([1.5, 1.4, 1.3, 1.2, 1.1])
    assert (always.state, always.load, always.wins) == ("always", None, ((1.0, 16.0),))
    never = crossover([0.9, 0.8, 0.7, 0.6, 0.5])
    assert (never.state, never.load, never.wins) == ("never", None, ())
    assert never.searched == (1.0, 16.0)


def test_a_crossing_has_its_batch() -> None:
    speedup = np.array([1.5, 1.4, 1.2, 0.8, 0.5])
    found = find_crossover(LOADS, speedup, speedup[None], np.minimum(LOADS, 5.0))
    assert found.load == pytest.approx(4 * 2**0.5)
    assert found.batch == pytest.approx(4 + (4 * 2**0.5 - 4) / 4, abs=1e-6)


def test_several_crossings_are_several_intervals() -> None:
    found = crossover([1.2, 0.8, 0.8, 1.2, 1.4])
    assert found.state == "crosses"
    assert len(found.wins) == 2
    assert found.load == pytest.approx(2**0.5)


def test_a_curve_that_starts_with_a_loss_crosses_where_it_turns() -> None:
    found = crossover([0.8, 1.2, 1.3, 1.4, 1.5])
    assert found.state == "crosses"
    assert found.load == pytest.approx(2**0.5)


def test_band_holds_the_crossing_and_comes_from_the_samples() -> None:
    base = [1.5, 1.4, 1.2, 0.8, 0.5]
    early, late = [1.2, 0.8, 0.7, 0.6, 0.5], [1.6, 1.5, 1.4, 1.2, 0.8]
    found = crossover(base, [early] * 3 + [base] * 4 + [late] * 3)
    assert found.low == pytest.approx(2**0.5)
    assert found.high == pytest.approx(8 * 2**0.5)
    assert found.load is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.load <= found.high


def test_bounds_beyond_what_was_searched_are_null() -> None:
    base = [1.5, 1.4, 1.2, 0.8, 0.5]
    found = crossover(base, [[0.9] * 5] * 5 + [[1.5] * 5] * 5)
    assert (found.low, found.high) == (None, None)


def test_loads_that_nobody_serves_are_not_searched() -> None:
    found = crossover([1.5, 1.4, 1.3, NAN, NAN])
    assert (found.state, found.searched) == ("always", (1.0, 4.0))


def test_a_sample_that_neither_arm_serves_at_the_end_is_no_loss() -> None:
    saturated = [1.5, 1.5, 1.5, NAN, NAN]
    assert first_loss(LOADS, np.array(saturated)) == np.inf
