"""The first sheet: what this is, how to read it, and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from specsim._version import __version__
from specsim.analysis.plan.capacity import LOAD_TESTED
from specsim.analysis.plan.search import TOLERANCE
from specsim.export.workbook import styles
from specsim.export.workbook.sheets import Cell, Column, Kind, Sheet
from specsim.export.workbook.subjects import Subject

NAME = "README"
_NAME = 80
"""Characters of a name that are shown."""
STATED_TOLERANCE = 0.01
"""What reading between the rows and the acceptance lengths of the tables may cost."""


def readme(found: Sequence[Subject], sheets: Sequence[Sheet], date: str) -> Sheet:
    """Build the sheet."""
    sheet = Sheet(
        NAME,
        "Does speculative decoding pay here, up to which load, and what does the fleet cost?",
        (Column("topic", "", width=24), Column("text", "", width=120)),
        landscape=False,
    )
    for topic, text, kind in _lines(found, sheets, date):
        sheet.add({"topic": Cell(topic, "text"), "text": Cell(text, kind)})
    return sheet


def _lines(
    found: Sequence[Subject], sheets: Sequence[Sheet], date: str
) -> Iterator[tuple[str, str, Kind]]:
    yield "made", f"{date} by specsim {__version__}", "text"
    for s in found:
        yield f"scenario {s.id}", _described(s), "text"
        if not s.traffic_given:
            yield f"traffic {s.id}", (
                "an example, which nobody gave: what one replica without speculation serves at "
                f"load {s.load:g} is taken for the peak; replace it in the sheet Inputs"
            ), "assumption"  # fmt: skip
        verdict = s.prediction.verdict
        yield f"verdict {s.id}", f"as exported: {verdict.decision}; {verdict.reason}", "output"
    yield "how to use it", (
        "Change the blue and amber cells of the sheet Inputs: price, utilisation, peak factor, "
        "growth, spares, requests per month, load, acceptance length. Every other sheet follows, "
        "without macros. What needs the model itself (another GPU, model, drafter, number of draft "
        "tokens, lengths, promise) needs specsim export again; `specsim plan --vary k=1,2,3 "
        "--xlsx` puts several numbers of draft tokens side by side."
    ), "text"  # fmt: skip
    yield "which sheet answers what", (
        "Crossover: at one load of one replica, which arm is faster. Fleet and Cost: at your "
        "traffic, with the promise kept, how many replicas each arm needs and which costs less "
        "(column decision). They may differ: an arm that is faster at low load may hold less load "
        "within the promise, and replicas come whole (column note of Fleet)."
    ), "text"  # fmt: skip
    for kind, (_, _, meaning) in styles.KINDS.items():
        if kind != "text":
            yield f"colour: {kind}", meaning, kind
    yield "how exact the sheet is", (
        "At the values that were exported, cells are what specsim predict and plan say. Between "
        f"the rows and acceptance lengths of the tables they are read along straight lines, which "
        f"costs at most {STATED_TOLERANCE:.0%} where column read_error_pct of the sheet Sweep says "
        f"so. A replica more or less may follow where a quotient is that close to a whole number, "
        "and a crossover moves farther than the ratio where its curve is flat."
    ), "text"  # fmt: skip
    for s in found:
        yield f"exactness {s.id}", _exactness(s), "output"
    yield "how right the model is", (
        "That is another matter: the columns ratio_low and ratio_high are an 80 % band of the "
        "gain; the sheet Measured vs model has what was measured of this model or GPU, and "
        "Assumptions what the figures rest on. The largest rates at the SLO carry no band: seeds "
        "of the load tests scatter by about 3 %."
    ), "text"  # fmt: skip
    yield "limits", (
        "Latencies of the sheets Sweep and Crossover are means of the closed form; percentiles are "
        "in the load tests behind the sheet Capacity. Cost is that of GPUs paid around the clock, "
        "and what is typed in. Acceptance falls with temperature and on other data: measure it "
        "(specsim measure, specsim calibrate)."
    ), "text"  # fmt: skip
    for sheet in sheets:
        yield f"sheet {sheet.name}", sheet.about, "text"


def _described(s: Subject) -> str:
    d = s.deployment
    words = [
        s.name[:_NAME], d.model.id, d.weight_dtype, f"{d.n_gpus} x {d.hardware.identity.id}",
        f"{d.scenario.engine.name} {d.engine.version}",
    ]  # fmt: skip
    if s.on is not None:
        drafter = "" if d.drafter is None else f", drafter {d.drafter.id}"
        words.append(f"{d.method}, k = {s.k}{drafter}")
    return " · ".join(words)


def _exactness(s: Subject) -> str:
    tables = [s.off] if s.on is None else [s.off, s.on]
    errors = np.concatenate([t.error for t in tables])
    first = np.concatenate([t.ttft_error for t in tables])
    within = int(np.sum(errors <= STATED_TOLERANCE))
    text = (
        f"{within} of {errors.size} rows of the sheet Sweep are read within "
        f"{STATED_TOLERANCE:.0%} (worst {100 * float(np.max(errors)):.2g} %, checked in the "
        f"middle between any two entries); ttft_ms {100 * float(np.max(first)):.2g} % at worst"
    )
    if s.capacities[0].basis == LOAD_TESTED:
        text += f"; largest rates at the SLO are found to {100 * TOLERANCE:g} %"
    return text
