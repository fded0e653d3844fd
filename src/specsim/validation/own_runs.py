"""The user's own runs, each beside what is predicted for it.

A run is predicted by the scenario at the run's load, lengths and counted acceptance: acceptance is
an input here, not what is tested.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from specsim.analysis.predict import predict
from specsim.analysis.prepare import prepared
from specsim.catalog.hardware import file_key, load_hardware
from specsim.catalog.models import canonical_id
from specsim.catalog.scenario import load_scenario
from specsim.errors import SpecsimError
from specsim.schema.calibration import Calibration
from specsim.schema.evidence import Evidence, EvidenceArm, EvidenceLoad, EvidenceMetric
from specsim.schema.measurement import Measurement
from specsim.schema.results import Point
from specsim.schema.scenario import Scenario
from specsim.validation.likeness import Identity, compared

_SAME_LENGTH = 0.1
"""Runs whose mean lengths differ by less (of the logarithm) are of one workload."""


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


def own_runs(
    scenario: Scenario,
    here: Identity,
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
            yield compared(about, "speedup", ratio, *predicted)
        about = _about(here, [run], "on" if run.k else "off", used, note)
        arm = getattr(point, "speculative" if run.k else "baseline", None)
        for metric, measured in run.figures.items():
            yield compared(about, metric, measured, getattr(arm, metric, None))


def _is_of(row: Measurement, scenario: Scenario, here: Identity, search: Sequence[Path]) -> bool:
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


def _is_other_device(name: str, here: Identity, search: Sequence[Path]) -> bool:
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
    here: Identity, runs: Sequence[_Run], arm: EvidenceArm, used: frozenset[Path], note: str
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
