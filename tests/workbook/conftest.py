"""The fixture of tests that need LibreOffice; they are slow, and skip where there is none."""

from __future__ import annotations

from types import ModuleType

import office as support
import pytest


@pytest.fixture(scope="session")
def office() -> ModuleType:
    """Return the module `office` where LibreOffice is, or can be installed."""
    if support.soffice() is None:
        pytest.skip(support.missing())
    return support


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start LibreOffice, so that `make test` leaves them out."""
    for item in items:
        if "office" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
