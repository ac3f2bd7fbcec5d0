"""SCARF: a row of a table must find itself after most of its columns took the values of other rows."""

from typing import Any

import torch
from torch import Tensor, nn

from nearfar.losses import info_nce
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy, all_differ
from nearfar.methods.toy import toy_method
from nearfar.nn.heads import projector
from nearfar.nn.shard import global_rows


class SCARF(Method):
    """InfoNCE of a row and its corrupted view, in one direction; the head is thrown away.

    Args:
        encoder: x (B, D) to h (B, features).
        temperature: the paper's 1.
        dim, hidden: of the head (2 layers, without batch-norm).

    The paper has the mean over the batch in the denominator, which adds log B and no gradient; here it is the sum, as
    everywhere.

    Reference: Bahri et al. 2021, algorithm 1, https://arxiv.org/abs/2106.15147
    """

    name = "scarf"
    when = "rows are numbers and categories, and few have labels"
    reference = ("Bahri et al. 2021", "https://arxiv.org/abs/2106.15147")
    modalities = ("table",)
    default_views = {"table": "scarf"}
    ring = True
    toy_options = {"dim": 8, "hidden": 16}
    paper = {
        "optimizer": {
            "name": "adamw",
            "lr": 1e-3,
            "scale_lr": "none",
            "weight_decay": 0.0,
            "schedule": "constant",
            "warmup_epochs": 0.0,
        },
    }

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 1.0,
        dim: int = 256,
        hidden: int = 256,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, hidden, dim, batch_norm=False)
        self.temperature = temperature

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        return toy_method(cls, rows, encoder=_toy_encoder, views=_toy_views, **{**cls.toy_options, **options})

    def encode(self, batch: Batch) -> Encoded:
        z1, z2 = (self.projector(self.encoder(x)) for x in batch.views)  # each (B, D)
        return {"z1": z1, "z2": z2, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        z1, z2, ids = encoded["z1"], encoded["z2"], encoded["ids"]
        loss = info_nce(z1, z2, temperature=self.temperature, ids=ids)
        return Step(loss, z1.detach(), z2.detach(), candidates=global_rows(len(z1)), fair=all_differ(ids))


def _toy_encoder() -> nn.Module:
    network = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1))
    network.num_features = 16  # type: ignore[assignment]
    return network


def _toy_views(rows: int, generator: torch.Generator) -> list[Tensor]:
    """(B, 6) twice, the second with some columns of other rows."""
    x = torch.randn(rows, 6, generator=generator, dtype=torch.float64)
    changed = torch.rand(rows, 6, generator=generator) < 0.5
    return [x, torch.where(changed, x.roll(1, 0), x)]
