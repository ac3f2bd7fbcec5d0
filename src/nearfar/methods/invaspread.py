"""InvaSpread: two views of a sample are alike, and every other sample of the batch is told apart by name."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nearfar.losses.arguments import l2_normalize, upcast_half
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.methods.views import add
from nearfar.nn.heads import projector

_CHUNK = 1 << 22  # similarities that are in memory at a time


class InvaSpread(Method):
    """A softmax over the batch says which sample a view is of. Its twin should be recognized (the invariant part), and
    every other view should not be taken for it (the spread part). No memory, no second network, a linear head.

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature: the paper's τ.
        dim: of the linear head.
        one_sided: gradients go through the view that asks alone, not through those that it is compared with: so has it
            the authors' code, the paper does not say.

    Reference: Ye et al. 2019, eqs. 3 to 6, https://arxiv.org/abs/1904.03436
    """

    name = "invaspread"
    when = "you want to reproduce it: negatives from the batch before SimCLR, and a linear head"
    reference = ("Ye et al. 2019", "https://arxiv.org/abs/1904.03436")
    default_views = {"image": "moco_v1"}
    toy_options = {"dim": 8}
    paper = {
        "options": {"one_sided": True},
        "optimizer": {
            "name": "sgd",
            "lr": 0.03,
            "scale_lr": "none",
            "weight_decay": 5e-4,
            "decay_all": True,
            "schedule": "step",
            "milestones": [0.4, 0.667],  # of 300 epochs; the authors' step between them, from 0.1 to 0.05, is left out
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
        temperature: float = 0.1,
        dim: int = 128,
        one_sided: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, features, dim, layers=1)
        self.temperature, self.one_sided = temperature, one_sided

    @classmethod
    def more_toys(cls) -> dict[str, Any]:
        return {"one-sided": cls.toy(one_sided=True)}

    def encode(self, batch: Batch) -> Encoded:
        z1, z2 = (self.projector(self.encoder(x)) for x in batch.views)  # (B, D)
        return {"z1": z1, "z2": z2, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        z1, z2 = upcast_half(encoded["z1"]), upcast_half(encoded["z2"])
        loss = invariant_and_spread(z1, z2, encoded["ids"], temperature=self.temperature, one_sided=self.one_sided)
        return Step(loss, z1.detach(), z2.detach())


def invariant_and_spread(z1: Tensor, z2: Tensor, ids: Tensor, *, temperature: float, one_sided: bool = False) -> Tensor:
    """() `-log P(i | twin) - Σ log(1 - P(i | other))`, the mean over the 2B views; others are those of other ids.

    P(i | x) is the softmax of the similarities of view i to all but itself. Rows pass in chunks, whose similarities are
    computed again in the backward pass: memory is linear in B.
    """
    z, both = l2_normalize(torch.cat([z1, z2])), ids.repeat(2)  # (2B, D), (2B,)
    keys = z.detach() if one_sided else z
    twins = keys.roll(len(z1), 0)

    def of_rows(rows: slice) -> Tensor:
        score = z[rows] @ keys.T / temperature  # (R, 2B)
        same = both[rows, None] == both
        own = (z[rows] * twins[rows]).sum(1) / temperature
        score = score.masked_fill(same, -torch.inf)
        total = torch.cat([own[:, None], score], 1).logsumexp(1)  # (R,)
        chance = (score - total[:, None]).masked_fill(same, -1.0)  # log P; what is left out counts nothing below
        spread = torch.log(-torch.expm1(chance.clamp(max=-1e-7))).masked_fill(same, 0.0).sum(1)
        return (total - own - spread).sum()

    step = max(1, _CHUNK // len(z))
    parts = [slice(start, start + step) for start in range(0, len(z), step)]
    if len(parts) == 1:
        return of_rows(parts[0]) / len(z)
    return add([checkpoint(of_rows, rows, use_reentrant=False) for rows in parts]) / len(z)
