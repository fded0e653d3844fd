"""Server time of the app's page What-if when a slider is moved: prediction, charts, the page."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

MAIN = Path(__file__).parents[1] / "app" / "main.py"


def _moved(benchmark: Any, key: str, values: list[float]) -> None:
    app = AppTest.from_file(str(MAIN), default_timeout=60).run()
    following = itertools.cycle(values)

    def move() -> None:
        app.slider(key=key).set_value(next(following)).run()

    # No value twice: a prediction that was made is kept.
    benchmark.pedantic(move, rounds=len(values) - 1)
    assert not app.exception


def test_load_is_moved(benchmark: Any) -> None:
    _moved(benchmark, "load", [33.0 + i for i in range(21)])


def test_acceptance_is_moved(benchmark: Any) -> None:
    _moved(benchmark, "length", [2.0 + 0.05 * i for i in range(21)])
