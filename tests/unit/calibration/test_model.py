from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from specsim.analysis.arms import Arm, baseline_arm, speculative_arm
from specsim.analysis.curves import service_at_rates
from specsim.analysis.resolve import resolve
from specsim.analysis.serving import closed_loop
from specsim.calibration.model import METRICS, RunModel
from specsim.calibration.runs import Run
from specsim.schema.scenario import Scenario

MakeRun = Callable[..., Run]
LOADS = np.array([1.0, 4.0, 16.0, 64.0])
ROUNDS = 3
SHORT = 64.0
"""Prompt tokens of which a wave of 64 requests fits one step, as lockstep needs."""


def arm(scenario: Scenario, k: int, tokens_per_step: float = 2.2) -> Arm:
    deployment = resolve(scenario)
    if k == 0:
        return baseline_arm(deployment)
    return speculative_arm(deployment).with_acceptance(tokens_per_step=tokens_per_step)


@pytest.mark.parametrize("k", [0, 3])
def test_a_closed_loop_is_that_of_the_analysis(
    scenario: Scenario, make_run: MakeRun, k: int
) -> None:
    runs = [make_run(k, load, tokens_per_step=2.2 if k else None) for load in LOADS]
    got = RunModel(runs, scenario).predict({})
    want = closed_loop(arm(scenario, k), scenario.workload, LOADS)
    assert got.tpot_s[0] == pytest.approx(np.asarray(want.tpot_s))
    assert got.step_s[0] == pytest.approx(np.asarray(want.itl_s))
    assert got.ttft_s[0] == pytest.approx(np.asarray(want.ttft_s))
    assert got.output_tok_s[0] == pytest.approx(np.asarray(want.output_tokens_per_s))


@pytest.mark.parametrize("k", [0, 3])
def test_an_open_loop_is_that_of_the_analysis(
    scenario: Scenario, make_run: MakeRun, k: int
) -> None:
    rates = np.array([0.5, 2.0])
    tokens = 2.2 if k else None
    runs = [make_run(k, r, is_open=True, tokens_per_step=tokens) for r in rates]
    got = RunModel(runs, scenario).predict({})
    want, _ = service_at_rates(arm(scenario, k), scenario.workload, rates)
    assert got.tpot_s[0] == pytest.approx(np.asarray(want.tpot_s))
    assert got.ttft_s[0] == pytest.approx(np.asarray(want.ttft_s))
    # One that says how many requests it held is a batch, beside one that does not.
    runs.append(make_run(k, 2.0, is_open=True, held=23.5, tokens_per_step=tokens))
    got = RunModel(runs, scenario).predict({})
    batch = closed_loop(arm(scenario, k), scenario.workload, 23.5)
    assert got.tpot_s[0, :2] == pytest.approx(np.asarray(want.tpot_s))
    assert got.tpot_s[0, 2] == pytest.approx(float(np.asarray(batch.tpot_s)))
    assert got.step_s[0, 2] == pytest.approx(float(np.asarray(batch.itl_s)))


def test_a_rate_above_what_is_served_has_no_figures_of_its_own(
    scenario: Scenario, make_run: MakeRun
) -> None:
    runs = [make_run(0, 1.0, is_open=True), make_run(0, 1e4, is_open=True)]
    runs.append(make_run(0, 1e4, is_open=True, held=200.0))
    got = RunModel(runs, scenario).predict({}).tpot_s[0]
    assert np.isfinite(got).tolist() == [True, False, True]


def test_lengths_k_and_tokens_per_step_are_those_of_the_run(
    make_scenario: Callable[..., Scenario], make_run: MakeRun
) -> None:
    short = make_scenario(workload={"input_tokens": 128, "output_tokens": 64},
                          speculation={"num_speculative_tokens": 5})  # fmt: skip
    runs = [
        make_run(3, 8.0),
        make_run(0, 8.0),
        make_run(5, 8.0, tokens_per_step=2.9, input_tokens=128.0, output_tokens=64.0),
    ]
    got = RunModel(runs, make_scenario()).predict({}).tpot_s[0]
    want = closed_loop(arm(short, 5, 2.9), short.workload, 8.0).tpot_s
    assert got[2] == pytest.approx(float(np.asarray(want)))
    alone = [RunModel([run], make_scenario()).predict({}).tpot_s[0, 0] for run in runs]
    assert got == pytest.approx(alone)


