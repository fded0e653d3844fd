"""The web app: pages over one scenario, which lives in the address."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path

sys.path[:0] = [p for p in [str(Path(__file__).parent)] if p not in sys.path]

import link  # noqa: E402 - the folder of the app is looked up first
import streamlit as st  # noqa: E402
from inputs import sidebar  # noqa: E402
from state import Asked, calibration  # noqa: E402

# Pages by their module in `views`, imported when they are opened; the first is the start.
PAGES = {
    "what_if": "What-if",
    "crossover_map": "Crossover map",
    "drafters": "Drafters",
    "memory": "Memory",
    "capacity": "Capacity & cost",
    "calibrate": "Calibrate",
    "accuracy": "Accuracy",
}

_SIDEBAR_PX = 340
"""Wide enough for the longest words of its controls."""


def draw(name: str, asked: list[Asked]) -> None:
    """Draw a page, under its name: a narrow screen folds the others away."""
    st.markdown(f"##### {PAGES[name]}")
    importlib.import_module(f"views.{name}").page(asked)


def main() -> None:
    """Draw the page that was asked for."""
    st.set_page_config(
        page_title="specsim", page_icon="📈", layout="wide", initial_sidebar_state=_SIDEBAR_PX
    )
    asked = sidebar()
    if calibration() is not None:
        importlib.import_module("views.calibrate").in_use()
    pages = [
        st.Page(
            functools.partial(draw, name, asked),
            title=title,
            url_path=name.replace("_", "-"),
            default=name == next(iter(PAGES)),
        )
        for name, title in PAGES.items()
        if (Path(__file__).parent / "views" / f"{name}.py").is_file()
    ]
    st.navigation(pages, position="top").run()
    if link.unsaid():
        st.rerun()


main()
