"""What the runs of a sweep show: curves, speedup with its uncertainty, and where it crosses 1.

Repeats are paired: the n-th run of one arm with the n-th of the other, which was its neighbour in
time. The scatter of the pairs' log speedups is pooled over loads, since two repeats of one load
tell little; an interval at a load, and that of the crossover, follow from it (Student's t, by
drawing). Where runs are not numbered, the scatter is that of each arm by itself.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from specsim.analysis.crossover import find_crossover
from specsim.errors import InputError
from specsim.schema.measurement import Latency, Measurement
from specsim.schema.sweep import (
    LoadKind,
    SweepAcceptance,
    SweepComparison,
    SweepCurve,
    SweepPoint,
    SweepSpeedup,
    SweepSummary,
)

Array = npt.NDArray[np.float64]
N_SAMPLES, SEED = 4000, 20261130
_BAND = (10.0, 90.0)
_ACCEPTANCE_SPREAD = 0.3
"""Acceptance lengths of one arm that differ by more are of different drafters or texts."""
_LENGTH_SPREAD = 0.05
_FEW_REQUESTS = 2.0
_MOST = 20.0
"""No speedup is further from the measured one than a factor of e^20."""
_LEAST_FREEDOM = 2
"""Degrees of freedom below which a scatter is a guess: intervals would span everything."""

Runs = dict[float, list[Measurement]]
"""Runs of an arm by load."""
Key = tuple[str, int, str]
"""An arm: off or on, its draft tokens (0: off, or not known), its method."""
_OFF: Key = ("off", 0, "")


def summarise(rows: Iterable[Measurement], *, notes: Sequence[str] = ()) -> SweepSummary:
    """Summarise the runs of a sweep.

    Parameters
    ----------
    rows : iterable of Measurement
        Of both arms. Rows that are no run at a load (logs, metrics) are left out.
    notes : sequence of str
        Warnings to begin with.

    Raises
    ------
    InputError
        No row is a run at a known load with a known arm.
    """
    every = [row for row in rows if row.output_tok_s]
    kind = _kind(every)
    arms: dict[Key, Runs] = defaultdict(lambda: defaultdict(list))
    used: list[Measurement] = []
    for row in every:
        load = _load(row, kind)
        if row.arm == "unknown" or load is None or row.completed == 0:
            continue
        key = _arm_key(row)
        arms[key][load].append(row)
        used.append(row)
    if not used:
        raise InputError(
            f"no run of a sweep found: {len(every)} rows have a throughput, none of them both a "
            "load and an arm (speculation off or on); say which with --metadata arm=off in "
            "`vllm bench serve`, or use `specsim measure run`"
        )
    ordered = sorted(arms)  # off, then on by k
    labels = _labels(ordered)
    off = arms.get(_OFF)
    comparisons = [
        found
        for key in ordered
        if key != _OFF
        and off is not None
        and (found := _compare(key, labels[key], off, arms[key], kind))
    ]
    curves = tuple(_curve(key, labels[key], arms[key]) for key in ordered)
    # Pooled: a median of standard deviations of two runs each would be a third too low.
    repeated = [p for c in curves for p in c.points if p.scatter_frac is not None]
    freedom = sum(p.runs - 1 for p in repeated)
    squares = sum((p.runs - 1) * (p.scatter_frac or 0.0) ** 2 for p in repeated)
    return SweepSummary(
        load_kind=kind,
        curves=curves,
        comparisons=tuple(comparisons),
        scatter_frac=math.sqrt(squares / freedom) if freedom else None,
        engine_versions=tuple(sorted({row.engine_version for row in used if row.engine_version})),
        warnings=(*notes, *_warnings(arms, kind, n_left_out=len(every) - len(used))),
    )


def _labels(keys: Sequence[Key]) -> dict[Key, str]:
    """Name curves by their draft tokens, and by their method where that does not tell them."""
    short = {key: "off" if key == _OFF else f"k={key[1]}" if key[1] else "on" for key in keys}
    names = list(short.values())
    return {
        key: name if names.count(name) == 1 else f"{key[2]} {name}".strip()
        for key, name in short.items()
    }


def _arm_key(row: Measurement) -> Key:
    if row.arm == "off":
        return _OFF
    k = row.num_speculative_tokens
    if k is None and row.acceptance is not None and row.acceptance.per_position:
        k = len(row.acceptance.per_position)
    return ("on", k or 0, row.method or "")


def _kind(rows: Sequence[Measurement]) -> LoadKind:
    closed = sum(row.concurrency is not None for row in rows)
    rates = sum(row.concurrency is None and row.request_rate is not None for row in rows)
    return "concurrency" if closed >= rates else "request_rate"


def _load(row: Measurement, kind: LoadKind) -> float | None:
    if kind == "concurrency":
        return row.concurrency
    return row.request_rate if row.concurrency is None else None


def _curve(key: Key, label: str, runs: Runs) -> SweepCurve:
    arm, k, method = key
    rows = [row for load in sorted(runs) for row in runs[load]]
    return SweepCurve(
        label=label,
        arm="off" if arm == "off" else "on",
        method=method or None,
        num_speculative_tokens=k or None,
        points=tuple(_point(load, runs[load]) for load in sorted(runs)),
        acceptance=_acceptance(rows),
    )


def _point(load: float, runs: Sequence[Measurement]) -> SweepPoint:
    rates = [row.output_tok_s or 0.0 for row in runs]
    mean = statistics.fmean(rates)

    def over(latency: Callable[[Measurement], Latency | None], name: str) -> float | None:
        return _mean(getattr(found, name) for row in runs if (found := latency(row)) is not None)

    return SweepPoint(
        load=load,
        runs=len(runs),
        output_tok_s=mean,
        scatter_frac=statistics.stdev(rates) / mean if len(rates) > 1 else None,
        tpot_ms=over(lambda row: row.tpot_ms, "mean"),
        tpot_p50_ms=over(lambda row: row.tpot_ms, "p50"),
        tpot_p99_ms=over(lambda row: row.tpot_ms, "p99"),
        ttft_p50_ms=over(lambda row: row.ttft_ms, "p50"),
        ttft_p99_ms=over(lambda row: row.ttft_ms, "p99"),
        itl_p50_ms=over(lambda row: row.itl_ms, "p50"),
        acceptance_length=_mean(
            row.acceptance.acceptance_length for row in runs if row.acceptance is not None
        ),
    )


def _acceptance(rows: Sequence[Measurement]) -> SweepAcceptance | None:
    """Weight the acceptance of runs by their drafts, where they count them."""
    known = [a for row in rows if (a := row.acceptance) is not None and a.acceptance_length]
    if not known:
        return None
    counted = all(a.drafts for a in known)
    weights = [float(a.drafts or 0) if counted else 1.0 for a in known]

    def mean(values: Iterable[float | None]) -> float | None:
        found = list(values)
        if any(value is None for value in found):
            return None
        return float(np.average(np.array(found, dtype=float), weights=weights))

    length = mean(a.acceptance_length for a in known)
    sizes = {len(a.per_position or ()) for a in known}
    per_position = None
    if len(sizes) == 1 and sizes != {0}:
        table = np.array([a.per_position for a in known], dtype=float)
        per_position = tuple(float(p) for p in np.average(table, axis=0, weights=weights))
    assert length is not None
    return SweepAcceptance(
        acceptance_length=length,
        draft_acceptance_rate=mean(a.draft_acceptance_rate for a in known),
        per_position=per_position,
        drafts=int(sum(weights)) if counted else None,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return statistics.fmean(found) if found else None


@dataclass(frozen=True)
class _Ratios:
    """Log speedups by load, and what their scatter is estimated from."""

    log_speedup: Array
    relative_variance: Array
    """Variance of each in units of the pooled one."""
    squares: float
    freedom: int
    pairs: tuple[int, ...]

    @property
    def variance(self) -> float:
        return self.squares / self.freedom


def _compare(key: Key, label: str, off: Runs, on: Runs, kind: LoadKind) -> SweepComparison | None:
    speed = _speed_of(kind)
    logs = {
        load: (_logs(off[load], speed), _logs(on[load], speed))
        for load in sorted(off.keys() & on.keys())
    }
    logs = {load: both for load, both in logs.items() if both[0] and both[1]}
    if not logs:
        return None
    paired, unpaired = _paired(logs), _unpaired(logs)
    ratios = paired if paired is not None and paired.freedom >= _LEAST_FREEDOM else unpaired
    loads = np.array(list(logs), dtype=float)
    speedup = np.exp(ratios.log_speedup)
    variance = ratios.variance if ratios.freedom >= _LEAST_FREEDOM else None
    samples = speedup[None, :]
    if variance is not None:
        samples = np.exp(_draws(ratios, variance))
    low, high = np.percentile(samples, _BAND, axis=0)
    found = replace(find_crossover(loads, speedup, samples, loads), batch=None)
    if variance is None:
        found = replace(found, low=None, high=None)
    points = tuple(
        SweepSpeedup(
            load=float(loads[i]),
            speedup=float(speedup[i]),
            low=None if variance is None else float(low[i]),
            high=None if variance is None else float(high[i]),
            pairs=ratios.pairs[i],
        )
        for i in range(loads.size)
    )
    return SweepComparison(
        label=label,
        method=key[2] or None,
        num_speculative_tokens=key[1] or None,
        points=points,
        crossover=found,
        has_interval=variance is not None,
        scatter_frac=None if variance is None else math.sqrt(variance),
    )


def _speed_of(kind: LoadKind) -> Callable[[Measurement], float | None]:
    """Return what is compared: throughput, or in an open loop, where it is given, 1 / TPOT."""
    if kind == "concurrency":
        return lambda row: row.output_tok_s
    return lambda row: 1.0 / row.tpot_ms.mean if row.tpot_ms and row.tpot_ms.mean else None


def _logs(
    runs: Sequence[Measurement], speed: Callable[[Measurement], float | None]
) -> list[tuple[int | None, float]]:
    return [(row.repeat, math.log(value)) for row in runs if (value := speed(row))]


Logs = Mapping[float, tuple[list[tuple[int | None, float]], list[tuple[int | None, float]]]]


def _paired(logs: Logs) -> _Ratios | None:
    """Compare run with run of the same repeat; None where a load has none that pair."""
    differences = []
    for off, on in logs.values():
        by_repeat = {repeat: value for repeat, value in off if repeat is not None}
        own = [value - by_repeat[repeat] for repeat, value in on if repeat in by_repeat]
        if not own or len(by_repeat) != len(off) or len({repeat for repeat, _ in on}) != len(on):
            return None
        differences.append(np.array(own))
    means = np.array([d.mean() for d in differences])
    return _Ratios(
        log_speedup=means,
        relative_variance=np.array([1.0 / d.size for d in differences]),
        squares=float(sum(((d - d.mean()) ** 2).sum() for d in differences)),
        freedom=sum(d.size - 1 for d in differences),
        pairs=tuple(d.size for d in differences),
    )


def _unpaired(logs: Logs) -> _Ratios:
    """Compare the means of the arms; their scatters add."""
    offs = [np.array([value for _, value in off]) for off, _ in logs.values()]
    ons = [np.array([value for _, value in on]) for _, on in logs.values()]
    squares = sum(float(((x - x.mean()) ** 2).sum()) for x in (*offs, *ons))
    return _Ratios(
        log_speedup=np.array([b.mean() - a.mean() for a, b in zip(offs, ons, strict=True)]),
        # Of one run against one run: twice the variance of a run.
        relative_variance=np.array(
            [(1.0 / a.size + 1.0 / b.size) / 2.0 for a, b in zip(offs, ons, strict=True)]
        ),
        squares=2.0 * squares,
        freedom=sum(x.size - 1 for x in (*offs, *ons)),
        pairs=(0,) * len(offs),
    )


def _draws(ratios: _Ratios, variance: float) -> Array:
    """Draw log speedups that the scatter allows: Student's t with one scale for all loads."""
    random = np.random.default_rng(SEED)
    shape = (N_SAMPLES, ratios.log_speedup.size)
    scale = np.sqrt(ratios.freedom / random.chisquare(ratios.freedom, size=(N_SAMPLES, 1)))
    errors = random.standard_normal(shape) * np.sqrt(variance * ratios.relative_variance) * scale
    return np.asarray(ratios.log_speedup + np.clip(errors, -_MOST, _MOST))


