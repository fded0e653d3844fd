from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

from specsim.analysis.overlay import draw_factors, overlay, with_counted_acceptance
from specsim.analysis.predict import predict, predict_crossover
from specsim.analysis.resolve import resolve
from specsim.catalog.calibration import load_rules
from specsim.catalog.general import load_general
from specsim.catalog.scenario import load_scenario
from specsim.errors import UsageError
from specsim.schema.calibration import (
    Calibration,
    CalibrationAcceptance,
    CalibrationScope,
    CalibrationTraffic,
    FittedParameter,
    LeftOut,
)
from specsim.schema.results import Prediction
from specsim.schema.scenario import Scenario

NAMES = ("bandwidth", "compute", "sharpness", "host", "per_sequence_host", "speculative_host",
         "draft", "prompt")  # fmt: skip
SCOPE = CalibrationScope(
    accelerator="h100_sxm", engine="vllm", engine_version="0.33", model="llama-3.1-8b",
    weight_dtype="bf16", kv_dtype="bf16", method="eagle3",
)  # fmt: skip
COUNTED = (
    CalibrationAcceptance(num_speculative_tokens=3, length=2.4, per_position=(0.7, 0.4, 0.3)),
    CalibrationAcceptance(num_speculative_tokens=5, length=2.7, counts=900),
)


def scenario(**changes: dict[str, Any]) -> Scenario:
    parts: dict[str, Any] = {
        "target": {"model": "llama-3.1-8b"},
        "hardware": {"accelerator": "h100_sxm"},
        "engine": {"version": "0.33"},
        "speculation": {"method": "eagle3", "num_speculative_tokens": 3,
                        "acceptance": {"length": 2.4}},
        "workload": {"input_tokens": 512, "output_tokens": 256},
        "load": {"concurrency": [1, 32, 256]},
    }  # fmt: skip
    return load_scenario({key: {**part, **changes.get(key, {})} for key, part in parts.items()})


def calibration(sd: float = 0.0, **factors: float) -> Calibration:
    """Return a calibration of the scenario with these factors, 1 where none is given."""
    here = resolve(scenario())
    rules = load_rules().parameters
    return Calibration(
        created=dt.date(2026, 7, 10),
        specsim="0.1.0",
        scope=SCOPE.model_copy(update={"drafter": here.drafter and here.drafter.id}),
        traffic=CalibrationTraffic(input_tokens=(512.0, 512.0), output_tokens=(256.0, 256.0)),
        parameters=tuple(
            FittedParameter(
                name=name, scale=rules[name].scale, factor=factors.get(name, 1.0),
                low=0.5 * factors.get(name, 1.0), high=2.0 * factors.get(name, 1.0), prior_sd=0.3,
                identifiable=True,
            )
            for name in NAMES
        ),
        covariance=tuple(map(tuple, (sd**2 * np.eye(len(NAMES))).tolist())),
        run_log_sd=0.02,
        speedup_log_sd=0.015,
        left_out=LeftOut(loads=0),
    )  # fmt: skip


def widths(prediction: Prediction) -> np.ndarray[Any, Any]:
    return np.array([np.log(p.speedup_high / p.speedup_low) for p in prediction.points])


def test_factors_of_one_leave_the_prediction() -> None:
    plain, laid = predict(scenario()), predict(scenario(), calibration=calibration())
    for one, other in zip(plain.points, laid.points, strict=True):
        assert one.baseline is not None
        assert other.baseline is not None
        assert other.speedup == pytest.approx(one.speedup, rel=1e-12)
        assert other.baseline.tpot_ms == pytest.approx(one.baseline.tpot_ms, rel=1e-12)
        assert other.baseline.ttft_ms == pytest.approx(one.baseline.ttft_ms, rel=1e-12)
    assert plain.crossover is not None
    assert laid.crossover is not None
    assert laid.crossover.load == pytest.approx(plain.crossover.load)
    assert laid.warnings == plain.warnings


