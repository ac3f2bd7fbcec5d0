"""Muon: momentum whose matrices are made orthogonal before the step; AdamW for norms, biases and scalars."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from nearfar.nn.shard import is_sharded

# An odd polynomial a x + b x³ + c x⁵ whose iterates bring every singular value in (0, 1] near 1 within five steps.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


@torch.no_grad()
def orthogonalize(matrix: Tensor, steps: int = 5) -> Tensor:
    """(M, N) to a matrix with the same singular vectors, whose singular values are near 1 (about 0.7 to 1.2).

    Newton-Schulz iterations: with G = U S Vᵀ the result is about U Vᵀ, by products of matrices alone.

    Reference: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/

    >>> singular = torch.linalg.svdvals(orthogonalize(torch.randn(8, 20, generator=torch.Generator().manual_seed(0))))
    >>> bool(0.6 < singular.min()) and bool(singular.max() < 1.3)
    True
    """
    a, b, c = COEFFICIENTS
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp_min(1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon(torch.optim.Optimizer):
    """Matrices and kernels move by their orthogonalised momentum, everything else by AdamW.

    A kernel (out, in, height, width) is the matrix (out, in · height · width). The step of a matrix of M rows and N
    columns is scaled by max(1, M / N)^½, so that it changes outputs alike for all shapes.

    Args:
        params: parameters or groups. A group with `adapt` False is of norms, biases and scalars, as
            `Method.parameter_groups` gives them; parameters of fewer than two dimensions are so anyway.
        lr: of the matrices.
        momentum: of the matrices, with Nesterov's look ahead.
        scalar_lr: of everything else, relative to `lr`.
        betas, eps: of AdamW.
        weight_decay: decoupled: weights shrink by lr · weight_decay.

    Under FSDP each process orthogonalises the whole matrix and applies its own part.

    Reference: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; AdamW https://arxiv.org/abs/1711.05101
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float = 0.02,
        momentum: float = 0.95,
        scalar_lr: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "scalar_lr": scalar_lr, "betas": betas, "eps": eps}
        super().__init__(params, {**defaults, "weight_decay": weight_decay, "adapt": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                if group["adapt"] and weight.ndim > 1:
                    self._move_matrix(weight, group)
                else:
                    self._move_scalars(weight, group)
        return loss

    def _move_matrix(self, weight: Tensor, group: dict[str, Any]) -> None:
        state, gradient = self.state[weight], weight.grad
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
        ahead = gradient.lerp(momentum, group["momentum"])
        whole = ahead.full_tensor() if is_sharded(ahead) else ahead  # type: ignore[attr-defined]
        update = orthogonalize(whole.flatten(1)).view_as(whole)
        rows, columns = len(whole), whole[0].numel()
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(_like(update, weight), alpha=-group["lr"] * math.sqrt(max(1.0, rows / columns)))

    def _move_scalars(self, weight: Tensor, group: dict[str, Any]) -> None:
        state, gradient, lr = self.state[weight], weight.grad, group["lr"] * group["scalar_lr"]
        assert gradient is not None
        if "step" not in state:
            state["step"] = torch.tensor(0.0)
            state["mean"], state["square"] = torch.zeros_like(weight), torch.zeros_like(weight)
        state["step"] += 1
        first, second = group["betas"]
        mean = state["mean"].lerp_(gradient, 1 - first)
        square = state["square"].lerp_(gradient.square(), 1 - second)
        step = float(state["step"])
        root = (square / (1 - second**step)).sqrt_().add_(group["eps"])
        weight.mul_(1 - lr * group["weight_decay"])
        weight.sub_(mean / root, alpha=lr / (1 - first**step))


def _like(whole: Tensor, weight: Tensor) -> Tensor:
    """A whole tensor, which every process has, cut as a sharded weight is (FSDP)."""
    if not is_sharded(weight):
        return whole
    from torch.distributed.tensor import DTensor, Replicate

    assert isinstance(weight, DTensor)
    mesh = weight.device_mesh
    everywhere = DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return everywhere.redistribute(mesh, weight.placements)
