"""The app as a person sees it: links, sliders, clicks, themes, narrow screens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

import openpyxl
import pytest
from playwright.sync_api import Browser, Page, expect

import specsim

_LOCAL = ("127.0.0.1", "localhost", "")
_FIGURES = {"": 2, "crossover-map": 3, "drafters": 1, "memory": 2, "capacity": 0, "calibrate": 0,
            "accuracy": 2}  # fmt: skip
"""Charts of each page as it opens, of one scenario."""
_WIDER = """() => [...document.querySelectorAll("[data-testid=stVegaLiteChart]")].map(
    chart => (chart.querySelector("svg, canvas")?.getBoundingClientRect().width ?? 0)
        - chart.getBoundingClientRect().width).filter(more => more > 1)"""
"""Charts that are wider than their column."""
_NOT_OURS = ("Failed to load resource", "preload")
"""What the browser says of Streamlit's own files."""


@contextmanager
def opened(
    browser: Browser, url: str, *, width: int = 1280, theme: str = "light"
) -> Iterator[Page]:
    """Open a page that reaches nobody but this machine and draws without a warning."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, accept_downloads=True
    )
    page = context.new_page()
    foreign: list[str] = []
    warned: list[str] = []
    page.on(
        "console",
        lambda said: (
            warned.append(said.text)
            if said.type in ("warning", "error") and not any(w in said.text for w in _NOT_OURS)
            else None
        ),
    )
    page.on("pageerror", lambda error: warned.append(str(error)))
    page.on(
        "request",
        lambda r: (
            foreign.append(r.url) if urlparse(r.url).hostname not in (*_LOCAL, None) else None
        ),
    )
    page.goto(url)
    try:
        yield page
        assert foreign == []
        assert warned == []
    finally:
        context.close()


def settled(page: Page, charts: int) -> None:
    """Wait until the page is drawn, with so many charts."""
    app = page.get_by_test_id("stApp")
    figures = page.get_by_test_id("stVegaLiteChart").locator("svg, canvas")
    expect(figures).to_have_count(charts, timeout=60_000)
    expect(page.get_by_test_id("stMain")).to_contain_text(re.compile(r"\w{3}"), timeout=30_000)
    expect(app).to_have_attribute("data-test-script-state", "notRunning", timeout=60_000)
    assert page.get_by_test_id("stException").count() == 0


def metric(page: Page, label: str) -> str:
    box = page.get_by_test_id("stMetric").filter(has_text=label).first
    return box.get_by_test_id("stMetricValue").inner_text()


def test_a_shared_link_reproduces_the_view(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/?load=200&length=3.2&k=6") as page:
        expect(page.get_by_text("Speedup at 200")).to_be_visible(timeout=30_000)
        scenario = {
            "target": {"model": "llama-3.1-70b"},
            "hardware": {"accelerator": "h100_sxm", "tensor_parallel_size": 4},
            "speculation": {
                "method": "eagle", "num_speculative_tokens": 6, "acceptance": {"length": 3.2},
                "draft_tensor_parallel_size": 1,
            },
            "workload": {"input_tokens": 512, "output_tokens": 256, "temperature": 0.7},
            "load": {"concurrency": [200]},
        }  # fmt: skip
        expected = specsim.predict(specsim.load_scenario(scenario)).points[0].speedup
        assert metric(page, "Speedup at 200") == f"{expected:.2f}×"


def test_a_slider_moves_the_answer_and_the_link(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/?load=32") as page:
        expect(page.get_by_text("Speedup at 32")).to_be_visible(timeout=30_000)
        settled(page, 2)
        slider = page.get_by_role("slider", name=re.compile("Your load"))
        for load in (36, 40, 44):
            slider.press("ArrowRight")
            expect(page.get_by_text(f"Speedup at {load}")).to_be_visible(timeout=15_000)
            settled(page, 2)
        expect(page).to_have_url(re.compile("load=44"))


def test_a_click_on_a_point_makes_it_the_load(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        expect(page.get_by_text("Speedup at 32")).to_be_visible(timeout=30_000)
        settled(page, 2)
        points = page.get_by_test_id("stVegaLiteChart").first.locator(".mark-symbol path")
        expect(points.first).to_be_visible(timeout=15_000)
        # Points stand in the order of their rows: off and on of each load in turn.
        points.nth(16).click()
        expect(page.get_by_text("Speedup at 256")).to_be_visible(timeout=15_000)
        expect(page).to_have_url(re.compile("load=256"))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page_name", _FIGURES)
def test_every_page_fits_the_screen_in_both_themes(
    browser: Browser, address: str, page_name: str, width: int, theme: str
) -> None:
    with opened(browser, f"{address}/{page_name}", width=width, theme=theme) as page:
        settled(page, _FIGURES[page_name])
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0
        assert page.evaluate(_WIDER) == []
        background = page.evaluate(
            "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
        )
        assert background == ("rgb(255, 255, 255)" if theme == "light" else "rgb(18, 22, 28)")


@pytest.mark.parametrize("page_name", _FIGURES)
def test_two_scenarios_on_every_page(browser: Browser, address: str, page_name: str) -> None:
    # The cases of Accuracy are others', and a calibration is made of one deployment.
    sides = 1 if page_name in ("accuracy", "calibrate") else 2
    link = f"{address}/{page_name}?compare=true&b_method=ngram"
    with opened(browser, link) as page:
        settled(page, sides * _FIGURES[page_name])
        for title in ("Scenario A", "Scenario B") if sides == 2 else ():
            expect(page.get_by_text(title, exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("link", "charts"),
    [
        ("?curve=Time+per+token&step=On%2C+by+phase", 2),
        ("?curve=Time+to+first+token&step=On%2C+by+cause&loads=per+second", 2),
        ("?curve=Speedup&load=1024", 2),
        ("?method=none", 2),
        ("crossover-map?map_more=Roofline&map_acceptance=tokens+per+step", 3),
        ("crossover-map?map_more=What+binds+a+step", 3),
        ("crossover-map?map_prompts=decoding+alone&map_cell=prompt,64,4096", 3),
        ("crossover-map?method=none", 1),
        ("memory?memory_of=the+replica&memory_context=8192", 2),
        ("memory?method=none", 2),
    ],
)
def test_every_chart_draws_without_a_warning(
    browser: Browser, address: str, link: str, charts: int
) -> None:
    with opened(browser, f"{address}/{link}") as page:
        settled(page, charts)


def test_a_link_reproduces_the_cell_that_was_clicked(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/crossover-map") as page:
        settled(page, 3)
        charts = page.get_by_test_id("stVegaLiteChart")
        charts.nth(1).locator(".mark-rect path").nth(150).click(force=True)
        sentence = page.get_by_text("and k =")
        expect(sentence).to_be_visible(timeout=15_000)
        expect(page).to_have_url(re.compile("map_cell=k"))
        said, link = sentence.inner_text(), page.url
        page.get_by_text("Memory", exact=True).click()
        expect(page.get_by_text("Where memory goes")).to_be_visible(timeout=30_000)
        page.get_by_text("Crossover map", exact=True).click()
        expect(page.get_by_text(said)).to_be_visible(timeout=30_000)
    with opened(browser, link) as page:
        expect(page.get_by_text(said)).to_be_visible(timeout=30_000)


def test_the_pictures_of_a_fleet(browser: Browser, address: str) -> None:
    small = "model=llama-3.1-8b&tp=1&method=ngram&k=3&length=1.6"
    with opened(browser, f"{address}/capacity?{small}") as page:
        page.get_by_role("button", name="Size the fleet").click(timeout=30_000)
        settled(page, 1)
        for name in ("Load at the SLO", "Utilisation"):
            page.get_by_text(name, exact=True).click()
            settled(page, 1)


@pytest.mark.shared
def test_a_real_benchmark_file_is_uploaded(browser: Browser, address: str, lab: Path) -> None:
    with opened(browser, f"{address}/calibrate") as page:
        uploader = page.get_by_test_id("stMain").get_by_test_id("stFileUploaderDropzoneInput").first
        expect(uploader).to_be_attached(timeout=30_000)
        uploader.set_input_files([str(path) for path in sorted(lab.rglob("*.json"))[:4]])
        expect(page.get_by_text("4 runs read")).to_be_visible(timeout=60_000)
        expect(page.get_by_test_id("stVegaLiteChart").first).to_be_visible(timeout=30_000)
        assert page.get_by_test_id("stException").count() == 0


def test_the_workbook_is_downloaded_and_opens(
    browser: Browser, address: str, tmp_path: Path
) -> None:
    with opened(browser, f"{address}/capacity") as page:
        page.get_by_role("button", name=re.compile("Make the workbook")).click(timeout=30_000)
        button = page.get_by_role("button", name=re.compile("Download fleet"))
        expect(button).to_be_visible(timeout=120_000)
        with page.expect_download(timeout=30_000) as download:
            button.click()
        path = tmp_path / "plan.xlsx"
        download.value.save_as(path)
    book = openpyxl.load_workbook(path, data_only=True)
    assert {"Inputs", "Fleet", "Cost", "Charts"} <= set(book.sheetnames)
    headers = [cell.value for cell in book["Fleet"][3]]
    replicas = book["Fleet"].cell(4, headers.index("replicas_total") + 1).value
    assert replicas >= 2
