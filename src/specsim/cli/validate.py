"""`specsim validate`: published measurements against predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from specsim.cli.output import emit, json_option, output_option
from specsim.cli.parameters import refuse_scenarios
from specsim.cli.words import joined, notes, wrapped
from specsim.errors import InputError
from specsim.export.tables import MISSING, Cell, clipped, column, figure, grouped, table
from specsim.export.terminal import Screen
from specsim.schema.results import as_json as plain
from specsim.schema.validation import CaseCheck, PointCheck, Validation

_ROWS = {
    "all": "all cases",
    "AB": "A and B",
    "A": "A",
    "B": "B",
    "C": "C",
    "tune_AB": "A, B tuned on",
    "test_AB": "A, B untouched",
}
_LEGEND = (
    "speedup error: of on / off, in n points; bias: signed median",
    "right: sign where measured 5 % or more from 1, slower where it is below, crossover within one "
    "step of the ladder, best k within 2 % of the best speed, band: measured inside the 80 % "
    "interval",
    "median error %: time per output token with speculation off, output tokens/s of both arms",
    "grades: A everything is stated, B one input is assumed, C several",
)
_SHOWN_FAILURES = 12


@click.command("validate")
@click.option(
    "--cases",
    type=click.Path(exists=True, path_type=Path),
    help="A case file or a folder of them. [default: the cases that ship with specsim]",
)
@click.option(
    "--catalog",
    multiple=True,
    callback=refuse_scenarios,
    type=click.Path(path_type=Path),
    help="A file or folder with your own models, drafters and devices; repeatable.",
)
@click.option("--by-case", is_flag=True, help="A row for each case, not for each source.")
@json_option
@output_option
def command(
    cases: Path | None, catalog: tuple[Path, ...], by_case: bool, as_json: bool,
    output: Path | None,
) -> None:  # fmt: skip
    """Compare predictions with published measurements.

    Prints the errors of speedup, sign, crossover, best k and absolute speed by grade of the cases
    and by role: what was used for tuning, and what never was. A hundred cases take some seconds.
    """
    from specsim.catalog.case import shipped_cases
    from specsim.validation.summary import validate

    found = validate(cases or shipped_cases(), search=catalog)
    if found.failed and not any(c.points for c in found.cases):
        raise InputError(
            f"no case of {cases} could be run ({len(found.failed)} failed); the first: "
            f"{found.failed[0]}"
        )
    emit(
        lambda: plain(found),
        lambda screen: _report(screen, found, by_case=by_case),
        as_json=as_json,
        output=output,
    )


def _report(screen: Screen, found: Validation, *, by_case: bool) -> list[str]:
    scored = [c for c in found.cases if c.points]
    failures = list(found.failed[:_SHOWN_FAILURES])
    if len(found.failed) > _SHOWN_FAILURES:
        failures.append(f"and {len(found.failed) - _SHOWN_FAILURES} more (--json has all)")
    points = sum(len(c.points) for c in scored)
    title = f"VALIDATION  predicted against measured, {points:,} points of {len(scored)} cases"
    return joined(
        [
            [screen.paint(title, "strong"), *_summary(screen, found)],
            _parts(screen, scored, by_case=by_case),
            _below_bound(screen, scored),
            notes(screen, "COULD NOT BE RUN", failures, role="neutral"),
        ]
    )


def _below_bound(screen: Screen, cases: Sequence[CaseCheck]) -> list[str]:
    from specsim.validation.bounds import ADVICE

    found = [(case, point) for case in cases for point in case.points if point.below_bound]
    entries = [
        f"{case.case}, point {point.index + 1}: {_speeds(point)}; {ADVICE}" for case, point in found
    ]
    return notes(screen, "BELOW ANY BOUND", entries, role="neutral")


def _speeds(point: PointCheck) -> str:
    if point.measured_speedup is not None and point.speedup_low is not None:
        return f"on / off {point.measured_speedup:.2f}, predicted {point.speedup_low:.2f} or more"
    return "slower than twice the predicted step"


def _summary(screen: Screen, found: Validation) -> list[str]:
    rows = [name for name in _ROWS if found.summary[name]["output_tok_s"]["n"]]

    def get(row: str, metric: str, name: str) -> float | None:
        return found.summary[row][metric].get(name)

    def share(row: str, metric: str, name: str) -> str:
        n, good = get(row, metric, "n"), get(row, metric, name)
        return f"{good:.0f}/{n:.0f}" if n and good is not None else MISSING

    def median(row: str, metric: str) -> str:
        return figure(get(row, metric, "median_abs_pct"), 2)

    lines = table(
        screen,
        column("", ("grade",), rows, lambda r: _ROWS[r], left=True),
        [
            column(
                "speedup error %", ("n", "median", "p90", "bias"), rows,
                lambda r: f"{get(r, 'speedup', 'n'):.0f}",
                lambda r: median(r, "speedup"),
                lambda r: figure(get(r, "speedup", "p90_abs_pct"), 2),
                lambda r: figure(get(r, "speedup", "bias_pct"), 2),
            ),
            column(
                "right", ("sign", "slower", "cross", "best k", "band"), rows,
                lambda r: share(r, "sign", "agree"),
                lambda r: share(r, "slower", "agree"),
                lambda r: share(r, "crossover", "within_one_step"),
                lambda r: share(r, "best_k", "good"),
                lambda r: share(r, "coverage_80", "inside"),
            ),
            column(
                "median error %", ("TPOT off", "tok/s"), rows,
                lambda r: median(r, "tpot_baseline"),
                lambda r: median(r, "output_tok_s"),
            ),
        ],
    )  # fmt: skip
    legend = [line for text in _LEGEND for line in wrapped(screen, text, rest="    ")]
    return lines + [screen.paint(line, "faint") for line in legend]


def _parts(screen: Screen, cases: Sequence[CaseCheck], *, by_case: bool) -> list[str]:
    """Return the errors of each source, or of each case."""
    from specsim.validation.summary import summarise

    groups: dict[str, list[CaseCheck]] = {}
    for case in cases:
        groups.setdefault(case.case if by_case else case.case.partition("/")[0], []).append(case)
    names = sorted(groups)
    errors = {name: summarise(groups[name]) for name in names}

    def error(name: str, metric: str, figure_of: str = "median_abs_pct") -> str:
        return figure(errors[name][metric].get(figure_of), 2)

    def each(name: str, field: str) -> str:
        return "/".join(sorted({getattr(c, field) for c in groups[name]}))

    def role(name: str) -> Cell | str:
        if not any(c.scored for c in groups[name]):
            return Cell("not scored", "faint")
        return each(name, "role")

    columns = [
        column("grade", ("",), names, lambda n: each(n, "grade")),
        column("role", ("",), names, role),
        column("points", ("",), names, lambda n: str(sum(len(c.points) for c in groups[n]))),
        column(
            "speedup error %", ("median", "bias"), names,
            lambda n: error(n, "speedup"),
            lambda n: error(n, "speedup", "bias_pct"),
        ),
        column("TPOT %", ("",), names, lambda n: error(n, "tpot")),
        column("tok/s %", ("",), names, lambda n: error(n, "output_tok_s")),
    ]  # fmt: skip
    room = max(screen.width - 5 - sum(c.width + 3 for c in columns[1:]) - columns[0].width, 8)
    sources = [name.partition("/")[0] for name in names]

    def label(name: str) -> str:
        return f"  {name.partition('/')[2]}" if by_case else name

    key = column(
        "case" if by_case else "source", ("",), names, lambda n: clipped(label(n), room), left=True
    )
    title, heads, *rows = table(screen, key, columns)
    return [
        screen.paint("BY CASE" if by_case else "BY SOURCE", "strong"),
        title,
        heads,
        *(grouped(screen, rows, sources) if by_case else rows),
    ]
