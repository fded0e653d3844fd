"""One workbook, made once: two scenarios, a closed and an open loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from specsim.catalog.scenario import load_scenario
from specsim.export.workbook.book import Book, book
from specsim.export.workbook.subjects import Asked
from specsim.schema.traffic import Traffic

EXAMPLE = Path(__file__).parents[4] / "examples" / "llama-3.1-8b-eagle3-h100.yaml"


@pytest.fixture(scope="session")
def made() -> Book:
    """Return the sheets."""
    scenarios = [
        load_scenario(EXAMPLE),
        load_scenario(EXAMPLE, overrides={"name": "open", "load.request_rate": [2, 5]}),
    ]
    traffic = Traffic(requests_per_month=20e6, target_utilization=0.8)
    return book(scenarios, Asked(traffic=traffic))


@pytest.fixture(scope="session")
def path(made: Book, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file."""
    found = tmp_path_factory.mktemp("workbook") / "plan.xlsx"
    made.save(found)
    return found
