"""Image size, backbone, batch, optimizer and time of a run on pictures, from measured rules (docs/automatic.md).

On a CPU, steps count more than anything: a small network, small batches, Muon. On a GPU the papers' settings hold, at
sizes that fit the time.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from nearfar.modalities.automatic import (
    Automatic,
    Request,
    batch_on_gpus,
    choose_adaptation,
    choose_precision,
    fitting_batch,
    keep_better_start,
)
from nearfar.modalities.config import VIEW_FACTORS
from nearfar.modalities.image.data.decode import opened
from nearfar.modalities.image.data.opening import find_images
from nearfar.modalities.image.data.source import ImageSource
from nearfar.modalities.image.published import size_of_small_stem
from nearfar.weights.names import parse_name
from nearfar.weights.packages import INSTALL

LOOKED_AT = 64  # pictures whose size is read
CPU_TIME, GPU_TIME = "10m", "4h"
ADAPTING_RATE = 3e-4  # of AdamW, for runs that start from pretrained weights
START = "efficientnet-lite0"  # package of weights that photographs start from, if it is installed
_PACKAGE = f"package:{START}"
SMALL_VIEWS = "a CPU learns more from many small views than few large"
LOWER_BLOCKS = 5  # of its nine
PHOTO = 96  # pixels of the shorter side, from which pictures are taken for photographs
ADAPTED_SIZE = 128  # pixels that an adapted EfficientNet-Lite0 sees
FEW = 100_000  # photographs, of which a GPU learns less from the beginning than from a start


@dataclass(frozen=True)
class PictureFacts:
    """What is known of pictures before any of them is decoded."""

    count: int
    side: int  # median of the shorter sides, in pixels


def look_at(data: str) -> PictureFacts | None:
    """Count pictures and read the sizes of a few; None if they cannot be found, which opening them will explain."""
    try:
        source = find_images(data, split="train" if _has_train_part(data) else None)
        rows = np.linspace(0, len(source.names) - 1, min(LOOKED_AT, len(source.names))).astype(int)
        sides = [source.size] if source.size else [side for row in rows if (side := _side(source, int(row)))]
        return PictureFacts(len(source.names), round(median(sides))) if sides else None
    except Exception:  # the run will open the data again, and say what is wrong with them
        return None


def choose(request: Request, facts: PictureFacts) -> Automatic:
    """The settings of a run on these pictures."""
    chosen, device = Automatic(), request.device
    seen = f"{facts.count:,} images of about {facts.side} pixels"
    choose_precision(chosen, device)
    started = _choose_start(request, chosen, facts, seen)
    if device.type == "cpu":
        _choose_for_cpu(request, chosen, facts, seen, started=started)
    else:
        size = 32 if facts.side < 48 else 64 if facts.side < 96 else 160 if facts.side < 256 else 224
        chosen.choose("image_size", size, seen)
        backbone = "resnet18" if size <= 64 or facts.count < 20_000 else "resnet50"
        chosen.choose("batch_size", batch_on_gpus(request, 256, facts.count))
        if not started:
            chosen.choose("backbone", backbone, f"fits {seen} on a GPU")
            chosen.lay(request.method.paper_settings("image", backbone))
    if not request.has_length:
        time = CPU_TIME if device.type == "cpu" else GPU_TIME
        chosen.choose("time", time, "a usual length; --time, --steps or --epochs change it")
    chosen.lay(request.method.settings.get("image", {}))
    if not started:
        keep_better_start(chosen)
    else:
        choose_adaptation(request, chosen, lr=ADAPTING_RATE, taught=request.method.needs_labels)
        if not request.method.needs_labels:
            chosen.choose("adapt.anchor", 1.0, "samples that the start finds similar stay similar")
    return chosen


def _choose_start(request: Request, chosen: Automatic, facts: PictureFacts, seen: str) -> bool:
    """Whether the run starts from weights; photographs do if some are installed."""
    open_for_photographs = request.may_choose_weights and facts.side >= PHOTO
    if open_for_photographs and (request.device.type == "cpu" or facts.count < FEW):
        if not request.has_package(START):
            return False
        chosen.choose("weights", _PACKAGE, f"{seen}: pretrained on a million photographs")
    elif not request.starts_from_weights:
        return False
    if _from_package(request, chosen) and request.device.type == "cpu":
        chosen.choose("adapt.freeze_blocks", LOWER_BLOCKS, "half of the time of a step, and they hardly change")
    return True


def _from_package(request: Request, chosen: Automatic) -> bool:
    return _PACKAGE in (request.given.get("weights"), chosen.settings.get("weights"))


def _small_stem(request: Request) -> int | None:
    """Pixels for weights of a ResNet for small images, whose first layers cost nine times as much on larger ones."""
    try:
        return size_of_small_stem(parse_name(str(request.given.get("weights"))))
    except (OSError, ValueError, ImportError):  # opening the weights will say what is wrong with them
        return None


def _choose_for_cpu(request: Request, chosen: Automatic, facts: PictureFacts, seen: str, *, started: bool) -> None:
    photographs = started and facts.side >= PHOTO
    if photographs and _from_package(request, chosen):
        size = ADAPTED_SIZE
        chosen.choose("image_size", size, f"{seen}; a pretrained encoder gains from more pixels")
    elif started and (stem := _small_stem(request)) is not None:
        size = stem
        chosen.choose("image_size", size, f"{seen}; the weights are of a network for small images")
    else:
        size = 32 if facts.side < 48 else PHOTO if photographs else 64
        stored = "as stored" if facts.side == size else f"{seen}, enlarged"
        chosen.choose("image_size", size, stored if facts.side <= size else f"{seen}; {SMALL_VIEWS}")
    if facts.side <= size:
        chosen.choose("data.stored_size", facts.side)
    if not started:
        missed = request.may_choose_weights and facts.side >= PHOTO
        better = f"; pretrained weights are much better for photographs: {INSTALL}" if missed else ""
        chosen.choose("backbone", "quick", f"learns most per second on a CPU{better}")
        if "lr" not in request.given.get("optimizer", {}):  # a rate is of the optimizer that its user knows
            chosen.choose("optimizer.name", "muon", "learns more per step than SGD or AdamW in short runs")
    chosen.choose("views.preset", "photos")
    if "preset" not in request.given.get("views", {}):
        for factor in VIEW_FACTORS:
            chosen.choose(f"views.{factor}", "auto")
    chosen.lay(request.method.short_run_of("image"))
    views = chosen.settings["views"].get("count", 2)
    usual = min((256 if size == 32 else 128) // views, chosen.settings.get("batch_size", 256))
    batch = fitting_batch(usual, facts.count)
    chosen.choose("batch_size", batch, "small batches make more steps in the same time")
    if views > 2:
        chosen.reasons["views.count"] = "more views of fewer samples learn more in the same time"


def _has_train_part(data: str) -> bool:
    return (Path(data).expanduser() / "train").is_dir()


def _side(source: ImageSource, row: int) -> int | None:
    if source.paths is None:
        return None
    try:
        with opened(source.paths[row]) as picture:
            return min(picture.size)
    except Exception:  # a broken file is told when it is decoded
        return None