def test_a_client_that_holds_fewer_has_shorter_steps(scenario: Scenario, make_run: MakeRun) -> None:
    full, part = make_run(0, 64.0), make_run(0, 64.0, held=32.0)
    half = make_run(0, 32.0)
    got = RunModel([full, part, half], scenario).predict({}).tpot_s[0]
    assert got[1] == got[2] < got[0]


def test_trial_points_together_are_those_one_by_one(scenario: Scenario, make_run: MakeRun) -> None:
    runs = [make_run(k, load, num_requests=3 * load) for k in (0, 3) for load in LOADS]
    runs.append(make_run(0, 2.0, is_open=True))
    model = RunModel(runs, scenario)
    trial = {
        "bandwidth": np.array([0.8, 1.0, 1.3]),
        "compute": np.array([1.2, 1.0, 0.7]),
        "host": np.array([0.0, 1.0, 9.0]),
        "prompt": np.array([0.5, 1.0, 2.0]),
        "draft": np.array([2.0, 1.0, 0.5]),
    }
    together = model.predict(trial)
    for i in range(3):
        one = model.predict({name: float(values[i]) for name, values in trial.items()})
        for metric in (*METRICS, "ttft_s"):
            assert together.of(metric)[i] == pytest.approx(one.of(metric)[0], rel=1e-9)
    shipped = model.predict({})
    assert together.tpot_s[1] == pytest.approx(shipped.tpot_s[0])
    assert not np.allclose(together.tpot_s[0], together.tpot_s[1], rtol=0.05)


def with_prompts(scenario: Scenario, input_tokens: float) -> Scenario:
    workload = scenario.workload.model_copy(update={"input_tokens": input_tokens})
    return scenario.model_copy(update={"workload": workload})


