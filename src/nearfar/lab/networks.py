"""Small networks whose weights come from a generator, so that nothing of the caller's chance is touched."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def mlp(widths: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """Linear layers with ReLU between them, drawn as `nn.Linear` draws its own."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
        for weight in (layer.weight, layer.bias):
            nn.init.uniform_(weight, -(inputs**-0.5), inputs**-0.5, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def minimise(loss: Callable[[], Tensor], parameters: Sequence[nn.Parameter], *, steps: int, lr: float) -> None:
    """Adam on a loss that draws its own batch, the rate falling along a cosine."""
    optimiser = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
        schedule.step()