def _warnings(arms: Mapping[Key, Runs], kind: LoadKind, *, n_left_out: int) -> list[str]:
    said = []
    rows = [row for runs in arms.values() for group in runs.values() for row in group]
    if n_left_out:
        said.append(f"{n_left_out} runs left out: they say no arm or no {kind}, or all failed")
    if _OFF not in arms:
        said.append("no run without speculation: there is nothing to compare with")
    elif len(arms) == 1:
        said.append("no run with speculation: there is nothing to compare")
    failed = sum(row.failed or 0 for row in rows)
    if failed:
        said.append(f"{failed} requests failed: their runs measure something else")
    versions = {key: {row.engine_version for row in _rows(runs)} for key, runs in arms.items()}
    if len({frozenset(v) for v in versions.values()}) > 1 or any(
        len(v - {None}) > 1 for v in versions.values()
    ):
        said.append("the runs are of different engine versions, which changes more than the arm")
    said += [text for key, runs in arms.items() if (text := _mixed(key, _rows(runs)))]
    lengths = [row.output_tokens for row in rows if row.output_tokens]
    if lengths and max(lengths) > min(lengths) * (1 + _LENGTH_SPREAD):
        said.append(
            f"answers are {min(lengths):.0f} to {max(lengths):.0f} tokens long on average: runs "
            "of other lengths are other workloads"
        )
    if kind == "concurrency":
        few = [
            row for row in rows
            if row.completed and row.completed < _FEW_REQUESTS * (row.concurrency or 0)
        ]  # fmt: skip
        if few:
            said.append(
                f"{len(few)} runs sent fewer than {_FEW_REQUESTS:g} requests per concurrent one: "
                "start and end weigh much in their throughput"
            )
    return said


def _rows(runs: Runs) -> list[Measurement]:
    return [row for group in runs.values() for row in group]


def _mixed(key: Key, rows: Sequence[Measurement]) -> str:
    lengths = [
        row.acceptance.acceptance_length
        for row in rows
        if row.acceptance is not None and row.acceptance.acceptance_length
    ]
    if lengths and max(lengths) - min(lengths) > _ACCEPTANCE_SPREAD:
        return (
            f"acceptance lengths of the runs with k = {key[1]} go from {min(lengths):.2f} to "
            f"{max(lengths):.2f}: they are of different drafters or texts"
        )
    return ""
