"""Read case files, and turn each of their points into the scenario that it was measured on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specsim.catalog.files import data_dir, read_mapping
from specsim.catalog.scenario import load_scenario
from specsim.errors import NotFoundError, SpecsimError
from specsim.schema.base import parse
from specsim.schema.case import Case, CasePoint
from specsim.schema.scenario import Scenario


def shipped_cases() -> Path:
    """Return the folder of published measurements that ships with specsim."""
    return data_dir("cases")


def case_files(path: Path) -> list[Path]:
    """Return the case files at `path`: itself, or every YAML file of a folder, sorted.

    Raises
    ------
    NotFoundError
        There is no such file, or the folder has none.
    """
    if path.is_file():
        return [path]
    found = sorted(path.rglob("*.yaml"))
    if not found:
        raise NotFoundError(f"{path}: no case files; give a case in YAML or a folder of them")
    return found


def load_case(path: Path) -> Case:
    """Read one case and check that each of its points makes a scenario.

    Raises
    ------
    InputError
        One line that names the file and the key.
    """
    case = parse(Case, read_mapping(path), what=str(path))
    try:
        case_points(case)
    except SpecsimError as error:
        raise type(error)(f"{path}: {error}") from error
    return case


def load_cases(path: Path) -> list[Case]:
    """Read one case, or every case of a folder, in the order of file names."""
    return [load_case(file) for file in case_files(path)]


def case_points(case: Case) -> list[tuple[CasePoint, Scenario]]:
    """Return each point with the scenario that it was measured on.

    Notes
    -----
    A point's `acceptance_length` takes the place of the scenario's acceptance; where it has none,
    a prefix of `per_position` serves smaller k, and a length or accepted share that is known at
    the scenario's k is carried to the point's by the decay of its method (docs/method.md,
    acceptance). A `tokens_in_step` point is one pass of `engine.max_num_seqs` requests, and its
    load says how many those are.
    """
    written = case.scenario.model_dump(exclude_unset=True)
    return [(point, _scenario(case, written, i)) for i, point in enumerate(case.points)]


def _scenario(case: Case, written: Mapping[str, Any], index: int) -> Scenario:
    point = case.points[index]
    changes: dict[str, Any] = dict(point.override)
    if point.request_rate is not None:
        changes["load.request_rate"] = [point.request_rate]
    else:
        in_step = changes.get("engine.max_num_seqs") or case.scenario.engine.max_num_seqs or 1
        requests = in_step if point.concurrency is None else point.concurrency
        changes["load.concurrency"] = [requests]
    if point.acceptance_length is not None:
        changes["speculation.acceptance.length"] = point.acceptance_length
    try:
        return load_scenario(written, overrides=changes)
    except SpecsimError as error:
        raise type(error)(f"case {case.case}, point {index + 1}: {error}") from error
