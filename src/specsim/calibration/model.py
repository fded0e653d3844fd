"""What the model says of the runs that were measured, for many trial factors at once."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from specsim.analysis.acceptance import AcceptanceModel
from specsim.analysis.arms import Arm, baseline_arm, speculative_arm
from specsim.analysis.constants import Constants
from specsim.analysis.curves import service_at_rates
from specsim.analysis.overlay import scales_of
from specsim.analysis.resolve import Deployment, resolve
from specsim.analysis.serving import Service, closed_loop, largest_batch
from specsim.calibration.runs import Run
from specsim.schema.scenario import Scenario, Workload
from specsim.schema.speculation import Acceptance, Speculation

Array = npt.NDArray[np.float64]
_Figures: TypeAlias = tuple[Array, Array, Array, Array]
"""Time per token, step, time to first token, tokens per second."""
METRICS = ("tpot_s", "step_s", "output_tok_s")
_SAME_LENGTH = 0.02
"""Runs whose lengths differ by less are of one workload."""
_TOLD_APART = 1.3
"""Times to first token of a burst and of a steady stream that differ by less do not tell which."""


@dataclass(frozen=True)
class Predicted:
    """Figures of runs: trial factors on the first axis, runs on the second."""

    tpot_s: Array
    step_s: Array
    ttft_s: Array
    output_tok_s: Array

    def of(self, metric: str) -> Array:
        """Return one figure by its name."""
        return np.asarray(getattr(self, metric))


@dataclass(frozen=True)
class _Group:
    """Runs of one arm and workload: one evaluation."""

    members: tuple[int, ...]
    deployment: Deployment
    workload: Workload
    is_on: bool
    is_open: bool
    loads: Array
    held: Array
    num_requests: Array
    tokens_per_step: Array


class RunModel:
    """Predicts a fixed set of runs.

    Notes
    -----
    A closed-loop run starts as a burst: all its first prompts come at once. Where answers end at
    different times later prompts come one by one, so that a run of R rounds is one part burst and
    R - 1 parts steady stream. Where all end together (equal answers, no speculation) every round
    is a burst. Which of the two a run was is told by its time to first token.
    """

    def __init__(
        self, runs: Sequence[Run], scenario: Scenario, *, search: Sequence[Path] = ()
    ) -> None:
        self.runs = tuple(runs)
        self._deployments: dict[int, Deployment] = {}
        self.search = tuple(search)
        self._scenario = scenario
        self._groups = self._grouped()
        rounds = np.array([max((r.num_requests or np.inf) / r.load, 1.0) for r in self.runs])
        self.burst_share = np.where([r.is_open for r in self.runs], 0.0, 1.0 / rounds)
        self.burst_share = self._burst_shares()

    def only(self, members: Sequence[int]) -> RunModel:
        """Return the model of some of the runs; what was told of their shape stays told."""
        part = copy.copy(self)
        part.runs = tuple(self.runs[i] for i in members)
        part.burst_share = self.burst_share[list(members)]
        part._groups = part._grouped()
        return part

    def deployment(self, k: int) -> Deployment:
        """Return the scenario's deployment at k draft tokens; 0: as the scenario has it."""
        if k not in self._deployments:
            scenario = self._scenario
            speculation = scenario.speculation
            if k and speculation.method != "none":
                changed = {"num_speculative_tokens": k, "acceptance": _at_other_k(speculation)}
                speculation = speculation.model_copy(update=changed)
                scenario = scenario.model_copy(update={"speculation": speculation})
            self._deployments[k] = resolve(scenario, search=self.search, for_memory=k == 0)
        return self._deployments[k]

    def acceptance(self, k: int) -> AcceptanceModel:
        """Return the acceptance at k draft tokens that the scenario or the runs give."""
        found = self.deployment(k).acceptance
        assert found is not None, "k > 0"
        return found

    def predict(self, factors: Mapping[str, Array | float]) -> Predicted:
        """Predict all runs.

        Parameters
        ----------
        factors : mapping
            Parameter -> factors, trial points along the only axis.
        """
        columns = {
            name: np.atleast_1d(np.asarray(f, dtype=float))[:, None] for name, f in factors.items()
        }
        n = max((c.shape[0] for c in columns.values()), default=1)
        constants = Constants(scales=scales_of(columns))
        found = np.full((4, n, len(self.runs)), np.nan)
        for group in self._groups:
            members = list(group.members)
            share = self.burst_share[members]
            for i, values in enumerate(_figures(group, constants, share)):
                found[i][:, members] = np.broadcast_to(values, (n, len(members)))
        return Predicted(*found)

    def _grouped(self) -> tuple[_Group, ...]:
        together: dict[tuple[object, ...], list[int]] = {}
        for i, run in enumerate(self.runs):
            lengths = tuple(
                round(math.log(x) / _SAME_LENGTH) for x in (run.input_tokens, run.output_tokens)
            )
            together.setdefault((run.arm, run.k, lengths, run.is_open), []).append(i)
        return tuple(self._group(members) for members in together.values())

    def _group(self, members: Sequence[int]) -> _Group:
        runs = [self.runs[i] for i in members]
        given = self._scenario.workload
        prompt = float(np.mean([r.input_tokens for r in runs]))
        workload = given.model_copy(
            update={
                "input_tokens": prompt,
                "output_tokens": float(np.mean([r.output_tokens for r in runs])),
                "cached_prompt_tokens": min(given.cached_prompt_tokens, prompt),
            }
        )
        deployment = self.deployment(runs[0].k)
        scenario = deployment.scenario.model_copy(update={"workload": workload})
        return _Group(
            members=tuple(members),
            deployment=replace(deployment, scenario=scenario),
            workload=workload,
            is_on=runs[0].arm == "on",
            is_open=runs[0].is_open,
            loads=np.array([r.load for r in runs]),
            held=np.array([np.nan if r.held is None else r.held for r in runs]),
            num_requests=np.array([r.num_requests or r.load for r in runs]),
            tokens_per_step=np.array([r.tokens_per_step or 1.0 for r in runs]),
        )

    def _burst_shares(self) -> Array:
        """Tell runs in lockstep by their times to first token, before anything is fitted.

        Runs of one arm and workload are alike in this. How long one prompt takes is not known yet,
        so that what counts, at three loads or more, is how the times grow with the load. Beyond
        what one step takes of prompts, groups of requests drift apart and none is in lockstep.
        """
        ttft_s = np.array([np.nan if r.ttft_s is None else r.ttft_s for r in self.runs])
        shares = self.burst_share
        mixed = self.predict({}).ttft_s[0]
        self.burst_share = np.where([r.is_open for r in self.runs], 0.0, 1.0)
        lockstep = self.predict({}).ttft_s[0]
        found = shares.copy()
        for group in self._groups:
            if group.is_open:
                continue
            arm = _arm(group, Constants())
            members = np.array(group.members)
            most, _ = largest_batch(arm, group.workload)
            # Waiting for a slot hides what prompts do to each other.
            one_step = group.loads * max(arm.prefill_tokens, 1.0) <= arm.max_num_batched_tokens
            can = one_step & (group.loads <= np.max(most))
            at = members[can & np.isfinite(ttft_s[members])]
            if not np.any(lockstep[at] > _TOLD_APART * mixed[at]):
                together = self._scenario.workload.arrival == "burst"
            else:
                n_loads = len({self.runs[i].load for i in at})
                misfit = [
                    _spread(np.log(ttft_s[at] / one[at]), about_mean=n_loads > 2)
                    for one in (mixed, lockstep)
                ]
                together = misfit[1] < misfit[0]
            if together:
                found[members[can]] = 1.0
        return found


