"""The sheet of where it turns, and of what the load that is looked at comes to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from specsim.analysis.advise.options import can_schedule, schedule_of
from specsim.export.workbook.fields import Fields
from specsim.export.workbook.formulas import (
    Formula,
    at,
    between,
    both,
    count,
    either,
    greatest,
    if_,
    least,
)
from specsim.export.workbook.inputs import if_ok
from specsim.export.workbook.sheets import Cell, Column, Sheet
from specsim.export.workbook.speculation import Speculation, point
from specsim.export.workbook.subjects import Subject
from specsim.export.workbook.sweep import Block, Sweep
from specsim.schema.results import NEUTRAL_HIGH, NEUTRAL_LOW
from specsim.units import HOUR_S, MTOK

NAME = "Crossover"
_COLUMNS = (
    Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
    Column("load", "that is looked at: of the sheet Inputs", "load"),
    Column("load_unit", "what loads count", width=16),
    Column("decision_at_load", "on, off or neutral (0.95 to 1.05) at this load", width=15),
    Column("speedup_at_load", "on / off at this load", "ratio", 15),
    Column("speedup_low", "10th percentile", "ratio"),
    Column("speedup_high", "90th percentile", "ratio"),
    Column("state", "over all loads: always, never or crosses", width=10),
    Column("crossover_load", "in load_unit: where the gain first turns into a loss", "load", 14),
    Column("crossover_low", "10th percentile, as exported; blank: outside the loads, or "
           "acceptance was changed", "load", 13),
    Column("crossover_high", "90th percentile, likewise", "load", 13),
    Column("crossover_out_tok_s", "output tokens per second there", "tok_s", 18),
    Column("acceptance_length", "of the sheet Inputs, tokens per step", "three", 16),
    Column("break_even_AL", "acceptance length at which on = off at this load; blank: none",
           "three", 14),
    Column("tpot_off_ms", "mean time per output token", "ms"),
    Column("tpot_on_ms", "mean time per output token", "ms"),
    Column("ttft_off_ms", "mean time to first token", "ms"),
    Column("ttft_on_ms", "mean time to first token", "ms"),
    Column("out_tok_s_off", "output tokens per second of a replica", "tok_s", 13),
    Column("out_tok_s_on", "output tokens per second of a replica", "tok_s", 13),
    Column("usd_per_mtok_off", "price of a million output tokens at this load", "usd", 16),
    Column("usd_per_mtok_on", "price of a million output tokens at this load", "usd", 16),
    Column("crossover_qps", "requests/s of a replica at the crossover, off", "three", 14),
    Column("best_k_at_load", "draft tokens that serve this load fastest; blank once load or "
           "acceptance is changed", "count", 14),
    Column("verdict", "over all loads: on, off, schedule or neutral; likewise", width=11),
    Column("recommended_schedule", "vLLM's num_speculative_tokens_per_batch_size; likewise",
           width=34),
    Column("binding_reason", "why; likewise", width=80),
    Column("range_check", "of the sheet Inputs", width=30),
    Column("marker_load", "the crossover, for the chart; the load where there is none", "load",
           folded=True),
    Column("marker_off", "what the off arm does there", "three", folded=True),
    *(
        Column(f"{name}_exported", "what it was when this was exported", folded=True)
        for name in ("best_k_at_load", "verdict", "recommended_schedule", "binding_reason")
    ),
    Column("row_off", "row of the off block below the load", "count", folded=True),
    Column("weight_off", "how far to the next", "exact", folded=True),
    Column("row_on", "row of the on block below the load", "count", folded=True),
    Column("weight_on", "how far to the next", "exact", folded=True),
)  # fmt: skip


@dataclass(frozen=True)
class Crossover:
    """The sheet, and the row of each scenario."""

    sheet: Sheet
    rows: dict[str, int]

    def __call__(self, subject: Subject, column: str) -> Formula:
        """Refer to a column of a scenario."""
        return self.sheet.ref(self.rows[subject.id], column)


def crossover(
    found: Sequence[Subject], made: Fields, speculation: Speculation, swept: Sweep
) -> Crossover:
    """Build the sheet."""
    sheet = Sheet(
        NAME,
        "Where speculation stops paying, and what the load and the acceptance length of the sheet "
        "Inputs come to. Read between the rows of the sheet Sweep.",
        _COLUMNS,
    )
    result = Crossover(sheet, {})
    for s in found:
        row = len(sheet.rows)
        result.rows[s.id] = row
        cells = _at_load(s, made, sheet, row, swept.off[s.id], "off")
        if s.on is not None:
            on = swept.on[s.id]
            cells |= _at_load(s, made, sheet, row, on, "on")
            cells |= _compared(s, sheet, row)
            cells |= _turn(s, sheet, row, swept.off[s.id], on)
            cells |= _even(s, sheet, row, swept.off[s.id], on)
            cells["acceptance_length"] = Cell(speculation.length(s), "formula")
            cells |= _band_of_crossover(s, made, sheet, row)
        cells = {name: _if_ok(made, s, name, cell) for name, cell in cells.items()}
        sheet.add(
            {
                "scenario_id": Cell(s.id, "text"),
                "load": Cell(made(s, "load_used"), "formula"),
                "load_unit": Cell(s.load_unit, "text"),
                "range_check": Cell(made(s, "range_check"), "formula"),
                **cells,
                **_exported(s, made, sheet, row),
            }
        )
    return result


_ALWAYS = ("row_off", "row_on", "weight_off", "weight_on", "marker_load", "marker_off")
"""What charts and other cells read: within the tables whatever was typed."""


def _if_ok(made: Fields, s: Subject, name: str, cell: Cell | None) -> Cell | None:
    """Return a cell that is blank while an input is out of its bounds."""
    if cell is None or name in _ALWAYS or not isinstance(cell.content, Formula):
        return cell
    return Cell(if_ok(made, s, cell.content), cell.kind, cell.digits)


def _band_of_crossover(s: Subject, made: Fields, sheet: Sheet, row: int) -> dict[str, Cell | None]:
    """Return the band of the crossover, which holds for the acceptance that was exported."""
    base = s.prediction.crossover
    if base is None or s.on is None:
        return {}
    exported = made(s, "acceptance_length").equals(float(s.on.lengths[s.on.base]))
    return {
        f"crossover_{name}": Cell(if_(exported, value, ""), "formula")
        for name, value in (("low", base.low), ("high", base.high))
        if value is not None
    }


def key_of(s: Subject) -> str:
    """Return the column of the sheet Sweep in which a scenario's loads stand."""
    return "qps" if s.is_open else "concurrency"


