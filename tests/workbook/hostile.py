"""Names of scenarios that a spreadsheet might take for something else."""

from __future__ import annotations

NAMES = (
    "=cmd()",
    '=HYPERLINK("http://example.org","x")',
    "+1",
    "-1",
    "@x",
    "{=1}",
    "\t=1+1",
    "http://example.org",
    "mailto:a@example.org",
    "external:book.xlsx#Sheet!A1",
    "internal:Inputs!A1",
    "chat!H100",
    "=Inputs!$A$1",
    "1.5",
    "TRUE",
    "#REF!",
    "quotes \"double\" and 'single', commas; semicolons",
    "two\nlines",
    "<b>&amp;</b> & _x000D_ \x07",
    "Größe · 温度 · 🚀",
    "x" * 40_000,
)
