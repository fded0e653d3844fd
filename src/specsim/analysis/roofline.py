"""Where a pass of the target stands under the device's roofline, and what binds a step, by load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import Arm, baseline_arm, speculative_arm
from specsim.analysis.maps import in_flight
from specsim.analysis.overlay import Overlay
from specsim.analysis.prepare import prepared
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import Service, closed_loop, mean_context
from specsim.catalog.hardware import gemm_constants
from specsim.physics.cost import PARTS, Num
from specsim.physics.forward import Gemm, LinearState, Network, SoftmaxAttention, forward
from specsim.physics.kernels import GemmRates
from specsim.physics.step import target_pass
from specsim.schema.calibration import Calibration
from specsim.schema.results import Bound
from specsim.schema.scenario import Scenario
from specsim.units import MILLI, TFLOP

Array = npt.NDArray[np.float64]

_NO_TIME = 1e30
"""A rate at which work takes no time."""
_FEWEST, _COLUMNS = 8.0, 48


@dataclass(frozen=True)
class Roof:
    """A limit of one device on dense multiplications in a dtype."""

    dtype: str
    tflop_per_s: float
    """Datasheet peak. [TFLOP/s]"""
    reached_tflop_per_s: float
    """What its kernels reach. [TFLOP/s]"""


@dataclass(frozen=True)
class Pass:
    """The target's pass of an arm on one device, by load."""

    arm: str
    loads: Array
    """Requests in flight. [requests]"""
    batch: Array
    """Of them, running. [requests]"""
    flop: Array
    bytes: Array
    """Weights, activations and KV cache that the pass moves. [bytes]"""
    time_s: Array

    @property
    def intensity(self) -> Array:
        """Arithmetic intensity. [FLOP/byte]."""
        return self.flop / self.bytes

    @property
    def tflop_per_s(self) -> Array:
        """What the pass achieves. [TFLOP/s]."""
        return self.flop / self.time_s / TFLOP


@dataclass(frozen=True)
class Roofline:
    """The limits of a device, and the passes of both arms under them."""

    bandwidth_gb_per_s: float
    """Datasheet memory bandwidth. [GB/s]"""
    reached_gb_per_s: float
    """What its matrix kernels reach. [GB/s]"""
    roofs: tuple[Roof, ...]
    passes: tuple[Pass, ...]
    own: float | None
    """The user's own load, which is among those of the passes. [requests]"""


@dataclass(frozen=True)
class Band:
    """Neighbouring loads at which the same cause has the largest share of a step."""

    bound: Bound
    low: float
    high: float


@dataclass(frozen=True)
class Regime:
    """A step of an arm by cause, by load."""

    arm: str
    loads: Array
    parts_ms: dict[str, Array]
    shares: dict[str, Array]
    bands: tuple[Band, ...]


@dataclass(frozen=True)
class Regimes:
    """What binds a step of each arm, by load."""

    arms: tuple[Regime, ...]
    own: float | None
    """The user's own load. [requests]"""


