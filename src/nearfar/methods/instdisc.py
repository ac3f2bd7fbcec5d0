"""InstDisc: every sample is a class of its own, and its weights are the memory of how it looked before."""

import math
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nearfar.losses import estimate_log_normalizer, nce
from nearfar.losses.arguments import l2_normalize, upcast_half
from nearfar.methods.advice import RunFacts, Verdict
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.methods.step_buffer import StepBuffer
from nearfar.methods.views import add, encode_views, views_of
from nearfar.nn.bank import Bank
from nearfar.nn.heads import projector

_CHUNK = 1 << 22  # numbers of the noise that are in memory at a time, where each sample has its own


class InstDisc(Method):
    """One view against the memory bank by noise-contrastive estimation; the bank is written after each step.

    With more views, local ones too, each is held against the bank, the loss is their mean, and the memory of a sample
    moves to the mean of its views.

    Log Z is estimated by Monte Carlo on the noise of the first step and then held. The noise is drawn for the batch,
    which takes one matrix product; memories of the query's own id do not count. With `noise_per_sample` each sample has
    its own noise, as in the paper and in its authors' code. The loss is no InfoNCE, so `Step.candidates` is 0: there is
    no bound log N - L to read from it.

    Args:
        encoder: x (B, ...) to h (B, features).
        samples: n, the number of training samples: rows of the bank.
        temperature, noise, dim: the paper's τ, m and D.
        momentum: of the memories; 0.5 in the authors' code.
        proximal: the weight λ of the squared distance to the memory; 0 leaves it out, as the authors' code does.
        batch_norm: at the end of the linear head, without scale and shift; the authors have none. An untrained network
            maps all samples to nearly one direction, and on data of few batches that fills the bank at once.
        held_after: steps after which log Z is held; the paper's is 1, while the bank is still random. On data of few
            batches the similarities grow far beyond that estimate and the loss with them: hold later, or never.
        noise_per_sample: draw m memories for each sample, the same for all its views. As in the authors' code its own
            may be among them and counts as noise, and log Z is estimated on the positives, too. The noise is read from
            the bank for a few samples at a time, and again in the backward pass: the (B, m, D) are never held at once.
        seed: of the first memories and the noise.

    Recipe "paper": the authors' code, lemniscate.pytorch.

    Reference: Wu et al. 2018, https://arxiv.org/abs/1805.01978
    """

    name = "instdisc"
    when = "steps must be cheap: one view and one pass each"
    reference = ("Wu et al. 2018", "https://arxiv.org/abs/1805.01978")
    also_needs = "a memory of each sample"
    default_views = {"image": "instdisc"}
    min_views = usual_views = 1
    max_views: ClassVar[int | None] = None
    max_local: ClassVar[int | None] = None
    short_run = {"options": {"temperature": 0.1, "proximal": 0.0, "noise": 2048, "held_after": 1_000_000}}
    toy_options = {"dim": 8, "noise": 24}
    paper = {
        "options": {"batch_norm": False, "proximal": 0.0, "noise_per_sample": True},
        "optimizer": {
            "name": "sgd",
            "lr": 0.03,
            "scale_lr": "none",
            "weight_decay": 1e-4,
            "decay_all": True,
            "schedule": "step",
            "milestones": [0.6, 0.8],
            "warmup_epochs": 0.0,
            "per_epoch": True,
        },
    }
    log_normalizer: Tensor  # () NaN until the first step

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.07,
        noise: int = 4096,
        dim: int = 128,
        momentum: float = 0.5,
        proximal: float = 1.0,
        batch_norm: bool = True,
        held_after: int = 1,
        noise_per_sample: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if samples < 1:
            raise ValueError(f"samples is {samples}, expected the number of training samples: each has a memory")
        if not isinstance(noise, int) or isinstance(noise, bool) or noise < 1:
            raise ValueError(f"noise is {noise!r}, expected a whole number of at least 1")
        self.encoder = encoder
        self.projector = projector(features, features, dim, layers=1, last_batch_norm=batch_norm, last_affine=False)
        self.bank = Bank(samples, dim, seed=seed)
        self.register_buffer("log_normalizer", torch.tensor(torch.nan))
        self.temperature, self.noise, self.momentum, self.proximal = temperature, noise, momentum, proximal
        self.held_after, self.noise_per_sample = held_after, noise_per_sample
        self._step_buffer = StepBuffer()

    def encode(self, batch: Batch) -> Encoded:
        v, *more = encode_views(nn.Sequential(self.encoder, self.projector), views_of(batch)).every  # each (B, D)
        return {"v": v, **{f"v{i}": x for i, x in enumerate(more, 2)}, "index": batch.index, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        views = [upcast_half(x) for name, x in encoded.items() if name.startswith("v")]
        index, ids = encoded["index"], encoded["ids"]
        memory = self.bank.read(index)  # (B, D)
        loss_of = self._against_own_noise if self.noise_per_sample else self._against_shared_noise
        losses, log_z = loss_of(views, memory, index, ids)
        if self.training:
            self._step_buffer.add(self._remembered(views), index, ids, log_z)
        return Step(self._mean(losses), views[0].detach(), memory, log={"log_normalizer": log_z.clone()})

    def after_step(self, progress: float) -> None:
        for v, index, ids, log_z in self._step_buffer.take():
            self.log_normalizer.copy_(log_z)
            self.bank.write(index, v, self.momentum, ids)
        self.bank.advance()

    def advice(self, facts: RunFacts) -> list[Verdict]:
        """The normalizer is estimated on a bank that is still random."""
        batches = facts.samples // facts.batch_size
        if batches >= 100 or self.held_after >= facts.steps:
            return []
        noise = f" --options.noise {max(1, facts.samples // 2)}" if self.noise > facts.samples else ""
        text = (
            f"{facts.samples:,} samples are {batches} batches: the normalizer that is held after step "
            f"{self.held_after} will be far too small; set --options.held_after {facts.steps}{noise}"
        )
        return [Verdict("warning", "held_after", text)]

    def _mean(self, losses: list[Tensor]) -> Tensor:
        """() of the losses of the views."""
        return add(losses) / len(losses)

    def _remembered(self, views: list[Tensor]) -> Tensor:
        """(B, D), what the memories of the batch move to."""
        return views[0] if len(views) == 1 else add([l2_normalize(v) for v in views])

    def _against_shared_noise(
        self, views: list[Tensor], memory: Tensor, index: Tensor, ids: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """The loss of each view with noise that is drawn for the batch, and log Z."""
        drawn = self.bank.noise(self.noise)  # (m,)
        noise = self.bank.rows[drawn]  # (m, D)
        log_z = self.log_normalizer
        if self._estimates():
            log_z = estimate_log_normalizer(
                torch.cat(views), noise, temperature=self.temperature, bank_size=len(self.bank)
            )
        loss = self._nce(log_z)
        noise_ids = self._known_ids(index, ids)[drawn]
        return [loss(v, memory, noise, ids=ids, noise_ids=noise_ids) for v in views], log_z

    def _against_own_noise(
        self, views: list[Tensor], memory: Tensor, index: Tensor, ids: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """The same with noise that is drawn for each sample."""
        drawn = self.bank.noise(len(index), self.noise)  # (B, m)
        rows = max(1, _CHUNK // (self.noise * memory.shape[1]))
        starts = range(0, len(index), rows)
        log_z = self.log_normalizer
        if self._estimates():
            those = torch.cat([index[:, None], drawn], 1)  # (B, 1 + m)
            log_z = torch.stack([self._log_sum(v, those, slice(i, i + rows)) for v in views for i in starts])
            log_z = log_z.logsumexp(0) - math.log(len(views) * len(index))
        loss = partial(self._nce(log_z), reduction="sum")

        def of_rows(v: Tensor, some: slice) -> Tensor:
            return loss(v[some], memory[some], self.bank.rows[drawn[some]])

        def of_view(v: Tensor) -> Tensor:
            parts = [checkpoint(of_rows, v, slice(i, i + rows), use_reentrant=False) for i in starts]
            return add(parts) / len(v)

        return [of_view(v) for v in views], log_z

    def _log_sum(self, v: Tensor, those: Tensor, some: slice) -> Tensor:
        """The logarithm of the sum over some rows of v of their estimates of Z, by these memories (B, m)."""
        log_z = estimate_log_normalizer(
            v[some], self.bank.rows[those[some]], temperature=self.temperature, bank_size=len(self.bank)
        )
        return log_z + math.log(len(v[some]))

    def _estimates(self) -> bool:
        if self.bank.number("step") < max(1, self.held_after):
            return True
        # An accelerator is not waited for: there an estimate that is not a number stays, and the loss says so.
        return self.log_normalizer.device.type == "cpu" and bool(self.log_normalizer.isnan())

    def _nce(self, log_z: Tensor) -> "partial[Tensor]":
        log_z = log_z.nan_to_num(0.0)  # of features that are not finite: the loss will say so
        return partial(
            nce,
            temperature=self.temperature,
            bank_size=len(self.bank),
            log_normalizer=log_z,
            proximal=self.proximal,
        )

    def _known_ids(self, index: Tensor, ids: Tensor) -> Tensor:
        """(n,), the bank's ids with those of the batch, which it may not know yet."""
        return self.bank.row_ids.index_put((index,), ids.to(self.bank.row_ids))
