"""What a scenario is of, and a measured figure beside the predicted one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsim.catalog.hardware import file_key, load_hardware
from specsim.catalog.models import canonical_id
from specsim.schema.evidence import Evidence, EvidenceMetric
from specsim.schema.scenario import Scenario

_UNITS: dict[EvidenceMetric, str] = {
    "speedup": "", "tpot_ms": "ms", "output_tok_s": "tok/s", "ttft_ms": "ms",
}  # fmt: skip


@dataclass(frozen=True)
class Identity:
    """What a scenario is of, under every name that it goes by."""

    model: str
    accelerator: str
    accelerator_keys: frozenset[str]
    method: str

    @classmethod
    def of(cls, scenario: Scenario, search: Sequence[Path]) -> Identity:
        """Return it for a scenario, whose device is looked up."""
        device = load_hardware(scenario.hardware.accelerator, search=search).identity
        return cls(
            model=model_id(scenario.target.model),
            accelerator=device.id,
            accelerator_keys=frozenset(map(file_key, (device.id, *device.aliases))),
            method=scenario.speculation.method,
        )


def model_id(name: str) -> str:
    """Return the catalog's name of a model, or the given one where it has none."""
    return canonical_id(name) or name


def compared(
    about: Mapping[str, Any],
    metric: EvidenceMetric,
    measured: float,
    predicted: float | None,
    low: float | None = None,
    high: float | None = None,
) -> Evidence:
    """Return a row: what was measured, what is predicted, and whether its band held.

    Parameters
    ----------
    about : mapping
        The other fields of `Evidence`.
    """
    if predicted is None or low is None or high is None:
        low = high = None
    return Evidence(
        **about,
        metric=metric,
        unit=_UNITS[metric],
        measured=measured,
        predicted=predicted,
        predicted_low=low,
        predicted_high=high,
        error_pct=None if predicted is None else 100.0 * (predicted / measured - 1.0),
        in_interval=None if low is None or high is None else low <= measured <= high,
    )
