from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from specsim.calibration.acceptance import counted_acceptance
from specsim.schema.measurement import MeasuredAcceptance, Measurement

Row = Callable[..., Measurement]
Accepted = Callable[..., MeasuredAcceptance]


def test_runs_of_a_k_are_pooled_by_their_drafts(make_row: Row, accepted: Accepted) -> None:
    (got,) = counted_acceptance(
        [
            make_row("on", acceptance=accepted(2.0, 100, (0.6, 0.3, 0.1))),
            make_row("on", acceptance=accepted(3.0, 300, (0.8, 0.7, 0.5))),
            make_row("off"),
        ]
    )
    assert (got.num_speculative_tokens, got.counts) == (3, 400)
    assert got.length == pytest.approx(2.75)
    assert got.per_position == pytest.approx((0.75, 0.6, 0.4))


def test_a_run_that_counted_no_drafts_weighs_nothing_beside_one_that_did(
    make_row: Row, accepted: Accepted
) -> None:
    bare = make_row("on", acceptance=accepted(2.0))
    (got,) = counted_acceptance([bare, make_row("on", acceptance=accepted(3.0, 50))])
    assert (got.length, got.counts, got.per_position) == (3.0, 50, None)
    (got,) = counted_acceptance([bare, make_row("on", acceptance=accepted(3.0))])
    assert (got.length, got.counts) == (2.5, None)


def test_each_k_stands_alone(make_row: Row, accepted: Accepted) -> None:
    rows = [
        make_row("on", num_speculative_tokens=k, acceptance=accepted(length, 10))
        for k, length in ((5, 2.9), (1, 1.7))
    ]
    got = [(a.num_speculative_tokens, a.length) for a in counted_acceptance(rows)]
    assert got == [(1, 1.7), (5, 2.9)]


def test_a_log_is_used_only_where_no_run_of_its_k_counts(make_row: Row, accepted: Accepted) -> None:
    def log(k: int) -> Measurement:
        return make_row("on", source="log", concurrency=None, num_speculative_tokens=k,
                        acceptance=accepted(1.5, 9000))  # fmt: skip

    run = make_row("on", acceptance=accepted(2.5, 10))
    assert [a.length for a in counted_acceptance([log(3), run])] == [2.5]
    assert [a.length for a in counted_acceptance([log(1), run])] == [1.5, 2.5]
    for silent in (None, accepted(None)):
        row = make_row("on", acceptance=silent)
        assert [a.length for a in counted_acceptance([log(3), row])] == [1.5]


def test_what_is_pooled_is_a_possible_acceptance(make_row: Row, accepted: Accepted) -> None:
    (got,) = counted_acceptance([make_row("on", acceptance=accepted(4.3, 10, (0.5, 0.52, 0.2)))])
    assert got.length == 4.0  # three drafts and the bonus token are all there is
    assert got.per_position == (0.5, 0.5, 0.2)  # a later position never beats an earlier one
    (got,) = counted_acceptance([make_row("on", acceptance=accepted(2.0, 10, (0.5, 0.4)))])
    assert got.per_position is None  # of another k


def test_nothing_counted_is_nothing(make_row: Row) -> None:
    assert counted_acceptance([make_row(), make_row("on", acceptance=None)]) == ()


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_a_method_that_drafts_on_a_match_has_a_share_of_steps(
    make_row: Row, accepted: Accepted, method: str
) -> None:
    """Each run: 40 answers of 255 tokens after the first, some of them from drafts."""
    some = replace(accepted(2.5, 1700), accepted_tokens=2550)
    more = replace(accepted(2.0, 4000), accepted_tokens=4000)
    rows = [make_row("on", method=method, acceptance=a) for a in (some, more)]
    (got,) = counted_acceptance(rows, method=method)
    steps = (40 * 255 - 2550) + (40 * 255 - 4000)
    assert got.proposal_rate == pytest.approx((1700 + 4000) / steps)
    assert got.length == pytest.approx((1700 * 2.5 + 4000 * 2.0) / 5700)  # of steps that drafted
    (always,) = counted_acceptance(rows, method="eagle3")
    assert always.proposal_rate is None


def test_a_share_of_steps_needs_its_counts(make_row: Row, accepted: Accepted) -> None:
    def rate(**changes: object) -> float | None:
        counted = replace(accepted(2.5, 1700), accepted_tokens=2550)
        row = make_row("on", **{"method": "ngram", "acceptance": counted, **changes})
        (got,) = counted_acceptance([row], method="ngram")
        return got.proposal_rate

    assert rate() is not None
    assert rate(acceptance=accepted(2.5, 1700)) is None
    assert rate(completed=None) is None
    assert rate(output_tokens=None) is None
    assert rate(acceptance=replace(accepted(2.5, 9000), accepted_tokens=2550)) == 1.0
