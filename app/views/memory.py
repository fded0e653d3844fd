"""Memory: what the drafter takes from the KV cache, and what follows for throughput."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from show import beside, escaped, figure
from state import Asked, bound, calibration

from specsim.analysis.circle import Cap, MemoryCircle, memory_circle, with_memory
from specsim.errors import SpecsimError
from specsim.export.figures.memory import part_rows, parts, throughput, throughput_rows
from specsim.export.tables import count
from specsim.export.tables import figure as digits
from specsim.schema.calibration import Calibration
from specsim.schema.scenario import Scenario

_GIVEN = "as given"
_SHARES = tuple(f"{percent / 100:.2f}" for percent in range(50, 100))
_CONTEXTS = ("512", "1024", "2048", "4096", "8192", "16384", "32768", "65536", "131072")
_ONE, _ALL = "one GPU", "the replica"
_CARD_WIDTH = 170
"""Of a step of the circle. [px]"""


def page(asked: Sequence[Asked]) -> None:
    """Draw the page."""
    beside(asked, lambda each: _side(each, alone=len(asked) == 1))


@st.cache_data(show_spinner=False, max_entries=64)
def _circle(text: str, share: float | None, context: float | None, fitted: str) -> MemoryCircle:
    scenario = with_memory(Scenario.model_validate_json(text), gpu_memory_utilization=share,
                           context_tokens=context)  # fmt: skip
    known = Calibration.model_validate_json(fitted) if fitted else None
    return memory_circle(scenario, calibration=known)


def _side(asked: Asked, *, alone: bool) -> None:
    if asked.scenario is None:
        st.error(escaped(asked.error))
        return
    share, context = _controls(asked, asked.scenario, alone=alone)
    fitted = calibration()
    try:
        circle = _circle(asked.scenario.model_dump_json(exclude_unset=True), share, context,
                         "" if fitted is None else fitted.model_dump_json())  # fmt: skip
    except SpecsimError as problem:
        st.error(escaped(str(problem)))
        return
    for text in circle.does_not_start:
        st.warning(escaped(f"{text}."))
    _metrics(circle)
    _parts(asked, circle)
    if circle.on is None:
        st.info("Speculation is off: choose a method to see what a drafter takes.")
    else:
        _steps(circle, circle.on)
    _throughput(asked, circle)


def _controls(
    asked: Asked, scenario: Scenario, *, alone: bool
) -> tuple[float | None, float | None]:
    """Draw the sliders; what they leave as given is None."""
    key = asked.side.key
    given = scenario.workload.input_tokens + scenario.workload.output_tokens
    left, right = st.columns(2, gap="large") if alone else (st.container(), st.container())
    with left:
        share = st.select_slider(
            "gpu_memory_utilization", (_GIVEN, *_SHARES),
            help="Share of a GPU's memory that the engine may fill. As given: the side bar's, "
            "else the engine's default.", **bound(key("memory_share")),
        )  # fmt: skip
    with right:
        context = st.select_slider(
            "Context of a request: prompt and answer, tokens", (_GIVEN, *_CONTEXTS),
            help=f"As given: {given:,.0f}, the side bar's. Prompt and answer keep their "
            "proportion.", **bound(key("memory_context")),
        )  # fmt: skip
    return (
        None if share == _GIVEN else float(share),
        None if context == _GIVEN else float(context),
    )


def _metrics(circle: MemoryCircle) -> None:
    kv, off, on = circle.kv, circle.off, circle.on
    with st.container(horizontal=True, gap="medium", border=True):
        st.metric("Requests that fit, off", f"{int(off.fit):,}", width="content",
                  help=f"The cache holds {kv.baseline.kv_tokens:,} tokens.")  # fmt: skip
        if on is not None:
            st.metric("Requests that fit, on", f"{int(on.fit):,}", width="content",
                      help=f"The cache holds {kv.speculative.kv_tokens:,} tokens.")  # fmt: skip
            st.metric("KV cache lost", f"{kv.lost_fraction:.1%}", width="content",
                      help=f"{kv.lost_tokens:,} tokens")  # fmt: skip
        st.metric("Nameplate", f"{digits(kv.memory_nameplate_gb)} GB", width="content",
                  help="Marketed memory of the replica, in 1e9 bytes.")  # fmt: skip
        st.metric("Usable", f"{digits(kv.memory_usable_gib)} GiB", width="content",
                  help="What the driver reports, in 2^30 bytes; of it the engine fills "
                  f"{circle.gpu_memory_utilization:.0%}.")  # fmt: skip
    arm, name = (kv.baseline, "off") if on is None else (kv.speculative, "on")
    st.caption(
        f"By the datasheet {digits(arm.kv_gb_nameplate)} GB would be left for the cache with "
        f"speculation {name}; {digits(arm.kv_gib)} GiB are. max_model_len is "
        f"{circle.max_model_len:,}: of requests that long, the cache holds "
        f"{digits(arm.kv_tokens / circle.max_model_len)}."
    )


def _parts(asked: Asked, circle: MemoryCircle) -> None:
    st.subheader("Where memory goes", anchor=False)
    key = asked.side.key
    shown = _ONE
    if circle.devices > 1:
        shown = st.segmented_control("Memory of", (_ONE, _ALL), default=_ONE, required=True,
                                     label_visibility="collapsed",
                                     **bound(key("memory_of")))  # fmt: skip
    figure(parts(circle, whole_replica=shown == _ALL), part_rows(circle),
           key=key("memory_parts"), alt="memory by part, speculation off and on")  # fmt: skip


def _steps(circle: MemoryCircle, on: Cap) -> None:
    """Show the circle: each step with its numbers, one leading to the next."""
    st.subheader("The circle", anchor=False)
    st.caption(
        "What a drafter costs in memory, step by step: it takes room from the KV cache, which "
        "keeps the tokens of the requests that run; so fewer requests fit, the others wait, and "
        "less is served under a heavy load. Under a light load nothing waits and nothing is lost."
    )
    kv, off = circle.kv, circle.off
    top = count(circle.loads[-1])
    steps = (
        ("Drafter, GiB", f"+{digits(kv.speculative.drafter_weights_gib)}",
         "weights, and cache of its own"),
        ("KV cache", _less(kv.lost_fraction),
         f"{kv.baseline.kv_tokens:,} → {kv.speculative.kv_tokens:,} tokens"),
        ("Requests that run", f"{on.running:,.0f}",
         f"of {off.running:,.0f} with it off: {_why(off, on)}"),
        (f"Throughput at {top}", _less(circle.lost_to_cache or 0.0),
         f"{circle.free_tok_s[-1]:,.0f} with the cache whole → {circle.on_tok_s[-1]:,.0f} tok/s"),
    )  # fmt: skip
    # As many as fit beside each other: four, or two on a phone and where two are compared.
    with st.container(horizontal=True, gap="small"):
        for i, (label, value, text) in enumerate(steps):
            with st.container(border=True, width=_CARD_WIDTH):
                st.metric(f"→ {label}" if i else label, value)
                st.caption(escaped(text))
    gain = circle.on_tok_s[-1] / circle.off_tok_s[-1]
    st.caption(
        f"{top} requests in flight are more than run at a time, off or on (the end of the chart "
        "below): there the server is full in both, and a smaller cache costs the most. "
        f"Against off, {circle.off_tok_s[-1]:,.0f} tok/s at {top} requests, speculation is "
        f"{gain:.2f}× there, the smaller cache included."
    )


def _less(share: float) -> str:
    """Write a loss in percent; below what is shown, none."""
    return f"{-share:.1%}".replace("-0.0%", "0.0%").replace("-", "−")


def _why(off: Cap, on: Cap) -> str:
    if "kv" in (off.limited_by, on.limited_by):
        return "the cache is full"
    return f"max_num_seqs, the cache would hold {int(off.fit):,} → {int(on.fit):,}"


def _throughput(asked: Asked, circle: MemoryCircle) -> None:
    st.subheader("Throughput up to the caps and beyond", anchor=False)
    assert asked.scenario is not None
    load = asked.load if asked.scenario.load.concurrency is not None else None
    figure(throughput(circle, load=load), throughput_rows(circle),
           key=asked.side.key("memory_throughput"),
           alt="throughput over concurrency, off and on, with the requests that run")  # fmt: skip
    if circle.on is not None:
        st.caption("Dotted: on, had the drafter taken no cache. Right of a cap, requests wait.")
