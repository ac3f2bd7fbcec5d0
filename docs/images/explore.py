"""The pictures of the explorer in the README: a small run on letters, wide and on a phone.

python docs/images/explore.py [--run RUN]     # needs Chromium; trains for a minute or two where no run is given
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def nearfar(*words: str) -> list[str]:
    return [sys.executable, "-m", "nearfar", *words]


def wait(page: Page, condition: str) -> None:
    while not page.evaluate(condition):
        page.wait_for_timeout(50)


def picture(page: Page, address: str, name: str, *, row: int) -> None:
    page.goto(address)
    wait(page, "window.nearfarMap?.count > 0")
    x, y = page.evaluate(f"nearfarMap.toScreen(nearfarMap.table[{3 * row}], nearfarMap.table[{3 * row + 1}])")
    page.locator("#marks").click(position={"x": x, "y": y})
    wait(page, "document.querySelectorAll('#found li').length > 0")
    wait(page, "[...document.querySelectorAll('#found img')].slice(0, 8).every((each) => each.naturalWidth > 0)")
    page.mouse.move(0, 0)
    page.wait_for_timeout(500)
    page.screenshot(path=HERE / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        run = arguments.run or Path(folder) / "glyphs"
        if arguments.run is None:
            subprocess.run(nearfar("train", "--out", str(run)), check=True)
        serving = subprocess.Popen(nearfar("explore", str(run), "--port", "0"), stdout=subprocess.PIPE, text=True)
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
        )
        try:
            assert serving.stdout is not None
            lines = iter(serving.stdout.readline, "")
            address = next(line for line in lines if line.startswith("explore: ")).removeprefix("explore: ").strip()
            wide = browser.new_page(viewport={"width": 1280, "height": 860})
            picture(wide, address, "explore.png", row=2)
            phone = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark", device_scale_factor=2)
            picture(phone, address, "explore-phone.png", row=2)
        finally:
            browser.close()
            serving.terminate()


if __name__ == "__main__":
    main()
