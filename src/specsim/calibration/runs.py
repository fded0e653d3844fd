"""Which measured runs a fit can use, as numbers, and which it doubts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specsim.errors import CalibrationError
from specsim.schema.calibration import Doubt
from specsim.schema.measurement import Measurement
from specsim.schema.scenario import Scenario

_FAILED_MOST = 0.1
"""Share of failed requests beyond which what is left is another workload."""
_FAILED_SOME = 0.01
_LEAST_ROUNDS = 2.0
"""Requests per slot below which ramp and drain are most of a run."""
_LEAST_HELD = 0.8
"""Share of the concurrency that a run must hold, by Little's law."""
_OUTPUT_OF_ONE = 1.5
"""Mean answers below this have no time per token."""


@dataclass(frozen=True)
class Run:
    """One run that a fit can use."""

    source: str
    arm: Literal["off", "on"]
    k: int
    """Draft tokens per step; 0 off."""
    load: float
    """Concurrency, or arrivals per second."""
    is_open: bool
    held: float | None
    """Requests in flight that the run really held (Little's law). Closed loop: the concurrency
    where it is not known. Open loop: None."""
    input_tokens: float
    output_tokens: float
    num_requests: float | None
    tokens_per_step: float | None
    """Over all steps; None off."""
    tpot_s: float | None
    step_s: float | None
    """Gap between steps, where there is no time per token."""
    ttft_s: float | None
    output_tok_s: float | None
    """None where it says nothing: open loop, or ramp and drain."""
    engine_version: str | None

    @property
    def n_metrics(self) -> int:
        """Figures of this run that the fit sees."""
        return sum(v is not None for v in (self.tpot_s, self.step_s, self.output_tok_s))


def usable_runs(
    rows: Sequence[Measurement], scenario: Scenario, *, left_out: Sequence[Doubt] = ()
) -> tuple[tuple[Run, ...], tuple[Doubt, ...]]:
    """Sort rows into runs for the fit and doubts about them.

    Parameters
    ----------
    left_out : sequence of Doubt
        Rows that were left out before, for the message where none remains.

    Raises
    ------
    CalibrationError
        Not one row can be used; the message names the commonest reason.
    """
    runs: list[Run] = []
    doubts: list[Doubt] = []
    for row in rows:
        found = _run(row, scenario)
        if isinstance(found, str):
            if found:
                doubts.append(Doubt(row.source, False, found))
            continue
        run, some = found
        runs.append(run)
        doubts += [Doubt(row.source, True, reason) for reason in (*some, *row.warnings)]
    doubts += _different_builds(runs)
    if not runs:
        doubts += left_out
        reasons = Counter(d.reason for d in doubts if not d.used)
        why = f": {reasons.most_common(1)[0][0]}" if reasons else ""
        raise CalibrationError(
            f"none of the {len(rows) + len(left_out)} rows read can be fitted{why}; give runs with "
            "a load, an arm and a time per token or a throughput (see docs/calibration.md)"
        )
    return tuple(runs), tuple(doubts)


