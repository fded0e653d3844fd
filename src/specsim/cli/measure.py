"""`specsim measure`: the two-server sweep, planned, run and shown."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from specsim.cli.measure_list import command as list_command
from specsim.cli.options import NO_EFFECT, Request, scenario_command
from specsim.cli.output import (
    emit,
    json_option,
    output_option,
    refuse_overwriting_read,
    write_file,
)
from specsim.cli.parameters import FiniteRange, NumberList
from specsim.cli.words import joined, notes, wrapped
from specsim.errors import InputError, UsageError
from specsim.export.tables import exact
from specsim.export.terminal import Screen
from specsim.schema.sweep import Servers, SweepPlan


@click.group("measure")
def command() -> None:
    """Measure speculation the honest way: two servers, identical but for the flag.

    Each is driven with the same requests at concurrency 1, 2, 4 ... to the peak, the two
    alternating, each run repeated; where the curve with speculation drops below the other is the
    crossover.
    """


_MOST_PROMPTS = 10_000.0
_folder = click.Path(file_okay=False, path_type=Path)
PLAN_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--out", type=_folder, required=True, metavar="FOLDER",
                 help="Where the sweep's files go."),
    click.option("--model-path", metavar="ID|FOLDER",
                 help="What `vllm serve` loads, where it is not the scenario's model."),
    click.option("--drafter-path", metavar="ID|FOLDER", help="The same for the drafter."),
    click.option("--serve-args", default="", metavar="'--flag ...'",
                 help="More flags of `vllm serve`, for both servers."),
    click.option("--dataset-args", default="", metavar="'--dataset-name ...'",
                 help="Flags of `vllm bench serve` that make the prompts, instead of random tokens "
                 "of the scenario's lengths."),
    click.option("--k", "draft_tokens", type=NumberList(),
                 help="Draft tokens of the servers with speculation, one each, instead of the "
                 "scenario's."),
    click.option("--only", type=click.Choice(["off", "on"]),
                 help="Only the server without, or those with speculation."),
    click.option("--repeats", type=click.IntRange(1, 100), default=2, show_default=True,
                 help="Runs of each server at each load."),
    click.option("--prompts-per-load", type=FiniteRange(0, min_open=True),
                 help="Requests of a run per concurrent request (8), or per request/s (60)."),
    click.option("--min-prompts", type=click.IntRange(1), default=16, show_default=True,
                 help="Least requests of a run."),
    click.option("--warmup", "warmup_prompts", type=click.IntRange(0), default=8,
                 show_default=True, help="Requests to each server before its first run."),
    click.option("--servers", type=click.Choice(get_args(Servers)), default="auto",
                 show_default=True,
                 help="All servers up at once, which is fairest, or one at a time."),
)  # fmt: skip


def _planned(request: Request, options: dict[str, Any]) -> SweepPlan:
    from specsim.measure.sweep.plan import Settings, make_plan

    per_load = options.get("prompts_per_load")
    if per_load is not None and not per_load <= _MOST_PROMPTS:
        raise UsageError(f"--prompts-per-load {per_load:g}: give at most {_MOST_PROMPTS:g}")
    _say_what_servers_lack(request, options)
    given = options.pop("draft_tokens") or []
    if any(not 1 <= k <= 64 or k != round(k) for k in given):
        raise UsageError("--k: draft tokens are whole numbers from 1 to 64")
    return make_plan(request.scenario, Settings(**options, draft_tokens=tuple(map(int, given))))


def _say_what_servers_lack(request: Request, options: dict[str, Any]) -> None:
    """Refuse to start other servers than a pasted command's without a word of the user's."""
    lost = [note.partition(": ")[2] for note in request.notes if note.startswith(NO_EFFECT)]
    if lost and not options["serve_args"]:
        raise UsageError(
            f"the servers would not get these flags of the command: {lost[0]}; give those that "
            "matter with --serve-args '--flag value ...', or --serve-args ' ' for none"
        )


def _outline(screen: Screen, plan: SweepPlan, said: tuple[str, ...]) -> list[str]:
    """Say what is started and how often it is driven."""
    from specsim.measure.sweep.plan import notes_of

    lines = [screen.paint("SERVERS", "strong")]
    for arm in plan.arms:
        lines += wrapped(screen, f"{arm.name}: {shlex.join(arm.command)}", rest="      ")
    loads = ", ".join(exact(load.value) for load in plan.loads)
    prompts = " · ".join(
        f"{len(plan.arms) * len(plan.loads) * plan.repeats} runs: {part}" if i == 0 else part
        for i, part in enumerate(
            (f"{plan.load_kind} {loads}", f"{plan.repeats} repeats, arms alternating",
             f"{plan.loads[0].num_prompts} to {plan.loads[-1].num_prompts} requests each")
        )
    )  # fmt: skip
    return joined([
        lines, wrapped(screen, prompts),
        notes(screen, "WARNINGS", [*said, *notes_of(plan)], role="neutral"),
    ])  # fmt: skip


def plan_command(request: Request, as_json: bool, out: Path, **options: Any) -> None:
    """Write the sweep as a script for a GPU machine.

    FOLDER gets `plan.yaml` and `run.sh`, which needs bash, curl and vllm and nothing else. Copy
    it to the machine, run it, and read the results with `specsim measure show`.

    \b
    specsim measure plan scenario.yaml --out sweep
    scp sweep/run.sh gpu-box: && ssh gpu-box bash run.sh results
    """  # noqa: D301 - click reads the escape as "keep these lines"
    from specsim.measure.sweep.plan import PLAN_FILE, check_same_sweep, dump_plan, load_plan
    from specsim.measure.sweep.script import SCRIPT_FILE, script

    plan = _planned(request, options)
    text = script(plan)
    check_same_sweep(plan, load_plan(out), out)
    _make(out)
    existing = out / SCRIPT_FILE
    if existing.exists() and "written by `specsim measure plan`" not in existing.read_text(
        encoding="utf-8", errors="replace"
    ):
        raise UsageError(f"{existing}: is there and not of this command; give another --out")
    write_file(out / PLAN_FILE, dump_plan(plan))
    write_file(out / SCRIPT_FILE, text)
    (out / SCRIPT_FILE).chmod(0o755)
    written = {"plan": str(out / PLAN_FILE), "script": str(out / SCRIPT_FILE)}
    emit(
        lambda: {"files": written, "sweep": plan.model_dump(mode="json")},
        lambda screen: joined([
            _outline(screen, plan, request.notes),
            wrapped(screen, f"Written: {', '.join(written.values())}. On the GPU machine: "
                    f"bash {SCRIPT_FILE} FOLDER", first=""),
        ]),
        as_json=as_json,
        output=None,
    )  # fmt: skip


def run_command(
    request: Request, as_json: bool, out: Path, vllm: str, start_timeout: float, **options: Any
) -> None:
    """Start the servers, drive them, and keep what they measure.

    Needs vLLM on this machine. A sweep that was broken off goes on where it was when it is
    started again with the same FOLDER; more loads, repeats and draft tokens (--k) can be added
    to a finished one.

    \b
    specsim measure run scenario.yaml --out sweep --repeats 3
    specsim measure show sweep
    """  # noqa: D301 - click reads the escape as "keep these lines"
    from specsim.cli.sweep_progress import progress_on
    from specsim.measure.sweep.placement import place
    from specsim.measure.sweep.plan import notes_of
    from specsim.measure.sweep.runner import run_sweep
    from specsim.measure.sweep.server import ProcessDied

    plan = _planned(request, options)
    placement = place(plan, search=request.search)
    _make(out)
    with progress_on(sys.stderr) as progress:
        for note in (*request.notes, *notes_of(plan)):
            progress.say(f"! {note}")
        try:
            run_sweep(plan, out, placement, progress, vllm=vllm, start_timeout_s=start_timeout)
        except ProcessDied as error:
            for line in error.tail:
                progress.say(f"  | {line}")
            raise
    emit(
        lambda: {"folder": str(out), "sweep": plan.model_dump(mode="json")},
        lambda screen: [f"All runs are in {out}; see them with: specsim measure show {out}"],
        as_json=as_json,
        output=None,
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror or error}") from error


command.add_command(scenario_command("plan", extra=(*PLAN_OPTIONS, json_option))(plan_command))
command.add_command(
    scenario_command(
        "run",
        extra=(
            *PLAN_OPTIONS,
            click.option("--vllm", default="vllm", show_default=True, metavar="PATH",
                         help="vLLM's executable."),
            click.option("--start-timeout", type=FiniteRange(1), default=1800.0,
                         show_default=True, help="Time a server may take until it answers [s]."),
            json_option,
        ),
    )(run_command)
)  # fmt: skip


@command.command("show")
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="FOLDER...",
    type=click.Path(exists=True, path_type=Path),
)
@click.option(
    "--charts",
    type=_folder,
    metavar="FOLDER",
    help="Write the curves as SVG files too (needs altair and vl-convert-python).",
)
@json_option
@output_option
def show_command(
    paths: tuple[Path, ...], charts: Path | None, as_json: bool, output: Path | None
) -> None:  # fmt: skip
    """Show both curves, latencies and the crossover.

    The crossover's interval comes from the scatter of repeats. FOLDER is what `measure run` or its
    script left, or any folder of benchmark files that say which arm they are.
    """
    from specsim.cli.sweep_report import report
    from specsim.measure.read import read_measurements
    from specsim.measure.sweep.plan import load_plan, notes_of
    from specsim.measure.sweep.summary import summarise
    from specsim.schema.results import as_json as plain

    found = read_measurements(paths)
    refuse_overwriting_read((output,), found.sources)
    plans = [plan for path in paths if path.is_dir() and (plan := load_plan(path))]
    summary = summarise(found.rows, notes=[note for plan in plans for note in notes_of(plan)])
    if charts is not None:
        from specsim.export.sweep_charts import write_charts

        _make(charts)
        for path in write_charts(summary, charts):
            click.echo(f"written: {path}", err=True)
    emit(
        lambda: plain(summary) | {"skipped": plain(found.skipped)},
        lambda screen: report(screen, summary, found.skipped),
        as_json=as_json,
        output=output,
    )


command.add_command(list_command)
