"""Multinomial logistic regression to the optimum: a convex problem whose cost is passes over the features."""

from collections import deque
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.devices import WITHOUT_FLOAT64, in_float64
from nearfar.losses.arguments import upcast_half
from nearfar.losses.engine.precision import no_autocast

_RANK = 256  # eigenvectors of the covariance that the curvature follows; the others count as alike
_PART = 1 << 18  # entries of the features processed together, so that forward and backward share the cache
_LOGITS = 1 << 22  # scores of sparse rows that are held at once
_MEMORY = 20  # steps that L-BFGS remembers
_SPARSE_MEMORY = 5  # the same of sparse features, which are many
_SINGLE = 1e-5  # gradient up to which float32 gets, and float64 goes on from


class Curvature(NamedTuple):
    """The covariance of standardised features: its largest eigenvalues one by one, the others by their mean."""

    values: Tensor  # (k,) float64
    vectors: Tensor  # (F, k) float64
    rest: float


def curvature(x: Tensor) -> Curvature:
    """The curvature of (M, F) features: exact up to 512 features, by subspace iteration for more.

    It only sets how quickly a fit comes to its minimum, not where that is.
    """
    features = x.shape[1]
    mean_square = float(x.square().mean())
    if features <= 2 * _RANK:
        values, vectors = torch.linalg.eigh(in_float64(x.T @ x) / len(x))
        return Curvature(values.clamp_min(0), vectors, 0.0)
    start = torch.randn(features, min(_RANK, len(x)), generator=torch.Generator().manual_seed(0)).to(x)
    basis = torch.linalg.qr(x.T @ (x @ start)).Q  # (F, k)
    projected = x @ basis  # (M, k)
    values, turn = torch.linalg.eigh(in_float64(projected.T @ projected) / len(x))
    values = values.clamp_min(0)
    rest = max(0.0, features * mean_square - float(values.sum())) / (features - len(values))
    return Curvature(values, in_float64(basis) @ turn, rest)


def fit_logistic(
    x: Tensor,
    labels: Tensor,
    *,
    classes: int,
    c: float,
    start: tuple[Tensor, Tensor] | None = None,
    shape: Curvature | None = None,
    iterations: int = 200,
    tolerance: float = 1e-6,
    refine: bool = False,
) -> tuple[Tensor, Tensor]:
    """The minimum of mean cross-entropy + ‖W‖² / (2 c M), by full-batch L-BFGS; the bias is free.

    Args:
        x: (M, F), standardised by the caller; or sparse, as it is.
        labels: (M,) int64.
        classes: C.
        c: inverse L2 strength, as scikit-learn's LogisticRegression has it.
        start: (C, F) weight and (C,) bias to begin from; zeros where None.
        shape: the `curvature` of about these features, to save computing it.
        iterations: at most as many.
        tolerance: stop when the gradient, measured by the inverse curvature, is no longer than this: its square is
            about twice what the objective could still fall.
        refine: go on in float64 where float32 ends, about 1e-3 off in probability.

    Returns:
        (C, F) weight and (C,) bias, float64; on the CPU where the device of x has none.
    """
    x = upcast_half(x)
    ridge = 1 / (c * len(x))
    with torch.no_grad(), no_autocast(x):
        problem: _Problem | _SparseProblem
        if x.is_sparse:
            if x.device.type in WITHOUT_FLOAT64:
                x, labels = x.cpu(), labels.cpu()
            problem = _SparseProblem(x, labels, classes, ridge)
        else:
            problem = _Problem(x, labels, classes, ridge, curvature(x) if shape is None else shape)
        point = in_float64(labels.new_zeros(classes, x.shape[1] + 1))
        if start is not None:
            point = torch.cat([start[0], start[1][:, None]], 1).to(point)
        search = _Search(problem, point, _SPARSE_MEMORY if x.is_sparse else _MEMORY)
        single = x.dtype == torch.float32
        search.run(iterations, max(tolerance, _SINGLE) if single else tolerance)
        if single and (refine or tolerance < _SINGLE):
            if refine:
                problem.x = in_float64(x)
                problem.labels = labels.to(problem.x.device)
            search.evaluate()
            search.run(iterations, tolerance)
    return search.point[:, :-1].clone(), search.point[:, -1].clone()


