"""SimCLR: each view must find its twin among all other views of the batch."""

from typing import Any, Literal

from torch import nn

from nearfar.losses import nt_xent_views
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy, all_differ
from nearfar.methods.toy import with_more_views
from nearfar.methods.views import by_name, encode_views, from_names, views_of
from nearfar.nn.heads import EncoderWithHead, hidden_layers, projector
from nearfar.nn.shard import global_rows

_LARGEST = {"hidden": 1 << 20, "layers": 100, "kept_layers": 99}  # a card from elsewhere may ask for any


class SimCLR(Method):
    """Two or more strong views, a projection head that is thrown away, NT-Xent over the batch (`nt_xent_views`).

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature: the paper's 0.5 of its small-image experiments (CIFAR-10, B.9); 0.1 is its choice for ImageNet
            with large batches (table 5).
        dim, hidden: of the head; hidden is `features` unless given.
        layers: 2 in v1, 3 in v2 (`SimCLRV2`).
        last_scale: learned scale in the batch-norm that ends the head, as the authors' code has it.
        loss_weight: multiplies the loss in training. The authors' code sums both directions' means, which is 2; the
            reported loss stays the mean over all views.
        decoupled: leave the positive out of the denominator (DCL, Yeh et al. 2022, https://arxiv.org/abs/2110.06848),
            for small batches. The loss may be below zero, and log N - L is no bound.
        kept_layers: hidden layers of the head that become the end of the encoder and stay after training: everything
            that reads the encoder gets their output. v2 fine-tunes from the first.

    Recipe "paper": the paper's settings for ImageNet.

    Reference: Chen et al. 2020, https://arxiv.org/abs/2002.05709; v2 https://arxiv.org/abs/2006.10029
    """

    name = "simclr"
    when = "you start: one loss, one temperature, no state"
    reference = ("Chen et al. 2020", "https://arxiv.org/abs/2002.05709")
    short_run = {"options": {"temperature": 0.1}, "views": {"count": 4}}
    toy_options = {"dim": 8}
    max_views = max_local = None
    ring = True
    paper_views = {"image": "simclr_bicubic"}
    paper = {
        "options": {"temperature": 0.1, "last_scale": True, "loss_weight": 2.0},
        "optimizer": {"name": "lars", "lr": 0.3, "weight_decay": 1e-6, "warmup_epochs": 10.0, "warmup_from_zero": True},
    }

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.5,
        dim: int = 128,
        hidden: int | None = None,
        layers: int = 2,
        last_scale: bool = False,
        loss_weight: float = 1.0,
        decoupled: bool = False,
        kept_layers: int = 0,
    ) -> None:
        super().__init__()
        hidden = hidden or features
        self.encoder = self.trained_encoder(encoder, features, hidden=hidden, layers=layers, kept_layers=kept_layers)
        affine: Literal["scale", False] = "scale" if last_scale else False
        self.projector = projector(
            hidden if kept_layers else features,
            hidden,
            dim,
            layers=layers - kept_layers,
            last_batch_norm=True,
            last_affine=affine,
        )
        self.temperature, self.loss_weight, self.decoupled = temperature, loss_weight, decoupled

    @classmethod
    def more_toys(cls) -> dict[str, Toy]:
        return {"decoupled": with_more_views(cls.toy(decoupled=True))}

    @classmethod
    def trained_encoder(cls, encoder: nn.Module, features: int, **options: Any) -> nn.Module:
        """With the first `kept_layers` hidden layers of the head."""
        found = {**cls.options(), **options}
        hidden, layers, kept = found["hidden"] or features, found["layers"], found["kept_layers"]
        for name, value in (("hidden", hidden), ("layers", layers), ("kept_layers", kept)):
            if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST[name]:
                raise ValueError(f"{name} is {str(value)[:40]!r}, expected a whole number up to {_LARGEST[name]:,}")
        if not 0 <= kept < max(layers, 1):
            raise ValueError(
                f"kept_layers is {kept} of a head of {layers} layers, expected 0 to {max(layers, 1) - 1}: the last "
                "layer is never kept"
            )
        return EncoderWithHead(encoder, hidden_layers(features, hidden, kept), hidden) if kept else encoder

    def encode(self, batch: Batch) -> Encoded:
        z = encode_views(nn.Sequential(self.encoder, self.projector), views_of(batch))  # each (B, D)
        return {**by_name("z", z), "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        z, ids = from_names(encoded, "z"), encoded["ids"]
        loss = nt_xent_views(z.full, z.local, temperature=self.temperature, without_positive=self.decoupled, ids=ids)
        z1, z2 = (x.detach() for x in z.full[:2])
        if self.decoupled:
            return Step(loss, z1, z2)
        candidates = len(z.full) * (global_rows(len(z1)) - 1) + 1
        return Step(loss, z1, z2, candidates=candidates, fair=all_differ(ids))


class SimCLRV2(SimCLR):
    """SimCLR v2's temperature and deeper head.

    Reference: Chen et al. 2020, https://arxiv.org/abs/2006.10029
    """

    name = "simclr_v2"
    when = "you will fine-tune on few labels: it keeps a layer of the head"
    reference = ("Chen et al. 2020", "https://arxiv.org/abs/2006.10029")
    paper = {
        "options": {**SimCLR.paper["options"], "kept_layers": 1},
        "optimizer": {**SimCLR.paper["optimizer"], "lr": 1.2, "scale_lr": "sqrt", "weight_decay": 1e-4},
    }

    def __init__(self, encoder: nn.Module, *, temperature: float = 0.1, layers: int = 3, **options: Any) -> None:
        super().__init__(encoder, temperature=temperature, layers=layers, **options)
