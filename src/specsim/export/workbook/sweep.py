"""The sheet of both arms by load: what the model gives, and what follows from the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specsim.analysis.slots import SlotTable
from specsim.export.workbook.fields import Fields
from specsim.export.workbook.formulas import (
    Formula,
    Range,
    at,
    between,
    both,
    count_up_to,
    either,
    greatest,
    if_,
    larger,
    smaller,
)
from specsim.export.workbook.sheets import Cell, Column, Sheet
from specsim.export.workbook.speculation import Speculation
from specsim.export.workbook.subjects import Subject
from specsim.units import HOUR_S, MILLI, MTOK

NAME = "Sweep"
ARMS = {"baseline": "off", "speculative": "on"}
_READ = ("slot_ms", "tpot_ms", "ttft_ms")


@dataclass(frozen=True)
class Block:
    """Rows of one arm of one scenario, by rising load."""

    sheet: Sheet
    first: int
    last: int

    def column(self, name: str) -> Range:
        """Refer to a column of the block."""
        return self.sheet.column_range(name, self.first, self.last)

    @property
    def n(self) -> int:
        """Rows of it."""
        return self.last - self.first + 1

    def place(self, key: Range, value: Formula) -> Formula:
        """Return which row to read from, so that it and the next hold a value between them."""
        return larger(1, smaller(self.n - 1, count_up_to(key, value)))


@dataclass(frozen=True)
class Sweep:
    """The sheet and the rows of each scenario."""

    sheet: Sheet
    off: dict[str, Block]
    on: dict[str, Block]


def columns(most_lengths: int) -> tuple[Column, ...]:
    """Return the columns; those that are read between acceptance lengths stand behind."""
    return (
        Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
        Column("arm", "speculation off or on", width=7),
        Column("k", "draft tokens per step", "count", 6),
        Column("concurrency", "requests in the system; in flight, of an open loop", "load", 13),
        Column("batch", "of these, running", "load"),
        Column("qps", "requests per second of a replica", "three"),
        Column("tokens_per_step", "per request", "three", 16),
        Column("bound", "largest share of the step", width=15),
        Column("step_ms", "one engine step without prompts", "ms"),
        Column("draft_ms", "of it, drafting", "ms"),
        Column("verify_ms", "of it, the target's pass", "ms"),
        Column("host_ms", "of it, host time around the passes", "ms"),
        Column("slot_ms", "time for which a request holds its place in the batch", "ms", 14),
        Column("tpot_ms", "mean time per output token", "ms"),
        Column("itl_ms", "mean time between streamed chunks", "ms"),
        Column("ttft_ms", "mean time to first token, waiting included", "ms"),
        Column("e2e_s", "mean time of a request", "three"),
        Column("out_tok_s", "output tokens per second of a replica", "tok_s", 13),
        Column("out_tok_s_per_user", "1000 / tpot_ms", "tok_s", 18),
        Column("out_tok_s_per_gpu", "out_tok_s / GPUs of a replica", "tok_s", 18),
        Column("kv_used_pct", "of the requests that fit in the cache", "pct", 13),
        Column("usd_per_mtok", "price of a million output tokens at this load", "usd", 14),
        Column("ratio_vs_off", "on / off: out_tok_s; time per token where loads are rates",
               "ratio", 13),
        Column("ratio_low", "10th percentile, by the scenario's band", "ratio"),
        Column("ratio_high", "90th percentile, by the scenario's band", "ratio"),
        Column("break_even_al", "acceptance length at which on = off", "three", 15),
        Column("best_k", "draft tokens that serve this load fastest; 0: off", "count", 9),
        Column("read_error_pct", "largest error of reading slot_ms and tpot_ms between acceptance "
               "lengths, or between this load and the next", "pct2", 15),
        Column("read_error_ttft_pct", "the same of ttft_ms, which jumps where prompts take one "
               "more step", "pct2", 20),
        Column("loses_from", "load at which a gain turns into a loss, if before this row", "load",
               12),
        Column("gains_from", "load at which a loss turns into a gain, if before this row", "load",
               12),
        # A cell of its own: a formula that repeats it would be longer than Excel takes.
        Column("even_slot_ms", "slot_ms at which on = off", "ms", 14, folded=True),
        *(
            Column(f"{name}_{i}", f"{name} at acceptance length {i} of the sheet Speculation", "ms",
                   11, folded=True)
            for name in _READ
            for i in range(1, most_lengths + 1)
        ),
    )  # fmt: skip


def sweep(found: Sequence[Subject], made: Fields, speculation: Speculation) -> Sweep:
    """Build the sheet."""
    most = max((s.on.lengths.size for s in found if s.on is not None), default=1)
    sheet = Sheet(
        NAME,
        "Both arms by load. The model's own columns are green; what follows from them and the "
        "inputs is black. Rows end where no more requests may run. Columns of each acceptance "
        "length are folded behind.",
        columns(most),
        frozen_columns=4,
    )
    result = Sweep(sheet, {}, {})
    for s in found:
        result.off[s.id] = _block(sheet, s, s.off, made, None, None)
        if s.on is not None:
            result.on[s.id] = _block(sheet, s, s.on, made, speculation, result.off[s.id])
    return result


def _block(
    sheet: Sheet,
    s: Subject,
    table: SlotTable,
    made: Fields,
    speculation: Speculation | None,
    off: Block | None,
) -> Block:
    first = len(sheet.rows)
    block = Block(sheet, first, first + table.loads.size - 1)
    bands = _bands(s, table)
    best = {b.load: b.k for b in s.prediction.best_k}
    for i in range(table.loads.size):
        cells = _model(s, table, i)
        row = first + i
        if off is not None:
            assert speculation is not None
            cells |= _read_between(sheet, row, s, table, i, speculation)
        cells |= _service(sheet, row, s, made)
        if off is not None:
            cells |= _against_off(sheet, row, i, s, off, speculation, bands[i])
            k = best.get(float(table.loads[i])) if not s.is_open else None
            cells["best_k"] = None if k is None else Cell(float(k))
        sheet.add(cells)
    return block


def _model(s: Subject, t: SlotTable, i: int) -> dict[str, Cell | None]:
    def ms(value: float) -> Cell:
        return Cell(float(value) / MILLI)

    on = t.arm == "speculative"
    cells: dict[str, Cell | None] = {
        "scenario_id": Cell(s.id, "text"),
        "arm": Cell(ARMS[t.arm], "text"),
        "k": Cell(float(s.k if on else 0), "fixed"),
        "concurrency": Cell(float(t.loads[i]), "fixed"),
        "batch": Cell(float(t.batch[i])),
        "tokens_per_step": Cell(float(t.tokens_per_step[i])),
        "bound": Cell(t.bound[i]),
        "step_ms": ms(t.step_s[i]),
        "draft_ms": ms(t.draft_s[i]) if on else None,
        "verify_ms": ms(t.verify_s[i]),
        "host_ms": ms(t.host_s[i]) if on else None,
        "kv_used_pct": Cell(100.0 * float(t.kv_used[i])),
        "read_error_pct": Cell(100.0 * float(t.error[i])),
        "read_error_ttft_pct": Cell(100.0 * float(t.ttft_error[i])),
    }
    values = dict(zip(_READ, (t.slot_s, t.tpot_s, t.ttft_s), strict=True))
    if not on:
        return cells | {name: ms(by_length[0, i]) for name, by_length in values.items()}
    for name, by_length in values.items():
        cells |= {f"{name}_{j + 1}": ms(by_length[j, i]) for j in range(t.lengths.size)}
    return cells


def _read_between(
    sheet: Sheet, row: int, s: Subject, t: SlotTable, i: int, speculation: Speculation
) -> dict[str, Cell | None]:
    """Read what depends on acceptance at the length of the inputs."""
    place, weight = speculation.place(s), speculation.weight(s)
    cells: dict[str, Cell | None] = {
        name: Cell(
            between(sheet.row_range(row, f"{name}_1", f"{name}_{t.lengths.size}"), place, weight),
            "formula",
        )
        for name in _READ
    }
    if not s.deployment.scenario.speculation.adaptive_verification:
        cells["tokens_per_step"] = Cell(speculation.length(s), "formula")
    return cells


def _service(sheet: Sheet, row: int, s: Subject, made: Fields) -> dict[str, Cell | None]:
    """Follow throughput, latency and price from the time in a slot."""

    def this(name: str) -> Formula:
        return sheet.ref(row, name)

    answer = made(s, "osl_mean_tok")
    price = made(s, "gpu_hour_paid_usd")
    per_second = price * s.deployment.n_gpus / HOUR_S
    formulas = {
        "qps": this("batch") / (this("slot_ms") * MILLI),
        "itl_ms": this("tpot_ms") * this("tokens_per_step"),
        "e2e_s": (this("ttft_ms") + this("tpot_ms") * (answer - 1)) * MILLI,
        "out_tok_s": this("qps") * answer,
        "out_tok_s_per_user": 1 / (this("tpot_ms") * MILLI),
        "out_tok_s_per_gpu": this("out_tok_s") / s.deployment.n_gpus,
        "usd_per_mtok": if_(price.is_blank(), "", per_second / this("out_tok_s") * MTOK),
    }
    return {name: Cell(formula, "formula") for name, formula in formulas.items()}


def _against_off(
    sheet: Sheet,
    row: int,
    i: int,
    s: Subject,
    off: Block,
    speculation: Speculation | None,
    band: tuple[float, float] | None,
) -> dict[str, Cell | None]:
    assert speculation is not None

    def this(name: str) -> Formula:
        return sheet.ref(row, name)

    if s.is_open:
        ratio = _ratio_at_rate(off, this)
        # At the same rate and the same time per token, as many requests are in flight.
        in_flight = off.column("concurrency")
        place = off.place(in_flight, this("concurrency"))
        low, high = at(in_flight, place), at(in_flight, place + 1)
        even = between(off.column("slot_ms"), place, (this("concurrency") - low) / (high - low))
    else:
        there = off.first + i
        ratio = this("out_tok_s") / sheet.ref(there, "out_tok_s")
        # Where more requests run with one arm, each may take longer in proportion.
        even = sheet.ref(there, "slot_ms") * this("batch") / sheet.ref(there, "batch")
    cells: dict[str, Cell | None] = {
        "ratio_vs_off": Cell(ratio, "formula"),
        "even_slot_ms": Cell(even, "formula"),
        "break_even_al": Cell(
            _break_even(sheet, row, this("even_slot_ms"), s, speculation), "formula"
        ),
    }
    if band is not None:
        here = this("ratio_vs_off")
        low, high = (if_(here.is_blank(), "", here * factor) for factor in band)
        cells |= {"ratio_low": Cell(low, "formula"), "ratio_high": Cell(high, "formula")}
    if i > 0:
        load = "qps" if s.is_open else "concurrency"
        for name, turns in _turns(sheet, row, load):
            cells[name] = Cell(turns, "formula")
    return cells


def _ratio_at_rate(off: Block, this: Callable[[str], Formula]) -> Formula:
    """Return time per token off / on at the rate that this row's batch holds; blank: off cannot."""
    rates = off.column("qps")
    place = off.place(rates, this("qps"))
    low, high = at(rates, place), at(rates, place + 1)
    tpot = between(off.column("tpot_ms"), place, (this("qps") - low) / (high - low))
    return if_(this("qps") > greatest(rates), "", tpot / this("tpot_ms"))


