"""The page Accuracy, without a browser, on a handful of the shipped cases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checking
import pytest
import views.accuracy
import yaml
from streamlit import config
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df
from streamlit.testing.v1 import AppTest

from specsim.catalog.case import load_case
from specsim.schema.validation import CaseCheck
from specsim.validation.check import check_case
from specsim.validation.summary import summarise

REPO = Path(__file__).parents[2]
CASES = REPO / "validation/cases"
NAMES = ("glm47flash-h100pcie--mtp-k1", "rtx4060-spec-sweep--ngram-k3",
         "three-engines-h100--vllm-eagle3-k3", "three-engines-h100--base-vllm-fp8",
         "dsv4flash-mtp2-harness--rtxpro-c4-dip", "qwen38-27b-rtx3090--mtp3-t0")  # fmt: skip
FILES = [CASES / f"{name}.yaml" for name in NAMES]
GLM = "glm47flash-h100pcie/mtp-k1"


def _accuracy() -> None:
    import sys

    sys.path[:0] = ["app"]
    from views.accuracy import page

    page([])


def opened(**query: Any) -> AppTest:
    at = AppTest.from_function(_accuracy, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    return at.run()


@pytest.fixture(autouse=True)
def a_handful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    monkeypatch.setattr(views.accuracy, "case_files", lambda _: FILES)


@pytest.fixture(scope="module", autouse=True)
def afresh() -> Iterator[None]:
    views.accuracy._shipped.clear()
    yield
    views.accuracy._shipped.clear()


@pytest.fixture(scope="module")
def checks() -> dict[str, CaseCheck]:
    return {check.case: check for check in (check_case(load_case(file)) for file in FILES)}


def datasets(at: AppTest, alt_text: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a chart by name, as the browser gets them."""
    chart = next(c for c in at.get("vega_lite_chart") if alt_text in c.proto.alt)
    return {
        each.name: convert_arrow_bytes_to_pandas_df(each.data.data).to_dict("records")
        for each in chart.proto.datasets
    }


def text(at: AppTest) -> str:
    return "\n".join(str(e.value) for e in (*at.markdown, *at.caption, *at.info))


def bars(at: AppTest) -> dict[str, dict[str, str]]:
    shown = next(d.value for d in at.dataframe if "target" in d.value.columns)
    return {row["figure"]: row for row in shown.to_dict("records")}


def test_figures_are_those_of_validate(checks: dict[str, CaseCheck]) -> None:
    at = opened()
    assert not at.exception
    assert not at.error
    summary = summarise(checks.values())["speedup"]
    assert bars(at)["speedup, median error"]["all"].endswith(
        f"{summary['median_abs_pct']:.1f} % of {summary['n']:.0f}"
    )
    points = [p for c in checks.values() for p in c.points if p.error_pct is not None]
    shown = datasets(at, "predicted over measured")["points"]
    assert len(shown) == len(points)
    one = next(r for r in shown if r["case"] == GLM and r["load"] == 32)
    point = next(p for p in checks[GLM].points if p.load == 32)
    assert (one["measured"], one["predicted"], one["low"], one["high"]) == pytest.approx(
        (point.measured_speedup, point.predicted_speedup, point.speedup_low, point.speedup_high)
    )
    assert one["source"].startswith("https://github.com/")


@pytest.mark.parametrize(
    ("facet", "value", "left"),
    [
        ("model", "glm-4.7-flash", 1),
        ("gpu", "h100_pcie", 1),
        ("method", "mtp", 3),
        ("engine", "sglang", 1),
        ("source", "three-engines-h100", 2),
        ("grade", "C", 1),
        ("role", "test", 2),
    ],
)
def test_cases_are_picked(facet: str, value: str, left: int) -> None:
    at = opened()
    at.multiselect(key=f"accuracy_{facet}").set_value([value]).run()
    assert not at.exception
    assert f"of {left} cases" in text(at)


def test_the_curve_is_of_a_case_that_is_left() -> None:
    at = opened(accuracy_case="rtx4060-spec-sweep/ngram-k3")
    at.multiselect(key="accuracy_model").set_value(["glm-4.7-flash"]).run()
    assert not at.exception
    case = at.selectbox(key="accuracy_case")
    # What the browser is told to show, not only what the page goes by.
    assert (case.value, list(case.options)) == (GLM, [GLM])
    assert case.proto.set_value
    assert "GLM" in text(at)


