"""Whether all servers of a sweep fit at once, and on which devices."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.catalog.hardware import load_hardware
from specsim.errors import SpecsimError, UsageError
from specsim.schema.sweep import SweepPlan


@dataclass(frozen=True)
class Placement:
    """How the servers of a sweep are placed.

    Attributes
    ----------
    together : bool
        All are up at once.
    devices : mapping of str
        CUDA_VISIBLE_DEVICES by arm; empty: as the environment has it.
    shared : bool
        Servers share devices, so that they must start one after the other: vLLM measures the
        memory that is free while it starts.
    reason : str
        Why, in a sentence.
    """

    together: bool
    devices: Mapping[str, str]
    shared: bool
    reason: str


def place(plan: SweepPlan, *, search: Sequence[Path] = ()) -> Placement:
    """Decide where the servers of a plan run.

    Raises
    ------
    UsageError
        Fewer devices than one replica needs.
    """
    hardware = plan.scenario.hardware
    each = hardware.tensor_parallel_size * hardware.pipeline_parallel_size
    n_arms = len(plan.arms)
    if n_arms == 1:
        return Placement(True, {}, False, "one server")
    if plan.servers == "one":
        return Placement(False, {}, False, "one server at a time, as asked")
    if _is_cpu(hardware.accelerator, search):
        return Placement(True, {}, False, f"{n_arms} servers at once, on the CPU")
    visible = visible_gpus()
    if len(visible) >= n_arms * each:
        devices = {
            arm.name: ",".join(visible[i * each : (i + 1) * each])
            for i, arm in enumerate(plan.arms)
        }
        return Placement(True, devices, False, f"{n_arms} servers at once, on GPUs of their own")
    if plan.servers == "both":
        return Placement(True, {}, True, f"{n_arms} servers at once on the same GPUs, as asked")
    if 0 < len(visible) < each:
        raise UsageError(
            f"a replica needs {each} GPUs and {len(visible)} are visible; "
            "set CUDA_VISIBLE_DEVICES or --tensor-parallel-size"
        )
    return Placement(
        False, {}, False,
        f"one server at a time: {n_arms} need {n_arms * each} GPUs, {len(visible)} are visible",
    )  # fmt: skip


def visible_gpus() -> list[str]:
    """Return the devices that CUDA_VISIBLE_DEVICES names, else those that nvidia-smi lists."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [word for word in named.split(",") if word]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(i) for i, line in enumerate(listed.stdout.splitlines()) if line.strip()]


def _is_cpu(accelerator: str, search: Sequence[Path]) -> bool:
    if os.environ.get("VLLM_TARGET_DEVICE") == "cpu":
        return True
    try:
        return load_hardware(accelerator, search=search).identity.architecture == "cpu"
    except SpecsimError:
        return False  # unknown hardware can be measured as well