def test_without_a_calibration_nothing_changes() -> None:
    first = predict(scenario())
    predict(scenario(), calibration=calibration(0.1, bandwidth=0.5))
    again = predict(scenario(), calibration=None)
    assert again == first
    assert first.provenance["calibration"] is None


def test_half_the_bandwidth_is_twice_the_memory_time() -> None:
    plain, half = predict(scenario()), predict(scenario(), calibration=calibration(bandwidth=0.5))
    one, other = plain.points[0].baseline, half.points[0].baseline
    assert one is not None
    assert other is not None
    assert one.bound == "memory"
    assert other.parts_ms["memory"] == pytest.approx(2.0 * one.parts_ms["memory"], rel=0.02)
    assert other.step_ms - one.step_ms == pytest.approx(one.parts_ms["memory"], rel=0.05)


@pytest.mark.parametrize(
    ("name", "arm", "load"),
    [("compute", "baseline", 2), ("host", "baseline", 0), ("per_sequence_host", "baseline", 2),
     ("speculative_host", "speculative", 0), ("draft", "speculative", 0),
     ("prompt", "baseline", 1)],
)  # fmt: skip
def test_each_factor_slows_what_it_is_of(name: str, arm: str, load: int) -> None:
    slower = {"compute": 0.5}.get(name, 4.0)
    plain = predict(scenario()).points[load]
    laid = predict(scenario(), calibration=calibration(**{name: slower})).points[load]
    assert getattr(laid, arm).tpot_ms > 1.01 * getattr(plain, arm).tpot_ms
    if arm == "speculative":
        assert laid.baseline == plain.baseline


def test_inside_its_scope_the_band_is_narrower() -> None:
    shipped = predict(scenario())
    laid = predict(scenario(), calibration=calibration(0.03))
    assert np.all(widths(laid) < 0.7 * widths(shipped))
    assert np.all(widths(predict(scenario(), calibration=calibration(0.1))) > widths(laid))
    provenance = laid.provenance["calibration"]
    assert provenance is not None
    assert (provenance["fitted"], provenance["widened"]) == (list(NAMES), False)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hardware": {"accelerator": "h200_sxm"}}, "accelerator h100_sxm, here h200_sxm"),
        ({"target": {"model": "qwen3-8b"}}, "model llama-3.1-8b, here qwen3-8b"),
        ({"engine": {"version": "0.29"}}, "engine_version 0.33, here 0.29"),
        ({"hardware": {"tensor_parallel_size": 2}}, "tensor_parallel_size 1, here 2"),
    ],
)  # fmt: skip
def test_outside_its_scope_it_warns_and_widens(changes: dict[str, Any], said: str) -> None:
    inside = predict(scenario(), calibration=calibration(0.03))
    other = predict(scenario(**changes), calibration=calibration(0.03))
    assert not any("fitted on another deployment" in text for text in inside.warnings)
    (text,) = [text for text in other.warnings if "fitted on another deployment" in text]
    assert said in text
    assert np.all(widths(other) > 1.1 * widths(inside))
    assert other.provenance["calibration"]["widened"]


def test_outside_its_scope_it_shrinks_towards_the_shipped_constants() -> None:
    """By the share that the scope is off: all of it on another accelerator."""
    made = calibration(0.03, bandwidth=0.5, host=5.0)
    inside = overlay(resolve(scenario()), made).point().scales
    assert (inside["bandwidth"], inside["host"]) == pytest.approx((0.5, 5.0))
    version = scenario(engine={"version": "0.29"})
    other = overlay(resolve(version), made)
    assert other.widening == 0.25
    assert other.point().scales["bandwidth"] == pytest.approx(0.5**0.75)
    assert other.point().scales["host"] == pytest.approx(1.0 + 0.75 * 4.0)
    device = scenario(hardware={"accelerator": "h200_sxm"})
    elsewhere = overlay(resolve(device), made)
    assert elsewhere.widening == 1.0
    assert set(elsewhere.point().scales.values()) == {1.0}
    plain, laid = predict(device), predict(device, calibration=made)
    for one, two in zip(plain.points, laid.points, strict=True):
        assert two.speedup == pytest.approx(one.speedup)
        assert one.baseline is not None
        assert two.baseline is not None
        assert two.baseline.tpot_ms == pytest.approx(one.baseline.tpot_ms)


