"""The ways to say what to predict: a file, a pasted `vllm serve` command, or flags; flags win.

One table of flags, each with the scenario key that it sets; help texts are the schema's own.
Flags that vLLM has too are spelled as vLLM spells them, and where their values are vLLM's own
words they are read by the function that reads a pasted command.
"""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click
import yaml

from specsim.catalog.files import read_mapping
from specsim.catalog.scenario import load_scenario
from specsim.catalog.yaml_text import load_value
from specsim.cli.output import refuse_overwriting, refuse_replacing, replace_file
from specsim.cli.parameters import INPUT, NumberList, Option, ScenarioCommand, refuse_scenarios
from specsim.errors import UsageError
from specsim.schema.base import KvDtype, WeightDtype
from specsim.schema.scenario import Scenario
from specsim.schema.speculation import Method

NO_EFFECT = "flags without effect on a prediction"
"""How a note begins that names flags of a pasted command that no scenario holds."""
_NO_MODEL = "no-model"
"""Stands where a `vllm serve` command has its model, when only its flags are asked about."""


_DEPLOYMENT, _SPECULATION = "Deployment", "Speculation"
_ACCEPTANCE, _WORKLOAD = "Acceptance (exactly one form)", "Workload and load"
_NUMBERS = NumberList()

OPTIONS: tuple[Option, ...] = (
    Option(["--from-command"], section=INPUT, metavar="'vllm serve ...'",
           help="A vLLM command to read the deployment from; - reads it from stdin."),
    Option(["--set", "settings"], section=INPUT, multiple=True, metavar="KEY=VALUE",
           help="Set any key of the scenario, e.g. engine.host_ms=0.9 (repeatable). Keys: "
           "docs/scenario.md."),
    Option(["--catalog"], section=INPUT, multiple=True, callback=refuse_scenarios,
           type=click.Path(path_type=Path), metavar="DIR|FILE",
           help="Your own models, drafters and devices (repeatable)."),
    Option(["--model"], section=_DEPLOYMENT, key="target.model"),
    Option(["--gpu"], section=_DEPLOYMENT, key="hardware.accelerator"),
    Option(["--tensor-parallel-size", "-tp"], section=_DEPLOYMENT, type=int,
           key="hardware.tensor_parallel_size", help="Devices that share every layer."),
    Option(["--pipeline-parallel-size", "-pp"], section=_DEPLOYMENT, type=int,
           key="hardware.pipeline_parallel_size", help="Groups of devices, each with some layers."),
    Option(["--enable-expert-parallel"], section=_DEPLOYMENT, is_flag=True, default=None,
           key="hardware.expert_parallel", help="Whole experts on a device, not parts of all."),
    Option(["--dtype", "--weight-dtype", "dtype"], section=_DEPLOYMENT,
           help="Dtype of the weights: bf16, fp16, fp8, int8, int4, nvfp4, mxfp4, fp32, or "
           "vLLM's words. Absent: the checkpoint's."),
    Option(["--quantization"], section=_DEPLOYMENT,
           help="vLLM's name of a quantised format: fp8, awq, gptq_marlin ..."),
    Option(["--kv-cache-dtype"], section=_DEPLOYMENT,
           help="Dtype of the KV cache: auto, bf16, fp16, fp8, fp32, or vLLM's words."),
    Option(["--gpu-memory-utilization"], section=_DEPLOYMENT, type=float,
           key="engine.gpu_memory_utilization", help="Share of the memory that vLLM may use."),
    Option(["--max-num-seqs"], section=_DEPLOYMENT, type=int, key="engine.max_num_seqs",
           help="Most requests running at once."),
    Option(["--max-num-batched-tokens"], section=_DEPLOYMENT, type=int,
           key="engine.max_num_batched_tokens", help="Most tokens in one step."),
    Option(["--max-model-len"], section=_DEPLOYMENT, type=int, key="engine.max_model_len",
           help="Longest prompt and answer together [tokens]."),
    Option(["--enforce-eager"], section=_DEPLOYMENT, is_flag=True, default=None,
           help="Run without CUDA graphs."),
    Option(["--engine"], section=_DEPLOYMENT, metavar="NAME[@VERSION]",
           help="vllm, sglang or tensorrt-llm, and its version: vllm@0.33."),
    Option(["--speculative-config", "-sc"], section=_SPECULATION, metavar="JSON",
           help='As vLLM takes it: \'{"method": "ngram", "num_speculative_tokens": 3}\'.'),
    Option(["--spec-method"], section=_SPECULATION,
           help="ngram, suffix, draft_model, eagle, eagle3, mtp, medusa, dflash, dspark, "
           "p_eagle, pard or none."),
    Option(["--spec-model"], section=_SPECULATION, key="speculation.drafter"),
    Option(["--spec-tokens"], section=_SPECULATION, type=int,
           key="speculation.num_speculative_tokens"),
    Option(["--draft-tensor-parallel-size"], section=_SPECULATION, type=int,
           key="speculation.draft_tensor_parallel_size"),
    Option(["--acceptance-length"], section=_ACCEPTANCE, type=float,
           key="speculation.acceptance.length"),
    Option(["--acceptance-rate"], section=_ACCEPTANCE, type=float,
           key="speculation.acceptance.rate"),
    Option(["--draft-acceptance-rate"], section=_ACCEPTANCE, type=float,
           key="speculation.acceptance.draft_acceptance_rate"),
    Option(["--acceptance-per-position"], section=_ACCEPTANCE, type=_NUMBERS,
           key="speculation.acceptance.per_position"),
    Option(["--acceptance-profile"], section=_ACCEPTANCE, key="speculation.acceptance.profile"),
    Option(["--proposal-rate"], section=_ACCEPTANCE, type=float,
           key="speculation.acceptance.proposal_rate"),
    Option(["--input-len"], section=_WORKLOAD, type=float, key="workload.input_tokens"),
    Option(["--output-len"], section=_WORKLOAD, type=float, key="workload.output_tokens"),
    Option(["--cached-prompt-tokens"], section=_WORKLOAD, type=float,
           key="workload.cached_prompt_tokens"),
    Option(["--temperature"], section=_WORKLOAD, type=float, key="workload.temperature",
           help="Sampling temperature."),
    Option(["--arrival"], section=_WORKLOAD, type=click.Choice(["steady", "burst"]),
           key="workload.arrival", help="Requests spread over time, or all at once."),
    Option(["--max-concurrency"], section=_WORKLOAD, type=_NUMBERS, key="load.concurrency",
           help="Requests kept in the system (closed loop)."),
    Option(["--request-rate"], section=_WORKLOAD, type=_NUMBERS, key="load.request_rate",
           help="Arriving requests per second (open loop)."),
    Option(["--save-scenario"], type=click.Path(dir_okay=False, path_type=Path),
           help="Write the scenario that was predicted to this file (.yaml); an earlier scenario "
           "is replaced, another file not."),
)  # fmt: skip

