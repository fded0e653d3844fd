"""Which servers a sweep starts, with what it drives them, and in which order.

Order: a pass over the ladder per repeat, the arms alternating at each load and taking turns at
going first (A B, B A, A B ...; the next pass starts with B A). Runs that are compared are
neighbours in time, so a machine that drifts moves both; and the repeats lie a pass apart, so
that their scatter holds the drift.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from specsim.catalog.files import read_mapping
from specsim.catalog.serve_command import format_serve_command
from specsim.errors import UsageError
from specsim.schema.base import parse
from specsim.schema.scenario import Scenario
from specsim.schema.speculation import NO_DRAFTER, Speculation
from specsim.schema.sweep import LoadKind, Servers, SweepArm, SweepLoad, SweepPlan

PLAN_FILE = "plan.yaml"
PROMPTS_PER_REQUEST, PROMPTS_PER_RATE = 8.0, 60.0
"""Requests of a run per concurrent request, and per request/s: a minute of arrivals."""
LATENCY_FLAGS = ("--percentile-metrics", "ttft,tpot,itl,e2el",
                 "--metric-percentiles", "50,90,95,99")  # fmt: skip
LAB_DRAFTER = "lab-"
"""Drafters of this name are made to be accepted as often whatever the text is."""
SEED_OF_WARMUP = 1
_SEED_STEP = 1000


@dataclass(frozen=True)
class Settings:
    """What a sweep can be told beyond the scenario."""

    model_path: str | None = None
    drafter_path: str | None = None
    serve_args: str = ""
    dataset_args: str = ""
    draft_tokens: tuple[int, ...] = ()
    only: str | None = None
    repeats: int = 2
    prompts_per_load: float | None = None
    min_prompts: int = 16
    warmup_prompts: int = 8
    servers: Servers = "auto"


@dataclass(frozen=True)
class Run:
    """One run of the bench: an arm at a load, for the n-th time."""

    arm: SweepArm
    load: SweepLoad
    load_kind: LoadKind
    repeat: int
    seed: int

    @property
    def stem(self) -> str:
        """Return the name of its files without a suffix, such as c8_r1 or q0.5_r2."""
        return (
            f"{'c' if self.load_kind == 'concurrency' else 'q'}{self.load.value:g}_r{self.repeat}"
        )

    @property
    def label(self) -> str:
        """Return what the progress says."""
        return f"{self.arm.name} {self.stem}"


def make_plan(scenario: Scenario, settings: Settings) -> SweepPlan:
    """Plan the sweep of a scenario.

    Raises
    ------
    UsageError
        There is nothing to compare, or what `vllm serve` should load is not known.
    """
    if scenario.speculation.method == "none" and settings.only != "off":
        raise UsageError(
            "nothing to compare: the scenario does not speculate; name a way with --spec-method "
            "or --speculative-config"
        )
    model = _loadable(scenario.target.model, settings.model_path, "--model-path")
    drafter = None
    if scenario.speculation.drafter is not None or settings.drafter_path is not None:
        if scenario.speculation.method in NO_DRAFTER:
            raise UsageError(f"--drafter-path: {scenario.speculation.method} has no drafter")
        drafter = _loadable(
            scenario.speculation.drafter or "", settings.drafter_path, "--drafter-path"
        )
    kind, loads = _loads(scenario, settings)
    dataset, is_random = _dataset(scenario, settings.dataset_args)
    return SweepPlan(
        scenario=scenario,
        model=model,
        drafter=drafter,
        arms=tuple(_arms(scenario, settings, model, drafter)),
        load_kind=kind,
        loads=loads,
        repeats=settings.repeats,
        servers=settings.servers,
        dataset=dataset,
        random_prompts=is_random,
        warmup_prompts=settings.warmup_prompts,
    )


def _loadable(name: str, path: str | None, flag: str) -> str:
    """Return what vLLM loads: the path that is given, else a name that it can resolve."""
    if path is not None:
        return path
    if "/" in name or Path(name).exists():
        return name
    raise UsageError(
        f"{name!r} is a name of this catalog, which `vllm serve` does not know; say with {flag} "
        "what it loads: a Hugging Face id or a folder"
    )


def _arms(
    scenario: Scenario, settings: Settings, model: str, drafter: str | None
) -> Iterator[SweepArm]:
    served = scenario.target.model_copy(update={"model": model})
    own = _words(settings.serve_args, "--serve-args")
    added = ["--served-model-name", scenario.target.model, *own]
    if not scenario.workload.cached_prompt_tokens and not any("prefix-caching" in w for w in own):
        # Nothing is cached by the scenario; a data set's prompts come again with every repeat.
        added.append("--no-enable-prefix-caching")

    def command(speculation: Speculation) -> tuple[str, ...]:
        update = {"target": served, "speculation": speculation}
        return (*shlex.split(format_serve_command(scenario.model_copy(update=update))), *added)

    if settings.only != "on":
        yield SweepArm(name="off", arm="off", command=command(Speculation()))
    if settings.only == "off":
        return
    on = scenario.speculation
    given = settings.draft_tokens or (on.num_speculative_tokens,)
    for k in dict.fromkeys(given):
        if k is None:
            raise UsageError("the number of draft tokens is missing; give it with --spec-tokens")
        speculation = on.model_copy(update={"num_speculative_tokens": k, "drafter": drafter})
        yield SweepArm(
            name=f"on_k{k}",
            arm="on",
            method=on.method,
            num_speculative_tokens=k,
            command=command(speculation),
        )


def _loads(scenario: Scenario, settings: Settings) -> tuple[LoadKind, tuple[SweepLoad, ...]]:
    load = scenario.load
    if load.concurrency is not None:
        kind: LoadKind = "concurrency"
        values: Sequence[float] = sorted({float(round(value)) for value in load.concurrency})
        each = settings.prompts_per_load or PROMPTS_PER_REQUEST
    else:
        kind = "request_rate"
        values = sorted(set(load.request_rate or ()))
        each = settings.prompts_per_load or PROMPTS_PER_RATE
    return kind, tuple(
        SweepLoad(value=value, num_prompts=max(settings.min_prompts, round(each * value)))
        for value in values
    )


def _dataset(scenario: Scenario, given: str) -> tuple[tuple[str, ...], bool]:
    if given:
        words = tuple(_words(given, "--dataset-args"))
        named = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "--dataset-name"]
        return words, named == ["random"]
    workload = scenario.workload
    return (
        "--dataset-name", "random", "--random-input-len", str(round(workload.input_tokens)),
        "--random-output-len", str(round(workload.output_tokens)), "--ignore-eos",
    ), True  # fmt: skip


def runs_of(plan: SweepPlan, *, together: bool) -> Iterator[Run]:
    """Yield the runs of a sweep in order.

    Parameters
    ----------
    together : bool
        All servers are up at once, so arms alternate load by load; else ladder by ladder.
    """
    for repeat in range(1, plan.repeats + 1):
        for arms, position, load in _turns(plan, repeat, together=together):
            for arm in arms:
                # The same prompts for both arms, others at each load and repeat.
                seed = _SEED_STEP * repeat + position
                yield Run(arm, load, plan.load_kind, repeat, seed)


def _turns(
    plan: SweepPlan, repeat: int, *, together: bool
) -> Iterator[tuple[tuple[SweepArm, ...], int, SweepLoad]]:
    ladder = list(enumerate(plan.loads, start=1))
    if together:
        for position, load in ladder:
            forward = (repeat + position) % 2 == 0
            yield plan.arms if forward else plan.arms[::-1], position, load
        return
    for arm in plan.arms if repeat % 2 else plan.arms[::-1]:
        for position, load in ladder:
            yield (arm,), position, load


def bench_words(plan: SweepPlan, *, load: str, num_prompts: str, seed: str) -> list[str]:
    """Return the flags of `vllm bench serve` that a run has wherever its server is."""
    flag = "--max-concurrency" if plan.load_kind == "concurrency" else "--request-rate"
    return [
        "--model", plan.scenario.target.model, "--tokenizer", plan.model, *plan.dataset,
        "--temperature", f"{plan.scenario.workload.temperature:g}", "--num-prompts", num_prompts,
        flag, load, "--seed", seed, *LATENCY_FLAGS,
    ]  # fmt: skip


def metadata(plan: SweepPlan, arm: SweepArm) -> dict[str, str]:
    """Return what is written into the result files of an arm."""
    hardware = plan.scenario.hardware
    known = {
        "arm": arm.arm,
        "k": str(arm.num_speculative_tokens),
        "method": arm.method,
        "engine": plan.scenario.engine.name,
        "accelerator": hardware.accelerator,
        "tensor_parallel_size": str(hardware.tensor_parallel_size),
    }
    if arm.arm == "on" and plan.scenario.speculation.drafter is not None:
        known["drafter"] = plan.scenario.speculation.drafter
    return known


def notes_of(plan: SweepPlan) -> list[str]:
    """Say what the plan's choices do to its results."""
    notes = []
    if any("--no-enable-prefix-caching" in arm.command for arm in plan.arms):
        notes.append(
            "prefix caching is off on all servers, since prompts come again with every repeat; "
            "--serve-args '--enable-prefix-caching' leaves it on"
        )
    drafter = plan.scenario.speculation.drafter or ""
    speculates = any(arm.arm == "on" for arm in plan.arms)
    if plan.random_prompts and speculates and not drafter.startswith(LAB_DRAFTER):
        notes.append(
            "prompts of random tokens: a drafter guesses their continuation more, or less, often "
            "than real text's, so acceptance and speedup are not your traffic's; name real "
            "prompts with --dataset-args, e.g. --dataset-args '--dataset-name sharegpt "
            "--dataset-path FILE'"
        )
    if plan.repeats == 1:
        notes.append("one repeat: the scatter will not be known; --repeats 2 gives intervals")
    return notes


