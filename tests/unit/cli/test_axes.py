import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.cli.axes import parse_axes
from specsim.errors import SpecsimError


def test_keys_are_flags_or_dotted_names_and_values_are_typed():
    assert parse_axes(
        ["gpu=h100_sxm,l40s", "tp=1,2,4", "k=1:4:1", "acceptance-rate=0.1:0.3:0.1",
         "concurrency=1:256:x4", "engine.version='0.33','0.32'", "workload.shared_prefix=true"]
    ) == {
        "hardware.accelerator": ("h100_sxm", "l40s"),
        "hardware.tensor_parallel_size": (1, 2, 4),
        "speculation.num_speculative_tokens": (1, 2, 3, 4),
        "speculation.acceptance.rate": (0.1, 0.2, 0.3),
        "load.concurrency": (1, 4, 16, 64, 256),
        "engine.version": ("0.33", "0.32"),
        "workload.shared_prefix": (True,),
    }  # fmt: skip


def test_an_exponent_is_a_number_but_in_names():
    assert parse_axes(["request-rate=1e-3,2.5E1", "gpu=1e3", "engine.version='0.33'"]) == {
        "load.request_rate": (0.001, 25.0),
        "hardware.accelerator": ("1e3",),
        "engine.version": ("0.33",),
    }


def test_lists_inside_an_axis_are_values():
    assert parse_axes(["speculation.acceptance.per_position=[0.7, 0.5],[0.6]"]) == {
        "speculation.acceptance.per_position": ([0.7, 0.5], [0.6])
    }


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["gpuu=1"], "nearest: gpu"),
        (["tp"], "expected KEY=VALUES"),
        (["tp="], "no values"),
        (["tp=1,,2"], "an empty value"),
        (["tp=1", "hardware.tensor_parallel_size=2"], "varied twice"),
        (["k=8:1:1"], "never reaches its end"),
        (["k=1:8:0"], "never reaches its end"),
        (["concurrency=1:8:x1"], "never reaches its end"),
        (["concurrency=0:8:x2"], "never reaches its end"),
        (["acceptance-rate=0:1:1e-9"], "at most 10,000,000"),
        (["k=a:b:c"], "expected numbers"),
        (["k=1,1"], "there twice"),
        (["k=1:4:1,2"], "there twice"),
        (["k=1:8"], "needs a step, such as 1:8:1"),
        (["load=1"], "is a group of keys; vary one of them, such as load.concurrency"),
        (["speculation.acceptance={rate: 0.5}"], "is a group of keys"),
        (["acceptance-rate=0.1", "acceptance-length=2"], "one form"),
        (["concurrency=1", "request-rate=2"], "one kind"),
        (["request-rate=1e-300"], "got 1e-300; allowed: 0.000001 to 1,000,000,000 requests/s"),
        (["request-rate=1,1e300"], "got 1e+300; allowed: 0.000001"),
        (["concurrency=0"], "got 0; allowed: 1 to 10,000,000"),
        (["concurrency=4,1e9"], "got 1e+09; allowed: 1 to 10,000,000"),
        (["num_speculative_tokens=1"], "nearest: speculation.num_speculative_tokens"),
        (["num-spec-tokens=1"], "nearest: spec-tokens"),
    ],
)
def test_what_is_wrong_is_said(texts, said):
    with pytest.raises(SpecsimError, match="--vary") as caught:
        parse_axes(texts)
    assert said in str(caught.value)


@given(first=st.integers(1, 50), n=st.integers(0, 60), step=st.integers(1, 9))
def test_ranges_hold_their_ends(first, n, step):
    last = first + n * step
    found = parse_axes([f"k={first}:{last}:{step}"])["speculation.num_speculative_tokens"]
    assert found == tuple(range(first, last + 1, step))


@given(doublings=st.integers(0, 20))
def test_geometric_ranges_hold_their_ends(doublings):
    found = parse_axes([f"concurrency=1:{2**doublings}:x2"])["load.concurrency"]
    assert found == tuple(2**i for i in range(doublings + 1))
    assert all(math.log2(value).is_integer() for value in found)
