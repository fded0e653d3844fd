"""One device of a replica: the rates that its profile and the drawn constants give."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.analysis.constants import Constants
from specsim.catalog.general import load_general
from specsim.catalog.hardware import attention_constants, gemm_constants, moe_constants
from specsim.physics.cost import Num
from specsim.physics.forward import Gemm, Head, Layer, Network
from specsim.physics.kernels import AllReduceTable, AttentionRates, GemmRates, MoeRates
from specsim.schema.base import Range
from specsim.schema.hardware import HardwareProfile
from specsim.units import BYTES_PER_PARAM, GB, KIB, MICRO, NANO, TFLOP

SOFTMAX_BYTES, ARGMAX_BYTES = 12.0, 2.0
"""Bytes per logit of a softmax in fp32 (read, written, read) and of an argmax over 16 bits."""


@dataclass(frozen=True)
class Rank:
    """One device of a replica, and how constants are drawn for it."""

    hardware: HardwareProfile
    constants: Constants
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    expert_parallel: bool = False
    block_fp8: bool = False
    """fp8 weights carry a scale per block of 128 x 128, which has kernels of its own."""

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Datasheet memory bandwidth."""
        return self.hardware.datasheet.memory_bandwidth_gb_per_s * GB

    def peak_flop_per_s(self, dtype: str) -> float:
        """Datasheet peak of a dtype of multiplication, dense."""
        peaks = self.hardware.datasheet.dense_tflops
        peak = getattr(peaks, dtype)
        return (peak if peak is not None else peaks.bf16) * TFLOP

    def gemm_rates(self, dtype: str) -> GemmRates:
        """Rates of equation (1) for weights of a dtype."""
        blocked = dtype == "fp8" and self.block_fp8
        c = gemm_constants(self.hardware, "fp8_block" if blocked else dtype)
        draw = self.constants.value
        return GemmRates(
            launch_s=draw(c.launch_us, "launch") * MICRO,
            bytes_per_s=draw(c.bandwidth_frac, "bandwidth") * self.bandwidth_bytes_per_s,
            flop_per_s=draw(c.compute_frac, "compute") * self.peak_flop_per_s(c.computes_in),
            sharpness=draw(c.sharpness, "sharpness"),
            per_in_feature_s=(
                0.0 if c.per_in_feature_ns is None else draw(c.per_in_feature_ns, "launch") * NANO
            ),
            **(
                {}
                if c.row_factor is None
                else {"factor_rows": c.row_factor.rows, "factor": c.row_factor.factor}
            ),
        )

    def attention_rates(self, kv_dtype: str, *, latent: bool) -> AttentionRates:
        """Rates of equation (2)."""
        c = attention_constants(self.hardware, kv_dtype)
        if latent and self.hardware.effective.mla_attention is not None:
            c = self.hardware.effective.mla_attention
        draw = self.constants.value
        return AttentionRates(
            floor_s=draw(c.floor_us, "launch") * MICRO,
            launch_s=draw(c.launch_us, "launch") * MICRO,
            l2_bytes=self._l2_mb * 1e6,
            bytes_per_s=draw(c.bandwidth_frac, "kv_bandwidth") * self.bandwidth_bytes_per_s,
            flop_per_s=draw(c.compute_frac, "attention_compute") * self.peak_flop_per_s("bf16"),
        )

    def moe_rates(self, dtype: str) -> MoeRates:
        """Rates of equation (4)."""
        c = moe_constants(self.hardware, dtype)
        draw = self.constants.value
        return MoeRates(
            launch_s=draw(c.launch_us, "launch") * MICRO,
            per_expert_s=draw(c.per_expert_ns, "launch") * NANO,
            bytes_per_s=draw(c.bandwidth_frac, "moe_bandwidth") * self.bandwidth_bytes_per_s,
            flop_per_s=draw(c.compute_frac, "moe_compute") * self.peak_flop_per_s(c.computes_in),
            sharpness=draw(c.sharpness, "sharpness"),
            concentration=draw(c.concentration, "concentration"),
            sequence_overlap=draw(load_general().sequence_overlap.range, "sequence_overlap"),
        )

    def all_reduce_table(self) -> AllReduceTable | None:
        """Return times of a collective over the tensor-parallel group; None for a group of one."""
        size = self.tensor_parallel_size
        elementwise = self.hardware.effective.elementwise
        if size == 1 or elementwise is None:
            return None
        skew = self.constants.value(elementwise.skew_us, "skew") * MICRO
        measured = self.hardware.effective.all_reduce.get(size)
        if measured is not None:
            spread = Range(value=1.0, low=measured.relative_low, high=measured.relative_high)
            return AllReduceTable(
                message_bytes=tuple(k * KIB for k in measured.kib),
                time_s=tuple(us * MICRO for us in measured.us),
                skew_s=skew,
                scale=self.constants.value(spread, "all_reduce"),
            )
        return self._ring_table(skew)

    def _ring_table(self, skew_s: Num) -> AllReduceTable:
        """Build a table from the link alone: latency, then a ring at a share of its bandwidth.

        A ring moves 2 (n - 1) / n of the message over every link. PCIe groups share root ports:
        measured groups of four and eight fall to a fraction of what a pair reaches.
        """
        size = self.tensor_parallel_size
        general = load_general()
        link = self.hardware.datasheet.link.gb_per_s_per_direction
        slow = link < general.slow_link_gb_per_s.value
        per_doubling = general.ring_latency_us_slow if slow else general.ring_latency_us_fast
        latency_s = per_doubling.value * MICRO * (1 + (size - 1).bit_length())
        bytes_per_s = general.ring_bandwidth_frac.value * link * GB
        if slow and size > 2:
            bytes_per_s *= 2.0 / size
        sizes = tuple(4.0**i * KIB for i in range(2, 11))
        moved = 2.0 * (size - 1) / size
        return AllReduceTable(
            message_bytes=sizes,
            time_s=tuple(latency_s + moved * s / bytes_per_s for s in sizes),
            skew_s=skew_s,
        )

    @property
    def _l2_mb(self) -> float:
        known = self.hardware.datasheet.l2_mb
        return load_general().default_l2_mb.value if known is None else known

    def network(
        self,
        layers: tuple[Layer, ...],
        *,
        head: Head | None,
        hidden_size: float,
        before: tuple[Gemm, ...] = (),
    ) -> Network:
        """Put layers together with this rank's small kernels and collectives."""
        small = self.hardware.effective.elementwise
        assert small is not None, "the catalog borrows this block where a profile lacks it"
        draw = self.constants.value
        return Network(
            layers=layers,
            head=head,
            hidden_size=hidden_size,
            elementwise_kernels=draw(small.kernels_per_layer, "elementwise"),
            elementwise_launch_s=draw(small.launch_us, "launch") * MICRO,
            stream_bytes_per_s=draw(small.bandwidth_frac, "bandwidth") * self.bandwidth_bytes_per_s,
            before=before,
            table=self.all_reduce_table(),
            elementwise_growth_s=draw(load_general().small_kernel_growth_us.range, "elementwise")
            * MICRO,
            stages=float(self.pipeline_parallel_size),
            stage_hop_s=draw(load_general().stage_hop_us.range, "skew") * MICRO,
        )

    def head(
        self,
        *,
        vocab_size: float,
        hidden_size: float,
        dtype: str = "bf16",
        bytes_per_logit: float = SOFTMAX_BYTES,
    ) -> Head:
        """Return the vocabulary projection: split over the group, kept in 16 bit by quantisers."""
        small = self.hardware.effective.elementwise
        assert small is not None, "the catalog borrows this block where a profile lacks it"
        gemm = Gemm(
            out_features=vocab_size / self.tensor_parallel_size,
            in_features=hidden_size,
            weight_bytes=BYTES_PER_PARAM[dtype],
            rates=self.gemm_rates(dtype),
        )
        return Head(
            gemm=gemm,
            vocab_size=vocab_size,
            fixed_s=self.constants.value(small.head_us, "launch") * MICRO,
            bytes_per_logit=bytes_per_logit,
        )