def charted(s: Subject) -> str:
    """Return what is drawn over load: an open loop serves what is asked, only its time differs."""
    return "tpot_ms" if s.is_open else "out_tok_s"


def _at_load(
    s: Subject, made: Fields, sheet: Sheet, row: int, block: Block, arm: str
) -> dict[str, Cell | None]:
    """Read one arm at the load, between two rows of its block."""
    load = made(s, "load_used")
    loads = block.column(key_of(s))
    place, weight = sheet.ref(row, f"row_{arm}"), sheet.ref(row, f"weight_{arm}")

    def read(column: str) -> Formula:
        return between(block.column(column), place, weight)

    low, high = at(loads, place), at(loads, place + 1)
    answer = made(s, "osl_mean_tok")
    # An open loop serves what is asked for; a closed loop what its batch does in a slot.
    served = load * answer if s.is_open else read("batch") * answer / (read("slot_ms") / 1000)
    price = made(s, "gpu_hour_paid_usd")
    usd = price * s.deployment.n_gpus / HOUR_S / sheet.ref(row, f"out_tok_s_{arm}") * MTOK
    formulas = {
        f"row_{arm}": block.place(loads, load),
        f"weight_{arm}": (load - low) / (high - low),
        f"tpot_{arm}_ms": read("tpot_ms"),
        f"ttft_{arm}_ms": read("ttft_ms"),
        f"out_tok_s_{arm}": served,
        f"usd_per_mtok_{arm}": if_(price.is_blank(), "", usd),
    }
    if s.is_open:
        stable = load <= greatest(loads)
        for name in (f"tpot_{arm}_ms", f"ttft_{arm}_ms", f"out_tok_s_{arm}"):
            formulas[name] = if_(stable, formulas[name], "")
        blank = sheet.ref(row, f"out_tok_s_{arm}").is_blank()
        formulas[f"usd_per_mtok_{arm}"] = if_(either(price.is_blank(), blank), "", usd)
    return {name: Cell(formula, "formula") for name, formula in formulas.items()}


def _compared(s: Subject, sheet: Sheet, row: int) -> dict[str, Cell | None]:
    def this(column: str) -> Formula:
        return sheet.ref(row, column)

    if s.is_open:
        ratio = this("tpot_off_ms") / this("tpot_on_ms")
        off, on = (this(f"tpot_{arm}_ms").is_blank() for arm in ("off", "on"))
        # A rate that only the off arm can serve is lost with speculation on.
        ratio = if_(off, "", if_(on, 0, ratio))
    else:
        ratio = this("out_tok_s_on") / this("out_tok_s_off")
    speedup = this("speedup_at_load")
    decision = if_(
        speedup.is_blank(), "",
        if_(speedup < NEUTRAL_LOW, "off", if_(speedup > NEUTRAL_HIGH, "on", "neutral")),
    )  # fmt: skip
    here = point(s)
    cells: dict[str, Cell | None] = {
        "speedup_at_load": Cell(ratio, "formula"),
        "decision_at_load": Cell(decision, "formula"),
    }
    if here.speedup and here.speedup_low is not None and here.speedup_high is not None:
        for name, value in (("low", here.speedup_low), ("high", here.speedup_high)):
            scaled = if_(speedup.is_blank(), "", speedup * (value / here.speedup))
            cells[f"speedup_{name}"] = Cell(scaled, "formula")
    return cells


