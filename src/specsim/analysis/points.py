"""From arrays to the records that people read: one point per load."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import Arm
from specsim.analysis.curves import service_at_rates
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import OpenLoop, Service, closed_loop
from specsim.catalog.hardware import price_usd_per_gpu_hour
from specsim.physics.cost import PARTS, Cost
from specsim.physics.economics import usd_per_mtok
from specsim.schema.results import BaselinePoint, Bound, LimitedBy, Point, SpeculativePoint
from specsim.units import MILLI

Array = npt.NDArray[np.float64]


class _Reader:
    """Reads one load out of an arm's arrays."""

    def __init__(
        self, deployment: Deployment, arm: Arm, loads: Array, *, is_open: bool,
        curve: OpenLoop | None,
    ) -> None:  # fmt: skip
        workload = deployment.scenario.workload
        self.loads, self.is_open = loads, is_open
        self.largest_rate = np.inf
        if is_open:
            self.service, curve = service_at_rates(arm, workload, loads, curve)
            self.largest_rate = float(np.max(curve.largest_stable_rate))
            self.cap = curve.limited_by
        else:
            self.service = closed_loop(arm, workload, loads)
        self.usd_per_hour = price_usd_per_gpu_hour(deployment.hardware)
        self.n_gpus = deployment.n_gpus
        self.all_tokens = (workload.input_tokens + workload.output_tokens) / workload.output_tokens

    def served(self, i: int) -> bool:
        return bool(self.loads[i] <= self.largest_rate)

    def number(self, values: object, i: int) -> float:
        array = np.asarray(values, dtype=float)
        return float(np.broadcast_to(array, self.loads.shape)[i])

    def ms(self, seconds: object, i: int) -> float:
        return self.number(seconds, i) / MILLI

    def parts_ms(self, cost: Cost, i: int) -> dict[str, float]:
        return {name.removesuffix("_s"): self.ms(getattr(cost, name), i) for name in PARTS}

    def usd(self, i: int, *, output_only: bool) -> float | None:
        if self.usd_per_hour is None:
            return None
        tokens = self.number(self.service.output_tokens_per_s, i)
        price = usd_per_mtok(
            usd_per_gpu_hour=self.usd_per_hour,
            n_gpus=self.n_gpus,
            tokens_per_s=tokens * (1.0 if output_only else self.all_tokens),
        )
        return float(price)

    def baseline(self, i: int) -> BaselinePoint:
        s: Service = self.service
        parts = self.parts_ms(s.step.total, i)
        return BaselinePoint(
            batch=self.number(s.batch, i),
            limited_by=cast(LimitedBy, str(s.limited_by[i])),
            step_ms=self.ms(s.step.total.total_s, i),
            tpot_ms=self.ms(s.tpot_s, i),
            ttft_ms=self.ms(s.ttft_s, i),
            output_tok_s=self.number(s.output_tokens_per_s, i),
            usd_per_mtok=self.usd(i, output_only=True),
            usd_per_mtok_total=self.usd(i, output_only=False),
            bound=_bound(parts),
            parts_ms=parts,
        )

    def speculative(self, i: int) -> SpeculativePoint:
        s: Service = self.service
        parts = self.parts_ms(s.step.total, i)
        return SpeculativePoint(
            batch=self.number(s.batch, i),
            limited_by=cast(LimitedBy, str(s.limited_by[i])),
            step_ms=self.ms(s.step.total.total_s, i),
            draft_ms=self.ms(s.step.draft.total_s, i),
            verify_ms=self.ms(s.step.verify.total_s, i),
            host_ms=self.ms(s.step.host.total_s, i),
            tokens_per_step=self.number(s.step.tokens, i),
            verify_tokens=self.number(s.step.verify_tokens, i),
            tpot_ms=self.ms(s.tpot_s, i),
            itl_ms=self.ms(s.itl_s, i),
            ttft_ms=self.ms(s.ttft_s, i),
            output_tok_s=self.number(s.output_tokens_per_s, i),
            usd_per_mtok=self.usd(i, output_only=True),
            usd_per_mtok_total=self.usd(i, output_only=False),
            bound=_bound(parts),
            parts_ms=parts,
        )


def build_points(
    deployment: Deployment,
    baseline: Arm,
    speculative: Arm | None,
    loads: Array,
    *,
    speedup: Array | None,
    low: Array | None,
    high: Array | None,
    curves: tuple[OpenLoop | None, OpenLoop | None] = (None, None),
) -> tuple[Point, ...]:
    """Return both arms at each load.

    Parameters
    ----------
    speculative : Arm, optional
        None with method none: then the points have the off arm only.
    speedup, low, high : array, optional
        On / off and its band at the loads.
    curves : (OpenLoop, OpenLoop), optional
        Both arms by arrival rate, where they are known already.
    """
    is_open = deployment.scenario.load.request_rate is not None
    off_curve, on_curve = curves
    off = _Reader(deployment, baseline, loads, is_open=is_open, curve=off_curve)
    on = None
    if speculative is not None:
        on = _Reader(deployment, speculative, loads, is_open=is_open, curve=on_curve)
    points = []
    for i, load in enumerate(loads):
        both = on is not None and off.served(i) and on.served(i)
        points.append(
            Point(
                concurrency=None if is_open else float(load),
                request_rate=float(load) if is_open else None,
                baseline=off.baseline(i) if off.served(i) else None,
                speculative=on.speculative(i) if on is not None and on.served(i) else None,
                speedup=float(speedup[i]) if both and speedup is not None else None,
                speedup_low=float(low[i]) if both and low is not None else None,
                speedup_high=float(high[i]) if both and high is not None else None,
                note=_note(off, on, low, i),
            )
        )
    return tuple(points)


def _note(off: _Reader, on: _Reader | None, low: Array | None, i: int) -> str:
    notes = []
    for name, reader in (("off", off), ("on", on)):
        if reader is not None and not reader.served(i):
            notes.append(
                f"{name}: unstable at this rate, the largest stable rate is "
                f"{reader.largest_rate:.3g} requests/s ({reader.cap})"
            )
    if not notes and low is not None and low[i] == 0.0:
        notes.append("close to saturation: within the band speculation may not serve this rate")
    return "; ".join(notes)


def _bound(parts: dict[str, float]) -> Bound:
    return cast(Bound, max(parts, key=lambda name: parts[name]))
