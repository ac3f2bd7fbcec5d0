"""Barlow Twins: the two views' features correlate each with itself and with no other."""

from itertools import combinations, product

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

    With more views the loss is the mean over their pairs; a local view is paired with each full one.

    Reference: Zbontar et al. 2021, https://arxiv.org/abs/2103.03230
    """

    name = "barlow_twins"
    default_views = {"image": "byol", "sound": "byol_a"}
    max_views = max_local = None
    toy_options = {"dim": 12, "hidden": 16}

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        dim: int = 8192,
        hidden: int = 8192,
        redundancy_weight: float = 0.0051,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, hidden, dim, layers=3)
        self.redundancy_weight = redundancy_weight

    def encode(self, batch: Batch) -> Encoded:
        return by_name("z", encode_views(nn.Sequential(self.encoder, self.projector), views_of(batch)))  # each (B, D)

    def contrast(self, encoded: Encoded) -> Step:
        z = from_names(encoded, "z")
        pairs = [*combinations(z.full, 2), *product(z.full, z.local)]
        loss = add([barlow_twins(a, b, redundancy_weight=self.redundancy_weight) for a, b in pairs]) / len(pairs)
        return Step(loss, z.full[0].detach(), z.full[1].detach())
