import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from specsim.analysis.simulation.run import Pools
from specsim.analysis.simulation.simulate import simulate
from specsim.catalog.traces import Trace
from specsim.errors import InfeasibleError, UsageError
from specsim.schema.results import as_json
from specsim.schema.simulation import METRICS, STATISTICS, Sample
from specsim.schema.slo import parse_slo

FEW = {"num_requests": 300, "replications": 3}


def trace(n: int, *, gap_s: float = 0.05, output: int = 100) -> Trace:
    return Trace(
        np.arange(n) * gap_s, np.full(n, 300), np.full(n, output), "made", ("a note of the trace",)
    )


def test_json_has_the_names_of_the_contract(make):
    answer = as_json(simulate(make(), slo=parse_slo(["ttft_p95_ms=1000"], ["ttft:500"]), **FEW))
    assert {"baseline", "speculative", "intervals", "seed"} <= set(answer)
    for arm in ("baseline", "speculative"):
        for metric in METRICS:
            assert set(answer[arm][f"{metric}_ms"]) == set(STATISTICS)
        assert {"output_tok_s", "goodput", "preemptions", "completed"} <= set(answer[arm])
        assert answer[arm]["completed"] == 900
        low, high = answer["intervals"][arm]["tpot_ms"]["p99"]
        assert low <= answer[arm]["tpot_ms"]["p99"] <= high
    assert answer["slo_met"]["baseline"][0]["target"] == "ttft_p95_ms"


def test_the_same_seed_is_the_same_answer_and_another_is_not(make):
    one, other, third = (simulate(make(), seed=seed, **FEW) for seed in (1, 1, 2))
    assert as_json(one) == as_json(other)
    assert one.baseline.tpot_ms.mean != third.baseline.tpot_ms.mean


def test_workers_change_nothing(make):
    with ThreadPoolExecutor(3) as pool:
        threads = simulate(make(), executor=pool, **FEW)
    assert as_json(threads) == as_json(simulate(make(), **FEW))


