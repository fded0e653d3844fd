"""Which mixer each layer has, and the softmax ones: grouped or latent."""

from __future__ import annotations

from typing import Any, Literal

from specsim.catalog.hf.families import Family
from specsim.catalog.hf.fields import Fields, shown
from specsim.catalog.hf.sparse import HEADS, LATENT_FIELDS, indexers, latent_fields
from specsim.schema.model import FullAttention, MlaAttention

Kind = Literal["full", "sliding", "chunked", "linear", "mamba", "hybrid", "mlp", "moe"]
"""What sits in a layer; 'hybrid' is attention beside Mamba, 'mlp' and 'moe' have no mixer."""

_KINDS: dict[str, Kind] = {
    "full_attention": "full",
    "full": "full",
    "attention": "full",
    "global": "full",
    "global_attention": "full",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full",
    "sliding_attention": "sliding",
    "sliding_window_attention": "sliding",
    "sliding_window": "sliding",
    "sliding": "sliding",
    "local": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "linear": "linear",
    "kda": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "mlp": "mlp",
    "moe": "moe",
}
# Rules that a list of layer types spells out.
_PATTERNS = (
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "global_attn_every_n_layers",
    "full_attention_interval",
    "attn_layer_period",
    "attn_layer_offset",
    "attn_layer_indices",
    "hybrid_override_pattern",
    "no_rope_layers",
)
_HYBRID_LETTERS: dict[str, Kind] = {"M": "mamba", "*": "full", "-": "mlp", "E": "moe"}
_KV_HEADS = (
    "num_key_value_heads",
    "n_head_kv",
    "num_kv_heads",
    "n_kv_heads",
    "num_attention_groups",
    "num_query_groups",
)
_HEAD_DIM = ("head_dim", "attention_head_dim", "head_size", "kv_channels", "hidden_size_per_head")


def layer_kinds(f: Fields, family: Family, name: str, n_layers: int) -> list[Kind]:
    """Return the mixer of each layer, from whichever field describes it."""
    listed = _listed_kinds(f, n_layers)
    if listed is not None:
        return listed
    linear = f.child("linear_attn_config")
    if linear is not None and linear.has("kda_layers"):
        # Kimi-Linear counts these layers from 1.
        recurrent = set(linear.integers("kda_layers") or [])
        linear.mark("full_attn_layers")
        return ["linear" if i + 1 in recurrent else "full" for i in range(n_layers)]
    if f.has("full_attention_interval") or f.has("linear_num_value_heads"):
        interval = f.integer("full_attention_interval", default=4)
        return ["full" if (i + 1) % interval == 0 else "linear" for i in range(n_layers)]
    if f.has("attn_layer_period"):
        period = f.integer("attn_layer_period")
        offset = f.integer("attn_layer_offset", default=0, low=0)
        return ["full" if i % period == offset else "mamba" for i in range(n_layers)]
    indices = f.integers("attn_layer_indices")
    if indices is not None:
        return ["full" if i in set(indices) else "mamba" for i in range(n_layers)]
    if name == "falconh1":
        return ["hybrid"] * n_layers
    return _windowed_kinds(f, family, name, n_layers)


def _listed_kinds(f: Fields, n_layers: int) -> list[Kind] | None:
    for field in ("layer_types", "layers_block_type", "layer_type_list"):
        names = f.texts(field, length=n_layers)
        if names is not None:
            f.mark(*_PATTERNS)
            return [_kind(f, field, value) for value in names]
    if f.has("hybrid_override_pattern"):
        pattern = f.text("hybrid_override_pattern")
        if len(pattern) != n_layers or set(pattern) - set(_HYBRID_LETTERS):
            raise f.bad("hybrid_override_pattern", f"{n_layers} letters out of M * - E")
        return [_HYBRID_LETTERS[letter] for letter in pattern]
    flags = f.integers("attn_type_list", "decoder_attention_types", length=n_layers)
    if flags is not None:  # MiniMax: 1 softmax, 0 lightning
        if max(flags) > 1:
            raise f.bad("attn_type_list", "0 (linear) or 1 (softmax) per layer")
        return ["full" if flag else "linear" for flag in flags]
    flags = f.integers("hybrid_layer_pattern", length=n_layers)
    if flags is not None:  # MiMo-V2: 1 windowed, 0 global
        if max(flags) > 1:
            raise f.bad("hybrid_layer_pattern", "0 (global) or 1 (windowed) per layer")
        return ["sliding" if flag else "full" for flag in flags]
    return None


def _kind(f: Fields, field: str, value: str) -> Kind:
    if value not in _KINDS:
        raise f.error(
            f"{f.path}{field} holds {shown(value)}; this kind of layer is not modelled "
            f"(known: {', '.join(sorted(_KINDS))})"
        )
    return _KINDS[value]


