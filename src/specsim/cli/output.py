"""Where a command's answer goes: the terminal, a pipe or a file, as text or JSON.

A file that is there is replaced, whole or not at all, where it is what the command writes: its name
ends as that format's do, and it has a title of the report, or most of its keys or columns are among
those of the new one. Anything else may be what nobody meant to lose.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import click
import yaml

from specsim.errors import InputError, UsageError
from specsim.export.terminal import Screen
from specsim.export.whole_file import written_whole

Format = Literal["text", "json", "yaml", "csv"]
_SUFFIXES: dict[Format, tuple[str, ...]] = {
    "text": (".txt", ".md", ".log", ""), "json": (".json", ""),
    "yaml": (".yaml", ".yml"), "csv": (".csv",),
}  # fmt: skip
_WORDS: dict[Format, str] = {
    "text": "a report", "json": "JSON", "yaml": "YAML", "csv": "a table",
}  # fmt: skip
_REMEDY = "give another name, or remove it first"
_TITLE = re.compile(r"^[A-Z0-9]*[A-Z]{2,}(?: [A-Z]+)*(?=  |$)", re.MULTILINE)
"""What begins a section of a report: VERDICT, UNDER LOAD."""
_YAML: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Leaves values as they are written: only keys are looked at."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
output_option = click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of stdout. One that is there is replaced if it is an earlier "
    "answer: .json with --json, else .txt.",
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
        replace_file(output, body + "\n", "json" if as_json else "text")
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
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def replace_file(path: Path, text: str, format: Format) -> None:
    """Write a file; one that is there only where it holds the same kind of thing.

    Raises
    ------
    UsageError
        It holds something else.
    """
    refuse_replacing(path, format)
    if _is_filled(path):
        try:
            old, new = _names_in(path.read_bytes(), format), _names_in(text.encode(), format)
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
        # A brief report has few of the titles.
        least = 1 if format == "text" else len(old) // 2 + 1
        if new and len(old & new) < least:
            raise UsageError(f"{path}: is there and holds something else; {_REMEDY}")
    write_file(path, text)


def refuse_replacing(path: Path | None, format: Format) -> None:
    """Refuse to replace a file whose name is not of the format, before there is an answer.

    Raises
    ------
    UsageError
        It is there and has another suffix.
    """
    suffixes = _SUFFIXES[format]
    named = " or ".join(filter(None, suffixes))
    if path is not None and _is_filled(path) and path.suffix.lower() not in suffixes:
        raise UsageError(
            f"{path}: is there, and only {named} is replaced by {_WORDS[format]}; {_REMEDY}"
        )


def _is_filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _names_in(raw: bytes, format: Format) -> set[str]:
    """Return the keys, columns or titles of a file; none where it is not of its format."""
    try:
        text = raw.decode("utf-8-sig")
        if format == "text":
            # A table on its own has no titles, but heads.
            return set(_TITLE.findall(text) or text.strip().partition("\n")[0].split())
        if format == "csv":
            return set(text.partition("\n")[0].rstrip("\r").split(","))
        data = json.loads(text) if format == "json" else yaml.load(text, Loader=_YAML)
    except (ValueError, RecursionError, yaml.YAMLError):
        return set()
    first = data[0] if isinstance(data, list) and data else data
    return set(map(str, first)) if isinstance(first, dict) else set()


def refuse_overwriting(output: Path | None, *inputs: Path | None) -> None:
    """Refuse an output that is one of the command's own files.

    Raises
    ------
    UsageError
        It would replace what it was made from.
    """
    for other in inputs:
        if output is not None and other is not None and _same_file(output, other):
            raise UsageError(
                f"{output}: is also read or written by this command; give another name"
            )


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
