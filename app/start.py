"""Start from what somebody has: a serving command, or a scenario file.

Both become a scenario; the controls take what they can hold of it, and every key in which the
scenario that they make still differs goes into the field More settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from controls import choices, fits
from state import (
    COUNTED,
    DEFAULTS,
    FORMS,
    PER_SECOND,
    UNSAID,
    Side,
    counting,
    data_of,
)
from uploads import Upload, one_line

from specsim.analysis.overlay import counted_here
from specsim.catalog.files import MAX_BYTES, kind_of_file
from specsim.catalog.models import resolve_name
from specsim.catalog.scenario import load_scenario
from specsim.catalog.serve_command import parse_serve_command
from specsim.catalog.yaml_text import load_yaml
from specsim.errors import InputError
from specsim.schema.scenario import Scenario

_FORMS_OF_FILES = {
    "length": "length", "rate": "rate", "draft_acceptance_rate": "draft_rate",
    "per_position": "positions", "profile": "profile",
}  # fmt: skip
MOST_LETTERS = 50_000
"""Of a pasted command: a long one with everything in it has two thousand."""
_WORD = re.compile(r"[\w./-]+")
_K, _ACCEPTANCE = "speculation.num_speculative_tokens", "speculation.acceptance"


def from_command(text: str, side: Side) -> tuple[dict[str, Any], str]:
    """Return controls as a serving command wants them, and what is to be said of it.

    What no command states (accelerator, workload, load, acceptance) stays as it is.

    Raises
    ------
    SpecsimError
        There is no command, or none that is understood.
    """
    if len(text) > MOST_LETTERS:
        raise InputError(
            f"the command has {len(text):,} letters, which no command has; paste at most "
            f"{MOST_LETTERS:,}"
        )
    command = parse_serve_command(text)
    said = {name: side.get(name) for name in DEFAULTS}
    stated: Mapping[str, Any] = command.scenario
    speculation = {"method": "none", **stated.get("speculation", {})}
    now = data_of({**said, "method": speculation["method"]})
    if speculation["method"] != "none":
        k = speculation.get("num_speculative_tokens", said["k"])
        speculation = {**_kept(now["speculation"], said, k), **speculation}
    data = {
        **{part: now[part] for part in ("workload", "load")},
        "target": {"model": said["model"], **stated.get("target", {})},
        "hardware": {"accelerator": said["gpu"], **stated.get("hardware", {})},
        "engine": stated.get("engine", {}),
        "speculation": speculation,
    }
    controls = controls_of(load_scenario(data), said)
    heard = "Taken from the command." + _elsewhere(controls)
    if speculation.get("acceptance"):
        ((form, value),) = speculation["acceptance"].items()
        heard += (
            f" Acceptance ({form.replace('_', ' ')} {text_of(value)}) and traffic are not in a "
            "command: they stand as they were before. Give your own: acceptance decides the answer."
        )
    if command.ignored:
        heard += f" Without effect: {', '.join(command.ignored)}."
    if command.warnings:
        heard += f" To know: {'; '.join(command.warnings)}."
    return controls, heard


def _kept(now: Mapping[str, Any], said: Mapping[str, Any], k: int) -> dict[str, Any]:
    """Return the acceptance that stands, as far as it can be that of another k and method."""
    acceptance = now.get("acceptance")
    if acceptance is None:
        return {}
    if "profile" in acceptance:
        known = choices("profile", model=str(said["model"]), method=now["method"]) or ()
        if acceptance["profile"] not in known:
            acceptance = {"profile": known[0]}
    if acceptance.get("length", 1.0) > k + 1:
        acceptance = {"length": k + 1.0}
    return {"acceptance": acceptance}


def from_file(upload: Upload, side: Side) -> tuple[dict[str, Any], str]:
    """Return controls as a scenario file wants them, and what is to be said of it.

    Raises
    ------
    SpecsimError
        It is no scenario.
    """
    name = one_line(upload.name)
    found = controls_of(read_scenario(upload, name), {name: side.get(name) for name in DEFAULTS})
    return found, f"Taken from {name}.{_elsewhere(found)}"


def _elsewhere(controls: Mapping[str, Any]) -> str:
    """Say which keys no control holds."""
    keys = [line.partition("=")[0] for line in str(controls.get("settings", "")).splitlines()]
    return f" In More settings: {', '.join(keys)}." if keys else ""


def read_scenario(upload: Upload, name: str) -> Scenario:
    """Return an uploaded scenario; its name is for messages alone, and no file is written."""
    if upload.size > MAX_BYTES:
        raise InputError(f"{name}: has {upload.size:,} bytes, which is too much for a scenario")
    try:
        text = bytes(upload.getbuffer()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: is not text (UTF-8); expected a scenario in YAML") from error
    data = load_yaml(text, what=name, text_keys_only=True)
    if isinstance(data, Mapping):
        kind = kind_of_file(data) or "something else"
    else:
        kind = "empty" if data is None else f"a {type(data).__name__}"
    if kind != "a scenario":
        raise InputError(
            f"{name}: is {kind}, expected a scenario: target, hardware, speculation, workload, load"
        )
    try:
        return load_scenario(data)
    except InputError as problem:
        raise InputError(str(problem).replace("scenario:", f"{name}:", 1)) from problem


def controls_of(scenario: Scenario, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the controls, More settings among them, that make a scenario.

    Parameters
    ----------
    now : mapping
        Controls as they stand, for what a scenario leaves open: which load is asked about.
    """
    scenario = _by_catalog(scenario)
    wanted = _wanted(scenario)
    said = {**now, **UNSAID, **_load(scenario, now), "settings": ""}
    # First what decides on the choices of others.
    for name in ("model", "method", "k", *wanted):
        if name in wanted and fits(name, wanted[name], {**said, name: wanted[name]}):
            said[name] = wanted[name]
    said["settings"] = "\n".join(_rest(scenario, said))
    return {name: value for name, value in said.items() if value != now[name]}


