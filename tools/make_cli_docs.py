"""Write docs/cli.md from the commands themselves. `--check` only says whether it is current."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from specsim.cli import group

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = """\
# The command line

Made by `make docs` from the commands themselves; edit those, not this page.

A scenario comes as a YAML file, as a pasted `vllm serve` command (`--from-command`), or as flags.
Flags override the file and the command. Flags that vLLM has too are spelled as vLLM spells them.

Every command takes `--json` and prints one JSON object with the field names of the Python API.

An error is one line on stderr. Exit codes: 0 done, 1 a fault of specsim, 2 wrong or missing
input, 3 the deployment does not fit in memory, 4 a fit is not possible.
"""


def commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    """Yield the section of a command and those of its sub-commands."""
    context = click.Context(command, parent=parent, info_name=name, **command.context_settings)
    context.terminal_width = 90
    level = "#" * (len(context.command_path.split()) + 1)
    yield f"{level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None:
                yield from commands(found, context, child)


def page() -> str:
    """Return the text of the page."""
    return "\n".join([HEAD, *commands(group, None, "specsim")])


def main() -> None:
    """Write the page, or exit with 1 if `--check` is given and it is stale."""
    text = page()
    if "--check" in sys.argv[1:]:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        sys.exit(0 if current else f"{PAGE.name} is stale: run `make docs`")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
