"""A method as Lightning runs it: views, rate, step counter, and what must happen after every step."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.data.loader import Loader
from nearfar.distributed import fsdp
from nearfar.distributed.grad_cache import Deferred, encode_in_chunks, equal_chunks
from nearfar.distributed.processes import contrast_shards, encode_shard
from nearfar.losses import tile_size
from nearfar.methods.anchored import AnchoredMethod
from nearfar.methods.method import Encoded, Method, Step
from nearfar.modalities.base import Modality
from nearfar.nn.shard import Shard, global_norm, shard_of
from nearfar.nn.text import longest_text
from nearfar.training._lightning import lightning
from nearfar.training.build_method import anchored
from nearfar.training.errors import NotFiniteError
from nearfar.training.guide import GuideEncoder
from nearfar.training.health import not_finite
from nearfar.training.optimizers import make_optimizer, pretrained_factor, rate_factor, set_rates
from nearfar.training.processes import rank_and_world, shards_weights
from nearfar.training.step_values import StepValues, read_at_once


class Steps:
    """The batches of a whole run as one sequence, from any of them on: batch n is the same wherever one starts."""

    def __init__(
        self, source: Dataset, loader: Loader, start: int, stop: int, ahead: int = 2, *, pin: bool = False
    ) -> None:
        self.source, self.loader, self.start, self.stop = source, loader, start, stop
        self.ahead = ahead  # batches that may wait in memory
        self.pin = pin  # in memory from which a GPU copies by itself

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Batch number, (B,) sample numbers, the B samples as the source gives them."""
        number = self.start
        rank, world = rank_and_world()  # each process has its rows of every batch
        while number < self.stop:
            epoch, first = divmod(number, len(self.loader))
            of_epoch = self.loader.fetched(
                self.source, epoch, first, rank=rank, world=world, ahead=self.ahead, pin=self.pin
            )
            for batch in of_epoch:
                if number >= self.stop:
                    return
                yield number, batch.indices, batch.x
                number += 1


