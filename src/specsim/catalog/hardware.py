"""Accelerator profiles: find, load, complete, check and write them.

One YAML file per device, file stem = id, in `hardware_profiles/<vendor>/` or in the user's own
folders (`catalog.files`), which win. What a device has no measurements of is borrowed from the
device that its profile names in `effective.borrow`, marked `assumed`, with wider intervals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from specsim.catalog.borrowing import (
    attention_constants,
    blocks,
    borrowed_blocks,
    can_multiply,
    fill,
    gemm_constants,
    moe_constants,
)
from specsim.catalog.files import data_dir, kind_of_file, read_mapping, read_shipped, user_files
from specsim.catalog.yaml_text import load_yaml
from specsim.errors import InputError, not_found
from specsim.schema.base import Range, parse
from specsim.schema.hardware import Datasheet, HardwareProfile

__all__ = [
    "HardwareEntry",
    "attention_constants",
    "borrowed_blocks",
    "check_profile",
    "dump_profile",
    "gemm_constants",
    "hardware_ids",
    "hardware_index",
    "load_hardware",
    "moe_constants",
    "new_profile",
    "price_usd_per_gpu_hour",
]

LIST_COMMAND = "specsim profiles list"

_LENDER_OF_UNKNOWN_ARCHITECTURE = "h100_sxm"
"""The device with the most complete kernel tables."""


@dataclass(frozen=True, slots=True)
class HardwareEntry:
    """One line of the list of accelerators."""

    id: str
    name: str
    vendor: str
    architecture: str
    aliases: tuple[str, ...]
    path: Path
    shipped: bool
    memory_gb: float | None
    memory_bandwidth_gb_per_s: float | None
    usd_per_gpu_hour: float | None
    confidence: str


def load_hardware(name: str, *, search: Sequence[Path] = ()) -> HardwareProfile:
    """Load an accelerator by id, alias (case, '-' and spaces do not matter) or path of a file.

    Parameters
    ----------
    search : sequence of Path
        The user's own files and folders, which win over shipped profiles.

    Returns
    -------
    HardwareProfile
        With every block that its chain of lenders can fill; `borrowed_blocks` names those.
    """
    path = _find(name, search)
    return _load_shipped(path) if _is_shipped(path) else _complete(path, search)


def hardware_ids(search: Sequence[Path] = ()) -> list[str]:
    """Return all ids, sorted; shipped ones cost no reading."""
    own = {entry.id for entry in _user_entries(search)}
    return sorted(own | {path.stem for path in _shipped_files()})


def hardware_index(search: Sequence[Path] = ()) -> list[HardwareEntry]:
    """List the accelerators, a user's before the shipped one of the same id, without validating."""
    entries = {entry.id: entry for entry in map(_entry, _shipped_files()) if entry is not None}
    for entry in reversed(list(_user_entries(search))):
        entries[entry.id] = entry
    return [entries[key] for key in sorted(entries)]


def price_usd_per_gpu_hour(profile: HardwareProfile) -> float | None:
    """Return the first typical price, else the first price in USD per GPU and hour."""
    ranked = sorted(profile.price, key=lambda price: price.kind != "typical")
    return ranked[0].usd_per_gpu_hour if ranked else None


# Finding


def _find(name: str, search: Sequence[Path]) -> Path:
    if name.endswith((".yaml", ".yml", ".json")) or "/" in name:
        return Path(name)
    # A user's own h100_sxm also answers to the shipped alias h100.
    return (
        _find_user(_key(name), search)
        or _find_user(_shipped_id(name), search)
        or _find_shipped(name, search)
    )


def _find_user(key: str, search: Sequence[Path]) -> Path | None:
    for path in user_files(search):
        if _key(path.stem) == key:
            return path
    for entry in _user_entries(search):
        if key in (_key(entry.id), *map(_key, entry.aliases)):
            return entry.path
    return None


def _find_shipped(name: str, search: Sequence[Path]) -> Path:
    key = _shipped_id(name)
    if re.fullmatch(r"[a-z0-9_.]+", key):
        for path in data_dir("hardware_profiles").glob(f"*/{key}.yaml"):
            return path
    raise not_found("accelerator", name, [*hardware_ids(search), *_aliases()], LIST_COMMAND)


