"""What was measured, by the user and by others, beside what is predicted for it.

Own rows are predicted by the user's scenario at the row's load, lengths and counted acceptance;
published ones are the cases that are most like the scenario.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from specsim.analysis.predict import predict
from specsim.analysis.prepare import prepared
from specsim.catalog.calibration import load_calibration
from specsim.catalog.case import case_files, case_points, load_case, shipped_cases
from specsim.catalog.files import read_mapping, read_shipped
from specsim.catalog.hardware import file_key, load_hardware
from specsim.catalog.models import canonical_id
from specsim.catalog.scenario import load_scenario
from specsim.errors import SpecsimError
from specsim.schema.calibration import Calibration
from specsim.schema.case import Case
from specsim.schema.evidence import Evidence, EvidenceArm, EvidenceLoad, EvidenceMetric
from specsim.schema.measurement import Measurement, Measurements
from specsim.schema.results import Point
from specsim.schema.scenario import Scenario
from specsim.validation.bounds import ADVICE
from specsim.validation.check import check_case

_MOST_CASES = 12
"""Cases checked at most: each takes a tenth of a second."""
_SAME_LENGTH = 0.1
"""Runs whose mean lengths differ by less (of the logarithm) are of one workload."""
_OFF = {"arm": "off", "method": "none", "k": 0}
_UNITS: dict[EvidenceMetric, str] = {
    "speedup": "", "tpot_ms": "ms", "output_tok_s": "tok/s", "ttft_ms": "ms",
}  # fmt: skip


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
    here = _Identity.of(scenario, search)
    rows = () if measurements is None else measurements.rows
    own = list(_own(scenario, here, rows, search, calibration))
    return (*own, *_published(here, cases, search, most - len(own)))


@dataclass(frozen=True)
class _Identity:
    """What a scenario is of, under every name that it goes by."""

    model: str
    accelerator: str
    accelerator_keys: frozenset[str]
    method: str

    @classmethod
    def of(cls, scenario: Scenario, search: Sequence[Path]) -> _Identity:
        device = load_hardware(scenario.hardware.accelerator, search=search).identity
        return cls(
            model=_model(scenario.target.model),
            accelerator=device.id,
            accelerator_keys=frozenset(map(file_key, (device.id, *device.aliases))),
            method=scenario.speculation.method,
        )


def _model(name: str) -> str:
    return canonical_id(name) or name


def _compared(
    about: Mapping[str, Any],
    metric: EvidenceMetric,
    measured: float,
    predicted: float | None,
    low: float | None = None,
    high: float | None = None,
) -> Evidence:
    if predicted is None or low is None or high is None:
        low = high = None
    return Evidence(
        **about,
        metric=metric,
        unit=_UNITS[metric],
        measured=measured,
        predicted=predicted,
        predicted_low=low,
        predicted_high=high,
        error_pct=None if predicted is None else 100.0 * (predicted / measured - 1.0),
        in_interval=None if low is None or high is None else low <= measured <= high,
    )


# Own measurements


@dataclass(frozen=True)
class _Run:
    """A row that can be predicted: its load, its figures, and what it changes in the scenario."""

    row: Measurement
    load: float
    load_kind: EvidenceLoad
    k: int
    """Draft tokens per step; 0 off."""
    figures: dict[EvidenceMetric, float]
    changes: dict[str, Any]

    def is_like(self, other: _Run) -> bool:
        """Tell whether both ran requests of the same lengths at the same load."""
        return (self.load_kind, self.load) == (other.load_kind, other.load) and all(
            not one or not two or abs(math.log(one / two)) <= _SAME_LENGTH
            for one, two in (
                (self.row.input_tokens, other.row.input_tokens),
                (self.row.output_tokens, other.row.output_tokens),
            )
        )


def _own(
    scenario: Scenario,
    here: _Identity,
    rows: Iterable[Measurement],
    search: Sequence[Path],
    calibration: Calibration | None,
) -> Iterator[Evidence]:
    """Yield the rows of own runs by load, off before on, a speedup before its run."""
    rows = [row for row in rows if _is_of(row, scenario, here, search)]
    if any(row.arm == "on" and row.num_speculative_tokens is None for row in rows):
        # What nobody says is the drafter's own.
        k = prepared(scenario, search, calibration)[0].num_speculative_tokens
        scenario = _changed(scenario, {"speculation.num_speculative_tokens": k})
    found = [_run(row, scenario) for row in rows]
    runs = sorted(filter(None, found), key=lambda run: (run.load_kind, run.load, run.k))
    fitted = () if calibration is None else calibration.runs
    used = frozenset(Path(run.source).absolute() for run in fitted)
    points = _points(scenario, runs, search, calibration)
    for run, (point, note) in zip(runs, points, strict=True):
        off = [other for other in runs if not other.k and run.k and other.is_like(run)]
        ratio = _measured_speedup(run, off)
        if ratio is not None:
            about = _about(here, [*off, run], "on / off", used, note)
            predicted = (getattr(point, f"speedup{end}", None) for end in ("", "_low", "_high"))
            yield _compared(about, "speedup", ratio, *predicted)
        about = _about(here, [run], "on" if run.k else "off", used, note)
        arm = getattr(point, "speculative" if run.k else "baseline", None)
        for metric, measured in run.figures.items():
            yield _compared(about, metric, measured, getattr(arm, metric, None))


def _is_of(row: Measurement, scenario: Scenario, here: _Identity, search: Sequence[Path]) -> bool:
    """Tell whether a row may be of the scenario's deployment: what it does not name counts."""
    model = canonical_id(row.model) if row.model else None
    return (
        (row.arm == "off" or (row.arm == "on" and here.method != "none"))
        and (row.arm == "off" or row.method in (None, here.method))
        and (model is None or canonical_id(here.model) in (None, model))
        and row.engine in (None, scenario.engine.name)
        and row.tensor_parallel_size in (None, scenario.hardware.tensor_parallel_size)
        and (not row.accelerator or not _is_other_device(row.accelerator, here, search))
    )


