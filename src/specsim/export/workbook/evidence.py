"""The sheets that say how far to trust the others: sensitivity, measurements, assumptions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specsim.export.tables import described
from specsim.export.workbook.fields import Fields
from specsim.export.workbook.fleet import arms_of
from specsim.export.workbook.sheets import Cell, Column, Sheet
from specsim.export.workbook.subjects import Subject
from specsim.schema.evidence import Evidence
from specsim.schema.sensitivity import Sensitivity, SensitivityPoint

_DIGITS = {"usd_per_mtok_off": "usd", "usd_per_mtok_on": "usd", "crossover": "load",
           "speedup": "ratio", "replicas_off": "count", "replicas_on": "count"}  # fmt: skip
_OUTCOMES = tuple(_DIGITS)


def sensitivity(found: Sequence[Subject]) -> Sheet:
    """Build the sheet of the tornado: each input at its low and high value, the rest as it is."""

    def column(side: str, name: str) -> Column:
        text, _ = described(SensitivityPoint, name)
        return Column(f"{name}_{side}", f"{_blank(text)}; at {side}", _DIGITS[name], 17)

    heads = tuple(
        Column(name, _blank(described(Sensitivity, name)[0]), digits, width)
        for name, digits, width in (
            ("factor", "general", 20),
            ("unit", "general", 12),
            ("low", "three", 10),
            ("base", "three", 10),
            ("high", "three", 10),
        )
    )
    sheet = Sheet(
        "Sensitivity",
        "What each input is worth, at the values that were exported: moved alone to its low and "
        "its high value. Replicas move with the largest stable rate of the closed form.",
        (
            Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
            *heads,
            *(column(side, name) for name in _OUTCOMES for side in ("low", "base", "high")),
            Column("why", "where low and high come from", width=60),
        ),
        frozen_columns=2,
    )
    for s in found:
        for factor in s.sensitivities:
            sheet.add({"scenario_id": Cell(s.id, "text"), **_sensitivity_row(factor)})
    return sheet


def _sensitivity_row(factor: Sensitivity) -> dict[str, Cell | None]:
    cells: dict[str, Cell | None] = {
        name: _known(getattr(factor, name)) for name in ("factor", "unit", "low", "base", "high")
    }
    for side in ("low", "base", "high"):
        outcome = getattr(factor, f"at_{side}")
        cells |= {f"{name}_{side}": _known(getattr(outcome, name)) for name in _OUTCOMES}
    return cells | {"why": _known(factor.why)}


_EVIDENCE_WIDTHS = {"case": 34, "source": 60, "note": 60, "model": 20, "accelerator": 16,
                    "what": 17, "used_for_calibration": 20, "in_interval": 12}  # fmt: skip


def measured(found: Sequence[Subject]) -> Sheet:
    """Build the sheet of measurements against the model, own and published."""
    columns = tuple(
        Column(
            f.name,
            _blank(f.metadata["description"]),
            "three",
            float(_EVIDENCE_WIDTHS.get(f.name, 12)),
        )
        for f in dataclasses.fields(Evidence)
    )  # fmt: skip
    sheet = Sheet(
        "Measured vs model",
        "Own benchmark files (--measurements) and published measurements of this model or GPU "
        "against what specsim says of them: how far off it may be here.",
        (Column("scenario_id", "scenario, as in the sheet Inputs", width=11), *columns),
        frozen_columns=2,
    )
    for s in found:
        for row in s.evidence:
            cells = {f.name: _known(getattr(row, f.name)) for f in dataclasses.fields(Evidence)}
            sheet.add({"scenario_id": Cell(s.id, "text"), **cells})
    return sheet


def _blank(text: str) -> str:
    """Return a description of JSON as one of cells."""
    return text.replace("null:", "blank:").replace("null where", "blank where")


def _known(value: object) -> Cell | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return Cell("y" if value else "n")
    return Cell(float(value) if isinstance(value, int | float) else str(value))


def assumptions(found: Sequence[Subject]) -> Sheet:
    """Build the sheet of everything that was decided for the user, and what figures rest on."""
    sheet = Sheet(
        "Assumptions",
        "What was decided for you, what the figures rest on and how sure that is, and what to know "
        "before trusting them.",
        (
            Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
            Column("kind", "default, constant, price, source or warning", width=11),
            Column("field", "what it is about", width=34),
            Column("value", "what was taken", "three", 40),
            Column("unit", "of the value", width=12),
            Column("source", "where it comes from", width=70),
            Column("confidence", "measured, fitted, assumed, calibrated, or the model's: high, "
                   "medium, low", width=12),
            Column("date", "of the source, ISO", width=12),
        ),
        frozen_columns=3,
    )  # fmt: skip
    for s in found:
        for row in _assumed(s):
            sheet.add({"scenario_id": Cell(s.id, "text"), **{k: _known(v) for k, v in row.items()}})
    return sheet


def _assumed(s: Subject) -> Iterator[dict[str, Any]]:
    traffic = () if not s.traffic_given else s.traffic.assumptions
    if not s.traffic_given:
        yield {
            "kind": "default",
            "field": "traffic",
            "value": f"peak = what one replica without speculation serves at load {s.load:g}",
            "source": "an example: nothing was given; replace it in the sheet Inputs",
            "confidence": "assumed",
        }
    for text in (*traffic, *s.prediction.defaults):
        name, _, value = text.partition(" = ")
        yield {"kind": "default", "field": name, "value": value, "confidence": "assumed"}
    known = s.prediction.provenance
    engine = known["engine"]
    yield {
        "kind": "constant", "field": "engine.host times",
        "value": f"{engine['name']} {engine['version']}", "source": engine["source"],
        "confidence": engine["basis"],
    }  # fmt: skip
    yield {
        "kind": "constant",
        "field": "model",
        "value": s.deployment.model.id,
        "source": known["model"]["source"],
        "confidence": known["model"]["confidence"],
    }
    for name, block in known["constants"].items():
        if block["used"]:
            yield {
                "kind": "constant", "field": f"{known['hardware']}: {name}",
                "source": block["source"], "confidence": block["basis"],
            }  # fmt: skip
    if s.price is not None:
        yield {
            "kind": "price", "field": known["hardware"], "value": s.price.usd_per_gpu_hour,
            "unit": "USD/GPU/h", "source": s.price.source, "date": s.price.as_of,
        }  # fmt: skip
    if known["calibration"]:
        yield {
            "kind": "constant",
            "field": "calibration",
            "value": str(_named(known["calibration"])),
            "confidence": "calibrated",
        }
    yield {"kind": "source", "field": "bands", "value": known["band"]}
    for text in s.prediction.warnings:
        yield {"kind": "warning", "field": "", "value": text}


def _named(calibration: Mapping[str, Any] | str) -> object:
    if isinstance(calibration, str):
        return calibration
    return calibration.get("name") or ", ".join(f"{k}: {v}" for k, v in calibration.items())


def memory(found: Sequence[Subject]) -> Sheet:
    """Build the sheet of where the memory of a replica goes."""
    parts = (
        ("target_weights_gib", "the target's weights"),
        ("drafter_weights_gib", "the drafter's weights"),
        ("kv_cache_gib", "left for the cache"),
        ("activations_gib", "activations, graphs and context"),
        ("not_used_gib", "beyond gpu_memory_utilization"),
    )
    sheet = Sheet(
        "Memory",
        "Where the memory of one replica goes, all GPUs together.",
        (
            Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
            Column("arm", "speculation off or on", width=7),
            Column("label", "for the chart", width=10),
            *(Column(name, text, "three", 19) for name, text in parts),
            Column("usable_gib", "what the driver reports", "three"),
            Column("kv_tokens", "tokens that the cache holds", "count"),
            Column("max_concurrency", "requests of this workload that fit", "count", 16),
        ),
        frozen_columns=2,
    )
    for s in found:
        kv = s.prediction.kv
        for arm in arms_of(s):
            side = kv.baseline if arm == "off" else kv.speculative
            gib = (
                side.weights_gib - side.drafter_weights_gib, side.drafter_weights_gib, side.kv_gib,
                side.other_gib,
            )  # fmt: skip
            left = max(kv.memory_usable_gib - sum(gib), 0.0)
            sheet.add(
                {
                    "scenario_id": Cell(s.id, "text"),
                    "arm": Cell(arm, "text"),
                    "label": Cell(f"{s.id} {arm}", "text"),
                    **{
                        name: Cell(value)
                        for (name, _), value in zip(parts, (*gib, left), strict=True)
                    },
                    "usable_gib": Cell(kv.memory_usable_gib),
                    "kv_tokens": Cell(float(side.kv_tokens)),
                    "max_concurrency": Cell(side.max_concurrency),
                }
            )
    return sheet


def acceptance(found: Sequence[Subject]) -> Sheet:
    """Build the sheet of what acceptance is worth."""
    sheet = Sheet(
        "Acceptance",
        "Speedup over acceptance, as specsim found it at the first, the middle and the last load "
        "of the scenario. It does not change in the sheet.",
        (
            Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
            Column("acceptance_length", "tokens per step", "ratio", 17),
            Column("draft_acceptance_rate", "accepted / drafted", "ratio", 20),
            Column("speedup_first_load", "on / off at the first load", "ratio", 18),
            Column("speedup_middle_load", "on / off at the middle load", "ratio", 19),
            Column("speedup_last_load", "on / off at the last load", "ratio", 17),
        ),
    )
    for s in found:
        for p in s.prediction.acceptance_curve:
            sheet.add(
                {
                    "scenario_id": Cell(s.id, "text"),
                    "acceptance_length": Cell(p.acceptance_length),
                    "draft_acceptance_rate": Cell(p.draft_acceptance_rate),
                    "speedup_first_load": _known(p.first),
                    "speedup_middle_load": _known(p.median),
                    "speedup_last_load": _known(p.last),
                }
            )
    return sheet


def slo(found: Sequence[Subject], made: Fields) -> Sheet:
    """Build the sheet of what is promised, and what one replica keeps at its largest rate."""
    sheet = Sheet(
        "SLO",
        "What was promised, and what one replica reaches at the largest rate that keeps it. It is "
        "fixed: another promise needs other load tests, so export again.",
        (
            Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
            Column("target", "latency and statistic; attainment_pct: share of requests that meet "
                   "all bounds on one", width=20),
            Column("limit", "asked for, ms or %", "three"),
            Column("reached_off", "at the rate of the sheet Capacity, ms or %", "three"),
            Column("reached_on", "the same with speculation on, at the acceptance that was given",
                   "three"),
            Column("kept", "by both arms: y or n", width=10),
            Column("min_tok_s_per_user", "output tokens per second that a bound on TPOT means",
                   "three", 18),
        ),
        frozen_columns=2,
    )  # fmt: skip
    for s in found:
        rows = list(_targets(s))
        for row in rows or [{"target": Cell("none: replicas are loaded up to what they sustain")}]:
            sheet.add({"scenario_id": Cell(s.id, "text"), **row})
    return sheet


def _targets(s: Subject) -> Iterator[dict[str, Cell | None]]:
    off = {r.target: r for r in s.capacity_off.reached}
    on = {} if s.capacity_on is None else {r.target: r for r in s.capacity_on.reached}
    for name, reached in off.items():
        also = on.get(name)
        per_user = 1000.0 / reached.limit if name.startswith("tpot") else None
        yield {
            "target": Cell(name, "fixed"),
            "limit": Cell(reached.limit, "fixed"),
            "reached_off": _known(reached.value),
            "reached_on": None if also is None else _known(also.value),
            "kept": Cell("y" if reached.met and (also is None or also.met) else "n"),
            "min_tok_s_per_user": _known(per_user),
        }
