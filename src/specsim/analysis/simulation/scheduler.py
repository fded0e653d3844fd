"""The scheduler: one engine, iteration by iteration.

`advance` is written in what lists and arrays have in common, so that the same source runs as it is
on lists and compiled on arrays (compiled.py). Work per iteration does not grow with the batch: how
many steps a request needs is drawn before it starts (draws.py), so an iteration only looks at
requests that start, end or move, and reads its own time from a table (steps.py).

What of vLLM V1's scheduler is kept (v1/core/sched/scheduler.py): running requests first, each
decode with its 1 + k tokens of the budget; prompts in chunks of what the budget leaves, first come
first served; admission while slots, budget and blocks last, none in a step that preempted; the
last admitted is preempted where blocks run out, goes to the head of the queue and computes its
prompt and what it had generated again. What is not: blocks are counted at the mean filling of the
last block and answers grow evenly over their steps, so that growth needs no loop over the batch; a
prompt's blocks are taken when it is admitted; the batch stays below budget / (1 + k).
"""

from __future__ import annotations

from math import ceil, log2
from typing import Any

# Places in `ints`: the state of an engine between calls.
N_DECODING, N_PREFILLING, N_STACK, HEAD, TAIL, N_QUEUED, STEP, TIER = range(8)
LOGGED, TO_MEASURE, NEXT_ID, NEXT_FINISH, PREEMPTIONS, N_DONE = range(8, 14)
N_INTS = 14
# Places in `reals`.
CLOCK, CONTEXT, USED, GROWTH, AREA, TOKENS_OUT, MOST_USED, PROMPT_TOKENS = range(8)
N_REALS = 8
# Places in `limits`, which do not change.
(
    MOST_RUNNING, BUDGET, CAPACITY, BLOCKS_PER_TOKEN, STAGES, CONTEXT_STEP, N_CONTEXTS, N_BATCHES,
    N_CHUNKS, N_COARSE, PAST_STEP, N_PAST, N_TIERS, N_REQUESTS, IS_CLOSED, MEASURE_FROM, MEASURE_TO,
) = range(17)  # fmt: skip
N_LIMITS = 17

CHUNKS_PER_OCTAVE = 4.0
_NEVER = 1 << 60
_TURNAROUND_S = 1e-6
"""A closed loop's next request comes after the step that starts as the answer leaves: the core does
not wait for the client (seen in the recorded lab runs; how long below a step matters little)."""
_ROUNDING = 1e-9


