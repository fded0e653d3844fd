"""Engine constants by name and version, and the defaults that an engine derives from its device."""

from __future__ import annotations

import re
from functools import lru_cache

from specsim.catalog.files import data_dir, read_shipped
from specsim.errors import InputError, not_found
from specsim.schema.base import parse
from specsim.schema.engine import Engine, EngineConstants, SchedulerDefaults

Version = tuple[int, ...]


def parse_version(text: str) -> Version:
    """Return the release numbers of a version: '0.10.1.1', 'v0.5.10.post1', '0.23.1rc1.dev7'.

    Pre-releases, post-releases and local parts are dropped: they pick the same constants.

    >>> parse_version("0.23.1rc1.dev1201+gd08eebad1")
    (0, 23, 1)
    """
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", text)
    if not match:
        raise InputError(f"engine version {text!r} is not a version; expected one like '0.33'")
    return tuple(int(part) for part in match[1].split("."))


def version_before(left: Version, right: Version) -> bool:
    """Whether release `left` is older than `right`; missing parts count as zero (0.8 = 0.8.0)."""
    width = max(len(left), len(right))
    return _padded(left, width) < _padded(right, width)


def _padded(version: Version, width: int) -> Version:
    return version + (0,) * (width - len(version))


def engine_names() -> list[str]:
    """Return the names of the engines that have constants."""
    return sorted(path.stem for path in data_dir("engines").glob("*.yaml"))


@lru_cache(maxsize=16)
def _engine(name: str) -> Engine:
    path = data_dir("engines") / f"{name}.yaml"
    if name not in engine_names():
        raise not_found("engine", name, engine_names(), "specsim profiles list")
    data = dict(read_shipped(path))
    versions: list[dict[str, object]] = []
    for stated in data.get("versions", []):
        inherited = versions[-1] if versions else {}
        versions.append({**inherited, **stated})
    return parse(Engine, {**data, "versions": versions}, what=str(path))


def engine_versions(name: str) -> list[str]:
    """Return the versions of engine `name` that have constants of their own, oldest first."""
    return [constants.version for constants in _engine(name).versions]


def load_engine(name: str, version: str | None = None) -> tuple[EngineConstants, list[str]]:
    """Return the constants of an engine version, and what there is to say about the choice.

    Parameters
    ----------
    name : str
        vllm, sglang or tensorrt-llm.
    version : str, optional
        As the engine prints it. Absent: the newest known.

    Returns
    -------
    EngineConstants, list of str
        The newest known version that is not newer than the one asked for, else the oldest; and
        a warning where that is another minor release.
    """
    known = _engine(name).versions
    if version is None:
        return known[-1], []
    asked = parse_version(version)
    not_newer = [c for c in known if not version_before(asked, parse_version(c.version))]
    chosen = not_newer[-1] if not_newer else known[0]
    found = parse_version(chosen.version)
    if _padded(found, 2)[:2] == _padded(asked, 2)[:2]:
        return chosen, []
    return chosen, [
        f"{name} {version} has no constants of its own: those of {chosen.version}, the nearest "
        "known version, are used"
    ]


def scheduler_defaults(
    constants: EngineConstants, *, memory_gib: float, device_id: str, architecture: str = ""
) -> SchedulerDefaults:
    """Return the batch limits that an engine picks by itself on a device.

    Parameters
    ----------
    memory_gib : float
        Memory of one device as the driver reports it. [GiB]
    device_id, architecture : str
        Of the hardware profile; some devices get the smallest limits whatever their memory.

    Notes
    -----
    vLLM's rule (engine/arg_utils.py): by total memory, unless the device's name contains A100 or
    GB10. An A100 or GB10 of any memory therefore falls in the smallest class.
    """
    by_memory = sorted(constants.scheduler_defaults, key=lambda d: d.min_memory_gib)
    small = architecture in constants.small_scheduler_architectures or any(
        word in device_id.lower() for word in constants.small_scheduler_devices
    )
    fitting = [d for d in by_memory if d.min_memory_gib <= memory_gib]
    return by_memory[0] if small or not fitting else fitting[-1]
