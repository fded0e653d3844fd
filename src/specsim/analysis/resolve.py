"""From a scenario to everything it names, with defaults filled in and contradictions refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from specsim.analysis.acceptance import AcceptanceModel, acceptance_model
from specsim.analysis.drafting import choose_drafter, choose_num_speculative_tokens
from specsim.analysis.notes import Notes
from specsim.catalog.engines import (
    engine_versions,
    load_engine,
    parse_version,
    scheduler_defaults,
    version_before,
)
from specsim.catalog.hardware import (
    attention_constants,
    gemm_constants,
    load_hardware,
    moe_constants,
)
from specsim.catalog.models import canonical_id, load_model
from specsim.errors import UsageError
from specsim.schema.base import KvDtype, WeightDtype
from specsim.schema.engine import EngineConstants
from specsim.schema.hardware import Constants, HardwareProfile
from specsim.schema.model import DrafterSpec, LinearAttention, ModelSpec
from specsim.schema.scenario import Scenario

_FOUR_BIT = ("int4", "nvfp4", "mxfp4")
_DEFAULT_MODEL_LEN = 8192
_NODE = 8
"""Devices of one node, but for rack-scale systems (GB200, GB300)."""


@dataclass(frozen=True)
class Deployment:
    """A scenario with everything that it names loaded, and every default decided."""

    scenario: Scenario
    """With defaults filled in."""
    model: ModelSpec
    hardware: HardwareProfile
    engine: EngineConstants
    weight_dtype: WeightDtype
    expert_dtype: WeightDtype
    kv_dtype: KvDtype
    drafter: DrafterSpec | ModelSpec | None
    drafter_weight_dtype: WeightDtype
    num_speculative_tokens: int
    """k; 0 without speculation."""
    acceptance: AcceptanceModel | None
    max_num_seqs: int
    speculative_max_num_seqs: int
    """The same with speculation on, where the engine's own default is lower."""
    max_num_batched_tokens: int
    max_model_len: int
    gpu_memory_utilization: float
    async_scheduling: bool
    speculative_async_scheduling: bool
    """The same with speculation on: some methods force it off."""
    draft_tensor_parallel_size: int
    used_blocks: tuple[str, ...]
    """Effective constants of the device that this deployment uses."""
    assumed_blocks: tuple[str, ...]
    """Of these, what was never measured on the device."""
    defaults: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def method(self) -> str:
        """The speculation method."""
        return self.scenario.speculation.method

    @property
    def n_gpus(self) -> int:
        """Devices of a replica."""
        hardware = self.scenario.hardware
        return hardware.tensor_parallel_size * hardware.pipeline_parallel_size


