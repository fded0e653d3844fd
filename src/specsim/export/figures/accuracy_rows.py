"""Published cases beside their predictions, as records: by case, by point, against the targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from specsim.catalog.case import shipped_cases
from specsim.catalog.files import read_mapping
from specsim.export.figures.look import Rows
from specsim.schema.case import Case
from specsim.schema.validation import CaseCheck, PointCheck
from specsim.validation.check import besides_load
from specsim.validation.summary import Figures, summarise

LIMIT_PCT = 15.0
"""Cases with a median error above it are listed as misses."""
_GROUPS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "test_AB": ("test, A and B", ("test",), ("A", "B")),
    "tune_AB": ("tune, A and B", ("tune",), ("A", "B")),
    "A": ("A", ("tune", "test"), ("A",)),
    "B": ("B", ("tune", "test"), ("B",)),
    "C": ("C", ("tune", "test"), ("C",)),
    "all": ("all", ("tune", "test"), ("A", "B", "C")),
}
_WHOLE_FROM = 99.95
"""From here on a percentage is a whole number."""
_METRICS = {"speedup": "speedup", "tpot": "time per token", "output_tok_s": "tokens/s"}


@dataclass(frozen=True)
class Checked:
    """A case, and how its predictions compare with it."""

    case: Case | None
    check: CaseCheck

    @property
    def name(self) -> str:
        """Source and name of the case."""
        return self.check.case

    @property
    def source(self) -> str:
        """The source alone."""
        return self.check.case.partition("/")[0]

    def facet(self, name: str) -> str:
        """Return what the case says of one thing that cases are picked by; '' where nothing."""
        if name == "source":
            return self.source
        if name in ("grade", "role"):
            return str(getattr(self.check, name))
        if self.case is None:
            return ""
        scenario = self.case.scenario
        return str({
            "model": scenario.target.model,
            "GPU": scenario.hardware.accelerator,
            "method": scenario.speculation.method,
            "engine": scenario.engine.name,
        }[name])  # fmt: skip


FACETS = ("model", "GPU", "method", "engine", "source", "grade", "role")
"""What cases can be picked by."""


def picked(cases: Iterable[Checked], chosen: Mapping[str, Sequence[str]]) -> list[Checked]:
    """Return the cases that are of one of the chosen values of every facet that has any."""
    return [
        c
        for c in cases
        if all(not values or c.facet(name) in values for name, values in chosen.items())
    ]


def percent(value: float) -> str:
    """Return a percentage with as many digits as say something.

    >>> percent(5.43), percent(120.2)
    ('5.4 %', '120 %')
    """
    return f"{value:.1f} %" if abs(value) < _WHOLE_FROM else f"{value:.0f} %"


@dataclass(frozen=True)
class Bar:
    """What the project asked of itself before anything was fitted (docs/validation.md)."""

    what: str
    metric: str
    figure: str
    """A name in the summary, or `part/n`."""
    low: float
    high: float
    """Between which the figure, in percent, is to be."""

    def value(self, summary: Mapping[str, Figures]) -> float | None:
        """Return the figure in percent; None where nothing was measured."""
        entry = summary[self.metric]
        part, _, n = self.figure.partition("/")
        if not n:
            return entry.get(part)
        count, right = entry.get(n), entry.get(part)
        return 100.0 * right / count if count and right is not None else None

    def met(self, value: float) -> bool:
        """Whether a figure is where it should be."""
        return self.low <= value <= self.high

    def mark(self, value: float) -> str:
        """Return the sign of a figure: an interval that holds more than asked is no miss."""
        if self.met(value):
            return "✓"
        return "△" if self.metric == "coverage_80" and value > self.high else "✗"

    @property
    def wanted(self) -> str:
        """The target in words."""
        if self.high >= 100.0:
            return f"at least {self.low:g} %"
        if self.low < 0.0:
            return f"within ±{self.high:g} %"
        return f"at most {self.high:g} %" if self.low == 0.0 else f"{self.low:g} to {self.high:g} %"


BARS = (
    Bar("speedup, median error", "speedup", "median_abs_pct", 0.0, 6.0),
    Bar("speedup, 90th percentile of the error", "speedup", "p90_abs_pct", 0.0, 15.0),
    Bar("speedup, bias", "speedup", "bias_pct", -2.0, 2.0),
    Bar("faster or slower is right", "sign", "agree/n", 95.0, 100.0),
    Bar("slower is right", "slower", "agree/n", 80.0, 100.0),
    Bar("crossover within one step of the ladder", "crossover", "within_one_step/n", 90.0, 100.0),
    Bar("best k within 2 % of the best speed", "best_k", "good/n", 90.0, 100.0),
    Bar("time per token without speculation, median error", "tpot_baseline", "median_abs_pct",
        0.0, 10.0),
    Bar("measured inside the 80 % interval", "coverage_80", "inside/n", 70.0, 90.0),
)  # fmt: skip


def summaries(cases: Sequence[Checked]) -> dict[str, dict[str, Figures]]:
    """Return the errors by role and grade: of groups that have cases."""
    found = {}
    for title, roles, grades in _GROUPS.values():
        members = [c.check for c in cases if c.check.role in roles and c.check.grade in grades]
        if members:
            found[title] = summarise(members)
    return found


def bar_rows(cases: Sequence[Checked]) -> Rows:
    """Return a record per target: what is asked, and each group's figure with a mark."""
    groups = summaries(cases)
    rows: Rows = []
    for bar in BARS:
        row: dict[str, Any] = {"figure": bar.what, "target": bar.wanted}
        for title, summary in groups.items():
            value = bar.value(summary)
            n = summary[bar.metric]["n"] or 0.0
            said = "" if value is None else f"{bar.mark(value)} {percent(value)} of {n:.0f}"
            row[title] = said or "–"
        rows.append(row)
    return rows


