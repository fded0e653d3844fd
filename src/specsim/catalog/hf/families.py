"""What a config.json leaves unsaid, by model_type.

A checkpoint's code, not its config, decides whether there are query-key norms, biases or a gate
in the feed-forward, and what an absent field means. Source of every row: the configuration and
modelling classes of Hugging Face transformers, and vLLM's own model code where that differs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from specsim.catalog.hf.fields import Fields


@dataclass(frozen=True, slots=True)
class Family:
    """Conventions of one model family."""

    tied: bool | None = False
    """tie_word_embeddings where the config does not say; None: it must say."""
    gated: bool | None = True
    """Three matrices in the feed-forward; None: only a SwiGLU-like activation tells."""
    mlp_bias: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "per_head", "full"] = "none"
    norms: int = 2
    """Norm vectors per layer; a LayerNorm with bias counts two."""
    sinks: bool = False
    output_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    lm_head_bias: bool = False
    learned_positions: int | None = None
    """Rows that a learned position table has beside the stated positions."""
    window_pattern: int = 0
    """Every n-th layer is global where a window is given without a pattern; 0: all are windowed."""
    window_first: bool = True
    """The windowed layers come first in that pattern."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """Fields that the family's configuration class fills in."""


_LLAMA = Family()
_ALL_BIASES = Family(gated=False, mlp_bias=True, qkv_bias=True, output_bias=True, norms=4)
_QWEN2 = replace(_LLAMA, qkv_bias=True)
_QWEN3 = replace(_LLAMA, qk_norm="per_head")
_GEMMA = replace(_LLAMA, tied=True, defaults={"head_dim": 256})
_DEEPSEEK = replace(_LLAMA, router_bias=True)

