from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.analysis.acceptance import AcceptanceModel, acceptance_model
from specsim.analysis.constants import Constants
from specsim.catalog.engines import load_engine
from specsim.catalog.scenario import load_scenario
from specsim.errors import InputError, UsageError
from specsim.schema.base import Range
from specsim.schema.results import AcceptanceResult


def model(
    acceptance: dict[str, Any] | None,
    *,
    method: str = "eagle",
    k: int = 4,
    version: str = "0.25.1",
    engine: str = "vllm",
    temperature: float = 0.0,
    tree: dict[str, int] | None = None,
) -> AcceptanceModel:
    scenario = load_scenario(
        {
            "target": {"model": "llama-3.1-8b"},
            "hardware": {"accelerator": "h100_sxm"},
            "speculation": {
                "method": method, "num_speculative_tokens": k, "tree": tree,
                "acceptance": acceptance,
            },
            "workload": {"temperature": temperature},
        }
    )  # fmt: skip
    constants, _ = load_engine(engine, version if engine == "vllm" else None)
    return acceptance_model(scenario, k=k, engine=constants)


def result(acceptance: dict[str, Any], **changes: Any) -> AcceptanceResult:
    return model(acceptance, **changes).result()


@pytest.mark.parametrize(
    "given",
    [
        {"length": 3.3616},
        {"rate": 0.8},
        {"draft_acceptance_rate": 0.5904},
        {"per_position": (0.8, 0.64, 0.512, 0.4096)},
    ],
)
def test_every_form_of_the_same_acceptance_is_the_same_length(given: dict[str, Any]) -> None:
    found = result(given)
    assert found.acceptance_length == pytest.approx(3.3616, abs=1e-6)
    assert found.acceptance_rate == pytest.approx(0.8, abs=1e-4)
    assert found.draft_acceptance_rate == pytest.approx(0.5904, abs=1e-6)


def test_length_at_one_k_read_at_another_decays() -> None:
    # d = 1 for the draft model: .8 per token.
    draft = model({"length": 3.3616}, method="draft_model")
    assert draft.positions(6) == pytest.approx(0.8 ** np.arange(1, 7), abs=1e-6)
    mtp = model({"length": 3.3616}, method="mtp")
    conditional = mtp.positions(6)[1:] / mtp.positions(6)[:-1]
    assert conditional[1:] / conditional[:-1] == pytest.approx(0.94, abs=1e-6)


EAGLE3: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100_sxm"},
    "speculation": {
        "method": "eagle3", "num_speculative_tokens": 5, "acceptance": {"length": 3.0},
    },
}  # fmt: skip


def overridden(**changes: Any) -> AcceptanceModel:
    """Return the model of EAGLE3 after overrides, as `--spec-tokens` and others make them."""
    dotted = {f"speculation.{name.replace('__', '.')}": value for name, value in changes.items()}
    scenario = load_scenario(EAGLE3, overrides=dotted)
    k = scenario.speculation.num_speculative_tokens
    assert k is not None
    return acceptance_model(scenario, k=k, engine=load_engine("vllm", "0.25.1")[0])


@pytest.mark.parametrize("given", [{"length": 3.0}, {"draft_acceptance_rate": 0.4}])
def test_another_k_keeps_the_drafter(given: dict[str, Any]) -> None:
    # Three tokens per step at k = 5 under the decay of EAGLE-3, .985 per position: a first rate of
    # .7201; 1 + .7201 + .7201^2 x .985 + ...
    a, d = 0.720137, 0.985
    p = [a, a**2 * d, a**3 * d**3, a**4 * d**6, a**5 * d**10, a**6 * d**15, a**7 * d**21]
    assert 1 + sum(p[:5]) == pytest.approx(3.0, abs=1e-5)
    lengths = []
    for k in (1, 2, 3, 5, 7):
        found = overridden(acceptance=given)
        if k != 5:
            scenario = load_scenario(
                load_scenario(EAGLE3, overrides={"speculation.acceptance": given}).model_dump(
                    mode="json", exclude_none=True
                ),
                overrides={"speculation.num_speculative_tokens": k},
            )
            given_there = scenario.speculation.acceptance
            assert given_there is not None
            assert given_there.measured_at_k == 5
            found = acceptance_model(scenario, k=k, engine=load_engine("vllm", "0.25.1")[0])
        assert found.positions(k) == pytest.approx(p[:k], abs=1e-5)
        lengths.append(found.result().acceptance_length)
        carried = [w for w in found.warnings if "is known at k = 5" in w]
        assert len(carried) == (k != 5)
    assert lengths == pytest.approx([1 + sum(p[:k]) for k in (1, 2, 3, 5, 7)], abs=1e-5)