def point_rows(cases: Iterable[Checked]) -> Rows:
    """Return a record per point with a measured speedup."""
    rows: Rows = []
    for c in cases:
        url = "" if c.case is None else c.case.source.url
        for p in c.check.points:
            if p.measured_speedup is None or p.predicted_speedup is None:
                continue
            rows.append({
                "case": c.name, "grade": c.check.grade, "role": c.check.role,
                "model": c.facet("model"), "GPU": c.facet("GPU"), "method": c.facet("method"),
                "k": p.num_speculative_tokens, "load": p.load, "measured": p.measured_speedup,
                "predicted": p.predicted_speedup, "low": p.speedup_low, "high": p.speedup_high,
                "error %": p.error_pct, "scored": c.check.scored, "source": url,
            })  # fmt: skip
    return rows


def case_rows(cases: Iterable[Checked]) -> Rows:
    """Return a record per case: its errors, medians in percent."""
    rows: Rows = []
    for c in cases:
        errors = signed_errors(c.check)
        rows.append({
            "case": c.name, "model": c.facet("model"), "GPU": c.facet("GPU"),
            "method": c.facet("method"), "grade": c.check.grade,
            "role": c.check.role if c.check.scored else f"{c.check.role}, not scored",
            "points": len(c.check.points),
            **{f"{title} %": errors.get(metric) for metric, title in _METRICS.items()},
            "source": "" if c.case is None else c.case.source.url,
        })  # fmt: skip
    return rows