def _break_even(sheet: Sheet, row: int, even: Formula, s: Subject, sp: Speculation) -> Formula:
    """Return the acceptance length at which a slot takes as long as `even`; blank: none does.

    Time in a slot is a line in 1 / length between the lengths of the table: it is read backwards.
    """
    assert s.on is not None
    n = s.on.lengths.size
    slots = sheet.row_range(row, "slot_ms_1", f"slot_ms_{n}")
    longest, shortest = at(slots, 1), at(slots, n)
    # Times fall from left to right: those above the time that breaks even come first.
    above = n - count_up_to(slots, even)
    place = larger(1, smaller(n - 1, above))
    low, high = at(slots, place), at(slots, place + 1)
    share = (low - even) / (low - high)
    lengths = sp.lengths(s)
    inverse = (1 - share) / at(lengths, place) + share / at(lengths, place + 1)
    return if_(even < shortest, "", if_(even >= longest, 1, 1 / inverse))


def _turns(sheet: Sheet, row: int, load: str) -> Iterator[tuple[str, Formula]]:
    """Return where between the row before and this one the ratio passes 1, down and up."""
    before, here = (sheet.ref(r, "ratio_vs_off") for r in (row - 1, row))
    x0, x1 = (sheet.ref(r, load) for r in (row - 1, row))
    turn = x0 * (x1 / x0) ** ((1 - before) / (here - before))
    known = either(before.is_blank(), here.is_blank())
    yield "loses_from", if_(known, "", if_(both(before > 1, here <= 1), turn, ""))
    yield "gains_from", if_(known, "", if_(both(before <= 1, here > 1), turn, ""))


def _bands(s: Subject, table: SlotTable) -> list[tuple[float, float] | None]:
    """Return the band of each row as factors of the ratio, read between the scenario's loads."""
    known = [
        (p.request_rate if s.is_open else p.concurrency, p.speedup_low / p.speedup,
         p.speedup_high / p.speedup)
        for p in s.prediction.points
        if p.speedup and p.speedup_low is not None and p.speedup_high is not None
    ]  # fmt: skip
    if not known:
        return [None] * table.loads.size
    loads, low, high = (np.array(column, dtype=float) for column in zip(*known, strict=True))
    at_rows = table.loads / table.slot_s[table.base] if s.is_open else table.loads
    x = np.log(at_rows)
    return list(
        zip(
            (float(v) for v in np.interp(x, np.log(loads), low)),
            (float(v) for v in np.interp(x, np.log(loads), high)),
            strict=True,
        )
    )
