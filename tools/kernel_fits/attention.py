"""Equations (2) and (3): decode attention, latent attention, recurrent states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernel_fits import forms
from kernel_fits.forms import Floats, Parameter
from kernel_fits.profiles import interval
from kernel_fits.report import level, percent
from kernel_fits.tables import TABLES_NAME, Board, Columns, fastest, read, where
from specsim.physics import kernels

SERVED_COMPUTE_FRAC = {"value": 0.35, "low": 0.25, "high": 0.5}
"""Of the bf16 peak, from serving data: single-query tables are never bound by it."""

FLOOR_SHARE_OF_L2 = 0.05
SPILLED_SHARE_OF_L2 = 3.0
"""Between these two the tables read a cache that stays in the L2 from one repetition to the next;
in serving the layers between evict it, so such rows are left out."""

MLA_ENTRY_BYTES = 576 * 2
MLA_FLOP_PER_SCORE_AND_HEAD = 2 * (576 + 512)

MLA_KERNEL = {
    "a100_sxm": ("trtllm", "default"),
    "h100_sxm": ("sglang", "flash_attention"),
    "h200_sxm": ("sglang", "flash_attention"),
    "l40s": ("sglang", "triton"),
    "rtx_pro_6000_server": ("sglang", "triton"),
}
"""Others: the FlashInfer TRT-LLM kernel that vLLM serves sm100 with."""

_SM100_MLA = ("sglang", "trtllm_mla")
_MLA_COMPUTE_BOUND = 0.75

DECODE = (
    Parameter("floor_us", 12.0, 1.0, 80.0),
    Parameter("growth_us", 12.0, 0.0, 60.0),
    Parameter("bandwidth_frac", 0.85, 0.05, 1.0),
)
MLA = (*DECODE, Parameter("compute_frac", 0.5, 0.05, _MLA_COMPUTE_BOUND))
LINEAR = (Parameter("launch_us", 6.0, 0.5, 40.0), Parameter("bandwidth_frac", 0.8, 0.1, 1.02))


def form(board: Board) -> forms.Form:
    """Return equation (2) as physics has it, for tables with columns `bytes` and `flop`.

    The launch is fitted as floor + growth: physics takes a launch below the floor for the floor.
    """

    def time_us(c: Mapping[str, float], table: Columns) -> Floats:
        compute = c.get("compute_frac", SERVED_COMPUTE_FRAC["value"])
        cost = kernels.decode_attention(
            sequences=1.0,
            query_tokens=1.0,
            entries_read=table["bytes"],
            entries_scored=table["flop"],
            entry_bytes=1.0,
            flop_per_score=1.0,
            query_group=1.0,
            rates=kernels.AttentionRates(
                floor_s=c["floor_us"],
                launch_s=c["floor_us"] + c["growth_us"],
                l2_bytes=board.l2_bytes,
                bytes_per_s=c["bandwidth_frac"] * board.bytes_per_us,
                flop_per_s=compute * board.flop_per_us["bf16"],
            ),
        )
        return np.asarray(cost.total_s)

    return time_us


def outside_l2(table: Columns, board: Board) -> Columns:
    """Return the rows whose cache is far below the L2, or well above it."""
    share = table["bytes"] / board.l2_bytes
    return where(table, (share < FLOOR_SHARE_OF_L2) | (share > SPILLED_SHARE_OF_L2))


def _fit(
    table: Columns, board: Board, parameters: tuple[Parameter, ...], shape: Any
) -> forms.Fitted:
    # As much for the small caches together as for the large ones together.
    small = table["bytes"] < FLOOR_SHARE_OF_L2 * board.l2_bytes
    share = max(float(small.mean()), 1e-3)
    weight = np.where(small, 0.5 / share, 0.5 / max(1.0 - share, 1e-3))
    return forms.fit(
        form(board),
        table,
        parameters,
        shape=shape,
        rows=table["batch"],
        weight=weight,
        knots=(1.0,),
    )


def _bytes_interval(fitted: forms.Fitted, board: Board, least: float) -> dict[str, float]:
    rebased = fitted.values["bandwidth_frac"] * board.rebase
    low, high = forms.half_width(fitted, "bandwidth_frac", least)
    return interval(rebased, low * board.rebase, high * board.rebase)


def _launch(fitted: forms.Fitted) -> dict[str, float]:
    halves = np.add(fitted.halves["floor_us"], fitted.halves["growth_us"])
    value = fitted.values["floor_us"] + fitted.values["growth_us"]
    low, high = np.quantile(halves, (0.1, 0.9))
    return interval(value, min(float(low), 0.8 * value), max(float(high), 1.2 * value))


def _report(fitted: forms.Fitted, table: Columns, board: Board) -> dict[str, Any]:
    share = table["bytes"] / board.l2_bytes
    bins = ((0.0, FLOOR_SHARE_OF_L2), (SPILLED_SHARE_OF_L2, 10.0), (10.0, np.inf))
    return {
        "rows": len(share),
        "closed_form": level(fitted.unseen),
        "bias_percent_by_cache_over_l2": {
            f"{low:g} to {high:g}": percent(
                float(np.median(np.expm1(-fitted.residual[(share >= low) & (share < high)])))
            )
            for low, high in bins
            if ((share >= low) & (share < high)).any()
        },
    }


def decode_blocks(folder: Path, boards: Mapping[str, Board]) -> dict[str, dict[str, Any]]:
    """Fit vLLM's decode kernels, full attention with heads of 128."""
    rows = read(
        folder,
        "attention_decode",
        lambda row: (
            row["gpu"] in boards
            and row["framework"] == "vllm"
            and row["window"] in ("0", "")
            and row["head_dim"] == "128"
        ),
    )
    found: dict[str, dict[str, Any]] = {}
    for name, board in boards.items():
        for kv_dtype, block, width in (("bfloat16", "bf16", 2.0), ("fp8", "fp8", 1.0)):
            own = [row for row in rows if row["gpu"] == name and row["kv_dtype"] == kv_dtype]
            if not own:
                continue
            table = dict(fastest(own, ("batch", "heads", "kv_heads", "len")))
            entries = table["batch"] * table["len"]
            table["bytes"] = entries * 2.0 * table["kv_heads"] * 128.0 * width
            table["flop"] = 4.0 * entries * table["heads"] * 128.0
            # A tile holds 64 query rows: beyond 32 heads per KV head kernels split the group.
            table = dict(where(table, table["heads"] <= 32.0 * table["kv_heads"]))
            kept = outside_l2(table, board)
            fitted = _fit(kept, board, DECODE, forms.numbered(kept["heads"], kept["kv_heads"]))
            error = _report(fitted, kept, board)
            v = fitted.values
            data = {
                "floor_us": interval(v["floor_us"], *forms.half_width(fitted, "floor_us", 0.1)),
                "launch_us": _launch(fitted),
                "bandwidth_frac": _bytes_interval(fitted, board, 0.05 if width == 2.0 else 0.08),
                "compute_frac": dict(SERVED_COMPUTE_FRAC),
                "basis": "measured",
                "source": (
                    f"{TABLES_NAME}, {name}, {own[0]['kernel']} {kv_dtype}: {error['rows']} points "
                    f"with a cache below {FLOOR_SHARE_OF_L2:g} or above {SPILLED_SHARE_OF_L2:g} of "
                    f"the L2; on head counts left out, median error "
                    f"{error['closed_form']['median_percent']:.1f} %, p90 "
                    f"{error['closed_form']['p90_percent']:.1f} %; compute_frac fitted to serving "
                    "data (equation 2)"
                ),
            }
            found.setdefault(name, {})[block] = (data, error)
    return found


