"""Accuracy: what others measured and published, against what the model says of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import streamlit as st
from checking import Checks
from names import refuse_paths
from show import escaped, figure
from state import Asked, bound
from uploads import read_case

from specsim.catalog.case import case_files, case_points, shipped_cases
from specsim.errors import SpecsimError
from specsim.export.figures.accuracy import arms, curve, scatter
from specsim.export.figures.accuracy_rows import (
    FACETS,
    LIMIT_PCT,
    Checked,
    arm_rows,
    bar_rows,
    case_rows,
    curve_rows,
    failures,
    ladders,
    miss_rows,
    notes,
    picked,
    point_rows,
)
from specsim.validation.check import check_case

_POLL_S = 0.2
_FIGURES = {"Speedup": "", "Time per token": "tpot_ms", "Throughput": "output_tok_s"}
_PROMPTS = {"model": "Model", "GPU": "GPU", "method": "Method", "engine": "Engine",
            "source": "Source", "grade": "Grade", "role": "Role"}  # fmt: skip


@st.cache_resource(show_spinner=False)
def _shipped() -> Checks:
    """Return the checks of the shipped cases: begun when somebody first asks, shared by all."""
    return Checks(case_files(shipped_cases()))


@st.cache_data(show_spinner=False)
def _notes() -> list[dict[str, Any]]:
    return notes()


def page(asked: Sequence[Asked]) -> None:
    """Draw the page. It speaks of the model itself: the side bar does not change it."""
    del asked
    st.caption(
        "What others measured and published, against predictions made from what they state: "
        "nothing here is calibrated to a case, and the side bar does not change it."
    )
    cases = [*_all(), *_own()]
    chosen = _facets(cases)
    shown = picked(cases, chosen)
    if not shown:
        st.info("No case is of all these at once: take one of the choices away.")
        return
    _bars(shown)
    _points(shown)
    _one_case(shown)
    _misses(shown)
    _every(shown)


def _all() -> list[Checked]:
    """Return the shipped cases, waiting for them on a first visit."""
    checks = _shipped()
    of = len(checks.files)
    if checks.done < of:
        bar = st.progress(0.0, "Predicting")
        while (done := checks.done) < of:
            said = "once, for all who open this page until the server stops"
            bar.progress(done / of, f"Predicting what was measured ({said}): {done} of {of} cases")
            time.sleep(_POLL_S)
        bar.empty()
    return checks.found


@st.cache_data(show_spinner=False, max_entries=32)
def _own_check(name: str, data: bytes) -> Checked | str:
    """Return the check of an uploaded case, or why there is none."""
    try:
        case = read_case(_Given(name, data))
        # Points have scenarios of their own, in which a path may stand too.
        for scenario in (case.scenario, *(scenario for _, scenario in case_points(case))):
            refuse_paths(scenario, own="")
        return Checked(case, check_case(case))
    except SpecsimError as problem:
        return str(problem)


class _Given:
    """An upload that is cached by its bytes."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data, self.size = name, data, len(data)

    def getbuffer(self) -> memoryview:
        """Return the bytes."""
        return memoryview(self.data)


def _own() -> list[Checked]:
    """Draw the upload of cases of one's own and return those that could be read."""
    with st.expander("Add cases of your own"):
        uploads = st.file_uploader(
            "Case files", type=["yaml", "yml", "json"], accept_multiple_files=True,
            max_upload_size=4, key="accuracy_own",
            help="The format of validation/cases: a scenario and the points measured on it.",
        )  # fmt: skip
        found = []
        for upload in uploads or ():
            with st.spinner("Predicting"):
                one = _own_check(upload.name, upload.getvalue())
            if isinstance(one, str):
                st.error(escaped(one))
            else:
                found.append(one)
    return found


def _facets(cases: Sequence[Checked]) -> dict[str, list[str]]:
    """Draw the choices of cases; none chosen is all."""
    chosen: dict[str, list[str]] = {}
    with st.container(horizontal=True):
        for name in FACETS:
            known = sorted({value for c in cases if (value := c.facet(name)) not in ("", "?")})
            chosen[name] = st.multiselect(
                _PROMPTS[name], known, placeholder="all",
                width=220 if name in ("model", "source") else 150,
                **bound(f"accuracy_{name.lower()}"),
            )  # fmt: skip
    return chosen


def _bars(cases: Sequence[Checked]) -> None:
    st.subheader("Against the targets", anchor=False)
    points = sum(len(c.check.points) for c in cases)
    failed = failures(cases)
    rows = bar_rows(cases)
    st.dataframe(rows, hide_index=True, key="accuracy_bars")
    st.caption(
        f"{points:,} points of {len(cases)} cases. Test: no constant was fitted on the source. "
        "Grade A: every input is stated; B: one is assumed; C: several, good for the side of 1 "
        "only. ✓ meets the target that was set before fitting, ✗ misses it; △ is inside the 80 % "
        "interval more often than that: nothing is wrong, the interval is wider than it need be. "
        "A sign counts where the measured speedup is 5 % or more from 1. Cases whose source itself "
        "shows a problem of the engine are drawn below and not counted here."
    )
    if failed:
        with st.expander(f"Could not be run ({len(failed)})"):
            st.markdown("\n".join(f"- {escaped(text)}" for text in failed))


