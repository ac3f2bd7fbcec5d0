"""The page in a real browser: it asks nothing of any server, throws nothing, fits a telephone, and answers to pointer
and keys.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar.evaluation.results import Results
from nearfar.report.compare import write_comparison
from nearfar.report.page import write_report
from tests.report.test_report import HOSTILE, fill, row, seen
from tests.support.browser import found_by_axe, kept
from tests.support.facts import tells

SECTIONS = ("is-it-learning", "is-it-healthy", "evaluation", "map", "nearest-neighbors", "negatives", "views")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a-run-whose-name-is-as-long-as-the-names-that-people-give-to-their-runs")
    name = "a-class-name-without-any-place-to-break-a-line-at<b>&'"
    fill(folder, name)
    curves = {"confusion": np.array([[3, 1], [0, 4]]), "classes": np.array([name, "dog"]), "support": np.array([4, 4])}
    curves |= {"precision": np.ones(2), "recall": np.ones(2), "f1": np.ones(2)}
    rates = {"grid": np.linspace(0, 1, 5), "roc": np.linspace(0, 1, 10).reshape(2, 5), "pr": np.ones((2, 5))}
    rows = [row("trained", 0.83), row("untrained", 0.4), row("raw", 0.12), row(name, 0.5)]
    found = Results(rows, curves={("trained", "knn"): curves | rates})
    found.save(folder / "evaluation.json")
    found.save_curves(folder / "evaluation")
    seen(name, 300).save(folder)
    return write_report(folder)


def opened(browser: Any, report: Path, width: int, scheme: str = "light") -> tuple[Any, list[str]]:
    """The page, and what it has said or asked for."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda request: heard.append(request.url) if not request.url.startswith("data:") else None)
    page.goto(report.as_uri())
    assert heard.pop(0) == report.as_uri()
    return page, heard


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (390, "dark")])
def test_the_page_is_whole_quiet_accessible_and_no_wider_than_its_window(
    browser: Any, report: Path, width: int, scheme: str
) -> None:
    page, heard = opened(browser, report, width, scheme)
    for name in SECTIONS:
        section = page.locator(f"#{name}")
        assert section.is_visible() and section.bounding_box()["height"] > 40, name
    assert page.locator(".chart").count() == page.locator(".chart svg, .chart canvas").count() > 8
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = """[...document.querySelectorAll(".chart svg text")].filter((text) => {
        const own = text.getBoundingClientRect(), frame = text.ownerSVGElement.getBoundingClientRect();
        return own.left < frame.left - 1 || own.right > frame.right + 1; }).map((text) => text.textContent)"""
    assert page.evaluate(cut) == []  # numbers beside the charts are whole
    assert page.locator(".chip").first.bounding_box()["width"] < 260
    assert page.locator(".chip").first.get_attribute("title").startswith("a-class-name")
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(c) for c in shade[4:-1].split(",")) < 3 * 128) == (scheme == "dark")
    assert found_by_axe(page) == []
    kept(page, f"report-{width}-{scheme}")
    assert heard == []
    page.close()


def test_pointer_and_keys_are_answered(browser: Any, report: Path) -> None:
    page, heard = opened(browser, report, 1000)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "theme"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    ink = "getComputedStyle(document.querySelector('.chart text')).fill"
    light = page.evaluate(ink)
    page.keyboard.press("Enter")  # light turns to dark
    assert page.evaluate(ink) != light and page.locator("#theme").inner_text() == "Light"

    page.locator("#is-it-learning .chart svg").first.hover()
    assert "loss 0" in page.locator(".tip").inner_text()
    page.locator("#time-of-similarities").focus()
    tall = "[...document.querySelectorAll('.bars.l0 rect')].findIndex(bar => Number(bar.getAttribute('height')) > 1)"
    assert page.evaluate(tall) == 40  # at the end
    page.keyboard.press("Home")
    assert page.locator("#time-of-similarities-step").inner_text() == "step 0" and page.evaluate(tall) == 25

    assert page.locator("#map-detail .name").inner_text().endswith("3.png") and page.locator(".near li").count() == 8
    page.locator("#map-sample").fill("8")
    page.keyboard.press("Tab")
    assert page.locator("#map-detail .name").inner_text().startswith("dog: ")
    page.locator(".near button").first.click()
    assert page.locator("#map-sample").input_value() == "9"
    assert page.locator("#map-count").inner_text() == "300 of 300 shown"
    page.locator("#map-only").select_option("1")
    assert page.locator("#map-count").inner_text() == "150 of 300 shown"
    page.locator("#map-colour").select_option("cluster")
    page.locator(".chip").first.click()
    assert page.locator("#map-count").inner_text() == "100 of 300 shown"
    assert page.locator(".chip").first.get_attribute("aria-pressed") == "true"
    kept(page, "report-used")
    assert heard == []
    page.close()


