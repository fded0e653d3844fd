"""What the link says that no control takes: Streamlit drops it silently, so it is said here."""

from __future__ import annotations

import math
from typing import Any

import streamlit as st
from controls import words
from show import escaped
from state import BROKEN, DEFAULTS, A, B, Side

from specsim.errors import nearest

PAGE_KEYS = ("curve", "step", "map_", "drafters_", "memory_", "capacity_", "accuracy_")
"""What the keys of pages' own controls are, or begin with (a test compares them with the pages)."""
COMPARE = "compare"
_OPENED, _NOTES = "link_opened", "link_notes"
"""Where a session keeps the link that it was opened with, and what is to be said of it."""
_MOST_NOTES, _LONGEST = 6, 60


def remember() -> None:
    """Keep the link as it was opened; to be called before any control is drawn."""
    if _NOTES not in st.session_state:
        st.session_state.setdefault(_OPENED, st.query_params.to_dict())
    if BROKEN not in st.session_state:
        found = {key for key, text in st.query_params.to_dict().items() if _breaks(text)}
        st.session_state[BROKEN] = found
        for key in found:
            del st.query_params[key]


def _breaks(text: str) -> bool:
    """Whether controls end in an exception on a text, where others only leave it."""
    try:
        return not text.strip() or not math.isfinite(float(text))
    except ValueError:
        return False


def report(place: Any) -> None:
    """Say what the link asks that no control took, until it is read or the control is moved.

    A control of a page is known once its page was drawn: what it left is said on the next run
    (`unsaid`).
    """
    first = _NOTES not in st.session_state
    notes: list[tuple[str, Any, str]] = st.session_state.setdefault(_NOTES, [])
    opened: dict[str, str] = st.session_state.setdefault(_OPENED, {})
    for key, text in [*opened.items()]:
        of_page = _of_page(key)
        if of_page and key not in st.session_state:
            continue
        if of_page or first:
            note = _note(key, text)
            notes += [] if note is None else [note]
        del opened[key]
    _show(place, [
        text
        for key, used, text in notes
        if key not in st.session_state or st.session_state[key] == used
    ])  # fmt: skip


def unsaid() -> bool:
    """Whether the page that was drawn left something of the link of which nothing is said yet."""
    opened = st.session_state.get(_OPENED, {})
    return any(_of_page(key) and key in st.session_state for key in opened)


def _show(place: Any, notes: list[str]) -> None:
    if not notes:
        return
    more = len(notes) - _MOST_NOTES
    lines = notes[:_MOST_NOTES] + ([f"and {more} more"] if more > 0 else [])
    with place.container():
        st.warning("Not taken from the link:\n" + "\n".join(f"- {line}" for line in lines))
        st.button("Understood", key="link_read", on_click=_forget)


def _forget() -> None:
    st.session_state[_NOTES] = []


def _note(key: str, text: str) -> tuple[str, Any, str] | None:
    """Return a key, the value that is used in place of the link's, and that in words."""
    shown = escaped(f"{key}={text}"[:_LONGEST])
    if _of_page(key):
        used = st.session_state[key]
        return None if _same(text, used) else (key, used, f"{shown}: {escaped(str(used))} is used")
    found = _control(key)
    if found is None:
        known = [COMPARE, *(side.key(name) for side in (A, B) for name in DEFAULTS)]
        close = nearest(key, known, n=1)
        hint = f" (nearest: {escaped(close[0])})" if close else ""
        return key, None, f"{shown}: there is no such key{hint}"
    side, name = found
    # What is not drawn just now waits in the address until it is.
    if key not in st.session_state or _same(text, used := st.session_state[key]):
        return None
    allowed = "true, false" if name == COMPARE else words(side, name, text)
    return key, used, f"{shown}: {escaped(str(used))} is used (it takes {escaped(allowed)})"


def _of_page(key: str) -> bool:
    """Whether a key is that of a page's own control."""
    return _control(key) is None and key.removeprefix(B.prefix).startswith(PAGE_KEYS)


def _control(key: str) -> tuple[Side, str] | None:
    """Return the side and the name of a control of the side bar."""
    if key == COMPARE:
        return A, key
    for side in (B, A):
        name = key.removeprefix(side.prefix)
        if key.startswith(side.prefix) and name in DEFAULTS:
            return side, name
    return None


def _same(text: str, value: Any) -> bool:
    """Whether a text in a link stands for a value of a control."""
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, int | float):
        try:
            return float(text) == float(value)
        except ValueError:
            return False
    return text == str(value)
