"""The whole answer to one scenario."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specsim.analysis.acceptance import AcceptanceModel
from specsim.analysis.arms import Arm, baseline_arm, budget, cached_tokens
from specsim.analysis.best_k import best_k
from specsim.analysis.break_even import lengths_at, over_acceptance
from specsim.analysis.crossover import find_crossover
from specsim.analysis.curves import Pair, band, pair, service_at_rates
from specsim.analysis.overlay import Overlay
from specsim.analysis.points import build_points
from specsim.analysis.prepare import N_SAMPLES, SEED, prepared, provenance, scenario_json
from specsim.analysis.resolve import Deployment, resolve
from specsim.analysis.serving import closed_loop, mean_context
from specsim.analysis.verdict import verdict
from specsim.analysis.warnings import blocking_first, late_warnings
from specsim.errors import UsageError
from specsim.physics.forward import forward, matrix_times
from specsim.schema.calibration import Calibration
from specsim.schema.results import (
    DOES_NOT_START,
    AcceptanceCurvePoint,
    BreakEven,
    Crossover,
    KvArm,
    KvResult,
    Prediction,
    Transition,
    Verdict,
)
from specsim.schema.scenario import Scenario

Array = npt.NDArray[np.float64]


def predict(
    scenario: Scenario,
    *,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> Prediction:
    """Predict both arms of a scenario, with bands, crossover, break-even and verdict.

    Parameters
    ----------
    search : sequence of Path
        The user's own catalog files and folders.
    calibration : Calibration or path, optional
        What measured runs said of the constants (`specsim calibrate`). Its acceptance fills in
        where the scenario gives none.

    Raises
    ------
    SpecsimError
        One line saying what is wrong and what to do.
    """
    deployment, laid = prepared(scenario, search, calibration)
    loads = _loads(deployment)
    if deployment.method == "none":
        return _off_only(deployment, laid, loads)
    assert deployment.acceptance is not None
    constants = laid.point()
    arms = pair(deployment, constants)
    searched = arms.searched_loads()
    both = np.concatenate([loads, searched])
    speedup = arms.speedup(both)
    samples = pair(deployment, laid.sampled(N_SAMPLES, SEED)).speedup(both)
    low, high = band(speedup, samples)
    n = loads.size
    crossover = _crossover(arms, searched, speedup[n:], samples[:, n:])
    points = build_points(
        deployment,
        arms.baseline,
        arms.speculative,
        loads,
        speedup=speedup[:n],
        low=low[:n],
        high=high[:n],
        curves=arms.open_loops if arms.is_open else (None, None),
    )
    acceptance = deployment.acceptance.result()
    late = late_warnings(deployment, arms)
    served = np.array([p.baseline is not None for p in points])
    curve, break_even = _over_acceptance(deployment, arms, loads, served)
    kv = kv_of(deployment)
    return Prediction(
        scenario=scenario_json(deployment),
        acceptance=acceptance,
        kv=kv,
        points=points,
        crossover=crossover,
        break_even=break_even,
        best_k=best_k(deployment, constants, arms, loads[served]),
        acceptance_curve=curve,
        transition=_transition(arms.baseline),
        verdict=verdict(
            points,
            crossover,
            break_even,
            acceptance.draft_acceptance_rate,
            largest_rates=_largest_rates(arms),
            does_not_start=any(n.startswith(DOES_NOT_START) for n in late),
        ),
        defaults=deployment.defaults,
        warnings=blocking_first(deployment.warnings + late),
        provenance=provenance(deployment, laid),
    )


def predict_crossover(
    scenario: Scenario,
    *,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> Crossover:
    """Find where speculation stops paying. Parameters as for `predict`.

    Raises
    ------
    UsageError
        The scenario does not speculate.
    """
    deployment, laid = prepared(scenario, search, calibration)
    if deployment.method == "none":
        raise UsageError("a crossover needs speculation: method is none; give --spec-method")
    arms = pair(deployment, laid.point())
    searched = arms.searched_loads()
    samples = pair(deployment, laid.sampled(N_SAMPLES, SEED)).speedup(searched)
    return _crossover(arms, searched, arms.speedup(searched), samples)


def _crossover(arms: Pair, searched: Array, speedup: Array, samples: Array) -> Crossover:
    loads, sharp = arms.sharpened(searched, speedup)
    return find_crossover(loads, sharp, samples, _batch_off(arms, loads), sampled=searched)


def kv_result(scenario: Scenario, *, search: Sequence[Path] = ()) -> KvResult:
    """Compare the memory of both arms. Acceptance may be absent: memory does not depend on it."""
    return kv_of(resolve(scenario, search=search, for_memory=True))


def _loads(deployment: Deployment) -> Array:
    load = deployment.scenario.load
    values = load.concurrency if load.concurrency is not None else load.request_rate
    return np.array(sorted(set(values or ())), dtype=float)


def _batch_off(arms: Pair, loads: Array) -> Array:
    if arms.is_open:
        return np.asarray(
            service_at_rates(arms.baseline, arms.workload, loads, arms.open_loops[0])[0].batch
        )
    return np.asarray(closed_loop(arms.baseline, arms.workload, loads).batch)


def _largest_rates(arms: Pair) -> tuple[float, float] | None:
    """Return the largest stable rates of both arms; None in a closed loop. [requests/s]."""
    if not arms.is_open:
        return None
    return arms.largest_stable_rates()


def _over_acceptance(
    deployment: Deployment, arms: Pair, loads: Array, served: npt.NDArray[np.bool_]
) -> tuple[tuple[AcceptanceCurvePoint, ...], tuple[BreakEven, ...]]:
    """Return the speedup over acceptance, and the acceptance at which it is 1, by load."""
    model = deployment.acceptance
    assert model is not None
    k = deployment.num_speculative_tokens
    found = over_acceptance(arms, loads, k=k, proposal_rate=model.proposal_rate)
    lengths, fractions = lengths_at(model, found.rates, k)
    columns = (0, loads.size // 2, loads.size - 1)
    curve = tuple(
        AcceptanceCurvePoint(
            float(rate), float(lengths[i]), float(fractions[i]),
            *(_finite(found.speedup[i, column]) for column in columns),
        )
        for i, rate in enumerate(found.rates)
    )  # fmt: skip
    even = tuple(
        _break_even(model, float(loads[j]), found.even[j], k) for j in np.flatnonzero(served)
    )
    return curve, even


def _break_even(model: AcceptanceModel, load: float, rate: float | None, k: int) -> BreakEven:
    if rate is None:
        return BreakEven(load, acceptance_length=None, acceptance_rate=None,
                         draft_acceptance_rate=None)  # fmt: skip
    length, fraction = (float(v) for v in lengths_at(model, np.asarray(rate), k))
    return BreakEven(load, acceptance_length=length, acceptance_rate=rate,
                     draft_acceptance_rate=fraction)  # fmt: skip


def _transition(arm: Arm) -> Transition:
    """Find where a pass of the target turns compute-bound (definitions.md section 2)."""
    tokens = np.geomspace(1.0, 32768.0, 361)
    memory_s, compute_s = matrix_times(arm.target, tokens)
    total = np.asarray(
        forward(
            arm.target, sequences=tokens, query_tokens=1.0, context=1.0, head_rows=tokens
        ).total_s
    )

    def first(reached: npt.NDArray[np.bool_]) -> float | None:
        at = np.flatnonzero(reached)
        return float(tokens[at[0]]) if at.size else None

    return Transition(
        tokens=first(np.asarray(compute_s >= memory_s)),
        slowdown_10pct_tokens=first(total >= 1.1 * total[0]),
        slowdown_50pct_tokens=first(total >= 1.5 * total[0]),
    )


def kv_of(deployment: Deployment) -> KvResult:
    """Compare the memory of both arms of a deployment."""
    off = _kv_arm(deployment, speculative=False)
    on = _kv_arm(deployment, speculative=True) if deployment.method != "none" else off
    # A synchronous arm reserves a window for fewer tokens in flight: its log may print more.
    lost = max(off.kv_tokens - on.kv_tokens, 0)
    devices = deployment.n_gpus
    sheet = deployment.hardware.datasheet
    return KvResult(
        baseline=off,
        speculative=on,
        lost_tokens=lost,
        lost_fraction=lost / off.kv_tokens,
        memory_nameplate_gb=devices * sheet.memory_gb,
        memory_usable_gib=devices * sheet.memory_usable_gib,
    )


def _kv_arm(deployment: Deployment, *, speculative: bool) -> KvArm:
    b = budget(deployment, speculative=speculative)
    workload = deployment.scenario.workload
    shared = cached_tokens(workload, speculative=speculative) if workload.shared_prefix else 0.0
    fit = b.sequences_that_fit(mean_context(workload), shared_prefix_tokens=shared)
    return KvArm(
        weights_gib=b.weights_gib + b.drafter_weights_gib,
        drafter_weights_gib=b.drafter_weights_gib,
        kv_gib=b.kv_gib * b.devices,
        kv_gb_nameplate=b.nameplate_kv_gb,
        other_gib=(b.activation_gib + b.non_torch_gib + b.graphs_gib) * b.devices,
        bytes_per_token=b.bytes_per_token,
        kv_tokens=b.kv_tokens,
        max_concurrency=float(fit),
    )


def _off_only(deployment: Deployment, laid: Overlay, loads: Array) -> Prediction:
    baseline = baseline_arm(deployment, laid.point())
    points = build_points(deployment, baseline, None, loads, speedup=None, low=None, high=None)
    return Prediction(
        scenario=scenario_json(deployment),
        acceptance=None,
        kv=kv_of(deployment),
        points=points,
        crossover=None,
        break_even=(),
        best_k=(),
        acceptance_curve=(),
        transition=_transition(baseline),
        verdict=Verdict("off", "no speculation was asked for: give --spec-method to compare"),
        defaults=deployment.defaults,
        warnings=blocking_first(deployment.warnings + baseline.budget.notes),
        provenance=provenance(deployment, laid),
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
