"""The figures by grade, role and source, against the bars."""

from __future__ import annotations

from collections.abc import Iterator

from specsim.schema.validation import CaseCheck
from specsim.validation.summary import Figures, summarise
from validation_report import figures
from validation_report.markdown import NONE, linked, percent, section, share, table
from validation_report.shortfall import shortfall_section

BARS_TEXT = """\
The bars are those that the project set itself before fitting. They are to hold on `test` cases of
grade A and B, which no constant was fitted on; a bar that is missed stays missed, and the reason
is below under what the model gets wrong. A rule 'always faster' would get most signs right, so the
points that were measured slower are counted apart.
"""
READING = """\
Speedup is on / off; its error is of that ratio, the bias the signed median. Signs count where the
measured speedup is 5 % or more from 1. A crossover is right within one step of the measured ladder
of loads, a best k where its measured speed is within 2 % of the best. Grade A: everything stated;
B: one input assumed; C: several, good for the sign only. Role: constants were fitted on `tune`
cases only; whole sources are one or the other.
"""


def headline() -> str:
    """Return the one sentence that the README shows."""
    summary = figures.validation().summary
    test, tune = summary["test_AB"], summary["tune_AB"]
    inside = figures.coverage(test)
    return (
        f"On published measurements that no constant was fitted on (grades A and B, "
        f"{test['speedup']['n']:.0f} points) the speedup is off by "
        f"**{percent(test['speedup']['median_abs_pct'])} %** at the median "
        f"(p90 {percent(test['speedup']['p90_abs_pct'])} %, bias "
        f"{percent(test['speedup']['bias_pct'], signed=True)} %), "
        f"faster or slower is right for **{share(test['sign']['agree'], test['sign']['n'])}**, and "
        f"the 80 % interval holds {NONE if inside is None else f'{inside:.0f} %'} of them. Where "
        f"constants were fitted the median is {percent(tune['speedup']['median_abs_pct'])} % over "
        f"{tune['speedup']['n']:.0f} points. Time per token without speculation: "
        f"{percent(summary['AB']['tpot_baseline']['median_abs_pct'])} % over "
        f"{summary['AB']['tpot_baseline']['n']:.0f} points."
    )


def summary_section() -> str:
    """Return all entries of the contract by grade and role, and the bars."""
    found = figures.validation()
    scored = sum(c.scored for c in found.cases)
    counts = (
        f"{sum(len(c.points) for c in found.cases)} points of {len(found.cases)} cases from "
        f"{len(figures.by_source(found))} sources; {len(found.cases) - scored} cases are shown and "
        f"not scored, as their source itself names a problem of the engine's path."
    )
    return section(
        "Summary",
        headline(),
        counts,
        READING.strip(),
        table(
            ("cases", "speedup: n", "median %", "p90 %", "bias %", "sign", "slower", "crossover",
             "best k", "80 % band holds", "could not be run"),
            (_accuracy(name) for name in figures.GROUPS),
        ),
        table(
            ("cases", "TPOT: n", "median %", "off: n", "median %", "tokens/s: n", "median %"),
            (_absolute(name) for name in figures.GROUPS),
        ),
        "### Against the bars",
        BARS_TEXT.strip(),
        _bars(),
        shortfall_section(),
    )  # fmt: skip


def _accuracy(name: str) -> tuple[str, ...]:
    f = figures.validation().summary[name]
    return (
        figures.GROUPS[name],
        f"{f['speedup']['n']:.0f}",
        percent(f["speedup"]["median_abs_pct"]),
        percent(f["speedup"]["p90_abs_pct"]),
        percent(f["speedup"]["bias_pct"], signed=True),
        share(f["sign"]["agree"], f["sign"]["n"]),
        share(f["slower"]["agree"], f["slower"]["n"]),
        share(f["crossover"]["within_one_step"], f["crossover"]["n"]),
        share(f["best_k"]["good"], f["best_k"]["n"]),
        share(f["coverage_80"]["inside"], f["coverage_80"]["n"]),
        f"{f['failed']['n']:.0f}",
    )


def _absolute(name: str) -> tuple[str, ...]:
    f = figures.validation().summary[name]
    cells = [figures.GROUPS[name]]
    for metric in ("tpot", "tpot_baseline", "output_tok_s"):
        cells += [f"{f[metric]['n']:.0f}", percent(f[metric]["median_abs_pct"])]
    return tuple(cells)


def _bars() -> str:
    summary = figures.validation().summary

    def cell(bar: figures.Bar, name: str) -> str:
        value = bar.value(summary[name])
        if value is None:
            return NONE
        return f"{percent(value)} {'met' if bar.met(value) else '**missed**'}"

    def band(name: str) -> str:
        value = figures.coverage(summary[name])
        if value is None:
            return NONE
        low, high = figures.COVERAGE
        return f"{percent(value)} {'met' if low <= value <= high else '**missed**'}"

    names = ("test_AB", "tune_AB", "AB")
    rows = [
        (
            bar.what,
            f"{'>=' if bar.at_least else '<='} {bar.limit:g}",
            *(cell(bar, n) for n in names),
        )
        for bar in figures.BARS
    ]
    low, high = figures.COVERAGE
    rows.append(
        ("inside the 80 % band, % of points", f"{low:g} to {high:g}", *(band(n) for n in names))
    )
    return table(("what", "bar", *(figures.GROUPS[n] for n in names)), rows)


def sources_section() -> str:
    """Return a row for each source."""
    rows = [_source(name, checks) for name, checks in _sorted_sources()]
    return section(
        "Sources",
        "Errors in percent, medians; bias is the signed median of the speedup error. Each case "
        "file cites its own page.",
        table(
            ("source", "grade", "role", "points", "speedup", "bias", "sign", "crossover", "best k",
             "TPOT", "tokens/s", "80 % band holds"),
            rows,
        ),
    )  # fmt: skip


def _sorted_sources() -> Iterator[tuple[str, list[CaseCheck]]]:
    yield from figures.by_source(figures.validation()).items()


def _source(name: str, checks: list[CaseCheck]) -> tuple[str, ...]:
    f: dict[str, Figures] = summarise(checks)
    urls = [figures.cases()[c.case].source.url for c in checks if c.case in figures.cases()]
    same = name != "replay" and bool(urls)
    scored = any(c.scored for c in checks)
    return (
        linked(name, urls[0]) if same else name,
        "/".join(sorted({c.grade for c in checks})),
        "/".join(sorted({c.role for c in checks})) + ("" if scored else ", not scored"),
        f"{sum(len(c.points) for c in checks)}",
        percent(f["speedup"]["median_abs_pct"]),
        percent(f["speedup"]["bias_pct"], signed=True),
        _of(f["sign"]["agree"], f["sign"]["n"]),
        _of(f["crossover"]["within_one_step"], f["crossover"]["n"]),
        _of(f["best_k"]["good"], f["best_k"]["n"]),
        percent(f["tpot"]["median_abs_pct"]),
        percent(f["output_tok_s"]["median_abs_pct"]),
        _of(f["coverage_80"]["inside"], f["coverage_80"]["n"]),
    )


def _of(part: float | None, n: float | None) -> str:
    return f"{part:.0f}/{n:.0f}" if n and part is not None else NONE
