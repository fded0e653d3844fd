"""From runs to what people ask: percentiles, goodput, state over time, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specsim.analysis.simulation.engine import Run
from specsim.schema.simulation import ArmSimulation, OverTime, Percentiles, Sample, pooled
from specsim.schema.slo import Metric, Slo
from specsim.units import MILLI

Array = npt.NDArray[np.float64]

_SLICES = 60
_GROWTH, _OF_A_STAY = 0.02, 0.1
"""A wait that grows by this share of the time, and by this share of the time that an answer takes,
is no noise of a queue that comes and goes."""


@dataclass(frozen=True)
class Served:
    """The measured requests of one run of one arm (of all its engines)."""

    arrival_s: Array
    ttft_s: Array
    tpot_s: Array
    """NaN for an answer of one token."""
    e2e_s: Array
    itl: Sample
    """Gaps [s], weighted by the requests that saw each."""
    output_tokens: Array
    n_steps: Array
    mean_batch: Array
    """Requests in the batch over a request's decoding."""
    prompt_share: Array
    """Of a request's decoding time, what steps with prompts in them took beyond the usual step."""
    stalls: Array
    duration_s: float
    """From the first measured arrival to the last."""
    tokens_in_window: float
    runs: tuple[Run, ...]
    start_s: float
    end_s: float
    n_unserved: int

    @property
    def n(self) -> int:
        """Requests served and measured."""
        return int(self.e2e_s.size)


def served(runs: Sequence[Run], measured: tuple[int, int]) -> Served:
    """Collect the measured requests of the engines of one arm, which share one numbering."""
    first, last = measured
    parts = [_of_engine(run, first, last) for run in runs]
    joined = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    arrivals = [run.arrival_s[first:last] for run in runs]
    sent = np.nanmin(arrivals), np.nanmax(arrivals)
    finished = max(float(np.max(np.nan_to_num(run.finish_s), initial=0.0)) for run in runs)
    start, end = float(sent[0]), float(max(sent[1], sent[0]))
    if end <= start or last - first == runs[0].arrival_s.size:
        # Everything that was sent is measured: to the last token.
        end = finished
    gaps = [_gaps(run, start, max(end, start)) for run in runs]
    gaps += [_stalls(run, first, last) for run in runs]
    return Served(
        **joined,
        itl=pooled(gaps),
        duration_s=end - start,
        tokens_in_window=sum(_tokens_between(run, start, end) for run in runs),
        runs=tuple(runs),
        start_s=start,
        end_s=end,
        n_unserved=(last - first) - joined["e2e_s"].size,
    )


def _of_engine(run: Run, first: int, last: int) -> dict[str, Array]:
    chosen = np.zeros(run.arrival_s.size, dtype=bool)
    chosen[first:last] = True
    chosen &= np.isfinite(run.finish_s)
    arrival, finish = run.arrival_s[chosen], run.finish_s[chosen]
    ttft = run.first_s[chosen] - arrival
    e2e = finish - arrival
    output = run.requests.output_tokens[chosen].astype(float)
    tpot = np.divide(e2e - ttft, output - 1.0, out=np.full(e2e.size, np.nan), where=output > 1)
    ended = np.searchsorted(run.end_s, finish - 1e-12)
    joined = np.minimum(run.joined_at[chosen], ended)
    batch_time = np.concatenate([[0.0], np.cumsum(run.decoding * run.step_s)])
    time = np.concatenate([[0.0], np.cumsum(run.step_s)])
    usual = np.concatenate([[0.0], np.cumsum(np.where(run.running > run.decoding, 0, run.step_s))])
    span = np.maximum(time[np.minimum(ended + 1, time.size - 1)] - time[joined], 1e-12)
    in_batch = batch_time[np.minimum(ended + 1, time.size - 1)] - batch_time[joined]
    plain = usual[np.minimum(ended + 1, time.size - 1)] - usual[joined]
    return {
        "arrival_s": arrival,
        "ttft_s": ttft,
        "tpot_s": tpot,
        "e2e_s": e2e,
        "output_tokens": output,
        # Where k changed: the iterations that it decoded in.
        "n_steps": run.n_steps[chosen] if run.n_steps is not None else ended + 1.0 - joined,
        "mean_batch": in_batch / span,
        "prompt_share": 1.0 - plain / span,
        "stalls": run.stalls[chosen].astype(float),
    }


