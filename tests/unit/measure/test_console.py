import pytest

from specsim.measure.readers import console
from specsim.measure.source import Foreign, Source


def line(label: str, value: object) -> str:
    return f"{label:<40} {value:<10}"


def table(*, completed: int = 100, speculative: bool = True, concurrency: int | None = 8) -> str:
    """Write a table as vLLM 0.32 prints it."""
    lines = [
        f"{' Serving Benchmark Result ':=^50}",
        line("Successful requests:", completed),
        line("Failed requests:", 0),
    ]
    if concurrency is not None:
        lines.append(line("Maximum request concurrency:", concurrency))
    lines += [
        line("Benchmark duration (s):", "20.00"),
        line("Total input tokens:", 10000),
        line("Total generated tokens:", 20000),
        line("Request throughput (req/s):", "5.00"),
        line("Output token throughput (tok/s):", "1000.00"),
        line("Peak output token throughput (tok/s):", "444.00"),
        line("Peak concurrent requests:", "16.00"),
        line("Total token throughput (tok/s):", "1500.00"),
    ]
    for name, header, mean in (
        ("TTFT", "Time to First Token", 40.0),
        ("TPOT", "Time per Output Token (excl. 1st token)", 8.0),
        ("ITL", "Inter-token Latency", 20.0 if speculative else 8.0),
        ("E2EL", "End-to-end Latency", 1640.0),
    ):
        lines += [
            f"{header:-^50}",
            line(f"Mean {name} (ms):", f"{mean:.2f}"),
            line(f"Median {name} (ms):", f"{mean - 1:.2f}"),
            line(f"P90 {name} (ms):", f"{mean + 3:.2f}"),
            line(f"P99 {name} (ms):", f"{mean + 9:.2f}"),
            line(f"P99.9 {name} (ms):", f"{mean + 10:.2f}"),
        ]
    if speculative:
        lines += [
            f"{'Speculative Decoding':-^50}",
            line("Acceptance rate (%):", "50.00"),
            line("Acceptance length:", "2.50"),
            line("Drafts:", 7900),
            line("Draft tokens:", 23700),
            line("Accepted tokens:", 11850),
            "Per-position acceptance (%):",
            line("  Position 0:", "80.00"),
            line("  Position 1:", "50.00"),
            line("  Position 2:", "20.00"),
        ]
    return "\n".join([*lines, "=" * 50]) + "\n"


@pytest.fixture
def rows(tmp_path):
    def read(text: str):
        path = tmp_path / "run.log"
        path.write_text(text)
        source = Source(path)
        assert console.recognises(source)
        return console.read(source)

    return read


def test_speculative(rows):
    (row,) = rows(table())
    assert (row.arm, row.arm_from, row.num_speculative_tokens) == ("on", "counters", 3)
    assert row.acceptance.draft_acceptance_rate == 0.5
    assert row.acceptance.per_position == (0.8, 0.5, 0.2)
    assert row.acceptance.acceptance_length == 2.5
    assert (row.acceptance.drafts, row.acceptance.accepted_tokens) == (7900, 11850)
    assert (row.completed, row.failed, row.concurrency) == (100, 0, 8)
    assert (row.input_tokens, row.output_tokens, row.output_tok_s) == (100, 200, 1000)
    assert (row.ttft_ms.mean, row.ttft_ms.p50, row.ttft_ms.p99) == (40, 39, 49)
    assert (row.itl_ms.mean, row.itl_of, row.tpot_ms.p90, row.e2e_ms.mean) == (20, "step", 11, 1640)
    assert row.warnings == ()


def test_without_speculation_nothing_is_proven(rows):
    (row,) = rows(table(speculative=False))
    assert (row.arm, row.acceptance) == ("unknown", None)


@pytest.mark.parametrize(
    "prefix", ["> ", "    ", "2026-11-30 10:00:00 INFO ", "(client) ", "\x1b[32m", "| "]
)
def test_within_notes_and_logs(rows, prefix):
    quoted = "".join(f"{prefix}{each}\n" for each in table().splitlines())
    (row,) = rows(f"# My run\n\n```\n{quoted}```\nGreat: 2.5 tokens!\n")
    assert row.output_tok_s == 1000
    assert row.acceptance.per_position == (0.8, 0.5, 0.2)


def test_what_was_printed_before_an_old_table(rows):
    before = (
        "Namespace(backend='vllm', model='org/target', tokenizer=None, max_concurrency=16)\n"
        "Traffic request rate: 4.0\nMaximum request concurrency: 16\n"
    )
    (row,) = rows(before + table(concurrency=None))
    assert (row.model, row.request_rate, row.concurrency) == ("org/target", 4, 16)
    (row,) = rows("Maximum request concurrency: None\n" + table(concurrency=None))
    assert row.concurrency is None


def test_several(rows):
    found = rows("Traffic request rate: 4.0\n" + table(concurrency=1) + "text\n" + table())
    assert [r.source[-2:] for r in found] == ["#1", "#2"]
    assert [r.concurrency for r in found] == [1, 8]
    assert [r.request_rate for r in found] == [4, None]


def test_at_the_end_of_a_long_log(rows):
    (row,) = rows("INFO nothing\n" * 20_000 + table() + "done\n")
    assert row.completed == 100


def test_a_table_that_was_cut(rows):
    (row,) = rows("\n".join(table().splitlines()[:8]))
    assert (row.completed, row.request_per_s, row.tpot_ms) == (100, 5, None)


def test_all_failed(rows):
    with pytest.raises(Foreign, match="requests failed"):
        rows(table(completed=0))


def test_sglang_divides_gaps_by_tokens(rows):
    lines = table(speculative=False).splitlines()
    lines[1:1] = [line("Backend:", "sglang"), line("Traffic request rate:", "inf")]
    lines[-1:-1] = [line("Accept length:", "2.50"), line("Max request concurrency:", "not set")]
    (row,) = rows("\n".join(lines))
    assert (row.engine, row.itl_of, row.arm) == ("sglang", "token", "on")
    assert row.acceptance.acceptance_length == 2.5
    assert row.format == console.SGLANG_FORMAT


@pytest.mark.parametrize(
    "text", ["", "\0", "{}", '{"output": "=== Serving Benchmark Result ===\\n"}', "a log\n"]
)
def test_others_are_not_recognised(tmp_path, text):
    path = tmp_path / "x"
    path.write_text(text)
    assert not console.recognises(Source(path))


def test_legacy(shared):
    source = Source(shared / "samples/harness_vllm_bench_console/legacy_console_table.txt")
    assert console.recognises(source)
    (row,) = console.read(source)
    assert (row.completed, row.failed, row.output_tok_s) == (300, None, 2249.25)
    assert (row.tpot_ms.mean, row.itl_ms.p99, row.ttft_ms.p50) == (13.58, 34.21, 53.0)
    assert (row.arm, row.model, row.concurrency) == ("unknown", None, None)
