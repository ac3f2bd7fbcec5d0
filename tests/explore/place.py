"""A small place to explore: coloured squares, an encoder of colours that reads their names, and a log."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image
from starlette.types import ASGIApp

from nearfar.explore.serve import bind, make_server
from nearfar.explore.space import ExploredRun, Space
from nearfar.search.embed import embed
from nearfar.search.files import Embeddings
from tests.search.test_text_query import COLORS, color_towers


def squares(folder: Path, count: int = 20) -> Path:
    """`count` squares near each of three colours, in a folder for each."""
    rng = np.random.default_rng(0)
    for name, color in COLORS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            shade = np.clip(np.array(color) * 0.8 + rng.integers(0, 60, 3), 0, 255).astype(np.uint8)
            Image.new("RGB", (24, 24), tuple(shade.tolist())).save(folder / name / f"{number:03d}.png")
    return folder


def log_line(folder: Path, step: int, **numbers: float) -> None:
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, "positives": [1, 2], **numbers}) + "\n")


def log(folder: Path) -> Path:
    """What a run in training leaves."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text("data: squares\n")
    for step in range(1, 6):
        log_line(folder, step, loss=5 / step, lr=0.1, knn=0.1 * step)
    said = [{"step": 2, "level": "warning", "text": "the rank is falling"}]
    (folder / "verdicts.json").write_text(json.dumps(said))
    return folder


def space_of(data: Path, out: Path, *, labels: bool = True) -> Space:
    encoder = color_towers()
    return Space(encoder, Embeddings(embed(encoder, data, out, labels=labels, progress=False).path))


def colors(folder: Path, count: int = 20) -> ExploredRun:
    return ExploredRun("colours", log(folder / "run"), space_of(squares(folder / "data", count), folder / "x.parquet"))


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """The application on a free port of loopback; its address."""
    with bind("127.0.0.1", 0) as listening:
        running = make_server(app)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join(10)
