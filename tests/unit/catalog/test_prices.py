"""Price lists: from a SkyPilot catalog and back, names of devices, one-line errors."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest

from specsim.catalog.prices import dump_prices, load_prices, read_price_catalog
from specsim.errors import InputError, NotFoundError

HEADER = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,"
    "AvailabilityZone\n"
)
# The layout of skypilot-catalog's aws/vms.csv with prices made up for the arithmetic.
CATALOG = HEADER + (
    "p5.48xlarge,H100,8.0,192.0,2048.0,\"{'Gpus': ['H100', 8]}\",80.0,24.0,us-east-1,us-east-1a\n"
    "p5.48xlarge,H100,8.0,192.0,2048.0,,80.0,32.0,us-east-1,us-east-1b\n"
    "p5.48xlarge,H100,8.0,192.0,2048.0,,96.0,,eu-west-1,eu-west-1a\n"
    "p5.4xlarge,H100,1.0,16.0,256.0,,6.0,,us-east-1,us-east-1a\n"
    "p4d.24xlarge,A100,8.0,96.0,1152.0,,32.0,,us-east-1,us-east-1a\n"
    "p4de.24xlarge,A100-80GB,8.0,96.0,1152.0,,40.0,,us-east-1,us-east-1a\n"
    "g6f.large,L4,0.125,2.0,8.0,,0.2,,us-east-1,us-east-1a\n"
    "m6i.large,,,2.0,8.0,,0.096,0.03,us-east-1,us-east-1a\n"
    "p3.2xlarge,V100,1.0,8.0,61.0,,3.06,,us-east-1,us-east-1a\n"
    "p6-b200.48xlarge,B200,8.0,192.0,2048.0,,,40.0,us-east-1,us-east-1a\n"
)


def written(folder: Path, text: str, name: str = "vms.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def offers(folder: Path, *rows: str) -> Path:
    head = "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region\n"
    return written(folder, head + "".join(f"{row}\n" for row in rows))


def test_typical_is_the_median_over_types_and_regions_and_zones_do_not_count(
    tmp_path: Path,
) -> None:
    prices = read_price_catalog(
        written(tmp_path, CATALOG), as_of=dt.date(2026, 11, 1), provider="aws"
    )
    h100 = prices.prices["h100_sxm"]
    # 80/8 in us-east-1, 96/8 in eu-west-1, 6/1.
    assert (h100.low, h100.usd_per_gpu_hour, h100.high) == (6.0, 10.0, 12.0)
    assert (h100.n_offers, h100.spot_usd_per_gpu_hour) == (3, 3.5)
    assert prices.prices["l4"].usd_per_gpu_hour == 1.6
    assert (prices.as_of, prices.provider) == (dt.date(2026, 11, 1), "aws")
    assert prices.source == "SkyPilot catalog vms.csv"
    assert prices.skipped == ("V100",)
    assert prices.notes == ("b200_sxm: has spot prices only: left out",)


def test_plain_a100_is_the_one_of_40_gb_to_skypilot(tmp_path: Path) -> None:
    prices = read_price_catalog(written(tmp_path, CATALOG)).prices
    assert prices["a100_sxm_40"].usd_per_gpu_hour == 4.0
    assert prices["a100_sxm_80"].usd_per_gpu_hour == 5.0


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("H100", "h100_sxm"),
        ("H100-SXM", "h100_sxm"),
        ("H100_SXM5_80GB", "h100_sxm"),
        ("H100-MEGA", "h100_sxm"),
        ("H100-NVL", "h100_nvl"),
        ("H100-PCIe", "h100_pcie"),
        ("H100_NVL_94GB", "h100_nvl"),
        ("H200", "h200_sxm"),
        ("H200-SXM", "h200_sxm"),
        ("A100-40GB", "a100_sxm_40"),
        ("A100-80GB-SXM4", "a100_sxm_80"),
        ("A100-PCIE-80GB", "a100_pcie_80"),
        ("L4", "l4"),
        ("L40S", "l40s"),
        ("A10G", "a10g"),
        ("B200", "b200_sxm"),
        ("GH200", "gh200"),
        ("MI300X", "mi300x"),
        ("RTX4090", "rtx_4090"),
        ("RTX_4090", "rtx_4090"),
        ("RTX 5090", "rtx_5090"),
        ("RTXPRO6000", "rtx_pro_6000"),
        ("tpu-v6e", "tpu_v6e"),
    ],
)
def test_devices_in_the_spellings_of_clouds(tmp_path: Path, name: str, id: str) -> None:
    path = offers(tmp_path, f"x,{name},2,4,,here")
    assert {key: p.usd_per_gpu_hour for key, p in read_price_catalog(path).prices.items()} == {
        id: 2.0
    }


@pytest.mark.parametrize("name", ["RTX6000-Ada", "RTXA6000", "A100X", "tpu-v6e-8", "L40", "T4"])
def test_a_device_that_only_looks_alike_is_skipped(tmp_path: Path, name: str) -> None:
    prices = read_price_catalog(offers(tmp_path, "x,L4,1,1,,here", f"y,{name},1,9,,here"))
    assert list(prices.prices) == ["l4"]
    assert prices.skipped == (name,)


def test_a_price_without_its_host_is_said(tmp_path: Path) -> None:
    prices = read_price_catalog(offers(tmp_path, ",L4,1,0.5,,a", ",L4,1,0.6,,b", "g2,L4,1,0.7,,a"))
    (note,) = prices.notes
    assert note.startswith("l4: 2 of 3 offers have no InstanceType")


def test_a_price_list_is_written_and_read(tmp_path: Path) -> None:
    catalog = written(tmp_path, CATALOG)
    os.utime(catalog, (1_790_000_000, 1_790_000_000))
    prices = load_prices(catalog)
    assert prices.as_of == dt.date.fromtimestamp(1_790_000_000)
    text = dump_prices(prices)
    assert text.startswith("as_of: 2026-09-2")
    assert load_prices(written(tmp_path, text, "prices.yaml")) == prices


@pytest.mark.parametrize(
    "first", ["# ours, from November", "# AcceleratorName", "\n---", "\ufeff#,"]
)
def test_a_price_list_by_hand_may_begin_with_a_remark(tmp_path: Path, first: str) -> None:
    text = (
        "as_of: 2026-11-01\nsource: contract\nprices: {l4: {usd_per_gpu_hour: 1, low: 1, high: 1}}"
    )
    assert list(load_prices(written(tmp_path, f"{first}\n{text}\n", "own.yaml")).prices) == ["l4"]


def test_a_price_list_by_hand_may_use_other_names(tmp_path: Path) -> None:
    price = "{usd_per_gpu_hour: 2, low: 2, high: 2}"
    head = "as_of: 2026-11-01\nsource: contract\nprices:\n"
    path = written(tmp_path, f"{head}  H100: {price}\n", "own.yaml")
    assert list(load_prices(path).prices) == ["h100_sxm"]
    path = written(tmp_path, f"{head}  H100: {price}\n  h100_sxm: {price}\n", "own.yaml")
    with pytest.raises(InputError, match="h100_sxm is given twice"):
        load_prices(path)
    path = written(tmp_path, f"{head}  h1000: {price}\n", "own.yaml")
    with pytest.raises(NotFoundError, match=r"unknown accelerator in .*own.yaml 'h1000'; nearest"):
        load_prices(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["x,V100,1,2,,here"],
            "has no price of an accelerator that is known; it has V100; list th",
        ),
        (["x,,,2,,here"], "it has no accelerator at all"),
        (["x,L4,1,,,here"], "no price to take: l4: has no price (Price is empty, 0 or nan)"),
        (["x,L4,1,0,,here"], "no price to take: l4: has no price (Price is empty, 0 or nan)"),
        (["x,L4,1,nan,,here"], "no price to take: l4: has no price (Price is empty, 0 or nan)"),
        (["x,L4,1,,0.2,here"], "no price to take: l4: has spot prices only"),
        (["x,L4,one,2,,here"], "line 2: AcceleratorCount: got 'one', expected a number"),
        (["x,L4,0,2,,here"], "line 2: AcceleratorCount: got '0', expected a number above 0"),
        (["x,L4,1,2,,here", "x,L4,1,$2,,there"], "line 3: Price: got '$2', expected a number"),
        (["x,L4,1,-2,,here"], "line 2: Price: got '-2', expected a number of 0 or more"),
        (["x,L4,1,inf,,here"], "line 2: Price: got 'inf'"),
        (["x,L4,1,2,-1,here"], "line 2: SpotPrice: got '-1'"),
        (["x,L4,1,1460,,here"], "l4: 1460 USD per GPU and hour is implausible"),
        (["x,L4"], "line 2: has 2 of 6 fields"),
    ],
)
def test_a_wrong_catalog_is_refused_in_one_line(
    tmp_path: Path, rows: list[str], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        load_prices(offers(tmp_path, *rows))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected a price list"),
        (
            "Accelerator,Count,Price\nL4,1,2\n",
            "has no column AcceleratorName; nearest: Accelerator",
        ),
        ("as_of: 2026-11-01\nsource: x\nprices: {}\n", "prices: got {}"),
        ("as_of: soon\nsource: x\nprices: {}\n", "as_of: got 'soon'"),
        (
            "as_of: 2026-11-01\nsource: x\nprices: {l4: {usd_per_gpu_hour: 3, low: 4, high: 5}}\n",
            "expected low <= usd_per_gpu_hour <= high",
        ),
        ("just words\n", "expected a mapping of keys"),
        (
            "as_of: 2999-01-01\nsource: x\nprices: {l4: {usd_per_gpu_hour: 3, low: 3, high: 3}}\n",
            "as_of 2999-01-01: lies ahead",
        ),
        (
            "as_of: 2026-11-01\nsource: x\nprovider: ''\n"
            "prices: {l4: {usd_per_gpu_hour: 3, low: 3, high: 3}}\n",
            "provider: got ''",
        ),
        (
            "as_of: 2026-11-01\nsource: x\n"
            "prices: {l4: {usd_per_gpu_hour: 3, low: 3, high: 300000000}}\n",
            "less than or equal to 1000000",
        ),
    ],
)
def test_a_wrong_price_list_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        load_prices(written(tmp_path, text, "prices.yaml"))
    assert message in str(refused.value)


def test_rows_without_a_price_are_counted(tmp_path: Path) -> None:
    rows = ("x,L4,1,0.7,,a", "x,L4,1,,,b", "x,L4,1,nan,,c", "x,H100,1,0,,a")
    prices = read_price_catalog(offers(tmp_path, *rows))
    assert prices.prices["l4"].n_offers == 1
    assert prices.notes == (
        "h100_sxm: has no price (Price is empty, 0 or nan): left out",
        "l4: 2 of 3 rows have no price (Price is empty, 0 or nan)",
    )


def test_spot_above_on_demand_is_said(tmp_path: Path) -> None:
    (note,) = read_price_catalog(offers(tmp_path, "x,L4,1,0.7,0.9,a")).notes
    assert note.startswith("l4: the median of spot prices, 0.9, is above that on demand, 0.7")
    assert read_price_catalog(offers(tmp_path, "x,L4,1,0.7,0.3,a")).notes == ()


def test_a_day_ahead_and_a_provider_without_a_name_are_refused(tmp_path: Path) -> None:
    path = offers(tmp_path, "x,L4,1,0.7,,a")
    with pytest.raises(InputError, match="--as-of 2999-01-01: lies ahead"):
        read_price_catalog(path, as_of=dt.date(2999, 1, 1))
    assert read_price_catalog(path, as_of=dt.date.today()).as_of == dt.date.today()
    for nobody in ("", " "):
        with pytest.raises(InputError, match="--provider '': names nobody"):
            read_price_catalog(path, provider=nobody)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; give a price list"):
        load_prices(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="is a folder; give a price list"):
        load_prices(tmp_path)
