"""The sheets of what a replica holds at the SLO, and of how many replicas are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.analysis.plan.capacity import Capacity
from specsim.export.workbook.fields import Fields
from specsim.export.workbook.formulas import (
    Formula,
    as_text,
    at,
    between,
    both,
    either,
    greatest,
    if_,
    joined,
    larger,
    round_down,
    round_up,
    smaller,
)
from specsim.export.workbook.inputs import if_ok
from specsim.export.workbook.sheets import Cell, Column, Sheet
from specsim.export.workbook.speculation import Speculation, place_and_weight
from specsim.export.workbook.subjects import Subject
from specsim.export.workbook.sweep import ARMS, Block, Sweep

_EXACTLY = 1.0 - 1e-9
"""A quotient this little above a whole number is that number, as in `specsim plan`."""
_WATT_PER_KW = 1000
_CLOSE_PCT = 5
"""So little more per replica would save one: less than what load tests and the model know."""


@dataclass(frozen=True)
class Rows:
    """A sheet with a row per scenario and arm."""

    sheet: Sheet
    rows: dict[tuple[str, str], int]

    def __call__(self, subject: Subject, arm: str, column: str) -> Formula:
        """Refer to a column of an arm, `off` or `on`."""
        return self.sheet.ref(self.rows[subject.id, arm], column)


def arms_of(s: Subject) -> tuple[str, ...]:
    """Return the arms that a scenario has."""
    return ("off",) if s.on is None else ("off", "on")


_CAPACITY = (
    Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
    Column("arm", "speculation off or on", width=7),
    Column("acceptance_length", "at which it was found, tokens per step", "exact", 17),
    Column("max_qps_per_replica_at_slo", "largest rate of one replica that keeps the promise; 0: "
           "none does", "three", 26),
    Column("limited_by", "what forbids more", width=22),
    Column("basis", "how it was found", width=36),
)  # fmt: skip


@dataclass(frozen=True)
class CapacitySheet:
    """What a replica holds, by acceptance length."""

    sheet: Sheet
    off: dict[str, int]
    on: dict[str, tuple[int, int]]


def capacity(found: Sequence[Subject]) -> CapacitySheet:
    """Build the sheet."""
    sheet = Sheet(
        "Capacity",
        "The largest rate at which one replica keeps the promise of the sheet SLO, as specsim "
        "found it at some acceptance lengths. The sheet Fleet reads between them, in 1 / length.",
        _CAPACITY,
        frozen_columns=2,
    )
    result = CapacitySheet(sheet, {}, {})
    for s in found:
        places = [sheet.add(_capacity_row(s, c)) for c in s.capacities]
        result.off[s.id] = places[0]
        if len(places) > 1:
            result.on[s.id] = (places[1], places[-1])
    return result


def _capacity_row(s: Subject, c: Capacity) -> dict[str, Cell | None]:
    return {
        "scenario_id": Cell(s.id, "text"),
        "arm": Cell(ARMS[c.arm], "text"),
        "acceptance_length": Cell(c.acceptance_length),
        "max_qps_per_replica_at_slo": Cell(c.request_rate),
        "limited_by": Cell(c.binding),
        "basis": Cell(c.basis),
    }


_FLEET = (
    Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
    Column("arm", "speculation off or on", width=7),
    Column("max_qps_per_replica_at_slo", "largest rate of one replica that keeps the promise",
           "three", 26),
    Column("target_util_pct", "share of it that a replica gets at the peak", "pct", 14),
    Column("peak_qps", "requests/s at the peak, grown", "three"),
    Column("replicas_unrounded", "peak_qps / (rate at the SLO x target utilisation)", "ratio", 17),
    Column("replicas_base", "the same rounded up: what the peak needs", "count", 13),
    Column("redundancy", "spare replicas; 1 is N+1", "count", 11),
    Column("replicas_total", "replicas_base + redundancy", "count", 13),
    Column("gpus_per_replica", "GPUs of a replica", "count", 15),
    Column("gpus_total", "GPUs of the fleet", "count", 11),
    Column("servers_total", "servers that hold them", "count", 13),
    Column("util_at_peak_pct", "load / load at the SLO at the peak, all replicas up", "pct", 15),
    Column("util_at_avg_pct", "load / load at the SLO on average", "pct", 15),
    Column("util_one_replica_down_pct", "load / load at the SLO at the peak, one replica down",
           "pct", 24),
    Column("slo_ok_one_down", "whether the rest still keeps the promise: y or n", width=15),
    Column("speculation_one_down", "what to do with speculation then", width=30),
    Column("autoscale_min", "replicas on average, spares included", "count", 13),
    Column("autoscale_max", "replicas at the peak, spares included", "count", 13),
    Column("power_kw", "at the GPUs' rated power: an upper bound", "three"),
    Column("qps_per_replica", "requests/s of a replica at the peak", "three", 15),
    Column("in_flight_per_replica", "requests in flight then: hold it against the crossover",
           "load", 20),
    Column("speedup_at_peak", "time per token off / on at that rate; blank: not read", "ratio", 15),
    Column("limited_by", "what forbids more load, as exported", width=22),
    Column("note", "why there is no fleet, or how little one replica fewer would take", width=34),
    Column("range_check", "of the sheet Inputs", width=30),
    Column("place", "row of the sheet Capacity, of the on arm", "count", folded=True),
    Column("weight", "how far to the next", "exact", folded=True),
)  # fmt: skip


def fleet(
    found: Sequence[Subject],
    made: Fields,
    speculation: Speculation,
    held: CapacitySheet,
    swept: Sweep,
) -> Rows:
    """Build the sheet: `specsim plan`'s arithmetic."""
    sheet = Sheet(
        "Fleet",
        "Replicas = peak / (rate at the SLO x target utilisation), rounded up, and the spares. All "
        "of it follows from the sheets Inputs and Capacity.",
        _FLEET,
        frozen_columns=2,
    )
    result = Rows(sheet, {})
    for s in found:
        for arm in arms_of(s):
            row = len(sheet.rows)
            result.rows[s.id, arm] = row
            cells = _held(s, speculation, held, sheet, row, arm)
            cells |= _sized(s, made, sheet, row)
            sheet.add(
                {
                    "scenario_id": Cell(s.id, "text"),
                    "arm": Cell(arm, "text"),
                    "limited_by": Cell(_binding(s, arm)),
                    "range_check": Cell(made(s, "range_check"), "formula"),
                    **cells,
                }
            )
        _compare(result, s, swept)
    return result


