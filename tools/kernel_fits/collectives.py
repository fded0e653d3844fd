"""Equation (5): all-reduce, measured times by message size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_fits.tables import TABLES_NAME, read

KIB = (4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 32768, 131072, 262144)
GROUPS = (2, 4, 8)
PCIE = ("l40s", "rtx_pro_6000_server")
"""vLLM switches its custom all-reduce off for more than two devices of a PCIe box."""

SLOW_BOX = "l40s"
"""Its measured box has slow paths between the sockets."""

Times = dict[float, float]


def newest(versions: Mapping[tuple[int, ...], Times]) -> tuple[str, Times]:
    """Return the highest version and its times by KiB."""
    version = max(versions)
    return ".".join(map(str, version)), versions[version]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))


def blocks(folder: Path, boards: Mapping[str, Any]) -> dict[str, dict[int, dict[str, Any]]]:
    """Return {board: {devices: block}} for the boards asked for."""
    times: dict[tuple[str, str, int], dict[tuple[int, ...], Times]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in read(folder, "comm", lambda row: row["gpu"] in boards):
        if row["op"] == "all_reduce" and row["kernel"] in ("vLLM_custom_graph", "NCCL"):
            key = (row["gpu"], row["kernel"], int(row["num_gpus"]))
            times[key][_version(row["version"])][int(row["bytes"]) / 1024] = float(row["us"])
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for name in boards:
        for devices in GROUPS:
            custom = times.get((name, "vLLM_custom_graph", devices))
            nccl = times.get((name, "NCCL", devices))
            if custom or nccl:
                found.setdefault(name, {})[devices] = _block(name, devices, custom, nccl)
    return found


def _block(
    name: str,
    devices: int,
    custom: Mapping[tuple[int, ...], Times] | None,
    nccl: Mapping[tuple[int, ...], Times] | None,
) -> dict[str, Any]:
    switched_off = name in PCIE and devices > 2
    if custom and not (switched_off and nccl):
        version, chosen = newest(custom)
        said = f"vLLM {version} custom, graph-captured"
        if nccl:
            nccl_version, other = newest(nccl)
            chosen = {kib: min(us, other.get(kib, us)) for kib, us in chosen.items()}
            said += f", or NCCL {nccl_version} where that is faster"
    else:
        assert nccl, "a block is made where one of the two was measured"
        nccl_version, chosen = newest(nccl)
        said = f"NCCL {nccl_version}"
        if switched_off:
            said += ", as vLLM switches its custom all-reduce off for more than two PCIe devices"
    sizes = [kib for kib in KIB if kib in chosen]
    us: list[float] = []
    for kib in sizes:
        # A longer message never takes less time: flatten the dips of the measurement.
        us.append(max(chosen[kib], us[-1] if us else 0.0))
    data: dict[str, Any] = {
        "kib": sizes,
        "us": [round(value, 1) for value in us],
        "basis": "measured",
        "source": (
            f"{TABLES_NAME}, {name}, {said}; without waiting of ranks; dips with growing size "
            "flattened"
        ),
    }
    if name == SLOW_BOX and devices > 2:
        data["source"] += (
            "; a box with slow paths between its sockets, another in the same data is 2 to 10 "
            "times faster"
        )
        data |= {"relative_low": 0.25, "relative_high": 1.2}
    return data
