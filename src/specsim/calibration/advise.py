"""Which run to make next: what would tell a factor, and what would narrow the crossover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from specsim.analysis.constants import Z90
from specsim.analysis.crossover import first_loss
from specsim.calibration.fit import Fit, data_of, factors_at, log_slopes, log_times
from specsim.calibration.model import RunModel
from specsim.calibration.runs import Run
from specsim.schema.calibration import Suggestion
from specsim.schema.scenario import Scenario

Array = npt.NDArray[np.float64]
_WORTH_NAMING = 0.95
"""A run is named for a factor if it leaves at most this share of the factor's spread."""
_WORTH_A_RUN = 0.9
"""Share of an interval that a run must leave at most to be worth it."""
_FIGURES = 2
"""Time per token and throughput: what a run brings."""


def in_words(suggestions: Sequence[Suggestion]) -> tuple[str, ...]:
    """Return runs to make next, a line each: those that narrow something as far as figures show.

    The same run some times over is one line.
    """
    lines = []
    for run, same in groupby(suggestions, lambda s: (s.num_speculative_tokens, s.load)):
        group = list(same)
        before, after = half_width(group[0].band_before), half_width(group[-1].band_after)
        if before == after:
            continue
        arm = f"on, k = {run[0]}" if run[0] else "off"
        times = {1: "", 2: ", twice"}.get(len(group), f", {len(group)} times")
        lines.append(f"speculation {arm} at {run[1]:,g}{times}: {before} becomes {after}")
    if not lines:
        return ("no single run narrows it as far as figures show",)
    first = suggestions[0]
    if first.band_after > _WORTH_A_RUN * first.band_before:
        lines.append("that is little: more runs like these will not narrow it much")
    return tuple(lines)


def half_width(value: float) -> str:
    """Return half of an interval as text; beyond 100 % it says nothing."""
    return "unknown" if value > 1.0 else f"±{100 * value:.0f} %"


@dataclass(frozen=True)
class Advisor:
    """Runs that could be made, and what their figures would say of the factors."""

    runs: tuple[Run, ...]
    slopes: Array
    """Runs x figures x factors: of log times."""
    fit: Fit
    target: Array
    """Slopes of what is to be narrowed, by factor."""
    per_log: float
    """Turns a spread of the log speedup into one of what is to be narrowed."""
    narrows: str

    @classmethod
    def of(cls, model: RunModel, fit: Fit, scenario: Scenario) -> Advisor:
        """Lay out runs over a ladder of loads, off and at several k."""
        runs = _candidates(model, scenario)
        slopes, logs = _slopes(runs, fit, scenario, model)
        k = scenario.speculation.num_speculative_tokens or max((r.k for r in model.runs), default=0)
        loads = np.array(sorted({r.load for r in runs}))
        at = {(r.k, r.load): i for i, r in enumerate(runs)}
        off = np.array([at[0, load] for load in loads])
        on = off if k == 0 else np.array([at[k, load] for load in loads])
        # Throughput as a time, off over on, is the speedup; in an open loop the time per token is.
        figure = 0 if runs[0].is_open else -1
        log_speedup = logs[off, figure] - logs[on, figure]
        target = slopes[off, figure] - slopes[on, figure]
        if k == 0:
            what = f"the time per token at {loads[-1]:g}"
            return cls(runs, slopes, fit, slopes[off[-1], 0], 1.0, what)
        cross = first_loss(loads, np.exp(log_speedup))
        if 0.0 < cross < np.inf:
            x = np.log(loads)
            gradient = np.array(
                [np.interp(np.log(cross), x, target[:, j]) for j in range(target.shape[1])]
            )
            steep = abs(float(np.interp(np.log(cross), x, np.gradient(log_speedup, x))))
            return cls(
                runs,
                slopes,
                fit,
                gradient,
                1.0 / max(steep, 1e-6),
                f"the crossover near {cross:.3g}",
            )
        nearest = int(np.argmin(np.abs(log_speedup)))
        what = f"the speedup at {loads[nearest]:g} (nothing crosses)"
        return cls(runs, slopes, fit, target[nearest], 1.0, what)

    def would_tell(self, name: str) -> str:
        """Name the run that would narrow a factor most; '' where none does."""
        j = [p.name for p in self.fit.parameters].index(name)
        before = self.fit.covariance[j, j]
        after = [self._with(self.fit.covariance, i)[j, j] for i in range(len(self.runs))]
        best = int(np.argmin(after))
        if np.sqrt(after[best] / before) > _WORTH_NAMING:
            return ""
        return _name(self.runs[best])

    def suggest(self, n: int) -> tuple[Suggestion, ...]:
        """Choose runs one after the other, each the one that narrows the target most."""
        covariance = self.fit.covariance
        found = []
        for _ in range(n):
            options = [self._with(covariance, i) for i in range(len(self.runs))]
            best = int(np.argmin([self._variance(c) for c in options]))
            run = self.runs[best]
            found.append(
                Suggestion(
                    arm=run.arm,
                    num_speculative_tokens=run.k,
                    load=run.load,
                    band_before=self._half_width(covariance),
                    band_after=self._half_width(options[best]),
                    narrows=self.narrows,
                )
            )
            covariance = options[best]
        return tuple(found)

    def _with(self, covariance: Array, i: int) -> Array:
        """Return the covariance after one more run."""
        slopes = self.slopes[i]
        noise = np.eye(slopes.shape[0]) * slopes.shape[0] * self.fit.run_sd**2
        gain = covariance @ slopes.T
        return np.asarray(covariance - gain @ np.linalg.solve(noise + slopes @ gain, gain.T))

    def _variance(self, covariance: Array) -> float:
        return float(self.target @ covariance @ self.target)

    def _half_width(self, covariance: Array) -> float:
        sd = np.sqrt(max(self._variance(covariance), 0.0)) * self.per_log
        return float(np.expm1(min(Z90 * sd, 5.0)))