def _binding(s: Subject, arm: str) -> str:
    on = s.capacity_on
    return s.capacity_off.binding if arm == "off" or on is None else on.binding


def _held(
    s: Subject, sp: Speculation, held: CapacitySheet, sheet: Sheet, row: int, arm: str
) -> dict[str, Cell | None]:
    """Read the rate at the SLO, of the on arm at the acceptance length of the inputs."""
    if arm == "off":
        off = held.sheet.ref(held.off[s.id], "max_qps_per_replica_at_slo")
        return {"max_qps_per_replica_at_slo": Cell(off, "formula")}
    first, last = held.on[s.id]
    lengths = held.sheet.column_range("acceptance_length", first, last)
    rates = held.sheet.column_range("max_qps_per_replica_at_slo", first, last)
    place, weight = sheet.ref(row, "place"), sheet.ref(row, "weight")
    found, far = place_and_weight(lengths, sp.length(s))
    low, high = at(rates, place), at(rates, place + 1)
    # Seconds per request are what runs straight in 1 / length. No rate at one end says nothing of
    # the middle: no promise is made there.
    read = if_(both(low > 0, high > 0), 1 / ((1 - weight) / low + weight / high), 0)
    rate = if_(weight <= 0, low, if_(weight >= 1, high, read))
    return {
        "place": Cell(found, "formula"),
        "weight": Cell(far(place), "formula"),
        "max_qps_per_replica_at_slo": Cell(rate, "formula"),
    }


