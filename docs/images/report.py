"""The pictures of the report in the README: the page of `nearfar train`, wide and on a phone.

python docs/images/report.py [--run RUN]     # needs Chromium; trains for a minute or two where no run is given
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def nearfar(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "nearfar", *words], check=True)


def picture(page: Page, report: Path, name: str, *, hidden: str, below: str) -> None:
    """The page without some of its sections, down to the end of an element."""
    page.goto(report.as_uri())
    page.add_style_tag(content=f"{hidden} {{ display: none; }}")
    page.wait_for_timeout(300)
    box = page.locator(below).bounding_box()
    assert box is not None and page.viewport_size is not None
    clip = {"x": 0, "y": 0, "width": page.viewport_size["width"], "height": box["y"] + box["height"] + 16}
    path = HERE / name
    page.screenshot(path=path, full_page=True, clip=clip)  # type: ignore[arg-type]
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        run = arguments.run or Path(folder) / "glyphs-simclr"
        nearfar(*(("report", str(run)) if arguments.run else ("train", "--out", str(run))))
        report = (run / "report.html").resolve()
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        wide = browser.new_page(viewport={"width": 1120, "height": 900})
        between = "#evaluation, #is-it-healthy"
        charts = "#is-it-learning figure:nth-of-type(n + 4)"
        picture(wide, report, "report.png", hidden=f"{between}, {charts}", below="#is-it-learning")
        phone = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark", device_scale_factor=2)
        between = "#evaluation, #is-it-learning, #is-it-healthy"
        picture(phone, report, "report-phone.png", hidden=between, below="#map .chart")
        browser.close()


if __name__ == "__main__":
    main()
