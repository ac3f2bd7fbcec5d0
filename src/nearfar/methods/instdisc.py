"""InstDisc: every sample is a class of its own, and its weights are the memory of how it looked before."""

import torch
from torch import Tensor, nn

from nearfar.losses import estimate_log_normalizer, nce
from nearfar.losses.arguments import l2_normalize, upcast_half
from nearfar.methods.advice import RunFacts, Verdict
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.methods.step_buffer import Pending
from nearfar.methods.views import add, encode_views, views_of
from nearfar.nn.bank import Bank
from nearfar.nn.heads import projector


class InstDisc(Method):
    """One view against the memory bank by noise-contrastive estimation; the bank is written after each step.

    With more views, local ones too, each is held against the bank, the loss is their mean, and the memory of a sample
    moves to the mean of its views.

    Log Z is estimated by Monte Carlo on the noise of the first step and then held. The noise is drawn for the batch,
    not for each query as in the paper, which keeps the memory linear; memories of the query's own id do not count.
    The loss is no InfoNCE, so `Step.candidates` is 0: there is no bound log N - L to read from it.

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
        seed: of the first memories and the noise.

    Reference: Wu et al. 2018, https://arxiv.org/abs/1805.01978
    """

    name = "instdisc"
    default_views = {"image": "instdisc"}
    min_views = usual_views = 1
    max_views = max_local = None
    short_run = {"options": {"temperature": 0.1, "proximal": 0.0, "noise": 2048, "held_after": 1_000_000}}
    toy_options = {"dim": 8, "noise": 24}
    paper = {
        "options": {"batch_norm": False, "proximal": 0.0},
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
        seed: int = 0,
    ) -> None:
        super().__init__()
        if samples < 1:
            raise ValueError(f"samples is {samples}, expected the number of training samples: each has a memory")
        self.encoder = encoder
        self.projector = projector(features, features, dim, layers=1, last_batch_norm=batch_norm, last_affine=False)
        self.bank = Bank(samples, dim, seed=seed)
        self.register_buffer("log_normalizer", torch.tensor(torch.nan))
        self.temperature, self.noise, self.momentum, self.proximal = temperature, noise, momentum, proximal
        self.held_after = held_after
        self._pending = Pending()

    def encode(self, batch: Batch) -> Encoded:
        v, *more = encode_views(nn.Sequential(self.encoder, self.projector), views_of(batch)).every  # each (B, D)
        return {"v": v, **{f"v{i}": x for i, x in enumerate(more, 2)}, "index": batch.index, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        views = [upcast_half(x) for name, x in encoded.items() if name.startswith("v")]
        index, ids = encoded["index"], encoded["ids"]
        memory = self.bank.read(index)  # (B, D)
        drawn = self.bank.noise(self.noise)  # (m,)
        noise = self.bank.rows[drawn]  # (m, D)
        log_z = self.log_normalizer
        if self.bank.step < self.held_after or log_z.isnan():
            log_z = estimate_log_normalizer(
                torch.cat(views), noise, temperature=self.temperature, bank_size=len(self.bank)
            )
        noise_ids = self._known_ids(index, ids)[drawn]
        losses = [
            nce(
                v,
                memory,
                noise,
                temperature=self.temperature,
                bank_size=len(self.bank),
                log_normalizer=log_z.nan_to_num(0.0),  # of features that are not finite: the loss will say so
                proximal=self.proximal,
                ids=ids,
                noise_ids=noise_ids,
            )
            for v in views
        ]
        if self.training:
            mean = views[0] if len(views) == 1 else add([l2_normalize(v) for v in views])
            self._pending.add(mean, index, ids, log_z)
        return Step(add(losses) / len(losses), views[0].detach(), memory, log={"log_normalizer": log_z.clone()})

    def after_step(self, progress: float) -> None:
        for v, index, ids, log_z in self._pending.take():
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

    def _known_ids(self, index: Tensor, ids: Tensor) -> Tensor:
        """(n,), the bank's ids with those of the batch, which it may not know yet."""
        return self.bank.row_ids.index_put((index,), ids.to(self.bank.row_ids))
