import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.measure.readers import vllm_bench
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Measurement

LAB = Path(__file__).parents[2] / "data" / "lab"

RESULT = {
    "date": "20261130-101500",
    "endpoint_type": "openai",
    "backend": "openai",
    "label": None,
    "model_id": "m",
    "tokenizer_id": "m",
    "num_prompts": 40,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 4,
    "duration": 10.0,
    "completed": 40,
    "failed": 0,
    "total_input_tokens": 4000,
    "total_output_tokens": 8000,
    "request_throughput": 4.0,
    "request_goodput": None,
    "output_throughput": 800.0,
    "total_token_throughput": 1200.0,
    "mean_ttft_ms": 50.0,
    "mean_tpot_ms": 5.0,
    "mean_itl_ms": 5.0,
}
SPECULATIVE = {
    "spec_decode_acceptance_rate": 50.0,
    "spec_decode_acceptance_length": 2.5,
    "spec_decode_num_drafts": 3000,
    "spec_decode_draft_tokens": 9000,
    "spec_decode_accepted_tokens": 4500,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.5, 0.2],
    "mean_itl_ms": 12.5,
}


def rows_of(path: Path) -> list[Measurement]:
    source = Source(path)
    assert vllm_bench.recognises(source)
    return vllm_bench.read(source)


@pytest.fixture
def rows(tmp_path):
    def read(*results: object, name: str = "result.json") -> list[Measurement]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(json.dumps(r) for r in results))
        return rows_of(path)

    return read


@pytest.fixture
def row(rows):
    def read(**changes: object) -> Measurement:
        (found,) = rows({**RESULT, **changes})
        return found

    return read


class TestOwnRuns:
    def test_on(self):
        (row,) = rows_of(LAB / "dm_70_3_c4_rep1.json")
        assert (row.arm, row.arm_from, row.num_speculative_tokens) == ("on", "counters", 3)
        assert row.concurrency == 4
        assert row.request_rate is None
        assert (row.input_tokens, row.output_tokens) == (64, 64)
        assert row.engine == "vllm"
        assert row.date.startswith("2026-11-29T")
        assert row.itl_of == "step"
        assert row.itl_ms.mean / row.tpot_ms.mean == pytest.approx(
            row.acceptance.acceptance_length, rel=0.1
        )
        assert row.warnings == ()

    def test_off_is_not_proven(self):
        (row,) = rows_of(LAB / "off_c4_rep1.json")
        assert (row.arm, row.arm_from, row.acceptance) == ("unknown", "", None)
        assert row.itl_ms.mean == pytest.approx(row.tpot_ms.mean, rel=0.01)

    def test_latencies_without_details_give_percentiles_of_e2e(self):
        values = json.loads((LAB / "off_c16_rep1.json").read_text())
        (row,) = rows_of(LAB / "off_c16_rep1.json")
        assert row.e2e_ms.p95 == values["p95_e2el_ms"]
        assert row.e2e_ms.p90 == pytest.approx(np.percentile(values["latencies"], 90) * 1e3)

    @pytest.mark.parametrize("path", sorted(LAB.glob("*.json")), ids=lambda p: p.stem)
    def test_all_are_read_without_a_warning(self, path):
        (row,) = rows_of(path)
        assert row.warnings == ()
        assert row.output_tok_s * row.duration_s == pytest.approx(row.completed * row.output_tokens)


