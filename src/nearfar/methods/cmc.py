"""CMC: the brightness of a picture must find its colors, and the colors their brightness."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.losses import symmetric_info_nce
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy, all_differ
from nearfar.methods.toy import toy_method
from nearfar.nn.heads import projector
from nearfar.nn.lab import LAB_CENTER, LAB_SCALE, rgb_to_lab
from nearfar.nn.shard import global_rows

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class CMC(Method):
    """A picture in Lab has two views: L, and a with b. Each has a network of its own, and the features of both together
    are what is kept.

    The networks are copies of one backbone, with the other channels at 0. Negatives are the other pictures of the
    batch, where the authors draw them from a memory of features.

    Args:
        encoder: x (B, 3, H, W) to h (B, features), for one half; that of `trained_encoder` has 2 · features.
        temperature: 0.07 in the authors' code.
        dim: of the linear heads.
        mean, std: of the channels, as the pictures are normalized; a run passes its own.
        summed: train on the sum of both directions, as the authors, and not on their mean.

    Reference: Tian et al. 2020, eqs. 3 to 5, https://arxiv.org/abs/1906.05849
    """

    name = "cmc"
    when = "color and brightness each say something: photographs, not drawings or gray pictures"
    reference = ("Tian et al. 2020", "https://arxiv.org/abs/1906.05849")
    also_needs = "colors"
    modalities = ("image",)
    default_views = {"image": "cmc"}
    min_views = max_views = 1
    ring = True
    toy_options = {"dim": 8}
    paper = {
        "options": {"summed": True},
        "optimizer": {
            "name": "sgd",
            "lr": 0.03,
            "scale_lr": "none",
            "weight_decay": 1e-4,
            "decay_all": True,
            "schedule": "step",
            "milestones": [0.5, 0.667, 0.833],
            "warmup_epochs": 0.0,
            "per_epoch": True,
        },
    }
    encoder: "LabHalves"

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.07,
        dim: int = 128,
        mean: Sequence[float] = _MEAN,
        std: Sequence[float] = _STD,
        summed: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = self.trained_encoder(encoder, features, mean=mean, std=std)
        self.projector = nn.ModuleList(projector(features, features, dim, layers=1) for _ in range(2))
        self.temperature, self.loss_weight = temperature, 2.0 if summed else 1.0

    @classmethod
    def trained_encoder(cls, encoder: nn.Module, features: int, **options: Any) -> "LabHalves":
        if isinstance(encoder, LabHalves):
            return encoder
        return LabHalves(encoder, features, options.get("mean", _MEAN), options.get("std", _STD))

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        method, batches = toy_method(cls, rows, **{**cls.toy_options, **options})
        return method, [Batch(each.views[:1], each.index, each.ids, each.labels) for each in batches]

    def encode(self, batch: Batch) -> Encoded:
        halves = self.encoder.halves_of(batch.views[0])
        z1, z2 = (head(h) for head, h in zip(self.projector, halves, strict=True))  # (B, D)
        return {"z1": z1, "z2": z2, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        z1, z2, ids = encoded["z1"], encoded["z2"], encoded["ids"]
        loss = symmetric_info_nce(z1, z2, temperature=self.temperature, ids=ids)
        return Step(loss, z1.detach(), z2.detach(), candidates=global_rows(len(z1)), fair=all_differ(ids))

    @torch.no_grad()
    def embed_pair(self, views: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        return self.encoder(views[0]), self.encoder(views[1])


class LabHalves(nn.Module):
    """Two networks, one that sees L and one that sees a and b: x (B, 3, H, W) to h (B, 2 F).

    Args:
        encoder: x to (B, F); the second network is a copy.
        features: F.
        mean, std: what x was normalized by.
    """

    mean: Tensor  # (3, 1, 1)
    std: Tensor  # (3, 1, 1)
    center: Tensor  # (3, 1, 1) of Lab
    scale: Tensor  # (3, 1, 1)
    first: Tensor  # (3, 1, 1) 1 for L alone

    def __init__(self, encoder: nn.Module, features: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.lightness, self.color = encoder, copy.deepcopy(encoder)
        self.num_features = 2 * features
        for name, values in (("mean", mean), ("std", std), ("center", LAB_CENTER), ("scale", LAB_SCALE)):
            self.register_buffer(name, torch.tensor(values)[:, None, None])
        self.register_buffer("first", torch.tensor([1.0, 0.0, 0.0])[:, None, None])

    def halves_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, F) of L and of a and b."""
        lab = (rgb_to_lab((x * self.std + self.mean).clamp(0, 1)) - self.center) / self.scale
        return self.lightness(lab * self.first), self.color(lab * (1 - self.first))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.halves_of(x), 1)
