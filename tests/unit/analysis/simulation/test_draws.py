import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.analysis.simulation.draws import per_request_positions, steps_needed
from specsim.physics import acceptance as law

EAGLE3 = (0.605, 0.361, 0.233)
"""ShareGPT, theory 1.2."""


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_sure_drafts_take_a_step_per_k_plus_one_tokens():
    tokens = np.array([10, 12, 1, 0])
    p = np.ones((4, 3))
    # 4 tokens per step: 10 and 12 take three, 1 takes one, an answer of one token none.
    assert steps_needed(tokens, p, rng(), ks=(3,)).tolist() == [[3, 3, 1, 0]]


def test_without_drafts_a_step_is_a_token():
    tokens = np.array([10, 255])
    assert steps_needed(tokens, np.zeros((2, 0)), rng(), ks=(0,)).tolist() == [[10, 255]]
    assert steps_needed(tokens, np.zeros((2, 3)), rng(), ks=(3,)).tolist() == [[10, 255]]


def test_tokens_by_steps_is_the_tau_of_the_profile():
    """Long answers, all alike: 1 + sum of P = 2.199 (definitions.md section 1)."""
    n, tokens = 400, 20_000
    p = np.broadcast_to(np.array(EAGLE3), (n, 3))
    steps = steps_needed(np.full(n, tokens), p, rng(1), ks=(3,))
    assert n * tokens / steps.sum() == pytest.approx(2.199, rel=2e-3)


@pytest.mark.parametrize("spread", [0.0, 0.4, 1.5])
@pytest.mark.parametrize("proposal_rate", [1.0, 0.4])
def test_however_requests_differ_the_stream_has_the_tau_of_the_profile(spread, proposal_rate):
    """All tokens by all steps: 1 / E[1 / tau]."""
    deviates = rng(2).standard_normal(200_000)
    p = per_request_positions(EAGLE3, deviates=deviates, spread=spread, proposal_rate=proposal_rate)
    tau = 1.0 + p.sum(axis=1)
    wanted = law.over_all_steps(drafting_length=2.199, proposal_rate=proposal_rate)
    assert 1.0 / np.mean(1.0 / tau) == pytest.approx(wanted, rel=3e-3)


def test_spans_of_eagle_requests_are_the_published_ones():
    """5th and 95th percentile 2.7 and 7.4 (theory 1.5), a span being 1 / (1 - a)."""
    deviates = rng(3).standard_normal(200_000)
    # ln(span - 1) is the log-odds of a; its middle is that of spans 2.7 and 7.4, a = 0.767.
    p = per_request_positions((0.767,), deviates=deviates, spread=0.40)
    low, high = np.percentile(1.0 / (1.0 - p[:, 0]), [5, 95])
    assert low == pytest.approx(2.7, rel=0.06)
    assert high == pytest.approx(7.4, rel=0.06)


def test_certain_and_impossible_positions_stay_so():
    p = per_request_positions((1.0, 1.0, 0.0), deviates=rng().standard_normal(50), spread=1.0)
    assert np.all(p[:, :2] == 1.0)
    assert np.all(p[:, 2] == 0.0)


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.lists(st.integers(0, 3000), min_size=1, max_size=40),
    rate=st.floats(0.0, 1.0),
    k=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
)
def test_steps_lie_between_all_and_none_accepted_and_longer_drafts_take_fewer(
    tokens, rate, k, seed
):
    wanted = np.array(tokens)
    p = np.broadcast_to(rate ** np.arange(1, k + 1), (wanted.size, k))
    steps = steps_needed(wanted, p, rng(seed), ks=(0, *range(1, k + 1)))
    assert np.all(steps[0] == wanted)
    assert np.all(np.diff(steps, axis=0) <= 0)
    for row, drafts in enumerate((0, *range(1, k + 1))):
        assert np.all(steps[row] >= np.ceil(wanted / (drafts + 1)))
        assert np.all(steps[row] <= wanted)


def test_the_same_seed_draws_the_same_steps():
    tokens, p = np.full(1000, 300), np.broadcast_to(np.array(EAGLE3), (1000, 3))
    one, other = (steps_needed(tokens, p, rng(7), ks=(3,)) for _ in range(2))
    assert np.array_equal(one, other)
