"""The page in a real browser: it asks nothing of any server, throws nothing, and fits a telephone."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearfar.report import write_report
from tests.report.test_report import fill

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; on Debian: apt-get install chromium")
SECTIONS = ("evaluation", "curves", "health", "views", "nearest-neighbours", "configuration", "environment")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-background-networking", "--disable-component-update"],
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a-run-whose-name-is-as-long-as-the-names-that-people-give-to-their-runs")
    fill(folder, "a-class-name-without-any-place-to-break-a-line-at")
    return write_report(folder)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_whole_quiet_and_no_wider_than_its_window(
    browser: Any, report: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_selector(".chart .main-svg")
    assert said == []
    assert [url[:60] for url in asked if not url.startswith(("data:", "blob:"))] == [report.as_uri()[:60]]
    for name in SECTIONS:
        section = page.locator(f"#{name}")
        section.scroll_into_view_if_needed()
        assert section.is_visible() and section.bounding_box()["height"] > 40, name
    assert page.locator(".chart .main-svg").count() >= page.locator(".chart").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(c) for c in shade[4:-1].split(",")) < 3 * 128) == (scheme == "dark")
    page.close()


def test_the_charts_follow_the_colour_scheme(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 800, "height": 900}, color_scheme="light")
    page.goto(report.as_uri())
    page.wait_for_selector(".chart .main-svg")
    text = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
    light = page.evaluate(text)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{text} !== '{light}'")
    page.close()
