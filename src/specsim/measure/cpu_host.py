"""The machine that specsim runs on: its processor, memory, caches, and numpy's BLAS."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specsim.errors import UsageError

_UNKNOWN_CACHE_BYTES = 32 * 2**20
_REFERENCE = ("blas", "cblas", "netlib", "refblas", "lapack_lite")
"""Names of libraries that are plain loops."""
_OPENBLAS = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_",
             "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")  # fmt: skip


@dataclass(frozen=True)
class Host:
    """What a measurement needs to know of the machine."""

    name: str
    cores: int
    """That this process may use."""
    threads: int
    """Of numpy's BLAS and of the streaming read."""
    memory_bytes: int
    cache_bytes: int
    """Of the last cache."""
    blas: str | None
    """None: numpy multiplies with loops of its own, or with the reference BLAS."""


def this_host(threads: int | None = None) -> Host:
    """Describe this machine.

    Parameters
    ----------
    threads : int, optional
        Set numpy's BLAS to this many; absent: as the environment has it.

    Raises
    ------
    UsageError
        The threads of this numpy's BLAS cannot be set from inside.
    """
    cores = _cores()
    if threads is not None:
        set_threads = _openblas("set")
        if set_threads is None:
            raise UsageError(
                f"--threads {threads}: the threads of this numpy's BLAS cannot be set from inside; "
                f"run with OMP_NUM_THREADS={threads} and without --threads"
            )
        set_threads(threads)
    return Host(
        name=_name(),
        cores=cores,
        threads=threads or _blas_threads(cores),
        memory_bytes=_memory_bytes(),
        cache_bytes=_cache_bytes(),
        blas=_blas(),
    )


def _name() -> str:
    try:
        found = re.search(r"(?m)^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine() or "a CPU"


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    """Return the memory of the machine, or of the container where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return total


def _cache_bytes() -> int:
    sizes = [_size(path) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("*/size")]
    return max(sizes, default=_UNKNOWN_CACHE_BYTES) or _UNKNOWN_CACHE_BYTES


def _size(path: Path) -> int:
    try:
        found = re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip())
    except OSError:
        found = None
    return int(found[1]) * 1024 ** " KMG".index(found[2] or " ") if found else 0


def _blas() -> str | None:
    """Name the BLAS that numpy was built with, if it is a real one."""
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    name = str(blas.get("name", "")).lower()
    if not blas.get("found") or not name or name in _REFERENCE:
        return None
    return f"{name} {blas.get('version', '')}".strip()


def _blas_threads(cores: int) -> int:
    get_threads = _openblas("get")
    if get_threads is not None:
        return max(int(get_threads()), 1)
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else cores


def _openblas(verb: str) -> Callable[..., int] | None:
    """Return OpenBLAS's function to 'get' or 'set' its threads; None with another BLAS."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    for path in sorted(set(re.findall(r"/\S*openblas\S*", maps))):
        library = ctypes.CDLL(path)
        for name in _OPENBLAS:
            function = getattr(library, name.format(verb), None)
            if function is not None:
                return function  # type: ignore[no-any-return]
    return None
