"""VICReg: views agree, features keep their variance and do not covary."""

from torch import nn

from nearfar.losses import vicreg_views
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.methods.views import by_name, encode_views, from_names, views_of
from nearfar.nn.heads import projector


class VICReg(Method):
    """A wide projector, and variance, invariance and covariance of what it gives.

    Args:
        encoder: x (B, ...) to h (B, features).
        dim, hidden: of the projector (3 layers).
        last_bias: of the projector's last layer, which the loss cannot see; the authors' code has none.
        invariance_weight, variance_weight, covariance_weight: the paper's λ, μ, ν.

    Reference: Bardes et al. 2022, https://arxiv.org/abs/2105.04906
    """

    name = "vicreg"
    when = "as barlow_twins, and you want to watch for collapse in its three terms"
    reference = ("Bardes et al. 2022", "https://arxiv.org/abs/2105.04906")
    also_needs = "wide heads"
    default_views = {"image": "byol", "sound": "byol_a"}
    max_views = max_local = None
    short_run = {"options": {"dim": 256, "hidden": 256}}
    toy_options = {"dim": 12, "hidden": 16}
    paper_views = {"image": "byol_bicubic"}
    paper = {
        "options": {"last_bias": False},
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
        invariance_weight: float = 25.0,
        variance_weight: float = 25.0,
        covariance_weight: float = 1.0,
        last_bias: bool = True,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, hidden, dim, layers=3, last_bias=last_bias)
        self.invariance_weight = invariance_weight
        self.variance_weight = variance_weight
        self.covariance_weight = covariance_weight

    def encode(self, batch: Batch) -> Encoded:
        return by_name("z", encode_views(nn.Sequential(self.encoder, self.projector), views_of(batch)))  # each (B, D)

    def contrast(self, encoded: Encoded) -> Step:
        z = from_names(encoded, "z")
        loss = vicreg_views(
            z.full,
            z.local,
            invariance_weight=self.invariance_weight,
            variance_weight=self.variance_weight,
            covariance_weight=self.covariance_weight,
        )
        return Step(loss, z.full[0].detach(), z.full[1].detach())
