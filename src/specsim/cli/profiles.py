"""`specsim profiles`: what specsim knows, and how to add to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from specsim.catalog.acceptance import load_profile, profile_ids
from specsim.catalog.files import read_mapping
from specsim.catalog.hardware import check_profile, dump_profile, new_profile
from specsim.catalog.models import load_drafter, load_model
from specsim.catalog.scenario import load_scenario
from specsim.cli.output import emit, json_option, output_option, write_file
from specsim.cli.records import Kind, find, kind_of, listing, pretty
from specsim.errors import InputError, SpecsimError, UsageError
from specsim.export.tables import MISSING, Column, column, figure, table
from specsim.export.terminal import Screen
from specsim.schema.results import as_json as plain

_TITLES = {
    "memory_gb": "GB",
    "memory_bandwidth_gb_per_s": "GB/s",
    "usd_per_gpu_hour": "$/h",
    "params_b": "params 1e9",
    "active_params_b": "active 1e9",
    "weight_dtype": "dtype",
}
_ONLY_JSON: dict[str, tuple[str, ...]] = {
    "hardware": ("name",),
    "acceptance": ("drafter", "target"),
}
"""What a list in the terminal has no room for."""
_LEFT = ("id", "vendor", "architecture", "method", "dataset", "drafter", "target", "versions")

catalog_option = click.option(
    "--catalog", multiple=True, type=click.Path(path_type=Path), metavar="DIR|FILE",
    help="Your own models, drafters and devices (repeatable).",
)  # fmt: skip


@click.group("profiles")
def command() -> None:
    """List, show, check and make catalog entries: hardware, models, drafters, acceptance.

    Your own files are found with --catalog, in $SPECSIM_CATALOG and in specsim's folder of your
    configuration; they win over shipped entries of the same name.
    """


@command.command("list")
@click.option("--hardware", "kind", flag_value="hardware", default=True, help="Accelerators.")
@click.option("--models", "kind", flag_value="model", help="Models.")
@click.option("--drafters", "kind", flag_value="drafter", help="Drafters.")
@click.option("--acceptance", "kind", flag_value="acceptance", help="Measured acceptance.")
@click.option("--engines", "kind", flag_value="engine", help="Engines and their versions.")
@catalog_option
@json_option
@output_option
def list_(kind: Kind, catalog: tuple[Path, ...], as_json: bool, output: Path | None) -> None:
    """List the entries of one kind (accelerators unless told otherwise)."""
    rows = listing(kind, search=catalog)
    emit(
        lambda: plain(rows),
        lambda screen: _listed(screen, kind, rows),
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
    data = _new_model(id, config) if config else _new_device(id, given, catalog)
    if as_json:
        emit(lambda: data, lambda screen: [], as_json=True, output=output)
    elif output is not None:
        write_file(output, dump_profile(data))
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


def _listed(screen: Screen, kind: Kind, rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["none"]
    names = [name for name in rows[0] if name not in _ONLY_JSON.get(kind, ())]

    def shown(name: str) -> Column:
        return column(
            _TITLES.get(name, name), ("",), rows, lambda row: _entry(row[name]),
            left=name in _LEFT,
        )  # fmt: skip

    return table(screen, shown(names[0]), [shown(name) for name in names[1:]])


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