FAMILIES: dict[str, Family] = {
    # Llama and what loads as Llama
    "llama": _LLAMA,
    "llama4": replace(_LLAMA, defaults={"head_dim": 128, "interleave_moe_layer_step": 1}),
    "mistral": replace(_LLAMA, defaults={"num_key_value_heads": 8}),
    "mixtral": replace(_LLAMA, defaults={"num_key_value_heads": 8}),
    "ministral": replace(_LLAMA, defaults={"num_key_value_heads": 8}),
    "ministral3": replace(_LLAMA, defaults={"num_key_value_heads": 8, "head_dim": 128}),
    "mistral4": _DEEPSEEK,
    "yi": _LLAMA,
    "aquila": _LLAMA,
    "baichuan": _LLAMA,
    "internlm": replace(_LLAMA, qkv_bias=True, output_bias=True),
    "internlm2": _LLAMA,
    "internlm3": _LLAMA,
    "minicpm": replace(_LLAMA, tied=True),
    "minicpm3": replace(_LLAMA, tied=True),
    "xverse": _LLAMA,
    "orion": replace(_LLAMA, norms=4),
    "smollm3": replace(_LLAMA, tied=True),
    "seedoss": replace(_LLAMA, qkv_bias=True, defaults={"head_dim": 128}),
    "nemotronnas": _LLAMA,
    "deci": _LLAMA,
    "granite": _LLAMA,
    "granitemoe": _LLAMA,
    "granitemoeshared": _LLAMA,
    "granitemoehybrid": _LLAMA,
    "helium": replace(_LLAMA, defaults={"head_dim": 128}),
    "solar": _LLAMA,
    "solaropen": replace(_DEEPSEEK, defaults={"head_dim": 128}),
    "exaone": _LLAMA,
    "exaone4": replace(_LLAMA, qk_norm="per_head", window_pattern=4),
    "exaonemoe": replace(_DEEPSEEK, qk_norm="per_head", window_pattern=4),
    "apertus": replace(_LLAMA, gated=False, qk_norm="per_head"),
    "arcee": replace(_LLAMA, gated=False),
    "nemotron": replace(_LLAMA, gated=False, norms=4),
    "hunyuanv1dense": replace(_LLAMA, qk_norm="per_head"),
    "hunyuanv1moe": replace(_LLAMA, qk_norm="per_head"),
    "hunyuan": _LLAMA,
    "ernie45": replace(_LLAMA, tied=True, defaults={"head_dim": 128}),
    "ernie45moe": replace(_LLAMA, tied=True, router_bias=True),
    "ernie45vlmoe": replace(_LLAMA, tied=True, router_bias=True),
    "pangu": replace(_LLAMA, qkv_bias=True, output_bias=True),
    "panguembedded": replace(_LLAMA, qkv_bias=True, output_bias=True),
    "pangupromoe": replace(_LLAMA, qkv_bias=True, output_bias=True),
    "panguultramoe": replace(_DEEPSEEK, norms=4),
    "mimo": _QWEN2,
    "mimov2": replace(_LLAMA, router_bias=True, defaults={"head_dim": 192, "v_head_dim": 128}),
    "bailingmoe": _LLAMA,
    "bailingmoev2": replace(_DEEPSEEK, qk_norm="per_head"),
    "hyperclovax": _LLAMA,
    "youtu": replace(_LLAMA, tied=True),
    "bitnet": _LLAMA,
    "jais2": _ALL_BIASES,
    "graniteswa": replace(_LLAMA, sinks=True),
    "granitemoeswa": replace(_LLAMA, sinks=True),
    "cwm": replace(_LLAMA, defaults={"head_dim": 128}),
    # Qwen
    "qwen": _QWEN2,
    "qwen2": _QWEN2,
    "qwen2moe": _QWEN2,
    "qwen3": replace(_QWEN3, defaults={"head_dim": 128}),
    "qwen3moe": _QWEN3,
    # qkv of Qwen3-Next and 3.5 also project an output gate as large as q
    "qwen3next": replace(_QWEN3, output_gate=True, defaults={"head_dim": 256}),
    "qwen35": replace(_QWEN3, output_gate=True, defaults={"head_dim": 256}),
    "qwen35moe": replace(_QWEN3, output_gate=True, defaults={"head_dim": 256}),
    # Gemma ties its embeddings and never says so
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, norms=4, window_pattern=2),
    "gemma3": replace(_GEMMA, norms=4, qk_norm="per_head", window_pattern=6),
    "vaultgemma": _GEMMA,
    "gemma4": replace(_GEMMA, norms=4, qk_norm="per_head", window_pattern=6),
    # Phi
    "phi": replace(_ALL_BIASES, norms=2, lm_head_bias=True),  # one LayerNorm: parallel block
    "phi3": _LLAMA,
    "phi3small": replace(_LLAMA, tied=None),
    "phi4mm": _LLAMA,
    "phi4multimodal": _LLAMA,
    "phimoe": replace(_LLAMA, norms=4, defaults={"num_key_value_heads": 8}),
    # GPT-2 and its age
    "gpt2": replace(_ALL_BIASES, tied=True, learned_positions=0),
    "gptbigcode": replace(_ALL_BIASES, tied=True, learned_positions=0),
    "gptneo": replace(_ALL_BIASES, tied=True, qkv_bias=False, learned_positions=0),
    "gptneox": _ALL_BIASES,
    "gptj": replace(_ALL_BIASES, qkv_bias=False, output_bias=False, norms=2, lm_head_bias=True),
    "codegen": replace(_ALL_BIASES, qkv_bias=False, output_bias=False, norms=2, lm_head_bias=True),
    "opt": replace(_ALL_BIASES, tied=True, learned_positions=2),
    "bloom": replace(_ALL_BIASES, tied=True),
    "falcon": replace(_LLAMA, tied=True, gated=False, norms=2),
    "refinedweb": replace(_LLAMA, tied=True, gated=False, norms=2),
    "refinedwebmodel": replace(_LLAMA, tied=True, gated=False, norms=2),
    "mpt": replace(_LLAMA, tied=True, gated=False, norms=2),
    "persimmon": replace(_ALL_BIASES, qk_norm="per_head"),
    "starcoder2": replace(_ALL_BIASES, tied=True),
    "stablelm": replace(_LLAMA, norms=4),
    # GLM
    "chatglm": replace(_LLAMA, qkv_bias=True),
    "glm": replace(_LLAMA, qkv_bias=True, defaults={"head_dim": 128}),
    "glm4": replace(_LLAMA, qkv_bias=True, norms=4, defaults={"head_dim": 128}),
    "glm4moe": _DEEPSEEK,
    "glm4v": replace(_LLAMA, qkv_bias=True, norms=4),
    "glm4vmoe": replace(_DEEPSEEK, qkv_bias=True),
    "glm4moelite": _DEEPSEEK,
    "glmmoedsa": _DEEPSEEK,
    # DeepSeek and relatives
    "deepseek": _LLAMA,
    "deepseekv2": _LLAMA,
    "deepseekv3": _DEEPSEEK,
    "deepseekv32": _DEEPSEEK,
    "deepseekv4": _LLAMA,
    "deepseekref": _LLAMA,
    "kimik2": _DEEPSEEK,
    "kimilinear": _DEEPSEEK,
    "dots1": replace(_DEEPSEEK, qk_norm="per_head"),
    "longcatflash": _DEEPSEEK,
    "axk1": replace(_DEEPSEEK, norms=4),
    # others
    "minimax": _LLAMA,
    "minimaxtext01": _LLAMA,
    "minimaxm1": _LLAMA,
    "minimaxm2": replace(_LLAMA, qk_norm="full", router_bias=True),
    "gptoss": replace(
        _LLAMA,
        qkv_bias=True,
        output_bias=True,
        sinks=True,
        expert_bias=True,
        router_bias=True,
        window_pattern=2,
        defaults={"head_dim": 64},
    ),
    "olmo": replace(_LLAMA, norms=0),  # its LayerNorm has no weights
    "olmo2": replace(_LLAMA, qk_norm="full"),
    "olmo3": replace(_LLAMA, qk_norm="full", window_pattern=4),
    "olmoe": replace(_LLAMA, qk_norm="full"),
    "flexolmo": replace(_LLAMA, qk_norm="full"),
    "cohere": replace(_LLAMA, tied=True, norms=1),  # parallel block, one norm without bias
    "cohere2": replace(_LLAMA, tied=True, norms=1, window_pattern=4),
    "dbrx": _LLAMA,
    "arctic": _LLAMA,
    "nemotronh": replace(_LLAMA, gated=False, norms=1, defaults={"head_dim": 128}),
    "jamba": _LLAMA,
    "bamba": _LLAMA,
    "falconh1": _LLAMA,
    "step3p5": replace(_LLAMA, qk_norm="per_head"),
}

