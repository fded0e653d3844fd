"""The scheduler by hand, and what must hold whatever it is given."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.analysis.resolve import resolve
from specsim.analysis.simulation.engine import Engine
from specsim.analysis.simulation.requests import Requests, draw_requests
from specsim.analysis.simulation.served import footprint, refused, served_arm
from specsim.analysis.simulation.statistics import little_error
from specsim.analysis.simulation.steps import StepTables
from specsim.errors import InfeasibleError


def sent(arrival, inputs, outputs) -> Requests:
    return Requests(
        np.array(arrival, dtype=float),
        np.array(inputs),
        np.array(outputs),
        np.zeros(len(arrival)),
        np.random.SeedSequence(0),
    )


def tables(n: int, *, decode_s: float, per_request_s: float, per_prompt_token_s: float):
    """Return steps of decode_s + per_request_s n + per_prompt_token_s c, whatever the context."""
    chunk_at = 2.0 ** (np.arange(60) / 4.0)
    batches = np.arange(n + 1)
    decode = np.where(batches > 0, decode_s + per_request_s * batches, 0.0)
    return StepTables(
        decode_s=np.repeat(decode[None, :, None], 2, axis=2),
        chunk_s=np.repeat(per_prompt_token_s * chunk_at[None, None, :], 2, axis=1),
        past_s=np.zeros((1, 60, 2)),
        chunk_at=chunk_at,
        coarse_below=np.zeros(n + 1, dtype=np.int64),
        coarse_share=np.zeros(n + 1),
        tier_of=np.zeros(n + 1, dtype=np.int64),
        query_tokens=np.array([1.0]),
        context_step=1e6,
        past_step=1e6,
    )


def run(deployment, requests, made, kind="baseline", **more):
    engine = Engine(served_arm(deployment, kind), requests, tables=made, **more)
    engine.advance()
    return engine.result()


def test_one_request_by_hand(deployment):
    """A prompt of 64 tokens at 1 ms each, then 3 steps of 11 ms."""
    made = tables(4, decode_s=0.010, per_request_s=0.001, per_prompt_token_s=0.001)
    result = run(deployment, sent([1.0], [64], [4]), made)
    assert result.first_s[0] == pytest.approx(1.064)
    assert result.finish_s[0] == pytest.approx(1.064 + 3 * 0.011)


def test_a_prompt_rides_on_a_step_and_lengthens_it_for_the_other(deployment):
    """The second arrives during the first's prefill; its prompt rides on the first's decode."""
    made = tables(4, decode_s=0.010, per_request_s=0.0, per_prompt_token_s=0.001)
    result = run(deployment, sent([0.0, 0.05], [64, 32], [3, 2]), made)
    # first: 64 ms prompt, a step of 10 + 32 ms with the other's prompt, a step of 10 ms.
    assert result.finish_s[0] == pytest.approx(0.064 + 0.042 + 0.010)
    assert result.first_s[1] == pytest.approx(0.064 + 0.042)
    assert result.finish_s[1] == pytest.approx(0.064 + 0.042 + 0.010)
    assert result.step_s.tolist() == pytest.approx([0.064, 0.042, 0.010])
    assert result.decoding.tolist() == [0, 1, 2]


def test_long_prompts_are_cut_to_what_the_budget_leaves(make):
    deployment = resolve(make(engine__max_num_batched_tokens=256, engine__max_num_seqs=8))
    made = tables(8, decode_s=0.010, per_request_s=0.0, per_prompt_token_s=0.001)
    result = run(deployment, sent([0.0, 0.0], [300, 300], [2, 2]), made)
    # 256; then 44 of the first and 212 of the second; then 255 are left beside one decode: 88.
    assert result.step_s.tolist() == pytest.approx([0.256, 0.256, 0.098, 0.010], rel=2e-2)
    assert result.prompt_tokens == 600


def test_slots_are_given_first_come_first_served(make):
    deployment = resolve(make(engine__max_num_seqs=2))
    made = tables(2, decode_s=0.010, per_request_s=0.0, per_prompt_token_s=0.0001)
    result = run(deployment, sent([0.0] * 6, [10] * 6, [20] * 6), made)
    assert result.running.max() == 2
    assert np.all(np.diff(result.first_s) >= 0)
    assert result.waiting[0] == 4


def small_cache(make, **more):
    """Return a deployment whose cache holds a few requests only."""
    return resolve(
        make(
            engine__gpu_memory_utilization=0.27,
            engine__max_model_len=2048,
            engine__max_num_seqs=64,
            **more,
        )
    )


def test_the_last_admitted_gives_way_and_is_served_all_the_same(make):
    deployment = small_cache(make, workload__output_tokens=1500)
    served = served_arm(deployment, "baseline")
    requests = draw_requests(
        deployment.scenario.workload, 60, np.random.SeedSequence(3), request_rate=50.0
    )
    engine = Engine(served, requests)
    engine.advance()
    result = engine.result()
    assert result.preemptions > 0
    assert np.all(np.isfinite(result.finish_s))
    assert result.tokens_out == pytest.approx(requests.output_tokens.sum(), rel=1e-9)
    # What was computed again comes on top.
    assert result.prompt_tokens > requests.input_tokens.sum()
    assert np.max(result.used) <= result.capacity
    # Who came first is never the one that gives way.
    assert result.stalls[0] == 0
    assert np.all(result.stall_s[result.stalls > 0] > 0)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rate=st.floats(0.5, 200.0),
    utilization=st.sampled_from([0.27, 0.3, 0.92]),
    max_num_seqs=st.sampled_from([1, 3, 64]),
    budget=st.sampled_from([64, 512, 8192]),
    kind=st.sampled_from(["baseline", "speculative"]),
    k=st.sampled_from([1, 3, 7]),
    schedule=st.booleans(),
    cached=st.sampled_from([0.0, 100.0]),
    shared=st.booleans(),
    p95=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_nothing_is_lost(
    make, rate, utilization, max_num_seqs, budget, kind, k, schedule, cached, shared, p95, seed
):
    """Tokens in and out, blocks, slots, Little's law, and everybody is served once."""
    try:
        deployment = resolve(
            make(
                engine__gpu_memory_utilization=utilization,
                engine__max_num_seqs=max_num_seqs,
                engine__max_num_batched_tokens=budget,
                engine__max_model_len=2048,
                speculation__num_speculative_tokens=k,
                speculation__acceptance__length=1.0 + 0.4 * k,
                speculation__num_speculative_tokens_per_batch_size=[
                    [1, 2, k],
                    [3, 8, 1],
                    [9, 64, 0],
                ]
                if schedule
                else None,
                workload__cached_prompt_tokens=cached,
                workload__shared_prefix=shared,
                workload__input_tokens_p95=1200.0 if p95 else None,
                workload__output_tokens_p95=300.0 if p95 else None,
            )
        )
        served = served_arm(deployment, kind)
    except InfeasibleError:
        return
    requests = draw_requests(
        deployment.scenario.workload, 120, np.random.SeedSequence(seed), request_rate=rate
    )
    requests = requests.only(~refused(served.arm, requests))
    engine = Engine(served, requests)
    engine.advance()
    result = engine.result()
    assert np.all(np.isfinite(result.finish_s))
    assert np.all(result.arrival_s < result.first_s)
    assert np.all(result.first_s <= result.finish_s)
    assert result.tokens_out == pytest.approx(requests.output_tokens.sum(), rel=1e-6)
    new = requests.input_tokens - np.minimum(served.arm.cached_tokens, requests.input_tokens - 1)
    if result.preemptions == 0:
        assert result.prompt_tokens == pytest.approx(new.sum(), rel=1e-9)
    else:
        assert result.prompt_tokens > new.sum() * (1 - 1e-9)
    assert np.all(result.used <= result.capacity + 1e-6)
    assert np.all(result.used >= -1e-6)
    assert result.running.max() <= max_num_seqs
    assert abs(little_error(result)) < 0.01
    steps = result.finish_s - result.first_s
    assert np.all(steps[requests.output_tokens == 1] == 0)
    assert footprint(served.arm, requests).capacity == result.capacity


