"""Pages of the app, as tests read them."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def with_numbers(at: AppTest) -> AppTest:
    """Open the table under every chart, which is made when it is opened."""
    for each in at.expander:
        if each.label == "Numbers":
            at.session_state[each.key] = True
    return at.run()
