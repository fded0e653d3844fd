"""A grid of scenarios through the whole model, as arrays.

Loads and acceptance are evaluated as arrays; every other axis is a deployment of its own, which
costs milliseconds. Rows come in the order of the axes, but for those two: acceptance and then the
load run fastest.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.analysis.grid_rows import ANYTIME, Block, Columns, empty_figures
from specsim.analysis.prepare import prepared
from specsim.catalog.scenario import ACCEPTANCE_FORMS, LOADS, load_scenario
from specsim.errors import InfeasibleError, SpecsimError, UsageError, nearest
from specsim.schema.calibration import Calibration
from specsim.schema.grid import scenario_keys
from specsim.schema.scenario import Scenario

__all__ = ["Columns", "Grid"]

Array = npt.NDArray[np.float64]

_MOST_AT_ONCE = 50_000
"""Rows of one evaluation, and of a part: more gain no speed and take memory."""
_DEPLOYMENT_ROWS = 4_000
"""Rows that take as long as finding out about a deployment."""
_PARTS, _PART_ROWS = 64, (20_000, 1_000_000)
"""Parts of a grid, where each then takes as long as so many rows: a tenth to a few seconds."""
_LEAST_LOAD = {"concurrency": 1.0, "request_rate": np.nextafter(0.0, 1.0)}
_NEW_METHOD = ("drafter", "drafter_weight_dtype", "draft_tensor_parallel_size", "tree")
"""What another way of speculating brings itself."""


@dataclass(frozen=True)
class Grid:
    """A scenario varied over axes.

    Rows are computed in tiles: some acceptances and loads of one deployment. A part is a run of
    tiles; neither depends on who computes it.

    Raises
    ------
    UsageError
        A key that no scenario has, an axis without values, axes that exclude each other, or a
        load or an acceptance that is no number.
    """

    scenario: Scenario
    axes: Mapping[str, tuple[Any, ...]]
    """Values by dotted key."""
    search: tuple[Path, ...] = ()
    calibration: Calibration | None = None
    bands: bool = False

    def __post_init__(self) -> None:
        for key, values in self.axes.items():
            if key not in scenario_keys():
                close = nearest(key, scenario_keys())
                raise UsageError(
                    f"axis {key}: no such key of a scenario; nearest: {', '.join(close) or 'none'}"
                )
            if not values:
                raise UsageError(f"axis {key}: no values; give at least one")
        for prefix, kinds in (("load", LOADS), ("speculation.acceptance", ACCEPTANCE_FORMS)):
            both = [kind for kind in kinds if f"{prefix}.{kind}" in self.axes]
            if len(both) > 1:
                raise UsageError(f"axes of {prefix} {' and '.join(both)}: vary one of them")
        if self.acceptance_key is not None:
            _refuse_words(self.acceptance_key, self.axes[self.acceptance_key])
        if self.load_key in self.axes:
            _refuse_words(self.load_key, self.axes[self.load_key])
            least = _LEAST_LOAD[self.load_key.removeprefix("load.")]
            wrong = self.loads[~((self.loads >= least) & np.isfinite(self.loads))]
            if wrong.size:
                allowed = "1 and more" if least == 1.0 else "above 0"
                raise UsageError(f"axis {self.load_key}: got {wrong[0]:g}; allowed: {allowed}")

    @property
    def load_key(self) -> str:
        """The axis of the loads: that of the grid, else the scenario's own ladder."""
        varied = [f"load.{kind}" for kind in LOADS if f"load.{kind}" in self.axes]
        if varied:
            return varied[0]
        return next(f"load.{k}" for k in LOADS if getattr(self.scenario.load, k) is not None)

    @functools.cached_property
    def loads(self) -> Array:
        """The loads of every point."""
        given = self.axes.get(self.load_key)
        if given is None:
            given = getattr(self.scenario.load, self.load_key.removeprefix("load."))
        return np.array(given, dtype=float)

    @property
    def acceptance_key(self) -> str | None:
        """The axis of acceptance that is evaluated as an array, if there is one."""
        keys = (f"speculation.acceptance.{form}" for form in ANYTIME)
        return next((key for key in keys if key in self.axes), None)

    @functools.cached_property
    def outer(self) -> dict[str, tuple[Any, ...]]:
        """The axes of which each combination is a deployment of its own."""
        inner = (self.load_key, self.acceptance_key)
        return {key: values for key, values in self.axes.items() if key not in inner}

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns of the axes: as given, the load last where it is the scenario's own."""
        own = () if self.load_key in self.axes else (self.load_key,)
        return (*self.axes, *own)

    @property
    def n_deployments(self) -> int:
        """Combinations of the outer axes."""
        return math.prod(len(values) for values in self.outer.values())

    @property
    def size(self) -> int:
        """Rows of the whole grid."""
        return self.n_deployments * self._n_values * self.loads.size

    @property
    def n_tiles(self) -> int:
        """What parts are made of."""
        return self.n_deployments * len(self._tiles)

    @property
    def _n_values(self) -> int:
        return 1 if self.acceptance_key is None else len(self.axes[self.acceptance_key])

    @functools.cached_property
    def _tiles(self) -> tuple[tuple[slice, slice], ...]:
        """Acceptances and loads of each tile of a deployment."""
        values = max(_MOST_AT_ONCE // self.loads.size, 1)
        loads = min(self.loads.size, _MOST_AT_ONCE)
        return tuple(
            (slice(i, min(i + values, self._n_values)), slice(j, min(j + loads, self.loads.size)))
            for i in range(0, self._n_values, values)
            for j in range(0, self.loads.size, loads)
        )

    def parts(self) -> list[range]:
        """Return runs of tiles that take about as long as each other."""
        n = self.n_tiles
        rows = math.ceil(self.size / n)
        as_rows = rows + _DEPLOYMENT_ROWS
        least, most = _PART_ROWS
        aim = min(max(n * as_rows / _PARTS, least), most)
        each = max(min(int(aim / as_rows), _MOST_AT_ONCE // rows), 1)
        return [range(i, min(i + each, n)) for i in range(0, n, each)]

    def n_rows(self, part: range) -> int:
        """Return the rows of a part."""
        sizes = [(v.stop - v.start) * (w.stop - w.start) for v, w in self._tiles]
        return sum(sizes[tile % len(sizes)] for tile in part)

    def combination(self, number: int) -> dict[str, Any]:
        """Return the values of the outer axes of a deployment."""
        values: dict[str, Any] = {}
        for key, options in reversed(self.outer.items()):
            number, at = divmod(number, len(options))
            values[key] = options[at]
        return {key: values[key] for key in self.outer}

    def evaluate(self, part: range) -> Columns:
        """Return the columns of the tiles of a part, axes first."""
        blocks = [self._tile(tile) for tile in part]
        return {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}

    def _tile(self, tile: int) -> Columns:
        number, within = divmod(tile, len(self._tiles))
        some, at = self._tiles[within]
        outer, loads = self.combination(number), self.loads[at]
        key = self.acceptance_key
        values = () if key is None else self.axes[key][some]
        n = loads.size * (some.stop - some.start)
        try:
            figures = self._block(outer, values, loads).figures()
        except SpecsimError as error:
            status = "infeasible" if isinstance(error, InfeasibleError) else "refused"
            figures = empty_figures(n, status, str(error), bands=self.bands)
        axes: Columns = {}
        for name in self.keys:
            if name == self.load_key:
                axes[name] = np.tile(loads, n // loads.size)
            elif name == key:
                axes[name] = np.repeat(np.array(values, dtype=float), loads.size)
            else:
                axes[name] = np.full(n, self._written[name](outer[name]))
        return axes | figures

    @functools.cached_property
    def _written(self) -> dict[str, Any]:
        """How values of each outer axis are written: in a type that all of them have."""
        kinds = {key: {type(v) for v in values} for key, values in self.outer.items()}
        return {
            key: int if of == {int} else float if of <= {int, float} else _text
            for key, of in kinds.items()
        }

    def _block(self, outer: dict[str, Any], values: Sequence[Any], loads: Array) -> Block:
        key, overrides = self.acceptance_key, dict(outer)
        form = None if key is None else key.rpartition(".")[2]
        if key is not None and form is not None:
            # Whether each value is possible is seen when there is a k.
            overrides[key] = ANYTIME[form]
        if self.load_key in self.axes:
            # Loads are arrays of the model's own; a scenario holds a thousand at most.
            overrides[self.load_key] = [float(loads[0])]
        method = overrides.get("speculation.method")
        if method is not None and method != self.scenario.speculation.method:
            for name in _NEW_METHOD:
                overrides.setdefault(f"speculation.{name}", None)
        base = self.scenario.model_dump(mode="json", exclude_none=True, exclude_unset=True)
        scenario = load_scenario(base, overrides=overrides)
        deployment, laid = prepared(scenario, self.search, self.calibration)
        return Block(deployment, laid, loads, form, values, self.bands)


def _refuse_words(key: str, values: Sequence[Any]) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"axis {key}: got {value!r}; expected a number")


def _text(value: Any) -> str:
    """Return a value as YAML reads it back."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
