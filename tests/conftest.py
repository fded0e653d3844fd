"""Fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the data folder beside the checkout."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the data folder ../shared")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the data folder, so that they can be left out by name."""
    for item in items:
        if "shared" in getattr(item, "fixturenames", ()):
            item.add_marker("shared")