def _points(cases: Sequence[Checked]) -> None:
    rows = point_rows(cases)
    st.subheader(f"Predicted against measured speedup, {len(rows)} points", anchor=False)
    if not rows:
        st.info("None of these cases has a measured speedup; their absolute figures are below.")
        return

    def taken() -> None:
        """Open the case of a point that was clicked."""
        event = st.session_state.get("accuracy_scatter") or {}
        points = event.get("selection", {}).get("picked") or []
        if points and "case" in points[0]:
            st.session_state["accuracy_case"] = points[0]["case"]

    figure(scatter(cases), rows, key="accuracy_scatter", on_select=taken,
           alt="predicted over measured speedup with 80 % intervals")  # fmt: skip
    st.caption("Line: equal; shade: within 15 %; bars: 80 % interval; what is beyond is on "
               "the edge. Hover for the case and its source; click opens it below.")  # fmt: skip


def _one_case(cases: Sequence[Checked]) -> None:
    st.subheader("Curve by curve", anchor=False)
    named = {c.name: c for c in cases if c.check.points}
    if not named:
        st.info("None of these cases has points.")
        return
    asked = st.session_state.get("accuracy_case", st.query_params.get("accuracy_case"))
    if asked not in named:
        # Written, not left out: the browser would go on showing the case that is gone.
        longest = max(named, key=lambda n: len(point_rows([named[n]])))
        st.session_state["accuracy_case"] = longest
    left, right = st.columns([3, 2])
    with left:
        name = st.selectbox("Case", list(named), **bound("accuracy_case"))
    c = named[name]
    curves = ladders(c.check)
    with right:
        labels = {key: key or "as the case says" for key in curves}
        ladder = next(iter(curves))
        if len(curves) > 1:
            ladder = st.selectbox("Of its curves", list(curves), key=f"accuracy_ladder_{c.name}",
                                  format_func=labels.__getitem__) or ladder  # fmt: skip
    known = [title for title, metric in _FIGURES.items()
             if (arm_rows(c, ladder, metric) if metric else curve(c, ladder))]  # fmt: skip
    if known:
        title = st.segmented_control(
            "Figure", known, default=known[0], required=True, key=f"accuracy_of_{'_'.join(known)}",
            label_visibility="collapsed",
        ) or known[0]  # fmt: skip
        metric = _FIGURES[title]
        chart = arms(c, ladder, metric) if metric else curve(c, ladder)
        figure(chart, arm_rows(c, ladder, metric) if metric else curve_rows(c, ladder),
               key=f"accuracy_curve_{metric or 'speedup'}",
               alt=f"{title} over load, measured and predicted")  # fmt: skip
        st.caption(
            "Lines: predicted; dots: measured" + ("." if metric else "; shade: 80 % interval.")
        )
    else:
        st.dataframe(curve_rows(c, ladder), hide_index=True)
    _cited(c)


def _cited(c: Checked) -> None:
    """Say where a case is from, as text: nothing of a case is a link to follow."""
    if c.case is None:
        return
    source = c.case.source
    scored = "" if c.check.scored else "; not scored: the source shows a problem of the engine"
    st.markdown(
        f"{escaped(source.title)}, {escaped(source.date)}. Grade {c.check.grade}, "
        f"{c.check.role}{scored}."
    )
    st.code(source.url, language=None, wrap_lines=True)
    if c.case.assumed:
        st.markdown(f"Assumed, as the source does not say: {escaped(', '.join(c.case.assumed))}.")
    if c.case.note:
        st.markdown(escaped(c.case.note))


def _misses(cases: Sequence[Checked]) -> None:
    rows = miss_rows(cases, _notes())
    st.subheader(f"What the model gets wrong, {len(rows)} cases", anchor=False)
    st.caption(f"Every case with a median error above {LIMIT_PCT:g} %, the worst first; '+' is a "
               "prediction that is too high.")  # fmt: skip
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row["cause"]), []).append(row)
    for cause, members in groups.items():
        with st.expander(f"{escaped(cause or 'No cause is written down')} ({len(members)})"):
            if members[0]["why"]:
                st.markdown(escaped(str(members[0]["why"])))
            st.dataframe(
                [{k: _short(v) for k, v in row.items() if k not in ("cause", "why")}
                 for row in members],
                hide_index=True,
            )  # fmt: skip


def _every(cases: Sequence[Checked]) -> None:
    with st.expander(f"All {len(cases)} cases"):
        rows = [{k: _short(v) for k, v in row.items()} for row in case_rows(cases)]
        st.dataframe(rows, hide_index=True, key="accuracy_cases")


def _short(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) else value
