"""The errors of all cases, computed once, and what the contract's summary says about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from specsim.catalog.case import load_cases
from specsim.schema.case import Case
from specsim.schema.validation import CaseCheck, Validation
from specsim.validation.summary import Figures, validate

ROOT = Path(__file__).parents[2]
CASES = ROOT / "validation" / "cases"
OVERHEAD = ROOT / "validation" / "overhead"
STAND_INS = ROOT / "validation" / "stand_ins"

Summary = dict[str, dict[str, Figures]]

GROUPS = {
    "all": "all",
    "AB": "A and B",
    "A": "A",
    "B": "B",
    "C": "C",
    "tune": "tune, all grades",
    "test": "test, all grades",
    "tune_AB": "tune, A and B",
    "test_AB": "test, A and B",
}


@dataclass(frozen=True)
class Bar:
    """A bar of the design, as a figure of the summary."""

    what: str
    metric: str
    figure: str
    """A name in the summary, or `part/n`."""
    limit: float
    """In percent."""
    at_least: bool = False

    def value(self, figures: dict[str, Figures]) -> float | None:
        """Return the figure in percent; None where nothing was measured."""
        entry = figures[self.metric]
        part, _, n = self.figure.partition("/")
        if not n:
            return entry.get(part)
        count, right = entry.get(n), entry.get(part)
        return 100.0 * right / count if count and right is not None else None

    def met(self, value: float) -> bool:
        """Whether a value is on the right side."""
        return value >= self.limit if self.at_least else abs(value) <= self.limit


BARS = (
    Bar("speedup: median error, %", "speedup", "median_abs_pct", 6.0),
    Bar("speedup: p90 of the error, %", "speedup", "p90_abs_pct", 15.0),
    Bar("speedup: bias, %", "speedup", "bias_pct", 2.0),
    Bar("sign right, % of points 5 % or more from 1", "sign", "agree/n", 95.0, at_least=True),
    Bar("sign right where measured slower, %", "slower", "agree/n", 80.0, at_least=True),
    Bar("crossover within one step, % of curves", "crossover", "within_one_step/n", 90.0,
        at_least=True),
    Bar("best k within 2 % of the best speed, % of sweeps", "best_k", "good/n", 90.0,
        at_least=True),
    Bar("TPOT without speculation: median error, %", "tpot_baseline", "median_abs_pct", 10.0),
)  # fmt: skip
COVERAGE = (70.0, 90.0)
"""The 80 % band is to hold this share of the measurements, in percent."""


@lru_cache(maxsize=1)
def validation() -> Validation:
    """Return the comparison of all shipped cases with predictions."""
    return validate(CASES)


@lru_cache(maxsize=1)
def overhead() -> Validation:
    """Return the comparison of the reports whose cause is the engine."""
    return validate(OVERHEAD, search=(STAND_INS,))


@lru_cache(maxsize=1)
def cases() -> dict[str, Case]:
    """Return the shipped cases by name."""
    return {case.case: case for case in load_cases(CASES)}


def by_source(found: Validation) -> dict[str, list[CaseCheck]]:
    """Return the checks of each source, sorted by its name."""
    groups: dict[str, list[CaseCheck]] = {}
    for check in sorted(found.cases, key=lambda c: c.case):
        groups.setdefault(check.case.partition("/")[0], []).append(check)
    return groups


def coverage(figures: dict[str, Figures]) -> float | None:
    """Return the share of measurements inside the 80 % band, in percent."""
    n, inside = figures["coverage_80"]["n"], figures["coverage_80"]["inside"]
    return 100.0 * inside / n if n and inside is not None else None
