"""Calibration put to the test on recorded sweeps: part of the runs fitted, the others predicted."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specsim.analysis.overlay import with_counted_acceptance
from specsim.calibration.acceptance import counted_acceptance
from specsim.calibration.fit import fit, repeat_sd
from specsim.calibration.held_out import held_out, runs_per_speedup
from specsim.calibration.left_out import median_pct, time_errors
from specsim.calibration.model import RunModel
from specsim.calibration.parameters import fit_parameters
from specsim.calibration.rows import matching_rows
from specsim.calibration.runs import usable_runs
from specsim.catalog.scenario import load_scenario
from specsim.measure.read import read_measurements
from specsim.schema.calibration import HeldOut
from validation_report.markdown import percent, section, table

ROOT = Path(__file__).parents[2]
LAB = ROOT / "validation" / "lab"
SCENARIO = ROOT / "tools" / "lab" / "scenario.yaml"
FITTED_LOADS = 4
BAR_TPOT_PCT, BAR_SPEEDUP_PCT, BAR_OTHER_K_PCT = 5.0, 4.0, 6.0

TEXT = """\
Recorded sweeps of the lab (`make lab`: a 152 M target and drafters of known acceptance on vLLM's
CPU backend, two cores; the files are in `validation/lab`). Of each sweep four loads of both arms
are fitted and the others predicted: in all choices of four, and in those that keep the lowest and
the highest load, so that the others lie between. Errors are medians over all runs, or speedups,
that were not fitted; the scatter is the standard deviation of a run, or of a speedup of means of
runs, between repeats. The bar is 5 % for the time per token and 4 % for the speedup, or twice the
scatter where that is more, and the crossover within a step of the ladder. A prediction takes from
the runs it is compared with their tokens per step and how many requests they held.
"""
OTHER_K = """\
Calibrated on the runs without speculation and those of one k, the runs of another k are predicted,
each with the tokens per step that it counted. The bar is 6 %.
"""


@dataclass(frozen=True)
class Choices:
    """All choices of loads to fit of one sweep."""

    sweep: str
    k: int
    n: int
    tpot_pct: float
    speedup_pct: float
    zero_shot_tpot_pct: float
    scatter_pct: float
    speedup_scatter_pct: float
    steps_apart: tuple[int, ...]
    with_ends: bool
    """Only choices that fit the lowest and the highest load: the others lie between."""

    @property
    def tpot_bar_pct(self) -> float:
        """What the time per token is held against."""
        return max(BAR_TPOT_PCT, 2.0 * self.scatter_pct)

    @property
    def speedup_bar_pct(self) -> float:
        """What the speedup is held against."""
        return max(BAR_SPEEDUP_PCT, 2.0 * self.speedup_scatter_pct)


def model_of(folder: Path) -> RunModel:
    """Return the runs of a recorded sweep."""
    scenario = load_scenario(SCENARIO, overrides={"speculation.acceptance": None})
    rows, _, _ = matching_rows(read_measurements(folder).rows, scenario)
    scenario, _ = with_counted_acceptance(scenario, counted_acceptance(rows))
    runs, _ = usable_runs(rows, scenario)
    return RunModel(runs, scenario)


def predicted(model: RunModel, unseen: Sequence[int]) -> tuple[HeldOut, list[float]]:
    """Fit all runs but some and predict those; also return their log errors of time per token."""
    part = model.only([i for i in range(len(model.runs)) if i not in unseen])
    deployments = [part.deployment(k) for k in sorted({r.k for r in model.runs})]
    found = fit(part, fit_parameters(deployments))
    tpot, _ = time_errors(model, model.predict(found.factors()))
    held = held_out(model, found, unseen, lambda members: ())
    return held, [float(tpot[i]) for i in unseen]


def choices(folder: Path, k: int, *, with_ends: bool = False) -> Choices:
    """Fit every four loads of a sweep's off and k runs, and predict the others."""
    every = model_of(folder)
    model = every.only([i for i, r in enumerate(every.runs) if r.k in (0, k)])
    loads = sorted({r.load for r in model.runs})
    tpot: list[float] = []
    speedups: list[float] = []
    steps: list[int] = []
    combinations = [
        c
        for c in itertools.combinations(loads, FITTED_LOADS)
        if not with_ends or (c[0], c[-1]) == (loads[0], loads[-1])
    ]
    for fitted in combinations:
        unseen = [i for i, r in enumerate(model.runs) if r.load not in fitted]
        held, errors = predicted(model, unseen)
        tpot += errors
        speedups += [float(np.log(s.predicted / s.measured)) for s in held.speedups]
        steps += [c.steps_apart for c in held.crossovers]
    scatter = 100.0 * (repeat_sd(model.runs) or float("nan"))
    zero_shot, _ = time_errors(model, model.predict({}))
    return Choices(
        sweep=folder.name,
        k=k,
        n=len(combinations),
        tpot_pct=median_pct(tpot) or 0.0,
        speedup_pct=median_pct(speedups) or 0.0,
        zero_shot_tpot_pct=median_pct(list(zero_shot)) or 0.0,
        scatter_pct=scatter,
        speedup_scatter_pct=float(np.sqrt(runs_per_speedup(model))) * scatter,
        steps_apart=tuple(steps),
        with_ends=with_ends,
    )


