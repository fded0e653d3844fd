"""A case: a scenario with what somebody measured on it (docs/validation.md)."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from specsim.schema.base import Record
from specsim.schema.scenario import Scenario

Grade = Literal["A", "B", "C"]
"""A: everything stated. B: one input assumed. C: several assumed, only the sign counts."""
Role = Literal["tune", "test"]
Direction = Literal["faster", "slower", "neutral"]
SpeedupOf = Literal["output_tok_s", "tpot", "e2e"]


class Source(Record):
    """Where the figures were published."""

    title: str = Field(min_length=1)
    url: str = Field(min_length=1)
    date: str = Field(description="year, year-month or day of publication")
    license: str = Field(description="what may be taken over, such as 'facts only'")

    @field_validator("date", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """YAML reads a whole day as a date and a bare year as a number."""
        if isinstance(value, date):
            return value.isoformat()
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class MeasuredArm(Record):
    """One arm as measured: any subset."""

    output_tok_s: float | None = Field(default=None, gt=0, description="[tokens/s]")
    tpot_ms: float | None = Field(default=None, gt=0, description="[ms]")
    ttft_ms: float | None = Field(default=None, gt=0, description="[ms]")

    @model_validator(mode="after")
    def _something(self) -> MeasuredArm:
        if not self.model_dump(exclude_none=True):
            raise ValueError("an arm needs one of output_tok_s, tpot_ms, ttft_ms")
        return self


class Measured(Record):
    """What the source says about a point."""

    baseline: MeasuredArm | None = Field(default=None, description="speculation off")
    speculative: MeasuredArm | None = Field(default=None, description="speculation on")
    speedup: float | None = Field(default=None, gt=0, description="on / off, where only that")
    speedup_of: SpeedupOf | None = Field(default=None, description="what the ratio is of")
    direction: Direction | None = Field(
        default=None, description="on against off, where the source gives no figure"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Measured:
        if not self.model_dump(exclude_none=True):
            raise ValueError("a point needs baseline, speculative, speedup or direction")
        if (self.speedup is None) != (self.speedup_of is None):
            raise ValueError("speedup and speedup_of belong together; give both or neither")
        return self


class CasePoint(Record):
    """One load, or one forward pass, with what was measured there."""

    concurrency: float | None = Field(default=None, ge=1, description="closed loop [requests]")
    request_rate: float | None = Field(default=None, gt=0, description="open loop [requests/s]")
    tokens_in_step: float | None = Field(
        default=None, gt=0, description="new tokens in one forward pass, over all requests"
    )
    override: dict[str, Any] = Field(
        default={}, description="scenario values that differ here, by dotted name"
    )
    acceptance_length: float | None = Field(
        default=None, ge=1, description="as measured here, in place of the scenario's acceptance"
    )
    measured: Measured

    @model_validator(mode="after")
    def _one_load(self) -> CasePoint:
        kinds = ("concurrency", "request_rate", "tokens_in_step")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(
                f"exactly one of {', '.join(kinds)} must be given, got {', '.join(given) or 'none'}"
            )
        loads = [name for name in self.override if name.split(".")[0] == "load"]
        if loads:
            raise ValueError(f"override {loads[0]!r}: the load is {given[0]}, beside override")
        return self


class Case(Record):
    """A scenario without load, and the points that were measured on it."""

    case: str = Field(pattern=r"^[^/\s]+/[^/\s]+$", description="source-slug/short-name")
    source: Source
    grade: Grade
    role: Role | None = None
    engine_path_suspect: bool = Field(
        default=False, description="the source shows a kernel or host-path problem: not scored"
    )
    assumed: tuple[str, ...] = Field(
        default=(), description="dotted names of inputs that the source does not state"
    )
    note: str = Field(default="", description="what to know when reading the comparison")
    scenario: Scenario
    points: tuple[CasePoint, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _load_by_point(self) -> Case:
        if "load" in self.scenario.model_fields_set:
            raise ValueError("scenario.load does not belong in a case: every point gives its own")
        return self
