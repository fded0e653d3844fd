"""Typed access to a config.json that remembers what was read.

A config is understood only if every field that changes cost was read: `Fields` keeps the names
that nobody asked for, and `refuse_unread` turns those into an error instead of a silent guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from specsim.errors import ModelConfigError

MAX_COUNT = 10**8
"""No width, vocabulary or head count is larger; a larger one is a broken file."""
MAX_LAYERS = 2000

# Parts of names of fields that add weights, cache or computation.
_COSTLY = re.compile(
    r"expert|moe|mamba|ssm|conv(?!ert|ersat)|linear_|lora|low_rank|index|compress|sliding|window|chunk"
    r"|layer_types?|layers?_block|block_types?|block_config|block_list|pattern|kv_shared|kv_source"
    r"|shared?_|_shared?|cross_attention|cross_layer|(^|_)cla(_|$)|per_layer|altup|laurel|mtp|nextn"
    r"|hyper_?conn|(^|_)(m?hc|mhc)_|engram|ngram|latent|sparse|hybrid|(^|_)swa(_|$)|global_|(^|_)local_"
    r"|recurren|state_size|d_state|lightning|delta|gate_proj|attn_gate|output_gate|heads|head_dim"
    r"|head_size|kv_channels|attention_groups|ffn|intermediate|hidden_size|num_.*layers|n_layers?$"
    r"|embed_proj|embedding_dim|adapter|memory|loop|depth|early_exit|byte|residual_mlp|k_eq_v"
    r"|double_wide|attention_type|attn_type|mixer|block_(size|length)"
)
# Names and endings that match the above and yet cost nothing, or follow from what is read.
_HARMLESS = re.compile(
    r"(_dtype|_coef|_coeff|_eps|_epsilon|_act|_act_fn|_activation|_scale|_scaling|scaling_factor"
    r"|_loss|_jitter|_jitter_noise|_noise|_token|_token_id|_token_ids|_theta|_temperature|_limit"
    r"|_limits|_range|_std|_dropout|_prob|_pdrop|_multiplier|_multipliers|_method|_func|_function"
    r"|_impl|_implementation|_backend|_kernels?|_alpha|_beta|_alpha_factor|_beta_factor|_softcap"
    r"|_softcapping|_freq_base|_logits|_clip|_init|_norm_min|_capacity|_capacity_factor"
    r"|_chunk_size|_group_size_norm|_interleave|_overlap|_weight|_initializer|_tuning|_ids)$"
    r"|^(rope|rotary|partial_rotary|original_max|transformers|tokenizer|router_|output_|use_mamba_ker"
    r"|mamba_ssm_cache|mamba_dt|mamba_chunk|time_step|compress_rope|chunk_size_feed_forward"
    r"|num_beams|num_beam_groups|num_return_sequences|no_repeat|num_logits_to_keep|norm_expert"
    r"|pruned_heads|remove_invalid|image_|video_|vision_|audio_|mm_|patch_|spatial_|temporal_"
    r"|projector_|use_flash|_attn_impl|attn_impl|encoder_no_repeat|pooling_|base_model|swiglu_"
    r"|softmax_aux|moe_router|moe_gate_no|num_hash_layers|hc_eps|hc_sinkhorn|index_share_for_mtp"
    r"|index_rope|indexer_rope|ignored_layers|layerwise|mlp_memory|linear_lower_bound|expert_dtype"
    r"|swa_rope|local_rope|global_rope|use_cache|max_window|language_model_only|scale_|num_expert_group"
    r"|moe_renormalize|moe_gate$|moe_norm_gate|moe_use_hard|moe_all_to_all|moe_multimodal|moe_drop"
    r"|moe_token_dropping|moe_random|moe_normalize|moe_aux|moe_orthogonal|moe_dense_experts_token"
    r"|enable_moe_fp32|enable_expert_tensor|shared_moe_mode|mamba_inner|use_grouped_topk"
    r"|moe_shared_expert_overlap|expert_selection_fn)"
)


class Fields:
    """One mapping of a config with the names already read.

    Parameters
    ----------
    data : Mapping
        The parsed JSON object.
    what : str
        The file, for messages.
    path : str
        Where in the file this mapping sits, such as 'text_config.'.
    """

    def __init__(self, data: Mapping[str, Any], *, what: str, path: str = "") -> None:
        self.data = data
        self.what = what
        self.path = path
        self._read: set[str] = set()
        self._children: dict[str, Fields] = {}

    def error(self, message: str) -> ModelConfigError:
        """Return the one-line error about this file."""
        return ModelConfigError(f"{self.what}: {message}")

    def bad(self, name: str, expected: str) -> ModelConfigError:
        """Return the error of a field that has a wrong value."""
        return self.error(f"{self.path}{name} is {shown(self.data.get(name))}; expected {expected}")

    def unsupported(self, name: str, why: str = "") -> ModelConfigError:
        """Return the error of a field that asks for what is not modelled."""
        reason = why or "this changes the cost and is not modelled"
        return self.error(
            f"{self.path}{name} = {shown(self.data.get(name))}: {reason}; write the model as a "
            "YAML record instead (`specsim profiles show` has examples)"
        )

    def mark(self, *names: str) -> None:
        """Count names as read."""
        self._read.update(names)

    def get(self, *names: str) -> tuple[str, Any] | None:
        """Return name and value of the first field that is present and not null."""
        self._read.update(names)
        for name in names:
            value = self.data.get(name)
            if value is not None:
                return name, value
        return None

    def has(self, *names: str) -> bool:
        """Tell whether one of the fields is present and not null."""
        return self.get(*names) is not None

    def integer(
        self, *names: str, default: int | None = None, low: int = 1, high: int = MAX_COUNT
    ) -> int:
        """Return a whole number; without a default the field is required."""
        found = self.get(*names)
        if found is None:
            if default is not None:
                return default
            raise self.missing(*names)
        name, value = found
        return self.whole(name, value, low=low, high=high)

    def maybe(self, *names: str, low: int = 1, high: int = MAX_COUNT) -> int | None:
        """Return a whole number, or None where absent, null or 0."""
        found = self.get(*names)
        if found is None or (found[1] == 0 and not isinstance(found[1], bool)):
            return None
        return self.whole(found[0], found[1], low=low, high=high)

    def whole(self, name: str, value: Any, *, low: int = 1, high: int = MAX_COUNT) -> int:
        """Check one value that was read from `name`."""
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(
                f"{self.path}{name} is {shown(value)}; expected a whole number from {low} to {high}"
            )
        return value

    def number(self, *names: str, default: float) -> float:
        """Return a positive number."""
        found = self.get(*names)
        if found is None:
            return default
        name, value = found
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(name, "a number")
        if not 0 < value <= MAX_COUNT:
            raise self.bad(name, f"a number above 0 and up to {MAX_COUNT}")
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """Return a truth value (JSON true/false, or 0/1)."""
        found = self.get(*names)
        if found is None:
            return default
        name, value = found
        if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise self.bad(name, "true or false")

    def text(self, *names: str, default: str = "") -> str:
        """Return a string."""
        found = self.get(*names)
        if found is None:
            return default
        if not isinstance(found[1], str):
            raise self.bad(found[0], "a string")
        return found[1]

    def listing(self, *names: str, length: int | None = None) -> list[Any] | None:
        """Return a list; with `length`, an entry per layer (what is beyond names MTP layers)."""
        found = self.get(*names)
        if found is None:
            return None
        name, value = found
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise self.bad(name, "a list")
        if length is not None:
            if len(value) < length:
                raise self.error(
                    f"{self.path}{name} has {len(value)} entries for {length} layers; "
                    "expected one per layer"
                )
            value = value[:length]
        return list(value)

    def integers(self, *names: str, length: int | None = None) -> list[int] | None:
        """Return a list of whole numbers from 0 up."""
        values = self.listing(*names, length=length)
        if values is None:
            return None
        name = next(n for n in names if self.data.get(n) is not None)
        return [self.whole(name, v, low=0) for v in values]

    def texts(self, *names: str, length: int | None = None) -> list[str] | None:
        """Return a list of strings."""
        values = self.listing(*names, length=length)
        if values is not None and not all(isinstance(v, str) for v in values):
            name = next(n for n in names if self.data.get(n) is not None)
            raise self.bad(name, "a list of names")
        return values

    def per_layer(
        self, *names: str, length: int, default: int | None = None, low: int = 1
    ) -> list[int]:
        """Return one whole number per layer from a number or from a list."""
        found = self.get(*names)
        if found is not None and isinstance(found[1], Sequence) and not isinstance(found[1], str):
            values = self.listing(found[0], length=length) or []
            return [self.whole(found[0], v, low=low) for v in values]
        return [self.integer(*names, default=default, low=low)] * length

    def child(self, *names: str) -> Fields | None:
        """Return a nested mapping."""
        found = self.get(*names)
        if found is None:
            return None
        name, value = found
        if not isinstance(value, Mapping):
            raise self.bad(name, "a mapping")
        if name not in self._children:
            self._children[name] = Fields(value, what=self.what, path=f"{self.path}{name}.")
        return self._children[name]

    def missing(self, *names: str) -> ModelConfigError:
        """Return the error of a required field that is absent."""
        also = f" (or {', '.join(names[1:4])})" if len(names) > 1 else ""
        return self.error(
            f"required field {self.path}{names[0]}{also} is missing; expected the config.json of a "
            "decoder-only language model"
        )

    def refuse_unread(self, *, strict: bool) -> None:
        """Raise for a field that changes the cost and that nobody read.

        Parameters
        ----------
        strict : bool
            For a model_type that is not known: refuse every unread field that holds something,
            unless it is known to be harmless.
        """
        for key, value in self.data.items():
            name = str(key)
            if name in self._read or _trivial(value) or _HARMLESS.search(name):
                continue
            if _COSTLY.search(name) or (strict and not _COMMON.search(name)):
                raise self.unsupported(name)
        for name, child in self._children.items():
            if "quant" not in name and "compression" not in name:
                child.refuse_unread(strict=strict)


# Fields of any transformers config that do not touch a decoder's shape.
_COMMON = re.compile(
    r"token|dropout|drop$|_eps|epsilon|_act$|activation|initializer|version|name_or_path|auto_map"
    r"|architectures|dtype|pretraining_tp|output_|^return_|loss|temperature|top_k$|top_p$|penalty"
    r"|max_position|max_length|min_length|max_sequence|model_max|seq_len|seqlen|id2label|label2id"
    r"|task_specific|prefix|finetuning|problem_type|bad_words|_norm_topk|norm_topk|scoring|topk_group"
    r"|n_group|topk_method|routed_scaling|ep_size|seq_aux|aux_loss|do_sample|early_stopping|is_decoder"
    r"|add_cross|torchscript|use_bfloat16|tf_legacy|sep_|bos|eos|pad|quantization|attn_impl|rms_norm"
    r"|layer_norm|norm_type|scale|scaling|softcap|std|vision|image|video|audio|license|unsloth"
    r"|model_type|transformers|tokenizer|position_embedding|alibi|gradient|use_cache|diversity|typical"
    r"|logit|suppress|begin|forced|num_return|remove_invalid|deterministic|seed|fp32|bf16|fp16|fused"
    r"|flash|kernel|ignore_index|quantized|lm_head_multiplier"
)


def _trivial(value: Any) -> bool:
    """Tell whether a value switches nothing on."""
    if isinstance(value, str):
        return value in ("", "none", "None")
    if isinstance(value, Sequence | Mapping):
        return len(value) == 0
    return value is None or value is False or value in (0, -1)


def shown(value: Any) -> str:
    """Return a value for a message, on one line and short."""
    text = " ".join(repr(value).split()) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
