"""Losses of lightly (1.6), with their names and defaults: `from nearfar.adapters.lightly import NTXentLoss`.

The similarity matrix is never held. With `gather_distributed=True` the rows of other processes are sent around in
blocks, and not gathered.

Surprising behaviour of lightly that is the same here:

- The loss of a process is that of its own rows. The gradient of a row is that of the sum of all losses; DDP's
  average makes it that of the mean. Without DDP, divide by the number of processes.
- `gather_distributed` is False by default: each process then uses only its own rows as negatives.
- The memory bank starts with random directions and is not in the state dict. If a batch does not fit before its end,
  the rest is dropped. It changes whenever `out0` has a gradient. `nearfar.nn.Queue` has none of these problems; use it
  with `nearfar.losses.info_nce(query, key, queue.keys(), temperature=...)`.
- `NegativeCosineSimilarity` has a gradient in both arguments: detach the target.

Different here: a row of zeros gets no gradient (there, 1e8 times its direction or more), half precision becomes
float32, and a temperature below zero is refused.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from nearfar.adapters.processes import is_distributed, loss_over_processes, refuse, shard_and_ids
from nearfar.distributed.gather import gather_rows
from nearfar.losses import barlow_twins, decoupled, info_nce, nt_xent, vicreg
from nearfar.losses.arguments import check_pair, check_positive, l2_normalize
from nearfar.losses.engine.similarity import paired_similarity

__all__ = ["BarlowTwinsLoss", "DCLLoss", "DCLWLoss", "NTXentLoss", "NegativeCosineSimilarity", "VICRegLoss"]


class NTXentLoss(nn.Module):
    """`lightly.loss.NTXentLoss`: SimCLR's loss, or MoCo's of `out0` with a memory bank.

    Args:
        temperature: divides the similarities; may be changed between steps.
        memory_bank_size: 0, (rows, features), or rows alone, with the features of the first batch.
        gather_distributed: negatives come from all processes; all of them fill the bank.

    >>> z0, z1 = torch.eye(4), torch.eye(4)
    >>> NTXentLoss(temperature=0.5)(z0, z1).equal(nt_xent(z0, z1, temperature=0.5))
    True
    """

    def __init__(
        self, temperature: float = 0.5, memory_bank_size: int | Sequence[int] = 0, gather_distributed: bool = False
    ) -> None:
        super().__init__()
        check_positive("temperature", temperature)
        _check_gather(gather_distributed)
        self.temperature, self.gather_distributed = temperature, gather_distributed
        self.memory_bank = _MemoryBank(memory_bank_size, gather_distributed)

    def forward(self, out0: Tensor, out1: Tensor) -> Tensor:
        """(B, D) twice, normalized here, to a scalar."""
        if self.memory_bank.size[0]:
            check_pair("out0", out0, "out1", out1)
            negatives = self.memory_bank.rows(out0).clone()
            query, key = l2_normalize(out0), l2_normalize(out1)
            if out0.requires_grad:
                self.memory_bank.take(key)
            # The rows of the bank are not normalized again: a key and its copy there would differ by rounding.
            return info_nce(query, key, negatives, temperature=self.temperature, similarity="dot")

        def loss(ids: Tensor | None) -> Tensor:
            return nt_xent(out0, out1, temperature=self.temperature, ids=ids)

        return loss_over_processes(loss, out0) if self.gather_distributed and is_distributed() else loss(None)


class _MemoryBank(nn.Module):
    """The last keys, as in lightly: random directions at first; rows beyond the end are dropped."""

    bank: Tensor  # (rows, features)
    bank_ptr: Tensor  # (1,)

    def __init__(self, size: int | Sequence[int], gather_distributed: bool = False) -> None:
        super().__init__()
        self.size = (size,) if isinstance(size, int) else tuple(size)
        if len(self.size) not in (1, 2) or min(self.size) < 0:
            refuse("memory_bank_size", size, "0, rows, or (rows, features)")
        self.gather_distributed = gather_distributed
        rows = _random_directions(*self.size) if len(self.size) == 2 else torch.empty(0)
        self.register_buffer("bank", rows, persistent=False)
        self.register_buffer("bank_ptr", torch.zeros(1, dtype=torch.long), persistent=False)

    def rows(self, like: Tensor) -> Tensor:
        """The bank, which is made here if only the number of its rows was given."""
        if len(self.size) == 1:
            self.size = (self.size[0], like.shape[1])
            self.bank = _random_directions(*self.size).to(self.bank_ptr.device)
        return self.bank

    @torch.no_grad()
    def take(self, keys: Tensor) -> None:
        """Write (B, D) over the oldest rows."""
        if self.gather_distributed and is_distributed():
            keys = shard_and_ids(keys)[0].gather(keys)
        start = int(self.bank_ptr)
        written = keys[: self.size[0] - start].to(self.bank)
        self.bank[start : start + len(written)] = written
        self.bank_ptr[0] = 0 if start + len(keys) >= self.size[0] else start + len(keys)


def _random_directions(rows: int, features: int) -> Tensor:
    return nn.functional.normalize(torch.randn(rows, features), dim=-1)


def _check_gather(gather_distributed: bool) -> None:
    if gather_distributed and not torch.distributed.is_available():
        refuse("gather_distributed", True, "False: this build of torch has no torch.distributed")


class DCLLoss(nn.Module):
    """`lightly.loss.DCLLoss`: NT-Xent with the positive out of the denominator.

    Args:
        temperature: divides the similarities.
        weight_fn: of the normalized (B, D) views, weights of the positives: (B,) or a number, for each direction.
        gather_distributed: negatives come from all processes.

    A batch of one has no negatives and a loss of 0, where lightly's is -inf.
    """

    def __init__(
        self,
        temperature: float = 0.1,
        weight_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
        gather_distributed: bool = False,
    ) -> None:
        super().__init__()
        check_positive("temperature", temperature)
        _check_gather(gather_distributed)
        self.temperature, self.weight_fn, self.gather_distributed = temperature, weight_fn, gather_distributed

    def forward(self, out0: Tensor, out1: Tensor) -> Tensor:
        """(B, D) twice, normalized here, to a scalar."""

        def loss(ids: Tensor | None) -> Tensor:
            rows = decoupled(out0, out1, temperature=self.temperature, ids=ids, reduction="none")  # (2B,)
            return (rows + self._weight_term(out0, out1)).mean()

        return loss_over_processes(loss, out0) if self.gather_distributed and is_distributed() else loss(None)

    def _weight_term(self, out0: Tensor, out1: Tensor) -> Tensor | float:
        """(2B,), the addition to the loss of each view by weights other than 1."""
        if self.weight_fn is None:
            return 0.0
        z0, z1 = l2_normalize(out0), l2_normalize(out1)
        weights = torch.cat([_weights(self.weight_fn(z0, z1), z0), _weights(self.weight_fn(z1, z0), z0)])  # (2B,)
        return (1 - weights) * paired_similarity(z0, z1).repeat(2) / self.temperature


def _weights(given: Tensor | float, like: Tensor) -> Tensor:
    """(B,), from one weight for each row, or one for all."""
    weights = torch.as_tensor(given, dtype=like.dtype, device=like.device)
    if weights.shape not in ((), (1,), (len(like),)):
        refuse("weight_fn's shape", tuple(weights.shape), f"({len(like)},), a weight for each row, or a single number")
    return weights.expand(len(like))


class DCLWLoss(DCLLoss):
    """`lightly.loss.DCLWLoss`: decoupled, with more weight on distant positives, `2 - B softmax(<z0, z1> / sigma)`."""

    def __init__(self, temperature: float = 0.1, sigma: float = 0.5, gather_distributed: bool = False) -> None:
        super().__init__(temperature, partial(_mises_fisher, sigma=sigma), gather_distributed)


def _mises_fisher(z0: Tensor, z1: Tensor, sigma: float) -> Tensor:
    similarity = paired_similarity(z0.detach(), z1.detach()) / sigma  # (B,)
    return 2 - len(z0) * similarity.softmax(0)


class NegativeCosineSimilarity(nn.Module):
    """`lightly.loss.NegativeCosineSimilarity`: minus the mean cosine of rows; SimSiam's loss if one is detached."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        if dim not in (1, -1):
            refuse("dim", dim, "1: rows are samples; transpose the input")
        if eps != 1e-8:
            refuse("eps", eps, "1e-8; rows of zeros get no gradient here, whatever eps is")

    def forward(self, x0: Tensor, x1: Tensor) -> Tensor:
        """(B, D) twice to a scalar."""
        check_pair("x0", x0, "x1", x1)
        return -paired_similarity(l2_normalize(x0), l2_normalize(x1)).mean()


