"""Uploaded files: never trusted with a path, a name, or a size.

What is uploaded is written under names of our own into a fresh folder, read there by specsim's own
readers, and the folder is removed. Readers learn things from names (the arm, which log is of which
run), so our names keep the few words that mean something, from a fixed list, and number the others.
"""

from __future__ import annotations

import dataclasses
import io
import re
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import streamlit as st

from specsim.catalog.calibration import load_calibration
from specsim.catalog.case import load_case
from specsim.catalog.files import MAX_BYTES as MAX_RECORD_BYTES
from specsim.catalog.models import load_model
from specsim.errors import InputError, SpecsimError
from specsim.measure.read import read_measurements
from specsim.schema.calibration import Calibration
from specsim.schema.case import Case
from specsim.schema.measurement import Measurements, Skipped

MAX_FILE_BYTES = 64 * 2**20
MAX_TOTAL_BYTES = 256 * 2**20
MAX_FILES = 2000
MAX_UNPACKED_BYTES = 64 * 2**20
"""What a workbook may unpack to."""
_MAX_MEMBERS = 500
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".xlsx", ".xlsm", ".txt", ".log",
             ".prom", ".out", ".md", ".yaml", ".yml")  # fmt: skip
_WORKBOOKS = (".xlsx", ".xlsm")
_OTHER_SUFFIX = ".txt"
_PACKED = {
    b"PK\x03\x04": "a zip archive", b"PK\x05\x06": "an empty zip archive", b"\x1f\x8b": "gzip",
    b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstandard",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive", b"Rar!": "a rar archive",
}  # fmt: skip
_TOO_WIDE = re.compile(rb'["A-Z:]\$?[A-Z]{3}\$?[0-9]+"')
"""A cell beyond column ZZ: a table of runs has no such, and rows are filled up to it."""

_MODEL = "a model's config.json"
_EXPECTED = re.compile("; (?:expected|make one with) ")
"""What a reason has that says what is allowed."""
_DIGITS = r"is broken or truncated: Exceeds the limit \((\d+) digits\)[^;]*(?:; use sys[^;]*)?"
_PLAINER = (
    (re.compile(r"is broken or truncated: [a-z ]*maximum (?:recursion|nesting)[^;]*"),
     "is nested too deeply"),
    (re.compile(_DIGITS), r"has a number of more than \1 digits"),
    (re.compile(r"; expected a YAML or JSON file| in \"<unicode string>\""), ""),
)  # fmt: skip

_MEANT = re.compile(
    r"(?:(?:no|without)?(?:spec[a-z]{0,12}|mtp)|off|on|no|base|baseline|without|mtpk|eagle|dflash"
    r"|dspark|medusa|ngram|n|gram|dm|kimi|k|c|r|rep|server|serve|vllm|sglang|metrics?|prom"
    r"|prometheus|logs?|out|stdout|stderr|before|after|pre|post|start|end|delta|snapshot)?[0-9]{0,4}"
)
"""Words of a name that say something to a reader; digits alone are kept too."""
_WORDS = re.compile(r"([a-z0-9]+)", re.IGNORECASE)
_MOST_WORDS = 24
_LONGEST = 120
_OURS = re.compile(r"[\w./\\:-]+")
"""Whatever could be a path or a name of ours inside a text."""


class Upload(Protocol):
    """What Streamlit gives for a file: its bytes, and the name that its sender wrote."""

    name: str
    size: int

    def getbuffer(self) -> memoryview:
        """Return the bytes without copying them."""
        ...


