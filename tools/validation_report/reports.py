"""Public reports: does the prediction lie on the measured side of 1, and why where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specsim.analysis.kv import KvBudget, kv_budget
from specsim.analysis.weights import sglang_embedding_copy_bytes
from specsim.catalog.case import load_cases
from specsim.catalog.engines import load_engine
from specsim.catalog.files import read_mapping
from specsim.catalog.hardware import load_hardware
from specsim.catalog.models import load_drafter, load_model
from specsim.schema.case import Case
from specsim.units import GB, GIB
from specsim.validation.signs import Sign, share_right, signs
from validation_report import figures
from validation_report.markdown import linked, table

NOTES = figures.ROOT / "validation" / "replay.yaml"

REPLAY = """\
## Signs of public reports

People report in public trackers where speculation helped them and where it did not. Each report
that can be run is a case here (`replay--*.yaml`), and the question is only whether the prediction
lies on the measured side of 1. Speedup is on / off: output tokens per second at the same
concurrency, time per token at the same request rate; neutral (0.95 to 1.05) has no sign. Two
things say how much a point is worth: whether the report states the acceptance, and what had to be
filled in (`assumed` in the case file).
"""

COLUMNS = ("report", "device", "model", "method", "load", "measured", "predicted", "right")


def acceptance_is_filled_in(case: Case) -> bool:
    """Whether the report states no acceptance, and a bundled profile stands in."""
    given = case.scenario.speculation.acceptance
    return given is None or given.profile is not None


def slug(case: Case) -> str:
    """Return the report's own name."""
    return case.case.removeprefix("replay/")


def sign_row(case: Case, sign: Sign) -> tuple[str, ...]:
    """Return a report's point as a row of the table."""
    point = case.points[sign.index]
    override = point.override
    written = case.scenario
    tp = override.get("hardware.tensor_parallel_size", written.hardware.tensor_parallel_size)
    method = override.get("speculation.method", written.speculation.method)
    k = override.get(
        "speculation.num_speculative_tokens", written.speculation.num_speculative_tokens
    )
    tree = written.speculation.tree
    load = (
        f"{point.request_rate:g} req/s"
        if point.concurrency is None
        else f"{point.concurrency:g} in flight"
    )
    measured: str = sign.measured or "no comparison"
    if sign.measured_speedup is not None:
        measured += f", {sign.measured_speedup:.2f}"
    return (
        f"{linked(slug(case), case.source.url)} {sign.index + 1}",
        f"{tp} x {written.hardware.accelerator}" if tp > 1 else written.hardware.accelerator,
        written.target.model,
        f"{method}, k = {k}" + (f", tree of {tree.num_draft_tokens}" if tree else ""),
        load,
        measured,
        predicted_cell(sign),
        {True: "yes", False: "no", None: "-"}[sign.right],
    )


def predicted_cell(sign: Sign) -> str:
    """Return the predicted speedup with its band."""
    if sign.predicted_speedup is None:
        return "could not be run"
    if sign.low is None or sign.high is None:
        return f"{sign.predicted_speedup:.2f} (largest rates)"
    return f"{sign.predicted_speedup:.2f} ({sign.low:.2f} to {sign.high:.2f})"


def replay_section() -> str:
    """Compare the direction of every public report that can be run."""
    notes = read_mapping(NOTES)
    cases = [case for case in load_cases(figures.CASES) if case.case.startswith("replay/")]
    rows = [(case, sign) for case in cases for sign in signs(case)]
    stated = [(c, s) for c, s in rows if not acceptance_is_filled_in(c)]
    filled = [(c, s) for c, s in rows if acceptance_is_filled_in(c)]
    physics = [s for c, s in stated if notes["kinds"][slug(c)] == "physics"]
    right, counted = share_right(physics)
    all_right, all_counted = share_right(s for _, s in stated)
    extra_right, extra_counted = share_right(s for _, s in filled)
    return "\n".join(
        [
            REPLAY,
            f"Reports of physics that state an acceptance: **{right} of {counted}** signs right. "
            f"With those on the choice of k: {all_right} of {all_counted}. With an acceptance "
            f"filled in from a bundled profile: {extra_right} of {extra_counted}, not counted.\n",
            "### The acceptance is stated, or given with the report\n",
            table(COLUMNS, (sign_row(c, s) for c, s in stated)) + "\n",
            "### The acceptance is filled in from a bundled profile\n",
            table(COLUMNS, (sign_row(c, s) for c, s in filled)) + "\n",
            "### Misses and remarks\n",
            *explanations(rows, notes),
            best_k_section(rows),
            "### Could not be run\n",
            table(
                ("report", "kind", "points", "measured", "why not"),
                (
                    (
                        linked(r["id"], r["url"]),
                        r["kind"],
                        str(r["points"]),
                        r["measured"],
                        r["reason"],
                    )
                    for r in notes["not_run"]
                ),
            )
            + "\n",
            memory_section(),
        ]
    )


