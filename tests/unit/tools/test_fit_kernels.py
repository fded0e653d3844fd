"""The fitting tool: planted constants come back, profiles keep their other lines."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import fit_kernels  # noqa: E402
from kernel_fits import attention, collectives, forms, gemm, moe, same_die  # noqa: E402
from kernel_fits.profiles import interval, replace_blocks  # noqa: E402
from kernel_fits.tables import Board, board, fastest  # noqa: E402

from specsim.catalog.hardware import load_hardware  # noqa: E402
from specsim.catalog.hardware_authoring import dump_profile  # noqa: E402
from specsim.physics import kernels  # noqa: E402

ROWS = (1, 8, 16, 32, 64, 96, 128, 160, 192, 256, 512, 1024, 2048)
SIZES = (2048, 4096, 6144, 8192, 12288, 16384)


@pytest.fixture(scope="module")
def h100() -> Board:
    return board("h100_sxm")


def write(folder: Path, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    table = list(rows)
    with gzip.open(folder / f"{name}.csv.gz", "wt", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)


def noise(n: int) -> np.ndarray:
    return np.exp(0.03 * np.random.default_rng(1).standard_normal(n))


def columns(keys: tuple[str, ...], points: Iterable[tuple[float, ...]]) -> dict[str, np.ndarray]:
    return dict(zip(keys, np.array(list(points), dtype=float).T, strict=True))


GEMM_TRUTH = {
    "launch_us": 5.0,
    "per_in_feature_ns": 1.0,
    "bandwidth_frac": 0.85,
    "compute_frac": 0.6,
    "sharpness": 2.0,
}


def gemm_rows(h100: Board, steps: Mapping[int, float]) -> list[dict[str, Any]]:
    table = columns(("m", "n", "k"), itertools.product(ROWS, SIZES, SIZES))
    us = gemm.form(h100, gemm.DTYPES["fp8"])(GEMM_TRUTH, table) * noise(len(table["m"]))
    return [
        {
            "gpu": "h100_sxm",
            "framework": "vllm",
            "gemm_dtype": "fp8",
            "m": int(m),
            "n": int(n),
            "k": int(k),
            "us": t * steps.get(int(m), 1.0),
        }
        for m, n, k, t in zip(table["m"], table["n"], table["k"], us, strict=True)
    ]


def test_planted_matrix_constants_come_back(tmp_path: Path, h100: Board) -> None:
    write(tmp_path, "gemm", gemm_rows(h100, {}))
    data, error = gemm.blocks(tmp_path, {"h100_sxm": h100})["h100_sxm"]["fp8"]
    for name, truth in GEMM_TRUTH.items():
        assert data[name]["value"] == pytest.approx(truth, rel=0.08), name
        assert data[name]["low"] <= truth <= data[name]["high"], name
    assert "row_factor" not in data
    # Noise of 3 %: the median of its absolute value is 0.67 of that, the 90th percentile 1.64.
    assert error["closed_form"]["median_percent"] == pytest.approx(2.0, abs=0.3)
    assert error["closed_form"]["p90_percent"] == pytest.approx(4.9, abs=0.7)


def test_steps_by_rows_become_row_factors(tmp_path: Path, h100: Board) -> None:
    write(tmp_path, "gemm", gemm_rows(h100, {160: 1.3, 192: 1.2}))
    data, error = gemm.blocks(tmp_path, {"h100_sxm": h100})["h100_sxm"]["fp8"]
    assert error["row_factor_used"]
    factor = dict(zip(data["row_factor"]["rows"], data["row_factor"]["factor"], strict=True))
    assert factor[160] / factor[128] == pytest.approx(1.3, rel=0.04)
    assert factor[192] / factor[256] == pytest.approx(1.2, rel=0.04)
    assert error["with_row_factor"]["p90_percent"] < 0.6 * error["closed_form"]["p90_percent"]


def test_shapes_served_from_the_l2_and_narrow_ones_are_left_out(h100: Board) -> None:
    table = columns(("m", "n", "k"), itertools.product((1.0, 64.0), (1024, 4096, 8192), (8192,)))
    us = np.full(6, 60.0)
    us[(table["n"] == 4096) & (table["m"] == 1)] = 5.0  # 33 MB in 5 us: 6.7 TB/s
    kept = gemm.select(table | {"us": us}, h100, gemm.DTYPES["fp8"])
    assert sorted(set(kept["n"])) == [8192]


def test_forms_are_those_of_physics(h100: Board) -> None:
    dtype = gemm.DTYPES["bfloat16"]
    truth = GEMM_TRUTH | {"per_in_feature_ns": 0.0}
    table = columns(("m", "n", "k"), itertools.product((1, 128, 2048), (4096,), (2048, 8192)))
    rates = kernels.GemmRates(
        launch_s=5e-6,
        bytes_per_s=0.85 * h100.bytes_per_us * 1e6,
        flop_per_s=0.6 * h100.flop_per_us["bf16"] * 1e6,
        sharpness=2.0,
    )
    physics = kernels.gemm(
        rows=table["m"],
        out_features=table["n"],
        in_features=table["k"],
        weight_bytes=2.0,
        rates=rates,
    )
    assert gemm.form(h100, dtype)(truth, table) == pytest.approx(1e6 * physics.total_s)

    table = columns(moe.KEYS, itertools.product((1, 16, 512), (4096,), (1536,), (8,), (128,), (2,)))
    constants = MOE_TRUTH
    layer = kernels.moe_layer(
        sequences=table["num_tokens"],
        query_tokens=1.0,
        prefill_tokens=0.0,
        hidden_size=4096,
        intermediate_size=768,
        n_experts=128,
        topk=8,
        weight_bytes=1.0,
        expert_groups=1,
        rates=kernels.MoeRates(
            launch_s=30e-6,
            per_expert_s=150e-9,
            bytes_per_s=0.8 * h100.bytes_per_us * 1e6,
            flop_per_s=0.4 * h100.flop_per_us["fp8"] * 1e6,
            sharpness=1.2,
            concentration=0.92,
            sequence_overlap=0.6,
        ),
    )
    ours = moe.form(h100, moe.DTYPES["fp8"], "fp8")(constants, table)
    assert ours == pytest.approx(1e6 * layer.total_s)

    batch = np.array([1.0, 8.0, 256.0])
    cache = {
        "bytes": batch * 4096 * 2 * 8 * 128 * 2,
        "flop": 4 * batch * 4096 * 32 * 128,
    }
    known = {"floor_us": 12.0, "growth_us": 15.0, "bandwidth_frac": 0.9}
    decode = kernels.decode_attention(
        sequences=batch,
        query_tokens=1.0,
        entries_read=4096,
        entries_scored=4096,
        entry_bytes=2 * 8 * 128 * 2,
        flop_per_score=4 * 32 * 128,
        query_group=4,
        rates=kernels.AttentionRates(
            floor_s=12e-6,
            launch_s=27e-6,
            l2_bytes=h100.l2_bytes,
            bytes_per_s=0.9 * h100.bytes_per_us * 1e6,
            flop_per_s=0.35 * h100.flop_per_us["bf16"] * 1e6,
        ),
    )
    assert attention.form(h100)(known, cache) == pytest.approx(1e6 * decode.total_s)


MOE_TRUTH = {
    "launch_us": 30.0,
    "per_expert_ns": 150.0,
    "bandwidth_frac": 0.8,
    "compute_frac": 0.4,
    "sharpness": 1.2,
    "concentration": 0.92,
}


def test_planted_expert_constants_come_back(tmp_path: Path, h100: Board) -> None:
    models = [(4096, 1536, 8, 128), (2048, 768, 8, 128), (7168, 2048, 8, 256), (4096, 14336, 2, 8)]
    points = [
        (tokens, *model, tp)
        for tokens, model, tp in itertools.product((*ROWS, 4096, 8192), models, (1, 2, 4, 8))
    ]
    table = columns(moe.KEYS, points)
    us = moe.form(h100, moe.DTYPES["fp8"], "fp8")(MOE_TRUTH, table) * noise(len(points))
    write(
        tmp_path,
        "moe",
        [
            dict(zip(moe.KEYS, map(int, point), strict=True))
            | {
                "gpu": "h100_sxm",
                "framework": "vllm",
                "moe_dtype": "fp8_block",
                "kernel_source": "triton",
                "moe_ep_size": 1,
                "distribution": moe.ROUTING,
                "us": t,
            }
            for point, t in zip(points, us, strict=True)
        ],
    )
    data, error = moe.blocks(tmp_path, {"h100_sxm": h100})["h100_sxm"]["fp8"]
    for name, truth in MOE_TRUTH.items():
        assert data[name]["value"] == pytest.approx(truth, rel=0.1), name
    assert data["computes_in"] == "fp8"
    assert error["closed_form"]["median_percent"] < 2.5


def test_experts_with_two_matrices_are_left_out(h100: Board) -> None:
    points = [
        (64, 2688, 1856, 6, 128, 1),
        (64, 2048, 5120, 22, 512, 1),
        (64, 4096, 1536, 8, 128, 1),
    ]
    table = columns(moe.KEYS, points) | {"us": np.full(3, 1e4)}
    kept = moe.select(table, h100, moe.DTYPES["bf16"])
    assert list(kept["hidden_size"]) == [4096]


def test_planted_attention_constants_come_back(tmp_path: Path, h100: Board) -> None:
    points = list(
        itertools.product((1, 8, 64, 256), (16, 32, 64), (4, 8, 16), (128, 1024, 8192, 32768))
    )
    table = columns(("batch", "heads", "kv_heads", "len"), points)
    entries = table["batch"] * table["len"]
    cache = {
        "bytes": entries * 2 * table["kv_heads"] * 128 * 2,
        "flop": 4 * entries * table["heads"] * 128,
    }
    truth = {"floor_us": 12.0, "growth_us": 13.0, "bandwidth_frac": 0.9}
    us = attention.form(h100)(truth, cache) * noise(len(points))
    # Between 5 % and three times the L2 a table that keeps the cache there is too fast.
    share = cache["bytes"] / h100.l2_bytes
    us = np.where((share > 0.05) & (share < 3.0), 0.5 * us, us)
    write(
        tmp_path,
        "attention_decode",
        [
            dict(zip(("batch", "heads", "kv_heads", "len"), point, strict=True))
            | {
                "gpu": "h100_sxm",
                "framework": "vllm",
                "kernel": "fa3",
                "kv_dtype": "bfloat16",
                "head_dim": 128,
                "window": 0,
                "us": t,
            }
            for point, t in zip(points, us, strict=True)
        ],
    )
    data, _ = attention.decode_blocks(tmp_path, {"h100_sxm": h100})["h100_sxm"]["bf16"]
    assert data["floor_us"]["value"] == pytest.approx(12.0, rel=0.03)
    assert data["launch_us"]["value"] == pytest.approx(25.0, rel=0.1)
    assert data["bandwidth_frac"]["value"] == pytest.approx(0.9, rel=0.02)


def test_planted_recurrent_constants_and_verification_come_back(
    tmp_path: Path, h100: Board
) -> None:
    rows = []
    for heads, batch in itertools.product((16, 32, 48), (1, 4, 64, 256, 512, 1024)):
        state = 2.0 * batch * heads * 128**2 * 4
        us = 4.0 + state / (0.8 * h100.bytes_per_us)
        base = {"gpu": "h100_sxm", "num_v_heads": heads, "num_k_heads": 16, "batch_size": batch}
        for table, framework, kernel, phase, q, time_us in (
            ("gdn_perf", "vLLM", "fused_recurrent", "generation", 1, us),
            ("gdn_perf", "vLLM", "causal_conv1d_update", "generation", 1, 2.0),
            ("kda_perf", "VLLM", "fused_recurrent_kda", "generation", 1, us),
            ("kda_perf", "VLLM", "fused_recurrent_kda", "verify", 4, us * 2.5 * 1.1),
        ):
            rows.append(
                base
                | {"table": table, "framework": framework, "kernel_source": kernel}
                | {"phase": phase, "seq_len": q, "latency": 1e-3 * time_us}
            )
    write(tmp_path, "linear_attention", rows)
    data, error = attention.linear_blocks(tmp_path, {"h100_sxm": h100})["h100_sxm"]
    assert data["launch_us"]["value"] == pytest.approx(6.0, rel=1e-3)
    assert data["bandwidth_frac"]["value"] == pytest.approx(0.8, rel=1e-3)
    assert "decodes: 1.10 (equation 3)" in data["source"]
    assert error["closed_form"]["p90_percent"] == 0.0


def test_all_reduce_takes_the_faster_library_of_the_newest_version(tmp_path: Path) -> None:
    rows = [
        {"gpu": gpu, "op": "all_reduce", "kernel": kernel, "num_gpus": n, "version": version}
        | {"bytes": kib * 1024, "us": us}
        for gpu, n in (("h100_sxm", 2), ("l40s", 4))
        for kernel, version, times in (
            ("vLLM_custom_graph", "0.9.0", {4: 1.0, 64: 1.0, 1024: 1.0}),
            ("vLLM_custom_graph", "0.24.0", {4: 5.0, 64: 4.0, 1024: 30.0}),
            ("NCCL", "2.29.2", {4: 9.0, 64: 9.0, 1024: 20.0}),
        )
        for kib, us in times.items()
    ]
    write(tmp_path, "comm", rows)
    found = collectives.blocks(tmp_path, dict.fromkeys(("h100_sxm", "l40s")))
    # The dip at 64 KiB is flattened.
    assert found["h100_sxm"][2]["us"] == [5.0, 5.0, 20.0]
    assert "vLLM 0.24.0 custom" in found["h100_sxm"][2]["source"]
    # PCIe with four devices: the custom kernel is off.
    assert found["l40s"][4]["us"] == [9.0, 9.0, 20.0]
    assert found["l40s"][4]["relative_low"] == 0.25


def test_repeated_points_keep_the_fastest() -> None:
    rows = [{"m": "1", "us": "3"}, {"m": "2", "us": "5"}, {"m": "1", "us": "2.5"}]
    table = fastest(rows, ("m",))
    assert list(table["m"]) == [1.0, 2.0]
    assert list(table["us"]) == [2.5, 5.0]


def test_error_of_a_ratio_ignores_what_a_shape_has_in_common() -> None:
    residual = np.array([0.2, 0.3, -0.1, -0.1])
    shape, rows = np.array([0, 0, 1, 1]), np.array([16.0, 64.0, 16.0, 64.0])
    assert forms.to_first(residual, shape, rows, 16.0) == pytest.approx([0.1, 0.0])


# Profiles


def test_a_block_is_replaced_and_the_rest_kept_letter_by_letter() -> None:
    text = (
        "identity:\n  id: x # a comment\neffective:\n  borrow: y\n  gemm:\n    bf16:\n"
        "      launch_us: {value: 1.0, low: 0.0, high: 2.0}\n      source: old\n    fp8:\n"
        "      source: kept # so is this\n  elementwise:\n    source: kept\nprice: []\n"
    )
    new = {"launch_us": interval(3.0, 2.0, 4.0), "source": "new"}
    once = replace_blocks(text, {("gemm", "bf16"): new, ("moe", "fp8"): {"source": "added"}})
    assert once == (
        "identity:\n  id: x # a comment\neffective:\n  borrow: y\n  gemm:\n    bf16:\n"
        "      launch_us: {value: 3.0, low: 2.0, high: 4.0}\n      source: new\n    fp8:\n"
        "      source: kept # so is this\n  elementwise:\n    source: kept\n  moe:\n    fp8:\n"
        "      source: added\nprice: []\n"
    )
    assert replace_blocks(once, {("gemm", "bf16"): new}) == once


def test_replaced_text_is_what_dump_profile_writes() -> None:
    path = ROOT / "hardware_profiles" / "nvidia" / "h100_sxm.yaml"
    data = yaml.safe_load(path.read_text())
    data["effective"]["gemm"]["fp8"]["source"] = "a source " * 30
    changed = replace_blocks(path.read_text(), {("gemm", "fp8"): data["effective"]["gemm"]["fp8"]})
    assert changed == dump_profile(data)


def test_the_same_die_reaches_the_same_rate() -> None:
    server = board("rtx_pro_6000_server")
    assert server.rebase == pytest.approx(1792 / 1597)
    data = {
        "bandwidth_frac": interval(0.9, 0.8, 1.0),
        "compute_frac": interval(0.8, 0.7, 0.9),
        "basis": "measured",
        "source": "s",
    }
    other = same_die.adapt(data, server, "rtx_pro_6000_workstation")
    assert other["bandwidth_frac"]["value"] * 1792 == pytest.approx(0.9 * 1597, rel=1e-3)
    assert other["compute_frac"] == data["compute_frac"]
    assert other["basis"] == "fitted"
    capped = same_die.adapt(data, server, "rtx_pro_6000_maxq")
    assert capped["compute_frac"] == interval(0.6, 0.42, 0.855)
    assert capped["basis"] == "assumed"


# The real tables


@pytest.mark.slow
def test_two_boards_are_reproduced(shared: Path) -> None:
    blocks, _ = fit_kernels.fit_boards(shared / "kernels", ("h100_sxm", "b200_sxm"))
    for profile, own in blocks.items():
        effective = load_hardware(profile).effective.model_dump(mode="json")
        assert {path[0] for path in own} == {
            "gemm",
            "decode_attention",
            "mla_attention",
            "moe",
            "linear_attention",
            "all_reduce",
        }
        for path, data in own.items():
            committed: Any = effective
            for key in path:
                committed = committed[key] if key in committed else committed[int(key)]
            for name, value in data.items():
                if isinstance(value, dict) and "value" in value:
                    assert committed[name]["value"] == pytest.approx(
                        value["value"], rel=0.02, abs=0.05
                    ), (profile, path, name)


def test_the_report_covers_every_fitted_block() -> None:
    report = json.loads((ROOT / "validation" / "kernel_fit.json").read_text())["kernels"]
    for name in fit_kernels.BOARDS:
        effective = load_hardware(board(name).profile).effective
        for dtype, block in effective.gemm.items():
            errors = report["gemm"][name][dtype]
            assert errors["row_factor_used"] == (block.row_factor is not None)
            assert errors["closed_form"]["median_percent"] < 12
