"""SupCon: SimCLR with labels; everything of the same class is a positive."""

import torch
from torch import Tensor, nn

from nearfar.losses import sup_con
from nearfar.losses.arguments import check_at_least
from nearfar.losses.supervised import number_classes
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.methods.views import by_name, encode_views, from_names, views_of
from nearfar.nn.heads import projector


class SupCon(Method):
    """Two or more views of each sample, and each must find all views of its class; local views count as any other.

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature, dim, hidden: of the loss and the head (2 layers); hidden is `features` unless given.
        base_temperature: multiplies the loss in training by temperature / base_temperature, as the authors' code does
            with 0.07; the reported loss is that of the paper. None: not at all.
        batch_norm: within the head; the paper has none. It shortens the plateau at log(2B - 1) that training starts on.

    Samples with equal ids count as one class, the lowest of their labels, so that none is the other's negative.

    Reference: Khosla et al. 2020, https://arxiv.org/abs/2004.11362
    """

    name = "supcon"
    when = "all samples have labels"
    reference = ("Khosla et al. 2020", "https://arxiv.org/abs/2004.11362")
    needs_labels = True
    max_views = max_local = None
    short_run = {"options": {"temperature": 0.1}}
    toy_options = {"dim": 8}
    paper = {
        "options": {"base_temperature": 0.07},
        "optimizer": {
            "name": "sgd",
            "lr": 0.125,  # 0.5 at batch 1024
            "weight_decay": 1e-4,
            "decay_all": True,
            "warmup_epochs": 10.0,
            "min_lr_ratio": 1e-3,
            "per_epoch": True,
        },
    }
    paper_views = {"image": "supcon"}

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.1,
        dim: int = 128,
        hidden: int | None = None,
        base_temperature: float | None = None,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, hidden or features, dim, batch_norm=batch_norm)
        self.temperature = temperature
        if base_temperature is not None:
            check_at_least("base_temperature", base_temperature, 1e-6)
            self.loss_weight = temperature / base_temperature

    def encode(self, batch: Batch) -> Encoded:
        if batch.labels is None:
            raise ValueError("SupCon learns from labels and the batch has none; give labelled data, or train SimCLR")
        z = encode_views(nn.Sequential(self.encoder, self.projector), views_of(batch))  # each (B, D)
        return {**by_name("z", z), "labels": _class_numbers(batch.labels), "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        z = from_names(encoded, "z").every
        classes = _one_label_per_id(encoded["labels"], encoded["ids"])  # (B,)
        loss = sup_con(torch.cat(z), classes.repeat(len(z)), temperature=self.temperature)
        fair = torch.tensor(False)  # a query has all of its class among its candidates
        return Step(loss, z[0].detach(), z[1].detach(), candidates=len(z) * len(z[0]) - 1, fair=fair)


def _class_numbers(labels: Tensor) -> Tensor:
    """(B,) whole numbers."""
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"labels are {labels.dtype}, expected whole numbers or booleans: the class of each sample")
    return labels.long() if labels.dtype == torch.bool else labels


def _one_label_per_id(labels: Tensor, ids: Tensor) -> Tensor:
    which = number_classes(ids)  # (B,)
    lowest = labels.new_full((len(labels),), torch.iinfo(labels.dtype).max).scatter_reduce(0, which, labels, "amin")
    return lowest[which]