def explanations(rows: list[tuple[Case, Sign]], notes: dict[str, Any]) -> Iterator[str]:
    """Yield a paragraph for each miss, each failure and each remark."""
    for _, sign in rows:
        name = f"{sign.case}#{sign.index + 1}"
        if sign.predicted_speedup is None:
            yield f"- **{name} could not be run**: {sign.reason}\n"
        elif on_the_wrong_side(sign):
            yield f"- **{name} is missed.** {notes['misses'][name]}\n"
    for name, remark in notes["remarks"].items():
        yield f"- {name}: {remark}\n"


def on_the_wrong_side(sign: Sign) -> bool:
    """Whether a comparison fails, counted or not."""
    if sign.predicted_speedup is None or sign.measured in (None, "neutral"):
        return False
    return (sign.predicted_speedup > 1.0) != (sign.measured == "faster")


def best_k_section(rows: list[tuple[Case, Sign]]) -> str:
    """Compare the best number of draft tokens where a report sweeps it."""
    lines = []
    by_case: dict[str, list[tuple[int, Sign]]] = {}
    for case, sign in rows:
        k = case.points[sign.index].override.get("speculation.num_speculative_tokens")
        if k is not None and not acceptance_is_filled_in(case):
            by_case.setdefault(case.case, []).append((k, sign))
    for name, points in by_case.items():
        speeds = {k: s.measured_speedup or 0.0 for k, s in points}
        best = max(speeds, key=speeds.__getitem__)
        chosen, _ = max(points, key=lambda p: p[1].predicted_speedup or 0.0)
        share = speeds[chosen] / speeds[best]
        lines.append((name.removeprefix("replay/"), str(best), str(chosen), f"{share:.1%}"))
    header = ("sweep", "best k measured", "best k predicted", "measured speed there, of the best")
    return "### Best number of draft tokens\n\n" + table(header, lines) + "\n"


def sglang_budget(*, copies: bool) -> KvBudget:
    """Return SGLang's memory for Qwen3.6-27B in fp8 with its MTP layer on one H100."""
    engine, _ = load_engine("sglang")
    sheet = load_hardware("h100_sxm").datasheet
    return kv_budget(
        model=load_model("qwen3.5-27b-text"),
        drafter=load_drafter("mtp-qwen3.5-27b"),
        method="mtp",
        num_speculative_tokens=3,
        weight_dtype="fp8",
        expert_dtype=None,
        drafter_weight_dtype="fp8",
        kv_dtype="bf16",
        memory_usable_bytes=sheet.memory_usable_gib * GIB,
        memory_nameplate_bytes=sheet.memory_gb * GB,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        draft_tensor_parallel_size=1,
        expert_parallel=False,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        max_num_seqs=48,
        max_num_batched_tokens=8192,
        max_model_len=8192,
        engine=engine.model_copy(update={"copies_shared_embedding": copies}),
        async_scheduling=True,
    )


def memory_section() -> str:
    """Compare the cache lost to SGLang's copies of embedding and head."""
    with_copies, shared = sglang_budget(copies=True), sglang_budget(copies=False)
    lost = (shared.kv_gib - with_copies.kv_gib) * GIB / GB
    formula = sglang_embedding_copy_bytes(vocab_size=248320, hidden_size=5120) / GB
    charged = "charged" if load_engine("sglang")[0].copies_shared_embedding else "not charged"
    return "\n".join(
        [
            "### Memory\n",
            table(
                ("report", "what", "measured", "predicted"),
                [
                    (
                        linked(
                            "sglang-36452", "https://github.com/sgl-project/sglang/issues/36452"
                        ),
                        "cache lost to copies of embedding and head (248,320 x 5,120, bf16)",
                        "5.09 GB",
                        f"{formula:.2f} GB; {lost:.2f} GB through the whole budget",
                    )
                ],
            ),
            f"\nBy default these copies are {charged} with the newest known SGLang.\n",
        ]
    )
