"""A file to be recognised and read, however large: its head, its text, its JSON.

Formats are told apart by content. Large JSON is streamed: arrays are cut at `MAX_ITEMS` (and arrays
of arrays at `MAX_NESTED_ITEMS` in all), so that a file of per-request arrays costs no more memory
than a short one; what is lost is only detail that the file's own summary already covers. `is_cut`
tells an array that lost something, which no total may be taken of.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from specsim.errors import InputError, MissingExtraError

HEAD_BYTES = 64 * 1024
STREAM_ABOVE_BYTES = 8 * 2**20
"""JSON above this is streamed instead of loaded."""
MAX_ITEMS = 4096
"""Items of an array that are kept of a streamed file."""
MAX_NESTED_ITEMS = 2**20
"""Values that are kept of arrays within arrays, over the whole file: gaps of every request."""
ALWAYS_KEPT = 64
"""Items of an array that are kept even then: short arrays are no detail."""
MAX_DEPTH = 200
MAX_TEXT_BYTES = 512 * 2**20


class Foreign(Exception):
    """A file that a reader recognised and cannot use; the message is the reason."""


class _Array(list[Any]):
    """An array of a streamed file."""

    cut = False


def is_cut(value: Any) -> bool:
    """Return whether it is an array that lost items, itself or further down, when streamed."""
    return isinstance(value, _Array) and value.cut


class Source:
    """One file.

    Attributes
    ----------
    path : Path
    name : str
        What rows are called after: the path as the caller gave it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path).encode("utf-8", "replace").decode("utf-8")

    @functools.cached_property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    @functools.cached_property
    def head(self) -> str:
        """The first 64 KiB as text; '' if it is no text."""
        with self.path.open("rb") as stream:
            raw = stream.read(HEAD_BYTES)
        if b"\0" in raw:
            return ""
        # A multi-byte character may be cut at the end.
        return raw.decode("utf-8-sig", errors="ignore")

    def lines(self) -> Iterator[str]:
        """Yield lines without loading the file."""
        with self.path.open(encoding="utf-8-sig", errors="replace") as stream:
            for line in stream:
                yield line.rstrip("\r\n")

    def text(self) -> str:
        """Return the whole text.

        Raises
        ------
        Foreign
            It is too large to be what its head looks like.
        """
        if self.size > MAX_TEXT_BYTES:
            raise Foreign(f"{self.size} bytes of text is too much (at most {MAX_TEXT_BYTES})")
        return self.path.read_text(encoding="utf-8-sig", errors="replace")

    @functools.cached_property
    def looks_like_json(self) -> bool:
        """Whether the first character opens a JSON object or array."""
        return self.head.lstrip()[:1] in ("{", "[")

    @functools.cached_property
    def documents(self) -> list[Any]:
        """JSON documents of the file: one, or one per line (concatenated objects too).

        Raises
        ------
        InputError
            Broken or truncated.
        MissingExtraError
            It must be streamed and ijson is not installed.
        """
        if self.size > STREAM_ABOVE_BYTES:
            return list(_streamed(self.path))
        text = self.text()
        decoder = json.JSONDecoder()
        found: list[Any] = []
        at = 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                reason = " ".join(str(error).split())[:120]
                raise InputError(f"is broken or truncated: {reason}") from error
            found.append(value)
        return found

    @property
    def document(self) -> Any:
        """The JSON document, where the file holds exactly one; else None."""
        documents = self.documents
        return documents[0] if len(documents) == 1 else None


def _streamed(path: Path) -> Iterator[Any]:
    """Yield the documents of a large file with their arrays cut at MAX_ITEMS."""
    try:
        import ijson
    except ImportError as error:
        raise MissingExtraError(
            f"{path.stat().st_size / 2**20:.0f} MiB of JSON must be streamed, which needs ijson: "
            "pip install 'specsim-llm[measure]'"
        ) from error
    with path.open("rb") as stream:
        try:
            events = ijson.basic_parse(_WithNulls(stream), multiple_values=True, use_float=True)
            yield from _build(events)
        except ijson.JSONError as error:
            reason = " ".join(str(error).split())[:120]
            raise InputError(f"is broken or truncated: {reason}") from error


class _WithNulls:
    """A stream with null for Infinity and NaN, which Python writes and JSON does not know."""

    _NO_NUMBER = re.compile(rb'(?<![\w"])-?(?:Infinity|NaN)(?![\w"])')

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.held = b""

    def read(self, size: int) -> bytes:
        """Return about `size` bytes, ending where no word is torn; b'' at the end."""
        if size <= 0:
            return b""
        new = self.stream.read(size)
        while new and b"," not in new:
            self.held += new
            new = self.stream.read(size)
        whole, comma, rest = (self.held + new).rpartition(b",") if new else (self.held, b"", b"")
        self.held = rest
        return self._NO_NUMBER.sub(b"null", whole + comma)


def _build(events: Iterator[tuple[str, Any]]) -> Iterator[Any]:
    """Build documents from parser events, dropping array items beyond the limits."""
    stack: list[Any] = []
    keys: list[str | None] = []
    arrays = 0
    nested = 0
    dropping = 0
    for event, value in events:
        if dropping:
            if event in ("start_map", "start_array"):
                dropping += 1
            elif event in ("end_map", "end_array"):
                dropping -= 1
        elif event == "map_key":
            keys[-1] = value
        elif event in ("end_map", "end_array"):
            done = stack.pop()
            keys.pop()
            arrays -= event == "end_array"
            if not stack:
                yield done
            elif isinstance(stack[-1], dict):
                stack[-1][keys[-1]] = done
            else:
                stack[-1].append(done)
        elif stack and isinstance(stack[-1], _Array) and _is_full(stack[-1], arrays, nested):
            _mark_cut(stack)
            dropping += event in ("start_map", "start_array")
        elif event in ("start_map", "start_array"):
            if len(stack) >= MAX_DEPTH:
                raise Foreign(f"is nested deeper than {MAX_DEPTH} levels")
            nested += arrays > 1
            stack.append({} if event == "start_map" else _Array())
            keys.append(None)
            arrays += event == "start_array"
        elif not stack:
            yield value
        elif isinstance(stack[-1], dict):
            stack[-1][keys[-1]] = value
        else:
            nested += arrays > 1
            stack[-1].append(value)


def _is_full(array: _Array, arrays: int, nested: int) -> bool:
    used_up = arrays > 1 and nested >= MAX_NESTED_ITEMS and len(array) >= ALWAYS_KEPT
    return used_up or len(array) >= MAX_ITEMS


def _mark_cut(stack: list[Any]) -> None:
    if not stack[-1].cut:
        for container in stack:
            if isinstance(container, _Array):
                container.cut = True
