"""What every encoder is measured beside: raw pixels, and an encoder that has learned nothing."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nearfar.data.dataset import Dataset
from nearfar.evaluation.embedding import Prepare, device_of
from nearfar.modalities.baseline import Baseline

_RAW_SIDE = 32  # raw images are averaged down to at most this side: more pixels only make the probe slower
_CALIBRATION = 20  # batches from which an untrained encoder takes its statistics


class RawValues(Baseline):
    """Prepared samples as they are, flattened; images are averaged down to at most 32 × 32."""

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim == 4 and max(x.shape[2:]) > _RAW_SIDE:
            x = F.adaptive_avg_pool2d(x, (min(x.shape[2], _RAW_SIDE), min(x.shape[3], _RAW_SIDE)))
        return x.flatten(1).float()


class PreparedValues(RawValues):
    """The encoder's input, measured by k-NN only: on pixels the linear probe takes longest and finds least."""

    protocols = ("knn",)


@torch.no_grad()
def calibrated(encoder: nn.Module, train: Dataset, prepare: Prepare, *, batch_size: int = 256) -> nn.Module:
    """An untrained encoder with the BatchNorm statistics of the data: without them it would be too weak a baseline.

    They are the plain mean over the batches. On data of few batches, a running mean would still be mostly the initial
    statistics.
    """
    norms = [m for m in encoder.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    encoder.train()
    device = device_of(encoder)
    for part in torch.arange(len(train)).split(batch_size)[: _CALIBRATION if norms else 0]:
        if len(part) > 1:
            encoder(prepare(train.fetch(part).to(device)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return encoder.eval()
