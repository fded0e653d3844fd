"""Where a command's answer goes: the terminal, a pipe or a file, as text or JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from specsim.errors import InputError
from specsim.export.terminal import Screen

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
output_option = click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of stdout.",
)  # fmt: skip


def emit(
    data: Callable[[], Any], text: Callable[[Screen], list[str]], *, as_json: bool,
    output: Path | None,
) -> None:  # fmt: skip
    """Print or write an answer, made as JSON types or as lines for a screen."""
    screen = Screen(unicode=True) if output is not None else Screen.of(sys.stdout)
    if as_json:
        body = json.dumps(data(), indent=2, ensure_ascii=not screen.unicode, allow_nan=False)
    else:
        body = "\n".join(screen.fit(line) for line in text(screen))
    if output is not None:
        write_file(output, body + "\n")
        return
    sys.stdout.write(body + "\n")
    sys.stdout.flush()


def write_file(path: Path, text: str) -> None:
    """Write a file whole or not at all: to a temporary name beside it, then renamed."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def _umask() -> int:
    # There is no way to read the mask without setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
