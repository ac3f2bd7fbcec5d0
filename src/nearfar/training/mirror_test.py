"""Whether pictures can be told from their mirror images, which needs no labels.

Where they cannot, mirrored pictures are among the data as often as others, and views may be mirrored. Where they can,
as letters, or shoes that all point to the left, mirrored ones do not occur, and to ignore the side can only cost.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZE, BATCH, STEPS = 32, 64, 200
LEAST_HELD_OUT = 100
CLEAR = 3.0  # standard errors above one half
_SHIFT = 2  # pixels, at most


def tell_mirrored(pictures: Tensor, seed: int) -> Tensor:
    """Train a small network on three quarters of the pictures to tell them from their mirror images.

    Args:
        pictures: (N, 3, H, W), uint8.
        seed: of the split, the weights and the batches.

    Returns:
        (M,) for each picture held out, whether the network knows it from its mirror image.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        small = [F.interpolate(some.cpu().float(), size=(SIZE, SIZE), mode="area") for some in pictures.split(256)]
        x = (torch.cat(small) - 128) / 64
        x = x[torch.randperm(len(x))]  # (N, 3, s, s)
        held_out, x = x[: len(x) // 4], x[len(x) // 4 :]
        network = _network()
        optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.05)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS)
        for _ in range(STEPS):
            shift = torch.randint(-_SHIFT, _SHIFT + 1, (2,)).tolist()
            some = x[torch.randperm(len(x))[:BATCH]].roll(shift, (2, 3))  # (B, 3, s, s)
            scores = network(torch.cat([some, some.flip(-1)]))[:, 0]  # (2B,)
            loss = F.binary_cross_entropy_with_logits(scores, (torch.arange(len(scores)) < len(some)).float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        network.eval()
        with torch.inference_mode():
            told: Tensor = (network(held_out) > network(held_out.flip(-1)))[:, 0]
            return told


def is_clear(told: Tensor) -> bool:
    """Whether more pictures than by chance are known from their mirror images.

    >>> is_clear(torch.arange(400) < 240), is_clear(torch.arange(400) < 210)
    (True, False)
    """
    return float(told.float().mean()) > 0.5 + CLEAR * 0.5 / math.sqrt(len(told))


def _network() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs, side in ((3, 32, 5), (32, 64, 3), (64, 128, 3)):
        layers += [nn.Conv2d(inputs, outputs, side, 2, side // 2), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * (SIZE // 8) ** 2, 1))
