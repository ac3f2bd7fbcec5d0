"""SimSiam: BYOL without a momentum network; the stop-gradient is what keeps it from collapse."""

from typing import Any

from torch import nn

from nearfar.losses import cosine_regression
from nearfar.methods.method import Batch, Encoded, Method, Step, decay_groups
from nearfar.methods.views import add, by_name, encode_views, from_names, views_of
from nearfar.nn.heads import predictor, projector


class SimSiam(Method):
    """Each view's prediction against the other views' projection, which is held fixed.

    Args:
        encoder: x (B, ...) to h (B, features).
        dim: of the projector, 3 layers of that width; hidden: of the predictor, a quarter of `dim` unless given.
        projector_hidden: width of the projector's first two layers; None: `dim`; 0: the encoder's features, as in the
            authors' code, where both are 2048 for a ResNet-50.
        constant_predictor_lr: the predictor's learning rate does not follow the schedule, as the authors train it.

    The loss is the mean over the views of `-cos`, from -1 to 1. With more than two views the target of a view is the
    mean of the other full views' projections, which varies less: FastSiam. Local views predict, and are no targets.

    Reference: Chen & He 2021, https://arxiv.org/abs/2011.10566; FastSiam: Pototzky et al. 2022,
    https://doi.org/10.1007/978-3-031-16788-1_4
    """

    name = "simsiam"
    when = "you want neither negatives nor a momentum network"
    reference = ("Chen & He 2021", "https://arxiv.org/abs/2011.10566")
    default_views = {"image": "moco_v2", "sound": "byol_a"}
    max_views = max_local = None
    short_run = {"options": {"dim": 256, "hidden": 64}, "views": {"count": 4}, "batch_size": 32}
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
        z = encode_views(nn.Sequential(self.encoder, self.projector), views_of(batch))  # each (B, D)
        targets = z.detached()._replace(local=[])
        return {**by_name("z", targets), **by_name("p", encode_views(self.predictor, z))}

    def contrast(self, encoded: Encoded) -> Step:
        p, z = from_names(encoded, "p"), from_names(encoded, "z").full
        losses = []
        for i, prediction in enumerate(p.every):
            others = [target for j, target in enumerate(z) if j != i]
            losses.append(cosine_regression(prediction, add(others) / len(others)))
        return Step(add(losses) / (2 * len(losses)) - 1, p.full[0].detach(), z[1])
