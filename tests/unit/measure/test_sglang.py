"""Tests of the reader of SGLang's bench_serving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.measure.readers import sglang
from specsim.measure.source import Foreign, Source


def _record(**changes: Any) -> dict[str, Any]:
    record: dict[str, Any] = {
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": float("inf"),
        "max_concurrency": 16,
        "sharegpt_output_len": None,
        "random_input_len": 1024,
        "random_output_len": 1024,
        "random_range_ratio": 0.0,
        "duration": 10.0,
        "completed": 100,
        "total_input_tokens": 5000,
        "total_output_tokens": 20000,
        "output_throughput": 2000.0,
        "mean_tpot_ms": 5.0,
        "mean_itl_ms": 5.1,
        "p99_itl_ms": 9.0,
        "accept_length": None,
    }
    return record | changes


def _source(tmp_path: Path, *records: dict[str, Any]) -> Source:
    path = tmp_path / "sglang_1016_100.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in records))
    return Source(path)


def test_infinity_is_no_rate_and_null_no_proof_of_no_speculation(tmp_path: Path) -> None:
    source = _source(tmp_path, _record())
    assert "Infinity" in source.head
    assert sglang.recognises(source)
    (row,) = sglang.read(source)
    assert row.request_rate is None
    assert row.concurrency == 16
    assert (row.arm, row.arm_from, row.acceptance) == ("unknown", "", None)
    assert (row.input_tokens, row.output_tokens) == (50.0, 200.0)


def test_itl_is_per_token_for_the_native_backend_only(tmp_path: Path) -> None:
    native, other = sglang.read(_source(tmp_path, _record(), _record(backend="vllm")))
    assert (native.engine, native.itl_of) == ("sglang", "token")
    assert (other.engine, other.itl_of) == ("vllm", "step")
    assert native.source.endswith("#1")
    assert other.source.endswith("#2")


def test_accept_length_counts(tmp_path: Path) -> None:
    server = {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "speculative_draft_model_path": "d",
        "model_path": "t",
        "version": "0.5.23",
        "tp_size": 2,
    }
    (row,) = sglang.read(_source(tmp_path, _record(accept_length=2.4, server_info=server)))
    assert (row.arm, row.arm_from, row.method) == ("on", "counters", "eagle3")
    assert row.acceptance is not None
    assert row.acceptance.acceptance_length == 2.4
    assert (row.num_speculative_tokens, row.model, row.drafter) == (3, "t", "d")
    assert (row.engine_version, row.tensor_parallel_size) == ("0.5.23", 2)


@pytest.mark.parametrize(
    ("server", "arm", "k"),
    [
        ({"speculative_algorithm": None}, "off", None),
        ({"speculative_algorithm": "EAGLE", "speculative_num_steps": 5}, "on", 5),
        ({"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4}, "on", 3),
        (
            {
                "speculative_algorithm": "EAGLE",
                "speculative_num_steps": 5,
                "speculative_eagle_topk": 4,
            },
            "on",
            None,
        ),
        ({"version": "0.4"}, "unknown", None),
    ],
)
def test_server_info_tells_the_arm(
    tmp_path: Path, server: dict[str, Any], arm: str, k: int | None
) -> None:
    (row,) = sglang.read(_source(tmp_path, _record(server_info=server)))
    assert (row.arm, row.num_speculative_tokens) == (arm, k)
    assert row.arm_from == ("" if arm == "unknown" else "metadata")


def test_no_answer(tmp_path: Path) -> None:
    with pytest.raises(Foreign, match="no request was answered"):
        sglang.read(_source(tmp_path, _record(completed=0)))


def test_sample(shared: Path) -> None:
    (path,) = (shared / "samples" / "sglang_bench_jsonl").iterdir()
    assert sglang.recognises(Source(path))
    (row,) = sglang.read(Source(path))
    assert (row.request_rate, row.concurrency, row.arm) == (5.0, 256, "unknown")
    assert row.tpot_ms is not None
    assert row.itl_ms is not None
    assert row.tpot_ms.mean == pytest.approx(11.8089, rel=1e-4)
    assert row.itl_ms.p95 == pytest.approx(18.8396, rel=1e-4)
    assert row.itl_of == "token"
    assert row.output_tokens == pytest.approx(195.775)
