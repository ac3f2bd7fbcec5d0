"""SimSiam: BYOL without a momentum network; the stop-gradient is what keeps it from collapse."""

from torch import nn

from nearfar.losses import cosine_regression
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.nn.heads import predictor, projector


class SimSiam(Method):
    """Each view's prediction against the other view's projection, which is held fixed.

    Args:
        encoder: x (B, ...) to h (B, features).
        dim: of the projector, 3 layers of that width; hidden: of the predictor, a quarter of `dim` unless given.

    The loss is the mean of both ways' `-cos`, from -1 to 1.

    Reference: Chen & He 2021, https://arxiv.org/abs/2011.10566
    """

    name = "simsiam"
    default_views = {"image": "moco_v2", "sound": "byol_a"}
    toy_options = {"dim": 8}

    def __init__(
        self, encoder: nn.Module, *, features: int, samples: int = 0, dim: int = 2048, hidden: int | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, dim, dim, layers=3, last_batch_norm=True, last_affine=False)
        self.predictor = predictor(dim, hidden or max(1, dim // 4))

    def encode(self, batch: Batch) -> Encoded:
        z1, z2 = (self.projector(self.encoder(x)) for x in batch.views[:2])  # (B, D)
        return {"z1": z1.detach(), "z2": z2.detach(), "p1": self.predictor(z1), "p2": self.predictor(z2)}

    def contrast(self, encoded: Encoded) -> Step:
        p1, p2, z1, z2 = (encoded[name] for name in ("p1", "p2", "z1", "z2"))
        loss = (cosine_regression(p1, z2) + cosine_regression(p2, z1)) / 4 - 1
        return Step(loss, p1.detach(), z2)