def test_a_point_of_the_map_shows_its_sample(browser: Any, report: Path) -> None:
    page, heard = opened(browser, report, 1000)
    canvas = page.locator("#map-canvas")
    canvas.scroll_into_view_if_needed()
    # The place of sample 8, by the rule that the map is drawn by: whole, in the middle, with a margin of 14.
    place = page.evaluate(
        """() => { const MAP = nearfar.charts.find((each) => each.kind === "map");
        const c = document.getElementById("map-canvas"), at = MAP.places.PCA;
        const b = (v) => [Math.min(...v), Math.max(...v)], [l, r] = b(at.x), [d, u] = b(at.y);
        const k = Math.min((c.clientWidth - 28) / (r - l), (c.clientHeight - 28) / (u - d));
        return [c.clientWidth / 2 + (at.x[7] - (l + r) / 2) * k, c.clientHeight / 2 - (at.y[7] - (d + u) / 2) * k]; }"""
    )
    canvas.hover(position={"x": place[0], "y": place[1]})
    tip = page.locator(".tip")
    assert tip.is_visible() and tip.inner_text().startswith("dog: ") and "/7.png" in tip.inner_text()
    assert tip.locator(".thumb").bounding_box()["width"] > 40
    canvas.click(position={"x": place[0], "y": place[1]})
    assert page.locator("#map-sample").input_value() == "8"
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")  # the nearest to the middle of what is now shown
    moved = page.locator("#map-sample").input_value()
    page.keyboard.press("+")
    page.keyboard.press("0")
    page.keyboard.press("Enter")
    nearest = page.evaluate(
        """() => { const MAP = nearfar.charts.find((each) => each.kind === "map");
        const c = document.getElementById("map-canvas"), at = MAP.places.PCA;
        const b = (v) => (Math.min(...v) + Math.max(...v)) / 2, x = b(at.x), y = b(at.y);
        const far = at.x.map((v, i) => (v - x) ** 2 + (at.y[i] - y) ** 2);
        const told = [c.getAttribute("role"), c.getAttribute("aria-label"), c.tabIndex];
        return [far.indexOf(Math.min(...far)) + 1, ...told]; }"""
    )
    assert nearest == [int(page.locator("#map-sample").input_value()), "application", "Map of the samples", 0]
    assert moved != str(nearest[0]) and tells(page.locator("#map-keys").inner_text(), "arrow")
    page.locator("#map-in").click()
    page.locator("#map-whole").click()
    assert heard == []
    page.close()


def test_names_from_outside_are_text_in_the_page(browser: Any, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        fill(tmp_path / name, HOSTILE)
        seen(HOSTILE).save(tmp_path / name)
    page, heard = opened(browser, write_report(tmp_path / "first"), 800)
    page.on("dialog", lambda dialog: heard.append("a dialog"))
    page.locator("#map-only").select_option("0")
    assert page.locator(".chip").first.inner_text() == HOSTILE
    page, said = opened(browser, write_comparison([tmp_path / "first", tmp_path / "second"], tmp_path / "c.html"), 390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert found_by_axe(page) == [] == heard + said
    kept(page, "comparison-390")
    page.close()
