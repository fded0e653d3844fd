"""A workbook that is typed into says what `predict` and `plan` say of the same.

Inputs are changed together, by their defined names, and LibreOffice recalculates. The sheets read
between the rows and acceptance lengths of their tables, which costs at most 1 %; time to first
token is not held to that, since it jumps where prompts take one more step.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import specsim
from specsim.catalog.scenario import load_scenario
from specsim.export.workbook.book import book
from specsim.export.workbook.subjects import Asked
from specsim.schema.plan import Candidate, PricePaid
from specsim.schema.slo import Slo, parse_slo
from specsim.schema.traffic import Traffic

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE = EXAMPLES / "llama-3.1-8b-eagle3-h100.yaml"
SEVENTY = EXAMPLES / "llama-3.3-70b-4xh100.yaml"
STATED = 0.01
HOURS = 729.6
"""Hours of a month that are paid."""
SLO = parse_slo(["ttft_p95_ms=1000", "tpot_p95_ms=60"])
REQUESTS = 1000


def about(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, rel=STATED)


class Edited:
    """A recalculated workbook of one scenario."""

    def __init__(self, office: ModuleType, path: Path) -> None:
        self.office, self.path = office, path

    def __getitem__(self, name: str) -> Any:
        return self.office.value(self.path, name)

    def row(self, sheet: str, arm: str | None = None) -> dict[str, Any]:
        """Return the only row of a sheet, or that of an arm."""
        rows = self.office.table(self.path, sheet, header_row=3)
        (found,) = (r for r in rows if arm is None or r["arm"] == arm)
        return {key: None if value == "" else value for key, value in found.items()}

    def error(self, arm: str, load: float, of: str = "read_error_pct", by: str = "") -> float:
        """Return what the sheet says that reading at a load costs, as a fraction."""
        rows = [r for r in self.office.table(self.path, "Sweep", header_row=3) if r["arm"] == arm]
        below = [r for r in rows if r[by or "concurrency"] <= load] or rows[:1]
        return float(below[-1][of]) / 100


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that writes each workbook once."""
    known: dict[tuple[Path, bool, bool], Path] = {}

    def write(source: Path, is_open: bool, slo: Slo) -> Path:
        key = (source, is_open, slo.is_empty())
        if key not in known:
            load = {"load.request_rate": [1, 4, 8, 12]} if is_open else {}
            asked = Asked(slo=slo, num_requests=REQUESTS)
            path = tmp_path_factory.mktemp("book") / "plan.xlsx"
            book([load_scenario(source, overrides=load)], asked).save(path)
            known[key] = path
        return known[key]

    return write


@pytest.fixture
def edit(office: ModuleType, tmp_path: Path, written: Any) -> Any:
    """Return a function that types into a workbook and recalculates it."""

    def edit(
        values: Mapping[str, Any],
        source: Path = ONE,
        *,
        is_open: bool = False,
        slo: Slo | None = None,
    ) -> Edited:
        path = written(source, is_open, slo or Slo())
        names = {f"{name}_S1": value for name, value in values.items()}
        return Edited(office, office.recalculated(office.edited(path, names, tmp_path), tmp_path))

    return edit


def predicted(source: Path, length: float, **load: float) -> specsim.Prediction:
    ((kind, value),) = load.items()
    changes = {"speculation.acceptance": {"length": length}, f"load.{kind}": [value]}
    return specsim.predict(load_scenario(source, overrides=changes))


@pytest.mark.parametrize("length", [1.25, 1.9, 2.6, 3.4])
@pytest.mark.parametrize("load", [3, 24, 200])
def test_another_acceptance_and_load(edit: Any, length: float, load: int) -> None:
    sheet = edit({"acceptance_length": length, "load": load, "gpu_hour_usd": 3.1,
                  "commit_discount_pct": 10})  # fmt: skip
    row = sheet.row("Crossover")
    said = predicted(ONE, length, concurrency=load)
    (point,) = said.points
    off, on = point.baseline, point.speculative
    assert off is not None
    assert on is not None
    assert sheet["range_check_S1"] == "ok"
    assert row["speedup_at_load"] == about(point.speedup)
    assert row["tpot_off_ms"] == about(off.tpot_ms)
    assert row["tpot_on_ms"] == about(on.tpot_ms)
    assert row["out_tok_s_off"] == about(off.output_tok_s)
    assert row["out_tok_s_on"] == about(on.output_tok_s)
    for arm, service in (("off", off), ("on", on)):
        room = max(STATED, sheet.error(arm, load, "read_error_ttft_pct"))
        assert row[f"ttft_{arm}_ms"] == pytest.approx(service.ttft_ms, rel=room)
        # 1 GPU at 3.1 USD less 10 %.
        usd = 3.1 * 0.9 / 3600 / service.output_tok_s * 1e6
        assert row[f"usd_per_mtok_{arm}"] == about(usd)
    assert row["break_even_AL"] == about(said.break_even[0].acceptance_length)
    # Where it turns does not depend on the load that is looked at.
    if said.crossover is None or said.crossover.load is None:
        assert row["crossover_load"] is None
    else:
        assert row["crossover_load"] == about(said.crossover.load)
    band = (0.95, 1.05)
    decision = "off" if point.speedup < band[0] else "on" if point.speedup > band[1] else "neutral"
    assert row["decision_at_load"] == decision


