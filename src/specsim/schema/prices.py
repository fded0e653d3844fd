"""A dated list of what accelerators cost to rent."""

from __future__ import annotations

import datetime as dt

from pydantic import Field, model_validator

from specsim.schema.base import Record

LEAST_USD, MOST_USD = 1e-4, 1e6
"""What a price can be. [USD per GPU and hour]."""


class RentalPrice(Record):
    """What one accelerator costs, its share of the host included."""

    usd_per_gpu_hour: float = Field(
        ge=LEAST_USD, le=MOST_USD, description="median of the offers on demand"
    )
    low: float = Field(
        ge=LEAST_USD, le=MOST_USD, description="cheapest offer [USD per GPU and hour]"
    )
    high: float = Field(
        ge=LEAST_USD, le=MOST_USD, description="dearest offer [USD per GPU and hour]"
    )
    spot_usd_per_gpu_hour: float | None = Field(
        default=None,
        ge=LEAST_USD,
        le=MOST_USD,
        description="median of the offers that can be taken back",
    )
    n_offers: int = Field(default=1, ge=1, description="offers on demand: instance types by region")

    @model_validator(mode="after")
    def _is_ordered(self) -> RentalPrice:
        if not self.low <= self.usd_per_gpu_hour <= self.high:
            raise ValueError("expected low <= usd_per_gpu_hour <= high")
        return self


class PriceList(Record):
    """Prices by the id of a hardware profile."""

    as_of: dt.date
    source: str = Field(min_length=1)
    provider: str | None = Field(
        default=None, min_length=1, description="absent: several, or not known"
    )
    prices: dict[str, RentalPrice] = Field(min_length=1)
    skipped: tuple[str, ...] = Field(
        default=(), description="accelerators of the source that no profile describes"
    )
    notes: tuple[str, ...] = ()
