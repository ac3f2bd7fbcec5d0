"""PIRL: a picture cut into nine pieces in any order is still the picture."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.methods.instdisc import InstDisc
from nearfar.methods.method import Batch, Encoded, Toy
from nearfar.methods.toy import toy_method
from nearfar.nn.heads import projector
from nearfar.nn.seeding import seeded_generator

GRID = 3  # pieces of a side
_PART = 64 / 75  # of a side of a cell that a piece shows, in the paper


class PIRL(InstDisc):
    """InstDisc with a second task: nine pieces of another view, shuffled, against the picture's memory.

    Each piece is encoded by itself and projected, and what became of them is joined in the order drawn. Both this and
    the whole view are held against the memory bank by noise-contrastive estimation. The memory moves to the whole view.

    Args:
        encoder: x (B, 3, H, W) to h (B, features), of any size: pieces have some 2/7 of a view's side.
        jigsaw: weight of the pieces' loss, the paper's λ; the whole view's has the rest.
        seed: of the first memories, the noise, pieces and order.
        others: as for `InstDisc`.

    Reference: Misra & van der Maaten 2020, eqs. 4 and 5, https://arxiv.org/abs/1912.01991
    """

    name = "pirl"
    when = "the arrangement of parts should not matter: textures, materials"
    reference = ("Misra & van der Maaten 2020", "https://arxiv.org/abs/1912.01991")
    modalities = ("image",)
    min_views = usual_views = 2
    max_views, max_local = 2, 0
    default_views = {"image": "moco_v1"}
    paper = {
        "options": {"batch_norm": False, "noise": 32_000},
        "optimizer": {
            "name": "sgd",
            "lr": 0.03,  # 0.12 at batch 1024, to 0.0012 by a cosine
            "weight_decay": 1e-4,
            "decay_all": True,
            "min_lr_ratio": 0.01,
            "warmup_epochs": 0.0,
        },
    }

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        jigsaw: float = 0.5,
        dim: int = 128,
        proximal: float = 0.0,
        seed: int = 0,
        **options: Any,
    ) -> None:
        if not 0 <= jigsaw <= 1:
            raise ValueError(f"jigsaw is {jigsaw}, expected a number from 0 to 1")
        super().__init__(encoder, features=features, dim=dim, proximal=proximal, seed=seed, **options)
        self.piece_projector = projector(features, features, dim, layers=1)
        self.joined_projector = projector(
            GRID**2 * dim, dim, dim, layers=1, last_batch_norm=self.projector_has_norm, last_affine=False
        )
        self.jigsaw, self.seed = jigsaw, seed

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        method, batches = toy_method(cls, rows, encoder=_toy_encoder, **{**cls.toy_options, **options})
        return method, [replace(batch, views=batch.views[:2]) for batch in batches]

    @property
    def projector_has_norm(self) -> bool:
        return any(isinstance(layer, nn.BatchNorm1d) for layer in self.projector)

    def encode(self, batch: Batch) -> Encoded:
        x1, x2 = batch.views
        v1 = self.projector(self.encoder(x1))  # (B, D)
        pieces, order = self._draw(x2, batch.samples)  # (B, 9, 3, h, w), (B, 9)
        by_piece = pieces.transpose(0, 1).flatten(0, 1)  # (9 B, 3, h, w), as several processes expect views
        each = self.piece_projector(self.encoder(by_piece)).unflatten(0, (GRID**2, -1)).transpose(0, 1)  # (B, 9, D)
        shuffled = each.gather(1, order[..., None].expand_as(each))
        v2 = self.joined_projector(shuffled.flatten(1))
        return {"v1": v1, "v2": v2, "index": batch.index, "ids": batch.ids}

    def _mean(self, losses: list[Tensor]) -> Tensor:
        whole, pieces = losses
        return whole.lerp(pieces, self.jigsaw)

    def _remembered(self, views: list[Tensor]) -> Tensor:
        return views[0]

    def _draw(self, x: Tensor, samples: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Pieces (B, 9, C, h, w) of views (B, C, H, W) and their order (B, 9), by (seed, step, sample)."""
        step = int(self.bank.number("step"))
        cells = [side // GRID for side in x.shape[-2:]]
        sides = [max(1, min(cell, round(cell * _PART))) for cell in cells]
        corners = torch.zeros(len(x), GRID**2, 2, dtype=torch.long)
        order = torch.zeros(len(x), GRID**2, dtype=torch.long)
        for row, sample in enumerate(samples):
            generator = seeded_generator(self.seed, step, 1 + sample)
            order[row] = torch.randperm(GRID**2, generator=generator)
            for axis, (cell, side) in enumerate(zip(cells, sides, strict=True)):
                corners[row, :, axis] = torch.randint(cell - side + 1, (GRID**2,), generator=generator)
        number = torch.arange(GRID**2)
        place = corners + torch.stack([number // GRID * cells[0], number % GRID * cells[1]], 1)  # (B, 9, 2)
        place = place.to(x.device)
        down = place[..., 0, None] + torch.arange(sides[0], device=x.device)  # (B, 9, h)
        along = place[..., 1, None] + torch.arange(sides[1], device=x.device)  # (B, 9, w)
        rows = torch.arange(len(x), device=x.device)[:, None, None, None]
        pieces = x.permute(0, 2, 3, 1)[rows, down[..., :, None], along[..., None, :]]  # (B, 9, h, w, C)
        return pieces.permute(0, 1, 4, 2, 3), order.to(x.device)


def _toy_encoder() -> nn.Module:
    """(B, 3, 6, 6), or a piece of it, to (B, 16)."""
    layers = (nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Tanh(), nn.AdaptiveAvgPool2d(2))
    network = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 16))
    network.num_features = 16  # type: ignore[assignment]
    return network
