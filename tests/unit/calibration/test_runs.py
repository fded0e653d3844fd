from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from specsim.calibration.runs import Run, usable_runs
from specsim.errors import CalibrationError
from specsim.schema.measurement import Latency, MeasuredAcceptance, Measurement
from specsim.schema.scenario import Scenario

Row = Callable[..., Measurement]


def ms(mean: float) -> Latency:
    return Latency(mean=mean, p50=None, p90=None, p95=None, p99=None, std=None)


def one(row: Measurement, scenario: Scenario) -> tuple[Run, str]:
    """Return the run of a row and what is doubted of it."""
    runs, doubts = usable_runs([row], scenario)
    assert all(d.used for d in doubts)
    return runs[0], "; ".join(d.reason for d in doubts)


def refused(row: Measurement, scenario: Scenario, good: Measurement) -> str:
    """Return why a row is no run, beside one that is."""
    runs, doubts = usable_runs([row, good], scenario)
    assert [r.source for r in runs] == [good.source]
    assert [d.used for d in doubts] == [False]
    return doubts[0].reason


def test_a_clean_run_is_taken_as_it_is(make_row: Row, scenario: Scenario) -> None:
    run, doubt = one(make_row(), scenario)
    assert doubt == ""
    assert (run.arm, run.k, run.load, run.is_open) == ("off", 0, 4.0, False)
    assert (run.tpot_s, run.step_s, run.ttft_s) == (0.02, None, 0.1)
    assert (run.output_tok_s, run.tokens_per_step, run.n_metrics) == (196.9, None, 2)
    assert run.held == pytest.approx(4.0)


def test_failed_requests(make_row: Row, scenario: Scenario) -> None:
    run, doubt = one(make_row(completed=39, failed=1), scenario)
    assert doubt == "2 % of its requests failed"
    assert run.output_tok_s is not None
    assert one(make_row(completed=199, failed=1), scenario)[1] == ""
    most = make_row(completed=32, failed=8, source="most")
    assert refused(most, scenario, make_row()) == "20 % of its requests failed"


def test_a_run_of_ramp_and_drain_has_no_throughput(make_row: Row, scenario: Scenario) -> None:
    run, doubt = one(make_row(completed=7, duration_s=9.1), scenario)
    assert "7 requests at concurrency 4: ramp and drain" in doubt
    assert (run.output_tok_s, run.tpot_s) == (None, 0.02)
    alone, doubt = one(make_row(completed=1, concurrency=1.0, duration_s=5.2), scenario)
    assert (alone.output_tok_s, doubt) == (196.9, "")  # one at a time: no ramp


@pytest.mark.parametrize("latencies", ["from ttft and tpot", "from e2e"])
def test_a_client_that_does_not_keep_up(make_row: Row, scenario: Scenario, latencies: str) -> None:
    given = {"e2e_ms": ms(5200.0), "ttft_ms": None} if latencies == "from e2e" else {}
    run, doubt = one(make_row(duration_s=104.0, **given), scenario)
    assert run.held == pytest.approx(2.0)  # 40 requests of 5.2 s in 104 s
    assert doubt == "held 2 requests in flight of 4: the client did not keep up"
    assert (run.output_tok_s, run.tpot_s) == (None, 0.02)
    run, doubt = one(make_row(duration_s=60.0, **given), scenario)
    assert (run.output_tok_s, doubt) == (196.9, "")
    assert run.held == pytest.approx(40 * 5.2 / 60)


def test_held_is_never_more_than_the_concurrency(make_row: Row, scenario: Scenario) -> None:
    assert one(make_row(duration_s=26.0), scenario)[0].held == 4.0
    assert one(make_row(duration_s=None), scenario)[0].held == 4.0


def test_an_unknown_arm_is_refused(make_row: Row, scenario: Scenario) -> None:
    assert "--unknown-arm off" in refused(make_row("unknown"), scenario, make_row())


def test_a_missing_k_is_the_scenarios(
    make_row: Row, scenario: Scenario, make_scenario: Callable[..., Scenario]
) -> None:
    row = make_row("on", num_speculative_tokens=None)
    run, doubt = one(row, scenario)
    assert run.k == 3
    assert doubt == "does not say how many tokens it drafts: k = 3 is the scenario's"
    nobody = make_scenario(speculation={"num_speculative_tokens": None, "acceptance": None})
    assert "give --spec-tokens" in refused(row, nobody, make_row())