def _at_other_k(speculation: Speculation) -> Acceptance:
    """Return the acceptance as it is known, whatever k is asked for.

    Measured runs bring their own tokens per step; where nothing else is known it is not read.
    """
    given = speculation.acceptance
    if given is None:
        return Acceptance(rate=0.5)
    hangs_on_k = given.length is not None or given.draft_acceptance_rate is not None
    if hangs_on_k and given.measured_at_k is None:
        return given.model_copy(update={"measured_at_k": speculation.num_speculative_tokens})
    return given


def _spread(residuals: Array, *, about_mean: bool) -> float:
    """Return the sum of squares of residuals, about zero or about their mean."""
    centre = float(np.mean(residuals)) if about_mean else 0.0
    return float(np.sum((residuals - centre) ** 2))


def _arm(group: _Group, constants: Constants) -> Arm:
    if not group.is_on:
        return baseline_arm(group.deployment, constants)
    arm = speculative_arm(group.deployment, constants)
    return arm.with_acceptance(tokens_per_step=group.tokens_per_step)


def _figures(group: _Group, constants: Constants, burst_share: Array) -> _Figures:
    """Return the figures of a group's runs."""
    arm = _arm(group, constants)
    if group.is_open:
        return _open_figures(arm, group)
    stream = group.workload.model_copy(update={"arrival": "steady"})
    steady = _as_figures(closed_loop(arm, stream, group.held))
    if not np.any(burst_share > 0):
        return steady
    once = group.workload.model_copy(update={"arrival": "burst"})
    # In lockstep the last wave may be a part of one; else the burst is the first wave alone.
    requests = np.where(burst_share >= 1.0, group.num_requests, group.loads)
    burst = _as_figures(closed_loop(arm, once, group.loads, num_requests=requests))
    wave = _as_figures(closed_loop(arm, once, group.loads, num_requests=group.loads))
    most, _ = largest_batch(arm, once)
    # Above it later waves wait, and the time of all waves says nothing of a token's.
    spread = _decoding_per_token(wave, group, burst[0])
    burst = (np.where(group.loads <= most, spread, burst[0]), *burst[1:])
    tpot, step, ttft = (
        burst_share * b + (1.0 - burst_share) * s
        for b, s in zip(burst[:3], steady[:3], strict=True)
    )
    served = 1.0 / (burst_share / burst[3] + (1.0 - burst_share) / steady[3])
    return tpot, step, ttft, served


