"""What to know before trusting a calibration."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from specsim.calibration.remarks import (
    acceptance_groups,
    mixed_acceptance,
    refused,
    verdict,
    what_decides,
)
from specsim.schema.calibration import (
    Calibration,
    CalibrationScope,
    CalibrationTraffic,
    FittedParameter,
    LeftOut,
)
from specsim.schema.measurement import Measurement

Row = Callable[..., Measurement]


def calibration(off: float, error: float | None, *, loads: int = 6) -> Calibration:
    return Calibration(
        created=dt.date(2026, 11, 30), specsim="0",
        scope=CalibrationScope(
            accelerator="h100_sxm", engine="vllm", engine_version="0.33", model="llama-3.1-8b",
            weight_dtype="bf16", kv_dtype="bf16", method="eagle3",
        ),
        traffic=CalibrationTraffic(input_tokens=(512, 512), output_tokens=(256, 256)),
        parameters=(FittedParameter(name="host", scale="log", factor=1, low=0.9, high=1.1,
                                    prior_sd=0.5, identifiable=True),),
        covariance=((0.01,),), run_log_sd=off, speedup_log_sd=0.1,
        left_out=LeftOut(loads=loads, speedup_log_sd=error), runs=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("off", "error", "starts", "decides"),
    [
        (0.23, 0.11, "do not use it: runs are off the fit by 23 %",
         "the spread of all runs about the fit decides (15 % is too much)"),
        (0.04, 0.2, "poor: speedups at loads that it did not see are off by 20 %",
         "(poor from 12 %); unseen errors are medians: half of them are larger"),
        (0.04, 0.05, "speedups between the measured loads are good to about 5 %",
         "the spread of all runs about the fit decides first"),
        (0.04, None, "not tested", "decides first"),
    ],
)  # fmt: skip
def test_a_verdict_says_which_figure_it_goes_by(
    off: float, error: float | None, starts: str, decides: str
) -> None:
    found = calibration(off, error)
    assert verdict(found).startswith(starts)
    assert decides in what_decides(found)
    assert refused(found) == starts.startswith("do not")


def test_few_loads_leave_nothing_unseen() -> None:
    assert "fewer than three loads" in what_decides(calibration(0.04, None, loads=0))


def test_acceptances_of_one_k_are_told_apart(make_row: Row, accepted: Callable[..., Any]) -> None:
    def on(name: str, length: float | None, k: int = 3) -> Measurement:
        return make_row("on", source=name, num_speculative_tokens=k, acceptance=accepted(length))

    rows = [on("b1", 2.5), on("a1", 1.84), on("b2", 2.46), on("a2", 1.87), on("c", 1.5, k=1),
            on("none", None), make_row()]  # fmt: skip
    groups = acceptance_groups(rows)
    assert {k: [[r.source for r in g.rows] for g in each] for k, each in groups.items()} == {
        1: [["c"]], 3: [["a1", "a2"], ["b1", "b2"]],
    }  # fmt: skip
    (text,) = mixed_acceptance(rows)
    assert "1.85 tokens per step in a1, a2; 2.48 tokens per step in b1, b2" in text.replace(
        "1.855", "1.85"
    ).replace("1.86", "1.85")
    # Runs of one drafter scatter: a chain of small steps is one group.
    assert mixed_acceptance([on(str(x), x) for x in (2.0, 2.1, 2.25)]) == ()
