"""The number of draft tokens that serves each load fastest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from specsim.analysis.arms import with_k
from specsim.analysis.constants import Constants
from specsim.analysis.curves import Pair
from specsim.analysis.drafting import most_tokens
from specsim.analysis.resolve import Deployment
from specsim.schema.model import DrafterSpec
from specsim.schema.results import BestK

Array = npt.NDArray[np.float64]

_SEARCHED_K = 8


def searched_k(deployment: Deployment) -> Array:
    """Return the draft tokens that are tried, from 1 on: those that the drafter can. [tokens]."""
    k = max(_SEARCHED_K, deployment.num_speculative_tokens)
    drafter = deployment.drafter
    most = most_tokens(drafter) if isinstance(drafter, DrafterSpec) else None
    return np.arange(1.0, (k if most is None else min(k, most)) + 1.0)


def best_k(
    deployment: Deployment, constants: Constants, arms: Pair, loads: Array
) -> tuple[BestK, ...]:
    """Return the k that serves each load fastest, 0 where off does.

    A tree has a shape, not one k: only its own is compared with off.
    """
    if loads.size == 0:
        return ()
    ks = searched_k(deployment)
    if deployment.scenario.speculation.tree is not None:
        ks = np.array([float(deployment.num_speculative_tokens)])
    on = with_k(arms.speculative, deployment, constants, ks[:, None])
    speedup = replace(arms, speculative=on).speedup(loads)
    speedup = np.where(np.isfinite(speedup), speedup, 0.0)
    found = []
    for j, load in enumerate(loads):
        i = int(np.argmax(speedup[:, j]))
        pays = speedup[i, j] > 1.0
        found.append(
            BestK(float(load), int(ks[i]) if pays else 0, float(speedup[i, j]) if pays else 1.0)
        )
    return tuple(found)