def _sized(s: Subject, made: Fields, sheet: Sheet, row: int) -> dict[str, Cell | None]:
    def this(column: str) -> Formula:
        return sheet.ref(row, column)

    rate, peak = this("max_qps_per_replica_at_slo"), this("peak_qps")
    utilised = rate * this("target_util_pct") / 100

    def needed(load: Formula) -> Formula:
        return larger(round_up(load / utilised * _EXACTLY), 1)

    replicas, gpus = this("replicas_total"), this("gpus_total")
    per_server = made(s, "gpus_per_server")
    of_a_replica = this("gpus_per_replica")
    servers = if_(
        of_a_replica > per_server,
        replicas * round_up(of_a_replica / per_server),
        round_up(replicas / larger(round_down(per_server / of_a_replica), 1)),
    )
    alone = replicas <= 1
    each = peak / (replicas - 1)
    formulas = {
        "replicas_unrounded": peak / utilised,
        "replicas_base": needed(peak),
        "replicas_total": this("replicas_base") + this("redundancy"),
        "gpus_total": replicas * of_a_replica,
        "servers_total": servers,
        "util_at_peak_pct": 100 * peak / (replicas * rate),
        "util_at_avg_pct": 100 * made(s, "avg_qps") / (replicas * rate),
        "util_one_replica_down_pct": if_(alone, "", 100 * each / rate),
        "slo_ok_one_down": if_(alone, "n", if_(each <= rate * (1 + 1e-9), "y", "n")),
        "autoscale_min": needed(made(s, "avg_qps")) + this("redundancy"),
        "autoscale_max": replicas + 0,
        "qps_per_replica": peak / replicas,
    }
    watts = s.deployment.hardware.datasheet.tdp_w
    if watts is not None:
        formulas["power_kw"] = gpus * (watts / _WATT_PER_KW)
    # Where no rate keeps the promise there is no fleet.
    guarded = {
        name: if_ok(made, s, if_(rate > 0, formula, "")) for name, formula in formulas.items()
    }
    inputs = {
        "target_util_pct": made(s, "target_utilization_pct"),
        "peak_qps": made(s, "peak_qps"),
        "redundancy": made(s, "spares"),
    }
    cells: dict[str, Cell | None] = {
        name: Cell(formula, "formula")
        for name, formula in {
            **{n: if_ok(made, s, f) for n, f in inputs.items()},
            **guarded,
        }.items()
    }
    cells["gpus_per_replica"] = Cell(float(s.deployment.n_gpus), "fixed")
    none = "no rate keeps the promise of the sheet SLO: there is no fleet"
    exact, base = this("replicas_unrounded"), this("replicas_base")
    over = 100 * (exact / (base - 1) - 1)
    near = joined("one replica fewer would do with ", as_text(over, "0.0"), " % more per replica")
    close = if_(exact.is_blank(), "", if_(base <= 1, "", if_(over <= _CLOSE_PCT, near, "")))
    cells["note"] = Cell(if_(rate > 0, close, none), "formula")
    return cells


def _in_flight(result: Rows, s: Subject, arm: str, block: Block) -> None:
    """Add the requests in flight at the peak, by Little's law."""
    each = result(s, arm, "qps_per_replica")
    rates = block.column("qps")
    place = block.place(rates, each)
    low, high = at(rates, place), at(rates, place + 1)
    weight = if_(high > low, (each - low) / (high - low), 0)
    slot_ms = between(block.column("slot_ms"), place, larger(0, smaller(1, weight)))
    flight = if_(each.is_blank(), "", if_(each > greatest(rates), "", each * slot_ms / 1000))
    row = result.rows[s.id, arm]
    result.sheet.rows[row]["in_flight_per_replica"] = Cell(flight, "formula")


def _compare(result: Rows, s: Subject, swept: Sweep) -> None:
    """Add to the on arm what it needs of both: the gain at the peak, and one replica down."""
    _in_flight(result, s, "off", swept.off[s.id])
    if s.on is None:
        return
    row = result.rows[s.id, "on"]
    off_rate = result(s, "off", "max_qps_per_replica_at_slo")
    on_rate, peak, replicas, each = (
        result(s, "on", name)
        for name in ("max_qps_per_replica_at_slo", "peak_qps", "replicas_total", "qps_per_replica")
    )
    down = peak / (replicas - 1)
    says = if_(
        down <= on_rate * (1 + 1e-9),
        "may stay on",
        if_(down <= off_rate * (1 + 1e-9), "must be off", "one more replica is needed"),
    )
    one_down = if_(replicas.is_blank(), "", if_(replicas <= 1, "none is left", says))
    result.sheet.rows[row]["speculation_one_down"] = Cell(one_down, "formula")
    _in_flight(result, s, "on", swept.on[s.id])
    times, known = [], []
    for block in (swept.off[s.id], swept.on[s.id]):
        rates = block.column("qps")
        place = block.place(rates, each)
        low, high = at(rates, place), at(rates, place + 1)
        weight = if_(high > low, (each - low) / (high - low), 0)
        times.append(between(block.column("tpot_ms"), place, larger(0, smaller(1, weight))))
        known.append(each > greatest(rates))
    speedup = if_(replicas.is_blank(), "", if_(either(*known), "", times[0] / times[1]))
    result.sheet.rows[row]["speedup_at_peak"] = Cell(speedup, "formula")
