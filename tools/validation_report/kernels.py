"""How well the kernel constants reproduce the tables that they were fitted to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from validation_report import figures
from validation_report.markdown import percent, section, table

FIT = figures.ROOT / "validation" / "kernel_fit.json"
NAMES = {
    "gemm": "matrix multiplication",
    "decode_attention": "decode attention",
    "mla_attention": "latent attention (MLA)",
    "linear_attention": "linear attention",
    "moe": "mixture of experts",
    "all_reduce": "all-reduce",
}
TEXT = """\
Made by `tools/fit_kernels.py` from measured kernel tables ({tables}): percent errors of the time of
one kernel over the rows of the table, and of its growth over the time at few rows (which is what a
speedup feels). Factors by number of rows are a short measured table, used where they beat the
closed form on shapes that they were not made from. A serving step adds up hundreds of kernels, and
a speedup is a ratio of two such sums: most of this scatter cancels.
"""


def kernels_section() -> str:
    """Return the errors by kernel, device and dtype."""
    fit = json.loads(FIT.read_text(encoding="utf-8"))
    rows = [
        _row(kind, device, dtype, entry)
        for kind, devices in fit["kernels"].items()
        for device, dtypes in devices.items()
        for dtype, entry in dtypes.items()
    ]
    return section(
        "Kernel fits",
        TEXT.strip().format(tables=fit["tables"]),
        table(
            ("kernel", "device", "dtype", "rows", "form", "median %", "p90 %", "bias %",
             "growth: median %", "p90 %"),
            rows,
        ),
    )  # fmt: skip


def _row(kind: str, device: str, dtype: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    factors = bool(entry.get("row_factor_used"))
    used = entry["with_row_factor" if factors else "closed_form"]
    return (
        NAMES.get(kind, kind.replace("_", " ")),
        device,
        "" if dtype == kind else dtype,
        str(entry["rows"]),
        "row factors" if factors else "closed",
        percent(used["median_percent"]),
        percent(used["p90_percent"]),
        percent(used["bias_percent"], signed=True),
        percent(used.get("ratio_median_percent")),
        percent(used.get("ratio_p90_percent")),
    )
