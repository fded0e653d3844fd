"""Charts of measured runs and fits: rows by hand, and what they are drawn from."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import specsim
from specsim.export.figures.calibration import (
    as_measured,
    load_of,
    measured,
    measured_rows,
    read_rows,
    without_acceptance,
)
from specsim.export.figures.factors import factor_rows, factors
from specsim.schema.calibration import ParameterReport
from specsim.schema.measurement import Latency, MeasuredAcceptance, Measurement

SCENARIO = specsim.load_scenario({
    "target": {"model": "llama-3.1-8b"}, "hardware": {"accelerator": "h100_sxm"},
    "speculation": {"method": "eagle3", "num_speculative_tokens": 3,
                    "acceptance": {"length": 2.0}},
    "workload": {"input_tokens": 500, "output_tokens": 100},
})  # fmt: skip


def run(arm: Any = "off", load: float = 4, tpot_ms: float = 10.0, **more: Any) -> Measurement:
    return Measurement(
        source=f"{arm}_{load}", format="table", arm=arm, arm_from="name", concurrency=load,
        tpot_ms=Latency(tpot_ms, None, None, None, None, None), **more,
    )  # fmt: skip


def counted(k: int, length: float) -> dict[str, Any]:
    return {
        "num_speculative_tokens": k,
        "acceptance": MeasuredAcceptance(length, None, None, None, None, None),
    }


def test_the_load_is_the_rate_unless_it_is_without_limit() -> None:
    assert load_of(run(load=8)) == (8, False)
    assert load_of(dataclasses.replace(run(load=8), request_rate=2.5)) == (2.5, True)
    assert load_of(dataclasses.replace(run(), concurrency=None)) is None


def test_a_scenario_takes_what_the_runs_say() -> None:
    rows = [run(load=3, input_tokens=100), run(load=20, input_tokens=300),
            run("on", 20, 9.0, **counted(3, 2.6))]  # fmt: skip
    found = as_measured(SCENARIO, rows)
    assert found.load.concurrency == (3, 4, 8, 16, 20)
    assert (found.workload.input_tokens, found.workload.output_tokens) == (200, 100)
    assert found.speculation.acceptance is not None
    assert found.speculation.acceptance.length == pytest.approx(2.6)
    assert without_acceptance(SCENARIO, rows).speculation.acceptance is None


def test_a_scenario_keeps_what_the_runs_leave_open() -> None:
    assert as_measured(SCENARIO, []) == SCENARIO
    assert without_acceptance(SCENARIO, [run()]) == SCENARIO
    rates = [dataclasses.replace(run(), request_rate=r) for r in (2.0, 5.0)]
    assert as_measured(SCENARIO, [*rates, run()]).load.request_rate == (2.0, 5.0)


def test_runs_stand_beside_the_prediction_for_their_loads() -> None:
    rows = [run(load=4, tpot_ms=10), run("on", 8, 7.5, num_speculative_tokens=2),
            run("on", 16, 8.0), run("unknown", 4, 1.0)]  # fmt: skip
    prediction = specsim.predict(as_measured(SCENARIO, rows))
    records = measured_rows(prediction, rows, "tpot_ms")
    dots = {(r["run"], r["load"], r["value"]) for r in records if r["what"] == "measured"}
    assert dots == {("off", 4, 10.0), ("on, k = 2", 8, 7.5), ("on, k = 3", 16, 8.0)}
    point = next(p for p in prediction.points if p.concurrency == 8)
    line = next(r for r in records
                if (r["what"], r["run"], r["load"]) == ("predicted", "off", 8))  # fmt: skip
    assert point.baseline is not None
    assert line["value"] == point.baseline.tpot_ms
    chart = measured(prediction, rows, "tpot_ms")
    assert len(chart["datasets"]["dots"]) == 3
    # Layers without rows, here of bands and of runs held out, are left out.
    assert {layer["data"]["name"] for layer in chart["layer"]} == {"dots", "ends", "lines"}


def test_rows_read_are_told_as_files_say_them() -> None:
    (row,) = read_rows([run("on", 4, 12.5, **counted(3, 2.4))])
    assert (row["speculation"], row["k"], row["tpot_ms"], row["tokens per step"]) == (
        "on", 3, 12.5, 2.4,
    )  # fmt: skip


def test_factors_beyond_the_axis_stand_on_its_edge() -> None:
    def factor(name: str, **values: Any) -> ParameterReport:
        plain = {"factor": 1.2, "low": 0.9, "high": 1.6, "identifiable": True}
        given = {**plain, **values}
        return ParameterReport(
            name=name, description="", value=1.0, unit="", prior_low=0.0, prior_high=40.0,
            at_most=None, at_bound=False, would_tell="", **given,
        )  # fmt: skip

    untold = factor("host", factor=None, low=None, high=None, identifiable=False)
    shown = factors([factor("bandwidth"), untold])["datasets"]
    first, second = shown["factors"]
    assert (first["prior_from"], first["prior_to"], first["at"]) == (0.1, 10.0, 1.2)
    assert second["at"] is None
    assert second["state"] == "not told"
    assert [r["parameter"] for r in shown["told"]] == ["bandwidth"]
    assert factor_rows([untold])[0]["prior high"] == 40.0
