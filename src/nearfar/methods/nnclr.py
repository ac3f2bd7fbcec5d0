"""NNCLR: the positive is not the other view but its nearest neighbour among earlier samples."""

import torch
from torch import Tensor, nn

from nearfar.losses import info_nce, top_k_similarity
from nearfar.losses.arguments import l2_normalize, upcast_half
from nearfar.methods.advice import RunFacts, Verdict, queue_advice
from nearfar.methods.method import Batch, Encoded, Method, Step, all_differ
from nearfar.methods.step_buffer import Pending
from nearfar.nn.heads import predictor, projector
from nearfar.nn.queue import Queue


class NNCLR(Method):
    """Each view's nearest neighbour in a support queue must find the other view's prediction in the batch.

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature, queue_size: the paper's τ and |Q|.
        dim, hidden: of the projector (3 layers, a last batch-norm).
        predictor_hidden: of the predictor (2 layers).

    While the queue is empty, at the very first step, a view is its own neighbour. The first view's projections are
    queued. The loss is the mean of both ways.

    Reference: Dwibedi et al. 2021, eqs. 3 and 4, https://arxiv.org/abs/2104.14548
    """

    name = "nnclr"
    toy_options = {"dim": 8, "hidden": 16, "predictor_hidden": 16, "queue_size": 30}
    paper = {
        "optimizer": {"name": "lars", "lr": 0.3, "weight_decay": 1e-6, "warmup_epochs": 10.0, "warmup_from_zero": True}
    }

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.1,
        queue_size: int = 98304,
        dim: int = 256,
        hidden: int = 2048,
        predictor_hidden: int = 4096,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, hidden, dim, layers=3, last_batch_norm=True)
        self.predictor = predictor(dim, predictor_hidden)
        self.queue = Queue(queue_size, dim)
        self.temperature = temperature
        self._pending = Pending()

    def encode(self, batch: Batch) -> Encoded:
        z1, z2 = (self.projector(self.encoder(x)) for x in batch.views[:2])  # (B, D)
        encoded = {"z1": z1.detach(), "z2": z2.detach(), "p1": self.predictor(z1), "p2": self.predictor(z2)}
        return {**encoded, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        z1, z2, p1, p2 = (upcast_half(encoded[name]) for name in ("z1", "z2", "p1", "p2"))
        ids = encoded["ids"]
        near1, near2 = self._neighbours(z1), self._neighbours(z2)  # (B, D)
        loss1 = info_nce(near1, p2, temperature=self.temperature, ids=ids)
        loss2 = info_nce(near2, p1, temperature=self.temperature, ids=ids)
        if self.training:
            self._pending.add(z1, ids)
        log = {"queue_fill": self.queue.fill(), "queue_age": self.queue.age()}
        return Step((loss1 + loss2) / 2, near1, p2.detach(), candidates=len(z1), fair=all_differ(ids), log=log)

    def after_step(self, progress: float) -> None:
        for z, ids in self._pending.take():
            self.queue.push(z, ids)

    def advice(self, facts: RunFacts) -> list[Verdict]:
        return queue_advice(self.queue.size, facts)

    @torch.no_grad()
    def _neighbours(self, z: Tensor) -> Tensor:
        """(B, D), the queue's row nearest to each of z (B, D)."""
        if len(self.queue) == 0:
            return z
        keys = self.queue.keys()
        _, nearest = top_k_similarity(l2_normalize(z), keys, k=1)  # (B, 1)
        return keys[nearest[:, 0]]
