"""Dumps of /metrics: one, and the difference of two."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from specsim.errors import InputError, MissingExtraError
from specsim.measure.readers import prometheus
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Measurement

LAB = Path(__file__).parents[2] / "data" / "lab" / "closed_loop"

SPECULATING = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} {drafts}
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 10.0
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} {drafted}
vllm:spec_decode_num_accepted_tokens_total_total{engine="0",model_name="m"} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} {first}
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} {second}
vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:generation_tokens_total{engine="0",model_name="m"} {accepted}
vllm:inter_token_latency_seconds_sum{engine="0"} {seconds}
vllm:inter_token_latency_seconds_count{engine="0"} {drafts}
"""


def write(folder: Path, text: str, name: str = "metrics.prom") -> Source:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return Source(path)


def dump(**values: float) -> str:
    text = SPECULATING
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def read(source: Source) -> Measurement:
    assert prometheus.recognises(source)
    [row] = prometheus.read(source)
    return row


def test_a_dump_of_our_own_server_with_speculation() -> None:
    row = read(Source(LAB / "metrics_dm_70_3.prom"))
    assert (row.arm, row.arm_from, row.engine, row.model) == ("on", "metrics", "vllm", "target")
    assert row.num_speculative_tokens == 3
    assert row.kv_tokens == 80640
    assert row.acceptance is not None
    assert (row.acceptance.drafts, row.acceptance.accepted_tokens) == (5015, 7455)
    assert row.acceptance.acceptance_length == pytest.approx(1 + 7455 / 5015)
    assert row.acceptance.per_position == pytest.approx((0.6738, 0.4768, 0.3360), abs=1e-4)
    assert (row.completed, row.failed, row.input_tokens, row.output_tokens) == (194, 0, 64, 64)
    assert row.itl_ms is None  # of every load that the server was under
    assert "warm-up" in row.warnings[0]
    assert "engines" not in row.metadata


def test_no_counters_of_speculation_are_speculation_off() -> None:
    row = read(Source(LAB / "metrics_off.prom"))
    assert (row.arm, row.arm_from, row.acceptance, row.kv_tokens) == ("off", "metrics", None, 87296)


def test_engines_are_summed_and_names_of_any_age_are_known(tmp_path: Path) -> None:
    text = dump(drafts=90, drafted=200, accepted=100, first=70, second=30, seconds=9)
    row = read(write(tmp_path, text))
    assert row.acceptance is not None
    assert (row.acceptance.drafts, row.acceptance.draft_tokens) == (100, 200)
    assert row.acceptance.acceptance_length == pytest.approx(2.0)
    assert row.acceptance.per_position == pytest.approx((0.7, 0.3))
    assert row.metadata["engines"] == "2"


def test_the_newest_of_several_scrapes_counts(tmp_path: Path) -> None:
    early = dump(drafts=10, drafted=20, accepted=10, first=7, second=3, seconds=1)
    late = dump(drafts=90, drafted=200, accepted=100, first=70, second=30, seconds=9)
    row = read(write(tmp_path, early + late))
    assert row.acceptance is not None
    assert row.acceptance.drafts == 100


def test_the_difference_of_two_dumps(tmp_path: Path) -> None:
    before = dump(drafts=10, drafted=20, accepted=10, first=7, second=3, seconds=1)
    after = dump(drafts=110, drafted=220, accepted=110, first=77, second=33, seconds=6)
    row = prometheus.difference(
        write(tmp_path, before, "a.before.prom"), write(tmp_path, after, "a.after.prom")
    )
    assert (row.arm, row.arm_from) == ("on", "counters")
    assert row.acceptance is not None
    assert (row.acceptance.drafts, row.acceptance.accepted_tokens) == (100, 100)
    assert row.acceptance.per_position == pytest.approx((0.7, 0.3))
    assert row.itl_ms is not None
    assert row.itl_ms.mean == pytest.approx(50)
    assert row.itl_of == "step"
    assert "a.before.prom" in row.source
    assert "a.after.prom" in row.source
    assert row.warnings == ()


