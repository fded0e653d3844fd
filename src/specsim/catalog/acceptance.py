"""Bundled measurements of acceptance, and how they are read at another temperature."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from specsim.catalog.files import data_dir, read_mapping, read_shipped, user_files
from specsim.errors import InputError, not_found
from specsim.schema.base import Basis, Range, parse
from specsim.schema.speculation import AcceptanceProfile, ProfilePoint


class ByMethod(Range):
    """A figure of one drafting method."""

    basis: Basis
    source: str


def _profiles_in(data: dict[str, Any], what: str) -> list[AcceptanceProfile]:
    records = data["profiles"] if "profiles" in data else [data]
    if not isinstance(records, list):
        raise InputError(f"{what}: profiles: expected a list of acceptance profiles")
    return [parse(AcceptanceProfile, record, what=what) for record in records]


@lru_cache(maxsize=1)
def _shipped() -> dict[str, AcceptanceProfile]:
    paths = sorted(data_dir("acceptance").glob("*.yaml"))
    found = [p for path in paths for p in _profiles_in(read_shipped(path), path.name)]
    return {profile.id: profile for profile in found}


def _is_acceptance(data: dict[str, Any]) -> bool:
    """Tell acceptance files from the models, drafters and devices in the user's catalog."""
    return "profiles" in data or {"points", "dataset"} <= set(data)


def _own(search: Sequence[Path]) -> dict[str, AcceptanceProfile]:
    profiles: dict[str, AcceptanceProfile] = {}
    for path in user_files(search):
        data = read_mapping(path)
        if _is_acceptance(data):
            for profile in _profiles_in(data, str(path)):
                profiles.setdefault(profile.id, profile)
    return profiles


def load_profiles(*, search: Sequence[Path] = ()) -> dict[str, AcceptanceProfile]:
    """Return all acceptance profiles by id, sorted; the user's own win over the shipped."""
    return dict(sorted({**_shipped(), **_own(search)}.items()))


def profile_ids(*, search: Sequence[Path] = ()) -> list[str]:
    """Return the ids of all acceptance profiles, the user's own included."""
    return list(load_profiles(search=search))


def load_profile(profile_id: str, *, search: Sequence[Path] = ()) -> AcceptanceProfile:
    """Return an acceptance profile by id; the user's own win over the shipped."""
    known = load_profiles(search=search)
    if profile_id not in known:
        raise not_found(
            "acceptance profile", profile_id, known, "specsim profiles list --acceptance"
        )
    return known[profile_id]


@lru_cache(maxsize=1)
def _decays() -> dict[str, ByMethod]:
    path = data_dir("decay.yaml")
    return {
        name: parse(ByMethod, data, what=path.name) for name, data in read_shipped(path).items()
    }


def decay(method: str) -> Range:
    """Return d of a_j = a_1 d^(j-1), the decay by position (no unit), for a method."""
    if method not in _decays():
        raise not_found("speculation method", method, _decays(), "specsim predict --help")
    return _decays()[method]


def at_temperature(
    profile: AcceptanceProfile, temperature: float
) -> tuple[ProfilePoint, list[str]]:
    """Return the profile's acceptance at a sampling temperature, and what was assumed for it.

    Parameters
    ----------
    temperature : float
        Sampling temperature of the workload. [1]

    Notes
    -----
    Measured at this temperature: that point. Between two: each figure is interpolated linearly.
    Outside, or with one temperature only: the nearest point, unchanged. Acceptance falls as the
    temperature rises, by a law that is not known well enough to extrapolate with.
    """
    points = sorted(profile.points, key=lambda p: p.temperature)
    nearest = min(points, key=lambda p: abs(p.temperature - temperature))
    if nearest.temperature == temperature:
        return nearest, []
    below = [p for p in points if p.temperature < temperature]
    above = [p for p in points if p.temperature > temperature]
    if not below or not above:
        return nearest, [
            f"acceptance profile {profile.id} was measured at temperature "
            f"{nearest.temperature:g} and is kept for {temperature:g}; acceptance usually falls "
            "as temperature rises"
        ]
    return _between(profile, below[-1], above[0], temperature)


def _between(
    profile: AcceptanceProfile, low: ProfilePoint, high: ProfilePoint, temperature: float
) -> tuple[ProfilePoint, list[str]]:
    weight = (temperature - low.temperature) / (high.temperature - low.temperature)

    def mix(a: float, b: float) -> float:
        return (1.0 - weight) * a + weight * b

    figures: dict[str, Any] = {}
    if low.per_position is not None and high.per_position is not None:
        shared = zip(low.per_position, high.per_position, strict=False)
        figures["per_position"] = tuple(mix(a, b) for a, b in shared)
    elif low.num_speculative_tokens == high.num_speculative_tokens:
        for name in ("length", "draft_acceptance_rate"):
            a, b = getattr(low, name), getattr(high, name)
            if a is not None and b is not None:
                figures[name] = mix(a, b)
    if not figures:
        kept = low if weight < 0.5 else high
        return kept, [
            f"acceptance profile {profile.id}: its points at temperature {low.temperature:g} and "
            f"{high.temperature:g} are not alike; the one at {kept.temperature:g} is kept"
        ]
    rates = [p.proposal_rate for p in (low, high) if p.proposal_rate is not None]
    counts = [p.counts for p in (low, high) if p.counts is not None]
    point = ProfilePoint(
        temperature=temperature,
        num_speculative_tokens=low.num_speculative_tokens,
        proposal_rate=mix(rates[0], rates[1]) if len(rates) == 2 else None,
        counts=min(counts) if len(counts) == 2 else None,
        source=f"interpolated: {low.source}; {high.source}",
        **figures,
    )
    return point, [
        f"acceptance profile {profile.id}: interpolated between temperature "
        f"{low.temperature:g} and {high.temperature:g} for {temperature:g}"
    ]


@lru_cache(maxsize=1)
def _spreads() -> dict[str, ByMethod]:
    path = data_dir("spread.yaml")
    return {
        name: parse(ByMethod, data, what=path.name) for name, data in read_shipped(path).items()
    }


def spread(method: str) -> Range:
    """Return how much requests differ: sd of the log-odds of the per-token rate, for a method."""
    if method not in _spreads():
        raise not_found("speculation method", method, _spreads(), "specsim predict --help")
    return _spreads()[method]