def _run(row: Measurement, scenario: Scenario) -> tuple[Run, list[str]] | str:
    """Return a run with what is doubtful about it, or why there is none ('': nothing to say)."""
    load, is_open = row.concurrency, False
    if row.request_rate is not None and (load is None or row.request_rate > 0):
        # A cap on requests in flight beside a rate is the client's limit, not the load.
        load, is_open = row.request_rate, True
    has_figures = any(v is not None for v in (row.tpot_ms, row.itl_ms, row.output_tok_s))
    if load is None or not has_figures:
        # Logs, metrics and acceptance tables lend facts and are no runs.
        return "" if not has_figures else "no load: give its concurrency or request rate"
    figures = [load, *(x.mean for x in (row.tpot_ms, row.itl_ms, row.ttft_ms) if x is not None)]
    if any(x is not None and not 0 < x < math.inf for x in (*figures, row.output_tok_s)):
        return "a load or a figure that is not a number above 0"
    if row.arm == "unknown":
        return (
            "nothing says whether speculation was on: put `--metadata arm=off` on the benchmark, "
            "the server's log beside it, or `off` in its name; or give --unknown-arm off"
        )
    failed = (row.failed or 0) / max((row.failed or 0) + (row.completed or 0), 1)
    if failed > _FAILED_MOST:
        return f"{100 * failed:.0f} % of its requests failed"
    some = []
    if failed > _FAILED_SOME:
        some.append(f"{100 * failed:.0f} % of its requests failed")
    workload = scenario.workload
    output = row.output_tokens or workload.output_tokens
    speculates = row.arm == "on"
    k = row.num_speculative_tokens if speculates else 0
    if speculates and not k:
        k = scenario.speculation.num_speculative_tokens
        if not k:
            return "nothing says how many tokens it drafts: give --spec-tokens"
        some.append(f"does not say how many tokens it drafts: k = {k} is the scenario's")
    tpot = None if row.tpot_ms is None or output < _OUTPUT_OF_ONE else row.tpot_ms.mean
    gap = None if row.itl_ms is None else row.itl_ms.mean
    if tpot is None and gap is not None and row.itl_of == "token":
        tpot, gap = gap, None
    tokens = None
    if speculates:
        method = row.method or scenario.speculation.method
        tokens = _tokens_per_step(row, tpot, gap, int(k or 0), method)
    if speculates and tokens is None:
        given = scenario.speculation.acceptance
        if given is None or given.length is None:
            return (
                "nothing says how many tokens a step yields: no acceptance counted, no gap between "
                "steps, and no acceptance length in the scenario"
            )
        tokens = min(given.length, int(k or 0) + 1.0)
        some.append(f"counted no acceptance: {tokens:g} tokens per step are the scenario's")
    held = _held(row, output, tpot)
    if not is_open:
        held = float(load) if held is None else min(held, float(load))
    elif held is not None and row.concurrency:
        held = min(held, row.concurrency)
    served = None if is_open else row.output_tok_s
    rounds = math.inf if row.completed is None else row.completed / load
    if not is_open and rounds < _LEAST_ROUNDS and load > 1:
        some.append(
            f"{row.completed} requests at concurrency {load:g}: ramp and drain are most of it; "
            "its throughput is left out"
        )
        served = None
    elif not is_open and held is not None and held < _LEAST_HELD * load:
        some.append(f"held {held:.3g} requests in flight of {load:g}: the client did not keep up")
        served = None
    run = Run(
        source=row.source,
        arm="on" if speculates else "off",
        k=int(k or 0),
        load=float(load),
        is_open=is_open,
        held=held,
        input_tokens=row.input_tokens or workload.input_tokens,
        output_tokens=output,
        num_requests=None if row.completed is None else float(row.completed),
        tokens_per_step=tokens,
        tpot_s=_seconds(tpot),
        step_s=_seconds(gap) if tpot is None else None,
        ttft_s=None if row.ttft_ms is None else _seconds(row.ttft_ms.mean),
        output_tok_s=served if served and served > 0 else None,
        engine_version=row.engine_version,
    )
    if run.n_metrics == 0:
        return "; ".join(some) or "no time per token and no throughput"
    return run, some


def _seconds(value_ms: float | None) -> float | None:
    return value_ms / 1e3 if value_ms is not None and value_ms > 0 else None


def _tokens_per_step(
    row: Measurement, tpot: float | None, gap: float | None, k: int, method: str
) -> float | None:
    """Return tokens per step over all steps.

    The gap between steps over the time per token is what the requests really got: it counts
    steps without drafts, and the last step of an answer, whose surplus tokens are thrown away.
    Acceptance alone overstates it a little at short answers.
    """
    counted = None if row.acceptance is None else row.acceptance.acceptance_length
    if method in ("ngram", "suffix"):
        counted = _over_all_steps(row)
    if tpot and gap and row.itl_of == "step":
        ratio = gap / tpot
        if ratio >= 1.0 and (counted is None or ratio <= 1.25 * counted):
            return min(ratio, k + 1.0)
    return None if counted is None else min(counted, k + 1.0)


def _over_all_steps(row: Measurement) -> float | None:
    """Return tokens per step of a method that drafts on a match only: by what drafts saved."""
    found = row.acceptance
    if found is None or found.accepted_tokens is None or not row.completed or not row.output_tokens:
        return None
    decoded = row.completed * (row.output_tokens - 1.0)
    steps = decoded - found.accepted_tokens
    return decoded / steps if steps > 0 else None


def _held(row: Measurement, output: float, tpot: float | None) -> float | None:
    """Return requests in flight by Little's law; None where the run does not say enough."""
    e2e = None if row.e2e_ms is None else row.e2e_ms.mean
    if e2e is None and row.ttft_ms is not None and row.ttft_ms.mean is not None and tpot:
        e2e = row.ttft_ms.mean + (output - 1.0) * tpot
    if e2e is None or not row.duration_s or not row.completed:
        return None
    return float(row.completed * e2e / 1e3 / row.duration_s)


def _different_builds(runs: Sequence[Run]) -> list[Doubt]:
    """Doubt runs whose engine is not the one of the other arm."""
    versions = {
        arm: {r.engine_version for r in runs if r.arm == arm and r.engine_version}
        for arm in ("off", "on")
    }
    if not versions["off"] or not versions["on"] or versions["off"] == versions["on"]:
        return []
    said = ", ".join(f"{arm} {'/'.join(sorted(map(str, v)))}" for arm, v in versions.items())
    return [
        Doubt(r.source, True, f"the arms are of different builds ({said})")
        for r in runs
        if r.engine_version not in versions["off"] & versions["on"]
    ]
