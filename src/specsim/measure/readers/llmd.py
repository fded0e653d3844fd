"""llm-d's benchmark report 0.1, 0.2 and 0.2.1: one file per stage, every value with its unit.

The report hands on what a load generator wrote, so what a value means hangs on the generator:
GuideLLM's `time_per_output_token` includes the time to first token and its `inter_token_latency` is
the TPOT; inference-perf's are checked as in its own reader; the gaps of vLLM's benchmark are steps.

0.1 has `scenario.{host, platform, model, load}` and `metrics`; 0.2 has `scenario.{stack, load}` and
`results.request_performance`.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from specsim.measure.readers.inference_perf import has_zeros
from specsim.measure.readers.mapping import has_keys, inner, iso, mapping, texts, words
from specsim.measure.readers.numbers import count, latency, number
from specsim.measure.readers.tpot import checked_tpot
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Latency, Measurement

FORMAT = "llm-d benchmark report"

_STATISTICS = {"mean": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_STATISTICS["std"] = "stddev"
TPOT = "time_per_output_token"
_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "seconds": 1e3}


def recognises(source: Source) -> bool:
    """Whether the head has the sections of a report; they are sorted, so `version` may be last."""
    head = source.head
    if re.search(r"^results:", head, re.M) or (
        source.looks_like_json and has_keys(head, "results")
    ):
        return has_keys(head, "request_performance") or has_keys(head, "component_health")
    return has_keys(head, "version", "scenario", "metrics", "request_latency")


def read(source: Source) -> list[Measurement]:
    """Read the run that the report is about.

    Raises
    ------
    Foreign
        It has no latency and no throughput of requests.
    """
    report = mapping(source)
    performance = inner(report, "results", "request_performance", "aggregate")
    performance = performance or inner(report, "metrics")
    throughput = inner(performance, "throughput")
    output_tok_s = _rate(throughput, "output_token_rate", "output_tokens_per_sec")
    warnings: list[str] = []
    tool = _tool(report)
    latencies = {
        name: _latency(performance, name, warnings)
        for name in (
            "request_latency",
            "time_to_first_token",
            TPOT,
            "inter_token_latency",
        )
    }
    if output_tok_s is None and not any(latencies.values()):
        raise Foreign("is an llm-d benchmark report without latency or throughput of requests")
    requests = inner(performance, "requests")
    output_tokens = number(inner(requests, "output_length").get("mean"))
    e2e, ttft, tpot, itl = latencies.values()
    if "guidellm" in tool:
        tpot, itl = itl, None
    else:
        tpot, tpot_warnings = checked_tpot(tpot, e2e, ttft, output_tokens)
        warnings.extend(tpot_warnings)
    if itl is not None and has_zeros(inner(performance, "latency", "inter_token_latency")):
        itl = None
        warnings.append(
            "inter_token_latency is left out: pieces that came together have gaps of zero"
        )
    elif itl is not None and "inference-perf" in tool and tpot is not latencies[TPOT]:
        itl = None
        warnings.append("inter_token_latency is left out, as is time_per_output_token")
    deployment = _deployment(report)
    speculation = _speculation(deployment["args"])
    time = inner(report, "run", "time") or inner(report, "metrics", "time")
    failed = count(requests.get("failures"))
    total = count(requests.get("total"))
    load = inner(report, "scenario", "load", "standardized")
    native = inner(report, "scenario", "load", "args")
    return [
        Measurement(
            source=source.name,
            format=FORMAT,
            arm="on" if speculation else "unknown",
            arm_from="metadata" if speculation else "",
            method=words(speculation.get("method")),
            num_speculative_tokens=count(speculation.get("num_speculative_tokens")),
            model=deployment["model"],
            drafter=words(speculation.get("model")),
            accelerator=deployment["accelerator"],
            tensor_parallel_size=deployment["tp"],
            engine=deployment["engine"],
            engine_version=deployment["version"],
            date=_when(time.get("start")),
            concurrency=_first(load, "concurrency")
            or _first(native, "max-concurrency", "max_concurrency", "concurrency"),
            request_rate=_first(load, "rate_qps")
            or _first(native, "qps_values", "request-rate", "request_rate", "rate"),
            completed=None
            if total is None
            else total - (failed or 0) - (count(requests.get("incomplete")) or 0),
            failed=failed,
            input_tokens=number(inner(requests, "input_length").get("mean")),
            output_tokens=output_tokens,
            output_tokens_std=number(inner(requests, "output_length").get("stddev")),
            duration_s=_seconds(time.get("duration")),
            output_tok_s=output_tok_s,
            request_per_s=_rate(throughput, "request_rate", "requests_per_sec"),
            tpot_ms=tpot,
            itl_ms=itl,
            itl_of="" if itl is None else ("step" if "vllm" in tool else ""),
            ttft_ms=ttft,
            e2e_ms=e2e,
            metadata=texts(
                version=report.get("version"),
                tool=tool,
                stage=_first(load, "stage"),
                **_run(report),
            ),
            warnings=tuple(warnings),
        )
    ]


def _latency(performance: Mapping[str, Any], name: str, warnings: list[str]) -> Latency | None:
    values = inner(performance, "latency", name)
    unit = (words(values.get("units")) or "").removesuffix("/token")
    found = latency(values, _STATISTICS, to_ms=_MS.get(unit, 1.0))
    if found is not None and unit not in _MS:
        warnings.append(f"{name} is left out: its unit is {unit!r}, which is no unit of time")
        return None
    return found


def _rate(throughput: Mapping[str, Any], name: str, old_name: str) -> float | None:
    """Return tokens or requests per second: statistics since 0.2, a plain number before."""
    return number(inner(throughput, name).get("mean", throughput.get(old_name)))


def _first(values: Mapping[str, Any], *names: str) -> float | None:
    return next((v for name in names if (v := number(values.get(name))) is not None), None)


def _tool(report: Mapping[str, Any]) -> str:
    load = inner(report, "scenario", "load")
    return words(inner(load, "standardized").get("tool")) or words(load.get("name")) or ""


def _run(report: Mapping[str, Any]) -> dict[str, str | None]:
    return {
        "description": words(inner(report, "run").get("description"))
        or words(inner(report, "scenario").get("description"))
    }


def _when(value: Any) -> str | None:
    """Return an ISO date: 0.1 has seconds since 1970, YAML may have made a date of a text."""
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return iso(number(value)) or words(value)


def _seconds(value: Any) -> float | None:
    """Return seconds of a number or of an ISO 8601 duration.

    Examples
    --------
    >>> _seconds("PT1M30.5S"), _seconds(16.5), _seconds("soon")
    (90.5, 16.5, None)
    """
    found = number(value)
    match = re.fullmatch(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?", str(value))
    if found is not None or match is None:
        return found
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _deployment(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what serves; a value that differs between its parts (prefill, decode) is None."""
    scenario = inner(report, "scenario")
    stack = scenario.get("stack")
    if isinstance(stack, list):  # 0.2
        engines = [p for p in stack if inner(p, "standardized").get("kind") == "inference_engine"]
        known = [inner(p, "standardized") for p in engines]
        args = [inner(p, "native", "args") for p in engines]
        devices = [inner(k, "accelerator") for k in known]
        names = [(k.get("tool"), k.get("tool_version")) for k in known]
        models = [inner(k, "model").get("name") for k in known]
    else:
        platform = _list(inner(scenario, "platform").get("engine"))
        args = [inner(e, "args") for e in platform]
        devices = _list(inner(scenario, "host").get("accelerator"))
        names = [(e.get("name"), e.get("version")) for e in platform]
        models = [inner(scenario, "model").get("name")]
    return {
        "args": args,
        "model": words(_common(models)),
        "accelerator": words(_common(d.get("model") for d in devices)),
        "tp": count(_common(inner(d, "parallelism").get("tp") for d in devices)),
        "engine": words(_common(n for n, _ in names)),
        "version": words(_common(v for _, v in names)),
    }


def _list(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _common(values: Iterable[Any]) -> Any:
    found = list(values)
    return found[0] if found and all(v == found[0] for v in found) else None


def _speculation(engine_args: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return vLLM's speculative configuration of the first engine that has one."""
    for args in engine_args:
        for name in ("--speculative-config", "--speculative_config", "-sc", "speculative_config"):
            value = args.get(name)
            if isinstance(value, str):
                try:
                    value = json.loads(value)
                except ValueError:
                    continue
            if isinstance(value, dict) and value:
                return value
    return {}