@pytest.mark.parametrize("kind", ["baseline", "speculative"])
@pytest.mark.parametrize("utilization", [0.27, 0.92])
def test_compiled_and_interpreted_do_the_same(kind, utilization, make):
    pytest.importorskip("numba")
    deployment = resolve(
        make(engine__gpu_memory_utilization=utilization, engine__max_model_len=2048)
    )
    served = served_arm(deployment, kind)
    requests = draw_requests(
        deployment.scenario.workload, 300, np.random.SeedSequence(5), request_rate=40.0
    )
    results = []
    for loop in ("lists", "compiled"):
        engine = Engine(served, requests, loop=loop)
        engine.advance()
        results.append(engine.result())
    one, other = results
    assert one.preemptions == other.preemptions
    assert other.finish_s == pytest.approx(one.finish_s, rel=1e-12)
    assert other.first_s == pytest.approx(one.first_s, rel=1e-12)


def test_a_run_can_be_stopped_and_go_on(deployment):
    """A router runs an engine from arrival to arrival."""
    served = served_arm(deployment, "speculative")
    requests = draw_requests(
        deployment.scenario.workload, 200, np.random.SeedSequence(5), request_rate=30.0
    )
    whole = Engine(served, requests)
    whole.advance()
    parts = Engine(served, requests, own=np.empty(0, dtype=np.int64))
    for i, arrival_s in enumerate(requests.arrival_s.tolist()):
        parts.advance(arrival_s)
        parts.submit(i)
    parts.advance()
    assert parts.result().finish_s == pytest.approx(whole.result().finish_s, rel=1e-12)
