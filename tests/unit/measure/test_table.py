"""Tests of the reader of hand-made tables."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from specsim.errors import InputError, MissingExtraError
from specsim.measure.readers import table
from specsim.measure.readers.columns import column
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Measurement


def _source(tmp_path: Path, text: str, name: str = "runs.csv") -> Source:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return Source(path)


def _read(tmp_path: Path, text: str) -> list[Measurement]:
    source = _source(tmp_path, text)
    assert table.recognises(source)
    return table.read(source)


@pytest.mark.parametrize(
    ("heading", "field", "statistic", "scale"),
    [
        ("tpot_ms", "tpot_ms", "mean", 1.0),
        ("TPOT (ms)", "tpot_ms", "mean", 1.0),
        ("TTFT [s]", "ttft_ms", "mean", 1000.0),
        ("p99_ttft_ms", "ttft_ms", "p99", 1.0),
        ("ttft_ms_p99", "ttft_ms", "p99", 1.0),
        ("TTFT (p99) ms", "ttft_ms", "p99", 1.0),
        ("Median ITL (ms)", "itl_ms", "p50", 1.0),
        ("mean_tpot_s", "tpot_ms", "mean", 1000.0),
        ("tpot_ms.p95", "tpot_ms", "p95", 1.0),
        ("e2e_ms", "e2e_ms", "mean", 1.0),
        ("step_ms", "itl_ms", "mean", 1.0),
        ("tok/s", "output_tok_s", "mean", 1.0),
        ("Throughput (tok/s)", "output_tok_s", "mean", 1.0),
        ("output throughput (tok/s)", "output_tok_s", "mean", 1.0),
        ("throughput (req/s)", "request_per_s", "mean", 1.0),
        ("Max Concurrency", "concurrency", "mean", 1.0),
        ("c", "concurrency", "mean", 1.0),
        ("QPS", "request_rate", "mean", 1.0),
        ("request rate (req/s)", "request_rate", "mean", 1.0),
        ("depth", "num_speculative_tokens", "mean", 1.0),
        ("mean_accept_len", "acceptance_length", "mean", 1.0),
        ("tau", "acceptance_length", "mean", 1.0),
        ("acceptance_rate_percent", "draft_acceptance_rate", "mean", 0.01),
        ("Acceptance (%)", "", "mean", 1.0),
        ("draft acceptance rate (%)", "draft_acceptance_rate", "mean", 0.01),
        ("acceptance.draft_tokens", "draft_tokens", "mean", 1.0),
        ("ISL", "input_tokens", "mean", 1.0),
        ("output tokens (mean)", "output_tokens", "mean", 1.0),
        ("output_tokens_std", "output_tokens_std", "mean", 1.0),
        ("GPU", "accelerator", "mean", 1.0),
        ("tok/s/GPU", "", "mean", 1.0),
        ("steps", "", "mean", 1.0),
        ("", "", "mean", 1.0),
    ],
)
def test_heading(heading: str, field: str, statistic: str, scale: float) -> None:
    found = column(heading)
    assert (found.field, found.statistic, found.scale) == (field, statistic, scale)
    assert not found.refused


@pytest.mark.parametrize("heading", ["TPOT", "p99 ttft", "inter_token_latency", "throughput"])
def test_number_without_unit_is_refused(tmp_path: Path, heading: str) -> None:
    source = _source(tmp_path, f"concurrency,tok_s,{heading}\n1,50,20\n")
    assert table.recognises(source)
    with pytest.raises(Foreign, match=rf"column '{heading}' has no unit: write"):
        table.read(source)


def test_pair_of_arms(tmp_path: Path) -> None:
    off, on = _read(
        tmp_path,
        "Concurrency,Arm,k,TPOT (ms),p99 TTFT [s],tok/s,acceptance_rate_percent,GPU,note\n"
        "8,baseline,,20,0.5,400,,H100,first\n"
        "8,speculative,3,12.5,0.6,640,62.5,H100,\n",
    )
    assert (off.arm, off.arm_from, off.num_speculative_tokens) == ("off", "metadata", None)
    assert (on.arm, on.num_speculative_tokens, on.concurrency) == ("on", 3, 8)
    assert on.tpot_ms is not None
    assert on.ttft_ms is not None
    assert (on.tpot_ms.mean, on.ttft_ms.p99, on.output_tok_s) == (12.5, 600.0, 640)
    assert on.acceptance is not None
    assert on.acceptance.draft_acceptance_rate == pytest.approx(0.625)
    assert off.acceptance is None
    assert (off.metadata, off.accelerator) == ({"note": "first"}, "H100")
    assert off.source.endswith("runs.csv#row 2")


def test_bonus_is_added_where_the_heading_says_it_is_left_out(tmp_path: Path) -> None:
    (row,) = _read(tmp_path, "k,tpot_ms,accepted_per_step_excl_bonus\n4,10,1.5\n")
    assert row.acceptance is not None
    assert row.acceptance.acceptance_length == 2.5


@pytest.mark.parametrize(
    ("arm", "k", "expected"),
    [
        ("on", "", ("on", None, None)),
        ("1", "", ("on", None, None)),
        ("0", "", ("off", None, None)),
        ("", "0", ("off", None, None)),
        ("", "5", ("on", 5, None)),
        ("off", "5", ("off", None, None)),
        ("ngram", "3", ("on", 3, "ngram")),
        ("ngram", "", ("unknown", None, "ngram")),
        ("", "", ("unknown", None, None)),
    ],
)
def test_arm(tmp_path: Path, arm: str, k: str, expected: tuple[Any, ...]) -> None:
    (row,) = _read(tmp_path, f"c,mode,k,tpot_ms\n8,{arm},{k},10\n")
    assert (row.arm, row.num_speculative_tokens, row.method) == expected


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("eight,on,3,10,0.5,2", "row 3 is left out: column 'c' holds 'eight', which is no number"),
        ("8,on,3,-10,0.5,2", "column 'tpot_ms' holds -10, which cannot be"),
        ("8,on,3,10,62.5,2", "column 'acceptance_rate' holds 62.5, which cannot be"),
        ("8,on,3,10,0.5,0.4", "column 'al' holds 0.4, which cannot be"),
        ("8,on,2.5,10,0.5,2", "column 'k' holds 2.5, which cannot be"),
        ("8,on,0,10,0.5,2", "speculation is on with 0 draft tokens"),
        ("8,3,,10,0.5,2", "its arm is '3'"),
        ("8,on,3,,0.5,2", "it has no TPOT, ITL or tokens/s"),
    ],
)
def test_bad_row_is_dropped_with_a_warning(tmp_path: Path, cells: str, reason: str) -> None:
    header = "c,arm,k,tpot_ms,acceptance_rate,al\n"
    (row,) = _read(tmp_path, f"{header}8,off,,20,,\n{cells}\n")
    assert reason in row.warnings[0]
    with pytest.raises(Foreign, match="row 2 is left out"):
        table.read(_source(tmp_path, header + cells))


def test_percent_sign_in_the_cell_and_rates_without_limit(tmp_path: Path) -> None:
    (row,) = _read(tmp_path, "qps;k;tpot_ms;acceptance_rate\ninf;3;10;62.5%\n")
    assert row.request_rate is None
    assert row.acceptance is not None
    assert row.acceptance.draft_acceptance_rate == pytest.approx(0.625)


def test_tabs_and_a_title(tmp_path: Path) -> None:
    text = (
        "Runs of Monday, again\n\nusers\tmean ITL (ms)\tmedian ITL (ms)\n4\t20\t19\n\n8\t25\t24\n"
    )
    rows = _read(tmp_path, text)
    assert [r.concurrency for r in rows] == [4, 8]
    assert rows[1].itl_ms is not None
    assert (rows[1].itl_ms.p50, rows[1].itl_of) == (24, "")
    assert rows[1].source.endswith("#row 6")


def test_fields_of_specsim_read_back(tmp_path: Path) -> None:
    (row,) = _read(
        tmp_path,
        "source,format,arm,arm_from,method,num_speculative_tokens,concurrency,output_tok_s,"
        "tpot_ms.mean,tpot_ms.p99,itl_ms.mean,itl_of,acceptance.acceptance_length,"
        "acceptance.per_position,acceptance.drafts,kv_tokens,weights_gib,repeat,warnings\n"
        'a.json,vllm bench,on,counters,eagle3,3,8,640,12,14,25,step,2.1,"(0.7, 0.4)",99,1000,'
        "15.5,2,careful\n",
    )
    assert (row.arm, row.arm_from, row.method) == ("on", "counters", "eagle3")
    assert row.tpot_ms is not None
    assert (row.tpot_ms.mean, row.tpot_ms.p99, row.itl_of) == (12, 14, "step")
    assert row.acceptance is not None
    assert (row.acceptance.per_position, row.acceptance.drafts) == ((0.7, 0.4), 99)
    assert (row.kv_tokens, row.weights_gib, row.repeat) == (1000, 15.5, 2)
    assert row.warnings == ("careful",)
    assert row.metadata == {"source": "a.json", "format": "vllm bench"}


@pytest.mark.parametrize(
    "text",
    ["", "a,b\n1,2\n", "tok_s\n5\n", "k,tok_s\n3,5\n", "concurrency,users\n1,2\n", "{}", "prose"],
)
def test_not_ours(tmp_path: Path, text: str) -> None:
    source = _source(tmp_path, text)
    assert not table.recognises(source)
    with pytest.raises(Foreign, match="has no headings"):
        table.read(source)


def _workbook(path: Path, **sheets: list[list[Any]]) -> Source:
    book = openpyxl.Workbook()
    book.remove(book["Sheet"])
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return Source(path)


def test_workbook(tmp_path: Path) -> None:
    rows = [["concurrency", "spec", "TPOT (ms)"], [8, False, 20.5], [8, True, 12]]
    source = _workbook(tmp_path / "runs.xlsx", notes=[["nothing", "here"]], runs=rows)
    assert table.recognises(source)
    off, on = table.read(source)
    assert (off.arm, on.arm) == ("off", "on")
    assert off.tpot_ms is not None
    assert off.tpot_ms.mean == 20.5
    assert on.source.endswith("runs.xlsx#runs row 3")


def test_workbook_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(Foreign, match="has no headings"):
        table.read(_workbook(tmp_path / "runs.xlsx", notes=[["nothing", "here"]]))


def test_broken_workbook(tmp_path: Path) -> None:
    path = tmp_path / "runs.xlsx"
    path.write_bytes(b"PK\3\4 and no more")
    assert table.recognises(Source(path))
    with pytest.raises(InputError, match="broken workbook"):
        table.read(Source(path))


def test_workbook_without_openpyxl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _workbook(tmp_path / "runs.xlsx", runs=[["concurrency", "tpot_ms"], [1, 2]])
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("openpyxl"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtraError, match=r"pip install 'specsim-llm\[measure\]'"):
        table.read(source)


def test_sample_of_depths_at_32(shared: Path) -> None:
    folder = shared / "samples" / "custom_other"
    source = Source(folder / "dsv4flash_rtx6000d_dspark_k_sweep_c32.csv")
    assert table.recognises(source)
    rows = table.read(source)
    assert [r.num_speculative_tokens for r in rows] == [None, 1, 2, 3, 4, 5, None, 5]
    assert [r.arm for r in rows] == ["off", *["on"] * 5, "off", "on"]
    assert rows[3].tpot_ms is not None
    assert rows[3].ttft_ms is not None
    assert (rows[3].tpot_ms.mean, rows[3].ttft_ms.mean) == (34.57, pytest.approx(4333.0))
    assert rows[3].acceptance is not None
    assert rows[3].acceptance.acceptance_length == pytest.approx(2.93)
    assert rows[3].acceptance.draft_acceptance_rate == pytest.approx(0.6447)
    assert rows[3].metadata["config"] == "tp4-k3"


def test_sample_of_depths_at_1(shared: Path) -> None:
    source = Source(shared / "samples" / "custom_other" / "qwen35_9b_b70_mtp_depth_c1.csv")
    assert table.recognises(source)
    rows = table.read(source)
    assert [r.output_tok_s for r in rows] == [64.157, 93.092, 110.088, 110.675]
    assert rows[0].acceptance is None
    assert rows[1].itl_ms is not None
    assert (rows[1].itl_ms.mean, rows[1].itl_of) == (19.43, "step")
    assert rows[1].acceptance is not None
    assert rows[1].acceptance.acceptance_length == 1.809
