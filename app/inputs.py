"""The widgets that say what is asked, in the side bar of every page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st
from show import escaped
from state import (
    BOUND,
    CUSTOM,
    DEFAULTS,
    FORMS,
    MODEL_FILE,
    PER_SECOND,
    PRESETS,
    UNSAID,
    A,
    Asked,
    B,
    Side,
    devices,
    drafters_of,
    load_of,
    models,
    scenario_data,
)
from uploads import drop_model, uploaded_model

from specsim.catalog.acceptance import profile_ids
from specsim.catalog.engines import engine_versions
from specsim.catalog.scenario import load_scenario
from specsim.catalog.yaml_text import load_yaml
from specsim.cli.parameters import describe
from specsim.errors import SpecsimError

_METHODS = ("none", "ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp", "medusa", "dflash",
            "dspark", "p_eagle", "pard")  # fmt: skip
_TP = (1, 2, 4, 8, 16)
_MOST_K = 16
_WEIGHT_DTYPES = ("checkpoint's", "bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4")
_KV_DTYPES = ("default", "bf16", "fp8")


def sidebar() -> list[Asked]:
    """Draw the widgets and return what they ask: one scenario, or two to compare."""
    with st.sidebar:
        compared = st.toggle(
            "Compare two scenarios", key="compare", help="Side by side on every page.", **BOUND
        )
        if not compared:
            _side(A)
            return [_asked(A)]
        for side, tab in zip((A, B), st.tabs(["A", "B"]), strict=True):
            with tab:
                _side(side)
        return [_asked(A), _asked(B)]


def _asked(side: Side) -> Asked:
    """Make the scenario of a side, or say in a sentence why there is none."""
    load = load_of(side)
    try:
        settings = _settings(side)
        return Asked(side, load_scenario(scenario_data(side), overrides=settings), "", load)
    except SpecsimError as problem:
        return Asked(side, None, str(problem), load)


def _settings(side: Side) -> dict[str, Any]:
    found = {}
    for line in str(side.get("settings")).replace(";", "\n").splitlines():
        if line.strip():
            name, equals, text = line.partition("=")
            if not equals:
                raise SpecsimError(
                    f"more settings: {line.strip()!r}: expected KEY=VALUE, such as "
                    "engine.max_num_seqs=256"
                )
            found[name.strip()] = load_yaml(text.strip(), what=f"more settings: {name.strip()}")
    return found


def _side(side: Side) -> None:
    """Draw the widgets of one side."""
    _presets(side)
    with st.expander("Deployment", expanded=True):
        _deployment(side)
    with st.expander("Speculation", expanded=True):
        _speculation(side)
    with st.expander("Workload and load", expanded=True):
        _workload(side)
    with st.expander("More"):
        _more(side)


def _choose(side: Side, name: str, label: str, options: Sequence[Any], **more: Any) -> Any:
    """Draw a choice bound to the address."""
    start = DEFAULTS[name]
    index = list(options).index(start) if start in options else 0
    return st.selectbox(label, options, index=index, key=side.key(name), **BOUND, **more)


def _presets(side: Side) -> None:
    def taken(kind: str) -> None:
        chosen = st.session_state[side.key(kind[:-1])]
        side.put(PRESETS[kind].get(chosen, {}))

    for kind, label in (("deployments", "Start from"), ("workloads", "Traffic like")):
        name = kind[:-1]
        st.selectbox(
            label, [*PRESETS[kind], CUSTOM], key=side.key(name), on_change=taken, args=(kind,),
            help="Fills in the widgets below; change any of them afterwards.", **BOUND,
        )  # fmt: skip


def _deployment(side: Side) -> None:
    _choose(side, "model", "Model", models(), accept_new_options=True,
            help=describe("target.model"))  # fmt: skip
    _own_model(side)
    left, right = st.columns([3, 2])
    with left:
        _choose(side, "gpu", "GPU", devices(), help=describe("hardware.accelerator"))
    with right:
        _choose(side, "tp", "TP", _TP, help="GPUs that share every layer")
    left, right = st.columns(2)
    with left:
        _choose(side, "dtype", "Weights", _WEIGHT_DTYPES, help=describe("target.weight_dtype"))
    with right:
        _choose(side, "kv_dtype", "KV cache", _KV_DTYPES, help=describe("target.kv_dtype"))


def _own_model(side: Side) -> None:
    """Take a model's config.json in place of a named one; a link cannot hold it."""
    with st.popover("Or your own config.json", width="stretch"):
        upload = st.file_uploader(
            "A model's config.json", type=["json"], key=side.key("config"),
            help="Stays on this machine and out of the link.",
        )  # fmt: skip
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
        st.error(escaped(refused))
    else:
        st.caption(f"The uploaded {escaped(upload.name)} is used in place of the model's name.")