def test_a_restart_in_between_is_no_difference(tmp_path: Path) -> None:
    more = dump(drafts=110, drafted=220, accepted=110, first=77, second=33, seconds=6)
    less = dump(drafts=10, drafted=20, accepted=10, first=7, second=3, seconds=1)
    with pytest.raises(Foreign, match="started anew"):
        prometheus.difference(write(tmp_path, more, "before"), write(tmp_path, less, "after"))
    started = "process_start_time_seconds {}\n"
    first = write(tmp_path, less + started.format(1000), "before")
    second = write(tmp_path, more + started.format(2000), "after")
    with pytest.raises(Foreign, match="started anew"):
        prometheus.difference(first, second)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("c4_r1.before.prom", "c4_r1.after.prom"),
        ("glm_before.prom.txt", "glm_after.prom.txt"),
        ("pre-c8.txt", "post-c8.txt"),
        ("metrics_start_c4.prom", "metrics_end_c4.prom"),
    ],
)
def test_pairs_are_known_by_name(before: str, after: str) -> None:
    paths = [Path("x") / after, Path("x") / before, Path("y") / before, Path("x/startup.prom")]
    assert prometheus.pair_up(paths) == [(Path("x") / before, Path("x") / after)]


def test_sglang(tmp_path: Path) -> None:
    text = (
        "# TYPE sglang:spec_accept_length gauge\n"
        'sglang:spec_accept_length{model_name="m"} 2.5\n'
        'sglang:max_total_num_tokens{model_name="m"} 500000\n'
    )
    row = read(write(tmp_path, text))
    assert (row.engine, row.arm, row.kv_tokens) == ("sglang", "on", 500000)
    assert row.acceptance is not None
    assert row.acceptance.acceptance_length == 2.5
    row = read(write(tmp_path, text.replace("2.5", "0.0")))
    assert (row.arm, row.arm_from, row.acceptance) == ("unknown", "", None)


def test_other_metrics_and_broken_ones(tmp_path: Path) -> None:
    with pytest.raises(Foreign, match="without metrics of vLLM or SGLang"):
        read(write(tmp_path, "# TYPE up gauge\nup 1\n"))
    with pytest.raises(InputError, match="broken or truncated"):
        read(write(tmp_path, '# TYPE up gauge\nvllm:generation_tokens_total{engine="0\n'))
    assert not prometheus.recognises(write(tmp_path, "# TYPE of things we like\nthey are up\n"))


def test_the_parser_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.parser", None)
    with pytest.raises(MissingExtraError, match=r"specsim-llm\[measure\]"):
        read(write(tmp_path, "# TYPE up gauge\nup 1\n"))


def test_the_counters_around_a_run_are_those_of_its_result(shared: Path) -> None:
    samples = shared / "samples"
    before, after = (
        Source(samples / "prometheus" / f"glm52_mtp3_{word}.prom.txt")
        for word in ("before", "after")
    )
    row = prometheus.difference(before, after)
    bench = json.loads((samples / "vllm_bench_json" / "glm52_pair_mtp3_c4.json").read_text())
    acceptance = row.acceptance
    assert acceptance is not None
    assert acceptance.acceptance_length == pytest.approx(bench["spec_decode_acceptance_length"])
    rate = bench["spec_decode_acceptance_rate"] / 100
    assert acceptance.draft_acceptance_rate == pytest.approx(rate)
    assert acceptance.drafts == bench["spec_decode_num_drafts"]
    assert acceptance.draft_tokens == bench["spec_decode_draft_tokens"]
    assert acceptance.accepted_tokens == bench["spec_decode_accepted_tokens"]
    rates = bench["spec_decode_per_position_acceptance_rates"]
    assert acceptance.per_position == pytest.approx(rates)
    assert row.completed == bench["completed"]
    assert row.output_tokens == bench["total_output_tokens"] / bench["completed"]
    assert row.kv_tokens == 1_600_255


def test_a_snapshot_of_differences_is_that_of_its_result(shared: Path) -> None:
    folder = shared / "samples" / "vllm_bench_rust_json"
    row = read(Source(folder / "gemma4_31b_b11_ctx4096_k3_prom_delta_snapshot.json"))
    bench = json.loads((folder / "gemma4_31b_b11_ctx4096_k3.json").read_text())
    assert row.acceptance is not None
    assert row.acceptance.drafts == bench["spec_decode_num_drafts"]
    assert row.acceptance.draft_tokens == bench["spec_decode_draft_tokens"]
    assert row.acceptance.accepted_tokens == bench["spec_decode_accepted_tokens"]
    assert row.acceptance.acceptance_length == bench["spec_decode_acceptance_length"]


def test_dumps_at_startup(shared: Path) -> None:
    folder = shared / "samples" / "prometheus"
    on = read(Source(folder / "gemma4_31b_k3_startup.prom.txt"))
    assert (on.arm, on.num_speculative_tokens, on.acceptance, on.kv_tokens) == (
        "on",
        3,
        None,
        104421,
    )
    assert "nothing was drafted" in on.warnings[1]
    off = read(Source(folder / "gemma4_31b_nospec_startup.prom.txt"))
    assert (off.arm, off.kv_tokens) == ("off", 106723)
