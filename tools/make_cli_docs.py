"""Write docs/cli.md from the commands, and docs/scenario.md from the schema of scenarios.

`--check` only says whether both are current.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import click
from pydantic import BaseModel

from specsim.cli import group
from specsim.cli.options import OPTIONS
from specsim.schema.scenario import Scenario

DOCS = Path(__file__).parents[1] / "docs"
HEAD = """\
# The command line

Made by `make docs` from the commands themselves; edit those, not this page.

A scenario comes as a YAML file, as a pasted `vllm serve` command (`--from-command`), or as flags.
Flags override the file and the command. Flags that vLLM has too are spelled as vLLM spells them.
All keys of a scenario are in [scenario.md](scenario.md).

Every command takes `--json` and prints one JSON object with the field names of the Python API.

An error is one line on stderr. Exit codes: 0 done, 1 a fault of specsim, 2 wrong or missing
input, 3 the deployment does not fit in memory, 4 the measurements allow no fit.
"""

SCENARIO_HEAD = """\
# The keys of a scenario

Made by `make docs` from `specsim.schema.scenario`; edit that, not this page.

A scenario is a YAML file: one deployment, one way of speculating, one workload.

```yaml
target: {model: llama-3.3-70b}
hardware: {accelerator: h100_sxm, tensor_parallel_size: 4}
speculation:
  method: eagle
  num_speculative_tokens: 4
  acceptance: {length: 2.4}
workload: {input_tokens: 512, output_tokens: 256}
load: {concurrency: [1, 8, 64]}
```

Only `target.model` and `hardware.accelerator` are required. `--set KEY=VALUE` sets any key below
on the command line, with lists as YAML writes them:
`--set engine.host_ms=0.9 --set 'load.concurrency=[1, 8]'`. An unknown key is an error that names
the nearest ones, and `specsim predict ... --save-scenario FILE` writes what flags came to.
"""

INTRODUCTIONS = {
    "speculation.acceptance": (
        "Exactly one of `length`, `rate`, `draft_acceptance_rate`, `per_position` and `profile`. "
        "What is given is taken as measured on your text, at your temperature. With k draft "
        "tokens and conditional rate a: length = 1 + a + ... + a^k, and the draft acceptance "
        "rate is (length - 1) / k."
    ),
    "speculation.tree": "For SGLang; absent: a chain.",
    "load": (
        "Exactly one of the two; absent: concurrency 1, 2, 4 ... 256. With `concurrency` so many "
        "requests are always in the system (closed loop), with `request_rate` they arrive as they "
        "like (open loop)."
    ),
}
"""What a table of keys does not say."""

MORE = {
    "name": "for your own use",
    "engine.name": "what serves the model",
    "engine.cuda_graphs": "false: every kernel is launched on its own",
    "engine.async_scheduling": "absent: as the engine version does",
    "speculation.method": "the way of drafting",
    "speculation.adaptive_verification": "verify fewer tokens when the batch is large, where the "
    "engine can",
}
"""Keys that neither the schema nor a flag describes well enough."""

FLAGS = {option.key: option.opts[0] for option in OPTIONS if option.key} | {
    "target.weight_dtype": "--dtype",
    "target.kv_dtype": "--kv-cache-dtype",
    "engine.name": "--engine",
    "engine.version": "--engine",
    "engine.cuda_graphs": "--enforce-eager",
    "speculation.method": "--spec-method",
}
HELP = {option.key: option.help.rstrip(".") for option in OPTIONS if option.key and option.help}
UNIT = re.compile(r" ?\[(.+?)\]")


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
    """Return the text of the page of commands."""
    return "\n".join([HEAD, *commands(group, None, "specsim")])


def tables(record: type[BaseModel], path: str) -> Iterator[str]:
    """Yield the table of a record's own keys, then those of the records inside it."""
    rows, inner = [], []
    for name, field in record.model_fields.items():
        key = f"{path}.{name}" if path else name
        below = _record_in(field.annotation)
        if below is not None:
            inner.append((below, key))
            continue
        told = MORE.get(key) or field.description or HELP[key]
        unit = UNIT.search(told)
        text = UNIT.sub("", told) or HELP[key]
        default = "required" if field.is_required() else _written(field.default)
        cells = [f"`{name}`", _words(field.annotation), default]
        cells.append(unit[1] if unit else "ms" if name.endswith("_ms") else "")
        cells.append(f"`{FLAGS[key]}`" if key in FLAGS else "")
        cells.append(text[0].lower() + text[1:])
        rows.append(f"| {' | '.join(cells)} |")
    if rows:
        head = f"| key | type | default | unit | flag | what it is |\n{'| --- ' * 6}|\n"
        told = f"{INTRODUCTIONS[path]}\n\n" if path in INTRODUCTIONS else ""
        title = f"## {path}\n\n" if path else ""
        yield title + told + head + "\n".join(rows) + "\n"
    for below, key in inner:
        yield from tables(below, key)


def scenario_page() -> str:
    """Return the text of the page of scenario keys."""
    return "\n".join([SCENARIO_HEAD, *tables(Scenario, "")])


def _record_in(annotation: Any) -> type[BaseModel] | None:
    for part in (annotation, *typing.get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _words(annotation: Any) -> str:
    """Name a type as people say it; what may be absent has no default and says so there."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(part) for part in parts if part is not type(None))
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin is tuple:
        return f"list of {_words(parts[0])}s"
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}[annotation]


def _written(default: Any) -> str:
    if default is None or default == "":
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default).lower()


PAGES = {"cli.md": page, "scenario.md": scenario_page}


def main() -> None:
    """Write the pages, or exit with 1 if `--check` is given and one of them is stale."""
    for name, made in PAGES.items():
        path, text = DOCS / name, made()
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{name} is stale: run `make docs`")


if __name__ == "__main__":
    main()
