"""What every encoder is measured beside: raw pixels, and an encoder that has learned nothing."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nearfar.evaluation.embedding import Images, Prepare

_RAW_SIDE = 32  # raw images are averaged down to at most this side: more pixels only make the probe slower
_CALIBRATION = 20  # batches from which an untrained encoder takes its statistics


def raw_pixels(x: Tensor) -> Tensor:
    """(B, 3, S, S) prepared images to (B, F) pixels, averaged down to at most 32 × 32; else flattened."""
    if x.ndim == 4 and max(x.shape[2:]) > _RAW_SIDE:
        x = F.adaptive_avg_pool2d(x, (min(x.shape[2], _RAW_SIDE), min(x.shape[3], _RAW_SIDE)))
    return x.flatten(1).float()


def untrained_copy(encoder: nn.Module, *, seed: int) -> nn.Module | None:
    """A copy with every parameter drawn anew, as its modules' `reset_parameters` do, or None where one has none.

    This is torch's default initialisation, which may differ from the architecture's own: give "untrained" to
    `evaluate` to measure that.
    """
    fresh = copy.deepcopy(encoder)
    cuda = sorted({p.device.index or 0 for p in fresh.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        for module in fresh.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
            elif next(module.parameters(recurse=False), None) is not None:
                return None
    return fresh


@torch.no_grad()
def calibrated(encoder: nn.Module, train: Images, prepare: Prepare, *, batch_size: int = 256) -> nn.Module:
    """An untrained encoder with the batch statistics of the data: without them it would be a baseline made weak.

    They are the plain mean over the batches. A running mean would, on data of few batches, still be mostly the
    statistics that a network is born with.
    """
    norms = [m for m in encoder.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    encoder.train()
    first = next(encoder.parameters(), None)
    device = torch.device("cpu") if first is None else first.device
    for part in torch.arange(len(train)).split(batch_size)[:_CALIBRATION]:
        if len(part) > 1:
            encoder(prepare(train.fetch(part).to(device)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return encoder.eval()
