"""What one deployment does at acceptances x loads: the figures of a block of a grid's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.analysis.acceptance import AcceptanceModel
from specsim.analysis.arms import Arm, baseline_arm, speculative_arm
from specsim.analysis.curves import band, service_at_rates
from specsim.analysis.overlay import Overlay
from specsim.analysis.prepare import N_SAMPLES, SEED
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import Service, closed_loop
from specsim.catalog.hardware import price_usd_per_gpu_hour
from specsim.physics import acceptance as law
from specsim.physics.economics import usd_per_mtok
from specsim.schema.grid import TEXTS, columns
from specsim.units import MILLI

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Columns = dict[str, npt.NDArray[Any]]

ANYTIME = {"rate": 0.5, "length": 1.0, "draft_acceptance_rate": 0.0}
"""Forms of acceptance that are evaluated as arrays, each with a value that every k allows."""
_BAND_LOADS = 1000
"""Loads whose samples are in memory at a time."""
_ROUNDING = 1e-9
"""How far a length may be above the most: sums of decimals are."""


@dataclass(frozen=True)
class Block:
    """One deployment over acceptances (first axis) and loads (last axis)."""

    deployment: Deployment
    laid: Overlay
    loads: Array
    form: str | None = None
    """Form of acceptance of `values`; None: the deployment's own acceptance alone."""
    values: Sequence[float] = ()
    bands: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Acceptances and loads."""
        return (len(self.values) if self.form else 1, self.loads.size)

    @property
    def _is_open(self) -> bool:
        return self.deployment.scenario.load.request_rate is not None

    def figures(self) -> Columns:
        """Return the columns beside the axes, rows by acceptance and then by load."""
        found = empty_figures(self.shape[0] * self.shape[1], bands=self.bands)
        off = self._served(baseline_arm(self.deployment, self.laid.point()))
        found |= self._arm(off, "off")
        can_off = np.broadcast_to(np.isfinite(off[1].tpot_s), self.shape)
        model = self.deployment.acceptance
        if model is None:
            self._say_unstable(found, {"off": can_off})
            return found
        p, refused = self._positions(model)
        on = self._served(self._speculative(model, p))
        found |= self._arm(on, "on")
        can_on = np.broadcast_to(np.isfinite(on[1].tpot_s), self.shape)
        speedup = np.where(can_off & can_on, self._speedup(off[1], on[1]), np.nan)
        found["speedup"] = speedup.ravel()
        self._say_unstable(found, {"off": can_off, "on": can_on})
        if self.bands:
            low, high = self._bands(model, speedup, refused)
            found["speedup_low"], found["speedup_high"] = low.ravel(), high.ravel()
        for i, reason in refused.items():
            rows = slice(i * self.loads.size, (i + 1) * self.loads.size)
            nothing = empty_figures(self.loads.size, "refused", reason, bands=self.bands)
            for name, values in nothing.items():
                found[name][rows] = values
        return found

    def _served(self, arm: Arm) -> tuple[Arm, Service]:
        workload = self.deployment.scenario.workload
        if self._is_open:
            return arm, service_at_rates(arm, workload, self.loads)[0]
        return arm, closed_loop(arm, workload, self.loads)

    def _speedup(self, off: Service, on: Service) -> Array:
        """Return on / off as `Pair.speedup` does, from services that are there already."""
        if not self._is_open:
            return np.asarray(on.output_tokens_per_s / off.output_tokens_per_s)
        # An answer of one token has no time per token: its first token is all there is.
        metric = "tpot_s" if self.deployment.scenario.workload.output_tokens > 1.0 else "ttft_s"
        without, with_ = np.asarray(getattr(off, metric)), np.asarray(getattr(on, metric))
        return np.where(np.isfinite(without) & ~np.isfinite(with_), 0.0, without / with_)

    def _arm(self, served: tuple[Arm, Service], side: str) -> Columns:
        arm, service = served
        can = np.isfinite(service.tpot_s)
        output_tok_s = service.output_tokens_per_s
        figures: dict[str, Any] = {
            f"batch_{side}": service.batch,
            f"step_ms_{side}": service.step.total.total_s / MILLI,
            f"tpot_ms_{side}": service.tpot_s / MILLI,
            f"ttft_ms_{side}": service.ttft_s / MILLI,
            f"output_tok_s_{side}": output_tok_s,
        }
        if side == "on":
            figures["itl_ms_on"] = service.itl_s / MILLI
            figures["tokens_per_step"] = service.step.tokens
        price = price_usd_per_gpu_hour(self.deployment.hardware)
        if price is not None:
            figures[f"usd_per_mtok_{side}"] = usd_per_mtok(
                usd_per_gpu_hour=price, n_gpus=self.deployment.n_gpus, tokens_per_s=output_tok_s
            )
        # An arm that cannot serve a rate has a cache, and nothing else that can be said.
        found = {name: self._rows(np.where(can, v, np.nan), float) for name, v in figures.items()}
        found[f"kv_tokens_{side}"] = self._rows(arm.budget.kv_tokens, float)
        found[f"limited_by_{side}"] = self._rows(np.where(can, service.limited_by, ""), object)
        return found

    def _rows(self, values: Any, dtype: type) -> npt.NDArray[Any]:
        return np.broadcast_to(np.asarray(values, dtype=dtype), self.shape).flatten()

    def _say_unstable(self, found: Columns, can: dict[str, Mask]) -> None:
        sides = {side: ~served.ravel() for side, served in can.items()}
        for names in (("off",), ("on",), ("off", "on")):
            if not sides.keys() >= set(names):
                continue
            rows = np.logical_and.reduce([sides[name] for name in names])
            found["status"][rows] = "unstable"
            found["reason"][rows] = f"{' and '.join(names)}: cannot serve this rate"

    def _speculative(self, model: AcceptanceModel, p: Array | None) -> Arm:
        """Return the on arm, at each acceptance on an axis before the loads."""
        arm = speculative_arm(self.deployment, self.laid.point())
        if p is None:
            return arm
        lengths = law.over_all_steps(
            drafting_length=law.lengths_by_k(p), proposal_rate=model.proposal_rate
        )
        return arm.with_acceptance(
            tokens_per_step=model.tokens_per_step(p)[:, None], lengths=lengths[:, None, :]
        )

    def _positions(self, model: AcceptanceModel) -> tuple[Array | None, dict[int, str]]:
        """Return P_1..P_k at each acceptance, and why some of them cannot be, by number."""
        if self.form is None:
            return None, {}
        bottom, top = _range(model, self.form)
        values = np.asarray(self.values, dtype=float)
        possible = (values >= bottom) & (values <= top + _ROUNDING)
        refused = {
            int(i): f"speculation.acceptance.{self.form} {values[i]:g}: allowed at k = {model.k} "
            f"are {bottom:g} to {top:g}"
            for i in np.flatnonzero(~possible)
        }
        return _positions(model, self.form, np.where(possible, values, bottom)), refused

    def _bands(
        self, model: AcceptanceModel, speedup: Array, refused: dict[int, str]
    ) -> tuple[Array, Array]:
        low, high = np.full(self.shape, np.nan), np.full(self.shape, np.nan)
        constants = self.laid.sampled(N_SAMPLES, SEED)
        for start in range(0, self.loads.size, _BAND_LOADS):
            at = slice(start, start + _BAND_LOADS)
            some = replace(self, loads=self.loads[at])
            _, off = some._served(baseline_arm(self.deployment, constants))
            for i in set(range(self.shape[0])) - refused.keys():
                accepted = model
                if self.form is not None:
                    accepted = _at(model, self.form, float(self.values[i]))
                one = replace(self.deployment, acceptance=accepted)
                _, on = some._served(speculative_arm(one, constants))
                samples = self._speedup(off, on)
                low[i, at], high[i, at] = band(speedup[i, at], samples)
        return low, high


def empty_figures(n: int, status: str = "ok", reason: str = "", *, bands: bool) -> Columns:
    """Return the columns of `n` rows without figures."""
    found: Columns = {}
    for name in columns(bands=bands):
        if name in TEXTS:
            text = {"status": status, "reason": reason}.get(name, "")
            found[name] = np.full(n, text, dtype=object)
        else:
            found[name] = np.full(n, np.nan)
    return found


def _range(model: AcceptanceModel, form: str) -> tuple[float, float]:
    """Return the least and the most that a form of acceptance can be at this k."""
    if form == "length":
        return 1.0, 1.0 + model.proposal_rate * model.length_k
    if form == "draft_acceptance_rate" and model.tree is not None:
        # A branch at most is accepted, whatever else of the tree was drafted.
        return 0.0, min(1.0, model.length_k / model.drafted_tokens())
    return 0.0, 1.0


def _at(model: AcceptanceModel, form: str, value: float) -> AcceptanceModel:
    """Return the acceptance model at another value of the form that it was given in."""
    if form == "rate":
        return replace(model, known=None, length=None, rate=value)
    if form == "length":
        drafting = 1.0 + (value - 1.0) / model.proposal_rate
    elif model.tree is not None:
        drafting = 1.0 + model.drafted_tokens() * value
    else:
        drafting = 1.0 + model.length_k * value
    return replace(model, known=None, length=drafting, rate=None)


def _positions(model: AcceptanceModel, form: str, values: Array) -> Array:
    """Return P_1..P_k at each acceptance (values on the first axis)."""
    if form == "rate" and model.tree is not None:
        return np.stack([_at(model, form, float(v)).positions(model.k) for v in values])
    d = np.ones_like(values)
    first = values
    if form != "rate":
        lengths = np.array([_at(model, form, float(v)).length for v in values])
        d = np.full(values.shape, model.decay.value)
        first = law.first_rate_from_length(target_length=lengths, decay=d, k=model.length_k)
    return np.asarray(law.positions(first_rate=first, decay=d, k=model.k))