def _name(run: Run) -> str:
    what = "rate" if run.is_open else "concurrency"
    arm = f"speculation on, k = {run.k}" if run.k else "speculation off"
    return f"{what} {run.load:g}, {arm}"


def _candidates(model: RunModel, scenario: Scenario) -> tuple[Run, ...]:
    is_open = all(r.is_open for r in model.runs)
    off = model.deployment(0)
    measured = sorted({r.load for r in model.runs if r.is_open == is_open})
    if is_open:
        loads = [measured[0] / 2.0, *measured]
    else:
        most = off.max_num_seqs
        loads = [2.0**i for i in range(12) if 2**i <= most] or [1.0]
    ks = {r.k for r in model.runs} | {scenario.speculation.num_speculative_tokens or 0}
    if any(ks):
        ks.add(1)
    workload = scenario.workload
    runs = []
    for k in sorted(ks | {0}):
        tokens = None
        if k:
            acceptance = model.acceptance(k)
            tokens = float(acceptance.tokens_per_step(acceptance.positions(k)))
        runs += [
            Run(
                source="",
                arm="on" if k else "off",
                k=k,
                load=load,
                is_open=is_open,
                held=None if is_open else load,
                input_tokens=workload.input_tokens,
                output_tokens=workload.output_tokens,
                num_requests=None,
                tokens_per_step=tokens,
                tpot_s=1.0,
                step_s=None,
                ttft_s=None,
                output_tok_s=1.0,
                engine_version=None,
            )
            for load in loads
        ]
    return tuple(runs)


def _slopes(
    runs: tuple[Run, ...], fit: Fit, scenario: Scenario, model: RunModel
) -> tuple[Array, Array]:
    ladder = RunModel(runs, scenario, search=model.search)
    data = data_of(runs)
    slopes = log_slopes(ladder, fit.parameters, fit.x, data)
    logs = log_times(ladder.predict(factors_at(fit.parameters, fit.x[None, :])), data)[0]
    return slopes.reshape(len(runs), _FIGURES, -1), logs.reshape(len(runs), _FIGURES)
