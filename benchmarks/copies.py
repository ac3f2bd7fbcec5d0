"""Copies planted among photos: how many are found, and how many of what is found are copies, beside peers.

One of four photos has a copy. Peers are used where they are installed: imagededup's PHash and cleanvision, both with
their defaults, and imagehash's phash, from which cleanvision takes its own, at a distance of at most 10 of 64 bits.
`nearfar duplicates` looks at the embeddings of one encoder, all others at the pixels.

    pip install imagededup cleanvision
    python benchmarks/copies.py FOLDER [--sets 0:28 2:206] [--side 300] [--encoder NAME] [--only "nearfar doctor"]
"""

import argparse
import contextlib
import importlib.util
import io
import logging
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path

from PIL import Image, ImageDraw

import nearfar
from machine import describe

SETS = ("0:28", "1:28", "2:206", "3:1200")  # seed, photos
SIDE = 300  # pixels at most of a photo
Groups = Iterable[Sequence[str]]


def encoded(photo: Image.Image, quality: int = 90) -> bytes:
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=quality)
    return file.getvalue()


def cropped(photo: Image.Image, part: float) -> Image.Image:
    """So much cut off each side."""
    w, h = photo.size
    return photo.crop((int(w * part), int(h * part), int(w * (1 - part)), int(h * (1 - part))))


def marked(photo: Image.Image) -> Image.Image:
    photo = photo.copy()
    place, size = (photo.width * 0.5, photo.height * 0.85), max(8, photo.height // 14)
    ImageDraw.Draw(photo).text(place, "(c) example photo", fill="white", font_size=size)
    return photo


COPIES: dict[str, Callable[[Image.Image], bytes]] = {
    "re-encoded": lambda photo: encoded(photo, 40),
    "half size": lambda photo: encoded(photo.resize((photo.width // 2, photo.height // 2))),
    "watermark": lambda photo: encoded(marked(photo)),
    "2 % cut": lambda photo: encoded(cropped(photo, 0.02)),
    "5 % cut": lambda photo: encoded(cropped(photo, 0.05)),
}


def by_doctor(folder: str) -> Groups:
    return nearfar.doctor(folder, labels=False, progress=False).groups


def by_duplicates(encoder: str) -> Callable[[str], Groups]:
    def find(folder: str) -> Groups:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place, "embeddings.npz")
            nearfar.embed(encoder, folder, file, progress=False)
            return nearfar.duplicates(file, progress=False).groups

    return find


def by_imagededup(folder: str) -> Groups:
    from imagededup.methods import PHash

    found = PHash(verbose=False).find_duplicates(image_dir=folder, num_enc_workers=0, num_dist_workers=0)
    return [(name, other) for name, others in found.items() for other in others]


def by_cleanvision(folder: str) -> Groups:
    from cleanvision import Imagelab

    with contextlib.redirect_stdout(io.StringIO()):
        lab = Imagelab(data_path=folder)
        lab.find_issues({"exact_duplicates": {}, "near_duplicates": {}}, n_jobs=1, verbose=False)
    return [group for kind in ("exact_duplicates", "near_duplicates") for group in lab.info[kind]["sets"]]


def by_imagehash(folder: str) -> Groups:
    import imagehash

    hashes = {path.name: imagehash.phash(Image.open(path)) for path in Path(folder).iterdir()}
    return [(a, b) for a, b in combinations(hashes, 2) if hashes[a] - hashes[b] <= 10]


def finders(encoder: str | None) -> dict[str, Callable[[str], Groups]]:
    found: dict[str, Callable[[str], Groups]] = {"nearfar doctor": by_doctor}
    if encoder:
        found[f"nearfar duplicates, {encoder}"] = by_duplicates(encoder)
    peers = {"imagededup": by_imagededup, "cleanvision": by_cleanvision, "imagehash": by_imagehash}
    return found | {name: find for name, find in peers.items() if importlib.util.find_spec(name)}


def plant(folder: str, files: Sequence[Path], seed: int, count: int, side: int) -> Counter[str]:
    """Write photos and copies of every fourth; how many copies of each kind."""
    planted = Counter[str]()
    for number, file in enumerate(random.Random(seed).sample(files, count)):
        photo = Image.open(file).convert("RGB")
        photo.thumbnail((side, side))
        photo.save(Path(folder, f"{number}_photo.png"))
        if number % 4 == 0:
            kind = list(COPIES)[number // 4 % len(COPIES)]
            Path(folder, f"{number}_{kind}.jpg").write_bytes(COPIES[kind](photo))
            planted[kind] += 1
    return planted


def row(name: str, groups: Groups, planted: Counter[str], seconds: float) -> str:
    pairs = {
        tuple(sorted(Path(name).stem for name in pair)) for names in groups for pair in combinations(names, 2)
    }  # a pair is found once, however often it is told
    true = [pair for pair in pairs if pair[0].split("_")[0] == pair[1].split("_")[0]]
    hit = Counter(next(kind for kind in (name.split("_")[1] for name in pair) if kind != "photo") for pair in true)
    cells = (f"{hit[kind]} of {planted[kind]}" for kind in COPIES)
    return f"| {name} | {len(pairs)} | {len(true)} | {' | '.join(cells)} | {seconds:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="SEED:PHOTOS")
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--encoder", help="also what `nearfar duplicates` finds among its embeddings")
    parser.add_argument(
        "--only", nargs="+", help="names of rows, such as 'nearfar doctor'; imagehash compares all pairs"
    )
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # imagededup's progress
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    suffixes = (".jpg", ".jpeg", ".png")
    photos = sorted(path for path in options.folder.rglob("*") if path.suffix.lower() in suffixes)
    for seed, count in (map(int, each.split(":")) for each in options.sets):
        print(f"## {count:,} photos, seed {seed}\n\n| | pairs | of these true | {' | '.join(COPIES)} | seconds |")
        print("|---" * (4 + len(COPIES)) + "|")
        with tempfile.TemporaryDirectory() as folder:
            planted = plant(folder, photos, seed, count, options.side)
            for name, find in finders(options.encoder).items():
                if options.only and name not in options.only:
                    continue
                start = time.process_time()
                groups = list(find(folder))
                print(row(name, groups, planted, time.process_time() - start), flush=True)
        print(flush=True)
    print(describe())


if __name__ == "__main__":
    main()
