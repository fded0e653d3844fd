"""The measured tables and the boards that they were measured on."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specsim.catalog.hardware import load_hardware
from specsim.units import GB, TFLOP

Columns = Mapping[str, NDArray[np.float64]]
"""A table of measurements, one array per column; times are `us`."""

TABLES_NAME = "aiconfigurator-core 0.12.0 kernel tables"

PROFILE_OF = {"a100_sxm": "a100_sxm_80", "rtx_pro_6000_server": "rtx_pro_6000"}
"""Board name in the tables -> profile id, where they differ."""

MEASURED_BANDWIDTH_OF = {"rtx_pro_6000": "rtx_pro_6000_workstation"}
"""Profile -> the profile whose datasheet bandwidth its table reaches: this Server board ran at
the memory clock of the Workstation card. Fractions are rebased so that the rate is the same."""


@dataclass(frozen=True)
class Board:
    """The figures that fractions refer to."""

    table: str
    """Name in the tables."""
    profile: str
    bytes_per_us: float
    """Bandwidth that the fit divides by."""
    rebase: float
    """Factor from fitted fractions of bandwidth to fractions of the profile's datasheet."""
    l2_bytes: float
    sm100: bool
    sm120: bool
    flop_per_us: Mapping[str, float]


def board(table: str) -> Board:
    """Return the figures of a board of the tables, from its profile's datasheet block."""
    profile = PROFILE_OF.get(table, table)
    own = load_hardware(profile)
    bandwidth = own.datasheet.memory_bandwidth_gb_per_s
    measured = bandwidth
    if profile in MEASURED_BANDWIDTH_OF:
        lender = load_hardware(MEASURED_BANDWIDTH_OF[profile])
        measured = lender.datasheet.memory_bandwidth_gb_per_s
    peaks = own.datasheet.dense_tflops
    capability = own.identity.compute_capability or ""
    return Board(
        table=table,
        profile=profile,
        bytes_per_us=measured * GB * 1e-6,
        rebase=measured / bandwidth,
        l2_bytes=(own.datasheet.l2_mb or 0.0) * 1e6,
        sm100=capability in ("sm100", "sm103"),
        sm120=capability in ("sm120", "sm121"),
        flop_per_us={
            name: peak * TFLOP * 1e-6
            for name in type(peaks).model_fields
            if (peak := getattr(peaks, name)) is not None
        },
    )


def read(
    folder: Path, name: str, keep: Callable[[Mapping[str, str]], bool] | None = None
) -> list[dict[str, str]]:
    """Return the rows of a table of the folder that `keep` holds for."""
    with gzip.open(folder / f"{name}.csv.gz", "rt", newline="") as file:
        return [row for row in csv.DictReader(file) if keep is None or keep(row)]


def fastest(rows: Iterable[Mapping[str, str]], keys: tuple[str, ...], us: str = "us") -> Columns:
    """Return the least time of every point, in the order of its keys.

    Tables repeat points: over runs, and over frameworks where several are taken together.
    """
    best: dict[tuple[float, ...], float] = {}
    for row in rows:
        point = tuple(float(row[key]) for key in keys)
        best[point] = min(float(row[us]), best.get(point, np.inf))
    table = np.array([(*point, best[point]) for point in sorted(best)], dtype=float)
    table = table.reshape(-1, len(keys) + 1)
    return dict(zip((*keys, "us"), table.T, strict=True))


def where(table: Columns, mask: NDArray[np.bool_]) -> Columns:
    """Return the rows that a mask holds for."""
    return {name: column[mask] for name, column in table.items()}
