from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specsim.cli.calibration_report import report
from specsim.export.terminal import Screen
from specsim.schema.calibration import (
    Calibration,
    CalibrationAcceptance,
    CalibrationReport,
    CalibrationScope,
    CalibrationTraffic,
    Correlation,
    Doubt,
    FitRow,
    FitSpeedup,
    FittedParameter,
    HeldOutCrossover,
    LeftOut,
    ParameterReport,
    Suggestion,
)
from specsim.schema.measurement import Skipped

LOADS = (1, 4, 16, 64)


def parameter(name: str, factor: float | None, **changes: Any) -> ParameterReport:
    told = factor is not None
    values: dict[str, Any] = {
        "name": name, "description": f"what {name} multiplies", "factor": factor,
        "low": factor and 0.9 * factor, "high": factor and 1.1 * factor,
        "value": factor and 0.8 * factor, "unit": "of datasheet", "prior_low": 0.82,
        "prior_high": 1.22, "identifiable": told, "at_most": None, "at_bound": False,
        "would_tell": "" if told else "concurrency 256, speculation off",
    }  # fmt: skip
    return ParameterReport(**(values | changes))


def row(k: int, load: float, **changes: Any) -> FitRow:
    values: dict[str, Any] = {
        "source": f"runs/k{k}_c{load}.json", "arm": "on" if k else "off",
        "num_speculative_tokens": k, "load": load, "held": load, "tpot_ms": 20.0 + load,
        "fit_tpot_ms": 21.0 + load, "fit_tpot_low_ms": 19.0 + load, "fit_tpot_high_ms": 23.0 + load,
        "output_tok_s": 40.0 * load, "fit_output_tok_s": 41.0 * load,
        "fit_output_tok_s_low": 38.0 * load, "fit_output_tok_s_high": 43.0 * load,
        "residual_pct": -3.0, "left_out_pct": -4.5, "weight": 1.0,
    }  # fmt: skip
    return FitRow(**(values | changes))


def suggestion(k: int, load: float, before: float, after: float) -> Suggestion:
    return Suggestion("on" if k else "off", k, load, before, after, "the crossover near 7.9")


def calibration(**changes: Any) -> Calibration:
    values: dict[str, Any] = {
        "created": dt.date(2026, 7, 10), "specsim": "0.1.0",
        "scope": CalibrationScope(
            accelerator="h100_sxm", engine="vllm", engine_version="0.33", model="llama-3.1-8b",
            weight_dtype="bf16", kv_dtype="bf16", method="eagle3", drafter="eagle3-llama-3.1-8b",
        ),
        "parameters": (FittedParameter(name="bandwidth", scale="log", factor=0.9, low=0.8,
                                       high=1.0, prior_sd=0.1, identifiable=True),),
        "traffic": CalibrationTraffic(input_tokens=(512, 512), output_tokens=(256, 256)),
        "covariance": ((0.01,),), "run_log_sd": 0.034, "speedup_log_sd": 0.02,
        "acceptance": (CalibrationAcceptance(num_speculative_tokens=3, length=2.456,
                                             counts=12345),),
        "left_out": LeftOut(loads=4, tpot_median_pct=4.2, output_tok_s_median_pct=3.1,
                            speedup_median_pct=2.7, speedup_log_sd=0.03),
    }  # fmt: skip
    return Calibration(**(values | changes))


@pytest.fixture
def found() -> CalibrationReport:
    return CalibrationReport(
        calibration=calibration(),
        parameters=(
            parameter("bandwidth", 0.9),
            parameter("compute", None),
            parameter("host", 12.0, value=1.234, unit="ms"),
            parameter("prompt", None, value=None, would_tell=""),
        ),
        correlations=(Correlation("bandwidth", "host", -0.93),),
        rows=tuple(row(k, load) for k in (0, 3) for load in LOADS),
        speedups=(FitSpeedup(3, 16, 1.31, 1.28, 1.25), FitSpeedup(3, 1, 1.75, 1.67, None)),
        crossovers=(HeldOutCrossover(3, 22.4, None, 1),),
        verdict="speedups between the measured loads are good to about 4 %",
        doubts=(),
        held_out=None,
        suggestions=(suggestion(0, 64, 0.41, 0.22), suggestion(3, 1024, 0.22, 0.104)),
        warnings=(),
    )


