"""Equation (1): matrix multiplications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernel_fits import forms
from kernel_fits.forms import Fitted, Floats, Parameter
from kernel_fits.profiles import interval
from kernel_fits.report import level, ratio, worth_it
from kernel_fits.tables import TABLES_NAME, Board, Columns, fastest, read, where

KNOTS = (32, 64, 96, 128, 160, 192, 256, 512, 1024, 2048, 8192)
"""Rows of the correction. Below 32 the closed form is right, so the first factor is 1."""

SERVED_ROWS = 1024
"""More rows than this are prefill: they count for a third."""

LEAST_WEIGHT_BYTES = 12e6
MOST_WEIGHT_BYTES = 7e8
LEAST_OUT_FEATURES = 2048
"""Narrower matrices of that weight are not served, and leave most of the device idle."""

PARAMETERS = (
    Parameter("launch_us", 5.0, 0.0, 40.0),
    Parameter("per_in_feature_ns", 0.5, 0.0, 8.0),
    Parameter("bandwidth_frac", 0.8, 0.2, 1.02),
    Parameter("compute_frac", 0.7, 0.15, 1.0),
    Parameter("sharpness", 2.0, 0.8, 6.0),
)


@dataclass(frozen=True)
class Dtype:
    """How a dtype of the tables is stored, and what it multiplies in."""

    block: str
    weight_bytes: float
    computes_in: str


DTYPES = {
    "bfloat16": Dtype("bf16", 2.0, "bf16"),
    "fp8": Dtype("fp8", 1.0, "fp8"),
    "fp8_block": Dtype("fp8_block", 1.0, "fp8"),
    "nvfp4": Dtype("nvfp4", 0.5625, "fp4"),
    "sq": Dtype("int8", 1.0, "int8"),
    "int4_wo": Dtype("int4", 0.515625, "bf16"),
}


def frameworks(board: Board, dtype: str) -> tuple[str, ...]:
    """Return whose rows stand for vLLM; the fastest of several is taken point by point.

    vLLM's own rows, but: its fp8_block rows are bound by eager launches, where served graphs run
    the same DeepGEMM kernels as the others' rows; on sm100 vLLM serves fp8 and fp4 with FlashInfer,
    which the rows of the others measure and its own fp8 rows (CUTLASS) do not.
    """
    if dtype in ("sq", "int4_wo"):
        return ("trtllm",) if board.table == "a100_sxm" else ()
    if dtype == "fp8_block":
        return ("sglang", "trtllm") if board.sm120 else ("sglang", "trtllm", "vllm")
    if dtype in ("fp8", "nvfp4") and board.sm100:
        return ("sglang", "trtllm", "vllm")
    return ("vllm",)


def form(board: Board, dtype: Dtype) -> forms.Form:
    """Return t0 + [memory^p + (2 m n k / compute rate)^p]^(1/p).

    memory^p = (bytes / rate)^p + (k x per_in_feature)^p: the bytes at the rate of the device, or
    the walk of one block through the k input features, which does not get shorter for a matrix
    too narrow to fill the device.
    """
    peak = board.flop_per_us[dtype.computes_in]

    def time_us(c: Mapping[str, float], table: Columns) -> Floats:
        m, n, k = table["m"], table["n"], table["k"]
        moved = n * k * dtype.weight_bytes + 2.0 * m * k + 2.0 * m * n
        p = c["sharpness"]
        reading = moved / (c["bandwidth_frac"] * board.bytes_per_us)
        walking = k * c["per_in_feature_ns"] * 1e-3
        multiplying = 2.0 * m * n * k / (c["compute_frac"] * peak)
        return np.asarray(c["launch_us"] + (reading**p + walking**p + multiplying**p) ** (1.0 / p))

    return time_us


def select(table: Columns, board: Board, dtype: Dtype) -> Columns:
    """Return the shapes that serving has: heavy enough, and read from memory, not from the L2.

    A shape that a few rows read faster than the datasheet's bandwidth was served from the L2,
    where a served layer never is: the layers before it have evicted it.
    """
    weights = table["n"] * table["k"] * dtype.weight_bytes
    kept = (weights > LEAST_WEIGHT_BYTES) & (weights < MOST_WEIGHT_BYTES)
    kept &= table["n"] >= LEAST_OUT_FEATURES
    shape = forms.numbered(table["n"], table["k"])
    cached = (table["m"] <= 16) & (weights / table["us"] > board.bytes_per_us)
    return where(table, kept & ~np.isin(shape, shape[cached]))


def fit(table: Columns, board: Board, dtype: Dtype, splits: int = forms.SPLITS) -> Fitted:
    """Fit equation (1) to the rows of a table."""
    return forms.fit(
        form(board, dtype),
        table,
        PARAMETERS,
        shape=forms.numbered(table["n"], table["k"]),
        rows=table["m"],
        weight=np.where(table["m"] <= SERVED_ROWS, 1.0, 0.3),
        knots=KNOTS,
        splits=splits,
    )


def block(
    fitted: Fitted, table: Columns, board: Board, name: str, names: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the block of a profile and the line of the report."""
    dtype = DTYPES[name]
    shape = forms.numbered(table["n"], table["k"])
    rows = table["m"]
    served = rows <= SERVED_ROWS
    error: dict[str, Any] = {
        "rows": int(served.sum()),
        "shapes": len(np.unique(shape)),
        "closed_form": level(fitted.unseen[:, served])
        | ratio(fitted.unseen, shape, rows, first=16, last=512),
        "with_row_factor": level(fitted.unseen_corrected[:, served])
        | ratio(fitted.unseen_corrected, shape, rows, first=16, last=512),
    }
    corrected = worth_it(error["closed_form"], error["with_row_factor"])
    error["row_factor_used"] = corrected
    left = fitted.residual
    if corrected:
        left = left - forms.log_factor(rows, KNOTS, (1.0, *fitted.factor[1:]))
    error["bias_percent_by_rows"] = {
        f"{low} to {high}": round(
            float(100 * np.median(np.expm1(-left[(rows >= low) & (rows <= high)]))), 1
        )
        for low, high in ((1, 8), (16, 48), (64, 128), (160, 256), (512, 1024), (2048, 8192))
        if ((rows >= low) & (rows <= high)).any()
    }
    v = fitted.values
    reading = np.expm1(forms.layer_scatter(left, shape, rows <= 32))
    multiplying = np.expm1(forms.layer_scatter(left, shape, (rows >= 256) & served))
    best = error["with_row_factor" if corrected else "closed_form"]
    rebased = v["bandwidth_frac"] * board.rebase
    data: dict[str, Any] = {
        "launch_us": interval(v["launch_us"], *_launch(fitted)),
        "per_in_feature_ns": interval(
            v["per_in_feature_ns"], *forms.half_width(fitted, "per_in_feature_ns", 0.2)
        ),
        "bandwidth_frac": interval(rebased, *_around(rebased, max(reading, 0.04))),
        "compute_frac": interval(
            v["compute_frac"], *_around(v["compute_frac"], max(multiplying, 0.06))
        ),
        "sharpness": interval(v["sharpness"], *forms.half_width(fitted, "sharpness", 0.15)),
        "computes_in": dtype.computes_in,
    }
    if corrected:
        data["row_factor"] = {"rows": list(KNOTS), "factor": [1.0, *fitted.factor[1:]]}
    data["basis"] = "measured"
    data["source"] = (
        f"{TABLES_NAME}, {board.table}, {_said(names, name)}: {error['rows']} points of "
        f"{error['shapes']} shapes with 1 to {SERVED_ROWS} rows; on shapes left out, median error "
        f"{best['median_percent']:.1f} %, p90 {best['p90_percent']:.1f} %"
    )
    return data, error


