"""Capacity & cost: traffic and a promise to replicas, GPUs and dollars, off and on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st
from show import beside, escaped
from state import Asked, calibration

from specsim.analysis.overlay import Overlay
from specsim.analysis.plan.plan import NUM_REQUESTS, plan
from specsim.analysis.plan.search import LoadTest
from specsim.analysis.prepare import SEED
from specsim.analysis.resolve import Deployment
from specsim.analysis.simulation.load_test import load_test
from specsim.errors import SpecsimError
from specsim.schema.plan import Plan
from specsim.schema.slo import Slo
from views.fleet_answer import answer
from views.fleet_inputs import Setting, controls
from views.fleet_take import take

_STOPPED, _TESTS = "capacity_stopped", "capacity_tests"
_MOST_TESTS = 200
"""Load tests that a session keeps."""


@dataclass(frozen=True)
class Sized:
    """An answer, and what it was made for: texts by what each is of."""

    inputs: dict[str, str]
    plan: Plan | None
    error: str


def page(asked: Sequence[Asked]) -> None:
    """Draw the page."""
    setting, axes = controls(asked)
    if setting is None:
        return
    ready = [a for a in asked if a.scenario is not None]
    with st.container(horizontal=True, vertical_alignment="center"):
        wanted = st.button("Size the fleet", type="primary", key="capacity_size",
                           disabled=not ready, icon=":material/dns:")  # fmt: skip
        st.caption(
            "Load tests of one replica in simulation: some seconds per candidate. What is tested "
            "is kept: another price, traffic or spare costs next to nothing."
        )
    if st.session_state.pop(_STOPPED, False):
        st.info("Stopped. What was tested is kept: sizing again goes on from there.")
    if wanted:
        _size(ready, setting, axes)
    beside(asked, lambda a: _side(a, setting, axes[a.side.prefix], wide=len(asked) == 1))


def _inputs(asked: Asked, setting: Setting, axes: dict[str, Any]) -> dict[str, str]:
    """Return what an answer depends on: its load is that of the traffic."""
    assert asked.scenario is not None
    fitted = calibration()
    return {
        "scenario": asked.scenario.model_dump_json(exclude={"load", "name"}),
        "traffic": setting.traffic.model_dump_json(),
        "SLO": setting.slo.model_dump_json(),
        "prices": repr(sorted(setting.prices.items())),
        "servers": str(setting.gpus_per_server),
        "candidates": repr(axes),
        "calibration": "" if fitted is None else fitted.model_dump_json(),
    }


@dataclass(frozen=True)
class _Watched:
    """A load test that tells of each simulation, which is where a stop takes hold."""

    test: LoadTest
    told: Callable[[], None]

    def stable_rate(self, arm: Any) -> float:
        return self.test.stable_rate(arm)

    def at_rate(self, arm: Any, request_rate: float) -> Any:
        self.told()
        return self.test.at_rate(arm, request_rate)


def _tested(
    deployment: Deployment, laid: Overlay, slo: Slo, *, told: Callable[[], None], fitted: str
) -> LoadTest:
    """Return the load test of a deployment, with what this session has simulated of it before."""
    known = st.session_state.setdefault(_TESTS, {})
    key = (deployment.scenario.model_dump_json(exclude={"load", "name"}), repr(slo), fitted)
    if key not in known:
        if len(known) >= _MOST_TESTS:
            known.clear()
        known[key] = load_test(deployment, laid, slo, num_requests=NUM_REQUESTS, seed=SEED)
    return _Watched(known[key], told)


def _size(asked: Sequence[Asked], setting: Setting, axes: dict[str, dict[str, Any]]) -> None:
    """Size the fleet of each side, watched, and keep what is found."""
    place = st.empty()
    with place.container(border=True):
        bar = st.progress(0.0, "Load tests")
        st.button("Stop", key="capacity_stop", icon=":material/stop_circle:",
                  on_click=lambda: st.session_state.update({_STOPPED: True}))  # fmt: skip
        for a in asked:
            _size_one(a, setting, axes[a.side.prefix], bar, f"{a.title}: " * (len(asked) > 1))
    place.empty()


def _size_one(
    asked: Asked, setting: Setting, axes: dict[str, Any], bar: Any, title: str
) -> None:  # fmt: skip
    assert asked.scenario is not None, "the button is not offered without one"
    state: dict[str, Any] = {"share": 0.0, "said": "first candidate", "n": 0}

    def told() -> None:
        state["n"] += 1
        bar.progress(state["share"], f"{title}{state['said']} · {state['n']} load tests")

    def progress(done: int, total: int, name: str) -> None:
        state.update(share=done / total, said=f"{done} of {total} candidates · {escaped(name)}")
        bar.progress(state["share"], f"{title}{state['said']} · {state['n']} load tests")

    inputs = _inputs(asked, setting, axes)
    found: Plan | None = None
    error = ""
    try:
        found = plan(
            asked.scenario, setting.traffic, setting.slo, axes=axes, prices=setting.prices,
            gpus_per_server=setting.gpus_per_server, num_requests=NUM_REQUESTS, progress=progress,
            calibration=calibration(),
            factory=functools.partial(_tested, told=told, fitted=inputs["calibration"]),
        )  # fmt: skip
    except SpecsimError as problem:
        error = str(problem)
    st.session_state[asked.side.key("capacity_sized")] = Sized(inputs, found, error)


def _side(asked: Asked, setting: Setting, axes: dict[str, Any], *, wide: bool) -> None:
    if asked.scenario is None:
        st.error(escaped(asked.error))
        return
    sized: Sized | None = st.session_state.get(asked.side.key("capacity_sized"))
    if sized is None:
        st.info("Not sized yet: press “Size the fleet”.")
        take(asked, setting, axes, None, _inputs(asked, setting, axes))
        return
    now = _inputs(asked, setting, axes)
    changed = [name for name, text in now.items() if sized.inputs.get(name) != text]
    if changed:
        st.warning(f"Changed since this was sized: {', '.join(changed)}. Size the fleet again.")
    if sized.plan is None:
        st.error(escaped(sized.error))
    else:
        answer(asked, sized.plan, wide=wide)
    take(asked, setting, axes, None if changed else sized.plan, now)
