"""The only place where human units turn into SI and back.

Inside specsim everything is seconds, bytes, FLOP, tokens and dollars; human units live at the
edges (YAML keys, flags, table headers), always with the unit in the name. `GB` is 1e9 bytes,
`GIB` is 2**30: never one for the other.
"""

from __future__ import annotations

MICRO = 1e-6
MILLI = 1e-3
NANO = 1e-9
GB = 1e9
TFLOP = 1e12
KIB = 2.0**10
MIB = 2.0**20
GIB = 2.0**30
HOUR_S = 3600.0
MTOK = 1e6
"""Tokens in a million tokens, as in dollars per million tokens."""


def in_words(value: float) -> str:
    """Write a figure in a sentence: three digits, and whole thousands without an exponent.

    >>> in_words(42.13), in_words(1000.0), in_words(123456.7)
    ('42.1', '1,000', '123,457')
    """
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


BYTES_PER_PARAM: dict[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    # 4-bit formats carry their block scales: int4 one fp16 scale per 128 weights, nvfp4 one fp8
    # scale per 16, mxfp4 one 8-bit exponent per 32 (OCP Microscaling Formats v1.0, section 5).
    "int4": 0.5 + 2.0 / 128.0,
    "nvfp4": 0.5 + 1.0 / 16.0,
    "mxfp4": 0.5 + 1.0 / 32.0,
}
"""Stored bytes per weight, scales included."""
