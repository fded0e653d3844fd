from __future__ import annotations

import numpy as np
import pytest

from specsim.physics import acceptance as law

# SpecDecode-Bench/simulator, Llama-3.1-8B EAGLE on GSM8K: P_1..P_5, and the lengths it reports.
GSM8K = (0.667, 0.431, 0.274, 0.180, 0.113)


@pytest.mark.parametrize(
    ("rate", "k", "expected"),
    [
        (0.5, 1, 1.5),
        (0.8, 4, 3.3616),  # 1 + .8 + .64 + .512 + .4096
        (0.0, 5, 1.0),
        (1.0, 5, 6.0),
        (0.38, 4, 1.6001),  # 1 + .38 + .1444 + .0549 + .0209
    ],
)
def test_length_of_a_chain(rate: float, k: int, expected: float) -> None:
    assert law.chain_length(rate, k) == pytest.approx(expected, abs=1e-4)


def test_length_of_a_chain_is_the_sum_of_its_positions() -> None:
    rates = np.array([0.0, 0.3, 0.81, 1.0])
    from_positions = law.length(law.positions(first_rate=rates, decay=np.ones(4), k=7))
    assert law.chain_length(rates, 7) == pytest.approx(from_positions)


def test_positions_of_a_decaying_law() -> None:
    # Conditional .9, .81, .729.
    p = law.positions(first_rate=0.9, decay=0.9, k=3)
    assert p == pytest.approx([0.9, 0.729, 0.531441])


def test_a_conditional_rate_never_exceeds_one() -> None:
    # Prompt lookup: a first hit makes the next likely.
    p = law.positions(first_rate=0.6, decay=1.5, k=4)
    assert p == pytest.approx([0.6, 0.54, 0.54, 0.54])


def test_published_vector_gives_its_published_lengths() -> None:
    assert law.lengths_by_k(GSM8K) == pytest.approx([1.0, 1.667, 2.098, 2.372, 2.552, 2.665])
    # Reported 1.70 / 2.13 / 2.39 / 2.67 at k = 1, 2, 3, 5: within the two percent of its logs.
    for k, reported in ((1, 1.70), (2, 2.13), (3, 2.39), (5, 2.67)):
        assert law.length(np.array(GSM8K[:k])) == pytest.approx(reported, rel=0.02)


@pytest.mark.parametrize("decay", [0.85, 1.0, 1.15])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_first_rate_undoes_the_length(decay: float, k: int) -> None:
    rates = np.array([0.0, 0.2, 0.55, 0.8])
    lengths = law.length(law.positions(first_rate=rates, decay=np.full(4, decay), k=k))
    found = law.first_rate_from_length(target_length=lengths, decay=decay, k=k)
    assert found == pytest.approx(rates, abs=1e-9)


@pytest.mark.parametrize("k", [1, 4])
def test_lengths_outside_the_possible_are_clipped(k: int) -> None:
    found = law.first_rate_from_length(target_length=np.array([0.5, k + 3.0]), decay=1.0, k=k)
    assert found == pytest.approx([0.0, 1.0], abs=1e-6)


def test_full_acceptance_is_reached_with_any_decay() -> None:
    found = law.first_rate_from_length(target_length=5.0, decay=0.8, k=4)
    assert law.length(law.positions(first_rate=found, decay=0.8, k=4)) == pytest.approx(5.0)


def test_a_list_is_cut_or_carried_on() -> None:
    assert law.extend((0.6, 0.3), decay=0.9, k=1).tolist() == [0.6]
    # Last conditional .5, then .45, then .405.
    carried = law.extend((0.6, 0.3), decay=0.9, k=4)
    assert carried == pytest.approx([0.6, 0.3, 0.3 * 0.45, 0.3 * 0.45 * 0.405])
    assert law.extend((0.8,), decay=1.0, k=3) == pytest.approx([0.8, 0.64, 0.512])
    assert law.extend((0.0,), decay=1.0, k=3) == pytest.approx([0.0, 0.0, 0.0])


def test_a_list_is_carried_on_per_sample_of_the_decay() -> None:
    carried = law.extend((0.6, 0.3), decay=np.array([[0.9], [1.0]]), k=3)
    assert carried.shape == (2, 1, 3)
    assert carried[:, 0, 2] == pytest.approx([0.135, 0.15])


def test_constant_rate_of_the_same_length() -> None:
    rate = law.conditional_rate(GSM8K)
    assert law.chain_length(float(rate), 5) == pytest.approx(2.665)
    assert float(rate) == pytest.approx(0.654, abs=1e-3)  # 1 + .654 + .428 + .280 + .183 + .120


def test_steps_without_a_proposal_yield_one_token() -> None:
    # SpecDecode-Bench n-gram on GSM8K: proposes in .2 of steps.
    assert law.over_all_steps(drafting_length=3.0, proposal_rate=0.2) == pytest.approx(1.4)
    assert law.over_all_steps(drafting_length=3.0, proposal_rate=1.0) == 3.0


def test_published_tree_from_its_chain() -> None:
    # SGLang 0.5.9, Qwen3-8B, GSM8K, depth 3: chain 2.25, tree of 21 tokens 2.92.
    first = law.first_rate_from_length(target_length=2.25, decay=1.0, k=3)
    wide = law.tree_first_rate(first_rate=first, branches_per_level=7.0, coverage_exponent=0.36)
    tree = law.length(law.positions(first_rate=wide, decay=1.0, k=3))
    assert tree == pytest.approx(2.92, abs=0.15)


def test_one_branch_is_a_chain() -> None:
    assert law.tree_first_rate(
        first_rate=0.7, branches_per_level=1.0, coverage_exponent=0.36
    ) == pytest.approx(0.7)


def test_best_verify_length_weighs_tokens_against_time() -> None:
    lengths = np.array([1.0, 1.8, 2.2, 2.3])
    free = np.array([1.0, 1.0, 1.0, 1.0])
    dear = np.array([1.0, 2.0, 3.0, 4.0])
    middling = np.array([1.0, 1.2, 1.4, 1.9])
    chosen = law.best_verify_length(lengths=lengths, step_time_s=np.stack([free, dear, middling]))
    assert chosen.tolist() == [3, 0, 2]
