"""How well percentiles of recorded runs are predicted.

The figures are kept in validation/tails/figures.json, since serving all runs again takes a minute.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specsim.schema.slo import Metric
from validation_report import recorded_tails
from validation_report.calibration import ROOT
from validation_report.markdown import NONE, percent, section, table
from validation_report.recorded_tails import BAR_PCT, CLOSED_LOOPS, REPLICATIONS, Tail
from validation_report.recovered_steps import scheduler_alone

KEPT = ROOT / "validation" / "tails" / "figures.json"

TEXT = """\
Requests served one by one (`specsim simulate`) against recorded runs, after a calibration that saw
means of other runs only, and no percentile. Predicted is the mean of up to {replications}
replications with as many requests as the run had, each percentile taken of one run as of the
recorded one; the interval is where 95 % of single runs would lie, by the replications and by the
scatter of a run that the calibration found (the machine's drift). The bar is {bar:g} % for the p99
of TTFT and TPOT.
"""
MISSED = """\
What is off, and why:

* The first token on the H100 comes 15 ms later than predicted at the lower rate of each arm and
  22 ms at the higher: the client, HTTP and the tokenizer, none of which is in a step. In the lab it
  is 3 to 20 ms of the mean, told by the scheduler fed with the run's own steps.
* A calibration looks at the time per token and the throughput, not at the first token. A single
  prompt of 64 tokens costs the lab's server 290 ms and one of many 277 ms; the fitted roofline has
  the former at 350, so that first tokens are late at low loads.
* The lab's speculative arm at 0.8/s is off in its level rather than in its tail: its steps were a
  tenth shorter than those of the calibration (7 % with one request running, where the closed loops
  half an hour later tell it directly: the machine's drift), its prompts a fifth, and a load near
  saturation multiplies that. Given the steps of that run the scheduler is within 3 %.
* The gap between tokens of the arm without speculation has a tail of its own, the jitter of a
  machine shared with its client, of which the model has none.
* GLM-5.2 on four GH200, of which detailed files exist, cannot be predicted: its experts lie in host
  memory, and without that the weights do not fit.
"""
OPEN_TEXT = """\
The lab's server under Poisson arrivals, 60 requests each, so that the p99 is nearly the slowest;
the recorded arrivals are replayed. Calibrated on the closed loops `2026-11-29-interleaved`, half an
hour later on the same machine. The last column is no prediction but a diagnosis of the rest: the
scheduler alone, fed the step times of the run itself, which the detailed file gives away because
all requests of a step receive their tokens together.
"""
CLOSED_TEXT = """\
The lab's closed loops, each load predicted from the others of its sweep; errors in percent. Runs
are short, 6 to 96 requests, so that a p99 is the slowest one or two, and a run of 6 has no tail to
speak of.
"""
H100_TEXT = """\
Llama-3.1-8B on one H100 under Poisson arrivals, from the
[inference-perf demo](https://github.com/kubernetes-sigs/inference-perf/tree/main/demos/kubecon-na-2025)
(1,089 to 5,531 requests a stage; facts in `validation/tails`). Of each arm two stages are fitted
and the two others predicted. The tool counts two pieces per token, so that the p99 of TPOT is its
mean times the p99 by the mean of the gap per request. Acceptance is not recorded, it is inferred.
"""


@dataclass(frozen=True)
class Figures:
    """All recorded runs."""

    open_loops: tuple[Tail, ...]
    alone_p99: dict[str, dict[Metric, float]]
    """Of the scheduler with the steps of each open loop, by run. [ms]"""
    h100: tuple[Tail, ...]
    closed_loops: dict[str, tuple[Tail, ...]]


def measure() -> Figures:
    """Serve all recorded runs."""
    open_loops = recorded_tails.open_loops()
    return Figures(
        open_loops=open_loops,
        alone_p99={
            run: scheduler_alone(recorded_tails.file_of(run), recorded_tails.lab())
            for run in sorted({t.run for t in open_loops})
        },
        h100=recorded_tails.h100(),
        closed_loops={sweep: recorded_tails.closed_loops(sweep) for sweep in CLOSED_LOOPS},
    )


def write() -> None:
    """Measure and keep, to 0.01 ms."""
    figures = dataclasses.asdict(measure())
    KEPT.write_text(json.dumps(_rounded(figures), indent=1) + "\n", encoding="utf-8")
    kept.cache_clear()


@functools.cache
def kept() -> Figures:
    """Return the figures that were kept."""
    found = json.loads(KEPT.read_text(encoding="utf-8"))

    def tails(rows: list[dict[str, object]]) -> tuple[Tail, ...]:
        return tuple(Tail(**row) for row in rows)  # type: ignore[arg-type]

    return Figures(
        open_loops=tails(found["open_loops"]),
        alone_p99=found["alone_p99"],
        h100=tails(found["h100"]),
        closed_loops={sweep: tails(rows) for sweep, rows in found["closed_loops"].items()},
    )


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, 2)
    if isinstance(value, dict):
        return {key: _rounded(v) for key, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list | tuple) else value


def tails_section() -> str:
    """Return how well percentiles of recorded runs are predicted."""
    found = kept()
    return section(
        "Tails",
        TEXT.strip().format(replications=REPLICATIONS, bar=BAR_PCT),
        _counts(found),
        MISSED.strip(),
        f"### Open loops of the lab\n\n{OPEN_TEXT.strip()}",
        _single(found.open_loops, found.alone_p99),
        f"### A H100\n\n{H100_TEXT.strip()}",
        _single(found.h100),
        f"### Closed loops of the lab\n\n{CLOSED_TEXT.strip()}",
        *(f"{sweep}:\n\n{_by_run(found.closed_loops[sweep])}" for sweep in CLOSED_LOOPS),
    )


def _single(found: Sequence[Tail], alone_p99: dict[str, dict[Metric, float]] | None = None) -> str:
    """Return a row per latency."""
    rows = []
    for t in found:
        row = [
            t.run,
            t.metric.upper(),
            f"{t.mean:.1f}",
            percent(t.mean_error_pct, signed=True),
            f"{t.p99:.1f}",
            f"{t.predicted_p99:.1f}",
            f"{t.low:.0f} to {t.high:.0f}",
            percent(t.error_pct, signed=True),
            _verdict(t),
        ]
        if alone_p99 is not None:
            p99 = alone_p99[t.run][t.metric]
            row.append(percent(100.0 * (p99 / t.p99 - 1.0), signed=True))
        rows.append(row)
    header = ["run", "latency", "mean ms", "error %", "p99 ms", "predicted", "95 % of runs",
              "error %", "bar"]  # fmt: skip
    return table(header if alone_p99 is None else (*header, "scheduler alone: error %"), rows)


def _verdict(t: Tail) -> str:
    if t.metric not in ("ttft", "tpot"):
        return NONE
    return "met" if abs(t.error_pct) <= BAR_PCT else "**missed**"


def _by_run(found: Sequence[Tail]) -> str:
    """Return a row per run (repeats are rows of their own)."""
    shown: tuple[Metric, ...] = ("ttft", "tpot", "itl")
    runs: list[dict[Metric, Tail]] = []
    for t in found:
        if not runs or t.metric in runs[-1]:
            runs.append({})
        runs[-1][t.metric] = t
    return table(
        ("arm, concurrency", *(f"{m.upper()}: mean" for m in shown),
         *(f"{m.upper()}: p99" for m in shown)),
        (
            (
                run["tpot"].run,
                *(percent(run[m].mean_error_pct, signed=True) for m in shown),
                *(percent(run[m].error_pct, signed=True) for m in shown),
            )
            for run in runs
        ),
    )  # fmt: skip


def _counts(found: Figures) -> str:
    """Return how often the bar is met."""
    groups = (
        ("open loops of the lab", found.open_loops),
        ("a H100", found.h100),
        ("closed loops of the lab", tuple(t for some in found.closed_loops.values() for t in some)),
    )
    return table(
        ("runs", "p99 of", "n", f"within {BAR_PCT:g} %", "median error %", "95 % interval holds"),
        (_count(name, m, some) for name, some in groups for m in ("ttft", "tpot")),
    )


def _count(name: str, metric: str, found: Sequence[Tail]) -> Iterator[str]:
    some = [t for t in found if t.metric == metric]
    errors = np.abs([t.error_pct for t in some])
    yield from (
        name,
        metric.upper(),
        str(len(some)),
        str(int(np.sum(errors <= BAR_PCT))),
        percent(float(np.median(errors))),
        f"{sum(t.inside for t in some)} of {len(some)}",
    )