def test_outside_its_scope_the_spread_of_the_prior_comes_back() -> None:
    made = calibration(0.03)

    def spread(**changes: dict[str, Any]) -> float:
        drawn = overlay(resolve(scenario(**changes)), made).sampled(4000, 1).scales["bandwidth"]
        return float(np.std(np.log(drawn)))

    shares = {0.0: {}, 0.25: {"engine": {"version": "0.29"}},
              1.0: {"hardware": {"accelerator": "h200_sxm"}}}  # fmt: skip
    for share, changes in shares.items():
        want = np.sqrt((1.0 - share) * 0.03**2 + share * 0.3**2)
        assert spread(**changes) == pytest.approx(want, rel=0.05)


def test_outside_its_scope_the_spread_of_a_speedup_is_at_least_the_shipped_one() -> None:
    shipped = load_general().discrepancy_measured.value
    version = resolve(scenario(engine={"version": "0.29"}))
    for own in (0.01, 3.0 * shipped):
        made = calibration(0.03).model_copy(update={"speedup_log_sd": own})
        assert overlay(resolve(scenario()), made).sampled(8, 1).discrepancy == own
        assert overlay(version, made).sampled(8, 1).discrepancy == max(own, shipped)


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({}, None),
        ({"input_tokens": 1024, "output_tokens": 128}, None),  # a factor of two is alike
        ({"input_tokens": 1100}, "input_tokens 1100 is far from the calibration's runs (512 to"),
        ({"input_tokens": 200}, "input_tokens 200 is far from"),
        ({"output_tokens": 1000}, "output_tokens 1000 is far from the calibration's runs (256 to"),
    ],
)  # fmt: skip
def test_lengths_far_from_the_runs_are_warned_of(
    workload: dict[str, Any], said: str | None
) -> None:
    laid = predict(scenario(workload=workload), calibration=calibration())
    found = [text for text in laid.warnings if "far from the calibration's runs" in text]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_a_steady_prediction_of_lockstep_runs_is_warned_of() -> None:
    made = calibration()
    lockstep = made.model_copy(
        update={"traffic": made.traffic.model_copy(update={"lockstep": ("off", "on")})}
    )

    def warned(laid: Calibration, **changes: dict[str, Any]) -> list[str]:
        asked = scenario(**changes)
        notes = predict(asked, calibration=laid).warnings
        return [text for text in notes if "went in lockstep" in text]

    (text,) = warned(lockstep)
    assert "runs with speculation off and on went in lockstep" in text
    assert warned(lockstep, workload={"arrival": "burst"}) == []
    assert warned(made) == []


def test_further_outside_is_wider() -> None:
    def width(**changes: dict[str, Any]) -> float:
        return float(widths(predict(scenario(**changes), calibration=calibration(0.03)))[0])

    version = {"engine": {"version": "0.29"}}
    both = {**version, "hardware": {"accelerator": "h200_sxm"}}
    assert width() < width(**version) < width(**both)


def test_an_arm_that_is_off_needs_no_drafter_of_the_calibration() -> None:
    off = scenario(speculation={"method": "none", "num_speculative_tokens": None,
                                "acceptance": None})  # fmt: skip
    laid = predict(off, calibration=calibration(0.03, bandwidth=0.5))
    assert not any("another deployment" in text for text in laid.warnings)
    one, other = predict(off).points[0].baseline, laid.points[0].baseline
    assert one is not None
    assert other is not None
    assert other.tpot_ms > 1.5 * one.tpot_ms


