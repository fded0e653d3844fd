"""Which deployments of a plan a workbook shows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from specsim.catalog.scenario import load_scenario
from specsim.export.workbook.subjects import shown_of
from specsim.schema.plan import Plan
from specsim.schema.scenario import Scenario

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_a_plan_whose_drafter_does_not_fit_still_shows_the_arm_that_does() -> None:
    base = load_scenario(EXAMPLES / "llama-3.3-70b-4xh100.yaml")
    off = base.model_copy(update={"speculation": base.speculation.model_copy(
        update={"method": "none", "drafter": None, "acceptance": None}
    )})  # fmt: skip

    def candidate(arm: str, source: Scenario, stable_rate: float | None) -> SimpleNamespace:
        return SimpleNamespace(arm=arm, source=source, stable_rate=stable_rate, deployment=arm)

    def shown(*candidates: SimpleNamespace) -> list[str]:
        plan = cast(Plan, SimpleNamespace(candidates=candidates))
        return [s.name for s in shown_of(plan, base.load)]

    fits, untested = candidate("baseline", off, 9.0), candidate("speculative", base, None)
    assert shown(fits, untested) == ["baseline"]
    assert shown(fits, candidate("speculative", base, 8.0)) == ["speculative"]
    assert shown(candidate("baseline", off, None), untested) == []
