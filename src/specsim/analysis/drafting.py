"""Which drafter drafts, whether it fits the target, and how many tokens it drafts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from specsim.analysis.notes import Notes
from specsim.analysis.size import drafter_size, model_size
from specsim.catalog.models import canonical_id, drafters_for, load_drafter
from specsim.errors import UsageError
from specsim.schema.model import DrafterKind, DrafterSpec, ModelSpec
from specsim.schema.scenario import Scenario
from specsim.schema.speculation import NO_DRAFTER

_STANDALONE = ("draft_model", "pard")


def choose_drafter(
    scenario: Scenario, model: ModelSpec, notes: Notes, search: Sequence[Path]
) -> DrafterSpec | ModelSpec | None:
    """Return the drafter that is named, or the catalog's only one of the method; None for n-gram.

    Raises
    ------
    UsageError
        None or several are known, or it cannot draft for this target.
    """
    speculation = scenario.speculation
    method = speculation.method
    if method in NO_DRAFTER:
        return None
    if speculation.drafter is None:
        drafter: DrafterSpec | ModelSpec = _default_drafter(method, model, search)
        notes.default(f"speculation.drafter = {drafter.id}")
        notes.warnings.append(
            f"no drafter was named: {drafter.id}, the catalog's {method} drafter for {model.id}, "
            "is used"
        )
    else:
        drafter = load_drafter(speculation.drafter, search=search)
    _check_drafter(method, drafter, model, notes)
    return drafter


def _default_drafter(method: str, model: ModelSpec, search: Sequence[Path]) -> DrafterSpec:
    found: list[DrafterSpec] = []
    if method not in _STANDALONE:
        found = drafters_for(model.id, cast(DrafterKind, method), search)
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        names = ", ".join(d.id for d in found)
        raise UsageError(
            f"method {method} on {model.id} has several drafters: {names}; name one with "
            "--spec-model"
        )
    if method == "mtp" and model.n_mtp_layers:
        from specsim.catalog.hf_config import mtp_drafter

        head = mtp_drafter(model)
        if head is not None:
            return head
    others = sorted({d.kind for d in drafters_for(model.id, search=search)})
    hint = f"it has drafters for {', '.join(others)}" if others else "none of any kind is known"
    raise UsageError(
        f"method {method} needs a drafter and the catalog has none for {model.id} ({hint}); "
        "name one with --spec-model NAME-or-config.json"
    )


def _check_drafter(
    method: str, drafter: DrafterSpec | ModelSpec, model: ModelSpec, notes: Notes
) -> None:
    standalone = isinstance(drafter, ModelSpec)
    if standalone != (method in _STANDALONE):
        kind = (
            f"a drafting head ({drafter.kind})"
            if isinstance(drafter, DrafterSpec)
            else "a stand-alone model"
        )
        wanted = "a stand-alone model" if method in _STANDALONE else "a drafting head"
        raise UsageError(f"method {method} needs {wanted}, and {drafter.id} is {kind}")
    if drafter.vocab_size != model.vocab_size:
        raise UsageError(
            f"vocabularies differ: {drafter.id} has {drafter.vocab_size} tokens, {model.id} has "
            f"{model.vocab_size}; drafts must be tokens of the target (see `specsim profiles list "
            "--drafters`)"
        )
    if isinstance(drafter, DrafterSpec):
        if drafter.kind != method:
            raise UsageError(
                f"method {method} was asked with {drafter.id}, which drafts by {drafter.kind}; "
                f"use --spec-method {drafter.kind}"
            )
        if drafter.target_hidden_size != model.hidden_size:
            raise UsageError(
                f"{drafter.id} reads hidden states of {drafter.target_hidden_size}, {model.id} "
                f"has {model.hidden_size}; it was trained for {drafter.target or 'another model'}"
            )
        trained_for = canonical_id(drafter.target) or drafter.target
        if trained_for and trained_for != (canonical_id(model.id) or model.id):
            notes.warnings.append(
                f"{drafter.id} was trained for {drafter.target}, not for {model.id}: its "
                "acceptance here is not what was measured there"
            )
        size = drafter_size(drafter)
    else:
        size = model_size(drafter)
    target = model_size(model)
    if size.total_params >= target.total_params:
        raise UsageError(
            f"the drafter {drafter.id} ({size.total_params / 1e9:.3g}B) is not smaller than the "
            f"target {model.id} ({target.total_params / 1e9:.3g}B); were they swapped?"
        )
    if drafter.confidence == "low":
        notes.warnings.append(f"the shapes of {drafter.id} are not certain: {drafter.source}")


def choose_num_speculative_tokens(
    scenario: Scenario,
    drafter: DrafterSpec | ModelSpec | None,
    notes: Notes,
    *,
    for_memory: bool = False,
) -> int:
    """Return k: as asked, else what the drafter was built for; for memory alone 1 will do.

    Raises
    ------
    UsageError
        The drafter cannot draft that many, or nothing says how many.
    """
    speculation = scenario.speculation
    method = speculation.method
    most = most_tokens(drafter) if isinstance(drafter, DrafterSpec) else None
    k = speculation.num_speculative_tokens
    if k is None:
        k = most if most is not None else None
        if k is None and method == "mtp" and isinstance(drafter, DrafterSpec):
            k = drafter.n_mtp_layers
        if k is None and for_memory:
            k = 1
        if k is None:
            raise UsageError(
                f"method {method} needs num_speculative_tokens; give --spec-tokens, 3 to 5 are "
                "common"
            )
        notes.default(f"speculation.num_speculative_tokens = {k} (the drafter's)")
    if most is not None and drafter is not None and k > most:
        raise UsageError(f"{drafter.id} drafts at most {most} tokens per step, got {k}")
    if method == "mtp" and isinstance(drafter, DrafterSpec):
        layers = drafter.n_mtp_layers
        if k > layers and k % layers:
            raise UsageError(
                f"mtp with {layers} layers drafts a multiple of {layers} tokens beyond them, "
                f"got {k}"
            )
        if k > layers:
            notes.warnings.append(
                f"k = {k} runs the same MTP layer {k // layers} times: acceptance falls faster "
                "with the position than a geometric law"
            )
    return k


def most_tokens(drafter: DrafterSpec) -> int | None:
    """Return the longest draft of a head, if its shape limits it.

    One token of a DFlash block is the known one it starts from; Medusa has a head per token.
    """
    if drafter.kind == "medusa":
        return drafter.n_medusa_heads
    if drafter.block_size is None:
        return None
    return drafter.block_size - 1 if drafter.kind == "dflash" else drafter.block_size
