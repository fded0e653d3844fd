"""Altair and its renderer, which only `--charts` needs, and the look that charts share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specsim.errors import InputError, MissingExtraError

COLOURS = ("#8a8f98", "#2458a6", "#b3261e", "#2e7d32", "#8e5bb5")
"""Off first, then on by k."""


def altair() -> Any:
    """Return the module Altair, able to write SVG.

    Raises
    ------
    MissingExtraError
        It or its renderer is not installed.
    """
    try:
        import altair as alt
        import vl_convert  # noqa: F401 - what Altair writes SVG with
    except ImportError as error:
        raise MissingExtraError(
            "charts need Altair and vl-convert: pip install 'specsim-llm[charts]'"
        ) from error
    return alt


def stroke_legend(alt: Any, **more: Any) -> Any:
    """Return a legend that shows lines as lines."""
    return alt.Legend(
        symbolType="stroke", symbolStrokeWidth=2.5, symbolSize=300, symbolOpacity=1, **more
    )


def write_svg(chart: Any, path: Path) -> Path:
    """Write a chart, making its folder.

    Raises
    ------
    InputError
        It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        chart.save(str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path
