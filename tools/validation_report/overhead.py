"""Reports whose cause is the engine: with the stated overhead the sign flips."""

from __future__ import annotations

from collections.abc import Iterator

from specsim.catalog.case import load_case
from specsim.schema.case import Case, CasePoint
from specsim.schema.validation import PointCheck
from specsim.validation.bounds import ADVICE
from specsim.validation.signs import direction, measured_direction
from validation_report import figures
from validation_report.markdown import NONE, linked, section, table

TEXT = """\
These reports lose (or gain less) for a reason that is no physics of speculation: launches, a
drafter without graphs, verification that is not batched, a slow kernel. They are cases in
`validation/overhead`, with devices, models and heads that the catalog lacks as stand-ins in
`validation/stand_ins`, and they are never scored:

    specsim validate --cases validation/overhead --catalog validation/stand_ins

Each point is predicted twice. With defaults the prediction is what the hardware allows; where even
its slow end is far from the measurement, `validate` says '{advice}':
where the acceptance is known, if the measured step is more than twice the 90th percentile of the
predicted one; where it is assumed, if the measurement is slower than a drafter that is never right.
Then with the overhead that the report states, as `engine.host_ms` and its like: how each figure
follows from the report is a comment in its file. Where a report names a cause and no time, the time
(and an acceptance that is not given) comes from its other figures and was chosen knowing the
outcome: the last column shows that the cause suffices, and is no test of the model. Models, devices
and heads that stand in are recalled or by analogy. community-moe3090 states none in figures: nine
separate steps for nine accepted tokens are even, and its measurement is below that too.
"""


_STATED = (
    "engine.host_ms",
    "engine.speculative_host_ms",
    "engine.draft_host_ms",
    "engine.max_graph_tokens",
)
"""Settings by which a case states an overhead."""


def overhead_section() -> str:
    """Return a row for each point of each report."""
    files = {c.case: c for c in map(load_case, sorted(figures.OVERHEAD.glob("*.yaml")))}
    rows = [
        row
        for check in figures.overhead().cases
        for row in _rows(files[check.case], list(check.points))
    ]
    stated = [row for row in rows if row[-2] != NONE and row[-1] in ("yes", "no")]
    right = sum(row[-1] == "yes" for row in stated)
    flagged = sum(row[4] == "yes" for row in rows)
    return section(
        "Reports of engine overhead",
        TEXT.strip().format(advice=ADVICE),
        f"With the stated overhead {right} of {len(stated)} signs are right; with defaults "
        f"{flagged} of {len(rows)} points are said to be below the bound.",
        table(
            ("report", "load", "measured", "predicted with defaults", "below the bound",
             "with the stated overhead", "sign right"),
            rows,
        ),
    )  # fmt: skip


def _rows(case: Case, checks: list[PointCheck]) -> Iterator[tuple[str, ...]]:
    """Yield each point with defaults, beside the same point with its overhead."""
    for check in checks:
        if _is_stated(check):
            continue
        point = case.points[check.index]
        with_overhead = next((c for c in checks if _is_stated(c) and _same(case, c, check)), None)
        measured = measured_direction(point)
        right = NONE
        predicted = with_overhead or check
        if measured not in (None, "neutral") and predicted.predicted_speedup is not None:
            right = "yes" if (predicted.predicted_speedup > 1.0) == (measured == "faster") else "no"
        yield (
            linked(case.case.partition("/")[2], case.source.url),
            _load(point),
            f"{measured}" + ("" if check.measured_speedup is None else
                             f", {check.measured_speedup:.2f}"),
            _predicted(check),
            "yes" if check.below_bound else "no",
            NONE if with_overhead is None else _predicted(with_overhead),
            right,
        )  # fmt: skip


def _is_stated(check: PointCheck) -> bool:
    return any(name in _STATED for name in check.override)


def _same(case: Case, a: PointCheck, b: PointCheck) -> bool:
    """Whether two points differ in nothing but a stated overhead."""

    def rest(check: PointCheck) -> tuple[object, ...]:
        point = case.points[check.index]
        kept = {k: v for k, v in point.override.items() if k not in _STATED}
        return point.concurrency, point.acceptance_length, repr(sorted(kept.items(), key=str))

    return rest(a) == rest(b)


def _load(point: CasePoint) -> str:
    settings = [f"{point.concurrency:g} in flight"]
    if "workload.input_tokens" in point.override:
        settings.append(f"{point.override['workload.input_tokens']:,} tokens in")
    if point.acceptance_length is not None:
        settings.append(f"{point.acceptance_length:g} tokens per step")
    if point.override.get("engine.cuda_graphs") is False:
        settings.append("no graphs in either arm")
    if "speculation.acceptance" in point.override:
        settings.append("the other text")
    return ", ".join(settings)


def _predicted(check: PointCheck) -> str:
    if check.predicted_speedup is None:
        return NONE
    word = direction(check.predicted_speedup)
    return (
        f"{word}, {check.predicted_speedup:.2f} "
        f"({check.speedup_low:.2f} to {check.speedup_high:.2f})"
    )