class TestUnits:
    def test_acceptance_rate_is_percent_and_positions_are_fractions(self, row):
        acceptance = row(**SPECULATIVE).acceptance
        assert acceptance.draft_acceptance_rate == 0.5
        assert acceptance.per_position == (0.8, 0.5, 0.2)
        assert acceptance.acceptance_length == 2.5

    def test_percent_without_counts(self, row):
        acceptance = row(spec_decode_acceptance_rate=61.0).acceptance
        assert acceptance.draft_acceptance_rate == pytest.approx(0.61)

    def test_inf_is_no_rate(self, row):
        assert row().request_rate is None
        assert row(request_rate=2.5).request_rate == 2.5

    def test_metadata_is_text_and_understood(self, row):
        found = row(
            arm="off", repeat="2", engine="vllm", engine_version="0.32.0", gpu="H200", tp="4", k="3"
        )
        assert (found.arm, found.arm_from) == ("off", "metadata")
        assert found.num_speculative_tokens is None
        assert (found.repeat, found.engine_version) == (2, "0.32.0")
        assert (found.accelerator, found.tensor_parallel_size) == ("H200", 4)
        assert found.metadata["gpu"] == "H200"
        assert "label" not in found.metadata

    def test_dates(self, row):
        assert row().date == "2026-11-30T10:15:00"
        assert row(date="2026-08-07T16:53:33Z").date == "2026-08-07T16:53:33Z"
        assert row(date="yesterday").date is None

    def test_a_metric_that_was_not_asked_for(self, row):
        found = row(mean_tpot_ms=None)
        assert found.tpot_ms is None
        assert found.itl_ms.mean == 5.0

    def test_zero_means_nothing_was_measured(self, row):
        assert row(mean_ttft_ms=0.0, median_ttft_ms=0.0).ttft_ms is None

    def test_the_colon_of_0_8_5(self, row):
        legacy = {k: v for k, v in RESULT.items() if k not in ("endpoint_type", "failed")}
        del legacy["request_goodput"]
        found = row(**{**legacy, "request_goodput:": 3.5})
        assert found.metadata["request_goodput"] == "3.5"

    def test_concurrency_of_metadata_where_none_was_set(self, row):
        assert row(max_concurrency=None, concurrency="8").concurrency == 8


class TestArm:
    def test_missing_counters_do_not_prove_off(self, row):
        assert row().arm == "unknown"
        assert row(k="0").arm == "unknown"  # a tier of a dynamic schedule

    def test_metadata_alone(self, row):
        found = row(arm="on", k="3", method="draft_model")
        assert (found.arm, found.arm_from, found.method) == ("on", "metadata", "draft_model")
        assert found.num_speculative_tokens == 3
        assert "no draft token was counted" in found.warnings[0]

    def test_counters_overrule_metadata(self, row):
        found = row(**SPECULATIVE, arm="off")
        assert (found.arm, found.arm_from) == ("on", "counters")
        assert found.warnings == ("metadata says off, but draft tokens were counted",)

    @pytest.mark.parametrize(
        "override",
        [
            {
                "speculative_config.method": "eagle3",
                "speculative_config.num_speculative_tokens": 3,
                "speculative_config.model": "d",
            },
            {"speculative-config": '{"method":"eagle3","num_speculative_tokens":3,"model":"d"}'},
            {"speculative_config": {"method": "eagle3", "num_speculative_tokens": 3, "model": "d"}},
        ],
    )
    def test_overrides_of_a_sweep(self, row, override):
        found = row(run_number=1, **override)
        assert (found.arm, found.method, found.drafter) == ("on", "eagle3", "d")
        assert (found.num_speculative_tokens, found.repeat) == (3, 1)


class TestDraftLength:
    def test_a_trailing_zero_of_the_configured_k_is_dropped(self, row):
        found = row(
            **{**SPECULATIVE, "spec_decode_per_position_acceptance_rates": [0.8, 0.5, 0.2, 0.0]}
        )
        assert found.num_speculative_tokens == 3
        assert found.acceptance.per_position == (0.8, 0.5, 0.2)

    def test_zeros_within_k_stay(self, row):
        found = row(**{**SPECULATIVE, "spec_decode_per_position_acceptance_rates": [1.0, 0.5, 0.0]})
        assert found.acceptance.per_position == (1.0, 0.5, 0.0)

    def test_steps_that_draft_differently(self, row):
        found = row(**{**SPECULATIVE, "spec_decode_draft_tokens": 7200})
        assert found.num_speculative_tokens == 3
        assert found.warnings == ("steps drafted 2.40 tokens on average: k varied",)

    def test_counted_before_stated(self, row):
        found = row(**SPECULATIVE, k="5")
        assert found.num_speculative_tokens == 3
        assert found.warnings == ("metadata says 5 draft tokens per step, 3 were counted",)


