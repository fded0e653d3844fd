"""When does speculative decoding pay? An analytical cost and crossover simulator.

The public names are those of `__all__`; everything else may change. They are loaded on first
use, so that importing specsim costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from specsim._version import __version__ as __version__

if TYPE_CHECKING:
    from specsim.analysis.advise.advise import advise
    from specsim.analysis.plan.plan import plan
    from specsim.analysis.predict import kv_result as kv_budget
    from specsim.analysis.predict import predict
    from specsim.analysis.predict import predict_crossover as crossover
    from specsim.analysis.simulation.simulate import simulate
    from specsim.calibration.calibrate import calibrate
    from specsim.catalog.scenario import load_scenario
    from specsim.export.grid_files import sweep
    from specsim.export.workbook.book import export_workbook
    from specsim.measure.read import read_measurements
    from specsim.validation.summary import validate

_PUBLIC = {
    "advise": ("specsim.analysis.advise.advise", "advise"),
    "calibrate": ("specsim.calibration.calibrate", "calibrate"),
    "crossover": ("specsim.analysis.predict", "predict_crossover"),
    "export_workbook": ("specsim.export.workbook.book", "export_workbook"),
    "kv_budget": ("specsim.analysis.predict", "kv_result"),
    "load_scenario": ("specsim.catalog.scenario", "load_scenario"),
    "plan": ("specsim.analysis.plan.plan", "plan"),
    "predict": ("specsim.analysis.predict", "predict"),
    "read_measurements": ("specsim.measure.read", "read_measurements"),
    "simulate": ("specsim.analysis.simulation.simulate", "simulate"),
    "sweep": ("specsim.export.grid_files", "sweep"),
    "validate": ("specsim.validation.summary", "validate"),
}

__all__ = [
    "advise",
    "calibrate",
    "crossover",
    "export_workbook",
    "kv_budget",
    "load_scenario",
    "plan",
    "predict",
    "read_measurements",
    "simulate",
    "sweep",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        module, attribute = _PUBLIC[name]
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'specsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
