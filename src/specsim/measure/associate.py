"""Which facts belong to which run: servers' logs and metrics, dumps around a run, names.

What a run states itself always stands. A server's log or dump in the run's folder lends it what it
leaves open; a file's or folder's name says, last of all, whether speculation was on.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specsim.schema.measurement import MeasuredArm, Measurement

Kind = Literal["run", "server", "difference", "table"]
"""A benchmark; what a server says; counters between two moments; acceptance from elsewhere."""

DIFFERS = 0.02
"""Acceptance lengths further apart than this are not of the same run."""

_LENT = ("engine", "engine_version", "tensor_parallel_size", "kv_tokens", "weights_gib")
_LENT_ON = ("method", "num_speculative_tokens", "drafter")
"""Lent only to runs with speculation on."""

_NOISE = frozenset(
    "server serve vllm sglang metrics metric prom prometheus log logs out stdout stderr before "
    "after pre post start end delta snapshot txt json".split()
)

_AT = r"(?<![a-z0-9])(?:{})(?![a-z0-9])"
_OFF = re.compile(
    _AT.format(r"off|no[-_]?spec\w*|baseline|no[-_]?mtp|without[-_]?(?:spec|mtp)?|^base|base$")
)
# 'on' and 'base' are common words inside names (run_on_h100, 8b-base-chat): at an end, or before
# the load only.
_ON = re.compile(
    _AT.format(
        r"^on|on$|on(?=[-_.][cr]\d)|(?<!no[-_])(?<!without[-_])(?:mtp[-_]?k?\d*|eagle[-_]?\d*)"
        r"|dflash\d*|dspark\d*|medusa\d*|n[-_]?gram\d*|(?<!kimi[-_])k[1-9]\d?"
    )
)
# 'spec' may name the experiment (spec_off): it says 'on' only where nothing says off.
_SPEC = re.compile(_AT.format(r"(?<!no[-_])(?<!without[-_])spec"))
_DEPTH = re.compile(_AT.format(r"(?<!kimi[-_])k([1-9]\d?)|mtp[-_]?k?([1-9]\d?)"))


@dataclass(frozen=True)
class Found:
    """A row, the file that it is from, and what kind of thing it is."""

    path: Path
    row: Measurement
    kind: Kind


def associate(found: Sequence[Found]) -> list[Measurement]:
    """Lend runs what other files beside them say, and return all rows in their order.

    A difference of dumps that was taken around a run is merged into that run.
    """
    folders: dict[Path, list[Found]] = defaultdict(list)
    for entry in found:
        folders[entry.path.absolute().parent].append(entry)
    rows: dict[int, Measurement] = {}
    merged: set[int] = set()
    for entries in folders.values():
        around = _differences(entries)
        servers = _servers(entries)
        for entry in entries:
            row = entry.row
            if entry.kind == "run":
                if (difference := around.get(id(entry))) is not None:
                    row = _merge(row, difference.row)
                    merged.add(id(difference))
                row = _lend(row, entry.path, _servers_of(entry.path, servers, entries))
            if entry.kind in ("run", "difference"):
                row = _by_name(row, entry.path)
            rows[id(entry)] = row
    return [rows[id(entry)] for entry in found if id(entry) not in merged]


def token(path: Path) -> str:
    """Return what a file of a server or of dumps is named after.

    Examples
    --------
    >>> token(Path("server_dm_70_3.log")), token(Path("c4_r1.before.prom"))
    ('dm_70_3', 'c4_r1')
    """
    words = re.split(r"([-_.\s]+)", path.name.lower())
    while words and _is_noise(words[-1]):
        words.pop()
    while words and _is_noise(words[0]):
        words.pop(0)
    return "".join(words)


def _is_noise(word: str) -> bool:
    return word in _NOISE or not word.strip("-_. \t")


def _differences(entries: Sequence[Found]) -> dict[int, Found]:
    """Return, by run, the dumps around it: the same stem, and one run of that stem."""
    runs: dict[str, list[Found]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "run":
            runs[entry.path.stem.lower()].append(entry)
    return {
        id(runs[stem][0]): entry
        for entry in entries
        if entry.kind == "difference" and len(runs.get(stem := token(entry.path), ())) == 1
    }


def _servers(entries: Sequence[Found]) -> dict[str, Measurement]:
    """Return the servers of a folder by what their files are named after.

    Files of one name are of one server. What they disagree about (a log of several starts) is
    left out: nothing says which start a run was on.
    """
    groups: dict[str, list[Found]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "server":
            groups[token(entry.path)].append(entry)
    return {name: _common(group) for name, group in groups.items()}


def _common(group: Sequence[Found]) -> Measurement:
    first = group[0].row
    changes: dict[str, Any] = {}
    for name in (*_LENT, *_LENT_ON):
        values = {v for e in group if (v := getattr(e.row, name)) is not None}
        changes[name] = values.pop() if len(values) == 1 else None
    said = [e.row for e in group if e.row.arm != "unknown"]
    agreed = len({row.arm for row in said}) == 1
    # A log proves; metrics only lack counters.
    said.sort(key=lambda row: row.arm_from != "log")
    return dataclasses.replace(
        first,
        source=", ".join(dict.fromkeys(e.path.name for e in group)),
        arm=said[0].arm if agreed else "unknown",
        arm_from=said[0].arm_from if agreed else "",
        **changes,
    )


def _servers_of(
    path: Path, servers: dict[str, Measurement], entries: Sequence[Found]
) -> Measurement | None:
    """Return the server that a run was on: the only one, or the one that its name shares."""
    named = [name for name in servers if name and _shares(path, name)]
    if named:
        return servers[max(named, key=len)]
    if len(servers) != 1:
        return None
    name, only = next(iter(servers.items()))
    # Other runs are named after this server, so this one is of another.
    others = any(e.kind == "run" and name and _shares(e.path, name) for e in entries)
    return None if others else only


def _shares(path: Path, name: str) -> bool:
    pattern = rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])"
    return re.search(pattern, path.stem.lower()) is not None


def _lend(row: Measurement, path: Path, server: Measurement | None) -> Measurement:
    if server is None:
        return row
    named, k = by_name(path)
    if row.arm == "unknown" and server.arm != "unknown" and named not in ("unknown", server.arm):
        return _warn(
            row,
            f"{server.source} says that speculation is {server.arm}, this file's name that it is "
            f"{named}: nothing taken from there",
        )
    if {row.arm, server.arm} == {"on", "off"}:
        counted = "counted drafted tokens" if row.arm_from == "counters" else "says the opposite"
        return _warn(
            row,
            f"{server.source} says that speculation is {server.arm}, yet this run {counted}: "
            "kept as it is, nothing taken from there",
        )
    depths = (row.num_speculative_tokens or k, server.num_speculative_tokens)
    if row.arm != "off" and None not in depths and depths[0] != depths[1]:
        return _warn(
            row,
            f"{server.source} says k = {depths[1]}, this run {depths[0]}: nothing taken from there",
        )
    changes: dict[str, Any] = {}
    if row.arm == "unknown" and server.arm != "unknown":
        changes |= {"arm": server.arm, "arm_from": server.arm_from}
    arm = changes.get("arm", row.arm)
    names = (*_LENT, *_LENT_ON) if arm == "on" else _LENT
    changes |= _gaps(row, server, names)
    if not changes:
        return row
    metadata = {**row.metadata, "server": server.source}
    return dataclasses.replace(row, metadata=metadata, **changes)


def _merge(row: Measurement, difference: Measurement) -> Measurement:
    """Fill the gaps of a run from the counters around it."""
    warnings = row.warnings
    own, counted = row.acceptance, difference.acceptance
    if own and counted and own.acceptance_length and counted.acceptance_length:
        apart = abs(own.acceptance_length / counted.acceptance_length - 1)
        if apart > DIFFERS:
            warnings += (
                f"acceptance length {own.acceptance_length:.3g} here, "
                f"{counted.acceptance_length:.3g} in the counters around the run",
            )
    changes = _gaps(row, difference, ("acceptance", "kv_tokens", "engine"))
    if row.arm == "unknown" and difference.arm != "unknown":
        changes |= {"arm": difference.arm, "arm_from": difference.arm_from}
    if changes.get("arm", row.arm) == "on":
        changes |= _gaps(row, difference, ("num_speculative_tokens",))
    elif row.arm == "off" and difference.arm == "on":
        warnings += ("counters of speculation exist, yet the run says that it is off",)
        changes.pop("acceptance", None)
    metadata = dict(row.metadata)
    if preemptions := difference.metadata.get("num_preemptions"):
        metadata.setdefault("num_preemptions", preemptions)
    return dataclasses.replace(row, warnings=warnings, metadata=metadata, **changes)


def _gaps(row: Measurement, other: Measurement, names: Sequence[str]) -> dict[str, Any]:
    return {
        name: value
        for name in names
        if getattr(row, name) is None and (value := getattr(other, name)) is not None
    }


def by_name(path: Path) -> tuple[MeasuredArm, int | None]:
    """Return what the name of a file, or of the two folders above it, says: arm and k.

    Examples
    --------
    >>> by_name(Path("mtp3_c4.json")), by_name(Path("no_spec/c1.json")), by_name(Path("c1.json"))
    (('on', 3), ('off', None), ('unknown', None))
    """
    for name in (path.stem, *[folder.name for folder in path.absolute().parents[:2]]):
        lower = name.lower()
        off, on = _OFF.search(lower) is not None, _ON.search(lower) is not None
        on = on or (not off and _SPEC.search(lower) is not None)
        if off != on:
            depth = _DEPTH.search(lower) if on else None
            k = next((int(g) for g in depth.groups() if g), None) if depth else None
            return ("on" if on else "off"), k
        if off:
            break  # both: it says nothing
    return "unknown", None


def _by_name(row: Measurement, path: Path) -> Measurement:
    if row.arm != "unknown":
        return row
    arm, k = by_name(path)
    if arm == "unknown":
        return row
    k = row.num_speculative_tokens or k
    return dataclasses.replace(row, arm=arm, arm_from="name", num_speculative_tokens=k)


def _warn(row: Measurement, warning: str) -> Measurement:
    return dataclasses.replace(row, warnings=(*row.warnings, warning))
