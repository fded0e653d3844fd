"""All that can draft for a target, and what is known of its acceptance there."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from specsim.analysis.drafting import most_tokens
from specsim.analysis.size import model_size
from specsim.catalog.acceptance import load_profiles
from specsim.catalog.models import (
    canonical_id,
    drafters_for,
    load_drafter,
    load_model,
    model_ids,
)
from specsim.errors import SpecsimError
from specsim.schema.base import WeightDtype, parse
from specsim.schema.model import DrafterSpec, ModelSpec
from specsim.schema.scenario import Scenario
from specsim.schema.speculation import NO_DRAFTER, AcceptanceProfile, Speculation

Basis = Literal["measured", "yours", "carried", "edited", "missing"]
TEXTS: dict[str, tuple[str, ...]] = {
    "chat": ("chat", "sharegpt", "mt-bench", "alpaca"),
    "code": ("humaneval", "coder", "mbpp", "code", "coding"),
    "RAG": ("retrieved", "qa"),
    "summarisation": ("summar", "cnn"),
}
"""Words by which the data set of a measured profile is known as a kind of text."""
_OF_THE_METHOD = ("proposal_rate", "counts", "spread")
_MOST_DRAFT_MODELS = 4
_IDEAL_SHARE = 0.1
"""Of the target's size, for a draft model: people say 1:8 to 1:12."""
_LARGEST_SHARE = 0.5
_SIZE_IN_NAME = re.compile(r"-\d+(\.\d+)?[bm](?![a-z]).*$")
_LETTERS = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Way:
    """One way of drafting for a target, and what is known of its acceptance here."""

    method: str
    """Speculation method."""
    drafter: str | None
    """Catalog id of the drafter; null: it has none, or the target's own."""
    basis: Basis
    """Whose acceptance is used; carried: the scenario's own, given for another way."""
    source: str
    """Where the acceptance comes from."""
    scenario: Scenario | None
    """The deployment with it; null where it cannot be written."""
    reason: str
    """Why it cannot be predicted; '' where it can."""

    @property
    def label(self) -> str:
        """What it is called: the drafter says its method, but for a model of its own."""
        if self.drafter is None:
            return self.method
        if self.method in ("draft_model", "pard"):
            return f"{self.drafter} ({self.method.replace('_', ' ')})"
        return self.drafter


def ways(
    scenario: Scenario,
    *,
    num_speculative_tokens: int,
    text: str = "",
    lengths: Mapping[str, float] | None = None,
    draft_tensor_parallel_size: int | None = None,
    drafter_weight_dtype: WeightDtype | None = None,
    counted: bool = False,
    search: Sequence[Path] = (),
) -> tuple[Way, ...]:
    """Return all that can draft for a target: look-up, trained heads, smaller models.

    Parameters
    ----------
    scenario : Scenario
        Its own method keeps the acceptance that is given with it.
    num_speculative_tokens : int
        Of every way, at most what its drafter can. [tokens]
    text : str
        Kind of text (`TEXTS`) whose measurements are preferred.
    lengths : mapping, optional
        Acceptance lengths by label that override all others. [tokens]
    draft_tensor_parallel_size, drafter_weight_dtype
        Of every drafter; absent: the scenario's.
    counted : bool
        Where the scenario gives no acceptance, a calibration that will be laid over it counted
        that of its own method.

    Notes
    -----
    Acceptance is, in this order: an override; for the scenario's own method what it gives; a
    bundled measurement of the method on this target; what the scenario gives. Never a guess.
    """
    model = load_model(scenario.target.model, search=search)
    measured = _measured(model, search)
    found = []
    for method, drafter in _pairs(scenario, model, measured, search):
        settings: dict[str, Any] = {"method": method}
        if drafter is not None:
            settings["drafter"] = drafter
        if method not in NO_DRAFTER:
            given = scenario.speculation
            settings["draft_tensor_parallel_size"] = (
                draft_tensor_parallel_size or given.draft_tensor_parallel_size
            )
            settings["drafter_weight_dtype"] = drafter_weight_dtype or given.drafter_weight_dtype
        found.append(
            _way(
                scenario,
                measured,
                settings,
                num_speculative_tokens,
                text,
                lengths or {},
                counted,
                search,
            )
        )
    return tuple(found)


def methods_without_drafter(found: Sequence[Way], methods: Sequence[str]) -> tuple[str, ...]:
    """Return the methods for which no drafter of the target is known."""
    known = {way.method for way in found}
    return tuple(m for m in methods if m not in known and m != "none")


def _pairs(
    scenario: Scenario,
    model: ModelSpec,
    measured: Sequence[AcceptanceProfile],
    search: Sequence[Path],
) -> list[tuple[str, str | None]]:
    """Return methods with their drafters: the scenario's own too, where no catalog has it."""
    pairs: list[tuple[str, str | None]] = [("ngram", None), ("suffix", None)]
    heads = drafters_for(model.id, search=search)
    pairs += [(spec.kind, spec.id) for spec in heads]
    if model.n_mtp_layers and not any(spec.kind == "mtp" for spec in heads):
        pairs.append(("mtp", None))
    pairs += [("draft_model", name) for name in _draft_models(model, measured, search)]
    own = scenario.speculation
    if own.method != "none" and not any(_is_own(own, m, d) for m, d in pairs):
        pairs.append((own.method, own.drafter))
    return pairs


def _is_own(own: Speculation, method: str, drafter: str | None) -> bool:
    """Tell whether a way is the scenario's; one that names no drafter means any of its method."""
    return method == own.method and (own.drafter is None or _same(own.drafter, drafter))


