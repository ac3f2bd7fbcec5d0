"""What a method is: work on each sample, work across samples, and what happens after the optimiser's step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

Encoded = dict[str, Tensor]  # each (B, ...): rows of samples, so that it can be chunked and gathered


@dataclass(frozen=True)
class Batch:
    """One training batch, as the views left it."""

    views: Sequence[Tensor]  # each (B, ...), already on the device
    index: Tensor  # (B,) the samples' numbers in the data set
    ids: Tensor  # (B,) samples with equal ids are never negatives of each other; the index, where nothing else is known
    labels: Tensor | None = None  # (B,) for supervised methods alone


@dataclass(frozen=True)
class Horizon:
    """The contrastive task of one of several horizons, for the health report; nothing has a gradient but the loss."""

    ahead: int  # frames
    loss: Tensor  # () InfoNCE in nats
    query: Tensor  # (R, D) predictions
    key: Tensor  # (R, D) what came; the score is the inner product
    ids: Tensor  # (R,) rows with equal ids are no negatives of each other
    among: Tensor  # (R,) candidates are rows with the same number


@dataclass(frozen=True)
class Step:
    """The loss of one batch, and what the health report looks at."""

    loss: Tensor
    z1: Tensor  # (B, D) two views as the loss compared them
    z2: Tensor  # (B, D)
    candidates: int = 0  # the N of log N: positive and negatives of a query; 0 where there are no negatives
    fair: Tensor | None = None  # () whether all others were negatives, none left out by ids; else log N - L is no bound
    log: dict[str, Tensor] = field(default_factory=dict)  # further scalars
    horizons: Sequence[Horizon] = ()  # of methods that predict several steps ahead; the loss is then their mean


def all_differ(ids: Tensor) -> Tensor:
    """() whether no two are equal, so that ids leave nobody out but a sample itself.

    >>> bool(all_differ(torch.tensor([3, 1, 2]))), bool(all_differ(torch.tensor([3, 1, 3])))
    (True, False)
    """
    ordered = ids.sort().values
    return (ordered[1:] != ordered[:-1]).all()


class Method(nn.Module):
    """A method is `encode`, `contrast` and `after_step`. State that must survive a checkpoint is in buffers."""

    encoder: nn.Module  # what the user keeps: x (B, ...) to h (B, F)
    idle = False  # whether some trained parameters take no part in some steps
    ring = False  # whether the loss is a mean over rows, each against the batch's own by ids: then keys may travel

    def encode(self, batch: Batch) -> Encoded:
        """Per-sample work, which may be run in chunks: everything of a sample that `contrast` needs, by name."""
        raise NotImplementedError(f"{type(self).__name__} has no encode")

    def contrast(self, encoded: Encoded) -> Step:
        """Cross-sample work: sees every row, of every process."""
        raise NotImplementedError(f"{type(self).__name__} has no contrast")

    def after_step(self, progress: float) -> None:
        """Momentum networks, queues and banks move here. The trainer calls it after every optimiser step.

        Args:
            progress: the part of the run that is done, from 0 to 1.
        """

    def forward(self, batch: Batch) -> Step:
        return self.contrast(self.encode(batch))

    @torch.no_grad()
    def embed(self, x: Tensor) -> Tensor:
        """(B, F), what the encoder makes of x."""
        h: Tensor = self.encoder(x)
        return h

    @torch.no_grad()
    def embed_pair(self, views: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """(B, F) twice, of each sample two embeddings that should be alike: those of its first two views."""
        return self.embed(views[0]), self.embed(views[1])
