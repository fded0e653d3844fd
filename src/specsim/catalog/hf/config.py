"""Reads a Hugging Face config.json into a model or a drafter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specsim.catalog.hf import drafters
from specsim.catalog.hf.attention import Kind, SoftmaxReader, layer_kinds
from specsim.catalog.hf.document import (
    QUANTISATION,
    TEXT_PARTS,
    distrusted,
    load,
    refuse_other_files,
)
from specsim.catalog.hf.families import Family, family_of
from specsim.catalog.hf.feedforward import FeedForward, feed_forward
from specsim.catalog.hf.fields import MAX_LAYERS, Fields, shown
from specsim.catalog.hf.quantization import Formats, plain_dtype, stored_formats
from specsim.catalog.hf.recurrent import is_mamba1, linear_attention, mamba1, mamba2
from specsim.catalog.hf.sparse import compressed_attention
from specsim.catalog.hf.variable import block_config_layers
from specsim.schema.model import (
    Attention,
    CompressedAttention,
    DenseMlp,
    DrafterSpec,
    LayerGroup,
    ModelSpec,
)

_HIDDEN = ("hidden_size", "d_model", "n_embd", "n_embed", "dim", "model_dim")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_VOCAB = ("vocab_size", "padded_vocab_size", "n_vocab")
_POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "model_max_length",
    "max_seq_len",
    "seq_length",
    "n_ctx",
)
_MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers", "num_mtp_layers")


def read_config(
    source: Path | str | Mapping[str, Any], *, id: str | None = None
) -> ModelSpec | DrafterSpec:
    """Read a config.json, whichever architecture it is of.

    Parameters
    ----------
    source : Path or Mapping
        A config.json, a folder that holds one, or its parsed content.
    id : str, optional
        Name of the result; the file's stem or folder, or the config's own name, if absent.

    Returns
    -------
    ModelSpec or DrafterSpec
        A drafter where the config describes a drafting head (EAGLE, EAGLE-3, Medusa, DFlash).

    Raises
    ------
    ModelConfigError
        One sentence that names the field: something is missing, wrong, or not modelled. A config
        is never completed by a guess.
    """
    data, what, default_id = load(source)
    name = id or default_id or str(data.get("_name_or_path") or "").rstrip("/").split("/")[-1]
    name = name or "config.json"
    f = Fields(data, what=what)
    refuse_other_files(f)
    try:
        kind = drafters.drafter_kind(f)
        if kind is not None:
            return distrusted(drafters.read_drafter(f, kind, name), f, default_id)
        return distrusted(_read_model(f, name), f, default_id)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise f.error(f"{field} came out as {shown(first['input'])}: {first['msg']}") from error


def _text_part(f: Fields) -> tuple[Fields, list[Fields]]:
    """Return the text model's part of a config and the levels around it, innermost first."""
    outer: list[Fields] = []
    while not any(f.data.get(name) is not None for name in _HIDDEN) or isinstance(
        f.data.get("text_config"), Mapping
    ):
        part = next((p for p in TEXT_PARTS if isinstance(f.data.get(p), Mapping)), None)
        child = f.child(part) if part is not None else None
        if child is None:
            break
        outer.insert(0, f)
        f = child
    return f, outer


def _read_model(root: Fields, name: str) -> ModelSpec:
    f, outer = _text_part(root)
    levels = [f, *outer]
    if any(level.flag("is_encoder_decoder") for level in levels):
        raise root.error("is_encoder_decoder is true; only decoder-only models are modelled")
    names = [n for level in levels for n in _names(level)]
    family, key = _family(f, names)
    hidden = f.integer(*_HIDDEN, high=10**6)
    n_layers = _n_layers(f)
    vocab = _first(levels, *_VOCAB)
    if vocab is None:
        raise f.missing(*_VOCAB)
    if f.has("block_configs"):
        layers, extra = block_config_layers(f, n_layers=n_layers, hidden_size=hidden), 0.0
    else:
        layers, extra = _layers(f, family, key, hidden_size=hidden, n_layers=n_layers)
    tied = _tied(levels, family)
    extra += _outside_layers(f, family, key, hidden_size=hidden, vocab_size=vocab, tied=tied)
    n_mtp = _mtp_layers(f)
    has_experts = any(group.moe is not None for group in layers)
    formats = _formats(levels, has_experts=has_experts)
    positions = f.maybe(*_POSITIONS)
    f.mark("kv_lora_rank", "v_head_dim")  # null or 0 unless attention read them
    f.refuse_unread(strict=not key)
    notes = [formats.note]
    if outer:
        notes.append("text part of a multimodal model; the other parts are not counted")
    if not key:
        notes.append(f"model_type {names[0] if names else 'absent'!r} is not known: read as Llama")
    return ModelSpec(
        id=name,
        hidden_size=hidden,
        vocab_size=vocab,
        tied_embeddings=tied,
        layers=layers,
        extra_params=extra,
        max_position_embeddings=positions,
        weight_dtype=formats.weight,
        expert_dtype=formats.expert,
        attention_dtype=formats.attention,
        weight_block=formats.block,
        # DeepSeek-V4's entries are fp8 whatever the checkpoint says (vLLM 0.32, deepseek_v4).
        kv_dtype="fp8" if any(_is_compressed(group) for group in layers) else formats.kv,
        n_mtp_layers=n_mtp,
        confidence="high" if key else "medium",
        source="config.json",
        note="; ".join(n for n in notes if n),
    )


