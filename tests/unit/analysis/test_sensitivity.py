from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.analysis.constants import Z90
from specsim.analysis.curves import pair
from specsim.analysis.predict import predict
from specsim.analysis.resolve import resolve
from specsim.analysis.sensitivity import sensitivity
from specsim.analysis.sensitivity_factors import _with_sum
from specsim.analysis.serving import open_loop
from specsim.catalog.scenario import load_scenario
from specsim.errors import UsageError
from specsim.schema.calibration import (
    Calibration,
    CalibrationScope,
    CalibrationTraffic,
    FittedParameter,
    LeftOut,
)
from specsim.schema.results import as_json
from specsim.schema.scenario import Scenario
from specsim.schema.sensitivity import Sensitivity
from specsim.schema.traffic import Traffic

BASE: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "engine": {"name": "vllm", "version": "0.33", "max_num_seqs": 512},
    "speculation": {
        "method": "eagle3", "num_speculative_tokens": 3, "drafter": "eagle3-llama3.1-8b",
        "acceptance": {"length": 2.2},
    },
    "load": {"concurrency": (1, 16, 128, 512)},
}  # fmt: skip
# Peak 100 requests/s.
TRAFFIC = Traffic(avg_qps=40)
CAPACITY = (20.0, 10.0)
OFF_ONLY = {"speculation": {"method": "none"}}


def scenario(overrides: dict[str, Any] | None = None) -> Scenario:
    return load_scenario(BASE, overrides=overrides or {})


def by_factor(overrides: dict[str, Any] | None = None, **given: Any) -> dict[str, Sensitivity]:
    return {s.factor: s for s in sensitivity(scenario(overrides), **given)}


@pytest.fixture(scope="module")
def found() -> dict[str, Sensitivity]:
    return by_factor(traffic=TRAFFIC, capacity_qps=CAPACITY, usd_per_gpu_hour=3.0)


# What is moved


def test_factors_of_a_tornado(found: dict[str, Sensitivity]) -> None:
    assert set(found) == {
        "acceptance_length", "output_tokens", "input_tokens", "context", "host_ms",
        "peak_to_avg", "usd_per_gpu_hour",
    }  # fmt: skip
    for s in found.values():
        assert s.low <= s.base <= s.high
        assert s.why
        assert s.load == 128.0
        json.dumps(as_json(s), allow_nan=False)


def test_values_tried(found: dict[str, Sensitivity]) -> None:
    for name, base in (("output_tokens", 256), ("input_tokens", 512), ("context", 768)):
        s = found[name]
        assert (s.low, s.base, s.high) == pytest.approx((0.8 * base, base, 1.2 * base))
        assert "+-20 % assumed" in s.why
    # vLLM 0.33's own constant.
    host = resolve(scenario()).engine.host_ms
    s = found["host_ms"]
    assert (s.low, s.base, s.high) == (host.low, host.value, host.high)


def test_the_base_is_what_predict_says(found: dict[str, Sensitivity]) -> None:
    said = predict(scenario())
    point = said.points[2]
    assert point.concurrency == 128.0
    assert said.crossover is not None
    for s in found.values():
        assert s.at_base.speedup == pytest.approx(point.speedup, rel=1e-12)
        assert s.at_base.crossover == said.crossover.load
        assert s.at_base.crossover_state == said.crossover.state


@pytest.mark.parametrize("name", ["output_tokens", "input_tokens"])
def test_a_moved_length_is_that_of_another_scenario(
    found: dict[str, Sensitivity], name: str
) -> None:
    s = found[name]
    said = predict(scenario({f"workload.{name}": s.high}))
    assert said.crossover is not None
    assert s.at_high.speedup == pytest.approx(said.points[2].speedup)
    assert s.at_high.crossover == pytest.approx(said.crossover.load)


def test_context_moves_both_lengths(found: dict[str, Sensitivity]) -> None:
    both = {"workload.input_tokens": 0.8 * 512, "workload.output_tokens": 0.8 * 256}
    assert found["context"].at_low.speedup == pytest.approx(
        predict(scenario(both)).points[2].speedup
    )


def test_a_moved_host_time_is_that_of_another_scenario(found: dict[str, Sensitivity]) -> None:
    s = found["host_ms"]
    said = predict(scenario({"engine.host_ms": s.high}))
    assert s.at_high.speedup == pytest.approx(said.points[2].speedup)


