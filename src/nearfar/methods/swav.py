"""SwAV: predict from one view to which prototypes the other belongs."""

import torch
from torch import Tensor, nn

from nearfar.losses.arguments import check_at_least, upcast_half
from nearfar.methods.advice import RunFacts, Verdict, queue_advice
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy
from nearfar.methods.step_buffer import StepBuffer
from nearfar.methods.views import add, by_name, encode_views, from_names, views_of
from nearfar.nn.assignment import Prototypes, sinkhorn, soft_cross_entropy, used_prototypes
from nearfar.nn.heads import projector
from nearfar.nn.queue import Queue


class SwAV(Method):
    """Codes: shares of a view in K prototypes, by Sinkhorn's iterations over the batch, so that all are used. Each view
    predicts the codes of every other full view; local views predict, and have no codes.

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature: of the predictions.
        epsilon, iterations: of Sinkhorn.
        prototypes: K; for small batches a queue makes up for samples that are fewer.
        queue_size: earlier projections that take part in Sinkhorn, of each of the first two views; 0: none.
        queue_start: the part of the run after which the queue is used, once it is full; 15 of 200 epochs.
        dim, hidden: of the head (2 layers).
        frozen: the part of the run in which prototypes stay as they are; the authors' first epoch.

    The i-th full view takes the queue of the first or the second view, in turn.

    Reference: Caron et al. 2020, section 3, https://arxiv.org/abs/2006.09882
    """

    name = "swav"
    when = "runs are long and have many small crops; minutes on a CPU are too short"
    reference = ("Caron et al. 2020", "https://arxiv.org/abs/2006.09882")
    max_views = max_local = None
    short_run = {"options": {"prototypes": 300, "hidden": 512, "frozen": 0.0}, "views": {"count": 4}}
    toy_options = {"dim": 8, "hidden": 16, "prototypes": 10}
    paper_views = {"image": "swav"}
    paper = {
        "optimizer": {
            "name": "lars",
            "lr": 0.3,  # 4.8 at batch 4096
            "weight_decay": 1e-6,
            "lr_in_momentum": False,
            "warmup_epochs": 10.0,
            "warmup_from_zero": True,
            "min_lr_ratio": 1e-3,
        },
    }
    host_numbers = ("progress",)
    progress: Tensor  # () the part of the run that is done

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.1,
        epsilon: float = 0.05,
        iterations: int = 3,
        prototypes: int = 3000,
        queue_size: int = 0,
        queue_start: float = 0.075,
        dim: int = 128,
        hidden: int = 2048,
        frozen: float = 0.01,
    ) -> None:
        super().__init__()
        check_at_least("queue_size", queue_size, 0)
        self.encoder = encoder
        self.projector = projector(features, hidden, dim)
        self.prototypes = Prototypes(dim, prototypes)
        self.queues = nn.ModuleList(Queue(queue_size, dim) for _ in range(2 if queue_size else 0))
        self.temperature, self.epsilon, self.iterations = temperature, epsilon, iterations
        self.queue_start, self.frozen = queue_start, frozen
        self.register_buffer("progress", torch.tensor(0.0))
        self._step_buffer = StepBuffer()

    @classmethod
    def more_toys(cls) -> dict[str, Toy]:
        return {"queue": cls.toy(queue_size=12, queue_start=0.0)}

    def encode(self, batch: Batch) -> Encoded:
        z = encode_views(nn.Sequential(self.encoder, self.projector), views_of(batch))  # each (B, D)
        return {**by_name("z", z), "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        z = from_names(encoded, "z")
        scores = [self.prototypes(x, frozen=self.progress < self.frozen) for x in z.every]  # each (B, K)
        codes = [self._codes(x, i) for i, x in enumerate(scores[: len(z.full)])]
        losses = [
            soft_cross_entropy(code, other, self.temperature)
            for i, code in enumerate(codes)
            for j, other in enumerate(scores)
            if i != j
        ]
        z1, z2 = (upcast_half(x.detach()) for x in z.full[:2])
        if self.training and self.queues:
            self._step_buffer.add(z1, z2, encoded["ids"])
        log = {"used_prototypes": used_prototypes((scores[0] / self.temperature).softmax(1))}
        return Step(add(losses) / len(losses), z1, z2, log=log)

    def after_step(self, progress: float) -> None:
        self.set_number("progress", progress)
        self.prototypes.normalize()
        for z1, z2, ids in self._step_buffer.take():
            for queue, z in zip(self.queues, (z1, z2), strict=True):
                queue.push(z, ids)  # type: ignore[operator]

    def advice(self, facts: RunFacts) -> list[Verdict]:
        of_queue = queue_advice(self.queues[0].size, facts) if self.queues else []  # type: ignore[arg-type]
        return [*of_queue, *self._prototype_advice(facts)]

    def _prototype_advice(self, facts: RunFacts) -> list[Verdict]:
        count = len(self.prototypes.weight)
        if count <= facts.samples:
            return []
        text = f"{count:,} prototypes are more than the {facts.samples:,} samples, expected clusters of several"
        return [Verdict("warning", "prototypes", f"{text}; set --options.prototypes {max(2, facts.samples // 10)}")]

    def _codes(self, scores: Tensor, view: int) -> Tensor:
        """(B, K), those of a full view by its scores."""
        scores = scores.detach()
        rows = len(scores)
        start = torch.tensor(self.queue_start, dtype=self.progress.dtype).item()  # as rounded as the progress
        if self.queues and self.number("progress") >= start:
            queue = self.queues[view % 2]
            if len(queue) == queue.size:  # type: ignore[arg-type]
                scores = torch.cat([scores, self.prototypes(queue.keys().to(scores)).detach()])  # type: ignore[operator]
        return sinkhorn(scores, epsilon=self.epsilon, iterations=self.iterations)[:rows]
