"""The file that a config comes from: reading it, what else it may be, and whether to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from specsim.catalog.files import read_mapping
from specsim.catalog.hf.fields import Fields
from specsim.catalog.models import split_suffix
from specsim.errors import InputError, ModelConfigError
from specsim.schema.model import DrafterSpec, ModelSpec

TEXT_PARTS = (
    "text_config",
    "llm_config",
    "language_config",
    "language_model_config",
    "language_model",
    "text_model_config",
    "thinker_config",
    "talker_config",
    "llm",
    "model_config",
)
QUANTISATION = ("quantization_config", "compression_config")

Spec = TypeVar("Spec", ModelSpec, DrafterSpec)


def load(source: Path | str | Mapping[str, Any]) -> tuple[Mapping[str, Any], str, str]:
    """Return a config, what to call it in messages, and a name for the model (may be empty)."""
    if isinstance(source, Mapping):
        return source, "config.json", ""
    source = Path(source)
    path = source / "config.json" if source.is_dir() else source
    stem = path.parent.name if path.name == "config.json" else path.stem.removesuffix("_config")
    try:
        data = read_mapping(path)
        beside = path.with_name("hf_quant_config.json")
        if "quantization_config" not in data and path.name == "config.json" and beside.is_file():
            # Older ModelOpt checkpoints keep their formats in a file of its own.
            data = {**data, "quantization_config": read_mapping(beside)}
        return data, str(path), stem
    except InputError as error:
        raise ModelConfigError(f"{error}; expected the config.json of a language model") from error


def distrusted(spec: Spec, f: Fields, file_name: str) -> Spec:
    """Mark what is named like a quantised checkpoint and says nothing of being one.

    ModelOpt keeps the formats in hf_quant_config.json, which a config.json that was downloaded
    alone lacks: its weights may be half of what they are counted as.
    """
    levels = [f.data, *(part for name in TEXT_PARTS if isinstance(part := f.data.get(name), dict))]
    if any(level.get(key) for level in levels for key in QUANTISATION):
        return spec
    for name in (file_name, str(f.data.get("_name_or_path") or "").rstrip("/")):
        dtype = split_suffix(name)[1]
        if dtype is not None and dtype not in (spec.weight_dtype, "bf16", "fp16"):
            note = (
                f"the name {name!r} says {dtype}, but there is no quantization_config and no "
                f"hf_quant_config.json beside it: read as {spec.weight_dtype}; give "
                f"--weight-dtype {dtype} (or --quantization) if that is what is served"
            )
            notes = "; ".join(part for part in (note, spec.note) if part)
            return spec.model_copy(update={"confidence": "low", "note": notes})
    return spec


def refuse_other_files(f: Fields) -> None:
    """Recognise the other JSON files of a checkpoint and say which one is wanted."""
    data = f.data
    if not data:
        raise f.error("is empty; expected the config.json of a language model")
    if "hidden_size" in data or "model_type" in data or "architectures" in data:
        return
    other = ""
    if "weight_map" in data:
        other = "a safetensors index"
    elif "tokenizer_class" in data or "added_tokens_decoder" in data or "added_tokens" in data:
        other = "a tokenizer file"
    elif "processor_class" in data or "image_processor_type" in data:
        other = "a processor file"
    elif "_class_name" in data or "_diffusers_version" in data:
        other = "a diffusion pipeline's config"
    elif "producer" in data and "quantization" in data:
        other = "a hf_quant_config.json"
    elif {"do_sample", "temperature", "top_p", "_from_model_config"} & set(data):
        other = "a generation_config.json"
    elif "peft_type" in data:
        other = "a LoRA adapter's config"
    if other:
        raise f.error(f"is {other}; expected the config.json beside it")