def test_lengths_that_a_row_lacks_are_the_scenarios(make_row: Row, scenario: Scenario) -> None:
    run, _ = one(make_row(input_tokens=None, output_tokens=None), scenario)
    assert (run.input_tokens, run.output_tokens) == (1024.0, 256.0)


def test_a_gap_per_token_is_time_per_token(make_row: Row, scenario: Scenario) -> None:
    run, _ = one(make_row(tpot_ms=None, itl_ms=ms(21.0), itl_of="token"), scenario)
    assert (run.tpot_s, run.step_s) == (0.021, None)


def test_a_gap_per_step_stands_in_where_nothing_is_per_token(
    make_row: Row, scenario: Scenario
) -> None:
    run, _ = one(make_row("on", tpot_ms=None, itl_ms=ms(24.0), itl_of="step"), scenario)
    assert (run.tpot_s, run.step_s, run.tokens_per_step) == (None, 0.024, 2.6)
    both, _ = one(make_row("on", itl_ms=ms(48.0), itl_of="step"), scenario)
    assert (both.tpot_s, both.step_s) == (0.02, None)


@pytest.mark.parametrize(
    ("gap_ms", "counted", "tokens"),
    [
        (48.0, 2.6, 2.4),  # what requests got: steps without drafts and surplus tokens included
        (48.0, None, 2.4),
        (80.0, 2.6, 2.6),  # 4.0 cannot be at 2.6 counted: prompts stretch the gaps
        (18.0, 2.6, 2.6),  # no step yields less than a token
        (None, 2.6, 2.6),
    ],
)
def test_tokens_per_step(
    make_row: Row, accepted: Callable[..., MeasuredAcceptance], scenario: Scenario,
    gap_ms: float | None, counted: float | None, tokens: float,
) -> None:  # fmt: skip
    row = make_row(
        "on",
        itl_ms=None if gap_ms is None else ms(gap_ms),
        itl_of="step",
        acceptance=None if counted is None else accepted(counted),
    )
    run, _ = one(row, scenario)
    assert run.tokens_per_step == pytest.approx(tokens)


def test_tokens_per_step_that_nobody_counted_are_the_scenarios(
    make_row: Row, make_scenario: Callable[..., Scenario]
) -> None:
    row = make_row("on", acceptance=None)
    run, doubt = one(row, make_scenario())
    assert run.tokens_per_step == 2.4
    assert doubt == "counted no acceptance: 2.4 tokens per step are the scenario's"
    # Three of the scenario's, at one draft token: two are all there is.
    more = make_scenario(speculation={"acceptance": {"length": 3.0}})
    run, _ = one(make_row("on", acceptance=None, num_speculative_tokens=1), more)
    assert run.tokens_per_step == 2.0
    for given in (None, {"rate": 0.7}):
        nothing = make_scenario(speculation={"acceptance": given})
        reason = refused(row, nothing, make_row())
        assert "no acceptance counted, no gap between steps, and no acceptance length" in reason


def test_no_more_tokens_per_step_than_drafted_and_one(
    make_row: Row, accepted: Callable[..., MeasuredAcceptance], scenario: Scenario
) -> None:
    row = make_row("on", itl_ms=ms(90.0), itl_of="step", acceptance=accepted(3.9))
    assert one(row, scenario)[0].tokens_per_step == 4.0


def test_no_more_tokens_are_counted_than_drafted_and_one(
    make_row: Row, accepted: Callable[..., MeasuredAcceptance], scenario: Scenario
) -> None:
    row = make_row("on", acceptance=accepted(4.3))
    assert one(row, scenario)[0].tokens_per_step == 4.0


def test_what_the_reader_doubted_of_a_row_is_doubted_of_the_run(
    make_row: Row, scenario: Scenario
) -> None:
    run, doubt = one(make_row(warnings=("its clock jumped", "two files say so")), scenario)
    assert doubt == "its clock jumped; two files say so"
    assert run.tpot_s == 0.02


@pytest.mark.parametrize(
    "changes",
    [
        {"concurrency": 0.0},
        {"concurrency": -4.0},
        {"concurrency": None, "request_rate": 0.0},
        {"tpot_ms": ms(0.0)},
        {"tpot_ms": ms(-1.0)},
        {"tpot_ms": ms(float("nan"))},
        {"ttft_ms": ms(0.0)},
        {"output_tok_s": 0.0},
        {"output_tok_s": float("inf")},
    ],
)
def test_a_load_or_figure_that_is_not_above_zero_is_refused(
    make_row: Row, scenario: Scenario, changes: dict[str, Any]
) -> None:
    row = make_row(source="broken", **changes)
    assert refused(row, scenario, make_row()) == "a load or a figure that is not a number above 0"


