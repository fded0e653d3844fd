"""Maps of the speedup over concurrency and another axis, and the line on them at which it is 1.

Maps are of a closed loop whatever the scenario's load is: their axis is requests in flight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import Arm
from specsim.analysis.best_k import searched_k
from specsim.analysis.crossover import intervals_above_one
from specsim.analysis.curves import Pair, pair, service_at_rates
from specsim.analysis.overlay import Overlay
from specsim.analysis.prepare import prepared
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import Service, closed_loop, largest_batch
from specsim.errors import UsageError
from specsim.physics import acceptance as law
from specsim.physics.cost import Num
from specsim.schema.calibration import Calibration
from specsim.schema.scenario import Scenario, Workload
from specsim.units import MILLI

Array = npt.NDArray[np.float64]
Segment = tuple[float, float, float, float]
"""A piece of a line: load and row of its start, load and row of its end."""

_ACCEPTANCES, _PROMPTS = 21, 13
"""Rows of a map beside the user's own: acceptances are 5 % apart."""
_FEWEST = 8.0
"""Loads of a map go at least this far."""
_ROUND = tuple(digit * 10**power for power in range(1, 6) for digit in (1, 2, 5))
_SAME = 1e-6
"""Places on an axis that are a smaller share of it apart are one."""
_SHORTEST_PROMPT = 128.0


@dataclass(frozen=True)
class SpeedupMap:
    """Both arms over loads (last axis) and over something else (first axis)."""

    loads: Array
    """Requests in flight. [requests]"""
    rows: Array
    """The other axis, rising."""
    speedup: Array
    """On / off, output tokens per second."""
    tpot_ms_off: Array
    tpot_ms_on: Array
    log_rows: bool = False
    """The other axis is a logarithm too."""

    def nearest(self, load: float, row: float) -> tuple[int, int]:
        """Return the indices of the cell nearest to a load and a row: of row, then of load."""
        away = np.log(self.rows / row) if self.log_rows else self.rows - row
        column = np.argmin(np.abs(np.log(self.loads / max(load, 1.0))))
        return int(np.argmin(np.abs(away))), int(column)

    def contour(self) -> tuple[Segment, ...]:
        """Return the line at which the speedup is 1, for an axis that is continuous."""
        if not self.log_rows:
            return contour(self.loads, self.rows, self.speedup)
        lines = contour(self.loads, np.log(self.rows), self.speedup)
        return tuple((a, math.exp(b), c, math.exp(d)) for a, b, c, d in lines)

    def steps(self) -> tuple[Segment, ...]:
        """Return the line at which the speedup is 1, for rows that are whole numbers.

        It turns at the same loads all over the height of a row, which is 1, and runs between two
        rows where only one of them wins; not beside a row of off, which is 1 everywhere.
        """
        wins = [intervals_above_one(self.loads, speedup) for speedup in self.speedup]
        ends = [float(self.loads[0]), float(self.loads[-1])]
        found: list[Segment] = []
        for i, row in enumerate(self.rows.tolist()):
            turns = {x for win in wins[i] for x in win} - set(ends)
            found += [(x, row - 0.5, x, row + 0.5) for x in sorted(turns)]
            if i == 0 or np.all(self.speedup[i - 1] == 1.0):
                continue
            cuts = sorted({*ends, *(x for win in wins[i - 1] + wins[i] for x in win)})
            for low, high in pairwise(cuts):
                middle = math.sqrt(low * high)
                if len({any(a < middle < b for a, b in wins[n]) for n in (i - 1, i)}) == 2:
                    found.append((low, row - 0.5, high, row - 0.5))
        return tuple(found)


@dataclass(frozen=True)
class OwnPoint:
    """What the scenario itself asks about."""

    load: float | None
    """Requests in flight; of the off arm at an arrival rate, None where it cannot serve it."""
    draft_acceptance_rate: float
    acceptance_length: float
    k: int
    input_tokens: float


@dataclass(frozen=True)
class Maps:
    """The speedup over concurrency and acceptance, and over concurrency and k."""

    acceptance: SpeedupMap
    """Rows are accepted / drafted."""
    lengths: Array
    """The same rows as tokens per step. [tokens]"""
    k: SpeedupMap | None
    """Rows are draft tokens, from 0 (off) on; None for a tree, whose shape has no other k."""
    best_k: npt.NDArray[np.int64] | None
    """By load of the map over k; 0 where no k pays."""
    own: OwnPoint


