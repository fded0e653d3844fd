"""Which of the rows read are of the scenario's deployment at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from specsim.catalog.models import canonical_id
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
    return tuple(kept), tuple(doubts), _engine_warning(kept, scenario)


def _of_another(row: Measurement, scenario: Scenario) -> str:
    here = canonical_id(scenario.target.model)
    there = canonical_id(row.model) if row.model else None
    if here and there and here != there:
        return f"is of model {row.model} ({there}), the scenario is of {here}"
    if row.engine and row.engine != scenario.engine.name:
        return f"is of engine {row.engine}, the scenario is of {scenario.engine.name}"
    tensor_parallel = scenario.hardware.tensor_parallel_size
    if row.tensor_parallel_size and row.tensor_parallel_size != tensor_parallel:
        return (
            f"is of tensor_parallel_size {row.tensor_parallel_size}, the scenario is of "
            f"{tensor_parallel}"
        )
    method = scenario.speculation.method
    if method == "none":
        return ""
    if row.arm == "on" and row.method and row.method != method:
        return f"speculates by {row.method}, the scenario by {method}"
    return ""


def _engine_warning(rows: Sequence[Measurement], scenario: Scenario) -> tuple[str, ...]:
    """Warn where the engine that was measured is not the version that the scenario names."""
    asked = scenario.engine.version
    measured = sorted({r.engine_version for r in rows if r.engine_version})
    if asked is None or all(v.lstrip("v").startswith(asked) for v in measured):
        return ()
    return (
        f"measured on engine version {', '.join(measured)}, the scenario says {asked}: give "
        "--engine with the version that was measured",
    )


def assume_arm(measurements: Measurements, arm: Literal["off", "on"] | None) -> Measurements:
    """Take runs of which nothing says whether they speculate as of one arm."""
    if arm is None:
        return measurements
    rows = tuple(
        dataclasses.replace(row, arm=arm, arm_from="flag") if row.arm == "unknown" else row
        for row in measurements.rows
    )
    return dataclasses.replace(measurements, rows=rows)
