"""Losses of lightly (1.6), by their names, arguments and defaults: `from nearfar.adapters.lightly import NTXentLoss`.

The matrix of similarities is never held, and with `gather_distributed=True` the rows of other processes pass by instead
of being gathered.

What may surprise in lightly, and is the same here:

- The loss of a process is that of its own rows. The gradient of a row is that of the sum of all processes' losses: as
  many times that of their mean as there are processes, which DDP's average takes back. Without DDP, divide.
- `gather_distributed` is False unless asked for: each process then knows the negatives of its own rows alone.
- The memory bank begins with random directions, and is no part of the state dict; where a batch passes its end, what
  does not fit is dropped. It moves whenever `out0` has a gradient. `nearfar.nn.queue.Queue` has none of this; use
  `nearfar.losses.info_nce(query, key, queue.keys(), temperature=...)` with it.
- `NegativeCosineSimilarity` sends its gradient to both sides: detach the target.

What is another: a row of zeros gets no gradient (there, its direction's times 1e8 or more), and half precision is
widened to float32.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from nearfar.adapters.processes import among_all, refuse, several, share_and_ids
from nearfar.distributed.gather import gather_rows
from nearfar.losses import barlow_twins, decoupled, info_nce, nt_xent, vicreg
from nearfar.losses.arguments import check_pair, check_positive, unit
from nearfar.losses.engine.similarity import paired_similarity
from nearfar.nn.shard import rows_of_all

__all__ = ["BarlowTwinsLoss", "DCLLoss", "DCLWLoss", "NTXentLoss", "NegativeCosineSimilarity", "VICRegLoss"]


class NTXentLoss(nn.Module):
    """`lightly.loss.NTXentLoss`: SimCLR's loss, or with a memory bank MoCo's, of `out0` alone.

    Args:
        temperature: divides the similarities; may be set anew between steps.
        memory_bank_size: 0, or (rows, features).
        gather_distributed: negatives come from all processes; with a bank, all fill it.

    >>> z0, z1 = torch.eye(4), torch.eye(4)
    >>> NTXentLoss(temperature=0.5)(z0, z1).equal(nt_xent(z0, z1, temperature=0.5))
    True
    """

    def __init__(
        self,
        temperature: float = 0.5,
        memory_bank_size: int | Sequence[int] = 0,
        gather_distributed: bool = False,
    ) -> None:
        super().__init__()
        check_positive("temperature", temperature)
        self.temperature, self.gather_distributed = temperature, gather_distributed
        self.memory_bank = _MemoryBank(memory_bank_size, gather_distributed)

    def forward(self, out0: Tensor, out1: Tensor) -> Tensor:
        """(B, D) twice, normalised here, to a scalar."""
        if self.memory_bank.size[0]:
            check_pair("out0", out0, "out1", out1)
            negatives = self.memory_bank.bank.clone()
            if out0.requires_grad:
                self.memory_bank.take(unit(out1))
            return info_nce(out0, out1, negatives, temperature=self.temperature)

        def loss(ids: Tensor | None) -> Tensor:
            return nt_xent(out0, out1, temperature=self.temperature, ids=ids)

        return among_all(loss, out0) if self.gather_distributed and several() else loss(None)


class _MemoryBank(nn.Module):
    """The last keys, as lightly keeps them: random directions at first, and what passes the end is dropped."""

    bank: Tensor  # (rows, features)
    bank_ptr: Tensor  # (1,)

    def __init__(self, size: int | Sequence[int], gather_distributed: bool = False) -> None:
        super().__init__()
        self.size = (size,) if isinstance(size, int) else tuple(size)
        if self.size != (0,) and (len(self.size) != 2 or min(self.size) < 0):
            refuse("memory_bank_size", size, "0, or (rows, features)")
        self.gather_distributed = gather_distributed
        rows = nn.functional.normalize(torch.randn(self.size), dim=-1) if len(self.size) == 2 else torch.empty(0)
        self.register_buffer("bank", rows, persistent=False)
        self.register_buffer("bank_ptr", torch.zeros(1, dtype=torch.long), persistent=False)

    @torch.no_grad()
    def take(self, keys: Tensor) -> None:
        """Write (B, D) over the oldest rows."""
        if self.gather_distributed and several():
            keys = rows_of_all(keys, share_and_ids(keys)[0])
        start = int(self.bank_ptr)
        written = keys[: self.size[0] - start].to(self.bank)
        self.bank[start : start + len(written)] = written
        self.bank_ptr[0] = 0 if start + len(keys) >= self.size[0] else start + len(keys)


class DCLLoss(nn.Module):
    """`lightly.loss.DCLLoss`: NT-Xent with the positive out of the denominator.

    Args:
        temperature: divides the similarities.
        weight_fn: of the normalised (B, D) views, weights of the positives: (B,) or a number; asked for each way.
        gather_distributed: negatives come from all processes.

    A batch of one has no negatives and costs 0, where lightly's loss is -inf.
    """

    def __init__(
        self,
        temperature: float = 0.1,
        weight_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
        gather_distributed: bool = False,
    ) -> None:
        super().__init__()
        check_positive("temperature", temperature)
        self.temperature, self.weight_fn, self.gather_distributed = temperature, weight_fn, gather_distributed

    def forward(self, out0: Tensor, out1: Tensor) -> Tensor:
        """(B, D) twice, normalised here, to a scalar."""

        def loss(ids: Tensor | None) -> Tensor:
            rows = decoupled(out0, out1, temperature=self.temperature, ids=ids, reduction="none")  # (2B,)
            return (rows + self._more(out0, out1)).mean()

        return among_all(loss, out0) if self.gather_distributed and several() else loss(None)

    def _more(self, out0: Tensor, out1: Tensor) -> Tensor | float:
        """(2B,), what weights other than 1 add to the loss of each view."""
        if self.weight_fn is None:
            return 0.0
        z0, z1 = unit(out0), unit(out1)
        weights = torch.cat([_weights(self.weight_fn(z0, z1), z0), _weights(self.weight_fn(z1, z0), z0)])  # (2B,)
        return (1 - weights) * paired_similarity(z0, z1).repeat(2) / self.temperature


def _weights(given: Tensor | float, like: Tensor) -> Tensor:
    """(B,), one weight for each row, or one for all of them."""
    weights = torch.as_tensor(given, dtype=like.dtype, device=like.device)
    if weights.shape not in ((), (1,), (len(like),)):
        refuse("weight_fn's shape", tuple(weights.shape), f"({len(like)},), a weight for each row, or a single number")
    return weights.expand(len(like))


class DCLWLoss(DCLLoss):
    """`lightly.loss.DCLWLoss`: decoupled, far positives weighted up, by `2 - B softmax(<z0, z1> / sigma)`."""

    def __init__(self, temperature: float = 0.1, sigma: float = 0.5, gather_distributed: bool = False) -> None:
        super().__init__(temperature, partial(_mises_fisher, sigma=sigma), gather_distributed)


def _mises_fisher(z0: Tensor, z1: Tensor, sigma: float) -> Tensor:
    similarity = paired_similarity(z0.detach(), z1.detach()) / sigma  # (B,)
    return 2 - len(z0) * similarity.softmax(0)


class NegativeCosineSimilarity(nn.Module):
    """`lightly.loss.NegativeCosineSimilarity`: minus the mean cosine of rows; SimSiam's loss where one is detached."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        if dim not in (1, -1):
            refuse("dim", dim, "1: rows are samples here; transpose what is otherwise")
        if eps != 1e-8:
            refuse("eps", eps, "1e-8; rows of zeros get no gradient here, whatever eps is")

    def forward(self, x0: Tensor, x1: Tensor) -> Tensor:
        """(B, D) twice to a scalar."""
        check_pair("x0", x0, "x1", x1)
        return -paired_similarity(unit(x0), unit(x1)).mean()


