"""Stored number formats of a checkpoint, from quantization_config and dtype."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specsim.catalog.hf.fields import Fields, shown
from specsim.schema.base import KvDtype, WeightDtype

_DTYPES: dict[str, WeightDtype] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
}
# quant_algo of NVIDIA ModelOpt (hf_quant_config.json and quantization_config).
_MODELOPT: dict[str, WeightDtype] = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8",
    "FP8_PB_REAL": "fp8",
    "MXFP8": "fp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "W4A16_AWQ": "int4",
    "W4A8_AWQ": "int4",
    "W8A16": "int8",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "INT8_SQ": "int8",
}
_FIXED: dict[str, WeightDtype] = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "ptpc_fp8": "fp8",
    "finegrained_fp8": "fp8",
    "mxfp8": "fp8",
    "mxfp4": "mxfp4",
    "gpt_oss_mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    "modelopt_fp4": "nvfp4",
    "modelopt_mxfp8": "fp8",
    "eetq": "int8",
}
_BITS = ("gptq", "gptq_marlin", "awq", "awq_marlin", "auto-round", "auto_round", "autoround", "inc",
         "intel/auto-round", "moe_wna16", "auto_awq", "auto_gptq")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats of the weights and, where the checkpoint fixes it, of the KV cache.

    `expert` and `attention` are given where they differ from `weight`; `block` says that fp8
    weights have one scale per block of 128 x 128.
    """

    weight: WeightDtype
    expert: WeightDtype | None = None
    kv: KvDtype | None = None
    attention: WeightDtype | None = None
    block: bool = False
    note: str = ""


def plain_dtype(f: Fields, *outer: Fields) -> WeightDtype:
    """Return the unquantised format; bf16 where no level of the config names one."""
    for where in (f, *outer):
        name = where.text("torch_dtype", "dtype").removeprefix("torch.")
        if name in ("", "auto"):
            continue
        if name.startswith("float8"):
            return "fp8"
        if name not in _DTYPES:
            raise where.bad("torch_dtype", f"one of {', '.join(_DTYPES)}")
        return _DTYPES[name]
    return "bf16"


def stored_formats(
    f: Fields, plain: WeightDtype, *, has_experts: bool, expert_dtype: str = ""
) -> Formats:
    """Return what a quantization_config stores.

    Parameters
    ----------
    f : Fields
        The quantization_config (or compression_config) mapping.
    plain : str
        Format of what is left unquantised.
    has_experts : bool
        Whether there are routed experts, which may have a format of their own.
    expert_dtype : str
        The model's own field of that name (DeepSeek-V4: 'fp4').
    """
    by_part, kv = _by_part(f)
    ignored = [str(name) for name in _ignored(f)]
    attention = plain if _ignores_attention(ignored) else by_part.attention
    experts = plain if _ignores(ignored, _EXPERT_NAMES) else by_part.experts
    dense = plain if _ignores(ignored, _DENSE_NAMES) else by_part.dense
    expert_dtype = expert_dtype or f.text("expert_dtype")
    if expert_dtype and has_experts:
        if expert_dtype not in ("fp4", "fp8", "mxfp4", "nvfp4", "bf16"):
            raise f.error(f"expert_dtype is {expert_dtype!r}; expected fp4, fp8 or bf16")
        # DeepSeek-V4: FP4 values with a UE8M0 scale per 32, which is MXFP4.
        named: dict[str, WeightDtype] = {"fp4": "mxfp4", "mxfp4": "mxfp4", "nvfp4": "nvfp4",
                                         "fp8": "fp8", "bf16": "bf16"}  # fmt: skip
        experts = named[expert_dtype]
    block = "fp8" in (attention, dense, experts) and _by_block(f)
    if has_experts:
        return Formats(attention, experts if experts != attention else None, kv, block=block)
    return Formats(dense, None, kv, attention if attention != dense else None, block)


def _by_block(f: Fields) -> bool:
    """Tell whether fp8 weights are scaled by block, as DeepSeek-V3 introduced it."""
    nested = f.child("quantization")
    if nested is not None and _by_block(nested):
        return True
    if f.has("weight_block_size"):
        return True
    if f.text("quant_algo").upper() in ("FP8_PB_WO", "FP8_PB_REAL"):
        return True
    groups = f.child("config_groups")
    for name in groups.data if groups is not None else ():
        group = groups.child(name) if groups is not None else None
        weights = group.child("weights") if group is not None else None
        if weights is not None and weights.text("strategy") == "block":
            return True
    return False


