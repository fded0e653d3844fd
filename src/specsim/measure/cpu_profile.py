"""Write what was measured of a CPU down as a hardware profile."""

from __future__ import annotations

import datetime as dt
from typing import Any

from specsim.measure.cpu import Estimate, GemmFit, Measured
from specsim.units import GB, GIB, MICRO, TFLOP


def cpu_profile(
    measured: Measured, fit: GemmFit, *, id: str, date: dt.date | None = None
) -> dict[str, Any]:
    """Return the profile as plain data, valid as `HardwareProfile`.

    Notes
    -----
    What numpy cannot show is assumed: attention kernels, and what an eager engine adds to each
    small kernel. Those ranges come from what such kernels do, not from a served model's speed.
    """
    host = measured.host
    today = date or dt.date.today()
    source = f"specsim profiles measure-cpu, {today.isoformat()}, {host.cores} cores"
    source += ", --quick: rough" if measured.quick else ""
    peak = float(f"{measured.peak_flop_per_s / TFLOP:.3g}")
    bandwidth = float(f"{measured.bandwidth_bytes_per_s / GB:.3g}")
    blas = host.blas or "no BLAS: numpy's own loops, far below what the cores can do"
    accuracy = (
        f"fit to 2 rows and more off by {fit.median_error:.0%} (median) and {fit.worst_error:.0%} "
        f"(worst, at {fit.worst_rows} rows)"
    )
    return {
        "identity": {
            "id": id, "name": f"{host.cores} cores of {host.name}",
            "vendor": "generic", "architecture": "cpu",
        },
        "datasheet": {
            "memory_gb": round(host.memory_bytes / GB, 2),
            "memory_usable_gib": round(host.memory_bytes / GIB, 2),
            "memory_bandwidth_gb_per_s": bandwidth,
            "dense_tflops": {"bf16": peak, "fp16": peak, "fp32": peak},
            "l2_mb": round(host.cache_bytes / 1e6, 2),
            "link": {"kind": "none (one machine)", "gb_per_s_per_direction": 10.0},
            "confidence": "low" if measured.quick else "medium",
            "note": f"measured, not a vendor's figures: best streaming read and best fp32 matrix "
            f"multiplication ({blas}, {host.threads} threads); 16-bit peaks as fp32, not measured; "
            "l2_mb is the last cache",
        },
        "effective": {
            "borrow": "cpu_epyc_2core",
            "gemm": {
                "fp32": {
                    **_gemm_constants(fit), "computes_in": "fp32", "basis": "measured",
                    "source": f"{source}; {blas}, best of {measured.repeats}; {accuracy}; "
                    "upper bandwidth: weights packed once, as one row is read",
                },
                "bf16": {
                    **_gemm_constants(fit), "computes_in": "bf16", "basis": "assumed",
                    "source": "fractions of fp32: numpy multiplies no bf16",
                },
            },
            "decode_attention": {dtype: _assumed_attention() for dtype in ("bf16", "fp32")},
            "elementwise": _elementwise(measured),
        },
        "price": [],
        "sources": [{"title": source}],
    }  # fmt: skip


def _gemm_constants(fit: GemmFit) -> dict[str, Any]:
    names = ("launch_us", "bandwidth_frac", "compute_frac", "sharpness")
    return {name: getattr(fit, name).rounded() for name in names}


def _assumed_attention() -> dict[str, Any]:
    return {
        # One call per layer from Python, threads woken and joined, work split by sequence.
        "floor_us": {"value": 60.0, "low": 20.0, "high": 200.0},
        "launch_us": {"value": 60.0, "low": 20.0, "high": 200.0},
        "bandwidth_frac": {"value": 0.4, "low": 0.15, "high": 0.8},
        "compute_frac": {"value": 0.2, "low": 0.1, "high": 0.5},
        "basis": "assumed",
        "source": "not measured: attention out of numpy calls says little about an engine's fused "
        "kernel; short rows, paged blocks and the exponential keep it below a matrix's rates",
    }


def _elementwise(measured: Measured) -> dict[str, Any]:
    small_us = measured.small.best_s / MICRO
    # Equation (6) charges four bytes per element, as for 16 bits in and out; fp32 moves eight.
    charged = 4.0 * measured.elements_per_s / measured.bandwidth_bytes_per_s
    slower = charged / (1.0 + measured.scale.spread)
    stream = Estimate(charged, min(0.7 * charged, slower), 1.3 * charged)
    launch = Estimate(small_us + 15.0, small_us + 4.0, small_us + 40.0)
    return {
        "launch_us": launch.rounded(),
        "kernels_per_layer": {"value": 8.0, "low": 5.0, "high": 14.0},
        "bandwidth_frac": stream.rounded(),
        "head_us": {"value": 300.0, "low": 100.0, "high": 800.0},
        "skew_us": {"value": 4.0, "low": 2.0, "high": 8.0},
        "basis": "assumed",
        "source": f"a small numpy kernel takes {small_us:.2g} us here; an eager engine adds "
        "Python, dispatch and a fork of its threads, assumed 15 us (4 to 40), and 5 to 14 kernels "
        "per layer; bandwidth_frac measured as fp32 scaled in place, four bytes charged of eight",
    }
