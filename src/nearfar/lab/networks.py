"""Small networks with weights from a given generator, so that torch's global one is not used."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def mlp(widths: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """Linear layers with ReLU between them, initialized like `nn.Linear`."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
        for weight in (layer.weight, layer.bias):
            nn.init.uniform_(weight, -(inputs**-0.5), inputs**-0.5, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def minimize(loss: Callable[[], Tensor], parameters: Sequence[nn.Parameter], *, steps: int, lr: float) -> None:
    """Adam with a cosine schedule, on a loss that draws its own batch."""
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        schedule.step()
