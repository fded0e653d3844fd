"""No figure of the summary falls behind the committed gate, and every large error has a reason."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_validation  # noqa: E402
from validation_report import ablations, figures, gate, misses, overhead  # noqa: E402

SUMMARY: dict[str, Any] = {
    "all": {
        "speedup": {"n": 10, "median_abs_pct": 6.0, "p90_abs_pct": 15.0, "bias_pct": -1.0},
        "sign": {"n": 20, "agree": 19},
        "coverage_80": {"n": 10, "inside": 8},
        "failed": {"n": 1},
    }
}


def changed(metric: str, **values: float) -> dict[str, Any]:
    return {"all": {**SUMMARY["all"], metric: {**SUMMARY["all"][metric], **values}}}


def test_no_figure_is_worse_than_the_gate() -> None:
    behind = gate.worse(figures.validation().summary, gate.read()["summary"])
    assert behind == [], (
        "worse than validation/gate.json; if that is meant, say so in CHANGELOG.md ('numbers "
        "change', old -> new) and run tools/make_validation.py --write-gate"
    )


def test_every_case_above_the_limit_has_a_reason() -> None:
    assert misses.unexplained() == [], "say why in validation/notes.yaml"


def test_the_readme_gives_the_present_figures() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == make_validation.readme(), "run `make docs`"


def test_the_ablations_are_of_the_present_model() -> None:
    whole = json.loads(ablations.KEPT.read_text(encoding="utf-8"))["rows"][0]
    figure = figures.validation().summary["AB"]["speedup"]["median_abs_pct"]
    assert figure is not None
    assert whole["speedup_median"] == round(figure, 1), "run `make docs`"


def test_an_ablation_puts_back_what_it_patched() -> None:
    first, second = [], []
    for _, _, patches in ablations.EFFECTS:
        made = patches()
        first += [getattr(where, name) for where, name, _ in made]
        with ablations._patched(made):
            assert all(getattr(where, name) is value for where, name, value in made)
        second += [getattr(where, name) for where, name, _ in made]
    assert first == second


def test_with_the_stated_overhead_every_sign_of_an_overhead_report_is_right() -> None:
    text = overhead.overhead_section()
    rows = [line for line in text.splitlines() if line.startswith(("| [", "| community"))]
    assert len(rows) == 13, "a row for each point of the overhead reports"
    wrong = [row for row in rows if row.endswith("| no |")]
    # Nine separate steps for nine tokens are even: no stated overhead explains less.
    assert [row for row in wrong if "community-moe3090" not in row] == []


@pytest.mark.parametrize(
    "now",
    [
        changed("speedup", median_abs_pct=6.04),
        changed("speedup", median_abs_pct=4.0, p90_abs_pct=10.0),
        changed("speedup", bias_pct=1.0),
        changed("sign", agree=20),
        changed("sign", n=40, agree=38),
        changed("failed", n=0),
    ],
)
def test_better_or_equal_passes(now: dict[str, Any]) -> None:
    assert gate.worse(now, SUMMARY) == []


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (changed("speedup", median_abs_pct=6.06), "all speedup median_abs_pct: 6.00 -> 6.06"),
        (changed("speedup", bias_pct=1.2), "all speedup bias_pct: 1.00 -> 1.20"),
        (changed("sign", agree=18), "all sign agree: 5.00 -> 10.00"),
        (changed("coverage_80", inside=9), "all coverage_80 distance from 80 %: 0.00 -> 10.00"),
        (changed("failed", n=2), "all failed n: 1.00 -> 2.00"),
        (changed("sign", n=0, agree=0), "all sign agree: was 5.00, is no longer there"),
    ],
)
def test_worse_is_named(now: dict[str, Any], what: str) -> None:
    assert gate.worse(now, SUMMARY) == [what]


def test_the_gate_is_rewritten_only_with_a_new_line_in_the_changelog(tmp_path: Path) -> None:
    path, log = tmp_path / "gate.json", tmp_path / "CHANGELOG.md"
    log.write_text("- something\n", encoding="utf-8")
    assert gate.write(SUMMARY, gate=path, changelog=log) == "wrote gate.json"
    assert gate.write(SUMMARY, gate=path, changelog=log) == "gate.json is current"
    better = changed("speedup", median_abs_pct=5.0)
    with pytest.raises(SystemExit, match="numbers change"):
        gate.write(better, gate=path, changelog=log)
    log.write_text("- something\n- new knee (**numbers change**)\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="error before and after"):
        gate.write(better, gate=path, changelog=log)
    log.write_text(
        "- something\n- New knee, **numbers change**: median error\n  6.0 % -> 5.0 %.\n",
        encoding="utf-8",
    )
    assert gate.write(better, gate=path, changelog=log) == "wrote gate.json"
    with pytest.raises(SystemExit, match="numbers change"):
        gate.write(SUMMARY, gate=path, changelog=log)
