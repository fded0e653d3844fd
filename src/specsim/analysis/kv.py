"""Memory of one arm: weights, what the engine keeps for itself, and the KV cache that is left."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from specsim.analysis.cache import cache_pool
from specsim.analysis.weights import (
    DeviceWeights,
    drafter_weights,
    stored_drafter,
    target_weights,
)
from specsim.errors import InfeasibleError
from specsim.physics.cost import Num
from specsim.physics.memory import CachePool
from specsim.schema.base import KvDtype, WeightDtype
from specsim.schema.engine import EngineConstants
from specsim.schema.model import DrafterSpec, LinearAttention, ModelSpec
from specsim.schema.results import DOES_NOT_START
from specsim.schema.speculation import NO_DRAFTER
from specsim.units import GB, GIB

_TRIED_TP = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvBudget:
    """Where the memory of one arm goes. 'Per device' is the fullest device of a replica."""

    devices: int
    weights_gib: float
    """The target's, summed over the devices of a replica, copies counted."""
    drafter_weights_gib: float
    """The drafter's, likewise."""
    device_weights_gib: float
    """The target's, per device."""
    device_drafter_weights_gib: float
    usable_gib: float
    """Per device, as the driver reports it."""
    requested_gib: float
    """Per device: usable x gpu_memory_utilization."""
    activation_gib: float
    """Per device, peak."""
    non_torch_gib: float
    graphs_gib: float
    """Per device; outside `requested_gib` in engines that do not budget for it."""
    kv_gib: float
    """Per device: what is left for the cache."""
    nameplate_gb: float
    """Marketed memory of all devices [1e9 bytes]."""
    nameplate_kv_gb: float
    """`nameplate_gb` less all weights, which is how a datasheet is read [1e9 bytes]."""
    bytes_per_token: float
    """Per device, each further token of a long sequence."""
    block_size: int
    """Tokens per block of the full-attention layers."""
    num_blocks: int
    kv_tokens: int
    """'KV cache size' as the engine prints it for `max_model_len`."""
    max_concurrency: float
    """Requests of `max_model_len` that fit, as the engine prints it."""
    max_model_len: int
    lookahead_tokens: int
    """Slots that the drafter writes ahead of every running sequence."""
    pool: CachePool
    notes: tuple[str, ...] = ()

    def sequences_that_fit(
        self, tokens_per_sequence: Num, *, shared_prefix_tokens: Num = 0.0
    ) -> Num:
        """Return the requests in flight that fit at a mean context.

        Parameters
        ----------
        tokens_per_sequence : float or array
            Mean tokens of context over the life of a running request. [tokens]
        shared_prefix_tokens : float or array
            Of these, how many are one prefix of all requests, stored once. [tokens]
        """
        return self.pool.sequences_that_fit(
            num_blocks=self.num_blocks,
            tokens_per_sequence=tokens_per_sequence,
            lookahead_tokens=self.lookahead_tokens,
            shared_prefix_tokens=shared_prefix_tokens,
        )


