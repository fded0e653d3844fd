"""Tables from which a spreadsheet goes on computing: service by load and by acceptance length.

Time in a slot, time per token and time to first token are close to straight lines in 1 / acceptance
length: a slot has (answer - 1) / length decode steps beside its prompts. So a few lengths hold the
whole range, and what lies between is interpolated in 1 / length. Loads are as fine as it takes for
straight lines between them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import Arm, baseline_arm
from specsim.analysis.constants import Constants
from specsim.analysis.curves import Pair
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import closed_loop, largest_batch, mean_context, open_loop
from specsim.physics import acceptance as law
from specsim.physics.cost import PARTS, Num
from specsim.schema.plan import PlanArm
from specsim.schema.scenario import Workload

Array = npt.NDArray[np.float64]

_MOST_LENGTHS = 10
_NARROWEST = 0.05
"""Share of the range in 1 / length that is not divided further."""
_GOOD = 0.002
"""Relative error of a straight line between two loads that is good enough."""
_ROUNDS = 5
_MOST_ROWS = 400
_OPEN_ROWS = 90
_SAME = 1e-6
"""Acceptance lengths that differ by this share are the same."""


@dataclass(frozen=True)
class SlotTable:
    """One arm by load (last axis) and acceptance length (first axis)."""

    arm: PlanArm
    loads: Array
    """Closed loop: requests kept in the system. Open loop: mean requests in flight."""
    batch: Array
    step_s: Array
    draft_s: Array
    verify_s: Array
    host_s: Array
    tokens_per_step: Array
    bound: tuple[str, ...]
    kv_used: Array
    """Share of the requests that fit in the cache."""
    lengths: Array
    """Acceptance lengths, rising; 1 with speculation off. [tokens]"""
    base: int
    """Which of them the scenario gives."""
    slot_s: Array
    """Time for which a request holds its place in the batch: batch / requests per second."""
    tpot_s: Array
    ttft_s: Array
    error: Array
    """By load: the largest relative error of reading slots and times per token between acceptance
    lengths, and between this load and the next, in the middle of the two."""
    ttft_error: Array
    """The same of the time to first token, which jumps where prompts take one more step."""


def slot_tables(deployment: Deployment, arms: Pair, loads: Array) -> tuple[SlotTable, SlotTable]:
    """Return both arms by load and acceptance length.

    Parameters
    ----------
    loads : array
        Closed loop: concurrencies that the table must hold, beside those searched for a crossover.
        Open loop: ignored, since a rate follows from the batch that it holds.
    """
    on = _Speculative(deployment, arms.speculative)
    if arms.is_open:
        off_loads, on_loads = (_rows_of(arm, arms.workload) for arm in (arms.baseline, on.arm))
    else:
        off_loads = on_loads = _refined(arms, loads)
    lengths, given, error = _lengths(on, arms, on_loads)
    return (
        _off_table(arms, off_loads),
        _table(on.at, "speculative", arms, on_loads, lengths, lengths.index(given), error),
    )


def baseline_table(
    deployment: Deployment, constants: Constants | None = None, loads: Array | None = None
) -> SlotTable:
    """Return the arm without speculation by load; `loads` as for `slot_tables`."""
    arm = baseline_arm(deployment, constants)
    is_open = deployment.scenario.load.request_rate is not None
    arms = Pair(arm, arm, deployment.scenario.workload, is_open)
    if is_open:
        rows = _rows_of(arm, arms.workload)
    else:
        rows = _refined(arms, np.array([]) if loads is None else loads)
    return _off_table(arms, rows)


def _off_table(arms: Pair, loads: Array) -> SlotTable:
    one = (1.0,)
    return _table(
        lambda _: arms.baseline, "baseline", arms, loads, one, 0, np.zeros((2, loads.size))
    )


def _lengths(on: _Speculative, arms: Pair, loads: Array) -> tuple[tuple[float, ...], float, Array]:
    """Return acceptance lengths, from nothing to everything accepted, the given one, and errors.

    They are as dense as straight lines in 1 / length between them need. A step that leaves the
    captured graphs, or adaptive verification that turns to another length, is a cliff: no density
    helps, and the error by load says so.
    """
    model = on.deployment.acceptance
    assert model is not None, "the deployment speculates"
    top = float(
        law.over_all_steps(drafting_length=model.k + 1.0, proposal_rate=model.proposal_rate)
    )
    given = float(np.clip(model.result().acceptance_length, 1.0, top))
    lengths = list(told_apart((1.0, top), given))

    @functools.cache
    def read(length: float) -> _Read:
        arm = on.arm if length == given else on.at(length)
        return _read(arm, arms.workload, loads, is_open=arms.is_open)

    @functools.cache
    def error(low: float, high: float) -> Array:
        return _between(read(low), read(high), read(_middle(low, high)))

    narrowest = _NARROWEST * (1.0 - 1.0 / top)
    while True:
        gaps = list(itertools.pairwise(lengths))
        wide = [gap for gap in gaps if 1.0 / gap[0] - 1.0 / gap[1] > narrowest]
        worst = max(wide, key=lambda gap: float(np.max(error(*gap)[0])), default=None)
        if worst is None or len(lengths) >= _MOST_LENGTHS or np.max(error(*worst)[0]) < _GOOD:
            everywhere = [error(*gap) for gap in gaps] or [np.zeros((2, loads.size))]
            return tuple(lengths), given, np.max(everywhere, axis=0)
        lengths = sorted([*lengths, _middle(*worst)])


def told_apart(lengths: Iterable[float], given: float) -> tuple[float, ...]:
    """Return lengths in order with `given` among them, none so close to it that a line is lost."""
    others = [length for length in lengths if abs(length - given) > _SAME * given]
    return tuple(sorted({*others, given}))


def _middle(low: float, high: float) -> float:
    return 2.0 / (1.0 / low + 1.0 / high)


def _between(low: _Read, high: _Read, middle: _Read) -> Array:
    """Return the errors of reading in the middle of two acceptance lengths, by load."""
    return _off(lambda name: 0.5 * (getattr(low, name) + getattr(high, name)), middle)


def _off(read: Callable[[str], Array], true: _Read) -> Array:
    """Return relative errors by load: of slots and times per token, and of first tokens."""

    def error(name: str) -> Array:
        return np.asarray(np.abs(read(name) / getattr(true, name) - 1.0))

    of_tokens = np.maximum(error("slot_s"), error("tpot_s"))
    return np.array([of_tokens, error("ttft_s")])


@dataclass(frozen=True)
class _Speculative:
    """The arm with speculation at any acceptance length."""

    deployment: Deployment
    arm: Arm

    def at(self, length: float) -> Arm:
        if self.arm.lengths is None:
            return self.arm.with_acceptance(tokens_per_step=length)
        model = self.deployment.acceptance
        assert model is not None
        drafting = 1.0 + (length - 1.0) / model.proposal_rate
        rate = law.first_rate_from_length(
            target_length=drafting, decay=model.decay.value, k=model.k
        )
        p = law.positions(first_rate=rate, decay=model.decay.value, k=model.k)
        lengths = law.over_all_steps(
            drafting_length=law.lengths_by_k(p), proposal_rate=model.proposal_rate
        )
        return self.arm.with_acceptance(tokens_per_step=length, lengths=lengths)


@dataclass(frozen=True)
class _Read:
    """What is read of an arm at one acceptance length."""

    slot_s: Array
    tpot_s: Array
    ttft_s: Array


def _read(arm: Arm, workload: Workload, loads: Array, *, is_open: bool) -> _Read:
    if is_open:
        curve = open_loop(arm, workload)
        held = curve.batches[1:]
        rates = np.interp(loads, held, curve.rates[1:])
        tpot, ttft = (np.interp(loads, held, v[1:]) for v in (curve.tpot_s, curve.ttft_s))
        return _Read(loads / rates, tpot, ttft)
    served = closed_loop(arm, workload, loads)
    slot = served.batch * workload.output_tokens / served.output_tokens_per_s
    return _Read(
        *(np.broadcast_to(np.asarray(v, float), loads.shape) for v in
          (slot, served.tpot_s, served.ttft_s))
    )  # fmt: skip


def _table(
    at: Callable[[float], Arm],
    arm: PlanArm,
    arms: Pair,
    loads: Array,
    lengths: tuple[float, ...],
    base: int,
    error: Array,
) -> SlotTable:
    workload = arms.workload
    given = arms.baseline if arm == "baseline" else arms.speculative
    most, _ = largest_batch(given, workload)
    batch = np.minimum(loads, most)
    step = given.step(np.maximum(batch, 1.0), mean_context(workload))
    fit = given.budget.sequences_that_fit(
        mean_context(workload), shared_prefix_tokens=given.shared_prefix_tokens
    )
    by_length = [
        _read(
            given if i == base else at(length), workload, loads, is_open=arms.is_open
        )
        for i, length in enumerate(lengths)
    ]  # fmt: skip

    def wide(values: Num) -> Array:
        return np.array(np.broadcast_to(np.asarray(values, dtype=float), loads.shape))

    errors = np.maximum(error, _by_load(given, workload, loads, is_open=arms.is_open))
    parts = [wide(getattr(step.total, part)) for part in PARTS]
    return SlotTable(
        arm=arm,
        loads=loads,
        batch=batch,
        step_s=wide(step.total.total_s),
        draft_s=wide(step.draft.total_s),
        verify_s=wide(step.verify.total_s),
        host_s=wide(step.host.total_s),
        tokens_per_step=wide(step.tokens),
        bound=tuple(PARTS[i].removesuffix("_s") for i in np.argmax(parts, axis=0)),
        kv_used=batch / float(fit),
        lengths=np.array(lengths),
        base=base,
        slot_s=np.stack([r.slot_s for r in by_length]),
        tpot_s=np.stack([r.tpot_s for r in by_length]),
        ttft_s=np.stack([r.ttft_s for r in by_length]),
        error=errors[0],
        ttft_error=errors[1],
    )


def _rows_of(arm: Arm, workload: Workload) -> Array:
    """Return batches of an open loop: a few below one in flight, dense towards the largest."""
    held = open_loop(arm, workload).batches
    few = held[(held > 0.01) & (held < 1.0)][::6]
    many = held[held >= 1.0]
    step = max(1, many.size // _OPEN_ROWS)
    return np.unique(np.concatenate([few, many[::step], many[-1:]]))


def _refined(arms: Pair, loads: Array) -> Array:
    """Return whole concurrencies between which straight lines hold for both arms."""
    # From where requests wait, time to first token rises steeply.
    most = [largest_batch(arm, arms.workload)[0] for arm in (arms.baseline, arms.speculative)]
    full = np.clip(np.floor(most), 1.0, arms.baseline.max_num_seqs)
    rows = np.union1d(loads, arms.searched_loads())
    # Two at least, or there is nothing to read between.
    rows = np.union1d(rows, [*full, rows[-1] + 1.0] if rows.size == 1 else full)
    for _ in range(_ROUNDS):
        middle = np.rint(0.5 * (rows[1:] + rows[:-1]))
        new = (middle > rows[:-1]) & (middle < rows[1:])
        bad = np.zeros(middle.shape, dtype=bool)
        for arm in (arms.baseline, arms.speculative):
            there = _read(arm, arms.workload, middle, is_open=False)
            here = _read(arm, arms.workload, rows, is_open=False)
            straight = functools.partial(_straight, middle, rows, here)
            bad |= _off(straight, there)[0] > _GOOD
        more = middle[new & bad][: max(_MOST_ROWS - rows.size, 0)]
        if more.size == 0:
            break
        rows = np.union1d(rows, more)
    return rows


def _straight(at: Array, loads: Array, known: _Read, name: str) -> Array:
    return np.asarray(np.interp(at, loads, getattr(known, name)))


def _by_load(arm: Arm, workload: Workload, table_loads: Array, *, is_open: bool) -> Array:
    """Return what reading between a load and the next costs, in the middle; 0 at the last."""
    middle = 0.5 * (table_loads[1:] + table_loads[:-1])
    if not is_open:
        middle = np.rint(middle)
    here, true = (_read(arm, workload, at, is_open=is_open) for at in (table_loads, middle))
    errors = _off(functools.partial(_straight, middle, table_loads, here), true)
    return np.hstack([errors, np.zeros((2, 1))])
