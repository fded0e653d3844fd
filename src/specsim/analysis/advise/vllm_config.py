"""What to give vLLM: the `--speculative-config` that a decision comes to."""

from __future__ import annotations

from typing import Any

from specsim.schema.advice import Tiers
from specsim.schema.scenario import Scenario

_PARALLEL: dict[str, str] = {"p_eagle": "eagle3", "pard": "draft_model"}
"""Methods that vLLM knows as another one with `parallel_drafting`."""

_IN_THE_TARGET = ("mtp", "dspark")
"""Methods whose layers sit in the target's own checkpoint, where no other is named."""


def speculative_config(
    given: Scenario, filled: Scenario, k: int, schedule: Tiers | None
) -> dict[str, Any] | None:
    """Return the fields of vLLM's flag; None where k is 0 or another engine serves.

    Parameters
    ----------
    given, filled : Scenario
        As written, and with every default filled in.

    Notes
    -----
    The drafter is named as the scenario names it: a catalog id stands for the checkpoint's path.
    """
    speculation = given.speculation
    if k == 0 or given.engine.name != "vllm":
        return None
    config: dict[str, Any] = {"method": _PARALLEL.get(speculation.method, speculation.method)}
    if speculation.method in _PARALLEL:
        config["parallel_drafting"] = True
    drafter = speculation.drafter
    if drafter is None:
        drafter = filled.speculation.drafter
    of_the_target = speculation.method in _IN_THE_TARGET and "/" not in (drafter or "")
    if drafter is not None and not of_the_target:
        config["model"] = drafter
    config["num_speculative_tokens"] = k
    if speculation.draft_tensor_parallel_size is not None:
        config["draft_tensor_parallel_size"] = speculation.draft_tensor_parallel_size
    if speculation.adaptive_verification:
        config["enable_adaptive_verification"] = True
    if schedule is not None:
        config["num_speculative_tokens_per_batch_size"] = [list(tier) for tier in schedule]
    return config
