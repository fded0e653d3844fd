"""From steps to service: what a load does to the batch, latency and throughput of an arm.

definitions.md section 2; equations (10) and (11) of docs/method.md. Loads are arrays on the last
axis; samples of constants, or other k, may stand on a leading axis.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import Arm, StepTime
from specsim.physics.cost import Num
from specsim.schema.scenario import Workload

_SMALLEST_CHUNK = 16.0
"""Prompt tokens that a step always has room for, however many drafts are in it."""
_BELOW_ONE, _ABOVE_ONE = 40, 200
"""Batches of an open loop below one request in flight, where a step hardly changes, and above."""
_BELOW_ONE_SAMPLED, _ABOVE_ONE_SAMPLED = 24, 100
"""The same for each of many samples: what they are read for are percentiles."""
_RAREST = 1e-7
"""Requests in flight that are told apart from none."""


@dataclass(frozen=True)
class Service:
    """An arm under loads."""

    batch: Num
    limited_by: npt.NDArray[np.str_]
    step: StepTime
    tpot_s: Num
    itl_s: Num
    ttft_s: Num
    output_tokens_per_s: Num
    """Closed loop: served. Open loop: asked for. [tokens/s]"""


def mean_context(workload: Workload) -> float:
    """Return the tokens that a running sequence has in cache on average."""
    return workload.input_tokens + workload.output_tokens / 2.0


def largest_batch(arm: Arm, workload: Workload) -> tuple[Num, str]:
    """Return the most requests that run at a time, and what forbids more.

    A steady stream has requests of all ages in flight, a burst has all at their full length at
    the end. A step has room for max_num_batched_tokens: with q verified tokens each, that many
    requests by q; it counts as max_num_seqs, the engine's limit that it lowers.
    """
    tokens = mean_context(workload)
    if workload.arrival == "burst":
        tokens = workload.input_tokens + workload.output_tokens
    fit = np.vectorize(
        lambda each: float(
            arm.budget.sequences_that_fit(each, shared_prefix_tokens=arm.shared_prefix_tokens)
        )
    )(tokens)
    room = np.floor(arm.max_num_batched_tokens / np.asarray(arm.verify_tokens, dtype=float))
    slots = np.maximum(np.minimum(arm.max_num_seqs, room), 1.0)
    most = np.minimum(slots, np.maximum(np.floor(fit), 1.0))
    return (most if most.ndim else float(most)), "kv" if np.all(fit < slots) else "max_num_seqs"


@dataclass(frozen=True)
class _Prompts:
    """Prompts on their way in, in chunks that ride on decode steps."""

    tokens: Num
    """Of one prompt, not cached."""
    cached: float
    n_chunks: Num
    """Steps that one prompt needs beside the decoding tokens."""

    def step_s(self, arm: Arm, sequences: Num, context: float, chunks: Num) -> Num:
        """Time of a step with `chunks` chunks of as many prompts beside the decoding. [s]."""
        chunk = self.tokens / self.n_chunks
        return arm.step(
            sequences,
            context,
            prefill_tokens=chunks * chunk,
            prefill_context=self.cached + 0.5 * (self.tokens - chunk),
            prefill_sequences=chunks,
        ).total.total_s


def _prompts(arm: Arm, decoding: Num) -> _Prompts:
    """Cut prompts into what max_num_batched_tokens leaves beside the decoding tokens."""
    tokens = np.maximum(arm.prefill_tokens, 1.0)
    return _Prompts(tokens, arm.cached_tokens, np.ceil(tokens / _room(arm, decoding)))


def _room(arm: Arm, decoding: Num) -> Num:
    """Return the prompt tokens that a step has room for beside `decoding` requests."""
    return np.maximum(arm.max_num_batched_tokens - decoding * arm.verify_tokens, _SMALLEST_CHUNK)


def closed_loop(
    arm: Arm, workload: Workload, concurrency: Num, *, num_requests: Num | None = None
) -> Service:
    """Keep `concurrency` requests in the system.

    Parameters
    ----------
    num_requests : float or array, optional
        Of a burst, load by load; absent: the workload's. [requests]

    Notes
    -----
    While one request passes through its slot, all of the batch do: B prompts come in over the
    steps of a slot. A slot has N = (OSL - 1) / tau decode steps and those of its own prefill, n
    chunks; more where the B prompts together need it. Chunks ride on decode steps one at a time
    while they are fewer than steps, several at a time beyond:

        steps = max(N + n, B (prompt + N q) / budget),  mixed = min(steps, B n)
        time in a slot = mixed T_mixed + (steps - mixed) T(B)
        output tokens/s = B OSL / time in a slot

    With fewer chunks than steps this is equation (10): own prefill + N T(B) + (B - 1) excess.
    With S pipeline stages the budget is that of each of S groups, and the chunk of another group
    is in one's way for one stage, 1 / S of its excess; one's own passes through all of them.
    What does not fit in the batch waits, and shows in the time to first token.
    """
    most, why = largest_batch(arm, workload)
    concurrency = np.asarray(concurrency, dtype=float)
    batch = np.minimum(concurrency, most)
    limited_by = np.where(concurrency <= most, "load", why)
    if workload.arrival == "burst":
        if num_requests is None:
            given = workload.num_requests
            num_requests = concurrency if given is None else float(given)
        return _burst(arm, workload, concurrency, batch, limited_by, num_requests)
    context = mean_context(workload)
    step = arm.step(batch, context)
    step_s = step.total.total_s
    decode_steps = (workload.output_tokens - 1.0) / step.tokens
    prompts = _prompts(arm, batch)
    n = prompts.n_chunks
    request_tokens = prompts.tokens + decode_steps * arm.verify_tokens
    budget = arm.max_num_batched_tokens * arm.stages
    steps = np.maximum(decode_steps + n, batch * request_tokens / budget)
    mixed = np.minimum(steps, batch * n)
    at_a_time = np.maximum(batch * n / mixed / arm.stages, 1.0)
    # Who is not in a prefill of its own decodes, in its share of the steps.
    beside = np.maximum(np.minimum(batch * (1.0 - n / mixed), batch * decode_steps / steps), 0.0)
    mixed_s = prompts.step_s(arm, beside, context, at_a_time)
    own_steps = steps - decode_steps
    own_s = own_steps * mixed_s
    delays = batch * n / at_a_time / arm.stages + own_steps * (1.0 - 1.0 / arm.stages)
    slot_s = steps * step_s + delays * (mixed_s - step_s)
    decoding_s = np.maximum(slot_s - own_s, 0.0)
    waiting_s = np.maximum(concurrency - batch, 0.0) / batch * slot_s
    return Service(
        batch=batch,
        limited_by=limited_by,
        step=step,
        tpot_s=_per_token(decoding_s, workload, step_s / step.tokens),
        itl_s=np.where(decode_steps > 0, decoding_s / np.maximum(decode_steps, 1e-9), step_s),
        # An answer sends the next request, which comes as the others' next step starts.
        ttft_s=own_s + (1.0 - 1.0 / batch) * step_s + waiting_s,
        output_tokens_per_s=batch * workload.output_tokens / slot_s,
    )


def _per_token(decoding_s: Num, workload: Workload, otherwise: Num) -> Num:
    tokens = workload.output_tokens - 1.0
    return decoding_s / tokens if tokens > 0 else otherwise


def _burst(
    arm: Arm,
    workload: Workload,
    concurrency: Num,
    batch: Num,
    limited_by: npt.NDArray[np.str_],
    num_requests: Num,
) -> Service:
    """All requests at once: prefill comes in waves, decoding is undisturbed.

    `num_requests` go through in waves of the batch; the last wave may be smaller.
    """
    n_requests = np.maximum(num_requests, 1.0)
    batch = np.minimum(batch, n_requests)
    step, wave_s, ttft_s = _wave(arm, workload, batch)
    full = np.floor(n_requests / batch)
    rest = n_requests - full * batch
    _, rest_s, _ = _wave(arm, workload, np.maximum(rest, 1.0))
    duration_s = full * wave_s + np.where(rest > 0, rest_s, 0.0)
    step_s = step.total.total_s
    waves_before = np.maximum(np.minimum(n_requests, concurrency) / batch - 1.0, 0.0) / 2.0
    return Service(
        batch=batch,
        limited_by=limited_by,
        step=step,
        tpot_s=step_s / step.tokens,
        itl_s=step_s,
        ttft_s=ttft_s + waves_before * wave_s,
        output_tokens_per_s=n_requests * workload.output_tokens / duration_s,
    )


def _wave(arm: Arm, workload: Workload, batch: Num) -> tuple[StepTime, Num, Num]:
    """Return the step, the time of a whole wave, and its mean time to first token."""
    step = arm.step(batch, mean_context(workload))
    step_s = step.total.total_s
    prompt = max(arm.prefill_tokens, 1.0)
    n_steps = np.ceil(batch * prompt / arm.max_num_batched_tokens)
    tokens = batch * prompt / n_steps
    # Several short prompts share a step; a long one is cut, and its later parts see the earlier.
    # Stages take the steps one after the other: the last step is through S - 1 stages later.
    prefill_s = (
        (n_steps + arm.stages - 1.0)
        / arm.stages
        * arm.step(
            0.0,
            1.0,
            prefill_tokens=tokens,
            prefill_context=arm.cached_tokens + 0.5 * np.maximum(prompt - tokens, 0.0),
            prefill_sequences=np.maximum(tokens / prompt, 1.0),
        ).total.total_s
    )
    decoding_s = (workload.output_tokens - 1.0) / step.tokens * step_s
    return step, prefill_s + decoding_s, prefill_s * (n_steps + 1.0) / (2.0 * n_steps)


@dataclass(frozen=True)
class OpenLoop:
    """Batch and latency of an arm by arrival rate: one curve, read at any rate."""

    rates: npt.NDArray[np.float64]
    """Arrival rate that holds each batch of the grid (last axis), rising. [requests/s]"""
    batches: npt.NDArray[np.float64]
    limited_by: str
    tpot_s: npt.NDArray[np.float64]
    itl_s: npt.NDArray[np.float64]
    first_token: Callable[[], npt.NDArray[np.float64]]
    """Works out the time to first token, which costs as much as all the rest."""

    @functools.cached_property
    def ttft_s(self) -> npt.NDArray[np.float64]:
        """Mean time to first token at each batch of the grid. [s]."""
        return self.first_token()

    @property
    def largest_stable_rate(self) -> Num:
        """Arrivals beyond this queue without end. [requests/s]."""
        return self.rates[..., -1]

    def at(self, rate: Num, values: npt.NDArray[np.float64]) -> Num:
        """Read a curve at rates (last axis); NaN beyond the largest stable rate."""
        rate = np.atleast_1d(np.asarray(rate, dtype=float))
        flat_rates = self.rates.reshape(-1, self.rates.shape[-1])
        flat_values = np.broadcast_to(values, self.rates.shape).reshape(flat_rates.shape)
        read = np.stack(
            [
                np.interp(rate, r, v, right=np.nan)
                for r, v in zip(flat_rates, flat_values, strict=True)
            ]
        )
        return read.reshape(*self.rates.shape[:-1], rate.size)


def open_loop(arm: Arm, workload: Workload) -> OpenLoop:
    """Let requests arrive at random and find what each rate does.

    Notes
    -----
    With B requests decoding N steps each, B / N prompts come in per step, whatever the rate. So
    the mean step follows from B alone, and the rate from it; nothing iterates:

        rate = (B / N) / step,  step = T(B + 1) + min(1, n B / N) (T_mixed - T(B + 1))

    A request finds B others on average, whatever their number does over time (Poisson arrivals
    see time averages), and is one more itself: the step that it sees is that of B + 1. With fewer
    chunks than steps this is equation (11), rate = B / (N T(B + 1) + B excess). Prompts need room
    in the steps: B is at most N budget / (prompt + N q). Pipeline stages count as in
    `closed_loop`.

    A first token waits for the rest of the step under way, E[s^2] / 2 E[s] where anybody runs
    (1 - e^-B), and its own prompt shares steps with those that arrive in the same one.
    """
    most, why = largest_batch(arm, workload)
    prompt = max(arm.prefill_tokens, 1.0)
    # An answer of one token decodes nothing; a thousandth of a step keeps its batch defined.
    answer = max(workload.output_tokens - 1.0, 1e-3)
    per_request = prompt + answer / np.asarray(arm.tokens_per_step) * arm.verify_tokens
    budget = arm.max_num_batched_tokens * arm.stages
    room = answer / np.asarray(arm.tokens_per_step) * budget / per_request
    if np.all(room < most):
        why = "max_num_batched_tokens"
    top = np.minimum(np.asarray(most, dtype=float), room)
    grid = (_BELOW_ONE, _ABOVE_ONE)
    if arm.sampled:
        grid = (_BELOW_ONE_SAMPLED, _ABOVE_ONE_SAMPLED)
    batches = _batches(top, *grid)
    # Rounded, or a hair of a request more would be padded to the next captured graph.
    others = np.round(batches, 5)
    seen = np.maximum(np.minimum(others + 1.0, top), 1.0)
    context = mean_context(workload)
    step = arm.step(seen, context)
    alone_s = step.total.total_s
    decode_steps = answer / step.tokens
    prompts = _prompts(arm, batches)
    chunks = prompts.n_chunks * batches / decode_steps
    at_a_time = np.maximum(chunks / arm.stages, 1.0)
    mixed_s = prompts.step_s(arm, seen, context, at_a_time)
    delays = chunks / at_a_time / arm.stages
    excess_s = np.maximum(mixed_s - alone_s, 0.0)
    step_s = alone_s + delays * excess_s
    rates = np.maximum.accumulate(batches / decode_steps / step_s, axis=-1)
    square = (1.0 - delays) * alone_s**2 + delays * mixed_s**2
    meeting_s = (1.0 - np.exp(-batches)) * square / step_s
    shape = np.broadcast_shapes(rates.shape, np.shape(step_s))

    def first_token() -> npt.NDArray[np.float64]:
        beside_s = rates * meeting_s * excess_s * prompts.n_chunks / at_a_time
        own_s = prompts.n_chunks * prompts.step_s(arm, others, context, at_a_time)
        return np.broadcast_to(own_s + 0.5 * meeting_s + beside_s, shape)

    return OpenLoop(
        rates=np.broadcast_to(rates, shape),
        batches=batches,
        limited_by=why,
        tpot_s=np.broadcast_to(step_s / step.tokens, shape),
        itl_s=np.broadcast_to(step_s, shape),
        first_token=first_token,
    )


def _batches(top: Num, below_one: int, above_one: int) -> npt.NDArray[np.float64]:
    """Return batches from none to `top`, dense above one; k or samples keep a leading axis."""
    top = top[..., 0] if np.ndim(top) else np.asarray(top)
    turn = np.minimum(top, 1.0)
    below = np.geomspace(_RAREST, turn, below_one - 1, axis=-1)
    above = np.geomspace(turn, top, above_one + 1, axis=-1)[..., 1:]
    return np.concatenate([np.zeros((*below.shape[:-1], 1)), below, above], axis=-1)
