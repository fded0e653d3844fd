"""Errors of many cases, by grade and role (design: contract of `validate --json`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from specsim.catalog.case import case_files, load_case
from specsim.errors import SpecsimError
from specsim.schema.validation import CaseCheck, PointCheck, Validation
from specsim.validation.check import N_SAMPLES, check_case

Figures = dict[str, float | None]

_GROUPS: dict[str, Callable[[CaseCheck], bool]] = {
    "all": lambda c: True,
    "AB": lambda c: c.grade in ("A", "B"),
    "A": lambda c: c.grade == "A",
    "B": lambda c: c.grade == "B",
    "C": lambda c: c.grade == "C",
    "tune": lambda c: c.role == "tune",
    "test": lambda c: c.role == "test",
    "test_AB": lambda c: c.role == "test" and c.grade in ("A", "B"),
    "tune_AB": lambda c: c.role == "tune" and c.grade in ("A", "B"),
}
_DECISIVE = 0.05
"""Signs count where the measured speedup is this far from 1."""
_NEARLY_BEST = 0.98


def validate(path: Path, *, search: Sequence[Path] = (), n_samples: int = N_SAMPLES) -> Validation:
    """Predict every case under `path` and say how far off it is.

    A case that cannot be read or run is listed with its reason, and the others go on.

    Raises
    ------
    NotFoundError
        There are no case files.
    """
    checks: list[CaseCheck] = []
    failed: list[str] = []
    for file in case_files(path):
        try:
            check = check_case(load_case(file), search=search, n_samples=n_samples)
        except SpecsimError as error:
            failed.append(str(error))
            checks.append(CaseCheck(file.stem, "?", "?", False, (), (), (), str(error)))
            continue
        checks.append(check)
        reasons = dict.fromkeys(p.failed for p in check.points if p.failed)
        failed += [f"{check.case}: {reason}" for reason in reasons]
    return Validation(
        summary={name: summarise(filter(member, checks)) for name, member in _GROUPS.items()},
        cases=tuple(checks),
        failed=tuple(failed),
    )


def summarise(cases: Iterable[CaseCheck]) -> dict[str, Figures]:
    """Return the errors of cases; those with a suspect engine path are not scored."""
    scored = [c for c in cases if c.scored and not c.failed]
    points = [p for c in scored for p in c.points]
    compared = [p for p in points if p.error_pct is not None]
    curves = [curve for c in scored for curve in c.curves if curve.crosses]
    sweeps = [s for c in scored for s in c.sweeps]
    return {
        "speedup": _errors([_pct(p) for p in compared], with_bias=True),
        "sign": _agreement([p for p in compared if _is_decisive(p)], _same_side),
        "slower": _agreement([p for p in compared if _is_loss(p)], _same_side),
        "crossover": {"n": len(curves), "within_one_step": sum(c.right for c in curves)},
        "best_k": {
            "n": len(sweeps),
            "good": sum(s.share_of_best >= _NEARLY_BEST for s in sweeps),
        },
        "tpot": _errors(_arm_errors(points, "tpot_ms")),
        "tpot_baseline": _errors(_arm_errors(points, "tpot_ms", "baseline")),
        "output_tok_s": _errors(_arm_errors(points, "output_tok_s")),
        "coverage_80": {"n": len(compared), "inside": sum(_inside(p) for p in compared)},
        "failed": {"n": sum(bool(p.failed) for p in points)},
    }


def _pct(p: PointCheck) -> float:
    assert p.error_pct is not None
    return p.error_pct


def _arm_errors(points: list[PointCheck], metric: str, arm: str | None = None) -> list[float]:
    return [
        a.error_pct for p in points for a in p.arms if a.metric == metric and arm in (None, a.arm)
    ]


def _errors(errors: list[float], *, with_bias: bool = False) -> Figures:
    figures: Figures = {"n": len(errors), "median_abs_pct": None}
    if with_bias:
        figures |= {"p90_abs_pct": None, "bias_pct": None}
    if errors:
        size = np.abs(errors)
        figures["median_abs_pct"] = float(np.median(size))
        if with_bias:
            figures["p90_abs_pct"] = float(np.percentile(size, 90))
            figures["bias_pct"] = float(np.median(errors))
    return figures


def _agreement(points: list[PointCheck], agrees: Callable[[PointCheck], bool]) -> Figures:
    return {"n": len(points), "agree": sum(agrees(p) for p in points)}


def _is_decisive(p: PointCheck) -> bool:
    return p.measured_speedup is not None and abs(p.measured_speedup - 1.0) >= _DECISIVE


def _is_loss(p: PointCheck) -> bool:
    return _is_decisive(p) and (p.measured_speedup or 0.0) < 1.0


def _same_side(p: PointCheck) -> bool:
    return ((p.measured_speedup or 0.0) > 1.0) == ((p.predicted_speedup or 0.0) > 1.0)


def _inside(p: PointCheck) -> bool:
    assert p.measured_speedup is not None
    assert p.speedup_low is not None
    assert p.speedup_high is not None
    return p.speedup_low <= p.measured_speedup <= p.speedup_high
