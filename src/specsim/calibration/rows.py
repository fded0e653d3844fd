"""Which of the rows read are of the scenario's deployment at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from specsim.calibration.stated import differences, stated_otherwise
from specsim.errors import CalibrationError
from specsim.schema.calibration import Doubt
from specsim.schema.measurement import Measurement, Measurements
from specsim.schema.scenario import Scenario


def matching_rows(
    rows: Sequence[Measurement], scenario: Scenario, *, search: Sequence[Path] = ()
) -> tuple[tuple[Measurement, ...], tuple[Doubt, ...], tuple[str, ...]]:
    """Leave out rows that say that they are of something else.

    Returns
    -------
    (rows, doubts, warnings)

    Raises
    ------
    CalibrationError
        The rows speculate and the scenario does not.
    """
    kept, doubts = [], []
    for row in rows:
        reason = _of_another(row, scenario)
        if reason:
            doubts.append(Doubt(row.source, False, reason))
        else:
            kept.append(row)
    if scenario.speculation.method == "none" and any(r.arm == "on" for r in kept):
        said = sorted({r.method for r in kept if r.arm == "on" and r.method})
        hint = f" ({', '.join(said)})" if said else ""
        raise CalibrationError(
            f"runs speculate{hint} and the scenario does not; give --spec-method, --spec-model "
            "and --spec-tokens as they were measured, or the scenario that they belong to"
        )
    return tuple(kept), tuple(doubts), tuple(d.advice for d in differences(kept, scenario))


def _of_another(row: Measurement, scenario: Scenario) -> str:
    """Return why a row is of another deployment; '' where nothing says so."""
    off = scenario.speculation.method == "none"  # said of all rows together, above
    reasons = (
        one.reason
        for one in stated_otherwise(row, scenario)
        if one.reason and not (off and one.key == "speculation.method")
    )
    return next(reasons, "")


def assume_arm(measurements: Measurements, arm: Literal["off", "on"] | None) -> Measurements:
    """Take runs of which nothing says whether they speculate as of one arm."""
    if arm is None:
        return measurements
    rows = tuple(
        dataclasses.replace(row, arm=arm, arm_from="flag") if row.arm == "unknown" else row
        for row in measurements.rows
    )
    return dataclasses.replace(measurements, rows=rows)