UNDER_LOAD: tuple[Option, ...] = (
    Option(["--input-len-p95"], section=_WORKLOAD, type=float, key="workload.input_tokens_p95"),
    Option(["--output-len-p95"], section=_WORKLOAD, type=float, key="workload.output_tokens_p95"),
    Option(["--burstiness"], section=_WORKLOAD, type=float, key="workload.burstiness"),
    Option(["--acceptance-spread"], section=_ACCEPTANCE, type=float,
           key="speculation.acceptance.spread"),
)  # fmt: skip
"""What single requests differ in: for commands that serve them one by one."""

_SPELLED_AS_VLLM: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "dtype": ("--dtype", "target.weight_dtype", get_args(WeightDtype)),
    "quantization": ("--quantization", "target.weight_dtype", get_args(WeightDtype)),
    "kv_cache_dtype": ("--kv-cache-dtype", "target.kv_dtype", get_args(KvDtype)),
    "spec_method": ("--spec-method", "speculation.method", get_args(Method)),
    "speculative_config": ("--speculative-config", "", ()),
}
"""Flags with words as values: vLLM's flag, the scenario's key, and the words of the scenario."""
_EXCLUSIVE = (
    ("acceptance_length", "acceptance_rate", "draft_acceptance_rate", "acceptance_per_position",
     "acceptance_profile"),
    ("max_concurrency", "request_rate"),
    ("speculative_config", "spec_method"),
)  # fmt: skip


