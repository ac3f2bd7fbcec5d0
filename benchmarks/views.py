"""SimCLR's two views of a batch: nearfar beside lightly and Kornia, one core, same operations and parameters.

Each library starts from what it likes best: nearfar from a uint8 batch, lightly from decoded PIL images, Kornia from a
float batch, for which the conversion is not counted. Rounds are interleaved, so that a busy machine slows all alike.

    python benchmarks/views.py [--rounds 9] [--out benchmarks/results/views.md]
"""

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from nearfar import _torchvision  # noqa: F401
from nearfar.modalities.image.views.presets import make_views, simclr

import kornia.augmentation as K  # isort: skip
from lightly.transforms import SimCLRTransform  # isort: skip
from torchvision.transforms.v2.functional import to_pil_image  # isort: skip

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STRENGTH = 0.5
BATCH = 256
TURN = 0.5  # seconds
CASES = {"32 → 32 px, no blur": (32, 32, 0.0, BATCH), "96 → 64 px, blur 0.5": (96, 64, 0.5, BATCH)}
TARGETS = {"32 → 32 px, no blur": (10, 2), "96 → 64 px, blur 0.5": (6, 4)}


def nearfar_views(images: Tensor, size: int, blur: float) -> Callable[[], object]:
    views = simclr(size, strength=STRENGTH, blur=blur)
    steps = iter(range(1_000_000))
    room = [torch.empty(len(images), 3, size, size) for _ in views]  # kept from step to step, as training does
    return lambda: make_views(images, views, seed=0, step=next(steps), out=room)


def lightly_views(images: Tensor, size: int, blur: float) -> Callable[[], object]:
    pictures = [to_pil_image(image) for image in images]
    transform = SimCLRTransform(input_size=size, cj_strength=STRENGTH, gaussian_blur=blur)

    def run() -> list[Tensor]:
        pairs = [transform(picture) for picture in pictures]
        return [torch.stack([pair[view] for pair in pairs]) for view in (0, 1)]

    return run


def kornia_views(images: Tensor, size: int, blur: float, mode: str) -> Callable[[], object]:
    strength = (0.8 * STRENGTH, 0.8 * STRENGTH, 0.8 * STRENGTH, 0.2 * STRENGTH)
    steps = [
        K.RandomResizedCrop((size, size), scale=(0.08, 1.0), cropping_mode=mode),
        K.RandomHorizontalFlip(p=0.5),
        K.ColorJitter(*strength, p=0.8),
        K.RandomGrayscale(p=0.2),
    ]
    if blur:
        steps.append(K.RandomGaussianBlur((2 * (size // 20) + 1,) * 2, (0.1, 2.0), p=blur))
    pipeline = K.AugmentationSequential(*steps, K.Normalize(mean=MEAN, std=STD), data_keys=["input"])
    floats = images.float() / 255

    def run() -> list[Tensor]:
        with torch.no_grad():
            return [pipeline(floats) for _ in range(2)]

    return run


def measure(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of processor time of a batch of each, in interleaved rounds after one to warm up.

    In a round each makes batches for at least half a second: one batch after the other, as in training.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            batches, start = 0, time.process_time()
            while (spent := time.process_time() - start) < TURN:
                run()
                batches += 1
            if turn:
                seconds[name].append(spent / batches)
    return seconds


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def table(results: dict[str, dict[str, list[float]]]) -> str:
    rows = [
        "| case | library | µs per view | views/s | nearfar is faster by | middle half of rounds | target |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, seconds in results.items():
        for name, values in seconds.items():
            per_view = statistics.median(values) / CASES[case][3] / 2
            shown = ["", "", ""]
            if name != "nearfar":
                ratios = [theirs / ours for theirs, ours in zip(values, seconds["nearfar"], strict=True)]
                low, middle, high = statistics.quantiles(ratios, n=4)
                goal = TARGETS[case][0 if name == "lightly" else 1]
                met = "met" if middle >= goal else "missed"
                shown = [f"{middle:.1f}×", f"{low:.1f} to {high:.1f}", f"{goal}×: {met}"]
            rows.append(f"| {case} | {name} | {per_view * 1e6:.1f} | {1 / per_view:,.0f} | {' | '.join(shown)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "views.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    results = {}
    for case, (source, size, blur, batch) in CASES.items():
        images = torch.nn.functional.interpolate(torch.rand(batch, 3, 8, 8), (source, source), mode="bicubic")
        images = (images.clamp(0, 1) * 255).byte()
        runs = {
            "nearfar": nearfar_views(images, size, blur),
            "lightly": lightly_views(images, size, blur),
            "kornia, slice": kornia_views(images, size, blur, "slice"),
            "kornia, resample": kornia_views(images, size, blur, "resample"),
        }
        results[case] = measure(runs, arguments.rounds)
        print(table({case: results[case]}), file=sys.stderr)

    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "torchvision", "lightly", "kornia", "pillow"))
    text = f"""# SimCLR's two views, one core

{processor()}, {os.cpu_count()} cores, one used; Python {platform.python_version()}, {libraries}.
Processor time, medians over {arguments.rounds} interleaved rounds; batches of {BATCH};
ratios are taken within a round. Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.

{table(results)}

Crop (area 0.08 to 1), flip 0.5, colour jitter 0.8 at strength {STRENGTH}, grayscale 0.2, blur as named, ImageNet's mean
and deviation. lightly works on PIL images, one by one, in bytes; Kornia on the float batch, its crop without
antialiasing, in its two modes: "slice" (its default) and "resample". nearfar and lightly antialias. Conversion to
Kornia's floats and to lightly's PIL images is not counted against them; nearfar's conversion from uint8 is.

Run again: `python benchmarks/views.py` with lightly and kornia installed.
"""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