def test_a_method_that_drafts_on_a_match_yields_tokens_over_all_steps(
    make_row: Row, accepted: Callable[..., MeasuredAcceptance], make_scenario: Any
) -> None:
    """40 answers of 255 tokens after the first, 2,550 of them from drafts."""
    ngram = make_scenario(
        speculation={"method": "ngram", "num_speculative_tokens": 3, "acceptance": {"length": 2.0}}
    )
    counted = replace(accepted(2.5, 1700), accepted_tokens=2550)
    run, _ = one(make_row("on", method="ngram", acceptance=counted), ngram)
    assert run.tokens_per_step == pytest.approx(10200 / (10200 - 2550))


def test_the_scenario_says_that_drafts_come_on_a_match(
    make_row: Row, accepted: Callable[..., MeasuredAcceptance], make_scenario: Any
) -> None:
    ngram = make_scenario(
        speculation={"method": "ngram", "num_speculative_tokens": 3, "acceptance": {"length": 2.0}}
    )
    counted = replace(accepted(2.5, 1700), accepted_tokens=2550)
    run, _ = one(make_row("on", method=None, acceptance=counted), ngram)
    assert run.tokens_per_step == pytest.approx(10200 / (10200 - 2550))


def test_answers_of_one_token_have_no_time_per_token(make_row: Row, scenario: Scenario) -> None:
    run, _ = one(make_row(output_tokens=1.0), scenario)
    assert (run.tpot_s, run.output_tok_s) == (None, 196.9)


def test_arms_of_different_builds(make_row: Row, scenario: Scenario) -> None:
    def doubted(off: list[str | None], on: list[str | None]) -> list[str]:
        rows = [make_row(engine_version=v, source=f"off {v}") for v in off]
        rows += [make_row("on", engine_version=v, source=f"on {v}") for v in on]
        _, doubts = usable_runs(rows, scenario)
        assert all("different builds (off 0.29" in d.reason and d.used for d in doubts)
        return [d.source for d in doubts]

    assert doubted(["0.29"], ["0.32"]) == ["off 0.29", "on 0.32"]
    assert doubted(["0.29", "0.32"], ["0.32"]) == ["off 0.29"]
    assert doubted(["0.32"], ["0.32"]) == []
    assert doubted(["0.29"], [None]) == []


def test_an_open_loop_has_a_rate_and_no_throughput(make_row: Row, scenario: Scenario) -> None:
    run, doubt = one(make_row(concurrency=None, request_rate=0.8), scenario)
    assert (run.is_open, run.load, doubt) == (True, 0.8, "")
    assert run.held == pytest.approx(4.0)  # 40 requests of 5.2 s in 52 s
    assert (run.output_tok_s, run.tpot_s) == (None, 0.02)
    capped, _ = one(make_row(concurrency=256.0, request_rate=0.8), scenario)
    assert (capped.is_open, capped.load) == (True, 0.8)
    for unsaid in ({"duration_s": None}, {"ttft_ms": None}, {"completed": None}):
        assert one(make_row(concurrency=None, request_rate=0.8, **unsaid), scenario)[0].held is None
    said = make_row(concurrency=None, request_rate=0.8, ttft_ms=None, e2e_ms=ms(5200.0))
    assert one(said, scenario)[0].held == pytest.approx(4.0)


def test_no_load_is_said_of_runs_and_not_of_logs(make_row: Row, scenario: Scenario) -> None:
    row = make_row(concurrency=None, source="bare")
    assert refused(row, scenario, make_row()) == "no load: give its concurrency or request rate"
    log = make_row(concurrency=None, output_tok_s=None, tpot_ms=None, source="log")
    runs, doubts = usable_runs([log, make_row()], scenario)
    assert (len(runs), doubts) == (1, ())


def test_what_is_left_of_a_run_may_be_nothing(make_row: Row, scenario: Scenario) -> None:
    row = make_row(completed=7, tpot_ms=None, source="short")
    assert "ramp and drain" in refused(row, scenario, make_row())


def test_nothing_usable_names_the_commonest_reason(make_row: Row, scenario: Scenario) -> None:
    rows = [make_row("unknown"), make_row(failed=40), make_row(failed=40)]
    with pytest.raises(CalibrationError, match=r"none of the 3 rows .* 50 % of its req") as caught:
        usable_runs(rows, scenario)
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)
    with pytest.raises(CalibrationError, match="none of the 0 rows read can be fitted; give runs"):
        usable_runs([], scenario)
