"""Rows of a grid as CSV or Parquet: a part as bytes, and parts as one file."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from specsim._version import __version__
from specsim.analysis.grid import Columns, Grid
from specsim.errors import MissingExtraError, UsageError
from specsim.schema.grid import TEXTS, WHOLE, GridPoint

Format = Literal["parquet", "csv"]
_GROUP_ROWS = 50_000
"""Least rows of a Parquet row group."""


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


def by_status(columns: Columns) -> dict[str, int]:
    """Return the number of rows by status."""
    return dict(Counter(columns["status"].tolist()))


def encoded(grid: Grid, part: range, kind: Format, header: bool) -> tuple[bytes, dict[str, int]]:
    """Return a part as bytes of its file, and its rows by status; runs at a worker."""
    columns = grid.evaluate(part)
    if kind == "csv":
        text = io.StringIO()
        write_csv(text, columns, header=header)
        return text.getvalue().encode(), by_status(columns)
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(_table(grid, columns), sink, compression="zstd")
    return sink.getvalue().to_pybytes(), by_status(columns)


def write_csv(stream: io.TextIOBase | Any, columns: Columns, *, header: bool) -> None:
    """Write columns as CSV: axes exact, figures to six digits, nothing where there is none."""
    writer = csv.writer(stream, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows(zip(*(_texts(name, v) for name, v in columns.items()), strict=True))


def _texts(name: str, values: Any) -> list[Any]:
    if values.dtype.kind != "f":
        return list(values.tolist())
    digits = digits_of(name)
    # Values that repeat, as axes do, are written once.
    text = {v: f"{v:.{digits}g}" for v in set(values.tolist()) if v == v}
    return [text.get(v, "") for v in values.tolist()]


def digits_of(name: str) -> int:
    """Return the digits of a column: axes and counts are exact, figures are not."""
    return 15 if "." in name or name in WHOLE else 6


def _table(grid: Grid, columns: Columns) -> Any:
    """Return an Arrow table: what columns mean and what was asked stand in its metadata."""
    import pyarrow as pa

    said = {f.name: f.metadata for f in dataclasses.fields(GridPoint)}
    arrays, fields = [], []
    for name, values in columns.items():
        if "." in name:
            array = pa.array(values)
        elif name in TEXTS:
            array = pa.array(values, type=pa.string()).dictionary_encode()
        else:
            missing = np.isnan(values)
            whole = name in WHOLE
            plain = np.where(missing, 0, values).astype(np.int64 if whole else np.float32)
            array = pa.array(plain, mask=missing)
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata=said.get(name)))
    asked = grid.scenario.model_dump(mode="json", exclude_none=True)
    told = {"specsim": __version__, "scenario": json.dumps(asked)}
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=told))


def join(parts: list[Path], path: Path, kind: Format) -> None:
    """Put the parts into one file, some rows at a time."""
    if kind == "csv":
        with path.open("wb") as whole:
            for part in parts:
                with part.open("rb") as stream:
                    shutil.copyfileobj(stream, whole)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, pq.read_schema(parts[0]), compression="zstd") as writer:
        group: list[Any] = []
        for part in parts:
            group.append(pq.read_table(part))
            if sum(table.num_rows for table in group) >= _GROUP_ROWS or part is parts[-1]:
                writer.write_table(pa.concat_tables(group).unify_dictionaries())
                group = []
