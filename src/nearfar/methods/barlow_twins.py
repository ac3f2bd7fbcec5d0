"""Barlow Twins: the two views' features correlate each with itself and with no other."""

from itertools import combinations, product
from typing import Any

from torch import nn

from nearfar.losses import barlow_twins
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.methods.views import add, by_name, encode_views, from_names, views_of
from nearfar.nn.heads import projector


class BarlowTwins(Method):
    """A wide projector, and a cross-correlation matrix that must become the identity.

    Args:
        encoder: x (B, ...) to h (B, features).
        dim, hidden: of the projector (3 layers).
        redundancy_weight: the paper's λ.
        last_bias: of the projector's last layer, which the loss cannot see; the authors' code has none.
        bias_lr_ratio: learning rate of biases and norms as a multiple of the weights'; the authors' 0.0048 and 0.2
            are 0.024.

    With more views the loss is the mean over their pairs; a local view is paired with each full one.

    Reference: Zbontar et al. 2021, https://arxiv.org/abs/2103.03230
    """

    name = "barlow_twins"
    when = "you want features without repetition, from small batches"
    reference = ("Zbontar et al. 2021", "https://arxiv.org/abs/2103.03230")
    also_needs = "wide heads"
    default_views = {"image": "byol", "sound": "byol_a"}
    max_views = max_local = None
    short_run = {"options": {"dim": 128, "hidden": 256, "redundancy_weight": 0.02}, "batch_size": 64}
    toy_options = {"dim": 12, "hidden": 16}
    paper_views = {"image": "byol_bicubic"}
    paper = {
        "options": {"last_bias": False, "bias_lr_ratio": 0.024},
        "optimizer": {
            "name": "lars",
            "lr": 0.2,
            "weight_decay": 1e-6,
            "lr_in_momentum": False,
            "warmup_epochs": 10.0,
            "warmup_from_zero": True,
            "min_lr_ratio": 1e-3,
        },
    }

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        dim: int = 8192,
        hidden: int = 8192,
        redundancy_weight: float = 0.0051,
        last_bias: bool = True,
        bias_lr_ratio: float = 1.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, hidden, dim, layers=3, last_bias=last_bias)
        self.redundancy_weight, self.bias_lr_ratio = redundancy_weight, bias_lr_ratio

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        weights, biases = super().parameter_groups(weight_decay)
        return [weights, biases if self.bias_lr_ratio == 1 else {**biases, "lr_scale": self.bias_lr_ratio}]

    def encode(self, batch: Batch) -> Encoded:
        return by_name("z", encode_views(nn.Sequential(self.encoder, self.projector), views_of(batch)))  # each (B, D)

    def contrast(self, encoded: Encoded) -> Step:
        z = from_names(encoded, "z")
        pairs = [*combinations(z.full, 2), *product(z.full, z.local)]
        loss = add([barlow_twins(a, b, redundancy_weight=self.redundancy_weight) for a, b in pairs]) / len(pairs)
        return Step(loss, z.full[0].detach(), z.full[1].detach())
