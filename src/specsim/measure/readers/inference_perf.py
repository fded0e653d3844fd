"""inference-perf's `stage_N_lifecycle_metrics.json` (or YAML): one row per stage, in seconds.

What its latencies are, checked against 14 published stages:

- `normalized_time_per_output_token` is E2E / output tokens, so it includes the time to first token.
- `time_per_output_token` should be (E2E - TTFT) / (output tokens - 1). In the stages of 2025 it is
  about half of that with and without speculation, since two times are noted per streamed piece;
  `checked_tpot` finds that out and takes the quotient of the means.
- `inter_token_latency` is the gap between noted times. Half of them are zeros in 2025, and with
  speculation the tokens of a piece share a time later on too. Gaps with zeros are not read.

The rate is the one asked for; a stage of fixed concurrency sends all requests at once and says so.
`stage_N_prometheus_metrics.json` has the server's means over a window that takes in the stages
before, and `summary_lifecycle_metrics.json` mixes all stages: neither is a run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specsim.measure.readers.mapping import has_keys, inner, mapping, texts
from specsim.measure.readers.numbers import count, latency, number
from specsim.measure.readers.tpot import AGREEMENT, checked_tpot
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Latency, Measurement

FORMAT = "inference-perf"

_STATISTICS = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}


def recognises(source: Source) -> bool:
    """Whether the head has a load summary and successes."""
    return has_keys(source.head, "load_summary", "successes")


def read(source: Source) -> list[Measurement]:
    """Read one stage.

    Raises
    ------
    Foreign
        The server's metrics, a sum over stages that are there too, or no success.
    """
    report = mapping(source)
    load = inner(report, "load_summary")
    successes = inner(report, "successes")
    latencies = inner(successes, "latency")
    warnings: list[str] = []
    if not latencies:
        if "num_preemptions_total" in successes or "queue_len" in successes:
            raise Foreign(
                "holds the server's metrics over a window that includes other stages; "
                "stage_N_lifecycle_metrics.json has this stage alone"
            )
        raise Foreign("is an inference-perf report in which no request succeeded")
    if number(load.get("requested_rate")) is None:
        if _stages_beside(source):
            raise Foreign("sums up the stages beside it")
        warnings.append("it may sum up several stages: no rate was asked for")
    concurrency = number(load.get("concurrency"))
    output_tokens = number(inner(successes, "output_len").get("mean"))
    e2e = _latency(latencies, "request_latency")
    ttft = _latency(latencies, "time_to_first_token")
    tpot, tpot_warnings = checked_tpot(
        _latency(latencies, "time_per_output_token"), e2e, ttft, output_tokens
    )
    itl = _latency(latencies, "inter_token_latency")
    if itl is not None and has_zeros(inner(latencies, "inter_token_latency")):
        warnings.append(
            "inter_token_latency is left out: pieces that came together have gaps of zero"
        )
        itl = None
    throughput = inner(successes, "throughput")
    return [
        Measurement(
            source=source.name,
            format=FORMAT,
            arm="unknown",
            arm_from="",
            concurrency=concurrency,
            # A stage of fixed concurrency has a 'rate' that only fills the queue.
            request_rate=number(load.get("requested_rate")) if concurrency is None else None,
            completed=count(successes.get("count")),
            failed=count(inner(report, "failures").get("count")),
            input_tokens=number(inner(successes, "prompt_len").get("mean")),
            output_tokens=output_tokens,
            output_tok_s=number(throughput.get("output_tokens_per_sec")),
            request_per_s=number(throughput.get("requests_per_sec")),
            duration_s=number(report.get("benchmark_time_seconds")),
            tpot_ms=tpot,
            itl_ms=itl,
            itl_of="token" if _alike(itl, tpot) else "",
            ttft_ms=ttft,
            e2e_ms=e2e,
            metadata=texts(
                stage=_stage(source.path.name), achieved_rate=number(load.get("achieved_rate"))
            ),
            warnings=(*tpot_warnings, *warnings),
        )
    ]


def _latency(latencies: Mapping[str, Any], name: str) -> Latency | None:
    return latency(inner(latencies, name), _STATISTICS, to_ms=1000.0)


def _alike(itl: Latency | None, tpot: Latency | None) -> bool:
    """Whether a gap is of one token: then its mean is about the TPOT."""
    if itl is None or tpot is None or not itl.mean or not tpot.mean:
        return False
    return 1 / AGREEMENT <= itl.mean / tpot.mean <= AGREEMENT


def has_zeros(gaps: Mapping[str, Any]) -> bool:
    """Whether a noticeable share of gaps is (nearly) zero, against their mean.

    Examples
    --------
    >>> has_zeros({"mean": 0.010, "p5": 0.00001}), has_zeros({"mean": 0.010, "p5": 0.008})
    (True, False)
    """
    mean = number(gaps.get("mean"))
    low = next((v for k in ("p5", "p10", "p25") if (v := number(gaps.get(k))) is not None), None)
    return mean is not None and low is not None and low < 0.01 * mean


def _stage(name: str) -> str | None:
    match = re.search(r"stage_?(\d+)", name)
    return match[1] if match else None


def _stages_beside(source: Source) -> bool:
    return any(
        re.search(r"stage_?\d+_lifecycle", path.name)
        for path in source.path.parent.iterdir()
        if path.name != source.path.name
    )
