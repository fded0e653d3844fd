"""Tests of the reader of GuideLLM reports."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from specsim.errors import InputError
from specsim.measure.readers import guidellm
from specsim.measure.source import Foreign, Source


def _distribution(mean: float, *, n: int = 10) -> dict[str, Any]:
    some = {
        "mean": mean,
        "median": mean * 0.9,
        "std_dev": mean * 0.1,
        "count": n,
        "percentiles": {"p50": mean * 0.9, "p90": mean * 1.1, "p95": mean * 1.2, "p99": mean * 1.3},
    }
    other = {"mean": 0.0, "median": 0.0, "std_dev": 0.0, "count": 0, "percentiles": {"p50": 0.0}}
    return {"successful": some, "errored": other, "incomplete": other, "total": some}


def _benchmark(strategy: dict[str, Any], *, per_iteration: float = 1.0) -> dict[str, Any]:
    return {
        "type_": "generative_benchmark",
        "config": {"strategy": strategy, "backend": {"model": "m"}},
        "metrics": {
            "request_totals": {"successful": 10, "errored": 1, "incomplete": 2, "total": 13},
            "request_latency": _distribution(2.0),
            "time_to_first_token_ms": _distribution(100.0),
            "time_per_output_token_ms": _distribution(20.0),
            "inter_token_latency_ms": _distribution(19.0),
            "prompt_token_count": _distribution(50.0),
            "output_token_count": _distribution(100.0),
            "output_tokens_per_second": _distribution(400.0),
            "requests_per_second": _distribution(4.0),
            "request_concurrency": _distribution(7.9),
            "iter_tokens_per_iteration": _distribution(per_iteration),
        },
        "start_time": 0.0,
        "duration": 5.0,
    }


def _report(tmp_path: Path, *benchmarks: dict[str, Any]) -> Source:
    path = tmp_path / "benchmarks.json"
    path.write_text(
        json.dumps(
            {
                "metadata": {"version": 2, "guidellm_version": "0.8.1"},
                "config": {},
                "benchmarks": benchmarks,
            }
        )
    )
    return Source(path)


def test_tpot_is_the_inter_token_latency_not_the_time_per_output_token(tmp_path: Path) -> None:
    source = _report(tmp_path, _benchmark({"type_": "synchronous"}))
    assert guidellm.recognises(source)
    (row,) = guidellm.read(source)
    assert row.tpot_ms is not None
    # 20 ms per output token is 2000 ms / 100 tokens, with the 100 ms to the first token.
    assert row.tpot_ms.mean == pytest.approx(19.0)
    assert row.tpot_ms.p99 == pytest.approx(24.7)
    assert row.itl_ms is None
    assert row.itl_of == "token"


def test_request_latency_is_in_seconds_and_ttft_in_ms(tmp_path: Path) -> None:
    (row,) = guidellm.read(_report(tmp_path, _benchmark({"type_": "synchronous"})))
    assert row.e2e_ms is not None
    assert row.e2e_ms.mean == pytest.approx(2000.0)
    assert row.ttft_ms is not None
    assert row.ttft_ms.mean == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("strategy", "concurrency", "request_rate"),
    [
        ({"type_": "synchronous"}, 1.0, None),
        ({"type_": "concurrent", "streams": 8, "max_concurrency": 8}, 8.0, None),
        ({"type_": "concurrent", "max_concurrency": 8}, 8.0, None),
        ({"type_": "throughput", "max_concurrency": 512}, None, None),
        ({"type_": "constant", "rate": 4.0, "max_concurrency": 10240}, None, 4.0),
        ({"type_": "poisson", "rate": 4.0}, None, 4.0),
    ],
)
def test_strategy(
    tmp_path: Path, strategy: dict[str, Any], concurrency: float | None, request_rate: float | None
) -> None:
    (row,) = guidellm.read(_report(tmp_path, _benchmark(strategy)))
    assert (row.concurrency, row.request_rate) == (concurrency, request_rate)
    assert row.metadata["mean_request_concurrency"] == "7.9"


def test_tokens_per_iteration_is_a_warning_and_no_acceptance(tmp_path: Path) -> None:
    source = _report(tmp_path, _benchmark({"type_": "synchronous"}, per_iteration=2.5))
    (row,) = guidellm.read(source)
    assert row.acceptance is None
    assert row.arm == "unknown"
    assert "2.50 tokens" in row.warnings[0]


def test_several_benchmarks_are_numbered(tmp_path: Path) -> None:
    source = _report(tmp_path, *[_benchmark({"type_": "poisson", "rate": r}) for r in (1.0, 2.0)])
    assert [r.source for r in guidellm.read(source)] == [f"{source.name}#1", f"{source.name}#2"]


def test_no_success(tmp_path: Path) -> None:
    failed = _benchmark({"type_": "synchronous"})
    for distribution in failed["metrics"].values():
        if "successful" in distribution and isinstance(distribution["successful"], dict):
            distribution["successful"] = {"mean": 0.0, "count": 0}
    with pytest.raises(Foreign, match="no request succeeded"):
        guidellm.read(_report(tmp_path, failed))


def test_truncated(tmp_path: Path) -> None:
    source = _report(tmp_path, _benchmark({"type_": "synchronous"}))
    source.path.write_text(source.path.read_text()[:-100])
    assert guidellm.recognises(Source(source.path))
    with pytest.raises(InputError, match="truncated"):
        guidellm.read(Source(source.path))


def test_csv_reads_as_the_json(tmp_path: Path) -> None:
    benchmark = _benchmark({"type_": "concurrent", "streams": 8})
    columns: list[tuple[tuple[str, str, str], Any]] = [
        (("Run Info", "Backend", ""), json.dumps({"model": "m"})),
        (("Benchmark", "Strategy", ""), "concurrent@8"),
        (("Timings", "Start Time", ""), "1970-01-01T00:00:00+00:00"),
        (("Timings", "Duration", "Sec"), 5.0),
        (("Request Counts", "Successful", ""), 10),
        (("Request Counts", "Incomplete", ""), 2),
        (("Request Counts", "Errored", ""), 1),
    ]
    for name, (group, status) in guidellm._COLUMNS.items():
        found = benchmark["metrics"][name]["successful"]
        p = found["percentiles"]
        cells = [0, 0, 0, 0, 0, 0, 0, p["p90"], p["p95"], p["p99"], 0]
        columns += [
            ((group, status, "Mean"), found["mean"]),
            ((group, status, "Median"), found["median"]),
            ((group, status, "Std Dev"), found["std_dev"]),
            ((group, status, "Percentiles"), str(cells)),
        ]
    columns.append((("Runtime Info", "Metadata", ""), json.dumps({"guidellm_version": "0.8.1"})))
    path = tmp_path / "benchmarks.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        for i in range(3):
            writer.writerow([heading[i] for heading, _ in columns])
        writer.writerow([value for _, value in columns])
    assert guidellm.recognises(Source(path))
    (row,) = guidellm.read(Source(path))
    (expected,) = guidellm.read(_report(tmp_path, benchmark))
    for field in ("tpot_ms", "ttft_ms", "e2e_ms", "concurrency", "output_tok_s", "completed"):
        assert getattr(row, field) == getattr(expected, field), field
    assert (row.model, row.date, row.metadata) == (
        expected.model,
        expected.date,
        expected.metadata,
    )


@pytest.mark.parametrize(
    ("name", "tpot_ms", "e2e_ms", "concurrency"),
    [
        ("qwen3_4b_sanity_v1.json", 24.1788, 24908.66, 4.0),
        ("gpt_oss_20b_sweep_v1_trimmed.json", 29.9063, 30644.15, 1.0),
    ],
)
def test_version_1_sample(
    shared: Path, name: str, tpot_ms: float, e2e_ms: float, concurrency: float
) -> None:
    source = Source(shared / "samples" / "guidellm" / name)
    assert guidellm.recognises(source)
    (row,) = guidellm.read(source)
    assert row.tpot_ms is not None
    assert row.e2e_ms is not None
    assert row.tpot_ms.mean == pytest.approx(tpot_ms, rel=1e-4)
    assert row.e2e_ms.mean == pytest.approx(e2e_ms, rel=1e-4)
    assert row.concurrency == concurrency
    assert row.output_tokens == 1024
    assert row.warnings == ()


def test_version_2_sample(shared: Path) -> None:
    source = Source(shared / "samples" / "guidellm" / "fixture_report_v2.json")
    rows = guidellm.read(source)
    assert [r.request_rate for r in rows] == [2.0, 4.0]
    assert rows[0].model == "e2e-mock-model"
    assert rows[0].tpot_ms is not None
    assert rows[0].tpot_ms.mean == pytest.approx(1.1508, rel=1e-4)
