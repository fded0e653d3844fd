"""How cells look: colours that say what they are, and no more digits than they are worth."""

from __future__ import annotations

import math
from typing import Any

from specsim.export.workbook.formulas import Value
from specsim.export.workbook.sheets import Kind

_THREE = "[>=99.95]#,##0;[>=9.995]0.0;0.00"
NUMBER_FORMATS: dict[str, str] = {
    "general": "General",
    "exact": "0.000",
    "count": "#,##0",
    "load": "[>=9.95]#,##0;0.0",
    "three": _THREE,
    "ms": _THREE,
    "ratio": "0.00",
    "tok_s": '[>=9995]0.0,"k";[>=99.95]#,##0;0.0',
    "pct": "0.0",
    "pct2": "0.00",
    "usd": "[>=999.5]#,##0;0.00",
    "usd_small": "0.00000",
    "money": "#,##0",
}
"""Formats by name: about three digits, which is what bands of some per cent carry."""
_SMALL_TOO = ("three", "ms", "usd", "ratio", "exact")

KINDS: dict[Kind, tuple[str, str, str]] = {
    "input": ("#DCE9F9", "#0B3D91", "yours to change"),
    "assumption": ("#FFE3A8", "#7A4B00", "yours to change: nobody gave it, so it was assumed"),
    "formula": ("#FFFFFF", "#000000", "computed in the sheet from the others"),
    "output": ("#DFF1E0", "#1B4D22", "computed by specsim: does not change in the sheet"),
    "fixed": ("#ECECEC", "#333333", "what specsim computed from: export again to change it"),
    "text": ("#FFFFFF", "#000000", "words"),
}
"""Background, ink and meaning by kind of cell."""


def number_format(digits: str, value: Value | None) -> str:
    """Return the number format of a cell; small numbers get the decimals that they need.

    Examples
    --------
    >>> number_format("three", 0.0123), number_format("count", 12.0)
    ('0.0000', '#,##0')
    """
    if digits in _SMALL_TOO and isinstance(value, float) and 1e-12 < abs(value) < 0.0995:
        return "0." + "0" * (2 - math.floor(math.log10(abs(value))))
    return NUMBER_FORMATS[digits]


def properties(kind: Kind, pattern: str) -> dict[str, Any]:
    """Return the properties of a format, as XlsxWriter names them."""
    background, ink, _ = KINDS[kind]
    found: dict[str, Any] = {"font_color": ink, "num_format": pattern, "valign": "top"}
    if background != "#FFFFFF":
        found |= {"bg_color": background, "border": 1, "border_color": "#FFFFFF"}
    if kind in ("input", "assumption"):
        found |= {"border_color": "#8A8A8A", "locked": False}
    return found


TITLE = {"bold": True, "font_size": 13, "font_color": "#0B3D91"}
ABOUT = {"italic": True, "font_color": "#444444"}
DESCRIPTION = {"font_size": 8, "font_color": "#555555", "text_wrap": True, "valign": "top"}
HEADER = {
    "bold": True, "font_color": "#FFFFFF", "bg_color": "#26466D", "border": 1,
    "border_color": "#FFFFFF", "valign": "vcenter",
}  # fmt: skip
