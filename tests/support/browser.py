"""What tests of pages share: a real browser, axe-core's findings, and pictures that are kept.

With NEARFAR_SCREENSHOTS=FOLDER pictures of the pages are kept there.
"""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_SERIOUS = """axe.run().then(r => r.violations.filter(v => ["serious", "critical"].includes(v.impact))
    .map(v => v.id + ": " + v.nodes[0].html))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
    if CHROMIUM is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                *("--no-sandbox", "--disable-background-networking", "--disable-component-update"),
                *("--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"),  # WebGL without a graphics card
            ],
        )
        yield chromium
        chromium.close()


def found_by_axe(page: Any) -> list[str]:
    """What axe-core, which a package for Playwright brings along, holds to be a serious fault."""
    axe = find_spec("axe_playwright_python")
    assert axe is not None and axe.origin is not None, "axe-playwright-python is not installed: make setup"
    page.evaluate(Path(axe.origin).with_name("axe.min.js").read_text())
    faults: list[str] = page.evaluate(_SERIOUS)
    return faults


def kept(page: Any, name: str, *, whole: bool = True) -> None:
    """A picture of the page, or of what its window shows, where such are wanted."""
    if folder := os.environ.get("NEARFAR_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=whole)
