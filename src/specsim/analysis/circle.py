"""The circle of memory: a drafter takes cache, so fewer requests run, so less is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import Arm, baseline_arm, speculative_arm
from specsim.analysis.predict import kv_of
from specsim.analysis.prepare import prepared
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import closed_loop, largest_batch
from specsim.schema.calibration import Calibration
from specsim.schema.results import DOES_NOT_START, KvArm, KvResult
from specsim.schema.scenario import Scenario

Array = npt.NDArray[np.float64]
_LOADS = 60
_BEYOND = 2.0
"""How far past the larger cap curves go: far enough to see them level off."""


@dataclass(frozen=True)
class MemoryPart:
    """What a part of memory takes, speculation off or on."""

    arm: str
    """off or on."""
    part: str
    gpu_gib: float
    """On one device, on average over those of a replica. [GiB]"""
    replica_gib: float


@dataclass(frozen=True)
class Cap:
    """The most requests that run at a time in one arm."""

    fit: float
    """That the cache holds. [requests]"""
    running: float
    """That run: `max_num_seqs` may be lower. [requests]"""
    limited_by: str
    """kv or max_num_seqs."""


@dataclass(frozen=True)
class MemoryCircle:
    """Memory off and on, and what the drafter's share of it does to throughput."""

    devices: int
    gpu_memory_utilization: float
    max_model_len: int
    kv: KvResult
    parts: tuple[MemoryPart, ...]
    off: Cap
    on: Cap | None
    """None with method none."""
    loads: tuple[float, ...]
    """Requests kept in the system, from 1 to beyond both caps."""
    off_tok_s: tuple[float, ...]
    """Output tokens per second of a replica."""
    on_tok_s: tuple[float, ...]
    free_tok_s: tuple[float, ...]
    """On, had the drafter taken no cache."""
    does_not_start: tuple[str, ...]
    """What keeps the engine from starting."""

    @property
    def lost_to_cache(self) -> float | None:
        """Share of throughput at the highest load that the smaller cache costs; None: no on."""
        if not self.on_tok_s:
            return None
        return 1.0 - self.on_tok_s[-1] / self.free_tok_s[-1]


def memory_circle(
    scenario: Scenario,
    *,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
) -> MemoryCircle:
    """Return where memory goes in both arms and what follows for throughput.

    Parameters
    ----------
    scenario : Scenario
        Its load is not used: throughput is over requests kept in the system.
    calibration : Calibration or path, optional
        As for `predict`.

    Raises
    ------
    SpecsimError
        The scenario contradicts itself, or nothing is left for the cache.
    """
    deployment, laid = prepared(scenario, search, calibration)
    constants = laid.point()
    arms = {"off": baseline_arm(deployment, constants)}
    if deployment.method != "none":
        arms["on"] = speculative_arm(deployment, constants)
        # The slots that drafts are written to stay: they hold the request's own tokens next.
        arms["free"] = replace(arms["on"], budget=arms["off"].budget)
    caps = {name: _cap(deployment, arm) for name, arm in arms.items()}
    loads = _loads([cap.running for cap in caps.values()])
    workload = scenario.workload
    curves = {
        name: tuple(float(v) for v in closed_loop(arm, workload, loads).output_tokens_per_s)
        for name, arm in arms.items()
    }
    notes = [note for arm in arms.values() for note in arm.budget.notes]
    kv = kv_of(deployment)
    return MemoryCircle(
        devices=deployment.n_gpus,
        gpu_memory_utilization=deployment.gpu_memory_utilization,
        max_model_len=deployment.max_model_len,
        kv=kv,
        parts=_parts(kv, deployment),
        off=caps["off"],
        on=caps.get("on"),
        loads=tuple(float(x) for x in loads),
        off_tok_s=curves["off"],
        on_tok_s=curves.get("on", ()),
        free_tok_s=curves.get("free", ()),
        does_not_start=tuple(dict.fromkeys(n for n in notes if n.startswith(DOES_NOT_START))),
    )


def with_memory(
    scenario: Scenario,
    *,
    gpu_memory_utilization: float | None = None,
    context_tokens: float | None = None,
) -> Scenario:
    """Return a scenario with another share of memory, or with requests of another length.

    Parameters
    ----------
    gpu_memory_utilization : float, optional
        Absent: the scenario's.
    context_tokens : float, optional
        Prompt and answer of a request, in the proportion that the scenario has. [tokens]
    """
    update: dict[str, object] = {}
    if gpu_memory_utilization is not None:
        update["engine"] = scenario.engine.model_copy(
            update={"gpu_memory_utilization": gpu_memory_utilization}
        )
    if context_tokens is not None:
        w = scenario.workload
        factor = context_tokens / (w.input_tokens + w.output_tokens)
        scaled: dict[str, float] = {
            name: getattr(w, name) * factor
            for name in (
                "input_tokens",
                "output_tokens",
                "input_tokens_p95",
                "output_tokens_p95",
                "cached_prompt_tokens",
                "cached_prompt_tokens_speculative",
            )
            if getattr(w, name) is not None
        }
        scaled["output_tokens"] = max(w.output_tokens * factor, 1.0)
        scaled["input_tokens"] = context_tokens - scaled["output_tokens"]
        update["workload"] = w.model_copy(update=scaled)
    return scenario.model_copy(update=update)


def _cap(deployment: Deployment, arm: Arm) -> Cap:
    most, why = largest_batch(arm, deployment.scenario.workload)
    w = deployment.scenario.workload
    held = w.input_tokens + w.output_tokens * (1.0 if w.arrival == "burst" else 0.5)
    fit = arm.budget.sequences_that_fit(held, shared_prefix_tokens=arm.shared_prefix_tokens)
    return Cap(fit=float(fit), running=float(np.max(most)), limited_by=why)


def _loads(caps: Sequence[float]) -> Array:
    """Return whole loads from 1 to beyond the caps, the caps themselves among them."""
    top = max(_BEYOND * max(caps), 8.0)
    spread = np.geomspace(1.0, top, _LOADS)
    return np.unique(np.rint(np.concatenate([spread, caps])))


def _parts(kv: KvResult, deployment: Deployment) -> tuple[MemoryPart, ...]:
    found = []
    arms: list[tuple[str, KvArm]] = [("off", kv.baseline)]
    if deployment.method != "none":
        arms.append(("on", kv.speculative))
    for name, arm in arms:
        taken = {
            "weights": arm.weights_gib - arm.drafter_weights_gib,
            "drafter": arm.drafter_weights_gib,
            "KV cache": arm.kv_gib,
            "activations, graphs": arm.other_gib,
        }
        # What utilisation leaves out, and blocks of less full devices.
        taken["not used"] = max(kv.memory_usable_gib - sum(taken.values()), 0.0)
        found += [
            MemoryPart(name, part, gib / deployment.n_gpus, gib) for part, gib in taken.items()
        ]
    return tuple(found)
