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


@contextmanager
def opened(
    browser: Browser, url: str, *, width: int = 1280, theme: str = "light"
) -> Iterator[Page]:
    """Open a page that reaches nobody but this machine, and wait for its first figures."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, accept_downloads=True
    )
    page = context.new_page()
    foreign: list[str] = []
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
    finally:
        context.close()


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
        slider = page.get_by_role("slider", name=re.compile("Your load"))
        slider.focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        expect(page.get_by_text("Speedup at 35")).to_be_visible(timeout=15_000)
        expect(page).to_have_url(re.compile("load=35"))


def test_a_click_on_a_point_makes_it_the_load(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        expect(page.get_by_text("Speedup at 32")).to_be_visible(timeout=30_000)
        points = page.get_by_test_id("stVegaLiteChart").first.locator(".mark-symbol path")
        expect(points.first).to_be_visible(timeout=15_000)
        # Points stand in the order of their rows: off and on of each load in turn.
        points.nth(16).click()
        expect(page.get_by_text("Speedup at 256")).to_be_visible(timeout=15_000)
        expect(page).to_have_url(re.compile("load=256"))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_fits_the_screen_in_both_themes(
    browser: Browser, address: str, theme: str, width: int
) -> None:
    with opened(browser, address, width=width, theme=theme) as page:
        expect(page.get_by_test_id("stMetric").first).to_be_visible(timeout=30_000)
        expect(page.get_by_test_id("stVegaLiteChart").first).to_be_visible(timeout=15_000)
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0
        background = page.evaluate(
            "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
        )
        assert background == ("rgb(255, 255, 255)" if theme == "light" else "rgb(18, 22, 28)")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "page_name", ["crossover-map", "drafters", "memory", "capacity", "calibrate", "accuracy"]
)
def test_every_page_fits_the_screen(
    browser: Browser, address: str, page_name: str, width: int
) -> None:
    theme = "dark" if width == 390 else "light"
    with opened(browser, f"{address}/{page_name}", width=width, theme=theme) as page:
        expect(page.get_by_test_id("stMain")).to_be_visible(timeout=30_000)
        expect(page.get_by_test_id("stMainBlockContainer").locator("> div").first).not_to_be_empty(
            timeout=30_000
        )
        page.wait_for_timeout(3000)
        assert page.get_by_test_id("stException").count() == 0
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0


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
        button = page.get_by_role("button", name=re.compile("Workbook"))
        expect(button).to_be_visible(timeout=30_000)
        with page.expect_download(timeout=120_000) as download:
            button.click()
        path = tmp_path / "plan.xlsx"
        download.value.save_as(path)
    book = openpyxl.load_workbook(path, data_only=True)
    assert {"Inputs", "Fleet", "Cost", "Charts"} <= set(book.sheetnames)
    headers = [cell.value for cell in book["Fleet"][3]]
    replicas = book["Fleet"].cell(4, headers.index("replicas_total") + 1).value
    assert replicas >= 2
