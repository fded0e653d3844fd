"""Crossover map: where speculation pays, over load and acceptance, k or the length of prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import streamlit as st
from show import beside, escaped, figure
from state import Asked, bound, calibration

from specsim.analysis.maps import Maps, PromptMaps, prompt_maps, speedup_maps
from specsim.analysis.roofline import Regimes, Roofline, regimes, roofline
from specsim.errors import SpecsimError
from specsim.export.figures.map_cells import Picked, best_k_words, cell_words
from specsim.export.figures.maps import acceptance_map, k_map, map_rows, prompt_map
from specsim.export.figures.roofline import regime_rows, roofline_rows
from specsim.export.figures.roofline import regimes as regimes_figure
from specsim.export.figures.roofline import roofline as roofline_figure
from specsim.export.tables import count
from specsim.schema.calibration import Calibration
from specsim.schema.scenario import Scenario

# By what is chosen, which is what a link says.
_ACCEPTANCES: dict[str, Literal["rate", "length"]] = {
    "accepted / drafted": "rate", "tokens per step": "length",
}  # fmt: skip
_PROMPTS = {"whole requests": "whole", "decoding alone": "decoding"}
_ASKED: dict[str, Callable[..., Any]] = {
    "maps": speedup_maps, "prompts": prompt_maps, "roofline": roofline, "regimes": regimes,
}  # fmt: skip


def page(asked: Sequence[Asked]) -> None:
    """Draw the page."""
    beside(asked, lambda each: _side(each, alone=len(asked) == 1))


@st.cache_data(show_spinner=False, max_entries=64)
def _answer(name: str, text: str, load: float, fitted: str) -> Any:
    laid = Calibration.model_validate_json(fitted) if fitted else None
    return _ASKED[name](Scenario.model_validate_json(text), load=load, calibration=laid)


def _found(asked: Asked, name: str) -> Any:
    """Return an analysis of a side; where there is none, say in a sentence why."""
    if asked.scenario is None:
        st.error(escaped(asked.error))
        return None
    fitted = calibration()
    try:
        return _answer(
            name,
            asked.scenario.model_dump_json(exclude_unset=True),
            asked.load,
            "" if fitted is None else fitted.model_dump_json(),
        )
    except SpecsimError as problem:
        st.error(escaped(str(problem)))
        return None


def _side(asked: Asked, *, alone: bool) -> None:
    if asked.scenario is not None and asked.scenario.speculation.method == "none":
        st.info("Speculation is off: choose a method, and the maps compare it with off.")
    else:
        maps: Maps | None = _found(asked, "maps")
        if maps is None:
            return
        _maps(asked, maps, alone=alone)
    _more(asked)


def _maps(asked: Asked, maps: Maps, *, alone: bool) -> None:
    picked = _picked(asked)
    kind = _ACCEPTANCES[st.segmented_control(
        "Acceptance as", list(_ACCEPTANCES), default=next(iter(_ACCEPTANCES)), required=True,
        **bound(asked.side.key("map_acceptance")),
    )]  # fmt: skip
    left, right = st.columns(2, gap="medium") if alone else (st.container(), st.container())
    with left:
        st.subheader("Load and acceptance", anchor=False)
        rows = maps.lengths if kind == "length" else None
        figure(acceptance_map(maps, kind, picked=picked),
               map_rows(maps.acceptance, kind, rows=rows, own=maps.own),
               key=asked.side.key(f"map_{kind}"), alt="speedup over concurrency and acceptance",
               on_select=lambda: _take(asked, f"map_{kind}", "acceptance"))  # fmt: skip
    with right:
        _over_k(asked, maps, picked)
    _sentence(maps, picked)
    _legend(asked, maps)


def _over_k(asked: Asked, maps: Maps, picked: Picked | None) -> None:
    st.subheader("Load and draft tokens", anchor=False)
    if maps.k is None:
        st.info("A tree has a shape, not one k: only its own is compared with off.")
        return
    figure(k_map(maps, picked=picked), map_rows(maps.k, "k", own=maps.own),
           key=asked.side.key("map_k"),
           alt="speedup over concurrency and draft tokens, with the best k",
           on_select=lambda: _take(asked, "map_k", "k"))  # fmt: skip


def _picked(asked: Asked) -> Picked | None:
    """Return the cell that was chosen on one of the maps, and keep it in the link."""
    key = asked.side.key("map_cell")
    if key not in st.session_state:
        st.session_state[key] = Picked.read(st.query_params.get(key, ""))
    found: Picked | None = st.session_state[key]
    if found is None:
        st.query_params.pop(key, None)
    elif st.query_params.get(key) != str(found):
        st.query_params[key] = str(found)
    return found


def _take(asked: Asked, chart: str, on: str) -> None:
    """Keep the cell that was clicked, for all maps; let it go where the click took it back."""
    event = st.session_state.get(asked.side.key(chart))
    cells = [] if event is None else event.get("selection", {}).get("picked", [])
    state = asked.side.key("map_cell")
    before: Picked | None = st.session_state.get(state)
    # What stands on the map (a line, a name) is no cell.
    if cells and cells[0].get("cell") is not None:
        st.session_state[state] = Picked(on, float(cells[0]["load"]), float(cells[0]["cell"]))
    elif before is not None and before.on == on:
        st.session_state[state] = None


def _sentence(maps: Maps, picked: Picked | None) -> None:
    with st.container(border=True):
        if picked is None or picked.on == "prompt":
            st.markdown("Click a cell to read it: its load is outlined on every map.")
            return
        chosen = maps.k if picked.on == "k" else maps.acceptance
        if chosen is None:
            return
        st.markdown(escaped(cell_words(chosen, picked)) + escaped(best_k_words(maps, picked.load)))


def _legend(asked: Asked, maps: Maps) -> None:
    texts = [
        "Dark line: no gain and no loss. Best k is 0 where off is best. Palest cells, 0.95 to "
        "1.05: no difference that matters. Numbers lists your own cell first, then your load."
    ]
    assert asked.scenario is not None
    if asked.scenario.load.request_rate is not None:
        rate = f"{count(asked.load)} requests/s"
        texts.append(
            "The maps are over requests in flight whatever the load is given as: "
            + (f"{rate} cannot be served without speculation, so your point is not on them."
               if maps.own.load is None
               else f"without speculation {rate} are {count(maps.own.load)} in flight.")
        )  # fmt: skip
    if asked.scenario.speculation.adaptive_verification:
        texts.append("Over k, every step verifies all of its k drafts: nothing adapts.")
    st.caption(escaped(" ".join(texts)))


def _more(asked: Asked) -> None:
    speculates = asked.scenario is not None and asked.scenario.speculation.method != "none"
    draws = {"Long prompts": _prompts} if speculates else {}
    draws |= {"Roofline": _roofline, "What binds a step": _regimes}
    # One chart at a time: those that nobody looks at cost as much.
    chosen = st.segmented_control(
        "More", list(draws), default=next(iter(draws)), required=True,
        label_visibility="collapsed", **bound(asked.side.key("map_more")),
    )  # fmt: skip
    draws[chosen](asked)


def _prompts(asked: Asked) -> None:
    found: PromptMaps | None = _found(asked, "prompts")
    if found is None:
        return
    st.subheader("Load and prompt length", anchor=False)
    counted = _PROMPTS[st.segmented_control(
        "Speedup of", list(_PROMPTS), default=next(iter(_PROMPTS)), required=True,
        label_visibility="collapsed", **bound(asked.side.key("map_prompts")),
    )]  # fmt: skip
    decoding = counted == "decoding"
    shown = found.decoding if decoding else found.whole
    picked = _picked(asked)
    figure(prompt_map(found, decoding=decoding, picked=picked),
           map_rows(shown, "prompt", own=found.own),
           key=asked.side.key(f"map_{counted}"), alt="speedup over concurrency and prompt length",
           on_select=lambda: _take(asked, f"map_{counted}", "prompt"))  # fmt: skip
    if picked is not None and picked.on == "prompt":
        st.markdown(escaped(cell_words(shown, picked)))
    st.caption(
        "Long prompts fill the KV cache, whose reading binds every step: then drafts are verified "
        "almost for free again, and speculation wins a second time. "
        + ("Decoding alone: prompts come from a prefix cache or from replicas of their own. "
           if decoding else
           "Of whole requests: the longer the prompt, the more of the time is prefill, which "
           "speculation does not shorten. ")
        + "Dotted: where the KV cache is full; to its right requests wait."
    )  # fmt: skip


def _roofline(asked: Asked) -> None:
    found: Roofline | None = _found(asked, "roofline")
    if found is None:
        return
    st.subheader("Roofline of the target's decode pass", anchor=False)
    figure(roofline_figure(found), roofline_rows(found), key=asked.side.key("map_roofline"),
           alt="arithmetic intensity against TFLOP/s, off and on, by load")  # fmt: skip
    st.caption(
        "A GPU is held up either by reading memory (the slope) or by arithmetic (the flat top). "
        "Each point is an operating point: what one GPU does in one decode pass, without prompts, "
        "with as many requests in flight as is written beside it. To the right: more arithmetic "
        "per byte read; up: more arithmetic per second. Verifying drafts moves a point to the "
        "right, and pays while it still climbs the slope; at the flat top more tokens just take "
        "longer. Solid: the datasheet's limits; dashed: what kernels reach of them."
    )


def _regimes(asked: Asked) -> None:
    found: Regimes | None = _found(asked, "regimes")
    if found is None:
        return
    st.subheader("What binds a step, by load", anchor=False)
    figure(regimes_figure(found), regime_rows(found), key=asked.side.key("map_regimes"),
           alt="shares of a step by cause over load, off and on")  # fmt: skip
    st.caption(
        "What one decode step spends its time on, in shares, from few requests in flight to many. "
        "Named is the largest share: that is the regime, and the loads from one white line to the "
        "next are in the same one. Memory: reading weights and activations; KV cache: reading what "
        "is kept of the running requests; compute: arithmetic; communication: between GPUs; host: "
        "the engine's own work on the CPU. Drafts are cheap to verify while memory or KV cache "
        "is the largest, and dear once compute is."
    )
