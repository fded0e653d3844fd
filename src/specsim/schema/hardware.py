"""An accelerator: what its datasheet says, what its kernels reach, what an hour of it costs.

The three blocks never mix. `effective` holds fractions of the datasheet's own figures and fixed
times, each with the interval it is believed to lie in, a basis and a source.
"""

from __future__ import annotations

import datetime as dt

from pydantic import Field, model_validator

from specsim.schema.base import Basis, Confidence, Range, Record


class Identity(Record):
    """What the device is called."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    vendor: str
    architecture: str = Field(description="family, e.g. hopper; constants are borrowed within it")
    compute_capability: str | None = Field(default=None, description="e.g. sm90")


class Link(Record):
    """How the devices of one node talk to each other."""

    kind: str
    gb_per_s_per_direction: float = Field(gt=0)
    pcie_gb_per_s_per_direction: float | None = Field(default=None, gt=0)


class DenseTflops(Record):
    """Dense (not sparse) peak rates by the dtype of the multiplication [TFLOP/s]."""

    bf16: float = Field(gt=0, le=20000)
    fp16: float | None = Field(default=None, gt=0, le=20000)
    fp8: float | None = Field(default=None, gt=0, le=40000)
    int8: float | None = Field(default=None, gt=0, le=40000)
    fp4: float | None = Field(default=None, gt=0, le=80000)
    fp32: float | None = Field(default=None, gt=0, le=5000)


class Datasheet(Record):
    """The vendor's figures."""

    memory_gb: float = Field(gt=0, le=4096, description="as marketed [1e9 bytes]")
    memory_usable_gib: float = Field(gt=0, le=4096, description="as reported by the driver [GiB]")
    memory_bandwidth_gb_per_s: float = Field(gt=1, le=100_000)
    dense_tflops: DenseTflops
    l2_mb: float | None = Field(default=None, gt=0)
    sm_count: int | None = Field(default=None, gt=0)
    tdp_w: float | None = Field(default=None, gt=0)
    link: Link
    confidence: Confidence
    note: str = ""


class Constants(Record):
    """Base of the blocks of effective constants."""

    basis: Basis
    source: str = Field(min_length=3)

    @model_validator(mode="after")
    def _ranges_hold_their_value(self) -> Constants:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Range) and not 0 <= value.low <= value.value <= value.high:
                raise ValueError(
                    f"{name} must have 0 <= low <= value <= high, "
                    f"got {value.low:g}, {value.value:g}, {value.high:g}"
                )
        return self


class RowFactor(Record):
    """Measured over closed form by rows: what tiles and waves add that no smooth form has."""

    rows: tuple[float, ...] = Field(min_length=2, description="tokens of the pass")
    factor: tuple[float, ...] = Field(
        min_length=2, description="times the whole time; linear in log rows, held beyond the ends"
    )

    @model_validator(mode="after")
    def _same_length(self) -> RowFactor:
        if len(self.rows) != len(self.factor) or list(self.rows) != sorted(set(self.rows)):
            raise ValueError("rows and factor must have as many entries, rows rising")
        if min(self.rows) <= 0 or min(self.factor) <= 0:
            raise ValueError("rows and factor must be above 0")
        return self


class GemmConstants(Constants):
    """theory.md equation (1), by weight dtype."""

    launch_us: Range
    per_in_feature_ns: Range | None = Field(
        default=None,
        description="walk of one block through the input features: joins the bytes in the norm",
    )
    bandwidth_frac: Range = Field(description="of the datasheet bandwidth")
    compute_frac: Range = Field(description="of the datasheet peak of the dtype multiplied in")
    sharpness: Range = Field(description="p of the memory-to-compute knee")
    computes_in: str = Field(description="dtype of the multiplication: a key of dense_tflops")
    row_factor: RowFactor | None = None


class AttentionConstants(Constants):
    """theory.md equation (2), by cache dtype."""

    floor_us: Range
    launch_us: Range
    bandwidth_frac: Range
    compute_frac: Range = Field(description="of the bf16 peak, score and value products")


