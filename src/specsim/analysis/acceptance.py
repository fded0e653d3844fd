"""The acceptance of a scenario, whichever way it was given, at any k and with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specsim.analysis.constants import Constants
from specsim.catalog.acceptance import at_temperature, decay, load_profile, load_profiles
from specsim.catalog.general import load_general
from specsim.catalog.models import canonical_id
from specsim.errors import UsageError
from specsim.physics import acceptance as law
from specsim.physics.cost import Num
from specsim.schema.base import Range
from specsim.schema.engine import EngineConstants
from specsim.schema.results import AcceptanceResult
from specsim.schema.scenario import Scenario
from specsim.schema.speculation import ProfilePoint, Tree

_FILLED_ON_MATCH = ("ngram", "suffix")
_MOST_SPREAD = 1.5
"""Relative sampling error beyond which a log-normal says no more than that nothing is known."""


@dataclass(frozen=True)
class AcceptanceModel:
    """Acceptance as P_1..P_k over the steps that draft, and how often steps draft.

    Exactly one of `known`, `length` and `rate` is set.
    """

    k: int
    """Draft tokens per step of the scenario; the depth of a tree."""
    known: tuple[float, ...] | None
    """Measured P, as far as measured."""
    length: float | None
    """Tokens per drafting step, at `length_k`."""
    length_k: int
    rate: float | None
    """Constant per-token rate."""
    decay: Range
    proposal_rate: float
    counts: int | None
    tree: Tree | None
    fills_without_match: bool
    """The engine verifies filler drafts where nothing matched: every step verifies k + 1."""
    source: str
    warnings: tuple[str, ...]

    def positions(self, k: int, constants: Constants | None = None) -> Num:
        """Return P_1..P_k over drafting steps, samples on leading axes, position on the last."""
        constants = constants or Constants()
        d = constants.value(self.decay, "decay")
        if self.known is not None:
            p = law.extend(self.known, decay=d, k=k)
        elif self.length is not None:
            first = law.first_rate_from_length(target_length=self.length, decay=d, k=self.length_k)
            p = law.positions(first_rate=first, decay=d, k=k)
        else:
            rate = float(self.rate or 0.0)
            if self.tree is not None:
                exponent = constants.value(load_general().tree_coverage_exponent.range, "tree")
                rate = law.tree_first_rate(
                    first_rate=rate,
                    branches_per_level=(self.tree.num_draft_tokens - 1) / self.k,
                    coverage_exponent=exponent,
                )
            p = law.positions(first_rate=rate, decay=np.ones_like(np.asarray(rate)), k=k)
        return self._jittered(p, constants)

    def _jittered(self, p: Num, constants: Constants) -> Num:
        """Scale accepted tokens by their sampling error: counted where counts are known."""
        if constants.n_samples == 0:
            return p
        accepted = float(np.mean(np.sum(p, axis=-1)))
        if accepted <= 0:
            return p
        if self.counts is not None:
            # Accepted tokens per draft lie in 0..k; the variance of one draft is at most that of a
            # binomial with the same mean spread over its ends.
            k = p.shape[-1]
            sampling = np.sqrt(accepted * max(k - accepted, 0.0) / self.counts) / accepted
            relative = min(float(sampling), _MOST_SPREAD)
        else:
            relative = load_general().default_acceptance_sd.value
        factor = np.asarray(constants.factor(relative, "acceptance"))[..., None]
        return np.minimum(1.0, p * factor)

    def tokens_per_step(self, p: Num) -> Num:
        """Return tokens per target step over all steps, from P over drafting steps."""
        return law.over_all_steps(drafting_length=law.length(p), proposal_rate=self.proposal_rate)

    def verify_tokens(self, k: Num) -> Num:
        """Return rows verified per sequence and step, on average."""
        if self.tree is not None:
            return float(self.tree.num_draft_tokens)
        return 1.0 + k * (1.0 if self.fills_without_match else self.proposal_rate)

    def drafted_tokens(self) -> float:
        """Return tokens drafted per drafting step: what accepted / drafted divides by."""
        return float(self.tree.num_draft_tokens - 1 if self.tree is not None else self.k)

    def result(self) -> AcceptanceResult:
        """Return the acceptance under each of its names."""
        p = self.positions(self.k)
        accepted = float(law.length(p)) - 1.0
        return AcceptanceResult(
            acceptance_length=float(self.tokens_per_step(p)),
            acceptance_rate=float(law.conditional_rate(p)),
            draft_acceptance_rate=accepted / self.drafted_tokens(),
            per_position=tuple(float(x) for x in p),
            source=self.source,
        )


def acceptance_model(
    scenario: Scenario, *, k: int, engine: EngineConstants, search: Sequence[Path] = ()
) -> AcceptanceModel:
    """Return the acceptance model of a scenario.

    Raises
    ------
    UsageError
        None was given (nothing is assumed in silence), or it is impossible at this k.
    """
    speculation = scenario.speculation
    given = speculation.acceptance
    if given is None:
        fitting = _profiles_for(scenario, search)
        some = f"; bundled profiles near it: {', '.join(fitting[:4])}" if fitting else ""
        raise UsageError(
            "acceptance is not given, and it decides the answer: use --acceptance-length, "
            "--acceptance-rate, --draft-acceptance-rate, --acceptance-per-position or "
            f"--acceptance-profile{some}"
        )
    method = speculation.method
    proposal = given.proposal_rate if given.proposal_rate is not None else 1.0
    if given.proposal_rate is not None and method not in _FILLED_ON_MATCH:
        raise UsageError(
            f"proposal_rate belongs to ngram and suffix, which may find no match; {method} always "
            "drafts"
        )
    known, length, rate, warnings = given.per_position, None, given.rate, []
    counts, source, length_k = given.counts, "given", k
    if given.measured_at_k is not None and speculation.tree is None:
        length_k = given.measured_at_k
        if length_k != k and (given.length or given.draft_acceptance_rate) is not None:
            source = f"given at k = {length_k}, carried to {k}"
    drafted = speculation.tree.num_draft_tokens - 1 if speculation.tree is not None else length_k
    if given.length is not None:
        # The length counts all steps, the law speaks of steps that draft.
        length = 1.0 + (given.length - 1.0) / proposal
    elif given.draft_acceptance_rate is not None:
        length = 1.0 + given.draft_acceptance_rate * drafted
    elif given.profile is not None:
        profile = load_profile(given.profile, search=search)
        point, notes = at_temperature(profile, scenario.workload.temperature)
        warnings += notes
        measured_on = profile.target and (canonical_id(profile.target) or profile.target)
        here = canonical_id(scenario.target.model) or scenario.target.model
        if measured_on and measured_on != here:
            warnings.append(
                f"acceptance profile {profile.id} was measured on {profile.target}, not on {here}"
            )
        if given.proposal_rate is None and point.proposal_rate is not None:
            proposal = point.proposal_rate
        known, length, length_k = _from_profile(point, k)
        counts = point.counts if counts is None else counts
        source = f"profile {profile.id}: {point.source}"
    if length is not None and length > length_k + 1 + 1e-9:
        raise UsageError(
            f"acceptance gives {length:.3g} tokens per drafting step, above {length_k} draft "
            "tokens + 1, which no step can yield; check its k, its unit (percent or fraction) and "
            "proposal_rate"
        )
    if length is not None and length_k != k:
        warnings.append(
            f"acceptance is known at k = {length_k} ({length:.3g} tokens per drafting step) and "
            f"carried to {k} by the {method} decay: measure it at {k} for a narrower band"
        )
    if known is not None and len(known) < k:
        warnings.append(
            f"acceptance is known for {len(known)} positions and carried on to {k} by the "
            f"{method} decay: give all {k} for a narrower band"
        )
    return AcceptanceModel(
        k=k,
        known=known,
        length=length,
        length_k=length_k,
        rate=rate,
        decay=decay(method),
        proposal_rate=proposal,
        counts=counts,
        tree=speculation.tree,
        fills_without_match=engine.ngram_always_drafts and method == "ngram",
        source=source,
        warnings=tuple(warnings),
    )


def _profiles_for(scenario: Scenario, search: Sequence[Path]) -> list[str]:
    """Return the profiles of the method: this model's first, then general ones, then others'."""
    method, model = scenario.speculation.method, scenario.target.model
    here = canonical_id(model) or model
    ranked = []
    for profile_id, profile in load_profiles(search=search).items():
        if profile.method != method:
            continue
        target = profile.target and (canonical_id(profile.target) or profile.target)
        near = 0 if target == here else 1 if profile_id.startswith(f"{method}/") else 2
        ranked.append((near, profile_id))
    return [profile_id for _, profile_id in sorted(ranked)]


def _from_profile(
    point: ProfilePoint, k: int
) -> tuple[tuple[float, ...] | None, float | None, int]:
    if point.per_position is not None:
        return point.per_position, None, k
    measured_k = point.num_speculative_tokens or k
    if point.length is not None:
        return None, point.length, measured_k
    rate = float(point.draft_acceptance_rate or 0.0)
    return None, 1.0 + rate * measured_k, measured_k