def load_stops(most: float) -> tuple[int, ...]:
    """Return the loads that can be asked about, up to one: maps have them as their columns.

    Every one at first, then eight an octave, as loads differ by ratios; and round ones.

    >>> load_stops(40)
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40)
    """
    top = max(int(most), 1)
    octaves = range(4, max(top.bit_length(), 4))
    eighths = (2**octave + step * 2**octave // 8 for octave in octaves for step in range(8))
    return tuple(sorted({top, *(n for n in (*range(1, 16), *eighths, *_ROUND) if n < top)}))


def speedup_maps(
    scenario: Scenario,
    *,
    load: float | None = None,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> Maps:
    """Return the speedup over concurrency and acceptance, and over concurrency and k.

    Parameters
    ----------
    load : float, optional
        The user's own: in the unit of the scenario's load; absent: the first of them.
    search, calibration
        As in `predict`.

    Raises
    ------
    UsageError
        The scenario does not speculate.
    """
    deployment, laid = _speculating(scenario, search, calibration)
    model = deployment.acceptance
    assert model is not None, "the deployment speculates"
    arms = replace(pair(deployment, laid.point()), is_open=False)
    own = _own(deployment, arms, load)
    loads = _loads(arms, own.load)
    k, drafted = deployment.num_speculative_tokens, model.drafted_tokens()
    accepted = _with(np.linspace(0.0, k / drafted, _ACCEPTANCES), own.draft_acceptance_rate)
    drafting = np.minimum(1.0 + drafted * accepted, 1.0 + k)
    rates = law.first_rate_from_length(target_length=drafting, decay=1.0, k=k)
    over_acceptance = _map(
        arms.at_rates(np.asarray(rates), k, model.proposal_rate), loads, accepted
    )
    lengths = law.over_all_steps(drafting_length=drafting, proposal_rate=model.proposal_rate)
    over_k = best = None
    if deployment.scenario.speculation.tree is None:
        over_k = _over_k(deployment, laid, loads)
        best = np.argmax(over_k.speedup, axis=0)
    return Maps(over_acceptance, np.asarray(lengths), over_k, best, own)


def _over_k(deployment: Deployment, laid: Overlay, loads: Array) -> SpeedupMap:
    """Return the map over k; its first row is off, whose speedup is 1."""
    ks = searched_k(deployment)
    found = _map(pair(deployment, laid.point(), k=ks[:, None]), loads, ks)
    off = found.tpot_ms_off[:1]
    return SpeedupMap(
        loads=loads,
        rows=np.concatenate([[0.0], ks]),
        speedup=np.concatenate([np.ones((1, loads.size)), found.speedup]),
        tpot_ms_off=np.concatenate([off, found.tpot_ms_off]),
        tpot_ms_on=np.concatenate([off, found.tpot_ms_on]),
    )


@dataclass(frozen=True)
class PromptMaps:
    """The speedup over concurrency and the length of prompts."""

    whole: SpeedupMap
    """Of whole requests: their prompts are computed between decode steps, as on one replica."""
    decoding: SpeedupMap
    """Of decoding alone: prompts come from a cache or from replicas of their own."""
    fits: Array
    """Requests of each length that the cache of the off arm holds. [requests]"""
    own: OwnPoint


def prompt_maps(
    scenario: Scenario,
    *,
    load: float | None = None,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> PromptMaps:
    """Return the speedup over concurrency and prompt length. Parameters as for `speedup_maps`."""
    deployment, laid = _speculating(scenario, search, calibration)
    arms = replace(pair(deployment, laid.point()), is_open=False)
    own = _own(deployment, arms, load)
    loads = _loads(arms, own.load)
    prompts = _prompt_lengths(deployment)
    here = _with_prompts(arms, prompts[:, None])
    off = closed_loop(here.baseline, here.workload, loads)
    on = closed_loop(here.speculative, here.workload, loads)
    off_s, on_s = (s.step.total.total_s / s.step.tokens for s in (off, on))
    gain = np.asarray(on.batch / on_s) / (off.batch / off_s)
    return PromptMaps(
        whole=SpeedupMap(loads, prompts, *_both(off, on), log_rows=True),
        decoding=SpeedupMap(
            loads, prompts, gain, np.asarray(off_s) / MILLI, np.asarray(on_s) / MILLI, log_rows=True
        ),
        fits=np.array([_fit(here.baseline, _with_prompts(arms, p).workload) for p in prompts]),
        own=own,
    )


def _fit(arm: Arm, workload: Workload) -> float:
    """Return the requests that the cache holds; infinity where something else is the limit."""
    most, why = largest_batch(arm, workload)
    return float(np.max(most)) if why == "kv" else np.inf


def _prompt_lengths(deployment: Deployment) -> Array:
    workload = deployment.scenario.workload
    longest = max(deployment.max_model_len - workload.output_tokens, workload.input_tokens)
    # No prompt is shorter than what is cached of it.
    cached = max(workload.cached_prompt_tokens, workload.cached_prompt_tokens_speculative or 0.0)
    shortest = min(max(_SHORTEST_PROMPT, cached), workload.input_tokens)
    prompts = np.unique(np.rint(np.geomspace(shortest, longest, _PROMPTS)))
    return _with(prompts, workload.input_tokens)


def _with(places: Array, own: float) -> Array:
    """Return the places of an axis with the user's own among them, in place of the same."""
    others = places[np.abs(places - own) > _SAME * (np.ptp(places) or 1.0)]
    return np.sort(np.append(others, own))


def _with_prompts(arms: Pair, prompts: Num) -> Pair:
    """Return both arms with prompts of other lengths, of which as much is cached."""
    off, on = (
        replace(arm, prefill_tokens=prompts - arm.cached_tokens)
        for arm in (arms.baseline, arms.speculative)
    )
    workload = arms.workload.model_copy(update={"input_tokens": prompts})
    return replace(arms, baseline=off, speculative=on, workload=workload, without={})


def contour(loads: Array, rows: Array, values: Array, *, level: float = 1.0) -> tuple[Segment, ...]:
    """Return the line at which a map has a level, cell by cell.

    Parameters
    ----------
    loads, rows : array
        The axes: loads as a logarithm, rows linear.
    values : array (rows, loads)
        NaN where there is none: no line passes there.

    Notes
    -----
    Each side of a cell whose ends lie on both sides of the level has the line pass it, at the
    place that linear interpolation gives. A cell has two such sides, or four at a saddle: then
    the mean of its corners says which belong together.
    """
    x = np.log(loads)
    above = values > level
    known = np.isfinite(values)
    corners = [above[:-1, :-1], above[:-1, 1:], above[1:, 1:], above[1:, :-1]]
    all_known = known[:-1, :-1] & known[:-1, 1:] & known[1:, 1:] & known[1:, :-1]
    mixed = all_known & np.logical_or.reduce(corners) & ~np.logical_and.reduce(corners)
    found: list[Segment] = []
    for i, j in np.argwhere(mixed):
        ring = [(i, j), (i, j + 1), (i + 1, j + 1), (i + 1, j)]
        points = []
        for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
            if above[a] != above[b]:
                share = (level - values[a]) / (values[b] - values[a])
                points.append(
                    (
                        float(np.exp(x[a[1]] + share * (x[b[1]] - x[a[1]]))),
                        float(rows[a[0]] + share * (rows[b[0]] - rows[a[0]])),
                    )
                )
        centre_above = np.mean([values[corner] for corner in ring]) > level
        if len(points) == 4 and centre_above != above[i, j]:
            points = [*points[1:], points[0]]
        found += [(*points[n], *points[n + 1]) for n in range(0, len(points), 2)]
    return tuple(found)


def _speculating(
    scenario: Scenario, search: Sequence[Path], calibration: Calibration | Path | str | None
) -> tuple[Deployment, Overlay]:
    deployment, laid = prepared(scenario, search, calibration)
    if deployment.method == "none":
        raise UsageError("a map compares on with off: method is none; give --spec-method")
    return deployment, laid


def _own(deployment: Deployment, arms: Pair, load: float | None) -> OwnPoint:
    """Return the user's own point. `arms` are those of a closed loop."""
    model, workload = deployment.acceptance, deployment.scenario.workload
    assert model is not None, "the deployment speculates"
    result = model.result()
    return OwnPoint(
        load=in_flight(deployment, arms.baseline, load),
        draft_acceptance_rate=result.draft_acceptance_rate,
        acceptance_length=result.acceptance_length,
        k=deployment.num_speculative_tokens,
        input_tokens=workload.input_tokens,
    )


def in_flight(deployment: Deployment, baseline: Arm, load: float | None) -> float | None:
    """Return a load in requests in flight: at an arrival rate, those of the off arm there.

    Parameters
    ----------
    load : float, optional
        In the unit of the scenario's load; absent: the first of them.

    Returns
    -------
    float or None
        None where the off arm cannot serve the rate.
    """
    given = deployment.scenario.load
    load = (given.concurrency or given.request_rate or (1.0,))[0] if load is None else load
    if given.request_rate is None:
        return load
    service, _ = service_at_rates(baseline, deployment.scenario.workload, np.array([load]))
    batch = float(service.batch[0])
    return max(batch, 1.0) if np.isfinite(batch) else None


def _loads(arms: Pair, own: float | None) -> Array:
    stops = np.array(load_stops(max(arms.baseline.max_num_seqs, _FEWEST, own or 0.0)), dtype=float)
    return stops if own is None else _with(stops, own)


def _map(arms: Pair, loads: Array, rows: Array) -> SpeedupMap:
    off = closed_loop(arms.baseline, arms.workload, loads)
    on = closed_loop(arms.speculative, arms.workload, loads)
    shape = (rows.size, loads.size)
    speedup, tpot_off, tpot_on = (np.broadcast_to(each, shape) for each in _both(off, on))
    return SpeedupMap(loads, rows, speedup, tpot_off, tpot_on)


def _both(off: Service, on: Service) -> tuple[Array, Array, Array]:
    """Return the speedup, and the time per token off and on. [ms]."""
    gain = np.asarray(on.output_tokens_per_s / off.output_tokens_per_s)
    return gain, np.asarray(off.tpot_s) / MILLI, np.asarray(on.tpot_s) / MILLI
