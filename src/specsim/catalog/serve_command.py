"""A pasted serving command -> the parts of a scenario it states, and a scenario -> a command.

Understood: `vllm serve`, the older `python -m vllm.entrypoints.openai.api_server`, images of
vLLM and SGLang under docker or podman, in Dockerfiles, Kubernetes and compose files, `python -m
sglang.launch_server`; with environment variables before them, shell variables, continuations,
wrappers and pipes around them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specsim.catalog.models import repository
from specsim.catalog.serve_sglang import read_sglang_command
from specsim.catalog.serve_shell import split_commands
from specsim.catalog.serve_speculative import NEEDS_DRAFTER
from specsim.catalog.serve_vllm import read_vllm_command
from specsim.errors import UsageError
from specsim.schema.scenario import Scenario

_VLLM_MODULE = re.compile(r"vllm\.entrypoints\.(openai\.)?api_server")
_SGLANG_MODULE = re.compile(r"sglang\.launch_server")
_IMAGE = re.compile(r"[\w.:/-]*?(vllm|sglang)[\w.-]*(?::(?P<tag>[\w.-]+))?(?:@sha256:\w+)?")
_RELEASE = re.compile(r"^v?(\d+\.\d+[\w.]*)")
_PINNED = re.compile(r"\b(vllm|sglang)(?:\[[\w,]+\])?==(\d[\w.]*)")
_ENVIRONMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_CONTAINER_TOOLS = ("docker", "podman", "nerdctl")
_COSTLY_ENVIRONMENT = {
    "VLLM_USE_V1": "which engine generation runs is taken from the version alone",
    "VLLM_USE_V2_MODEL_RUNNER": "which runner and graphs are used is taken from the version alone",
}


@dataclass(frozen=True)
class ServeCommand:
    """What a serving command says.

    Attributes
    ----------
    scenario : dict
        The stated parts of a scenario, as in a scenario file: target, hardware, engine and,
        where the command speculates, speculation. Nothing that the command does not state.
    ignored : list of str
        Flags that were understood and do not change the model.
    warnings : list of str
        Flags that change the cost in a way that is not modelled, and readings worth a look.
    """

    scenario: dict[str, Any]
    ignored: list[str]
    warnings: list[str]


@dataclass(frozen=True)
class _Launch:
    engine: str
    before: list[str]
    after: list[str]
    tag_version: str | None = None


def parse_serve_command(text: str, *, engine_version: str | None = None) -> ServeCommand:
    """Read a pasted serving command.

    Parameters
    ----------
    text : str
        Shell text with one serving command in it.
    engine_version : str, optional
        Wins over the version in an image's tag or a pin. Neither: the newest known version's
        flags are expected.

    Raises
    ------
    UsageError
        One line: no serving command, a flag or field the engine does not have (with the nearest
        names), one that is refused by this version, broken JSON, or a deployment that is not
        modelled.
    """
    commands = split_commands(text)
    launch = _find_launch(commands)
    pinned = next((m[2] for m in _PINNED.finditer(text) if m[1] == launch.engine), None)
    version = engine_version or launch.tag_version or pinned
    read = read_vllm_command if launch.engine == "vllm" else read_sglang_command
    scenario, found = read(launch.after, version)
    ignored, warnings = _environment(launch.before)
    if sum(_launch_in(list(command)) is not None for command in commands) > 1:
        warnings = [*warnings, "several serving commands: the first is read"]
    return ServeCommand(
        scenario=scenario,
        ignored=[*ignored, *found.ignored],
        warnings=[*found.warnings, *warnings],
    )


def _find_launch(commands: Sequence[Sequence[str]], *, depth: int = 0) -> _Launch:
    for command in commands:
        words = list(command)
        container = any(word.rsplit("/", 1)[-1] in _CONTAINER_TOOLS for word in words)
        image = _find_image(words) if container else None
        launch = _launch_in(words) or _launch_inside(words, depth) or _launch_of_image(words, image)
        if launch is not None:
            if image is not None and image[1] == launch.engine and launch.tag_version is None:
                return replace(launch, tag_version=image[2])
            return launch
    raise UsageError(
        "no serving command found; expected `vllm serve MODEL ...`, `python -m "
        "vllm.entrypoints.openai.api_server --model MODEL ...` or `python -m "
        "sglang.launch_server --model-path MODEL ...`"
    )


def _launch_in(words: Sequence[str]) -> _Launch | None:
    """Find the program among the words of one command."""
    for position, word in enumerate(words):
        following = words[position + 1] if position + 1 < len(words) else ""
        name = word.rsplit("/", 1)[-1]
        skip = 0
        if name in ("vllm", "sglang") and following == "serve":
            engine, skip = name, 2
        elif " " in word:
            continue
        elif _VLLM_MODULE.search(word):
            engine, skip = "vllm", 1
        elif _SGLANG_MODULE.search(word):
            engine, skip = "sglang", 1
        if skip:
            return _Launch(engine, list(words[:position]), list(words[position + skip :]))
    return None


def _launch_inside(words: Sequence[str], depth: int) -> _Launch | None:
    """Find the program in a word that is a command itself: bash -c "vllm serve ..."."""
    for position, word in enumerate(words):
        if depth < 3 and re.search(r"\s", word) and re.search(r"vllm|sglang", word):
            try:
                inner = _find_launch(split_commands(word), depth=depth + 1)
            except UsageError:
                continue
            return replace(inner, before=[*words[:position], *inner.before])
    return None


def _launch_of_image(
    words: Sequence[str], image: tuple[int, str, str | None] | None
) -> _Launch | None:
    """Take what follows an image: its entry point is the server."""
    if image is None or image[0] + 1 >= len(words):
        return None
    position, engine, tag = image
    after = list(words[position + 1 :])  # `serve` where the entry point is the bare program
    return _Launch(engine, list(words[:position]), after[after[0] == "serve" :], tag)


def _find_image(words: Sequence[str]) -> tuple[int, str, str | None] | None:
    """Return (position, engine, version in the tag) of a container image."""
    for position, word in enumerate(words):
        # An image's name has a path or a tag; `vllm` alone is the program.
        match = _IMAGE.fullmatch(word) if "/" in word or ":" in word else None
        previous = words[position - 1] if position else ""
        mounted = previous in ("-v", "--volume", "--mount", "--name", "-e", "--env", "-w")
        if match and not mounted and not word.startswith(("-", "/", ".")):
            release = _RELEASE.match(match["tag"] or "")
            return position, match[1], release[1] if release else None
    return None


def _environment(before: Sequence[str]) -> tuple[list[str], list[str]]:
    ignored, warnings = [], []
    for word in before:
        match = _ENVIRONMENT.fullmatch(word)
        if match is None:
            continue
        name = match[1]
        if name in _COSTLY_ENVIRONMENT:
            warnings.append(f"{name} is not modelled: {_COSTLY_ENVIRONMENT[name]}")
        elif name.startswith(("VLLM_", "SGLANG_", "CUDA_", "NCCL_")):
            ignored.append(name)
    return ignored, warnings


_WEIGHT_FLAGS = {
    "fp8": ["--quantization", "fp8"],
    "int8": ["--quantization", "experts_int8"],
    "int4": ["--quantization", "awq_marlin"],
    "nvfp4": ["--quantization", "modelopt_fp4"],
    "mxfp4": ["--quantization", "mxfp4"],
    "fp16": ["--dtype", "half"],
    "fp32": ["--dtype", "float32"],
    # bf16 has no flag: it is what a checkpoint that is not quantised runs in.
    "bf16": [],
}
_KV_FLAGS = {"fp8": "fp8", "bf16": "bfloat16", "fp16": "float16"}
_DRAFT_QUANTIZATION = {
    "fp8": "fp8", "int8": "experts_int8", "int4": "awq_marlin", "nvfp4": "modelopt_fp4",
    "mxfp4": "mxfp4",
}  # fmt: skip


def format_serve_command(scenario: Scenario) -> str:
    """Return the `vllm serve` line of a scenario; `parse_serve_command` reads it back.

    Acceptance, workload, load and accelerator have no flag and are left out, and so is a bf16
    weight dtype. Names of the catalog become the repositories that they stand for.
    """
    if scenario.engine.name != "vllm":
        raise UsageError(
            f"a command can be written for vllm only, not for {scenario.engine.name}; set "
            "engine.name to vllm"
        )
    engine, hardware, target = scenario.engine, scenario.hardware, scenario.target
    words = ["vllm", "serve", repository(target.model)]

    def add(flag: str, value: object) -> None:
        if value is not None:
            words.extend([flag, str(value)])

    words += _WEIGHT_FLAGS[target.weight_dtype] if target.weight_dtype else []
    add("--kv-cache-dtype", _KV_FLAGS.get(target.kv_dtype or ""))
    add("--tensor-parallel-size", _unless(hardware.tensor_parallel_size, 1))
    add("--pipeline-parallel-size", _unless(hardware.pipeline_parallel_size, 1))
    words += ["--enable-expert-parallel"] if hardware.expert_parallel else []
    add("--gpu-memory-utilization", engine.gpu_memory_utilization)
    add("--max-num-seqs", engine.max_num_seqs)
    add("--max-num-batched-tokens", engine.max_num_batched_tokens)
    add("--max-model-len", engine.max_model_len)
    add("--max-cudagraph-capture-size", engine.max_graph_tokens)
    words += [] if engine.cuda_graphs else ["--enforce-eager"]
    if engine.async_scheduling is not None:
        words.append("--async-scheduling" if engine.async_scheduling else "--no-async-scheduling")
    if scenario.speculation.method != "none":
        add("--speculative-config", json.dumps(_speculative_config(scenario)))
    return shlex.join(words)


def _unless(value: int, default: int) -> int | None:
    return None if value == default else value


def _speculative_config(scenario: Scenario) -> dict[str, Any]:
    speculation = scenario.speculation
    if speculation.tree is not None:
        raise UsageError("vLLM drafts chains; leave speculation.tree out to write its command")
    if speculation.method in NEEDS_DRAFTER and speculation.drafter is None:
        raise UsageError(f"a command with method {speculation.method} needs speculation.drafter")
    method: str = speculation.method
    config: dict[str, Any] = {}
    if method in ("p_eagle", "pard"):
        method = "eagle3" if method == "p_eagle" else "draft_model"
        config["parallel_drafting"] = True
    config["method"] = method
    if speculation.drafter is not None:
        config["model"] = repository(speculation.drafter)
    if speculation.num_speculative_tokens is not None:
        config["num_speculative_tokens"] = speculation.num_speculative_tokens
    if speculation.draft_tensor_parallel_size is not None:
        config["draft_tensor_parallel_size"] = speculation.draft_tensor_parallel_size
    if speculation.drafter_weight_dtype in _DRAFT_QUANTIZATION:
        config["quantization"] = _DRAFT_QUANTIZATION[speculation.drafter_weight_dtype]
    if speculation.adaptive_verification:
        config["enable_adaptive_verification"] = True
    return config