def test_a_given_host_time_moves_by_a_share() -> None:
    s = by_factor({"engine.host_ms": 2.0})["host_ms"]
    assert (s.low, s.base, s.high) == pytest.approx((1.6, 2.0, 2.4))
    said = predict(scenario({"engine.host_ms": s.low}))
    assert s.at_low.speedup == pytest.approx(said.points[2].speedup)


def test_host_times_of_two_schedulers_move_by_one_factor() -> None:
    suffix = {
        "speculation.method": "suffix",
        "speculation.drafter": None,
        "speculation.acceptance": {"length": 1.5},
    }
    deployment = resolve(scenario(suffix))
    engine = deployment.engine
    assert deployment.async_scheduling
    assert not deployment.speculative_async_scheduling
    s = by_factor(suffix)["host_ms"]
    assert s.base == engine.host_ms.value
    assert "by the same factor" in s.why
    # Off at 0.03 ms, on at 0.3 of its own.
    factor = s.low / s.base
    off = predict(scenario({**suffix, "engine.host_ms": s.low})).points[2].baseline
    on = predict(scenario({**suffix, "engine.host_ms": engine.sync_host_ms.value * factor})).points[
        2
    ]
    assert off is not None
    assert on.speculative is not None
    assert s.at_low.speedup == pytest.approx(on.speculative.output_tok_s / off.output_tok_s)


def test_lengths_stay_within_the_longest_context_and_above_one_token() -> None:
    tight = {"engine.max_model_len": 800, "workload.output_tokens": 256}
    s = by_factor(tight)
    # 800 - 256 and 800 - 512.
    assert s["input_tokens"].high == 544.0
    assert s["output_tokens"].high == 288.0
    assert s["context"].high == 800.0
    assert "max_model_len 800" in s["context"].why
    short = by_factor({"workload.output_tokens": 1})
    assert short["output_tokens"].low == 1.0
    assert short["context"].low == short["context"].base


def test_cached_prompts_keep_their_share() -> None:
    cached = {"workload.input_tokens": 500, "workload.cached_prompt_tokens": 500}
    s = by_factor(cached)["input_tokens"]
    less = {"workload.input_tokens": 400, "workload.cached_prompt_tokens": 400}
    assert s.at_low.speedup == pytest.approx(predict(scenario(less)).points[2].speedup)


# Acceptance


def test_acceptance_moves_by_its_sampling_error() -> None:
    given = {"speculation.acceptance": {"length": 2.2, "counts": 400}}
    s = by_factor(given)["acceptance_length"]
    # 1.2 accepted of 3: sd of a mean of 400 drafts is sqrt(1.2 x 1.8 / 400) at most.
    sd = math.sqrt(1.2 * 1.8 / 400) / 1.2
    assert s.base == pytest.approx(2.2)
    assert s.low == pytest.approx(1 + 1.2 * math.exp(-Z90 * sd), rel=1e-3)
    assert s.high == pytest.approx(1 + 1.2 * math.exp(Z90 * sd), rel=1e-3)
    assert "400 drafts" in s.why


def test_acceptance_without_counts_moves_as_far_as_lengths_do(
    found: dict[str, Sensitivity],
) -> None:
    s = found["acceptance_length"]
    # 1.2 accepted tokens: 20 % and the spread of repeats, in quadrature.
    spread = 1.2 * (math.exp(0.03 * Z90) - 1.0)
    assert s.high == pytest.approx(2.2 + math.hypot(0.24, spread), rel=1e-3)
    assert "20 % assumed" in s.why


def test_acceptance_carried_to_another_k_is_less_certain(found: dict[str, Sensitivity]) -> None:
    given = {"speculation.acceptance": {"length": 1.7, "measured_at_k": 1}}
    s = by_factor(given)["acceptance_length"]
    here = found["acceptance_length"]
    assert s.high / s.low > 1.5 * here.high / here.low or s.high - s.low > here.high - here.low
    assert "decay" in s.why


def test_no_more_is_accepted_than_is_drafted() -> None:
    s = by_factor({"speculation.acceptance": {"length": 4}})["acceptance_length"]
    assert (s.base, s.high) == pytest.approx((4.0, 4.0))
    assert s.at_high.speedup == pytest.approx(s.at_base.speedup)
    assert s.low < 3.95


