"""Every formula of a workbook gives, recalculated by LibreOffice, the value that is stored."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hostile import NAMES

from specsim.catalog.scenario import load_scenario
from specsim.export.workbook.book import Book, assembled, book
from specsim.export.workbook.formulas import Formula
from specsim.export.workbook.subjects import Asked, subjects
from specsim.schema.scenario import Scenario
from specsim.schema.slo import parse_slo
from specsim.schema.traffic import Traffic

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
ONE = ROOT / "examples" / "llama-3.1-8b-eagle3-h100.yaml"
CHAT = ROOT / "examples" / "chat-llama-3-70b-4xh100.yaml"


def scenario(source: Path = ONE, **changes: Any) -> Scenario:
    return load_scenario(source, overrides=changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a profile of an accelerator that has no price."""
    found = tmp_path_factory.mktemp("books")
    profile = yaml.safe_load((ROOT / "hardware_profiles/nvidia/h100_sxm.yaml").read_text())
    del profile["price"]
    profile["identity"] |= {"id": "h100_unpriced", "name": "H100 without a price", "aliases": []}
    (found / "h100_unpriced.yaml").write_text(yaml.safe_dump(profile))
    return found


def verified(office: ModuleType, made: Book, folder: Path) -> Path:
    """Write the workbook, and return it recalculated once it is the same."""
    path = folder / "plan.xlsx"
    made.save(path)
    new: Path = office.recalculated(path, folder)
    assert [str(d) for d in office.differences(path, new, rtol=1e-9)] == []
    return new


def test_the_examples_side_by_side(office: ModuleType, tmp_path: Path) -> None:
    """All of them in one workbook: names and rows of eight scenarios."""
    made = book([scenario(path) for path in EXAMPLES], Asked())
    new = verified(office, made, tmp_path)
    assert office.n_formulas(tmp_path / "plan.xlsx") > 1000 * len(EXAMPLES)
    rows = office.table(new, "Crossover", header_row=3)
    assert [row["scenario_id"] for row in rows] == [f"S{i + 1}" for i in range(len(EXAMPLES))]
    assert all(row["speedup_at_load"] > 0 for row in rows)


TRAFFIC = Traffic(
    requests_per_month=30e6, peak_to_avg=3.0, hours_per_day=12, growth_pct=20, growth_years=2,
    target_utilization=0.8, spares=2,
)  # fmt: skip
NONE = {"speculation": {"method": "none"}}
LONG = list(range(1, 200))
SPECIAL: dict[str, dict[str, Any]] = {
    "answers of one token": {"workload.output_tokens": 1},
    "burst": {"workload.arrival": "burst"},
    "pipeline": {"hardware.pipeline_parallel_size": 2, "hardware.tensor_parallel_size": 2},
    "open loop": {"load.request_rate": [1, 2, 5, 10]},
    "open loop of one rate, method none": {"load.request_rate": [5], **NONE},
    "a rate that nothing serves": {"load.request_rate": [500]},
    "one request": {"load.concurrency": [1]},
    "a long ladder": {"load.concurrency": LONG},
    "nothing is accepted": {"speculation.acceptance": {"rate": 0.0}},
    "everything is accepted": {"speculation.acceptance": {"rate": 1.0}},
    "adaptive verification": {"speculation.adaptive_verification": True},
    "a schedule of lengths": {
        "speculation.num_speculative_tokens_per_batch_size": [[1, 16, 3], [17, 256, 1]],
    },
    "prompts that are cached": {
        "workload.cached_prompt_tokens": 256, "workload.output_tokens_p95": 700,
    },
}  # fmt: skip


def test_what_is_special(office: ModuleType, tmp_path: Path) -> None:
    """Side by side, which says of a difference whose column or row it is."""
    made = book([scenario(name=n, **changes) for n, changes in SPECIAL.items()], Asked())
    new = verified(office, made, tmp_path)
    rows = dict(zip(SPECIAL, office.table(new, "Crossover", header_row=3), strict=True))
    # They are what they are meant to be.
    assert rows["a rate that nothing serves"]["speedup_at_load"] in (None, "")
    assert rows["a rate that nothing serves"]["tpot_off_ms"] in (None, "")
    assert rows["open loop"]["load_unit"] == "requests/s"
    assert rows["nothing is accepted"]["state"] == "never"
    assert rows["nothing is accepted"]["acceptance_length"] == 1
    assert rows["everything is accepted"]["acceptance_length"] == 4
    assert rows["open loop of one rate, method none"]["tpot_on_ms"] is None
    points = office.table(new, "Points", header_row=3)
    assert len(points) == 2 * len(LONG)
    assert {row["scenario_id"] for row in points} == {
        f"S{list(SPECIAL).index('a long ladder') + 1}"
    }


def test_speculation_that_is_off_in_all(office: ModuleType, tmp_path: Path) -> None:
    new = verified(office, book([scenario(**NONE)], Asked(traffic=TRAFFIC)), tmp_path)
    (fleet,) = office.table(new, "Fleet", header_row=3)
    assert fleet["arm"] == "off"
    assert fleet["redundancy"] == 2
    drafting = {row["field"]: row["S1"] for row in office.table(new, "Speculation", header_row=3)}
    assert (drafting["method"], drafting["drafter"], drafting["accept_len_AL"]) == (
        "none",
        None,
        None,
    )
    assert len(office.table(new, "Cost", header_row=3)) == 1


