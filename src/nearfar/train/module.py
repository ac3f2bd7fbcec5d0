"""A method as Lightning runs it: views, rate, step counter, and what must happen after every step."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import lightning
import torch
from torch import Tensor

from nearfar import data, methods
from nearfar.config import TrainConfig
from nearfar.losses import tile_size
from nearfar.methods.method import Encoded, Method, Step
from nearfar.modalities import Modality, views_in_parts
from nearfar.nn.share import Share, rows_of_all, share_of
from nearfar.scale.grad_cache import encode_in_parts, equal_parts
from nearfar.scale.processes import contrast_share, encode_share
from nearfar.train.health import not_finite
from nearfar.train.optimisers import make_optimiser, rate_factor
from nearfar.train.processes import rank_and_world
from nearfar.views.part import Part


class NotFiniteError(RuntimeError):
    """The loss or its gradient is NaN or infinite; the weights are still those of the step before."""


class Steps:
    """The batches of a whole run as one sequence, from any of them on: batch n is the same wherever one starts."""

    def __init__(self, source: data.Dataset, loader: data.Loader, start: int, stop: int, ahead: int = 2) -> None:
        self.source, self.loader, self.start, self.stop = source, loader, start, stop
        self.ahead = ahead  # batches that may wait in memory

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Batch number, (B,) sample numbers, the B samples as the source gives them."""
        number = self.start
        rank, world = rank_and_world()  # each process has its rows of every batch
        while number < self.stop:
            epoch, first = divmod(number, len(self.loader))
            for batch in self.loader.fetched(self.source, epoch, first, rank=rank, world=world, ahead=self.ahead):
                if number >= self.stop:
                    return
                yield number, batch.indices, batch.x
                number += 1


class Pretraining(lightning.LightningModule):
    """Calls the method; everything random is drawn anew from (seed, batch number)."""

    def __init__(
        self,
        method: Method,
        config: TrainConfig,
        modality: Modality,
        source: data.Dataset,
        *,
        total: int,
        ids: Tensor,
        labels: Tensor | None,
        checkpoint: Callable[[], str],
    ) -> None:
        """
        Args:
            method: what is trained.
            modality: makes the views.
            source: the training samples.
            total: optimiser steps of the whole run.
            ids: (N,) of every training sample; equal ids are never negatives of each other.
            labels: (N,), for methods that learn from them; None otherwise.
            checkpoint: names the last good checkpoint.
        """
        super().__init__()
        self.method, self.config, self.total = method, config, total
        self.modality, self.source = modality, source
        self.ids, self.labels, self._checkpoint = ids, labels, checkpoint
        self.done = 0  # optimiser steps
        self.last: Step | None = None
        self.gradient_norm = float("nan")
        self.optimiser_state: dict[str, Any] | None = None  # to begin with, where the run is resumed
        self.optimiser: torch.optim.Optimizer | None = None

    def training_step(self, batch: tuple[int, Tensor, Tensor], _: int) -> Tensor:
        number, index, samples = batch
        rank, world = rank_and_world()
        share = share_of(len(index), samples.device) if world > 1 else None
        # Dropout and the like. On a CPU it is drawn for the batch of all processes, on a GPU by each for its own.
        torch.manual_seed(mixed(self.config.seed, number, 0 if samples.device.type == "cpu" else rank))
        most = len(index) if share is None else max(share.sizes)
        parts = equal_parts(len(index), self.config.micro_batch or most, most)
        encode = self._encoding(number, index, samples, share, undivided=len(parts) == 1)
        encoded = encode_in_parts(encode, self.method, parts)
        with nullcontext() if self.config.tile is None else tile_size(self.config.tile):
            step = contrast_share(self.method, encoded, share, by=self.config.gather)
        if not torch.isfinite(step.loss):
            raise NotFiniteError(not_finite(self.done, self._checkpoint()))
        loss: Tensor = step.loss
        self.last = replace(step, loss=loss.detach())  # not the graph, which holds the samples
        return loss

    def _encoding(
        self, number: int, index: Tensor, samples: Tensor, share: Share | None, *, undivided: bool
    ) -> Callable[[slice], Encoded]:
        """Rows of the batch to what the method encodes them to, the same each time."""
        device, kind = samples.device, samples.device.type
        labels = None if self.labels is None else self.labels[index.cpu()].to(device)
        ids = self.ids[index.cpu()].to(device)
        part = None
        if share is not None:
            part = Part(share.first, share.count, share.total, partial(rows_of_all, share=share))
        with torch.autocast(kind, enabled=False):
            views = views_in_parts(
                self.modality, samples, self.source, index, seed=self.config.seed, step=number, part=part
            )

        def encode(rows: slice) -> Encoded:
            with torch.autocast(kind, enabled=False):
                made = views(rows)
            some = None if labels is None else labels[rows]
            batch = methods.Batch(views=made, index=index[rows], ids=ids[rows], labels=some)
            own = share if share is None or undivided else share_of(rows.stop - rows.start, device)
            return encode_share(self.method, batch, own)

        return encode

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        gradients = [p.grad for p in self.method.parameters() if p.grad is not None]
        self.gradient_norm = float(torch.nn.utils.get_total_norm(gradients))
        if self.config.precision != "fp16" and not self.gradient_norm < float("inf"):
            raise NotFiniteError(not_finite(self.done, self._checkpoint()))

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Any,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * rate_factor(self.done, self.total, self.config.optimizer)
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        self.done += 1
        self.method.after_step(self.done / self.total)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        batch = self.config.batch_size * self.config.accumulate
        self.optimiser = make_optimiser(self.method, self.config.optimizer, batch)
        for group in self.optimiser.param_groups:
            group.setdefault("initial_lr", group["lr"])
        if self.optimiser_state is not None:
            self.optimiser.load_state_dict(self.optimiser_state)
        return self.optimiser

    @property
    def rate(self) -> float:
        return float(self.optimiser.param_groups[0]["lr"]) if self.optimiser is not None else 0.0


def mixed(seed: int, number: int, rank: int = 0) -> int:
    """One seed from these numbers, with nothing in common between neighbours."""
    words = f"{seed}/{number}/step" + (f"/{rank}" if rank else "")
    digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
