"""What every answer starts with and ends on: the deployment that is meant, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from specsim._version import __version__
from specsim.analysis.overlay import Overlay, counted_here, overlay, with_counted_acceptance
from specsim.analysis.resolve import Deployment, resolve
from specsim.catalog.borrowing import blocks
from specsim.catalog.calibration import load_calibration
from specsim.schema.calibration import Calibration
from specsim.schema.scenario import Scenario

N_SAMPLES, SEED = 128, 20260710
"""Of the bands; the seed is that of simulations too."""


def prepared(
    scenario: Scenario, search: Sequence[Path], calibration: Calibration | Path | str | None
) -> tuple[Deployment, Overlay]:
    """Load what a scenario names, and lay a calibration over it."""
    if isinstance(calibration, Path | str):
        calibration = load_calibration(calibration)
    said: tuple[str, ...] = ()
    if calibration is not None and counted_here(calibration.scope, scenario):
        scenario, said = with_counted_acceptance(scenario, calibration.acceptance)
    deployment = resolve(scenario, search=search)
    laid = overlay(deployment, calibration)
    deployment = replace(
        deployment,
        defaults=(*deployment.defaults, *said),
        warnings=(*deployment.warnings, *laid.notes),
    )
    if said and deployment.acceptance is not None:
        counted = replace(deployment.acceptance, source="counted in the calibration's runs")
        deployment = replace(deployment, acceptance=counted)
    return deployment, laid


def scenario_json(deployment: Deployment) -> dict[str, Any]:
    """Return the scenario with every default filled in, as JSON types."""
    return deployment.scenario.model_dump(mode="json", exclude_none=True)


def provenance(deployment: Deployment, laid: Overlay) -> dict[str, Any]:
    """Return what the figures rest on: constants by basis and source, versions, the price."""
    profile, engine = deployment.hardware, deployment.engine
    constants = {
        name: {
            "basis": block.basis,
            "source": block.source,
            "used": name in deployment.used_blocks,
        }
        for name, block in blocks(profile.effective)
    }
    price = next((p for p in profile.price if p.kind == "typical"), None)
    return {
        "specsim": __version__,
        "engine": {
            "name": deployment.scenario.engine.name,
            "version": engine.version,
            "basis": engine.basis,
            "source": engine.source,
        },
        "hardware": profile.identity.id,
        "borrowed_from": profile.effective.borrow,
        "assumed": list(deployment.assumed_blocks),
        "constants": constants,
        "model": {"source": deployment.model.source, "confidence": deployment.model.confidence},
        "weight_dtype": deployment.weight_dtype,
        "expert_dtype": deployment.expert_dtype,
        "price": None
        if price is None
        else {
            "usd_per_gpu_hour": price.usd_per_gpu_hour,
            "as_of": None if price.as_of is None else price.as_of.isoformat(),
            "source": price.source,
        },
        "calibration": laid.provenance(),
        "band": f"{N_SAMPLES} samples, seed {SEED}, 10th to 90th percentile",
    }