def mla_blocks(folder: Path, boards: Mapping[str, Board]) -> dict[str, tuple[Any, Any]]:
    """Fit latent attention kernels with a bf16 cache."""
    rows = read(
        folder,
        "mla_decode",
        lambda row: (
            row["gpu"] in boards
            and row["table"] == "generation_mla_perf"
            and row["kv_dtype"] == "bfloat16"
        ),
    )
    found = {}
    for name, board in boards.items():
        framework, kernel = MLA_KERNEL.get(name, _SM100_MLA)
        own = [
            row
            for row in rows
            if row["gpu"] == name and (row["framework"], row["kernel"]) == (framework, kernel)
        ]
        if not own:
            continue
        table = dict(fastest(own, ("heads", "batch", "len")))
        entries = table["batch"] * table["len"]
        table["bytes"] = entries * MLA_ENTRY_BYTES
        table["flop"] = entries * table["heads"] * MLA_FLOP_PER_SCORE_AND_HEAD
        kept = outside_l2(table, board)
        fitted = _fit(kept, board, MLA, forms.numbered(kept["heads"], kept["batch"]))
        error = _report(fitted, kept, board)
        median = error["closed_form"]["median_percent"]
        v, poor = fitted.values, median > 12.0
        computing = v["compute_frac"]
        bound = computing > 0.99 * _MLA_COMPUTE_BOUND
        data = {
            "floor_us": interval(v["floor_us"], *forms.half_width(fitted, "floor_us", 0.15)),
            "launch_us": _launch(fitted),
            "bandwidth_frac": _bytes_interval(fitted, board, 0.25 if poor else 0.1),
            "compute_frac": interval(
                computing, 0.6 * computing, 1.5 * computing if not bound else 0.85
            ),
            "basis": "fitted",
            "source": (
                f"{TABLES_NAME}, {name}, generation_mla_perf {framework} {kernel} bf16 cache: "
                f"{error['rows']} points of 8 to 128 heads; median error {median:.1f} %, p90 "
                f"{error['closed_form']['p90_percent']:.1f} %"
                + ("; a poor fit, and not the kernel of vLLM" if poor else "")
                + (f"; compute_frac at its bound, {_MLA_COMPUTE_BOUND:g}" if bound else "")
            ),
        }
        found[name] = (data, error)
    return found


