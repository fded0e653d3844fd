"""The `specsim` command: one module per sub-command, loaded when it is called.

Exit codes: 0 done; 1 a fault of specsim itself; 2 wrong or missing input; 3 does not fit in
memory, or no candidate of a plan meets the SLO; 4 no fit possible; 130 interrupted. An error is
one line on stderr.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

import click

from specsim import __version__
from specsim.errors import SpecsimError, nearest

COMMANDS: dict[str, str] = {
    "predict": "Say whether, up to which load and why speculation pays.",
    "crossover": "Show only where speculation stops paying.",
    "kv": "Show what the drafter takes from the KV cache.",
    "simulate": "Serve single requests: percentiles, SLOs, both arms.",
    "plan": "Size the fleet that meets an SLO: replicas, GPUs, dollars.",
    "sweep": "Predict a whole grid of scenarios into a table.",
    "export": "Write a workbook with live formulas, and its tables.",
    "advise": "Answer the three questions to ask before switching it on.",
    "measure": "Run the two-server sweep, and show what it found.",
    "calibrate": "Fit constants to measured runs, and say what they tell.",
    "validate": "Compare predictions with published measurements.",
    "app": "Open the web app on this machine.",
    "profiles": "List, show, check and make hardware, models, drafters.",
}
"""Sub-commands, each in the module of its name, and what `specsim --help` says about them."""

_INTERRUPTED = 130


class _LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"specsim.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = nearest(args[0], COMMANDS) or list(COMMANDS)
            raise click.UsageError(f"no command {args[0]!r}; nearest: {', '.join(near)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception:
            if ctx.params["debug"]:
                traceback.print_exc()
            raise


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: specsim predict --from-command 'vllm serve ...' --gpu h100_sxm",
)
@click.version_option(__version__, prog_name="specsim")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def group(debug: bool) -> None:
    """Say when speculative decoding pays.

    specsim compares one deployment with speculation off and on, over load: speed, KV cache and
    price, with an interval on each gain.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(_run(args))


def _run(args: Sequence[str] | None) -> int:
    try:
        code = group.main(args, prog_name="specsim", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return error.exit_code
    except click.ClickException as error:
        _say(f"{_one_line(error.format_message())}{_help_hint(error)}")
        return error.exit_code
    except SpecsimError as error:
        _say(_one_line(str(error)))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except BrokenPipeError:
        return 1  # the reader has gone, which is its right
    except Exception as error:
        _say(
            f"internal error: {type(error).__name__}: {_one_line(str(error))}; "
            "run again with `specsim --debug ...` and report what it prints"
        )
        return 1
    return code if isinstance(code, int) else 0


def _say(message: str) -> None:
    click.echo(f"specsim: {message}", err=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _help_hint(error: click.ClickException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"; see `{error.ctx.command_path} --help`"
    return ""