@pytest.mark.slow
def test_a_dask_cluster_and_processes_change_nothing(make):
    """Real workers in processes of their own: any executor with submit will do."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    distributed = pytest.importorskip("distributed")
    here = as_json(simulate(make(), **FEW))
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert as_json(simulate(make(), executor=pool, **FEW)) == here
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    )
    with cluster, distributed.Client(cluster) as client:
        assert as_json(simulate(make(), executor=client.get_executor(), **FEW)) == here


def test_both_arms_are_sent_the_same_requests(make):
    """Without drafts accepted the on arm is the off arm with longer steps: every ratio above 1."""
    answer = simulate(make(speculation__acceptance__length=1.0), **FEW)
    ratios = answer.intervals["speculative_to_baseline"]["tpot_ms"]
    assert answer.speculative.tokens_per_step == pytest.approx(1.0)
    for name in STATISTICS:
        assert ratios[name]["value"] > 1.0
    # Same arrivals and lengths: the ratio is told far more narrowly than either arm.
    width = ratios["mean"]["high"] - ratios["mean"]["low"]
    low, high = answer.intervals["baseline"]["tpot_ms"]["mean"]
    assert width / ratios["mean"]["value"] < (high - low) / answer.baseline.tpot_ms.mean


def test_tokens_per_step_are_those_of_the_scenario(make):
    answer = simulate(make(workload__output_tokens=1000), num_requests=600, replications=2)
    assert answer.speculative.tokens_per_step == pytest.approx(2.3, rel=0.02)
    assert answer.baseline.tokens_per_step == 1.0


def test_gaps_are_steps_and_time_per_token_is_gaps_by_tokens_per_step(make):
    answer = simulate(make(load__request_rate=[2.0]), **FEW)
    on = answer.speculative
    assert on.tpot_ms.mean == pytest.approx(on.itl_ms.mean / on.tokens_per_step, rel=0.05)
    assert answer.baseline.tpot_ms.mean == pytest.approx(answer.baseline.itl_ms.mean, rel=0.02)


def test_off_only(make):
    answer = simulate(make(speculation={"method": "none"}), **FEW)
    assert answer.speculative is None
    assert answer.tails == ()
    assert "give --spec-method" in answer.verdict


def test_a_schedule_is_on_at_low_load_and_off_at_high(make):
    """k = 0 above 4 requests: at high load its steps are the off arm's, at low the on arm's."""
    tiers = [[1, 4, 3], [5, 64, 0]]
    for rate, like in ((1.0, "on"), (40.0, "off")):
        plain = simulate(make(load__request_rate=[rate]), **FEW)
        switched = simulate(
            make(
                load__request_rate=[rate],
                speculation__num_speculative_tokens_per_batch_size=tiers,
            ),
            **FEW,
        )
        same = plain.speculative if like == "on" else plain.baseline
        other = plain.baseline if like == "on" else plain.speculative
        here = switched.speculative.tpot_ms.mean
        assert abs(here - same.tpot_ms.mean) < abs(here - other.tpot_ms.mean)
        assert here == pytest.approx(same.tpot_ms.mean, rel=0.10)


def test_adaptive_verification_is_never_far_behind_the_better_arm(make):
    answer = simulate(
        make(
            target__model="qwen3-8b",
            speculation={
                "method": "dspark",
                "drafter": "dspark-qwen3-8b",
                "num_speculative_tokens": 7,
                "adaptive_verification": True,
                "acceptance": {"rate": 0.7},
            },
            load__request_rate=[10.0],
        ),
        **FEW,
    )
    assert answer.speculative.tpot_ms.mean < answer.baseline.tpot_ms.mean


def test_two_pools_are_between_all_on_and_all_off(make):
    answer = simulate(make(load__request_rate=[40.0]), pools=Pools(1, 1, route_above=12.0), **FEW)
    assert answer.routed is not None
    assert answer.routed.completed == answer.baseline.completed
    both = sorted([answer.baseline.tpot_ms.mean, answer.speculative.tpot_ms.mean])
    assert both[0] * 0.9 < answer.routed.tpot_ms.mean < both[1] * 1.1
    # Each replica has half the load of one that is alone.
    alone = simulate(make(load__request_rate=[20.0]), **FEW)
    assert answer.baseline.running / 2 == pytest.approx(alone.baseline.running, rel=0.15)


def test_pools_need_a_rate(make):
    with pytest.raises(UsageError, match="give --request-rate"):
        simulate(make(load={"concurrency": [8]}), pools=Pools(1, 1, 8.0))


def test_a_trace_is_measured_whole(make):
    answer = simulate(make(), trace=trace(200), replications=2)
    assert answer.baseline.completed == 400
    assert answer.load["kind"] == "trace"
    assert "a note of the trace" in answer.defaults


def test_overload_is_said_with_the_rate_that_can_be_served(make):
    answer = simulate(make(load__request_rate=[200.0]), num_requests=1500, replications=2)
    assert answer.baseline.overloaded
    told = [w for w in answer.warnings if w.startswith("overloaded")]
    assert "200 requests/s arrive and a replica serves about" in told[0]
    assert "specsim plan" in told[0]
    for rate in (5.0, 25.0):
        calm = simulate(make(load__request_rate=[rate]), num_requests=1500, replications=2)
        assert not calm.baseline.overloaded
        assert not calm.speculative.overloaded


def test_requests_that_are_too_long_are_refused_and_counted(make):
    long = dataclasses.replace(trace(100), output_tokens=np.array([100] * 90 + [9000] * 10))
    answer = simulate(make(), trace=long, replications=1, slo=parse_slo([], ["ttft:60000"]))
    assert answer.baseline.attainment == pytest.approx(0.9)
    assert answer.baseline.rejected == 10
    assert answer.baseline.completed == 90
    assert any(w.startswith("10 requests are refused") for w in answer.warnings)


def test_requests_that_are_all_too_long_are_an_error_that_says_what_to_change(make):
    with pytest.raises(UsageError, match=r"is above max_model_len 8192; .*raise --max-model-len"):
        simulate(make(workload__output_tokens=9000), **FEW)
    # A cache of some 15,000 tokens holds none of these; vLLM would not start with it.
    small = make(
        engine__gpu_memory_utilization=0.24,
        engine__max_model_len=65536,
        workload__output_tokens=20000,
    )
    with pytest.raises(InfeasibleError, match=r"every request is refused.*--tensor-parallel-size"):
        simulate(small, **FEW)


def test_a_trace_sets_lengths_and_rate_of_the_scenario(make):
    answer = simulate(make(), trace=trace(100, output=50), replications=1)
    assert answer.scenario["workload"]["input_tokens"] == 300
    assert answer.scenario["workload"]["output_tokens"] == 50
    assert answer.scenario["load"]["request_rate"] == pytest.approx([20.0])


def test_an_answer_of_one_token_has_no_time_per_token(make):
    answer = simulate(make(workload__output_tokens=1), **FEW)
    assert math.isnan(answer.baseline.tpot_ms.mean)
    assert as_json(answer)["baseline"]["tpot_ms"]["mean"] is None
    assert answer.baseline.e2e_ms.mean == pytest.approx(answer.baseline.ttft_ms.mean)


def test_a_burst_goes_through_together(make):
    scenario = make(load={"concurrency": [8]}, workload__arrival="burst", workload__num_requests=16)
    answer = simulate(scenario, replications=1)
    assert answer.baseline.completed == 16
    # All are counted, those of the last step too: 16 answers of 128 tokens.
    for arm in (answer.baseline, answer.speculative):
        assert arm.output_tok_s == pytest.approx(arm.request_per_s * 128, rel=1e-6)
    assert answer.baseline.running <= 8.001


@pytest.mark.parametrize("bad", [{"num_requests": 0}, {"replications": 0}])
def test_nothing_to_simulate_is_refused(make, bad):
    with pytest.raises(UsageError, match="give at least 1"):
        simulate(make(), **bad)


def test_percentiles_of_weighted_values():
    """Of 99 gaps of 1 and one of 10 the median is 1 and the p99.5 is 10."""
    sample = Sample(np.array([10.0, 1.0]), np.array([1.0, 99.0]))
    assert sample.mean() == pytest.approx(1.09)
    assert sample.percentile(50) == 1.0
    assert sample.percentile(99) == 1.0
    assert sample.percentile(99.5) == 10.0
    assert Sample(np.array([1.0, 2.0, 3.0])).statistic("p50") == 2.0
    assert math.isnan(Sample(np.array([])).statistic("p99"))


def test_tails_name_acceptance_where_requests_differ_and_batch_where_they_come_in_bursts(make):
    steady = simulate(make(load__request_rate=[2.0]), num_requests=1500, replications=2)
    assert steady.tails[0].cause == "acceptance"
    assert "few of their drafts are accepted" in steady.tails[0].sentence
    bursts = simulate(
        make(
            load__request_rate=[10.0],
            workload__burstiness=0.1,
            speculation__acceptance__spread=0.0,
            engine__max_num_seqs=256,
        ),
        num_requests=1500,
        replications=2,
    )
    assert bursts.tails[0].cause in ("batch", "prefill")
    assert "steps take longer" in bursts.tails[0].sentence