def _said(names: tuple[str, ...], dtype: str) -> str:
    kernels = {"sq": "SmoothQuant W8A8", "int4_wo": "weight-only int4"}.get(dtype, dtype)
    return ("" if len(names) == 1 else "fastest of ") + f"{', '.join(names)} {kernels}"


def _launch(fitted: Fitted) -> tuple[float, float]:
    low, high = forms.half_width(fitted, "launch_us", 0.15)
    value = fitted.values["launch_us"]
    return min(low, value - 0.5), max(high, value + 0.5)


def _around(value: float, relative: float) -> tuple[float, float]:
    return value / (1.0 + relative), value * (1.0 + relative)


def blocks(folder: Path, boards: Mapping[str, Board]) -> dict[str, dict[str, Any]]:
    """Return {board: {block: (data, report)}} for the boards asked for."""
    rows = read(folder, "gemm", lambda row: row["gpu"] in boards and row["gemm_dtype"] in DTYPES)
    found: dict[str, dict[str, Any]] = {}
    for table_name, board in boards.items():
        for name, dtype in DTYPES.items():
            names = frameworks(board, name)
            table = fastest(
                (
                    row
                    for row in rows
                    if row["gpu"] == table_name
                    and row["gemm_dtype"] == name
                    and row["framework"] in names
                ),
                ("m", "n", "k"),
            )
            if not len(table["us"]):
                continue
            table = select(table, board, dtype)
            data = block(fit(table, board, dtype), table, board, name, names)
            found.setdefault(table_name, {})[dtype.block] = data
    return found
