"""Tests of the reader of llm-d's benchmark report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from specsim.errors import InputError
from specsim.measure.readers import llmd
from specsim.measure.source import Foreign, Source


def _value(mean: float, units: str) -> dict[str, Any]:
    return {"mean": mean, "p50": mean, "p99": 2 * mean, "stddev": 0.0, "units": units}


def _report(
    *, tool: str = "vllm-benchmark", args: dict[str, Any] | None = None, **latency: Any
) -> dict[str, Any]:
    engine = {
        "native": {"args": args or {}},
        "standardized": {
            "kind": "inference_engine",
            "tool": "vllm",
            "tool_version": "0.33.0",
            "accelerator": {"model": "H100", "parallelism": {"tp": 2}},
            "model": {"name": "m"},
        },
    }
    return {
        "version": "0.2",
        "run": {"time": {"start": "2025-11-05T18:00:42Z", "duration": "PT1M30S"}},
        "scenario": {
            "stack": [engine, {"standardized": {"kind": "generic", "tool": "router"}}],
            "load": {
                "standardized": {"tool": tool, "concurrency": 16, "rate_qps": None, "stage": 1}
            },
        },
        "results": {
            "request_performance": {
                "aggregate": {
                    "latency": {
                        "request_latency": _value(1.09, "s"),
                        "time_to_first_token": _value(100.0, "ms"),
                        "time_per_output_token": _value(0.01, "s/token"),
                        "inter_token_latency": _value(25.0, "ms/token"),
                        **latency,
                    },
                    "requests": {
                        "total": 100,
                        "failures": 1,
                        "incomplete": 2,
                        "input_length": _value(50.0, "count"),
                        "output_length": _value(100.0, "count"),
                    },
                    "throughput": {
                        "output_token_rate": _value(1500.0, "tokens/s"),
                        "request_rate": _value(15.0, "queries/s"),
                    },
                }
            }
        },
    }


def _source(tmp_path: Path, report: dict[str, Any]) -> Source:
    path = tmp_path / "benchmark_report_v0.2.yaml"
    path.write_text(yaml.safe_dump(report))
    return Source(path)


def test_unit_of_every_value_is_obeyed(tmp_path: Path) -> None:
    source = _source(tmp_path, _report())
    assert llmd.recognises(source)
    (row,) = llmd.read(source)
    assert row.tpot_ms is not None
    assert row.ttft_ms is not None
    assert row.e2e_ms is not None
    assert row.itl_ms is not None
    assert row.tpot_ms.mean == pytest.approx(10.0)
    assert row.ttft_ms.mean == pytest.approx(100.0)
    assert row.e2e_ms.p99 == pytest.approx(2180.0)
    assert (row.itl_ms.mean, row.itl_of) == (25.0, "step")
    assert (row.concurrency, row.request_rate, row.completed, row.failed) == (16, None, 97, 1)
    assert (row.output_tok_s, row.request_per_s, row.duration_s) == (1500.0, 15.0, 90.0)
    assert (row.engine, row.engine_version) == ("vllm", "0.33.0")
    assert (row.model, row.accelerator, row.tensor_parallel_size) == ("m", "H100", 2)
    assert row.date == "2025-11-05T18:00:42Z"
    assert row.arm == "unknown"


def test_guidellm_hands_on_its_own_meaning(tmp_path: Path) -> None:
    report = _report(
        tool="guidellm",
        time_per_output_token=_value(10.9, "ms/token"),
        inter_token_latency=_value(10.0, "ms/token"),
    )
    (row,) = llmd.read(_source(tmp_path, report))
    assert row.tpot_ms is not None
    assert row.tpot_ms.mean == 10.0
    assert row.itl_ms is None


def test_half_a_tpot_of_inference_perf(tmp_path: Path) -> None:
    report = _report(tool="inference-perf", time_per_output_token=_value(5.0, "ms/token"))
    (row,) = llmd.read(_source(tmp_path, report))
    assert row.tpot_ms is not None
    assert row.tpot_ms.mean == pytest.approx(10.0)
    assert row.itl_ms is None
    assert len(row.warnings) == 2


@pytest.mark.parametrize(
    "config",
    [
        '{"method": "eagle3", "model": "d", "num_speculative_tokens": 3}',
        {"method": "eagle3", "model": "d", "num_speculative_tokens": 3},
    ],
)
def test_speculative_config_of_the_engine(tmp_path: Path, config: Any) -> None:
    (row,) = llmd.read(_source(tmp_path, _report(args={"--speculative-config": config})))
    assert (row.arm, row.arm_from, row.method) == ("on", "metadata", "eagle3")
    assert (row.num_speculative_tokens, row.drafter) == (3, "d")


def test_unknown_unit_is_left_out(tmp_path: Path) -> None:
    (row,) = llmd.read(_source(tmp_path, _report(request_latency=_value(3.0, "parsecs"))))
    assert row.e2e_ms is None
    assert "parsecs" in row.warnings[0]


def test_report_without_requests(tmp_path: Path) -> None:
    report = _report()
    report["results"] = {"component_health": []}
    source = _source(tmp_path, report)
    assert llmd.recognises(source)
    with pytest.raises(Foreign, match="without latency"):
        llmd.read(source)


def test_broken(tmp_path: Path) -> None:
    source = _source(tmp_path, _report())
    source.path.write_text(source.path.read_text() + "\n\t: [")
    with pytest.raises(InputError, match="broken or truncated"):
        llmd.read(Source(source.path))


def test_sample_0_1(shared: Path) -> None:
    folder = shared / "samples" / "llmd_benchmark_report"
    source = Source(folder / "br_v0_1_example.yaml")
    assert llmd.recognises(source)
    (row,) = llmd.read(source)
    assert row.e2e_ms is not None
    assert row.tpot_ms is not None
    assert row.e2e_ms.mean == pytest.approx(3.3133, rel=1e-4)
    assert row.tpot_ms.mean == pytest.approx(0.083693, rel=1e-4)
    assert (row.request_rate, row.completed, row.engine_version) == (1.34, 31, "0.9.0.1")
    # Prefill and decode differ: no one number.
    assert (row.accelerator, row.tensor_parallel_size) == ("H100", None)
    assert row.date == "2025-06-10T15:49:43+00:00"


def test_sample_0_2_1(shared: Path) -> None:
    folder = shared / "samples" / "llmd_benchmark_report"
    source = Source(folder / "br_v0_2_1_example.yaml")
    assert llmd.recognises(source)
    (row,) = llmd.read(source)
    assert row.ttft_ms is not None
    assert row.ttft_ms.p99 == pytest.approx(50.2949, rel=1e-4)
    # Its concurrency is .inf.
    assert (row.request_rate, row.concurrency) == (10.0, None)
    assert (row.model, row.tensor_parallel_size) == ("Qwen/Qwen3-0.6B", 8)
    assert row.duration_s == pytest.approx(49.972, rel=1e-4)