def test_nothing_accepted_has_nothing_to_move() -> None:
    s = by_factor({"speculation.acceptance": {"length": 1}})["acceptance_length"]
    assert (s.low, s.high) == pytest.approx((1.0, 1.0))
    assert "nothing to move" in s.why


@pytest.mark.parametrize("load", [{"load.concurrency": (64,)}, {"load.request_rate": (5,)}])
@pytest.mark.parametrize("length", [1.7, 2.2, 2.8])
def test_more_acceptance_never_pays_less(load: dict[str, Any], length: float) -> None:
    given = {**load, "speculation.acceptance": {"length": length, "counts": 100}}
    s = by_factor(given)["acceptance_length"]
    points = (s.at_low, s.at_base, s.at_high)
    # A load below which nothing pays is 0, one that is never reached infinite.
    crossovers = [
        p.crossover if p.crossover is not None else math.inf if p.crossover_state == "always" else 0
        for p in points
    ]
    assert crossovers == sorted(crossovers)
    speedups = [p.speedup for p in points]
    assert None not in speedups
    assert speedups == sorted(speedups, key=lambda x: x or 0.0)
    assert speedups[0] != speedups[2]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.05, 0.95), min_size=1, max_size=6),
    st.floats(0.0, 1.0),
)
def test_positions_have_the_sum_and_do_not_rise(rates: list[float], share: float) -> None:
    p = np.cumprod(np.array(rates))
    moved = _with_sum(p, share * p.size)
    assert np.sum(moved) == pytest.approx(share * p.size)
    assert np.all((moved >= -1e-12) & (moved <= 1.0 + 1e-12))
    assert np.all(np.diff(moved) <= 1e-12)


# Price and fleet


def test_price_changes_dollars_and_nothing_else(found: dict[str, Sensitivity]) -> None:
    s = found["usd_per_gpu_hour"]
    assert (s.low, s.base, s.high) == pytest.approx((2.4, 3.0, 3.6))
    tok_s = predict(scenario()).points[2].baseline
    assert tok_s is not None
    assert s.at_base.usd_per_mtok_off == pytest.approx(3.0 / (3600 * tok_s.output_tok_s) * 1e6)
    base = dataclasses.asdict(s.at_base)
    high = dataclasses.asdict(s.at_high)
    for name in ("usd_per_mtok_off", "usd_per_mtok_on"):
        assert high.pop(name) == pytest.approx(1.2 * base.pop(name))
    assert high == base


def test_price_of_the_profile_has_its_own_range() -> None:
    s = by_factor()["usd_per_gpu_hour"]
    price = resolve(scenario()).hardware.price[0]
    assert (s.low, s.base, s.high) == (price.low, price.usd_per_gpu_hour, price.high)
    assert str(price.as_of) in s.why
    said = predict(scenario()).points[2].speculative
    assert said is not None
    assert s.at_base.usd_per_mtok_on == pytest.approx(said.usd_per_mtok)


def test_without_a_price_there_are_no_dollars(tmp_path: Any) -> None:
    profile = resolve(scenario()).hardware
    data = json.loads(profile.model_copy(update={"price": ()}).model_dump_json(exclude_none=True))
    path = tmp_path / "h100_sxm.yaml"
    path.write_text(json.dumps(data))
    found = sensitivity(scenario({"hardware.accelerator": str(path)}), traffic=TRAFFIC)
    assert "usd_per_gpu_hour" not in {s.factor for s in found}
    for s in found:
        assert s.at_high.usd_per_mtok_off is None
        assert s.at_high.usd_per_mtok_on is None
    # Then the speedup is what counts.
    swings = [abs((s.at_high.speedup or 0) - (s.at_low.speedup or 0)) for s in found]
    assert swings[0] == max(swings)


def test_peak_changes_the_fleet_as_ceil_says(found: dict[str, Sensitivity]) -> None:
    s = found["peak_to_avg"]
    # Not given: 2 to 3 of 40 requests/s on average, 0.7 x 20 and 0.7 x 10 each, and one spare.
    assert (s.low, s.base, s.high) == (2.0, 2.5, 3.0)
    points = (s.at_low, s.at_base, s.at_high)
    assert [p.replicas_off for p in points] == [7, 9, 10]
    assert [p.replicas_on for p in points] == [13, 16, 19]
    for p in points:
        assert dataclasses.replace(p, replicas_off=9, replicas_on=16) == s.at_base