def lines(found: CalibrationReport, width: int = 80, **more: Any) -> list[str]:
    return report(Screen(width=width), found, **more)


def said(found: CalibrationReport, **more: Any) -> str:
    return " ".join(" ".join(lines(found, **more)).split())


def words(found: CalibrationReport, first: str) -> list[str]:
    """Return the words of the table row of a parameter."""
    return next(line.split() for line in lines(found, 100) if line.split()[:1] == [first])


def test_the_heading_says_what_was_fitted_and_on_what(found: CalibrationReport) -> None:
    text = lines(found, 120)
    assert text[0] == (
        "llama-3.1-8b bf16 · h100_sxm · vllm 0.33 · eagle3 eagle3-llama-3.1-8b"
    )  # fmt: skip
    assert text[1] == "calibrated on 8 runs (4 off, 4 on) at 4 loads"
    assert text[2] == (
        "acceptance counted at k = 3: 2.46 tokens per drafting step, 12,345 drafts"
    )  # fmt: skip


def test_what_is_told_has_its_interval_and_constant(found: CalibrationReport) -> None:
    assert words(found, "bandwidth") == [
        "bandwidth", "0.900", "0.81–0.99", "0.720", "of", "datasheet", "0.82–1.2",
    ]  # fmt: skip
    assert words(found, "host")[-3:-1] == ["1.23", "ms"]


def test_what_is_not_told_has_no_number(found: CalibrationReport) -> None:
    assert words(found, "compute") == ["compute", "not", "told", "–", "–", "0.82–1.2"]
    text = said(found)
    assert "NOT TOLD BY THESE RUNS" in text
    assert "left open, the prior around the shipped value decides" in text
    assert (
        "compute (what compute multiplies): a run at concurrency 256, speculation off would tell "
        "most"
    ) in text
    assert "prompt (what prompt multiplies): no single run would tell" in text
    limited = parameter("host", None, at_most=0.68, unit="ms", would_tell="")
    assert "host (what host multiplies): at most 0.68 ms, hardly told apart from bandwidth" in said(
        replace(found, parameters=(parameter("bandwidth", 0.9), limited))
    )
    told = replace(found, parameters=(parameter("bandwidth", 0.9),))
    assert "NOT TOLD" not in said(told)


def test_pairs_and_bounds_are_said(found: CalibrationReport) -> None:
    assert "bandwidth and host are told together, hardly apart: correlation -0.93" in said(found)
    assert "stands at the limit" not in said(found)
    at_bound = replace(found, parameters=(parameter("host", 0.0, at_bound=True),))
    assert "host stands at the limit of what is allowed" in said(at_bound)


def test_speedups_and_the_crossover_are_shown(found: CalibrationReport) -> None:
    table = [line.split() for line in lines(found, 100)]
    assert ["3", "1", "1.75", "1.67", "–"] in table
    assert ["3", "16", "1.31", "1.28", "1.25"] in table
    text = said(found)
    assert "crossover, k = 3: measured 22, fitted none on the ladder" in text
    assert "good to about 4 %" in text


def test_the_error_on_loads_that_were_left_out(found: CalibrationReport) -> None:
    assert (
        "each left out in turn (4): time per token 4.2 %, throughput 3.1 %, speedup 2.7 %; runs "
        "scatter 3.4 % about the fit"
    ) in said(found)
    few = replace(found, calibration=calibration(left_out=LeftOut(loads=0)))
    assert "fewer than three loads" in said(few)
    off = LeftOut(loads=3, tpot_median_pct=4.2)
    text = said(replace(found, calibration=calibration(left_out=off)))
    assert "(3): time per token 4.2 %; runs" in text
    assert "None" not in text


