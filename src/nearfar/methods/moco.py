"""MoCo: look the key of a sample up in a large dictionary that a slowly moving encoder writes."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nearfar.losses import info_nce
from nearfar.losses.arguments import check_at_least, upcast_half
from nearfar.methods.advice import RunFacts, Verdict, momentum_advice, queue_advice
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy, all_differ
from nearfar.methods.step_buffer import StepBuffer
from nearfar.methods.toy import ToyImageEncoder, toy_method
from nearfar.methods.views import add
from nearfar.nn.ema import ema_distance, ema_update, frozen_copy
from nearfar.nn.heads import projector
from nearfar.nn.norm import forward_in_groups
from nearfar.nn.queue import Queue
from nearfar.nn.seeding import step_generator
from nearfar.nn.shard import global_rows


class MoCo(Method):
    """A query of one view against the key of the other and a queue of earlier keys; v2's defaults.

    Batch-norm would tell a query which key was normalised beside it. As on the authors' 8 devices, queries and keys
    therefore pass in groups of about `group` samples, the keys shuffled into groups of their own.

    The key is that of the second view. With more views all others, local ones too, are queries of it, each encoded by
    itself, and the loss is their mean.

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature: 0.2 in v2, 0.07 in v1 (`MoCoV1`).
        momentum: of the key encoder.
        queue_size: K, the keys remembered. Rows of the query's own id do not count as negatives. While it is empty,
            at the very first step, the other keys of the batch take its place.
        dim, hidden: of the head; hidden is `features` unless given.
        layers: of the head: 2 in v2, 1 in v1.
        batch_norm: within the head; the papers have none. A short run on little data gets going sooner with it.
        group: samples that BatchNorm sees together, at least 2; 0: the whole batch.
        seed: of the shuffle.

    Reference: He et al. 2020, https://arxiv.org/abs/1911.05722; Chen et al. 2020, https://arxiv.org/abs/2003.04297
    """

    name = "moco"
    when = "batches must be small, and data are many: negatives come from a queue"
    reference = ("Chen et al. 2020", "https://arxiv.org/abs/2003.04297")
    default_views = {"image": "moco_v2"}
    max_views: ClassVar[int | None] = None
    max_local: ClassVar[int | None] = None
    short_run = {"options": {"temperature": 0.1, "momentum": 0.99, "queue_size": 4096, "batch_norm": True}}
    toy_options = {"dim": 8, "queue_size": 30, "group": 4}
    paper = {
        "optimizer": {
            "name": "sgd",
            "lr": 0.03,
            "weight_decay": 1e-4,
            "decay_all": True,
            "warmup_epochs": 0.0,
            "per_epoch": True,
        },
    }
    host_numbers = ("steps",)
    steps: Tensor  # () with the seed: the shuffle

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.2,
        momentum: float = 0.999,
        queue_size: int = 65536,
        dim: int = 128,
        hidden: int | None = None,
        layers: int = 2,
        batch_norm: bool = False,
        group: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_at_least("group", group, 0)
        self.encoder = encoder
        self.projector = projector(features, hidden or features, dim, layers=layers, batch_norm=batch_norm)
        self.key_network: nn.Module = frozen_copy(nn.Sequential(self.encoder, self.projector))
        self.queue = Queue(queue_size, dim)
        self.register_buffer("steps", torch.tensor(0))
        self.temperature, self.momentum, self.group, self.seed = temperature, momentum, group, seed
        self._step_buffer = StepBuffer()

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        # No dropout: it is drawn group by group, so that several processes draw another, equally good one.
        return toy_method(cls, rows, encoder=lambda: ToyImageEncoder(0.0), **{**cls.toy_options, **options})

    def encode(self, batch: Batch) -> Encoded:
        x1, x2, *others = batch.views
        groups = self._groups(global_rows(len(x1)))
        network = self._query_network()
        queries = [forward_in_groups(network, x, groups) for x in (x1, *others)]  # each (B, D)
        with torch.no_grad():
            k = self._keys(x2, groups)  # (B, D)
        more = {f"q{i}": q for i, q in enumerate(queries[1:], 3)}  # by the number of the view
        return {"q": queries[0], **more, "k": k, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        queries = [upcast_half(x) for name, x in encoded.items() if name.startswith("q")]
        q, k, ids = queries[0], upcast_half(encoded["k"]), encoded["ids"]
        queued, queued_ids = (self.queue.keys(), self.queue.ids()) if len(self.queue) else (None, None)
        losses = [
            info_nce(q, k, queued, temperature=self.temperature, ids=ids, negative_ids=queued_ids) for q in queries
        ]
        if self.training:
            self._step_buffer.add(k, ids)
        log = {
            "queue_fill": self.queue.fill(),
            "queue_age": self.queue.age(),
            "ema_distance": ema_distance(self.key_network, self._query_network()),
        }
        candidates = len(q) if queued is None else 1 + len(queued)
        fair = all_differ(ids) if queued_ids is None else ~torch.isin(ids, queued_ids).any()
        return Step(add(losses) / len(losses), q.detach(), k, candidates=candidates, fair=fair, log=log)

    def after_step(self, progress: float) -> None:
        ema_update(self.key_network, self._query_network(), self.momentum)
        for k, ids in self._step_buffer.take():
            self.queue.push(k, ids)
        self.set_number("steps", self.number("steps") + 1)

    def advice(self, facts: RunFacts) -> list[Verdict]:
        of_momentum = momentum_advice(self.momentum, facts, rising=False)
        return [*of_momentum, *queue_advice(self.queue.size, facts)]

    def _query_network(self) -> nn.Module:
        return nn.Sequential(self.encoder, self.projector)

    def _groups(self, rows: int) -> int:
        if not self.training or not self.group or rows < 4:
            return 1
        return min(max(2, round(rows / self.group)), rows // 2)  # BatchNorm needs two samples

    def _keys(self, x: Tensor, groups: int) -> Tensor:
        """(B, D), in the order of x, though normalised in another."""
        generator = step_generator(self.seed, int(self.number("steps")))
        order = torch.randperm(global_rows(len(x)), generator=generator).to(x.device)
        return forward_in_groups(self.key_network, x, groups, order)


class MoCoV1(MoCo):
    """MoCo v1's temperature and linear head.

    Reference: He et al. 2020, https://arxiv.org/abs/1911.05722
    """

    name = "moco_v1"
    when = "you want to reproduce the first MoCo"
    reference = ("He et al. 2020", "https://arxiv.org/abs/1911.05722")
    paper = {"optimizer": {**MoCo.paper["optimizer"], "schedule": "step", "milestones": [0.6, 0.8]}}
    default_views = {"image": "moco_v1"}

    def __init__(self, encoder: nn.Module, *, temperature: float = 0.07, layers: int = 1, **options: Any) -> None:
        super().__init__(encoder, temperature=temperature, layers=layers, **options)
