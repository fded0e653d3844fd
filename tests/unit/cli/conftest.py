"""A prediction made by hand, with every part that a report can show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specsim.schema.results import (
    AcceptanceCurvePoint,
    AcceptanceResult,
    BaselinePoint,
    BestK,
    BreakEven,
    Crossover,
    KvArm,
    KvResult,
    Point,
    Prediction,
    SpeculativePoint,
    Transition,
    Verdict,
)

LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SPEEDUPS = (2.21, 2.18, 2.1, 2.0, 1.9, 1.72, 1.46, 1.13, 0.91, 0.84)


def _parts(step_ms: float, compute: float) -> dict[str, float]:
    shares = {
        "memory": 0.9 - compute, "kv": 0.03, "compute": compute, "communication": 0.05,
        "host": 0.02,
    }  # fmt: skip
    return {cause: share * step_ms for cause, share in shares.items()}


def point(load: float, speedup: float) -> Point:
    off_step, compute = 14.0 + load / 20, min(load / 700, 0.8)
    on_step = off_step * 2.9 / speedup
    batch = min(load, 256)
    common: dict[str, Any] = {"usd_per_mtok_total": None, "bound": "memory"}
    return Point(
        concurrency=load,
        request_rate=None,
        baseline=BaselinePoint(
            batch=batch, limited_by="load" if load <= 256 else "max_num_seqs", step_ms=off_step,
            tpot_ms=off_step * 1.02, ttft_ms=60 + load, output_tok_s=batch / off_step * 1e3,
            usd_per_mtok=3810.0 / (batch / off_step * 1e3), parts_ms=_parts(off_step, compute),
            **common,
        ),
        speculative=SpeculativePoint(
            batch=batch if load < 256 else 241, limited_by="load" if load < 256 else "kv",
            step_ms=on_step, draft_ms=on_step * 0.1, verify_ms=on_step * 0.85,
            host_ms=on_step * 0.05, tokens_per_step=2.9, verify_tokens=5.0,
            tpot_ms=on_step / 2.9 * 1.02, itl_ms=on_step, ttft_ms=62 + load,
            output_tok_s=batch / off_step * 1e3 * speedup,
            usd_per_mtok=3810.0 / (batch / off_step * 1e3) / speedup,
            parts_ms=_parts(on_step, compute), **common,
        ),
        speedup=speedup,
        speedup_low=speedup * 0.92,
        speedup_high=speedup * 1.08,
        note="",
    )  # fmt: skip


def prediction(**changes: Any) -> Prediction:
    arm: dict[str, Any] = {"kv_gb_nameplate": 178.9, "other_gib": 9.6}
    values: dict[str, Any] = {
        "scenario": {
            "target": {"model": "llama-3.3-70b", "weight_dtype": "bf16", "kv_dtype": "bf16"},
            "hardware": {
                "accelerator": "h100_sxm", "tensor_parallel_size": 4, "pipeline_parallel_size": 1,
                "expert_parallel": False,
            },
            "engine": {"name": "vllm", "version": "0.33"},
            "speculation": {
                "method": "eagle", "num_speculative_tokens": 4, "drafter": "eagle-llama3-70b",
            },
            "workload": {"input_tokens": 512.0, "output_tokens": 256.0, "temperature": 0.0},
            "load": {"concurrency": list(LOADS)},
        },
        "acceptance": AcceptanceResult(2.9, 0.76, 0.475, (0.76, 0.55, 0.36, 0.23), "the scenario"),
        "kv": KvResult(
            baseline=KvArm(weights_gib=131.4, drafter_weights_gib=0, kv_gib=141.2,
                           bytes_per_token=81920, kv_tokens=462_720, max_concurrency=602.5, **arm),
            speculative=KvArm(weights_gib=133.2, drafter_weights_gib=1.84, kv_gib=139.4,
                              bytes_per_token=82944, kv_tokens=451_200, max_concurrency=587.5,
                              **arm),
            lost_tokens=11_520, lost_fraction=0.0249, memory_nameplate_gb=320.0,
            memory_usable_gib=316.7,
        ),
        "points": tuple(point(*pair) for pair in zip(LOADS, SPEEDUPS, strict=True)),
        "crossover": Crossover("crosses", 186.3, 186.3, 140.2, 262.0, ((1, 186.3),), (1, 512)),
        "break_even": (
            *(BreakEven(load, 1 + load / 170, load / 600, load / 680) for load in LOADS[:-1]),
            BreakEven(512, None, None, None),
        ),
        "best_k": tuple(BestK(load, max(6 - i, 0), s) for i, (load, s) in
                        enumerate(zip(LOADS, SPEEDUPS, strict=True))),
        "acceptance_curve": tuple(
            AcceptanceCurvePoint(a, 1 + 4 * a, a, 0.8 + 2.9 * a, 0.7 + 2.3 * a, 0.3 + 1.1 * a)
            for a in (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        ),
        "transition": Transition(296.0, 104.0, 331.0),
        "verdict": Verdict("schedule", "speculation wins up to about 190 concurrent requests and "
                           "loses beyond: schedule k by batch, or route by load."),
        "defaults": ("engine.max_num_seqs = 256", "engine.gpu_memory_utilization = 0.92"),
        "warnings": ("EAGLE costs prefix-cache hits in vLLM: give both arms their own.",),
        "provenance": {"basis": {"measured": 12, "assumed": 3}, "specsim": "0.1.0"},
    }  # fmt: skip
    return Prediction(**{**values, **changes})


@pytest.fixture
def make_prediction() -> Callable[..., Prediction]:
    """Return the builder of the prediction, which takes fields to change."""
    return prediction


@pytest.fixture
def make_point() -> Callable[[float, float], Point]:
    """Return the builder of a point from its load and speedup."""
    return point