def waves(
    scenario: Scenario,
    k: int,
    make_run: MakeRun,
    *,
    lockstep: bool,
    input_tokens: float = SHORT,
) -> list[Run]:
    """Return runs of three rounds with the time to first token that the analysis gives them."""
    scenario = with_prompts(scenario, input_tokens)
    steady = scenario.workload
    burst = steady.model_copy(update={"arrival": "burst"})
    server = arm(scenario, k)
    requests = ROUNDS * LOADS if lockstep else LOADS
    ttft_s = np.asarray(closed_loop(server, burst, LOADS, num_requests=requests).ttft_s)
    if not lockstep:
        later = np.asarray(closed_loop(server, steady, LOADS).ttft_s)
        ttft_s = (ttft_s + (ROUNDS - 1) * later) / ROUNDS
    return [
        make_run(k, load, num_requests=ROUNDS * load, ttft_s=float(t),
                 input_tokens=input_tokens, tokens_per_step=2.2 if k else None)
        for load, t in zip(LOADS, ttft_s, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("slower", [1.0, 3.0])
@pytest.mark.parametrize("k", [0, 3])
def test_lockstep_is_told_from_times_to_first_token(
    scenario: Scenario, make_run: MakeRun, k: int, slower: float
) -> None:
    def shares(lockstep: bool) -> list[float]:
        runs = waves(scenario, k, make_run, lockstep=lockstep)
        # How long a prompt takes is not known: only the shape over loads tells.
        return list(
            RunModel(
                [replace(r, ttft_s=slower * (r.ttft_s or 0.0)) for r in runs], scenario
            ).burst_share
        )

    assert shares(lockstep=True) == [1.0] * 4
    assert shares(lockstep=False) == pytest.approx([1.0 / ROUNDS] * 4)


def test_without_times_to_first_token_the_scenario_says(
    make_scenario: Callable[..., Scenario], make_run: MakeRun
) -> None:
    runs = [make_run(0, load, num_requests=ROUNDS * load, input_tokens=SHORT) for load in LOADS]
    runs.append(make_run(0, 2.0, is_open=True, input_tokens=SHORT))
    steady = RunModel(runs, make_scenario()).burst_share
    assert list(steady) == pytest.approx([1.0 / ROUNDS] * 4 + [0.0])
    together = RunModel(runs, make_scenario(workload={"arrival": "burst"})).burst_share
    assert list(together) == [1.0] * 4 + [0.0]


def test_a_mixture_is_one_part_burst(scenario: Scenario, make_run: MakeRun) -> None:
    runs = waves(scenario, 0, make_run, lockstep=False, input_tokens=1024.0)
    got = RunModel(runs, scenario).predict({})
    steady = closed_loop(arm(scenario, 0), scenario.workload, LOADS)
    at_once = scenario.workload.model_copy(update={"arrival": "burst"})
    burst = closed_loop(arm(scenario, 0), at_once, LOADS)
    wave = closed_loop(arm(scenario, 0), at_once, LOADS, num_requests=LOADS)
    # Prompts of later steps ride on decoding: the wave less its time to first token.
    wave_s = LOADS * 256.0 / np.asarray(wave.output_tokens_per_s)
    decoding = (wave_s - np.asarray(wave.ttft_s)) / 255.0
    bare = np.asarray(burst.tpot_s)
    assert decoding[-1] > 1.05 * bare[-1]  # 64 prompts of 1024 tokens take many steps
    want = (np.maximum(bare, decoding) + 2.0 * np.asarray(steady.tpot_s)) / 3.0
    assert got.tpot_s[0] == pytest.approx(want)
    # Throughputs mix by the time that a token takes.
    per_token = (
        1.0 / np.asarray(burst.output_tokens_per_s)
        + 2.0 / np.asarray(steady.output_tokens_per_s)
    ) / 3.0  # fmt: skip
    assert got.output_tok_s[0] == pytest.approx(1.0 / per_token)


def test_some_of_the_runs_keep_what_all_told(scenario: Scenario, make_run: MakeRun) -> None:
    runs = waves(scenario, 0, make_run, lockstep=True) + waves(
        scenario, 3, make_run, lockstep=False
    )
    model = RunModel(runs, scenario)
    part = model.only([0, 5])  # one run of each: alone neither could tell
    assert list(part.burst_share) == pytest.approx([1.0, 1.0 / ROUNDS])
    assert part.predict({}).tpot_s[0] == pytest.approx(model.predict({}).tpot_s[0, [0, 5]])
    assert len(model.runs) == 8


@pytest.mark.parametrize("input_tokens", [512.0, 1024.0])
def test_waves_that_take_several_steps_are_not_in_lockstep(
    scenario: Scenario, make_run: MakeRun, input_tokens: float
) -> None:
    most = arm(scenario, 0).max_num_batched_tokens
    runs = waves(scenario, 0, make_run, lockstep=True, input_tokens=input_tokens)
    want = [1.0 if load * input_tokens <= most else 1.0 / ROUNDS for load in LOADS]
    assert 1.0 in want
    assert 1.0 / ROUNDS in want
    assert list(RunModel(runs, scenario).burst_share) == pytest.approx(want)


def test_requests_that_wait_for_a_slot_do_not_lengthen_a_token(
    scenario: Scenario, make_run: MakeRun
) -> None:
    """A wave's wait for the wave before it is time to first token, not time per token."""
    eight = scenario.model_copy(
        update={"engine": scenario.engine.model_copy(update={"max_num_seqs": 8})}
    )
    runs = [make_run(0, load, held=load, num_requests=2.0 * load) for load in (8.0, 64.0)]
    full, waiting = RunModel(runs, eight).predict({}).tpot_s[0]
    assert waiting == pytest.approx(full, rel=0.02)


def test_at_two_loads_the_size_of_the_times_counts(scenario: Scenario, make_run: MakeRun) -> None:
    def shares(lockstep: bool, slower: float) -> list[float]:
        runs = waves(scenario, 0, make_run, lockstep=lockstep)[::3]
        model = RunModel([replace(r, ttft_s=slower * (r.ttft_s or 0.0)) for r in runs], scenario)
        return list(model.burst_share)

    assert shares(lockstep=True, slower=1.0) == [1.0] * 2
    assert shares(lockstep=False, slower=1.0) == pytest.approx([1.0 / ROUNDS] * 2)
    # A second repeat of the same two loads is no third load.
    runs = 2 * waves(scenario, 0, make_run, lockstep=False)[::3]
    assert list(RunModel(runs, scenario).burst_share) == pytest.approx([1.0 / ROUNDS] * 4)
