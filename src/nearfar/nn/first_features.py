"""A network cut to the first of its features."""

import copy

import torch
from torch import Tensor, nn

from nearfar.nn.towers import Tower, TwoTowers


class FirstFeatures(nn.Module):
    """x (B, ...) to the first `num_features` of the network's features, (B, num_features)."""

    width: Tensor  # (), in the state dict: other widths are other networks

    def __init__(self, network: nn.Module, features: int) -> None:
        super().__init__()
        self.network, self.num_features = network, features
        self.register_buffer("width", torch.tensor(features))

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.network(x)
        return h[:, : self.num_features]


def keep_first(network: nn.Module, features: int) -> nn.Module:
    """The network with the first of its features alone; of two towers, both.

    >>> keep_first(nn.Linear(3, 8), 2)(torch.zeros(1, 3)).shape
    torch.Size([1, 2])
    """
    if not isinstance(network, TwoTowers):
        return FirstFeatures(network, features)
    made = copy.deepcopy(network)
    made.num_features = features
    for tower in (made.first, made.second):
        _cut(tower, features)
    return made


def _cut(tower: Tower, features: int) -> None:
    last = tower.last
    last.weight = nn.Parameter(last.weight[:features].detach().clone())
    last.out_features = tower.num_features = features
