"""The feed-forward part of each layer: dense, mixture of experts, or both."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.catalog.hf.families import Family
from specsim.catalog.hf.fields import Fields, shown
from specsim.schema.model import DenseMlp, Moe

_WIDTH = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "inner_hidden_size")
_EXPERTS = (
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts",
    "n_experts",
)  # fmt: skip
_TOPK = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k",
    "top_k_experts", "moe_k", "num_selected_experts", "num_activated_experts",
)  # fmt: skip
_EXPERT_WIDTH = (
    "moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size",
    "moe_ffn_hidden_size",
)  # fmt: skip
_SHARED_EXPERTS = (
    "n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts",
)  # fmt: skip
_GATED_ACTIVATIONS = ("silu", "swiglu", "swish", "geglu", "reglu")


@dataclass(frozen=True, slots=True)
class FeedForward:
    """What follows the mixer in one layer."""

    mlp: DenseMlp | None = None
    moe: Moe | None = None


def feed_forward(
    f: Fields, family: Family, name: str, *, hidden_size: int, n_layers: int
) -> list[FeedForward]:
    """Return the feed-forward of every layer."""
    config = f.child("ffn_config")  # DBRX and MPT nest theirs
    where = config if config is not None else f
    where.mark("hidden_size")
    experts = _expert_counts(where, n_layers)
    if max(experts) <= 1:  # Hunyuan writes 1 for a dense model
        f.mark(*_TOPK, *_EXPERT_WIDTH, *_SHARED_EXPERTS, "enable_moe_block", "mlp_only_layers")
        f.mark("decoder_sparse_step", "first_k_dense_replace", "moe_layer_freq", "use_moe")
        f.mark("mlp_layer_types", "use_mixed_mlp_moe", "moe_layers_enum")
        f.mark("expert_layer_period", "expert_layer_offset")  # Jamba's dense members
        shared = f.maybe("shared_intermediate_size") if name == "granitemoehybrid" else None
        if shared is not None:  # Granite-4 dense hybrids keep their MLP under this name
            f.mark(*_WIDTH)
            return [FeedForward(mlp=DenseMlp(intermediate_size=shared))] * n_layers
        mlp = _dense(f, where, family, name, hidden_size)
        return [FeedForward(mlp=width) for width in _per_layer_dense(f, mlp, n_layers)]
    return _mixture(f, where, family, name, experts, hidden_size=hidden_size, n_layers=n_layers)


def _expert_counts(where: Fields, n_layers: int) -> list[int]:
    """Return the experts per layer; 0 for a model without any."""
    found = where.get(*_EXPERTS)
    if found is None:
        return [0] * n_layers
    if isinstance(found[1], list):
        if len(set(map(str, found[1]))) == 1:  # Ernie-VL: text and vision experts, equal
            return [where.whole(found[0], found[1][0], low=0)] * n_layers
        return where.per_layer(found[0], length=n_layers, low=0)
    return [where.whole(*found, low=0)] * n_layers


def _dense(f: Fields, where: Fields, family: Family, name: str, hidden_size: int) -> DenseMlp:
    gated = _gated(f, family, name)
    if name == "llama4":
        width = f.maybe("intermediate_size_mlp") or f.integer("intermediate_size")
        f.mark("intermediate_size")
    elif name == "arctic":
        # The residual MLP beside the experts has the hidden width.
        width = hidden_size
    elif where.has(*_WIDTH):
        width = where.integer(*_WIDTH)
    elif where.has("expansion_ratio", "ffn_mult") or f.has("expansion_ratio"):
        source = where if where.has("expansion_ratio", "ffn_mult") else f
        width = int(source.number("expansion_ratio", "ffn_mult", default=4.0) * hidden_size)
    elif family.gated is False and name:
        width = 4 * hidden_size  # GPT-2, Falcon, BLOOM: the width is implied
    else:
        raise f.missing(*_WIDTH)
    if name == "qwen":
        width //= 2  # Qwen-1 states the two gated halves together
    bias = f.flag("mlp_bias", "add_bias_linear", default=family.mlp_bias)
    if name in ("falcon", "starcoder2", "nemotron", "ernie45", "stablelm"):
        bias = f.flag("bias", "use_bias", default=bias)
    return DenseMlp(intermediate_size=width, gated=gated, bias=bias)


def _gated(f: Fields, family: Family, name: str) -> bool:
    activation = f.text(
        "hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "activation",
        "act_fn",
    )  # fmt: skip
    nested = f.child("ffn_config")
    if nested is not None and "glu" in nested.text("ffn_type"):
        return True
    if f.has("mlp_type"):
        return f.text("mlp_type") in ("gated", "swiglu", "llama")
    if f.has("gated_mlp", "use_gated_mlp", "is_gated_act", "glu_mlp"):
        return f.flag("gated_mlp", "use_gated_mlp", "is_gated_act", "glu_mlp")
    if family.gated is not None:
        return family.gated
    if activation.lower() in _GATED_ACTIVATIONS:
        return True
    raise f.error(
        f"model_type is not known and the activation {activation or 'absent'!r} does not say "
        "whether the feed-forward is gated; write the model as a YAML record"
    )


def _per_layer_dense(f: Fields, mlp: DenseMlp, n_layers: int) -> list[DenseMlp]:
    found = f.get("intermediate_sizes", "ffn_multipliers")
    if found is not None:
        raise f.unsupported(found[0], "feed-forward widths that differ by layer are not modelled")
    return [mlp] * n_layers


def _mixture(
    f: Fields,
    where: Fields,
    family: Family,
    name: str,
    experts: list[int],
    *,
    hidden_size: int,
    n_layers: int,
) -> list[FeedForward]:
    gated = _gated(f, family, name)
    is_moe = moe_layers(f, name, n_layers)
    topk = where.per_layer(*_TOPK, length=n_layers)
    zero = f.maybe("zero_expert_num") or 0
    if zero:  # LongCat: some picks are identities; the rest is what computes, on average
        f.text("zero_expert_type")
        topk = [max(1, round(k * n / (n + zero))) for k, n in zip(topk, experts, strict=True)]
    widths = _expert_widths(f, where, name, n_layers)
    shared = _shared_widths(f, where, name, widths, n_layers)
    router_bias = f.flag("use_routing_bias", "use_moe_router_bias", "moe_router_enable_expert_bias",
                         "moe_use_aux_free", default=family.router_bias)  # fmt: skip
    shared_gate = f.has("shared_expert_intermediate_size") and shared[0] > 0
    beside = name == "arctic" or f.flag("enable_moe_block")  # a dense MLP beside the experts
    dense = None
    if beside or not all(is_moe):
        dense = _dense(f, where, family, name, hidden_size)
    elif name in ("llama4",):
        f.mark("intermediate_size_mlp")
    f.mark(*_WIDTH, "intermediate_size_mlp", "parallel_attn_mlp_res", "use_residual")
    layers = []
    for i in range(n_layers):
        if not is_moe[i]:
            layers.append(FeedForward(mlp=dense))
            continue
        if topk[i] > experts[i]:
            raise f.error(f"{topk[i]} experts per token of {experts[i]} experts; expected fewer")
        moe = Moe(
            n_experts=experts[i],
            topk=topk[i],
            intermediate_size=widths[i],
            shared_intermediate_size=shared[i],
            shared_gate=shared_gate,
            gated=gated,
            expert_bias=family.expert_bias,
            router_bias=router_bias,
        )
        layers.append(FeedForward(mlp=dense if beside else None, moe=moe))
    return layers


def _expert_widths(f: Fields, where: Fields, name: str, n_layers: int) -> list[int]:
    if where.has(*_EXPERT_WIDTH):
        found = where.get(*_EXPERT_WIDTH)
        if name == "ernie45vlmoe" and found is not None and isinstance(found[1], list) and found[1]:
            return [
                where.whole(found[0], found[1][0])
            ] * n_layers  # text experts first, then vision
        return where.per_layer(*_EXPERT_WIDTH, length=n_layers)
    return where.per_layer(*_WIDTH, length=n_layers)


def _shared_widths(
    f: Fields, where: Fields, name: str, widths: list[int], n_layers: int
) -> list[int]:
    """Return the width of all shared experts of each layer together."""
    f.mark(*_SHARED_EXPERTS)
    total = f.maybe(
        "shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim"
    )
    if total is not None:
        return [total] * n_layers
    counts = where.per_layer(*_SHARED_EXPERTS, length=n_layers, default=0, low=0)
    if f.has("use_mixed_mlp_moe") and not f.flag("use_mixed_mlp_moe"):
        counts = [0] * n_layers
    one = f.maybe("moe_shared_expert_intermediate_size")
    if name == "llama4":  # every expert layer has one shared expert of the same width
        return list(widths)
    return [n * (one or width) for n, width in zip(counts, widths, strict=True)]


def moe_layers(f: Fields, name: str, n_layers: int) -> list[bool]:
    """Tell for each layer whether it has experts, from whichever field says so."""
    types = f.texts("mlp_layer_types", length=n_layers)
    frequency = f.get("moe_layer_freq")
    first_dense = f.integer(
        "first_k_dense_replace", "num_dense_layers", "moe_layer_num_skipped", default=0, low=0
    )
    if types is not None:
        known = {"dense": False, "sparse": True, "moe": True, "hash_moe": True}
        unknown = [t for t in types if t not in known]
        if unknown:
            raise f.error(f"mlp_layer_types holds {shown(unknown[0])}; known: {', '.join(known)}")
        f.mark("mlp_only_layers", "decoder_sparse_step")
        return [known[t] for t in types]
    if frequency is not None and isinstance(frequency[1], list):
        flags = f.integers("moe_layer_freq", length=n_layers) or []
        return [bool(flag) for flag in flags]
    if f.has("moe_layers_enum"):
        text = f.text("moe_layers_enum")
        if not all(part.strip().isdecimal() for part in text.split(",")):
            raise f.bad("moe_layers_enum", "layer numbers with commas between them")
        chosen = {int(part) for part in text.split(",")}
        f.mark("moe_every_n_layer", "moe_layer_offset", "use_moe")
        return [i in chosen for i in range(n_layers)]
    listed = f.integers("moe_layers")
    if listed is not None:
        f.mark("interleave_moe_layer_step")
        return [i in set(listed) for i in range(n_layers)]
    if f.has("interleave_moe_layer_step") or name == "llama4":
        step = f.integer("interleave_moe_layer_step", default=1)
        return [(i + 1) % step == 0 for i in range(n_layers)]
    if f.has("moe_layer_start_index"):
        return _ernie_layers(f, n_layers)
    if f.has("expert_layer_period"):
        period = f.integer("expert_layer_period")
        offset = f.integer("expert_layer_offset", default=0, low=0)
        return [i % period == offset for i in range(n_layers)]
    if f.has("moe_layer_frequency"):  # Arctic
        every = f.integer("moe_layer_frequency")
        return [(i + 1) % every == 0 for i in range(n_layers)]
    if frequency is not None or first_dense:
        every = f.integer("moe_layer_freq", default=1)
        return [i >= first_dense and i % every == 0 for i in range(n_layers)]
    skip = set(f.integers("mlp_only_layers") or [])
    step = f.integer("decoder_sparse_step", default=1)
    return [i not in skip and (i + 1) % step == 0 for i in range(n_layers)]


def _ernie_layers(f: Fields, n_layers: int) -> list[bool]:
    start = f.per_layer("moe_layer_start_index", length=1, low=0)[0]
    found = f.get("moe_layer_end_index")
    end = n_layers - 1
    if found is not None and not isinstance(found[1], list) and found[1] != -1:
        end = f.whole(*found, low=0)
    every = f.integer("moe_layer_interval", default=1)
    return [start <= i <= end and (i + 1) % every == 0 for i in range(n_layers)]
