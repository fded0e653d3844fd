"""An arm ready to serve: its ways to make a step, and what its requests take of the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import Arm, baseline_arm, speculative_arm
from specsim.analysis.constants import Constants
from specsim.analysis.resolve import Deployment
from specsim.analysis.simulation.requests import Requests
from specsim.analysis.simulation.steps import StepTables, Tier, step_tables
from specsim.catalog.acceptance import spread as method_spread

Array = npt.NDArray[np.float64]
ArmKind = Literal["baseline", "speculative"]


@dataclass(frozen=True)
class ServedArm:
    """Everything about an arm that does not change from run to run."""

    kind: ArmKind
    tiers: tuple[Tier, ...]
    tiers_by_batch: tuple[tuple[int, int], ...]
    """First batch, and the tier from there on."""
    p: tuple[float, ...]
    """Acceptance over drafting steps, to the longest draft."""
    proposal_rate: float
    spread: float

    @property
    def arm(self) -> Arm:
        """The arm whose limits and memory count."""
        return self.tiers[-1].prompts

    @property
    def most_running(self) -> int:
        """Requests that slots and the budget allow at a time."""
        widest = max(t.query_tokens for t in self.tiers)
        room = np.floor(self.arm.max_num_batched_tokens * self.arm.stages / widest)
        return int(max(min(self.arm.max_num_seqs, room), 1))


def served_arm(
    deployment: Deployment, kind: ArmKind, constants: Constants | None = None
) -> ServedArm:
    """Return an arm ready to serve: off, or on with its k, schedule or adaptive verification."""
    if kind == "baseline":
        off = baseline_arm(deployment, constants)
        return ServedArm(kind, (Tier(0, off, 1.0, off),), ((1, 0),), (), 1.0, 0.0)
    model = deployment.acceptance
    assert model is not None, "the deployment speculates"
    speculation = deployment.scenario.speculation
    on = speculative_arm(deployment, constants)
    most = deployment.num_speculative_tokens
    if speculation.num_speculative_tokens_per_batch_size is not None:
        tiers, by_batch = _scheduled(deployment, constants, on)
    elif on.lengths is not None:
        tiers, by_batch = _adaptive(on)
    else:
        tiers, by_batch = (Tier(most, on, float(on.verify_tokens), on),), ((1, 0),)
    given = speculation.acceptance.spread if speculation.acceptance is not None else None
    return ServedArm(
        kind=kind,
        tiers=tiers,
        tiers_by_batch=by_batch,
        p=tuple(float(x) for x in model.positions(most)),
        proposal_rate=model.proposal_rate,
        spread=method_spread(deployment.method).value if given is None else given,
    )


def _scheduled(
    deployment: Deployment, constants: Constants | None, on: Arm
) -> tuple[tuple[Tier, ...], tuple[tuple[int, int], ...]]:
    """Return the tiers of vLLM's schedule of k by batch: gaps and the tail keep the last k."""
    schedule = deployment.scenario.speculation.num_speculative_tokens_per_batch_size or ()
    most = deployment.num_speculative_tokens
    ks = sorted({min(k, most) for _, _, k in schedule})
    tiers = []
    for k in ks:
        if k == 0:
            tiers.append(Tier(0, baseline_arm(deployment, constants), 1.0, on))
        else:
            arm = speculative_arm(deployment, constants, k=float(k))
            tiers.append(Tier(k, arm, float(arm.verify_tokens), on))
    return tuple(tiers), tuple((first, ks.index(min(k, most))) for first, _, k in schedule)


def _adaptive(on: Arm) -> tuple[tuple[Tier, ...], tuple[tuple[int, int], ...]]:
    """Return a tier per verify length that pays best at some batch."""
    batches = np.arange(1, on.max_num_seqs + 1)
    context = 1024.0
    verify = np.rint(np.asarray(on.step(batches, context).verify_tokens) - 1.0).astype(int)
    ks = sorted(set(verify.tolist()))
    turns = np.flatnonzero(np.diff(verify)) + 1
    by_batch = [(int(batches[i]), ks.index(int(verify[i]))) for i in (0, *turns)]
    return tuple(Tier(k, on, 1.0 + k, on) for k in ks), tuple(by_batch)


@dataclass(frozen=True)
class Footprint:
    """Blocks of the cache: of a pool, and of requests."""

    capacity: float
    per_token: float
    fixed: Array

    def of(self, tokens: npt.NDArray[np.int64]) -> Array:
        """Return the blocks of requests that have so many tokens."""
        return self.fixed + self.per_token * tokens


def footprint(arm: Arm, requests: Requests) -> Footprint:
    """Count blocks as `CachePool.sequences_that_fit` does, request by request.

    Full attention takes the tokens and half a block; windows and states what they take at the
    request's full length, from its start.
    """
    budget = arm.budget
    lookahead, prefix = budget.lookahead_tokens, arm.shared_prefix_tokens
    length = requests.input_tokens + requests.output_tokens
    per_token, shared = 0.0, 0.0
    fixed = np.zeros(requests.n)
    for group in budget.pool.groups:
        if group.kind != "full":
            fixed = fixed + group.blocks_held(tokens=length, lookahead_tokens=lookahead)
            continue
        per_token += group.tables / group.block_tokens
        fixed = fixed + group.blocks_held(tokens=0.0, lookahead_tokens=lookahead)
        own = np.minimum(prefix, requests.input_tokens)
        fixed = fixed - group.tables * np.floor(own / group.block_tokens)
        shared += group.tables * np.floor(prefix / group.block_tokens)
    return Footprint(budget.num_blocks - 1.0 - shared, per_token, fixed)


def refused(arm: Arm, requests: Requests) -> npt.NDArray[np.bool_]:
    """Return which requests the server refuses: longer than max_model_len or than the cache."""
    length = requests.input_tokens + requests.output_tokens
    blocks = footprint(arm, requests)
    return (length > arm.budget.max_model_len) | (blocks.of(length) > blocks.capacity)


def served_tables(
    served: ServedArm, requests: Requests, *, concurrency: int | None = None
) -> StepTables:
    """Return the tables for batches and lengths that these requests can reach."""
    blocks = footprint(served.arm, requests)
    n = min(served.most_running, requests.n)
    if concurrency is not None:
        n = min(n, concurrency)
    smallest = float(np.min(blocks.of(requests.input_tokens)))
    n = int(max(min(n, np.floor(blocks.capacity / max(smallest, 1e-9))), 1))
    tier_of = np.zeros(n + 1, dtype=np.int64)
    for first, tier in served.tiers_by_batch:
        tier_of[min(first, n + 1) :] = tier
    tier_of[0] = tier_of[1]
    return step_tables(
        served.tiers,
        tier_of,
        most_tokens=float(np.max(requests.input_tokens + requests.output_tokens)),
        most_chunk=float(served.arm.max_num_batched_tokens * served.arm.stages),
    )