def _is_other_device(name: str, here: _Identity, search: Sequence[Path]) -> bool:
    """Tell whether a name is that of another device; one that no profile goes by is not."""
    if file_key(name) in here.accelerator_keys:
        return False
    try:
        return load_hardware(name, search=search).identity.id != here.accelerator
    except SpecsimError:
        return False


def _run(row: Measurement, scenario: Scenario) -> _Run | None:
    """Return a row as a run; None where it has no load or no figure (logs, metrics)."""
    kind: EvidenceLoad = "concurrency"
    load = row.concurrency
    if row.request_rate and math.isfinite(row.request_rate):
        # A cap on requests in flight beside a rate is the client's limit, not the load.
        load, kind = row.request_rate, "request_rate"
    measured: dict[EvidenceMetric, float | None] = {
        "tpot_ms": None if row.tpot_ms is None else row.tpot_ms.mean,
        # Of arrivals that were asked for, what was served says nothing.
        "output_tok_s": row.output_tok_s if kind == "concurrency" else None,
        "ttft_ms": None if row.ttft_ms is None else row.ttft_ms.mean,
    }
    figures = {metric: v for metric, v in measured.items() if v and 0.0 < v < math.inf}
    if not load or not 0.0 < load < math.inf or not figures:
        return None
    k = 0
    changes: dict[str, Any] = {"speculation": {"method": "none"}}
    if row.arm == "on":
        given = scenario.speculation.num_speculative_tokens
        k = row.num_speculative_tokens or given or 1
        asked = row.num_speculative_tokens not in (None, given)
        changes = {"speculation.num_speculative_tokens": k} if asked else {}
        changes |= _acceptance(row, k, scenario)
    return _Run(row, float(load), kind, k, figures, changes | _lengths(row, scenario))


def _lengths(row: Measurement, scenario: Scenario) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name in ("input_tokens", "output_tokens"):
        if value := getattr(row, name):
            changes |= {f"workload.{name}": value, f"workload.{name}_p95": None}
    for name in ("cached_prompt_tokens", "cached_prompt_tokens_speculative"):
        cached = getattr(scenario.workload, name)
        if row.input_tokens and cached is not None and cached > row.input_tokens:
            changes[f"workload.{name}"] = row.input_tokens
    return changes


