"""Directions: how a measurement is read, and what counts."""

from __future__ import annotations

from typing import Any

import pytest

from specsim.schema.base import parse
from specsim.schema.case import Case, CasePoint
from specsim.validation.signs import (
    direction,
    measured_direction,
    measured_speedup,
    share_right,
    signs,
)


def point(measured: dict[str, Any], **load: float) -> CasePoint:
    data = {"measured": measured, **(load or {"concurrency": 1})}
    return parse(CasePoint, data, what="point")


BOTH = {
    "baseline": {"output_tok_s": 100.0, "tpot_ms": 10.0},
    "speculative": {"output_tok_s": 150.0, "tpot_ms": 5.0},
    "speedup": 3.0,
    "speedup_of": "output_tok_s",
}


def test_closed_loop_reads_tokens_per_second_first() -> None:
    assert measured_speedup(point(BOTH)) == pytest.approx(1.5)


def test_open_loop_reads_time_per_token() -> None:
    assert measured_speedup(point(BOTH, request_rate=2.0)) == pytest.approx(2.0)


def test_the_stated_ratio_is_the_last_resort() -> None:
    one_arm = {**BOTH, "baseline": {"ttft_ms": 50.0}}
    assert measured_speedup(point(one_arm)) == 3.0
    assert measured_speedup(point({"baseline": {"tpot_ms": 7.0}})) is None


@pytest.mark.parametrize(
    ("speedup", "word"),
    [(0.5, "slower"), (0.95, "slower"), (0.96, "neutral"), (1.04, "neutral"), (1.05, "faster")],
)
def test_words(speedup: float, word: str) -> None:
    assert direction(speedup) == word


def test_a_stated_direction_goes_before_the_figures() -> None:
    assert measured_direction(point({**BOTH, "direction": "slower"})) == "slower"
    assert measured_direction(point({"direction": "faster"})) == "faster"
    assert measured_direction(point({"speculative": {"tpot_ms": 5.0}})) is None


def case(**changes: Any) -> Case:
    data = {
        "case": "test/llama",
        "source": {"title": "t", "url": "u", "date": "2026", "license": "facts only"},
        "grade": "A",
        "scenario": {
            "target": {"model": "llama-3.1-8b"},
            "hardware": {"accelerator": "h100_sxm"},
            "engine": {"name": "vllm", "version": "0.33"},
            "speculation": {
                "method": "eagle3",
                "num_speculative_tokens": 3,
                "acceptance": {"length": 2.6},
            },
        },
        "points": [
            {"concurrency": 1, "measured": {"direction": "faster"}},
            {"concurrency": 1, "measured": {"direction": "slower"}},
            {"concurrency": 1, "measured": {"direction": "neutral"}},
            {
                "concurrency": 1,
                "override": {"target.model": "no-such-model"},
                "measured": {"direction": "faster"},
            },
        ],
        **changes,
    }
    return parse(Case, data, what="case")


def test_right_wrong_neutral_and_not_runnable() -> None:
    right, wrong, neutral, failed = signs(case())
    assert (right.right, wrong.right, neutral.right, failed.right) == (True, False, None, None)
    assert right.predicted_speedup is not None
    assert right.low is not None
    assert right.high is not None
    assert right.low <= right.predicted_speedup <= right.high
    assert right.predicted_speedup > 1.5
    assert "no-such-model" in failed.reason
    assert failed.predicted_speedup is None
    assert share_right([right, wrong, neutral, failed]) == (1, 2)


def test_a_suspect_path_is_reported_and_not_counted() -> None:
    compared = signs(case(engine_path_suspect=True))
    assert [sign.right for sign in compared] == [None] * 4
    assert compared[0].predicted_speedup is not None


def test_overload_compares_the_largest_rates() -> None:
    overloaded = [{"request_rate": 500.0, "measured": {"direction": "slower"}}]
    (sign,) = signs(case(points=overloaded))
    assert sign.predicted_speedup is not None
    assert 0.3 < sign.predicted_speedup < 3.0
    assert "largest stable rate" in sign.reason
