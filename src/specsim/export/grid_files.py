"""A sweep's rows in a file: parts that are renamed into place, joined at the end.

Part files are what makes a stop harmless: each is written under a temporary name and renamed, and
is not computed again by a run that resumes. Whoever computes a part also turns it into the file's
bytes, so that one writer keeps up with many workers. Rows, and so bytes, do not depend on who
computed them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim._version import __version__
from specsim.analysis.grid import Columns, Grid
from specsim.catalog.calibration import load_calibration
from specsim.errors import InputError, SpecsimError, UsageError
from specsim.export.grid_formats import Format, encoded, format_of, join
from specsim.schema.calibration import Calibration
from specsim.schema.scenario import Scenario

if TYPE_CHECKING:
    from specsim.analysis.simulation.simulate import Executor

_AHEAD = 32
"""Parts computed ahead of the one that is written: memory stays flat."""
_MANIFEST = "manifest.json"


Progress = Callable[[int, int], None]
"""Told rows done and rows in all."""


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
    return evaluated(grid, executor)


def evaluated(grid: Grid, executor: Executor | None = None) -> Columns:
    """Return the columns of a whole grid."""
    blocks = list(_in_order(executor, grid.evaluate, ((part,) for part in grid.parts())))
    return {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}


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
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{path}: there is no folder {target.parent}; make it, or give another -o")
    folder = target.with_name(target.name + ".parts")
    parts = grid.parts()
    files = [folder / f"part-{i:06d}.{kind}" for i in range(len(parts))]
    try:
        _begin(grid, folder, kind, resume=resume)
        missing = [i for i, file in enumerate(files) if not file.exists()]
        done = grid.size - sum(grid.n_rows(parts[i]) for i in missing)
        progress(done, grid.size)
        tasks = ((grid, parts[i], kind, i == 0) for i in missing)
        for i, (data, counts) in zip(missing, _in_order(executor, encoded, tasks), strict=True):
            _write(files[i].with_suffix(".json"), json.dumps(counts).encode())
            _write(files[i], data)
            done += sum(counts.values())
            progress(done, grid.size)
        whole = folder / "whole.tmp"
        join(files, whole, kind)
        total: Counter[str] = Counter()
        for file in files:
            total.update(json.loads(file.with_suffix(".json").read_text("utf-8")))
        os.replace(whole, target)
        shutil.rmtree(folder)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror or error}; what is done is kept in "
            f"{folder}, go on with --resume"
        ) from error
    return dict(total)


def _in_order(
    executor: Executor | None, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]
) -> Iterator[Any]:
    """Yield the result of each task in order, some of them computed ahead.

    Raises
    ------
    InputError
        A worker died or lacks something.
    """
    if executor is None:
        yield from (function(*task) for task in tasks)
        return
    waiting: deque[Any] = deque()
    try:
        for task in tasks:
            waiting.append(executor.submit(function, *task))
            if len(waiting) >= _AHEAD:
                yield _result(waiting.popleft())
        while waiting:
            yield _result(waiting.popleft())
    finally:
        for future in waiting:
            future.cancel()


def _result(future: Any) -> Any:
    try:
        return future.result()
    except SpecsimError:
        raise
    except Exception as error:
        # Whatever it is, it happened elsewhere: a cluster's own errors, memory, a missing package.
        raise InputError(
            f"a worker failed: {type(error).__name__}: {error}; parts of a file that are done are "
            "kept, go on with --resume, or with --workers 1 to see the error here"
        ) from error


def _begin(grid: Grid, folder: Path, kind: Format, *, resume: bool) -> None:
    """Make the folder of the parts, or check that the one there is of this grid."""
    manifest = {"format": kind, "grid": _fingerprint(grid), "specsim": __version__}
    kept = folder / _MANIFEST
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
    # The folder is removed in the end, with all that is in it.
    if folder.exists() and not (folder.is_dir() and _is_ours(folder)):
        raise UsageError(f"{folder}: is there and not of a sweep; move it, or give another -o")
    folder.mkdir(exist_ok=True)
    _write(kept, json.dumps(manifest).encode())


def _is_ours(folder: Path) -> bool:
    """Whether a folder without a manifest is empty, as a run leaves it that stopped at once."""
    return all(path.name == "manifest.tmp" for path in folder.iterdir())


def _fingerprint(grid: Grid) -> str:
    """Return a hash of everything that rows hang on."""
    told = {
        "scenario": grid.scenario.model_dump(mode="json"),
        "axes": [[key, repr(tuple(values))] for key, values in grid.axes.items()],
        "bands": grid.bands,
        "calibration": None
        if grid.calibration is None
        else grid.calibration.model_dump(mode="json"),
        "search": [[str(file), *_stamp(file)] for path in grid.search for file in _files(path)],
    }
    return hashlib.sha256(json.dumps(told, default=str).encode()).hexdigest()


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*.y*ml")) if path.is_dir() else [path]


def _stamp(file: Path) -> tuple[int, int]:
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)
