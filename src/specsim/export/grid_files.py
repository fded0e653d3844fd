"""A sweep's rows in a file: parts that are renamed into place, joined at the end.

Part files are what makes a stop harmless: each holds whole deployments, is written under a
temporary name and renamed, and is not computed again by a run that resumes. Rows, and so bytes,
do not depend on who computed them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from specsim._version import __version__
from specsim.analysis.grid import Columns, Grid
from specsim.catalog.calibration import load_calibration
from specsim.errors import InputError, MissingExtraError, UsageError
from specsim.schema.calibration import Calibration
from specsim.schema.grid import TEXTS
from specsim.schema.scenario import Scenario

Format = Literal["parquet", "csv"]
_IN_FLIGHT = 4
"""Parts computed ahead of the one that is written, per sweep: memory stays flat."""
_COPY_BYTES = 1 << 20


class Executor(Protocol):
    """What runs tasks elsewhere: concurrent.futures, or what looks like it (Dask, Ray, MPI)."""

    def submit(self, fn: Any, /, *args: Any) -> Any:
        """Start a call; return a future with `.result()`."""


Progress = Callable[[int, int], None]
"""Told rows done and rows in all."""


def format_of(path: Path) -> Format:
    """Return the format that a file's name asks for.

    Raises
    ------
    UsageError
        It asks for none of them.
    MissingExtraError
        Parquet, and pyarrow is not installed.
    """
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return "csv"
    if suffix not in (".parquet", ".pq"):
        raise UsageError(f"-o {path}: expected a name that ends in .parquet or .csv")
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"-o {path}: Parquet needs pyarrow; install it with `pip install "
            "'specsim-llm[parquet]'`, or write a .csv"
        ) from error
    return "parquet"


def sweep(
    scenario: Scenario,
    axes: Mapping[str, Sequence[Any]],
    *,
    output: Path | str | None = None,
    executor: Executor | None = None,
    bands: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> Columns | dict[str, int]:
    """Predict a grid of scenarios.

    Parameters
    ----------
    axes : mapping
        Values by dotted key, e.g. ``{"load.concurrency": [1, 8, 64]}``.
    output : path, optional
        A .parquet or .csv file, written part by part.
    executor : Executor, optional
        Absent: in this process. Rows do not depend on it.
    bands : bool
        Also the 80 % interval of the speedup.
    resume, overwrite : bool
        Go on where a stopped run left parts; replace a file that is there.

    Returns
    -------
    dict
        Arrays by column without `output`, else the number of rows by status.

    Raises
    ------
    SpecsimError
        One line saying what is wrong and what to do; a point that cannot be served is a row.
    """
    if isinstance(calibration, Path | str):
        calibration = load_calibration(calibration)
    tuples = {key: tuple(values) for key, values in axes.items()}
    grid = Grid(scenario, tuples, tuple(search), calibration, bands)
    if output is not None:
        return write_grid(grid, Path(output), executor=executor, resume=resume, overwrite=overwrite)
    blocks = list(evaluated(grid, executor, grid.parts()))
    return {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}


def evaluated(grid: Grid, executor: Executor | None, parts: list[range]) -> Iterator[Columns]:
    """Yield the columns of each part in order, some of them computed ahead."""
    if executor is None:
        for part in parts:
            yield grid.evaluate(part)
        return
    waiting: deque[Any] = deque()
    for part in parts:
        waiting.append(executor.submit(grid.evaluate, part))
        if len(waiting) > _IN_FLIGHT:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def write_grid(
    grid: Grid,
    path: Path,
    *,
    executor: Executor | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda done, total: None,
) -> dict[str, int]:
    """Evaluate a grid into a Parquet or CSV file.

    Parameters
    ----------
    resume : bool
        Go on with the parts that a stopped run of the same grid left.
    overwrite : bool
        Replace a file that is there already.

    Returns
    -------
    dict
        Rows by status.

    Raises
    ------
    UsageError, InputError
        The file is there, parts of another grid are, or nothing can be written.
    """
    kind = format_of(path)
    if path.exists() and not overwrite:
        raise UsageError(f"{path}: is there already; give --overwrite to replace it")
    folder = path.with_name(path.name + ".parts")
    parts = grid.parts()
    try:
        _begin(grid, folder, kind, resume=resume)
        missing = [i for i in range(len(parts)) if not _part(folder, i, kind).exists()]
        done = grid.size - sum(len(parts[i]) for i in missing) * grid.points_per_deployment
        progress(done, grid.size)
        columns = evaluated(grid, executor, [parts[i] for i in missing])
        for i, block in zip(missing, columns, strict=True):
            _write_part(_part(folder, i, kind), block, kind, header=i == 0)
            done += int(block["status"].size)
            progress(done, grid.size)
        files = [_part(folder, i, kind) for i in range(len(parts))]
        _join(files, path, kind)
        counts = _counted(files)
        shutil.rmtree(folder)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror or error}; what is done is kept in "
            f"{folder}, go on with --resume"
        ) from error
    return counts


def _begin(grid: Grid, folder: Path, kind: str, *, resume: bool) -> None:
    """Make the folder of the parts, or check that the one there is of this grid."""
    manifest = {"format": kind, "grid": _fingerprint(grid), "specsim": __version__}
    kept = folder / "manifest.json"
    if kept.exists():
        if not resume:
            raise UsageError(
                f"{folder}: a stopped run left parts there; give --resume to go on with them, or "
                "remove the folder"
            )
        if json.loads(kept.read_text(encoding="utf-8")) != manifest:
            raise UsageError(
                f"{folder}: holds parts of another grid, scenario or version; remove the folder "
                "to start again"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(kept, manifest)


def _counted(files: list[Path]) -> dict[str, int]:
    """Return the rows by status of parts, from what was noted beside each."""
    counts: dict[str, int] = {}
    for file in files:
        for status, number in json.loads(file.with_suffix(".json").read_text("utf-8")).items():
            counts[status] = counts.get(status, 0) + number
    return counts


def _fingerprint(grid: Grid) -> str:
    """Return a hash of everything that rows hang on."""
    told = {
        "scenario": grid.scenario.model_dump(mode="json"),
        "axes": {key: [repr(v) for v in values] for key, values in grid.axes.items()},
        "bands": grid.bands,
        "calibration": None
        if grid.calibration is None
        else grid.calibration.model_dump(mode="json"),
        "search": [str(path) for path in grid.search],
    }
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _part(folder: Path, number: int, kind: str) -> Path:
    return folder / f"part-{number:06d}.{kind}"


def _write_json(path: Path, value: Any) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    os.replace(temporary, path)


def _write_part(path: Path, columns: Columns, kind: Format, *, header: bool) -> None:
    statuses, numbers = np.unique(columns["status"].astype(str), return_counts=True)
    _write_json(
        path.with_suffix(".json"), dict(zip(statuses.tolist(), numbers.tolist(), strict=True))
    )
    temporary = path.with_suffix(".tmp")
    if kind == "csv":
        with temporary.open("w", encoding="utf-8", newline="") as stream:
            write_csv(stream, columns, header=header)
    else:
        import pyarrow.parquet as pq

        pq.write_table(_table(columns), temporary, compression="zstd")
    os.replace(temporary, path)


def write_csv(stream: io.TextIOBase | Any, columns: Columns, *, header: bool) -> None:
    """Write columns as CSV, figures to six digits, nothing where there is none."""
    writer = csv.writer(stream, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows(zip(*(_texts(values) for values in columns.values()), strict=True))


def _texts(values: Any) -> list[Any]:
    if values.dtype.kind != "f":
        return list(values.tolist())
    return ["" if v != v else f"{v:.6g}" for v in values.tolist()]


def _table(columns: Columns) -> Any:
    """Return an Arrow table: figures as 32-bit floats, empty where there is none."""
    import pyarrow as pa

    made = {}
    for name, values in columns.items():
        if "." in name:
            made[name] = pa.array(values.tolist())
        elif name in TEXTS:
            made[name] = pa.array(values.tolist(), type=pa.string()).dictionary_encode()
        else:
            made[name] = pa.array(values.astype(np.float32), mask=np.isnan(values))
    return pa.table(made)


def _join(parts: list[Path], path: Path, kind: Format) -> None:
    """Put the parts into one file, a part at a time."""
    temporary = path.with_name(f".{path.name}.tmp")
    if kind == "csv":
        with temporary.open("wb") as whole:
            for part in parts:
                with part.open("rb") as stream:
                    shutil.copyfileobj(stream, whole, _COPY_BYTES)
    else:
        import pyarrow.parquet as pq

        with pq.ParquetWriter(temporary, pq.read_schema(parts[0]), compression="zstd") as writer:
            for part in parts:
                writer.write_table(pq.read_table(part))
    os.replace(temporary, path)
