"""`nearfar embed` beside the bare forward pass of its backbone: the same images, the same batch, one thread of torch.

The bare pass runs over batches that lie prepared in memory and throws the result away; embed also reads, prepares and
writes. Rounds are interleaved, so that a busy machine slows both alike. Wall time: what embed does at the same time as
the forward pass is meant to be free, on a second core.

    python benchmarks/embed.py [--images 4096] [--rounds 5] [--out benchmarks/results/embed.md]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from machine import describe
from nearfar.config import TrainConfig
from nearfar.data.dataset import ArrayDataset, Dataset
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.data.opening import open_images
from nearfar.modalities.image.data.stream import StreamDataset
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.card import make_card
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from nearfar.model.save import write_model
from nearfar.search.embed import embed

BATCH = 256
TARGET = 1.10  # times the bare forward pass
CASES = (("tiny", 32, 1), ("resnet18", 32, 16), ("resnet18", 96, 8))  # backbone, size, so many times fewer images


def pictures(count: int, side: int) -> np.ndarray:
    """(N, S, S, 3) soft noise: compresses like a photograph, and not like noise."""
    coarse = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), np.uint8)
    resized = [Image.fromarray(x).resize((side, side), Image.Resampling.BICUBIC) for x in coarse]
    return np.stack([np.asarray(x) for x in resized])


def bare(encoder: Encoder, images: Dataset) -> Callable[[], object]:
    """The backbone alone, over prepared batches."""
    few = [encoder.prepare(images.fetch(part)) for part in torch.arange(len(images)).split(BATCH)[:4]]
    count = -(-len(images) // BATCH)

    def run() -> None:
        with torch.inference_mode():
            for number in range(count):
                left = min(BATCH, len(images) - number * BATCH)
                encoder.backbone(few[number % len(few)][:left])

    return run


def measure(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, in interleaved rounds after one to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def case(name: str, size: int, count: int, rounds: int, folder: Path) -> list[str]:
    torch.manual_seed(0)
    network = backbone(name, size=size)
    config = TrainConfig(backbone=name, image_size=size)
    write_model(network.state_dict(), make_card(config, Preparation(size).card()), folder)
    encoder = load(folder)
    side = round(1.15 * size)
    made = pictures(count, side)
    files = folder / "files"
    files.mkdir()
    for number, picture in enumerate(pictures(count, 2 * size)):
        Image.fromarray(picture).save(files / f"{number:06d}.jpg", quality=90)
    sources: dict[str, Dataset] = {
        "arrays in memory": ArrayDataset(made),
        f"JPEG files of {2 * size} px": open_images(files, stored_size=side, stream=True),
    }
    assert isinstance(sources[f"JPEG files of {2 * size} px"], StreamDataset)

    def embedding(images: Dataset) -> Callable[[], object]:
        return lambda: embed(encoder, images, folder / "out.parquet", batch_size=BATCH, progress=False, device="cpu")

    runs: dict[str, Callable[[], object]] = {"bare": bare(encoder, sources["arrays in memory"])}
    runs |= {source: embedding(images) for source, images in sources.items()}
    seconds = measure(runs, rounds)
    rows = []
    for source in sources:
        ratios = sorted(ours / theirs for ours, theirs in zip(seconds[source], seconds["bare"], strict=True))
        ratio = statistics.median(ratios)
        rows.append(
            f"| {name} at {size} px | {source} | {count / statistics.median(seconds['bare']):,.0f} "
            f"| {count / statistics.median(seconds[source]):,.0f} | {ratio:.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} "
            f"| {'met' if ratio <= TARGET else 'missed'} |"
        )
        print(rows[-1], file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=16_384, help="of the smallest backbone; fewer of the others")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "embed.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, size, fewer in CASES:
        with tempfile.TemporaryDirectory() as folder:
            rows += case(name, size, max(arguments.images // fewer, 2), arguments.rounds, Path(folder))
    lines = "\n".join(rows)
    text = f"""# nearfar embed beside the bare forward pass

{describe()}; one thread of torch, batches of {BATCH}, {arguments.images:,} images for the smallest backbone. Wall time,
medians over {arguments.rounds} interleaved rounds; ratios are taken within a round. Load of the machine at the end:
{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.

| encoder | images from | bare forward, images/s | embed, images/s | embed takes | least to most | within 10 % |
|---|---|---|---|---|---|---|
{lines}

embed reads, prepares (crop, resize, normalise), computes and writes a .parquet file; the bare pass computes alone, over
prepared batches that lie in memory. To decode a small JPEG and prepare it takes a core about as long (some 0.35 ms) as
the tiny encoder's pass, so that with two cores there is nothing left to hide it behind.

Run again: `python benchmarks/embed.py`.
"""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
