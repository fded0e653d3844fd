"""The published cases: each file reads, names what the catalogs know, and keeps to the split."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specsim.analysis.resolve import resolve
from specsim.catalog.case import case_files, case_points, load_case
from specsim.schema.case import Case

CASES = Path(__file__).parents[2] / "validation" / "cases"
FILES = case_files(CASES)
REPLAY = "replay"


def source(case: Case) -> str:
    return case.case.partition("/")[0]


@pytest.fixture(scope="module")
def cases() -> dict[Path, Case]:
    return {file: load_case(file) for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_point_resolves(file: Path) -> None:
    for _, scenario in case_points(load_case(file)):
        resolve(scenario)


def test_roles_follow_the_rule(cases: dict[Path, Case]) -> None:
    """Sorted by name, every third source is held back; public reports are too."""
    sources = sorted({source(case) for case in cases.values()} - {REPLAY})
    held_back = {*sources[2::3], REPLAY}
    expected = {c.case: "test" if source(c) in held_back else "tune" for c in cases.values()}
    assert {c.case: c.role for c in cases.values()} == expected


def test_files_are_named_after_their_case(cases: dict[Path, Case]) -> None:
    assert {f.stem: c.case for f, c in cases.items()} == {
        c.case.replace("/", "--"): c.case for c in cases.values()
    }


def test_no_case_is_there_twice(cases: dict[Path, Case]) -> None:
    seen: dict[str, str] = {}
    for case in cases.values():
        # Replay cases retell reports that may also be a source of their own.
        if source(case) == REPLAY:
            continue
        what = case.model_dump_json(include={"scenario", "points"}, exclude={"scenario": {"name"}})
        assert seen.setdefault(what, case.case) == case.case


def test_every_case_cites_its_source(cases: dict[Path, Case]) -> None:
    for case in cases.values():
        assert re.match(r"https://|not (captured|linked|recorded)|recorded by", case.source.url), (
            case.case
        )
        assert re.fullmatch(r"20\d\d(-\d\d){0,2}", case.source.date), case.case


def test_grades_count_what_is_assumed(cases: dict[Path, Case]) -> None:
    """A assumes nothing, B one thing; both lengths are one, an unstated version is none."""
    for case in cases.values():
        if source(case) == REPLAY:
            continue
        things = {
            re.sub(r"workload\.(input|output)_tokens", "lengths", name)
            for name in case.assumed
            if name != "engine.version"
        }
        allowed = {"A": 0, "B": 1, "C": len(things)}[case.grade]
        assert len(things) <= allowed, (case.case, things)


def test_readme_lists_every_source(cases: dict[Path, Case]) -> None:
    readme = (CASES.parent / "README.md").read_text()
    rows = dict(re.findall(r"\| ([\w.-]+) \| (tune|test) ", readme))
    assert rows == {source(c): c.role for c in cases.values()}


def test_measured_lengths_fit_the_drafts(cases: dict[Path, Case]) -> None:
    """No step yields more than its drafts and one."""
    for case in cases.values():
        for point, scenario in case_points(case):
            k = scenario.speculation.num_speculative_tokens
            if point.acceptance_length is not None and k is not None:
                assert point.acceptance_length <= k + 1, case.case