def _acceptance(row: Measurement, k: int, scenario: Scenario) -> dict[str, Any]:
    """Return the acceptance that a run counted, to take the place of the scenario's."""
    found, method = row.acceptance, scenario.speculation.method
    if found is None or found.acceptance_length is None:
        return {}
    accepted = min(max(found.acceptance_length, 1.0), k + 1.0) - 1.0
    if method not in ("ngram", "suffix"):
        return {
            "speculation.acceptance": {"length": 1.0 + accepted, "counts": found.drafts or None}
        }
    # These draft on a match only. Steps are answers less what drafts saved.
    steps = (row.completed or 0) * ((row.output_tokens or 1.0) - 1.0) - (found.accepted_tokens or 0)
    if not found.drafts or found.accepted_tokens is None or steps <= 0:
        return {}
    share = min(found.drafts / steps, 1.0)
    # A length that is given counts all steps, those that do not draft too.
    known = {"length": 1.0 + accepted * share, "proposal_rate": share, "counts": found.drafts}
    return {"speculation.acceptance": known}


def _changed(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    return load_scenario(scenario.model_dump(exclude_unset=True), overrides=changes)


def _points(
    scenario: Scenario,
    runs: Sequence[_Run],
    search: Sequence[Path],
    calibration: Calibration | None,
) -> list[tuple[Point | None, str]]:
    """Predict every run, or say why not. Runs that differ in the load alone are one prediction."""
    together: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        key = json.dumps([run.load_kind, run.changes], sort_keys=True)
        together.setdefault(key, []).append(i)
    found: list[tuple[Point | None, str]] = [(None, "")] * len(runs)
    for members in together.values():
        first = runs[members[0]]
        loads = sorted({runs[i].load for i in members})
        changes = {**first.changes, f"load.{first.load_kind}": loads}
        try:
            here = _changed(scenario, changes)
            points = predict(here, search=search, calibration=calibration).points
        except SpecsimError as error:
            for i in members:
                found[i] = (None, str(error))
            continue
        for i in members:
            point = points[loads.index(runs[i].load)]
            found[i] = (point, point.note)
    return found


def _measured_speedup(run: _Run, off: Sequence[_Run]) -> float | None:
    """Return on / off: of throughput, else of time per token; repeats of off are averaged."""
    of: dict[EvidenceMetric, int] = {"output_tok_s": 1, "tpot_ms": -1}
    for metric, sign in of.items():
        without = [other.figures[metric] for other in off if metric in other.figures]
        if without and metric in run.figures:
            return float((run.figures[metric] / fmean(without)) ** sign)
    return None


def _about(
    here: _Identity, runs: Sequence[_Run], arm: EvidenceArm, used: frozenset[Path], note: str
) -> dict[str, Any]:
    """Return what rows of these runs share; the last is the run that they are of."""
    run, sources = runs[-1], list(dict.fromkeys(one.row.source for one in runs))
    notes = [note, *run.row.warnings]
    if run.row.failed:
        notes.append(f"{run.row.failed} requests failed, {run.row.completed or 0} were answered")
    return {
        "case": Path(run.row.source).name,
        "what": "own measurement",
        "model": here.model,
        "accelerator": here.accelerator,
        "method": here.method if run.k else "none",
        "k": run.k,
        "arm": arm,
        "load": run.load,
        "load_kind": run.load_kind,
        "used_for_calibration": any(Path(source).absolute() in used for source in sources),
        "grade": None,
        "source": "; ".join(sources),
        "note": "; ".join(dict.fromkeys(filter(None, notes))),
    }


# Published cases


def _published(
    here: _Identity, cases: Path | None, search: Sequence[Path], room: int
) -> list[Evidence]:
    found: list[Evidence] = []
    for path in _alike(here, cases)[:_MOST_CASES]:
        if len(found) >= room:
            break
        found += _rows(load_case(path), search)
    return found[: max(room, 0)]


def _alike(here: _Identity, cases: Path | None) -> list[Path]:
    """Return the cases of this model or accelerator, the nearest first."""
    read: Callable[[Path], Mapping[str, Any]] = read_shipped if cases is None else read_mapping
    ranked = []
    for path in case_files(cases or shipped_cases()):
        data = read(path)
        same_model = _model(_named(data, "target", "model")) == here.model
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
            "model": _model(scenario.target.model),
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
            yield _compared(
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
            yield _compared({**shared, **of}, metric, arm.measured, arm.predicted)
