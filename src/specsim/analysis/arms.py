"""The two arms of a deployment: how long a step takes and what it yields."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from specsim.analysis.constants import Constants, shipped_discrepancy
from specsim.analysis.kv import KvBudget, kv_budget
from specsim.analysis.lowering import (
    context_gemms,
    drafter_network,
    per_token_gemms,
    target_network,
)
from specsim.analysis.overheads import overheads
from specsim.analysis.rank import Rank
from specsim.analysis.resolve import Deployment
from specsim.catalog.general import load_general
from specsim.physics import acceptance as law
from specsim.physics.cost import Cost, Num
from specsim.physics.forward import Gemm, Network
from specsim.physics.step import (
    DraftPlan,
    Overheads,
    baseline_step,
    speculative_step,
)
from specsim.schema.model import DrafterSpec, ModelSpec
from specsim.schema.scenario import Workload
from specsim.units import GB, GIB

_PARALLEL_ROWS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    # method: rows and head rows of the one pass, each a + b k per sequence (vLLM, docs/method.md)
    "dflash": ((1.0, 1.0), (0.0, 1.0)),
    "dspark": ((0.0, 1.0), (0.0, 1.0)),
    "p_eagle": ((0.0, 2.0), (0.0, 1.0)),  # 1 + k of the last step, k - 1 masked slots
    "pard": ((1.0, 2.0), (0.0, 1.0)),  # 1 + k of the last step, k masked slots
}


@dataclass(frozen=True)
class StepTime:
    """One step by phase, and what it yields per running sequence."""

    total: Cost
    draft: Cost
    verify: Cost
    host: Cost
    tokens: Num
    verify_tokens: Num


@dataclass(frozen=True)
class Arm:
    """Speculation off (k = 0), or on with k draft tokens."""

    target: Network
    overheads: Overheads
    plan: DraftPlan | None
    budget: KvBudget
    max_num_seqs: int
    max_num_batched_tokens: int
    stages: float
    prefill_tokens: Num
    """Prompt tokens that are not cached. [tokens]"""
    cached_tokens: float
    shared_prefix_tokens: float
    k: Num = 0.0
    tokens_per_step: Num = 1.0
    verify_tokens: Num = 1.0
    draft_scale: Num = 1.0
    discrepancy: Num = 1.0
    """Factor on the passes for what the model leaves out."""
    host_discrepancy: Num = 1.0
    """The same on the host's time: a calibration's spread is of the whole step."""
    prompt_scale: Num = 1.0
    """Factor on what a prompt adds to the step that it rides on: 1 but for a calibration."""
    lengths: Num | None = None
    """Tokens per step by verify length 0..k (last axis): adaptive verification chooses."""
    sampled: bool = False
    """The constants are samples: curves through many of them may be coarser."""

    def step(
        self,
        sequences: Num,
        context: Num,
        *,
        prefill_tokens: Num = 0.0,
        prefill_context: Num = 0.0,
        prefill_sequences: Num = 1.0,
    ) -> StepTime:
        """Time of one step with a batch, with or without a prompt chunk riding along.

        With pipeline stages the batch is split into as many groups, each running through all
        stages while the others fill them: a request waits for its own group only.
        """
        # A group is never smaller than one sequence: below that, stages idle.
        group = np.maximum(sequences / self.stages, np.minimum(sequences, 1.0))
        prompt = {
            "prefill_tokens": prefill_tokens,
            "prefill_context": prefill_context,
            "prefill_sequences": prefill_sequences,
        }
        step = self._step(group, context, prompt)
        if isinstance(self.prompt_scale, float) and self.prompt_scale == 1.0:
            return step
        if not np.any(np.asarray(prefill_tokens) > 0):
            return step
        # Without anybody decoding, the prompt is all there is.
        alone = self._step(group, context, {}).total.times(
            np.where(np.asarray(group) > 0, 1.0, 0.0)
        )
        excess = step.total + alone.times(-1.0)
        return replace(step, total=alone + excess.times(self.prompt_scale))

    def _step(self, group: Num, context: Num, prompt: dict[str, Num]) -> StepTime:
        if self.plan is None:
            total = baseline_step(
                self.target, self.overheads, sequences=group, context=context, **prompt
            )
            return StepTime(total, Cost(), total, Cost(), 1.0, 1.0)
        if self.lengths is None:
            return self._speculative(
                group, context, self.verify_tokens, self.tokens_per_step, prompt
            )
        verify, tokens = self._adapted(group, context)
        return self._speculative(group, context, verify, tokens, prompt)

    def _speculative(
        self, group: Num, context: Num, verify_tokens: Num, tokens: Num, prompt: dict[str, Num]
    ) -> StepTime:
        assert self.plan is not None
        step = speculative_step(
            self.target,
            self.plan,
            self.overheads,
            sequences=group,
            num_speculative_tokens=self.k,
            verify_tokens=verify_tokens,
            context=context,
            **prompt,
        )
        draft = step.draft.times(self.draft_scale * self.discrepancy)
        verify = step.verify.times(self.discrepancy)
        host = step.host.times(self.host_discrepancy)
        return StepTime(draft + verify + host, draft, verify, host, tokens, verify_tokens)

    def _adapted(self, group: Num, context: Num) -> tuple[Num, Num]:
        """Return how many tokens to verify at this batch, and what they yield.

        The verify length that pays best (definitions.md section 1); one pass is evaluated per
        length, since constants may already be arrays of samples.
        """
        lengths = np.asarray(self.lengths)
        times = [
            self._speculative(group, context, 1.0 + v, 1.0, {}).total.total_s
            for v in range(lengths.shape[-1])
        ]
        step_time_s = np.stack(np.broadcast_arrays(*times), axis=-1)
        chosen = law.best_verify_length(lengths=lengths, step_time_s=step_time_s)
        spread = np.broadcast_to(lengths, (*chosen.shape, lengths.shape[-1]))
        tokens = np.take_along_axis(spread, chosen[..., None], axis=-1)[..., 0]
        return 1.0 + chosen, tokens

    def with_acceptance(self, *, tokens_per_step: Num, lengths: Num | None = None) -> Arm:
        """Return this arm with other tokens per step."""
        return replace(
            self,
            tokens_per_step=tokens_per_step,
            lengths=lengths if self.lengths is not None else None,
        )


def baseline_arm(deployment: Deployment, constants: Constants | None = None) -> Arm:
    """Return the arm without speculation."""
    constants = constants or Constants()
    workload = deployment.scenario.workload
    cached = workload.cached_prompt_tokens
    return Arm(
        target=_target(deployment, constants),
        overheads=overheads(deployment, constants, speculative=False),
        plan=None,
        budget=budget(deployment, speculative=False),
        max_num_seqs=deployment.max_num_seqs,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        stages=float(deployment.scenario.hardware.pipeline_parallel_size),
        prefill_tokens=workload.input_tokens - cached,
        cached_tokens=cached,
        shared_prefix_tokens=cached if workload.shared_prefix else 0.0,
        prompt_scale=constants.scales.get("prompt", 1.0),
        sampled=constants.n_samples > 0,
    )


def speculative_arm(
    deployment: Deployment, constants: Constants | None = None, *, k: Num | None = None
) -> Arm:
    """Return the arm with speculation.

    Parameters
    ----------
    k : float or array, optional
        Draft tokens per step, where other than the scenario's: an array sweeps k. [tokens]
    """
    return speculating(baseline_arm(deployment, constants), deployment, constants, k=k)


def speculating(
    baseline: Arm,
    deployment: Deployment,
    constants: Constants | None = None,
    *,
    k: Num | None = None,
) -> Arm:
    """Return the arm with speculation beside the one without, which has the same target."""
    constants = constants or Constants()
    cached = cached_tokens(deployment.scenario.workload, speculative=True)
    spread = constants.discrepancy
    if spread is None:
        spread = shipped_discrepancy(assumed=bool(deployment.assumed_blocks))
    discrepancy = constants.factor(spread, "discrepancy")
    arm = replace(
        baseline,
        overheads=overheads(deployment, constants, speculative=True),
        plan=_plan(deployment, constants),
        budget=budget(deployment, speculative=True),
        max_num_seqs=deployment.speculative_max_num_seqs,
        prefill_tokens=deployment.scenario.workload.input_tokens - cached,
        cached_tokens=cached,
        shared_prefix_tokens=cached if deployment.scenario.workload.shared_prefix else 0.0,
        draft_scale=constants.value(load_general().draft_scale.range, "draft_scale"),
        discrepancy=discrepancy,
        host_discrepancy=1.0 if constants.discrepancy is None else discrepancy,
    )
    return with_k(
        arm, deployment, constants, float(deployment.num_speculative_tokens) if k is None else k
    )


def with_k(arm: Arm, deployment: Deployment, constants: Constants, k: Num) -> Arm:
    """Return an arm with speculation at another number of draft tokens; an array sweeps it."""
    model = deployment.acceptance
    assert model is not None, "the deployment speculates"
    lengths = law.over_all_steps(
        drafting_length=law.lengths_by_k(model.positions(int(np.max(k)), constants)),
        proposal_rate=model.proposal_rate,
    )
    adaptive = deployment.scenario.speculation.adaptive_verification and np.ndim(k) == 0
    return replace(
        arm,
        k=k,
        tokens_per_step=np.take(lengths, np.asarray(k, dtype=int), axis=-1),
        verify_tokens=model.verify_tokens(k),
        lengths=lengths if adaptive else None,
    )


def cached_tokens(workload: Workload, *, speculative: bool) -> float:
    """Return the prefix-cache hits per request of an arm. [tokens]."""
    hits = workload.cached_prompt_tokens_speculative
    return workload.cached_prompt_tokens if hits is None or not speculative else hits


def budget(deployment: Deployment, *, speculative: bool) -> KvBudget:
    """Return the memory of an arm.

    Raises
    ------
    InfeasibleError
        It does not fit.
    """
    scenario = deployment.scenario
    sheet = deployment.hardware.datasheet
    return kv_budget(
        model=deployment.model,
        drafter=deployment.drafter if speculative else None,
        method=deployment.method if speculative else "none",
        num_speculative_tokens=deployment.num_speculative_tokens if speculative else 0,
        weight_dtype=deployment.weight_dtype,
        expert_dtype=deployment.expert_dtype,
        drafter_weight_dtype=deployment.drafter_weight_dtype,
        kv_dtype=deployment.kv_dtype,
        memory_usable_bytes=sheet.memory_usable_gib * GIB,
        memory_nameplate_bytes=sheet.memory_gb * GB,
        tensor_parallel_size=scenario.hardware.tensor_parallel_size,
        pipeline_parallel_size=scenario.hardware.pipeline_parallel_size,
        draft_tensor_parallel_size=deployment.draft_tensor_parallel_size,
        expert_parallel=scenario.hardware.expert_parallel,
        gpu_memory_utilization=deployment.gpu_memory_utilization,
        max_num_seqs=deployment.speculative_max_num_seqs
        if speculative
        else deployment.max_num_seqs,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        max_model_len=deployment.max_model_len,
        engine=deployment.engine,
        async_scheduling=deployment.speculative_async_scheduling
        if speculative
        else deployment.async_scheduling,
    )


def _rank(deployment: Deployment, constants: Constants, tensor_parallel_size: int) -> Rank:
    hardware = deployment.scenario.hardware
    return Rank(
        hardware=deployment.hardware,
        constants=constants,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=hardware.pipeline_parallel_size,
        expert_parallel=hardware.expert_parallel,
    )


def _target(deployment: Deployment, constants: Constants) -> Network:
    return target_network(
        deployment.model,
        _rank(deployment, constants, deployment.scenario.hardware.tensor_parallel_size),
        weight_dtype=deployment.weight_dtype,
        expert_dtype=deployment.expert_dtype,
        kv_dtype=deployment.kv_dtype,
    )


def _plan(deployment: Deployment, constants: Constants) -> DraftPlan:
    """Return what the method runs per step (vLLM, docs/method.md, drafting)."""
    drafter, method = deployment.drafter, deployment.method
    if drafter is None:
        return DraftPlan(network=None)
    # The drafter sits on the last pipeline stage: it is never split by stages.
    rank = replace(
        _rank(deployment, constants, deployment.draft_tensor_parallel_size),
        pipeline_parallel_size=1,
        expert_parallel=False,
    )
    dtype, kv_dtype = deployment.drafter_weight_dtype, deployment.kv_dtype
    graphs = deployment.engine.draft_graphs
    eager = graphs.get(method, graphs["default"]) == "eager"
    eager = eager or not deployment.scenario.engine.cuda_graphs
    target_rank = _rank(deployment, constants, deployment.scenario.hardware.tensor_parallel_size)
    network = _drafter_network(drafter, rank, target_rank, dtype, kv_dtype)
    small: tuple[Gemm, ...] = ()
    if isinstance(drafter, DrafterSpec):
        small = per_token_gemms(drafter, rank, weight_dtype=dtype)
    if method in _PARALLEL_ROWS:
        rows, head_rows = _PARALLEL_ROWS[method]
        return DraftPlan(
            network=network,
            first_rows=rows,
            first_head_rows=head_rows,
            later_passes=(0.0, 0.0),
            per_token=small,
            eager=eager,
            context_only=method in ("dflash", "dspark") and isinstance(drafter, DrafterSpec),
            context_gemms=context_gemms(drafter, rank, weight_dtype=dtype)
            if isinstance(drafter, DrafterSpec)
            else (),
        )
    if method == "medusa":
        return DraftPlan(network=network, later_passes=(0.0, 0.0), per_token=small, eager=eager)
    tree = deployment.scenario.speculation.tree
    branches = float(tree.topk) if tree is not None else 1.0
    return DraftPlan(
        network=network,
        # A draft model also runs the bonus token, which a head takes from the hidden state.
        first_rows=(2.0 if method == "draft_model" else 1.0, 1.0),
        first_head_rows=(1.0, 0.0),
        later_rows=branches,
        fuses_once=method == "eagle3",
        per_token=small,
        eager=eager,
    )


def _drafter_network(
    drafter: DrafterSpec | ModelSpec, rank: Rank, target_rank: Rank, dtype: str, kv_dtype: str
) -> Network | None:
    experts = drafter.expert_dtype or dtype
    if isinstance(drafter, ModelSpec):
        return target_network(
            drafter, rank, weight_dtype=dtype, expert_dtype=experts, kv_dtype=kv_dtype, drafts=True
        )
    return drafter_network(
        drafter,
        rank,
        target_rank=target_rank,
        weight_dtype=dtype,
        expert_dtype=experts,
        kv_dtype=kv_dtype,
    )