class PrefillAttentionConstants(Constants):
    """Share of the bf16 peak that causal prefill attention reaches, by prompt length."""

    lengths: tuple[int, ...] = Field(min_length=1)
    compute_frac: tuple[float, ...] = Field(min_length=1)
    relative_low: float = Field(default=0.85, gt=0, le=1)
    relative_high: float = Field(default=1.15, ge=1)

    @model_validator(mode="after")
    def _same_length(self) -> PrefillAttentionConstants:
        if len(self.lengths) != len(self.compute_frac):
            raise ValueError("lengths and compute_frac must have as many entries as each other")
        if list(self.lengths) != sorted(self.lengths):
            raise ValueError("lengths must rise")
        return self


class MoeConstants(Constants):
    """theory.md equation (4), by dtype of the expert weights."""

    launch_us: Range
    per_expert_ns: Range = Field(description="per distinct active expert")
    bandwidth_frac: Range
    compute_frac: Range
    sharpness: Range
    concentration: Range = Field(description="exponent: skew of the routing, 1 = none")
    computes_in: str


class LinearAttentionConstants(Constants):
    """theory.md equation (3)."""

    launch_us: Range
    bandwidth_frac: Range = Field(description="of state read and written")


class AllReduceConstants(Constants):
    """Measured time of an all-reduce by message size, theory.md 2.6, for one group size."""

    kib: tuple[float, ...] = Field(min_length=2, description="message size [2**10 bytes]")
    us: tuple[float, ...] = Field(min_length=2)
    relative_low: float = Field(default=0.85, gt=0, le=1)
    relative_high: float = Field(default=1.2, ge=1)

    @model_validator(mode="after")
    def _same_length(self) -> AllReduceConstants:
        if len(self.kib) != len(self.us) or list(self.kib) != sorted(self.kib):
            raise ValueError("kib and us must have as many entries, kib rising")
        return self


class ExpertParallelConstants(Constants):
    """Latency of handing tokens to the experts of other devices and back."""

    dispatch_us: Range
    combine_us: Range


class ElementwiseConstants(Constants):
    """theory.md equation (6): the small kernels around the big ones."""

    launch_us: Range
    kernels_per_layer: Range
    bandwidth_frac: Range
    head_us: Range = Field(description="fixed cost of sampling after the lm_head")
    skew_us: Range = Field(description="waiting of ranks for each other, per collective")


class Effective(Record):
    """What kernels reach. A block that is absent is borrowed from `borrow`, as assumed."""

    borrow: str | None = Field(default=None, description="id of the device with nearest kernels")
    gemm: dict[str, GemmConstants] = Field(default_factory=dict, description="by weight dtype")
    decode_attention: dict[str, AttentionConstants] = Field(default_factory=dict)
    mla_attention: AttentionConstants | None = None
    prefill_attention: PrefillAttentionConstants | None = None
    moe: dict[str, MoeConstants] = Field(default_factory=dict)
    linear_attention: LinearAttentionConstants | None = None
    all_reduce: dict[int, AllReduceConstants] = Field(default_factory=dict, description="by GPUs")
    expert_parallel: ExpertParallelConstants | None = None
    elementwise: ElementwiseConstants | None = None


class Price(Record):
    """A dated price."""

    usd_per_gpu_hour: float = Field(gt=0)
    low: float | None = Field(default=None, gt=0)
    high: float | None = Field(default=None, gt=0)
    provider: str = "market"
    kind: str = Field(default="typical", description="typical, on_demand, reserved, spot, list")
    as_of: dt.date | None = Field(default=None, description="absent: undated")
    source: str = ""

    @model_validator(mode="after")
    def _range_holds_it(self) -> Price:
        low, high = self.low or self.usd_per_gpu_hour, self.high or self.usd_per_gpu_hour
        if not low <= self.usd_per_gpu_hour <= high:
            raise ValueError(
                f"low <= usd_per_gpu_hour <= high must hold, got {low:g}, "
                f"{self.usd_per_gpu_hour:g}, {high:g}"
            )
        return self


class Source(Record):
    """Where figures come from."""

    title: str
    url: str | None = None
    accessed: dt.date | None = None


class HardwareProfile(Record):
    """One accelerator, one file."""

    identity: Identity
    datasheet: Datasheet
    effective: Effective
    price: tuple[Price, ...] = ()
    sources: tuple[Source, ...] = Field(min_length=1)