def dump_plan(plan: SweepPlan) -> str:
    """Return the text of `plan.yaml`."""
    data = plan.model_dump(mode="json", exclude_none=True)
    for arm in data["arms"]:
        arm["command"] = shlex.join(arm["command"])
    data["dataset"] = shlex.join(data["dataset"])
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=100)


def load_plan(folder: Path) -> SweepPlan | None:
    """Read the plan of a sweep's folder; None if it has none."""
    path = folder / PLAN_FILE
    if not path.is_file():
        return None
    data = read_mapping(path)
    arms = data.get("arms")
    arms = arms if isinstance(arms, list) else []
    for owner, key in [*((arm, "command") for arm in arms), (data, "dataset")]:
        if isinstance(owner, dict) and isinstance(owner.get(key), str):
            owner[key] = _words(owner[key], f"{path}: {key}")
    return parse(SweepPlan, data, what=str(path))


def _words(text: str, what: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{what}: {text!r}: {error}") from error


def check_same_sweep(plan: SweepPlan, earlier: SweepPlan | None, folder: Path) -> None:
    """Refuse to add to a folder whose runs could not be compared with this plan's.

    More arms, loads and repeats are welcome.

    Raises
    ------
    UsageError
        Names what differs.
    """
    if earlier is None:
        return
    known = {arm.name: arm for arm in earlier.arms}
    prompts = {load.value: load.num_prompts for load in earlier.loads}
    for what, new, old in (
        *((f"arm {a.name}", a, known[a.name]) for a in plan.arms if a.name in known),
        ("the kind of load", plan.load_kind, earlier.load_kind),
        *((f"the number of requests at {load.value:g}", load.num_prompts, prompts[load.value])
          for load in plan.loads if load.value in prompts),
        ("the prompts", plan.dataset, earlier.dataset),
        ("the model", plan.model, earlier.model),
        ("the accelerator", plan.scenario.hardware.accelerator,
         earlier.scenario.hardware.accelerator),
        ("the temperature", plan.scenario.workload.temperature,
         earlier.scenario.workload.temperature),
    ):  # fmt: skip
        if new != old:
            raise UsageError(
                f"{folder} holds another sweep: {what} differs from its {PLAN_FILE}; give "
                "another --out, or what it was measured with"
            )


def merged(plan: SweepPlan, earlier: SweepPlan | None) -> SweepPlan:
    """Return the plan to keep in a folder that may hold more arms already."""
    if earlier is None:
        return plan
    own = {arm.name for arm in plan.arms}
    others = tuple(arm for arm in earlier.arms if arm.name not in own)
    arms = sorted((*plan.arms, *others), key=lambda arm: arm.num_speculative_tokens)
    return plan.model_copy(update={"arms": tuple(arms)})