def read_uploads(uploads: Sequence[Upload]) -> Measurements:
    """Read uploaded benchmark files: what `read_measurements` finds, under the sender's names.

    A file that is refused (too large, an archive) is among those skipped, with its reason.
    """
    names = _Names()
    skipped: list[Skipped] = []
    total = 0
    with tempfile.TemporaryDirectory(prefix="specsim-") as folder:
        root = Path(folder) / "uploads" / "files"
        paths = []
        for number, upload in enumerate(uploads):
            total += upload.size
            reason = _refusal(upload, number=number, total=total)
            if reason:
                skipped.append(Skipped(one_line(upload.name), reason))
                continue
            path = names.new(root, upload.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(upload.getbuffer())
            paths.append(path)
        read = read_measurements(paths) if paths else Measurements((), ())
        read = _named(read, names)
    return Measurements(read.rows, (*skipped, *read.skipped))


def read_calibration(upload: Upload) -> Calibration:
    """Return an uploaded calibration.

    Raises
    ------
    SpecsimError
        It is none, or is refused.
    """
    with _one(upload, (".yaml", ".yml", ".json"), "a file of `specsim calibrate`") as path:
        return load_calibration(path)


def read_case(upload: Upload) -> Case:
    """Return an uploaded case file.

    Raises
    ------
    SpecsimError
        It is none, or is refused.
    """
    with _one(upload, (".yaml", ".yml", ".json"), "a case as in validation/cases") as path:
        return load_case(path)


class ModelFile:
    """An uploaded config.json, in a folder that lives as long as this object.

    Kept in a session's state it goes with the session; `remove` takes it away at once.
    """

    def __init__(self, upload: Upload) -> None:
        """Write and check it.

        Raises
        ------
        SpecsimError
            It is no model that specsim knows how to read, or is refused.
        """
        reason = _refusal(upload, limit=MAX_RECORD_BYTES)
        if reason:
            raise InputError(_expecting(f"{one_line(upload.name)}: {reason}", _MODEL))
        folder = Path(tempfile.mkdtemp(prefix="specsim-model-"))
        # Unlike TemporaryDirectory this is silent where a session is dropped without goodbye.
        self.remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.name = one_line(upload.name)
        suffix = PurePosixPath(upload.name).suffix.lower()
        # A model that has no name of its own is called after its folder.
        self.path = (
            folder
            / "uploaded-model"
            / ("model.yaml" if suffix in (".yaml", ".yml") else "config.json")
        )
        self.path.parent.mkdir()
        self.path.write_bytes(upload.getbuffer())
        try:
            load_model(self.path)
        except SpecsimError as problem:
            self.remove()
            text = str(problem).replace(str(self.path), self.name)
            raise type(problem)(_expecting(text, _MODEL)) from problem
        except Exception as problem:  # a vendor's format may break a reader in any way
            self.remove()
            raise InputError(
                _expecting(f"{self.name}: cannot be read: {type(problem).__name__}", _MODEL)
            ) from problem


def _expecting(text: str, expected: str) -> str:
    """Return a reason in plainer words, and what is expected where it leaves that out."""
    text = _plainer(text)
    return text if _EXPECTED.search(text) else f"{text}; expected {expected}"


def _plainer(text: str) -> str:
    """Return a reason without what only a programmer of Python can use."""
    for pattern, words in _PLAINER:
        text = pattern.sub(words, text)
    return text


def uploaded_model(upload: Upload, *, key: str = "model_file") -> Path:
    """Return the path of an uploaded config.json, for `target.model`; the session owns the file.

    Parameters
    ----------
    key : str
        Where the session keeps it: one for each side. A file that was there before is removed.

    Raises
    ------
    SpecsimError
        It is no model that specsim knows how to read, or is refused.
    """
    found = ModelFile(upload)
    drop_model(key=key)
    st.session_state[key] = found
    return found.path


def drop_model(*, key: str = "model_file") -> None:
    """Remove the model that a session uploaded."""
    before = st.session_state.pop(key, None)
    if isinstance(before, ModelFile):
        before.remove()


@contextmanager
def _one(upload: Upload, suffixes: Sequence[str], expected: str) -> Iterator[Path]:
    """Lend a path under which a single small file is read; errors name what the sender called it.

    Raises
    ------
    SpecsimError
        It is refused.
    """
    reason = _refusal(upload, limit=MAX_RECORD_BYTES)
    if reason:
        raise InputError(_expecting(f"{one_line(upload.name)}: {reason}", expected))
    suffix = PurePosixPath(upload.name).suffix.lower()
    with tempfile.TemporaryDirectory(prefix="specsim-") as folder:
        path = Path(folder) / f"1{suffix if suffix in suffixes else suffixes[0]}"
        path.write_bytes(upload.getbuffer())
        try:
            yield path
        except SpecsimError as problem:
            text = str(problem).replace(str(path), one_line(upload.name))
            raise type(problem)(_expecting(text, expected)) from problem


def _refusal(
    upload: Upload, *, number: int = 0, total: int = 0, limit: int = MAX_FILE_BYTES
) -> str:
    """Return why an upload is not even written down; '' where nothing speaks against it."""
    of_runs = limit == MAX_FILE_BYTES
    if number >= MAX_FILES:
        return f"is beyond the {MAX_FILES} files that are read at a time"
    if upload.size == 0:
        return "is empty"
    if upload.size > limit:
        more = ", and `specsim calibrate --measurements` on this machine takes more"
        return f"has {_mib(upload.size)}; at most {_mib(limit)} are read here" + more * of_runs
    if total > MAX_TOTAL_BYTES:
        return f"is beyond the {_mib(MAX_TOTAL_BYTES)} that are read at a time"
    data = upload.getbuffer()
    head = bytes(data[:8])
    packed = next((what for sign, what in _PACKED.items() if head.startswith(sign)), "")
    if not packed:
        return ""
    suffix = PurePosixPath(upload.name).suffix.lower()
    if suffix in _WORKBOOKS and packed == "a zip archive":
        return _workbook_refusal(data)
    workbooks = " (a workbook ends in .xlsx)"
    return f"is {packed}: unpack it and upload what is inside" + workbooks * of_runs


def _workbook_refusal(data: memoryview) -> str:
    """Return why a workbook is not opened, from its table of contents and its cells' names."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as book:
            members = book.infolist()
            unpacked = sum(m.file_size for m in members)
            if len(members) > _MAX_MEMBERS:
                return f"is a workbook of {len(members)} parts; a table of runs has a few"
            # Python reads no more of a member than is declared here.
            if unpacked > MAX_UNPACKED_BYTES:
                return (
                    f"unpacks to {_mib(unpacked)}; at most {_mib(MAX_UNPACKED_BYTES)} are read: "
                    "save the table alone, or as CSV"
                )
            for member in members:
                if member.filename.startswith("xl/worksheets/") and _TOO_WIDE.search(
                    book.read(member)
                ):
                    return "has cells beyond column ZZ, so it is no table of runs"
    except Exception as error:  # a broken archive raises whatever it is broken in
        return f"is a broken workbook: {type(error).__name__}"
    return ""


def one_line(name: str) -> str:
    """Return an uploaded name as one short line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


@dataclass(frozen=True)
class _Names:
    """Names of our own for uploaded files, and what each stands for."""

    words: dict[str, str] = dataclasses.field(default_factory=dict)
    uploaded: set[Path] = dataclasses.field(default_factory=set)
    told: dict[str, str] = dataclasses.field(default_factory=dict)

    def new(self, root: Path, name: str) -> Path:
        """Return the path that a file is written to: equal names in folders of their own."""
        *folders, last = PurePosixPath(name.replace("\\", "/")).parts or ("",)
        folder = root.joinpath(*(self._own(part) for part in folders[-2:]))
        suffix = PurePosixPath(last).suffix.lower()
        known = suffix in _SUFFIXES
        stem = self._own(last[: -len(suffix)] if known else last)
        file = stem + (suffix if known else _OTHER_SUFFIX)
        path, n = folder / file, 1
        while path in self.uploaded:
            n += 1
            path = folder / f"w{n}" / file
        self.uploaded.add(path)
        shown = one_line(name) if n == 1 else f"{one_line(name)} ({n})"
        self.told.update({str(path): shown, path.name: shown})
        return path

    def _own(self, text: str) -> str:
        """Return a name of kept words and numbered ones, so that equal parts stay equal.

        Examples
        --------
        >>> names = _Names()
        >>> names._own("../../etc/mtp_k3 c4"), names._own("etc.before")
        ('w1-mtp_k3-c4', 'w1.before')
        """
        found = []
        for part in _WORDS.split(text.lower())[: 2 * _MOST_WORDS]:
            if not part:
                continue
            if not _WORDS.fullmatch(part):
                found.append(part if part in ("_", ".", "-") else "-")
            elif _MEANT.fullmatch(part):
                found.append(part)
            else:
                found.append(self.words.setdefault(part, f"w{len(self.words) + 1}"))
        return "".join(found).strip("-_.") or "w0"

    def shown(self, text: str) -> str:
        """Return a text with the sender's names in place of ours."""
        return _OURS.sub(lambda found: self._shown(found.group()), text)

    def _shown(self, word: str) -> str:
        # A sentence may end behind a name; messages about neighbours name the file alone.
        stem = word.rstrip(".:")
        return self.told.get(stem, stem) + word[len(stem) :]


def _named(read: Measurements, names: _Names) -> Measurements:
    """Return rows and reasons under the sender's names."""
    shown = names.shown

    def row(r: Any) -> Any:
        metadata = dict(r.metadata)
        if "server" in metadata:
            metadata["server"] = shown(metadata["server"])
        return dataclasses.replace(
            r, source=shown(r.source), warnings=tuple(map(shown, r.warnings)), metadata=metadata
        )

    return Measurements(
        rows=tuple(row(r) for r in read.rows),
        skipped=tuple(Skipped(shown(s.source), _plainer(shown(s.reason))) for s in read.skipped),
    )
