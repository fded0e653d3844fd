"""Drafters: all that can draft for the target, side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import streamlit as st
from show import beside, escaped, figure
from state import COUNTED, Asked, bound, calibration, preset_of

from specsim.analysis.drafters import DrafterResult, OffArms, Standing, compare_drafters, standing
from specsim.analysis.predict import kv_result
from specsim.analysis.ways import TEXTS, Way, methods_without_drafter, ways
from specsim.errors import SpecsimError
from specsim.export.figures.drafters import dots, rows, trade, turn
from specsim.export.tables import count
from specsim.schema.calibration import Calibration
from specsim.schema.model import DrafterKind
from specsim.schema.scenario import Load, Scenario
from specsim.schema.speculation import Speculation

_TP = {"side bar's": None, "1": 1, "target's": 0}
_OWN = "drafter's own"
_DTYPES = (_OWN, "bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4")
_AS_TRAFFIC = "as my traffic"
_BADGES = {"measured": "green", "yours": "blue", "edited": "violet", "carried": "orange"}
_WORDS = {"carried": "yours, carried over"}
_MANY = 20
_OWN_LENGTHS, _WRITTEN = "drafters_lengths", "drafters_written"
"""Lengths of the table: their place in the link, and in the session while other pages are open."""
_TRAINED: tuple[str, ...] = DrafterKind.__args__  # type: ignore[attr-defined]


def page(asked: Sequence[Asked]) -> None:
    """Draw the page."""
    beside(asked, _side)


@st.cache_resource(show_spinner=False, max_entries=64)
def _off_arms(text: str, fitted: str) -> OffArms:
    """Keep what the target does alone, by the scenario without its speculation."""
    return {}


@st.cache_resource(show_spinner="Predicting every way of drafting", max_entries=512)
def _standing(text: str, fitted: str) -> Standing:
    scenario = Scenario.model_validate_json(text)
    alone = scenario.model_copy(update={"speculation": Speculation()})
    return standing(
        scenario,
        calibration=Calibration.model_validate_json(fitted) if fitted else None,
        without=_off_arms(alone.model_dump_json(exclude_unset=True), fitted),
    )


@st.cache_data(show_spinner=False, max_entries=64)
def _ways(text: str, options: dict[str, Any]) -> tuple[Way, ...]:
    scenario = Scenario.model_validate_json(text)
    # One sentence where the target alone does not fit, instead of the same for every drafter.
    kv_result(scenario.model_copy(update={"speculation": Speculation()}))
    return ways(scenario, **options)


def _compared(
    found: Sequence[Way], load: float, laid: str
) -> tuple[tuple[DrafterResult, ...], tuple[Way, ...]]:
    """Compare the ways; of many, as of a large catalog, with a word on how far it is."""
    done = itertools.count(1)
    bar = st.empty()

    def stand(way: Scenario) -> Standing:
        if len(found) > _MANY:
            n = next(done)
            bar.progress(n / len(found), f"{n} of {len(found)} ways of drafting")
        return _standing(_any_load(way), laid)

    results = compare_drafters(found, load=load, stand=stand)
    bar.empty()
    return results


def _any_load(scenario: Scenario) -> str:
    """Return a scenario as the key of what does not depend on its load, but for its unit."""
    unit = "concurrency" if scenario.load.request_rate is None else "request_rate"
    return scenario.model_copy(update={"load": Load(**{unit: (1.0,)})}).model_dump_json(
        exclude_unset=True
    )


def _side(asked: Asked) -> None:
    if asked.scenario is None:
        st.error(escaped(asked.error))
        return
    options = _controls(asked, asked.scenario)
    results_here = st.container()
    fitted = calibration()
    laid = "" if fitted is None else fitted.model_dump_json()
    try:
        with st.expander("Acceptance of each way of drafting: what is known, and your own"):
            options["lengths"] = _lengths(asked, asked.scenario, options)
        with results_here:
            found = _ways(_any_load(asked.scenario), options)
            results, refused = _compared(found, asked.load, laid)
            # What accepts as somebody guessed stands below what somebody counted.
            results = tuple(sorted(results, key=lambda r: r.way.basis == "carried"))
            _shown(asked, found, results, refused)
    except SpecsimError as problem:
        results_here.error(escaped(str(problem)))


def _controls(asked: Asked, scenario: Scenario) -> dict[str, Any]:
    """Draw the choices of this page and return them as `ways` takes them."""
    key = asked.side.key
    with st.container(horizontal=True, gap="medium"):
        tp = st.selectbox("Drafter TP", list(_TP), width=150,
                          help="Of every drafter: one GPU holds it whole, or all share it.",
                          **bound(key("drafters_tp")))  # fmt: skip
        dtype = st.selectbox("Drafter weights", _DTYPES, width=160,
                             help="Quantisation of every drafter.",
                             **bound(key("drafters_dtype")))  # fmt: skip
        text = st.selectbox("Measured on text like", [_AS_TRAFFIC, *TEXTS],
                            width=190,
                            help="Which of the bundled measurements of a drafter is used.",
                            **bound(key("drafters_text")))  # fmt: skip
    degree = _TP[tp]
    return {
        "num_speculative_tokens": scenario.speculation.num_speculative_tokens
        or int(asked.side.get("k")),
        "text": preset_of(asked.side, "workloads") if text == _AS_TRAFFIC else text,
        "draft_tensor_parallel_size": scenario.hardware.tensor_parallel_size
        if degree == 0
        else degree,
        "drafter_weight_dtype": None if dtype == _OWN else dtype,
        "lengths": {},
        "counted": asked.side.get("acceptance") == COUNTED,
    }


def _lengths(asked: Asked, scenario: Scenario, options: dict[str, Any]) -> dict[str, float]:
    """Draw the table of acceptance, and return the lengths that were written into it."""
    found = _ways(_any_load(scenario), options)
    most = options["num_speculative_tokens"] + 1.0
    editor = asked.side.key(f"drafters_table_{scenario.target.model}")
    given, left = _given(
        asked, {way.label for way in found}, most, fresh=editor not in st.session_state
    )
    table = [
        {
            "Drafter": way.label,
            "Known": _WORDS.get(way.basis, way.basis),
            "From": way.source,
            "Yours": given.get(way.label),
        }
        for way in found
    ]
    column = st.column_config
    edited = st.data_editor(
        table,
        key=editor,
        hide_index=True,
        placeholder="",
        disabled=["Drafter", "Known", "From"],
        column_config={
            "Yours": column.NumberColumn(
                "Tokens per step, yours", min_value=1.0, max_value=most, step=0.01, format="%.2f",
                help="Mean tokens per target step, bonus token included. Overrides what is known.",
            ),
        },
    )  # fmt: skip
    st.caption(
        f"At {options['num_speculative_tokens']} draft tokens, or as many as the drafter can. "
        "Measured: bundled with specsim for this target. Yours: what the side bar says, carried "
        "over where nothing was measured, which is no knowledge of that drafter."
    )
    own = {str(row["Drafter"]): float(row["Yours"]) for row in edited if row["Yours"] is not None}
    _into_link(asked, own)
    if left:
        st.caption(escaped(
            f"Not taken from the link: {', '.join(left)} (drafters of this table, 1 to {most:g})."
        ))  # fmt: skip
    return own


def _given(
    asked: Asked, known: Collection[str], most: float, *, fresh: bool
) -> tuple[dict[str, float], list[str]]:
    """Return the lengths that the table starts from: those of the link.

    Parameters
    ----------
    fresh : bool
        The table is drawn anew; until then what was written into it stands beside its start.

    Returns
    -------
    (lengths, left)
        By label, and the parts of the link that are none.
    """
    kept = asked.side.key("drafters_start")
    if fresh or kept not in st.session_state:
        st.session_state[kept] = st.session_state.get(
            asked.side.key(_WRITTEN), st.query_params.get(asked.side.key(_OWN_LENGTHS), "")
        )
    found: dict[str, float] = {}
    left = []
    for part in filter(None, st.session_state[kept].split(";")):
        label, _, number = part.rpartition("=")
        try:
            length = float(number)
        except ValueError:
            length = math.nan
        if label in known and 1.0 <= length <= most:
            found[label] = length
        else:
            left.append(part[:40])
    return found, left[:6]


def _into_link(asked: Asked, own: dict[str, float]) -> None:
    key, text = asked.side.key(_OWN_LENGTHS), ";".join(f"{k}={v:g}" for k, v in own.items())
    st.session_state[asked.side.key(_WRITTEN)] = text
    if not text:
        st.query_params.pop(key, None)
    elif st.query_params.get(key) != text:
        st.query_params[key] = text


def _shown(
    asked: Asked,
    found: Sequence[Way],
    results: Sequence[DrafterResult],
    refused: Sequence[Way],
) -> None:
    key = asked.side.key
    if results:
        _best(asked, results)
        left, right = st.tabs(["Speedup", "Speedup against KV cache"])
        table = rows(results)
        with left:
            figure(dots(results), table, key=key("drafters_speedup"),
                   alt="speedup of each way of drafting, with its 80 % interval")  # fmt: skip
        with right:
            figure(trade(results), table, key=key("drafters_trade"),
                   alt="speedup of each way of drafting against its KV cache")  # fmt: skip
        carried = any(r.way.basis == "carried" for r in results)
        st.caption(
            "Bars: 80 % interval. Off, the base, is 1."
            + (" \\*: accepts as yours does, for want of a measurement." if carried else "")
        )
        _table(asked, table)
        _acceptance(results)
    else:
        st.info("Nothing here can be predicted: give acceptance in the side bar or in the table.")
    _refused(found, refused)


def _best(asked: Asked, results: Sequence[DrafterResult]) -> None:
    # What is carried over from another drafter is no ground for a recommendation.
    known = [r for r in results if r.way.basis != "carried"]
    best = (known or results)[0]
    gain = best.point.speedup
    with st.container(border=True):
        if gain is None or gain <= 1.0:
            st.subheader(":red[None whose acceptance is known pays at this load]", anchor=False)
        else:
            st.subheader(f":green[{escaped(best.way.label)}] is fastest here", anchor=False)
            left_out = len(results) - len(known)
            st.caption(
                "Among the ways whose acceptance is known here"
                + (
                    f"; {left_out} others are drawn as if they accepted as yours does."
                    if left_out
                    else "."
                )
            )
        with st.container(horizontal=True, gap="medium"):
            low, high = best.point.speedup_low, best.point.speedup_high
            band = None if low is None else f"80 % interval {low:.2f} to {high:.2f}"
            shown = "–" if gain is None else f"{gain:.2f}×"
            st.metric(f"Speedup at {count(asked.load)}", shown, help=band, width="content")
            st.metric("With one request", f"{best.speedup_at_one:.2f}×", width="content")
            st.metric("Turns at", turn(best), width="content")
            st.metric("KV cache lost", f"{best.kv.lost_fraction:.1%}", width="content",
                      help=f"{best.kv.lost_tokens:,} tokens")  # fmt: skip
            even = best.break_even_length
            st.metric("Tokens per step", f"{best.acceptance.acceptance_length:.2f}",
                      width="content", help="To break even: "
                      + ("no acceptance is enough" if even is None else f"{even:.2f}"))  # fmt: skip


def _table(asked: Asked, table: Sequence[dict[str, Any]]) -> None:
    number = st.column_config.NumberColumn
    st.dataframe(
        table,
        hide_index=True,
        placeholder="–",
        key=asked.side.key("drafters_table"),
        column_order=(
            "drafter", "speedup", "usd_per_mtok", "crossover",
            "basis", "acceptance_length", "break_even_length", "kv_lost_percent", "best_k",
        ),
        column_config={
            "drafter": st.column_config.TextColumn("Drafter", pinned=True),
            "speedup": number(f"Speedup at {count(asked.load)}", format="%.2f×"),
            "usd_per_mtok": number("$/Mtok", format="$%.2f"),
            "crossover": st.column_config.TextColumn("Turns at"),
            "basis": st.column_config.TextColumn("Acceptance"),
            "acceptance_length": number("Tokens per step", format="%.2f"),
            "break_even_length": number("to break even", format="%.2f"),
            "best_k": number("Best k", format="%d", help="0: off serves this load fastest"),
            "kv_lost_percent": number("KV lost", format="%.1f%%"),
        },
    )  # fmt: skip


def _acceptance(results: Sequence[DrafterResult]) -> None:
    """Say whose acceptance each is, and what to know of it."""
    of: dict[str, list[str]] = {}
    for r in results:
        for text in r.warnings:
            of.setdefault(text, []).append(r.way.label)
    for r in results:
        word = _WORDS.get(r.way.basis, r.way.basis)
        badge = f":{_BADGES[r.way.basis]}-badge[{word}]"
        # What is to be known of few is said beside them, what holds for many below.
        own = [text for text in r.warnings if len(of[text]) == 1]
        said = "; ".join([r.way.source, *own])
        st.markdown(f"{badge} **{escaped(r.way.label)}**: {r.acceptance.acceptance_length:.2f} "
                    f"tokens per step, {escaped(said)}")  # fmt: skip
    shared = [
        f"{'all' if len(labels) == len(results) else ', '.join(labels)}: {text}"
        for text, labels in of.items() if len(labels) > 1
    ]  # fmt: skip
    if shared:
        with st.expander(f"To know before trusting this ({len(shared)})"):
            st.markdown("\n".join(f"- {escaped(text)}" for text in shared))


def _refused(found: Sequence[Way], refused: Sequence[Way]) -> None:
    unknown = methods_without_drafter(found, _TRAINED)
    if not refused and not unknown:
        return
    if refused:
        st.subheader("Not here", anchor=False)
    for way in refused:
        st.markdown(f"**{escaped(way.label)}**: {escaped(way.reason)}")
    if unknown:
        st.caption(escaped(f"No drafter of this target is known for {', '.join(unknown)}."))
