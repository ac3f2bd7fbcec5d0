"""The page in a real browser: search, lasso, export, filter, live view, by pointer and by keyboard, on two widths."""

import base64
import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nearfar.data.cache import locked
from nearfar.explore.serve import guarded_app
from nearfar.explore.space import ExploredRun, Space
from tests.explore.place import colors, log_line, serving
from tests.support.browser import found_by_axe, kept
from tests.support.facts import tells


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ExploredRun:
    return colors(tmp_path_factory.mktemp("explore"))


@pytest.fixture(scope="module")
def address(run: ExploredRun) -> Iterator[str]:
    young = ExploredRun("young", run.folder, None)
    assert run.folder is not None
    with (
        locked(run.folder),
        serving(guarded_app([run, ExploredRun("again", None, run.space), young], "127.0.0.1")) as address,
    ):
        yield address  # a process that trains has the folder


@pytest.fixture(scope="module")
def window(browser: Any, address: str) -> Iterator[Any]:
    """One page for all tests: to open it is most of their time."""
    page = browser.new_page(viewport={"width": 1000, "height": 700}, accept_downloads=True)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    until(page, "document.body.dataset.run === '0' && nearfarMap.count === 60")
    yield page
    # A screenshot, or the test that reads pixels, makes the driver of WebGL speak.
    assert [text for text in said if "GPU stall due to ReadPixels" not in text] == []
    assert all(url.startswith((address, "blob:")) for url in asked), asked
    page.close()


@pytest.fixture
def page(window: Any) -> Any:
    """As it was opened, but for what was found last."""
    for run in ("1", "0"):
        window.select_option("#run", run)
        until(window, f"document.body.dataset.run === '{run}'")
    return window


def until(page: Any, condition: str) -> None:
    """Playwright's own waiting needs `eval`, which the page's policy refuses."""
    end = time.monotonic() + 20
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"{condition}; {page.locator('#status').text_content()}"
        page.wait_for_timeout(30)


def labels_found(page: Any) -> list[str]:
    return page.locator("#found .hits").first.locator(".l").all_text_contents()  # type: ignore[no-any-return]


def places(page: Any, space: Space) -> NDArray[np.float64]:
    """(N, 2): where each point is in the window."""
    box = page.locator("#marks").bounding_box()
    found = page.evaluate("points => points.map(([x, y]) => nearfarMap.toScreen(x, y))", space.points.tolist())
    return np.array(found) + np.array([box["x"], box["y"]])


def test_search_by_text_and_by_picture(page: Any, run: ExploredRun) -> None:
    assert run.folder is not None
    page.fill("#text", "a green square")
    page.press("#text", "Enter")
    until(page, "document.querySelectorAll('#found li').length === 40")
    assert labels_found(page) == ["green"] * 20
    assert tells(page.locator("#status").text_content(), "20 of 20")  # the same run twice
    picture = page.locator("#found img").first
    until(page, "document.querySelector('#found img').naturalWidth === 96")
    assert picture.bounding_box()["width"] == 72
    page.set_input_files("#file", run.folder.parent / "data" / "blue" / "003.png")
    until(page, "document.querySelector('#query').textContent === '003.png'")
    assert labels_found(page) == ["blue"] * 20
    assert page.locator("#found .n").first.text_content() == "blue/003.png"
    kept(page, "explore-search", whole=False)
    first = page.locator("#found .hit").nth(3)  # its neighbors, by keyboard
    first.focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#query').textContent.startsWith('neighbors of sample')")


def test_a_picture_is_dropped_on_the_page(page: Any, run: ExploredRun) -> None:
    assert run.space is not None
    page.evaluate(
        """async () => { const picture = await (await fetch('/api/thumbnail?row=25')).blob(), all = new DataTransfer();
        all.items.add(new File([picture], 'dropped.png', {type: 'image/png'}));
        document.dispatchEvent(new DragEvent('drop', {dataTransfer: all, cancelable: true})); }"""
    )
    until(page, "document.querySelector('#query').textContent === 'dropped.png'")
    assert page.locator("#found .n").first.text_content() == run.space.names[25]


def test_a_point_is_drawn_where_it_is_and_a_click_finds_its_neighbors(page: Any, run: ExploredRun) -> None:
    assert run.space is not None and page.evaluate("Boolean(nearfarMap.gl)")
    row = int(run.space.points[:, 0].argmax())  # at the edge, so it is no other
    at = places(page, run.space)[row].tolist()
    page.mouse.move(*at)
    until(page, "!document.querySelector('#hover').hidden")
    assert page.locator("#hover-label").text_content() == run.space.label(row)
    page.mouse.click(*at)
    until(page, f"document.querySelector('#query').textContent.endsWith(' {row}')")
    assert labels_found(page)[:5] == [run.space.label(row)] * 5
    drawn = page.evaluate(
        """() => { const m = nearfarMap, g = m.gl, w = m.canvas.width, h = m.canvas.height; m.paint();
        const p = new Uint8Array(4 * w * h); g.readPixels(0, 0, w, h, g.RGBA, g.UNSIGNED_BYTE, p);
        let n = 0; for (let i = 3; i < p.length; i += 4) n += p[i] > 0; return n; }"""
    )
    assert 60 < drawn < 60 * 400  # points, and not a filled window