def linear_blocks(folder: Path, boards: Mapping[str, Board]) -> dict[str, tuple[Any, Any]]:
    """Fit the gated delta rule of vLLM with its convolution: launch + state read and written."""
    rows = read(
        folder,
        "linear_attention",
        lambda row: (
            row["gpu"] in boards
            and row["phase"] in ("generation", "verify")
            and row["framework"] in ("vLLM", "VLLM")
        ),
    )
    found = {}
    for name, board in boards.items():
        own = [row for row in rows if row["gpu"] == name]
        table = _gdn(own)
        if not len(table["us"]):
            continue
        small = table["bytes"] < 2e6
        kept = where(table, small | (table["bytes"] > 1.5 * board.l2_bytes))

        def time_us(c: Mapping[str, float], table: Columns, board: Board = board) -> Floats:
            reading = table["bytes"] / (c["bandwidth_frac"] * board.bytes_per_us)
            return np.asarray(c["launch_us"] + reading)

        fitted = forms.fit(
            time_us,
            kept,
            LINEAR,
            shape=forms.numbered(kept["num_v_heads"], kept["num_k_heads"]),
            rows=kept["batch_size"],
            weight=np.ones_like(kept["us"]),
            knots=(1.0,),
        )
        verify = _verify_over_linear(own)
        error: dict[str, Any] = {"rows": len(kept["us"]), "closed_form": level(fitted.unseen)}
        v = fitted.values
        data = {
            "launch_us": interval(v["launch_us"], *forms.half_width(fitted, "launch_us", 0.2)),
            "bandwidth_frac": _bytes_interval(fitted, board, 0.08),
            "basis": "fitted",
            "source": (
                f"{TABLES_NAME}, {name}, vLLM gated delta rule with its convolution, state above "
                f"1.5 x L2 or below 2 MB: {error['rows']} points, median error "
                f"{error['closed_form']['median_percent']:.1f} %"
                + (
                    f"; KDA verify of q tokens over (1 + q) / 2 decodes: {verify:.2f} (equation 3)"
                    if verify is not None
                    else ""
                )
            ),
        }
        found[name] = (data, error)
    return found


def _gdn(rows: list[dict[str, str]]) -> Columns:
    """Return state update plus convolution by heads and batch, with the bytes of the state."""
    keys = ("num_v_heads", "num_k_heads", "batch_size")
    generation = [r for r in rows if r["table"] == "gdn_perf" and r["phase"] == "generation"]
    parts = [
        fastest((r for r in generation if ("conv" in r["kernel_source"]) is conv), keys, "latency")
        for conv in (False, True)
    ]
    update, convolution = (
        {key: us for *key_, us in zip(*(p[k] for k in keys), p["us"], strict=True)
         for key in [tuple(key_)]}
        for p in parts
    )  # fmt: skip
    both = sorted(set(update) & set(convolution))
    table = np.array([(*k, 1e3 * (update[k] + convolution[k])) for k in both], dtype=float)
    columns = dict(zip((*keys, "us"), table.reshape(-1, 4).T, strict=True))
    # The state of a head is 128 x 128 in fp32, read and written.
    return columns | {"bytes": 2.0 * columns["batch_size"] * columns["num_v_heads"] * 128**2 * 4}


def _verify_over_linear(rows: list[dict[str, str]]) -> float | None:
    """Return measured verification of q tokens over t(1) (1 + q) / 2, from 32 sequences up."""
    keys = ("num_v_heads", "num_k_heads", "batch_size", "seq_len")
    kda = [r for r in rows if r["table"] == "kda_perf" and "conv" not in r["kernel_source"]]
    one = fastest((r for r in kda if r["phase"] == "generation"), keys[:3], "latency")
    many = fastest((r for r in kda if r["phase"] == "verify"), keys, "latency")
    single = {tuple(k): us for *k, us in zip(*(one[c] for c in keys[:3]), one["us"], strict=True)}
    shares = [
        us / (single[tuple(k)] * (1 + q) / 2)
        for *k, q, us in zip(*(many[c] for c in keys), many["us"], strict=True)
        if tuple(k) in single and k[2] >= 32
    ]
    return float(np.median(shares)) if shares else None