def _decoding_per_token(wave: _Figures, group: _Group, bare: Array) -> Array:
    """Return the time per token of a wave whose prompts take several steps.

    Those of later steps ride on the decoding of earlier requests: what a request waits after its
    first token is the wave less its time to first token.
    """
    tokens = group.workload.output_tokens
    if tokens <= 1.0:
        return bare
    wave_s = group.loads * tokens / wave[3]
    return np.maximum(bare, (wave_s - wave[2]) / (tokens - 1.0))


def _open_figures(arm: Arm, group: _Group) -> _Figures:
    """Return the figures of an open loop.

    Where a run says how many requests it held, that is the batch; else the rate gives it, from
    curves that have an axis of their own, so that runs are read one by one.
    """
    held = np.maximum(np.nan_to_num(group.held, nan=1.0), 1.0)
    stream = group.workload.model_copy(update={"arrival": "steady"})
    figures = [_as_figures(closed_loop(arm, stream, held))]
    if np.any(np.isnan(group.held)):
        columns = []
        for i in range(group.loads.size):
            tokens = group.tokens_per_step[i]
            one = arm.with_acceptance(tokens_per_step=tokens) if arm.plan else arm
            rate = group.loads[i : i + 1]
            columns.append(_as_figures(service_at_rates(one, group.workload, rate)[0]))
        joined = [
            np.concatenate(np.broadcast_arrays(*c), axis=-1) for c in zip(*columns, strict=True)
        ]
        figures.append((joined[0], joined[1], joined[2], joined[3]))
    by_held, by_rate = figures[0], figures[-1]
    tpot, step, ttft, served = (
        np.where(np.isnan(group.held), rate, batch)
        for batch, rate in zip(by_held, by_rate, strict=True)
    )
    return tpot, step, ttft, served


def _as_figures(service: Service) -> _Figures:
    return (
        np.asarray(service.tpot_s),
        np.asarray(service.itl_s),
        np.asarray(service.ttft_s),
        np.asarray(service.output_tokens_per_s),
    )
