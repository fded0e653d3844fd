"""The scenario that all pages share: what the widgets say, as `specsim` reads it.

Every widget is bound to the address of the page (`bind="query-params"`), so a link is the state.
A second scenario has the same widgets under keys of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st
import yaml

from specsim.analysis.overlay import counted_here
from specsim.catalog.hardware import hardware_ids
from specsim.catalog.models import canonical_id, drafter_ids, load_drafter, model_ids
from specsim.errors import SpecsimError, UsageError
from specsim.schema.calibration import Calibration
from specsim.schema.model import DrafterSpec
from specsim.schema.scenario import DEFAULT_CONCURRENCY, Scenario
from specsim.schema.speculation import NO_DRAFTER

PRESETS: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "presets.yaml").read_text(encoding="utf-8")
)
CUSTOM = "own"
BROKEN = "link_broken"
"""Where a session keeps the keys whose values in the link would break their controls."""
CALIBRATION = "calibration"
"""Where the session keeps the calibration that all pages use."""
LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Concurrencies that curves are drawn through; the load that is asked about is added."""
UNSAID: dict[str, str] = {
    "dtype": "checkpoint's", "kv_dtype": "default", "drafter": "the catalog's",
    "draft_tp": "default", "engine": "newest",
}  # fmt: skip
"""What widgets show where the scenario leaves the choice to specsim."""
DEFAULTS: dict[str, Any] = {
    **UNSAID,
    "rate": 0.6, "draft_rate": 0.4, "positions": "0.7, 0.5, 0.35, 0.25", "profile": "",
    "settings": "", "loads": "in flight", "request_rate": 5.0,
    **PRESETS["workloads"]["chat"],
    **next(iter(PRESETS["deployments"].values())),
}  # fmt: skip
"""What each widget starts from, by its key."""
COUNTED = "counted by the calibration"
"""The form of acceptance that leaves it to the session's calibration."""
FORMS = {
    "length": "length",
    "rate per token": "rate",
    "accepted / drafted": "draft_rate",
    "per position": "positions",
    "profile": "profile",
    COUNTED: "counted",
}
"""Ways of giving acceptance, as a link has them, and the widget of each."""
OF_TRAFFIC = ("input_tokens", "output_tokens", "temperature", "loads", "load", "request_rate")
TRAFFIC = ("workload.", "load.")
"""Controls, and how keys of More settings begin, that are of the traffic and not the deployment."""
PER_SECOND = "per second"
"""How loads are counted in an open loop."""


def bound(key: str) -> dict[str, Any]:
    """Return the key of a control, and how it is made so that its value belongs to the link.

    A number that is infinite and a choice that is empty end in an exception inside Streamlit, which
    reads the link it was opened with all session long: such a control stays out of the link.
    """
    kept = {"key": key, "persist_state": "session"}
    broken = key in st.session_state.get(BROKEN, ())
    return kept if broken else {**kept, "bind": "query-params"}


@dataclass(frozen=True)
class Side:
    """One of the scenarios that are compared."""

    prefix: str
    title: str

    def key(self, name: str) -> str:
        """Return the key of a widget: its name in the address."""
        return self.prefix + name

    def get(self, name: str) -> Any:
        """Return what a widget says; what it starts from before it is drawn."""
        return st.session_state.get(self.key(name), DEFAULTS[name])

    def put(self, values: Mapping[str, Any]) -> None:
        """Set widgets; only from a callback, before they are drawn."""
        for name, value in values.items():
            st.session_state[self.key(name)] = value


A, B = Side("", "A"), Side("b_", "B")


@dataclass(frozen=True)
class Asked:
    """What one side asks: a scenario, or why there is none."""

    side: Side
    scenario: Scenario | None
    error: str
    load: float

    @property
    def title(self) -> str:
        """What it is called above its part of a page."""
        return self.side.title


def calibration() -> Calibration | None:
    """Return the calibration of this session, made on the page Calibrate."""
    found: Calibration | None = st.session_state.get(CALIBRATION)
    return found


@st.cache_data(show_spinner=False)
def models() -> list[str]:
    """Return the models of the catalog."""
    return model_ids()


@st.cache_data(show_spinner=False)
def devices() -> list[str]:
    """Return the accelerators of the catalog."""
    return hardware_ids()


@st.cache_data(show_spinner=False)
def drafters_of(model: str) -> dict[str, list[str]]:
    """Return the trained drafters of a target by method."""
    target = canonical_id(model) or model
    found: dict[str, list[str]] = {}
    for name in drafter_ids():
        spec = load_drafter(name)
        if isinstance(spec, DrafterSpec) and target in (spec.target, canonical_id(spec.target)):
            found.setdefault(spec.kind, []).append(name)
    return found


def counting() -> Calibration | None:
    """Return the session's calibration if its runs counted acceptance."""
    found = calibration()
    return found if found is not None and found.acceptance else None


