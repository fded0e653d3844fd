"""Acceptance profiles: every shipped one is sound; temperatures are read as documented."""

from __future__ import annotations

from itertools import pairwise

import pytest

from specsim.catalog.acceptance import at_temperature, decay, load_profile, profile_ids
from specsim.errors import InputError, NotFoundError
from specsim.schema.speculation import AcceptanceProfile, ProfilePoint


def test_there_are_profiles_for_every_drafting_family():
    profiles = [load_profile(i) for i in profile_ids()]
    assert len(profiles) >= 30
    methods = {p.method for p in profiles}
    assert methods >= {
        "ngram",
        "draft_model",
        "eagle",
        "eagle3",
        "mtp",
        "dflash",
        "dspark",
        "p_eagle",
    }


@pytest.mark.parametrize("profile_id", profile_ids())
def test_every_profile_is_sound(profile_id):
    profile = load_profile(profile_id)
    assert profile.id == profile_id
    for point in profile.points:
        assert len(point.source) > 10
        if point.per_position is not None:
            p = point.per_position
            assert all(0 <= x <= 1 for x in p)
            assert all(b <= a for a, b in pairwise(p))
        if point.length is not None:
            assert 1 <= point.length <= point.num_speculative_tokens + 1
        if profile.method == "ngram" and point.per_position is not None:
            assert point.proposal_rate is not None


@pytest.mark.parametrize(
    ("profile_id", "length", "k"),
    [
        # Lengths published beside the vectors (SpecDecode-Bench, k = 3 and k = 5).
        ("eagle/gsm8k", 2.6655, 5),
        ("eagle/sharegpt", 2.4784, 5),
        ("ngram/instructcoder", 2.0277, 3),
        ("ngram/gsm8k", 1.164, 3),
        # Dashboard: 3.5799 for Llama-3.1-8B with EAGLE-3 on HumanEval.
        ("eagle3/humaneval", 3.5799, 5),
    ],
)
def test_vectors_add_up_to_the_published_length(profile_id, length, k):
    point = load_profile(profile_id).points[0]
    over_all_steps = (point.proposal_rate or 1.0) * sum(point.per_position[:k])
    assert 1 + over_all_steps == pytest.approx(length, abs=0.002)


def test_the_published_temperature_pair():
    pair = load_profile("field/temperature-pair")
    assert at_temperature(pair, 0.0)[0].draft_acceptance_rate == 0.81
    assert at_temperature(pair, 1.0) == (pair.points[1], [])
    point, notes = at_temperature(pair, 0.5)
    assert point.draft_acceptance_rate == pytest.approx(0.595)
    assert "interpolated between temperature 0 and 1 for 0.5" in notes[0]


def test_outside_the_measured_temperatures_the_nearest_is_kept_with_a_warning():
    point, notes = at_temperature(load_profile("field/temperature-pair"), 1.3)
    assert point.draft_acceptance_rate == 0.38
    assert "measured at temperature 1 and is kept for 1.3" in notes[0]
    point, notes = at_temperature(load_profile("eagle/gsm8k"), 0.7)
    assert point.per_position[0] == 0.6667
    assert "kept for 0.7" in notes[0]


def _profile(*points: ProfilePoint) -> AcceptanceProfile:
    return AcceptanceProfile(id="x/y", method="eagle3", dataset="y", points=points)


def test_positions_are_interpolated_one_by_one():
    low = ProfilePoint(temperature=0.0, per_position=(0.8, 0.6, 0.4), counts=100, source="s")
    high = ProfilePoint(temperature=1.0, per_position=(0.4, 0.2), counts=50, source="s")
    point, _ = at_temperature(_profile(high, low), 0.25)
    assert point.per_position == pytest.approx((0.7, 0.5))
    assert point.counts == 50


def test_points_that_are_not_alike_are_not_mixed():
    low = ProfilePoint(temperature=0.0, per_position=(0.8,), source="s")
    high = ProfilePoint(temperature=1.0, length=1.5, num_speculative_tokens=3, source="s")
    point, notes = at_temperature(_profile(low, high), 0.9)
    assert point is high
    assert "not alike" in notes[0]


def test_unknown_profile_names_the_nearest():
    with pytest.raises(NotFoundError, match="nearest: eagle3/sharegpt"):
        load_profile("eagle3/share-gpt")


def test_own_profiles_win_and_are_checked(tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text(
        "id: eagle/gsm8k\nmethod: eagle\ndataset: mine\n"
        "points: [{temperature: 0, length: 2, num_speculative_tokens: 3, source: my traffic}]\n"
    )
    assert load_profile("eagle/gsm8k", search=(own,)).dataset == "mine"
    own.write_text("id: a/b\nmethod: eagle\ndataset: mine\npoints: [{temperature: 0, lenght: 2}]\n")
    with pytest.raises(InputError, match=r"mine\.yaml: unknown key 'points\.0\.lenght'"):
        load_profile("a/b", search=(own,))


def test_decay_by_method():
    assert decay("draft_model").value == 1.0
    assert decay("mtp").value < 1.0 < decay("ngram").value
    for method in ("eagle", "eagle3", "mtp", "dflash", "dspark", "p_eagle", "pard", "medusa"):
        d = decay(method)
        assert 0.7 < d.low <= d.value <= d.high < 1.2
    with pytest.raises(NotFoundError, match="unknown speculation method 'eagel'"):
        decay("eagel")
