"""Losses of open_clip (3.3), with their names and arguments: `from nearfar.adapters.open_clip import ClipLoss`.

Neither holds the similarity matrix. Like there, features are used as they are: open_clip's models normalize them.

Surprising behaviour of open_clip with several processes, which is the same here:

- `ClipLoss()` with its defaults (`gather_with_grad=False`) differentiates only each process' own rows. After DDP's
  average, the gradient of the towers is that of one process with all rows divided by the number of processes, but that
  of `logit_scale` is not divided. With `local_loss=True` as well, rows have no gradient as keys.
- `gather_with_grad=True` is right in both forms. `local_loss=True` shares the work, and here needs memory for the rows
  of only one other process. The gradient of `logit_scale` is right after DDP's average; before it, each process has a
  different part of it than in open_clip.
"""

import torch
from torch import Tensor, nn

from nearfar.adapters.processes import is_distributed, loss_over_processes, refuse, shard_and_ids
from nearfar.distributed.gather import gather_rows
from nearfar.losses.arguments import accumulation_dtype, as_scalar, check_finite, check_pair, softplus
from nearfar.losses.engine.similarity import (
    paired_similarity,
    positive_and_logsumexp_two_way,
    sample_ids,
    similarity_logsumexp,
)
from nearfar.losses.sigmoid import similarity_softplus_sum
from nearfar.nn.shard import Shard

__all__ = ["ClipLoss", "SigLipLoss"]

Answer = dict[str, Tensor]  # {"contrastive_loss": ...}


