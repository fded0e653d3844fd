"""The page Calibrate, without a browser."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fitting
import pytest
import yaml
from pages import with_numbers
from show import escaped
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df
from streamlit.testing.v1 import AppTest

import specsim
from specsim.catalog.calibration import dump_calibration, load_calibration
from specsim.schema.calibration import Calibration, CalibrationReport

REPO = Path(__file__).parents[2]
RUNS = REPO / "tests/data/lab"
FILES = sorted(p for p in (*RUNS.glob("*"), *(RUNS / "closed_loop").glob("*")) if p.is_file())
LAB = {
    "model": "lab-152m", "gpu": "cpu_epyc_2core", "tp": "1", "dtype": "checkpoint's",
    "method": "draft_model", "drafter": "lab-6m", "k": "3", "length": "2.0",
    "input_tokens": "64", "output_tokens": "64",
    "settings": "target.weight_dtype=fp32; target.kv_dtype=fp32; engine.version=0.32; "
    "engine.max_num_seqs=64; engine.cuda_graphs=false; speculation.drafter_weight_dtype=fp32; "
    "workload.temperature=0",
}  # fmt: skip


def _calibrate() -> None:
    import sys

    sys.path[:0] = ["app"]
    from inputs import sidebar
    from views.calibrate import in_use, page

    asked = sidebar()
    in_use()  # as main does above every page
    page(asked)


def opened(**query: str) -> AppTest:
    at = AppTest.from_function(_calibrate, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    return at.run()


def uploaded(at: AppTest, *files: tuple[str, bytes]) -> AppTest:
    given = [(name, data, "application/octet-stream") for name, data in files]
    return at.file_uploader(key="calibrate_files").set_value(given).run()


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> CalibrationReport:
    """What the library says of the lab's runs in one folder and the scenario of the side bar."""
    folder = tmp_path_factory.mktemp("runs")
    for path in FILES:
        shutil.copy(path, folder)
    scenario = specsim.load_scenario({
        "target": {"model": "lab-152m", "weight_dtype": "fp32", "kv_dtype": "fp32"},
        "hardware": {"accelerator": "cpu_epyc_2core"},
        "engine": {"name": "vllm", "version": "0.32", "max_num_seqs": 64, "cuda_graphs": False},
        "speculation": {"method": "draft_model", "drafter": "lab-6m", "num_speculative_tokens": 3,
                        "drafter_weight_dtype": "fp32"},
        "workload": {"input_tokens": 64, "output_tokens": 64, "temperature": 0.0},
    })  # fmt: skip
    return specsim.calibrate(scenario, folder, hold_out=[4.0])


def lab(at: AppTest) -> AppTest:
    return uploaded(at, *((p.name, p.read_bytes()) for p in FILES))


