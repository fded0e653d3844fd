from __future__ import annotations

import numpy as np
import pytest

from specsim.physics.cost import PARTS, Cost, smooth_roofline


def test_parts_add_up() -> None:
    cost = Cost(memory_s=1.0, kv_s=2.0, compute_s=3.0, communication_s=4.0, host_s=5.0)
    assert cost.total_s == 15.0
    assert sum(getattr(cost, part) for part in PARTS) == cost.total_s


def test_sum_and_multiple_keep_every_part() -> None:
    cost = Cost(memory_s=1.0, kv_s=2.0) + Cost(kv_s=3.0, host_s=0.5)
    assert cost == Cost(memory_s=1.0, kv_s=5.0, host_s=0.5)
    assert cost.times(4.0) == Cost(memory_s=4.0, kv_s=20.0, host_s=2.0)


def test_a_factor_per_sample_gives_a_total_per_sample() -> None:
    total = Cost(memory_s=1.0, compute_s=2.0).times(np.array([1.0, 2.0])).total_s
    assert total.tolist() == [3.0, 6.0]


def test_floor_is_waiting_on_the_host() -> None:
    short = Cost(memory_s=1.0).at_least(4.0)
    assert short == Cost(memory_s=1.0, host_s=3.0)
    long = Cost(memory_s=5.0).at_least(4.0)
    assert long == Cost(memory_s=5.0, host_s=0.0)


@pytest.mark.parametrize(
    ("memory", "compute", "p", "total"),
    [
        (3.0, 4.0, 1.0, 7.0),
        (3.0, 4.0, 2.0, 5.0),
        (4.0, 3.0, 2.0, 5.0),
        (1.0, 1.0, 3.0, 2.0 ** (1 / 3)),
        (0.0, 2.0, 2.91, 2.0),
        (2.0, 0.0, 0.86, 2.0),
        (0.0, 0.0, 2.0, 0.0),
        (1e-6, 1.0, 50.0, 1.0),
    ],
)
def test_norm_of_memory_and_compute(memory: float, compute: float, p: float, total: float) -> None:
    parts = smooth_roofline(memory, compute, p)
    assert float(sum(parts)) == pytest.approx(total)


def test_equal_times_share_equally_and_the_longer_takes_more() -> None:
    memory, compute = smooth_roofline(1.0, 1.0, 2.91)
    assert float(memory) == pytest.approx(float(compute))
    memory, compute = smooth_roofline(2.0, 1.0, 2.0)
    # Shares of the norm: 4 to 1.
    assert float(memory / compute) == pytest.approx(4.0)


def test_sharpness_closes_on_the_longer_time() -> None:
    total = [float(sum(smooth_roofline(3.0, 4.0, p))) for p in (1.0, 2.0, 4.0, 40.0)]
    assert total == sorted(total, reverse=True)
    assert total[-1] == pytest.approx(4.0, rel=1e-6)