def resolve(
    scenario: Scenario, *, search: Sequence[Path] = (), for_memory: bool = False
) -> Deployment:
    """Load what a scenario names, fill in defaults, refuse what contradicts itself.

    Parameters
    ----------
    for_memory : bool
        Only memory is asked for, which acceptance does not change: it may be absent.

    Raises
    ------
    SpecsimError
        One line: a name that is not known, a drafter that does not fit the target, a method that
        the engine version does not have.
    """
    notes = Notes(scenario)
    model = load_model(scenario.target.model, search=search)
    hardware = load_hardware(scenario.hardware.accelerator, search=search)
    engine, engine_warnings = load_engine(scenario.engine.name, scenario.engine.version)
    notes.warnings += engine_warnings
    if scenario.engine.version is None:
        notes.default(f"engine.version = {engine.version} (newest known {scenario.engine.name})")

    weight_dtype, expert_dtype = _dtypes(scenario, model)
    kv_dtype = _kv_dtype(scenario, model, weight_dtype)
    if scenario.target.weight_dtype is None:
        notes.default(f"target.weight_dtype = {weight_dtype} (the checkpoint's)")
    if scenario.target.kv_dtype is None:
        notes.default(f"target.kv_dtype = {kv_dtype}")

    limits = scheduler_defaults(
        engine,
        memory_gib=hardware.datasheet.memory_usable_gib,
        device_id=hardware.identity.id,
        architecture=hardware.identity.architecture,
    )
    given = scenario.engine
    max_num_seqs = notes.choose("engine.max_num_seqs", given.max_num_seqs, limits.max_num_seqs)
    speculative_max_num_seqs = max_num_seqs
    if given.max_num_seqs is None and engine.speculative_max_num_seqs is not None:
        speculative_max_num_seqs = min(max_num_seqs, engine.speculative_max_num_seqs)
    batched = notes.choose(
        "engine.max_num_batched_tokens",
        given.max_num_batched_tokens,
        limits.max_num_batched_tokens,
    )
    if given.max_num_seqs is None and scenario.engine.name == "vllm":
        # vLLM lowers its default where fewer tokens are batched [EngineArgs].
        max_num_seqs = min(max_num_seqs, batched)
        speculative_max_num_seqs = min(speculative_max_num_seqs, batched)
    utilization = notes.choose(
        "engine.gpu_memory_utilization",
        given.gpu_memory_utilization,
        engine.gpu_memory_utilization,
    )
    max_model_len = _max_model_len(scenario, model, notes)

    speculation = scenario.speculation
    drafter: DrafterSpec | ModelSpec | None = None
    k = 0
    acceptance = None
    if speculation.method != "none":
        _method_known(scenario, engine, notes)
        drafter = choose_drafter(scenario, model, notes, search)
        k = choose_num_speculative_tokens(scenario, drafter, notes, for_memory=for_memory)
        if not for_memory or speculation.acceptance is not None:
            acceptance = acceptance_model(scenario, k=k, engine=engine, search=search)
            notes.warnings += acceptance.warnings
    async_scheduling = notes.choose(
        "engine.async_scheduling", given.async_scheduling, engine.async_scheduling
    )
    speculative_async = async_scheduling
    if given.async_scheduling is None and speculation.method in engine.sync_methods:
        speculative_async = False
        notes.default(f"{speculation.method} is scheduled synchronously by this engine version")
    tensor_parallel = scenario.hardware.tensor_parallel_size
    draft_tp = speculation.draft_tensor_parallel_size or tensor_parallel
    if draft_tp not in (1, tensor_parallel):
        raise UsageError(
            f"draft_tensor_parallel_size {draft_tp} is refused by vLLM; allowed: 1 or the "
            f"target's tensor_parallel_size, {tensor_parallel}"
        )
    _check_parallelism(scenario, model)
    if tensor_parallel > _NODE and not hardware.identity.id.startswith("gb"):
        notes.warnings.append(
            f"tensor_parallel_size {tensor_parallel} spans several nodes, whose network is not "
            "modelled: all-reduces are taken as if inside one"
        )
    used, assumed = used_blocks(
        hardware,
        model,
        weight_dtype=weight_dtype,
        expert_dtype=expert_dtype,
        kv_dtype=kv_dtype,
        tensor_parallel_size=tensor_parallel,
    )
    _hardware_warnings(hardware, assumed, notes)
    _workload_warnings(scenario, notes)
    drafter_dtype = speculation.drafter_weight_dtype or _drafter_dtype(drafter, weight_dtype)
    filled = scenario.model_copy(
        update={
            "target": scenario.target.model_copy(
                # A checkpoint that quantises its experts only goes by their dtype (`_dtypes`).
                update={"weight_dtype": expert_dtype, "kv_dtype": kv_dtype}
            ),
            "engine": given.model_copy(
                update={
                    "version": given.version or engine.version,
                    # Where a default differs between the arms, one figure cannot stand for both.
                    "max_num_seqs": max_num_seqs
                    if max_num_seqs == speculative_max_num_seqs
                    else None,
                    "max_num_batched_tokens": batched,
                    "gpu_memory_utilization": utilization,
                    "max_model_len": max_model_len,
                    "async_scheduling": async_scheduling
                    if async_scheduling == speculative_async
                    else None,
                }
            ),
            "speculation": speculation.model_copy(
                update={
                    "num_speculative_tokens": k or None,
                    # A head made from the target's own config has no name to load it by.
                    "drafter": canonical_id(drafter.id)
                    if speculation.drafter is None and drafter is not None
                    else speculation.drafter,
                    "draft_tensor_parallel_size": draft_tp if drafter is not None else None,
                    "drafter_weight_dtype": drafter_dtype if drafter is not None else None,
                }
            ),
        }
    )
    return Deployment(
        scenario=filled,
        model=model,
        hardware=hardware,
        engine=engine,
        weight_dtype=weight_dtype,
        expert_dtype=expert_dtype,
        kv_dtype=kv_dtype,
        drafter=drafter,
        drafter_weight_dtype=drafter_dtype,
        num_speculative_tokens=k,
        acceptance=acceptance,
        max_num_seqs=max_num_seqs,
        speculative_max_num_seqs=speculative_max_num_seqs,
        max_num_batched_tokens=batched,
        max_model_len=max_model_len,
        gpu_memory_utilization=utilization,
        async_scheduling=async_scheduling,
        speculative_async_scheduling=speculative_async,
        draft_tensor_parallel_size=draft_tp,
        used_blocks=used,
        assumed_blocks=assumed,
        defaults=tuple(notes.defaults),
        warnings=tuple(dict.fromkeys(notes.warnings)),
    )