def datasets(at: AppTest, alt_text: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a chart by name, as the browser gets them."""
    chart = next(c for c in at.get("vega_lite_chart") if alt_text in c.proto.alt)
    return {
        each.name: convert_arrow_bytes_to_pandas_df(each.data.data).to_dict("records")
        for each in chart.proto.datasets
    }


def text(at: AppTest) -> str:
    return "\n".join(str(e.value) for e in (*at.markdown, *at.caption, *at.info, *at.warning))


def test_an_empty_page_says_what_to_upload() -> None:
    at = opened()
    assert not at.exception
    assert "vllm bench" in at.info[0].value


def test_runs_are_read_and_stand_on_the_models_curves() -> None:
    at = lab(opened(**LAB))
    assert not at.exception
    assert "**10 runs read, 4 more rows without a load (logs, metrics).**" in text(at)
    rows = next(d.value for d in at.dataframe if "read as" in d.value.columns)
    assert len(rows) == 14
    assert set(rows[rows["load"].notna()]["speculation"]) == {"off", "on"}
    shown = datasets(at, "Time per token of measured runs")
    assert len(shown["dots"]) == 10
    # Two drafters of one k: each has its dots and its curve.
    apart = {"off", "on, k = 3, 1.86 a step", "on, k = 3, 2.57 a step"}
    assert {r["run"] for r in shown["lines"]} == {r["run"] for r in shown["dots"]} == apart
    one = next(r for r in shown["dots"] if r["file"] == "off_c4_rep1.json")
    assert (one["load"], one["value"]) == (4.0, pytest.approx(67.166, abs=0.001))
    at.segmented_control(key="calibrate_metric").set_value("output_tok_s").run()
    assert len(datasets(at, "Throughput of measured runs")["dots"]) == 10


def test_runs_of_something_else_are_said_before_a_fit() -> None:
    at = uploaded(opened(), *((p.name, p.read_bytes()) for p in FILES))
    assert not at.exception
    said = next(w.value for w in at.warning if "something else than the side bar" in w.value)
    for words in ("model: 14 files say target", "tensor parallel size: ", "draft_model",
                  "draft tokens per step: ", "accelerator: "):  # fmt: skip
        assert escaped(words) in said, words
    at.button(key="calibrate_take").click().run()
    assert not at.exception
    assert [at.selectbox(key=key).value for key in ("tp", "method")] == [1, "draft_model"]
    assert at.slider(key="k").value == 3


def test_runs_of_two_drafters_can_be_taken_apart() -> None:
    at = lab(opened(**LAB))
    said = next(w.value for w in at.warning if "acceptances" in w.value)
    assert escaped("1.86 tokens per step in dm_50_3") in said
    names = ["on, k = 3, 1.86 a step", "on, k = 3, 2.57 a step"]
    chosen = next(b for b in at.button_group if "calibrate_groups" in str(b.key))
    assert list(chosen.value) == names
    chosen.set_value([names[0]]).run()
    assert not at.exception
    shown = datasets(at, "Time per token of measured runs")
    assert {r["run"] for r in shown["dots"]} == {"off", "on, k = 3"}
    assert not [r for r in shown["dots"] if "70" in r["file"]]


def test_a_fit_is_the_librarys_and_serves_all_pages(expected: CalibrationReport) -> None:
    at = lab(opened(**LAB))
    at.multiselect(key="calibrate_hold_out").set_value([4.0]).run()
    at.button(key="calibrate_fit_button").click().run()
    assert not at.exception
    assert not at.error
    shown = with_numbers(at).dataframe
    rows = next(d.value for d in shown if "prior low" in d.value.columns)
    for parameter in expected.parameters:
        row = rows[rows["parameter"] == parameter.name].iloc[0]
        assert row["told"] == parameter.identifiable
        if parameter.factor is not None:
            assert row["factor"] == pytest.approx(parameter.factor, rel=1e-3)
    metrics = {m.label: m.value for m in at.metric}
    assert expected.held_out is not None
    held = expected.held_out
    assert metrics["Time per token, held out"] == f"{held.tpot_median_pct:.1f} %"
    assert escaped(expected.verdict)[1:] in text(at)
    assert "Run next" in [s.value for s in at.subheader]
    assert "not told" in text(at)
    dots = datasets(at, "measured runs and the fit")
    assert len(dots["held"]) == len(held.rows)
    at.segmented_control(key="calibrate_fitted").set_value("Speedup").run()
    dots = datasets(at, "measured and fitted speedup")
    assert [r["measured"] for r in dots["dots"]] == pytest.approx(
        [s.measured for s in expected.speedups]
    )
    assert "All pages use" not in text(at)
    at.button(key="calibrate_use").click().run()
    assert "All pages use" in text(at)
    found: Calibration = at.session_state["calibration"]
    for here, there in zip(found.parameters, expected.calibration.parameters, strict=True):
        assert here.name == there.name
        assert here.factor == pytest.approx(there.factor)
    assert {r.source for r in found.runs} <= {p.name for p in FILES}
    at.button(key="calibrate_drop").click().run()
    assert "All pages use" not in text(at)
    assert "calibration" not in at.session_state


def test_a_calibration_goes_out_and_in(expected: CalibrationReport, tmp_path: Path) -> None:
    written = dump_calibration(expected.calibration)
    at = opened()
    uploader = at.file_uploader(key="calibrate_given_file")
    uploader.set_value(("mine.yaml", written.encode(), "application/yaml")).run()
    assert not at.error
    assert at.button(key="calibrate_use_given").label == "Use it on all pages"
    at.button(key="calibrate_use_given").click().run()
    path = tmp_path / "calibration.yaml"
    path.write_text(written)
    assert at.session_state["calibration"] == load_calibration(path)


def test_what_is_not_to_be_used_is_not_recommended(expected: CalibrationReport) -> None:
    far = expected.calibration.model_copy(update={"run_log_sd": 0.23})
    at = opened()
    uploader = at.file_uploader(key="calibrate_given_file")
    uploader.set_value(("far.yaml", dump_calibration(far).encode(), "application/yaml")).run()
    assert "Do not use it" in text(at)
    button = at.button(key="calibrate_use_given")
    assert (button.label, button.proto.type) == ("Use it all the same", "secondary")
    button.click().run()
    banner = next(m.value for m in at.markdown if "All pages use" in m.value)
    assert "distrusted" in banner
    assert escaped("o not use it: runs are off the fit by 23 %") in banner


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x02", "is not text"),
        (b"a: 1", "is no calibration"),
        (yaml.safe_dump({"specsim_calibration": 1}).encode(), "missing key"),
        (b"PK\x03\x04....", "is a zip archive"),
    ],
)
def test_what_is_no_calibration_is_a_sentence(data: bytes, said: str) -> None:
    at = opened()
    uploader = at.file_uploader(key="calibrate_given_file")
    uploader.set_value(("<b>mine</b>.yaml", data, "application/yaml")).run()
    assert not at.exception
    assert said in at.error[0].value
    assert "<b>" not in at.error[0].value
    assert "/tmp" not in at.error[0].value


def test_files_that_give_nothing_have_their_reasons() -> None:
    at = uploaded(
        opened(), ("empty.json", b""), ("binary.bin", b"\x00\x01"), ("bomb.json", b"PK\x03\x04"),
        ("runs.csv", b"concurrency,tpot_ms\n4,20\n"),
    )  # fmt: skip
    assert not at.exception
    skipped = next(d.value for d in at.dataframe if list(d.value.columns) == ["file", "why"])
    reasons = dict(zip(skipped["file"], skipped["why"], strict=True))
    assert reasons["empty.json"] == "is empty"
    assert "binary" in reasons["binary.bin"]
    assert "zip archive" in reasons["bomb.json"]
    assert "1 of them say nowhere whether they speculate" in at.warning[0].value
    said = at.warning[1].value
    assert r"empty.json: is empty" in said
    assert "What is read: results of vllm bench" in said


def test_runs_that_cannot_be_fitted_are_a_sentence() -> None:
    at = uploaded(opened(method="none"), ("runs.csv", b"concurrency,tpot_ms\n4,20\n8,22\n"))
    at.button(key="calibrate_fit_button").click().run()
    assert not at.exception
    assert "can be fitted" in at.error[0].value
    at.selectbox(key="calibrate_unknown").set_value("off").run()
    assert "fit again" in text(at)
    at.button(key="calibrate_fit_button").click().run()
    assert not at.error
    assert "2 runs" in text(at)


def test_a_fit_that_breaks_off_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = uploaded(opened(method="none"), ("off.csv", b"concurrency,tpot_ms,arm\n4,20,off\n"))
    broken = tmp_path / "fitting.py"
    broken.write_text("raise SystemExit(3)")
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "__file__", str(broken))
        at.button(key="calibrate_fit_button").click().run()
    assert not at.exception
    assert escaped("broke off (exit status 3)") in at.error[0].value
    at.button(key="calibrate_fit_button").click().run()
    assert "broke off" not in "".join(e.value for e in at.error)


def test_rows_without_a_load_say_what_is_missing() -> None:
    at = uploaded(opened(), ("x.csv", b"concurrency,tpot_ms\nnan,20\n"))
    assert not at.exception
    assert "needs a column concurrency" in at.info[0].value


def test_runs_stay_and_can_be_forgotten() -> None:
    at = uploaded(opened(), ("off.csv", b"concurrency,tpot_ms,arm\n4,20,off\n"))
    assert "**1 run read.**" in text(at)
    at.file_uploader(key="calibrate_files").set_value([]).run()
    assert "vllm bench" in at.info[0].value
    at.toggle(key="calibrate_folder").set_value(True).run()
    assert not at.exception


def test_two_scenarios_ask_which_was_measured() -> None:
    at = uploaded(
        opened(compare="true", b_gpu="h200_sxm"),
        ("off.csv", b"concurrency,tpot_ms,arm\n4,20,off\n"),
    )
    assert not at.exception
    before = datasets(at, "Time per token")["lines"]
    at.segmented_control(key="calibrate_side").set_value("B").run()
    assert datasets(at, "Time per token")["lines"] != before
