"""Hardware profiles by hand: check a file, make one from a few datasheet figures, write it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from specsim.catalog.borrowing import blocks, can_multiply
from specsim.catalog.hardware import (
    complete_profile,
    file_key,
    hardware_index,
    load_hardware,
    read_profile,
)
from specsim.errors import InputError
from specsim.schema.base import Range, parse
from specsim.schema.hardware import Datasheet, HardwareProfile

_LENDER_OF_UNKNOWN_ARCHITECTURE = "h100_sxm"
"""The device with the most complete kernel tables."""


def check_profile(path: Path, *, search: Sequence[Path] = ()) -> list[str]:
    """Return what is wrong with a profile file; entries that start with 'warning' may stay."""
    try:
        own = read_profile(path)
        profile = complete_profile(path, search)
    except InputError as error:
        return [str(error)]
    identity, sheet = own.identity, own.datasheet
    found: list[str] = []

    if identity.id != path.stem:
        found.append(f"identity.id is {identity.id!r} but the file is called {path.name}")
    found += [
        f"identity.aliases: {alias!r} should be {file_key(alias)!r}"
        for alias in identity.aliases
        if alias != file_key(alias)
    ]
    found += _implausible(sheet)

    for name, block in blocks(own.effective):
        # Soft knees of the expert layers trade fractions against each other: wider band.
        low, high = (0.2, 1.15) if name.startswith(("gemm", "decode_attention")) else (0.05, 1.3)
        for field in ("bandwidth_frac", "compute_frac"):
            fraction = getattr(block, field, None)
            if isinstance(fraction, Range) and not low <= fraction.value <= high:
                found.append(
                    f"effective.{name}.{field} is {fraction.value:g}; "
                    f"{low:g} to {high:g} of the datasheet is plausible"
                )
        if not can_multiply(own, block):
            found.append(f"effective.{name}.computes_in has no peak in datasheet.dense_tflops")
    if "bf16" not in profile.effective.gemm:
        found.append("effective.gemm has no bf16 block and effective.borrow names no device")

    for price in own.price:
        if not 0.01 <= price.usd_per_gpu_hour <= 100:
            found.append(f"price: {price.usd_per_gpu_hour:g} USD per GPU and hour is implausible")
        if price.as_of is None:
            found.append("warning: a price has no as_of date")
    if sheet.confidence == "low":
        found.append(f"warning: datasheet figures are of low confidence: {sheet.note}")
    return found


def _implausible(sheet: Datasheet) -> list[str]:
    """Return which datasheet figures contradict each other or look like another unit."""
    found: list[str] = []
    peaks = sheet.dense_tflops
    if not 10 <= sheet.memory_bandwidth_gb_per_s <= 20_000:
        found.append(
            f"datasheet.memory_bandwidth_gb_per_s is {sheet.memory_bandwidth_gb_per_s:g}; "
            "10 to 20000 is plausible: is the unit GB/s?"
        )
    # Boards sold as N GB carry N GiB; a driver reports a little less.
    if sheet.memory_usable_gib > 1.01 * sheet.memory_gb:
        found.append(
            f"datasheet.memory_usable_gib ({sheet.memory_usable_gib:g}) is above "
            f"memory_gb ({sheet.memory_gb:g})"
        )
    ladder = [("bf16", peaks.bf16), ("fp8", peaks.fp8), ("fp4", peaks.fp4)]
    rungs = [(dtype, peak) for dtype, peak in ladder if peak is not None]
    for (slow, low), (fast, high) in pairwise(rungs):
        if high < low:
            found.append(f"datasheet.dense_tflops: {fast} ({high:g}) is below {slow} ({low:g})")
    return found


def new_profile(
    *,
    id: str,
    name: str,
    vendor: str,
    architecture: str,
    memory_gb: float,
    bandwidth_gb_per_s: float,
    bf16_tflops: float,
    memory_usable_gib: float | None = None,
    fp8_tflops: float | None = None,
    int8_tflops: float | None = None,
    fp4_tflops: float | None = None,
    fp32_tflops: float | None = None,
    l2_mb: float | None = None,
    tdp_w: float | None = None,
    link: str = "PCIe",
    link_gb_per_s: float = 64.0,
    price: float | None = None,
    price_as_of: str | None = None,
    borrow: str | None = None,
    source: str = "datasheet figures given by the user",
    search: Sequence[Path] = (),
) -> dict[str, Any]:
    """Make a profile from a few datasheet numbers.

    Parameters
    ----------
    memory_gb, memory_usable_gib : float
        As marketed [GB], and as the driver reports [GiB]; absent: 98 % of the marketed number.
    bandwidth_gb_per_s, link_gb_per_s : float
        Of the memory; of the link between devices, per direction. [GB/s]
    bf16_tflops, fp8_tflops, int8_tflops, fp4_tflops, fp32_tflops : float
        Dense peaks, not those with sparsity. [TFLOP/s]
    price : float
        [USD per GPU and hour]
    price_as_of : str
        Its date, as YYYY-MM-DD.
    borrow : str
        Whose kernel constants to take; absent: the measured device of this architecture with the
        nearest memory bandwidth.

    Returns
    -------
    dict
        Plain data, valid as `HardwareProfile`; `dump_profile` turns it into YAML.
    """
    if not re.fullmatch(r"[a-z0-9_.]+", id):
        raise InputError(f"id {id!r}: use lower-case letters, digits, '_' and '.' (a file name)")
    lender = borrow or _nearest_lender(architecture, bandwidth_gb_per_s)
    load_hardware(lender, search=search)
    data: dict[str, Any] = {
        "identity": {
            "id": id, "name": name, "vendor": vendor, "architecture": architecture.lower(),
        },
        "datasheet": {
            "memory_gb": memory_gb,
            "memory_usable_gib": (
                round(0.98 * memory_gb, 2) if memory_usable_gib is None else memory_usable_gib
            ),
            "memory_bandwidth_gb_per_s": bandwidth_gb_per_s,
            "dense_tflops": _given(
                bf16=bf16_tflops, fp8=fp8_tflops, int8=int8_tflops, fp4=fp4_tflops, fp32=fp32_tflops
            ),
            **_given(l2_mb=l2_mb, tdp_w=tdp_w),
            "link": {"kind": link, "gb_per_s_per_direction": link_gb_per_s},
            "confidence": "medium",
        },
        "effective": {"borrow": lender},
        "price": [] if price is None else [
            {"usd_per_gpu_hour": price, "source": "given by the user"}
            | ({} if price_as_of is None else {"as_of": price_as_of})
        ],
        "sources": [{"title": source}],
    }  # fmt: skip
    profile = parse(HardwareProfile, data, what=f"new profile {id!r}")
    for problem in _implausible(profile.datasheet):
        raise InputError(f"new profile {id!r}: {problem}")
    return data


def _given(**values: float | None) -> dict[str, float]:
    return {key: value for key, value in values.items() if value is not None}


def _nearest_lender(architecture: str, bandwidth_gb_per_s: float) -> str:
    def distance(profile: HardwareProfile) -> float:
        ratio = profile.datasheet.memory_bandwidth_gb_per_s / max(bandwidth_gb_per_s, 1e-9)
        return abs(math.log(ratio))

    family = [
        read_profile(entry.path)
        for entry in hardware_index()
        if entry.shipped and entry.architecture == architecture.lower()
    ]
    measured = [
        profile
        for profile in family
        if any(block.basis != "assumed" for block in profile.effective.gemm.values())
    ]
    if not measured:
        return _LENDER_OF_UNKNOWN_ARCHITECTURE
    return min(measured, key=distance).identity.id


class _Dumper(yaml.SafeDumper):
    """Block style, but intervals and rows of numbers on one line."""


def _represent_mapping(dumper: _Dumper, data: dict[Any, Any]) -> yaml.Node:
    flow = bool(data) and set(data) <= {"value", "low", "high"}
    return dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=flow)


def _represent_sequence(dumper: _Dumper, data: list[Any]) -> yaml.Node:
    flow = not any(isinstance(item, dict) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)


_Dumper.add_representer(dict, _represent_mapping)
_Dumper.add_representer(list, _represent_sequence)


def dump_profile(data: Mapping[str, Any]) -> str:
    """Return the YAML text of a profile given as plain data."""
    text: str = yaml.dump(
        dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text