@pytest.mark.parametrize(
    ("traffic", "values", "replicas"),
    [
        (Traffic(avg_qps=40, peak_to_avg=4), (3.2, 4.0, 4.8), (11, 13, 15)),
        (Traffic(avg_qps=40, peak_qps=160), (3.2, 4.0, 4.8), (11, 13, 15)),
        (Traffic(peak_qps=160, peak_to_avg=4), (3.2, 4.0, 4.8), (11, 13, 15)),
        (Traffic(peak_qps=160), (2.0, 2.5, 3.0), (11, 13, 15)),
        # No peak is below its average.
        (Traffic(avg_qps=40, peak_to_avg=1.1), (1.0, 1.1, 1.32), (4, 5, 5)),
        # Grown by half: a peak of 150 and 120 to 180.
        (Traffic(avg_qps=40, growth_pct=50), (2.0, 2.5, 3.0), (10, 12, 14)),
    ],
)
def test_peak_however_it_is_given(
    traffic: Traffic, values: tuple[float, ...], replicas: tuple[int, ...]
) -> None:
    s = by_factor(traffic=traffic, capacity_qps=CAPACITY)["peak_to_avg"]
    assert (s.low, s.base, s.high) == pytest.approx(values)
    assert (s.at_low.replicas_off, s.at_base.replicas_off, s.at_high.replicas_off) == replicas


def test_fleets_follow_the_largest_stable_rate() -> None:
    s = by_factor(traffic=TRAFFIC, capacity_qps=CAPACITY)["input_tokens"]

    def stable(tokens: float) -> float:
        arms = pair(resolve(scenario({"workload.input_tokens": tokens})))
        return float(np.max(open_loop(arms.speculative, arms.workload).largest_stable_rate))

    qps = 10.0 * stable(s.high) / stable(s.base)
    assert s.at_high.replicas_on == math.ceil(100 / (0.7 * qps)) + 1
    # Without what a replica holds at the SLO, that rate itself.
    alone = by_factor(traffic=TRAFFIC)["input_tokens"]
    assert alone.at_high.replicas_on == math.ceil(100 / (0.7 * stable(s.high))) + 1


def test_an_arm_without_a_fleet() -> None:
    s = by_factor(traffic=TRAFFIC, capacity_qps=(20.0, None))["host_ms"]
    assert s.at_high.replicas_off is not None
    assert s.at_high.replicas_on is None


def test_without_traffic_there_is_no_fleet() -> None:
    found = by_factor(capacity_qps=CAPACITY)
    assert "peak_to_avg" not in found
    assert all(s.at_base.replicas_off is None for s in found.values())


# Order, kinds of load, method none, calibration, errors


def test_the_largest_swing_comes_first(found: dict[str, Sensitivity]) -> None:
    def swing(s: Sensitivity) -> float:
        points = (s.at_low, s.at_base, s.at_high)
        usd = np.array([(p.usd_per_mtok_off, p.usd_per_mtok_on) for p in points], dtype=float)
        return round(float(np.max(np.ptp(usd, axis=0) / usd[1])), 9)

    swings = [swing(s) for s in found.values()]
    assert swings == sorted(swings, reverse=True)
    assert next(iter(found)) == "usd_per_gpu_hour"
    assert list(found)[-1] == "peak_to_avg"


def test_open_loop_compares_time_per_token() -> None:
    rates = {"load.request_rate": (1, 5, 10)}
    found = by_factor(rates, traffic=TRAFFIC)
    said = predict(scenario(rates))
    s = found["acceptance_length"]
    assert s.load == 5.0
    assert s.at_base.speedup == pytest.approx(said.points[1].speedup)
    assert said.crossover is not None
    assert s.at_base.crossover == said.crossover.load
    # What is asked for is served by both arms: 5 x 256 tokens/s.
    assert s.at_base.usd_per_mtok_on == pytest.approx(3.43 / (3600 * 5 * 256) * 1e6)
    assert s.at_low.usd_per_mtok_on == s.at_base.usd_per_mtok_on


