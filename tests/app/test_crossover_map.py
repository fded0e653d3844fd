"""The page Crossover map, without a browser but for its clicks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pages import with_numbers
from playwright.sync_api import Browser, expect
from streamlit.testing.v1 import AppTest

import specsim
from specsim.export.figures.map_cells import Picked

REPO = Path(__file__).parents[2]


def _map() -> None:
    import sys

    sys.path[:0] = ["app"]
    from inputs import sidebar
    from views.crossover_map import page

    page(sidebar())


def opened(**query: str) -> AppTest:
    at = AppTest.from_function(_map, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    return at.run()


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)


def charts(at: AppTest) -> list[dict[str, Any]]:
    """Return the specifications of the charts."""
    return [json.loads(chart.proto.spec) for chart in at.get("vega_lite_chart")]


def axis(chart: dict[str, Any]) -> str:
    return str(chart["layer"][0]["encoding"]["y"]["title"])


def subheaders(at: AppTest) -> list[str]:
    return [s.value for s in at.subheader]


def captions(at: AppTest) -> str:
    return " ".join(c.value for c in at.caption)


def numbers(at: AppTest, column: str) -> Any:
    return next(d.value for d in with_numbers(at).dataframe if column in d.value.columns)


def speedup(load: float, **overrides: Any) -> float:
    scenario = {
        "target": {"model": "llama-3.1-70b"},
        "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 4},
        "speculation": {
            "method": "eagle", "num_speculative_tokens": 4, "acceptance": {"length": 2.4},
            "draft_tensor_parallel_size": 1,
        },
        "workload": {"input_tokens": 512, "output_tokens": 256, "temperature": 0.7},
        "load": {"concurrency": [load]},
    }  # fmt: skip
    found = specsim.predict(specsim.load_scenario(scenario, overrides=overrides)).points[0].speedup
    assert found is not None
    return found


def test_starts_with_both_maps_and_the_prompts() -> None:
    at = opened()
    assert not at.exception
    assert subheaders(at) == [
        "Load and acceptance", "Load and draft tokens", "Load and prompt length",
    ]  # fmt: skip
    assert [axis(c) for c in charts(at)] == [
        "accepted / drafted", "draft tokens k (0: off)", "prompt [tokens]",
    ]  # fmt: skip
    assert at.get("vega_lite_chart")[0].proto.alt == "speedup over concurrency and acceptance"


def test_the_numbers_are_predicts() -> None:
    at = opened()
    by_k = numbers(at, "k")
    cell = by_k[(by_k["k"] == 6) & (by_k["concurrency"] == 1)].iloc[0]
    expected = speedup(1.0)
    own = by_k[(by_k["k"] == 4) & (by_k["concurrency"] == 1)].iloc[0]
    assert own["speedup"] == pytest.approx(expected, rel=1e-3)
    assert cell["speedup"] != own["speedup"]
    prompts = numbers(at, "input_tokens")
    row = prompts[prompts["concurrency"] == 1].iloc[-1]
    assert row["speedup"] == pytest.approx(
        speedup(1.0, **{"workload.input_tokens": 131072 - 256}), rel=1e-3
    )


def test_acceptance_by_its_other_name() -> None:
    at = opened()
    at.segmented_control(key="map_acceptance").set_value("tokens per step").run()
    assert not at.exception
    assert axis(charts(at)[0]) == "tokens per step"
    rows = numbers(at, "acceptance_length")
    assert (rows["acceptance_length"].min(), rows["acceptance_length"].max()) == (1.0, 5.0)


def test_decoding_alone() -> None:
    at = opened()
    whole = numbers(at, "input_tokens")["speedup"].iloc[-1]
    at.segmented_control(key="map_prompts").set_value("decoding alone").run()
    assert not at.exception
    assert numbers(at, "input_tokens")["speedup"].iloc[-1] > 1.5 > whole


@pytest.mark.parametrize(
    ("more", "title", "column"),
    [
        ("Roofline", "Roofline of the target's decode pass", "flop_per_byte"),
        ("What binds a step", "What binds a step, by load", "bound"),
    ],
)
def test_what_stands_behind_it(more: str, title: str, column: str) -> None:
    at = opened()
    at.segmented_control(key="map_more").set_value(more).run()
    assert not at.exception
    assert subheaders(at)[-1] == title
    assert set(numbers(at, column)["arm"]) == {"off", "on"}


def test_a_cell_on_one_map_is_read_and_outlined_on_all() -> None:
    at = opened()
    assert "Click a cell" in " ".join(m.value for m in at.markdown)
    before = [len(c["layer"]) for c in charts(at)]
    at.session_state["map_cell"] = Picked("k", 64.0, 2.0)
    at.run()
    assert "k,64,2" in at.query_params["map_cell"]
    said = " ".join(m.value for m in at.markdown)
    assert "requests in flight and k = 2" in said
    assert "Best at this load" in said
    assert [len(c["layer"]) - n for c, n in zip(charts(at), before, strict=True)] == [2, 2, 2]


def test_a_link_holds_the_cell() -> None:
    at = opened(map_cell="k,64,2", map_prompts="decoding alone")
    assert not at.exception
    said = " ".join(m.value for m in at.markdown)
    assert "requests in flight and k = 2" in said
    at.run()
    assert "k,64,2" in at.query_params["map_cell"]


@pytest.mark.parametrize(
    "text", ["", "k", "k,64", "k,inf,2", "drafter,64,2", "prompt,64,0", "a,b,c"]
)
def test_a_link_without_a_cell_is_none(text: str) -> None:
    at = opened(map_cell=text)
    assert not at.exception
    assert "Click a cell" in " ".join(m.value for m in at.markdown)
    assert "map_cell" not in at.query_params


def test_a_click_is_kept_and_taken_back() -> None:
    def script() -> None:
        import sys

        sys.path[:0] = ["app"]
        import streamlit as st
        from state import A, Asked
        from views.crossover_map import _take

        asked = Asked(A, None, "", 32.0)
        for cells in (
            [{"load": 54, "cell": 0.25}], [], [{"load": 54, "cell": None}],
        ):  # fmt: skip
            st.session_state["map_rate"] = {"selection": {"picked": cells}}
            _take(asked, "map_k", "k")  # nothing was clicked there
            _take(asked, "map_rate", "acceptance")
            st.text(repr(st.session_state.get("map_cell")))

    at = AppTest.from_function(script).run()
    assert not at.exception
    assert [t.value for t in at.text] == [
        "Picked(on='acceptance', load=54.0, row=0.25)",
        # A name on the map is no cell.
        "None",
        "None",
    ]  # fmt: skip


def test_an_arrival_rate_says_where_it_stands() -> None:
    at = opened(loads="per second")
    assert not at.exception
    assert "over requests in flight whatever the load is given as" in captions(at)
    at = opened(loads="per second", request_rate="9000")
    assert not at.exception
    assert "cannot be served without speculation" in captions(at)


def test_off_has_no_maps_but_a_roofline() -> None:
    at = opened(method="none")
    assert not at.exception
    assert at.info[0].value.startswith("Speculation is off")
    assert subheaders(at) == ["Roofline of the target's decode pass"]
    at.segmented_control(key="map_more").set_value("What binds a step").run()
    assert set(numbers(at, "bound")["arm"]) == {"off"}


def test_two_scenarios_beside_each_other() -> None:
    at = opened(compare="true", b_gpu="h200_sxm")
    assert not at.exception
    assert len(charts(at)) == 6
    at.segmented_control(key="b_map_more").set_value("Roofline").run()
    assert subheaders(at)[2] == "Load and prompt length"
    assert subheaders(at)[-1] == "Roofline of the target's decode pass"


def test_a_tree_is_said_to_have_no_k() -> None:
    at = opened(settings="speculation.tree={topk: 4, num_draft_tokens: 9}\nengine.name=sglang")
    assert not at.exception
    assert [i.value for i in at.info] == [
        "A tree has a shape, not one k: only its own is compared with off."
    ]
    assert len(charts(at)) == 2


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"model": "gpt-9"}, "gpt-9"),
        ({"tp": "1"}, "does not fit at tensor"),
        ({"settings": "nonsense"}, "expected KEY=VALUE"),
    ],
)
def test_a_problem_is_a_sentence(query: dict[str, str], said: str) -> None:
    at = opened(**query)
    assert not at.exception
    assert len(at.error) >= 1
    assert said in at.error[0].value.replace("\\", "")
    assert charts(at) == []


def test_a_link_that_was_taken_is_not_called_refused() -> None:
    query = {"map_acceptance": "tokens per step", "map_prompts": "decoding alone"}
    for more in ("Long prompts", "Roofline", "What binds a step"):
        at = opened(map_more=more, **query).run()
        assert not at.warning
        assert at.segmented_control(key="map_more").value == more
        assert axis(charts(at)[0]) == "tokens per step"


def test_columns_are_the_stops_of_the_load() -> None:
    at = opened(load="64")
    stops = {int(stop) for stop in at.select_slider(key="load").options}
    for column in ("draft_acceptance_rate", "k", "input_tokens"):
        loads = set(numbers(at, column)["concurrency"])
        assert loads <= stops
        assert {62, 63}.isdisjoint(loads)
        assert {64, 72, 100} <= loads


@pytest.mark.parametrize("query", [{"load": "64"}, {"load": "77", "k": "6", "length": "2.15"}])
def test_the_own_point_is_the_first_line_and_what_if_says_the_same(query: dict[str, str]) -> None:
    at = opened(**query)
    more: dict[str, Any] = {
        "speculation.num_speculative_tokens": int(query.get("k", "4")),
        "speculation.acceptance": {"length": float(query.get("length", "2.4"))},
    }
    expected = speedup(float(query["load"]), **more)
    for column in ("draft_acceptance_rate", "k", "input_tokens"):
        first = numbers(at, column).iloc[0]
        assert first["concurrency"] == float(query["load"])
        assert first["speedup"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", ["accepted / drafted", "tokens per step"])
def test_a_click_on_the_own_point_reads_it(browser: Browser, address: str, kind: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(f"{address}/crossover-map?load=64&map_acceptance={kind}".replace(" ", "%20"))
    graph = page.get_by_test_id("stVegaLiteChart").first
    expect(graph.locator(".mark-rect path").first).to_be_visible(timeout=30_000)
    words = f"speedup {speedup(64.0):.2f}×"
    graph.locator(".mark-symbol path").last.click(force=True)
    said = page.get_by_text("At 64 requests in flight and 35% of the drafts accepted")
    expect(said).to_contain_text(words, timeout=15_000)
    # A cell beside it, in the column that is outlined now, can be chosen all the same.
    column = f'path[aria-label*="requests per replica: {math.sqrt(60 * 64):.6g};"]'
    graph.locator(f".mark-rect {column}").nth(2).click(force=True)
    expect(page.get_by_text("At 64 requests in flight and 10% of the drafts")).to_be_visible(
        timeout=15_000
    )
    page.close()


def test_a_click_in_a_browser(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(f"{address}/crossover-map")
    graphs = page.get_by_test_id("stVegaLiteChart")
    expect(graphs.nth(2).locator(".mark-rect path").first).to_be_visible(timeout=30_000)
    for chart, cell, words in ((0, 600, "drafts accepted"), (1, 150, "and k ="), (2, 200, "")):
        graphs.nth(chart).locator(".mark-rect path").nth(cell).click(force=True)
        expect(page.get_by_text(words or "and prompts of")).to_be_visible(timeout=15_000)
    page.get_by_text("Roofline", exact=True).click()
    expect(page.get_by_text("Roofline of the target's decode pass")).to_be_visible()
    assert "map_more=Roofline" in page.url
    page.close()
