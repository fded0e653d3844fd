"""What `specsim validate` says: the object of its `--json` (docs/validation.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from specsim.schema.results import says


@dataclass(frozen=True)
class ArmCheck:
    """One figure of one arm, measured and predicted."""

    arm: str = says("baseline or speculative")
    metric: str = says("tpot_ms or output_tok_s")
    measured: float = says("what the source says")
    predicted: float = says("what specsim says")

    @property
    def error_pct(self) -> float:
        """Signed error in percent."""
        return 100.0 * (self.predicted / self.measured - 1.0)


@dataclass(frozen=True)
class PointCheck:
    """One point of a case."""

    index: int = says("of the point in its case, from 0")
    load: float | None = says("concurrency or request rate; null: tokens in a step")
    override: dict[str, Any] = says("scenario values that differ at this point")
    num_speculative_tokens: int = says("draft tokens per step")
    measured_speedup: float | None = says("on / off as scored; null: not measured")
    predicted_speedup: float | None = says("on / off")
    speedup_low: float | None = says("10th percentile")
    speedup_high: float | None = says("90th percentile")
    arms: tuple[ArmCheck, ...] = says("absolute figures")
    failed: str = says("why there is no prediction; empty: there is one")
    below_bound: bool = field(
        default=False,
        metadata={
            "description": "slower than any acceptance explains: look at the engine path",
            "unit": "",
        },
    )

    @property
    def error_pct(self) -> float | None:
        """Signed error of the speedup in percent."""
        if self.measured_speedup is None or self.predicted_speedup is None:
            return None
        return 100.0 * (self.predicted_speedup / self.measured_speedup - 1.0)


@dataclass(frozen=True)
class CurveCheck:
    """A ladder of loads of one case: where on/off first falls below 1, as a step of the ladder."""

    loads: tuple[float, ...] = says("the ladder")
    measured_step: int = says("index of the first load that loses; its length: none does")
    predicted_step: int = says("the same, predicted")

    @property
    def crosses(self) -> bool:
        """Whether the measured curve loses anywhere on the ladder."""
        return self.measured_step < len(self.loads)

    @property
    def right(self) -> bool:
        """The same step or a neighbour."""
        return abs(self.measured_step - self.predicted_step) <= 1


@dataclass(frozen=True)
class SweepCheck:
    """A sweep of draft tokens at one load."""

    load: float = says("concurrency or request rate")
    ks: tuple[int, ...] = says("k swept, or tokens of trees")
    measured: tuple[float, ...] = says("measured speed, relative")
    predicted: tuple[float, ...] = says("predicted speed, relative")

    @property
    def share_of_best(self) -> float:
        """Measured speed at the predicted best, over the best measured."""
        chosen = max(range(len(self.ks)), key=lambda i: self.predicted[i])
        return self.measured[chosen] / max(self.measured)


@dataclass(frozen=True)
class CaseCheck:
    """One case."""

    case: str = says("source/name")
    grade: str = says("A everything stated, B one input assumed, C several")
    role: str = says("tune or test")
    scored: bool = says("false: the source shows a problem of the engine's path")
    points: tuple[PointCheck, ...] = says("its points")
    curves: tuple[CurveCheck, ...] = says("its ladders of loads")
    sweeps: tuple[SweepCheck, ...] = says("its sweeps of k")
    failed: str = says("why the case could not be run at all")


@dataclass(frozen=True)
class Validation:
    """All cases and their summary by grade and role."""

    summary: dict[str, dict[str, dict[str, float | None]]] = says("by grade and role")
    cases: tuple[CaseCheck, ...] = says("case by case")
    failed: tuple[str, ...] = says("cases or points that could not be run, with the reason")
