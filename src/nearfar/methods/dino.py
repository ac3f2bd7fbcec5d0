"""DINO: a student predicts, over many prototypes, what a slowly moving teacher makes of other views."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.losses.arguments import check_at_least, check_choice, l2_normalize, upcast_half
from nearfar.methods.advice import RunFacts, Verdict, momentum_advice
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy
from nearfar.methods.step_buffer import StepBuffer
from nearfar.methods.views import add, by_name, encode_views, from_names, pairs_of, views_of
from nearfar.nn.assignment import Prototypes, sinkhorn, soft_cross_entropy, used_prototypes
from nearfar.nn.ema import cosine_momentum, ema_distance, ema_update, frozen_copy

_CENTER_MOMENTUM = 0.9
_KOLEO_EPSILON = 1e-8


class DINO(Method):
    """Self-distillation without labels. Centring keeps one prototype from winning, a low temperature of the teacher
    keeps all from being alike.

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature, teacher_temperature: of student and teacher.
        momentum: of the teacher at the start; it rises to 1 by a cosine.
        prototypes: K, the width of the output.
        dim, hidden: of the head: three layers with GELU to `dim`, length 1, and the prototypes, of length 1, too.
        centering: "mean": the teacher's scores lose their running mean (DINO). "sinkhorn": its shares are balanced over
            the batch by three iterations (SwAV, DINOv2).
        koleo: weight of a term that spreads the features of each full view, by the distance to the nearest other
            sample; DINOv2 has 0.1. Samples of one id are not spread.
        frozen: the part of the run in which prototypes stay as they are; the authors' first epoch of 100.

    The loss is the mean over pairs of a teacher's full view and any other view of the student, as in the authors' code.

    Reference: Caron et al. 2021, algorithm 1, https://arxiv.org/abs/2104.14294; Sinkhorn and KoLeo: Oquab et al. 2023,
    section 4, https://arxiv.org/abs/2304.07193, Sablayrolles et al. 2019, eq. 2, https://arxiv.org/abs/1806.03198
    """

    name = "dino"
    when = "Vision Transformers and long runs with many small crops; minutes on a CPU are too short"
    reference = ("Caron et al. 2021", "https://arxiv.org/abs/2104.14294")
    default_views = {"image": "byol"}
    max_views = max_local = None
    short_run = {
        "options": {"momentum": 0.9, "prototypes": 1024, "dim": 128, "hidden": 512, "frozen": 0.0},
        "views": {"count": 4},
    }
    toy_options = {"dim": 8, "hidden": 16, "prototypes": 10}
    paper_views = {"image": "dino"}
    paper = {
        "optimizer": {
            "name": "adamw",
            "lr": 5e-4,
            "weight_decay": 0.04,
            "warmup_epochs": 10.0,
            "warmup_from_zero": True,
            "min_lr_ratio": 2e-3,
            "clip_norm": 3.0,
        },
    }
    host_numbers = ("progress",)
    center: Tensor  # (K,) running mean of the teacher's scores
    progress: Tensor  # () the part of the run that is done

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.1,
        teacher_temperature: float = 0.04,
        momentum: float = 0.996,
        prototypes: int = 65536,
        dim: int = 256,
        hidden: int = 2048,
        centering: Literal["mean", "sinkhorn"] = "mean",
        koleo: float = 0.0,
        frozen: float = 0.01,
    ) -> None:
        super().__init__()
        check_choice("centering", centering, ("mean", "sinkhorn"))
        check_at_least("koleo", koleo, 0.0)
        self.encoder = encoder
        self.projector = _head(features, hidden, dim)
        self.prototypes = Prototypes(dim, prototypes)
        self.target = frozen_copy(self._online())
        self.temperature, self.teacher_temperature, self.momentum = temperature, teacher_temperature, momentum
        self.centering, self.koleo, self.frozen = centering, koleo, frozen
        self.register_buffer("center", torch.zeros(prototypes))
        self.register_buffer("progress", torch.tensor(0.0))
        self._step_buffer = StepBuffer()

    @classmethod
    def more_toys(cls) -> dict[str, Toy]:
        return {"sinkhorn and koleo": cls.toy(centering="sinkhorn", koleo=0.1)}

    def encode(self, batch: Batch) -> Encoded:
        views = views_of(batch)
        h = encode_views(self.encoder, views)
        z = encode_views(self.projector, h)  # each (B, D)
        with torch.no_grad():
            t = encode_views(self.target[:2], views._replace(local=[]))  # each (B, D)
        encoded = {**by_name("z", z), **by_name("t", t), "ids": batch.ids}
        return {**encoded, **by_name("h", h._replace(local=[]))} if self.koleo else encoded

    def contrast(self, encoded: Encoded) -> Step:
        z, t = from_names(encoded, "z"), from_names(encoded, "t").full
        scores = [self.prototypes(x, frozen=self.progress < self.frozen) for x in z.every]  # each (B, K)
        taught = [self.target[2](x) for x in t]  # each (B, K)
        targets = self._targets(torch.stack(taught))  # (V, B, K)
        pairs = pairs_of(len(z.full), len(z.local))
        loss = add([soft_cross_entropy(targets[b], scores[a], self.temperature) for a, b in pairs]) / len(pairs)
        log = {
            "used_prototypes": used_prototypes(targets[0]),
            "ema_distance": ema_distance(self.target, self._online()),
        }
        if self.koleo:
            spread = add([koleo(h, encoded["ids"]) for h in from_names(encoded, "h").full])
            loss, log["koleo"] = loss + self.koleo * spread, spread.detach()
        if self.training:
            self._step_buffer.add(torch.stack(taught).mean((0, 1)))
        return Step(loss, upcast_half(z.full[0].detach()), upcast_half(t[1]), log=log)

    def after_step(self, progress: float) -> None:
        ema_update(self.target, self._online(), cosine_momentum(self.momentum, self.number("progress")))
        self.set_number("progress", progress)
        for (mean,) in self._step_buffer.take():
            self.center.lerp_(mean.to(self.center), 1 - _CENTER_MOMENTUM)

    def advice(self, facts: RunFacts) -> list[Verdict]:
        return momentum_advice(self.momentum, facts, rising=True)

    def _targets(self, scores: Tensor) -> Tensor:
        """(V, B, K) what the teacher's scores of its views ask the student for."""
        if self.centering == "mean":
            return ((scores - self.center.to(scores)) / self.teacher_temperature).softmax(-1)
        return sinkhorn(scores.flatten(0, 1), epsilon=self.teacher_temperature).view_as(scores)

    def _online(self) -> nn.Sequential:
        return nn.Sequential(self.encoder, self.projector, self.prototypes)


def koleo(h: Tensor, ids: Tensor) -> Tensor:
    """() `-mean log d`, d the distance of each row (B, F), at length 1, to the nearest of another id."""
    z = l2_normalize(h)
    with torch.no_grad():
        nearest = (z @ z.T).masked_fill(ids[:, None] == ids, -2.0).argmax(1)
    distance = F.pairwise_distance(z, z[nearest], eps=_KOLEO_EPSILON)
    return -(distance + _KOLEO_EPSILON).log().mean()


def _head(features: int, hidden: int, dim: int) -> nn.Sequential:
    """Three layers, with the authors' initial weights."""
    head = nn.Sequential(
        nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, dim)
    )
    for layer in head:
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
    return head
