"""A cell of a heat map that somebody picked: in a link, and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specsim.analysis.maps import Maps, SpeedupMap
from specsim.export.tables import count


@dataclass(frozen=True)
class Picked:
    """A cell that was chosen: on which map, and where."""

    on: str
    """acceptance, k or prompt."""
    load: float
    row: float
    """In the map's own terms: acceptances as accepted / drafted."""

    def __str__(self) -> str:
        """Write it as a link has it: `k,64,2`."""
        return f"{self.on},{self.load:g},{self.row:g}"

    @classmethod
    def read(cls, text: str) -> Picked | None:
        """Return the cell that a link says; None where it says none."""
        on, *numbers = text.split(",")
        try:
            load, row = map(float, numbers)
        except ValueError:
            return None
        sound = on in ("acceptance", "k", "prompt") and 0 < load < math.inf and 0 <= row < math.inf
        return cls(on, load, row) if sound and (row or on != "prompt") else None


def cell_words(found: SpeedupMap, picked: Picked) -> str:
    """Return a cell in a sentence, with both arms."""
    i, j = found.nearest(picked.load, picked.row)
    gain, off, on = (float(a[i, j]) for a in (found.speedup, found.tpot_ms_off, found.tpot_ms_on))
    row, load = float(found.rows[i]), count(float(found.loads[j]))
    if picked.on == "k" and row == 0.0:
        return f"At {load} requests in flight, off: time per output token {off:.3g} ms."
    what = {
        "acceptance": f"{row:.0%} of the drafts accepted",
        "k": f"k = {row:.0f}",
        "prompt": f"prompts of {count(row)} tokens",
    }[picked.on]
    return (
        f"At {load} requests in flight and {what}: speedup {gain:.2f}×, "
        f"time per output token {off:.3g} ms off and {on:.3g} ms on."
    )


def best_k_words(maps: Maps, load: float) -> str:
    """Return what is best at a load of the map over k, to follow a sentence; empty for a tree."""
    if maps.k is None or maps.best_k is None:
        return ""
    _, j = maps.k.nearest(load, 0.0)
    k = int(maps.best_k[j])
    if k == 0:
        return " No k pays at this load: off is best."
    return f" Best at this load: k = {k}, {maps.k.speedup[k, j]:.2f}×."
