"""A grid of scenarios through the whole model, as arrays.

Loads and acceptance are evaluated as arrays; every other axis is a deployment of its own, which
costs milliseconds. Rows come in the order of the axes, but for those two: acceptance and then the
load run fastest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.analysis.acceptance import AcceptanceModel
from specsim.analysis.arms import Arm, baseline_arm, speculative_arm
from specsim.analysis.curves import Pair, pair, service_at_rates
from specsim.analysis.overlay import Overlay
from specsim.analysis.prepare import SEED, prepared
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import closed_loop
from specsim.catalog.hardware import price_usd_per_gpu_hour
from specsim.catalog.scenario import ACCEPTANCE_FORMS, LOADS, load_scenario
from specsim.errors import InfeasibleError, SpecsimError, UsageError
from specsim.physics import acceptance as law
from specsim.physics.economics import usd_per_mtok
from specsim.schema.calibration import Calibration
from specsim.schema.grid import TEXTS, columns
from specsim.schema.scenario import Load, Scenario
from specsim.units import MILLI

Array = npt.NDArray[np.float64]
Columns = dict[str, npt.NDArray[Any]]

_VECTOR_FORMS = ("rate", "length", "draft_acceptance_rate")
_MOST_AT_ONCE = 50_000
"""Points of one evaluation: more gain no speed and take memory."""
_PART_ROWS = (2_000, 200_000)
_PARTS = 64
_BAND_SAMPLES = 32


@dataclass(frozen=True)
class Grid:
    """A scenario varied over axes."""

    scenario: Scenario
    axes: Mapping[str, tuple[Any, ...]]
    """Values by dotted key."""
    search: tuple[Path, ...] = ()
    calibration: Calibration | None = None
    bands: bool = False

    def __post_init__(self) -> None:
        empty = [key for key, values in self.axes.items() if not values]
        if empty:
            raise UsageError(f"axis {empty[0]}: no values; give at least one")
        forms = [f for f in ACCEPTANCE_FORMS if f"speculation.acceptance.{f}" in self.axes]
        if len(forms) > 1:
            raise UsageError(f"axes of acceptance {' and '.join(forms)}: vary one form")

    @property
    def load_key(self) -> str:
        """The axis of the loads: that of the grid, else the scenario's own ladder."""
        varied = [f"load.{kind}" for kind in LOADS if f"load.{kind}" in self.axes]
        if varied:
            return varied[0]
        return next(f"load.{k}" for k in LOADS if getattr(self.scenario.load, k) is not None)

    @property
    def loads(self) -> Array:
        """The loads of every point."""
        given = self.axes.get(self.load_key)
        if given is None:
            given = getattr(self.scenario.load, self.load_key.removeprefix("load."))
        return np.array(given, dtype=float)

    @property
    def acceptance_key(self) -> str | None:
        """The axis of acceptance that is evaluated as an array, if there is one."""
        keys = (f"speculation.acceptance.{form}" for form in _VECTOR_FORMS)
        return next((key for key in keys if key in self.axes), None)

    @property
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
    def points_per_deployment(self) -> int:
        """Rows of one combination of the outer axes."""
        key = self.acceptance_key
        return self.loads.size * (1 if key is None else len(self.axes[key]))

    @property
    def size(self) -> int:
        """Rows of the whole grid."""
        return self.points_per_deployment * math.prod(len(v) for v in self.outer.values())

    def parts(self) -> list[range]:
        """Return runs of deployments that are about as large as each other, whoever works."""
        rows = min(max(math.ceil(self.size / _PARTS), _PART_ROWS[0]), _PART_ROWS[1])
        each = max(rows // self.points_per_deployment, 1)
        n = self.size // self.points_per_deployment
        return [range(i, min(i + each, n)) for i in range(0, n, each)]

    def combination(self, number: int) -> dict[str, Any]:
        """Return the values of the outer axes of a deployment."""
        values: dict[str, Any] = {}
        for key, options in reversed(self.outer.items()):
            number, at = divmod(number, len(options))
            values[key] = options[at]
        return {key: values[key] for key in self.outer}

    def evaluate(self, part: range) -> Columns:
        """Return the columns of the deployments of a part, axes first."""
        blocks = [block for number in part for block in self._deployment(self.combination(number))]
        return {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}

    def _deployment(self, values: dict[str, Any]) -> Iterator[Columns]:
        key = self.acceptance_key
        steps: Sequence[Any] = (None,) if key is None else self.axes[key]
        at_once = max(_MOST_AT_ONCE // self.loads.size, 1)
        for start in range(0, len(steps), at_once):
            some = steps[start : start + at_once]
            axes = self._axis_columns(values, some)
            try:
                figures = self._figures(values, some)
            except SpecsimError as error:
                status = "infeasible" if isinstance(error, InfeasibleError) else "refused"
                figures = self._empty(len(some) * self.loads.size, status, str(error))
            yield axes | figures

    def _axis_columns(self, values: dict[str, Any], steps: Sequence[Any]) -> Columns:
        n = self.loads.size
        found: Columns = {}
        for key in self.keys:
            if key == self.load_key:
                found[key] = np.tile(self.loads, len(steps))
            elif key == self.acceptance_key:
                found[key] = np.repeat(np.array(steps, dtype=float), n)
            else:
                found[key] = np.full(n * len(steps), self._as_written(key, values[key]))
        return found

    def _as_written(self, key: str, value: Any) -> int | float | str:
        """Return a value in a type that all values of its axis have."""
        kinds = {type(v) for v in self.axes[key]}
        if kinds == {int}:
            return int(value)
        return float(value) if kinds <= {int, float} else str(value)

    def _figures(self, values: dict[str, Any], steps: Sequence[Any]) -> Columns:
        key = self.acceptance_key
        overrides = dict(values)
        if key is not None:
            overrides[key] = steps[0]
        if self.load_key in self.axes:
            # Loads are the model's own arrays; a ladder in the scenario is capped at a thousand.
            overrides[self.load_key] = [float(self.loads[0])]
        method = overrides.get("speculation.method")
        if method is not None and method != self.scenario.speculation.method:
            # Another way of speculating brings its own drafter and shape.
            for name in ("drafter", "drafter_weight_dtype", "tree"):
                overrides.setdefault(f"speculation.{name}", None)
        base = self.scenario.model_dump(mode="json", exclude_none=True, exclude_unset=True)
        scenario = load_scenario(base, overrides=overrides)
        _check_loads(self.loads, self.load_key)
        deployment, laid = prepared(scenario, self.search, self.calibration)
        return self._of(deployment, laid, steps)

    def _of(self, deployment: Deployment, laid: Overlay, steps: Sequence[Any]) -> Columns:
        shape = (len(steps), self.loads.size)
        found = self._empty(len(steps) * self.loads.size, "ok", "")
        off = baseline_arm(deployment, laid.point())
        found |= self._arm(deployment, off, "off", shape)
        if deployment.acceptance is None:
            return found
        on = self._speculative(deployment, laid, steps)
        found |= self._arm(deployment, on, "on", shape)
        is_open = self.load_key == "load.request_rate"
        arms = Pair(off, on, deployment.scenario.workload, is_open)
        speedup = np.broadcast_to(arms.speedup(self.loads), shape)
        served = np.isfinite(found["tpot_ms_off"]) & np.isfinite(found["tpot_ms_on"])
        found["speedup"] = np.where(served, speedup.ravel(), np.nan)
        found["status"][~served] = "unstable"
        found["reason"][~served] = "an arm cannot serve this rate"
        if self.bands:
            low, high = self._bands(deployment, laid, steps, speedup)
            found["speedup_low"], found["speedup_high"] = low.ravel(), high.ravel()
        return found

    def _arm(self, deployment: Deployment, arm: Arm, side: str, shape: tuple[int, int]) -> Columns:
        workload = deployment.scenario.workload
        if self.load_key == "load.request_rate":
            service, _ = service_at_rates(arm, workload, self.loads)
        else:
            service = closed_loop(arm, workload, self.loads)
        served = np.where(np.isfinite(service.tpot_s), service.output_tokens_per_s, np.nan)
        figures: dict[str, Any] = {
            f"batch_{side}": service.batch,
            f"step_ms_{side}": service.step.total.total_s / MILLI,
            f"tpot_ms_{side}": service.tpot_s / MILLI,
            f"ttft_ms_{side}": service.ttft_s / MILLI,
            f"output_tok_s_{side}": served,
            f"kv_tokens_{side}": arm.budget.kv_tokens,
        }
        if side == "on":
            figures |= {
                "itl_ms_on": service.itl_s / MILLI,
                "tokens_per_step": service.step.tokens,
            }
        price = price_usd_per_gpu_hour(deployment.hardware)
        if price is not None:
            figures[f"usd_per_mtok_{side}"] = usd_per_mtok(
                usd_per_gpu_hour=price, n_gpus=deployment.n_gpus, tokens_per_s=served
            )
        found: Columns = {
            name: np.broadcast_to(np.asarray(value, dtype=float), shape).ravel().copy()
            for name, value in figures.items()
        }
        limits = np.broadcast_to(np.asarray(service.limited_by, dtype=object), shape)
        found[f"limited_by_{side}"] = limits.ravel().copy()
        return found

    def _speculative(
        self, deployment: Deployment, laid: Overlay, steps: Sequence[Any], samples: int = 0
    ) -> Arm:
        """Return the on arm at each acceptance, on an axis before the loads."""
        constants = laid.sampled(samples, SEED) if samples else laid.point()
        arm = speculative_arm(deployment, constants)
        key, model = self.acceptance_key, deployment.acceptance
        if key is None or model is None:
            return arm
        p = _positions(model, key.rpartition(".")[2], np.array(steps, dtype=float))
        tokens = model.tokens_per_step(p)[:, None]
        lengths = law.over_all_steps(
            drafting_length=law.lengths_by_k(p), proposal_rate=model.proposal_rate
        )
        return arm.with_acceptance(tokens_per_step=tokens, lengths=lengths[:, None, :])

    def _bands(
        self, deployment: Deployment, laid: Overlay, steps: Sequence[Any], speedup: Array
    ) -> tuple[Array, Array]:
        low, high = np.empty_like(speedup), np.empty_like(speedup)
        key = self.acceptance_key
        form = None if key is None else key.rpartition(".")[2]
        for i, value in enumerate(steps):
            model = deployment.acceptance
            assert model is not None, "the deployment speculates"
            if form is not None:
                model = _at(model, form, float(value))
            one = replace(deployment, acceptance=model)
            samples = pair(one, laid.sampled(_BAND_SAMPLES, SEED)).speedup(self.loads)
            known = np.where(np.all(np.isnan(samples), axis=0), 0.0, samples)
            bottom, top = np.nanpercentile(known, [10.0, 90.0], axis=0)
            low[i] = np.minimum(bottom, speedup[i])
            high[i] = np.maximum(top, speedup[i])
        return low, high

    def _empty(self, n: int, status: str, reason: str) -> Columns:
        found: Columns = {}
        for name in columns(bands=self.bands):
            if name in TEXTS:
                text = {"status": status, "reason": reason}.get(name, "")
                found[name] = np.full(n, text, dtype=object)
            else:
                found[name] = np.full(n, np.nan)
        return found


def _check_loads(loads: Array, key: str) -> None:
    """Refuse impossible loads as a scenario would."""
    kind = key.removeprefix("load.")
    worst = float(np.min(loads))
    Load(**{kind: (worst,)})


def _at(model: AcceptanceModel, form: str, value: float) -> AcceptanceModel:
    """Return the acceptance model at another value of the form that it was given in."""
    if form == "rate":
        return replace(model, known=None, length=None, rate=value)
    drafting = 1.0 + model.length_k * value
    if form == "length":
        drafting = 1.0 + (value - 1.0) / model.proposal_rate
    elif model.tree is not None:
        drafting = 1.0 + (model.tree.num_draft_tokens - 1) * value
    return replace(model, known=None, length=drafting, rate=None)


def _positions(model: AcceptanceModel, form: str, values: Array) -> Array:
    """Return P_1..P_k at each acceptance (values on the first axis).

    Raises
    ------
    UsageError
        A value that no step can yield.
    """
    top = {"rate": 1.0, "draft_acceptance_rate": 1.0, "length": model.length_k + 1.0}[form]
    bottom = 1.0 if form == "length" else 0.0
    outside = values[(values < bottom) | (values > top + 1e-9)]
    if outside.size:
        raise UsageError(
            f"speculation.acceptance.{form} {outside[0]:g}: allowed at k = {model.k} are "
            f"{bottom:g} to {top:g}"
        )
    if form == "rate" and model.tree is None:
        return np.asarray(law.positions(first_rate=values, decay=np.ones_like(values), k=model.k))
    if form != "rate":
        lengths = np.array([_at(model, form, float(v)).length for v in values])
        d = np.full(values.shape, model.decay.value)
        first = law.first_rate_from_length(target_length=lengths, decay=d, k=model.length_k)
        return np.asarray(law.positions(first_rate=first, decay=d, k=model.k))
    return np.stack([_at(model, form, float(v)).positions(model.k) for v in values])
