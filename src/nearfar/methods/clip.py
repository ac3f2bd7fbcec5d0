"""CLIP: an image must find its caption among those of the batch, and a caption its image."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from nearfar.losses import sigmoid_pairs
from nearfar.losses.arguments import check_choice
from nearfar.methods.advice import RunFacts, Verdict
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy, all_differ
from nearfar.methods.nested import NestedDims
from nearfar.methods.pairs import Guides, pair_loss
from nearfar.methods.toy import guided, pair_views, toy_method, toy_towers
from nearfar.nn.shard import global_rows
from nearfar.nn.temperature import LogitScale
from nearfar.nn.towers import TwoTowers
from nearfar.nn.vit import is_vit

# big_vision decays weights by 1e-4 a step at the peak rate of 1e-3; torch multiplies a decay by the rate.
# Rate, clipping and warm-up are those of big_vision's siglip_lit_coco.py and lit_coco.py. The decay, SigLIP's β₂ of
# 0.95 and its bias of -10 are the papers' as we remember them, not compared with their text (docs/fidelity.md).
_BIG_VISION = {
    "name": "adamw",
    "lr": 1e-3,
    "scale_lr": "none",
    "weight_decay": 0.1,
    "warmup_ratio": 0.03,
    "clip_norm": 1.0,
}


class CLIP(Method):
    """Two towers, a learned scale, and both directions of the batch's matrix from one pass that never holds it.

    The batch's views are what the towers take: images (B, 3, S, S), or sounds, and tokens (B, L). Its ids say which
    pairs are no negatives of each other: several captions of an image, several images of a caption
    (`nearfar.data.merged_ids`).

    Args:
        encoder: both towers, projections included; the user keeps all of it.
        features: of the joint space, which the towers know; here because every method is built alike.
        loss: "softmax" is CLIP's, "sigmoid" SigLIP's (`SigLIP`), which judges each pair by itself.
        logit_scale: at the start; None: 1 / 0.07 for softmax, 10 for sigmoid. It is learned as its logarithm and
            never passes 100, or 1000 for sigmoid, whose paper has no bound and whose models reach 117.
        logit_bias: at the start, learned, for sigmoid alone: most pairs are none, and the first step should know.
        locked: the first encoder keeps its weights and stays in evaluation mode, and the second learns to read it
            (`LiT`). Its projection is trained: the two encoders need not be equally wide.
        dims, dim_weights, guide, guide_margin, guide_relative_margin: as for `Pairs`; a guide reads images and texts,
            and is for softmax alone.

    Recipe "paper": the settings of ViT-B/32, or for other backbones those of ResNet-50, with the original's causal text
    tower and image statistics.

    References: Radford et al. 2021, https://arxiv.org/abs/2103.00020; SigLIP: Zhai et al. 2023,
    https://arxiv.org/abs/2303.15343; LiT: Zhai et al. 2022, https://arxiv.org/abs/2111.07991
    """

    name = "clip"
    when = "images or sounds have captions, or classes have only names"
    reference = ("Radford et al. 2021", "https://arxiv.org/abs/2103.00020")
    modalities: ClassVar[Sequence[str]] = ("image-text", "sound-text")
    uses_captions = True
    ring = True
    paper = {
        "text": {"causal": True, "pooling": "last", "quick_gelu": True, "max_length": 77},
        "optimizer": {
            "name": "adamw",
            "lr": 5e-4,
            "scale_lr": "none",
            "weight_decay": 0.2,
            "beta2": 0.98,
            "eps": 1e-6,
            "warmup_ratio": 0.005,
        },
    }
    paper_views = {"image-text": "openai_clip"}
    encoder: TwoTowers
    logit_bias: nn.Parameter | None

    def __init__(
        self,
        encoder: TwoTowers,
        *,
        features: int = 0,
        samples: int = 0,
        loss: Literal["softmax", "sigmoid"] = "softmax",
        logit_scale: float | None = None,
        logit_bias: float = -10.0,
        locked: bool = False,
        dims: Sequence[int] = (),
        dim_weights: Sequence[float] = (),
        guide: str | None = None,
        guide_margin: float = 0.0,
        guide_relative_margin: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("loss", loss, ("softmax", "sigmoid"))
        if guide is not None and loss != "softmax":
            raise ValueError(f"guide is {guide!r} and loss {loss!r}, expected softmax: a guide chooses among negatives")
        if not isinstance(encoder, TwoTowers):
            raise TypeError(
                f"encoder is a {type(encoder).__name__}, expected TwoTowers(image_encoder, text_encoder, dim=...)"
            )
        self.encoder, self.loss, self.locked = encoder, loss, locked
        self.nested = NestedDims(dims, dim_weights, encoder.num_features)
        self.guide, self.margins = guide, (guide_margin, guide_relative_margin)
        self.ring = guide is None
        if loss == "softmax":
            self.logit_scale = LogitScale(1 / 0.07 if logit_scale is None else logit_scale)
            self.logit_bias = None
        else:
            self.logit_scale = LogitScale(10.0 if logit_scale is None else logit_scale, high=1000.0)
            self.logit_bias = nn.Parameter(torch.tensor(float(logit_bias)))
        if locked:
            self.encoder.first.encoder.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "CLIP":
        super().train(mode)
        if self.locked:
            self.encoder.first.encoder.eval()
        return self

    @classmethod
    def paper_settings(cls, modality: str, backbone: str, *, pretrained: bool = False) -> dict[str, Any]:
        found = super().paper_settings(modality, backbone, pretrained=pretrained)
        if "eps" not in cls.paper["optimizer"] or is_vit(backbone):
            return found
        return {**found, "optimizer": {**found["optimizer"], "beta2": 0.999, "eps": 1e-8}}  # as open_clip has them

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        return toy_method(cls, rows, encoder=toy_towers, views=pair_views, **{**cls.toy_options, **options})

    @classmethod
    def more_toys(cls) -> dict[str, Toy]:
        return {"nested": cls.toy(dims=[8, 2], dim_weights=[1, 0.5]), "guide": guided(cls.toy(guide="a toy"))}

    def encode(self, batch: Batch) -> Encoded:
        x1, x2 = batch.views[:2]
        encoded = {
            "z1": self.encoder.first(x1),
            "z2": self.encoder.second(x2),
            "ids": batch.ids,
        }  # (B, D), (B, D), (B,)
        return encoded if batch.guide is None else {**encoded, "guide": batch.guide}

    def contrast(self, encoded: Encoded) -> Step:
        return self.nested.contrast(self._contrast, encoded)

    def _contrast(self, encoded: Encoded) -> Step:
        z1, z2, ids = encoded["z1"], encoded["z2"], encoded["ids"]
        scale = self.logit_scale()
        log = {"logit_scale": scale.detach(), "temperature": 1 / scale.detach()}
        if self.logit_bias is None:
            guides = Guides(encoded["guide"], *self.margins) if "guide" in encoded else None
            loss = pair_loss(z1, z2, temperature=1 / scale, ids=ids, symmetric=True, guides=guides)
            candidates, fair = global_rows(len(z1)), all_differ(ids) & (guides is None)
            return Step(loss, z1.detach(), z2.detach(), candidates=candidates, fair=fair, log=log)
        loss = sigmoid_pairs(z1, z2, logit_scale=scale, logit_bias=self.logit_bias, ids=ids)
        log["logit_bias"] = self.logit_bias.detach().clone()
        return Step(loss, z1.detach(), z2.detach(), log=log)

    def advice(self, facts: RunFacts) -> list[Verdict]:
        if not self.locked or facts.start_weights:
            return []
        text = "the locked tower is untrained: set --weights to a start of images or sounds, such as a run"
        return [Verdict("warning", "locked", text)]

    @torch.no_grad()
    def embed_pair(self, views: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        return self.encoder.first(views[0]), self.encoder.second(views[1])

    @property
    def temperature(self) -> float:
        """Where it has been learned to."""
        return float(1 / self.logit_scale().detach())


class SigLIP(CLIP):
    """CLIP with the sigmoid loss.

    Reference: Zhai et al. 2023, https://arxiv.org/abs/2303.15343
    """

    name = "siglip"
    when = "images have captions, and batches are small or spread over many GPUs"
    reference = ("Zhai et al. 2023", "https://arxiv.org/abs/2303.15343")
    paper = {"optimizer": {**_BIG_VISION, "beta2": 0.95}}
    paper_views = {}

    def __init__(self, encoder: TwoTowers, *, loss: Literal["softmax", "sigmoid"] = "sigmoid", **options: Any) -> None:
        super().__init__(encoder, loss=loss, **options)

    @classmethod
    def more_toys(cls) -> dict[str, Toy]:
        return {"nested": cls.toy(dims=[8, 2], dim_weights=[1, 0.5])}


class LiT(CLIP):
    """CLIP with a locked image encoder, from the scale that the authors' code begins at (lit_coco.py of big_vision).

    Reference: Zhai et al. 2022, https://arxiv.org/abs/2111.07991
    """

    name = "lit"
    when = "captions are few and the encoder of images or sounds is already good"
    reference = ("Zhai et al. 2022", "https://arxiv.org/abs/2111.07991")
    also_needs = "weights of images or sounds"
    paper = {"optimizer": _BIG_VISION}
    paper_views = {}

    def __init__(
        self, encoder: TwoTowers, *, logit_scale: float | None = 10.0, locked: bool = True, **options: Any
    ) -> None:
        super().__init__(encoder, logit_scale=logit_scale, locked=locked, **options)
