"""`specsim profiles import-prices`: a price list from a cloud's catalog."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import click

from specsim.catalog.prices import dump_prices, read_price_catalog
from specsim.cli.output import emit, json_option, refuse_overwriting, replace_file
from specsim.cli.words import wrapped
from specsim.export.tables import MISSING, Column, column, table
from specsim.export.terminal import Screen
from specsim.schema.prices import PriceList, RentalPrice


@click.command("import-prices")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--as-of", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE",
    help="When these were the prices, as YYYY-MM-DD; absent: the date of the file.",
)  # fmt: skip
@click.option("--provider", metavar="NAME", help="Whose prices they are, e.g. aws.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path),
    help="File of the price list; absent: it is printed.",
)  # fmt: skip
@json_option
def import_prices(
    file: Path, as_of: dt.datetime | None, provider: str | None, output: Path | None, as_json: bool
) -> None:
    """Make a dated price list from a SkyPilot catalog (CSV, one per cloud).

    An instance's price is divided by its devices; the list has the median over instance types and
    regions, the cheapest and the dearest, and the median of spot prices. Devices that no profile
    describes are named and left out.

    \b
    specsim profiles import-prices aws.csv --provider aws --as-of 2026-11-01 -o prices.yaml
    """  # noqa: D301 - click reads the escape as "keep these lines"
    refuse_overwriting(output, file)
    prices = read_price_catalog(file, as_of=as_of.date() if as_of else None, provider=provider)
    if output is not None:
        replace_file(output, dump_prices(prices), "yaml")
    if output is None and not as_json:
        click.echo(dump_prices(prices), nl=False)
        return
    emit(
        lambda: {"path": str(output) if output else None, **prices.model_dump(mode="json")},
        lambda screen: [
            *_lines(screen, prices),
            f"wrote {output}; use it with --prices {output}",
        ],
        as_json=as_json,
        output=None,
    )


def _lines(screen: Screen, prices: PriceList) -> list[str]:
    rows = sorted(prices.prices.items())

    def usd(title: str, name: str) -> Column:
        def cell(row: tuple[str, RentalPrice]) -> str:
            value = getattr(row[1], name)
            return MISSING if value is None else f"{value:.2f}"

        return column(title, ("",), rows, cell)

    key = column("id", ("",), rows, lambda row: row[0], left=True)
    columns = [
        usd("$/h", "usd_per_gpu_hour"),
        usd("low", "low"),
        usd("high", "high"),
        usd("spot", "spot_usd_per_gpu_hour"),
        column("offers", ("",), rows, lambda row: f"{row[1].n_offers:,}"),
    ]
    told = [f"{prices.source}, {prices.as_of}, USD per GPU and hour", *prices.notes]
    if prices.skipped:
        told.append(f"skipped, no profile describes them: {', '.join(prices.skipped)}")
    faint = [screen.paint(line, "faint") for text in told for line in wrapped(screen, text)]
    return [*table(screen, key, columns), *faint]
