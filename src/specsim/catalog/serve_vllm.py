"""A `vllm serve` command line -> the parts of a scenario that it states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specsim.catalog.engines import parse_version, version_before
from specsim.catalog.serve_flags import Flags, flag_table, read_flags, weight_dtype
from specsim.catalog.serve_speculative import Reading, read_speculative_config
from specsim.errors import UsageError

_SHORTCUTS = {
    "spec-method": "method",
    "spec-model": "model",
    "spec-tokens": "num_speculative_tokens",
}
_OLD_FLAGS_GONE = (0, 8)
"""First release that takes --speculative-config instead of --speculative-model and the like."""


def read_vllm_command(words: Sequence[str], version: str | None) -> tuple[dict[str, Any], Reading]:
    """Translate the words after `vllm serve` into a partial scenario."""
    flags = read_flags(words, flag_table("vllm"))
    found = Reading()
    model = _model(flags)
    target = {"model": model, **_dtypes(flags, model)}
    hardware = _hardware(flags, found)
    engine = _engine(flags, found)
    config, version = _speculative_config(flags, version, found)
    scenario: dict[str, Any] = {"target": target, "hardware": hardware}
    scenario["engine"] = {"name": "vllm", **({"version": version} if version else {}), **engine}
    if config is not None:
        read = read_speculative_config(
            config,
            version=version,
            tensor_parallel_size=hardware.get("tensor_parallel_size", 1),
            model=model,
            table=flags.table,
        )
        scenario["speculation"] = read.speculation
        found.ignored += read.ignored
        found.warnings += read.warnings
    ignored, warnings = flags.rest()
    found.ignored += ignored
    found.warnings += warnings
    return scenario, found


def _model(flags: Flags) -> str:
    named = flags.text("model")
    if len(flags.positionals) > 1:
        raise UsageError(
            f"the command names several models: {', '.join(flags.positionals[:4])}; expected one "
            "(is the value of a flag missing or unquoted?)"
        )
    model = named or (flags.positionals[0] if flags.positionals else None)
    if model is None:
        config = " (--config files are not read: put their flags on the line)"
        raise UsageError(
            "the command names no model; expected `vllm serve MODEL ...`"
            + (config if "config" in flags.given else "")
        )
    if model.startswith("$"):
        raise UsageError(f"the model is the shell variable {model}; write its value")
    if "speculator." in model.lower():
        raise UsageError(
            f"{model} is a drafter in speculators format; name the target as the model and this "
            "one as 'model' in --speculative-config"
        )
    return model


def _dtypes(flags: Flags, model: str) -> dict[str, str]:
    dtypes = {
        "weight_dtype": weight_dtype(flags, model),
        "kv_dtype": flags.choice("kv-cache-dtype", "kv_dtype"),
    }
    return {key: dtype for key, dtype in dtypes.items() if dtype is not None}


def _hardware(flags: Flags, found: Reading) -> dict[str, Any]:
    hardware: dict[str, Any] = {}
    for flag, key in (
        ("tensor-parallel-size", "tensor_parallel_size"),
        ("pipeline-parallel-size", "pipeline_parallel_size"),
    ):
        size = flags.integer(flag)
        if size is not None:
            hardware[key] = size
    if flags.switch("enable-expert-parallel"):
        hardware["expert_parallel"] = True
    replicas = flags.integer("data-parallel-size")
    if replicas is not None and replicas > 1:
        if hardware.get("expert_parallel"):
            raise UsageError(
                f"--data-parallel-size {replicas} with --enable-expert-parallel is not modelled: "
                "the replicas share their experts; give one replica's command without "
                "--data-parallel-size"
            )
        found.warnings.append(
            f"--data-parallel-size {replicas}: one replica is modelled; give its share of the load"
        )
    return hardware


def _engine(flags: Flags, found: Reading) -> dict[str, Any]:
    engine: dict[str, Any] = {
        "gpu_memory_utilization": flags.share("gpu-memory-utilization")
        or flags.share("device-memory-utilization"),
        "max_num_seqs": flags.integer("max-num-seqs"),
        "max_num_batched_tokens": flags.integer("max-num-batched-tokens"),
        "async_scheduling": flags.switch("async-scheduling"),
        "max_graph_tokens": flags.integer("max-cudagraph-capture-size"),
    }
    if flags.given.get("max-model-len") in ("auto", "-1"):
        found.ignored.append(f"--max-model-len {flags.text('max-model-len')}")
    else:
        engine["max_model_len"] = flags.integer("max-model-len")
    if flags.switch("enforce-eager"):
        engine["cuda_graphs"] = False
    if flags.given.get("optimization-level") == "0":
        flags.take("optimization-level")
        engine["cuda_graphs"] = False
    _compilation(flags, engine, found)
    if flags.given.get("enable-chunked-prefill") is False:
        flags.take("enable-chunked-prefill")
        found.warnings.append("--no-enable-chunked-prefill is not modelled: prompts stop decoding")
    if flags.take("config") is not None:
        found.warnings.append("--config is not read; put its flags on the line")
    return {key: value for key, value in engine.items() if value is not None}


def _compilation(flags: Flags, engine: dict[str, Any], found: Reading) -> None:
    level = flags.given.get("compilation-config")
    if isinstance(level, str) and level.isdigit():  # the level alone, as older versions take it
        flags.take("compilation-config")
        if level == "0":
            engine["cuda_graphs"] = False
        return
    config = flags.mapping("compilation-config") or {}
    largest = config.get("max_cudagraph_capture_size")
    sizes = config.get("cudagraph_capture_sizes")
    if largest is None and isinstance(sizes, list) and sizes:
        largest = max((s for s in sizes if isinstance(s, int)), default=None)
    if isinstance(largest, int) and not isinstance(largest, bool) and largest > 0:
        engine["max_graph_tokens"] = largest
    mode = str(config.get("cudagraph_mode", "")).upper()
    if mode == "NONE" or config.get("use_cudagraph") is False:
        engine["cuda_graphs"] = False
    elif mode and mode != "FULL_AND_PIECEWISE":
        found.warnings.append(f"cudagraph_mode {mode} is not modelled; FULL_AND_PIECEWISE is")
    found.ignored += [
        f"compilation-config {key}"
        for key in config
        if key
        not in (
            "max_cudagraph_capture_size", "cudagraph_capture_sizes", "cudagraph_mode",
            "use_cudagraph",
        )
    ]  # fmt: skip


def _speculative_config(
    flags: Flags, version: str | None, found: Reading
) -> tuple[dict[str, Any] | None, str | None]:
    config = flags.mapping("speculative-config")
    for flag, key in _SHORTCUTS.items():
        value = flags.text(flag)
        if value is not None:
            config = {**(config or {}), key: value}
    renamed: dict[str, str] = flags.table.data["old_speculative_flags"]
    old = [flag for flag in renamed if flag in flags.given]
    if not old:
        return config, version
    if version is not None and not version_before(parse_version(version), _OLD_FLAGS_GONE):
        raise UsageError(
            f"--{old[0]} is gone since vLLM 0.8 (this is {version}); use --speculative-config "
            f"'{{\"{renamed[old[0]]}\": ...}}'"
        )
    if version is None:
        version = "0.7"
        found.warnings.append(f"--{old[0]} is a flag of vLLM 0.7 and before: version 0.7 is taken")
    fields: dict[str, Any] = dict(config or {})
    for flag in old:
        old_value = flags.take(flag)
        whole = isinstance(old_value, str) and old_value.isdigit()
        fields[renamed[flag]] = int(str(old_value)) if whole else old_value
    return fields, version
