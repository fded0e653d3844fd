"""From steps to service: what a load does to the batch, latency and throughput of an arm.

definitions.md section 2; equations (10) and (11) of docs/method.md. Loads are arrays on the last
axis; samples of constants, or other k, may stand on a leading axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import Arm, StepTime
from specsim.physics.cost import Num
from specsim.schema.scenario import Workload

_SMALLEST_CHUNK = 16.0
"""Prompt tokens that a step always has room for, however many drafts are in it."""
_RATE_GRID = 300
_BELOW_ONE = 100
"""Of these, batches below one request in flight, from the rarest that is told apart from none."""
_RAREST = 1e-7


@dataclass(frozen=True)
class Prefill:
    """A prompt on its way in, at a batch."""

    own_s: Num
    """From the first chunk to the first token, decodes of the others riding along."""
    excess_s: Num
    """What it adds to the steps of the others."""


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
    fit = float(
        arm.budget.sequences_that_fit(tokens, shared_prefix_tokens=arm.shared_prefix_tokens)
    )
    room = np.floor(arm.max_num_batched_tokens / np.asarray(arm.verify_tokens, dtype=float))
    slots = np.maximum(np.minimum(arm.max_num_seqs, room), 1.0)
    if np.all(fit < slots):
        return max(1.0, np.floor(fit)), "kv"
    most = np.minimum(slots, max(1.0, np.floor(fit)))
    return (most if most.ndim else float(most)), "max_num_seqs"


def prefill(arm: Arm, workload: Workload, batch: Num, step_s: Num) -> Prefill:
    """Time of one prompt, chunk by chunk, each riding on a decode step of the others.

    Notes
    -----
    Each decoding request takes its verified tokens from max_num_batched_tokens first; what is
    left is the chunk (vLLM's scheduler).
    """
    tokens = arm.prefill_tokens
    if tokens <= 0:
        return Prefill(own_s=step_s, excess_s=0.0 * step_s)
    room = np.maximum(arm.max_num_batched_tokens - batch * arm.verify_tokens, _SMALLEST_CHUNK)
    n_chunks = np.ceil(tokens / room)
    chunk = tokens / n_chunks
    others = np.maximum(batch - 1.0, 0.0)
    mixed_s = arm.prefill_step(
        others,
        mean_context(workload),
        tokens=chunk,
        offset=arm.cached_tokens + 0.5 * (tokens - chunk),
    )
    # The excess is what the chunk adds for the others; a lone request has none to disturb.
    excess_s = np.maximum(n_chunks * (mixed_s - step_s), 0.0)
    return Prefill(own_s=n_chunks * mixed_s, excess_s=excess_s)


def closed_loop(arm: Arm, workload: Workload, concurrency: Num) -> Service:
    """Keep `concurrency` requests in the system.

    Notes
    -----
    Time in a slot = own prefill + (OSL - 1) / tau steps + the prefills of the batch - 1 others;
    output tokens/s = batch x OSL / time in a slot. What does not fit in the batch waits, and
    shows in the time to first token.
    """
    most, why = largest_batch(arm, workload)
    concurrency = np.asarray(concurrency, dtype=float)
    batch = np.minimum(concurrency, most)
    limited_by = np.where(concurrency <= most, "load", why)
    if workload.arrival == "burst":
        return _burst(arm, workload, concurrency, batch, limited_by)
    step = arm.step(batch, mean_context(workload))
    step_s = step.total.total_s
    prompt = prefill(arm, workload, batch, step_s)
    steps = (workload.output_tokens - 1.0) / step.tokens
    decoding_s = steps * step_s + (batch - 1.0) * prompt.excess_s
    slot_s = prompt.own_s + decoding_s
    waiting_s = np.maximum(concurrency - batch, 0.0) / batch * slot_s
    return Service(
        batch=batch,
        limited_by=limited_by,
        step=step,
        tpot_s=_per_token(decoding_s, workload, step_s / step.tokens),
        itl_s=np.where(steps > 0, decoding_s / np.maximum(steps, 1e-9), step_s),
        ttft_s=prompt.own_s + 0.5 * step_s + waiting_s,
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
) -> Service:
    """All requests at once: prefill comes in waves, decoding is undisturbed.

    `num_requests` go through in waves of the batch; the last wave may be smaller.
    """
    n_requests = concurrency if workload.num_requests is None else float(workload.num_requests)
    n_requests = np.maximum(n_requests, 1.0)
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
    total = np.maximum(batch * arm.prefill_tokens, 1.0)
    n_steps = np.ceil(total / arm.max_num_batched_tokens)
    prefill_s = n_steps * arm.prefill_step(
        0.0, 1.0, tokens=total / n_steps, offset=arm.cached_tokens
    )
    if arm.prefill_tokens <= 0:
        prefill_s = step_s
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
    ttft_s: npt.NDArray[np.float64]

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
    Equation (11): a step takes T(B) / (1 - rate x excess) while prompts ride along, and the batch
    is B = rate x steps per request x that. Solved for the rate, which needs no iteration:
    rate = B / (steps T(B) + B excess). Below one request in flight the step is that of one.
    """
    most, why = largest_batch(arm, workload)
    below = np.concatenate([[0.0], np.geomspace(_RAREST, 1.0, _BELOW_ONE - 1)])
    # With k on a leading axis each k has its own largest batch.
    top = np.maximum(np.asarray(most, dtype=float), 1.0 + 1e-9)
    top = top[..., 0] if top.ndim else top
    above = np.geomspace(1.0, top, _RATE_GRID - below.size + 1, axis=-1)[..., 1:]
    batches = np.concatenate(
        [np.broadcast_to(below, (*above.shape[:-1], below.size)), above], axis=-1
    )
    running = np.maximum(batches, 1.0)
    step = arm.step(running, mean_context(workload))
    step_s = np.atleast_1d(step.total.total_s)
    prompt = prefill(arm, workload, running, step_s)
    # An answer of one token decodes nothing; a thousandth of a step keeps its batch defined.
    steps = np.maximum(workload.output_tokens - 1.0, 1e-3) / step.tokens
    rates = batches / (steps * step_s + batches * prompt.excess_s)
    busy_s = step_s / np.maximum(1.0 - rates * prompt.excess_s, 1e-9)
    rising = np.maximum.accumulate(rates, axis=-1)
    shape = np.broadcast_shapes(rising.shape, busy_s.shape)
    return OpenLoop(
        rates=np.broadcast_to(rising, shape),
        batches=batches,
        limited_by=why,
        tpot_s=np.broadcast_to(busy_s / step.tokens, shape),
        itl_s=np.broadcast_to(busy_s, shape),
        ttft_s=np.broadcast_to(prompt.own_s + 0.5 * busy_s, shape),
    )


def throughput_speedup(baseline: Service, speculative: Service) -> Num:
    """Speedup under a closed loop: output tokens per second, on over off."""
    return speculative.output_tokens_per_s / baseline.output_tokens_per_s
