"""Flags of the traffic that a fleet is sized for, and of what its devices cost."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from specsim.cli.parameters import Option
from specsim.errors import UsageError
from specsim.schema.prices import LEAST_USD, MOST_USD
from specsim.schema.traffic import Traffic

if TYPE_CHECKING:
    from specsim.schema.plan import PricePaid

GIVEN = "given with --price"
"""Source of a price that a flag says."""
FLEET = "Fleet"
_FLAGS = {
    "avg_qps": "--avg-qps",
    "requests_per_month": "--requests-per-month",
    "peak_qps": "--peak-qps",
    "peak_to_avg": "--peak-factor",
    "hours_per_day": "--hours-per-day",
    "days_per_month": "--days-per-month",
    "growth_pct": "--growth-pct",
    "growth_years": "--growth-years",
    "target_utilization": "--target-utilization",
    "spares": "--spares",
}
"""Flags by the key of the traffic that each sets."""


def _traffic_option(key: str, kind: Any, text: str) -> Any:
    return click.option(
        _FLAGS[key], key.replace("-", "_"), cls=Option, section="Traffic", type=kind, help=text
    )


traffic_options = (
    _traffic_option("avg_qps", float, "Requests/s, averaged over the hours of operation."),
    _traffic_option("requests_per_month", float, "The same as requests of a month."),
    _traffic_option("peak_qps", float, "Requests/s at the peak, alone or beside the average."),
    _traffic_option("peak_to_avg", float, "Peak / average. Absent, and no peak: 2.5."),
    _traffic_option("hours_per_day", float, "Hours in which requests come. Absent: 24."),
    _traffic_option("days_per_month", float, "Days on which requests come. Absent: 30.4."),
    _traffic_option("growth_pct", float, "Growth of the load in a year. Absent: 0."),
    _traffic_option("growth_years", float, "Years ahead that are sized for. Absent: 1."),
    _traffic_option(
        "target_utilization", float,
        "Share of the load at the SLO that a replica gets at the peak: 0.7 interactive, 0.85 "
        "internal, 0.95 batch. Absent: 0.7.",
    ),
    _traffic_option("spares", int, "Replicas beyond those that the peak needs. Absent: 1 (N+1)."),
)  # fmt: skip
TRAFFIC_KEYS = tuple(_FLAGS)
price_options = (
    click.option(
        "--price", cls=Option, section=FLEET, multiple=True, metavar="[GPU=]USD",
        help="Price of a GPU and hour, of one device or of all (repeatable). Absent: the dated "
        "one of its profile.",
    ),
    click.option(
        "--prices", cls=Option, section=FLEET, metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A list of prices, as `specsim profiles import-prices` writes it; --price wins.",
    ),
    click.option(
        "--gpus-per-server", cls=Option, section=FLEET, type=click.IntRange(1, 10_000),
        help="A replica that fits into a server is not split. Absent: 8.",
    ),
)  # fmt: skip


def traffic_of(values: Mapping[str, float | None]) -> Traffic:
    """Make the traffic of its flags.

    Raises
    ------
    UsageError
        They are missing, contradict each other or are out of range.
    """
    try:
        return Traffic(**{key: value for key, value in values.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        text = first["msg"].removeprefix("Value error, ")
        if first["loc"]:
            key = str(first["loc"][0])
            text = f"{key} {first['input']:g}: {text[0].lower()}{text[1:]}"
        names = "|".join(_FLAGS)
        raise UsageError(re.sub(rf"\b({names})\b", lambda m: _FLAGS[m[1]], text)) from error


def prices_of(
    texts: Sequence[str], path: Path | None, search: Sequence[Path]
) -> dict[str, PricePaid]:
    """Return prices by accelerator: those of a list, and over them those of `--price`.

    Raises
    ------
    UsageError
        A price that is none, or two for one device.
    """
    from specsim.analysis.plan.plan import EVERY_DEVICE
    from specsim.catalog.hardware import load_hardware
    from specsim.schema.plan import PricePaid

    found: dict[str, PricePaid] = {}
    if path is not None:
        from specsim.catalog.prices import load_prices

        listed = load_prices(path, search=search)
        date = listed.as_of.isoformat()
        for name, price in listed.prices.items():
            found[name] = PricePaid(price.usd_per_gpu_hour, date, f"{path.name}: {listed.source}")
    given: dict[str, PricePaid] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        device = load_hardware(name, search=search).identity.id if name else EVERY_DEVICE
        if device in given or (equals and not name):
            raise UsageError(f"--price {text}: give each GPU one price, as h100_sxm=2.5")
        given[device] = PricePaid(_usd(number, text), None, GIVEN)
    if EVERY_DEVICE in given and path is not None:
        raise UsageError(
            f"--price {given[EVERY_DEVICE].usd_per_gpu_hour:g} of every device together with "
            "--prices: give one of them, or --price GPU=USD for single devices"
        )
    return {**found, **given}


def _usd(number: str, text: str) -> float:
    try:
        usd = float(number)
    except ValueError:
        usd = -1.0
    if not LEAST_USD <= usd <= MOST_USD:
        raise UsageError(f"--price {text}: expected USD per GPU and hour, as 2.5 or h100_sxm=2.5")
    return usd


def prices_unused(
    paid: Mapping[str, PricePaid], used: Collection[str], *, listed: Path | None
) -> Iterator[str]:
    """Tell which prices are of devices that nothing runs on.

    Parameters
    ----------
    used : collection of str
        Accelerators that are compared.
    listed : path, optional
        The list of prices that was given.
    """
    from specsim.analysis.plan.plan import EVERY_DEVICE

    has = ", ".join(sorted(used))
    for device, price in paid.items():
        if price.source == GIVEN and device not in {*used, EVERY_DEVICE}:
            usd = price.usd_per_gpu_hour
            yield f"--price {device}={usd:g} has no effect: candidates run on {has}"
    if listed is not None and not paid.keys() & set(used):
        yield f"--prices {listed} has no effect: it has no price of {has}"