def _by_catalog(scenario: Scenario) -> Scenario:
    """Return a scenario whose drafter goes by the catalog's id, as the controls have it."""
    drafter = scenario.speculation.drafter
    known, dtype = resolve_name(drafter) if drafter else (None, None)
    if known is None or dtype is not None or scenario.speculation.method == "draft_model":
        return scenario
    speculation = scenario.speculation.model_copy(update={"drafter": known})
    return scenario.model_copy(update={"speculation": speculation})


def _wanted(scenario: Scenario) -> dict[str, Any]:
    """Return what each control would have to say."""
    target, speculation, engine = scenario.target, scenario.speculation, scenario.engine
    workload = scenario.workload
    found: dict[str, Any] = {
        "model": target.model, "dtype": target.weight_dtype, "kv_dtype": target.kv_dtype,
        "gpu": scenario.hardware.accelerator, "tp": scenario.hardware.tensor_parallel_size,
        "method": speculation.method, "k": speculation.num_speculative_tokens,
        "drafter": speculation.drafter,
        "input_tokens": _whole(workload.input_tokens),
        "output_tokens": _whole(workload.output_tokens),
        "temperature": workload.temperature,
    }  # fmt: skip
    if speculation.draft_tensor_parallel_size is not None:
        found["draft_tp"] = str(speculation.draft_tensor_parallel_size)
    if engine.version is not None or engine.name != "vllm":
        found["engine"] = engine.name + (f"@{engine.version}" if engine.version else "")
    return {
        name: value for name, value in found.items() if value is not None
    } | _acceptance(scenario)  # fmt: skip


def _acceptance(scenario: Scenario) -> dict[str, Any]:
    given = scenario.speculation.acceptance
    if given is None:
        found = counting()
        return {} if found is None or not counted_here(found.scope, scenario) else {
            "acceptance": COUNTED
        }  # fmt: skip
    for key, name in _FORMS_OF_FILES.items():
        value = getattr(given, key)
        if value is not None:
            form = next(words for words, control in FORMS.items() if control == name)
            text = ", ".join(map(repr, value)) if isinstance(value, tuple) else value
            return {"acceptance": form, name: text}
    return {}


def _load(scenario: Scenario, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the load to ask about: that from which the controls make the scenario's loads."""
    rates = scenario.load.request_rate
    loads = rates or scenario.load.concurrency or ()
    kind, control = (PER_SECOND, "request_rate") if rates else ("in flight", "load")
    fitting = [
        value
        for value in (now[control], *map(_whole, loads))
        if fits(control, value, {**DEFAULTS, "loads": kind})
    ]
    made = [
        v for v in fitting
        if next(iter(data_of({**DEFAULTS, "loads": kind, control: v})["load"].values()))
        == list(loads)
    ]  # fmt: skip
    asked = [v for v in fitting if v in loads]
    found = made or ([asked[len(asked) // 2]] if asked else [DEFAULTS[control]])
    return {"loads": kind, control: found[0]}


def _rest(scenario: Scenario, said: Mapping[str, Any]) -> list[str]:
    """Return every key in which the controls differ from a scenario, as More settings has them."""
    wanted = _flat(scenario.model_dump(mode="json", exclude={"name"}))
    made = _flat(load_scenario(data_of(said)).model_dump(mode="json", exclude={"name"}))
    different = {key for key in {*wanted, *made} if wanted.get(key) != made.get(key)}
    if _K in different:  # another k alone would leave the acceptance that of the control's k
        different.add(_ACCEPTANCE)
    return [
        f"{key}={text_of(wanted.get(key))}"
        for key in dict.fromkeys((*wanted, *made))
        if key in different
    ]


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return values by dotted key; a load and an acceptance are one value each."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        name = prefix + key
        if isinstance(value, Mapping) and name != _ACCEPTANCE:
            found |= _flat(value, f"{name}.")
        else:
            found[name] = value
    return found


def text_of(value: Any) -> str:
    """Return a value as a line of More settings has it, and `--set`."""
    if isinstance(value, str) and _WORD.fullmatch(value) and load_yaml(value, what="") == value:
        return value  # quotes only where YAML would read something else without them
    # A semicolon would end the line.
    return json.dumps(_plain(value), ensure_ascii=False).replace(";", "\\u003b")


def _plain(value: Any) -> Any:
    """Return a value without what is not given, and whole numbers as such."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _whole(value) if isinstance(value, float) else value


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value