def _is_compressed(group: LayerGroup) -> bool:
    return isinstance(group.attention, CompressedAttention)


def _names(f: Fields) -> list[str]:
    """Return model_type and architectures of one level."""
    found = [f.text("model_type")]
    architectures = f.get("architectures")
    values = architectures[1] if architectures is not None else []
    for value in values if isinstance(values, list) else [values]:
        if not isinstance(value, str):
            raise f.bad("architectures", "a list of class names")
        if re.search(r"For(SequenceClassification|TokenClassification|MaskedLM|QuestionAnswering"
                     r"|RewardModel|ProcessRewardModel)$", value):  # fmt: skip
            raise f.error(f"architecture {value!r} classifies or embeds; it does not generate")
        found.append(value)
    return [name for name in found if name]


def _family(f: Fields, names: list[str]) -> tuple[Family, str]:
    family, key = family_of(f, names)
    if family is not None:
        return family, key
    # Not known: accepted only if every field that matters is stated and understood.
    return Family(tied=None, gated=None), ""


def _n_layers(f: Fields) -> int:
    found = f.get(*_LAYERS)
    if found is None and f.has("layers_block_type", "hybrid_override_pattern"):
        listed = f.get("layers_block_type", "hybrid_override_pattern")
        if listed is not None and isinstance(listed[1], list | str) and listed[1]:
            return len(listed[1])
    return f.integer(*_LAYERS, high=MAX_LAYERS)


def _first(levels: list[Fields], *names: str) -> int | None:
    return next((v for level in levels if (v := level.maybe(*names)) is not None), None)


def _tied(levels: list[Fields], family: Family) -> bool:
    """Return whether embedding and head are one matrix.

    vLLM builds the language model from the text part, so what that says comes first, then the
    outer level, then the default of the family's configuration class.
    """
    for level in levels:
        if level.has("tie_word_embeddings", "tie_embeddings"):
            return level.flag("tie_word_embeddings", "tie_embeddings")
    if family.tied is None:
        raise levels[0].missing("tie_word_embeddings")
    return family.tied


def _mtp_layers(f: Fields) -> int:
    count = f.integer(*_MTP, default=0, low=0, high=MAX_LAYERS)
    f.mark("mtp_transformer_layers", "mtp_use_dedicated_embeddings", "mtp_layers_block_type")
    f.mark("mtp_hybrid_override_pattern", "mtp_num_layers", "mtp_loss_weight", "mtp_layer_types")
    f.mark("num_mtp_modules", "use_mtp", "mtp_head", "mtp_replicate_modules")
    if count == 0 and f.flag("use_mtp", default=True):
        count = f.integer("num_mtp_modules", default=0, low=0, high=MAX_LAYERS)
    return count


def _formats(levels: list[Fields], *, has_experts: bool) -> Formats:
    plain = plain_dtype(*levels)
    expert_dtype = next((t for level in levels if (t := level.text("expert_dtype"))), "")
    for level in reversed(levels):
        found = level.child(*QUANTISATION)
        if found is not None and found.data:
            return stored_formats(found, plain, has_experts=has_experts, expert_dtype=expert_dtype)
    return Formats(plain)


def _outside_layers(
    f: Fields, family: Family, key: str, *, hidden_size: int, vocab_size: int, tied: bool
) -> float:
    """Count weights outside the layers' shapes: position tables, embedding norms, head biases."""
    extra = 0
    narrow = f.maybe("word_embed_proj_dim", "embedding_size", "embedding_dim")
    if narrow is not None and narrow != hidden_size:
        raise f.unsupported("word_embed_proj_dim", "an embedding narrower than the layers")
    f.mark("vocab_size_per_layer_input")  # of no effect without hidden_size_per_layer_input
    if f.maybe("hidden_size_per_layer_input") is not None:
        raise f.unsupported("hidden_size_per_layer_input", "per-layer embeddings")
    if family.learned_positions is not None:
        extra += (f.integer(*_POSITIONS) + family.learned_positions) * hidden_size
    if f.flag("lm_head_bias", default=family.lm_head_bias) and not tied:
        extra += vocab_size
    if key == "bloom":
        extra += 2 * hidden_size  # LayerNorm on the embedding
    if f.has("hc_mult"):
        # Hyper-connections (vLLM 0.32, models/deepseek_v4/nvidia/model.py): per layer and branch a
        # (2 + n) * n by n * H map with biases and 3 scales, and a last one of n by n * H.
        n = f.integer("hc_mult")
        per_branch = (2 + n) * n * (n * hidden_size + 1) + 3
        extra += 2 * _n_layers(f) * per_branch + n * (n * hidden_size + 1) + 1
    return float(extra)


