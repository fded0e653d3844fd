from __future__ import annotations

import numpy as np
import pytest

from specsim.analysis.constants import Constants
from specsim.schema.base import Range

LOPSIDED = Range(value=10.0, low=9.0, high=14.0)


def test_point_values_without_samples() -> None:
    constants = Constants()
    assert constants.value(LOPSIDED, "launch") == 10.0
    assert constants.factor(0.3, "discrepancy") == 1.0


def test_low_and_high_are_the_tenth_and_ninetieth_percentiles() -> None:
    drawn = Constants(n_samples=20000, seed=1).value(LOPSIDED, "launch")
    assert drawn.shape == (20000, 1)
    assert np.percentile(drawn, [10, 50, 90]) == pytest.approx([9.0, 10.0, 14.0], rel=0.02)


def test_a_family_moves_together_and_others_apart() -> None:
    constants = Constants(n_samples=4000, seed=3)
    target = constants.value(Range(value=1.0, low=0.9, high=1.1), "bandwidth")[:, 0]
    drafter = constants.value(Range(value=2.0, low=1.6, high=2.4), "bandwidth")[:, 0]
    other = constants.value(Range(value=1.0, low=0.9, high=1.1), "compute")[:, 0]
    assert np.corrcoef(target, drafter)[0, 1] == pytest.approx(1.0)
    assert abs(np.corrcoef(target, other)[0, 1]) < 0.05


def test_a_seed_repeats_whatever_the_order_of_families() -> None:
    first, second = Constants(8, seed=7), Constants(8, seed=7)
    second.deviate("launch")
    assert np.array_equal(first.deviate("compute"), second.deviate("compute"))
    assert not np.array_equal(first.deviate("compute"), Constants(8, seed=8).deviate("compute"))


def test_no_sample_of_a_rate_is_near_zero() -> None:
    wide = Range(value=1.0, low=0.1, high=1.5)
    assert np.min(Constants(5000, seed=2).value(wide, "eager")) == pytest.approx(0.2)


def test_a_constant_that_may_be_zero_stays_above_it() -> None:
    assert np.min(Constants(5000).value(Range(value=0.0, low=0.0, high=1.0), "skew")) == 0.0


def test_factor_spreads_around_one() -> None:
    drawn = np.log(Constants(20000, seed=5).factor(0.05, "discrepancy"))
    assert np.median(drawn) == pytest.approx(0.0, abs=2e-3)
    assert np.std(drawn) == pytest.approx(0.05, rel=0.03)