class TestWarnings:
    def test_acceptance_of_few_steps(self, row):
        """A dynamic schedule at high load: nearly no step drafts."""
        (warning,) = row(**{**SPECULATIVE, "mean_itl_ms": 5.1}).warnings
        assert "1.02 tokens per step, the counters 2.50" in warning

    def test_pieces_of_several_tokens_without_counters(self, row):
        found = row(mean_itl_ms=12.0)
        assert found.arm == "unknown"
        assert "holds 2.40 tokens" in found.warnings[0]

    def test_too_few_requests(self, row):
        (warning,) = row(max_concurrency=32).warnings
        assert warning.startswith("only 40 answered at concurrency 32")

    def test_all_at_once(self, row):
        (warning,) = row(max_concurrency=None).warnings
        assert "sent at once" in warning

    def test_some_failed(self, row):
        (warning,) = row(completed=39, failed=1, errors=["", "Traceback\n  x\nTimeout"]).warnings
        assert warning == "1 of 40 requests failed: Timeout"


class TestForeign:
    def test_all_failed(self, row):
        zeros = {"mean_ttft_ms": 0.0, "output_throughput": 0.0}
        with pytest.raises(Foreign, match="all 40 requests failed: no route"):
            row(completed=0, failed=40, errors=["", "no route"], **zeros)

    def test_embedding(self, row):
        with pytest.raises(Foreign, match="embedding"):
            row(total_input_sequences=40)

    def test_diffusion(self, row):
        with pytest.raises(Foreign, match="diffusion"):
            row(diffusion_steps_per_canvas=8.0)

    def test_the_good_lines_of_a_file_with_a_failed_one(self, rows):
        first, second = rows(
            RESULT, {**RESULT, "completed": 0, "failed": 40}, {**RESULT, "output_throughput": 1.0}
        )
        assert first.source.endswith("#1")
        assert second.source.endswith("#3")
        assert first.warnings == ("left out of this file: result 2: all 40 requests failed",)

    def test_a_dashboard_twin(self, rows):
        twin = {"benchmark": {"extra_info": RESULT}, "metric": {"name": "tpot"}}
        with pytest.raises(Foreign, match="PyTorch"):
            rows([twin])

    def test_truncated(self, tmp_path):
        path = tmp_path / "cut.json"
        path.write_text(json.dumps(RESULT)[:-20])
        with pytest.raises(InputError, match="truncated"):
            rows_of(path)

    @pytest.mark.parametrize("text", ["", "{}", "[]", "not json", '{"model": "x"}', "\0"])
    def test_others_are_not_recognised(self, tmp_path, text):
        path = tmp_path / "x.json"
        path.write_text(text)
        assert not vllm_bench.recognises(Source(path))

    def test_latencies_in_seconds_are_not_ours(self, tmp_path):
        path = tmp_path / "x.json"
        path.write_text(json.dumps({**RESULT, "median_ttft": 0.29}))
        assert not vllm_bench.recognises(Source(path))


class TestSweep:
    def test_summary_beside_its_runs_repeats_them(self, rows):
        assert rows({**RESULT, "run_number": 0}, name="run=0.json")[0].repeat == 0
        with pytest.raises(Foreign, match="repeats the runs beside it"):
            rows([RESULT], name="summary.json")

    def test_summary_alone_is_read(self, rows):
        found = rows([RESULT, {**RESULT, **SPECULATIVE}], name="summary.json")
        assert [r.arm for r in found] == ["unknown", "on"]
        assert [r.source[-2:] for r in found] == ["#1", "#2"]

    @staticmethod
    def table(folder: Path) -> Path:
        """Write what pandas makes of two runs: an index column, empty cells, arrays as text."""
        columns = [*RESULT, *SPECULATIVE, "speculative_config.num_speculative_tokens"]
        columns = list(dict.fromkeys(columns))
        lines = [",".join(["", *columns])]
        for i, run in enumerate(
            [RESULT, {**RESULT, **SPECULATIVE, "speculative_config.num_speculative_tokens": 3.0}]
        ):
            cells = ["" if run.get(c) is None else str(run[c]) for c in columns]
            lines.append(",".join([str(i), *(f'"{c}"' if "," in c else c for c in cells)]))
        path = folder / "summary.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    def test_table(self, tmp_path):
        off, on = rows_of(self.table(tmp_path))
        assert (off.arm, off.acceptance, off.model) == ("unknown", None, "m")
        assert (on.arm, on.num_speculative_tokens) == ("on", 3)
        assert on.acceptance.per_position == (0.8, 0.5, 0.2)
        assert (on.concurrency, on.request_rate, on.output_tok_s) == (4, None, 800)

    def test_table_beside_its_runs(self, tmp_path):
        run = tmp_path / "SERVE--k=1" / "run=0.json"
        run.parent.mkdir()
        run.write_text(json.dumps(RESULT))
        with pytest.raises(Foreign, match="repeats"):
            rows_of(self.table(tmp_path))

    def test_warm_up_and_failure(self, rows):
        with pytest.raises(Foreign, match="warm-up"):
            rows({**RESULT, "run_number": -1}, name="warmup.json")
        with pytest.raises(Foreign, match="failed run: OSError: port in use"):
            rows(
                {
                    "run_number": 0,
                    "error_type": "OSError",
                    "error": "port in use",
                    "serve_overrides": {},
                    "bench_overrides": {},
                },
                name="run=0.failure.json",
            )


