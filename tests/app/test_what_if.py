"""The page What-if and the side bar, without a browser."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import with_numbers
from streamlit.testing.v1 import AppTest

import specsim
from specsim.schema.results import Prediction

REPO = Path(__file__).parents[2]


def opened(**query: str) -> AppTest:
    at = AppTest.from_file(str(REPO / "app" / "main.py"), default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    return at.run()


def metrics(at: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in at.metric}


def prediction(**overrides: Any) -> Prediction:
    scenario = {
        "target": {"model": "llama-3.1-70b"},
        "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 4},
        "speculation": {
            "method": "eagle", "num_speculative_tokens": 4, "acceptance": {"length": 2.4},
            "draft_tensor_parallel_size": 1,
        },
        "workload": {"input_tokens": 512, "output_tokens": 256, "temperature": 0.7},
    }  # fmt: skip
    return specsim.predict(specsim.load_scenario(scenario, overrides=overrides))


def test_starts_with_a_verdict_that_is_predicts() -> None:
    at = opened()
    expected = prediction(**{"load.concurrency": [1, 32, 1024]})
    assert not at.exception
    assert metrics(at)["Speedup at 32"] == f"{expected.points[1].speedup:.2f}×"
    assert metrics(at)["KV cache lost"] == f"{expected.kv.lost_fraction:.1%}"
    assert at.subheader[0].value == ":orange[Schedule it by load]: on at your 32"


def test_a_link_is_the_state() -> None:
    at = opened(load="200", length="3.2", gpu="h200_sxm", method="eagle", k="6")
    expected = prediction(**{
        "load.concurrency": [1, 200], "speculation.acceptance": {"length": 3.2},
        "hardware.accelerator": "h200_sxm", "speculation.num_speculative_tokens": 6,
    })  # fmt: skip
    assert metrics(at)["Speedup at 200"] == f"{expected.points[1].speedup:.2f}×"
    assert at.slider(key="k").value == 6


def test_a_slider_moves_the_answer() -> None:
    at = opened()
    at.select_slider(key="load").set_value(200).run()
    expected = prediction(**{"load.concurrency": [200]}).points[0]
    assert metrics(at)["Speedup at 200"] == f"{expected.speedup:.2f}×"
    assert expected.baseline is not None
    assert metrics(at)["$/Mtok off"] == f"${expected.baseline.usd_per_mtok:.2f}"


@pytest.mark.parametrize(
    ("form", "widget", "value", "acceptance"),
    [
        ("length", "length", "2.8", {"length": 2.8}),
        ("rate per token", "rate", "0.7", {"rate": 0.7}),
        ("accepted / drafted", "draft_rate", "0.5", {"draft_acceptance_rate": 0.5}),
        ("per position", "positions", "0.8,0.6,0.4,0.2", {"per_position": [0.8, 0.6, 0.4, 0.2]}),
    ],
)
def test_acceptance_in_every_form(
    form: str, widget: str, value: str, acceptance: dict[str, Any]
) -> None:
    at = opened(acceptance=form, **{widget: value})
    assert not at.exception
    expected = prediction(**{"speculation.acceptance": acceptance}).points[5]
    assert metrics(at)["Speedup at 32"] == f"{expected.speedup:.2f}×"


def test_acceptance_of_a_measured_profile() -> None:
    at = opened(acceptance="profile")
    assert not at.exception
    assert at.selectbox(key="profile").value.startswith("eagle/")
    assert "Speedup at 32" in metrics(at)


def test_per_position_that_are_no_numbers() -> None:
    at = opened(acceptance="per position", positions="a, b")
    assert "no numbers" in at.error[0].value


def test_presets_fill_the_widgets() -> None:
    at = opened()
    at.selectbox(key="deployment").set_value("DeepSeek-V3 · 8 × H200 · MTP").run()
    assert not at.exception
    assert at.selectbox(key="model").value == "deepseek-v3"
    assert at.selectbox(key="tp").value == 8
    at.selectbox(key="workload").set_value("RAG").run()
    assert at.number_input(key="input_tokens").value == 4000


def test_a_pasted_command_fills_the_widgets() -> None:
    at = opened()
    at.text_area(key="pasted").set_value(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 --speculative-config "
        '\'{"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", '
        '"num_speculative_tokens": 3}\''
    ).run()
    at.button(key="use").click().run()
    assert not at.exception
    assert at.slider(key="k").value == 3
    assert "engine.max_num_seqs=64" in at.text_area(key="settings").value
    assert "Speedup at 32" in metrics(at)


def test_what_cannot_be_is_a_sentence() -> None:
    at = opened(tp="1", gpu="l40s")
    assert not at.exception
    assert "does not fit" in at.error[0].value
    at = opened(settings="engine.max_num_seqs")
    assert "KEY=VALUE" in at.error[0].value


def test_names_are_shown_as_text() -> None:
    at = opened(model="<script>alert(1)</script>**bold**")
    assert not at.exception
    assert "<script>" not in at.error[0].value
    assert "\\*\\*bold" in at.error[0].value


def test_two_scenarios_beside_each_other() -> None:
    at = opened(compare="true", b_k="2")
    assert not at.exception
    gains = [m.value for m in at.metric if m.label.startswith("Speedup")]
    assert len(gains) == 2
    assert gains[0] != gains[1]


@pytest.mark.parametrize(
    ("title", "axis"),
    [
        ("Throughput", "output tokens/s of a replica"),
        ("TPOT", "time per output token [ms]"),
        ("Speedup", "speedup, on / off"),
        ("TTFT", "time to first token [ms]"),
    ],
)
def test_every_curve_has_its_axes_and_numbers(title: str, axis: str) -> None:
    at = with_numbers(opened(curve=title, step="On, by phase"))
    assert not at.exception
    curve, step = (element.proto.spec for element in at.get("vega_lite_chart"))
    assert axis in curve
    assert "concurrent requests per replica" in curve
    assert "one step [ms]" in step
    numbers = at.dataframe[0].value
    expected = prediction(**{"load.concurrency": [32]}).points[0].speedup
    assert float(numbers.loc[numbers["load"] == 32, "speedup"].iloc[0]) == pytest.approx(
        expected, rel=1e-3
    )


def test_speculation_off_has_no_gain() -> None:
    at = opened(method="none")
    assert not at.exception
    assert metrics(at)["Speedup at 32"] == "–"


def test_an_open_loop_asks_for_a_rate() -> None:
    at = opened(loads="per second", request_rate="8")
    assert not at.exception
    assert "Speedup at 8" in metrics(at)


@pytest.mark.shared
def test_an_uploaded_config_is_the_model() -> None:
    found = REPO.parent / "shared" / "lab" / "target_config.json"
    if not found.is_file():
        pytest.skip(f"no config.json at {found}")
    at = opened(method="none", tp="1", gpu="l40s", dtype="bf16")
    at.file_uploader(key="config").set_value(("**x**.json", found.read_bytes(), "application/json"))
    at.run()
    assert not at.exception
    assert not at.error
    assert "\\*\\*x\\*\\*.json" in " ".join(caption.value for caption in at.caption)
    expected = specsim.predict(
        specsim.load_scenario({
            "target": {"model": str(found), "weight_dtype": "bf16"},
            "hardware": {"accelerator": "l40s"},
            "workload": {"input_tokens": 512, "output_tokens": 256, "temperature": 0.7},
            "load": {"concurrency": [32]},
        })
    ).points[0].baseline  # fmt: skip
    assert expected is not None
    assert metrics(at)["$/Mtok off"] == f"${expected.usd_per_mtok:.2f}"
    commands = [code.value for code in at.code]
    assert any("--model './**x**.json'" in line for line in commands)
    assert not any(str(REPO.anchor) + "tmp" in line for line in commands)


@pytest.mark.parametrize("content", [b"", b"\0\1\2", b"[]", b'{"a": 1}', b"{" * 5000])
def test_what_is_no_config_is_a_sentence(content: bytes) -> None:
    at = opened()
    at.file_uploader(key="config").set_value(("model.json", content, "application/json")).run()
    assert not at.exception
    assert len(at.error) == 1
    assert "Speedup at 32" in metrics(at)


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"method": "none", "load": "64"},
        {"loads": "per second", "request_rate": "2.5", "draft_tp": "default"},
        {"acceptance": "per position", "positions": "0.8,0.6", "k": "2"},
        {"engine": "vllm@0.10"},
        {"settings": "engine.max_num_seqs=64;engine.version=0.24.0;workload.arrival=burst"},
    ],
    ids=["start", "off", "rate", "positions", "engine", "settings"],
)
def test_the_command_says_what_the_page_says(query: dict[str, str]) -> None:
    at = opened(**query)
    assert not at.exception
    (line,) = (c.value for c in at.code if c.value.startswith("specsim predict"))
    said = subprocess.run(
        [sys.executable, "-m", *shlex.split(line), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    load = {"load": "32", "request_rate": ""} | query
    points = json.loads(said.stdout)["points"]
    key, value = ("request_rate", load["request_rate"]) if "loads" in query else (
        "concurrency", load["load"])  # fmt: skip
    (point,) = (p for p in points if p[key] == float(value))
    shown = "–" if point["speedup"] is None else f"{point['speedup']:.2f}×"
    assert metrics(at)[f"Speedup at {value}"] == shown
    assert metrics(at)["$/Mtok off"] == f"${point['baseline']['usd_per_mtok']:.2f}"


def test_what_a_page_cannot_take_of_a_link_is_said() -> None:
    at = opened(curve="Foo", step="", load="64")
    assert not at.exception
    at.run()
    text = at.warning[0].value.replace("\\", "")
    assert "curve=Foo: Throughput is used" in text
    assert "step=: Off, by cause is used" in text


def test_what_it_is_of_and_what_stands_behind_it_is_said() -> None:
    at = opened(load="64")
    captions = [c.value.replace("\\", "") for c in at.caption]
    assert (
        "llama-3.1-70b · 4 × h100_sxm · eagle, k = 4 · 512 tokens in, 256 out · 64 in flight"
        in captions
    )
    expected = prediction(**{"load.concurrency": [64]})
    even, best = expected.break_even[0], expected.best_k[0]
    price = expected.provenance["price"]["usd_per_gpu_hour"]
    assert any(
        f"Breaks even at {even.acceptance_length:.2f} tokens per step" in text
        and f"Best here: k = {best.k}, {best.speedup:.2f}×." in text
        and f"${price:.2f} per GPU and hour" in text
        for text in captions
    )


def test_the_second_of_two_says_in_what_it_differs() -> None:
    at = opened(compare="true", b_k="2", b_gpu="h200_sxm", b_load="64")
    captions = [c.value.replace("\\", "") for c in at.caption]
    assert (
        "Differs from A: hardware.accelerator h200_sxm, "
        "speculation.num_speculative_tokens 2, load 64" in captions
    )
    assert any(
        text.startswith("**Scenario B** · llama-3.1-70b · 4 × h200_sxm") for text in captions
    )