class BarlowTwinsLoss(nn.Module):
    """`lightly.loss.BarlowTwinsLoss`.

    With several processes lightly standardizes the rows of each process separately and averages their matrices. That
    is not the loss of one process with all rows, and is not supported here.
    """

    def __init__(self, lambda_param: float = 5e-3, gather_distributed: bool = False) -> None:
        super().__init__()
        _check_gather(gather_distributed)
        self.lambda_param, self.gather_distributed = lambda_param, gather_distributed

    def forward(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """(B, D) twice to a scalar."""
        if self.gather_distributed and is_distributed():
            refuse("gather_distributed", True, "False; nearfar.distributed.gather_rows gives all rows to this loss")
        return barlow_twins(z_a, z_b, redundancy_weight=self.lambda_param)


class ShapeError(ValueError, AssertionError):
    """What lightly raises for a shape, and what losses here raise."""


class VICRegLoss(nn.Module):
    """`lightly.loss.VICRegLoss`, of (B, D) or (B, ..., D); several processes need the same number of rows.

    With more than two dimensions it is the mean of the losses at each place between.
    """

    def __init__(
        self,
        lambda_param: float = 25.0,
        mu_param: float = 25.0,
        nu_param: float = 1.0,
        gather_distributed: bool = False,
        eps: float = 0.0001,
    ) -> None:
        super().__init__()
        _check_gather(gather_distributed)
        if eps != 0.0001:
            refuse("eps", eps, "0.0001, as the authors of VICReg have it")
        self.lambda_param, self.mu_param, self.nu_param = lambda_param, mu_param, nu_param
        self.gather_distributed = gather_distributed

    def forward(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """(B, D) or (B, ..., D) twice to a scalar."""
        if z_a.shape != z_b.shape:
            raise ShapeError(f"z_a has shape {tuple(z_a.shape)} and z_b {tuple(z_b.shape)}, expected the same")
        if z_a.ndim < 2 or len(z_a) < 2:
            raise ShapeError(f"z_a has shape {tuple(z_a.shape)}, expected (batch, ..., features), 2 rows or more")
        if z_a.ndim > 2:
            places = zip(z_a.flatten(1, -2).unbind(1), z_b.flatten(1, -2).unbind(1), strict=True)
            return torch.stack([self(a, b) for a, b in places]).mean()
        difference: Tensor | float = 0.0
        if self.gather_distributed and is_distributed():
            check_pair("z_a", z_a, "z_b", z_b)
            shard, _ = shard_and_ids(z_a)
            if len(set(shard.sizes)) > 1:
                refuse("z_a", tuple(z_a.shape), f"the same number of rows on each process, not {shard.sizes}")
            of_all = shard.gather((z_a - z_b).square()).mean()
            own = (z_a - z_b).detach().square().mean()  # lightly takes the distance between views on each process
            difference = self.lambda_param * (own - of_all)
            z_a, z_b = gather_rows(z_a, shard), gather_rows(z_b, shard)
        weights = {"invariance_weight": self.lambda_param, "variance_weight": self.mu_param}
        return vicreg(z_a, z_b, **weights, covariance_weight=self.nu_param) + difference
