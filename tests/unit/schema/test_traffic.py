"""Traffic: one load however it is given, and contradictions refused."""

from __future__ import annotations

from typing import Any

import pytest

from specsim.errors import InputError
from specsim.schema.base import parse
from specsim.schema.traffic import PEAK_TO_AVG, Traffic


def traffic(**values: Any) -> Traffic:
    return parse(Traffic, values, what="traffic")


def test_average_and_ratio_give_the_peak() -> None:
    t = traffic(avg_qps=40, peak_to_avg=3)
    assert (t.avg_rate, t.peak_rate) == (40, 120)
    assert t.monthly_requests == pytest.approx(40 * 30.4 * 24 * 3600)


def test_a_month_is_averaged_over_its_hours_of_operation() -> None:
    # 22 days of 10 hours are 792,000 s.
    t = traffic(requests_per_month=7_920_000, hours_per_day=10, days_per_month=22, peak_qps=25)
    assert t.avg_rate == pytest.approx(10)
    assert t.peak_rate == 25
    assert t.monthly_requests == pytest.approx(7_920_000)


def test_a_peak_alone_implies_the_average() -> None:
    assert traffic(peak_qps=50).avg_rate == pytest.approx(50 / PEAK_TO_AVG)
    assert traffic(peak_qps=50, peak_to_avg=2).avg_rate == 25


def test_growth_is_compound_and_of_everything() -> None:
    t = traffic(avg_qps=10, peak_qps=20, growth_pct=50, growth_years=2)
    assert (t.avg_rate, t.peak_rate) == (22.5, 45.0)
    assert traffic(avg_qps=10, growth_pct=50).avg_rate == pytest.approx(15)


def test_what_was_assumed_is_said_and_nothing_else() -> None:
    told = " ".join(traffic(avg_qps=10).assumptions)
    for word in ("peak_to_avg = 2.5", "target_utilization = 0.7", "spares = 1", "growth_pct = 0"):
        assert word in told
    given = traffic(
        avg_qps=10, peak_qps=20, growth_pct=0, target_utilization=0.7, spares=1, hours_per_day=24
    )
    assert given.assumptions == ()
    assert any("peak_to_avg" in text for text in traffic(peak_qps=20).assumptions)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "no load"),
        ({"peak_to_avg": 2}, "no load"),
        ({"avg_qps": 1, "requests_per_month": 1e6}, "give one of them"),
        ({"avg_qps": 10, "peak_qps": 9}, "below the average"),
        ({"requests_per_month": 26_266_600, "peak_qps": 9}, r"below the average \(10 requests/s"),
        ({"avg_qps": 10, "peak_qps": 20, "peak_to_avg": 2}, "drop one"),
        ({"avg_qps": 10, "growth_years": 3}, "growth_pct"),
        ({"avg_qps": 0}, "greater than or equal to 0.000001"),
        ({"avg_qps": 1e-300}, "greater than or equal to 0.000001"),
        ({"peak_qps": 1e-7}, "greater than or equal to 0.000001"),
        ({"peak_qps": 1e300}, "less than or equal to 1000000000"),
        ({"requests_per_month": 1}, r"the average comes to 3.81e-07 requests/s"),
        (
            {"requests_per_month": 1e15, "hours_per_day": 0.1, "days_per_month": 0.1},
            "average comes",
        ),
        ({"avg_qps": 1e9, "peak_to_avg": 2}, r"the peak comes to 2e\+09 requests/s"),
        ({"avg_qps": 1, "growth_pct": -99.9, "growth_years": 20}, "the average comes to 1e-60"),
        ({"avg_qps": 10, "target_utilization": 1e-300}, "greater than or equal to 0.01"),
        ({"avg_qps": 10, "hours_per_day": 1e-300}, "greater than or equal to 0.1"),
        ({"avg_qps": 10, "days_per_month": 1e-300}, "greater than or equal to 0.1"),
        ({"avg_qps": 10, "peak_to_avg": 0.5}, "greater than or equal to 1"),
        ({"avg_qps": 10, "target_utilization": 1.2}, "less than or equal to 1"),
        ({"avg_qps": 10, "hours_per_day": 25}, "less than or equal to 24"),
        ({"avg_qps": 10, "spares": -1}, "greater than or equal to 0"),
        ({"avg_qps": float("inf")}, "finite"),
    ],
)
def test_contradictions_are_refused_in_one_line(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        traffic(**values)
    assert "\n" not in str(caught.value)