def _turn(s: Subject, sheet: Sheet, row: int, off: Block, on: Block) -> dict[str, Cell | None]:
    """Return where it turns: the first loss, or the first gain of what starts with a loss."""
    down, up = on.column("loses_from"), on.column("gains_from")
    ratios = on.column("ratio_vs_off")
    load = sheet.ref(row, "crossover_load")
    turn = if_(count(down) > 0, least(down), if_(count(up) > 0, least(up), ""))
    if s.is_open:
        # Where the on arm saves time up to its largest rate, and the off arm serves more.
        most, more = greatest(on.column("qps")), greatest(off.column("qps"))
        last = at(ratios, on.n)
        ends = both(count(down).equals(0), last > 1, most < more)
        turn = if_(last.is_blank(), turn, if_(ends, most, turn))
    state = if_(
        load.is_blank(), if_(greatest(ratios) > 1, "always", "never"), "crosses"
    )  # fmt: skip
    shown = sheet.ref(row, "marker_load")
    beside = off.place(off.column(key_of(s)), shown)
    x0, x1 = at(off.column(key_of(s)), beside), at(off.column(key_of(s)), beside + 1)
    drawn = between(off.column(charted(s)), beside, (shown - x0) / (x1 - x0))
    passing = between(off.column("qps"), beside, (shown - x0) / (x1 - x0))
    place = on.place(on.column(key_of(s)), load)
    loads = on.column(key_of(s))
    weight = (load - at(loads, place)) / (at(loads, place + 1) - at(loads, place))
    there = between(on.column("out_tok_s"), place, weight)
    return {
        "state": Cell(state, "formula"),
        "crossover_load": Cell(turn, "formula"),
        "crossover_out_tok_s": Cell(if_(load.is_blank(), "", there), "formula"),
        "crossover_qps": Cell(if_(load.is_blank(), "", passing), "formula"),
        "marker_load": Cell(if_(load.is_blank(), sheet.ref(row, "load"), load), "formula"),
        "marker_off": Cell(drawn, "formula"),
    }


def _even(s: Subject, sheet: Sheet, row: int, off: Block, on: Block) -> dict[str, Cell | None]:
    """Read the acceptance that breaks even.

    In an open loop that is where as many requests are in flight as with speculation off.
    """
    even = on.column("break_even_al")
    place, weight = sheet.ref(row, "row_on"), sheet.ref(row, "weight_on")
    if s.is_open:
        slot_ms = between(
            off.column("slot_ms"), sheet.ref(row, "row_off"), sheet.ref(row, "weight_off")
        )
        in_flight, loads = sheet.ref(row, "load") * slot_ms / 1000, on.column("concurrency")
        place = on.place(loads, in_flight)
        low, high = at(loads, place), at(loads, place + 1)
        weight = (in_flight - low) / (high - low)
    below, above = at(even, place), at(even, place + 1)
    read = if_(
        below.is_blank(), "", if_(above.is_blank(), below, between(even, place, weight))
    )  # fmt: skip
    if s.is_open:
        read = if_(sheet.ref(row, "tpot_off_ms").is_blank(), "", read)
    return {"break_even_AL": Cell(read, "formula")}


def _exported(s: Subject, made: Fields, sheet: Sheet, row: int) -> dict[str, Cell | None]:
    """Return what only specsim can say, for as long as it was said of these inputs."""
    texts: dict[str, float | str | None] = {
        "best_k_at_load": next((float(b.k) for b in s.prediction.best_k if b.load == s.load), None),
        "verdict": s.prediction.verdict.decision,
        "binding_reason": s.prediction.verdict.reason,
        "recommended_schedule": _schedule(s),
    }
    same = [made(s, "load").equals(s.load)]
    if s.on is not None:
        same.append(made(s, "acceptance_length").equals(float(s.on.lengths[s.on.base])))
    cells: dict[str, Cell | None] = {}
    for name, value in texts.items():
        if value is not None:
            known = sheet.ref(row, f"{name}_exported")
            cells[f"{name}_exported"] = Cell(value)
            cells[name] = Cell(if_(both(*same), known, ""), "formula")
    return cells


def _schedule(s: Subject) -> str | None:
    if s.on is None or s.is_open or not can_schedule(s.deployment):
        return None
    tiers = schedule_of(s.prediction, s.k, s.deployment.speculative_max_num_seqs)
    return None if tiers is None else json.dumps([list(tier) for tier in tiers])
