"""Calibrate: measured runs in, what they tell of the constants out, for all pages to use."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from typing import Literal

import streamlit as st
from fitting import Fitting, Options
from show import escaped
from state import CALIBRATION, Asked, calibration
from uploads import MAX_FILE_BYTES, MAX_TOTAL_BYTES, read_calibration, read_uploads

from specsim.calibration.remarks import refused
from specsim.catalog.calibration import dump_calibration
from specsim.errors import SpecsimError
from specsim.export.figures.calibration import (
    load_of,
    names_of_mixed,
)
from specsim.export.tables import exact
from specsim.schema.calibration import Calibration, CalibrationReport
from specsim.schema.measurement import Measurement, Measurements
from specsim.schema.scenario import Scenario
from views.calibration_report import how_good, report, scope_words, verdict_words
from views.calibration_runs import (
    READABLE,
    against_the_model,
    counted,
    of_another,
    of_one_acceptance,
    what_was_read,
)

_READ, _FIT, _GIVEN = "calibrate_read", "calibrate_fit", "calibrate_given"
"""Where the session keeps what was read, the last fit, and an uploaded calibration."""
_ARMS: dict[str, Literal["off", "on"] | None] = {"left out": None, "off": "off", "on": "on"}
_POLL_S = 0.2
_MOST_FITS = 2


@dataclasses.dataclass(frozen=True)
class _Fit:
    """A fit, or why there is none, and what it was asked for; neither: it was stopped."""

    asked: tuple[str, int, tuple[str, ...], Options]
    report: CalibrationReport | None = None
    error: str = ""


def page(asked: Sequence[Asked]) -> None:
    """Draw the page."""
    left, right = st.columns([3, 2], gap="large")
    with left:
        read = _files()
    with right:
        _given()
    if read is None:
        st.info(
            f"Upload what benchmarks wrote: {READABLE}. The side bar says what was measured; "
            "`specsim measure plan` writes a sweep that tells most."
        )
        return
    what_was_read(read)
    if not any(load_of(row) for row in read.rows):
        if read.rows:
            st.info("No row says its load, so there is no run to compare or to fit: a log or "
                    "/metrics go with the result file of their run, and a table needs a column "
                    "concurrency or request_rate.")  # fmt: skip
        return
    chosen = _chosen(asked)
    if chosen.scenario is None:
        st.error(escaped(chosen.error))
        return
    of_another(chosen, chosen.scenario, read)
    read, kept = of_one_acceptance(read)
    against_the_model(chosen.scenario, read)
    _fit(chosen.scenario, read, kept)


def in_use() -> None:
    """Say that all pages use a calibration, with a way to drop it; nothing where none is."""
    found = calibration()
    if found is None:
        return
    with st.container(border=True):
        left, right = st.columns([6, 1], vertical_alignment="center")
    badge = ":orange-badge[distrusted]" if refused(found) else ":violet-badge[calibrated]"
    left.markdown(
        f"{badge} All pages use a calibration of {scope_words(found.scope)}, "
        f"made on {found.created.isoformat()} from {counted(len(found.runs), 'run')}. "
        f"{verdict_words(found)}"
    )
    right.button("Drop it", key="calibrate_drop", on_click=_drop, width="stretch")


def _drop() -> None:
    st.session_state.pop(CALIBRATION, None)


def _use(found: Calibration) -> None:
    st.session_state[CALIBRATION] = found


def _forget() -> None:
    st.session_state.pop(_READ, None)


def _files() -> Measurements | None:
    """Draw the upload of runs and return what they say; None: nothing was uploaded."""
    st.subheader("Measured runs", anchor=False)
    of_folder = st.toggle(
        "Upload a whole folder", key="calibrate_folder", on_change=_forget,
        help="Names of folders say which arm a run is of, and logs belong to runs beside them.",
    )  # fmt: skip
    uploads = st.file_uploader(
        "Benchmark files, logs, metrics, tables",
        accept_multiple_files="directory" if of_folder else True,
        max_upload_size=MAX_FILE_BYTES // 2**20, on_change=_forget,
        key="calibrate_folder_files" if of_folder else "calibrate_files",
        help="They are read on the machine that serves this page, and not kept.",
    )  # fmt: skip
    st.caption(f"At most {MAX_FILE_BYTES // 2**20} MiB a file, {MAX_TOTAL_BYTES // 2**20} MiB in "
               "all. A file in red is too large and was not taken: `specsim calibrate` in a "
               "terminal reads it.")  # fmt: skip
    if uploads and _READ not in st.session_state:
        with st.spinner(f"Reading {counted(len(uploads), 'file')}"):
            st.session_state[_READ] = read_uploads(uploads)
    found: Measurements | None = st.session_state.get(_READ)
    if found is not None and not uploads:
        st.caption(f"Still here from before: {counted(len(found.rows), 'row')}.")
        st.button("Forget them", key="calibrate_forget", on_click=_forget)
    return found


def _given() -> None:
    """Draw the upload of a calibration that exists."""
    st.subheader("Earlier calibration", anchor=False)
    upload = st.file_uploader(
        "calibration.yaml", type=["yaml", "yml", "json"], max_upload_size=4,
        key="calibrate_given_file",
        help="Downloaded here before, or written by `specsim calibrate`: used without a fit.",
    )  # fmt: skip
    if upload is None:
        return
    try:
        found = read_calibration(upload)
    except SpecsimError as problem:
        st.error(escaped(str(problem)))
        return
    told = [p for p in found.parameters if p.identifiable]
    st.markdown(
        f"Of {scope_words(found.scope)}, {found.created.isoformat()}, "
        f"{counted(len(found.runs), 'run')}. It "
        + (
            "moves "
            + ", ".join(
                f"{escaped(p.name)} × {p.factor:.3g} ({p.low:.2g} to {p.high:.2g})" for p in told
            )
            if told
            else "tells no factor apart from the shipped constants"
        )
        + f". {verdict_words(found)}"
    )
    _offer(found, key="calibrate_use_given")


def _offer(found: Calibration, *, key: str) -> None:
    """Offer a calibration to all pages."""
    in_use_now, distrusted = calibration() == found, refused(found)
    label = "Use it all the same" if distrusted else "Use it on all pages"
    st.button(
        "In use on all pages" if in_use_now else label, key=key,
        type="secondary" if distrusted else "primary",
        on_click=_use, args=(found,), disabled=in_use_now,
    )  # fmt: skip


def _chosen(asked: Sequence[Asked]) -> Asked:
    """Return the side whose scenario was measured."""
    if len(asked) == 1:
        return asked[0]
    titles = {a.title: a for a in asked}
    title = st.segmented_control(
        "Scenario that was measured", list(titles), default=asked[0].title, required=True,
        key="calibrate_side",
    )  # fmt: skip
    return titles[title or asked[0].title]


def _options(rows: Sequence[Measurement]) -> Options:
    """Draw what a fit can be asked for."""
    loads = sorted({load[0] for row in rows if (load := load_of(row)) is not None})
    ks = sorted({row.num_speculative_tokens for row in rows if row.num_speculative_tokens})
    with st.expander("How to fit"), st.container(horizontal=True, gap="large"):
        arm = st.selectbox(
            "Runs of which nothing says whether they speculate are", list(_ARMS),
            key="calibrate_unknown", width=300,
        )  # fmt: skip
        held = st.multiselect(
            "Loads to hold out", loads, format_func=exact, key="calibrate_hold_out", width=300,
            help="Kept from the fit and predicted by it: a test of what it is worth.",
        )  # fmt: skip
        held_k = st.multiselect(
            "k to hold out", ks, key="calibrate_hold_out_k", width=200,
            help="Draft tokens per step, kept from the fit and predicted by it.",
        )  # fmt: skip
    return Options(_ARMS[arm or "left out"], tuple(held), tuple(held_k))


def _fit(scenario: Scenario, read: Measurements, kept: tuple[str, ...]) -> None:
    st.subheader("Fit", anchor=False)
    options = _options(read.rows)
    asked = (scenario.model_dump_json(exclude_unset=True), id(st.session_state[_READ]), kept,
             options)  # fmt: skip
    if st.button("Fit the constants to these runs", key="calibrate_fit_button", type="primary"):
        st.session_state[_FIT] = _Fit(asked)  # so it stays where a click ends this
        try:
            st.session_state[_FIT] = _Fit(asked, _run(scenario, read, options))
        except SpecsimError as problem:
            st.session_state[_FIT] = _Fit(asked, error=str(problem))
        st.rerun()
    found: _Fit | None = st.session_state.get(_FIT)
    if found is None:
        st.caption("It takes some seconds. What the runs cannot tell keeps the shipped value.")
        return
    if found.asked != asked:
        st.warning("Files, side bar or options have changed since this fit: fit again.")
    if found.report is None:
        if found.error:
            st.error(escaped(found.error))
        else:
            st.info("The fit was stopped; it left nothing behind. Fit again when you like.")
        return
    how_good(found.report)
    with st.container(horizontal=True):
        _offer(found.report.calibration, key="calibrate_use")
        st.download_button(
            "Download calibration.yaml", dump_calibration(found.report.calibration),
            "calibration.yaml", "application/yaml", key="calibrate_download", on_click="ignore",
        )  # fmt: skip
    report(found.report, names_of_mixed(read.rows))


@st.cache_resource(show_spinner=False)
def _room() -> threading.BoundedSemaphore:
    """Return the room for fits of all sessions: each fills a core."""
    return threading.BoundedSemaphore(_MOST_FITS)


def _run(scenario: Scenario, read: Measurements, options: Options) -> CalibrationReport:
    """Fit beside the page, which can be stopped or left meanwhile.

    Raises
    ------
    SpecsimError
        There is no fit.
    """
    room, start = _room(), time.monotonic()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Stop", key="calibrate_stop", icon=":material/stop_circle:")
        said = st.empty()
    # Any click ends this run of the page at its next word, and the fit with it.
    while not room.acquire(timeout=_POLL_S):
        said.markdown(f"Waiting for other fits on this server, {time.monotonic() - start:.0f} s")
    try:
        fitting = Fitting(scenario, read, options)
        try:
            while not fitting.done():
                said.markdown(f"Fitting, {time.monotonic() - start:.0f} s")
                time.sleep(_POLL_S)
            return fitting.report()
        finally:
            fitting.stop()
    finally:
        room.release()
