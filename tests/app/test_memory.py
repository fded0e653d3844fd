"""The page Memory, without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df
from streamlit.testing.v1 import AppTest

import specsim
from specsim.schema.results import KvResult

REPO = Path(__file__).parents[2]


def _memory() -> None:
    import sys

    sys.path[:0] = ["app"]
    from inputs import sidebar
    from views.memory import page

    page(sidebar())


def opened(**query: str) -> AppTest:
    at = AppTest.from_function(_memory, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    return at.run()


def metrics(at: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in at.metric}


def datasets(at: AppTest, index: int) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a chart by name, as the browser gets them."""
    found = at.get("vega_lite_chart")[index].proto.datasets
    return {
        each.name: convert_arrow_bytes_to_pandas_df(each.data.data).to_dict("records")
        for each in found
    }


def kv(**overrides: Any) -> KvResult:
    scenario = {
        "target": {"model": "llama-3.1-70b"},
        "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 4},
        "speculation": {
            "method": "eagle",
            "num_speculative_tokens": 4,
            "draft_tensor_parallel_size": 1,
        },
    }
    return specsim.kv_budget(specsim.load_scenario(scenario, overrides=overrides))


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)


def test_figures_are_those_of_kv_budget() -> None:
    at, expected = opened(), kv()
    assert not at.exception
    shown = metrics(at)
    assert shown["Requests that fit, off"] == f"{int(expected.baseline.max_concurrency):,}"
    assert shown["Requests that fit, on"] == f"{int(expected.speculative.max_concurrency):,}"
    assert shown["KV cache lost"] == f"{expected.lost_fraction:.1%}"
    assert shown["Nameplate"] == "320 GB"
    assert shown["Drafter, GiB"] == f"+{expected.speculative.drafter_weights_gib:.2f}"


@pytest.mark.parametrize("shown", ["one GPU", "the replica"])
def test_the_bar_adds_up_to_what_the_driver_reports(shown: str) -> None:
    at = opened(memory_of=shown)
    bars = datasets(at, 0)
    usable = kv().memory_usable_gib / (4 if shown == "one GPU" else 1)
    for arm in ("off", "on"):
        rows = [row for row in bars["parts"] if row["arm"] == arm]
        assert sum(row["gib"] for row in rows) == pytest.approx(usable)


def test_sliders_move_share_and_context() -> None:
    at = opened()
    at.select_slider(key="memory_share").set_value("0.80").run()
    expected = kv(**{"engine.gpu_memory_utilization": 0.8})
    assert metrics(at)["Requests that fit, off"] == f"{int(expected.baseline.max_concurrency):,}"
    at = opened(memory_context="8192")
    expected = kv(**{
        "workload.input_tokens": 8192 * 2 / 3, "workload.output_tokens": 8192 / 3,
    })  # fmt: skip
    assert metrics(at)["Requests that fit, on"] == f"{int(expected.speculative.max_concurrency):,}"


def test_the_circle_is_told_with_caps_marked() -> None:
    at = opened(memory_context="8192")
    chart = datasets(at, 1)
    marks = {m["label"].partition(":")[0] for m in chart["marks"]}
    assert marks == {"off", "on", "your load"}
    assert any(m.label.startswith("→ Throughput at") for m in at.metric)
    said = " ".join(c.value for c in at.caption)
    assert "takes room from the KV cache" in said
    assert "more than run at a time, off or on" in said


def test_a_model_len_beyond_the_cache_is_a_warning() -> None:
    at = opened(model="llama-3.1-8b", gpu="l4", tp="1", method="none")
    assert not at.exception
    assert any("vLLM does not start" in w.value for w in at.warning)


def test_without_speculation_there_is_one_bar() -> None:
    at = opened(method="none")
    bars = datasets(at, 0)
    assert {row["arm"] for row in bars["parts"]} == {"off"}
    assert "choose a method" in at.info[0].value


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"tp": "1"}, "does not fit"),
        ({"memory_context": "131072", "settings": "engine.max_model_len=4096"}, "above"),
    ],
)
def test_what_cannot_be_is_a_sentence(query: dict[str, str], said: str) -> None:
    at = opened(**query)
    assert not at.exception
    assert said in at.error[0].value


def test_two_scenarios_stand_side_by_side() -> None:
    at = opened(compare="true")
    assert not at.exception
    assert len(at.get("vega_lite_chart")) == 4
