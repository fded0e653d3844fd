"""The load that a fleet is sized for, and the room that it is given."""

from __future__ import annotations

from pydantic import Field, model_validator

from specsim.schema.base import Record
from specsim.schema.scenario import LEAST_RATE, MOST_RATE, RATES
from specsim.units import HOUR_S

DAYS_PER_MONTH = 30.4
HOURS_PER_MONTH = 24.0 * DAYS_PER_MONTH
"""What a fleet that is never switched off is paid for in a month."""
PEAK_TO_AVG = 2.5
"""Where nothing is said of the peak: public guides take 2 to 3."""


class Traffic(Record):
    """Requests that come to all replicas, and the headroom that is kept for them.

    The average is over the hours of operation. It is given, or a month's requests are, or the peak
    alone is; a peak beside an average, or the ratio of the two, says the rest.
    """

    avg_qps: float | None = Field(
        default=None,
        ge=LEAST_RATE,
        le=MOST_RATE,
        description="average over the hours of operation [requests/s]",
    )
    requests_per_month: float | None = Field(default=None, ge=1, le=1e15)
    peak_qps: float | None = Field(
        default=None, ge=LEAST_RATE, le=MOST_RATE, description="[requests/s]"
    )
    peak_to_avg: float | None = Field(
        default=None, ge=1, le=1e4, description="peak / average; absent, and no peak: 2.5"
    )
    hours_per_day: float = Field(default=24.0, ge=0.1, le=24, description="in which requests come")
    days_per_month: float = Field(
        default=DAYS_PER_MONTH,
        ge=0.1,
        le=30.4,
        description="on which requests come, of the 30.4 that are paid",
    )
    growth_pct: float = Field(default=0.0, gt=-100, le=10_000, description="of the load, a year")
    growth_years: float = Field(
        default=1.0, ge=0, le=20, description="ahead that the fleet is sized for, with growth"
    )
    target_utilization: float = Field(
        default=0.7,
        ge=0.01,
        le=1,
        description="share of the load that meets the SLO which a replica gets at peak: 0.7 for "
        "interactive, 0.85 for internal, 0.95 for batch traffic",
    )
    spares: int = Field(
        default=1, ge=0, le=1000, description="replicas beyond those that the peak needs: 1 is N+1"
    )

    @model_validator(mode="after")
    def _one_way_of_giving_it(self) -> Traffic:
        averages = [n for n in ("avg_qps", "requests_per_month") if getattr(self, n) is not None]
        if len(averages) == 2:
            raise ValueError("avg_qps and requests_per_month say the same: give one of them")
        if not averages and self.peak_qps is None:
            raise ValueError("no load: give avg_qps, requests_per_month or peak_qps")
        if averages and self.peak_qps is not None:
            if self.peak_to_avg is not None:
                raise ValueError(
                    f"{averages[0]}, peak_qps and peak_to_avg: two of them say the third; drop one"
                )
            average = self._average()
            if self.peak_qps < average:
                raise ValueError(
                    f"peak_qps ({self.peak_qps:g}) is below the average ({average:.4g} requests/s "
                    f"of {averages[0]}); raise it or drop it"
                )
        if "growth_years" in self.model_fields_set and "growth_pct" not in self.model_fields_set:
            raise ValueError("growth_years without growth_pct: give the growth of a year")
        # Growth, and a month's requests in few hours, lead far from what was given.
        for name, rate in (("average", self.avg_rate), ("peak", self.peak_rate)):
            if not LEAST_RATE <= rate <= MOST_RATE:
                raise ValueError(
                    f"the {name} comes to {rate:.3g} requests/s; expected {RATES} requests/s"
                )
        return self

    def _average(self) -> float:
        if self.avg_qps is not None:
            return self.avg_qps
        if self.requests_per_month is not None:
            return self.requests_per_month / (self.days_per_month * self.hours_per_day * HOUR_S)
        assert self.peak_qps is not None, "checked when the record was made"
        return self.peak_qps / self._ratio()

    def _ratio(self) -> float:
        return PEAK_TO_AVG if self.peak_to_avg is None else self.peak_to_avg

    @property
    def growth(self) -> float:
        """The factor on today's load."""
        return float((1.0 + self.growth_pct / 100.0) ** self.growth_years)

    @property
    def avg_rate(self) -> float:
        """Mean arrivals in the hours of operation, grown. [requests/s]."""
        return self._average() * self.growth

    @property
    def peak_rate(self) -> float:
        """Arrivals at the peak, grown. [requests/s]."""
        today = self._average() * self._ratio() if self.peak_qps is None else self.peak_qps
        return today * self.growth

    @property
    def monthly_requests(self) -> float:
        """Requests of a month, grown."""
        return self.avg_rate * self.days_per_month * self.hours_per_day * HOUR_S

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was decided for the user."""
        given = self.model_fields_set
        found = []
        if self.peak_to_avg is None and (self.peak_qps is None or len(given & _AVERAGES) == 0):
            found.append(f"peak_to_avg = {PEAK_TO_AVG:g} (assumed; 2 to 3 where it is not known)")
        if "growth_pct" not in given:
            found.append("growth_pct = 0")
        elif "growth_years" not in given and self.growth_pct != 0:
            found.append("growth_years = 1 (sized for a year from now)")
        if "target_utilization" not in given:
            found.append(
                f"target_utilization = {self.target_utilization:g} (assumed: interactive traffic)"
            )
        if "spares" not in given:
            found.append("spares = 1 (N+1)")
        if "hours_per_day" not in given:
            found.append("hours_per_day = 24")
        return tuple(found)


_AVERAGES = {"avg_qps", "requests_per_month"}
