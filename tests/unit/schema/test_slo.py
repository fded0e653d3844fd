"""Service-level objectives: their texts, what a request is judged by, one-line errors."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.errors import InputError, SpecsimError, UsageError
from specsim.schema.base import parse
from specsim.schema.slo import METRICS, Slo, SloTarget, few_slowest, parse_slo


def test_flags_of_both_kinds_become_one_record() -> None:
    slo = parse_slo(
        ["ttft_p95_ms=1000", "e2e_mean_s=5", "itl_p99.9_ms=80", "attainment_pct=95"],
        ["ttft:500 tpot:50", "e2el:8000"],
    )
    assert [(t.name, t.at_most_ms, t.percentile) for t in slo.targets] == [
        ("ttft_p95_ms", 1000.0, 95.0),
        ("e2e_mean_ms", 5000.0, None),
        ("itl_p99.9_ms", 80.0, 99.9),
    ]
    assert slo.goodput_ms == {"ttft": 500.0, "tpot": 50.0, "e2e": 8000.0}
    assert slo.request_thresholds_ms == slo.goodput_ms
    assert slo.attainment_pct == 95.0
    assert not slo.is_empty()


def test_nothing_is_promised_without_flags() -> None:
    assert parse_slo([], []) == Slo()
    assert Slo().is_empty()
    assert Slo().request_thresholds_ms == {}
    with pytest.raises(UsageError, match="not what they must meet; add --goodput"):
        parse_slo(["attainment_pct=90"], [])


def test_a_share_is_promised_with_goodput_or_where_it_is_given() -> None:
    assert parse_slo([], ["ttft:500"]).required_attainment_pct == 99.0
    assert parse_slo(["attainment_pct=90"], ["ttft:500"]).required_attainment_pct == 90.0
    assert parse_slo(["attainment_pct=90", "ttft_p95_ms=500"], []).required_attainment_pct == 90.0
    assert parse_slo(["ttft_p95_ms=500"], []).required_attainment_pct is None


def test_without_goodput_the_bound_of_the_highest_percentile_judges_a_request() -> None:
    slo = parse_slo(["ttft_p50_ms=200", "ttft_p99_s=1", "tpot_p99_ms=50", "itl_p99_ms=90"], [])
    # A gap between two chunks is no property of a request.
    assert slo.request_thresholds_ms == {"ttft": 1000.0, "tpot": 50.0}


@pytest.mark.parametrize(
    ("text", "name", "at_most_ms"),
    [
        ("e2el_p95_s=5", "e2e_p95_ms", 5000.0),
        ("TTFT_P95_MS=1e3", "ttft_p95_ms", 1000.0),
        ("ttft_p95=1.5s", "ttft_p95_ms", 1500.0),
        ("ttft_p95_ms=20ms", "ttft_p95_ms", 20.0),
        ("tpot_p050_ms=20", "tpot_p50_ms", 20.0),
    ],
)
def test_names_and_units_in_other_spellings(text: str, name: str, at_most_ms: float) -> None:
    (target,) = parse_slo([text], []).targets
    assert (target.name, target.at_most_ms) == (name, at_most_ms)


def test_the_same_bound_twice_is_one() -> None:
    assert len(parse_slo(["ttft_p95_ms=1000 ttft_p95_s=1"], ["ttft:5", "ttft:5"]).targets) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ttft_p95_ms", "expected a name, '=' and a value; write it as ttft_p95_ms=1000"),
        ("=5", "expected a name"),
        ("ttft_p95_ms=", "expected a name"),
        ("tfft_p95_ms=5", "metric 'tfft' is not known; nearest: ttft"),
        ("zzz_p95_ms=5", "nearest: ttft, tpot, itl, e2e, e2el"),
        ("ttft_ms=5", "says no statistic; write ttft_p95_ms"),
        ("ttft=5ms", "says no statistic"),
        ("ttft_p95=5", "has no unit; write ttft_p95_ms"),
        ("ttft_max_ms=5", "statistic 'max' is not known"),
        ("ttft_p0_ms=5", "statistic 'p0' is not known"),
        ("ttft_p100_ms=5", "statistic 'p100' is not known"),
        ("ttft_p95_ms=fast", "'fast' is not a number"),
        ("ttft_p95_ms=1,000", "'1,000' is not a number"),
        ("ttft_p95_ms=0", "0 is no bound; give a finite number above 0"),
        ("ttft_p95_ms=-3", "no bound"),
        ("ttft_p95_ms=nan", "no bound"),
        ("ttft_p95_ms=inf", "no bound"),
        ("ttft_p95_ms=1e-320", "no bound; give 0.000001 to 1,000,000,000,000 ms"),
        ("e2e_mean_s=1e306", "no bound; give 0.000001 to 1,000,000,000,000 ms"),
        ("ttft_p99.99999999999_ms=5", "statistic 'p99.99999999999' is not known"),
        ("attainment_pct=101", "more than all requests"),
        ("attainment_pct=0.99", "in percent; write attainment_pct=99"),
    ],
)
def test_a_wrong_slo_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_slo([text], [])
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"--slo {text}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ttft=1000", "expected a name, ':' and a value; write it as ttft:1000"),
        ("ttfd:1000", "nearest: ttft"),
        ("itl:50", "a request has one gap per step"),
        ("ttft:0", "no bound"),
        ("ttft:x", "not a number"),
    ],
)
def test_a_wrong_goodput_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_slo([], [text])
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"--goodput {text}: ")


def test_contradictions_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="ttft_p95_ms is given as 1000 and as 2000"):
        parse_slo(["ttft_p95_ms=1000", "ttft_p95_s=2"], [])
    with pytest.raises(UsageError, match="attainment_pct is given as 90 and as 99"):
        parse_slo(["attainment_pct=90", "attainment_pct=99"], [])
    with pytest.raises(UsageError, match="--goodput e2e is given as 5 and as 6"):
        parse_slo([], ["e2e:5 e2el:6"])
    with pytest.raises(UsageError, match="the name says ms and the value s"):
        parse_slo(["ttft_p95_ms=1s"], [])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"goodput_ms": {"itl": 50}}, "a request has one gap per step"),
        ({"goodput_ms": {"ttft": 0}}, "ttft should be from 0.000001 to 1,000,000"),
        ({"goodput_ms": {"ttft": 1e300}}, "ttft should be from 0.000001 to 1,000,000"),
        (
            {"targets": [{"metric": "ttft", "statistic": "p95", "at_most_ms": 1e300}]},
            "less than or equal to 1000000000000",
        ),
        ({"attainment_pct": 0}, "attainment_pct: got 0"),
        ({"targets": [{"metric": "ttft", "statistic": "max", "at_most_ms": 1}]}, "expected mean"),
        (
            {
                "targets": [
                    {"metric": "ttft", "statistic": "p95", "at_most_ms": ms} for ms in (1, 2)
                ]
            },
            "target ttft_p95_ms is given twice",
        ),
    ],
)
def test_a_file_is_held_to_the_same(data: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(Slo, data, what="scenario")


def test_percentiles_of_few_requests_are_noise() -> None:
    promised = parse_slo(["tpot_p99.99_ms=50", "ttft_p95_ms=9", "itl_p99_ms=1", "e2e_mean_s=1"])
    assert promised.percentiles == {"tpot_p99.99_ms": 99.99, "ttft_p95_ms": 95.0}
    # 1 % of 1000 requests are ten.
    assert few_slowest({"p99": 99.0}, requests=1000) == ()
    assert few_slowest({"p99": 99.0}, requests=500, replications=2) == ()
    assert few_slowest({"p99": 99.0}, requests=300) == (
        "p99 of 300 requests is that of the 3 slowest: noise; give --requests 1000 or more",
    )
    assert few_slowest({"p99": 99.0}, requests=1) == (
        "p99 of 1 request is that of the slowest: noise; give --requests 1000 or more",
    )
    (said,) = few_slowest(promised.percentiles, requests=2000, replications=3)
    assert said.startswith("tpot_p99.99_ms of 6,000 requests is that of the slowest")
    assert said.endswith("give --requests 33334 or more")
    (said,) = few_slowest({"p99.99999": 99.99999}, requests=2000)
    assert said.endswith("no run is long enough for it, take a lower percentile")


@given(
    metric=st.sampled_from(METRICS),
    percentile=st.integers(1, 9999).map(lambda n: n / 100),
    at_most_ms=st.floats(1e-3, 1e9),
)
def test_a_target_says_its_name_and_reads_it(
    metric: str, percentile: float, at_most_ms: float
) -> None:
    target = SloTarget(metric=metric, statistic=f"p{percentile}", at_most_ms=at_most_ms)
    assert target.percentile == pytest.approx(percentile)
    assert parse_slo([f"{target.name}={at_most_ms!r}"], []).targets == (target,)


@given(st.text(max_size=20))
def test_no_text_breaks_the_reader(text: str) -> None:
    for flags in (([text], []), ([], [text])):
        with contextlib.suppress(SpecsimError):
            assert isinstance(parse_slo(*flags), Slo)