def test_the_lasso_selects_what_it_encloses_and_exports_it(page: Any, run: ExploredRun, tmp_path: Path) -> None:
    space = run.space
    assert space is not None
    page.click("#lasso")
    at = places(page, space)
    around = at[space.codes.numpy() == 2]  # all reds
    (left, top), (right, bottom) = (around.min(0) - 8).tolist(), (around.max(0) + 8).tolist()
    wanted = np.flatnonzero(((at > [left, top]) & (at < [right, bottom])).all(1)).tolist()
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom)):
        page.mouse.move(x, y, steps=3)
    kept(page, "explore-lasso", whole=False)
    page.mouse.up()
    until(page, f"document.querySelectorAll('#selected-list li').length === {min(len(wanted), 60)}")
    assert page.locator("#selected").text_content().startswith(f"{len(wanted)} of 60 samples")
    with page.expect_download() as waiting:
        page.click("#export")
    waiting.value.save_as(tmp_path / "selection.csv")
    with (tmp_path / "selection.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["row"]) for row in rows] == wanted and len(wanted) >= 20
    assert rows[0]["path"] == space.names[wanted[0]] and rows[0]["label"] == space.label(wanted[0])
    page.click("#clear")
    assert page.locator("#selected").text_content() == "nothing selected"


def test_a_label_is_filtered_on_the_map_and_in_the_results(page: Any) -> None:
    page.select_option("#label", "red")
    assert page.evaluate("nearfarMap.only") == 2
    assert page.locator("#legend button[aria-pressed=true]").text_content() == "red"
    page.focus("#marks")
    page.keyboard.press("s")  # all that is in view, of this label alone
    until(page, "document.querySelectorAll('#selected-list li').length === 20")
    page.fill("#text", "blue")
    page.press("#text", "Enter")
    until(page, "document.querySelector('#query').textContent === '“blue”'")
    assert labels_found(page) == ["red"] * 20


def test_the_map_is_moved_and_asked_by_keyboard(page: Any) -> None:
    page.focus("#marks")
    for key in ("+", "+", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    zoom, x, y = page.evaluate("[nearfarMap.zoom, nearfarMap.x, nearfarMap.y]")
    assert zoom == pytest.approx(1.96) and x < 0 < y
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#query').textContent.startsWith('neighbors of sample')")
    until(page, "nearfarMap.moving === 0 && nearfarMap.drawn === 60")  # at rest all points are drawn
    page.focus("#marks")
    page.keyboard.press("0")
    assert page.evaluate("nearfarMap.zoom") == 1


def test_duplicates_are_shown_and_listed_for_the_next_run(page: Any, run: ExploredRun) -> None:
    page.click("#duplicates-section summary")
    page.click("#duplicates")
    until(page, "document.querySelector('#duplicates-said').textContent.includes('groups of near-duplicates')")
    assert run.folder is not None
    if page.locator("#duplicates-drop").is_visible():
        page.click("#duplicates-drop")
        until(page, "document.querySelector('#duplicates-list code') !== null")
        assert tells(page.locator("#duplicates-list").text_content(), "--data.groups-file duplicates.csv")
        assert (run.folder / "duplicates.csv").read_text().startswith("path,group,drop")
    page.click("#duplicates-section summary")


def test_a_selection_is_saved_shown_again_and_deleted(page: Any, run: ExploredRun) -> None:
    assert run.folder is not None and run.space is not None
    page.select_option("#label", "blue")
    page.focus("#marks")
    page.keyboard.press("s")
    until(page, "document.querySelectorAll('#selected-list li').length === 20")
    page.fill("#tag", "sky <b>")
    page.press("#tag", "Enter")
    until(page, "document.querySelectorAll('#saved li').length === 1")
    kept_names = json.loads((run.folder / "selections.json").read_text())["selections"]["sky <b>"]
    assert len(kept_names) == 20 and all(name.startswith("blue/") for name in kept_names)
    page.click("#clear")
    page.click("#saved button")
    until(page, "document.querySelectorAll('#selected-list .t').length === 20")  # each names its tag
    assert page.locator("#selected-list .t").first.text_content() == "sky <b>"
    page.locator("#saved .remove").focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('#saved li').length === 0")
    assert json.loads((run.folder / "selections.json").read_text())["selections"] == {}


def test_close_up_points_are_pictures(page: Any) -> None:
    assert page.evaluate("nearfarMap.placed.length") == 0
    page.evaluate("[nearfarMap.x, nearfarMap.y] = nearfarMap.table")  # the first point is in the middle
    page.focus("#marks")
    for _ in range(3):
        page.keyboard.press("+")
    loaded = "nearfarMap.placed.every((row) => nearfarMap.pictures.get(row)?.naturalWidth)"
    until(page, f"nearfarMap.placed.length > 0 && {loaded}")
    kept(page, "explore-pictures", whole=False)
    page.keyboard.press("0")
    until(page, "nearfarMap.placed.length === 0")


def test_a_label_is_highlighted_and_eighty_have_colors_of_their_own(page: Any) -> None:
    page.locator("#legend button").nth(1).hover()
    assert page.evaluate("nearfarMap.lit") == 1
    page.locator("h1").hover()
    assert page.evaluate("nearfarMap.lit") == -2
    page.locator("#legend button").nth(2).focus()
    assert page.evaluate("nearfarMap.lit") == 2
    page.focus("#text")
    for dark in (False, True):
        shown = page.evaluate(
            """async (dark) => { const { colourOf } = await import("/static/colours.js");
            const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
            return [...Array(80).keys()].map((i) => { pen.fillStyle = colourOf(i, dark, 80); pen.fillRect(0, 0, 1, 1);
            return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3); }); }""",
            dark,
        )
        between = np.linalg.norm(lab(shown)[:, None] - lab(shown)[None], axis=-1)
        assert between[~np.eye(80, dtype=bool)].min() > 6  # 2 to 3 are just visible


def lab(colors: list[list[int]]) -> NDArray[np.float64]:
    """(N, 3) sRGB from 0 to 255 as CIELAB under D65."""
    s = np.array(colors) / 255
    linear = np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4)
    xyz = linear @ np.array([[0.4124, 0.2126, 0.0193], [0.3576, 0.7152, 0.1192], [0.1805, 0.0722, 0.9505]])
    t = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1)


