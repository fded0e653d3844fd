"""Accelerator profiles: find, load and complete them.

One YAML file per device, file stem = id, in `hardware_profiles/<vendor>/` or in the user's own
folders (`catalog.files`), which win. What a device has no measurements of is borrowed from the
device that its profile names in `effective.borrow`, marked `assumed`, with wider intervals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specsim.catalog.borrowing import (
    attention_constants,
    borrowed_blocks,
    fill,
    gemm_constants,
    moe_constants,
)
from specsim.catalog.files import data_dir, kind_of_file, read_mapping, read_shipped, user_files
from specsim.catalog.yaml_text import load_yaml
from specsim.errors import InputError, not_found
from specsim.schema.base import parse
from specsim.schema.hardware import HardwareProfile

__all__ = [
    "HardwareEntry",
    "attention_constants",
    "borrowed_blocks",
    "complete_profile",
    "file_key",
    "gemm_constants",
    "hardware_ids",
    "hardware_index",
    "load_hardware",
    "moe_constants",
    "price_usd_per_gpu_hour",
    "read_profile",
]

LIST_COMMAND = "specsim profiles list"


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
    return _load_shipped(path) if _is_shipped(path) else complete_profile(path, search)


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
        _find_user(file_key(name), search)
        or _find_user(_shipped_id(name), search)
        or _find_shipped(name, search)
    )


def _find_user(key: str, search: Sequence[Path]) -> Path | None:
    for path in user_files(search):
        if file_key(path.stem) == key:
            return path
    for entry in _user_entries(search):
        if key in (file_key(entry.id), *map(file_key, entry.aliases)):
            return entry.path
    return None


def _find_shipped(name: str, search: Sequence[Path]) -> Path:
    key = _shipped_id(name)
    if re.fullmatch(r"[a-z0-9_.]+", key):
        for path in data_dir("hardware_profiles").glob(f"*/{key}.yaml"):
            return path
    raise not_found("accelerator", name, [*hardware_ids(search), *_aliases()], LIST_COMMAND)


def _shipped_id(name: str) -> str:
    return _aliases().get(file_key(name), file_key(name))


def _aliases() -> dict[str, str]:
    return read_shipped(data_dir("hardware_profiles") / "aliases.yaml")


def file_key(name: str) -> str:
    """Return the file stem that a name or alias stands for."""
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
    return complete_profile(path, ())


def _is_shipped(path: Path) -> bool:
    return data_dir("hardware_profiles") in path.parents


def read_profile(path: Path) -> HardwareProfile:
    """Read a profile as its file has it: nothing is borrowed yet."""
    data = read_mapping(path)
    kind = kind_of_file(data)
    if kind not in ("", "a hardware profile"):
        raise InputError(f"{path}: is {kind}, expected a hardware profile")
    return parse(HardwareProfile, data, what=str(path))


def complete_profile(path: Path, search: Sequence[Path]) -> HardwareProfile:
    """Fill absent blocks from the lender, what it lacks from the lender's lender, and so on.

    Shipped profiles borrow from shipped ones only: a user's H100 does not change an L40S. So a
    user's file may also borrow from the shipped profile that it replaces.
    """
    profile = read_profile(path)
    seen, lender_id = [path], profile.effective.borrow
    while lender_id is not None:
        user = None if _is_shipped(seen[-1]) else _find_user(file_key(lender_id), search)
        path = _find_shipped(lender_id, search) if user in (None, seen[-1]) else user
        if path in seen:
            chain = " -> ".join(known.stem for known in [*seen, path])
            raise InputError(
                f"{seen[0]}: effective.borrow runs in a circle, {chain}; "
                "end it with a device that has kernel tables, such as h100_sxm"
            )
        lender = read_profile(path)
        profile = fill(profile, lender)
        seen.append(path)
        lender_id = lender.effective.borrow
    return profile
