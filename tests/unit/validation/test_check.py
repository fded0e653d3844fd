"""One case against its prediction: what is compared, and what forms a curve or a sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from specsim.catalog.case import load_case
from specsim.schema.validation import CaseCheck
from specsim.validation.check import check_case

Write = Callable[..., Path]


def checked(path: Path, n_samples: int = 0) -> CaseCheck:
    return check_case(load_case(path), n_samples=n_samples)


def arms(off: float, on: float, metric: str = "output_tok_s") -> dict[str, dict[str, float]]:
    return {"baseline": {metric: off}, "speculative": {metric: on}}


def test_closed_loop_compares_throughput_before_time_per_token(write: Write) -> None:
    measured = {
        "baseline": {"output_tok_s": 100.0, "tpot_ms": 10.0},
        "speculative": {"output_tok_s": 150.0, "tpot_ms": 5.0},
    }
    (point,) = checked(write("both", [{"concurrency": 1, "measured": measured}])).points
    assert point.measured_speedup == pytest.approx(1.5)
    assert {(a.arm, a.metric) for a in point.arms} == {
        (arm, metric)
        for arm in ("baseline", "speculative")
        for metric in ("output_tok_s", "tpot_ms")
    }


def test_open_loop_compares_time_per_token(write: Write) -> None:
    measured = {
        "baseline": {"output_tok_s": 256.0, "tpot_ms": 9.0},
        "speculative": {"output_tok_s": 256.0, "tpot_ms": 6.0},
    }
    (point,) = checked(write("open", [{"request_rate": 1, "measured": measured}])).points
    assert point.measured_speedup == pytest.approx(1.5)
    assert {a.metric for a in point.arms} == {"tpot_ms"}
    assert point.predicted_speedup is not None
    assert point.predicted_speedup > 1.0


def test_a_rate_that_cannot_be_served_says_so(write: Write) -> None:
    rates = [
        {"request_rate": r, "measured": {"speedup": 1.2, "speedup_of": "tpot"}} for r in (1, 1000)
    ]
    served, beyond = checked(write("rates", rates)).points
    assert served.failed == ""
    assert beyond.failed == "unstable at this rate: off and on"
    assert beyond.predicted_speedup is None


def test_points_that_differ_in_the_load_alone_form_a_curve(write: Write) -> None:
    points = [
        {"concurrency": c, "measured": arms(100.0, on)} for c, on in ((4, 90.0), (1, 150.0))
    ] + [
        {"concurrency": 2, "override": {"workload.input_tokens": 64}, "measured": arms(100.0, 99.0)}
    ]
    (curve,) = checked(write("curve", points)).curves
    assert curve.loads == (1.0, 4.0)
    assert curve.measured_step == 1
    assert curve.predicted_step == 2


def test_a_limit_or_a_count_of_requests_that_follows_the_load_is_the_load(write: Write) -> None:
    points = [
        {
            "concurrency": c,
            "override": {"engine.max_num_seqs": c, "workload.num_requests": 4 * c},
            "measured": arms(100.0, 150.0),
        }
        for c in (1, 2, 4)
    ]
    burst = load_case(write("burst", points))
    (curve,) = check_case(burst, n_samples=0).curves
    assert curve.loads == (1.0, 2.0, 4.0)


def test_points_that_differ_in_k_alone_form_a_sweep(write: Write) -> None:
    points = [
        {
            "concurrency": 1,
            "override": {"speculation.num_speculative_tokens": k},
            "acceptance_length": length,
            "measured": arms(100.0, on),
        }
        for k, length, on in ((1, 1.7, 150.0), (3, 2.2, 180.0), (7, 2.4, 120.0))
    ]
    (sweep,) = checked(write("sweep", points)).sweeps
    assert sweep.ks == (1, 3, 7)
    assert sweep.measured == (150.0, 180.0, 120.0)
    assert sweep.share_of_best == 1.0


def test_the_band_holds_the_prediction(write: Write) -> None:
    path = write("band", [{"concurrency": 8, "measured": arms(100.0, 150.0)}])
    (point,) = checked(path, n_samples=64).points
    assert point.predicted_speedup is not None
    assert point.speedup_low is not None
    assert point.speedup_high is not None
    assert point.speedup_low < point.predicted_speedup < point.speedup_high


def test_a_suspect_case_is_not_scored(write: Write) -> None:
    path = write(
        "suspect",
        [{"concurrency": 1, "measured": arms(100.0, 50.0)}],
        engine_path_suspect=True,
    )
    assert not checked(path).scored


@pytest.mark.parametrize(
    ("on", "below"),
    [(150.0, False), (60.0, True)],
    ids=["as the hardware allows", "a step twice as long as the slow end"],
)
def test_below_the_bound(write: Write, on: float, below: bool) -> None:
    """150 tokens/s at 2.2 per step is a step of 15 ms, 60 one of 37 ms; about 8 are predicted."""
    path = write("bound", [{"concurrency": 1, "measured": arms(140.0, on)}])
    (point,) = checked(path, n_samples=64).points
    assert point.below_bound is below


@pytest.mark.parametrize(("speedup", "below"), [(0.8, False), (0.45, True)])
def test_with_an_assumed_acceptance_the_bound_is_that_nothing_is_accepted(
    write: Write, speedup: float, below: bool
) -> None:
    """A drafter that is never right costs about a quarter of a step here: 0.76 of the speed."""
    path = write(
        "assumed",
        [{"concurrency": 1, "measured": {"speedup": speedup, "speedup_of": "output_tok_s"}}],
        assumed=["speculation.acceptance"],
    )
    (point,) = checked(path, n_samples=64).points
    assert point.below_bound is below
