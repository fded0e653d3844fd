"""What a sensitivity says: one factor moved at a time, and what follows (a tornado chart)."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.schema.results import CrossoverState, says


@dataclass(frozen=True)
class SensitivityPoint:
    """What comes out at one value of a factor."""

    crossover: float | None = says(
        "load at which speculation stops paying; null: always, never, or nothing speculates",
        "requests or requests/s",
    )
    crossover_state: CrossoverState | None = says("always, never or crosses; null: method none")
    speedup: float | None = says("on / off at the load; null: an arm does not serve it")
    usd_per_mtok_off: float | None = says("price of a million output tokens at the load", "USD")
    usd_per_mtok_on: float | None = says("the same with speculation on", "USD")
    replicas_off: int | None = says("fleet with speculation off, spares included", "replicas")
    replicas_on: int | None = says("fleet with speculation on, spares included", "replicas")


@dataclass(frozen=True)
class Sensitivity:
    """One factor at three values, everything else as it was."""

    factor: str = says("what is moved, such as acceptance_length")
    unit: str = says("unit of its values")
    low: float = says("lowest value tried")
    base: float = says("value of the scenario")
    high: float = says("highest value tried")
    why: str = says("where the lowest and the highest value come from")
    load: float = says("load at which speedup and price hold", "requests or requests/s")
    at_low: SensitivityPoint = says("at the lowest value")
    at_base: SensitivityPoint = says("at the value of the scenario")
    at_high: SensitivityPoint = says("at the highest value")