def other_k(folder: Path, fitted_k: int, k: int) -> tuple[float, float]:
    """Fit the off runs and those of one k; return median errors of TPOT and speedup at another."""
    model = model_of(folder)
    unseen = [i for i, r in enumerate(model.runs) if r.k == k]
    held, errors = predicted(model, unseen)
    assert all(r.k in (0, fitted_k, k) for r in model.runs)
    return median_pct(errors) or 0.0, held.speedup_median_pct or 0.0


SWEEPS = (("2026-11-29-interleaved", (3,)), ("2026-11-30", (1, 3)))
"""Recorded sweeps, and the k that each has."""


def calibration_section() -> str:
    """Return how well calibrated predictions hold on runs that they did not see."""
    found = [
        choices(LAB / name, k, with_ends=with_ends)
        for name, ks in SWEEPS
        for k in ks
        for with_ends in (False, True)
    ]
    rows = [
        (
            c.sweep,
            str(c.k),
            f"both ends, {c.n}" if c.with_ends else f"all {c.n}",
            percent(c.zero_shot_tpot_pct),
            percent(c.tpot_pct),
            percent(c.tpot_bar_pct),
            percent(c.speedup_pct),
            percent(c.speedup_bar_pct),
            percent(c.scatter_pct),
            f"{sum(s <= 1 for s in c.steps_apart)} of {c.n}",
            _verdict(c),
        )
        for c in found
    ]
    transfers = [
        (name, str(one), str(two), *map(percent, other_k(LAB / name, one, two)))
        for name, ks in SWEEPS
        for one, two in itertools.permutations(ks, 2)
    ]
    return section(
        "Calibration",
        TEXT.strip(),
        table(
            ("sweep", "k", "choices of four", "shipped: TPOT %", "calibrated: TPOT %", "bar",
             "speedup %", "bar", "scatter of a run %", "crossover within a step", "bars"),
            rows,
        ),
        OTHER_K.strip(),
        table(("sweep", "fitted k", "predicted k", "TPOT %", "speedup %"), transfers),
    )  # fmt: skip


def _verdict(c: Choices) -> str:
    missed = []
    if c.tpot_pct > c.tpot_bar_pct:
        missed.append("TPOT")
    if c.speedup_pct > c.speedup_bar_pct:
        missed.append("speedup")
    if any(s > 1 for s in c.steps_apart):
        missed.append("crossover")
    return f"missed: {', '.join(missed)}" if missed else "met"
