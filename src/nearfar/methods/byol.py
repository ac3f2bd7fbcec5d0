"""BYOL: predict what a slowly moving copy of the network makes of the other view."""

from typing import Any

import torch
from torch import Tensor, nn

from nearfar.losses import cosine_regression
from nearfar.methods.advice import RunFacts, Verdict, momentum_advice
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.methods.views import add, by_name, encode_views, from_names, pairs_of, views_of
from nearfar.nn.ema import cosine_momentum, ema_distance, ema_update, frozen_copy
from nearfar.nn.heads import predictor, projector


class BYOL(Method):
    """No negatives: a predictor, and a target network that follows by a rising momentum and takes no gradient.

    Args:
        encoder: x (B, ...) to h (B, features).
        momentum: of the target at the start; it rises to 1 by a cosine. Buffers move with the parameters.
        dim, hidden: of the projector and the predictor.

    The loss is twice the mean over pairs of a view's prediction and another full view's target: for two views the
    paper's sum. Local views predict, and are no targets.

    Reference: Grill et al. 2020, https://arxiv.org/abs/2006.07733
    """

    name = "byol"
    default_views = {"image": "byol", "sound": "byol_a"}
    max_views = max_local = None
    toy_options = {"dim": 8, "hidden": 16}
    target_momentum: Tensor  # () of the last step

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        momentum: float = 0.996,
        dim: int = 256,
        hidden: int = 4096,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, hidden, dim)
        self.predictor = predictor(dim, hidden)
        self.target = frozen_copy(self._online())
        self.momentum = momentum
        self.register_buffer("target_momentum", torch.tensor(momentum))

    def encode(self, batch: Batch) -> Encoded:
        views = views_of(batch)
        p = encode_views(nn.Sequential(self.encoder, self.projector, self.predictor), views)  # each (B, D)
        with torch.no_grad():
            t = encode_views(self.target, views._replace(local=[]))  # each (B, D)
        return {**by_name("p", p), **by_name("t", t)}

    def contrast(self, encoded: Encoded) -> Step:
        p, t = from_names(encoded, "p"), from_names(encoded, "t").full
        pairs = pairs_of(len(p.full), len(p.local))
        loss = add([cosine_regression(p.every[a], t[b]) for a, b in pairs]) * (2 / len(pairs))
        log = {"momentum": self.target_momentum.clone(), "ema_distance": ema_distance(self.target, self._online())}
        return Step(loss, p.full[0].detach(), t[1], log=log)

    def after_step(self, progress: float) -> None:
        momentum = cosine_momentum(self.momentum, progress)
        ema_update(self.target, self._online(), momentum)
        self.target_momentum.fill_(momentum)

    def advice(self, facts: RunFacts) -> list[Verdict]:
        return momentum_advice(self.momentum, facts, rising=True)

    def _online(self) -> nn.Sequential:
        return nn.Sequential(self.encoder, self.projector)


class BYOLA(BYOL):
    """BYOL with the settings of BYOL for Audio: a target that follows faster.

    Deviation: the momentum rises to 1 as BYOL's does, where the authors keep it constant.

    Reference: Niizumi et al. 2021, section IV-A, https://arxiv.org/abs/2103.06695
    """

    name = "byol_a"
    modalities = ("sound",)

    def __init__(self, encoder: nn.Module, *, momentum: float = 0.99, **options: Any) -> None:
        super().__init__(encoder, momentum=momentum, **options)