def _windowed_kinds(f: Fields, family: Family, name: str, n_layers: int) -> list[Kind]:
    """Return full, sliding or chunked per layer where no list of layer types exists."""
    if name == "llama4":
        if f.maybe("attention_chunk_size") is None:
            return ["full"] * n_layers
        # 1 means rotary positions and chunked attention; 0 a global layer without positions.
        rotary = f.integers("no_rope_layers", length=n_layers) or []
        every = f.integer("no_rope_layer_interval", default=4)
        rotary = rotary or [int((i + 1) % every != 0) for i in range(n_layers)]
        return ["chunked" if flag else "full" for flag in rotary]
    window = _window(f)
    pattern = f.get(
        "sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"
    )
    if window is None:
        return ["full"] * n_layers
    if pattern is not None and isinstance(pattern[1], str):
        letters = pattern[1].upper()
        if not letters or set(letters) - {"L", "G"}:
            raise f.bad(pattern[0], "a number of layers or letters L and G")
        return ["full" if letters[i % len(letters)] == "G" else "sliding" for i in range(n_layers)]
    every = f.whole(*pattern, low=0) if pattern is not None else family.window_pattern
    if every:
        return ["full" if (i + 1) % every == 0 else "sliding" for i in range(n_layers)]
    if f.has("max_window_layers"):  # Qwen: the first layers stay global
        first = f.integer("max_window_layers", low=0)
        return ["full" if i < first else "sliding" for i in range(n_layers)]
    return ["sliding"] * n_layers


def _window(f: Fields) -> int | None:
    """Return the sliding window, or None where there is none or it never binds."""
    f.mark("max_window_layers", "use_swa")
    if not f.flag("use_sliding_window", default=True):
        f.mark("sliding_window", "sliding_window_size")
        return None
    found = f.get("sliding_window", "sliding_window_size")
    if found is not None and found[1] == -1:  # some files say none this way
        return None
    window = f.maybe("sliding_window", "sliding_window_size")
    context = f.maybe("max_position_embeddings")
    return None if window is None or (context is not None and window >= context) else window


