"""Acceptance alone: tables, logs per token, profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.measure.readers import acceptance_tables
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Measurement

GOLDEN = """\
# Acceptance Length (AL) reference values.
# dataset: {dataset} | temperature: 1.0
# Measured on some-model (B300, vLLM DSpark, draft: org/draft), per num_speculative_tokens.
some-model:
  thinking_on:
    1: 1.75
    3: 2.50
  thinking_off:
    1: 9.00
"""


def rows(folder: Path, text: str, name: str) -> list[Measurement]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    assert acceptance_tables.recognises(Source(path))
    return acceptance_tables.read(Source(path))


def test_a_golden_table(tmp_path: Path) -> None:
    one, three = rows(tmp_path, GOLDEN.format(dataset="coding"), "golden.yaml")
    assert (one.num_speculative_tokens, three.num_speculative_tokens) == (1, 3)
    assert (three.arm, three.method, three.drafter) == ("on", "dspark", "org/draft")
    assert (three.model, three.accelerator, three.engine) == ("some-model", "B300", "vllm")
    assert three.acceptance is not None
    assert three.acceptance.acceptance_length == 2.5
    assert three.acceptance.draft_acceptance_rate == pytest.approx(0.5)
    assert three.metadata == {"variant": "thinking_on", "dataset": "coding"}
    assert three.warnings == ()
    assert three.source.endswith("golden.yaml [some-model thinking_on k=3]")


def test_artificial_text_is_said(tmp_path: Path) -> None:
    row, _ = rows(tmp_path, GOLDEN.format(dataset="random"), "golden.yaml")
    assert "artificial text (random)" in row.warnings[0]


def test_logs_per_token(tmp_path: Path) -> None:
    requests = [
        {"prompt": "a", "acc_eagle": [0, 2, 1, 0], "acc_ngram": [0, 0, 0, 0]},
        {"prompt": "b", "acc_eagle": [3, 0, 0, 0]},
    ]
    [row] = rows(tmp_path, "\n".join(map(json.dumps, requests)), "gsm8k.jsonl")
    assert (row.method, row.num_speculative_tokens) == ("eagle", 3)
    assert row.acceptance is not None
    assert row.acceptance.per_position == (3 / 8, 2 / 8, 1 / 8)
    assert row.acceptance.acceptance_length == 1 + 6 / 8
    assert "start of a step" in row.warnings[0]


@pytest.mark.parametrize(
    "document",
    [
        {"mean_acceptance_length": 2.5, "num_speculative_tokens": 3, "dataset": "mt_bench"},
        {"results": [{"acceptance_length": 2.5, "draft_length": 3, "dataset": "mt_bench"}]},
        {"average_acceptance_length": 2.5, "dataset": "mt_bench",
         "per_position_acceptance_rates": [0.8, 0.45, 0.25]},
    ],
)  # fmt: skip
def test_profiles(tmp_path: Path, document: dict[str, Any]) -> None:
    [row] = rows(tmp_path, json.dumps(document), "speculation_profile.json")
    assert row.num_speculative_tokens == 3
    assert row.acceptance is not None
    assert row.acceptance.acceptance_length == 2.5
    assert row.acceptance.draft_acceptance_rate == pytest.approx(0.5)
    assert row.metadata == {"dataset": "mt_bench"}


def test_a_profile_of_another_layout(tmp_path: Path) -> None:
    with pytest.raises(Foreign, match="no acceptance length"):
        rows(tmp_path, '{"layers": 3}', "speculation_profile.json")


def test_benchmark_results_are_none(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text('{"duration": 3.0, "acceptance_length": 2.5}')
    assert not acceptance_tables.recognises(Source(path))


@pytest.mark.parametrize(
    ("name", "n", "method", "first"),
    [
        ("golden_al_dsv4_mtp.yaml", 16, "mtp", 1.79),
        ("golden_al_glm5.2_mtp.yaml", 8, "mtp", 1.84),
        ("golden_al_kimik2.5_eagle3.yaml", 16, "eagle3", 1.83),
        ("golden_al_kimik3_dspark.yaml", 8, "dspark", 1.84),
        ("golden_al_qwen3.5_mtp.yaml", 16, "mtp", 1.93),
    ],
)
def test_golden_tables_of_inferencex(
    shared: Path, name: str, n: int, method: str, first: float
) -> None:
    source = Source(shared / "samples" / "inferencex" / name)
    assert acceptance_tables.recognises(source)
    found = acceptance_tables.read(source)
    assert len(found) == n
    assert {row.method for row in found} == {method}
    assert {row.accelerator for row in found} == {"B300"}
    assert found[0].acceptance is not None
    assert found[0].acceptance.acceptance_length == first