def advance(
    until: float,
    ints: Any,
    reals: Any,
    limits: Any,
    decode_s: Any,
    chunk_s: Any,
    past_s: Any,
    chunk_at: Any,
    coarse_below: Any,
    coarse_share: Any,
    tier_of: Any,
    query_tokens: Any,
    arrival: Any,
    queue: Any,
    target: Any,
    computed: Any,
    kept: Any,
    fixed_blocks: Any,
    left: Any,
    rates: Any,
    tokens: Any,
    synced: Any,
    finish_step: Any,
    first_s: Any,
    finish_s: Any,
    joined_at: Any,
    stall_s: Any,
    left_at: Any,
    stalls: Any,
    decoding: Any,
    prefilling: Any,
    stack: Any,
    log_end_s: Any,
    log_step_s: Any,
    log_decoding: Any,
    log_running: Any,
    log_waiting: Any,
    log_used: Any,
) -> int:
    """Run iterations until a time, until all measured requests are served or the log is full.

    Parameters
    ----------
    until : float
        No iteration starts at or after this. [s]
    ints, reals : sequences
        The state, changed in place: places above.
    limits : sequence of float
        The engine's limits and the shape of the tables.
    decode_s, chunk_s, past_s, chunk_at, coarse_below, coarse_share, tier_of, query_tokens
        The tables of `steps.StepTables`, flat.
    arrival, target, computed, kept, fixed_blocks, left, rates
        By request: arrival [s], tokens to have in cache before it decodes, of these those that
        are, those that survive a preemption, blocks beside those of its tokens, answer tokens
        after the first, and tokens per step by tier.
    tokens, synced, finish_step, first_s, finish_s, joined_at, stall_s, left_at, stalls
        By request: where it stands and what became of it.
    queue, decoding, prefilling, stack
        Request numbers: in order of arrival, by phase in order of admission, and preempted.
    log_end_s, log_step_s, log_decoding, log_running, log_waiting, log_used
        One entry per iteration.

    Returns
    -------
    int
        1 if it stopped because the log is full, else 0.
    """
    n_decoding, n_prefilling, n_stack = ints[N_DECODING], ints[N_PREFILLING], ints[N_STACK]
    head, tail, n_queued = ints[HEAD], ints[TAIL], ints[N_QUEUED]
    step, tier, logged = ints[STEP], ints[TIER], ints[LOGGED]
    to_measure, next_id, next_finish = ints[TO_MEASURE], ints[NEXT_ID], ints[NEXT_FINISH]
    preemptions, n_done = ints[PREEMPTIONS], ints[N_DONE]
    clock, context, used = reals[CLOCK], reals[CONTEXT], reals[USED]
    growth, area, tokens_out = reals[GROWTH], reals[AREA], reals[TOKENS_OUT]
    most_used, prompt_tokens = reals[MOST_USED], reals[PROMPT_TOKENS]

    most_running, budget, capacity = limits[MOST_RUNNING], limits[BUDGET], limits[CAPACITY]
    per_token, stages = limits[BLOCKS_PER_TOKEN], limits[STAGES]
    per_context = 1.0 / limits[CONTEXT_STEP]
    n_contexts, n_batches = int(limits[N_CONTEXTS]), int(limits[N_BATCHES])
    n_chunks, n_coarse = int(limits[N_CHUNKS]), int(limits[N_COARSE])
    per_past, n_past = 1.0 / limits[PAST_STEP], int(limits[N_PAST])
    n_tiers, n_requests = int(limits[N_TIERS]), int(limits[N_REQUESTS])
    is_closed = limits[IS_CLOSED] > 0.0
    measure_from, measure_to = int(limits[MEASURE_FROM]), int(limits[MEASURE_TO])
    log_size = len(log_end_s)
    full = 0
    woken = False

    while True:
        while tail < n_queued and arrival[queue[tail]] <= clock:
            area += clock - arrival[queue[tail]]
            tail += 1
        if n_decoding + n_prefilling + n_stack == 0 and head == tail:
            if tail >= n_queued or arrival[queue[tail]] >= until:
                break
            clock = arrival[queue[tail]]
            context = used = growth = 0.0
            woken = True
            continue
        if clock >= until or to_measure == 0:
            break
        if logged >= log_size:
            full = 1
            break

        if n_tiers > 1:
            batch = n_decoding + n_prefilling
            asked = tier_of[min(max(batch, 1), n_batches)]
            if asked != tier:
                # Everybody goes on at another pace: bring all to now, then look ahead again.
                growth = 0.0
                next_finish = _NEVER
                for j in range(n_decoding):
                    i = decoding[j]
                    gained = rates[tier * n_requests + i] * (step - synced[i])
                    tokens[i] += gained
                    left[i] -= gained
                    synced[i] = step
                    rate = rates[asked * n_requests + i]
                    growth += rate
                    finish_step[i] = step + max(ceil(left[i] / rate - _ROUNDING), 1)
                    next_finish = min(next_finish, finish_step[i])
                tier = asked

        # Blocks that the running requests grow into; the last admitted makes room.
        preempted = 0
        while used + per_token * growth > capacity and n_decoding + n_prefilling > 1:
            if n_prefilling > 0:
                n_prefilling -= 1
                i = prefilling[n_prefilling]
                used -= fixed_blocks[i] + per_token * target[i]
            else:
                n_decoding -= 1
                i = decoding[n_decoding]
                gained = rates[tier * n_requests + i] * (step - synced[i])
                tokens[i] += gained
                left[i] -= gained
                growth -= rates[tier * n_requests + i]
                context -= tokens[i]
                used -= fixed_blocks[i] + per_token * tokens[i]
                # All it had and the token it had just sampled.
                target[i] = ceil(tokens[i] + 1.0 - _ROUNDING)
                left_at[i] = clock
                stalls[i] += 1
            computed[i] = kept[i]
            stack[n_stack] = i
            n_stack += 1
            preempted += 1
            preemptions += 1

        # Prompts: those under way, then new ones.
        room = budget - n_decoding * query_tokens[tier]
        chunk = 0.0
        attention_s = 0.0
        j = 0
        while n_prefilling + n_stack > 0 or head < tail:
            if j == n_prefilling:
                if preempted > 0 or room < 1.0 or n_decoding + n_prefilling >= most_running:
                    break
                # An idle engine starts with the first request that reaches it, also of a burst.
                if woken and j > 0:
                    break
                if n_stack > 0:
                    i = stack[n_stack - 1]
                elif head < tail:
                    i = queue[head]
                else:
                    break
                need = fixed_blocks[i] + per_token * target[i]
                alone = n_decoding + n_prefilling == 0
                if used + per_token * growth + need > capacity and not alone:
                    break
                if n_stack > 0:
                    n_stack -= 1
                else:
                    head += 1
                used += need
                prefilling[n_prefilling] = i
                n_prefilling += 1
            i = prefilling[j]
            j += 1
            if room < 1.0:
                break
            piece = min(target[i] - computed[i], float(int(room)))
            x = log2(max(piece, 1.0)) * CHUNKS_PER_OCTAVE
            g = min(int(x), n_chunks - 2)
            share = (piece - chunk_at[g]) / (chunk_at[g + 1] - chunk_at[g])
            y = computed[i] * per_past
            p = min(int(y), n_past - 2)
            y -= p
            at = (tier * n_chunks + g) * n_past + p
            low = past_s[at] + (past_s[at + 1] - past_s[at]) * y
            at += n_past
            high = past_s[at] + (past_s[at + 1] - past_s[at]) * y
            attention_s += low + (high - low) * share
            computed[i] += piece
            room -= piece
            chunk += piece

        woken = False

        # How long the step takes.
        step_s = 0.0
        if n_decoding > 0:
            x = context / n_decoding * per_context
            s = int(x)
            if s > n_contexts - 2:
                s = n_contexts - 2
            at = (tier * (n_batches + 1) + n_decoding) * n_contexts + s
            step_s = decode_s[at] + (decode_s[at + 1] - decode_s[at]) * (x - s)
        later_s = 0.0
        if chunk > 0.0:
            groups = max(1.0, float(ceil(chunk / budget * stages - _ROUNDING)))
            piece = chunk / groups
            x = log2(max(piece, 1.0)) * CHUNKS_PER_OCTAVE
            g = min(int(x), n_chunks - 2)
            share = (piece - chunk_at[g]) / (chunk_at[g + 1] - chunk_at[g])
            at = (tier * n_coarse + coarse_below[n_decoding]) * n_chunks + g
            low = chunk_s[at] + (chunk_s[at + 1] - chunk_s[at]) * share
            at += n_chunks
            high = chunk_s[at] + (chunk_s[at + 1] - chunk_s[at]) * share
            excess_s = groups * (low + (high - low) * coarse_share[n_decoding]) + attention_s
            # Groups follow each other through the stages; the last has all of them before it.
            step_s += excess_s / stages
            later_s = excess_s / groups * (1.0 - 1.0 / stages)
        end = clock + step_s
        in_system = n_decoding + n_prefilling + n_stack + tail - head
        area += in_system * step_s
        step += 1
        context += growth
        used += per_token * growth
        tokens_out += growth
        prompt_tokens += chunk
        if used > most_used:
            most_used = used
        log_end_s[logged] = end
        log_step_s[logged] = step_s
        log_decoding[logged] = n_decoding
        log_running[logged] = n_decoding + n_prefilling
        log_waiting[logged] = n_stack + tail - head
        log_used[logged] = used
        logged += 1

        # Who is done: scanned only in a step in which somebody is.
        if n_decoding > 0 and step >= next_finish:
            kept_on = 0
            next_finish = _NEVER
            for j in range(n_decoding):
                i = decoding[j]
                if finish_step[i] > step:
                    decoding[kept_on] = i
                    kept_on += 1
                    next_finish = min(next_finish, finish_step[i])
                    continue
                rate = rates[tier * n_requests + i]
                gained = rate * (step - synced[i])
                tokens[i] += gained
                growth -= rate
                context -= tokens[i]
                used -= fixed_blocks[i] + per_token * tokens[i]
                # What the last step yields beyond the end of the answer is discarded.
                tokens_out -= gained - left[i]
                left[i] = 0.0
                finish_s[i] = end
                n_done += 1
                if measure_from <= i < measure_to:
                    to_measure -= 1
                if is_closed and next_id < n_requests:
                    arrival[next_id] = end + _TURNAROUND_S
                    queue[n_queued] = next_id
                    n_queued += 1
                    next_id += 1
            n_decoding = kept_on

        # Whose prompt is in the cache: it has its first token, or the next one after a preemption.
        if chunk > 0.0:
            still = 0
            for j in range(n_prefilling):
                i = prefilling[j]
                if computed[i] < target[i] - _ROUNDING:
                    prefilling[still] = i
                    still += 1
                    continue
                tokens_out += 1.0
                if first_s[i] < 0.0:
                    first_s[i] = end + later_s
                    joined_at[i] = logged
                else:
                    left[i] -= 1.0
                    stall_s[i] += end - left_at[i]
                if left[i] < 0.5:
                    tokens_out += left[i]
                    used -= fixed_blocks[i] + per_token * target[i]
                    finish_s[i] = max(end, first_s[i])
                    n_done += 1
                    if measure_from <= i < measure_to:
                        to_measure -= 1
                    if is_closed and next_id < n_requests:
                        arrival[next_id] = end + _TURNAROUND_S
                        queue[n_queued] = next_id
                        n_queued += 1
                        next_id += 1
                    continue
                rate = rates[tier * n_requests + i]
                tokens[i] = target[i]
                synced[i] = step
                finish_step[i] = step + max(ceil(left[i] / rate - _ROUNDING), 1)
                next_finish = min(next_finish, finish_step[i])
                growth += rate
                context += tokens[i]
                decoding[n_decoding] = i
                n_decoding += 1
            n_prefilling = still
        clock = end

    ints[N_DECODING], ints[N_PREFILLING], ints[N_STACK] = n_decoding, n_prefilling, n_stack
    ints[HEAD], ints[TAIL], ints[N_QUEUED] = head, tail, n_queued
    ints[STEP], ints[TIER], ints[LOGGED] = step, tier, logged
    ints[TO_MEASURE], ints[NEXT_ID], ints[NEXT_FINISH] = to_measure, next_id, next_finish
    ints[PREEMPTIONS], ints[N_DONE] = preemptions, n_done
    reals[CLOCK], reals[CONTEXT], reals[USED] = clock, context, used
    reals[GROWTH], reals[AREA], reals[TOKENS_OUT] = growth, area, tokens_out
    reals[MOST_USED], reals[PROMPT_TOKENS] = most_used, prompt_tokens
    return full