def test_a_gray_tile_says_why(page: Any) -> None:
    """The answer of the server for a file that is gone, so that no other test finds it gone."""
    tiny = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGM4AQAAygDJmcpdfgAAAABJRU5ErkJggg=="
    )
    answer = {"body": tiny, "content_type": "image/png", "headers": {"X-Problem": "gone.png is not there"}}
    page.route("**/api/thumbnail?*row=59", lambda route: route.fulfill(**answer))
    page.fill("#text", "red")
    page.press("#text", "Enter")
    until(page, "document.querySelectorAll('#found .why').length > 0")
    assert tells(page.locator("#found .why").first.text_content(), "not shown gone.png")
    page.unroute("**/api/thumbnail?*row=59")


def test_a_run_in_training_is_followed(page: Any, run: ExploredRun) -> None:
    assert run.folder is not None
    page.select_option("#run", "2")
    until(page, "document.querySelector('#live-state').textContent === 'step 5, in training'")
    log_line(run.folder, 6, loss=0.25, knn=0.75)
    until(page, "document.querySelector('#live-state').textContent.startsWith('step 6')")
    shown = page.locator("#live-charts figcaption").all_text_contents()
    axes = page.locator("#live-charts svg").first.locator("text").all_text_contents()
    assert axes[:3] == ["0.25", "2.63", "5"] and axes[3:] == ["1", "6", "step"]
    assert "loss: 0.25 (0.25 to 5, steps 1 to 6)" in shown and any("k-NN accuracy: 0.75" in text for text in shown)
    assert "the rank is falling" in page.locator("#live-verdicts").text_content()
    assert not page.locator("#map-section").is_visible()
    kept(page, "explore-live", whole=False)


def test_both_widths_and_colors_are_whole_and_accessible(page: Any) -> None:
    page.fill("#text", "red")
    page.press("#text", "Enter")
    until(page, "document.querySelector('#query').textContent === '“red”'")
    page.evaluate("for (const each of document.querySelectorAll('details:not([hidden])')) each.open = true")
    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(c) for c in shade[4:-1].split(",")) < 3 * 128) == (scheme == "dark")
        assert found_by_axe(page) == []
        kept(page, f"explore-{scheme}-{width}", whole=False)


def test_a_place_without_samples_says_how_to_go_back(page: Any) -> None:
    page.evaluate("[nearfarMap.x, nearfarMap.y] = [1.2, 1.2]")
    page.focus("#marks")
    for _ in range(20):
        page.keyboard.press("+")
    until(page, "nearfarMap.empty")
    assert page.evaluate("nearfarMap.zoom") <= 40  # of 60 points
    page.keyboard.press("0")
    until(page, "!nearfarMap.empty")