# ---- what each method stores ----


@dataclass(frozen=True, slots=True)
class _Parts:
    attention: WeightDtype
    dense: WeightDtype
    experts: WeightDtype


def _by_part(f: Fields) -> tuple[_Parts, KvDtype | None]:
    kv = _kv(f, f.get("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_dtype"))
    nested = f.child("quantization")  # hf_quant_config.json style
    if nested is not None:
        inner, inner_kv = _by_part(nested)
        return inner, kv or inner_kv
    if f.has("quantized_layers"):
        return _by_layer(f), kv
    groups = f.child("config_groups")
    if groups is not None:
        return _by_group(f, groups), kv
    return _uniform(_one_format(f)), kv


def _uniform(dtype: WeightDtype) -> _Parts:
    return _Parts(dtype, dtype, dtype)


def _one_format(f: Fields) -> WeightDtype:
    algorithm = f.text("quant_algo").upper()
    if algorithm:
        if algorithm not in _MODELOPT:
            raise f.bad("quant_algo", f"one of {', '.join(_MODELOPT)}")
        return _MODELOPT[algorithm]
    method = f.text("quant_method", "quant_type").lower().replace("compressed_tensors",
                                                                  "compressed-tensors")  # fmt: skip
    if method in _FIXED:
        return _FIXED[method]
    if method in _BITS:
        bits = f.integer("bits", "w_bit", "weight_bits", default=4)
        return _integer(f, bits)
    if method in ("bitsandbytes", "bnb") or f.has("load_in_4bit", "load_in_8bit"):
        if f.flag("load_in_4bit", "_load_in_4bit"):
            return "int4"
        if f.flag("load_in_8bit", "_load_in_8bit"):
            return "int8"
        raise f.error("bitsandbytes without load_in_4bit or load_in_8bit; expected one of them")
    if method == "quark":
        return _quark(f)
    if method == "torchao":
        return _named(f, "quant_type", str(f.data.get("quant_type")))
    if method == "fp_quant":
        return _named(f, "forward_dtype", f.text("forward_dtype", default="mxfp4"))
    if method in ("modelopt", "modelopt_mixed"):
        raise f.missing("quant_algo")
    raise f.error(
        f"quantization {method or shown(dict(f.data))} is not modelled; known: fp8, mxfp4, nvfp4, "
        "modelopt, compressed-tensors, awq, gptq, auto-round, bitsandbytes, quark, torchao"
    )


def _integer(f: Fields, bits: int) -> WeightDtype:
    if bits == 4:
        return "int4"
    if bits == 8:
        return "int8"
    raise f.error(f"{bits}-bit weights are not modelled; expected 4 or 8 bits")


def _quark(f: Fields) -> WeightDtype:
    whole = f.child("global_quant_config")
    weight = whole.get("weight") if whole is not None else None
    value = weight[1] if weight is not None else None
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, Mapping):
        raise f.missing("global_quant_config.weight")
    return _named(f, "global_quant_config.weight.dtype", str(value.get("dtype")))


def _named(f: Fields, field: str, text: str) -> WeightDtype:
    """Return the format that a longer name contains, such as fp8_e4m3 or int4_weight_only."""
    lower = text.lower()
    for part, dtype in _NAME_PARTS:
        if part in lower:
            return dtype
    raise f.error(f"{f.path}{field} is {shown(text)}; expected fp8, fp4, int8 or int4 in it")


_NAME_PARTS: tuple[tuple[str, WeightDtype], ...] = (
    ("nvfp4", "nvfp4"),
    ("mxfp4", "mxfp4"),
    ("fp4", "mxfp4"),
    ("fp8", "fp8"),
    ("float8", "fp8"),
    ("int4", "int4"),
    ("int8", "int8"),
)


def _by_group(f: Fields, groups: Fields) -> _Parts:
    """Read compressed-tensors groups; with several, each part takes the group that names it."""
    formats: list[tuple[list[str], WeightDtype]] = []
    for name in groups.data:
        group = groups.child(name)
        if group is None:
            continue
        weights = group.child("weights")
        if weights is None:
            continue
        dtype = _scheme(weights)
        targets = [str(t) for t in group.listing("targets") or ["Linear"]]
        formats.append((targets, dtype))
    if not formats:
        raise f.bad("config_groups", "a group with a weights scheme")
    whole = next((d for t, d in formats if "Linear" in t), formats[0][1])

    def part(names: tuple[str, ...]) -> WeightDtype:
        for targets, dtype in formats:
            if _ignores(targets, names):
                return dtype
        return whole

    dense = part(_DENSE_NAMES)
    experts = part(_EXPERT_NAMES)
    return _Parts(part(_ATTENTION_NAMES), dense, experts)


