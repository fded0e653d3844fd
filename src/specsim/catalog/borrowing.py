"""What a device has no measurements of: taken from a lender, or from another dtype's kernels.

Everything taken over is marked `assumed`, says where it comes from, and gets wider intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from specsim.errors import InputError
from specsim.schema.base import Range
from specsim.schema.hardware import (
    AllReduceConstants,
    AttentionConstants,
    Constants,
    Effective,
    GemmConstants,
    HardwareProfile,
    MoeConstants,
    PrefillAttentionConstants,
)

_BY_DTYPE = ("gemm", "decode_attention", "moe")
_SINGLE = (
    "mla_attention", "prefill_attention", "linear_attention", "expert_parallel", "elementwise",
)  # fmt: skip

_STAND_INS: dict[str, tuple[str, ...]] = {
    "fp16": ("bf16",),
    "fp8": ("bf16",),
    "fp8_block": ("fp8", "bf16"),
    "int8": ("fp8", "bf16"),
    "int4": ("mxfp4", "bf16"),
    "mxfp4": ("int4", "bf16"),
    "nvfp4": ("int4", "mxfp4", "bf16"),
    "fp32": ("bf16",),
}
"""Whose kernels stand in for a dtype without its own, nearest first."""

_SAME_KERNELS = {("fp16", "bf16"), ("fp8_block", "fp8")}
"""Pairs that run at one speed: standing in for each other is no assumption worth a warning."""

_CLIP: dict[str, tuple[float, float]] = {
    "bandwidth_frac": (0.05, 1.0),
    "compute_frac": (0.02, 1.0),
    "sharpness": (0.5, 12.0),
    "concentration": (0.5, 1.05),
}
"""What no widened interval leaves, unless the value itself lies outside."""

C = TypeVar("C", bound=Constants)
B = TypeVar("B", GemmConstants, MoeConstants)


def borrowed_blocks(profile: HardwareProfile) -> list[str]:
    """Return the names of the blocks that rest on an assumption, e.g. 'gemm.fp8'."""
    return [name for name, block in blocks(profile.effective) if block.basis == "assumed"]


def gemm_constants(profile: HardwareProfile, dtype: str) -> GemmConstants:
    """Return the constants of matrix multiplications with weights of `dtype`.

    Without a table of its own a dtype takes the nearest kernels: quantised weights are unpacked
    and multiplied in bf16, int8 activations and weights in int8 where the device has it.
    """
    return _stand_in(profile, "gemm", profile.effective.gemm, dtype)


def moe_constants(profile: HardwareProfile, dtype: str) -> MoeConstants:
    """Return the constants of fused expert layers with weights of `dtype`; as `gemm_constants`."""
    return _stand_in(profile, "moe", profile.effective.moe, dtype)


def attention_constants(profile: HardwareProfile, kv_dtype: str) -> AttentionConstants:
    """Return the constants of decode attention on a cache of `kv_dtype`, else those of bf16."""
    known = profile.effective.decode_attention
    if kv_dtype in known:
        return known[kv_dtype]
    if "bf16" not in known:
        raise _no_constants(profile, "decode_attention", kv_dtype, list(known))
    if kv_dtype == "fp16":
        return known["bf16"]
    return _assumed(known["bf16"], f"{kv_dtype} cache in the kernels of bf16")


def fill(profile: HardwareProfile, lender: HardwareProfile) -> HardwareProfile:
    """Return `profile` with the blocks and dtypes that it lacks and the lender has."""
    mine, theirs = profile.effective, lender.effective
    why = f"borrowed from {lender.identity.id}"
    update: dict[str, Any] = {}
    for field in _BY_DTYPE:
        known = getattr(mine, field)
        update[field] = known | {
            dtype: _assumed(block, why)
            for dtype, block in getattr(theirs, field).items()
            if dtype not in known and can_multiply(profile, block)
        }
    for field in _SINGLE:
        block = getattr(theirs, field)
        if getattr(mine, field) is None and block is not None:
            update[field] = _assumed(block, why)
    slower = (
        lender.datasheet.link.gb_per_s_per_direction / profile.datasheet.link.gb_per_s_per_direction
    )
    update["all_reduce"] = mine.all_reduce | {
        gpus: _rescaled(_assumed(table, why), slower)
        for gpus, table in theirs.all_reduce.items()
        if gpus not in mine.all_reduce
    }
    return profile.model_copy(update={"effective": mine.model_copy(update=update)})


def can_multiply(profile: HardwareProfile, block: Constants) -> bool:
    """Whether the device has the arithmetic that the block's fractions refer to."""
    return not isinstance(block, GemmConstants | MoeConstants) or (
        _peak(profile, block.computes_in) is not None
    )


