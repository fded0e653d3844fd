"""Drafting heads: EAGLE, EAGLE-3, P-EAGLE, Medusa, DFlash, DSpark, and MTP layers of a target."""

from __future__ import annotations

import re
from collections.abc import Mapping

from specsim.catalog.hf.attention import SoftmaxReader, layer_kinds
from specsim.catalog.hf.families import Family, family_of
from specsim.catalog.hf.feedforward import feed_forward
from specsim.catalog.hf.fields import MAX_LAYERS, Fields
from specsim.catalog.hf.quantization import Formats, plain_dtype, stored_formats
from specsim.schema.model import (
    Attention,
    CompressedAttention,
    DrafterKind,
    DrafterSpec,
    FullAttention,
    LayerGroup,
    ModelSpec,
)

_SPECULATORS: dict[str, DrafterKind] = {
    "eagle": "eagle",
    "eagle3": "eagle3",
    "peagle": "p_eagle",
    "dflash": "dflash",
    "dspark": "dspark",
}


def drafter_kind(f: Fields) -> DrafterKind | None:
    """Return the kind of drafting head that a config describes, or None for a model.

    An EAGLE-1 head looks like a Llama of one layer: only its class name tells.
    """
    if f.has("speculators_model_type"):
        name = f.text("speculators_model_type")
        if name not in _SPECULATORS:
            raise f.bad("speculators_model_type", f"one of {', '.join(_SPECULATORS)}")
        return _SPECULATORS[name]
    found = f.get("architectures")
    values = found[1] if found is not None and isinstance(found[1], list) else []
    first = str(values[0]).lower() if values else ""
    model_type = f.text("model_type").lower()
    if model_type == "medusa" or f.has("medusa_num_heads") or first.startswith("medusa"):
        return "medusa"
    if model_type == "eagle":
        method = f.text("method", default="eagle")
        return "eagle3" if method == "eagle3" or "eagle3" in first else "eagle"
    if "dspark" in first:
        return "dspark"
    if "dflash" in first or f.has("dflash_config"):
        return "dflash"
    if "peagle" in first or (f.flag("parallel_drafting") and "eagle" in first):
        return "p_eagle"
    if "eagle3" in first or f.maybe("draft_vocab_size") is not None or f.has("eagle_config"):
        return "eagle3"
    if "eagle" in first:
        return "eagle"
    return None


def read_drafter(root: Fields, kind: DrafterKind, name: str) -> DrafterSpec:
    """Read a drafting head of the kind that `drafter_kind` found."""
    target = _target(root)
    if kind == "medusa":
        return _medusa(root, name, target)
    f = root.child("transformer_layer_config", "model") or root
    hidden = f.integer("hidden_size", high=10**6)
    target_hidden = root.maybe("target_hidden_size") or f.maybe("target_hidden_size") or hidden
    vocab = f.integer("vocab_size")
    draft_vocab = root.maybe("draft_vocab_size") or f.maybe("draft_vocab_size")
    n_layers = f.integer("num_hidden_layers", default=1, high=MAX_LAYERS)
    layers = _layers(f, kind, hidden_size=hidden, n_layers=n_layers)
    formats = _formats(root, f)
    tapped = _tapped_layers(root, f)
    fc_in = {"eagle": 2 * hidden, "eagle3": 3 * target_hidden, "p_eagle": 3 * target_hidden}.get(
        kind
    )
    markov = root.maybe("markov_rank")
    # EAGLE-1, DFlash and MTP heads use the target's embedding and head; EAGLE-3 has its own head.
    own_head = kind in ("eagle3", "p_eagle") or (kind == "dspark" and draft_vocab is not None)
    f.mark("tie_word_embeddings", "eagle_aux_hidden_state_layer_ids", "has_own_embed_tokens")
    if kind in ("dflash", "dspark"):
        for where in (root, f):
            extra = where.child("dflash_config")
            convolution = where.maybe("conv_kernel_size") or (
                extra.maybe("conv_kernel_size") if extra is not None else None
            )
            if convolution is not None:
                raise where.unsupported("conv_kernel_size", "the convolutions of DFlash-2")
    block_size = _block_size(root, f)
    f.refuse_unread(strict=False)
    return DrafterSpec(
        id=name,
        kind=kind,
        target=target,
        hidden_size=hidden,
        target_hidden_size=target_hidden,
        vocab_size=vocab,
        draft_vocab_size=draft_vocab if draft_vocab != vocab else None,
        layers=layers,
        fc_in_features=fc_in or (tapped or 0) * target_hidden,
        own_head=own_head,
        block_size=block_size,
        markov_rank=markov,
        max_position_embeddings=f.maybe("max_position_embeddings"),
        weight_dtype=formats.weight,
        expert_dtype=formats.expert,
        source="config.json",
        note=formats.note,
    )


