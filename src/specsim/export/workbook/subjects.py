"""What the workbook tells of each scenario: every number that the model has to give for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specsim.analysis.curves import pair
from specsim.analysis.overlay import Overlay
from specsim.analysis.plan.candidates import listed_price
from specsim.analysis.plan.capacity import Capacity, capacities
from specsim.analysis.plan.plan import EVERY_DEVICE, NUM_REQUESTS
from specsim.analysis.predict import predict
from specsim.analysis.prepare import SEED, prepared
from specsim.analysis.resolve import Deployment
from specsim.analysis.sensitivity import sensitivity
from specsim.analysis.slots import SlotTable, baseline_table, slot_tables, told_apart
from specsim.schema.calibration import Calibration
from specsim.schema.evidence import Evidence
from specsim.schema.measurement import Measurements
from specsim.schema.plan import Plan, PricePaid
from specsim.schema.results import Prediction
from specsim.schema.scenario import LEAST_RATE, Load, Scenario
from specsim.schema.sensitivity import Sensitivity
from specsim.schema.slo import Slo
from specsim.schema.traffic import PEAK_TO_AVG, Traffic
from specsim.validation.evidence import evidence

Array = npt.NDArray[np.float64]
Progress = Callable[[str], None]
"""Told what is being worked out."""
_LOAD_TESTED_LENGTHS = 5
"""Beside the given one: each is a search of some ten simulations."""
_CLOSED_FORM_LENGTHS = 9


@dataclass(frozen=True)
class Asked:
    """What is asked of all scenarios."""

    traffic: Traffic | None = None
    """None: what a replica of the scenario serves, as an example to be replaced."""
    slo: Slo = field(default_factory=Slo)
    prices: Mapping[str, PricePaid] | None = None
    gpus_per_server: int | None = None
    """None: not known, so what is usual is assumed."""
    num_requests: int = NUM_REQUESTS
    seed: int = SEED
    search: tuple[Path, ...] = ()
    calibration: Calibration | None = None
    measurements: Measurements | None = None


@dataclass(frozen=True)
class Subject:
    """One scenario."""

    id: str
    """Short: S1, S2 ... in formulas and headers."""
    name: str
    scenario: Scenario
    deployment: Deployment
    prediction: Prediction
    off: SlotTable
    on: SlotTable | None
    """None with method none."""
    capacities: tuple[Capacity, ...]
    """The off arm's first."""
    load: float
    """Looked at first: in the middle of the scenario's."""
    traffic: Traffic
    traffic_given: bool
    slo: Slo
    price: PricePaid | None
    price_given: bool
    gpus_per_server: int | None
    sensitivities: tuple[Sensitivity, ...]
    evidence: tuple[Evidence, ...]

    @property
    def capacity_off(self) -> Capacity:
        """What a replica holds with speculation off."""
        return self.capacities[0]

    @property
    def capacity_on(self) -> Capacity | None:
        """What it holds with speculation on, at the acceptance that was given."""
        return _at_given(self.capacities, self.on)

    @property
    def is_open(self) -> bool:
        """Whether its loads are request rates."""
        return self.deployment.scenario.load.request_rate is not None

    @property
    def load_unit(self) -> str:
        """What its loads are counted in."""
        return "requests/s" if self.is_open else "requests in flight"

    @property
    def k(self) -> int:
        """Draft tokens per step."""
        return self.deployment.num_speculative_tokens


def subjects(
    scenarios: Sequence[Scenario], asked: Asked, progress: Progress | None = None
) -> Iterator[Subject]:
    """Work out every scenario, in order."""
    for i, scenario in enumerate(scenarios, start=1):
        name = scenario.name or f"scenario {i}"
        if progress is not None:
            progress(name)
        yield _subject(f"S{i}", name, scenario, asked)