class _Problem:
    """The objective, its gradient and its approximate inverse Hessian, at points (C, F + 1): weights and the bias."""

    def __init__(self, x: Tensor, labels: Tensor, classes: int, ridge: float, shape: Curvature) -> None:
        self.x, self.labels, self.ridge, self.shape = x, labels, ridge, shape
        # At W = 0 the Hessian of a class is p(1 - p) times the covariance, plus the ridge. One feature's variance is
        # added: where classes separate, the Hessian at the minimum is far smaller than at 0, and the ridge weighs more.
        self.share = (classes - 1) / classes**2
        self.inside = 1 / (self.share * (shape.values + 1) + ridge)  # (k,)
        self.outside = 1 / (self.share * (shape.rest + 1) + ridge)

    def __call__(self, point: Tensor) -> tuple[float, Tensor]:
        """The objective and its gradient (C, F + 1), from one pass over the features."""
        x, weight, bias = self.x, point[:, :-1].to(self.x), point[:, -1].to(self.x)
        gradient, loss = torch.zeros_like(point), 0.0
        rows = len(x) if x.is_cuda else max(64, _PART // x.shape[1])
        summed, pushed = torch.zeros_like(weight), torch.zeros_like(bias)
        for part, labels in zip(x.split(rows), self.labels.split(rows), strict=True):
            logits = torch.addmm(bias, part, weight.T)  # (rows, C)
            log_p = logits.log_softmax(1)
            loss -= float(in_float64(log_p.gather(1, labels[:, None])).sum())
            error = log_p.exp_()
            error.scatter_add_(1, labels[:, None], -torch.ones_like(error[:, :1]))
            summed.addmm_(error.T, part)
            pushed += error.sum(0)
        gradient[:, :-1] = in_float64(summed) / len(x) + self.ridge * point[:, :-1]
        gradient[:, -1] = in_float64(pushed) / len(x)
        return loss / len(x) + self.ridge / 2 * float(point[:, :-1].square().sum()), gradient

    def solve(self, gradient: Tensor) -> Tensor:
        """(C, F + 1), the gradient by the inverse of the approximate Hessian."""
        step = gradient * self.outside
        inner = gradient[:, :-1] @ self.shape.vectors  # (C, k)
        step[:, :-1] += (inner * (self.inside - self.outside)) @ self.shape.vectors.T
        step[:, -1] = gradient[:, -1] / self.share
        return step


class _SparseProblem:
    """The same of sparse features, which are never held dense; the Hessian is approximated by its diagonal."""

    def __init__(self, x: Tensor, labels: Tensor, classes: int, ridge: float) -> None:
        self.x, self.labels, self.ridge = x.coalesce(), labels, ridge
        self.share = (classes - 1) / classes**2
        self.at_once = max(64, _LOGITS // classes)  # rows
        self.parts: list[tuple[Tensor, Tensor]] = []
        squares = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
        squares.index_add_(0, self.x.indices()[1], self.x.values().double().square())
        self.inverse = 1 / (self.share * (squares + squares.mean()) / len(x) + ridge)  # (F,)

    def __call__(self, point: Tensor) -> tuple[float, Tensor]:
        if not self.parts or self.parts[0][0].dtype != self.x.dtype:
            cut = [self.x.index_select(0, rows) for rows in torch.arange(len(self.x)).split(self.at_once)]
            self.parts = [(part, part.T) for part in cut]
        weight, bias = point[:, :-1].T.to(self.x.dtype).contiguous(), point[:, -1].to(self.x.dtype)
        gradient, loss = torch.zeros_like(point), 0.0
        for (part, turned), labels in zip(self.parts, self.labels.split(self.at_once), strict=True):
            log_p = (torch.sparse.mm(part, weight) + bias).log_softmax(1)  # (rows, C)
            loss -= float(in_float64(log_p.gather(1, labels[:, None])).sum())
            error = log_p.exp_()
            error.scatter_add_(1, labels[:, None], -torch.ones_like(error[:, :1]))
            gradient[:, :-1] += torch.sparse.mm(turned, error).T
            gradient[:, -1] += error.sum(0)
        gradient /= len(self.x)
        gradient[:, :-1] += self.ridge * point[:, :-1]
        return loss / len(self.x) + self.ridge / 2 * float(point[:, :-1].square().sum()), gradient

    def solve(self, gradient: Tensor) -> Tensor:
        return torch.cat([gradient[:, :-1] * self.inverse, gradient[:, -1:] / self.share], 1)


class _Search:
    """L-BFGS from a good first guess of the curvature, so that full steps nearly always do."""

    def __init__(self, problem: _Problem | _SparseProblem, point: Tensor, memory: int) -> None:
        self.problem, self.point = problem, point
        self.memory: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=memory)  # steps, their change of gradient
        self.evaluate()

    def evaluate(self) -> None:
        self.value, self.gradient = self.problem(self.point)

    def run(self, iterations: int, tolerance: float) -> None:
        """Until the gradient is within the tolerance, or rounding hides any way down."""
        for _ in range(iterations):
            if float((self.gradient * self.problem.solve(self.gradient)).sum()) <= tolerance**2:
                return
            if not self._step(self._direction()):
                return

    def _direction(self) -> Tensor:
        """Nocedal 1980, the two-loop recursion."""
        direction, shares = -self.gradient, []
        for moved, turned, inverse in reversed(self.memory):
            share = inverse * float((moved * direction).sum())
            direction = direction - share * turned
            shares.append(share)
        direction = self.problem.solve(direction)
        if self.memory and isinstance(self.problem, _SparseProblem):  # a diagonal is a poor guess: set right by a step
            _, turned, inverse = self.memory[-1]
            direction /= inverse * float((turned * self.problem.solve(turned)).sum())
        for (moved, turned, inverse), share in zip(self.memory, reversed(shares), strict=True):
            direction += (share - inverse * float((turned * direction).sum())) * moved
        return direction

    def _step(self, direction: Tensor) -> bool:
        """Along the direction as far as it leads down; False where it does not."""
        slope, length = float((self.gradient * direction).sum()), 1.0
        noise = 4 * torch.finfo(self.problem.x.dtype).eps * abs(self.value)
        for _ in range(20):
            point = self.point + length * direction
            value, gradient = self.problem(point)
            if value <= self.value + 1e-4 * length * slope + noise:
                moved, turned = point - self.point, gradient - self.gradient
                together = float((moved * turned).sum())
                if together > 0:  # always, but for rounding: the objective is strictly convex
                    self.memory.append((moved, turned, 1 / together))
                down = value < self.value or float(gradient.norm()) < float(self.gradient.norm())
                if down:
                    self.point, self.value, self.gradient = point, value, gradient
                return down
            length /= 2
        return False