@pytest.mark.parametrize(
    ("key", "name"), [("host_ms", "host"), ("speculative_host_ms", "speculative_host")]
)
def test_a_time_set_by_hand_stands_and_is_said(key: str, name: str) -> None:
    by_hand = scenario(engine={key: 2.0})
    laid = predict(by_hand, calibration=calibration(**{name: 50.0}))
    assert laid.points[0].speedup == pytest.approx(predict(by_hand).points[0].speedup)
    (text,) = [text for text in laid.warnings if f"engine.{key}" in text]
    assert f"what was calibrated as {name} is not used" in text


def filled(k: int | None, *, acceptance: dict[str, Any] | None = None) -> Scenario:
    asked = scenario(speculation={"num_speculative_tokens": k, "acceptance": acceptance})
    return with_counted_acceptance(asked, COUNTED)[0]


def test_acceptance_that_the_scenario_gives_stands() -> None:
    given = {"rate": 0.9}
    assert filled(3, acceptance=given).speculation.acceptance == scenario(
        speculation={"acceptance": given}
    ).speculation.acceptance  # fmt: skip


@pytest.mark.parametrize(
    ("k", "k_then", "per_position", "length"),
    [
        (3, 3, (0.7, 0.4, 0.3), None),  # the same k
        (2, 2, (0.7, 0.4, 0.3), None),  # a part of the nearest longer one
        (4, 4, None, 2.7),
        (8, 8, None, 2.7),  # the longest that was counted
    ],
)
def test_counted_acceptance_fills_in(
    k: int, k_then: int, per_position: tuple[float, ...] | None, length: float | None
) -> None:
    got = filled(k).speculation
    assert got.num_speculative_tokens == k_then
    assert got.acceptance is not None
    assert got.acceptance.per_position == per_position
    assert got.acceptance.length == length
    assert got.acceptance.measured_at_k == (5 if length else None)


def test_a_scenario_without_k_takes_the_measured_one() -> None:
    asked = scenario(speculation={"num_speculative_tokens": None, "acceptance": None})
    got = with_counted_acceptance(asked, COUNTED[1:])[0].speculation
    assert got.num_speculative_tokens == 5
    assert got.acceptance is not None
    assert got.acceptance.counts == 900


@pytest.mark.parametrize(("k", "positions"), [(3, (0.7, 0.4, 0.3)), (2, (0.7, 0.4)), (1, (0.7,))])
def test_a_prediction_takes_the_counted_acceptance(k: int, positions: tuple[float, ...]) -> None:
    made = calibration().model_copy(update={"acceptance": COUNTED[:1]})
    asked = scenario(speculation={"num_speculative_tokens": k, "acceptance": None})
    got = predict(asked, calibration=made)
    assert got.acceptance is not None
    assert got.acceptance.per_position == pytest.approx(positions)
    assert got.acceptance.acceptance_length == pytest.approx(1.0 + sum(positions))
    assert any("(counted in the measured runs)" in text for text in got.defaults)


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [
        ({}, True),
        ({"hardware": {"accelerator": "h200_sxm"}}, True),  # acceptance is not of the machine
        ({"target": {"model": "meta-llama/Llama-3.1-8B-Instruct"}}, True),  # by another name
        ({"speculation": {"drafter": "eagle3-llama3.1-8b"}}, True),
        ({"speculation": {"method": "ngram"}}, False),
        ({"target": {"model": "qwen3-8b"}}, False),
    ],
)
def test_counted_acceptance_is_of_its_model_and_method(
    changes: dict[str, Any], is_taken: bool
) -> None:
    made = calibration().model_copy(update={"acceptance": COUNTED[:1]})
    own = {"acceptance": None, **changes.get("speculation", {})}
    asked = scenario(**{**changes, "speculation": own})
    if not is_taken:
        with pytest.raises(UsageError, match="acceptance is not given"):
            predict(asked, calibration=made)
        return
    got = predict(asked, calibration=made)
    assert any("(counted in the measured runs)" in text for text in got.defaults)


