"""Logs of vLLM servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from specsim.measure.readers import server_log
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Measurement

LAB = Path(__file__).parents[2] / "data" / "lab" / "closed_loop"

STAMP = "INFO 09-16 05:26:57 [metrics.py:120] "
API = "(APIServer pid=1) " + STAMP
ENGINE = "(EngineCore_DP0 pid=2) " + STAMP


def config(speculation: str, *, version: str = "0.29.0") -> str:
    return (
        f"Initializing a V1 LLM engine (v{version}) with config: model='org/target', "
        f"speculative_config={speculation}, tokenizer='org/target', dtype=torch.bfloat16, "
        "tensor_parallel_size=2, kv_cache_dtype=auto, enforce_eager=False, "
        "compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, "
        "'max_cudagraph_capture_size': 512}"
    )


def window(accepted: int, drafted: int, rates: str, length: float) -> str:
    return (
        f"{API}SpecDecoding metrics: Mean acceptance length: {length:.2f}, Accepted throughput: "
        f"1.00 tokens/s, Drafted throughput: 2.00 tokens/s, Accepted: {accepted} tokens, Drafted: "
        f"{drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 9.9%"
    )


def rows(folder: Path, *lines: str) -> list[Measurement]:
    path = folder / "server.log"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert server_log.recognises(Source(path))
    return server_log.read(Source(path))


def test_our_own_server_with_speculation() -> None:
    [row] = server_log.read(Source(LAB / "server_dm_70_3.log"))
    assert (row.arm, row.arm_from, row.engine_version) == ("on", "log", "0.32.0")
    assert (row.method, row.num_speculative_tokens, row.drafter) == ("draft_model", 3, "draft70")
    assert (row.kv_tokens, row.tensor_parallel_size, row.model) == (80640, 1, "target")
    assert row.weights_gib is None  # the CPU's runner does not print them
    assert row.acceptance is not None
    # The dump at the end has 2.4865 of 5015 drafts; the log lacks the last window.
    assert row.acceptance.acceptance_length == pytest.approx(2.4865, rel=1e-3)
    assert row.acceptance.drafts == 4935
    assert row.metadata["acceptance_windows"] == "23"
    assert row.metadata["max_num_seqs"] == "64"


def test_our_own_server_without() -> None:
    [row] = server_log.read(Source(LAB / "server_off.log"))
    assert (row.arm, row.arm_from, row.acceptance, row.kv_tokens) == ("off", "log", None, 87296)


def test_windows_are_weighted_by_drafts(tmp_path: Path) -> None:
    [row] = rows(
        tmp_path,
        window(2, 2, "1.000, 1.000", 3.0),
        window(50, 198, "0.404, 0.101", 1.51),
    )
    assert row.acceptance is not None
    assert row.acceptance.drafts == 1 + 99
    assert row.acceptance.acceptance_length == pytest.approx(1.52)
    assert row.acceptance.per_position == pytest.approx((0.40996, 0.10999))
    assert (row.arm, row.num_speculative_tokens) == ("on", 2)


def test_vllm_0_8_5_left_the_bonus_out(tmp_path: Path) -> None:
    [row] = rows(
        tmp_path,
        STAMP + "SpecDecoding metrics: Draft acceptance rate: 25.0%, Mean acceptance length: 1.00, "
        "Accepted: 100 tokens, Drafted: 400 tokens, Per-position acceptance rate: "
        "0.500, 0.300, 0.150, 0.050",
    )
    assert row.acceptance is not None
    assert (row.acceptance.drafts, row.acceptance.acceptance_length) == (100, 2.0)


def test_a_fork_with_a_field_more_and_short_drafts(tmp_path: Path) -> None:
    line = window(60, 120, "0.300, 0.200, 0.100", 1.60).replace(
        "Accepted thr", "Current speculative depth: 3, Accepted thr"
    )
    [row] = rows(tmp_path, line)
    assert row.acceptance is not None
    assert row.acceptance.drafts == 100  # n-gram: 1.2 tokens per draft, not 3


def test_an_empty_window_counts_nothing(tmp_path: Path) -> None:
    [row] = rows(tmp_path, ENGINE + config("None"), window(0, 0, "nan", 1.0))
    assert (row.arm, row.acceptance, row.warnings) == ("off", None, ())


def test_the_facts_of_a_start(tmp_path: Path) -> None:
    colour = "\x1b[0;36m(EngineCore_DP0 pid=2)\x1b[0;0m " + STAMP
    [row] = rows(
        tmp_path,
        API + "  █  version 0.29.0",
        API + "non-default args: {'model': 'org/target', 'max_num_seqs': 32, "
        "'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 3}}",
        API + "Chunked prefill is enabled with max_num_batched_tokens=8192.",
        API + "Asynchronous scheduling is enabled.",
        colour + config("SpeculativeConfig(method='mtp', model='org/draft', num_spec_tokens=3)"),
        "(Worker_TP0 pid=3) INFO Model loading took 15.0 GiB and 3.2 seconds",
        "(Worker_TP1 pid=4) INFO Model loading took 15.5 GiB memory and 3.2 seconds",
        "(Worker_TP0 pid=3) INFO Available KV cache memory: 52.36 GiB",
        "(Worker_TP1 pid=4) INFO Available KV cache memory: 52.30 GiB",
        colour + "GPU KV cache size: 686,320 tokens, Maximum concurrency for 2,048 tokens per "
        "request: 335.12x",
        "(Worker_TP0 pid=3) INFO Adaptive verification enabled",
        API + "Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 7 reqs, Waiting: 2 reqs, ",
    )
    assert (row.engine_version, row.model, row.drafter) == ("0.29.0", "org/target", "org/draft")
    assert (row.method, row.num_speculative_tokens, row.tensor_parallel_size) == ("mtp", 3, 2)
    assert (row.weights_gib, row.kv_tokens) == (15.5, 686_320)
    said = {
        "max_num_seqs": "32",
        "max_num_batched_tokens": "8192",
        "async_scheduling": "enabled",
        "cudagraph_mode": "FULL_AND_PIECEWISE",
        "available_kv_gib": "52.3",
        "adaptive_verification": "yes",
        "most_running": "7",
        "most_waiting": "2",
    }
    assert said.items() <= row.metadata.items()


def test_a_row_per_start_but_not_per_engine(tmp_path: Path) -> None:
    on = config("SpeculativeConfig(method='eagle3', model='d', num_spec_tokens=2)")
    found = rows(
        tmp_path,
        API + "non-default args: {}",
        ENGINE + config("None", version="0.28.0"),
        ENGINE.replace("DP0 pid=2", "DP1 pid=3") + config("None", version="0.28.0"),
        API + "non-default args: {}",
        ENGINE.replace("pid=2", "pid=7") + on,
        window(50, 100, "0.600, 0.400", 2.0),
        ENGINE.replace("pid=2", "pid=9") + config("None"),
    )
    assert [row.arm for row in found] == ["off", "on", "off"]
    assert [row.acceptance is not None for row in found] == [False, True, False]
    assert found[0].metadata["engines"] == "2"
    assert found[1].source.endswith("(start 2 of 3)")


def test_a_contradiction_is_said(tmp_path: Path) -> None:
    [row] = rows(tmp_path, ENGINE + config("None"), window(50, 100, "0.600, 0.400", 2.0))
    assert row.arm == "on"
    assert "yet tokens were drafted" in row.warnings[0]


def test_nothing_but_stack_traces(tmp_path: Path) -> None:
    with pytest.raises(Foreign, match="neither"):
        rows(tmp_path, "(APIServer pid=1) INFO:     Application shutdown complete.", "Traceback")


@pytest.mark.parametrize(
    ("name", "arm", "k", "kv_tokens", "weights_gib", "drafts"),
    [
        ("glm52_dspark7_c1_server.log", "on", 7, 400_064, 57.41, 3960),
        ("glm52_dflash15_c1_server.log", "on", 15, 400_064, 57.74, 4191),
        ("glm52_mtp3_c4_server.log", "on", 3, 1_600_255, 63.99, 2558),
        ("glm52_nospec_c1_server.log", "off", None, 574_336, 54.82, None),
        ("qwen3_4b_xpu_tp4_server.log", "off", None, 561_728, 1.11, None),
        ("qwen3_8b_dspark_adaptive_smoke.log", "on", 7, 301_600, 17.45, None),
        ("mixed_real_lines.txt", "on", None, 686_320, None, 105),
    ],
)
def test_logs_of_others(
    shared: Path,
    name: str,
    arm: str,
    k: int | None,
    kv_tokens: int,
    weights_gib: float | None,
    drafts: int | None,
) -> None:
    source = Source(shared / "samples" / "server_logs" / name)
    assert server_log.recognises(source)
    [row] = server_log.read(source)
    assert (row.arm, row.num_speculative_tokens) == (arm, k)
    assert (row.kv_tokens, row.weights_gib) == (kv_tokens, weights_gib)
    assert (row.acceptance and row.acceptance.drafts) == drafts


def test_the_log_agrees_with_the_counters(shared: Path) -> None:
    """All windows but the last of the run that was dumped at its end."""
    [row] = server_log.read(Source(shared / "samples/server_logs/glm52_mtp3_c4_server.log"))
    assert row.acceptance is not None
    assert row.acceptance.acceptance_length == pytest.approx(2.8059, rel=0.01)


def test_an_old_engine(tmp_path: Path) -> None:
    [row] = rows(
        tmp_path,
        "INFO 12-01 10:00:00 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: "
        "model='org/target', speculative_config=SpeculativeConfig(draft_model='org/draft', "
        "num_spec_tokens=5), tensor_parallel_size=4, ",
    )
    assert (row.engine_version, row.drafter, row.num_speculative_tokens) == (
        "0.6.3",
        "org/draft",
        5,
    )
    assert (row.arm, row.tensor_parallel_size) == ("on", 4)
