"""The committed summary that no figure may fall behind.

`validation/gate.json` holds the summary of `specsim validate` as of the last accepted change of
numbers. A figure is worse if an error grows, a share of right answers falls, or the coverage moves
away from 80 %, by more than rounding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

GATE = Path(__file__).parents[2] / "validation" / "gate.json"
CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"
ROUNDING = 0.05
"""Points of a percent."""

_ERRORS = ("median_abs_pct", "p90_abs_pct", "bias_pct")
_SHARES = ("agree", "within_one_step", "good")
_COVERAGE = "coverage_80"
_DIGITS = 4

Summary = Mapping[str, Mapping[str, Mapping[str, float | None]]]


def badness(metric: str, entry: Mapping[str, float | None]) -> Iterator[tuple[str, float]]:
    """Yield each figure of an entry as a number of percent that should be small."""
    n = entry.get("n") or 0.0
    for name in _ERRORS:
        if (value := entry.get(name)) is not None:
            yield name, abs(value)
    for name in _SHARES:
        if n and (value := entry.get(name)) is not None:
            yield name, 100.0 * (1.0 - value / n)
    if metric == _COVERAGE and n:
        yield "distance from 80 %", abs(100.0 * (entry["inside"] or 0.0) / n - 80.0)
    if metric == "failed":
        yield "n", n


def worse(summary: Summary, gate: Summary) -> list[str]:
    """Return what got worse than the gate, one line each; also a figure that is gone."""
    found = []
    for group, metrics in gate.items():
        for metric, entry in metrics.items():
            now = dict(badness(metric, summary.get(group, {}).get(metric, {})))
            for name, before in badness(metric, entry):
                what = f"{group} {metric} {name}"
                if name not in now:
                    found.append(f"{what}: was {before:.2f}, is no longer there")
                elif now[name] > before + ROUNDING:
                    found.append(f"{what}: {before:.2f} -> {now[name]:.2f}")
    return found


def read() -> dict[str, Any]:
    """Return the committed gate."""
    found: dict[str, Any] = json.loads(GATE.read_text(encoding="utf-8"))
    return found


def rounded(summary: Summary) -> dict[str, Any]:
    """Return a summary as it is written."""
    return {
        group: {
            metric: {k: None if v is None else round(v, _DIGITS) for k, v in entry.items()}
            for metric, entry in metrics.items()
        }
        for group, metrics in summary.items()
    }


def numbers_change_lines(changelog: str) -> list[str]:
    """Return the lines of the changelog that give old and new numbers.

    Such a line has the words 'numbers change' and two figures with an arrow or 'to' between them.
    Entries wrap: a line is an entry, from its dash to the next.
    """
    entries = re.split(r"^- ", changelog, flags=re.MULTILINE)[1:]
    texts = [" ".join(entry.split()) for entry in entries]
    given = re.compile(r"\d[\d.]* ?%? ?(?:->|→|to) ?\d")
    return [t for t in texts if "numbers change" in t.lower() and given.search(t)]


def write(summary: Summary, *, gate: Path = GATE, changelog: Path = CHANGELOG) -> str:
    """Write the gate, and return what was done; refuse where the changelog says nothing new.

    Raises
    ------
    SystemExit
        Figures differ from the gate and CHANGELOG.md has no new 'numbers change' line.
    """
    lines = numbers_change_lines(changelog.read_text(encoding="utf-8"))
    new = rounded(summary)
    if gate.is_file():
        old = json.loads(gate.read_text(encoding="utf-8"))
        if old["summary"] == new:
            return f"{gate.name} is current"
        if not set(lines) - set(old["numbers_change"]):
            raise SystemExit(
                f"{gate.name} is not rewritten: the figures changed, and {changelog.name} has no "
                "new line with 'numbers change' and the error before and after (such as 6.8 % -> "
                "6.1 %); add it and run this again"
            )
    text = json.dumps({"numbers_change": lines, "summary": new}, indent=1) + "\n"
    gate.write_text(text, encoding="utf-8")
    return f"wrote {gate.name}"
