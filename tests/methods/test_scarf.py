"""SCARF's loss as the paper's loop."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from nearfar.methods import SCARF


def test_the_loss_is_the_papers_up_to_log_b() -> None:
    torch.manual_seed(0)
    method = SCARF(nn.Linear(3, 4), features=4, dim=5, hidden=6).double()
    z1, z2 = (F.normalize(z, dim=1) for z in torch.randn(2, 6, 5, dtype=torch.float64))
    total = 0.0
    for i in range(6):
        mean = sum(math.exp(float(z1[i] @ z2[k])) for k in range(6)) / 6
        total -= math.log(math.exp(float(z1[i] @ z2[i])) / mean) / 6
    step = method.contrast({"z1": z1, "z2": z2, "ids": torch.arange(6)})
    assert math.isclose(step.loss.item(), total + math.log(6), rel_tol=1e-9) and step.candidates == 6
