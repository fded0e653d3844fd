"""Commands that ask what a page asks, and the scenario as a file."""

from __future__ import annotations

import shlex
from typing import Any

import streamlit as st
from show import flat
from start import text_of
from state import MODEL_FILE, Asked

from specsim.schema.scenario import Scenario


def portable(asked: Asked) -> Scenario:
    """Return the scenario of a side as it means the same elsewhere.

    An uploaded config.json goes by the name that it has where it came from.
    """
    scenario = asked.scenario
    assert scenario is not None
    uploaded = st.session_state.get(asked.side.key(MODEL_FILE))
    if uploaded is None:
        return scenario
    target = scenario.target.model_copy(update={"model": f"./{uploaded.name}"})
    return scenario.model_copy(update={"target": target})


CALIBRATED = ("--calibration", "calibration.yaml")
"""What a command needs besides while the session has a calibration, which Calibrate downloads."""


def predict_command(scenario: Scenario, *, calibrated: bool) -> str:
    """Return the `specsim predict` line of a scenario."""
    more = CALIBRATED if calibrated else ()
    return shlex.join(["specsim", "predict", *deployment_words(scenario), *more])


def deployment_words(scenario: Scenario) -> list[str]:
    """Return the flags of a scenario, as all commands of specsim take them."""
    data: dict[str, Any] = scenario.model_dump(mode="json", exclude_unset=True, exclude={"name"})
    words = ["--model", data["target"].pop("model"), "--gpu", data["hardware"].pop("accelerator")]
    method = data.get("speculation", {}).pop("method", "none")
    if method != "none":
        words += ["--spec-method", method]
    for key, value in flat(data):
        words += ["--set", f"{key}={text_of(value)}"]
    return words
