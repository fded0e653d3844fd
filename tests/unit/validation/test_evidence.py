"""What was measured beside what is predicted: own rows, published cases, and which come first."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specsim.analysis.predict import predict
from specsim.catalog.scenario import load_scenario
from specsim.schema.calibration import (
    Calibration,
    CalibrationScope,
    CalibrationTraffic,
    FittedParameter,
    FittedRun,
    LeftOut,
)
from specsim.schema.evidence import Evidence
from specsim.schema.measurement import Latency, MeasuredAcceptance, Measurement, Measurements
from specsim.schema.scenario import Scenario
from specsim.validation.evidence import evidence

Write = Callable[..., Path]


def scenario(**changes: Any) -> Scenario:
    return load_scenario(
        {
            "target": {"model": "llama-3.1-8b", "weight_dtype": "bf16"},
            "hardware": {"accelerator": "h100_sxm"},
            "engine": {"name": "vllm", "version": "0.29"},
            "speculation": {
                "method": "eagle3", "num_speculative_tokens": 3,
                "drafter": "eagle3-llama3.1-8b", "acceptance": {"length": 2.2},
            },
            "workload": {"input_tokens": 512, "output_tokens": 256},
        },
        overrides=changes,
    )  # fmt: skip


def latency(mean: float) -> Latency:
    return Latency(mean=mean, p50=None, p90=None, p95=None, p99=None, std=None)


def counted(length: float, **changes: Any) -> MeasuredAcceptance:
    values: dict[str, Any] = {
        "draft_acceptance_rate": None, "per_position": None, "drafts": None,
        "draft_tokens": None, "accepted_tokens": None,
    }  # fmt: skip
    return MeasuredAcceptance(acceptance_length=length, **(values | changes))


def row(arm: str = "off", **changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "source": f"runs/{arm}.json", "format": "made", "arm": arm, "arm_from": "name",
        "concurrency": 8.0, "tpot_ms": latency(8.0), "output_tok_s": 900.0,
    }  # fmt: skip
    return Measurement(**(values | changes))


def own(*rows: Measurement, of: Scenario | None = None, **options: Any) -> tuple[Evidence, ...]:
    return evidence(of or scenario(), measurements=Measurements(rows, ()), most=0, **options)


def calibration(*sources: str) -> Calibration:
    """Return one that leaves every constant as it ships."""
    return Calibration(
        created=dt.date(2026, 11, 30),
        specsim="0",
        scope=CalibrationScope(
            accelerator="h100_sxm", engine="vllm", engine_version="0.29", model="llama-3.1-8b",
            weight_dtype="bf16", kv_dtype="bf16", method="eagle3",
            drafter="eagle3-llama3.1-8b",
        ),
        traffic=CalibrationTraffic(input_tokens=(512, 512), output_tokens=(256, 256)),
        parameters=(
            FittedParameter(
                name="host", scale="log", factor=1, low=0.9, high=1.1, prior_sd=0.5,
                identifiable=True,
            ),
        ),
        covariance=((0.0025,),),
        run_log_sd=0.03,
        speedup_log_sd=0.05,
        left_out=LeftOut(loads=0),
        runs=tuple(FittedRun(source=s, arm="off", concurrency=8) for s in sources),
    )  # fmt: skip


def test_error_and_interval_of_a_run_that_was_measured_by_hand() -> None:
    """On / off is 1500 / 900 = 1.667: throughput decides before time per token."""
    found = own(row(), row("on", tpot_ms=latency(5.0), output_tok_s=1500.0))
    point = predict(scenario(**{"load.concurrency": [8]})).points[0]
    assert point.baseline is not None
    assert point.speculative is not None
    assert [(e.arm, e.metric) for e in found] == [
        ("off", "tpot_ms"),
        ("off", "output_tok_s"),
        ("on / off", "speedup"),
        ("on", "tpot_ms"),
        ("on", "output_tok_s"),
    ]
    off, _, speedup, on, _ = found
    assert (off.measured, off.predicted, off.unit) == (8.0, point.baseline.tpot_ms, "ms")
    assert off.error_pct == pytest.approx(100 * (point.baseline.tpot_ms - 8.0) / 8.0)
    assert (off.method, off.k, off.in_interval, off.predicted_low) == ("none", 0, None, None)
    assert (on.method, on.k) == ("eagle3", 3)
    assert on.predicted == pytest.approx(point.speculative.tpot_ms)
    assert speedup.measured == pytest.approx(5 / 3)
    assert speedup.predicted == pytest.approx(point.speedup)
    assert speedup.predicted_low == pytest.approx(point.speedup_low)
    assert speedup.predicted_high == pytest.approx(point.speedup_high)
    assert speedup.source == "runs/off.json; runs/on.json"
    assert {e.what for e in found} == {"own measurement"}


@pytest.mark.parametrize(("times", "inside"), [(1.0, True), (1.5, False), (0.6, False)])
def test_a_measured_speedup_lies_in_the_band_or_not(times: float, inside: bool) -> None:
    predicted = predict(scenario(**{"load.concurrency": [8]})).points[0].speedup
    assert predicted is not None
    found = own(row(), row("on", output_tok_s=900.0 * predicted * times))
    (speedup,) = (e for e in found if e.metric == "speedup")
    assert speedup.in_interval is inside
    assert speedup.error_pct == pytest.approx(100.0 * (1.0 / times - 1.0))


def test_repeats_of_off_are_averaged_and_other_loads_or_lengths_give_no_speedup() -> None:
    at_8 = [row(source=f"{i}.json", output_tok_s=x) for i, x in enumerate((800.0, 1000.0))]
    found = own(
        *at_8,
        row(source="other-load", concurrency=16.0, output_tok_s=1.0),
        row(source="long", output_tokens=1024.0, output_tok_s=1.0),
        row("on", output_tokens=250.0, output_tok_s=1350.0),
        row("on", source="alone", concurrency=32.0),
    )
    (speedup,) = (e for e in found if e.metric == "speedup")
    # Lengths that a row does not state are those of the scenario.
    assert speedup.measured == pytest.approx(1.5)


def test_lengths_k_and_counted_acceptance_are_the_run_s() -> None:
    found = own(
        row("on", num_speculative_tokens=5, acceptance=counted(3.0), input_tokens=2000.0,
            output_tokens=100.0)
    )  # fmt: skip
    there = scenario(
        **{
            "speculation.num_speculative_tokens": 5,
            "speculation.acceptance.length": 3.0,
            "workload.input_tokens": 2000.0,
            "workload.output_tokens": 100.0,
            "load.concurrency": [8],
        }
    )
    point = predict(there).points[0].speculative
    assert point is not None
    assert found[0].predicted == pytest.approx(point.tpot_ms)
    assert {e.k for e in found} == {5}


def test_k_that_nobody_says_is_the_drafter_s() -> None:
    block = {"method": "dspark", "acceptance": {"length": 2.5}}
    here = scenario(**{"target.model": "qwen3-8b", "speculation": block})
    k = predict(here).scenario["speculation"]["num_speculative_tokens"]
    assert k > 1
    assert {e.k for e in own(row("on", acceptance=counted(2.5)), of=here)} == {k}


def test_steps_of_ngram_that_drafted_nothing_count_as_steps() -> None:
    """100 answers of 101 tokens with 4000 accepted: 6000 steps, of which 3000 drafted.

    A drafting step yields 1 + 4000 / 3000 tokens, a step 1 + 4000 / 6000.
    """
    speculation = {"method": "ngram", "num_speculative_tokens": 3, "acceptance": {"length": 1.2}}
    here = scenario(speculation=speculation)
    acceptance = counted(1.0 + 4 / 3, drafts=3000, accepted_tokens=4000)
    found = own(row("on", completed=100, output_tokens=101.0, acceptance=acceptance), of=here)
    given = {"length": 1.0 + 4 / 6, "proposal_rate": 0.5, "counts": 3000}
    changes = {"speculation.acceptance": given, "workload.output_tokens": 101.0}
    point = predict(scenario(speculation=speculation, **changes, **{"load.concurrency": [8]}))
    assert point.points[0].speculative is not None
    assert found[0].predicted == pytest.approx(point.points[0].speculative.tpot_ms)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "Qwen/Qwen3-8B"},
        {"accelerator": "A100"},
        {"engine": "sglang"},
        {"tensor_parallel_size": 2},
        {"arm": "unknown"},
        {"arm": "on", "method": "ngram"},
        {"concurrency": None},
        {"tpot_ms": None, "output_tok_s": None},
    ],
)
def test_rows_of_something_else_are_left_out(changes: dict[str, Any]) -> None:
    assert own(row(**changes)) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "meta-llama/Llama-3.1-8B-Instruct"},
        {"model": "llama-served-as-chat"},
        {"accelerator": "H100 SXM"},
        {"accelerator": "some GPU"},
        {},
    ],
)
def test_rows_of_the_same_under_another_name_or_of_no_name_count(changes: dict[str, Any]) -> None:
    assert len(own(row(**changes))) == 2


def test_runs_with_speculation_are_nothing_to_a_scenario_without() -> None:
    here = scenario(speculation={"method": "none"})
    assert {e.arm for e in own(row(), row("on"), of=here)} == {"off"}


def test_a_rate_is_the_load_and_one_that_cannot_be_served_says_so() -> None:
    slow, fast = own(row(request_rate=2.0), row(source="fast", request_rate=1e4))
    assert (slow.load, slow.load_kind, slow.metric, slow.note) == (
        2.0,
        "request_rate",
        "tpot_ms",
        "",
    )
    assert slow.predicted is not None
    assert (fast.predicted, fast.error_pct) == (None, None)
    assert "unstable at this rate" in fast.note


def test_what_cannot_be_predicted_says_why() -> None:
    found = own(row(input_tokens=1e9, failed=3, completed=97))
    assert {e.predicted for e in found} == {None}
    assert all("3 requests failed, 97 were answered" in e.note for e in found)
    assert all(len(e.note) > 50 for e in found)


def test_runs_of_the_calibration_are_marked(tmp_path: Path, monkeypatch: Any) -> None:
    """A speedup is of the calibration where either of its runs is; paths may be relative."""
    monkeypatch.chdir(tmp_path)
    fitted = calibration(str(tmp_path / "runs" / "off.json"))
    found = own(row(), row("on"), row("on", source="runs/held-out.json", concurrency=16.0),
                calibration=fitted)  # fmt: skip
    marked = {(e.arm, e.load): e.used_for_calibration for e in found}
    assert marked == {
        ("off", 8.0): True,
        ("on / off", 8.0): True,
        ("on", 8.0): False,
        ("on", 16.0): False,
    }
    assert not any(e.used_for_calibration for e in own(row()))


# Published cases


def ratio(measured: float, **load: Any) -> dict[str, Any]:
    at = load or {"concurrency": 8}
    return {**at, "measured": {"speedup": measured, "speedup_of": "output_tok_s"}}


def other(name: str, **parts: Any) -> dict[str, Any]:
    """Return the scenario of a case with other parts."""
    base: dict[str, Any] = {
        "name": name,
        "target": {"model": "llama-3.1-8b", "weight_dtype": "bf16"},
        "hardware": {"accelerator": "h100_sxm"},
        "speculation": {"method": "eagle3", "num_speculative_tokens": 3,
                        "drafter": "eagle3-llama3.1-8b", "acceptance": {"length": 2.2}},
    }  # fmt: skip
    return base | parts


NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "acceptance": {"length": 1.5}}


def test_a_published_case_has_its_speedup_with_a_band_and_both_arms(write: Write) -> None:
    arms = {"baseline": {"output_tok_s": 100.0}, "speculative": {"output_tok_s": 150.0}}
    source = {"title": "t", "url": "https://example.org/a", "date": "2026", "license": "facts"}
    path = write("one", [{"concurrency": 1, "measured": arms}], source=source, role="tune")
    speedup, off, on = evidence(scenario(), cases=path)
    assert speedup.measured == pytest.approx(1.5)
    assert speedup.predicted is not None
    assert speedup.predicted_low is not None
    assert speedup.predicted_high is not None
    assert speedup.error_pct == pytest.approx(100 * (speedup.predicted - 1.5) / 1.5)
    inside = speedup.predicted_low <= 1.5 <= speedup.predicted_high
    assert speedup.in_interval is inside
    assert (off.arm, off.metric, off.method, off.k) == ("off", "output_tok_s", "none", 0)
    assert (on.arm, on.measured, on.method, on.k) == ("on", 150.0, "eagle3", 3)
    assert (on.in_interval, on.predicted_low) == (None, None)
    assert {e.source for e in (speedup, off, on)} == {"https://example.org/a"}
    assert {(e.what, e.case, e.grade, e.used_for_calibration) for e in (speedup, off, on)} == {
        ("published", "made/one", "A", True)
    }


def test_the_most_alike_come_first_and_the_short_before_the_long(
    write: Write, tmp_path: Path
) -> None:
    a100, qwen = {"accelerator": "a100_sxm_80"}, {"model": "qwen3-8b"}
    write("a-device-other-method", [ratio(1.2)], scenario=other("", target=qwen, speculation=NGRAM))
    write("b-model", [ratio(1.3)], scenario=other("", hardware=a100))
    write("c-both-long", [ratio(1.5), ratio(1.4, concurrency=16)])
    write("d-both-other-method", [ratio(1.1)], scenario=other("", speculation=NGRAM))
    write("e-both-short", [ratio(1.5)])
    eagle = {"method": "eagle3", "num_speculative_tokens": 3, "acceptance": {"length": 2.0}}
    write("f-device-same-method", [ratio(1.6)], scenario=other("", target=qwen, speculation=eagle))
    write("g-neither", [ratio(1.7)], scenario=other("", target=qwen, hardware=a100,
                                                    speculation=NGRAM))  # fmt: skip
    found = evidence(scenario(), cases=tmp_path)
    assert list(dict.fromkeys(e.case.removeprefix("made/") for e in found)) == [
        "e-both-short",
        "c-both-long",
        "d-both-other-method",
        "b-model",
        "f-device-same-method",
        "a-device-other-method",
    ]
    assert evidence(scenario(), cases=tmp_path, most=2) == found[:2]
    named = scenario(**{"target.model": "meta-llama/Llama-3.1-8B", "hardware.accelerator": "H100"})
    assert evidence(named, cases=tmp_path) == found


def test_own_rows_come_before_published_ones_and_count_against_the_most(write: Write) -> None:
    path = write("two", [ratio(1.5), ratio(1.4, concurrency=16)])
    found = evidence(scenario(), measurements=Measurements((row(),), ()), cases=path, most=3)
    assert [e.what for e in found] == ["own measurement", "own measurement", "published"]


def test_a_pass_and_a_rate_say_what_their_load_is(write: Write) -> None:
    step = {"tokens_in_step": 8, "measured": {"baseline": {"tpot_ms": 6.0}}}
    path = write("kinds", [step, ratio(1.2, request_rate=1e4)])
    one, two = evidence(scenario(), cases=path)
    assert (one.load, one.load_kind, one.metric, one.arm) == (8, "tokens_in_step", "tpot_ms", "off")
    assert (two.load, two.load_kind, two.predicted) == (1e4, "request_rate", None)
    assert "unstable at this rate" in two.note


def test_nothing_is_alike() -> None:
    here = scenario(
        **{"target.model": "llama-3.2-3b", "hardware.accelerator": "mi325x", "speculation": None}
    )
    assert evidence(here) == ()