def _target(f: Fields) -> str:
    """Return the name of the model that the head was trained for, or an empty string."""
    config = f.child("speculators_config")
    verifier = config.child("verifier") if config is not None else None
    if verifier is not None:
        return verifier.text("name_or_path")
    return f.text("base_model_name_or_path", "target_model", "target_model_name_or_path",
                  "verifier_name_or_path")  # fmt: skip


def _medusa(f: Fields, name: str, target: str) -> DrafterSpec:
    if "hidden_size" not in f.data:
        # FasterDecoding's own files hold only the number of heads and the base model's name.
        raise f.missing("hidden_size")
    layers = f.integer("medusa_num_layers", "num_hidden_layers", default=1)
    if layers != 1:
        raise f.unsupported("medusa_num_layers", "only Medusa heads of one block are modelled")
    hidden, vocab = f.integer("hidden_size", high=10**6), f.integer("vocab_size")
    return DrafterSpec(
        id=name,
        kind="medusa",
        target=target,
        hidden_size=hidden,
        target_hidden_size=hidden,
        vocab_size=vocab,
        draft_vocab_size=f.maybe("truncated_vocab_size"),
        n_medusa_heads=f.integer("medusa_num_heads", "num_heads", default=5, high=MAX_LAYERS),
        own_head=True,
        weight_dtype=plain_dtype(f),
        source="config.json",
    )


def _layers(
    f: Fields, kind: DrafterKind, *, hidden_size: int, n_layers: int
) -> tuple[LayerGroup, ...]:
    names = [f.text("model_type", default="llama")]
    found = f.get("architectures")
    if found is not None and isinstance(found[1], list):
        names += [re.sub(r"(?i)eagle3?|dflash|dspark|draft|peagle", "", str(v)) for v in found[1]]
    family, key = family_of(f, [n for n in names if n])
    if family is None:
        family, key = Family(), "llama"
    kinds = layer_kinds(f, family, key, n_layers)
    softmax = SoftmaxReader(f, family, key, hidden_size=hidden_size, n_layers=n_layers)
    forward = feed_forward(f, family, key, hidden_size=hidden_size, n_layers=n_layers)
    # EAGLE-1 drops the first norm; EAGLE-3 norms embedding and features apart.
    norms = {"eagle": 1, "eagle3": 3, "p_eagle": 3}.get(kind, 2)
    counts: dict[tuple[Attention, object, object, int], LayerGroup] = {}
    for i, (mixer, ff) in enumerate(zip(kinds, forward, strict=True)):
        if mixer not in ("full", "sliding", "chunked"):
            raise f.unsupported("layer_types", f"{mixer} layers in a drafter are not modelled")
        attention: Attention = softmax.layer(i, mixer)
        if i == 0 and kind in ("eagle3", "p_eagle") and isinstance(attention, FullAttention):
            attention = attention.model_copy(update={"input_multiplier": 2})
        row = (attention, ff.mlp, ff.moe, norms if i == 0 or kind != "p_eagle" else 2)
        before = counts.pop(row, None)
        counts[row] = LayerGroup(
            count=1 + (before.count if before is not None else 0),
            attention=attention,
            mlp=ff.mlp,
            moe=ff.moe,
            norms=row[3],
        )
    return tuple(counts.values())


