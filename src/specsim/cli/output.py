"""Where a command's answer goes: the terminal, a pipe or a file, as text or JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from specsim.errors import InputError, UsageError
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
    screen = Screen(unicode=True) if output or sys.stdout is None else Screen.of(sys.stdout)
    if as_json:
        body = json.dumps(data(), indent=2, ensure_ascii=not screen.unicode, allow_nan=False)
    else:
        body = "\n".join(screen.fit(line) for line in text(screen))
    if output is not None:
        write_file(output, body + "\n")
        return
    if sys.stdout is None:
        raise UsageError("stdout is closed; give -o FILE to write the answer to a file")
    try:
        sys.stdout.write(body + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"stdout: cannot be written: {error.strerror or error}") from error


def write_file(path: Path, text: str) -> None:
    """Write a file whole or not at all: to a temporary name beside it, then renamed.

    A link is followed, a file keeps its mode, and what is no plain file (a device, a pipe) is
    written straight to.
    """
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8") as stream:
                stream.write(text)
            return
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.chmod(temporary, mode)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def refuse_overwriting(output: Path | None, *inputs: Path | None) -> None:
    """Refuse an output that is one of the command's own files.

    Raises
    ------
    UsageError
        It would replace what it was made from.
    """
    for other in inputs:
        if output is not None and other is not None and _same_file(output, other):
            raise UsageError(f"{output}: is also read or written by this command; give another -o")


def refuse_overwriting_read(outputs: Iterable[Path | None], sources: Iterable[str]) -> None:
    """Refuse outputs that are among the files that were read, whatever leads there.

    Parameters
    ----------
    sources : iterable of str
        Names of what was read; a part of a file is its name with `#` behind it.
    """
    read = {os.path.realpath(name) for s in sources for name in (s, s.rpartition("#")[0]) if name}
    for output in outputs:
        if output is not None and os.path.realpath(output) in read:
            raise UsageError(f"{output}: was read by this command; give another file to write to")


def _same_file(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _umask() -> int:
    # There is no way to read the mask without setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
