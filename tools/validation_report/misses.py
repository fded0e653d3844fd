"""What the model gets wrong, with the error of today beside the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from specsim.catalog.files import read_mapping
from specsim.schema.validation import CaseCheck
from specsim.validation.summary import summarise
from validation_report import figures
from validation_report.markdown import percent, section

NOTES = figures.ROOT / "validation" / "notes.yaml"
LIMIT_PCT = 15.0
_METRICS = {"speedup": "speedup", "tpot": "TPOT", "output_tok_s": "tokens/s"}
TEXT = """\
Every case whose median error of speedup, time per token or throughput is above {limit:g} % is named
here, with what we think the reason is (words from `validation/notes.yaml`, figures computed). A
case's median errors follow in brackets; '+' is a prediction that is too high.
"""


def notes() -> list[dict[str, Any]]:
    """Return the entries, in the order written."""
    found: list[dict[str, Any]] = read_mapping(NOTES)["entries"]
    return found


def above_limit() -> dict[str, dict[str, float]]:
    """Return the cases with a median error above the limit, and their signed errors."""
    found = {}
    for case in figures.validation().cases:
        errors = _signed(case)
        if any(abs(e) > LIMIT_PCT for e in errors.values()):
            found[case.case] = errors
    return found


def _signed(case: CaseCheck) -> dict[str, float]:
    """Return the median error of each metric, with the sign of the bias."""
    figure = summarise([case if case.scored else _as_scored(case)])
    errors = {}
    for metric in _METRICS:
        size = figure[metric]["median_abs_pct"]
        if size is not None:
            errors[metric] = size if _bias(case, metric) >= 0 else -size
    return errors


def _as_scored(case: CaseCheck) -> CaseCheck:
    return replace(case, scored=True)


def _bias(case: CaseCheck, metric: str) -> float:
    if metric == "speedup":
        signed = [p.error_pct for p in case.points if p.error_pct is not None]
    elif metric == "tpot":
        signed = [a.error_pct for p in case.points for a in p.arms if a.metric == "tpot_ms"]
    else:
        signed = [a.error_pct for p in case.points for a in p.arms if a.metric == metric]
    return sorted(signed)[len(signed) // 2] if signed else 0.0


def matches(entry: dict[str, Any], case: str) -> bool:
    """Whether an entry speaks of a case; its patterns are those of file names."""
    return any(fnmatchcase(case, pattern) for pattern in entry["cases"])


def unexplained() -> list[str]:
    """Return the cases above the limit that no entry speaks of."""
    return [name for name in above_limit() if not any(matches(e, name) for e in notes())]


def misses_section() -> str:
    """Return a paragraph for each entry that applies today."""
    above = above_limit()
    return section(
        "What the model gets wrong",
        TEXT.strip().format(limit=LIMIT_PCT),
        *_paragraphs(above),
        *(
            f"**{name}: no explanation yet.** {_errors(above[name])}." for name in unexplained()
        ),
    )  # fmt: skip


def _paragraphs(above: dict[str, dict[str, float]]) -> Iterator[str]:
    left = dict.fromkeys(above)
    for entry in notes():
        # The first entry that speaks of a case has it.
        cases = [name for name in left if matches(entry, name)]
        for name in cases:
            del left[name]
        if not cases:
            continue
        why = " ".join(entry["why"].split())
        each = "; ".join(f"{name}: {_errors(above[name])}" for name in cases)
        yield f"**{entry['title']}.** {why} *({each})*"


def _errors(errors: dict[str, float]) -> str:
    return ", ".join(f"{_METRICS[m]} {percent(e, signed=True)} %" for m, e in errors.items())
