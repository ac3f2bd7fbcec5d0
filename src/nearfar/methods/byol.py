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
        rising: False keeps the momentum constant.
        dim, hidden: of the projector and the predictor.
        last_bias: of the last layers of both; the authors' code has none, which matters under LARS.
        last_batch_norm: end the projector with a batch-norm, as SimSiam and MoCo v3 do: no feature can take over in
            the first steps, which short runs do not recover from.

    The loss is twice the mean over pairs of a view's prediction and another full view's target: for two views the
    paper's sum. Local views predict, and are no targets.

    Reference: Grill et al. 2020, https://arxiv.org/abs/2006.07733
    """

    name = "byol"
    when = "many samples of a batch share a class, so negatives would be wrong"
    reference = ("Grill et al. 2020", "https://arxiv.org/abs/2006.07733")
    default_views = {"image": "byol", "sound": "byol_a"}
    max_views = max_local = None
    short_run = {
        "options": {"momentum": 0.9, "dim": 128, "hidden": 256, "last_batch_norm": True},
        "views": {"count": 4},
        "batch_size": 32,
    }
    toy_options = {"dim": 8, "hidden": 16}
    paper_views = {"image": "byol_bicubic"}
    paper = {
        "options": {"last_bias": False},
        "optimizer": {
            "name": "lars",
            "lr": 0.2,
            "weight_decay": 1.5e-6,
            "lr_in_momentum": False,
            "warmup_epochs": 10.0,
            "warmup_from_zero": True,
        },
    }
    host_numbers = ("progress",)
    target_momentum: Tensor  # () of the last step
    progress: Tensor  # () the part of the run that is done

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        momentum: float = 0.996,
        rising: bool = True,
        dim: int = 256,
        hidden: int = 4096,
        last_bias: bool = True,
        last_batch_norm: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(
            features, hidden, dim, last_batch_norm=last_batch_norm, last_affine=False, last_bias=last_bias
        )
        self.predictor = predictor(dim, hidden, last_bias=last_bias)
        self.target = frozen_copy(self._online())
        self.momentum, self.rising = momentum, rising
        self.register_buffer("target_momentum", torch.tensor(momentum))
        self.register_buffer("progress", torch.tensor(0.0))

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
        # The first update has the start's momentum: by the part of the run that was done before this step.
        momentum = cosine_momentum(self.momentum, self.number("progress")) if self.rising else self.momentum
        self.set_number("progress", progress)
        ema_update(self.target, self._online(), momentum)
        self.target_momentum.fill_(momentum)

    def advice(self, facts: RunFacts) -> list[Verdict]:
        return momentum_advice(self.momentum, facts, rising=self.rising)

    def _online(self) -> nn.Sequential:
        return nn.Sequential(self.encoder, self.projector)


class BYOLA(BYOL):
    """BYOL with the settings of BYOL for Audio: a target that follows faster.

    Deviation: the momentum rises to 1 as BYOL's does, where the authors keep it constant, as the recipe "paper" does.

    Reference: Niizumi et al. 2021, section IV-A, https://arxiv.org/abs/2103.06695
    """

    name = "byol_a"
    when = "you have sounds and want no negatives"
    reference = ("Niizumi et al. 2021", "https://arxiv.org/abs/2103.06695")
    paper = {
        "options": {"rising": False},
        "optimizer": {
            "name": "adamw",
            "lr": 3e-4,
            "scale_lr": "none",
            "weight_decay": 0.0,
            "schedule": "constant",
            "warmup_epochs": 0.0,
        },
    }
    modalities = ("sound",)

    def __init__(self, encoder: nn.Module, *, momentum: float = 0.99, **options: Any) -> None:
        super().__init__(encoder, momentum=momentum, **options)
