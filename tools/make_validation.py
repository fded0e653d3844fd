"""Write docs/validation.md, its plots and the README's summary from the cases.

Without arguments everything, in about a minute. `--quick` leaves out what is kept, `--check` only
says whether the page is current, `--write-gate` accepts the present figures as the gate.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from validation_report import ablations, figures, gate, tails
from validation_report.ablations import ablations_section
from validation_report.calibration import calibration_section
from validation_report.kernels import kernels_section
from validation_report.misses import misses_section
from validation_report.overhead import overhead_section
from validation_report.physics import physics_section
from validation_report.reports import (
    NOTES,
    acceptance_is_filled_in,
    on_the_wrong_side,
    replay_section,
    sglang_budget,
    slug,
)
from validation_report.summary import headline, sources_section, summary_section
from validation_report.tails import tails_section

__all__ = ["CASES", "NOTES", "PAGE", "acceptance_is_filled_in", "on_the_wrong_side", "page",
           "sglang_budget", "slug"]  # fmt: skip

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "validation.md"
README = ROOT / "README.md"
CASES = figures.CASES

HEAD = """\
# Validation

Made by `tools/make_validation.py` from `validation/cases` and predictions with shipped defaults;
edit those, not this page. Figures of others are facts with their source; nothing is special-cased
for a case, and a case that is missed stays here with the reason. `specsim validate` computes the
errors again, on these cases or on yours.
"""

PLOTS = """\
## Plots

![Predicted against measured speedup, by grade and role](img/validation.svg)

![Predicted against measured time per token without speculation](img/validation-tpot.svg)

![Measurements inside the 80 % interval, by grade](img/validation-coverage.svg)

![Speedup over load, measured and predicted, curve by curve](img/validation-curves.svg)
"""

SECTIONS: tuple[Callable[[], str], ...] = (
    summary_section,
    lambda: PLOTS,
    sources_section,
    misses_section,
    physics_section,
    ablations_section,
    kernels_section,
    overhead_section,
    replay_section,
    calibration_section,
    tails_section,
)
"""The page, in order. A further kind of validation is a function here."""

START, END = "<!-- accuracy: made by tools/make_validation.py -->", "<!-- end of accuracy -->"


def page() -> str:
    """Return the text of the page."""
    return "\n".join([HEAD, *(section() for section in SECTIONS)])


def readme() -> str:
    """Return the README with the present summary between its markers."""
    text = README.read_text(encoding="utf-8")
    made = f"{START}\n{textwrap.fill(headline(), width=100)}\n{END}"
    found, n = re.subn(f"{re.escape(START)}.*?{re.escape(END)}", lambda _: made, text, flags=re.S)
    if n != 1:
        sys.exit(f"{README.name} has no line {START!r} followed by {END!r}")
    return found


def main() -> None:
    """Write the page, or exit with 1 if `--check` is given and it is stale."""
    arguments = set(sys.argv[1:])
    if unknown := arguments - {"--quick", "--check", "--write-gate"}:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; give --quick, --check or --write-gate")
    if "--write-gate" in arguments:
        print(gate.write(figures.validation().summary))
        return
    if "--check" in arguments:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page()
        sys.exit(0 if current else f"{PAGE.name} is stale: run tools/make_validation.py")
    if "--quick" not in arguments:
        ablations.write()
        tails.write()
    from validation_report import plots  # altair is no part of the dev group

    PAGE.parent.mkdir(exist_ok=True)
    plots.write()
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")


if __name__ == "__main__":
    main()
