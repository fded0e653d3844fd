import json

import pytest

from specsim.measure.readers import harness
from specsim.measure.source import Foreign, Source

LOAD = {
    "concurrency": 4,
    "ok": True,
    "detail": "successful_requests 80/80",
    "metrics": {
        "successful_requests": 80,
        "benchmark_duration_s": 50.0,
        "total_input_tokens": 800,
        "total_generated_tokens": 16000,
        "request_throughput_req_s": 1.6,
        "output_token_throughput_tok_s": 320.0,
        "mean_tpot_ms": 10.0,
        "mean_itl_ms": 25.0,
        "p99_itl_ms": 80.0,
        "spec_acceptance_rate_percent": 75.0,
        "spec_acceptance_length": 2.5,
        "spec_drafts": 6400,
        "spec_draft_tokens": 12800,
        "spec_accepted_tokens": 9600,
        "spec_per_position_acceptance_percent": [85.0, 65.0],
    },
    "command": ["vllm", "bench", "serve", "--model", "org/target", "--num-prompts=80"],
}


@pytest.fixture
def rows(tmp_path):
    def read(*loads):
        path = tmp_path / "bench.json"
        path.write_text(json.dumps(loads))
        source = Source(path)
        assert harness.recognises(source)
        return harness.read(source)

    return read


def test_percent_becomes_fractions(rows):
    (row,) = rows(LOAD)
    assert row.acceptance.per_position == (0.85, 0.65)
    assert row.acceptance.draft_acceptance_rate == 0.75
    assert (row.arm, row.arm_from, row.num_speculative_tokens) == ("on", "counters", 2)
    assert (row.concurrency, row.model, row.completed, row.failed) == (4, "org/target", 80, 0)
    assert (row.output_tok_s, row.output_tokens) == (320, 200)
    assert (row.itl_ms.mean, row.itl_of) == (25, "step")


def test_failures(rows):
    part = {**LOAD, "metrics": {**LOAD["metrics"], "successful_requests": 60}, "detail": "60/80"}
    gone = {**LOAD, "metrics": {}, "ok": False, "detail": "timed out"}
    (row,) = rows(part, gone)
    assert row.source.endswith("#1")
    assert row.failed == 20
    assert row.warnings == (
        "20 of 80 requests failed: 60/80",
        "left out of this file: result 2: all 80 requests failed: timed out",
    )


def test_another_shape(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"loads": [LOAD]}))
    assert harness.recognises(Source(path))
    with pytest.raises(Foreign, match="no list of loads"):
        harness.read(Source(path))
    path.write_text("[]")
    assert not harness.recognises(Source(path))


@pytest.mark.parametrize("workload", ["conv", "agent"])
def test_samples(shared, workload):
    folder = shared / "samples/harness_vllm_bench_console"
    on = harness.read(Source(folder / f"dsv4flash_sm120_{workload}_mtp2.json"))
    off = harness.read(Source(folder / f"dsv4flash_sm120_{workload}_nomtp.json"))
    assert {r.arm for r in on} == {"on"}
    assert {r.arm for r in off} == {"unknown"}
    assert [r.concurrency for r in on] == [r.concurrency for r in off]
    assert {r.num_speculative_tokens for r in on} == {2}
    assert {r.model for r in on + off} == {"deepseek-ai/DeepSeek-V4-Flash"}
    assert all(0 < p < 1 for r in on for p in r.acceptance.per_position)
    assert all(a.output_tok_s > b.output_tok_s for a, b in zip(on, off, strict=True))
    assert not any(r.warnings for r in on + off)
