"""Predict every point of the cases, both arms and their band, in as few evaluations as possible.

Points of a case that differ in nothing but the load are one evaluation on an array of loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import baseline_arm
from specsim.analysis.constants import Constants
from specsim.analysis.curves import pair, service_at_rates
from specsim.analysis.resolve import Deployment, resolve
from specsim.analysis.serving import Service, closed_loop
from specsim.catalog.case import case_points
from specsim.errors import SpecsimError
from specsim.physics.step import target_pass
from specsim.schema.case import Case, CasePoint
from specsim.schema.scenario import Scenario
from specsim.schema.validation import ArmCheck, CaseCheck, CurveCheck, PointCheck, SweepCheck
from specsim.units import MILLI
from specsim.validation.bounds import MARGIN, acceptance_is_known, is_below_bound
from specsim.validation.signs import measured_speedup

Array = npt.NDArray[np.float64]
N_SAMPLES = 128
SEED = 20261129


def check_case(case: Case, *, search: Sequence[Path] = (), n_samples: int = N_SAMPLES) -> CaseCheck:
    """Compare a case with its prediction. A point that cannot be run says why.

    Parameters
    ----------
    n_samples : int
        Samples behind the band; 0: no band.
    """
    pairs = case_points(case)
    checks: dict[int, PointCheck] = {}
    for indices in _same_but_load([scenario for _, scenario in pairs]):
        group = [(i, *pairs[i]) for i in indices]
        for check in _check_group(case, group, search, n_samples):
            checks[check.index] = check
    points = tuple(checks[i] for i in range(len(pairs)))
    return CaseCheck(
        case=case.case,
        grade=case.grade,
        role=case.role or "tune",
        scored=not case.engine_path_suspect,
        points=points,
        curves=_curves(points),
        sweeps=_sweeps(points, [point for point, _ in pairs]),
        failed="",
    )


def _same_but_load(scenarios: list[Scenario]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for i, scenario in enumerate(scenarios):
        kind = "rate" if scenario.load.request_rate is not None else "concurrency"
        key = kind + scenario.model_dump_json(exclude={"load", "name"})
        groups.setdefault(key, []).append(i)
    return list(groups.values())


@dataclass(frozen=True)
class _Arms:
    """Both arms of a group over its loads."""

    off: Service
    on: Service | None
    speedup: Array | None
    low: Array | None
    high: Array | None


def _check_group(
    case: Case,
    group: list[tuple[int, CasePoint, Scenario]],
    search: Sequence[Path],
    n_samples: int,
) -> list[PointCheck]:
    scenario = group[0][2]
    loads = np.array([_load(s) for _, _, s in group], dtype=float)
    try:
        deployment = resolve(scenario, search=search)
        if group[0][1].tokens_in_step is not None:
            return [_pass(i, point, deployment) for i, point, _ in group]
        arms = _predict(deployment, loads, n_samples)
    except SpecsimError as error:
        return [_failed(i, point, s, str(error)) for i, point, s in group]
    k = deployment.num_speculative_tokens
    checks = [_point(i, j, point, loads[j], k, arms) for j, (i, point, _) in enumerate(group)]
    if not n_samples:
        return checks
    constants = Constants(n_samples, SEED)
    return [
        replace(check, below_bound=True)
        if _is_suspect(check)
        and is_below_bound(
            deployment,
            point,
            load,
            acceptance_known=acceptance_is_known(case, point),
            constants=constants,
        )
        else check
        for check, (_, point, _), load in zip(checks, group, loads, strict=True)
    ]


def _is_suspect(check: PointCheck) -> bool:
    """Whether a point may be below the bound at all: it is far slower than predicted, or a loss.

    A bound costs an evaluation of its own; this leaves out the points that it cannot catch.
    """
    measured, predicted = check.measured_speedup, check.predicted_speedup
    if measured is not None and predicted is not None:
        if measured < min(1.0, predicted) or measured < predicted / MARGIN:
            return True
    return any(a.arm == "speculative" and _slowness(a) > MARGIN for a in check.arms)


def _slowness(arm: ArmCheck) -> float:
    """Return measured over predicted time."""
    ratio = arm.measured / arm.predicted
    return ratio if arm.metric == "tpot_ms" else 1.0 / ratio


def _pass(index: int, point: CasePoint, deployment: Deployment) -> PointCheck:
    """Compare one forward pass: `tokens_in_step` new tokens of max_num_seqs requests."""
    assert point.tokens_in_step is not None
    arm = baseline_arm(deployment)
    sequences = float(deployment.max_num_seqs)
    cost = target_pass(
        arm.target,
        arm.overheads,
        sequences=sequences,
        query_tokens=point.tokens_in_step / sequences,
        context=deployment.scenario.workload.input_tokens,
    )
    measured = point.measured.baseline
    checks: tuple[ArmCheck, ...] = ()
    if measured is not None and measured.tpot_ms:
        predicted = float(cost.total_s) / MILLI
        checks = (ArmCheck("baseline", "tpot_ms", measured.tpot_ms, predicted),)
    return PointCheck(index, None, dict(point.override), 0, None, None, None, None, checks, "")


def _load(scenario: Scenario) -> float:
    load = scenario.load
    values = load.concurrency if load.concurrency is not None else load.request_rate
    assert values is not None
    return values[0]


def _predict(deployment: Deployment, loads: Array, n_samples: int) -> _Arms:
    workload = deployment.scenario.workload
    is_open = deployment.scenario.load.request_rate is not None

    def serve(arm: object) -> Service:
        if is_open:
            return service_at_rates(arm, workload, loads)[0]  # type: ignore[arg-type]
        return closed_loop(arm, workload, loads)  # type: ignore[arg-type]

    if deployment.method == "none":
        return _Arms(serve(baseline_arm(deployment)), None, None, None, None)
    arms = pair(deployment)
    speedup = arms.speedup(loads)
    low = high = speedup
    if n_samples:
        samples = pair(deployment, Constants(n_samples, SEED)).speedup(loads)
        low, high = np.percentile(np.nan_to_num(samples, nan=0.0), [10.0, 90.0], axis=0)
    return _Arms(
        serve(arms.baseline),
        serve(arms.speculative),
        speedup,
        np.minimum(low, speedup),
        np.maximum(high, speedup),
    )


def _point(index: int, j: int, point: CasePoint, load: float, k: int, arms: _Arms) -> PointCheck:
    checks: list[ArmCheck] = []
    for name, service in (("baseline", arms.off), ("speculative", arms.on)):
        measured = getattr(point.measured, name)
        if measured is None or service is None:
            continue
        if measured.tpot_ms:
            checks.append(
                ArmCheck(name, "tpot_ms", measured.tpot_ms, _at(service.tpot_s, j) / MILLI)
            )
        if measured.output_tok_s and point.request_rate is None:
            tokens = _at(service.output_tokens_per_s, j)
            checks.append(ArmCheck(name, "output_tok_s", measured.output_tok_s, tokens))
    return PointCheck(
        index=index,
        load=None if point.tokens_in_step is not None else load,
        override=dict(point.override),
        num_speculative_tokens=k,
        measured_speedup=measured_speedup(point),
        predicted_speedup=_finite(arms.speedup, j),
        speedup_low=_finite(arms.low, j),
        speedup_high=_finite(arms.high, j),
        arms=tuple(c for c in checks if np.isfinite(c.predicted)),
        failed=_unserved(arms, j),
    )


def _unserved(arms: _Arms, j: int) -> str:
    unstable = [
        name
        for name, service in (("off", arms.off), ("on", arms.on))
        if service is not None and not np.isfinite(_at(service.tpot_s, j))
    ]
    return f"unstable at this rate: {' and '.join(unstable)}" if unstable else ""


def _at(values: object, j: int) -> float:
    array = np.atleast_1d(np.asarray(values, dtype=float))
    return float(array[j] if array.size > 1 else array[0])


def _finite(values: Array | None, j: int) -> float | None:
    if values is None:
        return None
    value = _at(values, j)
    return value if np.isfinite(value) else None


def _failed(index: int, point: CasePoint, scenario: Scenario, why: str) -> PointCheck:
    return PointCheck(
        index=index,
        load=None if point.tokens_in_step is not None else _load(scenario),
        override=dict(point.override),
        num_speculative_tokens=scenario.speculation.num_speculative_tokens or 0,
        measured_speedup=measured_speedup(point),
        predicted_speedup=None,
        speedup_low=None,
        speedup_high=None,
        arms=(),
        failed=why,
    )


def _compared(points: tuple[PointCheck, ...]) -> list[PointCheck]:
    return [p for p in points if p.error_pct is not None and p.load is not None]


def _curves(points: tuple[PointCheck, ...]) -> tuple[CurveCheck, ...]:
    """Return the ladders of loads on which nothing but the load differs."""
    by_setting: dict[str, list[PointCheck]] = {}
    for p in _compared(points):
        by_setting.setdefault(repr(besides_load(p)), []).append(p)
    found = []
    for ladder in by_setting.values():
        ladder.sort(key=lambda p: p.load or 0.0)
        loads = tuple(float(p.load or 0.0) for p in ladder)
        if len(set(loads)) < 2 or len(set(loads)) != len(loads):
            continue
        found.append(
            CurveCheck(
                loads,
                _first_below([p.measured_speedup or 0.0 for p in ladder]),
                _first_below([p.predicted_speedup or 0.0 for p in ladder]),
            )
        )
    return tuple(found)


def besides_load(p: PointCheck) -> list[tuple[str, object]]:
    """Return what a point sets besides its load.

    A batch limit equal to the load is the load, and so is the number of requests that a benchmark
    sends at it.
    """
    rest = {k: v for k, v in p.override.items() if (k, v) != ("engine.max_num_seqs", p.load)}
    rest.pop("workload.num_requests", None)
    return sorted(rest.items(), key=str)


def _first_below(speedups: list[float]) -> int:
    return next((i for i, s in enumerate(speedups) if s < 1.0), len(speedups))


def _sweeps(points: tuple[PointCheck, ...], given: list[CasePoint]) -> tuple[SweepCheck, ...]:
    """Return the points at one load that differ in nothing but the draft tokens."""
    by_setting: dict[str, list[PointCheck]] = {}
    for p in _compared(points):
        rest = [(key, v) for key, v in besides_load(p) if not _is_k(key)]
        key = f"{p.load}{rest!r}"
        by_setting.setdefault(key, []).append(p)
    found = []
    for sweep in by_setting.values():
        ks = tuple(_tokens(p) for p in sweep)
        if len(set(ks)) < 2:
            continue
        found.append(
            SweepCheck(
                float(sweep[0].load or 0.0),
                ks,
                tuple(_measured_speed(p, given[p.index]) for p in sweep),
                tuple(p.predicted_speedup or 0.0 for p in sweep),
            )
        )
    return tuple(found)


def _is_k(key: str) -> bool:
    return key.startswith(
        ("speculation.num_speculative_tokens", "speculation.tree", "speculation.acceptance")
    )


def _tokens(p: PointCheck) -> int:
    tree = p.override.get("speculation.tree")
    if isinstance(tree, dict):
        return int(tree["num_draft_tokens"])
    return p.num_speculative_tokens


def _measured_speed(p: PointCheck, point: CasePoint) -> float:
    on = point.measured.speculative
    if on is not None and on.output_tok_s:
        return on.output_tok_s
    return p.measured_speedup or 0.0