def _same(one: str, other: str | None) -> bool:
    return other is not None and (canonical_id(one) or one) == (canonical_id(other) or other)


def _draft_models(
    model: ModelSpec, profiles: Sequence[AcceptanceProfile], search: Sequence[Path]
) -> list[str]:
    """Return smaller models that may draft: nearest to a tenth of the size first.

    Those of the target's family that share its vocabulary, those of its generation even where
    they do not (the reason is worth saying), and those measured with it.
    """
    here = canonical_id(model.id) or model.id
    measured = {
        canonical_id(p.drafter) or p.drafter
        for p in profiles
        if p.method == "draft_model" and p.drafter is not None
    }
    size = model_size(model).total_params
    ranked = []
    for name in model_ids(search):
        alike = name in measured or _family(name, here)
        if name == here or not alike:
            continue
        spec = load_model(name, search=search)
        share = model_size(spec).total_params / size
        generation = _SIZE_IN_NAME.sub("", name) == _SIZE_IN_NAME.sub("", here)
        if share <= _LARGEST_SHARE and (generation or spec.vocab_size == model.vocab_size):
            away = abs(math.log(share / _IDEAL_SHARE))
            ranked.append((spec.vocab_size != model.vocab_size, name not in measured, away, name))
    return [name for *_, name in sorted(ranked)[:_MOST_DRAFT_MODELS]]


def _family(one: str, other: str) -> bool:
    """Tell names of a family by their letters: llama-3.2-1b, tinyllama-1.1b."""
    found = (_LETTERS.match(one), _LETTERS.match(other))
    if found[0] is None or found[1] is None:
        return False
    a, b = found[0][0], found[1][0]
    return a.endswith(b) or b.endswith(a)


def _way(
    scenario: Scenario,
    measured: Sequence[AcceptanceProfile],
    settings: dict[str, Any],
    k: int,
    text: str,
    lengths: Mapping[str, float],
    counted: bool,
    search: Sequence[Path],
) -> Way:
    own, method, drafter = scenario.speculation, settings["method"], settings.get("drafter")
    way = Way(method, drafter, "missing", "", None, "")
    mine = own.method != "none" and _is_own(own, method, drafter)
    kept = {"tree", "adaptive_verification"} if mine else set()
    settings |= own.model_dump(exclude_unset=True, include=kept)
    try:
        settings["num_speculative_tokens"] = k = _drafted(drafter, k, search)
        given = None if own.acceptance is None else own.acceptance.model_dump(exclude_none=True)
        profile = _profile(method, drafter, measured, text)
        if way.label in lengths:
            way = replace(way, basis="edited", source="the table")
            settings["acceptance"] = {"length": lengths[way.label]}
        elif profile is not None and not mine:
            way = replace(way, basis="measured", source=f"{profile.id}: {profile.dataset}")
            settings["acceptance"] = {"profile": profile.id}
        elif given is not None:
            source = "given" if mine else f"as given for {own.method}: not known of {method}"
            way = replace(way, basis="yours" if mine else "carried", source=source)
            settings["acceptance"] = _carried(given, own.num_speculative_tokens, k, mine)
        elif mine and counted:
            way = replace(way, basis="measured", source="counted in the calibration's runs")
        else:
            reason = (
                f"no measurement of {method} on this target is bundled and none is given: write an "
                "acceptance length into the table"
            )
            return replace(way, reason=reason)
        speculation = parse(Speculation, settings, what=way.label)
    except SpecsimError as problem:
        return replace(way, reason=str(problem))
    return replace(way, scenario=scenario.model_copy(update={"speculation": speculation}))


def _drafted(drafter: str | None, k: int, search: Sequence[Path]) -> int:
    """Return the draft tokens of a way: at most what its shape allows, whole rounds of MTP."""
    spec = None if drafter is None else load_drafter(drafter, search=search)
    if not isinstance(spec, DrafterSpec):
        return k
    k = min(k, most_tokens(spec) or k)
    if spec.kind == "mtp" and k > spec.n_mtp_layers:
        k -= k % spec.n_mtp_layers
    return k


def _carried(
    given: dict[str, Any], measured_at_k: int | None, k: int, mine: bool
) -> dict[str, Any]:
    """Return the scenario's acceptance for another method, or another number of tokens."""
    if measured_at_k not in (None, k) and ("length" in given or "draft_acceptance_rate" in given):
        given = {"measured_at_k": measured_at_k, **given}
    # How often a look-up finds a match, and how much requests differ, belong to the method.
    return given if mine else {n: v for n, v in given.items() if n not in _OF_THE_METHOD}


def _measured(model: ModelSpec, search: Sequence[Path]) -> list[AcceptanceProfile]:
    """Return what was measured on a target."""
    here = canonical_id(model.id) or model.id
    found = load_profiles(search=search).values()
    return [p for p in found if p.target and (canonical_id(p.target) or p.target) == here]


def _profile(
    method: str, drafter: str | None, measured: Sequence[AcceptanceProfile], text: str
) -> AcceptanceProfile | None:
    """Return the measurement nearest to a kind of text: this drafter's, or one that names none.

    Where no data set is of the kind, chat stands in: it is the broadest.
    """
    fitting = [
        p
        for p in measured
        if p.method == method
        and (p.drafter is None or drafter is None or _same(p.drafter, drafter))
    ]

    def far(profile: AcceptanceProfile) -> tuple[bool, bool, bool, str]:
        said = f"{profile.id} {profile.dataset}".lower()
        kinds = [not any(word in said for word in TEXTS.get(kind, ())) for kind in (text, "chat")]
        return kinds[0], kinds[1], profile.drafter is None, profile.id

    return min(fitting, key=far, default=None)
