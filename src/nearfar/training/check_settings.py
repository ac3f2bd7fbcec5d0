"""Settings that this machine or this torch cannot run: refused before the data are read."""

import torch

from nearfar.config import TrainConfig
from nearfar.methods import find_method
from nearfar.modalities import modality_class
from nearfar.modalities.config import VIEW_FACTORS
from nearfar.training.attachments import check_loggers
from nearfar.training.processes import shards_weights

LEAST_SIDE = 8  # pixels: of smaller views nothing is left after a crop and a network's first layers


def check_supported(config: TrainConfig, device: torch.device) -> None:
    """Raise for a precision, strategy or logger that would fail later, or silently be replaced by another."""
    known = modality_class(config.kind).view_factors
    for factor in VIEW_FACTORS:
        if (value := getattr(config.views, factor)) is not None and factor not in known:
            raise ValueError(f"--views.{factor} is {value}, but {config.kind} data have no {factor}; leave it out")
    if "image" in modality_class(config.kind).queries and config.image_size < LEAST_SIDE:
        raise ValueError(f"--image-size is {config.image_size}, expected at least {LEAST_SIDE} pixels to train on")
    mixed = config.embedding == "whitened" or (
        config.embedding == "auto" and len(modality_class(config.kind).queries) == 1
    )
    if config.options.get("dims") and mixed and "dims" in find_method(config.method).options():
        raise ValueError(
            f"--options.dims nests embeddings, and --embedding is {config.embedding}: whitening mixes their numbers, "
            "and the first would mean nothing; set --embedding plain"
        )
    if config.precision == "fp16" and device.type == "cpu":
        raise ValueError(
            "precision fp16 needs a GPU: there is no float16 training on a CPU; set --precision bf16 or 32"
        )
    if shards_weights(config):
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"strategy fsdp needs cpu or cuda, and the device is {device.type}; set --strategy ddp")
        if config.precision == "fp16":
            raise ValueError("strategy fsdp and precision fp16 were not tested together; set --precision bf16 or 32")
        if torch.__version__ < (2, 7):  # type: ignore[operator]
            raise ValueError(f"strategy fsdp needs torch 2.7 or newer, and this is {torch.__version__}; update torch")
    check_loggers(config)
