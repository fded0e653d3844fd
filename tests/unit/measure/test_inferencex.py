"""Tests of the reader of InferenceX results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.measure.readers import inferencex
from specsim.measure.source import Foreign, Source


def _result(**changes: Any) -> dict[str, Any]:
    return {
        "hw": "b200",
        "conc": 64,
        "model": "m",
        "framework": "vllm",
        "precision": "fp8",
        "spec_decoding": "none",
        "isl": 1024,
        "osl": 128,
        "tp": 8,
        "tput_per_gpu": 900.0,
        "output_tput_per_gpu": 100.0,
        "mean_ttft": 0.5,
        "median_tpot": 0.02,
        "median_intvty": 50.0,
        "p99_itl": 0.03,
        **changes,
    }


def _source(tmp_path: Path, content: Any) -> Source:
    path = tmp_path / "agg.json"
    path.write_text(json.dumps(content))
    return Source(path)


def test_latencies_are_in_seconds(tmp_path: Path) -> None:
    source = _source(tmp_path, _result())
    assert inferencex.recognises(source)
    (row,) = inferencex.read(source)
    assert row.tpot_ms is not None
    assert row.ttft_ms is not None
    assert row.itl_ms is not None
    assert row.tpot_ms.p50 == pytest.approx(20.0)
    assert row.ttft_ms.mean == pytest.approx(500.0)
    assert row.itl_ms.p99 == pytest.approx(30.0)
    assert row.itl_of == "step"


def test_interactivity_is_the_inverse_of_tpot(tmp_path: Path) -> None:
    result = _result(std_intvty=3.0)
    del result["median_tpot"]
    (row,) = inferencex.read(_source(tmp_path, result))
    assert row.tpot_ms is not None
    assert row.tpot_ms.p50 == pytest.approx(20.0)
    assert row.tpot_ms.std is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 800.0),
        ({"is_multinode": True, "disagg": True, "num_decode_gpu": 16}, 1600.0),
        ({"is_multinode": True, "disagg": True}, None),
        ({"output_throughput": 790.0}, 790.0),
        ({"tp": None}, None),
    ],
)
def test_throughput_is_per_gpu(
    tmp_path: Path, changes: dict[str, Any], expected: float | None
) -> None:
    (row,) = inferencex.read(_source(tmp_path, _result(**changes)))
    assert row.output_tok_s == expected
    assert bool(row.warnings) == (expected is None)


@pytest.mark.parametrize(
    ("spec", "arm", "method"),
    [("none", "off", None), ("mtp", "on", "mtp"), ("", "unknown", None), (None, "unknown", None)],
)
def test_arm(tmp_path: Path, spec: str | None, arm: str, method: str | None) -> None:
    (row,) = inferencex.read(_source(tmp_path, _result(spec_decoding=spec)))
    assert (row.arm, row.method) == (arm, method)


def test_list_of_results(tmp_path: Path) -> None:
    rows = inferencex.read(_source(tmp_path, [_result(), _result(conc=128)]))
    assert [r.concurrency for r in rows] == [64, 128]
    assert rows[1].source.endswith("#2")


def test_nothing_usable(tmp_path: Path) -> None:
    with pytest.raises(Foreign):
        inferencex.read(_source(tmp_path, {"hw": "b200", "tput_per_gpu": 1.0}))


@pytest.mark.parametrize(
    ("concurrency", "tpot_ms", "tok_s"),
    [(4, 21.3723, 164.728), (16, 33.6150, 403.581), (64, 87.8618, 663.038)],
)
def test_sample(shared: Path, concurrency: int, tpot_ms: float, tok_s: float) -> None:
    folder = shared / "samples" / "inferencex"
    source = Source(folder / f"glm5_fp8_tp8_isl1024_conc{concurrency}.json")
    assert inferencex.recognises(source)
    (row,) = inferencex.read(source)
    assert row.tpot_ms is not None
    assert row.tpot_ms.p50 == pytest.approx(tpot_ms, rel=1e-4)
    assert row.output_tok_s == pytest.approx(tok_s, rel=1e-4)
    assert (row.concurrency, row.request_rate, row.arm) == (concurrency, None, "unknown")
    assert (row.input_tokens, row.output_tokens) == (1024, 128)
    assert row.date is not None
    assert row.date.startswith("2026-02-13T")
