"""A `python -m sglang.launch_server` command line -> the parts of a scenario that it states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specsim.catalog.serve_flags import Flags, flag_table, look_up, read_flags, weight_dtype
from specsim.catalog.serve_speculative import Reading
from specsim.errors import UsageError


def read_sglang_command(
    words: Sequence[str], version: str | None
) -> tuple[dict[str, Any], Reading]:
    """Translate the words after the launcher into a partial scenario."""
    flags = read_flags(words, flag_table("sglang"))
    found = Reading()
    model = flags.text("model-path")
    if model is None and len(flags.positionals) == 1:
        model = flags.positionals.pop()
    if model is None or flags.positionals:
        stray = f"; stray words: {' '.join(flags.positionals[:4])}" if flags.positionals else ""
        raise UsageError(f"the command must name one model with --model-path{stray}")
    target = {
        "model": model,
        "weight_dtype": weight_dtype(flags, model),
        "kv_dtype": flags.choice("kv-cache-dtype", "kv_dtype"),
    }
    scenario: dict[str, Any] = {
        "target": _stated(target),
        "hardware": _stated(_hardware(flags, found)),
    }
    speculation = _speculation(flags, found)
    engine = _engine(flags, _verified_tokens(speculation))
    scenario["engine"] = _stated({"name": "sglang", "version": version, **engine})
    if speculation is not None:
        scenario["speculation"] = speculation
    ignored, warnings = flags.rest()
    found.ignored += ignored
    found.warnings += warnings
    return scenario, found


def _stated(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _hardware(flags: Flags, found: Reading) -> dict[str, Any]:
    experts = flags.integer("ep-size")
    replicas = flags.integer("dp-size") or 1
    if flags.switch("enable-dp-attention") or (flags.integer("attn-dp-size") or 1) > 1:
        raise UsageError(
            "attention data parallelism (--enable-dp-attention, --attn-dp-size) is not modelled: "
            "the replicas share their experts; give a command with tensor parallelism"
        )
    if replicas > 1:
        found.warnings.append(
            f"--dp-size {replicas}: one replica is modelled; give its share of the load"
        )
    return {
        "tensor_parallel_size": flags.integer("tp-size"),
        "pipeline_parallel_size": flags.integer("pp-size"),
        "expert_parallel": True if experts is not None and experts > 1 else None,
    }


def _engine(flags: Flags, verified_tokens: int) -> dict[str, Any]:
    chunk = None
    if flags.given.get("chunked-prefill-size") == "-1":
        flags.take("chunked-prefill-size")
    else:
        chunk = flags.integer("chunked-prefill-size")
    graph_batch = flags.integer("cuda-graph-max-bs") or flags.integer("cuda-graph-max-bs-decode")
    return {
        "gpu_memory_utilization": flags.share("mem-fraction-static"),
        "max_num_seqs": flags.integer("max-running-requests"),
        "max_num_batched_tokens": chunk,
        "max_model_len": flags.integer("context-length"),
        "cuda_graphs": False if flags.switch("disable-cuda-graph") else None,
        "max_graph_tokens": graph_batch * verified_tokens if graph_batch else None,
        "async_scheduling": False if flags.switch("disable-overlap-schedule") else None,
    }


def _speculation(flags: Flags, found: Reading) -> dict[str, Any] | None:
    algorithm = flags.text("speculative-algorithm")
    if algorithm is None or algorithm.lower() == "none":
        return None
    method = look_up("--speculative-algorithm", algorithm.upper(), flags.table.data["methods"])
    speculation: dict[str, Any] = {"method": method}
    drafter = flags.text("speculative-draft-model-path")
    if drafter is not None and method != "ngram":
        speculation["drafter"] = drafter
    dtype = flags.choice("speculative-draft-model-quantization", "weight_dtype")
    if dtype is not None and drafter is not None:
        speculation["drafter_weight_dtype"] = dtype
    steps = flags.integer("speculative-num-steps")
    topk = flags.integer("speculative-eagle-topk")
    verified = flags.integer("speculative-num-draft-tokens", least=2)
    if method in ("dflash", "dspark"):
        block = flags.integer(f"speculative-{method}-block-size", least=2)
        # DFlash counts the root in its block, DSpark does not.
        drafted = block - 1 if block and method == "dflash" else block
        _set_length(speculation, verified - 1 if verified else drafted, found)
    elif method == "ngram":
        _set_length(speculation, verified - 1 if verified else 11, found)
        found.warnings.append("NGRAM drafts a tree of matches; a chain as long is modelled")
    else:
        _steps(speculation, steps, topk, verified)
    return speculation


def _set_length(speculation: dict[str, Any], k: int | None, found: Reading) -> None:
    if k is None:
        found.warnings.append("the number of draft tokens is not given: the drafter's own is used")
    else:
        speculation["num_speculative_tokens"] = k


def _steps(
    speculation: dict[str, Any], steps: int | None, topk: int | None, verified: int | None
) -> None:
    """Set a chain (topk 1) or a tree; `verified` includes the root."""
    if steps is None:
        raise UsageError(
            "--speculative-num-steps is not given and SGLang picks it by architecture; state it "
            "with --speculative-eagle-topk and --speculative-num-draft-tokens"
        )
    topk = 1 if topk is None else topk
    speculation["num_speculative_tokens"] = steps
    if topk == 1:
        if verified is not None and verified != steps + 1:
            raise UsageError(
                f"--speculative-num-draft-tokens {verified} with topk 1 must be num-steps + 1 = "
                f"{steps + 1}"
            )
        return
    if verified is None:
        raise UsageError("--speculative-eagle-topk above 1 needs --speculative-num-draft-tokens")
    if verified < steps + 1:
        raise UsageError(
            f"--speculative-num-draft-tokens {verified} is below num-steps + 1 = {steps + 1}: the "
            "tree would not hold one full path"
        )
    speculation["tree"] = {"topk": topk, "num_draft_tokens": verified}


def _verified_tokens(speculation: dict[str, Any] | None) -> int:
    """Tokens per sequence in one verification, which is what a captured batch size multiplies."""
    if speculation is None:
        return 1
    if "tree" in speculation:
        return int(speculation["tree"]["num_draft_tokens"])
    return int(speculation.get("num_speculative_tokens", 0)) + 1
