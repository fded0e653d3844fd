"""The page Drafters, without a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import specsim
from specsim.schema.results import Prediction

REPO = Path(__file__).parents[2]
LLAMA_8B = {
    "model": "llama-3.1-8b", "gpu": "h100_sxm", "tp": "1", "method": "eagle3", "k": "3",
    "length": "2.29", "load": "16",
}  # fmt: skip


def _drafters() -> None:
    import sys

    sys.path[:0] = ["app"]
    from inputs import sidebar
    from views.drafters import page

    page(sidebar())


def opened(**query: str) -> AppTest:
    at = AppTest.from_function(_drafters, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    return at.run()


def table(at: AppTest) -> dict[str, dict[str, Any]]:
    """Return the table of the page by drafter."""
    shown = [d.value for d in at.dataframe if "speedup_at_best_k" in d.value.columns][-1]
    return {row["drafter"]: row for row in shown.to_dict("records")}


def speedup(load: float, **speculation: Any) -> Prediction:
    return specsim.predict(specsim.load_scenario({
        "target": {"model": "llama-3.1-8b"}, "hardware": {"accelerator": "h100_sxm"},
        "speculation": {"num_speculative_tokens": 3, **speculation},
        "workload": {"input_tokens": 512, "output_tokens": 256, "temperature": 0.7},
        "load": {"concurrency": [1, load]},
    }))  # fmt: skip


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)


def test_every_figure_is_what_predict_says() -> None:
    at = opened(**LLAMA_8B)
    assert not at.exception
    row = table(at)["eagle3-llama3.1-8b"]
    expected = speedup(16, method="eagle3", acceptance={"length": 2.29})
    one, here = expected.points
    assert row["speedup"] == here.speedup
    assert (row["speedup_low"], row["speedup_high"]) == (here.speedup_low, here.speedup_high)
    assert row["speedup_at_1"] == pytest.approx(one.speedup)
    assert row["kv_lost_tokens"] == expected.kv.lost_tokens
    assert row["drafter_weights_gib"] == expected.kv.speculative.drafter_weights_gib
    assert here.speculative is not None
    assert row["usd_per_mtok"] == here.speculative.usd_per_mtok
    assert row["best_k"] == expected.best_k[-1].k
    assert row["break_even_length"] == pytest.approx(
        expected.break_even[-1].acceptance_length, rel=1e-4
    )


def test_all_ways_are_there_with_whose_acceptance_it_is() -> None:
    at = opened(**LLAMA_8B)
    rows = table(at)
    assert set(rows) >= {"off", "ngram", "suffix", "eagle-llama3-8b", "eagle3-llama3.1-8b",
                         "llama-3.2-1b (draft model)"}  # fmt: skip
    assert rows["off"]["speedup"] == 1.0
    said = [m.value for m in at.markdown]
    assert any("green-badge[measured]" in s and "eagle/sharegpt" in s for s in said)
    assert any("blue-badge[yours]" in s and "eagle3-llama3.1-8b" in s for s in said)
    assert any("orange-badge[yours, carried over]" in s and "suffix" in s for s in said)
    assert any("No drafter of this target is known for" in c.value for c in at.caption)


def test_a_measurement_on_the_kind_of_text_is_used() -> None:
    at = opened(**LLAMA_8B, drafters_text="code")
    expected = speedup(16, method="eagle", acceptance={"profile": "eagle/instructcoder"})
    assert table(at)["eagle-llama3-8b"]["speedup"] == pytest.approx(expected.points[1].speedup)


def test_the_drafters_weights_and_split_are_choices() -> None:
    at = opened(**LLAMA_8B)
    whole = table(at)["eagle3-llama3.1-8b"]["drafter_weights_gib"]
    at.selectbox(key="drafters_dtype").set_value("fp8").run()
    assert table(at)["eagle3-llama3.1-8b"]["drafter_weights_gib"] < whole
    at = opened(**{**LLAMA_8B, "tp": "2"}, drafters_tp="1")
    copies = table(at)["eagle3-llama3.1-8b"]["drafter_weights_gib"]
    at.selectbox(key="drafters_tp").set_value("target's").run()
    assert table(at)["eagle3-llama3.1-8b"]["drafter_weights_gib"] < copies


def test_without_acceptance_nothing_is_invented() -> None:
    at = opened(model="qwen2.5-7b", gpu="h100_sxm", tp="1", method="none")
    assert not at.exception
    assert set(table(at)) == {"off", "ngram"}
    assert any("suffix" in m.value and "no measurement" in m.value for m in at.markdown)


def test_what_does_not_fit_is_a_sentence() -> None:
    at = opened(model="llama-3.1-70b", gpu="h100_sxm", tp="1", method="ngram", length="1.5")
    assert not at.exception
    assert len(at.error) == 1
    assert "does not fit" in at.error[0].value


def test_charts_are_dots_and_the_trade() -> None:
    at = opened(**LLAMA_8B)
    dots, trade = (json.loads(c.proto.spec) for c in at.get("vega_lite_chart"))
    assert dots["layer"][1]["encoding"]["x2"] == {"field": "high"}
    assert trade["layer"][2]["encoding"]["x"]["title"] == "KV cache lost [%]"


def test_two_scenarios_stand_side_by_side() -> None:
    at = opened(**LLAMA_8B, compare="true")
    assert not at.exception
    assert sum("speedup_at_best_k" in d.value.columns for d in at.dataframe) >= 2


def test_lengths_of_ones_own_are_in_the_link() -> None:
    text = "eagle3-llama3.1-8b=2.75;ngram=nan;x;<b>=2;=;suffix=inf;eagle-llama3-8b=0.2"
    at = opened(**LLAMA_8B, drafters_lengths=text)
    assert not at.exception
    lengths = {name: row["acceptance_length"] for name, row in table(at).items()}
    assert lengths["eagle3-llama3.1-8b"] == pytest.approx(2.75)
    assert at.query_params["drafters_lengths"] == "eagle3-llama3.1-8b=2.75"
    assert "drafters_lengths" not in opened(**LLAMA_8B).query_params


def test_lengths_of_ones_own_outlast_a_visit_of_another_page() -> None:
    at = AppTest.from_function(_drafters, default_timeout=60)
    for name, value in LLAMA_8B.items():
        at.query_params[name] = value
    # The table itself is forgotten when another page is drawn; what was written into it is not.
    at.session_state["drafters_written"] = "suffix=3.25"
    at.run()
    assert table(at)["suffix"]["acceptance_length"] == pytest.approx(3.25)
    assert at.query_params["drafters_lengths"] == "suffix=3.25"


def test_lengths_beyond_what_a_step_yields_are_left() -> None:
    at = opened(**LLAMA_8B, drafters_lengths="suffix=9")
    assert any("suffix\\=9" in c.value or "suffix=9" in c.value for c in at.caption)
    assert not at.error