def test_acceptance_given_with_a_new_k_is_of_that_k() -> None:
    found = overridden(num_speculative_tokens=3, acceptance__length=2.4)
    assert found.result().acceptance_length == pytest.approx(2.4)
    assert found.warnings == ()


def test_where_acceptance_was_measured_may_be_said() -> None:
    found = overridden(
        num_speculative_tokens=2, acceptance={"length": 3.0, "measured_at_k": 5}
    )  # fmt: skip
    assert found.result().acceptance_length == pytest.approx(2.2310, abs=1e-4)
    with pytest.raises(InputError, match=r"length 4.5 is above num_speculative_tokens \+ 1 = 4"):
        overridden(num_speculative_tokens=7, acceptance={"length": 4.5, "measured_at_k": 3})


def test_a_law_or_a_list_of_acceptance_holds_at_any_k() -> None:
    for given in ({"rate": 0.7}, {"per_position": (0.7, 0.5, 0.4, 0.3, 0.2)}):
        scenario = load_scenario(
            EAGLE3 | {"speculation": EAGLE3["speculation"] | {"acceptance": given}},
            overrides={"speculation.num_speculative_tokens": 2},
        )
        assert scenario.speculation.acceptance is not None
        assert scenario.speculation.acceptance.measured_at_k is None


def test_a_list_is_carried_on_with_a_warning() -> None:
    short = model({"per_position": (0.7, 0.5)}, method="draft_model")
    assert short.positions(3) == pytest.approx([0.7, 0.5, 0.5 * 5 / 7])
    assert any("2 positions" in text and "carried on to 4" in text for text in short.warnings)
    assert model({"per_position": (0.7, 0.5)}, k=2).warnings == ()


def test_steps_without_a_match_yield_one_token_and_verify_one() -> None:
    # Engine that drafts on a match only: AL 3 over the .4 of steps that draft.
    found = model({"draft_acceptance_rate": 0.5, "proposal_rate": 0.4}, method="ngram")
    assert found.result().acceptance_length == pytest.approx(1 + 0.4 * 2.0)
    assert found.result().draft_acceptance_rate == pytest.approx(0.5)
    assert found.verify_tokens(4.0) == pytest.approx(1 + 0.4 * 4)


def test_a_length_counts_all_steps() -> None:
    found = model({"length": 1.8, "proposal_rate": 0.4}, method="ngram").result()
    assert found.acceptance_length == pytest.approx(1.8)
    assert found.draft_acceptance_rate == pytest.approx(0.5)


def test_the_v2_runner_verifies_filler_drafts() -> None:
    found = model({"length": 1.8, "proposal_rate": 0.4}, method="ngram", version="0.33")
    assert found.verify_tokens(4.0) == 5.0
    assert found.result().acceptance_length == pytest.approx(1.8)


def test_a_tree_divides_by_what_it_drafts() -> None:
    tree = {"topk": 4, "num_draft_tokens": 22}
    found = model({"draft_acceptance_rate": 0.1}, method="eagle3", k=3, engine="sglang", tree=tree)
    assert found.result().acceptance_length == pytest.approx(1 + 0.1 * 21)
    assert found.verify_tokens(3.0) == 22.0


