"""Arms against each other and against promises, with intervals from the replications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specsim.analysis.simulation import statistics
from specsim.analysis.simulation.statistics import Served
from specsim.schema.simulation import METRICS, STATISTICS, ArmName, ArmSimulation, Sample
from specsim.schema.slo import Metric, Slo


def intervals(
    replies: Sequence[Mapping[ArmName, Served]],
    summaries: Mapping[ArmName, ArmSimulation],
    slo: Slo | None,
) -> dict[str, Any]:
    """Return 95 % intervals by arm, metric and statistic, and of on / off."""
    found: dict[str, Any] = {}
    samples = {
        arm: {m: [statistics.sample(r[arm], m) for r in replies] for m in METRICS}
        for arm in summaries
    }
    for arm, summary in summaries.items():
        entry: dict[str, Any] = {
            f"{m}_ms": {
                name: statistics.interval(
                    [x.statistic(name) for x in samples[arm][m]],
                    summary.percentiles(m).statistic(name),
                )
                for name in STATISTICS
            }
            for m in METRICS
        }
        rates = [statistics.output_rate(r[arm]) for r in replies]
        entry["output_tok_s"] = statistics.interval(rates, summary.output_tok_s)
        if slo is not None and summary.goodput is not None:
            shares = [statistics.attainment(r[arm], slo) or 0.0 for r in replies]
            good = [
                share * statistics.request_rate(r[arm])
                for share, r in zip(shares, replies, strict=True)
            ]
            entry["goodput"] = statistics.interval(good, summary.goodput)
            entry["attainment"] = statistics.interval(shares, summary.attainment or 0.0)
        found[arm] = entry
    for arm in ("speculative", "routed"):
        if arm in summaries:
            found[f"{arm}_to_baseline"] = _ratios(samples[arm], samples["baseline"], summaries, arm)
    return found


def _ratios(
    on: Mapping[Metric, list[Sample]],
    off: Mapping[Metric, list[Sample]],
    summaries: Mapping[ArmName, Any],
    arm: Any,
) -> dict[str, Any]:
    """Return on / off, whose interval is narrower than either's: both served the same requests."""
    ratios: dict[str, Any] = {}
    for m in METRICS:
        ratios[f"{m}_ms"] = {}
        for name in STATISTICS:
            each = [
                x.statistic(name) / y.statistic(name) for x, y in zip(on[m], off[m], strict=True)
            ]
            value = summaries[arm].percentiles(m).statistic(name) / summaries[
                "baseline"
            ].percentiles(m).statistic(name)
            bounds = statistics.interval(each, value)
            low, high = bounds if bounds is not None else (None, None)
            ratios[f"{m}_ms"][name] = {"value": value, "low": low, "high": high}
    return ratios


def slo_results(summary: ArmSimulation, slo: Slo) -> list[dict[str, Any]]:
    """Return each target with the value that was reached and whether that meets it."""
    results: list[dict[str, Any]] = []
    for target in slo.targets:
        value = summary.percentiles(target.metric).statistic(target.statistic)
        results.append(
            {
                "target": target.name,
                "value": value,
                "limit": target.at_most_ms,
                "met": bool(value <= target.at_most_ms) and not summary.overloaded,
            }
        )
    required = slo.required_attainment_pct
    if required is not None:
        reached = 100.0 * (summary.attainment or 0.0)
        results.append(
            {
                "target": "attainment_pct",
                "value": reached,
                "limit": required,
                "met": reached >= required and not summary.overloaded,
            }
        )
    return results