def preset_of(side: Side, kind: str) -> str:
    """Return the preset that a side's controls make, for what it sets; `own` where none does."""
    for name, values in PRESETS[kind].items():
        if all(side.get(control) == value for control, value in values.items()):
            return str(name)
    return CUSTOM


def settings_of(side: Side) -> list[str]:
    """Return the lines of More settings."""
    lines = str(side.get("settings")).replace(";", "\n").splitlines()
    return [line.strip() for line in lines if line.strip()]


def check_counted(scenario: Scenario) -> None:
    """Check that the session's calibration counted the acceptance that a scenario leaves to it.

    Raises
    ------
    UsageError
        It did not: the answer would rest on an assumed acceptance that nobody asked for.
    """
    found, speculation = counting(), scenario.speculation
    if found is None:
        raise UsageError(
            "acceptance is to be the one counted by the calibration, and this session has no "
            "calibration that counted any: load or make one on the page Calibrate, or give "
            "acceptance in another form"
        )
    if not counted_here(found.scope, scenario):
        of = f" with {found.scope.drafter}" if found.scope.drafter else ""
        here = f" with {speculation.drafter}" if speculation.drafter else ""
        raise UsageError(
            f"the calibration counted acceptance of {found.scope.method}{of} on "
            f"{found.scope.model}, not of {speculation.method}{here} on {scenario.target.model}: "
            "give acceptance in another form"
        )


def scenario_data(side: Side) -> dict[str, Any]:
    """Return a scenario as its file has it, from what the widgets say; without More settings."""
    return data_of({name: side.get(name) for name in DEFAULTS}, model=uploaded_path(side))


def data_of(said: Mapping[str, Any], *, model: str = "") -> dict[str, Any]:
    """Return a scenario as its file has it.

    Parameters
    ----------
    said : mapping
        What each widget says, by the names of `DEFAULTS`.
    model : str
        Path of a config.json in place of the named model.
    """
    speculation: dict[str, Any] = {"method": said["method"]}
    if speculation["method"] != "none":
        speculation["num_speculative_tokens"] = int(said["k"])
        if FORMS[said["acceptance"]] != "counted":
            speculation["acceptance"] = _acceptance(said)
        # One of another method or model may be left from before, where no widget shows it.
        trained = drafters_of(str(said["model"])).get(said["method"], ())
        if _given(said, "drafter") and (
            said["method"] == "draft_model" or said["drafter"] in trained
        ):
            speculation["drafter"] = said["drafter"]
        if _given(said, "draft_tp") and speculation["method"] not in NO_DRAFTER:
            speculation["draft_tensor_parallel_size"] = int(said["draft_tp"])
    data: dict[str, Any] = {
        "target": {"model": model or said["model"]},
        "hardware": {"accelerator": said["gpu"], "tensor_parallel_size": int(said["tp"])},
        "speculation": speculation,
        "workload": {name: said[name] for name in ("input_tokens", "output_tokens", "temperature")},
        "load": _load(said),
    }
    for name, key in (("dtype", "weight_dtype"), ("kv_dtype", "kv_dtype")):
        if _given(said, name):
            data["target"][key] = said[name]
    if _given(said, "engine"):
        name, _, version = str(said["engine"]).partition("@")
        data["engine"] = {"name": name, **({"version": version} if version else {})}
    return data


MODEL_FILE = "model_file"
"""Where the session keeps a side's uploaded config.json."""


def uploaded_path(side: Side) -> str:
    """Return the path of the config.json that a side uses in place of a named model, if any."""
    found = st.session_state.get(side.key(MODEL_FILE))
    return "" if found is None else str(found.path)


def load_of(side: Side) -> float:
    """Return the load that is asked about."""
    return float(side.get("request_rate" if side.get("loads") == PER_SECOND else "load"))


def _given(said: Mapping[str, Any], name: str) -> bool:
    return said[name] not in ("", None, UNSAID[name])


def _load(said: Mapping[str, Any]) -> dict[str, list[float]]:
    if said["loads"] == PER_SECOND:
        asked = float(said["request_rate"])
        shares = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
        return {"request_rate": sorted({asked * share for share in shares})}
    return {"concurrency": sorted({*map(float, LOADS), *DEFAULT_CONCURRENCY, float(said["load"])})}


def _acceptance(said: Mapping[str, Any]) -> dict[str, Any]:
    form = FORMS[said["acceptance"]]
    if form == "positions":
        try:
            numbers = [float(part) for part in str(said["positions"]).split(",")]
        except ValueError:
            raise SpecsimError(
                f"acceptance per position: {said['positions']!r} are no numbers; write "
                "0.7, 0.5, 0.35"
            ) from None
        return {"per_position": numbers}
    key = {"draft_rate": "draft_acceptance_rate"}.get(form, form)
    return {key: said[form]}
