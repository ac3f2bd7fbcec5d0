"""SimSiam: BYOL without a momentum network; the stop-gradient is what keeps it from collapse."""

from torch import nn

from nearfar.losses import cosine_regression
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.methods.views import add, by_name, encode_views, from_names, views_of
from nearfar.nn.heads import predictor, projector


class SimSiam(Method):
    """Each view's prediction against the other views' projection, which is held fixed.

    Args:
        encoder: x (B, ...) to h (B, features).
        dim: of the projector, 3 layers of that width; hidden: of the predictor, a quarter of `dim` unless given.

    The loss is the mean over the views of `-cos`, from -1 to 1. With more than two views the target of a view is the
    mean of the other full views' projections, which varies less: FastSiam. Local views predict, and are no targets.

    Reference: Chen & He 2021, https://arxiv.org/abs/2011.10566; FastSiam: Pototzky et al. 2022,
    https://doi.org/10.1007/978-3-031-16788-1_4
    """

    name = "simsiam"
    default_views = {"image": "moco_v2", "sound": "byol_a"}
    max_views = max_local = None
    toy_options = {"dim": 8}

    def __init__(
        self, encoder: nn.Module, *, features: int, samples: int = 0, dim: int = 2048, hidden: int | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, dim, dim, layers=3, last_batch_norm=True, last_affine=False)
        self.predictor = predictor(dim, hidden or max(1, dim // 4))

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