def kv_budget(
    *,
    model: ModelSpec,
    drafter: DrafterSpec | ModelSpec | None,
    method: str,
    num_speculative_tokens: int,
    weight_dtype: WeightDtype,
    expert_dtype: WeightDtype | None,
    drafter_weight_dtype: WeightDtype | None,
    kv_dtype: KvDtype,
    memory_usable_bytes: float,
    memory_nameplate_bytes: float,
    tensor_parallel_size: int,
    pipeline_parallel_size: int,
    draft_tensor_parallel_size: int | None,
    expert_parallel: bool,
    gpu_memory_utilization: float,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_model_len: int,
    engine: EngineConstants,
    async_scheduling: bool,
    kv_cache_bytes: float | None = None,
) -> KvBudget:
    """Return where the memory of one arm goes, as vLLM V1 sizes its cache.

    Parameters
    ----------
    drafter
        None for the baseline and for methods without weights, which then get the same budget.
    num_speculative_tokens : int
        k; 0 without speculation. [tokens]
    draft_tensor_parallel_size : int, optional
        1: every device holds the whole drafter and its cache; else as the target. None: as the
        target.
    kv_cache_bytes : float, optional
        Cache per device as given by ``--kv-cache-memory-bytes``, in place of what utilisation
        leaves. [bytes]

    Raises
    ------
    InfeasibleError
        Nothing is left for the cache.

    Notes
    -----
    theory.md equation (12): cache = usable * utilisation - weights - drafter weights -
    activations - CUDA graphs - non-torch, per device.
    """
    activation = _activation_bytes(
        gib_per_mtok_hidden=engine.activation_gib_per_mtok_hidden.value,
        max_num_batched_tokens=max_num_batched_tokens,
        hidden_size=model.hidden_size,
        max_num_seqs=max_num_seqs,
        vocab_size=model.vocab_size,
    )
    non_torch = engine.non_torch_gib.value * GIB
    graphs = engine.graph_memory_gib.value * GIB
    requested = math.ceil(memory_usable_bytes * gpu_memory_utilization)
    overhead = activation + non_torch + (graphs if engine.graph_memory_budgeted else 0.0)
    draft_dtype = drafter_weight_dtype or (drafter.weight_dtype if drafter else weight_dtype)
    stored, notes = stored_drafter(drafter, model, engine)

    def fill(tp: int) -> tuple[DeviceWeights, DeviceWeights, CachePool, float]:
        """Load the weights on `tp` ranks; the last item is what is left per device."""
        draft_tp = 1 if draft_tensor_parallel_size == 1 else tp
        target = target_weights(
            model,
            weight_dtype=weight_dtype,
            expert_dtype=expert_dtype,
            tensor_parallel_size=tp,
            pipeline_parallel_size=pipeline_parallel_size,
            expert_parallel=expert_parallel,
        )
        draft = drafter_weights(
            stored, weight_dtype=draft_dtype, tensor_parallel_size=draft_tp, devices=tp
        )
        pool = cache_pool(
            model,
            stored,
            num_speculative_tokens=num_speculative_tokens,
            kv_dtype=kv_dtype,
            tensor_parallel_size=tp,
            draft_tensor_parallel_size=draft_tp,
            pipeline_parallel_size=pipeline_parallel_size,
            block_size=engine.block_size,
        )
        left = requested - overhead - target.device - draft.device
        return target, draft, pool, left if kv_cache_bytes is None else kv_cache_bytes

    target, draft, pool, left = fill(tensor_parallel_size)
    num_blocks = int(pool.num_blocks(left))
    if num_blocks < 2:  # one is the null block
        raise InfeasibleError(
            _does_not_fit(
                model=model,
                drafter=drafter,
                tensor_parallel_size=tensor_parallel_size,
                needed_bytes=overhead + target.device + draft.device + 2 * pool.block_bytes,
                weights_bytes=target.device + draft.device,
                requested_bytes=requested,
                usable_bytes=memory_usable_bytes,
                fits=lambda tp: _has_blocks(fill(tp)),
            )
        )

    in_flight = max_num_batched_tokens * _concurrent_batches(
        async_scheduling=async_scheduling, stages=pipeline_parallel_size
    )
    concurrency = float(
        pool.max_concurrency(
            num_blocks=num_blocks, max_model_len=max_model_len, in_flight_tokens=in_flight
        )
    )
    if concurrency < 1:
        notes += (
            f"{DOES_NOT_START} with max_model_len {max_model_len}: the cache holds "
            f"{concurrency:.2f} requests of that length; lower --max-model-len",
        )
    devices = tensor_parallel_size * pipeline_parallel_size
    weights = target.all_devices + draft.all_devices
    return KvBudget(
        devices=devices,
        weights_gib=target.all_devices / GIB,
        drafter_weights_gib=draft.all_devices / GIB,
        device_weights_gib=target.device / GIB,
        device_drafter_weights_gib=draft.device / GIB,
        usable_gib=memory_usable_bytes / GIB,
        requested_gib=requested / GIB,
        activation_gib=activation / GIB,
        non_torch_gib=non_torch / GIB,
        graphs_gib=graphs / GIB,
        kv_gib=left / GIB,
        nameplate_gb=devices * memory_nameplate_bytes / GB,
        nameplate_kv_gb=(devices * memory_nameplate_bytes - weights) / GB,
        bytes_per_token=pool.bytes_per_token,
        block_size=pool.block_tokens,
        num_blocks=num_blocks,
        kv_tokens=int(concurrency * max_model_len),
        max_concurrency=concurrency,
        max_model_len=max_model_len,
        lookahead_tokens=_lookahead_tokens(method, num_speculative_tokens),
        pool=pool,
        notes=notes,
    )


def _activation_bytes(
    *,
    gib_per_mtok_hidden: float,
    max_num_batched_tokens: int,
    hidden_size: int,
    max_num_seqs: int,
    vocab_size: int,
) -> float:
    """Return the activation peak of the engine's profiling run.

    It is that of a pass of `max_num_batched_tokens`, and at least the fp32 logits that the sampler
    sees for `max_num_seqs` rows. Engines that keep activations out of the utilisation have no
    such run, and a constant of 0.
    """
    if not gib_per_mtok_hidden:
        return 0.0
    forward = gib_per_mtok_hidden * max_num_batched_tokens * hidden_size / 1e6 * GIB
    return max(forward, 4.0 * max_num_seqs * vocab_size)


def _lookahead_tokens(method: str, k: int) -> int:
    """Return the slots that the drafter writes ahead [VllmConfig.num_lookahead_tokens]."""
    if method in NO_DRAFTER or method == "medusa":
        return 0
    return k + 1 if method == "dflash" else k


def _concurrent_batches(*, async_scheduling: bool, stages: int) -> int:
    """Return the steps in flight at a time [VllmConfig.max_concurrent_batches]."""
    return stages + 1 if async_scheduling else stages


def _has_blocks(filled: tuple[DeviceWeights, DeviceWeights, CachePool, float]) -> bool:
    _, _, pool, left = filled
    return bool(pool.num_blocks(left) >= 2)


def _does_not_fit(
    *,
    model: ModelSpec,
    drafter: DrafterSpec | ModelSpec | None,
    tensor_parallel_size: int,
    needed_bytes: float,
    weights_bytes: float,
    requested_bytes: float,
    usable_bytes: float,
    fits: Callable[[int], bool],
) -> str:
    heads = [
        g.attention.n_heads
        for g in model.layers
        if g.attention is not None and not isinstance(g.attention, LinearAttention)
    ]
    tried = [
        tp for tp in _TRIED_TP if tp > tensor_parallel_size and all(n % tp == 0 for n in heads)
    ]
    smallest = next((tp for tp in tried if fits(tp)), None)
    remedy = (
        f"the smallest that fits is --tensor-parallel-size {smallest}"
        if smallest
        else "no --tensor-parallel-size that divides its heads fits; use a narrower --weight-dtype "
        "or a larger device"
    )
    with_drafter = f" with drafter {drafter.id}" if drafter is not None else ""
    return (
        f"{model.id}{with_drafter} does not fit at tensor_parallel_size {tensor_parallel_size}: "
        f"each device needs {needed_bytes / GIB:.1f} GiB ({weights_bytes / GIB:.1f} GiB of "
        f"weights), available {requested_bytes / GIB:.1f} of {usable_bytes / GIB:.1f} GiB; {remedy}"
    )
