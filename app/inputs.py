"""The widgets that say what is asked, in the side bar of every page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import link
import streamlit as st
from controls import LOADS, RANGES, bounds, chosen_from, start_of
from names import refuse_paths
from show import escaped
from start import from_command, from_file
from state import (
    COUNTED,
    CUSTOM,
    DEFAULTS,
    FORMS,
    MODEL_FILE,
    OF_TRAFFIC,
    PER_SECOND,
    PRESETS,
    TRAFFIC,
    A,
    Asked,
    B,
    Side,
    bound,
    check_counted,
    counting,
    drafters_of,
    load_of,
    preset_of,
    scenario_data,
    settings_of,
    uploaded_path,
)
from uploads import drop_model, one_line, uploaded_model

from specsim.catalog.acceptance import load_profile
from specsim.catalog.files import MAX_BYTES
from specsim.catalog.scenario import load_scenario
from specsim.catalog.yaml_text import load_value
from specsim.cli.parameters import describe
from specsim.errors import SpecsimError
from specsim.export.tables import count
from specsim.schema.scenario import Scenario

_LENGTH_STEP = 0.05
_FILE_MB = MAX_BYTES // 2**20
"""Files of the side bar. What is said of one stands in its popover too, which covers the rest."""
_SHOWN = 26
"""Letters of a choice that the side bar shows."""


def sidebar() -> list[Asked]:
    """Draw the widgets and return what they ask: one scenario, or two to compare."""
    link.remember()
    with st.sidebar:
        place = st.empty()
        compared = st.toggle(
            "Compare two scenarios", help="Side by side on every page.", **bound(link.COMPARE)
        )
        sides = (A, B) if compared else (A,)
        for side, part in zip(sides, st.tabs(["A", "B"]) if compared else [st.container()],
                              strict=True):  # fmt: skip
            with part:
                _side(side)
        link.report(place)
    return [_asked(side) for side in sides]


def _asked(side: Side) -> Asked:
    """Make the scenario of a side, or say in a sentence why there is none."""
    load = load_of(side)
    try:
        scenario, load = _with_load(side, _settings(side), load)
        refuse_paths(scenario, own=uploaded_path(side))
        counted = side.get("acceptance") == COUNTED and scenario.speculation.method != "none"
        if counted and scenario.speculation.acceptance is None:
            check_counted(scenario)
    except SpecsimError as problem:
        return Asked(side, None, str(problem), load)
    return Asked(side, scenario, "", load)


def _with_load(side: Side, settings: dict[str, Any], load: float) -> tuple[Scenario, float]:
    """Return the scenario, and the load that is asked about, which is among the scenario's."""
    data = scenario_data(side)
    scenario = load_scenario(data, overrides=settings)
    asked = scenario.load
    values = asked.request_rate or asked.concurrency or ()
    if load in values:
        return scenario, load
    kind = "request_rate" if asked.request_rate else "concurrency"
    if kind not in data["load"]:  # More settings count loads in another way
        return scenario, values[len(values) // 2]
    more = {f"load.{kind}": sorted({*values, load})}
    return load_scenario(data, overrides={**settings, **more}), load


def _settings(side: Side) -> dict[str, Any]:
    found = {}
    for line in settings_of(side):
        name, equals, text = line.partition("=")
        if not equals:
            raise SpecsimError(
                f"more settings: {line!r}: expected KEY=VALUE, such as engine.max_num_seqs=256"
            )
        name = name.strip()
        if not text.strip():
            raise SpecsimError(f"more settings: {name}: has no value; null leaves it out")
        if name in found:
            raise SpecsimError(f"more settings: {name} is given twice; keep one of them")
        found[name] = load_value(name, text.strip(), what=f"more settings: {name}")
    return found


def _side(side: Side) -> None:
    """Draw the widgets of one side."""
    top = st.container()  # which preset stands there follows from what is below
    with st.expander("Deployment", expanded=True):
        _deployment(side)
    with st.expander("Speculation", expanded=True):
        _speculation(side)
    with st.expander("Workload and load", expanded=True):
        _workload(side)
    with st.expander("More"):
        _more(side)
    with top:
        _presets(side)


def _choose(side: Side, name: str, label: str, offered: Sequence[Any] = (), **more: Any) -> Any:
    """Draw a choice bound to the address."""
    offered = offered or chosen_from(side, name)
    return st.selectbox(
        label, offered, index=start_of(name, offered), **bound(side.key(name)), **more
    )


def _slide(side: Side, name: str, label: str, step: float | None = None, **more: Any) -> None:
    """Draw a number that is felt for."""
    low, high = RANGES[name]
    st.slider(label, low, high, DEFAULTS[name], step, **bound(side.key(name)), **more)


def _number(side: Side, name: str, label: str, **more: Any) -> None:
    """Draw a number that is known."""
    low, high = RANGES[name]
    st.number_input(label, low, high, type(high)(DEFAULTS[name]), **bound(side.key(name)), **more)


def _presets(side: Side) -> None:
    def taken(kind: str) -> None:
        chosen = PRESETS[kind].get(st.session_state[side.key(kind[:-1])])
        if chosen is None:
            return
        traffic = kind == "workloads"
        # A preset is the whole of its part: nothing of what stood there before stays behind.
        rest = [line for line in settings_of(side) if line.startswith(TRAFFIC) != traffic]
        reset = {name: DEFAULTS[name] for name in OF_TRAFFIC if traffic} or {
            name: value for name, value in DEFAULTS.items()
            if name not in (*OF_TRAFFIC, "settings", *(kind[:-1] for kind in PRESETS))
        }  # fmt: skip
        side.put({**reset, **chosen, "settings": "\n".join(rest)})
        st.session_state.pop(side.key("said"), None)

    for kind, label in (("deployments", "Start from"), ("workloads", "Traffic like")):
        key = side.key(kind[:-1])
        st.session_state[key] = preset_of(side, kind)
        st.selectbox(label, [*PRESETS[kind], CUSTOM], key=key, on_change=taken, args=(kind,),
                     help="Fills in the widgets below; change any of them afterwards.")  # fmt: skip
    _own_start(side)


def _own_start(side: Side) -> None:
    """Take a serving command or a scenario file in place of a preset."""
    with st.popover("Or a command, or a scenario file", width="stretch") as box:
        st.text_area(
            "A serving command", key=side.key("pasted"), height=140,
            placeholder="vllm serve MODEL --tensor-parallel-size 4 ...",
        )  # fmt: skip
        st.button("Use it", key=side.key("use"), on_click=_take_command, args=(side,))
        st.file_uploader(
            "Or a scenario.yaml", type=["yaml", "yml", "json"], key=side.key("scenario_upload"),
            on_change=_take_file, args=(side,), max_upload_size=_FILE_MB,
            help="A scenario as specsim reads it; the widgets are filled in from it.",
        )  # fmt: skip
    said = st.session_state.get(side.key("said"))
    if said:
        taken, text = said
        box.caption(escaped(text) if taken else f":red[{escaped(text)}]")
        (st.info if taken else st.error)(escaped(text))


def _take_command(side: Side) -> None:
    """Fill the widgets from a pasted command."""
    # Of the session: what a quick click sends along with the text is not drawn yet.
    text = str(st.session_state[side.key("pasted")])
    _take(side, lambda: from_command(text, side))


def _take_file(side: Side) -> None:
    """Fill the widgets from an uploaded scenario."""
    upload = st.session_state[side.key("scenario_upload")]
    st.session_state.pop(side.key("said"), None)
    if upload is not None:
        _take(side, lambda: from_file(upload, side))


def _take(side: Side, read: Callable[[], tuple[dict[str, Any], str]]) -> None:
    """Fill the widgets from what is read, and keep what is to be said of it."""
    try:
        found, said = read()
    except SpecsimError as problem:
        st.session_state[side.key("said")] = False, str(problem)
        return
    side.put(found)
    st.session_state[side.key("said")] = True, said


def _deployment(side: Side) -> None:
    _choose(side, "model", "Model", accept_new_options=True, help=describe("target.model"))
    _own_model(side)
    _choose(side, "gpu", "GPU", help=describe("hardware.accelerator"))
    _choose(side, "dtype", "Weights", help=describe("target.weight_dtype"))
    left, right = st.columns(2)
    with left:
        _choose(side, "tp", "TP", help="GPUs that share every layer")
    with right:
        _choose(side, "kv_dtype", "KV cache", help=describe("target.kv_dtype"))


def _own_model(side: Side) -> None:
    """Take a model's config.json in place of a named one; a link cannot hold it."""
    with st.popover("Or your own config.json", width="stretch") as box:
        upload = st.file_uploader(
            "A model's config.json", type=["json"], key=side.key("config"),
            max_upload_size=_FILE_MB, help="Stays on this machine and out of the link.",
        )  # fmt: skip
        st.caption(f"A file shown in red is larger than {_FILE_MB} MB and was not taken.")
    taken = side.key("config_taken")
    if upload is None:
        drop_model(key=side.key(MODEL_FILE))
        st.session_state.pop(taken, None)
        return
    if st.session_state.get(taken) != upload.file_id:
        st.session_state[taken] = upload.file_id
        st.session_state[side.key("config_said")] = ""
        try:
            uploaded_model(upload, key=side.key(MODEL_FILE))
        except SpecsimError as problem:
            drop_model(key=side.key(MODEL_FILE))
            st.session_state[side.key("config_said")] = str(problem)
    refused = st.session_state.get(side.key("config_said"))
    if refused:
        box.caption(f":red[{escaped(refused)}]")
        st.error(escaped(refused))
    else:
        st.caption(f"{escaped(one_line(upload.name))} is used in place of the model's name.")


def _speculation(side: Side) -> None:
    trained = drafters_of(str(side.get("model")))
    method = _choose(side, "method", "Method")
    if method not in (*trained, "none", "ngram", "suffix", "draft_model"):
        known = ", ".join(trained) or "none"
        st.caption(f"The catalog has no {method} drafter of this model (it has: {known}).")
    if method == "none":
        return
    if method == "draft_model":
        _choose(side, "drafter", "Draft model", accept_new_options=True)
    elif method in trained:
        _choose(side, "drafter", "Drafter")
    left, right = st.columns(2)
    with left:
        _slide(side, "k", "Draft tokens, k")
    with right:
        _choose(side, "draft_tp", "Drafter TP")
    key = side.key("acceptance")
    found = counting()
    # Offered where it says something, or where a link or the widget already asks for it.
    counts = found is not None and found.scope.method == method
    asked = st.session_state.get(key, st.query_params.get(key)) == COUNTED
    forms = [form for form in FORMS if form != COUNTED or counts or asked]
    _acceptance(side, FORMS[_choose(side, "acceptance", "Acceptance, given as", forms)])


def _acceptance(side: Side, form: str) -> None:
    if form == "length":
        _length(side)
    elif form in ("rate", "draft_rate"):
        schema = {"rate": "rate", "draft_rate": "draft_acceptance_rate"}[form]
        label = next(words for words, name in FORMS.items() if name == form)
        _slide(side, form, label.capitalize(), 0.01,
               help=describe(f"speculation.acceptance.{schema}"))  # fmt: skip
    elif form == "positions":
        st.text_input("Per position", DEFAULTS["positions"],
                      help=describe("speculation.acceptance.per_position"),
                      **bound(side.key("positions")))  # fmt: skip
    elif form == "profile":
        profile = load_profile(_choose(side, "profile", "Profile"))
        temperatures = ", ".join(f"{point.temperature:g}" for point in profile.points)
        name = f"{profile.id}: " if len(profile.id) > _SHOWN else ""  # cut in the box above
        st.caption(escaped(f"{name}measured at temperature {temperatures}"))
    else:
        found = counting()
        for one in () if found is None else found.acceptance:
            drafts = f", of {count(one.counts)} drafts" if one.counts else ""
            k = one.num_speculative_tokens
            st.caption(f"k = {k}: {one.length:.3g} tokens per drafting step{drafts}")


def _length(side: Side) -> None:
    """Draw the acceptance length: up to k + 1."""
    least, most = bounds("length", k=int(side.get("k"))) or (1.0, 1.0)
    start = min(float(DEFAULTS["length"]), most)
    count_of_stops = int((most - least) / _LENGTH_STEP)
    stops = [round(least + i * _LENGTH_STEP, 2) for i in range(count_of_stops)]
    _stops(side, "length", "Tokens per step", [*stops, start, most], start,
           help=describe("speculation.acceptance.length"))  # fmt: skip


def _stops(
    side: Side, name: str, label: str, stops: Sequence[float], start: float, **more: Any
) -> None:
    """Draw a slider of stops, and of the number that stands, wherever it comes from.

    Stops, since a slider whose range moves with another control would be another one each time and
    lose its part of the link. A link is compared with the labels: its number is written its way.
    """
    key, kind = side.key(name), type(start)
    written = str(st.query_params.get(key, ""))
    offered = set(stops)
    for text in (written, st.session_state.get(key)):
        try:
            number = float(text)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        if min(stops) <= number <= max(stops) and kind(number) == number:
            offered.add(kind(number))
    stands = st.session_state.get(key)
    if isinstance(stands, int | float) and stands > max(stops):  # k was made less
        st.session_state[key] = max(stops)

    def shown(number: float) -> str:
        try:
            return written if float(written) == number else f"{number:g}"
        except ValueError:
            return f"{number:g}"

    st.select_slider(label, sorted(offered), start, format_func=shown, **bound(key), **more)


def _workload(side: Side) -> None:
    left, right = st.columns(2)
    with left:
        _number(side, "input_tokens", "Prompt, tokens")
    with right:
        _number(side, "output_tokens", "Answer, tokens")
    _slide(side, "temperature", "Temperature", 0.1,
           help="Acceptance falls with it; only a measured profile knows how far.")  # fmt: skip
    if _choose(side, "loads", "Requests are counted") == PER_SECOND:
        _number(side, "request_rate", "Your load: requests/s per replica")
    else:
        _load(side)


def _load(side: Side) -> None:
    """Draw the load: stops by ratio."""
    _stops(side, "load", "Your load: requests in flight", LOADS, DEFAULTS["load"])


def _more(side: Side) -> None:
    _choose(side, "engine", "Engine")
    st.text_area(
        "More settings", DEFAULTS["settings"], height=80,
        placeholder="engine.max_num_seqs=256",
        help="KEY=VALUE, a line each: any key of a scenario, as --set takes it.",
        **bound(side.key("settings")),
    )  # fmt: skip
