"""How numbers look: no more digits than they are worth, and small ones not as nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.export.workbook.formulas import Value
from specsim.export.workbook.styles import KINDS, NUMBER_FORMATS, number_format, properties


@pytest.mark.parametrize(
    ("digits", "value", "pattern"),
    [
        ("three", 12.345, NUMBER_FORMATS["three"]),
        ("three", 0.0123, "0.0000"),
        ("three", 0.0994, "0.0000"),
        ("three", 0.0996, NUMBER_FORMATS["three"]),
        ("ms", -0.00456, "0.00000"),
        ("usd", 0.05, "0.0000"),
        ("exact", 0.001, "0.00000"),
        ("ratio", 0.01, "0.0000"),
        # Nothing is nothing, and what rounding left of it too.
        ("three", 0.0, NUMBER_FORMATS["three"]),
        ("three", 1e-15, NUMBER_FORMATS["three"]),
        ("count", 0.01, "#,##0"),
        ("pct", 0.01, "0.0"),
        ("three", "text", NUMBER_FORMATS["three"]),
        ("three", None, NUMBER_FORMATS["three"]),
    ],
)
def test_number_formats(digits: str, value: Value | None, pattern: str) -> None:
    assert number_format(digits, value) == pattern


@given(st.floats(1e-11, 0.0994))
def test_small_numbers_show_three_digits(value: float) -> None:
    places = len(number_format("three", value)) - 2
    shown = f"{value:.{places}f}".replace(".", "").lstrip("0")
    # Rounding up to the next power of ten adds one.
    assert len(shown) == 3 or (len(shown) == 4 and shown == "1000")


def test_kinds_are_told_apart_and_can_be_read() -> None:
    shades = [KINDS[k][:2] for k in KINDS if k != "text"]
    assert len(set(shades)) == len(shades)
    for background, ink in shades:
        assert _contrast(background, ink) >= 4.5, (background, ink)


def _contrast(a: str, b: str) -> float:
    """Return the contrast of two colours, as WCAG 2 defines it; 4.5 is what text needs."""

    def luminance(colour: str) -> float:
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_only_what_is_typed_into_is_unlocked() -> None:
    unlocked = {kind for kind in KINDS if properties(kind, "0").get("locked") is False}
    assert unlocked == {"input", "assumption"}
