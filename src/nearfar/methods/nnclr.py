"""NNCLR: the positive is not the other view but its nearest neighbour among earlier samples."""

import torch
from torch import Tensor, nn

from nearfar.losses import info_nce, top_k_similarity
from nearfar.losses.arguments import l2_normalize, upcast_half
from nearfar.methods.advice import RunFacts, Verdict, queue_advice
from nearfar.methods.method import Batch, Encoded, Method, Step, all_differ
from nearfar.methods.step_buffer import StepBuffer
from nearfar.methods.views import add, by_name, encode_views, from_names, pairs_of, views_of
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
    queued. The loss is the mean over pairs of a full view's neighbour and another view's prediction, a local one's too.

    Reference: Dwibedi et al. 2021, eqs. 3 and 4, https://arxiv.org/abs/2104.14548
    """

    name = "nnclr"
    when = "two views are too similar: positives are neighbors among earlier samples"
    reference = ("Dwibedi et al. 2021", "https://arxiv.org/abs/2104.14548")
    max_views = max_local = None
    short_run = {
        "options": {"temperature": 0.1, "queue_size": 2048, "dim": 128, "hidden": 256, "predictor_hidden": 512},
        "views": {"count": 4},
    }
    toy_options = {"dim": 8, "hidden": 16, "predictor_hidden": 16, "queue_size": 30}
    paper_views = {"image": "byol"}
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
        self._step_buffer = StepBuffer()

    def encode(self, batch: Batch) -> Encoded:
        z = encode_views(nn.Sequential(self.encoder, self.projector), views_of(batch))  # each (B, D)
        p = encode_views(self.predictor, z)
        return {**by_name("z", z.detached()._replace(local=[])), **by_name("p", p), "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        z, p, ids = from_names(encoded, "z").full, from_names(encoded, "p"), encoded["ids"]
        z, predictions = [upcast_half(x) for x in z], [upcast_half(x) for x in p.every]
        near = [self._neighbors(x) for x in z]  # each (B, D)
        pairs = sorted(pairs_of(len(p.full), len(p.local)), key=lambda pair: pair[1])  # by whose neighbour it is
        losses = [info_nce(near[b], predictions[a], temperature=self.temperature, ids=ids) for a, b in pairs]
        if self.training:
            self._step_buffer.add(z[0], ids)
        log = {"queue_fill": self.queue.fill(), "queue_age": self.queue.age()}
        candidates, fair = len(z[0]), all_differ(ids)
        loss = add(losses) / len(losses)
        return Step(loss, near[0], predictions[1].detach(), candidates=candidates, fair=fair, log=log)

    def after_step(self, progress: float) -> None:
        for z, ids in self._step_buffer.take():
            self.queue.push(z, ids)

    def advice(self, facts: RunFacts) -> list[Verdict]:
        return queue_advice(self.queue.size, facts)

    @torch.no_grad()
    def _neighbors(self, z: Tensor) -> Tensor:
        """(B, D), the queue's row nearest to each of z (B, D)."""
        if len(self.queue) == 0:
            return z
        keys = self.queue.keys()
        _, nearest = top_k_similarity(l2_normalize(z), keys, k=1)  # (B, 1)
        return keys[nearest[:, 0]]
