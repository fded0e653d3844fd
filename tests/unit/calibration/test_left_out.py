from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim.calibration.calibrate import calibrate
from specsim.calibration.fit import fit
from specsim.calibration.left_out import LeftOutFits, leave_one_load_out
from specsim.calibration.model import RunModel
from specsim.calibration.parameters import fit_parameters
from specsim.calibration.runs import Run
from specsim.cli.calibration_report import report
from specsim.export.terminal import Screen
from specsim.schema.calibration import LeftOut
from specsim.schema.scenario import Scenario

LOADS = (1, 8, 64, 256)


def left_out(runs: Sequence[Run], scenario: Scenario) -> LeftOutFits:
    model = RunModel(runs, scenario)
    parameters = fit_parameters([model.deployment(k) for k in sorted({r.k for r in runs})])
    return leave_one_load_out(model, fit(model, parameters))


def test_fewer_than_three_loads_leave_nothing_out(planted: Any) -> None:
    got = left_out(planted.runs([1, 64]), planted.scenario)
    assert got.errors == LeftOut(loads=0)
    assert np.all(np.isnan(got.log_errors))
    assert got.residual_pct(0) is None
    found = calibrate(planted.scenario, planted.measurements([1, 64]))
    said = " ".join(" ".join(report(Screen(width=80), found)).split())
    assert "fewer than three loads: none can be left out to test the fit" in said
    # What no left-out load has shown keeps the shipped spread of a speedup.
    assert found.calibration.speedup_log_sd > 0.03


def test_perfect_runs_have_hardly_an_error(planted: Any) -> None:
    got = left_out(planted.runs([1, 4, 16, 64, 128, 256], noise=0.0), planted.scenario)
    errors = got.errors
    assert errors.loads == 6
    for median in (errors.tpot_median_pct, errors.output_tok_s_median_pct):
        assert median is not None
        assert median < 1.0
    assert errors.speedup_median_pct is not None
    # Without repeats a scatter of 4 % is believed, and the prior has the more of a say.
    assert errors.speedup_median_pct < 1.0
    assert errors.speedup_log_sd is not None
    assert errors.speedup_log_sd < 0.02


def test_an_error_is_that_of_a_fit_that_never_saw_the_load(planted: Any) -> None:
    runs = planted.runs(LOADS, noise=0.0)
    wrong = [
        replace(r, tpot_s=1.3 * r.tpot_s, output_tok_s=r.output_tok_s / 1.3) if r.load == 8 else r
        for r in runs
    ]
    got = left_out(wrong, planted.scenario)
    at = [i for i, r in enumerate(runs) if r.load == 8]
    errors = [got.residual_pct(i) for i in at]
    assert errors == pytest.approx([30.0, 30.0], abs=4.0)
    # Both arms are off by as much there: the speedup is not.
    off, on = (got.log_errors[i] for i in at)
    assert abs(off - on) < 0.03


def test_repeats_are_averaged_before_arms_are_compared(planted: Any) -> None:
    runs = planted.runs(LOADS, noise=0.0)
    shaken = [
        replace(r, tpot_s=f * r.tpot_s, output_tok_s=r.output_tok_s / f)
        for r in runs
        for f in (1 / 1.1, 1.1)
    ]
    got = left_out(shaken, planted.scenario)
    exact = left_out(runs, planted.scenario).errors.speedup_median_pct
    assert got.errors.output_tok_s_median_pct == pytest.approx(9.5, abs=2.0)
    # A wide scatter leaves the prior more of a say; single repeats would be 20 % apart.
    assert got.errors.speedup_median_pct is not None
    assert exact is not None
    assert exact < got.errors.speedup_median_pct < 8.0


def test_one_arm_has_no_speedup_error(planted: Any) -> None:
    got = left_out(planted.runs(LOADS, ks=(0,)), planted.scenario)
    assert got.errors.loads == 4
    assert got.errors.tpot_median_pct is not None
    assert (got.errors.speedup_median_pct, got.errors.speedup_log_sd) == (None, None)
