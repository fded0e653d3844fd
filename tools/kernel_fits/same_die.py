"""Boards without tables that carry the die of one that has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_fits.profiles import interval, number
from kernel_fits.tables import Board

OF = {
    "rtx_pro_6000_server": ("rtx_pro_6000_workstation", "rtx_pro_6000_maxq"),
}

_CAPPED = "rtx_pro_6000_maxq"
_CAP = (0.6, 0.75, 0.95)
"""What compute keeps under 300 W of 600 W: low, value, high; assumed."""


def adapt(data: Mapping[str, Any], board: Board, to: str) -> dict[str, Any]:
    """Return a block of the measured board for another of the same die.

    The other's datasheet bandwidth is that of the tables, so fractions lose their rebase.
    """
    block = {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}
    if "bandwidth_frac" in block:
        was = block["bandwidth_frac"]
        block["bandwidth_frac"] = {key: number(x / board.rebase) for key, x in was.items()}
    source = f"{block['source']}; measured on the Server card, same die"
    if block["basis"] == "measured":
        block["basis"] = "fitted"
    if to == _CAPPED and isinstance(block.get("compute_frac"), dict):
        was = block["compute_frac"]
        low, value, high = _CAP
        block["compute_frac"] = interval(was["value"] * value, was["low"] * low, was["high"] * high)
        block["basis"] = "assumed"
        source += f"; compute {low:g} to {high:g} of it ({value:g}) under the 300 W cap"
    block["source"] = source
    return block


def note_rebase(data: dict[str, Any], board: Board) -> dict[str, Any]:
    """Return a block whose source says that its fractions are of another bandwidth."""
    if board.rebase == 1.0 or "bandwidth_frac" not in data:
        return data
    measured = board.bytes_per_us / 1e6
    own = measured / board.rebase
    text = (
        f"; fitted against {measured:.3f} TB/s and rebased to this card's {own:.3f}, so a "
        "fraction near or above 1 is possible"
    )
    return data | {"source": data["source"] + text}
