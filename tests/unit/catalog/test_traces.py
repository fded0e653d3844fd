"""Traces of arrivals: every known layout, what is put in order, what is refused and how."""

from __future__ import annotations

import csv
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.catalog import csv_text, traces
from specsim.catalog.traces import Trace, read_trace
from specsim.errors import InputError

AZURE_2023 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2226670,879,55
"""
AZURE_2024 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
2024-05-10 00:01:00+00:00,76,15
"""
BURST_GPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
BURST_GPT_2 = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5.0,1,2.5,ChatGPT,472,18,490,Conversation log
118.5,,7.25,GPT-4,417,276,693,API log
"""
MOONCAKE = """\
{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 2353]}
"""


def read(folder: Path, text: str | bytes, name: str = "trace.txt") -> Trace:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_trace(path)


def refused(folder: Path, text: str | bytes) -> str:
    with pytest.raises(InputError) as error:
        read(folder, text)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(str(folder))
    return message.removeprefix(f"{folder / 'trace.txt'}: ")


def columns(trace: Trace) -> list[tuple[float, int, int]]:
    rows = zip(trace.arrival_s, trace.input_tokens, trace.output_tokens, strict=True)
    return [(round(float(t), 9), int(i), int(o)) for t, i, o in rows]


# Layouts


def test_azure_2023_has_seven_digits_of_a_second(tmp_path: Path) -> None:
    trace = read(tmp_path, AZURE_2023)
    assert columns(trace) == [(0.0, 374, 44), (4.314579, 396, 109), (4.542077, 879, 55)]
    assert trace.source.endswith("(Azure LLM inference trace)")
    assert trace.notes == ()
    assert (trace.arrival_s.dtype, trace.input_tokens.dtype) == (np.float64, np.int64)


def test_azure_2024_has_a_zone_and_no_digits_at_a_whole_second(tmp_path: Path) -> None:
    trace = read(tmp_path, AZURE_2024)
    assert columns(trace) == [(0.0, 2162, 5), (0.007405, 2399, 6), (59.99007, 76, 15)]


@pytest.mark.parametrize("text", [BURST_GPT, BURST_GPT_2])
def test_burst_gpt_leaves_failures_out(tmp_path: Path, text: str) -> None:
    trace = read(tmp_path, text)
    assert [row[1:] for row in columns(trace)] == [(472, 18), (417, 276)]
    assert trace.source.endswith("(BurstGPT)")
    failed = () if text == BURST_GPT_2 else ("1 of 3 requests failed (0 tokens): left out",)
    assert trace.notes == failed
    assert trace.duration_s == (113.5 if text == BURST_GPT_2 else 113.0)


def test_mooncake_counts_milliseconds(tmp_path: Path) -> None:
    trace = read(tmp_path, MOONCAKE)
    assert columns(trace) == [(0.0, 6955, 52), (3.053, 6472, 26)]
    assert trace.source.endswith("(Mooncake)")


@pytest.mark.parametrize(
    ("text", "gap_s"),
    [
        ("timestamp,input_tokens,output_tokens\n1,10,20\n2.5,30,40\n", 1.5),
        ("Arrival Time;ISL;OSL\n1;10;20\n2.5;30;40\n", 1.5),
        ("osl\tprompt_len\tarrival_ms\n20\t10\t1000\n40\t30\t2500\n", 1.5),
        ("time (us),prompt tokens,completion tokens\n0,10,20\n1500000,30,40\n", 1.5),
        ("start_time,input_length,output_length\n1700000000,10,20\n1700000001.5,30,40\n", 1.5),
        ("created_at,id,prompt_tokens,completion_tokens\n"
         "2026-01-01T00:00:00Z,a,10,20\n2026-01-01T02:00:01.5+02:00,b,30,40\n", 1.5),
        ("timestamp,isl,osl\n2026-01-01,10,20\n2026-01-02 00:00,30,40\n", 86400.0),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,10.0,20\n1.5,30.0,4e1\n", 1.5),
        ('{"arrival_s": 0, "isl": 10, "osl": 20}\n\n{"osl": 40, "isl": 30, "arrival_s": 1.5}', 1.5),
        ('[{"ts": "2026-01-01 10:00:00", "isl": 10, "osl": 20},\n'
         ' {"ts": "2026-01-01 10:00:01.5", "isl": "30", "osl": 40.0}]', 1.5),
    ],
)  # fmt: skip
def test_any_table_with_a_time_and_two_lengths(tmp_path: Path, text: str, gap_s: float) -> None:
    assert columns(read(tmp_path, text)) == [(0.0, 10, 20), (gap_s, 30, 40)]


@pytest.mark.parametrize(
    ("unit", "name"), [(1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")]
)
def test_times_too_large_for_seconds_are_read_as_what_they_can_be(
    tmp_path: Path, unit: float, name: str
) -> None:
    times = [round(t * unit) for t in (1_700_000_000, 1_700_000_002)]
    text = "".join(json.dumps({"timestamp": t, "isl": 1, "osl": 2}) + "\n" for t in times)
    trace = read(tmp_path, text)
    assert trace.duration_s == pytest.approx(2.0)
    assert trace.notes == (f"timestamp: read as {name} since 1970",)


def test_windows_text_blank_lines_quotes_and_thousands(tmp_path: Path) -> None:
    text = (
        "\ufeffTimestamp,Prompt,input_tokens,output_tokens\r\n\r\n"
        '0,"a, ""b""\r\nc","1,234",20\r\n , , , \r\n'
        "1,\xe9,5,6\r\n"
    )
    assert columns(read(tmp_path, text)) == [(0.0, 1234, 20), (1.0, 5, 6)]
    # A prompt in another encoding is nobody's business here.
    assert columns(read(tmp_path, b"prompt,ts,isl,osl\n\xe9,3,5,6\n")) == [(0.0, 5, 6)]


def test_prompts_of_a_long_context_are_passed_over(tmp_path: Path) -> None:
    # More than what a file is recognised by (64 KiB) and than csv allows by itself (128 Ki).
    prompt, limit = "word " * 40_000, csv.field_size_limit()
    expected = [(0.0, 40_000, 5), (1.5, 40_000, 6)]
    rows = [(3.0, prompt, 40_000, 5), (4.5, prompt, 40_000, 6)]
    names = ("timestamp", "prompt", "isl", "osl")
    lines = [",".join(map(str, row)) + "\n" for row in (names, *rows)]
    assert columns(read(tmp_path, "".join(lines))) == expected
    assert csv.field_size_limit() == limit
    records = [dict(zip(names, row, strict=True)) for row in rows]
    for first in ("prompt", "timestamp"):
        ordered = [{first: record[first], **record} for record in records]
        text = "\n" + "".join(json.dumps(record) + "\n" for record in ordered)
        assert columns(read(tmp_path, text)) == expected
    assert columns(read(tmp_path, json.dumps(records))) == expected


def test_out_of_order_is_sorted_and_said(tmp_path: Path) -> None:
    trace = read(tmp_path, "ts,isl,osl\n5,1,1\n9,2,2\n3,3,3\n8,4,4\n9,5,5\n")
    assert columns(trace) == [(0, 3, 3), (2, 1, 1), (5, 4, 4), (6, 2, 2), (6, 5, 5)]
    assert trace.notes == ("2 of 5 requests were out of order: sorted by time",)


def test_more_rows_than_a_chunk(tmp_path: Path) -> None:
    n = 70_000
    rows = "".join(
        f"2026-01-01 {i // 3600:02}:{i // 60 % 60:02}:{i % 60:02},{i + 1},7\n" for i in range(n)
    )
    trace = read(tmp_path, "timestamp,isl,osl\n" + rows)
    assert (trace.n_requests, trace.duration_s) == (n, n - 1.0)
    assert np.array_equal(trace.input_tokens, np.arange(1, n + 1))


# Results of vllm bench serve


def vllm(**other: Any) -> str:
    document = {
        "date": "20261129-212321",
        "request_throughput": 1.0,
        "max_concurrency": None,
        "input_lens": [64, 65, 66, 67],
        "output_lens": [10, 0, 12, 13],
        "start_times": [5941.5, 5942.0, 5943.5, 5943.0],
        "errors": ["", "timeout", "", ""],
    }
    return json.dumps({key: value for key, value in (document | other).items() if value != "-"})


def test_a_detailed_result_of_vllm(tmp_path: Path) -> None:
    trace = read(tmp_path, vllm())
    assert columns(trace) == [(0.0, 64, 10), (1.5, 67, 13), (2.0, 66, 12)]
    assert trace.notes[0] == "1 of 4 requests failed (0 tokens): left out"
    # An error text counts, whatever was received before it; indented files are the same.
    texts = ["", "timeout", "cut off", ""]
    indented = json.dumps(json.loads(vllm(errors=texts)), indent=2)
    assert columns(read(tmp_path, indented)) == [(0.0, 64, 10), (1.5, 67, 13)]


def test_a_closed_loop_is_no_outside_traffic(tmp_path: Path) -> None:
    assert "--max-concurrency 4" in read(tmp_path, vllm(max_concurrency=4)).notes[-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (vllm(start_times="-"), "has no start_times: vLLM records when requests were sent from ve"),
        (vllm(input_lens="-"), "without its single requests; run it again with --save-result --sa"),
        (vllm(start_times=[1.0]), "has 1 start_times, 4 input_lens and 4 output_lens"),
        (vllm(output_lens=[0] * 4), "none of its 4 requests was answered"),
        (vllm(start_times=[0, None, 2, 3]), "request 2: start_times: got nothing, expected second"),
        (vllm() + "\n" + vllm(), "of several runs in one file, keep one"),
        (vllm()[:-20], "is broken or truncated"),
    ],
)
def test_a_result_of_vllm_that_is_no_trace(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(tmp_path, text)


@pytest.mark.parametrize("rate", [0.2, 0.8])
def test_both_arms_of_the_lab_got_the_same_traffic(shared: Path, rate: float) -> None:
    off, on = (
        read_trace(shared / "lab" / "open_loop" / f"{arm}_r{rate}.json")
        for arm in ("off", "dm_70_3")
    )
    assert (off.n_requests, off.notes) == (on.n_requests, on.notes) == (60, ())
    assert off.mean_rate == pytest.approx(rate, rel=0.02)
    assert set(off.input_tokens) == set(off.output_tokens) == {64}
    # One seed, two runs: what differs is the client's clock.
    assert np.abs(off.arrival_s - on.arrival_s).max() < 0.05


def test_detailed_results_in_the_samples(shared: Path) -> None:
    paths = sorted((shared / "samples" / "vllm_bench_json").glob("*_detailed.json"))
    found = [read_trace(path) for path in paths]
    assert {trace.n_requests for trace in found} == {1, 24}
    assert all("--max-concurrency" in trace.notes[-1] for trace in found)


# What is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected a CSV or JSONL with timestamp, input_tokens and output_tokens"),
        (" \n\n", "is empty"),
        ("ts,isl,osl\n", "holds no requests; expected a CSV or JSONL"),
        ("[]", "holds no requests"),
        ("[1, 2]", "holds no records"),
        ("ts,isl,osl\n1,0,0\n", "none of its 1 requests was answered"),
        ("ts,isl\n1,2\n", "has no output_tokens; "),
        ("ts,isl,output_token\n1,2,3\n", "has no output_tokens; nearest: output_token; name it"),
        ("1,2,3\n4,5,6\n", "has no timestamp; it has 1, 2, 3; name it timestamp or one of"),
        (
            "ts,isl,osl\n1,2,3\n2,-5,3\n",
            "line 3: isl: got '-5', expected a whole number of tokens ",
        ),
        ("ts,isl,osl\n\n1,2,nan\n", "line 3: osl: got 'nan'"),
        ("ts,isl,osl\n1,2,3.5\n", "line 2: osl: got '3.5'"),
        ("ts,isl,osl\n1,2,\n", "line 2: osl: got nothing"),
        ("ts,isl,osl\n1,99999999,1\n", "from 0 to 10,000,000"),
        ("ts,isl,osl\n1,1" + "0" * 40 + ",1\n", "line 2: isl: got '1000"),
        ("ts,isl,osl\nnan,2,3\n", "line 2: ts: got 'nan', expected seconds, or a time such as 20"),
        ("ts,isl,osl\n1,2,3\n2026-01-01,2,3\n", "line 3: ts: got '2026-01-01', expected seconds"),
        ("ts,isl,osl\n2026-01-01,2,3\n5,2,3\n", "line 3: ts: got '5', expected a time such as"),
        ("ts,isl,osl\n2026-01-01,2,3\n2026-13-01,2,3\n", "line 3: ts: got '2026-13-01'"),
        (
            "ts,isl,osl\n2026-01-01Z,2,3\n2026-01-02,2,3\n",
            "expected one with a time zone, as the f",
        ),
        (
            "ts,isl,osl\n2026-01-01,2,3\n2026-01-02Z,2,3\n",
            "line 3: ts: got '2026-01-02Z', expected",
        ),
        ("ts,isl,osl\n1,2,3\n1,2\n", "line 3: has 2 of 3 fields; it may be cut off"),
        ('ts,isl,osl\n1,2,"3\n', "line 2: is broken: unexpected end of data"),
        ("ts,isl,osl\n0,1,1\n90000000,1,1\n", "1042 days pass between two requests; check ts"),
        ('{"ts": 1, "isl": 2, "osl": 3}\n{"ts": 2, "isl": 2}\n', "line 2: has no 'osl', which the"),
        ('{"ts": 1, "isl": 2, "osl": 3}\n{"ts": 2, "is\n', "line 2: is broken"),
        ('{"ts": 1, "isl": 2, "osl": 3}\n7\n', "line 2: has no 'ts'"),
        ('{"ts": 1, "isl": true, "osl": 3}\n', "line 1: isl: got True"),
        ('{"ts": true, "isl": 2, "osl": 3}\n', "line 1: ts: got True"),
        ('{"ts": 1, "isl": 2.5, "osl": 3}\n', "line 1: isl: got 2.5"),
        ('[{"ts": 1, "isl": 2, "osl": 3}, {"ts": 2, "isl": [], "osl": 3}]', "entry 2: isl: got []"),
        ('{"a": ', "is broken or truncated"),
        (b"\x00\x01\x02", "is not text (UTF-8); expected a CSV"),
        (gzip.compress(AZURE_2023.encode()), "is compressed (gzip); unpack it first"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    assert message in refused(tmp_path, text)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; give a CSV or JSONL"):
        read_trace(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="is a folder; give a CSV or JSONL"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match="is a pipe or a device"):
        read_trace(Path("/dev/null"))
    with pytest.raises(InputError, match="is no path"):
        read_trace(Path("a\0b"))


def test_what_is_too_large_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "MAX_DOCUMENT_BYTES", 50)
    assert "of one JSON document are too much" in refused(tmp_path, vllm())
    monkeypatch.setattr(csv_text, "MAX_BYTES", 50)
    assert "is too much (at most" in refused(tmp_path, AZURE_2023)


# Use


def test_rate_is_one_over_the_mean_gap(tmp_path: Path) -> None:
    trace = read(tmp_path, "ts,isl,osl\n10,1,1\n11,1,1\n14,1,1\n")
    assert (trace.n_requests, trace.duration_s, trace.mean_rate) == (3, 4.0, 0.5)
    faster = trace.scaled(2.0)
    assert faster.arrival_s.tolist() == [0.0, 0.25, 1.0]
    assert faster.mean_rate == pytest.approx(2.0)
    assert faster.source == trace.source
    assert trace.head(2).mean_rate == 1.0
    assert trace.head(9).n_requests == 3


def test_what_has_no_rate_cannot_be_scaled(tmp_path: Path) -> None:
    trace = read(tmp_path, "ts,isl,osl\n10,1,4\n10,3,8\n")
    assert trace.mean_rate == math.inf
    with pytest.raises(InputError, match="all its requests arrive at once") as refused:
        trace.scaled(2.0)
    assert "use --request-rate 2 --input-len 2 --output-len 6 in its place" in str(refused.value)
    with pytest.raises(InputError, match="has one request, so it cannot be scaled"):
        trace.head(1).scaled(1.0)
    with pytest.raises(InputError, match="expected a number of requests/s above 0"):
        trace.scaled(math.nan)
    with pytest.raises(InputError, match="expected at least 1"):
        trace.head(0)


requests = st.lists(
    st.tuples(
        st.integers(0, 10**13).map(lambda ns: ns * 100),
        st.integers(1, 10**6),
        st.integers(1, 10**5),
    ),
    min_size=1,
    max_size=30,
)


@given(requests=requests, layout=st.sampled_from(["azure", "zone", "seconds", "jsonl", "vllm"]))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, int, int]], layout: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"{layout}.txt"
    with path.open("w", newline="") as stream:
        if layout == "jsonl":
            for ns, n_in, n_out in requests:
                stream.write(json.dumps({"ts": ns / 1e9, "isl": n_in, "osl": n_out}) + "\n")
        elif layout == "vllm":
            times, inputs, outputs = zip(*((ns / 1e9, i, o) for ns, i, o in requests), strict=True)
            document = {"input_lens": inputs, "output_lens": outputs, "start_times": times}
            json.dump(document, stream, indent=1)
        else:
            writer = csv.writer(stream)
            writer.writerow(["timestamp", "ContextTokens", "GeneratedTokens"])
            for ns, *lengths in requests:
                moment = np.datetime64("2023-11-16T18:15:46", "ns") + np.timedelta64(ns, "ns")
                text = str(moment).replace("T", " ")[:27] + ("+00:00" if layout == "zone" else "")
                writer.writerow([ns / 1e9 if layout == "seconds" else text, *lengths])
    trace = read_trace(path)
    ordered = sorted(requests, key=lambda request: request[0])
    expected_s = np.array([(ns - ordered[0][0]) / 1e9 for ns, _, _ in ordered])
    assert np.allclose(trace.arrival_s, expected_s, rtol=1e-12, atol=2e-9 * max(1, expected_s[-1]))
    assert sorted(zip(trace.input_tokens, trace.output_tokens, strict=True)) == sorted(
        lengths for _, *lengths in map(tuple, requests) for lengths in [tuple(lengths)]
    )
    assert trace.arrival_s[0] == 0
    assert np.all(np.diff(trace.arrival_s) >= 0)