# Known to have a structure that the records cannot hold.
REFUSED: dict[str, str] = {
    "mamba": "an attention-free state-space model (Mamba) is not modelled",
    "mamba2": "an attention-free state-space model (Mamba-2) is not modelled",
    "falconmamba": "an attention-free state-space model (Mamba) is not modelled",
    "rwkv": "an attention-free recurrent model (RWKV) is not modelled",
    "recurrentgemma": "RG-LRU recurrent layers are not modelled",
    "lfm2": "short-convolution layers are not modelled",
    "lfm2moe": "short-convolution layers are not modelled",
    "zamba": "transformer blocks shared between layers are not modelled",
    "zamba2": "transformer blocks shared between layers are not modelled",
    "gemma3n": "AltUp, LAuReL and per-layer embeddings are not modelled",
    "mllama": "cross-attention to image states is not modelled",
    "step3": "multi-matrix factorised attention is not modelled",
    "step3text": "multi-matrix factorised attention is not modelled",
    "deepseekv41": "DeepSeek-V4.1 attention is not modelled",
    "mlpspeculator": "an MLP speculator is not modelled",
    "gemma4assistant": "a drafter that reads its target's KV cache is not read from a config.json",
    "openaigpt": "GPT-1 is not modelled",
    "jetmoe": "a mixture of attention heads is not modelled",
    "diffllama": "differential attention is not modelled",
}