class TestDetailed:
    DETAILS = {  # noqa: RUF012
        "input_lens": [100, 100, 100],
        "output_lens": [5, 9, 0],
        "ttfts": [0.1, 0.2, 0.0],
        "itls": [[0.02, 0.02], [0.03, 0.01, 0.04], []],
        "errors": ["", "", "gone"],
    }

    def test_what_the_summary_lacks_comes_from_the_requests(self, row):
        found = row(**self.DETAILS, mean_tpot_ms=None, max_concurrency=1)
        assert found.tpot_ms.mean == pytest.approx(10.0)  # 40 ms / 4 and 80 ms / 8
        assert found.itl_ms.mean == 5.0  # as stated
        assert found.itl_ms.p50 == pytest.approx(20.0)
        assert found.ttft_ms.p90 == pytest.approx(190.0)
        assert found.e2e_ms.mean == pytest.approx((140 + 280) / 2)
        assert found.output_tokens_std == pytest.approx(2.0)

    def test_agrees_with_the_summary_of_the_client(self, shared, tmp_path):
        values = json.loads((shared / "lab/open_loop/dm_70_3_r0.8.json").read_text())
        bare = {k: v for k, v in values.items() if not k.endswith("_ms")}
        path = tmp_path / "bare.json"
        path.write_text(json.dumps(bare))
        (computed,) = rows_of(path)
        (stated,) = rows_of(shared / "lab/open_loop/dm_70_3_r0.8.json")
        for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
            assert dataclasses.astuple(getattr(computed, metric)) == pytest.approx(
                dataclasses.astuple(getattr(stated, metric)), rel=1e-6
            )

    @pytest.mark.slow
    # ru_maxrss starts at the peak of the process that forked: here, of pytest.
    @pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
    def test_large_files_cost_little_memory(self, tmp_path):
        path = tmp_path / "large.json"
        requests, gaps = 5000, 2400
        piece = json.dumps([0.012345678] * gaps)
        with path.open("w") as stream:
            head = {**RESULT, **SPECULATIVE, "completed": requests, "total_output_tokens": 3e7}
            stream.write(json.dumps(head)[:-1])
            stream.write(f', "output_lens": {[6000] * requests}, "ttfts": {[0.1] * requests}')
            stream.write(f', "itls": [{piece}')
            for _ in range(requests - 1):
                stream.write(f", {piece}")
            stream.write('], "p99_itl_ms": 31.0}')
        assert path.stat().st_size > 100e6
        code = (
            "import re, sys; from pathlib import Path\n"
            "from specsim.measure.readers import vllm_bench\n"
            "from specsim.measure.source import Source\n"
            "source = Source(Path(sys.argv[1])); assert vllm_bench.recognises(source)\n"
            "(row,) = vllm_bench.read(source)\n"
            "status = Path('/proc/self/status').read_text()\n"
            "peak = re.search(r'VmHWM:\\s+(\\d+) kB', status)[1]\n"
            "print(row.completed, row.itl_ms.p99, row.itl_ms.p50, row.output_tokens, peak)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True
        )
        completed, p99, p50, output_tokens, peak_kib = done.stdout.split()
        assert (completed, p99, output_tokens) == ("5000", "31.0", "6000.0")
        assert p50 == "None"  # never of a cut array
        assert int(peak_kib) * 1024 < 300e6


