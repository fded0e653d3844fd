"""Records and charts of validation: by hand, and against the summary of `validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specsim.catalog.case import load_case
from specsim.export.figures.accuracy import arms, curve, scatter
from specsim.export.figures.accuracy_rows import (
    BARS,
    Bar,
    Checked,
    bar_rows,
    case_rows,
    failures,
    ladders,
    miss_rows,
    notes,
    picked,
    point_rows,
    signed_errors,
    summaries,
)
from specsim.schema.validation import ArmCheck, CaseCheck, PointCheck
from specsim.validation.check import check_case
from specsim.validation.summary import validate

CASES = Path(__file__).parents[3] / "validation/cases"
GLM = CASES / "glm47flash-h100pcie--mtp-k1.yaml"


def point(measured: float, predicted: float, load: float = 1, **more: Any) -> PointCheck:
    given = {"override": {}, "failed": "", "arms": (), **more}
    return PointCheck(
        index=0, load=load, num_speculative_tokens=3, measured_speedup=measured,
        predicted_speedup=predicted, speedup_low=predicted * 0.9, speedup_high=predicted * 1.1,
        **given,
    )  # fmt: skip


def checked(name: str, *points: PointCheck, grade: str = "A", role: str = "test") -> Checked:
    return Checked(None, CaseCheck(name, grade, role, True, points, (), (), ""))


@pytest.fixture(scope="module")
def glm() -> Checked:
    case = load_case(GLM)
    return Checked(case, check_case(case))


def test_bars_say_what_they_ask() -> None:
    assert [bar.wanted for bar in BARS[:4]] == [
        "at most 6 %", "at most 15 %", "within ±2 %", "at least 95 %",
    ]  # fmt: skip
    assert BARS[-1].wanted == "70 to 90 %"
    share = Bar("", "sign", "agree/n", 95, 100)
    assert share.value({"sign": {"n": 4, "agree": 3}}) == 75.0
    assert share.value({"sign": {"n": 0, "agree": 0}}) is None
    assert not share.met(75.0)


def test_groups_are_those_of_validate(glm: Checked) -> None:
    summary = validate(GLM).summary
    assert summaries([glm])["test, A and B"] == summary["test_AB"]
    assert set(summaries([glm])) == {"test, A and B", "B", "all"}


def test_a_bar_that_is_missed_is_marked() -> None:
    rows = bar_rows([checked("s/a", point(1.0, 1.2), point(2.0, 2.4))])
    assert rows[0]["test, A and B"] == "✗ 20.0 % of 2"
    assert rows[-1]["test, A and B"] == "✗ 0.0 % of 2"
    assert rows[5]["test, A and B"] == "–"


def test_an_interval_that_holds_all_is_no_miss() -> None:
    inside = bar_rows([checked("s/a", *(point(1.5, 1.5) for _ in range(4)))])[-1]
    assert inside["test, A and B"] == "△ 100 % of 4"
    assert BARS[-1].mark(80.0) == "✓"
    assert BARS[-1].mark(60.0) == BARS[0].mark(7.0) == "✗"
    assert BARS[2].mark(3.0) == "✗"  # too high is a miss elsewhere


def test_one_load_has_an_axis_with_a_width() -> None:
    arm = ArmCheck("baseline", "tpot_ms", 10.0, 8.0)
    one = checked("s/a", point(1.5, 1.5, load=8, arms=(arm,)))
    for chart in (curve(one, ""), arms(one, "", "tpot_ms")):
        assert chart is not None
        scales = [layer["encoding"]["x"]["scale"] for layer in chart["layer"]
                  if "scale" in layer.get("encoding", {}).get("x", {})]  # fmt: skip
        assert scales
        assert all(scale["domain"] == [4.0, 16.0] for scale in scales)


def test_cases_are_picked_by_all_facets_at_once(glm: Checked) -> None:
    other = checked("s/a", grade="C", role="tune")
    both = [glm, other]
    assert picked(both, {}) == both
    assert picked(both, {"model": ["glm-4.7-flash"], "grade": []}) == [glm]
    assert picked(both, {"model": ["glm-4.7-flash"], "grade": ["C"]}) == []
    assert picked(both, {"role": ["tune", "test"]}) == both
    assert [glm.facet(f) for f in ("GPU", "method", "engine", "source")] == [
        "h100_pcie", "mtp", "sglang", "glm47flash-h100pcie",
    ]  # fmt: skip


def test_points_beyond_the_axes_stand_on_the_edge() -> None:
    chart = scatter([checked("s/a", point(8.0, 0.1))])
    (row,) = chart["datasets"]["points"]
    assert (row["measured_at"], row["predicted_at"]) == (5.0, 0.4)
    assert (row["measured"], row["predicted"]) == (8.0, 0.1)


def test_errors_keep_the_sign_of_the_bias() -> None:
    slow = ArmCheck("baseline", "tpot_ms", 10.0, 8.0)
    found = signed_errors(checked("s/a", point(1.0, 1.1, arms=(slow,)), point(1.0, 1.3)).check)
    assert found["speedup"] == pytest.approx(20.0)
    assert found["tpot"] == pytest.approx(-20.0)
    assert "output_tok_s" not in found


def test_misses_come_worst_first_with_what_is_known() -> None:
    cases = [checked("s/small", point(1.0, 1.2)), checked("s/fine", point(1.0, 1.1)),
             checked("t/large", point(1.0, 1.6))]  # fmt: skip
    entries = [{"title": "Trees", "cases": ["s/*"], "why": "one\n two"}]
    rows = miss_rows(cases, entries)
    assert [(r["case"], r["cause"], r["why"]) for r in rows] == [
        ("t/large", "", ""), ("s/small", "Trees", "one two"),
    ]  # fmt: skip


def test_causes_ship_beside_the_cases(tmp_path: Path) -> None:
    assert {"title", "cases", "why"} <= set(notes()[0])
    assert notes(tmp_path / "none.yaml") == []


def test_a_ladder_has_its_loads_in_order(glm: Checked) -> None:
    (name,) = ladders(glm.check)
    assert name == ""
    drawn = curve(glm, name)
    assert drawn is not None
    assert [r["load"] for r in drawn["datasets"]["points"]] == [1, 4, 8, 16, 32]
    speed = arms(glm, name, "output_tok_s")
    assert speed is not None
    assert speed["datasets"]["points"][0]["measured"] == 100.8
    assert curve(checked("s/a"), "") is None if ladders(checked("s/a").check) else True


def test_rows_name_source_and_failures(glm: Checked) -> None:
    assert point_rows([glm])[0]["source"].startswith("https://")
    assert case_rows([glm])[0]["points"] == 5
    failed = checked("s/a", point(1.0, 1.0, failed="does not fit"))
    assert failures([glm, failed]) == ["s/a: does not fit"]
