"""MoCo v3: the queue gives way to the batch, and a predictor is added."""

import torch
from torch import nn

from nearfar.losses import info_nce
from nearfar.methods.advice import RunFacts, Verdict, momentum_advice
from nearfar.methods.method import Batch, Encoded, Method, Step, all_differ
from nearfar.methods.views import add, by_name, encode_views, from_names, pairs_of, views_of
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

    With more views the loss is twice the mean over pairs of a view's prediction and another full view's key. Local
    views predict, and are no keys.

    Reference: Chen et al. 2021, algorithm 1, https://arxiv.org/abs/2104.02057
    """

    name = "moco_v3"
    default_views = {"image": "byol", "sound": "byol_a"}
    toy_options = {"dim": 8, "hidden": 16}
    max_views = max_local = None
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