def test_counted_acceptance_is_not_of_another_drafter() -> None:
    made = calibration().model_copy(update={"acceptance": COUNTED[:1]})
    scope = made.scope.model_copy(update={"drafter": "another"})
    made = made.model_copy(update={"scope": scope})
    named = {"acceptance": None, "drafter": "eagle3-llama3.1-8b"}
    with pytest.raises(UsageError, match="acceptance is not given"):
        predict(scenario(speculation=named), calibration=made)
    unnamed = scenario(speculation={"acceptance": None})
    assert predict(unnamed, calibration=made).acceptance is not None


def test_a_share_of_steps_that_draft_comes_with_the_counts() -> None:
    """A length given without positions is over all steps; counted ones are of drafting steps."""
    one = CalibrationAcceptance(num_speculative_tokens=3, length=3.0, proposal_rate=0.4)
    asked = scenario(
        speculation={"method": "ngram", "num_speculative_tokens": 3, "acceptance": None}
    )
    got = with_counted_acceptance(asked, [one])[0].speculation.acceptance
    assert got is not None
    assert (got.length, got.proposal_rate) == (pytest.approx(1.0 + 0.4 * 2.0), 0.4)
    by_position = one.model_copy(update={"per_position": (0.8, 0.7, 0.5)})
    got = with_counted_acceptance(asked, [by_position])[0].speculation.acceptance
    assert got is not None
    assert (got.per_position, got.length, got.proposal_rate) == ((0.8, 0.7, 0.5), None, 0.4)


def test_a_longer_k_is_carried_on_from_the_counted_one() -> None:
    made = calibration().model_copy(update={"acceptance": COUNTED[:1]})
    asked = scenario(speculation={"num_speculative_tokens": 6, "acceptance": None})
    got = predict(asked, calibration=made)
    assert got.acceptance is not None
    assert len(got.acceptance.per_position) == 6
    assert got.acceptance.per_position[:3] == pytest.approx((0.7, 0.4, 0.3))
    assert 2.4 < got.acceptance.acceptance_length < 2.4 + 3 * 0.3


def test_the_crossover_takes_the_calibration_too() -> None:
    made = calibration(0.03, compute=0.6)
    whole = predict(scenario(), calibration=made).crossover
    assert predict_crossover(scenario(), calibration=made) == whole
    plain = predict(scenario()).crossover
    assert whole is not None
    assert plain is not None
    assert whole.load is not None
    assert plain.load is None or whole.load < plain.load


def test_drawn_factors_have_the_covariance() -> None:
    covariance = np.array([[0.04, -0.015], [-0.015, 0.01]])
    log, linear = draw_factors(
        ["log", "linear"], np.array([np.log(2.0), 4.0]), covariance, 40000, 7
    )
    drawn = np.stack([np.log(log / 2.0), linear - 5.0])
    assert np.cov(drawn) == pytest.approx(covariance, rel=0.05)
    assert np.mean(drawn, axis=1) == pytest.approx([0.0, 0.0], abs=0.01)
    # A singular covariance is no error.
    same = draw_factors(["log", "log"], np.zeros(2), np.ones((2, 2)), 100, 7)
    assert same[0] == pytest.approx(same[1])


def test_drawn_host_times_are_rejected_below_none_and_not_cut() -> None:
    """A bandwidth that a host time is traded against goes along with what is left of it."""
    covariance = np.array([[0.01, 0.09], [0.09, 1.0]])
    log, linear = draw_factors(["log", "linear"], np.array([0.0, -1.0]), covariance, 4000, 7)
    assert log.shape == linear.shape == (4000,)
    assert np.min(linear) > 0.0
    assert np.mean(linear) == pytest.approx(np.sqrt(2.0 / np.pi), rel=0.05)
    assert np.mean(np.log(log)) == pytest.approx(0.09 * np.sqrt(2.0 / np.pi), rel=0.05)


def test_draws_fall_back_on_none_where_nothing_else_is_possible() -> None:
    (drawn,) = draw_factors(["linear"], np.array([-9.0]), np.array([[0.01]]), 100, 7)
    assert drawn.shape == (100,)
    assert np.all(drawn == 0.0)