class SoftmaxReader:
    """Builds the softmax attention of each layer of one config."""

    def __init__(
        self, f: Fields, family: Family, name: str, *, hidden_size: int, n_layers: int
    ) -> None:
        self.f = f
        self.family = family
        self.name = name
        self.hidden_size = hidden_size
        self.n_layers = n_layers
        # Hunyuan states latent ranks and switches them off.
        self.is_mla = f.flag("use_mla", default=True) and f.maybe("kv_lora_rank") is not None
        self._common: dict[str, Any] = {}
        if self.is_mla:
            self._common = latent_fields(f)
            if _window(f) is not None:
                raise f.unsupported("sliding_window", "a window on latent attention")
            self._indexers = indexers(f, n_layers)
        else:
            self._read_grouped()

    def layer(self, index: int, kind: Kind) -> FullAttention | MlaAttention:
        """Return the attention of one layer of kind full, sliding or chunked."""
        if self.is_mla:
            if kind not in ("full", "hybrid"):
                raise self.f.unsupported(
                    "layer_types", f"{kind} layers with latent attention are not modelled"
                )
            return MlaAttention(**self._common, indexer=self._indexers[index])
        return self._grouped(index, kind)

    # ---- grouped-query attention ----

    def _read_grouped(self) -> None:
        f, family = self.f, self.family
        self.heads = f.per_layer(*HEADS, "num_query_heads", length=self.n_layers)
        self.kv_heads = self._kv_heads()
        self.head_dim = self._head_dim()
        attention = f.child("attn_config")
        bias = f.get(
            "attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "attn_bias", "bias",
            "use_bias", "use_attention_bias",
        )  # fmt: skip
        qkv_bias = family.qkv_bias
        if bias is not None and not isinstance(bias[1], list):
            qkv_bias = f.flag(bias[0])
        f.flag("no_bias")
        # In Llama's and Qwen3's code attention_bias also puts one on the output projection.
        output_bias = family.output_bias or (qkv_bias and self.name in ("llama", "phimoe"))
        output_bias = f.flag("attention_out_bias", "o_bias", "attention_output_bias",
                             default=output_bias)  # fmt: skip
        self._common = {
            "qkv_bias": qkv_bias,
            "output_bias": output_bias,
            "qk_norm": self._qk_norm(attention),
            "output_gate": f.flag("attn_output_gate", default=family.output_gate),
            "v_head_dim": f.maybe("v_head_dim") or family.defaults.get("v_head_dim"),
        }
        f.mark("output_gate_type")
        self.sinks = family.sinks
        self.window = _window(f) or 0
        self.chunk = f.maybe("attention_chunk_size") or 0
        self.share_every = 0
        if f.flag("use_cla"):  # Hunyuan: only the first layer of each group stores a cache
            self.share_every = f.integer("cla_share_factor", low=2)
        f.mark("cla_share_factor", "use_cla")
        if f.has("use_mla"):  # false, or this were latent attention
            f.mark(*LATENT_FIELDS)
            self._common["v_head_dim"] = None
        self._read_overrides()

    def _kv_heads(self) -> list[int]:
        f, n = self.f, self.n_layers
        attention = f.child("attn_config")
        if attention is not None:  # DBRX, MPT
            multi_query = attention.text("attn_type") == "multiquery_attention"
            default = 1 if multi_query else self.heads[0]
            f.mark(*_KV_HEADS)
            return [attention.integer("kv_n_heads", default=default)] * n
        if f.has("multi_query_attention", "multi_query_group_num"):  # ChatGLM
            if f.flag("multi_query_attention"):
                return [f.integer("multi_query_group_num")] * n
            return list(self.heads)
        if self.name in ("falcon", "refinedweb", "refinedwebmodel", "gptbigcode"):
            new = f.flag("new_decoder_architecture")
            multi_query = f.flag("multi_query", default=True)
            if not new and multi_query:
                f.mark(*_KV_HEADS)
                return [1] * n
        if f.has(*_KV_HEADS, "num_key_value_heads_per_layer"):
            listed = f.listing("num_key_value_heads_per_layer", length=n)
            if listed is not None:
                return [f.whole("num_key_value_heads_per_layer", v) for v in listed]
            return f.per_layer(*_KV_HEADS, length=n)
        usual = self.family.defaults.get("num_key_value_heads")
        return [int(usual)] * n if usual else list(self.heads)

    def _head_dim(self) -> int:
        f = self.f
        size = f.maybe(*_HEAD_DIM) or self.family.defaults.get("head_dim")
        if size is not None:
            return int(size)
        heads = self.heads[0]
        if self.hidden_size % heads:
            raise f.error(
                f"hidden_size {self.hidden_size} is no multiple of {heads} attention heads and "
                "head_dim is not given"
            )
        return self.hidden_size // heads

    def _qk_norm(self, attention: Fields | None) -> str:
        f = self.f
        found = f.get("use_qk_norm", "qk_layernorm", "qk_norm")
        f.mark("qk_norm_type", "use_qk_layernorm")
        on = self.family.qk_norm != "none" if found is None else f.flag(found[0])
        if attention is not None and attention.flag("qk_ln"):
            on = True
        if self.name == "llama4":  # norms without weights
            return "none"
        return (
            (self.family.qk_norm if self.family.qk_norm != "none" else "per_head") if on else "none"
        )

    def _read_overrides(self) -> None:
        """Read what differs in the layers of the less common kind."""
        f = self.f
        self.windowed: dict[str, int] = {}
        self.globals: dict[str, int] = {}
        other = f.child("attention_other_setting")  # Step-3.5: of the windowed layers
        for key, field in (
            ("n_heads", "swa_num_attention_heads"),
            ("n_kv_heads", "swa_num_key_value_heads"),
            ("head_dim", "swa_head_dim"),
            ("v_head_dim", "swa_v_head_dim"),
        ):
            value = f.maybe(field)
            if value is not None:
                self.windowed[key] = value
        if other is not None:
            if other.text("attention_type", default="sliding_attention") != "sliding_attention":
                raise other.bad("attention_type", "'sliding_attention'")
            self.windowed["n_heads"] = other.integer("num_attention_heads")
            self.windowed["n_kv_heads"] = other.integer("num_attention_groups")
            self.windowed["head_dim"] = other.integer("head_dim", default=self.head_dim)
            other.mark("true_head_dim")
            f.mark("use_head_wise_attn_gate")  # one gate value per head: 0.01 % of the weights
        self.k_eq_v = f.flag("attention_k_eq_v")
        for key, field in (
            ("head_dim", "global_head_dim"),
            ("n_kv_heads", "num_global_key_value_heads"),
        ):
            value = f.maybe(field)
            if value is not None:
                self.globals[key] = value
        self.window_sinks = f.flag("add_swa_attention_sink_bias")
        self.full_sinks = f.flag("add_full_attention_sink_bias")

    def _grouped(self, index: int, kind: Kind) -> FullAttention:
        f = self.f
        values: dict[str, Any] = {
            "n_heads": self.heads[index],
            "n_kv_heads": self.kv_heads[index],
            "head_dim": self.head_dim,
            "sinks": self.sinks or (self.window_sinks if kind == "sliding" else self.full_sinks),
            **self._common,
        }
        if kind == "sliding":
            values |= self.windowed
            values["window"] = self.window or f.maybe("sliding_window", "sliding_window_size")
            if values["window"] is None:
                raise f.missing("sliding_window")
        elif kind == "chunked":
            values["window"] = self.chunk or None
            values["chunked"] = True
            if values["window"] is None:
                raise f.missing("attention_chunk_size")
        else:
            values |= self.globals
            values["k_eq_v"] = self.k_eq_v
        if values["v_head_dim"] == values["head_dim"]:
            values["v_head_dim"] = None
        if self.share_every and index % self.share_every:
            values["shares_kv"] = True
        if values["n_heads"] % values["n_kv_heads"]:
            raise f.error(
                f"{values['n_heads']} attention heads are no multiple of {values['n_kv_heads']} "
                "key-value heads"
            )
        return FullAttention(**values)