calibration_option = click.option(
    "--calibration", cls=Option, section=INPUT, metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Constants fitted to measured runs, as `specsim calibrate` writes them.",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What the command line asks about."""

    scenario: Scenario
    search: tuple[Path, ...]
    notes: tuple[str, ...]
    """What there is to say about how the input was read."""


def keys_given() -> dict[str, str]:
    """Return the keys of the scenario that the command line sets, each with its flag."""
    context = click.get_current_context()
    given = {n for n, value in context.params.items() if value not in (None, ())}
    found = {
        p.key: p.opts[0]
        for p in context.command.params
        if isinstance(p, Option) and p.key and p.name in given
    }
    for name, (flag, key, _) in _SPELLED_AS_VLLM.items():
        if key and name in given:
            found[key] = flag
    for setting in context.params.get("settings", ()):
        key = setting.partition("=")[0]
        found.setdefault(key, f"--set {key}")
    return found


def without_effect(scenario: Scenario) -> tuple[str, ...]:
    """Return what a simulation of single requests does not look at, though it is given."""
    if scenario.load.concurrency is None or scenario.workload.burstiness == 1.0:
        return ()
    return (
        "burstiness has no effect on a closed loop, in which an answer sends the next request; "
        "give a --request-rate",
    )


def scenario_command(
    name: str, *, extra: tuple[Callable[[Any], Any], ...] = (), more: tuple[Option, ...] = ()
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command that takes a scenario in any of its forms and gets it as a `Request`.

    Parameters
    ----------
    extra : tuple of decorators
        Options of the command's own.
    more : tuple of Option
        Options that set keys of the scenario beside those of every command.
    """
    options = (*OPTIONS, *more)

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(**params: Any) -> None:
            names = ["scenario", *(str(option.name) for option in options)]
            flags = {name: params.pop(name) for name in names}
            _refuse_overwriting(params, flags)
            function(request=read_request(flags, options), **params)

        for option in reversed(extra):
            run = option(run)
        argument = click.Argument(
            ["scenario"], required=False, type=click.Path(path_type=Path), metavar="[SCENARIO]"
        )
        command = click.command(name, cls=ScenarioCommand)(run)
        command.params = [argument, *options, *command.params]
        return command

    return decorate


def _refuse_overwriting(params: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
    """Refuse to write over what the command reads, and two answers into one file."""
    scenario, saved = flags.get("scenario"), flags.get("save_scenario")
    one = ("calibration", "trace", "prices")
    read = (
        *(scenario, *(params.get(name) for name in one)),
        *(*params.get("measurements", ()), *(flags.get("catalog") or ())),
    )
    written = [params.get("output"), params.get("out"), saved]
    for i, path in enumerate(written):
        others = (*written[:i], *(() if path == saved == scenario else read))
        refuse_overwriting(path, *others)
    # Said before the work is done. A sweep has rules of its own for its table.
    if "overwrite" not in params:
        refuse_replacing(params.get("output"), "json" if params.get("as_json") else "text")
    refuse_replacing(saved, "yaml")
    # It is written before anything is read.
    for folder in params.get("measurements", ()):
        if saved and saved.exists() and saved.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"--save-scenario {saved}: is among the measurements; give another")


def read_request(flags: Mapping[str, Any], options: Sequence[Option] = OPTIONS) -> Request:
    """Combine a file or a pasted command with the flags, which win."""
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    _refuse_contradictions(given)
    notes: list[str] = []
    source: Path | dict[str, Any] = given.get("scenario", {})
    engine = _engine(given.get("engine"))
    if "from_command" in given:
        source, notes = _pasted(given["from_command"], engine.get("engine.version"))
    overrides = {**engine, **_overrides(given, source, notes, options)}
    if isinstance(source, dict) and not (
        overrides.get("hardware.accelerator") or source.get("hardware", {}).get("accelerator")
    ):
        raise UsageError(
            "the accelerator is missing; give it with --gpu, e.g. --gpu h100_sxm; "
            "list them with `specsim profiles list`"
        )
    scenario = load_scenario(source, overrides=overrides)
    speculative = [o.name for o in options if o.section in (_SPECULATION, _ACCEPTANCE)]
    unused = [name for name in speculative if name in given and given[name] != "none"]
    if scenario.speculation.method == "none" and unused:
        raise UsageError(
            f"--{str(unused[0]).replace('_', '-')} without a way of speculating; "
            "name one with --spec-method or --speculative-config"
        )
    acceptance = scenario.speculation.acceptance
    if "workload.temperature" in overrides and acceptance and acceptance.profile is None:
        notes.append(
            "the acceptance that is given is taken as measured at temperature "
            f"{scenario.workload.temperature:g}: only an acceptance profile knows others"
        )
    if "save_scenario" in given:
        _save(given["save_scenario"], scenario)
    return Request(scenario, tuple(given.get("catalog", ())), tuple(notes))


def _refuse_contradictions(given: Mapping[str, Any]) -> None:
    if "from_command" in given:
        for other, flag in (("scenario", "a scenario file"), ("model", "--model")):
            if other in given:
                raise UsageError(
                    f"--from-command together with {flag}: the command already says what is "
                    "served; give one of the two (other flags override the command)"
                )
    if not given.keys() & {"scenario", "from_command", "model"}:
        raise UsageError(
            "nothing to predict; give a scenario file, or --from-command 'vllm serve ...' with "
            f"--gpu, or --model with --gpu; see `{_command_path()} --help`"
        )
    for names in _EXCLUSIVE:
        both = [f"--{name.replace('_', '-')}" for name in names if name in given]
        if len(both) > 1:
            raise UsageError(f"{' together with '.join(both)}: give one of them")


def _command_path() -> str:
    context = click.get_current_context(silent=True)
    return "specsim predict" if context is None else context.command_path


def _engine(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    name, at, version = text.partition("@")
    if not name or (at and not version):
        raise UsageError(f"--engine {text!r}: expected NAME or NAME@VERSION, such as vllm@0.33")
    return {"engine.name": name, "engine.version": version or None}


def _pasted(text: str, version: str | None) -> tuple[dict[str, Any], list[str]]:
    # The reader of commands knows all of vLLM's flags; few predictions need it.
    from specsim.catalog.serve_command import parse_serve_command

    command = parse_serve_command(sys.stdin.read() if text == "-" else text, engine_version=version)
    notes = list(command.warnings)
    if command.ignored:
        notes.append(f"{NO_EFFECT}: {', '.join(command.ignored)}")
    return dict(command.scenario), notes


def _overrides(
    given: Mapping[str, Any],
    source: Path | dict[str, Any],
    notes: list[str],
    options: Sequence[Option],
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if given.keys() & {"speculative_config", "spec_method"} and source:
        # Another way of speculating brings its own drafter and shape.
        names = ("drafter", "drafter_weight_dtype", "draft_tensor_parallel_size", "tree")
        values |= {f"speculation.{name}": None for name in names}
    values |= _spelled_as_vllm(given, source, notes)
    for option in options:
        if option.key and option.name in given:
            values[option.key] = given[option.name]
    if given.get("enforce_eager"):
        values["engine.cuda_graphs"] = False
    for setting in given.get("settings", ()):
        name, equals, text = setting.partition("=")
        if not (name and equals):
            raise UsageError(f"--set {setting!r}: expected KEY=VALUE, such as engine.host_ms=0.9")
        flag = next((o for o in options if o.key == name and o.name in given), None)
        if flag is not None:
            raise UsageError(f"--set {name} together with {flag.opts[0]}: give one of them")
        values[name] = load_value(name, text, what=f"--set {name}")
    return values


def _spelled_as_vllm(
    given: Mapping[str, Any], source: Path | dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    """Read values in the scenario's words as they are, and others as a pasted command's."""
    own: dict[str, Any] = {}
    words: list[str] = []
    for name, (flag, key, vocabulary) in _SPELLED_AS_VLLM.items():
        value = given.get(name)
        if value in vocabulary:
            own[key] = value
        elif value is not None:
            words += [flag, value]
    if not words:
        return own
    if "speculative_config" in given:
        words += ["--tensor-parallel-size", str(_tensor_parallel_size(given, source))]
        for name in ("spec_model", "spec_tokens"):
            if name in given:
                words += [f"--{name.replace('_', '-')}", str(given[name])]
    model = given.get("model", _NO_MODEL)
    command, said = _pasted(shlex.join(["vllm", "serve", model, *words]), None)
    notes += said
    dropped = ("target.model", "engine.name", "engine.version", "name")
    return {key: value for key, value in _flat(command) if key not in dropped} | own


def _tensor_parallel_size(given: Mapping[str, Any], source: Path | dict[str, Any]) -> int:
    """Return the target's, which a drafter's is checked against."""
    if "tensor_parallel_size" in given:
        return int(given["tensor_parallel_size"])
    data = read_mapping(source) if isinstance(source, Path) else source
    hardware = data.get("hardware")
    size = hardware.get("tensor_parallel_size") if isinstance(hardware, dict) else None
    return size if isinstance(size, int) else 1


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _save(path: Path, scenario: Scenario) -> None:
    data = scenario.model_dump(mode="json", exclude_none=True)
    replace_file(path, yaml.safe_dump(data, sort_keys=False, default_flow_style=None), "yaml")
