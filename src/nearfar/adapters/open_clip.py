"""Losses of open_clip (3.3), by their names and arguments: `from nearfar.adapters.open_clip import ClipLoss`.

Neither holds the matrix of similarities. As there, features are taken as they come: open_clip's models normalise them.

What may surprise in open_clip, and is the same here, of several processes:

- `ClipLoss()` as it stands (`gather_with_grad=False`) differentiates each process' own rows alone. After DDP's average
  the gradient of the towers is that of one process with all rows divided by the number of processes, while that of
  `logit_scale` is whole. With `local_loss=True` beside it the rows have no gradient as keys at all.
- `gather_with_grad=True` is right in both forms; `local_loss=True` shares the work, and needs memory for no more than
  one other process' rows here. Its `logit_scale` has the right gradient after DDP's average; before it, each process
  has another part of it than open_clip's.
"""

from typing import Literal, overload

import torch
from torch import Tensor, nn

from nearfar.adapters.processes import among_all, refuse, several, share_and_ids
from nearfar.distributed.gather import gather_rows
from nearfar.losses.arguments import as_scalar, check_finite, check_pair, softplus, sum_type
from nearfar.losses.engine.similarity import (
    near_and_far_two_way,
    paired_similarity,
    sample_ids,
    similarity_logsumexp,
)
from nearfar.losses.sigmoid import similarity_softplus_sum
from nearfar.nn.shard import Share, rows_of_all

__all__ = ["ClipLoss", "SigLipLoss"]

Answer = dict[str, Tensor]  # {"contrastive_loss": ...}


class ClipLoss(nn.Module):
    """`open_clip.ClipLoss`.

    Args:
        local_loss: each process has the loss of its own rows.
        gather_with_grad: rows of other processes have their gradient.
        cache_labels: nothing to cache here.
        rank, world_size: of the processes that torch.distributed has joined.
        use_horovod: is refused.

    There is no `get_logits` to override, nor `get_ground_truth`: no matrix is formed. A subclass that changes logits
    has to stay with open_clip's class; one that adds a loss of its own calls `forward`.

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

    @overload
    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        logit_bias: Tensor | None = ...,
        output_dict: Literal[False] = ...,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        logit_bias: Tensor | None = ...,
        *,
        output_dict: Literal[True],
    ) -> Answer: ...

    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        logit_bias: Tensor | None = None,
        output_dict: bool = False,
    ) -> Tensor | Answer:
        """(B, D) twice, and what multiplies their inner products; a bias changes nothing, and has a gradient of 0."""
        check_pair("image_features", image_features, "text_features", text_features)
        _check_scale(logit_scale)
        scale = as_scalar(logit_scale, image_features.new_empty(0, dtype=sum_type(image_features)))
        if self.world_size == 1:
            loss = _both_ways(image_features, text_features, scale, sample_ids(image_features, None))
        else:
            _check_joined(self.world_size)
            loss = self._among_all(image_features, text_features, scale)
        if logit_bias is not None:
            loss = loss + 0 * as_scalar(logit_bias, loss)  # all logits of a row shift alike
        return {"contrastive_loss": loss} if output_dict else loss

    def _among_all(self, image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
        if self.local_loss and self.gather_with_grad:
            return among_all(lambda ids: _both_ways(image, text, scale, ids), image)
        share, ids = share_and_ids(image)
        if self.local_loss:
            return (_one_way(image, text, scale, share, ids) + _one_way(text, image, scale, share, ids)) / 2
        images, texts = (
            gather_rows(x, share) if self.gather_with_grad else _others_constant(x, share) for x in (image, text)
        )
        return _both_ways(images, texts, scale, sample_ids(images, None))


class SigLipLoss(nn.Module):
    """`open_clip.loss.SigLipLoss`.

    Args:
        cache_labels: nothing to cache here.
        rank, world_size: of the processes that torch.distributed has joined.
        dist_impl: "bidir", "shift", "reduce" or "gather": four ways to the same loss, for which there is one here.

    There is no `get_logits` to override, as in `ClipLoss`.
    """

    def __init__(
        self, cache_labels: bool = False, rank: int = 0, world_size: int = 1, dist_impl: str | None = None
    ) -> None:
        super().__init__()
        if dist_impl not in (None, "bidir", "shift", "reduce", "gather"):
            refuse("dist_impl", dist_impl, "'bidir', 'shift', 'reduce' or 'gather', which are all the same loss")
        self.cache_labels, self.rank, self.world_size = cache_labels, rank, world_size
        self.dist_impl = dist_impl or "bidir"

    @overload
    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        logit_bias: Tensor | None,
        output_dict: Literal[False] = ...,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        logit_bias: Tensor | None,
        output_dict: Literal[True],
    ) -> Answer: ...

    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        logit_bias: Tensor | None,
        output_dict: bool = False,
    ) -> Tensor | Answer:
        """(B, D) twice; a scale that multiplies their inner products and a bias, None for 0."""
        check_pair("image_features", image_features, "text_features", text_features)
        _check_scale(logit_scale)
        bias = 0.0 if logit_bias is None else logit_bias

        def loss_of(ids: Tensor) -> Tensor:
            yes = softplus(-(logit_scale * paired_similarity(image_features, text_features) + bias))  # (B,)
            no = similarity_softplus_sum(
                image_features, text_features, scale=logit_scale, bias=bias, query_ids=ids, key_ids=ids
            )
            return (yes + no).mean()

        if self.world_size == 1:
            loss = loss_of(sample_ids(image_features, None))
        else:
            _check_joined(self.world_size)
            loss = among_all(loss_of, image_features)
        return {"contrastive_loss": loss} if output_dict else loss


def _check_scale(scale: float | Tensor) -> None:
    """One number: a scale of each row would be another loss for images than for texts."""
    if isinstance(scale, Tensor) and scale.numel() != 1:
        refuse("logit_scale's shape", tuple(scale.shape), "(), one scale for all rows; multiply the features by others")
    check_finite("logit_scale", scale)


def _check_joined(world: int) -> None:
    """Whether torch.distributed knows of so many processes."""
    joined = torch.distributed.get_world_size() if several() else 1
    if joined != world:
        refuse("world_size", world, f"{joined}, the number of processes that torch.distributed has joined")


def _both_ways(image: Tensor, text: Tensor, scale: Tensor, ids: Tensor) -> Tensor:
    """CLIP's loss of inner products, not of cosines."""
    near, far1, far2 = near_and_far_two_way(image, text, scale=scale, ids=ids)  # each (B,)
    return ((softplus(far1 - near) + softplus(far2 - near)) / 2).mean()


def _one_way(own: Tensor, other: Tensor, scale: Tensor, share: Share, ids: Tensor) -> Tensor:
    """Own rows among the others of all processes, which have no gradient."""
    near = paired_similarity(own, other.detach()) * scale  # (B,)
    everyone = torch.arange(share.total, device=own.device)
    far = similarity_logsumexp(own, rows_of_all(other, share), scale=scale, query_ids=ids, key_ids=everyone)  # (B,)
    return softplus(far - near).mean()


def _others_constant(x: Tensor, share: Share) -> Tensor:
    """The rows of all, of which this process' own have a gradient."""
    everyone = rows_of_all(x, share)
    return torch.cat([everyone[: share.first], x, everyone[share.first + share.count :]])