def test_a_tree_is_right_more_often_than_its_best_chain() -> None:
    tree = {"topk": 4, "num_draft_tokens": 16}
    chain = model({"rate": 0.6}, method="eagle3", k=3, engine="sglang")
    wide = model({"rate": 0.6}, method="eagle3", k=3, engine="sglang", tree=tree)
    assert chain.result().acceptance_length < wide.result().acceptance_length <= 4.0


def test_counts_narrow_the_sampling_error() -> None:
    constants = Constants(n_samples=4000, seed=1)

    def spread(counts: int) -> float:
        counted = model({"draft_acceptance_rate": 0.5, "counts": counts}, method="draft_model")
        lengths = counted.tokens_per_step(counted.positions(4, constants))
        return float(np.std(lengths) / (np.mean(lengths) - 1))

    # Accepted tokens per draft lie in 0..4 with mean 2: deviation at most 2, relative 1 / sqrt(n);
    # the law's decay moves nothing at the k that was measured.
    assert spread(400) == pytest.approx(1 / 20, rel=0.1)
    assert spread(40_000) == pytest.approx(1 / 200, rel=0.2)


def test_samples_never_leave_the_possible() -> None:
    certain = model({"rate": 0.99})
    p = certain.positions(8, Constants(n_samples=200, seed=3))
    assert p.shape == (200, 1, 8)
    assert np.all((p >= 0) & (p <= 1))
    assert np.all(np.diff(p, axis=-1) <= 1e-12)


def test_decay_is_part_of_the_band() -> None:
    known = AcceptanceModel(
        k=2, known=None, length=2.2, length_k=2, rate=None,
        decay=Range(value=0.9, low=0.8, high=1.0), proposal_rate=1.0, counts=10**12, tree=None,
        fills_without_match=False, source="test", warnings=(),
    )  # fmt: skip
    constants = Constants(n_samples=500, seed=2)
    at_two = known.tokens_per_step(known.positions(2, constants))
    at_six = known.tokens_per_step(known.positions(6, constants))
    assert np.std(at_two) < 1e-3
    assert np.std(at_six) > 0.05


def test_nothing_is_assumed_in_silence() -> None:
    with pytest.raises(UsageError, match=r"acceptance is not given, and it decides the answer"):
        model(None)


def test_impossible_acceptance_is_refused() -> None:
    with pytest.raises(UsageError, match=r"above 4 draft tokens \+ 1, which no step can yield"):
        model({"length": 4.5, "proposal_rate": 0.5}, method="ngram")


def test_proposal_rate_belongs_to_lookup_methods() -> None:
    with pytest.raises(UsageError, match=r"proposal_rate belongs to ngram and suffix.*eagle"):
        model({"rate": 0.5, "proposal_rate": 0.5})


def test_published_pair_is_bundled_and_interpolated() -> None:
    from specsim.catalog.acceptance import load_profile, profile_ids

    pairs = [
        i
        for i in profile_ids()
        if {p.draft_acceptance_rate for p in load_profile(i).points} >= {0.81, 0.38}
    ]
    assert pairs, "0.81 at temperature 0 and 0.38 at 1 is a published pair"
    profile = load_profile(pairs[0])
    measured_k = next(p.num_speculative_tokens for p in profile.points) or 4
    half = model({"profile": pairs[0]}, method=profile.method, k=measured_k, temperature=0.5)
    assert half.result().draft_acceptance_rate == pytest.approx((0.81 + 0.38) / 2, abs=0.02)
    assert any("interpolated" in w or "between" in w for w in half.warnings)


def test_next_to_nothing_accepted_in_one_draft_has_a_finite_spread() -> None:
    rare = model({"per_position": [1e-9, 1e-10, 0.0, 0.0], "counts": 1})
    with np.errstate(all="raise", under="ignore"):
        drawn = np.asarray(rare.positions(4, Constants(n_samples=64)))
    assert np.all((drawn >= 0) & (drawn <= 1))
