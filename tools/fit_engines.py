"""Fit the host times of engine versions to the tuning cases, and print what to write.

Only cases with `role: tune` are read. A group of versions shares its constants; the parameters
are few and each is a time that somebody could measure: host per step, added host with speculation
per step and per running sequence, host per drafter pass, prompt lookup per sequence. Residuals are
logarithms of speedup (5 %) and of absolute times (10 %), with a soft loss; priors are the values
in `catalog/data/engines`, a factor of two either way, so that a constant without data stays.

    python tools/fit_engines.py [--cases validation/cases]
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from specsim.analysis.arms import baseline_arm
from specsim.analysis.curves import Pair, pair
from specsim.analysis.resolve import Deployment, resolve
from specsim.analysis.serving import closed_loop
from specsim.catalog.case import case_points, load_cases
from specsim.errors import SpecsimError
from specsim.schema.base import Range
from specsim.schema.case import CasePoint
from specsim.units import MILLI
from specsim.validation.signs import measured_speedup

ROOT = Path(__file__).parents[1]
SPEEDUP_SD, TIME_SD, PRIOR_SD = 0.05, 0.10, 0.7
LEAST = {"ms": 0.02, "us": 2.0}
"""Where a prior of zero starts, by unit."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Versions of an engine that share host times, and the ones to fit."""

    engine: str
    versions: tuple[str, ...]
    fields: tuple[str, ...]


SPECULATIVE = ("speculative_host_ms", "draft_host_ms", "speculative_per_sequence_host_us")
GROUPS = (
    Group("vllm", ("0.8.5", "0.10"), SPECULATIVE),
    Group("vllm", ("0.13", "0.17.1", "0.19.1"), (*SPECULATIVE, "piecewise_layer_us")),
    Group("vllm", ("0.25.1", "0.29"), SPECULATIVE),
    Group("sglang", ("0.5.2", "0.5.9"), SPECULATIVE),
)
SLOW_HOSTS = ("rtx_4060_laptop",)
"""Devices measured on hosts that are no servers (a laptop under WSL2)."""


@dataclass(frozen=True)
class Data:
    """Points of one deployment."""

    deployment: Deployment
    loads: Array
    points: tuple[CasePoint, ...]


def tuning_data(folder: Path) -> list[Data]:
    """Return the closed-loop points of the tuning cases, by deployment."""
    found: dict[str, tuple[Deployment, list[tuple[float, CasePoint]]]] = {}
    for case in load_cases(folder):
        if case.role != "tune" or case.engine_path_suspect or case.grade == "C":
            continue
        for point, scenario in case_points(case):
            if point.concurrency is None:
                continue
            key = scenario.model_dump_json(exclude={"load"})
            if key not in found:
                try:
                    found[key] = (resolve(scenario), [])
                except SpecsimError:
                    continue
            found[key][1].append((point.concurrency, point))
    return [
        Data(deployment, np.array([load for load, _ in rows]), tuple(p for _, p in rows))
        for deployment, rows in found.values()
    ]


def residuals(data: Sequence[Data], update: Mapping[str, Range]) -> Array:
    """Return weighted log errors with some engine constants replaced."""
    out: list[float] = []
    for d in data:
        engine = d.deployment.engine.model_copy(update=dict(update))
        deployment = dataclasses.replace(d.deployment, engine=engine)
        workload = deployment.scenario.workload
        speculates = deployment.method != "none"
        arms: Pair | None = pair(deployment) if speculates else None
        off = closed_loop(arms.baseline if arms else baseline_arm(deployment), workload, d.loads)
        on = closed_loop(arms.speculative, workload, d.loads) if arms else None
        for j, point in enumerate(d.points):
            speedup = measured_speedup(point)
            if speedup is not None and on is not None:
                predicted = on.output_tokens_per_s[j] / off.output_tokens_per_s[j]
                out.append(np.log(predicted / speedup) / SPEEDUP_SD)
            for service, arm in ((off, point.measured.baseline), (on, point.measured.speculative)):
                if service is None or arm is None:
                    continue
                if arm.tpot_ms:
                    tpot_s = np.broadcast_to(service.tpot_s, d.loads.shape)[j]
                    out.append(np.log(tpot_s / (arm.tpot_ms * MILLI)) / TIME_SD)
                elif arm.output_tok_s:
                    out.append(np.log(arm.output_tok_s / service.output_tokens_per_s[j]) / TIME_SD)
    return np.array(out)


def fit(group: Group, data: Sequence[Data]) -> None:
    """Fit one group and print its constants with the errors before and after."""
    mine = [
        d
        for d in data
        if d.deployment.scenario.engine.name == group.engine
        and d.deployment.engine.version in group.versions
        and d.deployment.hardware.identity.id not in SLOW_HOSTS
        and d.deployment.method != "none"
    ]
    print(
        f"\n{group.engine} {', '.join(group.versions)}: {sum(len(d.points) for d in mine)} points"
    )
    if not mine:
        return
    engine = mine[-1].deployment.engine
    start = np.array([max(getattr(engine, f).value, LEAST[f[-2:]]) for f in group.fields])

    def constants(log_factor: Array) -> dict[str, Range]:
        values = start * np.exp(log_factor)
        return {f: Range(value=v, low=v, high=v) for f, v in zip(group.fields, values, strict=True)}

    def target(log_factor: Array) -> Array:
        return np.concatenate([residuals(mine, constants(log_factor)), log_factor / PRIOR_SD])

    before = residuals(mine, {})
    found = least_squares(target, np.zeros(start.size), loss="soft_l1", bounds=(-4.0, 4.0))
    after = residuals(mine, constants(found.x))
    print(f"  median |residual| {np.median(abs(before)):.2f} -> {np.median(abs(after)):.2f} sd")
    hessian = found.jac.T @ found.jac
    spread = np.sqrt(np.diag(np.linalg.inv(hessian)))
    for name, first, x, sd in zip(group.fields, start, found.x, spread, strict=True):
        value = first * np.exp(x)
        low, high = value * np.exp(-1.28 * sd), value * np.exp(1.28 * sd)
        print(
            f"  {name}: {{value: {value:.3g}, low: {low:.2g}, high: {high:.2g}}}  # was {first:.3g}"
        )


def main() -> None:
    """Fit every group."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=Path, default=ROOT / "validation" / "cases")
    data = tuning_data(parser.parse_args().cases)
    for group in GROUPS:
        fit(group, data)


if __name__ == "__main__":
    main()