def test_an_overloaded_arm_has_no_figures_and_the_largest_swing() -> None:
    arms = pair(resolve(scenario({"load.request_rate": (1,)})))
    off = float(np.max(open_loop(arms.baseline, arms.workload).largest_stable_rate))
    on = float(np.max(open_loop(arms.speculative, arms.workload).largest_stable_rate))
    # Both serve it as it is, and one no longer does with longer answers.
    load = 0.95 * min(off, on)
    found = sensitivity(scenario({"load.request_rate": (1,)}), load=load)
    assert found[0].factor in ("acceptance_length", "context", "output_tokens", "input_tokens")
    assert found[0].at_base.speedup is not None
    assert None in (found[0].at_low.speedup, found[0].at_high.speedup)


def test_method_none_has_one_arm() -> None:
    found = by_factor(OFF_ONLY, traffic=TRAFFIC, capacity_qps=CAPACITY)
    assert set(found) == {
        "output_tokens", "input_tokens", "context", "host_ms", "peak_to_avg", "usd_per_gpu_hour",
    }  # fmt: skip
    for s in found.values():
        for p in (s.at_low, s.at_base, s.at_high):
            assert (p.crossover, p.crossover_state, p.speedup) == (None, None, None)
            assert (p.usd_per_mtok_on, p.replicas_on) == (None, None)
            assert p.usd_per_mtok_off is not None
            assert p.replicas_off is not None


def test_a_load_of_ones_own() -> None:
    s = by_factor(load=512)["host_ms"]
    assert s.load == 512.0
    assert s.at_base.speedup == pytest.approx(predict(scenario()).points[3].speedup)


@pytest.mark.parametrize(("sd", "widened"), [(0.1, False), (0.1, True)])
def test_a_calibrated_host_time_has_the_range_of_the_fit(sd: float, widened: bool) -> None:
    # Three times what is shipped, a tenth of that apart.
    calibration = _calibration("0.29" if widened else "0.33", factor=3.0, sd=sd)
    found = by_factor(calibration=calibration)
    s = found["host_ms"]
    shipped = resolve(scenario()).engine.host_ms.value
    if not widened:
        ends = (3.0 - Z90 * sd, 3.0, 3.0 + Z90 * sd)
        assert (s.low, s.base, s.high) == pytest.approx(tuple(shipped * x for x in ends))
    else:
        # Another version: a quarter of the way back to 1, and a quarter of the prior's variance.
        wide = Z90 * math.sqrt(0.75 * sd**2 + 0.25)
        ends = (2.5 - wide, 2.5, 2.5 + wide)
        assert (s.low, s.base, s.high) == pytest.approx(tuple(shipped * x for x in ends))
    assert "calibration" in s.why
    said = predict(scenario(), calibration=calibration)
    assert s.at_base.speedup == pytest.approx(said.points[2].speedup)
    assert (s.at_low.speedup or 0) < (s.at_high.speedup or 0)


def _calibration(version: str, *, factor: float, sd: float) -> Calibration:
    deployment = resolve(scenario())
    return Calibration(
        created=dt.date(2026, 7, 10),
        specsim="0.1.0",
        scope=CalibrationScope(
            accelerator="h100_sxm", engine="vllm", engine_version=version, model="llama-3.1-8b",
            weight_dtype="bf16", kv_dtype="bf16", method="eagle3",
            drafter=deployment.drafter and deployment.drafter.id,
        ),
        traffic=CalibrationTraffic(input_tokens=(512.0, 512.0), output_tokens=(256.0, 256.0)),
        parameters=(
            FittedParameter(
                name="host", scale="linear", factor=factor, low=0.5 * factor, high=2.0 * factor,
                prior_sd=1.0, identifiable=True,
            ),
        ),
        covariance=((sd**2,),),
        run_log_sd=0.02,
        speedup_log_sd=0.015,
        left_out=LeftOut(loads=0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "given", "words"),
    [
        ({}, {"load": 0.5}, "concurrency of 1 or more"),
        ({}, {"load": math.nan}, "concurrency of 1 or more"),
        ({"load.request_rate": (1,)}, {"load": 0}, "request rate above 0"),
        ({}, {"capacity_qps": (0.0, 1.0)}, "requests/s above 0"),
        ({}, {"usd_per_gpu_hour": 0}, "expected 0.0001 to 1,000,000"),
    ],
)
def test_what_is_refused(overrides: dict[str, Any], given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sensitivity(scenario(overrides), **given)