_NOT_A_DECODER = re.compile(
    r"^(t5|mt5|umt5|byt5|longt5|switchtransformers|bart|mbart|pegasus|marian|m2m100|nllb|led|blenderbot"
    r"|plbart|prophetnet|fsmt|bigbirdpegasus|t5gemma|encoderdecoder|florence|donut|nougat|trocr|udop"
    r"|speechencoderdecoder|visionencoderdecoder)"
)
_ENCODER = re.compile(
    r"^(bert|roberta|xlmroberta|distilbert|deberta|electra|albert|camembert|modernbert|nomicbert|mpnet"
    r"|gte|jinabert|jinaembeddings|newmodel|eurobert|ernie$|convbert|squeezebert|funnel|esm|layoutlm"
    r"|colbert|bgem3|snowflakearctic(embed)?$|embeddinggemma)"
)
_OTHER_MODALITY = re.compile(
    r"^(whisper|wav2vec2|hubert|wavlm|seamless|speecht5|musicgen|bark|encodec|mimi|moonshine|parakeet"
    r"|vit|deit|dinov|swin|clip|siglip|beit|convnext|resnet|detr|sam|mask2former|segformer|dpt|radio"
    r"|imagegpt|stablediffusion|unet|flux|dit$|pixart|timesfm|patchtst|vits|audioflamingo3encoder)"
)


def squeezed(name: str) -> str:
    """Return a model_type or class name without case, separators and wrapper words."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    plain = re.sub(
        r"(forcausallm|forconditionalgeneration|lmheadmodel|lmheadcustommodel)$", "", plain
    )
    return plain


def family_of(fields: Fields, names: list[str]) -> tuple[Family | None, str]:
    """Return the conventions of the first name that is known, and that name.

    Parameters
    ----------
    names : list of str
        model_type and architectures, innermost first.
    """
    for name in names:
        key = squeezed(name)
        for candidate in dict.fromkeys((key, *_variants(key))):
            if candidate in REFUSED:
                raise fields.error(f"model_type {name!r}: {REFUSED[candidate]}")
            if candidate in FAMILIES:
                return FAMILIES[candidate], candidate
    for name in names:
        key = squeezed(name)
        if _NOT_A_DECODER.search(key):
            raise fields.error(f"{name!r} is an encoder-decoder model; only decoders are modelled")
        if _ENCODER.search(key):
            raise fields.error(f"{name!r} is an encoder or embedding model; it does not generate")
        if _OTHER_MODALITY.search(key):
            raise fields.error(f"{name!r} is no language model (vision, audio or diffusion)")
        if "mamba" in key or "rwkv" in key:
            raise fields.error(f"model_type {name!r}: {REFUSED['mamba']}")
    return None, ""


def _variants(key: str) -> list[str]:
    """Return the names of the text model inside a multimodal or renamed one."""
    bare = re.sub(r"(text|language|llm|thinker|model|v[0-9]?text)$", "", key)
    found = [bare, bare.replace("flash", "")]
    # qwen2_vl, qwen2_5_vl, qwen2_5_omni -> qwen2; qwen3_vl_moe, qwen3_omni_moe -> qwen3moe
    qwen = re.match(r"qwen(2|3)(5)?(vl|omni|audio)(moe)?(thinker)?", key)
    if qwen:
        found.append(f"qwen{qwen[1]}{qwen[4] or ''}")
    if key.startswith(("qwen25", "qwen15")):
        found.append("qwen2moe" if "moe" in key else "qwen2")
    if key.startswith("gemma4unified"):
        found.append("gemma4")
    return found
