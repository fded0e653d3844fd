"""What `import specsim` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import specsim


def test_public_names_are_sorted_and_there() -> None:
    assert specsim.__all__ == sorted(specsim.__all__)
    for name in specsim.__all__:
        assert callable(getattr(specsim, name)), name
        assert getattr(specsim, name).__doc__, name


def test_public_names_of_this_release() -> None:
    assert set(specsim.__all__) >= {"crossover", "kv_budget", "load_scenario", "predict"}
    assert set(specsim.__all__) <= {
        "advise", "calibrate", "crossover", "export_workbook", "kv_budget", "load_scenario",
        "plan", "predict", "read_measurements", "simulate", "sweep", "validate",
    }  # fmt: skip


def test_names_are_listed_before_they_are_loaded() -> None:
    assert set(specsim.__all__) <= set(dir(specsim))


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'specsim' has no attribute 'forecast'"):
        _ = specsim.forecast


def test_a_prediction_from_python() -> None:
    scenario = specsim.load_scenario(
        {
            "target": {"model": "llama-3.1-8b"},
            "hardware": {"accelerator": "h100_sxm"},
            "speculation": {"method": "ngram", "num_speculative_tokens": 3,
                            "acceptance": {"rate": 0.5}},
        }
    )  # fmt: skip
    assert specsim.predict(scenario).points[0].speedup is not None
    assert specsim.kv_budget(scenario).lost_tokens == 0
    assert specsim.crossover(scenario) == specsim.predict(scenario).crossover


def test_import_loads_nothing() -> None:
    code = (
        "import specsim, sys; print(sorted(m for m in ('numpy', 'pydantic') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