def _dtypes(scenario: Scenario, model: ModelSpec) -> tuple[WeightDtype, WeightDtype]:
    """Return the dtypes of linear weights and of routed experts.

    Checkpoints that quantise their experts only (gpt-oss, DeepSeek-V4) keep doing so when another
    format of as many bits is asked for.
    """
    native, experts = model.weight_dtype, model.expert_dtype
    asked = scenario.target.weight_dtype
    if asked is None:
        return native, experts or native
    if experts is not None and (asked == experts or (asked in _FOUR_BIT and experts in _FOUR_BIT)):
        return native, asked
    return asked, asked


def _kv_dtype(scenario: Scenario, model: ModelSpec, weight_dtype: str) -> KvDtype:
    if scenario.target.kv_dtype is not None:
        return scenario.target.kv_dtype
    if model.kv_dtype is not None:
        return model.kv_dtype
    return cast(KvDtype, weight_dtype if weight_dtype in ("fp16", "fp32") else "bf16")


def _drafter_dtype(drafter: DrafterSpec | ModelSpec | None, weight_dtype: str) -> WeightDtype:
    native = drafter.weight_dtype if drafter is not None else "bf16"
    # A full-precision target never has a drafter of another float format in one engine.
    return cast(WeightDtype, weight_dtype if weight_dtype in ("fp32", "fp16") else native)


def _max_model_len(scenario: Scenario, model: ModelSpec, notes: Notes) -> int:
    needed = scenario.workload.input_tokens + scenario.workload.output_tokens
    asked = scenario.engine.max_model_len
    if asked is None:
        asked = int(model.max_position_embeddings or max(_DEFAULT_MODEL_LEN, needed))
        whose = " (the model's)" if model.max_position_embeddings else ""
        notes.default(f"engine.max_model_len = {asked}{whose}")
    if needed > asked:
        raise UsageError(
            f"input_tokens + output_tokens = {needed:g} is above max_model_len {asked}; "
            "shorten the workload or raise --max-model-len"
        )
    return asked


def _method_known(scenario: Scenario, engine: EngineConstants, notes: Notes) -> None:
    """Refuse a method that the engine has dropped or never had; warn where it came later.

    Constants are those of the nearest known version, and builds between two of them had methods
    early: only a method that no version from here on knows is refused.
    """
    name, method = scenario.engine.name, scenario.speculation.method
    if method not in engine.methods:
        here = parse_version(engine.version)
        later = [v for v in engine_versions(name) if version_before(here, parse_version(v))]
        having = [v for v in later if method in load_engine(name, v)[0].methods]
        if not having:
            raise UsageError(
                f"{name} {engine.version} has no method {method!r}; it has "
                f"{', '.join(engine.methods)}; choose one, or another --engine version"
            )
        notes.warnings.append(
            f"{name} {scenario.engine.version} is not known to have {method} (first known: "
            f"{having[0]}); its host times of {engine.version} are used"
        )
    if scenario.speculation.tree is not None and not engine.tree_drafting:
        raise UsageError(
            f"{name} {engine.version} drafts chains only; drop speculation.tree, or use "
            "--engine sglang"
        )
    if scenario.speculation.adaptive_verification and not engine.adaptive_verification:
        raise UsageError(
            f"{name} {engine.version} has no adaptive verification; use --engine vllm@0.33 or "
            "drop it"
        )


