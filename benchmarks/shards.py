"""Streamed shards beside WebDataset's own loader: the same files, the same decoding, the same batches, one core.

Both shuffle shards and samples, decode with the same function, and give batches (B, 3, S, S) uint8. Rates
are by processor time, of all threads, so that others at work on the machine do not count; rounds are interleaved.

    python benchmarks/shards.py [--images 4096] [--rounds 5] [--out benchmarks/results/shards.md]
"""

import argparse
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import webdataset
from PIL import Image

from machine import describe, extra_memory
from nearfar.data.loader import Loader
from nearfar.data.sources import Source
from nearfar.modalities.image.data.decode import decode
from nearfar.modalities.image.data.opening import open_images
from nearfar.modalities.image.data.shard_writer import write_shards
from nearfar.modalities.image.data.shards import shard_files

BATCH, SHARD = 256, 512
CASES = ((64, 32, 1), (256, 128, 4), (512, 224, 16))  # side of the JPEG, side of the result, so many times fewer images


def jpegs(count: int, side: int) -> list[bytes]:
    """Soft noise: compresses like a photograph, and not like noise."""
    coarse = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), np.uint8)
    files = []
    for x in coarse:
        file = io.BytesIO()
        Image.fromarray(x).resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def ours(folder: Path, size: int, cache: Path) -> Iterator[torch.Tensor]:
    """As `nearfar train --data.stream true` reads, opening included; the members are listed in the cache."""
    data = open_images(folder, stored_size=size, stream=True, cache=cache)
    loader = Loader(len(data), BATCH, 0, parts=data.parts, window=1000)  # type: ignore[attr-defined]
    for batch in loader.fetched(data, 0):
        yield batch.x


def theirs(folder: Path, size: int) -> Iterator[torch.Tensor]:
    """WebDataset's pipeline; a buffer of the same size as our window."""

    def picture(sample: dict[str, bytes]) -> np.ndarray:
        return decode(io.BytesIO(sample["jpg"]), size)

    files = [str(file) for file in shard_files(folder)]
    data = webdataset.WebDataset(files, shardshuffle=len(files), seed=0).shuffle(1000).map(picture)
    for images in data.batched(BATCH, partial=False, collation_fn=np.stack):
        yield torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def bare(files: list[bytes], size: int) -> Iterator[torch.Tensor]:
    """The decoding alone, of files that lie in memory."""
    for start in range(0, len(files) - BATCH + 1, BATCH):
        images = np.stack([decode(io.BytesIO(content), size) for content in files[start : start + BATCH]])
        yield torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def case(side: int, size: int, count: int, rounds: int, folder: Path) -> str:
    files = jpegs(count, side)
    source = Source("made", [str(i) for i in range(count)], load=lambda: files)  # type: ignore[arg-type,return-value]
    write_shards(source, folder / "shards", samples=SHARD, progress=False)
    runs = {
        "bare": lambda: bare(files, size),
        "theirs": lambda: theirs(folder / "shards", size),
        "ours": lambda: ours(folder / "shards", size, folder / "cache"),
    }
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            seen = sum(len(batch) for batch in run())
            assert seen == count // BATCH * BATCH, (name, seen)
            if turn:
                rates[name].append(seen / (time.process_time() - start))
    ratios = sorted(a / b for a, b in zip(rates["ours"], rates["theirs"], strict=True))
    middle = {name: statistics.median(found) for name, found in rates.items()}
    row = (
        f"| {side} to {size} px | {len(files[0]) / 1024:.0f} KiB | {count:,} | {middle['bare']:,.0f} "
        f"| {middle['theirs']:,.0f} | {middle['ours']:,.0f} | {statistics.median(ratios):.2f} "
        f"| {ratios[0]:.2f} to {ratios[-1]:.2f} |"
    )
    print(row, file=sys.stderr)
    return row


def listed(count: int, folder: Path) -> str:
    """Seconds to list the members of shards for the first time and again, and memory a sample."""
    tiny = jpegs(1, 8)[0]
    names = [f"{i:09d}.jpg" for i in range(count)]
    captions = [(f"a caption of about forty letters, no. {i}",) for i in range(count)]
    source = Source("made", names, load=lambda: [tiny] * count, captions=captions)  # type: ignore[arg-type,return-value]
    write_shards(source, folder / "many", progress=False)
    seconds, kept = [], []

    def look() -> None:
        start = time.perf_counter()
        kept.append(open_images(folder / "many", stored_size=8, stream=True, cache=folder / "list"))
        seconds.append(time.perf_counter() - start)

    extra_memory(look)
    again = extra_memory(look)
    return (
        f"To list {count:,} samples with captions took {seconds[0]:.1f} s the first time and {seconds[1]:.1f} s again; "
        f"names, captions and places take {again * 2**20 / count:,.0f} bytes of memory a sample while they are read."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=16_384, help="of the smallest size; fewer of the others")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--listed", type=int, default=100_000, help="samples of the measurement of lists")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "shards.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core for both
    load = os.getloadavg()[0]
    rows = []
    for side, size, fewer in CASES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(case(side, size, max(arguments.images // fewer, BATCH), arguments.rounds, Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        lists = listed(arguments.listed, Path(folder))
    lines = "\n".join(rows)
    text = f"""# Streamed shards beside WebDataset's own loader

{describe()}, webdataset {webdataset.__version__}; one core for everything, batches of {BATCH}, shards of {SHARD}
samples, from the page cache. Images a second of processor time; medians over {arguments.rounds} interleaved rounds,
ratios within a round. Load of the machine at the beginning {load:.1f}, at the end {os.getloadavg()[0]:.1f}, on
{os.cpu_count()} cores: above that number others were at work on it, which slows each second of all three.

| JPEG to result | a file | images | decoding alone | webdataset | nearfar | nearfar : webdataset | least to most |
|---|---|---|---|---|---|---|---|
{lines}

Both shuffle shards and samples (a buffer of 1,000, a window of 1,000), decode with the same function and give the same
batches. nearfar's epoch also begins with opening the data and looking up where the members are.

{lists}

Run again: `python benchmarks/shards.py`.
"""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