def _peak(profile: HardwareProfile, dtype: str) -> float | None:
    value: float | None = getattr(profile.datasheet.dense_tflops, dtype, None)
    return value


def _rescaled(table: AllReduceConstants, slower: float) -> AllReduceConstants:
    """Stretch what a message adds to the latency by the ratio of the links.

    From NVLink 3 (300 GB/s) to PCIe 4 (32 GB/s) this gives 98, 194 and 207 us for 2 MiB over 2, 4
    and 8 devices; PCIe boxes measure 106-121, 197 and 271 us.
    """
    latency = min(table.us)
    return table.model_copy(
        update={"us": tuple(latency + (us - latency) * slower for us in table.us)}
    )


def _assumed(block: C, why: str) -> C:
    """Mark a block as assumed and double its intervals, to at least 20 % on either side."""
    update: dict[str, Any] = {"basis": "assumed", "source": f"{why}: {block.source}"}
    for name in type(block).model_fields:
        value = getattr(block, name)
        if isinstance(value, Range):
            update[name] = _widened(value, *_CLIP.get(name, (0.0, math.inf)))
    if isinstance(block, PrefillAttentionConstants | AllReduceConstants):
        update["relative_low"] = max(0.1, 1 - max(0.2, 2 * (1 - block.relative_low)))
        update["relative_high"] = 1 + max(0.2, 2 * (block.relative_high - 1))
    return block.model_copy(update=update)


def _widened(known: Range, floor: float, ceiling: float) -> Range:
    value = known.value
    low = value - max(2 * (value - known.low), 0.2 * value)
    high = value + max(2 * (known.high - value), 0.2 * value)
    return Range(
        value=value,
        low=max(low, min(floor, value)),
        high=min(high, max(ceiling, value)),
    )


def _stand_in(profile: HardwareProfile, field: str, known: Mapping[str, B], dtype: str) -> B:
    if dtype in known and can_multiply(profile, known[dtype]):
        return known[dtype]
    for other in _STAND_INS.get(dtype, ()):
        block = known.get(other)
        if block is None or not can_multiply(profile, block):
            continue
        if (dtype, other) in _SAME_KERNELS:
            return block
        computes_in = block.computes_in
        if dtype == "fp32":
            computes_in = "fp32"
        elif (dtype, other) == ("int8", "fp8"):
            if (_peak(profile, "int8") or 0.0) < profile.datasheet.dense_tflops.bf16:
                continue
            computes_in = "int8"
        if _peak(profile, computes_in) is None:
            continue
        assumed = _assumed(block, f"{dtype} weights in the kernels of {other}")
        return assumed.model_copy(update={"computes_in": computes_in})
    raise _no_constants(profile, field, dtype, list(known))


def _no_constants(
    profile: HardwareProfile, field: str, dtype: str, known: Sequence[str]
) -> InputError:
    key = profile.identity.id
    return InputError(
        f"accelerator {key!r} has no constants for {dtype} in effective.{field} "
        f"(it has {', '.join(known) or 'none'}); add the block, or the peak it needs in "
        f"datasheet.dense_tflops, or name a device to borrow from: `specsim profiles show {key}`"
    )


def blocks(effective: Effective) -> Iterator[tuple[str, Constants]]:
    """Yield every block of constants with its name, e.g. 'gemm.fp8'."""
    for field in _BY_DTYPE:
        for dtype, block in getattr(effective, field).items():
            yield f"{field}.{dtype}", block
    for field in _SINGLE:
        if getattr(effective, field) is not None:
            yield field, getattr(effective, field)
    for gpus, table in effective.all_reduce.items():
        yield f"all_reduce.{gpus}", table