TRAFFIC = {
    "requests_per_month": 40e6, "peak_to_avg": 3.0, "hours_per_day": 12.0, "days_per_month": 22.0,
    "growth_pct": 30.0, "growth_years": 2.0, "spares": 2,
}  # fmt: skip
"""Seven inputs at once; utilisation, acceptance and price beside them."""


@pytest.mark.parametrize(
    ("source", "length", "utilization", "millions", "slo"),
    [
        pytest.param(ONE, None, 0.6, 12, Slo(), id="8B, as given, no SLO"),
        pytest.param(ONE, 1.3, 0.85, 29, Slo(), id="8B, 1.3, no SLO"),
        pytest.param(ONE, 3.1, 0.95, 32, Slo(), id="8B, 3.1, no SLO"),
        pytest.param(ONE, 2.9, 0.7, 35, SLO, id="8B, 2.9, an SLO that is no bound"),
        pytest.param(SEVENTY, 1.3, 0.85, 29, Slo(), id="70B, 1.3, no SLO"),
        pytest.param(SEVENTY, 3.1, 0.95, 26, Slo(), id="70B, 3.1, no SLO"),
        pytest.param(SEVENTY, None, 0.6, 26, SLO, id="70B, as given, SLO"),
        pytest.param(SEVENTY, 1.7, 0.8, 18, SLO, id="70B, 1.7, SLO"),
        pytest.param(SEVENTY, 2.9, 0.7, 27, SLO, id="70B, 2.9, SLO"),
    ],
)
def test_another_fleet(
    edit: Any, source: Path, length: float | None, utilization: float, millions: float, slo: Slo
) -> None:
    """Replicas and GPUs are equal: the requests a month are chosen so that no quotient is within
    1 % of a whole number, where reading between the tables may tip it.
    """
    usd, asked = 2.7, TRAFFIC | {"requests_per_month": millions * 1e6}
    typed = {**asked, "target_utilization_pct": 100 * utilization, "gpu_hour_usd": usd}
    changes = {}
    if length is not None:
        typed["acceptance_length"] = length
        changes = {"speculation.acceptance": {"length": length}}
    sheet = edit(typed, source, slo=slo)
    traffic = Traffic(**asked, target_utilization=utilization)
    planned = specsim.plan(
        load_scenario(source, overrides=changes), traffic, slo,
        prices={"*": PricePaid(usd, None, "test")}, num_requests=REQUESTS,
    )  # fmt: skip
    assert sheet["peak_qps_S1"] == pytest.approx(traffic.peak_rate, rel=1e-12)
    assert sheet["avg_qps_S1"] == pytest.approx(traffic.avg_rate, rel=1e-12)
    assert sheet["monthly_requests_S1"] == pytest.approx(traffic.monthly_requests, rel=1e-12)
    for candidate in planned.candidates:
        arm = "off" if candidate.arm == "baseline" else "on"
        fleet, cost = sheet.row("Fleet", arm), sheet.row("Cost", arm)
        assert candidate.load_at_slo is not None
        quotient = traffic.peak_rate / (candidate.load_at_slo * utilization)
        assert abs(quotient - round(quotient)) > STATED * quotient, (arm, quotient)
        assert fleet["max_qps_per_replica_at_slo"] == about(candidate.load_at_slo)
        if length is None and not slo.is_empty():
            # As exported, at the acceptance that was given; without an SLO the sheet says which
            # limit of the engine it is, where the plan says "capacity".
            assert fleet["limited_by"] == candidate.binding
        _is_the_fleet_of(candidate, fleet, cost)


