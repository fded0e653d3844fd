"""Which mixer each layer has, and the softmax ones: grouped, latent, sparse, compressed."""

from __future__ import annotations

from typing import Any, Literal

from specsim.catalog.hf.families import Family
from specsim.catalog.hf.fields import Fields, shown
from specsim.schema.model import (
    CompressedAttention,
    FullAttention,
    Indexer,
    MlaAttention,
)

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
_HYBRID_LETTERS: dict[str, Kind] = {"M": "mamba", "*": "full", "-": "mlp", "E": "moe"}
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
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
        names = f.listing(field, length=n_layers)
        if names is not None:
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


def _kind(f: Fields, field: str, value: Any) -> Kind:
    if not isinstance(value, str) or value not in _KINDS:
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
    pattern = f.get("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
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
        self.is_mla = f.maybe("kv_lora_rank") is not None
        self._common: dict[str, Any] = {}
        if self.is_mla:
            self._read_latent()
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
        self.heads = f.per_layer(*_HEADS, "num_query_heads", length=self.n_layers)
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
        if family.defaults.get("v_head_dim") is None and self._common["v_head_dim"] is not None:
            f.integer("v_head_dim")
        self.sinks = family.sinks
        self.window = _window(f) or 0
        self.chunk = f.maybe("attention_chunk_size") or 0
        self.share_every = 0
        if f.flag("use_cla"):  # Hunyuan: only the first layer of each group stores a cache
            self.share_every = f.integer("cla_share_factor", low=2)
        f.mark("cla_share_factor", "use_cla")
        self._read_overrides()

    def _kv_heads(self) -> list[int]:
        f, n = self.f, self.n_layers
        attention = f.child("attn_config")
        if attention is not None:  # DBRX, MPT
            multi_query = attention.text("attn_type") == "multiquery_attention"
            default = 1 if multi_query else self.heads[0]
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
        default = self.family.defaults.get("num_key_value_heads")
        return [default] * n if default else list(self.heads)

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
        return (self.family.qk_norm if self.family.qk_norm != "none" else "per_head") if on else "none"

    def _read_overrides(self) -> None:
        """Read what differs in the layers of the less common kind."""
        f = self.f
        self.windowed: dict[str, int] = {}
        self.globals: dict[str, int] = {}
        other = f.child("attention_other_setting")  # Step-3.5: of the windowed layers
        sources = (
            (f, "n_heads", "swa_num_attention_heads"),
            (f, "n_kv_heads", "swa_num_key_value_heads"),
            (f, "head_dim", "swa_head_dim"),
            (f, "v_head_dim", "swa_v_head_dim"),
        )
        for where, key, field in sources:
            value = where.maybe(field)
            if value is not None:
                self.windowed[key] = value
        if other is not None:
            self.windowed["n_heads"] = other.integer("num_attention_heads")
            self.windowed["n_kv_heads"] = other.integer("num_attention_groups")
            self.windowed["head_dim"] = other.integer("head_dim", default=self.head_dim)
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

    # ---- multi-head latent attention ----

    def _read_latent(self) -> None:
        f = self.f
        self._common = {
            "n_heads": f.integer(*_HEADS),
            "q_lora_rank": f.maybe("q_lora_rank"),
            "kv_lora_rank": f.integer("kv_lora_rank"),
            "qk_nope_head_dim": f.integer("qk_nope_head_dim"),
            "qk_rope_head_dim": f.integer("qk_rope_head_dim"),
            "v_head_dim": f.integer("v_head_dim"),
        }
        f.mark(*_KV_HEADS, "qk_head_dim", "mla_scale_q_lora", "mla_scale_kv_lora", *_HEAD_DIM)
        f.mark("use_sliding_window", "attention_method", "mla_use_nope")
        window = _window(f)
        if window is not None:
            raise f.unsupported("sliding_window", "a window on latent attention is not modelled")
        self._indexers = self._read_indexers()

    def _read_indexers(self) -> list[Indexer | None]:
        f, n = self.f, self.n_layers
        if f.maybe("index_topk") is None:
            f.mark("index_n_heads", "index_head_dim", "index_topk")
            return [None] * n
        size = f.integer("index_head_dim")
        heads = f.integer("index_n_heads")
        topk = f.integer("index_topk")
        shared = self._shared_selection()
        return [
            Indexer(
                n_heads=heads,
                head_dim=size,
                topk=topk,
                key_bytes=index_key_bytes(size),
                shared=flag,
            )
            for flag in shared
        ]

    def _shared_selection(self) -> list[bool]:
        """Tell for each layer whether it reuses the selection of an earlier one (GLM-5.2)."""
        f, n = self.f, self.n_layers
        types = f.listing("indexer_types", length=n)
        frequency = f.integer("index_topk_freq", default=1)
        offset = f.integer("index_skip_topk_offset", default=2, low=0)
        pattern = f.get("index_topk_pattern")
        if types is None and pattern is not None:
            if not isinstance(pattern[1], str) or set(pattern[1]) - {"F", "S"}:
                raise f.bad("index_topk_pattern", "letters F (full) and S (shared)")
            if len(pattern[1]) < n:
                raise f.bad("index_topk_pattern", f"{n} letters, one per layer")
            return [letter == "S" for letter in pattern[1][:n]]
        if types is None:
            # vLLM 0.32, models/deepseek_v2.py: max(layer - offset + 1, 0) % freq != 0
            return [max(i - offset + 1, 0) % frequency != 0 for i in range(n)]
        if set(map(str, types)) - {"full", "shared"}:
            raise f.bad("indexer_types", "'full' or 'shared' per layer")
        return [kind == "shared" for kind in types]


def index_key_bytes(head_dim: int) -> float:
    """Return the stored bytes of one index key: fp8 values and an fp32 scale per 128 of them.

    Source: vLLM 0.32, models/deepseek_v4/attention.py (`k_cache_head_dim`), 132 for 128.
    """
    return float(head_dim + -(-head_dim // 128) * 4)


def compressed_attention(f: Fields, n_layers: int) -> list[CompressedAttention]:
    """Read DeepSeek-V4 attention: a window, and behind it pooled entries, indexed or not.

    Notes
    -----
    vLLM 0.32 (models/deepseek_v4/attention.py) stores an entry as fp8 values of the part without
    positions, bf16 of the rotary part, and a scale byte per 64 values plus one of padding: 448 +
    128 + 8 = 584 bytes at head_dim 512. Layers that pool 4 tokens have an indexer, those that
    pool 128 attend to all their entries.
    """
    head_dim = f.integer("head_dim")
    rope = f.integer("qk_rope_head_dim", default=64)
    if rope >= head_dim:
        raise f.bad("qk_rope_head_dim", f"less than head_dim {head_dim}")
    entry_bytes = (head_dim - rope) + 2 * rope + -(-(head_dim - rope) // 64) + 1
    f.mark("num_key_value_heads", "kv_lora_rank", "v_head_dim", "qk_nope_head_dim")
    common: dict[str, Any] = {
        "n_heads": f.integer(*_HEADS),
        "head_dim": head_dim,
        "q_lora_rank": f.integer("q_lora_rank"),
        "o_lora_rank": f.integer("o_lora_rank"),
        "o_groups": f.integer("o_groups"),
        "window": f.integer("sliding_window", "window_size"),
        "entry_bytes": float(entry_bytes),
    }
    index_dim = f.integer("index_head_dim")
    indexer = Indexer(
        n_heads=f.integer("index_n_heads"),
        head_dim=index_dim,
        topk=f.integer("index_topk"),
        key_bytes=index_key_bytes(index_dim),
    )
    return [
        CompressedAttention(
            **common, compress_ratio=ratio, indexer=indexer if ratio == 4 else None
        )
        for ratio in _compress_ratios(f, n_layers)
    ]


def _compress_ratios(f: Fields, n_layers: int) -> list[int]:
    ratios = f.integers("compress_ratios", length=n_layers)
    if ratios is None:
        rates = f.child("compress_rates")
        names = f.listing("layer_types", length=n_layers)
        if names is None:
            raise f.missing("compress_ratios", "layer_types")
        by_name = {
            "sliding_attention": 0,
            "compressed_sparse_attention": 4,
            "heavily_compressed_attention": 128,
        }
        if rates is not None:
            by_name |= {k: rates.integer(k, low=0) for k in by_name if rates.has(k)}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise f.error(f"layer_types holds {shown(unknown[0])}; known: {', '.join(by_name)}")
        ratios = [by_name[name] for name in names]
    f.mark("layer_types", "compress_rates")
    odd = sorted(set(ratios) - {0, 1, 4, 128})
    if odd:
        # vLLM asserts the same: how an entry is pooled and whether it is indexed depends on it.
        raise f.bad("compress_ratios", f"0, 4 or 128 per layer (found {odd[0]})")
    return [0 if ratio == 1 else ratio for ratio in ratios]
