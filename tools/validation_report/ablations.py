"""What each effect is worth: leave one out, and see what the errors become.

The effects are patched at run time and put back; the product has no switches for them. Results are
kept in validation/ablations.json, since fourteen passes over all cases take a minute.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from specsim.analysis import acceptance, arms, curves, rank
from specsim.catalog.hardware import gemm_constants, moe_constants
from specsim.physics import acceptance as law
from specsim.physics import kernels
from specsim.physics.cost import Cost, Num, smooth_roofline
from specsim.physics.step import Overheads
from specsim.schema.base import Range
from specsim.validation import check
from specsim.validation.summary import validate
from validation_report import figures
from validation_report.markdown import percent, section, table

KEPT = figures.ROOT / "validation" / "ablations.json"
Patch = tuple[Any, str, Any]

_HARD, _ADDED = 1e3, 1.0
_NO_LIMIT = 1e9


def _with(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """Return a kernel with some of its keyword arguments held."""
    return lambda **given: function(**{**given, **fixed})


def _geometric() -> list[Patch]:
    def positions(self: acceptance.AcceptanceModel, k: int, constants: Any = None) -> Num:
        if self.known is not None:
            return law.positions(first_rate=self.known[0], decay=1.0, k=k)
        flat = dataclasses.replace(self, decay=Range(value=1.0, low=1.0, high=1.0))
        return vector(flat, k, constants)

    vector = acceptance.AcceptanceModel.positions
    return [(acceptance.AcceptanceModel, "positions", positions)]


def _kv_per_query() -> list[Patch]:
    def attention(*, entries_read: Num, query_tokens: Num, **rest: Any) -> Cost:
        return once(entries_read=entries_read * query_tokens, query_tokens=query_tokens, **rest)

    once = kernels.decode_attention
    return [(kernels, "decode_attention", attention)]


def _knee(sharpness: float) -> Callable[[], list[Patch]]:
    def roofline(memory_s: Num, compute_s: Num, _: Num) -> tuple[Num, Num]:
        return smooth_roofline(memory_s, compute_s, sharpness)

    return lambda: [(kernels, "smooth_roofline", roofline)]


def _full_compute() -> list[Patch]:
    peak = Range(value=1.0, low=1.0, high=1.0)

    def ideal(constants: Callable[..., Any], **more: Any) -> Callable[..., Any]:
        return lambda *given: constants(*given).model_copy(update={"compute_frac": peak, **more})

    return [
        (rank, "gemm_constants", ideal(gemm_constants, row_factor=None)),
        (rank, "moe_constants", ideal(moe_constants)),
    ]


def _arms_changed(**changes: Any) -> list[Patch]:
    def changed(make: Callable[..., arms.Arm]) -> Callable[..., arms.Arm]:
        return lambda *given, **named: dataclasses.replace(make(*given, **named), **changes)

    return [
        (curves, "baseline_arm", changed(arms.baseline_arm)),
        (curves, "speculating", changed(arms.speculating)),
        (check, "baseline_arm", changed(arms.baseline_arm)),
    ]


def _one_pass() -> list[Patch]:
    def plan(*given: Any) -> Any:
        return dataclasses.replace(planned(*given), later_passes=(0.0, 0.0))

    planned = arms._plan
    return [(arms, "_plan", plan)]


def _no_draft_head() -> list[Patch]:
    def network(*given: Any) -> Any:
        found = made(*given)
        return None if found is None else dataclasses.replace(found, head=None)

    made = arms._drafter_network
    return [(arms, "_drafter_network", network)]


def _no_host() -> list[Patch]:
    nothing = {f.name: 0.0 for f in dataclasses.fields(Overheads)}
    free = Overheads(**{**nothing, "max_graph_tokens": _NO_LIMIT})
    return [(arms, "overheads", lambda *given, **named: free)]


def _no_latency() -> list[Patch]:
    def all_reduce(*, message_bytes: Num, table: Any) -> Cost:
        alone = dataclasses.replace(table, skew_s=0.0)
        whole_s = measured(message_bytes=message_bytes, table=alone).communication_s
        return Cost(communication_s=np.maximum(whole_s - table.time_s[0], 0.0))

    measured = kernels.all_reduce
    return [(kernels, "all_reduce", all_reduce)]


EFFECTS: tuple[tuple[str, str, Callable[[], list[Patch]]], ...] = (
    ("1 acceptance vector", "a constant rate: that of the first position", _geometric),
    ("2 cache read once", "read once per verified token", _kv_per_query),
    ("3 smooth knee", "hard: the larger of memory and compute", _knee(_HARD)),
    ("3 smooth knee", "memory and compute added", _knee(_ADDED)),
    ("4 compute efficiency", "the datasheet's peak", _full_compute),
    ("5 prefill share", "prompts cost nothing", lambda: _arms_changed(prefill_tokens=0.0)),
    (
        "6 experts shared within a sequence",
        "tokens of a sequence are independent (beta 1)",
        lambda: [
            (kernels, "distinct_experts", _with(kernels.distinct_experts, sequence_overlap=1.0))
        ],
    ),
    (
        "7 linear attention's verify cost",
        "free: one state written",
        lambda: [(kernels, "linear_attention", _with(kernels.linear_attention, query_tokens=1.0))],
    ),
    ("8 drafter's cost", "its head is free", _no_draft_head),
    ("8 drafter's cost", "passes after the first are free", _one_pass),
    ("9 host and graphs", "no host time, graphs for every size", _no_host),
    ("10 all-reduce latency", "bandwidth only, no skew", _no_latency),
)

TEXT = """\
Each row drops one effect of docs/method.md and predicts all cases again, with everything else as
shipped and nothing fitted again: errors of the speedup on the cases of grade A and B, and of the
time per token on all. An effect that most cases do not have (experts, linear attention, tensor
parallelism) moves a median little and the tail more, and so does the acceptance vector, since most
cases give the tokens per step at their own k. A row that is better than the whole model says
that the constant behind the effect is too strong on these cases, not that the effect is absent.
"""


def measure() -> dict[str, list[dict[str, Any]]]:
    """Predict all cases without each effect, and return the errors."""
    rows = [_errors("nothing: the whole model", "")]
    for effect, instead, patches in EFFECTS:
        with _patched(patches()):
            rows.append(_errors(effect, instead))
    return {"rows": rows}


def write() -> None:
    """Measure and keep."""
    KEPT.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")


@contextmanager
def _patched(patches: list[Patch]) -> Iterator[None]:
    with ExitStack() as stack:
        for where, name, value in patches:
            stack.enter_context(patch.object(where, name, value))
        yield


def _errors(effect: str, instead: str) -> dict[str, Any]:
    summary = validate(figures.CASES, n_samples=0).summary
    speedup, tpot = summary["AB"]["speedup"], summary["all"]["tpot"]
    sign = summary["AB"]["sign"]
    errors = {
        "speedup_median": speedup["median_abs_pct"],
        "speedup_p90": speedup["p90_abs_pct"],
        "speedup_bias": speedup["bias_pct"],
        "signs_wrong": (sign["n"] or 0) - (sign["agree"] or 0),
        "tpot_median": tpot["median_abs_pct"],
    }
    return {
        "effect": effect,
        "instead": instead,
        **{name: None if value is None else round(value, 1) for name, value in errors.items()},
    }


def ablations_section() -> str:
    """Return the table that was kept."""
    rows = json.loads(KEPT.read_text(encoding="utf-8"))["rows"]
    return section(
        "Ablations",
        TEXT.strip(),
        table(
            ("dropped", "instead", "speedup: median %", "p90 %", "bias %", "signs wrong",
             "TPOT: median %"),
            (
                (
                    row["effect"],
                    row["instead"],
                    percent(row["speedup_median"]),
                    percent(row["speedup_p90"]),
                    percent(row["speedup_bias"], signed=True),
                    f"{row['signs_wrong']:.0f}",
                    percent(row["tpot_median"]),
                )
                for row in rows
            ),
        ),
    )  # fmt: skip
