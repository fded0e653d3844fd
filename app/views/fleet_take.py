"""What is taken from the page Capacity: the command that says the same, and the workbook."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st
from commands import deployment_words, portable
from show import escaped, predicted
from state import Asked, calibration

from specsim.analysis.plan.fleet import GPUS_PER_SERVER
from specsim.errors import SpecsimError
from specsim.export.workbook.subjects import Asked as AskedOfBook
from specsim.export.workbook.subjects import shown_of
from specsim.schema.plan import Plan
from specsim.schema.scenario import Scenario
from specsim.schema.slo import Slo
from specsim.schema.traffic import Traffic
from views.fleet_inputs import Setting

_XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def take(
    asked: Asked, setting: Setting, axes: Mapping[str, Any], found: Plan | None, inputs: Any
) -> None:
    """Offer the command and the workbook.

    Parameters
    ----------
    found : Plan, optional
        The answer to what the page asks now.
    inputs : object
        What the workbook depends on.
    """
    assert asked.scenario is not None
    st.subheader("Take it with you", anchor=False)
    st.code(plan_command(portable(asked), setting, axes), language="bash", wrap_lines=True)
    if calibration() is not None:
        st.caption("To plan with this session's calibration, download it on the page Calibrate and "
                   "add `--calibration calibration.yaml`.")  # fmt: skip
    _workbook(asked, setting, found, (inputs, found is None))


def plan_command(scenario: Scenario, setting: Setting, axes: Mapping[str, Any]) -> str:
    """Return the `specsim plan` line that asks what the page asks.

    Parameters
    ----------
    axes : mapping
        Values that are tried, by key of the scenario.
    """
    data = scenario.model_dump(mode="json", exclude_unset=True, exclude={"load"})
    deployment = deployment_words(Scenario.model_validate(data))
    words = ["specsim", "plan", *deployment, *_traffic(setting.traffic), *_slo(setting.slo)]
    for key, values in axes.items():
        words += ["--vary", f"{key}={','.join(map(str, values))}"]
    for device, price in setting.prices.items():
        words += ["--price", f"{device}={price.usd_per_gpu_hour:.10g}"]
    if setting.gpus_per_server != GPUS_PER_SERVER:
        words += ["--gpus-per-server", str(setting.gpus_per_server)]
    return shlex.join(words)


def _traffic(traffic: Traffic) -> list[str]:
    """Return the flags of a traffic that are not as they would be without them."""
    flags = {name: name.replace("_", "-") for name in Traffic.model_fields}
    flags["peak_to_avg"] = "peak-factor"
    words = []
    for name, value in traffic.model_dump(exclude_unset=True).items():
        field = Traffic.model_fields[name]
        if value != field.default and not (name == "growth_years" and not traffic.growth_pct):
            words += [f"--{flags[name]}", f"{value:.10g}"]
    return words


def _slo(slo: Slo) -> list[str]:
    words = []
    for target in slo.targets:
        words += ["--slo", f"{target.name}={target.at_most_ms:.10g}"]
    for metric, bound in slo.goodput_ms.items():
        words += ["--goodput", f"{metric}:{bound:.10g}"]
    if slo.attainment_pct is not None:
        words += ["--slo", f"attainment_pct={slo.attainment_pct:.10g}"]
    return words


def workbook(scenarios: Sequence[Scenario], asked: AskedOfBook) -> bytes:
    """Return the workbook of scenarios as a file."""
    from specsim.export.workbook.book import book  # only where it is asked for

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.xlsx"
        book(scenarios, asked).save(path)
        return path.read_bytes()


def _workbook(asked: Asked, setting: Setting, found: Plan | None, of: Any) -> None:
    """Offer the workbook: of the plan's deployments, or before there is one of the scenario."""
    assert asked.scenario is not None
    if found is None:
        shown = [] if predicted(asked) is None else [asked.scenario]
    else:
        shown = shown_of(found, asked.scenario.load)
    if not shown:
        return
    key = asked.side.key("capacity_book")
    made: tuple[Any, bytes] | None = st.session_state.get(key)
    place = st.empty()
    if made is not None and made[0] == of:
        _offer(place, key, made[1])
    elif place.button("Make the workbook (.xlsx)", key=f"{key}_make", icon=":material/table:",
                      help="With live formulas, this page's traffic, SLO and prices: about 10 s "
                      "for each of its deployments."):  # fmt: skip
        of_book = AskedOfBook(
            traffic=setting.traffic, slo=setting.slo, prices=setting.prices,
            gpus_per_server=setting.gpus_per_server, calibration=calibration(),
        )  # fmt: skip
        try:
            with place.container(), st.spinner("Working out the workbook", show_time=True):
                data = workbook(shown, of_book)
        except (SpecsimError, OSError) as problem:
            place.error(escaped(str(problem)))
            return
        st.session_state[key] = (of, data)
        _offer(place, key, data)


def _offer(place: Any, key: str, data: bytes) -> None:
    place.download_button("Download fleet.xlsx", data, "fleet.xlsx", _XLSX, key=key + "_take",
                          on_click="ignore", icon=":material/download:")  # fmt: skip
