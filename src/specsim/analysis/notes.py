"""What was decided for the user: defaults used, warnings raised."""

from __future__ import annotations

from typing import Any

from specsim.schema.scenario import Scenario


class Notes:
    """Defaults used and warnings raised on the way."""

    def __init__(self, scenario: Scenario) -> None:
        self.defaults: list[str] = []
        self.warnings: list[str] = []
        for part, fields in (
            ("workload", ("input_tokens", "output_tokens", "arrival", "temperature")),
            ("hardware", ("tensor_parallel_size",)),
        ):
            record = getattr(scenario, part)
            for name in fields:
                if name not in record.model_fields_set:
                    self.default(f"{part}.{name} = {_written(getattr(record, name))}")
        if "load" not in scenario.model_fields_set:
            self.default("load.concurrency = 1, 2, 4 ... 256")

    def default(self, text: str) -> None:
        """Note a default."""
        self.defaults.append(text)

    def choose(self, name: str, given: Any, otherwise: Any) -> Any:
        """Return what was given, else the engine's value, noted as a default."""
        if given is not None:
            return given
        self.default(f"{name} = {_written(otherwise)} (the engine's)")
        return otherwise


def _written(value: Any) -> str:
    """Write a value as YAML would."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
