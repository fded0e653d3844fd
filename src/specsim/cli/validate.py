"""`specsim validate`: published measurements against predictions."""

from __future__ import annotations

from pathlib import Path

import click

from specsim.cli.output import emit, json_option, output_option
from specsim.cli.words import joined, notes
from specsim.export.tables import Cell, column, figure, table
from specsim.export.terminal import Screen
from specsim.schema.results import as_json as plain
from specsim.schema.validation import CaseCheck, Validation

_ROWS = {
    "all": "all cases",
    "AB": "grades A and B",
    "A": "A: everything stated",
    "B": "B: one input assumed",
    "C": "C: several assumed",
    "tune_AB": "A and B, used for tuning",
    "test_AB": "A and B, never used for tuning",
}
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
    type=click.Path(path_type=Path),
    help="A file or folder with your own models, drafters and devices; repeatable.",
)
@json_option
@output_option
def command(
    cases: Path | None, catalog: tuple[Path, ...], as_json: bool, output: Path | None
) -> None:
    """Compare predictions with published measurements.

    Prints the errors of speedup, sign, crossover, best k and absolute speed by grade of the cases
    and by role: what was used for tuning, and what never was.
    """
    from specsim.catalog.case import shipped_cases
    from specsim.validate.summary import validate

    found = validate(cases or shipped_cases(), search=catalog)
    emit(
        lambda: plain(found), lambda screen: _report(screen, found), as_json=as_json, output=output
    )


def _report(screen: Screen, found: Validation) -> list[str]:
    scored = [c for c in found.cases if c.points]
    failures = list(found.failed[:_SHOWN_FAILURES])
    if len(found.failed) > _SHOWN_FAILURES:
        failures.append(f"and {len(found.failed) - _SHOWN_FAILURES} more (--json has all)")
    return joined(
        [
            [
                screen.paint("SUMMARY  predicted against measured", "strong"),
                *_summary(screen, found),
            ],
            [screen.paint("BY CASE", "strong"), *_by_case(screen, scored)],
            notes(screen, "COULD NOT BE RUN", failures, role="neutral"),
        ]
    )


def _summary(screen: Screen, found: Validation) -> list[str]:
    rows = [name for name in _ROWS if found.summary[name]["output_tok_s"]["n"]]

    def get(row: str, metric: str, name: str) -> float | None:
        return found.summary[row][metric].get(name)

    def share(row: str, metric: str, name: str) -> str:
        n, good = get(row, metric, "n"), get(row, metric, name)
        return f"{good:.0f}/{n:.0f}" if n and good is not None else "–"

    return table(
        screen,
        column("", ("",), rows, lambda r: _ROWS[r], left=True),
        [
            column(
                "speedup error %",
                ("n", "median", "p90", "bias"),
                rows,
                lambda r: f"{get(r, 'speedup', 'n'):.0f}",
                lambda r: figure(get(r, "speedup", "median_abs_pct"), 2),
                lambda r: figure(get(r, "speedup", "p90_abs_pct"), 2),
                lambda r: figure(get(r, "speedup", "bias_pct"), 2),
            ),
            column("sign", ("",), rows, lambda r: share(r, "sign", "agree")),
            column("slower", ("",), rows, lambda r: share(r, "slower", "agree")),
            column("crossover", ("",), rows, lambda r: share(r, "crossover", "within_one_step")),
            column("best k", ("",), rows, lambda r: share(r, "best_k", "good")),
            column("in 80 % band", ("",), rows, lambda r: share(r, "coverage_80", "inside")),
            column(
                "TPOT off %", ("",), rows,
                lambda r: figure(get(r, "tpot_baseline", "median_abs_pct"), 2),
            ),
            column(
                "tok/s %",
                ("",),
                rows,
                lambda r: figure(get(r, "output_tok_s", "median_abs_pct"), 2),
            ),
        ],
    )  # fmt: skip


def _by_case(screen: Screen, cases: list[CaseCheck]) -> list[str]:
    from specsim.validate.summary import summarise

    errors = {c.case: summarise([c]) for c in cases}

    def error(case: CaseCheck, metric: str, name: str = "median_abs_pct") -> Cell | str:
        if not case.scored:
            return Cell("not scored", "faint")
        return figure(errors[case.case][metric][name], 2)

    return table(
        screen,
        column("case", ("",), cases, lambda c: c.case, left=True),
        [
            column("grade", ("",), cases, lambda c: c.grade),
            column("role", ("",), cases, lambda c: c.role),
            column("points", ("",), cases, lambda c: str(len(c.points))),
            column(
                "speedup %",
                ("median", "bias"),
                cases,
                lambda c: error(c, "speedup"),
                lambda c: error(c, "speedup", "bias_pct"),
            ),
            column("TPOT %", ("",), cases, lambda c: error(c, "tpot")),
            column("tok/s %", ("",), cases, lambda c: error(c, "output_tok_s")),
        ],
    )
