"""Native charts over the sheets: they follow when an input is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specsim.export.workbook.crossover import Crossover, charted, key_of
from specsim.export.workbook.fleet import Rows, arms_of
from specsim.export.workbook.sheets import FIRST_ROW, Sheet
from specsim.export.workbook.speculation import loads_of
from specsim.export.workbook.subjects import Subject
from specsim.export.workbook.sweep import Block, Sweep

NAME = "Charts"
_OFF, _ON, _BAND, _MARK, _HERE = "#5B6770", "#0072B2", "#9CC7E4", "#D55E00", "#000000"
"""Off, on, its band, the crossover, the load that is looked at: told apart by the colour-blind."""
_PARTS = ("#5B6770", "#D55E00", "#0072B2", "#E69F00", "#E5E5E5")
_WIDTH, _HEIGHT = 620, 340
_ROWS_EACH, _COLUMNS_EACH = 18, 10
_SMALL = {"size": 9}


@dataclass(frozen=True)
class Drawn:
    """The sheets that are drawn."""

    found: Sequence[Subject]
    swept: Sweep
    crossed: Crossover
    acceptance: Sheet
    memory: Sheet
    cost: Rows
    sensitivity: Sheet

    def __call__(self, book: Any) -> None:
        """Add the sheet of charts to an open workbook."""
        page = book.add_worksheet(NAME)
        page.hide_gridlines(2)
        page.set_landscape()
        page.set_paper(9)
        page.fit_to_pages(1, 0)
        charts = [
            _memory(book, self.memory, "Memory of a replica, off and on"),
            _cost(book, self.cost.sheet, self.found),
        ]
        for s in self.found:
            charts += self._of(book, s)
        rows = range(2 * _ROWS_EACH, _ROWS_EACH * (len(charts) + 1) // 2, 2 * _ROWS_EACH)
        page.set_h_pagebreaks(list(rows))
        for i, chart in enumerate(charts):
            chart.set_size({"width": _WIDTH, "height": _HEIGHT})
            page.insert_chart(
                (i // 2) * _ROWS_EACH, (i % 2) * _COLUMNS_EACH, chart, {"object_position": 2}
            )

    def _of(self, book: Any, s: Subject) -> list[Any]:
        charts = [_by_load(book, s, self.swept, self.crossed)]
        if s.on is not None:
            charts += [
                _speedup(book, s, self.swept.on[s.id], self.crossed),
                _acceptance(book, s, self.acceptance, self.crossed),
            ]
        rows = [i for i, row in enumerate(self.sensitivity.rows)
                if row["scenario_id"].value == s.id]  # fmt: skip
        if rows:
            charts.append(_tornado(book, s, self.sensitivity, rows))
        return charts


def _cells(sheet: Sheet, column: str, first: int, last: int) -> list[Any]:
    place = sheet.place(column)
    return [sheet.name, FIRST_ROW + first, place, FIRST_ROW + last, place]


def _block(block: Block, column: str) -> list[Any]:
    return _cells(block.sheet, column, block.first, block.last)


def _line(name: str, x: list[Any], y: list[Any], colour: str, **line: Any) -> dict[str, Any]:
    return {
        "name": name, "categories": x, "values": y, "marker": {"type": "none"},
        "line": {"color": colour, "width": 2.25, **line},
    }  # fmt: skip


def _mark(
    name: str, x: list[Any], y: list[Any], colour: str, shape: str, size: int
) -> dict[str, Any]:
    return {
        "name": name, "categories": x, "values": y, "line": {"none": True},
        "marker": {"type": shape, "size": size, "fill": {"color": colour},
                   "border": {"color": "#FFFFFF"}},
    }  # fmt: skip


def _load_axis(s: Subject) -> dict[str, Any]:
    name = "requests/s per replica" if s.is_open else "concurrent requests per replica (log scale)"
    axis: dict[str, Any] = {
        "name": name, "name_font": _SMALL, "num_font": _SMALL,
        "major_gridlines": {"visible": True, "line": {"color": "#E5E5E5"}},
    }  # fmt: skip
    if not s.is_open:
        axis |= {"log_base": 2, "min": 1, "max": float(s.off.loads[-1]), "num_format": "#,##0"}
    else:
        axis |= {"min": 0, "num_format": "0.0"}
    return axis


def _value_axis(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "name_font": _SMALL, "num_font": _SMALL, "min": 0,
        "major_gridlines": {"visible": True, "line": {"color": "#E5E5E5"}}, **more,
    }  # fmt: skip


def _titled(chart: Any, text: str) -> Any:
    chart.set_title({"name": text, "name_font": {"size": 11, "bold": True}, "overlay": False})
    chart.set_legend({"position": "bottom", "font": _SMALL})
    chart.show_blanks_as("gap")
    chart.show_hidden_data()  # markers stand in folded columns
    return chart


def _by_load(book: Any, s: Subject, swept: Sweep, crossed: Crossover) -> Any:
    chart = book.add_chart({"type": "scatter", "subtype": "straight"})
    key, value = key_of(s), charted(s)
    off = swept.off[s.id]
    chart.add_series(_line("off", _block(off, key), _block(off, value), _OFF))
    row = crossed.rows[s.id]
    if s.on is not None:
        on = swept.on[s.id]
        chart.add_series(_line("on", _block(on, key), _block(on, value), _ON))
        x, y = (_cells(crossed.sheet, c, row, row) for c in ("marker_load", "marker_off"))
        chart.add_series(_mark("crossover, where there is one", x, y, _MARK, "diamond", 9))
    shown = "tpot_off_ms" if s.is_open else "out_tok_s_off"
    x, y = (_cells(crossed.sheet, c, row, row) for c in ("load", shown))
    chart.add_series(_mark("load of the sheet Inputs", x, y, _HERE, "circle", 10))
    chart.set_x_axis(_load_axis(s))
    if s.is_open:
        chart.set_y_axis(_value_axis("ms per output token", num_format="#,##0"))
        return _titled(chart, f"{s.id} {_short(s.name)}: time per token")
    chart.set_y_axis(_value_axis("output tokens/s per replica", num_format="#,##0"))
    return _titled(chart, f"{s.id} {_short(s.name)}: throughput")


def _speedup(book: Any, s: Subject, on: Block, crossed: Crossover) -> Any:
    chart = book.add_chart({"type": "scatter", "subtype": "straight"})
    key = key_of(s)
    for column, name in (("ratio_low", "10th percentile"), ("ratio_high", "90th percentile")):
        chart.add_series(
            _line(name, _block(on, key), _block(on, column), _BAND, dash_type="dash", width=1.25)
        )
    chart.add_series(_line("on / off", _block(on, key), _block(on, "ratio_vs_off"), _ON))
    row = crossed.rows[s.id]
    x, y = (_cells(crossed.sheet, c, row, row) for c in ("load", "speedup_at_load"))
    chart.add_series(_mark("load of the sheet Inputs", x, y, _HERE, "circle", 7))
    chart.set_x_axis(_load_axis(s) | {"label_position": "low"})
    # The axis stands at 1: above it speculation pays.
    chart.set_y_axis(_value_axis("speedup, on / off (axis at 1)", num_format="0.0", crossing=1))
    return _titled(chart, f"{s.id} {_short(s.name)}: speedup")


def _acceptance(book: Any, s: Subject, sheet: Sheet, crossed: Crossover) -> Any:
    rows = [i for i, row in enumerate(sheet.rows) if row["scenario_id"].value == s.id]
    chart = book.add_chart({"type": "scatter", "subtype": "straight"})
    loads = loads_of(s)
    unit = "/s" if s.is_open else ""
    colours = {"first": "#56B4E9", "middle": _ON, "last": "#004C7F"}
    # One load alone is all three.
    known: dict[float, str] = {}
    for load, name in zip((loads[0], loads[len(loads) // 2], loads[-1]), colours, strict=True):
        known.setdefault(load, name)
    for load, name in known.items():
        x, y = (_cells(sheet, c, rows[0], rows[-1])
                for c in ("acceptance_length", f"speedup_{name}_load"))  # fmt: skip
        chart.add_series(_line(f"at load {load:g}{unit}", x, y, colours[name]))
    row = crossed.rows[s.id]
    x, y = (_cells(crossed.sheet, c, row, row) for c in ("acceptance_length", "speedup_at_load"))
    chart.add_series(_mark("inputs", x, y, _HERE, "circle", 7))
    chart.set_x_axis(
        {
            "name": "acceptance length, tokens per step", "name_font": _SMALL, "num_font": _SMALL,
            "min": 1, "max": float(s.on.lengths[-1]) if s.on is not None else None,
            "num_format": "0.0", "label_position": "low",
            "major_gridlines": {"visible": True, "line": {"color": "#E5E5E5"}},
        }
    )  # fmt: skip
    chart.set_y_axis(_value_axis("speedup, on / off (axis at 1)", num_format="0.0", crossing=1))
    return _titled(chart, f"{s.id} {_short(s.name)}: what acceptance is worth")


def _memory(book: Any, sheet: Sheet, title: str) -> Any:
    chart = book.add_chart({"type": "bar", "subtype": "stacked"})
    names = {
        "target_weights_gib": "weights", "drafter_weights_gib": "drafter",
        "kv_cache_gib": "KV cache", "activations_gib": "activations, graphs",
        "not_used_gib": "not used",
    }  # fmt: skip
    last = len(sheet.rows) - 1
    for (column, name), colour in zip(names.items(), _PARTS, strict=True):
        chart.add_series(
            {
                "name": name, "categories": _cells(sheet, "label", 0, last),
                "values": _cells(sheet, column, 0, last), "fill": {"color": colour}, "gap": 40,
            }
        )  # fmt: skip
    chart.set_x_axis(_value_axis("GiB, all GPUs of a replica", num_format="#,##0"))
    # From the top down, and the scale below.
    chart.set_y_axis({"reverse": True, "crossing": "max", "num_font": _SMALL})
    return _titled(chart, title)


def _cost(book: Any, sheet: Sheet, found: Sequence[Subject]) -> Any:
    chart = book.add_chart({"type": "column"})
    arms = [arm for s in found for arm in arms_of(s)]
    last = len(sheet.rows) - 1
    chart.add_series(
        {
            "name": "USD a month",
            "categories": _cells(sheet, "label", 0, last),
            "values": _cells(sheet, "monthly_total_usd", 0, last),
            "points": [{"fill": {"color": _OFF if arm == "off" else _ON}} for arm in arms],
            "data_labels": {"value": True, "num_format": "#,##0", "font": _SMALL},
            "gap": 60,
        }
    )
    chart.set_x_axis({"num_font": _SMALL})
    chart.set_y_axis(_value_axis("USD a month", num_format="#,##0"))
    _titled(chart, "Cost of the fleet, speculation off and on")
    chart.set_legend({"none": True})
    return chart


def _tornado(book: Any, s: Subject, sheet: Sheet, rows: list[int]) -> Any:
    chart = book.add_chart({"type": "bar"})
    arm = "off" if s.on is None else "on"
    dollars = sheet.rows[rows[0]].get(f"usd_per_mtok_{arm}_base")
    quantity, name = (
        (f"usd_per_mtok_{arm}", f"USD per million output tokens, {arm}")
        if dollars is not None
        else ("speedup", "speedup, on / off")
    )
    base = sheet.rows[rows[0]].get(f"{quantity}_base")
    for side, colour in (("low", "#56B4E9"), ("high", "#E69F00")):
        chart.add_series(
            {
                "name": f"input at its {side} value",
                "categories": _cells(sheet, "factor", rows[0], rows[-1]),
                "values": _cells(sheet, f"{quantity}_{side}", rows[0], rows[-1]),
                "fill": {"color": colour}, "overlap": 100, "gap": 40,
            }
        )  # fmt: skip
    axis = _value_axis(f"{name}, at load {s.load:g}", num_format="0.00")
    values = [
        float(cell.value)
        for i in rows
        for side in ("low", "base", "high")
        if (cell := sheet.rows[i].get(f"{quantity}_{side}")) and cell.value is not None
    ]
    if base is not None and base.value is not None:
        room = 0.1 * (max(values) - min(values))
        axis |= {"crossing": float(base.value), "min": min(values) - room,
                 "max": max(values) + room}  # fmt: skip
    chart.set_x_axis(axis)
    chart.set_y_axis(
        {"reverse": True, "crossing": "max", "label_position": "low", "num_font": _SMALL}
    )
    return _titled(chart, f"{s.id} {_short(s.name)}: what each input is worth")


def _short(name: str) -> str:
    shown = name if len(name) <= 44 else name[:43] + "…"
    # XlsxWriter takes a title such as chat!H100 for a reference to a cell; the mark is not seen.
    return shown.replace("!", "!\u200b")