def test_runs_stand_in_order_and_lack_what_was_not_measured(found: CalibrationReport) -> None:
    bare = row(0, 2, output_tok_s=None, fit_output_tok_s=None, left_out_pct=None)
    shuffled = replace(found, rows=(*found.rows[::-1], bare))
    text = lines(shuffled, 100)
    start = next(i for i, line in enumerate(text) if line.startswith("RUNS AGAINST THE FIT"))
    table = [line.split() for line in text[start:] if line.strip().startswith(("off", "on k="))]
    loads = [(cells[0] if cells[0] == "off" else cells[1], cells[1 if cells[0] == "off" else 2])
             for cells in table[:9]]  # fmt: skip
    assert loads == [("off", x) for x in ("1", "2", "4", "16", "64")] + [
        ("k=3", x) for x in ("1", "4", "16", "64")
    ]
    assert table[1] == ["off", "2", "22.0", "23.0", "21.0–25.0", "–", "–", "-3.0", "–"]


def test_doubts_are_grouped_by_what_is_wrong(found: CalibrationReport) -> None:
    doubts = [Doubt(f"r{i}.json", True, "ramp and drain") for i in range(5)]
    doubts += [Doubt("x.json", False, "ramp and drain"), Doubt("y.json", False, "20 % failed")]
    text = said(replace(found, doubts=tuple(doubts)))
    assert "DISTRUSTED" in text
    assert "used with care: r0.json, r1.json, r2.json and 2 more: ramp and drain" in text
    assert "not used: x.json: ramp and drain" in text
    assert "not used: y.json: 20 % failed" in text
    assert text.count("r0.json") == 1
    assert "DISTRUSTED" not in said(found)


def test_suggestions_say_what_they_bring(found: CalibrationReport) -> None:
    text = said(found)
    assert "RUN NEXT, to narrow the crossover near 7.9" in text
    assert "speculation off at 64: ±41 % becomes ±22 %" in text
    assert "speculation on, k = 3 at 1,024: ±22 % becomes ±10 %" in text
    assert "that is little" not in text
    assert "RUN NEXT" not in said(replace(found, suggestions=()))
    little = (suggestion(0, 8, 0.12, 0.115), suggestion(3, 8, 3.2, 0.11))
    text = said(replace(found, suggestions=little))
    assert "that is little" in text
    assert "unknown becomes ±11 %" in text


def test_files_that_were_not_read_are_listed_up_to_a_point(found: CalibrationReport) -> None:
    skipped = [Skipped(f"f{i}.txt", "no known format") for i in range(10)]
    text = said(found, skipped=skipped)
    assert "f7.txt: no known format" in text
    assert "f8.txt" not in text
    assert "and 2 more (--json lists all)" in text
    assert "more (--json" not in said(found, skipped=skipped[:8])


def test_what_was_written_says_how_to_use_it(found: CalibrationReport) -> None:
    text = said(found, written=[Path("c.yaml"), Path("charts/tpot_fit.svg")])
    assert "written: c.yaml, charts/tpot_fit.svg" in text
    assert "use it: specsim predict ... --calibration c.yaml" in text
    assert "use it" not in said(found, written=[Path("charts/tpot_fit.svg")])


def test_every_line_fits_the_screen(found: CalibrationReport) -> None:
    long = "a reason that goes on and on about what was wrong with this run " * 3
    full = replace(
        found,
        doubts=tuple(Doubt(f"runs/a/rather/long/path/to/run_{i}.json", True, long)
                     for i in range(5)),
        warnings=(long,),
        rows=tuple(row(k, load, tpot_ms=1234.5, fit_tpot_ms=1300.2, fit_tpot_low_ms=1100.0,
                       fit_tpot_high_ms=1500.0, output_tok_s=123456.0, fit_output_tok_s=119876.0)
                   for k in (0, 15) for load in LOADS),
    )  # fmt: skip
    text = lines(full, 80, skipped=[Skipped("runs/x.json", long)], notes_of_input=(long,))
    assert [line for line in text if len(line) > 80] == []
    plain = report(Screen(width=80, unicode=False), full)
    assert all(Screen(width=80, unicode=False).fit(line).isascii() for line in plain)


def test_a_run_beyond_ten_per_cent_stands_out(found: CalibrationReport) -> None:
    far = replace(found, rows=(row(0, 1, residual_pct=-12.0), row(0, 4, residual_pct=-8.0)))
    screen = Screen(width=100, colour=True)
    table = [line for line in report(screen, far) if "-12.0" in line or "-8.0" in line]
    assert screen.paint("-12.0", "neutral") in table[0]
    assert screen.paint("-8.0", "neutral") not in table[1]