def test_no_price_is_known(office: ModuleType, tmp_path: Path, folder: Path) -> None:
    unpriced = {"hardware.accelerator": "h100_unpriced"}
    made = book(
        [scenario(**unpriced), scenario(CHAT, **unpriced)], Asked(traffic=TRAFFIC, search=(folder,))
    )
    new = verified(office, made, tmp_path)
    assert office.value(new, "gpu_hour_usd_S1") is None
    for row in office.table(new, "Cost", header_row=3):
        assert row["gpus_total"] > 0
        assert row["monthly_total_usd"] in (None, "")
        assert row["payback_months"] in (None, "")
    assert {row["usd_per_mtok"] for row in office.table(new, "Sweep", header_row=3)} <= {None, ""}
    # Typed in, all of them follow: 729.6 hours of 2 USD, and nothing else.
    typed = office.edited(tmp_path / "plan.xlsx", {"gpu_hour_usd_S1": 2.0}, tmp_path)
    for row in office.table(office.recalculated(typed, tmp_path), "Cost", header_row=3)[:2]:
        assert row["monthly_total_usd"] == pytest.approx(row["gpus_total"] * 2.0 * 729.6, rel=1e-12)


@pytest.mark.parametrize(
    ("gpus", "per_server", "servers_of"),
    [
        pytest.param(4, 1, lambda n: 4 * n, id="larger than a server"),
        pytest.param(4, 3, lambda n: 2 * n, id="a server and a part"),
        pytest.param(1, 3, lambda n: math.ceil(n / 3), id="several in a server"),
        pytest.param(2, 5, lambda n: math.ceil(n / 2), id="a server that is not filled"),
    ],
)
def test_servers_that_hold_the_replicas(
    office: ModuleType, tmp_path: Path, gpus: int, per_server: int, servers_of: Any
) -> None:
    asked = Asked(traffic=TRAFFIC, gpus_per_server=per_server)
    changes = {"hardware.tensor_parallel_size": gpus}
    new = verified(office, book([scenario(**changes)], asked), tmp_path)
    for row in office.table(new, "Fleet", header_row=3):
        assert row["replicas_total"] >= 3
        assert row["gpus_total"] == gpus * row["replicas_total"]
        assert row["servers_total"] == servers_of(row["replicas_total"])


@pytest.mark.parametrize(
    ("promise", "kept"),
    [
        pytest.param("ttft_p95_ms=2000 tpot_p95_ms=60", {"y"}, id="kept"),
        pytest.param("tpot_p95_ms=0.5", {"n"}, id="nothing keeps it"),
        pytest.param("tpot_p95_ms=7", {"y", "n"}, id="one arm alone, at some lengths"),
    ],
)
def test_promises(office: ModuleType, tmp_path: Path, promise: str, kept: set[str]) -> None:
    asked = Asked(traffic=TRAFFIC, slo=parse_slo(promise.split()), num_requests=300)
    new = verified(office, book([scenario()], asked), tmp_path)
    held = office.table(new, "Capacity", header_row=3)
    assert {"y" if row["max_qps_per_replica_at_slo"] > 0 else "n" for row in held} == kept
    for row in office.table(new, "Fleet", header_row=3):
        none = row["max_qps_per_replica_at_slo"] == 0
        assert (row["replicas_total"] in (None, "")) is none
    for row in office.table(new, "Cost", header_row=3):
        assert (row["monthly_total_usd"] in (None, "")) is (row["gpus_total"] in (None, ""))


def test_names_that_look_like_something_else(office: ModuleType, tmp_path: Path) -> None:
    (one,) = subjects([scenario(**NONE)], Asked())
    made = assembled([replace(one, id=f"S{i}", name=n) for i, n in enumerate(NAMES, start=1)])
    new = verified(office, made, tmp_path)
    for i, name in enumerate(NAMES, start=1):
        assert office.value(new, f"name_S{i}") == name[:32_767].replace("\x07", "_x0007_")


@pytest.mark.parametrize(
    ("sheet", "column", "row"),
    [("Sweep", "qps", 5), ("Fleet", "replicas_base", 1), ("Cost", "payback_months", 1),
     ("Crossover", "decision_at_load", 0), ("Inputs", "S1", "peak_qps"),
     ("Speculation", "S1", "accept_len_AL")],
)  # fmt: skip
def test_a_wrong_value_beside_a_formula_is_found(
    office: ModuleType, tmp_path: Path, sheet: str, column: str, row: int | str
) -> None:
    """That the tests above could fail: one value is off by a millionth, or another word."""
    made = book([scenario()], Asked(traffic=TRAFFIC))
    (page,) = (s for s in made.sheets if s.name == sheet)
    if isinstance(row, str):
        (row,) = (i for i, r in enumerate(page.rows) if r["field"].value == row)
    # Values are kept once they are computed: what follows keeps the right one.
    for each in made.sheets:
        list(each.records())
    cell = page.rows[row][column]
    assert isinstance(cell.content, Formula)
    right = cell.content.value
    wrong = right * (1 + 1e-6) if isinstance(right, float) else f"not {right}"
    planted = Formula(cell.content.text, lambda: wrong)
    page.rows[row][column] = replace(cell, content=planted)
    made.save(tmp_path / "plan.xlsx")
    new = office.recalculated(tmp_path / "plan.xlsx", tmp_path)
    (only,) = office.differences(tmp_path / "plan.xlsx", new)
    where = page.address(row, column).replace("$", "").removeprefix(f"{sheet}!")
    assert (only.sheet, only.cell) == (sheet, where)
    assert only.stored == (pytest.approx(wrong, rel=1e-12) if isinstance(wrong, float) else wrong)
    if isinstance(right, float):
        assert only.recalculated == pytest.approx(right, rel=1e-9)
    else:
        assert only.recalculated == right
