"""Tests of the reader of aiperf and genai-perf."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.measure.readers import aiperf
from specsim.measure.source import Foreign, Source


def _metrics(**changes: Any) -> dict[str, Any]:
    return {
        "request_throughput": {"unit": "requests/sec", "avg": 5.0},
        "request_latency": {"unit": "ms", "avg": 2000.0, "p50": 1900.0, "std": 10.0},
        "request_count": {"unit": "requests", "avg": 96},
        "time_to_first_token": {"unit": "ms", "avg": 100.0},
        "inter_token_latency": {"unit": "ms", "avg": 13.0, "p50": 12.0, "p99": 30.0},
        "inter_chunk_latency": {"unit": "ms", "avg": 31.0, "p50": 30.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 1000.0},
        "output_sequence_length": {"unit": "tokens", "avg": 200.0, "std": 5.0},
        **changes,
    }


def _source(tmp_path: Path, metrics: dict[str, Any]) -> Source:
    path = tmp_path / "profile_export_aiperf.json"
    path.write_text(json.dumps({"aiperf_version": "0.13.0", **metrics}))
    return Source(path)


def test_inter_token_latency_is_tpot_and_inter_chunk_latency_is_itl(tmp_path: Path) -> None:
    source = _source(tmp_path, _metrics())
    assert aiperf.recognises(source)
    (row,) = aiperf.read(source)
    assert row.tpot_ms is not None
    assert row.itl_ms is not None
    assert (row.tpot_ms.mean, row.itl_ms.mean, row.itl_of) == (13.0, 31.0, "step")
    assert (row.completed, row.output_tok_s, row.output_tokens_std) == (96, 1000.0, 5.0)
    assert row.arm == "unknown"


def test_unit_is_obeyed(tmp_path: Path) -> None:
    metrics = _metrics(
        time_to_first_token={"unit": "sec", "avg": 0.2},
        inter_token_latency={"unit": "us", "avg": 9000.0},
        request_latency={"unit": "furlongs", "avg": 1.0},
        benchmark_duration={"unit": "sec", "avg": 18.5},
    )
    (row,) = aiperf.read(_source(tmp_path, metrics))
    assert row.ttft_ms is not None
    assert row.tpot_ms is not None
    assert row.ttft_ms.mean == pytest.approx(200.0)
    assert row.tpot_ms.mean == pytest.approx(9.0)
    assert row.duration_s == pytest.approx(18.5)
    assert row.e2e_ms is None
    assert "furlongs" in row.warnings[0]


def test_acceptance_rate_is_in_percent(tmp_path: Path) -> None:
    metrics = _metrics(
        spec_decode_acceptance_length={"unit": "ratio", "avg": 2.6},
        spec_decode_token_weighted_acceptance_length={"unit": "ratio", "avg": 2.5},
        spec_decode_overall_draft_acceptance_rate={"unit": "%", "avg": 50.0},
        spec_decode_steps={"unit": "count", "avg": 80.0, "sum": 7680},
    )
    (row,) = aiperf.read(_source(tmp_path, metrics))
    assert (row.arm, row.arm_from) == ("on", "counters")
    assert row.acceptance is not None
    assert row.acceptance.acceptance_length == 2.5
    assert row.acceptance.draft_acceptance_rate == pytest.approx(0.5)
    assert row.acceptance.drafts == 7680


def test_mean_over_requests_is_warned_about(tmp_path: Path) -> None:
    metrics = _metrics(spec_decode_acceptance_length={"unit": "ratio", "avg": 2.6})
    (row,) = aiperf.read(_source(tmp_path, metrics))
    assert row.acceptance is not None
    assert row.acceptance.acceptance_length == 2.6
    assert "over requests" in row.warnings[0]


@pytest.mark.parametrize(
    ("config", "load", "model"),
    [
        (
            {"endpoint": {"model_names": ["m"]}, "loadgen": {"concurrency": 16}},
            (16.0, None),
            "m",
        ),
        (
            {
                "models": [{"name": "m"}],
                "phases": [
                    {"name": "warmup", "concurrency": 1},
                    {"name": "profiling", "type": "poisson", "rate": 4.0},
                ],
            },
            (None, 4.0),
            "m",
        ),
        (
            {"model_names": ["m"], "perf_analyzer": {"stimulus": {"concurrency": 8}}},
            (8.0, None),
            "m",
        ),
        ({}, (None, None), None),
    ],
)
def test_load(
    tmp_path: Path,
    config: dict[str, Any],
    load: tuple[float | None, float | None],
    model: str | None,
) -> None:
    (row,) = aiperf.read(_source(tmp_path, _metrics(input_config=config)))
    assert (row.concurrency, row.request_rate) == load
    assert row.model == model


def test_genai_perf_has_the_same_names(tmp_path: Path) -> None:
    path = tmp_path / "profile_export_genai_perf.json"
    path.write_text(json.dumps(_metrics()))
    assert aiperf.recognises(Source(path))
    (row,) = aiperf.read(Source(path))
    assert row.tpot_ms is not None
    assert row.tpot_ms.p99 == 30.0


def test_csv_in_two_blocks(tmp_path: Path) -> None:
    path = tmp_path / "profile_export_aiperf.csv"
    path.write_text(
        "Metric,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std\n"
        "Inter Token Latency (ms),13.05,,,,,,,,13.25,,,,30.30,2.0\n"
        'Request Latency (ms),"2,695.10",,,,,,,,,,,,,\n'
        "Acceptance Length (ratio),2.60,,,,,,,,,,,,,\n"
        "\n"
        "Metric,Value\n"
        "Output Token Throughput (tokens/sec),1040.14\n"
        "Overall Draft Acceptance Rate (%),53.00\n"
        "Request Count,96\n"
        "\n\n"
        "Endpoint,GPU_Index,GPU_Name,GPU_UUID,Platform,Metric,avg\n"
        "localhost,0,x,y,z,GPU Power Usage (W),300\n"
    )
    assert aiperf.recognises(Source(path))
    (row,) = aiperf.read(Source(path))
    assert row.tpot_ms is not None
    assert row.e2e_ms is not None
    assert (row.tpot_ms.mean, row.tpot_ms.p99, row.e2e_ms.mean) == (13.05, 30.3, 2695.1)
    assert (row.output_tok_s, row.completed) == (1040.14, 96)
    assert row.acceptance is not None
    assert row.acceptance.draft_acceptance_rate == pytest.approx(0.53)


def test_nothing_of_tokens(tmp_path: Path) -> None:
    metrics = {"request_latency": {"unit": "ms", "avg": 3.0}}
    with pytest.raises(Foreign, match="without latency or throughput of tokens"):
        aiperf.read(_source(tmp_path, metrics))


def test_sample(shared: Path) -> None:
    (path,) = (shared / "samples" / "aiperf").iterdir()
    assert aiperf.recognises(Source(path))
    (row,) = aiperf.read(Source(path))
    assert row.tpot_ms is not None
    assert row.itl_ms is not None
    assert (row.tpot_ms.p99, row.itl_ms.p99, row.itl_of) == (30.3, 119.6, "step")
    assert (row.output_tok_s, row.duration_s) == (1040.14, pytest.approx(18.348))