def _layers(
    f: Fields, family: Family, key: str, *, hidden_size: int, n_layers: int
) -> tuple[tuple[LayerGroup, ...], float]:
    """Return the layers as groups of equal ones, and weights that their records lack."""
    if f.has("compress_ratios", "compress_rates") or key in ("deepseekv4",):
        compressed = compressed_attention(f, n_layers)
        forward = feed_forward(f, family, key, hidden_size=hidden_size, n_layers=n_layers)
        rows: list[Any] = [
            (attention, ff.mlp, ff.moe, family.norms)
            for attention, ff in zip(compressed, forward, strict=True)
        ]
        return _grouped(rows), 0.0
    kinds = layer_kinds(f, family, key, n_layers)
    softmax = _softmax(f, family, key, kinds, hidden_size=hidden_size, n_layers=n_layers)
    forward = _feed_forward(f, family, key, kinds, hidden_size=hidden_size, n_layers=n_layers)
    extra = 0
    rows = []
    for i, (kind, ff) in enumerate(zip(kinds, forward, strict=True)):
        attention: Attention | None = None
        if kind in ("full", "sliding", "chunked", "hybrid"):
            attention = softmax.layer(i, kind)
        elif kind == "linear":
            attention = linear_attention(
                f,
                n_heads=getattr(softmax, "heads", [0] * n_layers)[i] or 1,
                head_dim=getattr(softmax, "head_dim", 0) or 1,
            )
        elif kind == "mamba":
            if is_mamba1(f):
                attention, missing = mamba1(f)
                extra += missing
            else:
                attention = mamba2(f)
        if kind == "hybrid":  # Falcon-H1: Mamba beside attention on the same input
            rows.append((mamba2(f), None, None, 0))
        rows.append((attention, ff.mlp, ff.moe, family.norms))
        if key == "longcatflash":  # a second attention and dense block per layer
            rows.append((attention, ff.mlp, None, family.norms))
    return _grouped(rows), float(extra)


def _softmax(
    f: Fields, family: Family, key: str, kinds: list[Kind], *, hidden_size: int, n_layers: int
) -> SoftmaxReader:
    if "linear" in kinds and f.maybe("kv_lora_rank") is not None:
        f.mark("head_dim")  # Kimi-Linear: states what the latent fields say
    return SoftmaxReader(f, family, key, hidden_size=hidden_size, n_layers=n_layers)


def _feed_forward(
    f: Fields, family: Family, key: str, kinds: list[Kind], *, hidden_size: int, n_layers: int
) -> list[FeedForward]:
    """Return what follows each mixer; in Nemotron-H a layer is a mixer or a feed-forward."""
    if key == "longcatflash":
        moe = feed_forward(f, family, key, hidden_size=hidden_size, n_layers=n_layers)
        width = f.integer("ffn_hidden_size", "intermediate_size")
        return [FeedForward(mlp=DenseMlp(intermediate_size=width), moe=ff.moe) for ff in moe]
    if key != "nemotronh" and not {"mlp", "moe"} & set(kinds):
        return feed_forward(f, family, key, hidden_size=hidden_size, n_layers=n_layers)
    if "moe" not in kinds:
        f.mark("n_routed_experts", "num_experts_per_tok", "n_shared_experts")
        f.mark("moe_intermediate_size", "moe_shared_expert_intermediate_size", "moe_latent_size")
        dense = Fields({**f.data, "n_routed_experts": None}, what=f.what, path=f.path)
        mlp = feed_forward(dense, family, key, hidden_size=hidden_size, n_layers=1)[0].mlp
        f.mark("intermediate_size", "mlp_bias", "use_bias")
        return [FeedForward(mlp=mlp if kind == "mlp" else None) for kind in kinds]
    every = feed_forward(f, family, key, hidden_size=hidden_size, n_layers=n_layers)
    return [FeedForward(moe=ff.moe) if k == "moe" else FeedForward() for k, ff in
            zip(kinds, every, strict=True)]  # fmt: skip


def _grouped(rows: list[Any]) -> tuple[LayerGroup, ...]:
    """Join equal layers, in the order of their last appearance: the last group ends the model."""
    counts: dict[Any, int] = {}
    for row in rows:
        counts[row] = counts.pop(row, 0) + 1
    return tuple(
        LayerGroup(count=count, attention=attention, mlp=mlp, moe=moe, norms=norms)
        for (attention, mlp, moe, norms), count in counts.items()
    )
