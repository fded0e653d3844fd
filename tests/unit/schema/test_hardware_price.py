"""Prices hold their own range."""

import pytest

from specsim.errors import InputError
from specsim.schema.base import parse
from specsim.schema.hardware import Price


def test_a_price_lies_in_its_range() -> None:
    assert parse(Price, {"usd_per_gpu_hour": 3.43, "low": 1.99, "high": 6.2}, what="x").high == 6.2
    with pytest.raises(InputError, match="low <= usd_per_gpu_hour <= high"):
        parse(Price, {"usd_per_gpu_hour": 3.43, "low": 4.0}, what="x")
