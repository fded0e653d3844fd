"""Find out what a file is by its content, and read it: `read_measurements`."""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from specsim.errors import InputError, NotFoundError, SpecsimError
from specsim.measure.associate import Found, Kind, associate
from specsim.measure.plausible import plausible
from specsim.measure.readers import prometheus
from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import Measurement, Measurements, Skipped

# Each reader module has FORMAT (its name), `recognises(source) -> bool`, which looks at the head or
# the JSON keys only, and `read(source) -> list[Measurement]`, which raises Foreign with a reason.
# The first that recognises a file reads it: the most specific stand first.
READERS: tuple[str, ...] = (
    "vllm_bench",
    "vllm_offline",
    "sglang",
    "guidellm",
    "aiperf",
    "inference_perf",
    "inferencex",
    "llmd",
    "harness",
    "acceptance_tables",
    "prometheus",
    "console",
    "server_log",
    "table",
)
"""Module names under `specsim.measure.readers`."""

_KINDS: dict[str, Kind] = {
    "acceptance_tables": "table",
    "prometheus": "server",
    "server_log": "server",
}
"""Readers whose rows are no runs."""

_OWN = ("scenario.y*ml", "plan.y*ml", "*.sh", "readme*", "requirements*.txt")
"""What a sweep's folder holds besides results: passed over in silence, unless named."""

_UNKNOWN = (
    "no known format; what is read: results of vllm bench, SGLang, GuideLLM, aiperf, "
    "inference-perf, llm-d and InferenceX, CSV and XLSX tables, /metrics, server logs"
)


def read_measurements(paths: Path | str | Iterable[Path | str]) -> Measurements:
    """Read benchmark results, metrics, logs and tables under some files and folders.

    Parameters
    ----------
    paths : path or several
        Files, or folders that are walked.

    Returns
    -------
    Measurements
        One row per run, and every file that gave none with its reason. A file that is broken,
        too large or of no known format never stops the others.

    Raises
    ------
    NotFoundError
        A path that does not exist.
    """
    given = [Path(p) for p in ([paths] if isinstance(paths, Path | str) else paths)]
    for path in given:
        try:
            there = path.exists()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
        if not there:
            raise NotFoundError(f"{str(path)!r} does not exist; give a file or a folder of results")
    skipped: list[Skipped] = []
    at: dict[Path, int] = {}
    found: list[Found] = []
    dumps: list[Path] = []
    for path in _files(given, skipped):
        at[path] = len(at)
        source = Source(path)
        reader: ModuleType | None = None
        try:
            reader = _reader(source)
            # Text of /metrics waits: a dump may be the first half of a pair.
            if reader is prometheus and not source.looks_like_json:
                dumps.append(path)
            else:
                found += [Found(path, row, _kind(reader, source)) for row in reader.read(source)]
        except _Skip as skip:
            skipped.append(Skipped(source.name, str(skip)))
        except Exception as error:
            skipped.append(Skipped(source.name, _reason(error, reader)))
    found += _read_dumps(dumps, skipped)
    found.sort(key=lambda entry: at[entry.path])
    found = [dataclasses.replace(entry, row=plausible(entry.row)) for entry in found]
    found = _without_copies(found, skipped)
    return Measurements(rows=tuple(associate(found)), skipped=tuple(skipped))


def _without_copies(found: list[Found], skipped: list[Skipped]) -> list[Found]:
    """Leave out runs that repeat another to the last digit: copies are no repeats."""
    first: dict[str, str] = {}
    kept = []
    for entry in found:
        row = entry.row
        if entry.kind == "run" and row.duration_s is not None and row.tpot_ms is not None:
            same = repr(dataclasses.replace(row, source="", metadata={}))
            if same in first:
                skipped.append(Skipped(row.source, f"is the same run as {first[same]}"))
                continue
            first[same] = row.source
        kept.append(entry)
    return kept


class _Skip(Exception):
    """A file that no reader recognises; the message is the reason."""


def _files(given: Iterable[Path], skipped: list[Skipped]) -> Iterator[Path]:
    """Yield every file once, folders walked in order of names."""
    seen: set[str] = set()
    stack = [(path, True) for path in reversed(list(given))]
    while stack:
        path, named = stack.pop()
        # Links may lead in circles or to what was read already.
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        try:
            if path.is_dir():
                inside = sorted(path.iterdir(), key=lambda p: p.name, reverse=True)
                stack += [(p, False) for p in inside if not _hidden(p)]
            elif path.is_file():
                if named or not _own(path):
                    yield path
            else:
                skipped.append(Skipped(str(path), "is no file, or a link to nothing"))
        except OSError as error:
            skipped.append(Skipped(str(path), _reason(error, None)))


def _hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.name == "__pycache__"


def _own(path: Path) -> bool:
    if path.name == "bench.log":  # a sweep's: its results stand beside it as JSON
        return any(path.parent.glob("*.before.prom"))
    return any(fnmatch.fnmatch(path.name.lower(), pattern) for pattern in _OWN)


def _reader(source: Source) -> ModuleType:
    """Return the first reader that recognises a file.

    Raises
    ------
    _Skip
        None does.
    """
    if source.size == 0:
        raise _Skip("is empty")
    head = source.head  # OSError: unreadable
    broken: Exception | None = None
    for name in READERS:
        module = importlib.import_module(f"specsim.measure.readers.{name}")
        try:
            if module.recognises(source):
                return module
        except Exception as error:
            broken = broken or error
    if broken is not None:
        raise _Skip(_reason(broken, None))
    if not head:
        raise _Skip("is binary, or text in UTF-16")
    if source.looks_like_json:
        try:
            _ = source.documents
        except Exception as error:
            raise _Skip(_reason(error, None)) from error
    raise _Skip(_UNKNOWN)


def _kind(reader: ModuleType, source: Source) -> Kind:
    if reader is prometheus and source.looks_like_json:
        return "difference"
    return _KINDS.get(reader.__name__.rpartition(".")[2], "run")


def _read_dumps(paths: list[Path], skipped: list[Skipped]) -> list[Found]:
    """Read dumps of /metrics: those before and after a run as one, the others alone."""
    found = []
    pairs = prometheus.pair_up(paths)
    paired = {path for pair in pairs for path in pair}
    for group in [*pairs, *((path,) for path in paths if path not in paired)]:
        sources = [Source(path) for path in group]
        rows: list[Measurement]
        kind: Kind = "server"
        try:
            if len(sources) == 2:
                rows, kind = [prometheus.difference(*sources)], "difference"
            else:
                rows = prometheus.read(sources[0])
            found += [Found(group[0], row, kind) for row in rows]
        except Exception as error:
            name = ", ".join(source.name for source in sources)
            skipped.append(Skipped(name, _reason(error, prometheus)))
    return found


def _reason(error: Exception, reader: ModuleType | None) -> str:
    """Say in a sentence why a file gave nothing."""
    said = " ".join(str(error).split())[:300]
    if isinstance(error, Foreign | SpecsimError):
        return said
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or said}"
    form = f" as {reader.FORMAT}" if reader else ""
    return f"cannot be read{form}: {type(error).__name__}: {said}"
