import json

import pytest

from specsim.measure.readers import vllm_offline
from specsim.measure.source import Foreign, Source

LATENCY = {
    "model_id": "org/target",
    "avg_latency": 2.0,
    "latencies": [1.9, 2.1],
    "percentiles": {"10": 1.92, "25": 1.95, "50": 2.0, "75": 2.05, "90": 2.08, "99": 2.098},
}
THROUGHPUT = {
    "model_id": "org/target",
    "elapsed_time": 20.0,
    "num_requests": 1000,
    "total_num_tokens": 640000,
    "requests_per_second": 50.0,
    "tokens_per_second": 32000.0,
}
CASE = {
    "case": "verify=2*4@4096:3",
    "requests": [
        {"query_len": 4, "kv_len": 4096, "num_draft_tokens": 3, "chunked": False},
        {"query_len": 4, "kv_len": 4096, "num_draft_tokens": 3, "chunked": False},
    ],
    "median_us": 12345.0,
    "ranks": [{"num_tokens": 8, "latency_us": {"median": 12345.0, "p90": 12400.0}}],
}


@pytest.fixture
def rows(tmp_path):
    def read(document):
        path = tmp_path / "x.json"
        path.write_text(json.dumps(document))
        source = Source(path)
        assert vllm_offline.recognises(source)
        return vllm_offline.read(source)

    return read


def test_latency_is_of_a_whole_batch_and_in_seconds(rows):
    (row,) = rows(LATENCY)
    assert row.format == "vllm bench latency"
    assert (row.e2e_ms.mean, row.e2e_ms.p50, row.e2e_ms.p90, row.e2e_ms.p99) == (
        2000,
        2000,
        2080,
        2098,
    )
    assert row.e2e_ms.std == pytest.approx(100)
    assert (row.arm, row.model, row.output_tok_s) == ("unknown", "org/target", None)
    assert "whole batch" in row.warnings[0]


def test_latency_of_an_older_version_has_no_model(rows):
    older = {k: v for k, v in LATENCY.items() if k != "model_id"}
    (row,) = rows({**older, "latencies": [2.0]})
    assert (row.model, row.e2e_ms.std) == (None, None)


def test_throughput_does_not_state_output_tokens(rows):
    (row,) = rows(THROUGHPUT)
    assert (row.request_per_s, row.duration_s, row.completed) == (50, 20, 1000)
    assert row.output_tok_s is None
    assert "prompts and answers together" in row.warnings[0]
    assert row.metadata == {"total_num_tokens": "640000", "tokens_per_second": "32000.0"}


def test_forward_gives_a_row_per_case(rows):
    mixed = {
        "case": "mixed",
        "requests": [{"query_len": 1, "kv_len": 10}, {"query_len": 512, "kv_len": 512}],
        "median_us": 30000.0,
        "ranks": [],
    }
    verify, other = rows([CASE, mixed])
    assert verify.itl_ms.mean == pytest.approx(12.345)
    assert verify.itl_of == "step"
    assert verify.metadata == {
        "case": "verify=2*4@4096:3",
        "median_us": "12345.0",
        "num_tokens": "8",
        "num_requests": "2",
        "query_len": "4",
        "kv_len": "4096",
        "num_draft_tokens": "3",
    }
    assert "one exact batch" in verify.warnings[0]
    assert other.metadata["num_tokens"] == "513"
    assert "query_len" not in other.metadata
    assert [r.source[-2:] for r in (verify, other)] == ["#1", "#2"]


def test_keys_without_a_result(rows):
    with pytest.raises(Foreign, match="no result"):
        rows({"avg_latency": None, "percentiles": {}})


@pytest.mark.parametrize("text", ["", "[]", "\0", '{"latencies": [1]}', "avg_latency percentiles"])
def test_others_are_not_recognised(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    assert not vllm_offline.recognises(Source(path))
