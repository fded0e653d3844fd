"""The sheet of what the fleet costs."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.export.workbook.fields import Fields
from specsim.export.workbook.fleet import Rows, arms_of
from specsim.export.workbook.formulas import Formula, as_text, either, if_, joined
from specsim.export.workbook.inputs import if_ok
from specsim.export.workbook.sheets import Cell, Column, Sheet
from specsim.export.workbook.subjects import Subject
from specsim.schema.traffic import HOURS_PER_MONTH
from specsim.units import HOUR_S, MTOK

_COST = (
    Column("scenario_id", "scenario, as in the sheet Inputs", width=11),
    Column("arm", "speculation off or on", width=7),
    Column("decision", "which arm costs less, by how much, and what the other gives", width=46),
    Column("label", "for the chart", width=10),
    Column("gpu_hour_usd", "price of a GPU and hour", "usd", 13),
    Column("commit_discount_pct", "off the price", "pct", 18),
    Column("gpus_total", "GPUs of the fleet", "count"),
    Column("monthly_gpu_usd", "all GPUs, around the clock for 30.4 days", "money", 16),
    Column("software_usd", "licences and support, a month", "money", 13),
    Column("hosting_usd", "hosting, storage and network, a month", "money", 13),
    Column("monthly_total_usd", "GPUs, software and hosting", "money", 17),
    Column("tokens_out_per_month", "output tokens, grown", "count", 20),
    Column("usd_per_1m_output", "of a million output tokens, at the load of the month: idle hours "
           "are paid too", "usd", 17),
    Column("usd_per_1m_total", "of a million tokens, input and output", "usd", 16),
    Column("usd_per_1m_output_at_peak", "of a million output tokens, at the peak", "usd", 24),
    Column("usd_per_request", "at the load of the month", "usd_small", 15),
    Column("usd_per_active_user", "a month", "usd", 18),
    Column("delta_vs_off_usd", "a month, against speculation off; below 0: saved", "money", 16),
    Column("delta_pct", "the same in percent", "pct", 10),
    Column("drafter_training_usd_one_off", "of the sheet Inputs", "money", 26),
    Column("payback_months", "training / what is saved a month; never: nothing is saved", "three",
           15),
    Column("api_price_per_1m", "of a million output tokens, hosted", "usd", 16),
    Column("breakeven_tokens_per_month", "output tokens above which the fleet is cheaper than that "
           "API", "count", 26),
)  # fmt: skip


def cost(found: Sequence[Subject], made: Fields, sized: Rows) -> Rows:
    """Build the sheet."""
    sheet = Sheet(
        "Cost",
        "What the fleet costs a month, whatever comes: GPUs are paid around the clock. Blank where "
        "the price of a GPU is not known, or where there is no fleet (sheet Fleet, column note).",
        _COST,
        frozen_columns=2,
    )
    result = Rows(sheet, {})
    for s in found:
        for arm in arms_of(s):
            row = len(sheet.rows)
            result.rows[s.id, arm] = row
            sheet.add(_costs(s, made, sized, result, arm, row))
    return result


def _costs(
    s: Subject, made: Fields, sized: Rows, result: Rows, arm: str, row: int
) -> dict[str, Cell | None]:
    def this(column: str) -> Formula:
        return result.sheet.ref(row, column)

    gpus, paid = this("gpus_total"), made(s, "gpu_hour_paid_usd")
    month, tokens = this("monthly_total_usd"), this("tokens_out_per_month")
    requests, answer = made(s, "monthly_requests"), made(s, "osl_mean_tok")
    per_token = month / tokens * MTOK
    at_peak = month / HOURS_PER_MONTH / (sized(s, arm, "peak_qps") * answer * HOUR_S) * MTOK
    users, api = made(s, "active_users"), made(s, "api_usd_per_mtok_output")
    unknown = month.is_blank()
    gpu_usd, software, hosting = (
        this(n) for n in ("monthly_gpu_usd", "software_usd", "hosting_usd")
    )
    prompt = made(s, "isl_mean_tok")
    formulas = {
        "gpu_hour_usd": if_(made(s, "gpu_hour_usd").is_blank(), "", made(s, "gpu_hour_usd")),
        "commit_discount_pct": made(s, "commit_discount_pct"),
        "gpus_total": sized(s, arm, "gpus_total"),
        "monthly_gpu_usd": if_(either(paid.is_blank(), gpus.is_blank()), "",
                               gpus * paid * HOURS_PER_MONTH),
        "software_usd": made(s, "software_usd_per_month"),
        "hosting_usd": made(s, "hosting_usd_per_month"),
        "monthly_total_usd": if_(gpu_usd.is_blank(), "", gpu_usd + software + hosting),
        "tokens_out_per_month": requests * answer,
        "usd_per_1m_output": if_(unknown, "", per_token),
        "usd_per_1m_total": if_(unknown, "", per_token * (answer / (answer + prompt))),
        "usd_per_1m_output_at_peak": if_(unknown, "", at_peak),
        "usd_per_request": if_(unknown, "", month / requests),
        "usd_per_active_user": if_(either(unknown, users.is_blank()), "", month / users),
        "api_price_per_1m": if_(api.is_blank(), "", api),
        "breakeven_tokens_per_month": if_(either(unknown, api.is_blank()), "",
                                          if_(api > 0, month / api * MTOK, "")),
    }  # fmt: skip
    if arm == "on":
        off = result(s, "off", "monthly_total_usd")
        delta, once = this("delta_vs_off_usd"), this("drafter_training_usd_one_off")
        none = either(unknown, off.is_blank())
        payback = if_(once <= 0, "nothing to pay back", if_(delta < 0, once / (0 - delta), "never"))
        said = _decision(delta, sized(s, "on", "speedup_at_peak"))
        formulas |= {
            "delta_vs_off_usd": if_(none, "", month - off),
            "delta_pct": if_(none, "", if_(off > 0, 100 * (month - off) / off, "")),
            "drafter_training_usd_one_off": made(s, "drafter_training_usd"),
            "payback_months": if_(delta.is_blank(), "", payback),
            "decision": if_(delta.is_blank(), "", said),
        }
    return {
        "scenario_id": Cell(s.id, "text"),
        "arm": Cell(arm, "text"),
        "label": Cell(f"{s.id} {arm}", "text"),
        **{name: Cell(if_ok(made, s, f), "formula") for name, f in formulas.items()},
    }


def _decision(delta: Formula, speedup: Formula) -> Formula:
    """Say which arm costs less a month, and what speculation gives at the peak."""
    gain = if_(
        speedup.is_blank(), "",
        joined("; at the peak speculation makes tokens come ", as_text(speedup, "0.00"),
               " times as fast"),
    )  # fmt: skip
    saved = joined("on: saves ", as_text(0 - delta, "0"), " USD a month")
    lost = joined("off: saves ", as_text(delta, "0"), " USD a month")
    money = if_(delta < 0, saved, if_(delta > 0, lost, "both cost the same"))
    return joined(money, gain)
