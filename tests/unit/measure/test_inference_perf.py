"""Tests of the reader of inference-perf stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from specsim.measure.readers import inference_perf
from specsim.measure.source import Foreign, Source


def _stage(
    *, tpot_s: float = 0.01, gaps: dict[str, float] | None = None, **load: Any
) -> dict[str, Any]:
    return {
        "load_summary": {"count": 100, "requested_rate": 4.0, "achieved_rate": 3.9, **load},
        "successes": {
            "count": 98,
            "latency": {
                "request_latency": {"mean": 1.09, "median": 1.08},
                "time_to_first_token": {"mean": 0.1, "median": 0.09},
                "normalized_time_per_output_token": {"mean": 0.0109},
                "time_per_output_token": {"mean": tpot_s, "median": tpot_s, "p99": 2 * tpot_s},
                "inter_token_latency": gaps or {"mean": 0.01, "p5": 0.009, "median": 0.01},
            },
            "throughput": {"output_tokens_per_sec": 390.0, "requests_per_sec": 3.9},
            "prompt_len": {"mean": 200.0},
            "output_len": {"mean": 100.0},
        },
        "failures": {"count": 2},
    }


def _source(
    folder: Path, content: dict[str, Any], name: str = "stage_3_lifecycle_metrics"
) -> Source:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return Source(path)


def test_seconds_become_ms(tmp_path: Path) -> None:
    source = _source(tmp_path, _stage())
    assert inference_perf.recognises(source)
    (row,) = inference_perf.read(source)
    assert row.tpot_ms is not None
    assert row.ttft_ms is not None
    assert row.e2e_ms is not None
    assert row.tpot_ms.mean == pytest.approx(10.0)
    assert row.tpot_ms.p99 == pytest.approx(20.0)
    assert row.ttft_ms.p50 == pytest.approx(90.0)
    assert row.e2e_ms.mean == pytest.approx(1090.0)
    assert (row.itl_of, row.warnings) == ("token", ())
    assert (row.request_rate, row.concurrency) == (4.0, None)
    assert (row.completed, row.failed, row.metadata["stage"]) == (98, 2, "3")


def test_half_a_tpot_is_replaced_by_the_quotient_of_the_means(tmp_path: Path) -> None:
    (row,) = inference_perf.read(_source(tmp_path, _stage(tpot_s=0.005)))
    assert row.tpot_ms is not None
    assert row.tpot_ms.mean == pytest.approx(10.0)
    assert row.tpot_ms.p50 is None
    assert "contradicts" in row.warnings[0]


def test_gaps_with_zeros_are_not_read(tmp_path: Path) -> None:
    gaps = {"mean": 0.01, "p5": 0.00001, "median": 0.00004, "p75": 0.02}
    (row,) = inference_perf.read(_source(tmp_path, _stage(gaps=gaps)))
    assert row.itl_ms is None
    assert row.itl_of == ""
    assert "gaps of zero" in row.warnings[0]


def test_gaps_of_pieces_are_not_called_gaps_of_tokens(tmp_path: Path) -> None:
    (row,) = inference_perf.read(_source(tmp_path, _stage(gaps={"mean": 0.03, "p5": 0.028})))
    assert row.itl_ms is not None
    assert row.itl_of == ""


def test_stage_of_fixed_concurrency(tmp_path: Path) -> None:
    source = _source(tmp_path, _stage(requested_rate=500.0, concurrency=8))
    (row,) = inference_perf.read(source)
    assert (row.concurrency, row.request_rate) == (8, None)


def test_summary_is_skipped_beside_its_stages_only(tmp_path: Path) -> None:
    report = _stage()
    del report["load_summary"]["requested_rate"]
    source = _source(tmp_path, report, "summary_lifecycle_metrics")
    (row,) = inference_perf.read(source)
    assert "several stages" in row.warnings[0]
    _source(tmp_path, _stage())
    with pytest.raises(Foreign, match="sums up the stages beside it"):
        inference_perf.read(source)


def test_no_success(tmp_path: Path) -> None:
    report = _stage()
    report["successes"] = {"count": 0}
    with pytest.raises(Foreign, match="no request succeeded"):
        inference_perf.read(_source(tmp_path, report))


def test_yaml(tmp_path: Path) -> None:
    path = tmp_path / "stage_0_lifecycle_metrics.yaml"
    path.write_text(yaml.safe_dump(_stage()))
    assert inference_perf.recognises(Source(path))
    (row,) = inference_perf.read(Source(path))
    assert row.tpot_ms is not None
    assert row.tpot_ms.mean == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("name", "rate", "tpot_ms", "tok_s"),
    [
        ("llama31_8b_vllm_stage0", 1.0, 7.230, 64.234),
        ("llama31_8b_vllm_stage3", 92.19, 15.829, 5693.884),
        ("llama31_8b_vllm_eagle_stage0", 1.0, 10.999, 62.704),
        ("llama31_8b_vllm_eagle_stage3", 52.49, 19.893, 3252.177),
    ],
)
def test_sample(shared: Path, name: str, rate: float, tpot_ms: float, tok_s: float) -> None:
    source = Source(shared / "samples" / "inference_perf" / f"{name}_lifecycle.json")
    assert inference_perf.recognises(source)
    (row,) = inference_perf.read(source)
    assert row.tpot_ms is not None
    assert row.tpot_ms.mean == pytest.approx(tpot_ms, rel=1e-3)
    assert row.output_tok_s == pytest.approx(tok_s, rel=1e-4)
    assert (row.request_rate, row.itl_ms) == (rate, None)
    # The name of the file is no evidence here.
    assert (row.arm, row.arm_from) == ("unknown", "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("llama31_8b_vllm_summary_lifecycle", "sums up the stages"),
        ("llama31_8b_vllm_eagle_stage3_prometheus", "other stages"),
    ],
)
def test_samples_that_are_no_run(shared: Path, name: str, reason: str) -> None:
    source = Source(shared / "samples" / "inference_perf" / f"{name}.json")
    assert inference_perf.recognises(source)
    with pytest.raises(Foreign, match=reason):
        inference_perf.read(source)


def test_yaml_sample(shared: Path) -> None:
    folder = shared / "samples" / "llmd_benchmark_report"
    source = Source(folder / "inference_perf_lifecycle.yaml")
    assert inference_perf.recognises(source)
    (row,) = inference_perf.read(source)
    assert row.tpot_ms is not None
    assert row.tpot_ms.mean == pytest.approx(9.2797, rel=1e-4)
    assert (row.request_rate, row.completed, row.duration_s) == (1.0, 3, 2.48)