def signed_errors(check: CaseCheck) -> dict[str, float]:
    """Return the median error of each metric in percent; '+' is a prediction that is too high."""
    arms = [a for p in check.points for a in p.arms]
    signed = {
        "speedup": [p.error_pct for p in check.points if p.error_pct is not None],
        "tpot": [a.error_pct for a in arms if a.metric == "tpot_ms"],
        "output_tok_s": [a.error_pct for a in arms if a.metric == "output_tok_s"],
    }
    found = {}
    for metric, errors in signed.items():
        if errors:
            middle = sorted(errors)[len(errors) // 2]
            sizes = sorted(map(abs, errors))
            half = (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2.0
            found[metric] = half if middle >= 0 else -half
    return found


def failures(cases: Iterable[Checked]) -> list[str]:
    """Return why cases, or points of them, could not be run: a sentence each."""
    found = []
    for c in cases:
        reasons = [c.check.failed, *(p.failed for p in c.check.points)]
        found += [f"{c.name}: {reason}" for reason in dict.fromkeys(reasons) if reason]
    return found


def notes(path: Path | None = None) -> list[dict[str, Any]]:
    """Return why cases are missed, as the shipped validation says; none where it does not ship."""
    path = shipped_cases().parent / "notes.yaml" if path is None else path
    if not path.is_file():
        return []
    found: list[dict[str, Any]] = read_mapping(path)["entries"]
    return found


def miss_rows(cases: Iterable[Checked], entries: Sequence[Mapping[str, Any]]) -> Rows:
    """Return a record per case above the limit, the worst first, with the cause that is known."""
    rows: Rows = []
    for c in cases:
        errors = signed_errors(c.check)
        if not any(abs(e) > LIMIT_PCT for e in errors.values()):
            continue
        spoken = (e for e in entries if any(fnmatchcase(c.name, p) for p in e["cases"]))
        entry = next(spoken, None)
        own = "" if c.case is None else c.case.note
        why = own if entry is None else " ".join(str(entry["why"]).split())
        rows.append({
            "case": c.name, "cause": "" if entry is None else entry["title"], "why": why,
            **{f"{title} %": errors.get(metric) for metric, title in _METRICS.items()},
            "grade": c.check.grade, "role": c.check.role, "scored": c.check.scored,
        })  # fmt: skip
    worst = [f"{title} %" for title in _METRICS.values()]
    return sorted(rows, key=lambda r: -max(abs(r[name] or 0.0) for name in worst))


def ladders(check: CaseCheck) -> dict[str, list[PointCheck]]:
    """Return the points of a case by what they differ in besides the load."""
    groups: dict[str, list[PointCheck]] = {}
    for p in check.points:
        rest = ", ".join(f"{k.rpartition('.')[2]} = {v}" for k, v in besides_load(p))
        groups.setdefault(rest, []).append(p)
    return {
        name: sorted(points, key=lambda p: p.load or 0.0) for name, points in groups.items()
    }  # fmt: skip


def curve_rows(c: Checked, ladder: str) -> Rows:
    """Return a record per load of a ladder: speedup and both arms, measured and predicted."""
    rows: Rows = []
    for p in ladders(c.check)[ladder]:
        row: dict[str, Any] = {
            "load": p.load, "measured": p.measured_speedup, "predicted": p.predicted_speedup,
            "low": p.speedup_low, "high": p.speedup_high, "error %": p.error_pct,
        }  # fmt: skip
        for a in p.arms:
            arm = "off" if a.arm == "baseline" else "on"
            row |= {f"{a.metric} {arm} measured": a.measured,
                    f"{a.metric} {arm} predicted": a.predicted}  # fmt: skip
        row["to know"] = p.failed
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def is_open(c: Checked, ladder: str) -> bool:
    """Whether the loads of a ladder are request rates."""
    first = ladders(c.check)[ladder][0]
    return c.case is not None and c.case.points[first.index].request_rate is not None


def arm_rows(c: Checked, ladder: str, metric: str) -> Rows:
    """Return a record per load and arm of one absolute figure, measured and predicted."""
    return [
        {"load": p.load, "arm": "off" if a.arm == "baseline" else "on", "measured": a.measured,
         "predicted": a.predicted, "error %": a.error_pct}
        for p in ladders(c.check)[ladder]
        for a in p.arms
        if a.metric == metric and p.load
    ]  # fmt: skip
