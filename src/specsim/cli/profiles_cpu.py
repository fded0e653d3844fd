"""`specsim profiles measure-cpu`: this machine as a hardware profile."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.catalog.hardware_authoring import dump_profile
from specsim.cli.output import emit, json_option, replace_file
from specsim.cli.words import wrapped
from specsim.errors import UsageError
from specsim.export.tables import column, figure, table
from specsim.export.terminal import Screen
from specsim.schema.base import parse
from specsim.schema.hardware import HardwareProfile
from specsim.units import GB, GIB, MICRO

if TYPE_CHECKING:
    from specsim.measure.cpu import Estimate, GemmFit, Measured

_NO_FIT = 0.25
"""Median error of the fit beyond which its constants mean nothing."""
_BUSY = 0.5
"""Load per core from which other work is worth a word."""


@click.command("measure-cpu")
@click.option("--id", help="Id of the profile; absent: the file's name, or made from the CPU's.")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the profile; absent: ID.yaml, unless there is one.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Threads to measure with; absent: those of numpy's BLAS in this environment.",
)
@click.option("--quick", is_flag=True, help="A second or two, few shapes: rough, to try it out.")
@json_option
def measure_cpu(
    id: str | None, output: Path | None, threads: int | None, quick: bool, as_json: bool
) -> None:  # fmt: skip
    """Measure this machine's CPU and write it down as a hardware profile.

    Times memory reads and fp32 matrix multiplications with numpy for some 20 seconds and fits the
    constants of a profile to them. What numpy cannot show, such as attention, is marked assumed.

    \b
    specsim profiles measure-cpu -o my_cpu.yaml
    specsim predict scenario.yaml --gpu my_cpu.yaml
    """  # noqa: D301 - click reads the escape as "keep these lines"
    from specsim.measure.cpu import fit_gemm, measure
    from specsim.measure.cpu_host import this_host
    from specsim.measure.cpu_profile import cpu_profile

    host = this_host(threads)
    id = id or (output.stem if output else _made_id(host.name, host.cores))
    path = output or Path(f"{id}.yaml")
    _refuse(id, path, asked=output is not None)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0

    measured = measure(host, quick=quick)
    fit = fit_gemm(
        measured.gemms,
        bandwidth_bytes_per_s=measured.bandwidth_bytes_per_s,
        peak_flop_per_s=measured.peak_flop_per_s,
    )
    data = cpu_profile(measured, fit, id=id)
    parse(HardwareProfile, data, what=str(path))
    replace_file(path, dump_profile(data), "yaml")
    emit(
        lambda: _as_json(measured, fit, data, path),
        lambda screen: [
            *_lines(screen, measured, fit, busy=load > _BUSY * host.cores, load=load),
            f"wrote {path}; use it with --gpu {path}",
        ],
        as_json=as_json,
        output=None,
    )


def _made_id(name: str, cores: int) -> str:
    plain = re.sub(r"\((r|tm)\)|@.*|\b(cpu|processor|\d+-core)\b", " ", name.lower())
    return "_".join(["cpu", *re.findall(r"[a-z0-9]+", plain), f"{cores}core"])


def _refuse(id: str, path: Path, *, asked: bool) -> None:
    """Refuse what would only fail, or overwrite, after the measurement."""
    if not re.fullmatch(r"[a-z0-9_.]+", id):
        raise UsageError(f"id {id!r}: use lower-case letters, digits, '_' and '.' (a file name)")
    if path.suffix not in (".yaml", ".yml") or path.stem != id:
        raise UsageError(f"{path}: the file of profile {id!r} has to be called {id}.yaml")
    if not asked and path.exists():
        raise UsageError(f"{path}: is there already; give -o {path} to replace it, or another --id")


def _as_json(measured: Measured, fit: GemmFit, data: dict[str, Any], path: Path) -> dict[str, Any]:
    return {
        "path": str(path),
        "measured": {
            **dataclasses.asdict(measured),
            "read_bytes_per_s": measured.read_bytes_per_s,
            "bandwidth_bytes_per_s": measured.bandwidth_bytes_per_s,
            "peak_flop_per_s": measured.peak_flop_per_s,
        },
        "fit": dataclasses.asdict(fit),
        "profile": data,
    }


def _lines(
    screen: Screen, measured: Measured, fit: GemmFit, *, busy: bool, load: float
) -> list[str]:
    host = measured.host
    blas = host.blas or "no real BLAS: numpy's own loops, so that the rates say little of the cores"
    lines = [
        screen.paint(f"{host.name} · {host.cores} cores · {host.threads} threads", "strong"),
        f"{figure(host.memory_bytes / GIB)} GiB · last cache {host.cache_bytes / 2**20:.0f} MiB · "
        f"numpy with {blas}",
    ]
    if busy:
        told = f"the machine was busy (load {load:.1f}): run it again when it is idle"
        lines.append(screen.paint(told, "bad"))
    lines += [
        "",
        f"memory read     {figure(measured.read_bytes_per_s / GB)} GB/s "
        f"(median of {measured.repeats} {measured.read.spread:.0%} slower), "
        f"best of any kernel {figure(measured.bandwidth_bytes_per_s / GB)} GB/s",
        f"scaled in place {figure(measured.elements_per_s * 8 / GB)} GB/s read and written",
        f"small kernel    {figure(measured.small.best_s / MICRO, 2)} us",
        "",
        *_table(screen, measured),
    ]
    legend = (
        f"fp32, (out x in) matrices that no cache holds; best of {measured.repeats}, and by how "
        "much the median is slower; one row is a kernel of its own and not part of the fit"
    )
    lines += [screen.paint(line, "faint") for line in wrapped(screen, legend)]
    fitted = (
        f"FITTED  launch {_range(fit.launch_us)} us, {_range(fit.bandwidth_frac)} of the bandwidth,"
        f" {_range(fit.compute_frac)} of the peak {figure(measured.peak_flop_per_s / GB)} GFLOP/s, "
        f"sharpness {_range(fit.sharpness)}; off by {fit.median_error:.0%} (median), "
        f"{fit.worst_error:.0%} (worst, {fit.worst_rows} rows)"
    )
    doubt = []
    if fit.median_error > _NO_FIT:
        told = (
            "no constants explain these times: other work was on the cores, or numpy has no real "
            "BLAS; do not use this profile, run it again when the machine is idle"
        )
        doubt = [screen.paint(line, "bad") for line in wrapped(screen, told)]
    assumed = "ASSUMED  attention, kernels per layer, what an engine adds to each, bf16 as fp32"
    return [*lines, "", *wrapped(screen, fitted), *doubt, *wrapped(screen, assumed)]


def _range(estimate: Estimate) -> str:
    value, low, high = (figure(part, 2) for part in estimate.rounded().values())
    return f"{value} ({low}–{high})"


def _table(screen: Screen, measured: Measured) -> list[str]:
    """Rates by rows, one column per shape."""
    by_cell = {(g.out_features, g.in_features, g.rows): g for g in measured.gemms}
    shapes = list(dict.fromkeys((g.out_features, g.in_features) for g in measured.gemms))
    rows = list(dict.fromkeys(g.rows for g in measured.gemms))
    key = column("rows", ("",), rows, str)
    columns = [
        column(
            f"{out} x {inner}", ("GFLOP/s", "slower"), [by_cell[out, inner, n] for n in rows],
            lambda timing: figure(timing.flop_per_s / GB),
            lambda timing: f"{timing.spread:.0%}",
        )
        for out, inner in shapes
    ]  # fmt: skip
    return table(screen, key, columns)