class BarlowTwinsLoss(nn.Module):
    """`lightly.loss.BarlowTwinsLoss`.

    Over several processes lightly standardises the rows of each by themselves, and averages their matrices: that is
    another loss than one process with all rows has, and is refused here.
    """

    def __init__(self, lambda_param: float = 5e-3, gather_distributed: bool = False) -> None:
        super().__init__()
        self.lambda_param, self.gather_distributed = lambda_param, gather_distributed

    def forward(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """(B, D) twice to a scalar."""
        if self.gather_distributed and several():
            refuse(
                "gather_distributed",
                True,
                "False with several processes; nearfar.distributed.gather_rows and nearfar.losses.barlow_twins "
                "give the loss of all rows",
            )
        return barlow_twins(z_a, z_b, redundancy_weight=self.lambda_param)


class VICRegLoss(nn.Module):
    """`lightly.loss.VICRegLoss`, of (B, D); over several processes of as many rows each."""

    def __init__(
        self,
        lambda_param: float = 25.0,
        mu_param: float = 25.0,
        nu_param: float = 1.0,
        gather_distributed: bool = False,
        eps: float = 0.0001,
    ) -> None:
        super().__init__()
        if eps != 0.0001:
            refuse("eps", eps, "0.0001, as the authors of VICReg have it")
        self.lambda_param, self.mu_param, self.nu_param = lambda_param, mu_param, nu_param
        self.gather_distributed = gather_distributed

    def forward(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """(B, D) twice to a scalar."""
        if not (self.gather_distributed and several()):
            return self._loss(z_a, z_b)
        check_pair("z_a", z_a, "z_b", z_b)
        share, _ = share_and_ids(z_a)
        if len(set(share.sizes)) > 1:
            refuse("z_a", tuple(z_a.shape), f"as many rows on each process, and they have {share.sizes}")
        everything = self._loss(gather_rows(z_a, share), gather_rows(z_b, share))
        of_all = rows_of_all((z_a - z_b).square(), share).mean()
        own = (z_a - z_b).detach().square().mean()  # the distance between views is of a process' own rows
        return everything + self.lambda_param * (own - of_all)

    def _loss(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        return vicreg(
            z_a,
            z_b,
            invariance_weight=self.lambda_param,
            variance_weight=self.mu_param,
            covariance_weight=self.nu_param,
        )