class Pretraining(lightning.LightningModule):
    """Calls the method; everything random depends only on (seed, batch number)."""

    def __init__(
        self,
        method: Method,
        config: TrainConfig,
        modality: Modality,
        source: Dataset,
        *,
        total: int,
        ids: Tensor,
        labels: Tensor | None,
        checkpoint: Callable[[], str],
        guide: GuideEncoder | None = None,
    ) -> None:
        """
        Args:
            method: what is trained.
            modality: makes the views.
            source: the training samples.
            total: optimizer steps of the whole run.
            ids: (N,) of every training sample; equal ids are never negatives of each other.
            labels: (N,), for methods that learn from them; None otherwise.
            checkpoint: names the last good checkpoint.
            guide: the encoder that the method's `guide` names.
        """
        super().__init__()
        self.method, self.config, self.total = method, config, total
        self.modality, self.source = modality, source
        self.ids, self.labels, self._checkpoint = ids, labels, checkpoint
        self._guide = guide
        self.done = 0  # optimizer steps
        self.last: Step | None = None
        self.values = StepValues(self._not_finite)
        self.optimizer_state: dict[str, Any] | None = None  # to begin with, where the run is resumed
        self.optimizer: torch.optim.Optimizer | None = None
        self.is_sharded = False  # whether each process holds a part of the weights (FSDP)
        # The method without weights, to evaluate it on rank 0 while they are sharded. In a list, so that it is no
        # submodule: Lightning initialises again what it finds on the meta device.
        self._meta_copy: list[Method] = []
        self._deferred: list[Deferred] = []  # what is left to do after the backward pass
        # With an anchor to the start, the method with it. In a list, since the start is not trained, saved or sharded.
        self._anchored: list[AnchoredMethod] = anchored(method, config)

    def configure_model(self) -> None:
        """Shard the weights, where Lightning expects it."""
        if shards_weights(self.config) and not self.is_sharded:
            assert self.device_mesh is not None
            self._meta_copy = [fsdp.meta_copy(self.method)] if self.trainer.is_global_zero else []
            fsdp.shard_method(self.method, self.device_mesh["data_parallel"])
            self.is_sharded = True

    def training_step(self, batch: tuple[int, Tensor, Tensor], _: int) -> Tensor:
        number, index, samples = batch
        rank, world = rank_and_world()
        shard = shard_of(len(index), samples.device) if world > 1 else None
        # Dropout and the like. On a CPU it is drawn for the batch of all processes, on a GPU by each for its own.
        torch.manual_seed(derive_seed(self.config.seed, number, 0 if samples.device.type == "cpu" else rank))
        most = len(index) if shard is None else max(shard.sizes)
        parts = equal_chunks(len(index), self.config.micro_batch_size or most, most)
        encode = self._encoding(number, index, samples, shard, undivided=len(parts) == 1)
        encoded = encode_in_chunks(encode, self.method, parts, deferred=self._deferred if self.is_sharded else None)
        with nullcontext() if self.config.tile_size is None else tile_size(self.config.tile_size):
            step = contrast_shards(self._trained, encoded, shard, by=self.config.gather)
        self.values.take_loss(step.loss, self.done)
        loss: Tensor = step.loss
        self.last = replace(step, loss=loss.detach())  # not the graph, which holds the samples
        return loss if self.method.loss_weight == 1 else self.method.loss_weight * loss

    def transfer_batch_to_device(
        self, batch: tuple[int, Tensor, Tensor], device: torch.device, dataloader_idx: int
    ) -> tuple[int, Tensor, Tensor]:
        """The samples; their numbers are needed on the CPU."""
        number, index, samples = batch
        return number, index, samples.to(device, non_blocking=True)

    def _not_finite(self, step: int) -> NoReturn:
        raise NotFiniteError(not_finite(step, self._checkpoint()))

    def _encoding(
        self, number: int, index: Tensor, samples: Tensor, shard: Shard | None, *, undivided: bool
    ) -> Callable[[slice], Encoded]:
        """Rows of the batch to what the method encodes them to, the same each time."""
        device, kind = samples.device, samples.device.type
        index = index.cpu()
        labels = None if self.labels is None else self.labels[index].to(device, non_blocking=True)
        ids = self.ids[index].to(device, non_blocking=True)
        index_there = index.to(device, non_blocking=True)
        with torch.autocast(kind, enabled=False):
            views = self.modality.views_of_rows(
                samples, self.source, index, seed=self.config.seed, step=number, shard=shard
            )
            guide = None
            if self._guide is not None:
                guide = self._guide.rows(samples, self.source, index, step=number, shard=shard)  # (B, V, G)

        longest = None if kind == "cpu" else self.source.longest_text(index)

        def encode(rows: slice) -> Encoded:
            with torch.autocast(kind, enabled=False):
                made = views(rows)
                whole = self.modality.prepare(samples[rows]) if self._anchored else None
            some = None if labels is None else labels[rows]
            batch = self.modality.as_batch(made, self.source, index_there[rows], ids[rows], some)
            batch = replace(batch, guide=None if guide is None else guide[rows], whole=whole, host_index=index[rows])
            own = shard if shard is None or undivided else shard_of(rows.stop - rows.start, device)
            with longest_text(longest):
                return encode_shard(self._trained, batch, own)

        for each in self._anchored:
            each.start.to(device)
        return encode

    @property
    def _trained(self) -> Method | AnchoredMethod:
        """What encodes and contrasts."""
        return self._anchored[0] if self._anchored else self.method

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        super().backward(loss, *args, **kwargs)
        while self._deferred:
            self._deferred.pop()()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.is_sharded:
            fsdp.reshard(self.method)
            fsdp.average_scalars(self.method)
        gradients = [p.grad for p in self.method.parameters() if p.grad is not None]
        total = global_norm(gradients) if self.is_sharded else torch.nn.utils.get_total_norm(gradients)
        self._norm = total
        self.values.take_gradient_norm(total, self.done, strict=self.config.precision != "fp16")

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        if not self.is_sharded:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)
        elif gradient_clip_val is not None:  # torch's own function takes no list of cut and whole ones
            factor: Any
            if read_at_once(self._norm):
                factor = min(1.0, gradient_clip_val / (self.values.gradient_norm + 1e-6))
            else:
                factor = (gradient_clip_val / (self._norm + 1e-6)).clamp(max=1.0)
            for p in self.method.parameters():
                if p.grad is not None:
                    p.grad.mul_(factor)

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Any,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        config, run = self.config, (self.done, self.total, self.config.optimizer)
        set_rates(optimizer, rate_factor(*run, self.epochs), pretrained_factor(*run, config.adapt, self.epochs))
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        self.done += 1
        self.method.after_step(self.done / self.total)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        batch = self.config.batch_size * self.config.accumulate_batches
        self.optimizer = make_optimizer(self.method, self.config.optimizer, batch, self.config.adapt)
        for group in self.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        if self.optimizer_state is not None:
            weights = [p for group in self.optimizer.param_groups for p in group["params"]]
            state = (
                fsdp.shard_optimizer_state(weights, self.optimizer_state) if self.is_sharded else self.optimizer_state
            )
            self.optimizer.load_state_dict(state)
            self.optimizer_state = None
        return self.optimizer

    # Whole weights, for checkpoints and evaluation: collectives that every process must call; rank 0 gets the result.

    def whole_weights(self) -> dict[str, Tensor]:
        """The method's state dict."""
        state: dict[str, Tensor] = fsdp.full_state(self.method.state_dict(), keep=self.trainer.is_global_zero)
        return state

    def whole_optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state dict."""
        if self.optimizer is None:
            return {}
        state: dict[str, Any] = fsdp.full_state(self.optimizer.state_dict(), keep=self.trainer.is_global_zero)
        return state

    def whole_method(self, weights: dict[str, Tensor]) -> Method:
        """The method with these weights, on rank 0; the method itself if its weights are not sharded."""
        return fsdp.materialize(self._meta_copy[0], weights).to(self.device) if self._meta_copy else self.method

    @property
    def epochs(self) -> float:
        """Passes over the training data of the whole run."""
        rows = self.total * self.config.accumulate_batches * self.config.batch_size
        return self.config.epochs if self.config.steps is None else rows / len(self.source)

    @property
    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"]) if self.optimizer is not None else 0.0


def derive_seed(seed: int, number: int, rank: int = 0) -> int:
    """One seed from these numbers; seeds of neighbouring numbers are independent."""
    words = f"{seed}/{number}/step" + (f"/{rank}" if rank else "")
    digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