def _gaps(run: Run, start: float, end: float) -> Sample:
    inside = (run.end_s >= start) & (run.end_s - run.step_s <= end) & (run.decoding > 0)
    return Sample(run.step_s[inside], run.decoding[inside])


def _stalls(run: Run, first: int, last: int) -> Sample:
    """Return the gaps of preempted requests: from the last token to the next one."""
    some = run.stalls[first:last] > 0
    stalls = run.stalls[first:last][some].astype(float)
    mean_s = run.stall_s[first:last][some] / np.maximum(stalls, 1.0)
    return Sample(mean_s, stalls)


def _tokens_between(run: Run, start: float, end: float) -> float:
    """Return the answer tokens that came in a time, each request's spread over its decoding."""
    finish = np.where(np.isfinite(run.finish_s), run.finish_s, np.inf)
    begun = run.first_s >= 0
    first, last = run.first_s[begun], finish[begun]
    tokens = run.requests.output_tokens[begun].astype(float)
    known = np.isfinite(last)
    # One still in progress at the end of the run: as far as the others of its length got.
    first, last, tokens = first[known], last[known], tokens[known]
    at_first = ((first >= start) & (first < end)).sum()
    overlap = np.minimum(last, end) - np.maximum(first, start)
    share = np.clip(overlap / np.maximum(last - first, 1e-12), 0.0, 1.0)
    return float(at_first + np.sum((tokens - 1.0) * share))


def summary(
    replications: Sequence[Served], slo: Slo | None, *, rejected: int, closed: bool
) -> ArmSimulation:
    """Pool the replications of an arm."""
    samples = {metric: pooled([sample(r, metric) for r in replications]) for metric in _METRICS}
    judged = [attainment(r, slo) for r in replications] if slo is not None else []
    # Who is refused was promised as well.
    sent = sum(r.runs[0].requests.n for r in replications) + rejected
    taken = 1.0 - rejected / max(sent, 1)
    known = [j * taken for j in judged if j is not None]
    return ArmSimulation(
        **{f"{metric}_ms": Percentiles.of(values) for metric, values in samples.items()},
        output_tok_s=float(np.mean([output_rate(r) for r in replications])),
        request_per_s=float(np.mean([request_rate(r) for r in replications])),
        goodput=float(
            np.mean([j * request_rate(r) for j, r in zip(known, replications, strict=True)])
        )
        if known
        else None,
        attainment=float(np.mean(known)) if known else None,
        completed=sum(r.n for r in replications),
        rejected=rejected,
        preemptions=sum(run.preemptions for r in replications for run in r.runs),
        running=float(np.mean([_over_time(r, "running") for r in replications])),
        waiting=float(np.mean([_over_time(r, "waiting") for r in replications])),
        kv_used=float(np.mean([_over_time(r, "used") for r in replications])),
        kv_used_max=max(run.most_used / run.capacity for r in replications for run in r.runs),
        tokens_per_step=tokens_per_step(replications),
        overloaded=not closed and _overloaded(replications),
        little_error=max((little_error(run) for r in replications for run in r.runs), key=abs),
        over_time=_slices(replications[0]),
    )


_METRICS: tuple[Metric, ...] = ("ttft", "tpot", "itl", "e2e")


def sample(r: Served, metric: Metric) -> Sample:
    """Return the values of a metric. [ms]."""
    if metric == "itl":
        return Sample(r.itl.values / MILLI, r.itl.weights)
    values = {"ttft": r.ttft_s, "tpot": r.tpot_s, "e2e": r.e2e_s}[metric]
    return Sample(values[np.isfinite(values)] / MILLI)


def attainment(r: Served, slo: Slo) -> float | None:
    """Return the share of requests that meet every threshold; a request not served misses."""
    limits = slo.request_thresholds_ms
    if not limits:
        return None
    met = np.ones(r.n, dtype=bool)
    by_metric = {"ttft": r.ttft_s, "tpot": np.nan_to_num(r.tpot_s), "e2e": r.e2e_s}
    for metric, limit_ms in limits.items():
        met &= by_metric[metric] <= limit_ms * MILLI
    return float(met.sum() / max(r.n + r.n_unserved, 1))


def request_rate(r: Served) -> float:
    """Return requests served per second of the measured time."""
    done = [run.finish_s[(run.finish_s >= r.start_s) & (run.finish_s <= r.end_s)] for run in r.runs]
    return sum(d.size for d in done) / max(r.duration_s, 1e-12)


