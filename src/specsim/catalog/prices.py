"""Prices of accelerators: a price list, or a catalog of instances in SkyPilot's layout.

SkyPilot publishes one CSV per cloud (skypilot-org/skypilot-catalog), a row for each instance type,
region and zone; `Price` and `SpotPrice` are USD per hour of the whole instance.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specsim.catalog.csv_text import CsvTable, head_of, open_csv
from specsim.catalog.files import read_mapping
from specsim.catalog.hardware import LIST_COMMAND, hardware_ids, hardware_index
from specsim.catalog.hardware_authoring import dump_profile
from specsim.errors import InputError, not_found
from specsim.schema.base import parse
from specsim.schema.prices import PriceList, RentalPrice

EXPECTED = (
    "a price list (YAML, from `specsim profiles import-prices`) or a SkyPilot catalog (CSV with "
    "AcceleratorName, AcceleratorCount, Price)"
)
_LEAST_USD, _MOST_USD = 0.01, 100.0
"""Per GPU and hour; what lies outside is in another unit."""
_NO_PRICE = "Price is empty, 0 or nan"
_SKYPILOT = {"a100": "a100_sxm_40", "h100mega": "h100_sxm"}
"""Names that SkyPilot gives to something else than everybody: its plain A100 has 40 GB."""


@dataclass
class _Offers:
    """Prices of one accelerator. [USD per GPU and hour]."""

    on_demand: dict[tuple[str, ...], float] = field(default_factory=dict)
    spot: list[float] = field(default_factory=list)
    n_rows: int = 0
    n_without_price: int = 0
    n_without_host: int = 0


def load_prices(path: Path, *, search: Sequence[Path] = ()) -> PriceList:
    """Read a price list, or make one of a SkyPilot catalog.

    Parameters
    ----------
    search : sequence of Path
        The user's own files and folders of hardware profiles.

    Raises
    ------
    InputError
        Neither of them, or a wrong value.
    NotFoundError
        A price list with an accelerator that no profile describes.
    """
    lines = head_of(path, expected=EXPECTED).splitlines()
    # Who writes a list by hand may begin with a remark.
    first_line = next((s for s in map(str.strip, lines) if s and not s.startswith("#")), "")
    if "AcceleratorName" in first_line or (":" not in first_line and "," in first_line):
        return read_price_catalog(path, search=search)
    prices = parse(PriceList, read_mapping(path), what=str(path))
    _refuse_future(prices.as_of, f"{path}: as_of")
    if prices.prices.keys() <= set(hardware_ids(search)):
        return prices
    known = _ids_by_name(search)
    by_id: dict[str, RentalPrice] = {}
    for name, price in prices.prices.items():
        id = known.get(_joined(name))
        if id is None:
            raise not_found(f"accelerator in {path}", name, hardware_ids(search), LIST_COMMAND)
        if id in by_id:
            raise InputError(f"{path}: prices: {id} is given twice, once as {name!r}; keep one")
        by_id[id] = price
    return prices.model_copy(update={"prices": by_id})


def read_price_catalog(
    path: Path,
    *,
    as_of: dt.date | None = None,
    provider: str | None = None,
    search: Sequence[Path] = (),
) -> PriceList:
    """Make a price list of a SkyPilot catalog.

    Parameters
    ----------
    as_of : date, optional
        When these were the prices; absent: the day of the file.
    provider : str, optional
        Whose they are.
    search : sequence of Path
        The user's own files and folders of hardware profiles.

    Notes
    -----
    An offer is an instance type in a region, zones being alike; its price is divided by its
    devices. The typical price is the median of the offers, `low` and `high` the cheapest and the
    dearest.
    """
    if as_of is not None:
        _refuse_future(as_of, "--as-of")
    if provider is not None and not provider.strip():
        raise InputError("--provider '': names nobody; give whose prices they are, or leave it out")
    known = _ids_by_name(search)
    with open_csv(path, expected=EXPECTED) as table:
        offers, unknown = _read_offers(table, known)
    prices: dict[str, RentalPrice] = {}
    notes: list[str] = []
    for id, found in sorted(offers.items()):
        if not found.on_demand:
            only = "has spot prices only" if found.spot else f"has no price ({_NO_PRICE})"
            notes.append(f"{id}: {only}: left out")
            continue
        prices[id] = price = _price(path, id, found)
        if found.n_without_price:
            notes.append(
                f"{id}: {found.n_without_price} of {found.n_rows} rows have no price ({_NO_PRICE})"
            )
        spot = price.spot_usd_per_gpu_hour
        if spot is not None and spot > price.usd_per_gpu_hour:
            notes.append(
                f"{id}: the median of spot prices, {spot:g}, is above that on demand, "
                f"{price.usd_per_gpu_hour:g}: are the columns exchanged?"
            )
        if found.n_without_host:
            notes.append(
                f"{id}: {found.n_without_host} of {len(found.on_demand)} offers have no "
                "InstanceType: they may be without the price of the host"
            )
    if not prices and offers:
        why = "; ".join(note.removesuffix(": left out") for note in notes)
        raise InputError(f"{path}: has no price to take: {why}")
    if not prices:
        names = sorted(unknown)
        shown = f"it has {', '.join(names[:8])}" if names else "it has no accelerator at all"
        raise InputError(
            f"{path}: has no price of an accelerator that is known; {shown}; "
            f"list them with `{LIST_COMMAND}`"
        )
    return PriceList(
        as_of=as_of or dt.date.fromtimestamp(path.stat().st_mtime),
        source=f"SkyPilot catalog {path.name}",
        provider=provider,
        prices=prices,
        skipped=tuple(sorted(unknown)),
        notes=tuple(notes),
    )


def dump_prices(prices: PriceList) -> str:
    """Return the YAML text of a price list."""
    return dump_profile(prices.model_dump(exclude_none=True, exclude_defaults=True))


def _refuse_future(date: dt.date, what: str) -> None:
    today = dt.date.today()
    # Somewhere it is tomorrow already.
    if date > today + dt.timedelta(days=1):
        raise InputError(f"{what} {date}: lies ahead; give the day of the prices, up to {today}")


def _read_offers(table: CsvTable, known: dict[str, str]) -> tuple[dict[str, _Offers], set[str]]:
    """Return offers by profile id, and the names that no profile has."""
    needed = ("AcceleratorName", "AcceleratorCount", "Price")
    optional = [n for n in ("SpotPrice", "InstanceType", "Region") if n in table.header]
    offers: dict[str, _Offers] = {}
    unknown: set[str] = set()
    for line, name, count, price, *rest in table.rows([*needed, *optional]):
        name = name.strip()
        if not name:
            continue
        id = _SKYPILOT.get(_joined(name)) or known.get(_joined(name)) or known.get(_sorted(name))
        if id is None:
            unknown.add(name)
            continue
        more = dict(zip(optional, rest, strict=True))
        where = f"{table.path}: line {line}"
        n_gpus = _number(count, f"{where}: AcceleratorCount")
        usd = _number(price, f"{where}: Price")
        spot_usd = _number(more.get("SpotPrice", ""), f"{where}: SpotPrice")
        if n_gpus is None:
            raise InputError(f"{where}: AcceleratorCount: got {count!r}, expected a number above 0")
        found = offers.setdefault(id, _Offers())
        found.n_rows += 1
        found.n_without_price += usd is None
        if usd is not None:
            instance = more.get("InstanceType")
            key = (name, count, instance or "", more.get("Region", ""))
            found.n_without_host += instance == "" and key not in found.on_demand
            found.on_demand[key] = usd / n_gpus
        if spot_usd is not None:
            found.spot.append(spot_usd / n_gpus)
    return offers, unknown


def _price(path: Path, id: str, offers: _Offers) -> RentalPrice:
    usd = sorted(offers.on_demand.values())
    typical = statistics.median(usd)
    if not _LEAST_USD <= typical <= _MOST_USD:
        raise InputError(
            f"{path}: {id}: {typical:g} USD per GPU and hour is implausible; expected Price to be "
            "USD per hour of an instance with AcceleratorCount devices"
        )
    return RentalPrice(
        usd_per_gpu_hour=_cents(typical),
        low=_cents(usd[0]),
        high=_cents(usd[-1]),
        spot_usd_per_gpu_hour=_cents(statistics.median(offers.spot)) if offers.spot else None,
        n_offers=len(usd),
    )


def _cents(usd: float) -> float:
    """Round to hundredths of a cent, never to nothing."""
    return max(round(usd, 4), 1e-4)


def _number(text: str, what: str) -> float | None:
    """Return a number above 0; None where there is none (catalogs leave it empty, or write 0)."""
    try:
        value = float(text or 0)
    except ValueError as error:
        raise InputError(f"{what}: got {text[:40]!r}, expected a number") from error
    if math.isnan(value):
        return None
    if value < 0 or math.isinf(value):
        raise InputError(f"{what}: got {text[:40]!r}, expected a number of 0 or more")
    return value or None


def _ids_by_name(search: Sequence[Path]) -> dict[str, str]:
    """Return profile ids by every way to write an id, an alias or a full name."""
    known: dict[str, str] = {}
    for entry in hardware_index(search):
        for name in (entry.id, *entry.aliases, entry.name):
            known.setdefault(_joined(name), entry.id)
            known.setdefault(_sorted(name), entry.id)
    return known


def _joined(name: str) -> str:
    return "".join(_words(name))


def _sorted(name: str) -> str:
    """Return the words of a name in one order: A100-80GB-SXM4 is an A100 SXM 80."""
    return " ".join(sorted(_words(name)))


def _words(name: str) -> list[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return [re.sub(r"^(sxm)\d$|^(\d+)gb$", r"\1\2", word) for word in words]
