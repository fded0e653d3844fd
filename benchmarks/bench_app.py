"""Server time of each page of the app when a control is moved: prediction, charts, the page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

APP = Path(__file__).parents[1] / "app"
PAGES = ("what_if", "crossover_map", "drafters", "memory", "capacity", "calibrate", "accuracy")
BAR_MS = 150
LENGTHS = [round(1.8 + 0.05 * i, 2) for i in range(21)]
LOADS = [*range(2, 16), 18, 20, 22, 24, 26, 28, 30]
SOURCE = """
import sys
sys.path[:0] = [p for p in [{app!r}] if p not in sys.path]
from inputs import sidebar
from views.{page} import page
page(sidebar())
"""


def _moved(
    benchmark: Any, figures: list[str], page: str, key: str, values: Sequence[Any], **query: str
) -> None:
    app = AppTest.from_string(SOURCE.format(app=str(APP), page=page), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    following = itertools.cycle(values)

    def move() -> None:
        app.select_slider(key=key).set_value(next(following)).run()

    # No value twice: a prediction that was made is kept.
    benchmark.pedantic(move, rounds=len(values) - 2, warmup_rounds=2)
    assert not app.exception
    if benchmark.stats is not None:
        took_ms = benchmark.stats.stats.median * 1e3
        of = ", ".join([key, *query.values()])
        figures.append(f"{page}, {of}: {took_ms:.0f} ms (bar {BAR_MS})")


@pytest.mark.parametrize("page", PAGES)
def test_acceptance_is_moved(benchmark: Any, figures: list[str], page: str) -> None:
    _moved(benchmark, figures, page, "length", LENGTHS)


@pytest.mark.parametrize("page", PAGES)
def test_load_is_moved(benchmark: Any, figures: list[str], page: str) -> None:
    _moved(benchmark, figures, page, "load", LOADS)


@pytest.mark.parametrize("page", PAGES)
def test_acceptance_is_moved_at_an_arrival_rate(
    benchmark: Any, figures: list[str], page: str
) -> None:
    _moved(benchmark, figures, page, "length", LENGTHS, loads="per second")


@pytest.mark.parametrize("page", PAGES)
def test_acceptance_of_a_large_model_is_moved(
    benchmark: Any, figures: list[str], page: str
) -> None:
    query = {"model": "deepseek-v3", "gpu": "h200_sxm", "tp": "8", "method": "mtp", "k": "3"}
    _moved(benchmark, figures, page, "length", LENGTHS, **query)
