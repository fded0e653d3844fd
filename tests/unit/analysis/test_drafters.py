"""Ways of drafting: which there are, whose acceptance they get, and what `predict` says of them."""

import datetime as dt
from typing import Any

import pytest

from specsim.analysis.drafters import compare_drafters
from specsim.analysis.predict import predict
from specsim.analysis.ways import Way, methods_without_drafter, ways
from specsim.catalog.scenario import load_scenario
from specsim.export.figures.drafters import dots, rows, trade
from specsim.schema.calibration import (
    Calibration,
    CalibrationAcceptance,
    CalibrationScope,
    CalibrationTraffic,
    FittedParameter,
    LeftOut,
)
from specsim.schema.scenario import Scenario


def scenario(**overrides: Any) -> Scenario:
    return load_scenario({
        "target": {"model": "llama-3.1-8b"}, "hardware": {"accelerator": "l40s"},
        "speculation": {"method": "eagle3", "num_speculative_tokens": 3,
                        "acceptance": {"length": 2.29}},
        "load": {"concurrency": [32]},
    }, overrides=overrides)  # fmt: skip


def by_label(found: tuple[Way, ...]) -> dict[str, Way]:
    return {way.label: way for way in found}


@pytest.mark.parametrize(
    "load", [{"load.concurrency": [32.0]}, {"load.request_rate": [3.0]}], ids=["closed", "open"]
)
def test_every_figure_is_predicts(load: dict[str, list[float]]) -> None:
    asked = scenario(**load)
    value = next(iter(load.values()))[0]
    own = [w for w in ways(asked, num_speculative_tokens=3) if w.method == "eagle3"]
    (result,), refused = compare_drafters(own, load=value)
    expected = predict(asked)
    assert not refused
    assert result.point == expected.points[0]
    assert expected.crossover is not None
    assert (result.crossover, result.crossover_state) == (
        expected.crossover.load, expected.crossover.state,
    )  # fmt: skip
    assert (result.best_k, result.best_k_speedup) == pytest.approx(
        (expected.best_k[0].k, expected.best_k[0].speedup)
    )
    assert result.break_even_length == pytest.approx(
        expected.break_even[0].acceptance_length, rel=1e-3
    )
    assert result.kv == expected.kv


@pytest.mark.parametrize(
    "load", [{"load.concurrency": [32.0]}, {"load.request_rate": [3.0]}], ids=["closed", "open"]
)
def test_ways_that_share_the_off_arm_are_as_each_alone(load: dict[str, list[float]]) -> None:
    value = next(iter(load.values()))[0]
    results, _ = compare_drafters(ways(scenario(**load), num_speculative_tokens=3), load=value)
    assert len({r.way.method for r in results}) > 2
    for result in results:
        assert result.way.scenario is not None
        assert result.point == predict(result.way.scenario).points[0], result.way.label


def test_acceptance_is_the_own_then_a_measurement_then_carried() -> None:
    found = by_label(ways(scenario(), num_speculative_tokens=3, text="chat"))
    assert found["eagle3-llama3.1-8b"].basis == "yours"
    assert found["eagle-llama3-8b"].basis == "measured"
    assert found["eagle-llama3-8b"].source == "eagle/sharegpt: ShareGPT"
    assert found["suffix"].basis == "carried"


def test_a_written_length_overrides_a_measurement() -> None:
    found = by_label(ways(scenario(), num_speculative_tokens=3, lengths={"ngram": 1.5}))
    ngram = found["ngram"]
    assert ngram.basis == "edited"
    assert ngram.scenario is not None
    assert ngram.scenario.speculation.acceptance is not None
    assert ngram.scenario.speculation.acceptance.length == 1.5


def test_a_length_that_no_step_can_yield_is_a_reason() -> None:
    found = by_label(ways(scenario(), num_speculative_tokens=3, lengths={"ngram": 5.0}))
    assert "which no step can yield" in found["ngram"].reason


