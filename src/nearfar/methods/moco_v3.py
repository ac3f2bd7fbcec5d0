"""MoCo v3: the queue gives way to the batch, and a predictor is added."""

import torch
from torch import nn

from nearfar.losses import info_nce
from nearfar.methods.advice import RunFacts, Verdict, momentum_advice
from nearfar.methods.method import Batch, Encoded, Method, Step, all_differ
from nearfar.nn.ema import cosine_momentum, ema_distance, ema_update, frozen_copy
from nearfar.nn.heads import predictor, projector
from nearfar.nn.shard import global_rows


class MoCoV3(Method):
    """Predictions of each view against the momentum keys of the other view, within the batch, both ways.

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature: the loss is multiplied by twice its value, as in the paper; `log["info_nce"]` is in nats.
        momentum: of the key network at the start; it rises to 1 by a cosine.
        dim, hidden: of the projector (3 layers) and the predictor (2), both ending in a batch-norm.

    Reference: Chen et al. 2021, algorithm 1, https://arxiv.org/abs/2104.02057
    """

    name = "moco_v3"
    default_views = {"image": "byol", "sound": "byol_a"}
    toy_options = {"dim": 8, "hidden": 16}
    ring = True

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
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, hidden, dim, layers=3, last_batch_norm=True, last_affine=False)
        self.predictor = predictor(dim, hidden, last_batch_norm=True)
        self.key_network = frozen_copy(self._query_network())
        self.temperature, self.momentum = temperature, momentum

    def encode(self, batch: Batch) -> Encoded:
        x1, x2 = batch.views[:2]
        q1, q2 = (self.predictor(self.projector(self.encoder(x))) for x in (x1, x2))  # (B, D)
        with torch.no_grad():
            k1, k2 = self.key_network(x1), self.key_network(x2)  # (B, D)
        return {"q1": q1, "q2": q2, "k1": k1, "k2": k2, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        q1, q2, k1, k2, ids = (encoded[name] for name in ("q1", "q2", "k1", "k2", "ids"))
        both = info_nce(q1, k2, temperature=self.temperature, ids=ids) + info_nce(
            q2, k1, temperature=self.temperature, ids=ids
        )
        log = {"info_nce": both.detach() / 2, "ema_distance": ema_distance(self.key_network, self._query_network())}
        candidates, fair = global_rows(len(q1)), all_differ(ids)
        return Step(2 * self.temperature * both, q1.detach(), k2, candidates=candidates, fair=fair, log=log)

    def after_step(self, progress: float) -> None:
        ema_update(self.key_network, self._query_network(), cosine_momentum(self.momentum, progress))

    def advice(self, facts: RunFacts) -> list[Verdict]:
        return momentum_advice(self.momentum, facts, rising=True)

    def _query_network(self) -> nn.Sequential:
        return nn.Sequential(self.encoder, self.projector)
