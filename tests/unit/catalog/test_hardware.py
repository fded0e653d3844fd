"""Accelerator profiles: what ships, how gaps are filled, what a bad file says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from specsim.catalog.files import data_dir
from specsim.catalog.hardware import (
    attention_constants,
    borrowed_blocks,
    gemm_constants,
    hardware_ids,
    hardware_index,
    load_hardware,
    moe_constants,
    price_usd_per_gpu_hour,
)
from specsim.catalog.hardware_authoring import check_profile, dump_profile, new_profile
from specsim.errors import InputError, NotFoundError

FILES = sorted(data_dir("hardware_profiles").glob("*/*.yaml"))


def problems(path: Path) -> list[str]:
    return [line for line in check_profile(path) if not line.startswith("warning")]


@pytest.fixture
def card() -> dict[str, Any]:
    return new_profile(
        id="card_x",
        name="Card X",
        vendor="acme",
        architecture="ada",
        memory_gb=16,
        bandwidth_gb_per_s=500,
        bf16_tflops=100,
        fp8_tflops=200,
        price=0.25,
    )


def write(folder: Path, data: dict[str, Any], name: str = "card_x.yaml") -> Path:
    path = folder / name
    path.write_text(dump_profile(data))
    return path


# What ships


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_profile_loads_and_checks(path: Path) -> None:
    assert problems(path) == []
    profile = load_hardware(path.stem)
    assert profile.identity.vendor == path.parent.name
    for dtype in ("bf16", "fp16", "fp8", "int8", "int4", "nvfp4", "mxfp4"):
        block = gemm_constants(profile, dtype)
        assert getattr(profile.datasheet.dense_tflops, block.computes_in) is not None
        assert moe_constants(profile, dtype).bandwidth_frac.value > 0
    for dtype in ("bf16", "fp16", "fp8", "fp32"):
        assert attention_constants(profile, dtype).floor_us.value > 0
    effective = profile.effective
    for field in ("mla_attention", "prefill_attention", "linear_attention", "elementwise"):
        assert getattr(effective, field) is not None
    assert {2, 4, 8} <= set(effective.all_reduce)


def test_every_catalog_device_has_a_profile(shared: Path) -> None:
    known = set(hardware_ids())
    for name in ("hardware.yaml", "hardware_extra.yaml"):
        catalog = yaml.safe_load((shared / "catalog" / name).read_text())["accelerators"]
        assert set(catalog) <= known
        for key, entry in catalog.items():
            profile = load_hardware(key)
            assert profile.datasheet.memory_usable_gib == entry["memory_gib_usable"]
            assert profile.datasheet.confidence == entry["confidence"]
            assert profile.datasheet.dense_tflops.bf16 == entry["peak_dense_tflops"]["bf16"]
            assert price_usd_per_gpu_hour(profile) == entry["price_usd_per_hour"]["typical"]


def test_aliases_are_unique_and_indexed() -> None:
    index = hardware_index()
    aliases = {alias: entry.id for entry in index for alias in entry.aliases}
    assert len(aliases) == sum(len(entry.aliases) for entry in index)
    assert not set(aliases) & {entry.id for entry in index}
    listed = yaml.safe_load((data_dir("hardware_profiles") / "aliases.yaml").read_text())
    assert listed == aliases


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100", "h100_sxm"),
        ("H100-SXM", "h100_sxm"),
        ("a100", "a100_sxm_80"),
        ("4090", "rtx_4090"),
        ("RTX 4090", "rtx_4090"),
        ("mi300x", "mi300x"),
    ],
)
def test_names_are_forgiving(name: str, expected: str) -> None:
    assert load_hardware(name).identity.id == expected


def test_h100_holds_the_published_fits() -> None:
    block = gemm_constants(load_hardware("h100"), "bf16")
    assert block.per_in_feature_ns is not None
    values = [
        block.launch_us.value,
        block.per_in_feature_ns.value,
        block.bandwidth_frac.value,
        block.compute_frac.value,
        block.sharpness.value,
    ]
    assert values == pytest.approx([2.87, 1.34, 0.863, 0.844, 3.19], rel=0.02)
    assert block.basis == "measured"
    assert price_usd_per_gpu_hour(load_hardware("h100")) == 3.43
    assert load_hardware("h100").effective.all_reduce[4].us[1] == 4.8  # 16 KiB


def test_hopper_fp8_has_row_factors_and_bf16_needs_none() -> None:
    h100, h200 = (load_hardware(key).effective.gemm for key in ("h100", "h200"))
    for gemm in (h100, h200):
        assert gemm["bf16"].row_factor is None
        steps = gemm["fp8"].row_factor
        assert steps is not None
        factor = dict(zip(steps.rows, steps.factor, strict=True))
        assert factor[32] == 1.0
        assert factor[160] > 1.15 * factor[128]  # a second tile of 128 rows begins
    assert h100["fp8"].basis == "measured"


@pytest.mark.parametrize(
    ("rows", "factor", "message"),
    [
        ([32, 64, 128], [1.0, 1.1], "as many entries"),
        ([64, 32], [1.0, 1.1], "rows rising"),
        ([0, 32], [1.0, 1.1], "above 0"),
    ],
)
def test_row_factors_are_checked(
    tmp_path: Path, rows: list[float], factor: list[float], message: str
) -> None:
    path = data_dir("hardware_profiles") / "nvidia" / "h100_sxm.yaml"
    data = yaml.safe_load(path.read_text())
    data["effective"]["gemm"]["bf16"]["row_factor"] = {"rows": rows, "factor": factor}
    with pytest.raises(InputError, match=message):
        load_hardware(str(write(tmp_path, data, "h100_sxm.yaml")))


def test_rtx_pro_6000_reaches_one_rate_on_every_card() -> None:
    # The tables come from one board: 0.8225 of 1.792 TB/s. A fraction differs, the rate does not.
    rates = {
        key: gemm_constants(load_hardware(key), "bf16").bandwidth_frac.value
        * load_hardware(key).datasheet.memory_bandwidth_gb_per_s
        for key in ("rtx_pro_6000", "rtx_pro_6000_workstation", "rtx_pro_6000_maxq")
    }
    assert rates == pytest.approx(dict.fromkeys(rates, 0.8225 * 1792), rel=1e-3)
    server = load_hardware("rtx_pro_6000").effective
    assert server.gemm["bf16"].bandwidth_frac.value == pytest.approx(0.923, abs=5e-3)
    assert server.decode_attention["bf16"].bandwidth_frac.value == pytest.approx(0.9575, abs=5e-3)


# Borrowing and standing in


def test_borrowed_blocks_are_marked_and_wider() -> None:
    lender, borrower = load_hardware("l40s"), load_hardware("rtx_4090")
    theirs, ours = gemm_constants(lender, "bf16"), gemm_constants(borrower, "bf16")
    assert ours.basis == "assumed"
    assert ours.source == f"borrowed from l40s: {theirs.source}"
    assert ours.bandwidth_frac.value == theirs.bandwidth_frac.value
    # 6 % doubles to 12 %, which is less than the least widening, 20 %.
    assert ours.bandwidth_frac.low == pytest.approx(0.8 * theirs.bandwidth_frac.value)
    assert ours.bandwidth_frac.high == pytest.approx(1.2 * theirs.bandwidth_frac.value)
    assert {"gemm.bf16", "moe.fp8", "all_reduce.2", "elementwise"} <= set(borrowed_blocks(borrower))
    assert borrowed_blocks(load_hardware("h100")) == []


def test_widened_fractions_stay_below_the_peak() -> None:
    block = gemm_constants(load_hardware("h800"), "bf16")
    lender = gemm_constants(load_hardware("h100"), "bf16")
    assert block.bandwidth_frac.value == lender.bandwidth_frac.value
    assert block.bandwidth_frac.high == 1.0


def test_all_reduce_is_stretched_by_the_slower_link() -> None:
    fast, slow = (load_hardware(key).effective.all_reduce[8] for key in ("h100_sxm", "h800"))
    latency = min(fast.us)
    assert slow.us[0] == latency
    # NVLink at 200 instead of 450 GB/s.
    assert slow.us[-1] - latency == pytest.approx((fast.us[-1] - latency) * 450 / 200)


def test_fp8_without_fp8_arithmetic_multiplies_in_bf16() -> None:
    a100 = load_hardware("a100")
    assert "fp8" not in a100.effective.gemm
    block = gemm_constants(a100, "fp8")
    assert (block.computes_in, block.basis) == ("bf16", "assumed")
    assert block.bandwidth_frac.value == gemm_constants(a100, "bf16").bandwidth_frac.value
    assert moe_constants(a100, "nvfp4").source.startswith("nvfp4 weights in the kernels of int4")


def test_int8_uses_int8_arithmetic_only_where_it_is_faster() -> None:
    assert gemm_constants(load_hardware("h100"), "int8").computes_in == "int8"
    assert gemm_constants(load_hardware("b300"), "int8").computes_in == "bf16"


def test_fp32_needs_its_peak() -> None:
    assert gemm_constants(load_hardware("cpu"), "fp32").computes_in == "fp32"
    with pytest.raises(InputError, match=r"h100_sxm.* no constants for fp32 .*dense_tflops"):
        gemm_constants(load_hardware("h100"), "fp32")


def test_missing_cache_dtype_takes_the_bf16_kernels() -> None:
    block = attention_constants(load_hardware("a40"), "fp32")
    assert block.source.startswith("fp32 cache in the kernels of bf16")
    assert attention_constants(load_hardware("h100"), "fp16").basis == "measured"


# Names, files, errors


def test_unknown_name_gives_the_nearest_and_the_next_command() -> None:
    with pytest.raises(NotFoundError, match=r"unknown accelerator 'h100_sxn'.*h100_sxm.*profiles"):
        load_hardware("h100_sxn")
    with pytest.raises(NotFoundError):
        load_hardware("*")


def test_new_profile_round_trip(tmp_path: Path, card: dict[str, Any]) -> None:
    path = write(tmp_path, card)
    profile = load_hardware(str(path))
    assert profile == load_hardware("card-x", search=[tmp_path])
    assert profile.effective.borrow == "l40s"
    assert profile.datasheet.memory_usable_gib == pytest.approx(15.68)
    assert price_usd_per_gpu_hour(profile) == 0.25
    assert gemm_constants(profile, "fp8").computes_in == "fp8"
    assert check_profile(path) == ["warning: a price has no as_of date"]
    assert "card_x" in hardware_ids([tmp_path])


def test_new_profile_borrows_from_the_nearest_of_its_architecture() -> None:
    def lender(architecture: str, bandwidth: float) -> Any:
        data = new_profile(
            id="x",
            name="x",
            vendor="x",
            architecture=architecture,
            memory_gb=24,
            bandwidth_gb_per_s=bandwidth,
            bf16_tflops=100,
        )
        return data["effective"]["borrow"]

    assert lender("Hopper", 4600) == "h200_sxm"
    assert lender("hopper", 3000) == "h100_sxm"
    assert lender("blackwell", 900) == "rtx_pro_6000"
    assert lender("ampere", 800) == "a40"
    assert lender("something_else", 900) == "h100_sxm"


def test_new_profile_refuses_bad_values() -> None:
    numbers: dict[str, Any] = {"memory_gb": 24, "bandwidth_gb_per_s": 900, "bf16_tflops": 100}
    words = {"name": "x", "vendor": "x", "architecture": "ada"}
    with pytest.raises(InputError, match="lower-case"):
        new_profile(id="../x", **words, **numbers)
    with pytest.raises(InputError, match=r"dense_tflops\.bf16"):
        new_profile(id="x", **words, **{**numbers, "bf16_tflops": -1.0})
    with pytest.raises(InputError, match="finite"):
        new_profile(id="x", **words, **{**numbers, "bf16_tflops": float("nan")})
    with pytest.raises(NotFoundError, match="accelerator 'nope'"):
        new_profile(id="x", **words, **numbers, borrow="nope")


def test_user_file_wins_over_shipped(tmp_path: Path, card: dict[str, Any]) -> None:
    card["identity"] |= {"id": "h100_sxm", "aliases": ["my_gpu"]}
    write(tmp_path, card, "h100_sxm.yaml")
    (tmp_path / "some_model.yaml").write_text("id: llama\n")
    (tmp_path / "broken.yaml").write_text("identity: [")
    assert load_hardware("h100_sxm", search=[tmp_path]).identity.name == "Card X"
    assert load_hardware("MY GPU", search=[tmp_path]).identity.name == "Card X"
    assert load_hardware("h100_sxm").identity.name != "Card X"
    entry = next(e for e in hardware_index([tmp_path]) if e.id == "h100_sxm")
    assert (entry.shipped, entry.name, entry.usd_per_gpu_hour) == (False, "Card X", 0.25)


def test_user_file_may_build_on_the_shipped_one_it_replaces(tmp_path: Path) -> None:
    text = (data_dir("hardware_profiles") / "nvidia" / "h100_sxm.yaml").read_text()
    data = yaml.safe_load(text)
    data["identity"]["aliases"] = []
    data["effective"] = {"borrow": "h100_sxm"}
    data["datasheet"]["memory_bandwidth_gb_per_s"] = 3000.0
    write(tmp_path, data, "h100_sxm.yaml")
    mine = load_hardware("h100", search=[tmp_path])
    assert mine.datasheet.memory_bandwidth_gb_per_s == 3000.0
    assert gemm_constants(mine, "bf16").source.startswith("borrowed from h100_sxm: ")


def test_borrowing_in_a_circle_is_an_error(tmp_path: Path, card: dict[str, Any]) -> None:
    card["effective"]["borrow"] = "card_y"
    write(tmp_path, card)
    card["identity"]["id"], card["effective"]["borrow"] = "card_y", "card_x"
    write(tmp_path, card, "card_y.yaml")
    with pytest.raises(InputError, match="circle, card_x -> card_y -> card_x"):
        load_hardware("card_x", search=[tmp_path])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("identity: {id: x", "broken or truncated"),
        ("- 1\n", "expected a mapping"),
        ("identity: {}\n", "missing key"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        load_hardware(str(path))
    assert "\n" not in str(error.value)
    assert check_profile(path) == [str(error.value)]
    with pytest.raises(InputError, match="no such file"):
        load_hardware(str(tmp_path / "absent.yaml"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("memory_bandwidth_gb_per_s: 3350.0", "memory_bandwidth_gb_per_s: .nan", "finite"),
        ("memory_bandwidth_gb_per_s:", "memory_bandwith_gb_per_s:", "nearest known: memory_band"),
        ("{value: 1.5, low: 1.0, high", "{value: 1.5, low: 9.0, high", "low <= value <= high"),
        ("borrow: x", "borrow: h101", "unknown accelerator"),
    ],
)
def test_bad_values_name_their_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (data_dir("hardware_profiles") / "nvidia" / "h100_sxm.yaml").read_text()
    text = text.replace("effective:\n", "effective:\n  borrow: x\n")
    assert old in text
    path = tmp_path / "h100_sxm.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message):
        load_hardware(str(path))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("memory_bandwidth_gb_per_s", 3.35, "is the unit GB/s"),
        ("memory_usable_gib", 17.0, "is above memory_gb"),
        ("dense_tflops", {"bf16": 200.0, "fp8": 100.0}, "fp8 (100) is below bf16 (200)"),
        ("confidence", "low", "warning: datasheet figures are of low confidence"),
    ],
)
def test_check_knows_sanity_bands(
    tmp_path: Path, card: dict[str, Any], key: str, value: Any, message: str
) -> None:
    card["datasheet"][key] = value
    found = check_profile(write(tmp_path, card))
    assert any(re.search(re.escape(message), line) for line in found)


def test_check_knows_names_fractions_and_peaks(tmp_path: Path, card: dict[str, Any]) -> None:
    block = load_hardware("b200").effective.gemm["nvfp4"].model_dump()
    block["bandwidth_frac"] = {"value": 1.5, "low": 1.4, "high": 1.6}
    card["effective"]["gemm"] = {"nvfp4": block}
    card["identity"]["aliases"] = ["Card X"]
    found = "\n".join(check_profile(write(tmp_path, card, "other.yaml")))
    assert "the file is called other.yaml" in found
    assert "'Card X' should be 'card_x'" in found
    assert "gemm.nvfp4.bandwidth_frac is 1.5" in found
    assert "gemm.nvfp4.computes_in has no peak" in found


def test_another_kind_of_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("target: {model: a}\nhardware: {accelerator: b}\n")
    with pytest.raises(InputError, match="is a scenario, expected a hardware profile"):
        load_hardware(str(path))