def _check_parallelism(scenario: Scenario, model: ModelSpec) -> None:
    tp = scenario.hardware.tensor_parallel_size
    heads = {
        g.attention.n_heads
        for g in model.layers
        if g.attention is not None and not isinstance(g.attention, LinearAttention)
    }
    bad = sorted(h for h in heads if h % tp)
    if bad:
        fitting = [t for t in (1, 2, 4, 8, 16, 32) if all(h % t == 0 for h in heads)]
        raise UsageError(
            f"tensor_parallel_size {tp} does not divide the {bad[0]} heads of {model.id}; "
            f"possible: {', '.join(map(str, fitting))}"
        )
    pp = scenario.hardware.pipeline_parallel_size
    n_layers = sum(g.count for g in model.layers)
    if pp > n_layers:
        raise UsageError(
            f"pipeline_parallel_size {pp} is above the {n_layers} layers of {model.id}"
        )
    if scenario.hardware.expert_parallel and not any(g.moe for g in model.layers):
        raise UsageError(f"expert_parallel was asked and {model.id} has no experts")


def used_blocks(
    hardware: HardwareProfile,
    model: ModelSpec,
    *,
    weight_dtype: str,
    expert_dtype: str,
    kv_dtype: str,
    tensor_parallel_size: int,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the kernels that a model uses on a device, and those never measured there."""
    effective = hardware.effective
    kinds = {group.attention.kind for group in model.layers if group.attention is not None}
    used: dict[str, Constants | None] = {
        f"gemm.{weight_dtype}": gemm_constants(hardware, weight_dtype),
        f"decode_attention.{kv_dtype}": attention_constants(hardware, kv_dtype),
    }
    if any(group.moe is not None for group in model.layers):
        used[f"moe.{expert_dtype}"] = moe_constants(hardware, expert_dtype)
    if "mla" in kinds or "compressed" in kinds:
        used["mla_attention"] = effective.mla_attention
    if "linear" in kinds:
        used["linear_attention"] = effective.linear_attention
    if tensor_parallel_size > 1:
        used[f"all_reduce.{tensor_parallel_size}"] = effective.all_reduce.get(tensor_parallel_size)
    used |= {
        "prefill_attention": effective.prefill_attention,
        "elementwise": effective.elementwise,
    }
    general = ("prefill_attention", "elementwise")
    assumed = tuple(
        name
        for name, block in used.items()
        if (block is None or block.basis == "assumed") and name not in general
    )
    return tuple(used), assumed


def _hardware_warnings(hardware: HardwareProfile, assumed: tuple[str, ...], notes: Notes) -> None:
    if assumed:
        lender = hardware.effective.borrow
        what = f"fractions of {lender} are" if lender else "those of the nearest kernels are"
        notes.warnings.append(
            f"{hardware.identity.id} has no measurements of {', '.join(assumed)}: {what} assumed "
            "and the band is wider; a profile with measured constants narrows it"
        )
    if hardware.datasheet.confidence == "low":
        notes.warnings.append(
            f"the datasheet figures of {hardware.identity.id} are of low confidence"
        )


def _workload_warnings(scenario: Scenario, notes: Notes) -> None:
    workload, method = scenario.workload, scenario.speculation.method
    if workload.num_requests is not None and workload.arrival != "burst":
        notes.warnings.append(
            "workload.num_requests counts with workload.arrival = burst only; requests arrive "
            "steadily here"
        )
    if (
        workload.cached_prompt_tokens > 0
        and workload.cached_prompt_tokens_speculative is None
        and method in ("eagle", "eagle3", "mtp")
        and scenario.engine.name == "vllm"
    ):
        notes.warnings.append(
            f"{method} costs prefix-cache hits in vLLM (the last block of a match is recomputed; "
            "reports range from a few points to most hits lost): both arms are given the same "
            "hits here; set workload.cached_prompt_tokens_speculative to what you measure"
        )
