"""`specsim profiles`: what specsim knows, and how to add to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from specsim.catalog.acceptance import load_profile, profile_ids
from specsim.catalog.files import read_mapping
from specsim.catalog.hardware_authoring import check_profile, dump_profile, new_profile
from specsim.catalog.models import load_drafter, load_model
from specsim.catalog.scenario import load_scenario
from specsim.cli.output import emit, json_option, output_option, replace_file
from specsim.cli.parameters import refuse_scenarios
from specsim.cli.profiles_cpu import measure_cpu
from specsim.cli.profiles_prices import import_prices
from specsim.cli.records import Kind, find, kind_of, listing, pretty
from specsim.cli.words import dtypes, wrapped
from specsim.errors import InputError, SpecsimError, UsageError
from specsim.export.tables import MISSING, Column, clipped, column, figure, grouped, table
from specsim.export.terminal import Screen
from specsim.schema.results import as_json as plain

_TITLES = {
    "memory_gb": "GB",
    "memory_bandwidth_gb_per_s": "GB/s",
    "usd_per_gpu_hour": "$/h",
    "params_b": "params 1e9",
    "active_params_b": "active",
    "weight_dtype": "dtype",
}
_ONLY_JSON = ("name", "expert_dtype")
"""What a list in the terminal has no room for, or shows in another column."""
_LEFT = ("id", "vendor", "architecture", "method", "target", "versions", "weight_dtype")
_ALIAS_LEAST, _ALIAS_MOST = 16, 30
_DATASET_LEAST = 12

catalog_option = click.option(
    "--catalog", multiple=True, callback=refuse_scenarios, metavar="DIR|FILE",
    type=click.Path(path_type=Path),
    help="Your own models, drafters and devices (repeatable).",
)  # fmt: skip


@click.group("profiles")
def command() -> None:
    """List, show, check and make catalog entries: hardware, models, drafters, acceptance.

    Your own files are found with --catalog, in $SPECSIM_CATALOG and in specsim's folder of your
    configuration; they win over shipped entries of the same name.
    """


command.add_command(measure_cpu)
command.add_command(import_prices)


@command.command("list")
@click.option("--hardware", "kind", flag_value="hardware", default=True, help="Accelerators.")
@click.option("--models", "kind", flag_value="model", help="Models.")
@click.option("--drafters", "kind", flag_value="drafter", help="Drafters.")
@click.option("--acceptance", "kind", flag_value="acceptance", help="Measured acceptance.")
@click.option("--engines", "kind", flag_value="engine", help="Engines and their versions.")
@click.argument("word", required=False, default="")
@catalog_option
@json_option
@output_option
def list_(
    kind: Kind, word: str, catalog: tuple[Path, ...], as_json: bool, output: Path | None
) -> None:
    """List the entries of one kind (accelerators unless told otherwise).

    WORD keeps the entries that have it in a name: their own, an alias, the target's, the
    drafter's.

    \b
    specsim profiles list --models llama-3.3
    specsim profiles list --acceptance qwen3-8b
    """  # noqa: D301 - click reads the escape as "keep these lines"
    rows = listing(kind, word=word, search=catalog)
    emit(
        lambda: plain(rows),
        lambda screen: (
            _measured(screen, rows) if kind == "acceptance" else _listed(screen, rows, word)
        ),
        as_json=as_json,
        output=output,
    )


@command.command("show")
@click.argument("name")
@catalog_option
@json_option
@output_option
def show(name: str, catalog: tuple[Path, ...], as_json: bool, output: Path | None) -> None:
    """Show one entry of any kind with the basis and source of its figures.

    NAME is an id, an alias, a Hugging Face id, a path, or an engine such as vllm@0.33. What a
    device borrows from another is filled in and marked as assumed.
    """
    found = find(name, search=catalog)
    emit(
        lambda: {"kind": found.kind, "profile": found.record.model_dump(mode="json")},
        lambda screen: [screen.paint(f"{found.kind} {name}", "strong"), *pretty(screen, found)],
        as_json=as_json,
        output=output,
    )


@command.command("check")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@catalog_option
@json_option
@output_option
@click.pass_context
def check(
    ctx: click.Context, paths: tuple[Path, ...], catalog: tuple[Path, ...], as_json: bool,
    output: Path | None,
) -> None:  # fmt: skip
    """Check files before use: accelerators, models, drafters, acceptance, scenarios.

    PATHS are files or folders. Exit code 2 if anything is wrong; warnings alone are fine.
    """
    results = [_checked(path, catalog) for path in _files(paths)]
    emit(
        lambda: results,
        lambda screen: [line for result in results for line in _check_lines(screen, result)],
        as_json=as_json,
        output=output,
    )
    if any(result["problems"] for result in results):
        ctx.exit(2)


@command.command("new")
@click.argument("id")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Make a model (or drafter) from this config.json.",
)
@click.option("--memory-gb", type=float, help="Memory as marketed [GB].")
@click.option("--memory-usable-gib", type=float, help="Memory as the driver reports it [GiB].")
@click.option("--bandwidth-gb-per-s", type=float, help="Memory bandwidth [GB/s].")
@click.option("--bf16-tflops", type=float, help="Dense bf16 peak, not with sparsity [TFLOP/s].")
@click.option("--fp8-tflops", type=float, help="Dense fp8 peak [TFLOP/s].")
@click.option("--int8-tflops", type=float, help="Dense int8 peak [TOP/s].")
@click.option("--fp4-tflops", type=float, help="Dense fp4 peak [TFLOP/s].")
@click.option("--link", help="Link between devices: NVLink, PCIe ...")
@click.option("--link-gb-per-s", type=float, help="Link, per direction [GB/s].")
@click.option("--price", type=float, help="Dollars per GPU and hour.")
@click.option("--price-as-of", metavar="DATE", help="When that was the price, as YYYY-MM-DD.")
@click.option("--name", help="Full name; absent: the id.")
@click.option("--vendor", default="unknown", help="Vendor.")
@click.option(
    "--architecture", default="unknown", help="Family, e.g. hopper: kernels are borrowed within it."
)
@click.option("--borrow", help="Device whose kernel constants to take; absent: the nearest.")
@click.option("--source", help="Where the figures come from.")
@catalog_option
@json_option
@output_option
def new(
    id: str, config: Path | None, catalog: tuple[Path, ...], as_json: bool, output: Path | None,
    **figures: Any,
) -> None:  # fmt: skip
    """Make an entry: a device from a few datasheet figures, or a model from a config.json.

    \b
    specsim profiles new my_gpu --memory-gb 96 --bandwidth-gb-per-s 1800 --bf16-tflops 250 \\
        --architecture blackwell -o my_gpu.yaml
    specsim profiles new my-model --config config.json -o my-model.yaml
    """  # noqa: D301 - click reads the escape as "keep these lines"
    given = {key: value for key, value in figures.items() if value is not None}
    if config is not None:
        own = sorted(given.keys() - {"vendor", "architecture"})
        if own:
            raise UsageError(
                f"--config together with --{own[0].replace('_', '-')}: a config.json describes a "
                "model, the other figures a device; make them one at a time"
            )
        data = _new_model(id, config)
    else:
        data = _new_device(id, given, catalog)
    if as_json:
        emit(lambda: data, lambda screen: [], as_json=True, output=output)
    elif output is not None:
        replace_file(output, dump_profile(data), "yaml")
        click.echo(f"wrote {output}; use it with --catalog {output}")
    else:
        click.echo(dump_profile(data), nl=False)


def _new_device(id: str, given: dict[str, Any], search: tuple[Path, ...]) -> dict[str, Any]:
    needed = ("memory_gb", "bandwidth_gb_per_s", "bf16_tflops")
    missing = [f"--{name.replace('_', '-')}" for name in needed if name not in given]
    if missing:
        raise UsageError(
            f"a new device needs {', '.join(missing)}; a new model needs --config config.json"
        )
    return new_profile(id=id, search=search, **{"name": id, **given})


def _new_model(id: str, config: Path) -> dict[str, Any]:
    spec = load_drafter(config)
    return {**spec.model_dump(mode="json", exclude_none=True), "id": id}


def _listed(screen: Screen, rows: list[dict[str, Any]], word: str) -> list[str]:
    names = [name for name in rows[0] if name not in _ONLY_JSON]
    if all(row["origin"] == "shipped" for row in rows):
        names.remove("origin")

    def cell(row: dict[str, Any], name: str) -> str:
        if name == "weight_dtype":
            return dtypes(row["weight_dtype"], row["expert_dtype"])
        return _entry(row[name])

    def shown(name: str) -> Column:
        title = _TITLES.get(name, name)
        return column(title, ("",), rows, lambda row: cell(row, name), left=name in _LEFT)

    key, *columns = [shown(name) for name in names if name != "aliases"]
    if "aliases" in names:
        room = _room(screen, key, columns)
        width = min(room, _ALIAS_MOST) if room >= _ALIAS_LEAST else _ALIAS_MOST
        columns.append(
            column(
                "also known as", ("",), rows, lambda row: _also(row, word, width),
                left=True,
            )
        )  # fmt: skip
    return table(screen, key, columns)


def _room(screen: Screen, key: Column, columns: list[Column]) -> int:
    """Return the width that is left for one more column."""
    return screen.width - 5 - key.width - sum(c.width + 3 for c in columns)


def _also(row: dict[str, Any], word: str, width: int) -> str:
    """Name the shortest alias, of those that have the word if any do, and how many there are.

    Owners are left out: a name is found without.
    """
    names = {alias.lower(): alias for alias in (a.rpartition("/")[2] for a in row["aliases"])}
    names.pop(row["id"].lower(), None)
    if not names:
        return MISSING
    tail = word.lower().rpartition("/")[2]
    having = [alias for key, alias in names.items() if tail in key]
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    return clipped(min(having or names.values(), key=len), width - len(more)) + more


def _measured(screen: Screen, rows: list[dict[str, Any]]) -> list[str]:
    """List acceptance profiles under the target and the drafter that they were measured with."""
    rows = sorted(rows, key=lambda r: (r["target"] or "", r["method"], r["drafter"] or ""))
    figures = [
        column("T", ("",), rows, lambda r: _each(r["temperatures"], "{:g}")),
        column("k", ("",), rows, lambda r: _each(r["num_speculative_tokens"][:1], "{}")),
        column("length", ("",), rows, _accepted),
    ]
    key = column("id", ("",), rows, lambda r: f"  {r['id']}", left=True)
    room = max(_room(screen, key, figures), _DATASET_LEAST)
    dataset = column("data set", ("",), rows, lambda r: clipped(r["dataset"], room), left=True)
    title, *entries = table(screen, key, [dataset, *figures])
    groups = [
        f"{row['method']} on {row['target'] or 'any target'}"
        + (f", drafter {row['drafter']}" if row["drafter"] else "")
        for row in rows
    ]
    legend = (
        "T: temperature; length: tokens per step with k drafted; f: accepted / drafted, where the "
        "source says only that"
    )
    told = [screen.paint(line, "faint") for line in wrapped(screen, legend)]
    return [title, *grouped(screen, entries, groups), *told]


def _accepted(row: dict[str, Any]) -> str:
    if any(row["acceptance_length"]):
        return _each(row["acceptance_length"], "{:.2f}")
    return f"f {_each(row['draft_acceptance_rate'], '{:.2f}')}"


def _each(values: list[Any], form: str) -> str:
    known = [form.format(value) for value in values if value is not None]
    return ", ".join(known) or MISSING


def _entry(value: Any) -> str:
    if value is None or value == "":
        return MISSING
    if isinstance(value, list):
        return ", ".join(_entry(entry) for entry in value)
    if isinstance(value, float) and value >= 1000:
        return f"{value:,.0f}"
    return figure(value) if isinstance(value, float) else str(value)


def _files(paths: tuple[Path, ...]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        files += sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{paths[0]}: holds no .yaml files; give files or folders with some")
    return files


def _checked(path: Path, search: tuple[Path, ...]) -> dict[str, Any]:
    """Load a file as what it is; say what that is and what is wrong with it."""
    kind = "?"
    try:
        data = read_mapping(path)
        kind = "scenario" if isinstance(data.get("target"), dict) else kind_of(data)
        if kind == "hardware":
            found = check_profile(path, search=search)
        else:
            _LOADERS[kind](path)
            found = []
    except SpecsimError as error:
        found = [str(error)]
    return {
        "path": str(path),
        "kind": kind,
        "problems": [entry for entry in found if not entry.startswith("warning")],
        "warnings": [entry for entry in found if entry.startswith("warning")],
    }


def _acceptance(path: Path) -> None:
    for name in profile_ids(search=[path]):
        load_profile(name, search=[path])


_LOADERS: dict[str, Callable[[Path], Any]] = {
    "model": load_model,
    "drafter": load_drafter,
    "acceptance": _acceptance,
    "scenario": load_scenario,
}


def _check_lines(screen: Screen, result: dict[str, Any]) -> list[str]:
    word = screen.paint("wrong", "bad") if result["problems"] else screen.paint("ok", "good")
    lines = [f"{word}  {result['path']} ({result['kind']})"]
    return lines + [f"      {entry}" for entry in (*result["problems"], *result["warnings"])]
