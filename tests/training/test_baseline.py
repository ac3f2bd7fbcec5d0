"""The untrained encoder that a run is compared with is no straw man."""

import numpy as np
import torch
from torch import Tensor, nn

from nearfar.data.dataset import ArrayDataset
from nearfar.evaluation.baselines import calibrated


def prepare(x: Tensor) -> Tensor:
    return x.float() / 255


def test_its_batch_statistics_are_those_of_the_data_after_a_single_batch() -> None:
    images = np.random.default_rng(0).integers(0, 256, (200, 4, 4, 3), dtype=np.uint8)
    data = ArrayDataset(images)
    encoder = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten())
    norm = encoder[0]
    calibrated(encoder, data, prepare)
    x = prepare(data.fetch(torch.arange(200)))
    torch.testing.assert_close(norm.running_mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(norm.running_var, x.var((0, 2, 3)))
    assert norm.momentum == 0.1 and not encoder.training