@pytest.fixture
def open_to_others() -> Iterator[None]:
    before = config.get_option("server.address")
    config.set_option("server.address", "0.0.0.0")
    yield
    config.set_option("server.address", before)


@pytest.mark.parametrize("where", ["target", "point"])
def test_a_strangers_case_reads_no_file(where: str, open_to_others: None, tmp_path: Path) -> None:
    views.accuracy._own_check.clear()
    case = yaml.safe_load(FILES[0].read_text(encoding="utf-8"))
    path = str(tmp_path / "config.json")
    if where == "target":
        case["scenario"]["target"]["model"] = path
    else:
        case["points"][0].setdefault("override", {})["target.model"] = path
    at = opened()
    given = ("own.yaml", yaml.safe_dump(case).encode(), "application/yaml")
    at.file_uploader(key="accuracy_own").set_value([given]).run()
    assert not at.exception
    (said,) = [e.value for e in at.error]
    assert "files of this server are not read from the web" in said
    assert f"of {len(FILES)} cases" in text(at)


def test_a_check_that_breaks_off_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "checking.py"
    broken.write_text("raise SystemExit(3)")
    monkeypatch.setattr(checking, "__file__", str(broken))
    checks = checking.Checks(FILES)
    while checks.done < len(FILES):
        time.sleep(0.05)
    assert [c.name for c in checks.found] == [file.stem for file in FILES]
    assert all("broke off" in c.check.failed for c in checks.found)


def test_what_no_case_is_leaves_the_page_alive() -> None:
    at = opened()
    at.multiselect(key="accuracy_model").set_value(["glm-4.7-flash"])
    at.multiselect(key="accuracy_source").set_value(["three-engines-h100"]).run()
    assert not at.exception
    assert "take one of the choices away" in text(at)


def test_a_curve_in_each_figure(checks: dict[str, CaseCheck]) -> None:
    at = opened(accuracy_case=GLM)
    assert at.selectbox(key="accuracy_case").value == GLM
    shown = datasets(at, "Speedup over load")["points"]
    assert [r["load"] for r in shown] == [1, 4, 8, 16, 32]
    assert [r["predicted"] for r in shown] == pytest.approx(
        [p.predicted_speedup for p in checks[GLM].points]
    )
    control = next(c for c in at.segmented_control if "accuracy_of_" in str(c.key))
    control.set_value("Throughput").run()
    assert len(datasets(at, "Throughput over load")["points"]) == 10
    control = next(c for c in at.segmented_control if "accuracy_of_" in str(c.key))
    control.set_value("Time per token").run()
    arms = datasets(at, "Time per token over load")["points"]
    assert next(r for r in arms if r["load"] == 8 and r["arm"] == "on")["measured"] == 16.15
    assert "https://github.com/" in at.code[0].value


def test_a_case_without_speculation_has_its_absolute_figures() -> None:
    at = opened(accuracy_case="three-engines-h100/base-vllm-fp8")
    assert not at.exception
    assert not [c for c in at.get("vega_lite_chart") if "Speedup over load" in c.proto.alt]
    assert [c for c in at.get("vega_lite_chart") if "over load, measured" in c.proto.alt]


def test_misses_have_their_causes() -> None:
    at = opened()
    titles = [e.label for e in at.expander]
    assert any("Host-bound engine on a laptop" in title for title in titles)
    assert "13 ms" in text(at)


def test_a_case_of_ones_own() -> None:
    data = FILES[0].read_text(encoding="utf-8").replace(GLM, "mine/<b>own")
    at = opened()
    at.file_uploader(key="accuracy_own").set_value([
        ("own.yaml", data.encode(), "application/yaml"),
        ("no.yaml", b"a: 1", "application/yaml"),
        ("empty.yaml", b"", "application/yaml"),
    ]).run()  # fmt: skip
    assert not at.exception
    assert sorted(e.value.partition(" ")[0] for e in at.error) == ["empty.yaml\\:", "no.yaml\\:"]
    assert f"of {len(FILES) + 1} cases" in text(at)
    at.selectbox(key="accuracy_case").set_value("mine/<b>own").run()
    assert not at.exception
    assert "<b>" not in text(at)
