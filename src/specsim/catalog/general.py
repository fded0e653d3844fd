"""The constants that belong to no device and no engine."""

from __future__ import annotations

from functools import lru_cache

from specsim.catalog.files import data_dir, read_shipped
from specsim.schema.base import parse
from specsim.schema.general import General


@lru_cache(maxsize=1)
def load_general() -> General:
    """Return the shipped general constants."""
    path = data_dir("general.yaml")
    return parse(General, read_shipped(path), what=str(path))