def _shipped_id(name: str) -> str:
    return _aliases().get(_key(name), _key(name))


def _aliases() -> dict[str, str]:
    return read_shipped(data_dir("hardware_profiles") / "aliases.yaml")


def _key(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _shipped_files() -> list[Path]:
    return sorted(data_dir("hardware_profiles").glob("*/*.yaml"))


def _user_entries(search: Sequence[Path]) -> Iterator[HardwareEntry]:
    # A user's folder also holds models, drafters and scenarios: those have no identity block.
    return (entry for entry in map(_entry, user_files(search)) if entry is not None)


def _entry(path: Path) -> HardwareEntry | None:
    """Read what a list shows; None if the file is no accelerator or is broken."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        # The constants are nine tenths of a file and of its reading time.
        head = re.sub(r"(?m)^effective:.*\n(?:(?:[ \t#].*)?\n)*", "", text)
        data = load_yaml(head, what=str(path))
        identity, datasheet = data["identity"], data["datasheet"]
        prices = [price["usd_per_gpu_hour"] for price in data.get("price") or ()]
        return HardwareEntry(
            id=str(identity["id"]),
            name=str(identity.get("name", identity["id"])),
            vendor=str(identity.get("vendor", "")),
            architecture=str(identity.get("architecture", "")),
            aliases=tuple(map(str, identity.get("aliases") or ())),
            path=path,
            shipped=_is_shipped(path),
            memory_gb=datasheet.get("memory_gb"),
            memory_bandwidth_gb_per_s=datasheet.get("memory_bandwidth_gb_per_s"),
            usd_per_gpu_hour=prices[0] if prices else None,
            confidence=str(datasheet.get("confidence", "")),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError):
        return None


# Completing


@cache
def _load_shipped(path: Path) -> HardwareProfile:
    return _complete(path, ())


def _is_shipped(path: Path) -> bool:
    return data_dir("hardware_profiles") in path.parents


def _read(path: Path) -> HardwareProfile:
    data = read_mapping(path)
    kind = kind_of_file(data)
    if kind not in ("", "a hardware profile"):
        raise InputError(f"{path}: is {kind}, expected a hardware profile")
    return parse(HardwareProfile, data, what=str(path))


def _complete(path: Path, search: Sequence[Path]) -> HardwareProfile:
    """Fill absent blocks from the lender, what it lacks from the lender's lender, and so on.

    Shipped profiles borrow from shipped ones only: a user's H100 does not change an L40S. So a
    user's file may also borrow from the shipped profile that it replaces.
    """
    profile = _read(path)
    seen, lender_id = [path], profile.effective.borrow
    while lender_id is not None:
        user = None if _is_shipped(seen[-1]) else _find_user(_key(lender_id), search)
        path = _find_shipped(lender_id, search) if user in (None, seen[-1]) else user
        if path in seen:
            chain = " -> ".join(known.stem for known in [*seen, path])
            raise InputError(
                f"{seen[0]}: effective.borrow runs in a circle, {chain}; "
                "end it with a device that has kernel tables, such as h100_sxm"
            )
        lender = _read(path)
        profile = fill(profile, lender)
        seen.append(path)
        lender_id = lender.effective.borrow
    return profile


# Checking and writing


def check_profile(path: Path, *, search: Sequence[Path] = ()) -> list[str]:
    """Return what is wrong with a profile file; entries that start with 'warning' may stay."""
    try:
        own = _read(path)
        profile = _complete(path, search)
    except InputError as error:
        return [str(error)]
    identity, sheet = own.identity, own.datasheet
    found: list[str] = []

    if identity.id != path.stem:
        found.append(f"identity.id is {identity.id!r} but the file is called {path.name}")
    found += [
        f"identity.aliases: {alias!r} should be {_key(alias)!r}"
        for alias in identity.aliases
        if alias != _key(alias)
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
        _read(entry.path)
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
