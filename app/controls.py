"""What each control of the side bar takes: its choices, or its range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st
from state import (
    DEFAULTS,
    FORMS,
    PER_SECOND,
    UNSAID,
    Side,
    devices,
    drafters_of,
    models,
)

from specsim.analysis.maps import load_stops
from specsim.catalog.acceptance import profile_ids
from specsim.catalog.engines import engine_versions
from specsim.errors import nearest

TP = (1, 2, 4, 8, 16)
MOST_LOAD = 4096
RANGES: dict[str, tuple[float, float]] = {
    "k": (1, 16), "load": (1, MOST_LOAD), "rate": (0.0, 1.0), "draft_rate": (0.0, 1.0),
    "input_tokens": (1, 1_000_000), "output_tokens": (1, 1_000_000), "temperature": (0.0, 2.0),
    "request_rate": (1e-6, 1e9),
}  # fmt: skip
"""Least and most of each number; whole ones are counts."""
LOADS = load_stops(MOST_LOAD)
"""Stops of the load: every one at first, then eight an octave, as loads differ by ratios."""
_FEW = 4
FREE = frozenset({"model", "settings", "positions"})
"""Controls that take any text."""


@st.cache_data(show_spinner=False)
def engines() -> list[str]:
    """Return the engines that can be chosen, the newest version first."""
    return [UNSAID["engine"], *(f"vllm@{v}" for v in reversed(engine_versions("vllm"))), "sglang"]


def choices(name: str, *, model: str, method: str) -> Sequence[Any] | None:
    """Return what can be chosen in a control; None where it takes a number or any text."""
    if name == "drafter":
        if method == "draft_model":
            return [UNSAID["drafter"], *models()]
        return [UNSAID["drafter"], *drafters_of(model).get(method, ())]
    if name == "profile":
        known = profile_ids()
        return [p for p in known if p.startswith(f"{method}/")] or known
    found: dict[str, Sequence[Any]] = {
        "model": models(),
        "gpu": devices(),
        "tp": TP,
        "dtype": (UNSAID["dtype"], "bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4"),
        "kv_dtype": (UNSAID["kv_dtype"], "bf16", "fp8"),
        "method": ("none", "ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp", "medusa",
                   "dflash", "dspark", "p_eagle", "pard"),
        "draft_tp": (UNSAID["draft_tp"], *map(str, TP)),
        "acceptance": tuple(FORMS),
        "loads": ("in flight", PER_SECOND),
        "engine": engines(),
    }  # fmt: skip
    return found.get(name)


def bounds(name: str, *, k: int) -> tuple[float, float] | None:
    """Return least and most of a number; None where the control takes none."""
    return (1.0, k + 1.0) if name == "length" else RANGES.get(name)


def chosen_from(side: Side, name: str) -> list[Any]:
    """Return what a control of a side offers, as its other controls stand."""
    found = choices(name, model=str(side.get("model")), method=str(side.get("method")))
    return list(found or ())


def fits(name: str, value: Any, said: dict[str, Any]) -> bool:
    """Whether a control takes a value, with the others as said."""
    if name in FREE or (name == "drafter" and said["method"] == "draft_model"):
        return isinstance(value, str)
    offered = choices(name, model=str(said["model"]), method=str(said["method"]))
    if offered is not None:
        return value in offered
    low, high = bounds(name, k=int(said["k"])) or (0.0, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        return False
    return isinstance(low, float) or float(value).is_integer()


def words(side: Side, name: str, asked: str) -> str:
    """Return what a control takes, in words: of many choices those like what was asked."""
    limits = bounds(name, k=int(side.get("k")))
    if limits is not None:
        return f"{limits[0]:,g} to {limits[1]:,.7g}"
    offered = [str(choice) for choice in chosen_from(side, name)]
    if len(offered) <= _FEW:
        return ", ".join(offered)
    like = [choice for choice in offered if asked and asked.lower() in choice.lower()]
    return ", ".join([*(like or nearest(asked, offered) or offered)[:_FEW], "..."])


def start_of(name: str, offered: Sequence[Any]) -> int:
    """Return the index of the choice that a control starts from."""
    return list(offered).index(DEFAULTS[name]) if DEFAULTS[name] in offered else 0
