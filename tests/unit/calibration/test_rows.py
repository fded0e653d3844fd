from __future__ import annotations

from collections.abc import Callable

import pytest

from specsim.calibration.rows import assume_arm, matching_rows
from specsim.errors import CalibrationError
from specsim.schema.measurement import Measurement, Measurements, Skipped
from specsim.schema.scenario import Scenario

Row = Callable[..., Measurement]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "Qwen/Qwen3-8B"}, "is of model Qwen/Qwen3-8B (qwen3-8b), "
         "the scenario is of llama-3.1-8b"),
        ({"engine": "sglang"}, "is of engine sglang, the scenario is of vllm"),
        ({"tensor_parallel_size": 2},
         "is of tensor_parallel_size 2, the scenario is of 1"),
        ({"arm": "on", "method": "ngram"}, "speculates by ngram, the scenario by eagle3"),
    ],
)  # fmt: skip
def test_rows_of_something_else_are_left_out(
    make_row: Row, scenario: Scenario, changes: dict[str, object], reason: str
) -> None:
    other = make_row(**{"source": "other", **changes})
    kept, doubts, warnings = matching_rows([make_row(), other], scenario)
    assert [r.source for r in kept] == ["off.json"]
    assert [(d.source, d.used, d.reason) for d in doubts] == [("other", False, reason)]
    assert warnings == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "meta-llama/Llama-3.1-8B-Instruct"},  # the same by another name
        {"model": "/weights/target"},  # says nothing that is known
        {"engine": "vllm", "tensor_parallel_size": 1},
        {"arm": "on", "method": "eagle3"},
        {"method": "ngram"},  # off: its drafter does not run
    ],
)
def test_rows_of_the_same_or_of_nothing_said_are_kept(
    make_row: Row, scenario: Scenario, changes: dict[str, object]
) -> None:
    row = make_row(**changes)
    kept, doubts, _ = matching_rows([row], scenario)
    assert (kept, doubts) == ((row,), ())


def test_another_engine_version_is_warned_of(make_row: Row, scenario: Scenario) -> None:
    def warned(*versions: str | None) -> tuple[str, ...]:
        rows = [make_row(engine_version=v) for v in versions]
        return matching_rows(rows, scenario)[2]

    assert warned("0.33.1", "v0.33.0rc1", None) == ()
    (text,) = warned("0.33.1", "0.29.3")
    assert text == (
        "engine version: off.json says 0.29.3, the scenario has 0.33; to take theirs: "
        "--set engine.version=0.29"
    )


def test_runs_that_speculate_need_a_scenario_that_does(
    make_row: Row, make_scenario: Callable[..., Scenario]
) -> None:
    off = make_scenario(speculation={"method": "none", "num_speculative_tokens": None,
                                     "acceptance": None})  # fmt: skip
    with pytest.raises(CalibrationError, match=r"runs speculate \(ngram\) .* --spec-method") as got:
        matching_rows([make_row(), make_row("on", method="ngram")], off)
    assert got.value.exit_code == 4
    kept, _, _ = matching_rows([make_row()], off)
    assert len(kept) == 1


def test_an_arm_is_assumed_only_where_nothing_says_it(make_row: Row) -> None:
    skipped = (Skipped("x", "is empty"),)
    read = Measurements((make_row("unknown"), make_row("on")), skipped)
    got = assume_arm(read, "off")
    assert [(r.arm, r.arm_from) for r in got.rows] == [("off", "flag"), ("on", "name")]
    assert got.skipped == skipped
    assert assume_arm(read, None) == read