def roofline(
    scenario: Scenario,
    *,
    load: float | None = None,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> Roofline:
    """Return the device's limits and where the target's passes stand, by requests in flight.

    Loads are the powers of two that an engine takes, and the user's own.

    Parameters
    ----------
    load : float, optional
        The user's own: in the unit of the scenario's load; absent: the first of them.
    search, calibration
        As in `predict`.
    """
    deployment, laid = prepared(scenario, search, calibration)
    arms = _arms(deployment, laid)
    own = in_flight(deployment, arms[0][1], load)
    most = max(float(arms[0][1].max_num_seqs), _FEWEST, own or 0.0)
    powers = 2.0 ** np.arange(math.floor(math.log2(most)) + 1)
    at = np.union1d(powers, [] if own is None else [own])
    workload = deployment.scenario.workload
    sheet = deployment.hardware.datasheet
    target_dtype = gemm_constants(deployment.hardware, deployment.weight_dtype)
    return Roofline(
        bandwidth_gb_per_s=sheet.memory_bandwidth_gb_per_s,
        reached_gb_per_s=target_dtype.bandwidth_frac.value * sheet.memory_bandwidth_gb_per_s,
        roofs=_roofs(deployment),
        passes=tuple(
            _pass(name, arm, closed_loop(arm, workload, at), at, mean_context(workload))
            for name, arm in arms
        ),
        own=own,
    )


def regimes(
    scenario: Scenario,
    *,
    load: float | None = None,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> Regimes:
    """Return what binds a step of each arm. Parameters as for `roofline`."""
    deployment, laid = prepared(scenario, search, calibration)
    arms = _arms(deployment, laid)
    own = in_flight(deployment, arms[0][1], load)
    at = np.geomspace(1.0, max(float(arms[0][1].max_num_seqs), _FEWEST, own or 0.0), _COLUMNS)
    found = []
    for name, arm in arms:
        total = closed_loop(arm, deployment.scenario.workload, at).step.total
        parts = {
            part.removesuffix("_s"): np.broadcast_to(
                np.asarray(getattr(total, part), dtype=float), at.shape
            )
            / MILLI
            for part in PARTS
        }
        whole = sum(parts.values())
        shares = {part: ms / whole for part, ms in parts.items()}
        found.append(Regime(name, at, parts, shares, _bands(at, shares)))
    return Regimes(tuple(found), own)


def _bands(loads: Array, shares: dict[str, Array]) -> tuple[Band, ...]:
    """Join neighbouring loads with the same largest share; they meet at the geometric mean."""
    names = list(shares)
    largest = np.argmax(np.stack(list(shares.values())), axis=0)
    starts = [0, *(int(i) + 1 for i in np.flatnonzero(np.diff(largest)))]
    edges = [
        float(loads[0]),
        *(float(np.sqrt(loads[i - 1] * loads[i])) for i in starts[1:]),
        float(loads[-1]),
    ]
    return tuple(
        Band(cast(Bound, names[int(largest[i])]), low, high)
        for i, low, high in zip(starts, edges, edges[1:], strict=False)
    )


def _arms(deployment: Deployment, laid: Overlay) -> list[tuple[str, Arm]]:
    """Return the arms that the scenario has: off, and on where it speculates."""
    constants = laid.point()
    arms = [("off", baseline_arm(deployment, constants))]
    if deployment.method != "none":
        arms.append(("on", speculative_arm(deployment, constants)))
    return arms


def _roofs(deployment: Deployment) -> tuple[Roof, ...]:
    """Return the limits on the dtypes that the target multiplies in."""
    sheet = deployment.hardware.datasheet.dense_tflops
    found = {}
    for dtype in (deployment.weight_dtype, deployment.expert_dtype):
        constants = gemm_constants(deployment.hardware, dtype)
        peak = getattr(sheet, constants.computes_in) or sheet.bf16
        found[constants.computes_in] = Roof(
            constants.computes_in, peak, constants.compute_frac.value * peak
        )
    return tuple(found.values())


def _pass(name: str, arm: Arm, service: Service, loads: Array, context: float) -> Pass:
    """Return the decode pass of an arm's target: of one group, where the batch is split."""
    group = np.maximum(service.batch / arm.stages, np.minimum(service.batch, 1.0))
    query_tokens = np.broadcast_to(np.asarray(service.step.verify_tokens, float), loads.shape)
    time = target_pass(
        arm.target, arm.overheads, sequences=group, query_tokens=query_tokens, context=context
    )
    moved, flop = pass_work(arm.target, sequences=group, query_tokens=query_tokens, context=context)
    return Pass(
        arm=name,
        loads=loads,
        batch=np.asarray(service.batch),
        flop=np.asarray(flop),
        bytes=np.asarray(moved),
        time_s=np.asarray(time.total_s * arm.discrepancy),
    )


def pass_work(
    network: Network, *, sequences: Num, query_tokens: Num, context: Num
) -> tuple[Num, Num]:
    """Return the bytes that a decode pass moves on one device, and its FLOP.

    Notes
    -----
    The network's own counts: its pass at a rate of one byte per second and no other cost lasts as
    many seconds as it moves bytes, and so with FLOP. Rows that graphs and tiles pad are no work.
    """
    decode = {"sequences": sequences, "query_tokens": query_tokens, "context": context}
    rows = sequences * query_tokens
    moving = forward(_timed(network, 1.0, _NO_TIME), head_rows=rows, **decode)
    computing = forward(_timed(network, _NO_TIME, 1.0), head_rows=rows, **decode)
    # A recurrent layer has a rate for its state alone; its FLOP are counted per prompt token.
    recurrent = sum(
        layer.count * layer.attention.prefill_flop_per_token
        for layer in network.layers
        if isinstance(layer.attention, LinearState)
    )
    return moving.memory_s + moving.kv_s, computing.compute_s + recurrent * rows


def _timed(network: Network, bytes_per_s: float, flop_per_s: float) -> Network:
    """Return a network whose kernels have these rates and no other cost."""

    def gemm(g: Gemm) -> Gemm:
        return replace(g, rates=GemmRates(0.0, bytes_per_s, flop_per_s, 1.0))

    layers = []
    for layer in network.layers:
        attention, experts = layer.attention, layer.experts
        if isinstance(attention, SoftmaxAttention):
            rates = replace(
                attention.rates, floor_s=0.0, launch_s=0.0, bytes_per_s=bytes_per_s,
                flop_per_s=flop_per_s,
            )  # fmt: skip
            # A group this small is never padded to a tile.
            attention = replace(attention, rates=rates, query_group=1e-9)
            if attention.index_heads:
                attention = _unpadded_index(attention)
        elif isinstance(attention, LinearState):
            attention = replace(attention, launch_s=0.0, bytes_per_s=bytes_per_s)
        if experts is not None:
            moe = replace(
                experts.rates, launch_s=0.0, per_expert_s=0.0, bytes_per_s=bytes_per_s,
                flop_per_s=flop_per_s, sharpness=1.0,
            )  # fmt: skip
            experts = replace(experts, rates=moe)
        layers.append(
            replace(
                layer, gemms=tuple(map(gemm, layer.gemms)), attention=attention, experts=experts
            )
        )
    head = network.head
    return replace(
        network,
        layers=tuple(layers),
        head=None if head is None else replace(head, gemm=gemm(head.gemm), fixed_s=0.0),
        before=tuple(map(gemm, network.before)),
        table=None,
        elementwise_launch_s=0.0,
        elementwise_growth_s=0.0,
        stream_bytes_per_s=bytes_per_s,
        stage_hop_s=0.0,
    )


def _unpadded_index(attention: SoftmaxAttention) -> SoftmaxAttention:
    """Return an index whose heads are few and wide: the same FLOP, and no tile to pad to."""
    flop = attention.index_heads * attention.index_head_dim
    return replace(attention, index_heads=1e-9, index_head_dim=flop / 1e-9)
