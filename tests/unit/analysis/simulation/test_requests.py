import numpy as np
import pytest

from specsim.analysis.simulation.requests import draw_requests
from specsim.catalog.traces import Trace
from specsim.errors import InputError
from specsim.schema.scenario import Workload

N = 40_000


def seed(n: int = 1) -> np.random.SeedSequence:
    return np.random.SeedSequence(n)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_rate_and_the_variation_of_their_shape(burstiness):
    """A gamma of shape s has a coefficient of variation of 1 / sqrt(s)."""
    sent = draw_requests(Workload(burstiness=burstiness), N, seed(), request_rate=8.0)
    gaps = np.diff(sent.arrival_s)
    assert gaps.mean() == pytest.approx(1 / 8.0, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.03)


def test_lengths_have_the_mean_and_the_percentile_that_are_asked_for():
    workload = Workload(
        input_tokens=1000, input_tokens_p95=2500, output_tokens=200, output_tokens_p95=600
    )
    sent = draw_requests(workload, N, seed())
    assert sent.input_tokens.mean() == pytest.approx(1000, rel=0.02)
    assert np.percentile(sent.input_tokens, 95) == pytest.approx(2500, rel=0.02)
    assert sent.output_tokens.mean() == pytest.approx(200, rel=0.03)
    assert np.percentile(sent.output_tokens, 95) == pytest.approx(600, rel=0.03)


def test_alike_lengths_keep_a_mean_that_is_not_whole():
    sent = draw_requests(Workload(input_tokens=100.25, output_tokens=1), N, seed())
    assert set(sent.input_tokens.tolist()) == {100, 101}
    assert sent.input_tokens.mean() == pytest.approx(100.25, abs=0.02)
    assert set(sent.output_tokens.tolist()) == {1}


def test_another_rate_is_the_same_requests_on_another_clock():
    workload = Workload(output_tokens=200, output_tokens_p95=600)
    slow, fast = (draw_requests(workload, 500, seed(), request_rate=r) for r in (2.0, 8.0))
    assert slow.arrival_s == pytest.approx(4.0 * fast.arrival_s)
    assert np.array_equal(slow.output_tokens, fast.output_tokens)
    assert np.array_equal(slow.deviates, fast.deviates)


def test_a_percentile_that_no_lognormal_has_is_refused():
    from specsim.schema.base import parse

    with pytest.raises(InputError, match=r"output_tokens_p95 \(2000\) must lie between"):
        parse(Workload, {"output_tokens": 256, "output_tokens_p95": 2000}, what="workload")


def test_a_trace_is_sent_as_recorded_and_again_where_more_is_asked():
    trace = Trace(
        np.array([0.0, 1.0, 4.0]), np.array([10, 20, 30]), np.array([3, 2, 1]), "made", ()
    )
    sent = draw_requests(Workload(), 5, seed(), trace=trace)
    assert sent.input_tokens.tolist() == [10, 20, 30, 10, 20]
    assert sent.arrival_s[:3].tolist() == [0.0, 1.0, 4.0]
    assert np.all(np.diff(sent.arrival_s) > 0)