def _subject(label: str, name: str, scenario: Scenario, asked: Asked) -> Subject:
    deployment, laid = prepared(scenario, asked.search, asked.calibration)
    prediction = predict(scenario, search=asked.search, calibration=asked.calibration)
    off, on = _tables(deployment, laid)
    loads = _loads(deployment)
    load = float(loads[loads.size // 2])
    reading = np.interp(load, off.loads, off.batch / off.slot_s[0])
    rate = load if deployment.scenario.load.request_rate is not None else float(reading)
    traffic = asked.traffic or Traffic(peak_qps=max(rate, LEAST_RATE * 2.0 * PEAK_TO_AVG))
    found = capacities(
        deployment, laid, asked.slo, lengths=_capacity_lengths(on, asked.slo),
        given=None if on is None else float(on.lengths[on.base]),
        num_requests=asked.num_requests, seed=asked.seed,
    )  # fmt: skip
    price = _price(deployment, asked.prices or {})
    off_rate, on_rate = (None if c is None else c.request_rate or None
                         for c in (found[0], _at_given(found, on)))  # fmt: skip
    return Subject(
        id=label,
        name=name,
        scenario=scenario,
        deployment=deployment,
        prediction=prediction,
        off=off,
        on=on,
        capacities=found,
        load=load,
        traffic=traffic,
        traffic_given=asked.traffic is not None,
        slo=asked.slo,
        price=price,
        price_given=bool(asked.prices) and price in (asked.prices or {}).values(),
        gpus_per_server=asked.gpus_per_server,
        sensitivities=sensitivity(
            scenario, traffic=traffic, load=load,
            # Where no rate keeps the promise there is no fleet to move.
            capacity_qps=(off_rate, on_rate),
            usd_per_gpu_hour=None if price is None else price.usd_per_gpu_hour,
            search=asked.search, calibration=asked.calibration,
        ),
        evidence=evidence(
            scenario, measurements=asked.measurements,
            search=asked.search, calibration=asked.calibration,
        ),
    )  # fmt: skip


def _at_given(found: Sequence[Capacity], on: SlotTable | None) -> Capacity | None:
    if on is None:
        return None
    given = float(on.lengths[on.base])
    return next(c for c in found[1:] if c.acceptance_length == given)


def _tables(deployment: Deployment, laid: Overlay) -> tuple[SlotTable, SlotTable | None]:
    if deployment.method == "none":
        return baseline_table(deployment, laid.point(), _table_loads(deployment)), None
    return slot_tables(deployment, pair(deployment, laid.point()), _table_loads(deployment))


MOST_LIVE_LOADS = 100
"""A ladder of more loads is shown as values, beside the rows that formulas read between."""


def _table_loads(deployment: Deployment) -> Array:
    """Return the loads that the live table holds beside those between which it is read."""
    loads = _loads(deployment)
    return loads if loads.size <= MOST_LIVE_LOADS else loads[[0, loads.size // 2, -1]]


def _loads(deployment: Deployment) -> Array:
    load = deployment.scenario.load
    return np.array(sorted(set(load.concurrency or load.request_rate or ())), dtype=float)


def _capacity_lengths(on: SlotTable | None, slo: Slo) -> tuple[float, ...]:
    if on is None:
        return ()
    n = _CLOSED_FORM_LENGTHS if slo.is_empty() else _LOAD_TESTED_LENGTHS
    top, given = float(on.lengths[-1]), float(on.lengths[on.base])
    spaced = [1.0 / (1.0 - share * (1.0 - 1.0 / top)) for share in np.linspace(0.0, 1.0, n)]
    return told_apart((1.0, *spaced[1:-1], top), given)


def _price(deployment: Deployment, prices: Mapping[str, PricePaid]) -> PricePaid | None:
    profile = deployment.hardware
    given = prices.get(profile.identity.id, prices.get(EVERY_DEVICE))
    return listed_price(profile) if given is None else given


MOST_SHOWN = 6
"""Candidates of a plan that a workbook shows: beyond that nobody compares them by eye."""


def shown_of(plan: Plan, load: Load) -> list[Scenario]:
    """Return the deployments of a plan that a workbook shows, the best first.

    Parameters
    ----------
    load : Load
        What the sheets by load show, in place of the plan's traffic.
    """
    chosen: dict[str, Scenario] = {}
    for candidate in plan.candidates:
        scenario = candidate.source
        if candidate.stable_rate is None:
            continue  # it could not be tested: the plan says why
        if candidate.arm == "baseline" and any(
            c.arm == "speculative"
            and c.stable_rate is not None
            and _same_deployment(c.source, scenario)
            for c in plan.candidates
        ):
            continue  # its own sheets show speculation off beside on
        named = scenario.model_copy(update={"name": candidate.deployment, "load": load})
        chosen.setdefault(named.model_copy(update={"name": ""}).model_dump_json(), named)
    return list(chosen.values())[:MOST_SHOWN]


def _same_deployment(one: Scenario, other: Scenario) -> bool:
    without = {"name", "load", "speculation", "workload"}
    return one.model_dump(exclude=without) == other.model_dump(exclude=without)
