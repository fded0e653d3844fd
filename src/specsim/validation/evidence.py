"""What was measured, by the user and by others, beside what is predicted for it.

Own rows are predicted by the user's scenario at the row's load, lengths and counted acceptance;
published ones are the cases that are most like the scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from specsim.catalog.calibration import load_calibration
from specsim.catalog.case import case_files, case_points, load_case, shipped_cases
from specsim.catalog.files import read_mapping, read_shipped
from specsim.catalog.hardware import file_key
from specsim.schema.calibration import Calibration
from specsim.schema.case import Case
from specsim.schema.evidence import Evidence, EvidenceLoad, EvidenceMetric
from specsim.schema.measurement import Measurements
from specsim.schema.scenario import Scenario
from specsim.validation.bounds import ADVICE
from specsim.validation.check import check_case
from specsim.validation.likeness import Identity, compared, model_id
from specsim.validation.own_runs import own_runs

_MOST_CASES = 12
"""Cases checked at most: each takes a tenth of a second."""
_OFF = {"arm": "off", "method": "none", "k": 0}


def evidence(
    scenario: Scenario,
    *,
    measurements: Measurements | None = None,
    cases: Path | None = None,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
    most: int = 200,
) -> tuple[Evidence, ...]:
    """Return what was measured on this deployment or one like it, each with its prediction.

    Parameters
    ----------
    measurements : Measurements, optional
        The user's own runs (`specsim.read_measurements`). All that fit the scenario are rows.
    cases : path, optional
        A case or a folder of them; absent: those that ship.
    search : sequence of Path
        The user's own catalog files and folders.
    calibration : Calibration or path, optional
        Laid over the constants for own runs. Published cases test the shipped constants.
    most : int
        Published rows fill up to this many in all.

    Returns
    -------
    tuple of Evidence
        Own measurements by load, then cases: of the same model and accelerator, of the same
        model, of the same accelerator; those of the same method first in each, then the short.

    Raises
    ------
    SpecsimError
        The scenario's device, a case or the calibration cannot be read. A row that cannot be
        predicted says why in its note.

    Notes
    -----
    A run of which nothing says whether it speculated is left out, and so is the throughput of an
    open loop, which is what was asked for. Of speculation on, the run's k and the acceptance that
    it counted take the place of the scenario's: acceptance is an input here, not what is tested.
    """
    if isinstance(calibration, Path | str):
        calibration = load_calibration(calibration)
    here = Identity.of(scenario, search)
    rows = () if measurements is None else measurements.rows
    own = list(own_runs(scenario, here, rows, search, calibration))
    return (*own, *_published(here, cases, search, most - len(own)))


def _published(
    here: Identity, cases: Path | None, search: Sequence[Path], room: int
) -> list[Evidence]:
    found: list[Evidence] = []
    for path in _alike(here, cases)[:_MOST_CASES]:
        if len(found) >= room:
            break
        found += _rows(load_case(path), search)
    return found[: max(room, 0)]


def _alike(here: Identity, cases: Path | None) -> list[Path]:
    """Return the cases of this model or accelerator, the nearest first."""
    read: Callable[[Path], Mapping[str, Any]] = read_shipped if cases is None else read_mapping
    ranked = []
    for path in case_files(cases or shipped_cases()):
        data = read(path)
        same_model = model_id(_named(data, "target", "model")) == here.model
        device = file_key(_named(data, "hardware", "accelerator"))
        same_device = device in here.accelerator_keys
        if not same_model and not same_device:
            continue
        other_method = (_named(data, "speculation", "method") or "none") != here.method
        apart = 0 if same_model and same_device else 1 if same_model else 2
        points = data.get("points")
        n_points = len(points) if isinstance(points, list) else 0
        ranked.append((apart, other_method, n_points, str(path), path))
    return [path for *_, path in sorted(ranked)]


def _named(data: Mapping[str, Any], part: str, key: str) -> str:
    """Return a name in a case that is not checked yet; '' where there is none."""
    inner: Any = data
    for step in ("scenario", part, key):
        inner = inner.get(step) if isinstance(inner, Mapping) else None
    return "" if inner is None else str(inner)


def _rows(case: Case, search: Sequence[Path]) -> Iterator[Evidence]:
    """Yield the rows of a case: of each point the speedup, then both arms."""
    check = check_case(case, search=search)
    for point, (given, scenario) in zip(check.points, case_points(case), strict=True):
        kind: EvidenceLoad = "concurrency"
        if given.concurrency is None:
            kind = "tokens_in_step" if given.request_rate is None else "request_rate"
        notes = [point.failed, ADVICE if point.below_bound else ""]
        if not check.scored:
            notes.append("the source shows a problem of the engine's path: not scored")
        shared = {
            "case": check.case,
            "what": "published",
            "model": model_id(scenario.target.model),
            "accelerator": scenario.hardware.accelerator,
            "load": getattr(given, kind),
            "load_kind": kind,
            "used_for_calibration": check.role == "tune",
            "grade": check.grade,
            "source": case.source.url,
            "note": "; ".join(filter(None, notes)),
        }
        on = {"method": scenario.speculation.method, "k": point.num_speculative_tokens}
        if point.measured_speedup is not None:
            yield compared(
                {**shared, **on, "arm": "on / off"},
                "speedup",
                point.measured_speedup,
                point.predicted_speedup,
                point.speedup_low,
                point.speedup_high,
            )
        for arm in point.arms:
            of = {**on, "arm": "on"} if arm.arm == "speculative" else _OFF
            metric = cast(EvidenceMetric, arm.metric)
            yield compared({**shared, **of}, metric, arm.measured, arm.predicted)
