"""The circle of memory: what a drafter takes, what still runs, what is served."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.analysis.circle import memory_circle, with_memory
from specsim.analysis.predict import kv_result, predict
from specsim.catalog.scenario import load_scenario
from specsim.export.figures.memory import parts, throughput
from specsim.schema.scenario import Scenario


def scenario(**overrides: Any) -> Scenario:
    return load_scenario({
        "target": {"model": "llama-3.1-8b"}, "hardware": {"accelerator": "l40s"},
        "speculation": {"method": "eagle3", "num_speculative_tokens": 3,
                        "acceptance": {"length": 2.29}},
        "workload": {"input_tokens": 6000, "output_tokens": 2000},
    }, overrides=overrides)  # fmt: skip


def test_throughput_is_predicts_at_the_same_loads() -> None:
    circle = memory_circle(scenario())
    i = len(circle.loads) // 2
    point = predict(scenario(**{"load.concurrency": [circle.loads[i]]})).points[0]
    assert point.baseline is not None
    assert point.speculative is not None
    assert circle.off_tok_s[i] == pytest.approx(point.baseline.output_tok_s)
    assert circle.on_tok_s[i] == pytest.approx(point.speculative.output_tok_s)


def test_a_drafter_lowers_what_fits_and_what_is_served_of_it() -> None:
    circle = memory_circle(scenario())
    assert circle.on is not None
    assert circle.off.limited_by == circle.on.limited_by == "kv"
    assert circle.on.running < circle.off.running
    assert circle.lost_to_cache is not None
    assert 0.0 < circle.lost_to_cache < 1.0
    expected = kv_result(scenario())
    assert circle.off.fit == pytest.approx(expected.baseline.max_concurrency)
    assert circle.on.fit == pytest.approx(expected.speculative.max_concurrency)


def test_parts_add_up_to_usable_memory() -> None:
    circle = memory_circle(scenario())
    for arm in ("off", "on"):
        total = sum(p.replica_gib for p in circle.parts if p.arm == arm)
        assert total == pytest.approx(circle.kv.memory_usable_gib)


def test_without_weights_a_drafter_costs_nothing() -> None:
    circle = memory_circle(scenario(**{"speculation.method": "ngram"}))
    assert circle.lost_to_cache == 0.0


def test_off_alone_has_no_circle() -> None:
    circle = memory_circle(scenario(speculation=None))
    assert circle.on is None
    assert circle.on_tok_s == ()
    assert circle.lost_to_cache is None
    assert len(throughput(circle, load=8)["datasets"]["ends"]) == 1


@given(context=st.floats(min_value=64, max_value=30_000))
def test_context_keeps_the_proportion(context: float) -> None:
    workload = with_memory(scenario(), context_tokens=context).workload
    assert workload.input_tokens + workload.output_tokens == pytest.approx(context)
    assert workload.input_tokens / workload.output_tokens == pytest.approx(3.0)


def test_charts_hold_the_caps_and_both_units() -> None:
    circle = memory_circle(scenario())
    marks = throughput(circle, load=4)["datasets"]["marks"]
    assert [m["load"] for m in marks] == [circle.off.running, circle.on.running, 4]  # type: ignore[union-attr]
    one = parts(circle, whole_replica=False)["datasets"]["parts"]
    every = parts(circle, whole_replica=True)["datasets"]["parts"]
    assert [r["gib"] for r in one] == [p.gpu_gib for p in circle.parts]
    assert [r["gib"] for r in every] == [p.replica_gib for p in circle.parts]
