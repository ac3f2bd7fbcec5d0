"""DIET: one linear layer tells which sample of the data set a view is of."""

import torch
from torch import Tensor, nn

from nearfar.losses.arguments import check_at_least, upcast_half
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.methods.step_buffer import StepBuffer
from nearfar.methods.views import add, encode_views, views_of


class DIET(Method):
    """Classification with the samples' numbers as labels, on the encoder's features: no head, no second network.

    One view is enough. With more, local ones too, the loss is their mean. Samples with a query's id are left out of its
    classes once their ids are known, after their first batch.

    Args:
        encoder: x (B, ...) to h (B, features).
        samples: n, the number of training samples: rows of the linear layer, which has no bias.
        smoothing: of the labels; the part that is shared by all n classes, the own one included.

    The loss is the smoothed cross-entropy, whose least value is not 0; the log has it without the labels' entropy, as
    `divergence`.

    Reference: Balestriero 2023, eq. 1, https://arxiv.org/abs/2302.10260
    """

    name = "diet"
    when = "data are few and training may be long: there is nothing to tune"
    reference = ("Balestriero 2023", "https://arxiv.org/abs/2302.10260")
    also_needs = "a row of weights for each sample"
    min_views = usual_views = 1
    max_views = max_local = None
    paper = {
        "optimizer": {
            "name": "adamw",
            "lr": 1e-3,
            "scale_lr": "none",
            "weight_decay": 0.05,
            "decay_all": True,
            "warmup_epochs": 10.0,
        },
    }
    row_ids: Tensor  # (n,) the samples' ids, -1 until they are known

    def __init__(self, encoder: nn.Module, *, features: int, samples: int = 0, smoothing: float = 0.8) -> None:
        super().__init__()
        check_at_least("smoothing", smoothing, 0.0, below=1.0)
        if samples < 1:
            raise ValueError(f"samples is {samples}, expected the number of training samples: each is a class")
        self.encoder, self.smoothing = encoder, smoothing
        self.classifier = nn.Linear(features, samples, bias=False)
        self.register_buffer("row_ids", torch.full((samples,), -1))
        self._step_buffer = StepBuffer()

    def encode(self, batch: Batch) -> Encoded:
        h = encode_views(self.encoder, views_of(batch)).every  # each (B, F)
        same = (self.row_ids == batch.ids[:, None]).scatter(1, batch.index[:, None], False)  # (B, n) no other class
        each = [smoothed_cross_entropy(self.classifier(x), batch.index, same, self.smoothing) for x in h]
        return {"loss": add(each) / len(each), "h": h[0].detach(), "index": batch.index, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        h, index, loss = upcast_half(encoded["h"]), encoded["index"], encoded["loss"].mean()
        if self.training:
            self._step_buffer.add(index, encoded["ids"])
        return Step(loss, h, self.classifier.weight[index].detach().to(h), log={"divergence": self._divergence(loss)})

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        for index, ids in self._step_buffer.take():
            self.row_ids[index] = ids.to(self.row_ids)

    def _divergence(self, loss: Tensor) -> Tensor:
        """() the loss without the entropy of the smoothed labels: 0 is the best."""
        n = len(self.row_ids)
        label = torch.full((n,), self.smoothing / n, device=loss.device, dtype=loss.dtype)
        label[0] += 1 - self.smoothing
        entropy: Tensor = torch.special.entr(label).sum()
        return loss.detach() - entropy


def smoothed_cross_entropy(logits: Tensor, label: Tensor, left_out: Tensor, smoothing: float) -> Tensor:
    """(B,) cross-entropy of logits (B, n) with labels (B,), a part of which is shared by all classes that count.

    Args:
        left_out: (B, n) booleans, classes that do not count for a row.
    """
    logits = upcast_half(logits)
    own = logits.gather(1, label[:, None])[:, 0]
    share = logits.masked_fill(left_out, 0.0).sum(1) / (~left_out).sum(1)
    return logits.masked_fill(left_out, -torch.inf).logsumexp(1) - (1 - smoothing) * own - smoothing * share