def test_an_unknown_acceptance_is_never_invented() -> None:
    asked = scenario(**{"speculation": None})
    found = by_label(ways(asked, num_speculative_tokens=3))
    assert found["suffix"].scenario is None
    assert "no measurement of suffix on this target" in found["suffix"].reason


def test_draft_models_share_the_family_and_the_vocabulary() -> None:
    models = [w.drafter for w in ways(scenario(), num_speculative_tokens=3)
              if w.method == "draft_model"]  # fmt: skip
    assert models == ["llama-3.2-1b", "llama-3.2-3b"]


def test_a_vocabulary_that_differs_is_a_reason() -> None:
    asked = scenario(**{"target.model": "qwen2.5-7b", "speculation.method": "ngram"})
    found = [w for w in ways(asked, num_speculative_tokens=3) if w.method == "draft_model"]
    _, refused = compare_drafters(found, load=32)
    assert {w.drafter for w in refused} == {"qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b"}
    assert all("vocabularies differ" in w.reason for w in refused)


def test_own_drafter_that_no_catalog_has_is_listed_with_its_reason() -> None:
    asked = scenario(**{"target.model": "gpt-oss-20b"})
    found = ways(asked, num_speculative_tokens=3)
    _, refused = compare_drafters(found, load=32)
    assert any(w.method == "eagle3" and "needs a drafter" in w.reason for w in refused)
    assert "medusa" in methods_without_drafter(found, ("medusa", "p_eagle"))


def test_length_at_another_k_keeps_what_it_was_measured_at() -> None:
    found = by_label(ways(scenario(), num_speculative_tokens=2))
    way = found["eagle3-llama3.1-8b"]
    assert way.scenario is not None
    assert way.scenario.speculation.acceptance is not None
    assert way.scenario.speculation.acceptance.measured_at_k == 3


def test_charts_and_rows_say_the_results() -> None:
    results, _ = compare_drafters(ways(scenario(), num_speculative_tokens=3), load=32)
    table = rows(results)
    assert [r["drafter"] for r in table] == ["off", *(r.way.label for r in results)]
    gains = [r["speedup"] for r in table[1:]]
    assert gains == sorted(gains, reverse=True)
    assert len(dots(results)["datasets"]["points"]) == 2 * len(results)
    # A star where acceptance is carried over from another drafter.
    assert [p["drafter"] for p in trade(results)["datasets"]["points"]] == [
        r.way.label + (" *" if r.way.basis == "carried" else "") for r in results
    ]
    assert {r.way.basis for r in results} >= {"carried", "measured"}
    assert rows([])[0]["drafter"] == "off"


def test_acceptance_that_a_calibration_counted_is_known() -> None:
    fitted = Calibration(
        created=dt.date(2026, 11, 30),
        specsim="0",
        scope=CalibrationScope(
            accelerator="l40s", engine="vllm", engine_version="0.33", model="llama-3.1-8b",
            weight_dtype="bf16", kv_dtype="bf16", method="eagle3",
            drafter="eagle3-llama3.1-8b",
        ),
        traffic=CalibrationTraffic(input_tokens=(512, 512), output_tokens=(256, 256)),
        parameters=(
            FittedParameter(name="host", scale="log", factor=1, low=0.9, high=1.1, prior_sd=0.5,
                            identifiable=True),
        ),
        covariance=((0.0025,),),
        run_log_sd=0.03,
        speedup_log_sd=0.05,
        acceptance=(CalibrationAcceptance(num_speculative_tokens=3, length=2.5, counts=5000),),
        left_out=LeftOut(loads=0),
    )  # fmt: skip
    asked = scenario(**{"speculation.acceptance": None})
    missing = by_label(ways(asked, num_speculative_tokens=3))["eagle3-llama3.1-8b"]
    assert missing.scenario is None
    found = ways(asked, num_speculative_tokens=3, counted=True)
    own = [w for w in found if w.label == "eagle3-llama3.1-8b"]
    assert (own[0].basis, own[0].source) == ("measured", "counted in the calibration's runs")
    (result,), refused = compare_drafters(own, load=32.0, calibration=fitted)
    assert not refused
    assert result.point == predict(asked, calibration=fitted).points[0]
