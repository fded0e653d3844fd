"""Constants that belong to no device and no engine."""

from __future__ import annotations

from pydantic import Field

from specsim.schema.base import Range, Record
from specsim.schema.hardware import Constants


class SourcedRange(Constants):
    """A range with its own basis and source."""

    value: float
    low: float
    high: float

    @property
    def range(self) -> Range:
        """The numbers alone."""
        return Range(value=self.value, low=self.low, high=self.high)


class General(Record):
    """theory.md constants, each with its source."""

    sequence_overlap: SourcedRange = Field(description="beta of equation (4)")
    linear_prefill_frac: SourcedRange = Field(description="of the bf16 peak, chunked form")
    linear_chunk_tokens: SourcedRange
    stage_hop_us: SourcedRange = Field(description="to the next pipeline stage")
    tree_coverage_exponent: SourcedRange
    ring_bandwidth_frac: SourcedRange = Field(description="of the link, where no table exists")
    ring_latency_us_fast: SourcedRange = Field(
        description="per doubling of the group, NVLink class"
    )
    ring_latency_us_slow: SourcedRange = Field(description="per doubling of the group, PCIe")
    slow_link_gb_per_s: SourcedRange = Field(description="links below this are PCIe class")
    default_l2_mb: SourcedRange = Field(description="where a datasheet gives none")
    small_kernel_growth_us: SourcedRange = Field(
        description="per row and layer, up to 128 rows: small kernels before they fill the device"
    )
    linear_small_kernels_us: SourcedRange = Field(
        description="convolution, gates and norms around a recurrent layer, per layer"
    )
    draft_scale: SourcedRange = Field(description="factor on the drafter's time")
    discrepancy_measured: SourcedRange = Field(
        description="relative spread of the speedup beyond its parameters, kernels measured"
    )
    discrepancy_assumed: SourcedRange = Field(description="the same with borrowed kernels")
    default_acceptance_sd: SourcedRange = Field(
        description="relative spread of accepted tokens per step where no counts are known"
    )
