import numpy as np
import pytest

from specsim.analysis.simulation.requests import draw_requests
from specsim.analysis.simulation.served import served_arm, served_tables


@pytest.mark.parametrize("kind", ["baseline", "speculative"])
def test_tables_tell_a_step_as_the_arm_does(kind, deployment):
    """Random steps with and without prompts; the largest errors are at the limit of graphs.

    There a row more costs a launch of every layer, which a table in between cannot tell.
    """
    served = served_arm(deployment, kind)
    arm = served.arm
    sent = draw_requests(deployment.scenario.workload, 200, np.random.SeedSequence(1))
    tables = served_tables(served, sent)
    rng = np.random.default_rng(0)
    errors = []
    for i in range(120):
        n = int(rng.integers(1, tables.n_batches + 1))
        context = float(rng.uniform(100, 640))
        chunk = float(rng.integers(1, 640)) if i % 2 else 0.0
        past = float(rng.choice([0.0, 128.0])) if chunk else 0.0
        exact = arm.step(n, context, prefill_tokens=chunk, prefill_context=past).total.total_s
        contexts = np.arange(tables.decode_s.shape[2]) * tables.context_step
        told = np.interp(context, contexts, tables.decode_s[0, n])
        if chunk:
            below, share = tables.coarse_below[n], tables.coarse_share[n]
            low, high = (
                np.interp(chunk, tables.chunk_at, tables.chunk_s[0, below + j]) for j in (0, 1)
            )
            pasts = np.arange(tables.past_s.shape[2]) * tables.past_step
            attention = [np.interp(past, pasts, row) for row in tables.past_s[0]]
            told += low + (high - low) * share + np.interp(chunk, tables.chunk_at, attention)
        errors.append(abs(told / float(np.asarray(exact)) - 1.0))
    assert np.median(errors) < 0.005
    assert np.percentile(errors, 90) < 0.02
    assert max(errors) < 0.10


def test_prompts_alone_are_a_step_of_their_own(deployment):
    served = served_arm(deployment, "baseline")
    sent = draw_requests(deployment.scenario.workload, 50, np.random.SeedSequence(1))
    tables = served_tables(served, sent)
    g = int(np.searchsorted(tables.chunk_at, 512))
    assert tables.chunk_at[g] == pytest.approx(512)
    told = tables.chunk_s[0, 0, g] + tables.past_s[0, g, 0]
    exact = served.arm.step(0.0, 1.0, prefill_tokens=512.0).total.total_s
    assert told == pytest.approx(float(np.asarray(exact)), rel=1e-3)