def output_rate(r: Served) -> float:
    """Return output tokens per second of the measured time."""
    return r.tokens_in_window / max(r.duration_s, 1e-12)


def tokens_per_step(replications: Sequence[Served]) -> float:
    """Return all tokens by all steps of decoding (token-averaged)."""
    tokens = sum(float(np.sum(r.output_tokens - 1.0)) for r in replications)
    steps = sum(float(np.sum(r.n_steps[r.output_tokens > 1])) for r in replications)
    return tokens / steps if steps else 1.0


def little_error(run: Run) -> float:
    """Return by how much the mean number in the system misses rate times stay.

    The left side is summed by the scheduler, iteration by iteration; the right side from the
    arrival and the end of each request, up to the end of the run.
    """
    end = float(run.end_s[-1]) if run.end_s.size else 0.0
    sent = run.arrival_s <= end
    until = np.where(np.isfinite(run.finish_s), np.minimum(run.finish_s, end), end)
    stay = float(np.sum((until - run.arrival_s)[sent & run.submitted]))
    return run.area / stay - 1.0 if stay > 0 else 0.0


def _overloaded(replications: Sequence[Served]) -> bool:
    """Whether most runs show a wait that grows as long as requests come.

    Where more arrives than is served, the wait of a request grows by 1 - served / arriving for
    each second that it comes later.
    """
    grew = [_wait_grows(r) for r in replications]
    return sum(grew) * 2 > len(grew)


def _wait_grows(r: Served) -> bool:
    quarter = r.n // 4
    if quarter < 5:
        return False
    order = np.argsort(r.arrival_s)
    arrival, wait = r.arrival_s[order], r.ttft_s[order]
    elapsed = float(np.mean(arrival[-quarter:]) - np.mean(arrival[:quarter]))
    grown = float(np.mean(wait[-quarter:]) - np.mean(wait[:quarter]))
    decoding = float(np.mean(r.e2e_s - r.ttft_s))
    return grown > _GROWTH * elapsed and grown > _OF_A_STAY * decoding


def _over_time(r: Served, name: str) -> float:
    """Return a state of all engines, averaged over the measured time; `used` as a share."""
    total = 0.0
    for run in r.runs:
        inside = (run.end_s > r.start_s) & (run.end_s - run.step_s < r.end_s)
        values = getattr(run, name)[inside]
        part = float(np.sum(values * run.step_s[inside])) / max(r.duration_s, 1e-12)
        total += part / run.capacity / len(r.runs) if name == "used" else part
    return total


def _slices(r: Served) -> OverTime:
    edges = np.linspace(r.start_s, r.end_s, _SLICES + 1)
    width = max(float(edges[1] - edges[0]), 1e-12)
    columns = {}
    for name in ("running", "waiting", "used"):
        total = np.zeros(_SLICES)
        for run in r.runs:
            values = getattr(run, name) / (run.capacity * len(r.runs) if name == "used" else 1.0)
            # A step may cover several slices: the area up to each edge, then differences.
            starts = run.end_s - run.step_s
            times = np.concatenate([[0.0], np.ravel(np.column_stack([starts, run.end_s]))])
            area = np.cumsum(values * run.step_s)
            before = np.concatenate([[0.0], area[:-1]]) if area.size else area
            curve = np.concatenate([[0.0], np.ravel(np.column_stack([before, area]))])
            total += np.diff(np.interp(edges, times, curve)) / width
        columns[name] = total
    middle = 0.5 * (edges[:-1] + edges[1:]) - r.start_s
    return OverTime(
        time_s=tuple(middle.tolist()),
        running=tuple(columns["running"].tolist()),
        waiting=tuple(columns["waiting"].tolist()),
        kv_used=tuple(columns["used"].tolist()),
    )


def interval(values: Sequence[float], point: float) -> tuple[float, float] | None:
    """Return the 95 % interval of a mean from independent replications, widened to the point.

    Notes
    -----
    Student's t on the replications, which share no random number. None of a single one.
    """
    known = np.asarray([v for v in values if np.isfinite(v)])
    if known.size < 2 or not np.isfinite(point):
        return None
    from scipy.special import stdtrit  # 0.3 s: only where there is something to say

    half = float(stdtrit(known.size - 1, 0.975) * np.std(known, ddof=1) / np.sqrt(known.size))
    middle = float(np.mean(known))
    return min(middle - half, point), max(middle + half, point)