def _is_the_fleet_of(
    candidate: Candidate, fleet: Mapping[str, Any], cost: Mapping[str, Any]
) -> None:
    for column, field in (
        ("replicas_base", "replicas_base"), ("replicas_total", "replicas"), ("gpus_total", "gpus"),
        ("servers_total", "servers"), ("gpus_per_replica", "gpus_per_replica"),
    ):  # fmt: skip
        assert fleet[column] == getattr(candidate, field), column
    for column, field in (
        ("util_at_peak_pct", "utilization_peak"), ("util_at_avg_pct", "utilization_average"),
        ("util_one_replica_down_pct", "utilization_one_down"),
    ):  # fmt: skip
        assert fleet[column] == about(100 * getattr(candidate, field)), column
    assert fleet["power_kw"] == about(candidate.power_kw)
    assert cost["monthly_total_usd"] == about(candidate.usd_per_month)
    assert cost["usd_per_1m_output"] == about(candidate.usd_per_mtok_average)
    assert cost["usd_per_1m_output_at_peak"] == about(candidate.usd_per_mtok_peak)
    assert (fleet["slo_ok_one_down"] == "y") is candidate.one_down_ok
    says = {
        (True, False): "may stay on",
        (False, True): "must be off",
        (False, False): "one more replica is needed",
    }
    if candidate.arm == "speculative":
        assert candidate.one_down_ok is not None
        assert candidate.one_down_speculation_off is not None
        held = (candidate.one_down_ok, candidate.one_down_speculation_off)
        assert fleet["speculation_one_down"] == says[held]


@pytest.mark.parametrize(("length", "rate"), [(1.4, 2.5), (2.0, 6.0), (3.3, 10.5)])
def test_an_open_loop(edit: Any, length: float, rate: float) -> None:
    values = {
        **TRAFFIC, "acceptance_length": length, "load": rate, "gpu_hour_usd": 2.0,
        "commit_discount_pct": 25, "target_utilization_pct": 77,
    }  # fmt: skip
    sheet = edit(values, is_open=True)
    row = sheet.row("Crossover")
    (point,) = predicted(ONE, length, request_rate=rate).points
    said = predicted(ONE, length, request_rate=rate)
    assert point.baseline is not None
    assert point.speculative is not None
    assert sheet["range_check_S1"] == "ok"
    assert row["speedup_at_load"] == about(point.speedup)
    assert row["tpot_off_ms"] == about(point.baseline.tpot_ms)
    assert row["tpot_on_ms"] == about(point.speculative.tpot_ms)
    for arm, service in (("off", point.baseline), ("on", point.speculative)):
        assert row[f"out_tok_s_{arm}"] == about(service.output_tok_s)
        assert row[f"out_tok_s_{arm}"] == about(rate * 256)
        assert row[f"usd_per_mtok_{arm}"] == about(1.5 / 3600 / (rate * 256) * 1e6)
        room = max(STATED, sheet.error(arm, rate, "read_error_ttft_pct", "qps"))
        assert row[f"ttft_{arm}_ms"] == pytest.approx(service.ttft_ms, rel=room)
    assert row["break_even_AL"] == about(said.break_even[0].acceptance_length)
    turn = said.crossover
    assert row["crossover_load"] == about(None if turn is None else turn.load)
    planned = specsim.plan(
        load_scenario(ONE, overrides={"speculation.acceptance": {"length": length}}),
        Traffic(**TRAFFIC, target_utilization=0.77), Slo(),
        prices={"*": PricePaid(1.5, None, "test")},
    )  # fmt: skip
    for candidate in planned.candidates:
        arm = "off" if candidate.arm == "baseline" else "on"
        _is_the_fleet_of(candidate, sheet.row("Fleet", arm), sheet.row("Cost", arm))


def test_money_by_hand(edit: Any) -> None:
    """Discount, software, hosting, training, users and an API, from GPUs and requests as given."""
    sheet = edit(
        {
            "requests_per_month": 300e6, "peak_to_avg": 2.0, "spares": 1, "gpu_hour_usd": 4.0,
            "commit_discount_pct": 35, "software_usd_per_month": 1500,
            "hosting_usd_per_month": 800, "drafter_training_usd": 9000,
            "api_usd_per_mtok_output": 0.9, "active_users": 20_000, "acceptance_length": 3.3,
        }
    )  # fmt: skip
    off, on = sheet.row("Cost", "off"), sheet.row("Cost", "on")
    assert on["gpus_total"] < off["gpus_total"]
    months = {}
    for arm, row in (("off", off), ("on", on)):
        # 4 USD less 35 % are 2.6 USD; GPUs are paid for 729.6 hours.
        gpu_usd = row["gpus_total"] * 2.6 * HOURS
        months[arm] = gpu_usd + 1500 + 800
        assert row["gpus_total"] == sheet.row("Fleet", arm)["replicas_total"]
        assert row["monthly_gpu_usd"] == pytest.approx(gpu_usd, rel=1e-12)
        assert row["monthly_total_usd"] == pytest.approx(months[arm], rel=1e-12)
        assert row["tokens_out_per_month"] == 300e6 * 256
        per_mtok = months[arm] / (300 * 256)
        assert row["usd_per_1m_output"] == pytest.approx(per_mtok, rel=1e-12)
        # 512 tokens come in for 256 that go out: a third.
        assert row["usd_per_1m_total"] == pytest.approx(per_mtok / 3, rel=1e-12)
        assert row["usd_per_request"] == pytest.approx(months[arm] / 300e6, rel=1e-12)
        assert row["usd_per_active_user"] == pytest.approx(months[arm] / 20_000, rel=1e-12)
        assert row["api_price_per_1m"] == 0.9
        even = months[arm] / 0.9 * 1e6
        assert row["breakeven_tokens_per_month"] == pytest.approx(even, rel=1e-12)
    saved = months["off"] - months["on"]
    assert on["delta_vs_off_usd"] == pytest.approx(-saved, rel=1e-12)
    assert on["delta_pct"] == pytest.approx(-100 * saved / months["off"], rel=1e-12)
    assert on["payback_months"] == pytest.approx(9000 / saved, rel=1e-12)
    assert off["delta_vs_off_usd"] is None


