"""The sheet that a planner types into: a field per row, a scenario per column."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel

from specsim.analysis.plan.fleet import GPUS_PER_SERVER
from specsim.export.workbook.fields import Field, Fields, fields_sheet
from specsim.export.workbook.formulas import (
    Formula,
    Operand,
    both,
    either,
    if_,
    larger,
    not_,
    smaller,
)
from specsim.export.workbook.sheets import Allowed, Cell, Kind
from specsim.export.workbook.subjects import Subject
from specsim.schema.prices import LEAST_USD, MOST_USD
from specsim.schema.scenario import LEAST_RATE, Workload
from specsim.schema.traffic import Traffic
from specsim.units import HOUR_S

NAME = "Inputs"
_TINY = 1e-6
_HUGE = 1e15
_PERCENT = Allowed(0.0, 100.0)
_USD = Allowed(0.0, 1e9)
_OPTIONAL = ("gpu_hour_usd", "api_usd_per_mtok_output", "active_users")
"""Inputs that may be blank."""


def inputs(found: Sequence[Subject]) -> Fields:
    """Build the sheet."""
    made = fields_sheet(
        NAME,
        "Type into the blue and amber cells; every other sheet follows. Amber ones were assumed: "
        "replace them first. Grey ones are what specsim computed from: to change them, export "
        "again.",
        found,
    )
    typed = _typed()
    made.add((*typed, *_fixed()), found)
    made.add((_check(made, typed),), found)
    made.add(_computed(made), found)
    return made


def _typed() -> tuple[Field, ...]:
    def traffic(field: str, unit: str, read: Callable[[Traffic], float], **more: object) -> Field:
        """Return a field of the traffic; what nobody gave is an assumption."""
        bounds = allowed(Traffic, field, whole=field == "spares")

        def cell(s: Subject) -> Cell:
            kind: Kind = "input" if s.traffic_given and _given(s.traffic, field) else "assumption"
            digits = "count" if field == "requests_per_month" else ""
            return Cell(read(s.traffic), kind, digits, allowed=bounds)

        text = str(more.get("description") or _described(field))
        return Field(field, unit, text, cell)

    return (
        Field("name", "", "of the scenario, for your records", lambda s: Cell(s.name, "input")),
        Field("owner_team", "", "for your records: nothing is computed from it", _blank_text),
        Field("notes", "", "for your records: nothing is computed from it", _blank_text),
        traffic("requests_per_month", "requests", _requests_per_month,
                description="of all replicas together, today"),
        traffic("peak_to_avg", "", _peak_to_avg, description="peak / average of the rate"),
        traffic("hours_per_day", "h", lambda t: t.hours_per_day),
        traffic("days_per_month", "days", lambda t: t.days_per_month),
        traffic("growth_pct", "% a year", lambda t: t.growth_pct),
        traffic("growth_years", "years", lambda t: t.growth_years),
        Field("target_utilization_pct", "%", "share of the rate at the SLO that a replica gets at "
               "the peak: 70 for interactive, 85 for internal, 95 for batch traffic",
               _target_utilization),
        traffic("spares", "replicas", lambda t: float(t.spares)),
        Field("load", "see load_unit", "of one replica: the load that the sheet Crossover looks at",
               _load),
        Field("acceptance_length", "tokens/step",
               "tokens that a step yields per request, the target's own included", _acceptance),
        Field("gpu_hour_usd", "USD/GPU/h", "price of one GPU for an hour", _gpu_price),
        Field("commit_discount_pct", "%", "off that price, for a commitment",
               lambda s: Cell(0.0, "assumption", allowed=_PERCENT)),
        Field("software_usd_per_month", "USD/month", "licences and support of the fleet",
               lambda s: Cell(0.0, "assumption", allowed=_USD)),
        Field("hosting_usd_per_month", "USD/month", "hosting, storage and network of the fleet",
               lambda s: Cell(0.0, "assumption", allowed=_USD)),
        Field("drafter_training_usd", "USD, once", "to train the drafter: what is paid back",
               lambda s: None if s.on is None else Cell(0.0, "assumption", allowed=_USD)),
        Field("api_usd_per_mtok_output", "USD/Mtok", "what a hosted API asks for a million output "
               "tokens; blank: not compared", lambda s: Cell(None, "input", allowed=_USD)),
        Field("active_users", "users", "that the requests come from; blank: no cost per user",
               lambda s: Cell(None, "input", allowed=Allowed(_TINY, _HUGE))),
        Field("gpus_per_server", "GPUs", "in one server",
               _gpus_per_server),
    )  # fmt: skip


def _fixed() -> tuple[Field, ...]:
    def workload(field: str, label: str, unit: str) -> Field:
        text = Workload.model_fields[field].description or ""
        return Field(
            label, unit, text.replace(" [tokens]", ""),
            lambda s: Cell(getattr(s.deployment.scenario.workload, field), "fixed"),
        )  # fmt: skip

    return (
        workload("input_tokens", "isl_mean_tok", "tokens"),
        workload("input_tokens_p95", "isl_p95_tok", "tokens"),
        workload("output_tokens", "osl_mean_tok", "tokens"),
        workload("output_tokens_p95", "osl_p95_tok", "tokens"),
        workload("cached_prompt_tokens", "prefix_cache_hit_tok", "tokens"),
        workload("burstiness", "burstiness", ""),
        Field("temperature", "", "of sampling: acceptance was given at it",
               lambda s: Cell(s.deployment.scenario.workload.temperature, "fixed")),
        Field("load_unit", "", "what load counts",
               lambda s: Cell(s.load_unit, "fixed")),
        Field("load_low", "see load_unit", "smallest load of the sheet Sweep",
               lambda s: Cell(_load_range(s)[0], "fixed")),
        Field("load_high", "see load_unit", "largest load of the sheet Sweep",
               lambda s: Cell(_load_range(s)[1], "fixed")),
        Field("acceptance_length_high", "tokens/step", "with every draft token accepted",
               lambda s: None if s.on is None else Cell(float(s.on.lengths[-1]), "fixed")),
    )  # fmt: skip


def _computed(made: Fields) -> tuple[Field, ...]:
    def grown(s: Subject) -> Formula:
        growth = 1.0 + made(s, "growth_pct") / 100
        return growth ** made(s, "growth_years")

    def avg(s: Subject) -> Cell:
        hours = made(s, "days_per_month") * made(s, "hours_per_day")
        rate = made(s, "requests_per_month") * grown(s) / (hours * HOUR_S)
        return Cell(if_ok(made, s, rate), "formula", "three")

    def peak(s: Subject) -> Cell:
        rate = made(s, "avg_qps") * made(s, "peak_to_avg")
        return Cell(if_ok(made, s, rate), "formula", "three")

    def month(s: Subject) -> Cell:
        requests = made(s, "requests_per_month") * grown(s)
        return Cell(if_ok(made, s, requests), "formula", "count")

    def draft_rate(s: Subject) -> Cell | None:
        if s.on is None or s.deployment.acceptance is None:
            return None
        model = s.deployment.acceptance
        drafted = model.proposal_rate * model.drafted_tokens()
        rate = (made(s, "acceptance_length_used") - 1) / drafted
        return Cell(if_ok(made, s, rate), "formula", "ratio")

    def price(s: Subject) -> Cell:
        paid = made(s, "gpu_hour_usd") * (1 - made(s, "commit_discount_pct") / 100)
        unknown = made(s, "gpu_hour_usd").is_blank()
        return Cell(if_ok(made, s, if_(unknown, "", paid)), "formula", "usd")

    def used(
        field: str, low: Callable[[Subject], Operand], high: str
    ) -> Callable[[Subject], Cell | None]:
        """Return what the tables are read at: never outside them."""

        def cell(s: Subject) -> Cell | None:
            if field == "acceptance_length" and s.on is None:
                return None
            value = made(s, field)
            within = larger(low(s), smaller(value, made(s, high)))
            return Cell(if_(value.is_number(), within, low(s)), "formula", "exact")

        return cell

    return (
        Field("acceptance_length_used", "tokens/step", "what the tables are read at: within them",
              used("acceptance_length", lambda s: 1.0, "acceptance_length_high")),
        Field("load_used", "see load_unit", "what the tables are read at: within them",
              used("load", lambda s: made(s, "load_low"), "load_high")),
        Field("monthly_requests", "requests", "of a month, grown", month),
        Field("avg_qps", "requests/s", "average in the hours of operation, grown", avg),
        Field("peak_qps", "requests/s", "at the peak, grown", peak),
        Field("draft_acceptance_rate", "", "accepted / drafted at this acceptance length, as vLLM "
               "prints it", draft_rate),
        Field("gpu_hour_paid_usd", "USD/GPU/h", "price after the discount", price),
    )  # fmt: skip


def if_ok(made: Fields, s: Subject, formula: Operand) -> Formula:
    """Return a formula that is blank while an input is out of its bounds."""
    return if_(made(s, "range_check").equals("ok"), formula, "")


def _check(made: Fields, typed: Sequence[Field]) -> Field:
    """Return the row that says which input is out of its bounds."""

    def cell(s: Subject) -> Cell:
        said: Formula | str = "ok"
        for field in reversed(typed):
            known = field.cell(s)
            if known is not None and known.allowed is not None:
                bad = _bad(made(s, field.id), known.allowed, optional=field.id in _OPTIONAL)
                said = if_(bad, _complaint(s, field.id, known.allowed), said)
        return Cell(said, "formula")

    return Field(
        "range_check", "", "ok, or which input is outside its bounds: what follows is blank then",
        cell,
    )  # fmt: skip


def _bad(value: Formula, allowed: Allowed, *, optional: bool) -> Formula:
    outside = either(not_(value.is_number()), value < allowed.low, value > allowed.high)
    return both(not_(value.is_blank()), outside) if optional else outside


def _complaint(s: Subject, field: str, allowed: Allowed) -> str:
    text = f"{field}: expected {allowed.low:.6g} to {allowed.high:.6g}"
    if field != "load":
        return text
    if s.is_open:
        return f"{text}; a replica serves no more"
    return f"{text}; specsim export again with another load"


def _described(field: str) -> str:
    return Traffic.model_fields[field].description or ""


def _given(traffic: Traffic, field: str) -> bool:
    """Return whether a field was given, or follows from what was."""
    known = traffic.model_fields_set
    average = bool(known & {"avg_qps", "requests_per_month"})
    if field == "requests_per_month":
        return average
    if field == "peak_to_avg":
        return field in known or (average and "peak_qps" in known)
    return field in known


def allowed(record: type[BaseModel], field: str, *, whole: bool = False) -> Allowed:
    """Return the bounds that a schema sets on a field."""
    low, high = -_HUGE, _HUGE
    for rule in record.model_fields[field].metadata:
        if isinstance(rule, Ge):
            low = float(rule.ge)  # type: ignore[arg-type]
        elif isinstance(rule, Gt):
            low = float(rule.gt) + _TINY  # type: ignore[arg-type]
        elif isinstance(rule, Le):
            high = float(rule.le)  # type: ignore[arg-type]
        elif isinstance(rule, Lt):
            high = float(rule.lt) - _TINY  # type: ignore[arg-type]
    return Allowed(low, high, whole)


def _blank_text(subject: Subject) -> Cell:
    return Cell("", "input")


def _requests_per_month(t: Traffic) -> float:
    if t.requests_per_month is not None:
        return t.requests_per_month
    return t.avg_rate / t.growth * t.days_per_month * t.hours_per_day * HOUR_S


def _peak_to_avg(t: Traffic) -> float:
    return t.peak_rate / t.avg_rate


def _target_utilization(s: Subject) -> Cell:
    given = s.traffic_given and "target_utilization" in s.traffic.model_fields_set
    kind: Kind = "input" if given else "assumption"
    return Cell(100.0 * s.traffic.target_utilization, kind, allowed=Allowed(1.0, 100.0))


def _load_range(s: Subject) -> tuple[float, float]:
    if not s.is_open:
        return float(s.off.loads[0]), float(s.off.loads[-1])
    tables = [s.off] if s.on is None else [s.off, s.on]
    # A replica that is all but idle serves all low rates alike.
    return LEAST_RATE, max(float(np.max(t.loads / t.slot_s[t.base])) for t in tables)


def _load(s: Subject) -> Cell:
    low, high = _load_range(s)
    return Cell(s.load, "assumption", allowed=Allowed(low, high, whole=not s.is_open))


def _acceptance(s: Subject) -> Cell | None:
    if s.on is None:
        return None
    given = float(s.on.lengths[s.on.base])
    return Cell(given, "input", "exact", allowed=Allowed(1.0, float(s.on.lengths[-1])))


def _gpu_price(s: Subject) -> Cell:
    usd = None if s.price is None else s.price.usd_per_gpu_hour
    kind: Kind = "input" if usd is None or s.price_given else "assumption"
    return Cell(usd, kind, "usd", allowed=Allowed(LEAST_USD, MOST_USD))


def _gpus_per_server(s: Subject) -> Cell:
    kind: Kind = "assumption" if s.gpus_per_server is None else "input"
    number = float(s.gpus_per_server or GPUS_PER_SERVER)
    return Cell(number, kind, allowed=Allowed(1, 10_000, True))
