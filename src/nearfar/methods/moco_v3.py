"""MoCo v3: the queue gives way to the batch, and a predictor is added."""

from typing import Any

import torch
from torch import nn

from nearfar.losses import info_nce
from nearfar.methods.advice import RunFacts, Verdict, momentum_advice
from nearfar.methods.method import Batch, Encoded, Method, Step, all_differ
from nearfar.methods.views import add, by_name, encode_views, from_names, pairs_of, views_of
from nearfar.nn.ema import cosine_momentum, ema_distance, ema_update, frozen_copy
from nearfar.nn.heads import predictor, projector
from nearfar.nn.shard import global_rows
from nearfar.nn.vit import fix_patches_and_positions, is_vit


class MoCoV3(Method):
    """Predictions of each view against the momentum keys of the other view, within the batch, both ways.

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature: the loss is multiplied by twice its value, as in the paper; `log["info_nce"]` is in nats.
        momentum: of the key network at the start; it rises to 1 by a cosine.
        dim, hidden: of the projector and the predictor (2 layers).
        layers: of the projector, which ends in a batch-norm: 3 for ViTs, 2 for the authors' ResNets.
        predictor_batch_norm: at the end of the predictor, too; not for the authors' ResNets.
        fixed_patches: positions and patch projection of a Vision Transformer are fixed (`fix_patches_and_positions`).

    The defaults are the paper's for ViTs. Recipe "paper" tells ResNets from ViTs; without a ViT it is the ResNet's.

    With more views the loss is twice the mean over pairs of a view's prediction and another full view's key. Local
    views predict, and are no keys.

    Reference: Chen et al. 2021, algorithm 1, https://arxiv.org/abs/2104.02057
    """

    name = "moco_v3"
    when = "Vision Transformers and large batches on several GPUs"
    reference = ("Chen et al. 2021", "https://arxiv.org/abs/2104.02057")
    default_views = {"image": "byol", "sound": "byol_a"}
    short_run = {"options": {"temperature": 0.1, "momentum": 0.97, "dim": 128, "hidden": 512}}
    toy_options = {"dim": 8, "hidden": 16}
    max_views = max_local = None
    ring = True
    paper = {
        "options": {"temperature": 1.0, "layers": 2, "predictor_batch_norm": False},
        "optimizer": {
            "name": "lars",
            "lr": 0.6,
            "weight_decay": 1e-6,
            "lr_in_momentum": False,
            "warmup_epochs": 10.0,
            "warmup_from_zero": True,
        },
    }
    paper_views = {"image": "moco_v3"}
    paper_of_vits = {
        "optimizer": {
            "name": "adamw",
            "lr": 1.5e-4,
            "weight_decay": 0.1,
            "decay_all": True,
            "warmup_epochs": 40.0,
            "warmup_from_zero": True,
        },
    }

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.2,
        momentum: float = 0.99,
        dim: int = 256,
        hidden: int = 4096,
        layers: int = 3,
        predictor_batch_norm: bool = True,
        fixed_patches: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        if fixed_patches:
            fix_patches_and_positions(encoder)
        self.projector = projector(features, hidden, dim, layers=layers, last_batch_norm=True, last_affine=False)
        self.predictor = predictor(dim, hidden, last_batch_norm=predictor_batch_norm, last_bias=False)
        self.key_network = frozen_copy(self._query_network())
        self.temperature, self.momentum = temperature, momentum

    @classmethod
    def paper_settings(cls, modality: str, backbone: str, *, pretrained: bool = False) -> dict[str, Any]:
        if not is_vit(backbone):
            return super().paper_settings(modality, backbone)
        return {
            **cls.paper_of_vits,
            "options": {} if pretrained else {"fixed_patches": True},
            "views": cls.views_of(modality) or None,
        }

    def encode(self, batch: Batch) -> Encoded:
        views = views_of(batch)
        q = encode_views(nn.Sequential(self.encoder, self.projector, self.predictor), views)  # each (B, D)
        with torch.no_grad():
            k = encode_views(self.key_network, views._replace(local=[]))  # each (B, D)
        return {**by_name("q", q), **by_name("k", k), "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        q, k, ids = from_names(encoded, "q"), from_names(encoded, "k").full, encoded["ids"]
        pairs = pairs_of(len(q.full), len(q.local))
        each = [info_nce(q.every[a], k[b], temperature=self.temperature, ids=ids) for a, b in pairs]
        both = add(each) * (2 / len(pairs))
        log = {"info_nce": both.detach() / 2, "ema_distance": ema_distance(self.key_network, self._query_network())}
        q1 = q.full[0].detach()
        candidates, fair = global_rows(len(q1)), all_differ(ids)
        return Step(2 * self.temperature * both, q1, k[1], candidates=candidates, fair=fair, log=log)

    def after_step(self, progress: float) -> None:
        ema_update(self.key_network, self._query_network(), cosine_momentum(self.momentum, progress))

    def advice(self, facts: RunFacts) -> list[Verdict]:
        return momentum_advice(self.momentum, facts, rising=True)

    def _query_network(self) -> nn.Sequential:
        return nn.Sequential(self.encoder, self.projector)