class _PairLoss(nn.Module):
    """The signature that both losses share."""

    rank: int
    world_size: int

    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        logit_bias: Tensor | None = None,
        output_dict: bool = False,
    ) -> Tensor | Answer:
        """(B, D) twice, a scale that multiplies their inner products, and a bias (None: 0), to a scalar."""
        check_pair("image_features", image_features, "text_features", text_features)
        if isinstance(logit_scale, Tensor) and logit_scale.numel() != 1:  # images and texts would differ in their loss
            refuse("logit_scale's shape", tuple(logit_scale.shape), "(), one scale; multiply the features instead")
        check_finite("logit_scale", logit_scale)
        joined = torch.distributed.get_world_size() if is_distributed() else 1
        if self.world_size not in (1, joined):
            refuse("world_size", self.world_size, f"{joined}, the number of processes in torch.distributed")
        loss = self._loss(image_features, text_features, logit_scale, logit_bias)
        return {"contrastive_loss": loss} if output_dict else loss

    def _loss(self, image: Tensor, text: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError(type(self).__name__)


class ClipLoss(_PairLoss):
    """`open_clip.ClipLoss`.

    Args:
        local_loss: each process computes the loss of its own rows.
        gather_with_grad: rows of other processes get their gradient.
        cache_labels: ignored, there is nothing to cache.
        rank, world_size: of torch.distributed.
        use_horovod: not supported.

    A bias changes nothing, and has a gradient of 0. There is no `get_logits` or `get_ground_truth` to override, because
    no matrix is formed: a subclass that changes logits needs open_clip's class.

    >>> image, text = torch.eye(4), torch.eye(4)
    >>> round(float(ClipLoss()(image, text, torch.tensor(2.0))), 4)
    0.3408
    """

    def __init__(
        self,
        local_loss: bool = False,
        gather_with_grad: bool = False,
        cache_labels: bool = False,
        rank: int = 0,
        world_size: int = 1,
        use_horovod: bool = False,
    ) -> None:
        super().__init__()
        if use_horovod:
            refuse("use_horovod", use_horovod, "False; start the processes with torchrun")
        self.local_loss, self.gather_with_grad, self.cache_labels = local_loss, gather_with_grad, cache_labels
        self.rank, self.world_size = rank, world_size

    def _loss(self, image: Tensor, text: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
        scale = as_scalar(scale, image.new_empty(0, dtype=accumulation_dtype(image)))
        if self.world_size == 1:
            loss = _both_ways(image, text, scale, sample_ids(image, None))
        else:
            loss = self._over_processes(image, text, scale)
        return loss if bias is None else loss + 0 * as_scalar(bias, loss)  # it shifts all logits of a row equally

    def _over_processes(self, image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
        if self.local_loss and self.gather_with_grad:
            return loss_over_processes(lambda ids: _both_ways(image, text, scale, ids), image)
        shard, ids = shard_and_ids(image)
        if self.local_loss:
            return (_one_way(image, text, scale, shard, ids) + _one_way(text, image, scale, shard, ids)) / 2
        images, texts = (
            gather_rows(x, shard) if self.gather_with_grad else _others_constant(x, shard) for x in (image, text)
        )
        return _both_ways(images, texts, scale, sample_ids(images, None))


class SigLipLoss(_PairLoss):
    """`open_clip.loss.SigLipLoss`.

    Args:
        cache_labels: ignored, there is nothing to cache.
        rank, world_size: of torch.distributed.
        dist_impl: "bidir", "shift", "reduce" or "gather": four implementations of the same loss; there is one here.
        chunk_size: ignored: the matrix is never held, whatever it is.

    There is no `get_logits` to override, as in `ClipLoss`.
    """

    def __init__(
        self,
        cache_labels: bool = False,
        rank: int = 0,
        world_size: int = 1,
        dist_impl: str | None = None,
        chunk_size: int = 0,
    ) -> None:
        super().__init__()
        if chunk_size < 0:
            refuse("chunk_size", chunk_size, "0 or more")
        self.chunk_size = chunk_size
        if dist_impl not in (None, "bidir", "shift", "reduce", "gather"):
            refuse("dist_impl", dist_impl, "'bidir', 'shift', 'reduce' or 'gather', which are all the same loss")
        self.cache_labels, self.rank, self.world_size = cache_labels, rank, world_size
        self.dist_impl = dist_impl or "bidir"

    def _loss(
        self, image: Tensor, text: Tensor, scale: Tensor, bias: Tensor | None = None, negative_only: bool = False
    ) -> Tensor:
        """`negative_only`: no text belongs to an image."""
        shift = 0.0 if bias is None else bias
        if negative_only:
            return similarity_softplus_sum(image, text, scale=scale, bias=shift).mean()

        def loss(ids: Tensor) -> Tensor:
            positive = softplus(-(scale * paired_similarity(image, text) + shift))  # (B,)
            negatives = similarity_softplus_sum(image, text, scale=scale, bias=shift, query_ids=ids, key_ids=ids)
            return (positive + negatives).mean()

        return loss(sample_ids(image, None)) if self.world_size == 1 else loss_over_processes(loss, image)


def _both_ways(image: Tensor, text: Tensor, scale: Tensor, ids: Tensor) -> Tensor:
    """CLIP's loss with inner products in place of cosines."""
    positive, rows, columns = positive_and_logsumexp_two_way(image, text, scale=scale, ids=ids)  # each (B,)
    return ((softplus(rows - positive) + softplus(columns - positive)) / 2).mean()


def _one_way(own: Tensor, other: Tensor, scale: Tensor, shard: Shard, ids: Tensor) -> Tensor:
    """This process' rows against the others of all processes, which have no gradient."""
    positive = paired_similarity(own, other.detach()) * scale  # (B,)
    everyone = torch.arange(shard.total, device=own.device)
    negatives = similarity_logsumexp(own, shard.gather(other), scale=scale, query_ids=ids, key_ids=everyone)  # (B,)
    return softplus(negatives - positive).mean()


def _others_constant(x: Tensor, shard: Shard) -> Tensor:
    """The rows of all processes, with a gradient only in this process' own."""
    everyone = shard.gather(x)
    return torch.cat([everyone[: shard.first], x, everyone[shard.first + shard.count :]])
