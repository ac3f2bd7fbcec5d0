"""SimSiam: BYOL without a momentum network; the stop-gradient is what keeps it from collapse."""

from typing import Any

from torch import nn

from nearfar.losses import cosine_regression
from nearfar.methods.method import Batch, Encoded, Method, Step, decay_groups
from nearfar.nn.heads import predictor, projector


class SimSiam(Method):
    """Each view's prediction against the other view's projection, which is held fixed.

    Args:
        encoder: x (B, ...) to h (B, features).
        dim: of the projector, 3 layers of that width; hidden: of the predictor, a quarter of `dim` unless given.
        projector_hidden: width of the projector's first two layers; None: `dim`; 0: the encoder's features, as in the
            authors' code, where both are 2048 for a ResNet-50.
        constant_predictor_lr: the predictor's learning rate does not follow the schedule, as the authors train it.

    The loss is the mean of both ways' `-cos`, from -1 to 1.

    Reference: Chen & He 2021, https://arxiv.org/abs/2011.10566
    """

    name = "simsiam"
    default_views = {"image": "moco_v2", "sound": "byol_a"}
    toy_options = {"dim": 8}
    paper = {
        "options": {"projector_hidden": 0, "constant_predictor_lr": True},
        "optimizer": {
            "name": "sgd",
            "lr": 0.05,
            "weight_decay": 1e-4,
            "decay_all": True,
            "warmup_epochs": 0.0,
            "per_epoch": True,
        },
    }

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        dim: int = 2048,
        hidden: int | None = None,
        projector_hidden: int | None = None,
        constant_predictor_lr: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        width = dim if projector_hidden is None else projector_hidden or features
        self.projector = projector(features, width, dim, layers=3, last_batch_norm=True, last_affine=False)
        self.predictor = predictor(dim, hidden or max(1, dim // 4))
        self.constant_predictor_lr = constant_predictor_lr

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        if not self.constant_predictor_lr:
            return super().parameter_groups(weight_decay)
        network = [*self.encoder.parameters(), *self.projector.parameters()]
        return [
            *decay_groups(network, weight_decay),
            *decay_groups(self.predictor.parameters(), weight_decay, constant_lr=True),
        ]

    def encode(self, batch: Batch) -> Encoded:
        z1, z2 = (self.projector(self.encoder(x)) for x in batch.views[:2])  # (B, D)
        return {"z1": z1.detach(), "z2": z2.detach(), "p1": self.predictor(z1), "p2": self.predictor(z2)}

    def contrast(self, encoded: Encoded) -> Step:
        p1, p2, z1, z2 = (encoded[name] for name in ("p1", "p2", "z1", "z2"))
        loss = (cosine_regression(p1, z2) + cosine_regression(p2, z1)) / 4 - 1
        return Step(loss, p1.detach(), z2)