def _scheme(weights: Fields) -> WeightDtype:
    bits = weights.integer("num_bits")
    kind = weights.text("type", default="int")
    group = weights.maybe("group_size", low=-1)
    if kind == "float" and bits == 8:
        return "fp8"
    if kind == "float" and bits == 4:
        return "mxfp4" if group == 32 else "nvfp4"
    if kind == "int":
        return _integer(weights, bits)
    raise weights.error(f"{weights.path}type is {kind!r} at {bits} bits; expected int or float")


def _by_layer(f: Fields) -> _Parts:
    """Read ModelOpt's list of quantised layers: each part takes the format of its first layer."""
    layers = f.child("quantized_layers")
    assert layers is not None
    found: dict[str, WeightDtype] = {}
    for name, value in layers.data.items():
        algorithm = str(value.get("quant_algo")).upper() if isinstance(value, Mapping) else ""
        if algorithm not in _MODELOPT:
            raise f.error(
                f"{layers.path}{name} has quant_algo {shown(algorithm)}; expected one of "
                f"{', '.join(_MODELOPT)}"
            )
        part = (
            "experts" if ".experts" in name else "attention" if "attn" in name else
            "dense" if re.search(r"mlp|feed_forward|ffn", name) else ""
        )  # fmt: skip
        found.setdefault(part, _MODELOPT[algorithm])
    first = next(iter(found.values()), None)
    if first is None:
        raise f.bad("quantized_layers", "at least one layer")
    dense = found.get("dense", found.get("experts", first))
    return _Parts(found.get("attention", "bf16"), dense, found.get("experts", dense))


def _kv(f: Fields, found: tuple[str, Any] | None) -> KvDtype | None:
    if found is None:
        return None
    name, value = found
    if isinstance(value, Mapping):
        bits, kind = value.get("num_bits"), value.get("type", "float")
        if bits == 8 and kind == "float":
            return "fp8"
    elif str(value).upper().startswith(("FP8", "FLOAT8")):
        return "fp8"
    elif str(value).lower() in ("auto", "none", ""):
        return None
    raise f.bad(name, "an 8-bit float scheme (fp8)")


# ---- what a list of exceptions leaves alone ----

_MIDDLE = range(8, 16)  # some schemes spare the first and last layers; look in between
_ATTENTION_NAMES = ("self_attn.o_proj", "linear_attn.out_proj", "attention.wo", "mixer.o_proj")
_EXPERT_NAMES = ("mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2")
_DENSE_NAMES = ("mlp.down_proj", "feed_forward.down_proj")
_IGNORED = (
    "ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude",
    "llm_int8_skip_modules",
)  # fmt: skip
_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "")


def _ignored(f: Fields) -> list[Any]:
    nested = f.child("quantization")
    names: list[Any] = [] if nested is None else _ignored(nested)
    for field in _IGNORED:
        names += f.listing(field) or []
    return names


def _ignores_attention(patterns: list[str]) -> bool:
    return _ignores(patterns, _ATTENTION_NAMES)


def _ignores(patterns: Iterable[str], names: tuple[str, ...]) -> bool:
    """Tell whether the patterns cover one of these modules in a middle layer."""
    useful = [p for p in patterns if p not in ("Linear", "lm_head") and "norm" not in p]
    probes = [f"layers.{i}.{name}" for i in _MIDDLE for name in names]
    return any(_covers(pattern, probe) for pattern in useful for probe in probes)


def _covers(pattern: str, probe: str) -> bool:
    if pattern.startswith("re:"):
        try:
            expression = re.compile(pattern[3:])
        except (re.error, RecursionError, OverflowError):
            return False
        return any(expression.match(prefix + probe) for prefix in _PREFIXES)
    bare = re.sub(r"^(model\.|language_model\.|\*)+", "", pattern)
    if any(c in bare for c in "*?["):
        return any(fnmatch.fnmatchcase(probe, form) for form in (bare, f"*{bare}", f"{bare}.*"))
    return bool(bare) and (
        probe == bare or probe.startswith(f"{bare}.") or f".{bare}." in f".{probe}."
    )