class TestSamples:
    def test_pair(self, shared):
        folder = shared / "samples/vllm_bench_json"
        (off,) = rows_of(folder / "glm52_pair_nospec_c4.json")
        (on,) = rows_of(folder / "glm52_pair_mtp3_c4.json")
        assert (off.arm, on.arm, on.num_speculative_tokens) == ("unknown", "on", 3)
        assert on.acceptance.acceptance_length == pytest.approx(2.799, abs=1e-3)
        assert on.output_tok_s / off.output_tok_s == pytest.approx(1.42, abs=0.005)
        assert on.warnings == off.warnings == ()

    @pytest.mark.parametrize(
        ("name", "k"),
        [
            ("glm52_mtp1_realistic_c4_detailed", 1),
            ("glm52_mtp2_realistic_c4_detailed", 2),
            ("glm52_mtp3_realistic_c4_detailed", 3),
            ("glm52_mtp6_4k_256_c1_detailed", 6),
            ("glm52_dspark7_realistic_c1_detailed", 7),
            ("glm52_dflash15_4k_256_c1_detailed", 15),
        ],
    )
    def test_draft_lengths(self, shared, name, k):
        (row,) = rows_of(shared / f"samples/vllm_bench_json/{name}.json")
        assert row.num_speculative_tokens == k == len(row.acceptance.per_position)
        assert row.acceptance.acceptance_length == pytest.approx(
            1 + sum(row.acceptance.per_position)
        )

    def test_legacy_lines(self, shared):
        rows = rows_of(shared / "samples/vllm_bench_json/legacy_llama32_3b_append_result.jsonl")
        assert [r.request_rate for r in rows] == [10, 30, None] * 3
        assert all(r.accelerator == "4xNVIDIA_L40S" and r.failed is None for r in rows)
        assert rows[0].input_tokens == 999  # as counted, not the nominal 1000 of the metadata
        assert rows[0].metadata["input_len"] == "1000"
        assert not any("goodput" in key for key in rows[0].metadata)

    def test_no_tpot(self, shared):
        (row,) = rows_of(
            shared / "samples/vllm_bench_json/qwen3_8b_percentile_metrics_no_tpot.json"
        )
        assert row.tpot_ms is None
        assert row.concurrency == 1
        assert row.e2e_ms.p95 == pytest.approx(189.588, abs=1e-3)

    def test_failures(self, shared):
        folder = shared / "samples"
        (row,) = rows_of(folder / "vllm_bench_json/qwen25vl3b_rate1_one_failed.json")
        assert row.warnings == ("1 of 200 requests failed",)
        with pytest.raises(Foreign, match="all 1 requests failed: Never received a valid chunk"):
            rows_of(folder / "vllm_bench_json/glm52_all_failed_zeros.json")
        with pytest.raises(Foreign, match="all 256 requests failed: HTTP 400"):
            rows_of(folder / "vllm_bench_rust_json/gemma4_31b_failed_requests_trimmed.json")

    def test_rust(self, shared):
        folder = shared / "samples/vllm_bench_rust_json"
        (k3,) = rows_of(folder / "gemma4_31b_b11_ctx4096_k3.json")
        assert k3.date == "2026-08-07T16:53:33Z"
        assert k3.output_tok_s == pytest.approx(1050.06, abs=0.01)  # its steady_state says 405.6
        assert "streamed pieces" in k3.metadata["steady_state"]
        assert k3.tpot_ms.p90 == pytest.approx(13.365, abs=1e-3)
        (k0,) = rows_of(folder / "gemma4_31b_b11_ctx4096_k0.json")
        (off,) = rows_of(folder / "gemma4_31b_b11_ctx4096_no_spec.json")
        assert k0.arm == off.arm == "unknown"
