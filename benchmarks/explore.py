"""The map of 100,000 points in a real browser: time from one frame to the next while it is moved and zoomed.

python benchmarks/explore.py [--rows 100000] [--out benchmarks/results/explore.md]
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from machine import describe
from serve import make_place, serving

FRAMES = """async ({move, count}) => {
  const map = window.nearfarMap, act = {pan: (i) => map.pan(i % 40 < 20 ? 6 : -6, i % 60 < 30 ? 3 : -3),
    zoom: (i) => map.zoomBy(i % 60 < 30 ? 1.04 : 1 / 1.04), rest: () => undefined}[move];
  const times = [], drawn = [];
  await new Promise((done) => { const step = (now) => { times.push(now); drawn.push(map.drawn);
    if (times.length > count) return done();
    act(times.length); requestAnimationFrame(step); }; requestAnimationFrame(step); });
  return [times.slice(1).map((t, i) => t - times[i]).slice(count / 3), drawn.slice(count / 3)]; }"""
WHOLE = """async (count) => { const map = window.nearfarMap, times = [];
  await new Promise((done) => { const step = (now) => { times.push(now); if (times.length > count) return done();
    map.x += 0.001; map.moving = 0; map.paint(); requestAnimationFrame(step); }; requestAnimationFrame(step); });
  return times.slice(1).map((t, i) => t - times[i]).slice(3); }"""
TIMED = """({what, count}) => { const map = window.nearfarMap, ring = [];
  for (let i = 0; i < 100; i++) ring.push([0.5 * Math.cos(i / 15.9), 0.5 * Math.sin(i / 15.9)]);
  const start = performance.now();
  for (let i = 0; i < count; i++) what === "lasso" ? map.inside(ring) : map.nearest(100 + i, 200 + i / 2);
  return (performance.now() - start) / count; }"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "explore.md")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    rows = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        run, file = make_place(Path(folder), arguments.rows)
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
        )
        with serving(run, file) as address:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            start = time.perf_counter()
            page.goto(address)
            while page.evaluate("window.nearfarMap?.count ?? 0") != arguments.rows:
                page.wait_for_timeout(20)
            opened = time.perf_counter() - start
            drawn = page.evaluate(
                "() => { const g = nearfarMap.gl, e = g.getExtension('WEBGL_debug_renderer_info');"
                " return g.getParameter(e ? e.UNMASKED_RENDERER_WEBGL : g.RENDERER); }"
            )
            for move, words in (("rest", "nothing is drawn"), ("pan", "moving"), ("zoom", "zooming")):
                frames, drawn_points = page.evaluate(FRAMES, {"move": move, "count": arguments.frames})
                p50, p95 = np.percentile(frames, [50, 95])
                points = f"{np.median(drawn_points):,.0f}" if move != "rest" else ""
                speed = f"{1000 / np.mean(frames):.0f}"
                rows.append(f"| {words} | {p50:.1f} | {p95:.1f} | {max(frames):.1f} | {speed} | {points} |")
                print(rows[-1], file=sys.stderr)
            whole = np.median(page.evaluate(WHOLE, 12))
            lasso = page.evaluate(TIMED, {"what": "lasso", "count": 10})
            found = page.evaluate(TIMED, {"what": "nearest", "count": 200})
        browser.close()
    lines = "\n".join(rows)
    text = f"""# The map of the explorer

{describe()}; {len(os.sched_getaffinity(0))} core(s) for browser and server. {arguments.rows:,} points in 26 clouds, one
window of 1280 × 900, headless Chromium, WebGL by {drawn}: a renderer in software, so that the processor draws what a
graphics card would. The load of the machine was {before:.1f} before: it was
{"busy with other work, which is in these times" if before > 1 else "idle"}.

| time between frames | median, ms | p95, ms | longest, ms | frames a second | points drawn |
|---|---|---|---|---|---|
{lines}

While the map moves, as many points are drawn as keep a frame near 30 ms, but 5,000 at least, a fair sample of all; at
rest all of them. The first third of {arguments.frames} frames, in which that number is found, is left out. All
{arguments.rows:,} at once take {whole:.0f} ms here.

From the address to all points on the screen: {opened:.1f} s. A lasso of 100 corners looks through all points in
{lasso:.1f} ms, the point under the pointer is found in {found:.3f} ms.

Run again: `python benchmarks/explore.py`.
"""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