def _formats(root: Fields, f: Fields) -> Formats:
    plain = plain_dtype(f, root)
    found = root.child("quantization_config") or f.child("quantization_config")
    if found is None or not found.data:
        return Formats(plain)
    return stored_formats(found, plain, has_experts=False)


def _tapped_layers(root: Fields, f: Fields) -> int | None:
    """Return how many of the target's layers feed the head."""
    for where in (root, f):
        nested = where.child("dflash_config")
        for place in (where, nested):
            if place is None:
                continue
            ids = place.integers("target_layer_ids", "aux_hidden_state_layer_ids",
                                 "eagle_aux_hidden_state_layer_ids")  # fmt: skip
            if ids:
                return len(ids)
            count = place.maybe("num_target_layers_used", "num_aux_layers", high=MAX_LAYERS)
            if count is not None:
                return count
    return None


def _block_size(root: Fields, f: Fields) -> int | None:
    for where in (root, f, root.child("dflash_config"), f.child("dflash_config")):
        if where is not None:
            size = where.maybe("block_size", high=4096)
            if size is not None:
                return size
    methods = root.child("speculators_config")
    listed = methods.listing("proposal_methods") if methods is not None else None
    if (
        listed
        and isinstance(listed[0], Mapping)
        and root.text("speculators_model_type") == "peagle"
    ):
        one = Fields(listed[0], what=root.what, path="speculators_config.proposal_methods[0].")
        return one.maybe("speculative_tokens", high=4096)
    return None


def mtp_drafter(spec: ModelSpec) -> DrafterSpec | None:
    """Return the MTP head inside a target's checkpoint, or None if it has none.

    One layer like the target's last one with a cache, behind a projection of embedding and hidden
    state from 2H to H; embedding and head are the target's (DeepSeek-V3, arXiv 2412.19437, section
    2.2). A linear-attention hybrid takes a full-attention layer, DeepSeek-V4 one with only its
    window, and an indexer is always complete (vLLM 0.32, models/deepseek_v2.py).
    """
    if spec.n_mtp_layers == 0:
        return None
    candidates = [
        group for group in spec.layers
        if group.attention is not None and group.attention.kind != "linear"
        and (group.mlp is not None or group.moe is not None)
    ]  # fmt: skip
    if not candidates:
        return None
    group = candidates[-1]
    attention = group.attention
    windowed = [
        g for g in candidates
        if isinstance(g.attention, CompressedAttention) and g.attention.compress_ratio == 0
    ]  # fmt: skip
    if isinstance(attention, CompressedAttention) and windowed:
        attention = windowed[0].attention
    elif attention is not None and attention.kind == "mla" and attention.indexer is not None:
        whole = attention.indexer.model_copy(update={"shared": False})
        attention = attention.model_copy(update={"indexer": whole})
    return DrafterSpec(
        id=f"mtp-{spec.id}",
        kind="mtp",
        target=spec.id,
        hidden_size=spec.hidden_size,
        target_hidden_size=spec.hidden_size,
        vocab_size=spec.vocab_size,
        # Two more norms: of the embedding and of the hidden state.
        layers=(
            group.model_copy(update={"count": 1, "attention": attention, "norms": group.norms + 2}),
        ),
        fc_in_features=2 * spec.hidden_size,
        n_mtp_layers=spec.n_mtp_layers,
        max_position_embeddings=spec.max_position_embeddings,
        weight_dtype=spec.weight_dtype,
        expert_dtype=spec.expert_dtype,
        source=f"MTP layers of {spec.id}",
        note="shape of the target's last layer; embedding and head shared with the target",
    )