def _speculation(side: Side) -> None:
    trained = drafters_of(str(side.get("model")))
    method = _choose(side, "method", "Method", _METHODS)
    if method not in (*trained, "none", "ngram", "suffix", "draft_model"):
        known = ", ".join(trained) or "none"
        st.caption(f"The catalog has no {method} drafter of this model (it has: {known}).")
    if method == "none":
        return
    if method == "draft_model":
        _choose(side, "drafter", "Draft model", [UNSAID["drafter"], *models()],
                accept_new_options=True)  # fmt: skip
    elif method in trained:
        _choose(side, "drafter", "Drafter", [UNSAID["drafter"], *trained[method]])
    left, right = st.columns(2)
    with left:
        st.slider("Draft tokens, k", 1, _MOST_K, DEFAULTS["k"], key=side.key("k"), **BOUND)
    with right:
        _choose(side, "draft_tp", "Drafter TP", ("default", *map(str, _TP)))
    form = _choose(side, "acceptance", "Acceptance, given as", tuple(FORMS))
    _acceptance(side, FORMS[form])


def _acceptance(side: Side, form: str) -> None:
    k = int(side.get("k"))
    if form == "length":
        st.slider("Tokens per step", 1.0, k + 1.0, min(float(DEFAULTS["length"]), k + 1.0), 0.05,
                  key=side.key("length"), help=describe("speculation.acceptance.length"),
                  **BOUND)  # fmt: skip
    elif form in ("rate", "draft_rate"):
        schema = {"rate": "rate", "draft_rate": "draft_acceptance_rate"}[form]
        label = next(words for words, name in FORMS.items() if name == form)
        st.slider(label.capitalize(), 0.0, 1.0, DEFAULTS[form], 0.01, key=side.key(form),
                  help=describe(f"speculation.acceptance.{schema}"), **BOUND)  # fmt: skip
    elif form == "positions":
        st.text_input("Per position", DEFAULTS["positions"], key=side.key("positions"),
                      help=describe("speculation.acceptance.per_position"), **BOUND)  # fmt: skip
    else:
        fitting = [p for p in profile_ids() if p.startswith(f"{side.get('method')}/")]
        _choose(side, "profile", "Profile", fitting or profile_ids())


def _workload(side: Side) -> None:
    left, right = st.columns(2)
    with left:
        st.number_input("Prompt, tokens", 1, 1_000_000, DEFAULTS["input_tokens"],
                        key=side.key("input_tokens"), **BOUND)  # fmt: skip
    with right:
        st.number_input("Answer, tokens", 1, 1_000_000, DEFAULTS["output_tokens"],
                        key=side.key("output_tokens"), **BOUND)  # fmt: skip
    st.slider("Temperature", 0.0, 2.0, DEFAULTS["temperature"], 0.1, key=side.key("temperature"),
              help="Acceptance falls with it; only a measured profile knows how far.",
              **BOUND)  # fmt: skip
    kind = _choose(side, "loads", "Requests are counted", ("in flight", PER_SECOND))
    if kind != PER_SECOND:
        st.slider("Your load: requests in flight", 1, 1024, DEFAULTS["load"], 1,
                  key=side.key("load"), **BOUND)  # fmt: skip
    else:
        st.number_input("Your load: requests/s per replica", 0.01, 1e5, DEFAULTS["request_rate"],
                        key=side.key("request_rate"), **BOUND)  # fmt: skip


def _more(side: Side) -> None:
    versions = [f"vllm@{v}" for v in reversed(engine_versions("vllm"))]
    _choose(side, "engine", "Engine", ["newest", *versions, "sglang"])
    st.text_area(
        "More settings", DEFAULTS["settings"], key=side.key("settings"), height=80,
        placeholder="engine.max_num_seqs=256",
        help="KEY=VALUE, a line each: any key of a scenario, as --set takes it.", **BOUND,
    )  # fmt: skip
    with st.popover("Paste a vllm serve command", width="stretch"):
        text = st.text_area("Command", key=side.key("pasted"), placeholder="vllm serve ...")
        st.button("Use it", key=side.key("use"), on_click=_take, args=(side, text))
    said = st.session_state.get(side.key("said"))
    if said:
        st.caption(said)


def _take(side: Side, text: str) -> None:
    """Fill the widgets from a pasted command."""
    from specsim.catalog.serve_command import parse_serve_command

    try:
        command = parse_serve_command(text)
    except SpecsimError as problem:
        st.session_state[side.key("said")] = str(problem)
        return
    side.put(_widgets(command.scenario))
    ignored = f"; without effect: {', '.join(command.ignored)}" if command.ignored else ""
    st.session_state[side.key("said")] = f"taken from the command{ignored}"


_PLACES = {
    "target.model": "model", "target.weight_dtype": "dtype", "target.kv_dtype": "kv_dtype",
    "hardware.accelerator": "gpu", "hardware.tensor_parallel_size": "tp",
    "speculation.method": "method", "speculation.num_speculative_tokens": "k",
    "speculation.drafter": "drafter", "speculation.draft_tensor_parallel_size": "draft_tp",
}  # fmt: skip
"""Widgets by the key of the scenario that they set; other keys go into `more settings`."""


def _widgets(data: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    lines = []
    for key, value in _flat(data):
        if key in _PLACES:
            place = _PLACES[key]
            found[place] = str(value) if place == "draft_tp" else value
        elif key not in ("name", "engine.name", "engine.version"):
            lines.append(f"{key}={value}")
    engine = data.get("engine", {})
    if engine.get("version"):
        found["engine"] = f"{engine.get('name', 'vllm')}@{engine['version']}"
    return {"method": "none", "drafter": UNSAID["drafter"], **found, "settings": "\n".join(lines)}


def _flat(data: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in data.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((prefix + key, value))
    return pairs
