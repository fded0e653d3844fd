"""A serving engine at a version: its host overheads, defaults and limits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specsim.schema.base import Basis, Range, Record

GraphMode = Literal["full", "piecewise", "eager"]


class SchedulerDefaults(Record):
    """Batch limits for devices with at least `min_memory_gib` of memory."""

    min_memory_gib: float = Field(ge=0)
    max_num_seqs: int = Field(gt=0)
    max_num_batched_tokens: int = Field(gt=0)


class EngineConstants(Record):
    """Constants of one engine version. Later versions inherit what they do not state."""

    version: str
    basis: Basis
    source: str
    host_ms: Range = Field(description="host time per step not hidden, async scheduling")
    sync_host_ms: Range = Field(description="the same without asynchronous scheduling")
    per_sequence_host_us: Range = Field(description="host time per running sequence and step")
    speculative_host_ms: Range = Field(description="added per step with speculation on")
    draft_host_ms: Range = Field(
        description="per drafter pass, beyond the launch of every layer where it has no graphs"
    )
    draft_host_ms_by_method: dict[str, Range] = Field(
        default_factory=dict, description="the same for methods that differ"
    )
    speculative_per_sequence_host_us_by_method: dict[str, Range] = Field(
        default_factory=dict, description="the same for methods that differ"
    )
    piecewise_layer_us: Range = Field(
        default=Range(value=0.0, low=0.0, high=0.0),
        description="launch time per layer of a verification whose attention is in no graph",
    )
    piecewise_capabilities: tuple[str, ...] = Field(
        default=(),
        description="compute capabilities on which verification runs so: their attention backend "
        "captures single-token decodes only",
    )
    tree_pass_host_ms: Range = Field(
        default=Range(value=0.0, low=0.0, high=0.0),
        description="added per drafter pass where a tree is drafted",
    )
    ngram_host_ms: Range = Field(description="proposing by prompt lookup, per step")
    suffix_host_ms: Range = Field(description="proposing from the suffix tree, per step")
    eager_layer_us: Range = Field(description="launch time per layer where no graph covers it")
    eager_draft_layer_us: Range | None = Field(
        default=None, description="the same for a drafter; absent: as the target's"
    )
    speculative_per_sequence_host_us: Range = Field(
        default=Range(value=0.0, low=0.0, high=0.0),
        description="host time per running sequence and speculative step, beside per_sequence",
    )
    gpu_memory_utilization: float = Field(gt=0, le=1)
    scheduler_defaults: tuple[SchedulerDefaults, ...] = Field(min_length=1)
    small_scheduler_architectures: tuple[str, ...] = Field(
        default=(), description="devices that get the smallest limits whatever their memory"
    )
    small_scheduler_devices: tuple[str, ...] = Field(
        default=(), description="the same by device: ids that contain one of these words"
    )
    speculative_max_num_seqs: int | None = Field(
        default=None, gt=0, description="default of max_num_seqs with speculation on, if another"
    )
    block_size: int = Field(default=16, gt=0)
    max_graph_tokens: int = Field(gt=0, description="tokens per step that graphs cover, at most")
    max_graph_tokens_sm10x: int = Field(gt=0)
    graph_tokens_per_seq: int = Field(default=2, description="cap: this x max_num_seqs x (1 + k)")
    draft_graphs: dict[str, GraphMode] = Field(description="by method; 'default' for the others")
    async_scheduling: bool = Field(description="on by default")
    sync_methods: tuple[str, ...] = Field(default=(), description="methods that force it off")
    ngram_always_drafts: bool = Field(description="no match: filler drafts are verified")
    methods: tuple[str, ...] = Field(description="speculation methods that this version has")
    tree_drafting: bool = False
    adaptive_verification: bool = False
    non_torch_gib: Range = Field(description="memory of NCCL, CUDA context ... per device")
    activation_gib_per_mtok_hidden: Range = Field(
        description="activation peak: this x batched tokens x hidden size / 1e6 [GiB]"
    )
    graph_memory_gib: Range = Field(description="CUDA graph pools per device")
    graph_memory_budgeted: bool = Field(
        default=True, description="graph memory is taken out of gpu_memory_utilization's share"
    )
    copies_shared_embedding: bool = Field(
        default=False, description="an EAGLE or MTP drafter loads its own embedding and head"
    )


class Engine(Record):
    """All known versions of one engine, oldest first."""

    name: str
    versions: tuple[EngineConstants, ...] = Field(min_length=1)
