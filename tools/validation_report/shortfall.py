"""Which sources a missed bar comes from, and what the rest would be without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specsim.schema.validation import CaseCheck
from specsim.validation.summary import Figures, summarise
from validation_report import figures, misses
from validation_report.markdown import NONE, percent, section, table

TEXT = """\
The points on `test` cases of grade A and B that are more than {limit:g} % off, on the wrong side of
1, or at the wrong crossover or k, by source. 'Without it' are the median and the 90th percentile
over all other sources: what that source costs. The causes are told under
[What the model gets wrong](#what-the-model-gets-wrong).
"""


def shortfall_section() -> str:
    """Return the table of sources that miss, the largest share of points first."""
    cases = [
        c for c in figures.validation().cases if c.scored and c.role == "test" and c.grade in "AB"
    ]
    return section(
        "Where the bars are missed",
        TEXT.strip().format(limit=misses.LIMIT_PCT),
        table(
            (
                "source", "points", f"over {misses.LIMIT_PCT:g} %", "wrong side", "crossover",
                "best k", "median % without it", "p90 % without it", "cause",
            ),
            _rows(cases),
        ),
        level=3,
    )  # fmt: skip


def _rows(cases: Sequence[CaseCheck]) -> Iterator[tuple[str, ...]]:
    by_source: dict[str, list[CaseCheck]] = {}
    for case in cases:
        by_source.setdefault(_source(case), []).append(case)
    found = []
    for source, own in by_source.items():
        errors = [p.error_pct for c in own for p in c.points if p.error_pct is not None]
        far = sum(abs(e) > misses.LIMIT_PCT for e in errors)
        own_figures = summarise(own)
        wrong = [
            _wrong(own_figures["sign"], "agree"),
            _wrong(own_figures["crossover"], "within_one_step"),
            _wrong(own_figures["best_k"], "good"),
        ]
        if not (far or any(wrong)):
            continue
        rest = summarise([c for c in cases if _source(c) != source])["speedup"]
        row = (
            source,
            f"{len(errors)}",
            f"{far}",
            *(f"{n}" if n else NONE for n in wrong),
            percent(rest["median_abs_pct"]),
            percent(rest["p90_abs_pct"]),
            _cause(own),
        )
        found.append((far, row))
    yield from (row for _, row in sorted(found, key=lambda item: -item[0]))


def _source(case: CaseCheck) -> str:
    """Return the source; a public report is one by itself."""
    source, _, name = case.case.partition("/")
    return case.case if source == "replay" else source if name else case.case


def _wrong(entry: Figures, right: str) -> int:
    return round((entry["n"] or 0) - (entry[right] or 0))


def _cause(cases: Sequence[CaseCheck]) -> str:
    """Return the titles of the notes that speak of the cases with a point that is far off."""
    far = [
        c.case
        for c in cases
        if any(p.error_pct is not None and abs(p.error_pct) > misses.LIMIT_PCT for p in c.points)
    ] or [c.case for c in cases]
    titles = {
        next((e["title"] for e in misses.notes() if misses.matches(e, name)), "") for name in far
    }
    return "; ".join(sorted(filter(None, titles))) or "single points, within the scatter"
