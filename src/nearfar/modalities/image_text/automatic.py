"""Towers, image size, batch, optimizer and time of a run on captioned images, by measured rules (docs/automatic.md)."""

from nearfar.modalities.automatic import (
    Automatic,
    Request,
    batch_on_gpus,
    choose_adaptation,
    choose_precision,
    fitting_batch,
)
from nearfar.modalities.image.automatic import CPU_TIME, GPU_TIME, LOWER_BLOCKS, PictureFacts
from nearfar.modalities.image.automatic import START as IMAGE_START
from nearfar.modalities.text.encoders import BAG

TOWERS_RATE = 1e-4  # of AdamW, for the last blocks of towers that start from weights
JOINT = 512  # features of their joint space
HIDDEN = 4096  # units between a text encoder with weights and the joint space
FEW = 50_000  # pairs, up to which CLIP's own weak views are learned by heart


def choose(request: Request, facts: PictureFacts) -> Automatic:
    """The settings of a run on these images and captions, from random weights."""
    chosen, device = Automatic(), request.device
    seen = f"{facts.count:,} captioned images of about {facts.side} pixels"
    choose_precision(chosen, device)
    if device.type == "cpu":
        chosen.choose("image_size", 32 if facts.side < 48 else 48 if facts.side < 96 else 64, seen)
        chosen.choose("backbone", "quick", "learns most per second on a CPU")
        chosen.choose("text.encoder", BAG, "of few captions more is learned of words than of their order")
        if "lr" not in request.given.get("optimizer", {}):  # a rate is of the optimizer that its user knows
            chosen.choose("optimizer.name", "muon", "learns more per step than AdamW in short runs")
        chosen.choose("batch_size", fitting_batch(128, facts.count), "small batches make more steps in the same time")
    else:
        size = 32 if facts.side < 48 else 64 if facts.side < 96 else 160 if facts.side < 256 else 224
        chosen.choose("image_size", size, seen)
        chosen.choose("backbone", "resnet18" if facts.count < FEW else "resnet50", f"fits {seen} on a GPU")
        chosen.choose("text.encoder", "text-small" if facts.count >= FEW else "text-tiny")
        chosen.choose("batch_size", batch_on_gpus(request, 512, facts.count))
        chosen.lay({"optimizer": {"name": "adamw"}})
    if facts.count < FEW:
        chosen.choose("views.preset", "clip_few", "strong enough that so few pairs are not learned by heart")
    if not request.has_length:
        time = CPU_TIME if device.type == "cpu" else GPU_TIME
        chosen.choose("time", time, "a usual length; --time, --steps or --epochs change it")
    return chosen


def choose_for_towers(request: Request, facts: PictureFacts) -> Automatic:
    """The settings of a run whose two towers start from weights."""
    chosen, device = Automatic(), request.device
    locked = request.method.options().get("locked", False)
    size = 224 if device.type != "cpu" else 128 if locked else 96
    seen = f"{facts.count:,} captioned images of about {facts.side} pixels"
    chosen.choose("image_size", size, f"{seen}; towers from weights see more in larger pictures, also in enlarged ones")
    if facts.side <= size:
        chosen.choose("data.stored_size", facts.side)
    choose_adaptation(request, chosen, lr=TOWERS_RATE, taught=True)
    chosen.choose("adapt.projections", "fitted", "one pass gives a joint space that random projections learn slowly")
    chosen.choose("text.embed_dim", JOINT, "whitened features of images fill as many")
    chosen.choose("text.projection_width", HIDDEN, "a fitted hidden layer tells more captions apart than a matrix")
    chosen.choose("adapt.head_lr", 1.0)
    chosen.choose("adapt.head_warmup", 0.0)
    choose_precision(chosen, device)
    if not locked and device.type == "cpu" and request.given.get("weights") == f"package:{IMAGE_START}":
        chosen.choose("adapt.freeze_blocks", LOWER_BLOCKS, "the lower half costs half of a step, and changes little")
    usual = (256 if locked else 64) if device.type == "cpu" else batch_on_gpus(request, 512, facts.count)
    chosen.choose("batch_size", fitting_batch(usual, facts.count))
    if facts.count < FEW:
        chosen.choose("views.preset", "clip_few", "strong enough that so few pairs are not learned by heart")
    if not request.has_length:
        time = CPU_TIME if device.type == "cpu" else GPU_TIME
        chosen.choose("time", time, "a usual length; --time, --steps or --epochs change it")
    return chosen
