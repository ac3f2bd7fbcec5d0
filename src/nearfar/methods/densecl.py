"""DenseCL: beside the whole picture, each place of the map must find the place of the other view that is like it."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nearfar.losses import info_nce
from nearfar.losses.arguments import l2_normalize, upcast_half
from nearfar.methods.method import Batch, Encoded, Step, Toy
from nearfar.methods.moco import MoCo
from nearfar.methods.step_buffer import StepBuffer
from nearfar.methods.toy import toy_method
from nearfar.nn.ema import frozen_copy
from nearfar.nn.heads import projector
from nearfar.nn.maps import stages
from nearfar.nn.norm import forward_in_groups
from nearfar.nn.queue import Queue
from nearfar.nn.shard import global_rows


class DenseCL(MoCo):
    """MoCo v2 with a second head on the encoder's last map (B, C, H, W), for detection and segmentation.

    A place of the query's map belongs to the place of the key's map whose features are most similar. Its projection
    must find the projection of that place among a second queue, whose rows are means of earlier keys' projections over
    all places. The loss is the mean of MoCo's and of this one.

    Args:
        encoder: x (B, 3, H, W) to h (B, features), with maps on the way: a convolutional network.
        dense: weight of the second loss, the paper's λ; MoCo's has the rest.
        dense_start: the part of the run in which MoCo's loss is alone; the authors' first 1,000 steps, a thousandth of
            200 epochs of ImageNet.
        group, and others: as for `MoCo`.

    Recipe "paper": the authors' settings for ImageNet; for COCO their rate is 0.3.

    Reference: Wang et al. 2021, eqs. 2 to 4, https://arxiv.org/abs/2011.09157
    """

    name = "densecl"
    when = "the encoder is for detection or segmentation, and pictures show many things"
    reference = ("Wang et al. 2021", "https://arxiv.org/abs/2011.09157")
    also_needs = "a backbone with maps"
    modalities = ("image",)
    max_views, max_local = 2, 0
    progress: Tensor  # () the part of the run that is done

    def __init__(
        self, encoder: nn.Module, *, features: int, dense: float = 0.5, dense_start: float = 0.001, **options: Any
    ) -> None:
        if not 0 <= dense <= 1:
            raise ValueError(f"dense is {dense}, expected a number from 0 to 1")
        try:
            last = stages(encoder)[-1]
        except ValueError as error:
            raise ValueError(
                f"densecl needs an encoder with maps (B, C, H, W): {error}; choose a convolutional --backbone"
            ) from None
        super().__init__(encoder, features=features, **options)
        given = {**self.options(), **options}
        hidden, dim = given["hidden"] or features, given["dim"]
        self.dense_projector = projector(last.channels, hidden, dim, batch_norm=given["batch_norm"])
        self.dense, self.dense_start, self.map_name, self.dim = dense, dense_start, last.module, dim
        self.key_network = frozen_copy(self._query_network())
        self.dense_queue = Queue(given["queue_size"], dim)
        self.register_buffer("progress", torch.tensor(0.0))
        self._dense_buffer = StepBuffer()

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        return toy_method(cls, rows, encoder=_toy_encoder, **{**cls.toy_options, **options})

    def encode(self, batch: Batch) -> Encoded:
        x1, x2 = batch.views
        groups = self._groups(global_rows(len(x1)))
        q = self._unpack(forward_in_groups(self._query_network(), x1, groups))
        with torch.no_grad():
            k = self._unpack(self._keys(x2, groups))
            similar = l2_normalize(q.map) @ l2_normalize(k.map).transpose(1, 2)  # (B, P, P)
            nearest = similar.argmax(2, keepdim=True).expand(-1, -1, self.dim)
        dense = {"dense_q": q.dense, "dense_k": k.dense.gather(1, nearest), "dense_mean": k.dense.mean(1)}
        return {"q": q.whole, "k": k.whole, **dense, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        step = super().contrast(encoded)
        q, k = upcast_half(encoded["dense_q"]), upcast_half(encoded["dense_k"])  # (B, P, D)
        queue, ids = self.dense_queue, encoded["ids"].repeat_interleave(q.shape[1])
        queued, queued_ids = (queue.keys(), queue.ids()) if len(queue) else (None, None)
        dense = info_nce(
            q.flatten(0, 1), k.flatten(0, 1), queued, temperature=self.temperature, ids=ids, negative_ids=queued_ids
        )
        if self.training:
            self._dense_buffer.add(upcast_half(encoded["dense_mean"]), encoded["ids"])
        weight = torch.where(self.progress < self.dense_start, 0.0, self.dense).to(dense)
        log = {**step.log, "whole": step.loss.detach(), "dense": dense.detach()}
        return replace(step, loss=step.loss.lerp(dense, weight), candidates=0, fair=None, log=log)

    def after_step(self, progress: float) -> None:
        super().after_step(progress)
        self.progress.fill_(progress)
        for mean, ids in self._dense_buffer.take():
            self.dense_queue.push(mean, ids)

    def _query_network(self) -> nn.Module:
        return DenseNetwork(self.encoder, self.projector, self.dense_projector, self.map_name)

    def _unpack(self, packed: Tensor) -> "Parts":
        whole, rest = packed[:, : self.dim], packed[:, self.dim :]
        channels: int = self.dense_projector[0].in_features  # type: ignore[assignment]
        places = rest.shape[1] // (self.dim + channels)
        dense, each = rest.split([places * self.dim, places * channels], 1)
        return Parts(whole, dense.unflatten(1, (places, -1)), each.unflatten(1, (places, -1)))


class Parts(NamedTuple):
    """What one network makes of a view."""

    whole: Tensor  # (B, D) projection of the features
    dense: Tensor  # (B, P, D) projections of the P places of the map
    map: Tensor  # (B, P, C)


class DenseNetwork(nn.Module):
    """All of `Parts` as one row for each sample, so that it passes in groups as any network does."""

    def __init__(self, encoder: nn.Module, whole: nn.Module, dense: nn.Module, map_name: str) -> None:
        super().__init__()
        self.encoder, self.whole, self.dense, self.map_name = encoder, whole, dense, map_name

    def forward(self, x: Tensor) -> Tensor:
        """(B, D + P D + P C)."""
        maps: list[Tensor] = []
        hook = self.encoder.get_submodule(self.map_name).register_forward_hook(lambda *call: maps.append(call[-1]))
        try:
            whole = self.whole(self.encoder(x))
        finally:
            hook.remove()
        places = maps[-1].flatten(2).transpose(1, 2)  # (B, P, C)
        dense = self.dense(places.flatten(0, 1)).unflatten(0, places.shape[:2])
        return torch.cat([whole, dense.flatten(1), places.flatten(1)], 1)


def _toy_encoder() -> nn.Module:
    """(B, 3, 6, 6) to a map of 2 × 2 places and (B, 16)."""
    map_of = (nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Tanh(), nn.Conv2d(8, 8, 3, 2, 1), nn.Tanh())
    network = nn.Sequential(*map_of, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 16))
    network.num_features = 16  # type: ignore[assignment]
    return network
