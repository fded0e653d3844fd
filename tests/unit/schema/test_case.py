"""Case records: what is accepted, and the one line that names what is not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from specsim.catalog.case import case_files, case_points, load_case, load_cases
from specsim.errors import InputError, NotFoundError
from specsim.schema.base import parse
from specsim.schema.case import Case

CASE: dict[str, Any] = {
    "case": "somewhere/short",
    "source": {
        "title": "A report",
        "url": "https://example.org/1",
        "date": "2026-08",
        "license": "facts only",
    },
    "grade": "B",
    "assumed": ["workload.input_tokens"],
    "scenario": {
        "target": {"model": "llama-3.1-8b"},
        "hardware": {"accelerator": "h100_sxm"},
        "speculation": {
            "method": "eagle3",
            "num_speculative_tokens": 3,
            "acceptance": {"per_position": [0.7, 0.5, 0.3]},
        },
        "workload": {"input_tokens": 100, "output_tokens": 256},
    },
    "points": [
        {"concurrency": 1, "measured": {"baseline": {"tpot_ms": 7.0}}},
        {
            "request_rate": 2.5,
            "override": {"workload.input_tokens": 4000},
            "acceptance_length": 2.1,
            "measured": {"speedup": 1.4, "speedup_of": "tpot"},
        },
    ],
}


def changed(**changes: Any) -> dict[str, Any]:
    """Return the case above with values at dotted names; None removes."""
    data = copy.deepcopy(CASE)
    for name, value in changes.items():
        here: Any = data
        *path, key = name.split("__")
        for part in path:
            here = here[int(part) if part.isdigit() else part]
        if value is None:
            del here[key]
        else:
            here[key] = value
    return data


def refused(data: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        parse(Case, data, what="case.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(folder: Path, data: dict[str, Any], name: str = "one.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def test_every_published_case_parses(shared: Path) -> None:
    files = case_files(shared / "cases" / "published")
    cases = [load_case(file) for file in files]
    assert len(cases) == 85
    assert sum(len(case.points) for case in cases) == 490
    assert len({case.case for case in cases}) == 85


def test_a_point_replaces_load_acceptance_and_overrides() -> None:
    first, second = case_points(parse(Case, CASE, what="case"))
    assert first[1].load.concurrency == (1.0,)
    assert first[1].speculation.acceptance is not None
    assert first[1].speculation.acceptance.per_position == (0.7, 0.5, 0.3)
    assert second[1].load.request_rate == (2.5,)
    assert second[1].workload.input_tokens == 4000
    assert second[1].workload.output_tokens == 256
    assert second[1].speculation.acceptance is not None
    assert second[1].speculation.acceptance.length == 2.1
    assert second[1].speculation.acceptance.per_position is None


def test_a_prefix_of_per_position_serves_smaller_k() -> None:
    from specsim.analysis.resolve import resolve

    data = changed(points__0__override={"speculation.num_speculative_tokens": 2})
    _, scenario = case_points(parse(Case, data, what="case"))[0]
    acceptance = resolve(scenario).acceptance
    assert acceptance is not None
    assert acceptance.result().acceptance_length == pytest.approx(1 + 0.7 + 0.5)


@pytest.mark.parametrize(
    "known",
    [{"length": 2.5}, {"draft_acceptance_rate": 0.5}],
)
def test_a_figure_known_at_one_k_is_carried_to_another(known: dict[str, float]) -> None:
    from specsim.analysis.resolve import resolve

    data = changed(
        scenario__speculation__acceptance=known,
        points__0__override={"speculation.num_speculative_tokens": 1},
    )
    _, scenario = case_points(parse(Case, data, what="case"))[0]
    assert scenario.speculation.acceptance is not None
    assert scenario.speculation.acceptance.measured_at_k == 3
    acceptance = resolve(scenario).acceptance
    assert acceptance is not None
    # 2.5 tokens at k = 3: about 0.73 + 0.5 + 0.3, so one draft token is worth about 0.7.
    assert acceptance.result().acceptance_length == pytest.approx(1.7, abs=0.05)


def test_tokens_in_step_is_a_pass_of_max_num_seqs_requests() -> None:
    data = changed(
        scenario__engine={"max_num_seqs": 8},
        scenario__speculation={"method": "none"},
        points=[{"tokens_in_step": 64, "measured": {"baseline": {"tpot_ms": 3.0}}}],
    )
    point, scenario = case_points(parse(Case, data, what="case"))[0]
    assert point.tokens_in_step == 64
    assert scenario.load.concurrency == (8.0,)


def test_dates_that_yaml_reads_as_dates_and_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, CASE)
    text = path.read_text(encoding="utf-8")
    for given, read in (("2026-08-14", "2026-08-14"), ("2026", "2026")):
        path.write_text(text.replace("2026-08", given), encoding="utf-8")
        assert load_case(path).source.date == read


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (changed(grade="D"), "grade: got 'D'"),
        (changed(role="train"), "role: got 'train'"),
        (changed(case="no slash"), "case: got 'no slash'"),
        (changed(source__url=None), "missing key 'source.url'"),
        (changed(points=[]), "points"),
        (changed(asumed=["x"]), "unknown key 'asumed'; nearest known: assumed"),
        (changed(scenario__load={"concurrency": [1]}), "scenario.load does not belong"),
        (changed(points__0__measured={}), "baseline, speculative, speedup or direction"),
        (changed(points__0__measured={"baseline": {}}), "output_tok_s, tpot_ms, ttft_ms"),
        (changed(points__0__measured={"speedup": 1.2}), "speedup and speedup_of belong together"),
        (changed(points__0__measured={"direction": "better"}), "direction: got 'better'"),
        (changed(points__0__request_rate=1), "exactly one of concurrency, request_rate"),
        (changed(points__0__concurrency=None), "got none"),
        (changed(points__0__concurrency=float("nan")), "concurrency: got nan"),
        (changed(points__0__override={"load.concurrency": 4}), "override 'load.concurrency'"),
        (changed(points__0__measured__baseline__tpot_ms=-1), "tpot_ms: got -1"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(data: dict[str, Any], said: str) -> None:
    assert said in refused(data)


def test_an_override_that_is_wrong_names_file_and_point(tmp_path: Path) -> None:
    path = written(tmp_path, changed(points__1__override={"workload.input_tokns": 4}))
    with pytest.raises(InputError, match=r"one\.yaml: case somewhere/short, point 2.*input_tokns"):
        load_case(path)


def test_a_folder_is_read_in_order_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no case files"):
        load_cases(tmp_path)
    written(tmp_path, changed(case="b/b"), "b.yaml")
    written(tmp_path, changed(case="a/a"), "a.yaml")
    assert [case.case for case in load_cases(tmp_path)] == ["a/a", "b/b"]