def test_what_never_pays_back_is_said(edit: Any) -> None:
    sheet = edit({"acceptance_length": 1.0, "drafter_training_usd": 9000,
                  "requests_per_month": 30e6})  # fmt: skip
    row = sheet.row("Cost", "on")
    assert row["delta_vs_off_usd"] > 0
    assert row["payback_months"] == "never"
    assert row["breakeven_tokens_per_month"] is row["usd_per_active_user"] is None
    assert sheet["draft_acceptance_rate_S1"] == 0
    assert sheet.row("Crossover")["state"] == "never"


def test_one_replica_alone(edit: Any) -> None:
    sheet = edit({"requests_per_month": 1000, "spares": 0})
    for arm in ("off", "on"):
        row = sheet.row("Fleet", arm)
        assert row["replicas_total"] == row["gpus_total"] == row["servers_total"] == 1
        assert row["util_one_replica_down_pct"] is None
        assert row["slo_ok_one_down"] == "n"
    assert sheet.row("Fleet", "on")["speculation_one_down"] == "none is left"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"acceptance_length": 0.9}, "acceptance_length: expected 1 to 4"),
        ({"acceptance_length": 4.1}, "acceptance_length: expected 1 to 4"),
        ({"acceptance_length": "many"}, "acceptance_length: expected 1 to 4"),
        ({"load": 257}, "load: expected 1 to 256; specsim export again with another load"),
        ({"load": 0.5}, "load: expected 1 to 256; specsim export again with another load"),
        ({"target_utilization_pct": 0.7}, "target_utilization_pct: expected 1 to 100"),
        ({"peak_to_avg": 0.5}, "peak_to_avg: expected 1 to 10000"),
        ({"growth_pct": -100, "growth_years": 3}, "growth_pct: expected -100 to 10000"),
        ({"spares": -1}, "spares: expected 0 to 1000"),
        ({"acceptance_length": 4.0, "load": 256}, "ok"),
        ({"acceptance_length": 1.0, "load": 1}, "ok"),
        ({"gpu_hour_usd": None}, "ok"),
    ],
)
def test_what_is_outside_the_tables_is_said(edit: Any, values: dict[str, float], says: str) -> None:
    sheet = edit(values)
    assert sheet["range_check_S1"] == says
    crossover, fleet, cost = (
        sheet.row("Crossover"),
        sheet.row("Fleet", "on"),
        sheet.row("Cost", "on"),
    )
    assert crossover["range_check"] == fleet["range_check"] == says
    # What follows is blank then: no number stands there that nobody computed.
    known = says == "ok"
    assert (crossover["speedup_at_load"] is not None) is known
    assert (fleet["replicas_total"] is not None) is known
    assert (cost["monthly_total_usd"] is not None) is (known and "gpu_hour_usd" not in values)
    for row in (crossover, fleet, cost):
        assert not [v for v in row.values() if isinstance(v, str) and v.startswith("#")]


def test_a_rate_that_one_arm_alone_serves(edit: Any) -> None:
    """At an acceptance of 1 the on arm drafts for nothing and its queue grows before the other."""
    sheet = edit({"acceptance_length": 1.0, "load": 33.0}, is_open=True)
    row = sheet.row("Crossover")
    assert row["tpot_off_ms"] > 0
    assert row["tpot_on_ms"] is row["out_tok_s_on"] is row["usd_per_mtok_on"] is None
    assert row["speedup_at_load"] == 0
    assert row["decision_at_load"] == "off"
    assert sheet.row("Fleet", "on")["max_qps_per_replica_at_slo"] < 33.0
