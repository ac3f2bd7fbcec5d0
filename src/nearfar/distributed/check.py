"""The certificate: every loss and its gradient against the plain dense formula in float64, on this machine."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar import losses

TOLERANCE = 1e-4  # relative, for float32 against float64
_ROWS, _FEATURES, _TEMPERATURE = 96, 16, 0.1

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of two views and a temperature


class Certificate(NamedTuple):
    """How far a loss is from its definition."""

    loss: str
    tile: int | None
    value_error: float  # relative
    gradient_error: float  # relative, over embeddings and temperature together

    @property
    def passed(self) -> bool:
        return self.value_error <= TOLERANCE and self.gradient_error <= TOLERANCE


def certify(
    device: torch.device | str = "cpu", tiles: tuple[int | None, ...] = (None, 7, 32), seed: int = 0
) -> Iterator[Certificate]:
    """Compare each loss, in float32 and in tiles of several sizes, with its dense float64 formula."""
    generator = torch.Generator().manual_seed(seed)
    z1, z2 = torch.randn(2, _ROWS, _FEATURES, generator=generator, dtype=torch.float64)
    z2 = z1 + 0.5 * z2
    for name, (loss, definition) in PAIRS.items():
        truth, true_gradient = _value_and_gradient(definition, z1, z2)
        for tile in tiles:
            if tile is None:
                value, gradient = _value_and_gradient(loss, z1.float().to(device), z2.float().to(device))
            else:
                with losses.tile_size(tile):
                    value, gradient = _value_and_gradient(loss, z1.float().to(device), z2.float().to(device))
            yield Certificate(name, tile, _relative(value, truth), _relative(gradient, true_gradient))


def large_batch(pairs: int, device: torch.device | str = "cpu", features: int = 128) -> tuple[float, float]:
    """Seconds and loss of one NT-Xent step, forward and backward, on random embeddings."""
    z1, z2 = torch.randn(2, pairs, features, device=device).requires_grad_()
    start = time.perf_counter()
    loss = losses.nt_xent(z1, z2, temperature=_TEMPERATURE)
    loss.backward()
    value = float(loss.detach())  # waits for the device
    return time.perf_counter() - start, value


def _value_and_gradient(loss: Loss, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    leaves = [z1.clone().requires_grad_(), z2.clone().requires_grad_()]
    temperature = torch.tensor(_TEMPERATURE, dtype=z1.dtype, device=z1.device, requires_grad=True)
    value = loss(leaves[0], leaves[1], temperature)
    gradients = torch.autograd.grad(value, [*leaves, temperature], allow_unused=True, materialize_grads=True)
    return value.detach().double().cpu(), torch.cat([g.flatten() for g in gradients]).double().cpu()


def _relative(seen: Tensor, expected: Tensor) -> float:
    return float((seen - expected).norm() / expected.norm().clamp(min=1e-12))


# The definitions: one dense matrix, one plain line each.


def _dense_nt_xent(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    s = (z @ z.T / t).fill_diagonal_(-torch.inf)
    return F.cross_entropy(s, torch.arange(len(z)).roll(len(z1)))


def _dense_info_nce(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    return F.cross_entropy(F.normalize(z1, dim=1) @ F.normalize(z2, dim=1).T / t, torch.arange(len(z1)))


def _dense_symmetric(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    return (_dense_info_nce(z1, z2, t) + _dense_info_nce(z2, z1, t)) / 2


def _views(z1: Tensor, z2: Tensor, t: Tensor) -> tuple[Tensor, Tensor, int]:
    """Similarities of the 2B views with their negatives (-inf elsewhere) and their twins, and how many negatives."""
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    same = torch.eye(len(z1), dtype=torch.bool).repeat(2, 2)
    s = z @ z.T / t
    return s.masked_fill(same, -torch.inf), s.diagonal(len(z1)).repeat(2), len(z) - 2


def _dense_decoupled(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    negatives, twin, _ = _views(z1, z2, t)
    return (negatives.logsumexp(1) - twin).mean()


def _dense_hard(z1: Tensor, z2: Tensor, t: Tensor, beta: float, prior: float) -> Tensor:
    negatives, twin, n = _views(z1, z2, t)
    weights = (beta * negatives).softmax(1) if beta else negatives.isfinite() / n
    mean = (weights * negatives.exp()).sum(1)
    rest = torch.maximum((n * mean - n * prior * twin.exp()) / (1 - prior), n * (-1 / t).exp())
    return ((twin.exp() + rest).log() - twin).mean()


def _dense_top_k(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    negatives, twin, _ = _views(z1, z2, t)
    return (torch.cat([twin[:, None], negatives.topk(8).values], 1).logsumexp(1) - twin).mean()


def _labels(rows: int, device: torch.device | str = "cpu") -> Tensor:
    return torch.arange(rows, device=device) % 5


def _dense_sup_con(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    z, labels = F.normalize(torch.cat([z1, z2]), dim=1), _labels(2 * len(z1))
    s = (z @ z.T / t).fill_diagonal_(-torch.inf)
    positive = (labels[:, None] == labels).fill_diagonal_(False)
    log_p = (s - s.logsumexp(1, keepdim=True)).masked_fill(~positive, 0.0)
    return (-log_p.sum(1) / positive.sum(1)).mean()


def _dense_sigmoid(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    logits = F.normalize(z1, dim=1) @ F.normalize(z2, dim=1).T / t - 10
    return -F.logsigmoid(logits * (2 * torch.eye(len(z1), dtype=z1.dtype) - 1)).sum() / len(z1)


def _dense_nce(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    v, memory = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
    noise, log_z = memory.flip(0), 9.0
    p_data, p_noise = ((v * memory).sum(1) / t - log_z).exp(), (v @ noise.T / t - log_z).exp()
    density = len(noise) / 1000
    return -((p_data / (p_data + density)).log() + (density / (p_noise + density)).log().sum(1)).mean()


def _dense_triplet(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    near, far = (z1 - z2).square().sum(1).sqrt(), (z1 - z2.roll(1, 0)).square().sum(1).sqrt()
    return (near - far + 6).clamp(min=0).mean()


def _dense_batch_triplet(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    z, labels = torch.cat([z1, z2]), _labels(2 * len(z1))
    apart = (z[:, None] - z).square().sum(2).clamp(min=1e-300).sqrt()
    same = labels[:, None] == labels
    farthest = apart.masked_fill(~same, -torch.inf).amax(1)
    return (farthest - apart.masked_fill(same, torch.inf).amin(1) + 1).clamp(min=0).mean()


def _dense_cosine_regression(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    return (2 - 2 * F.cosine_similarity(z1, z2.detach())).mean()


def _dense_barlow_twins(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    a, b = (F.batch_norm(z, None, None, training=True) for z in (z1, z2))
    off = a.T @ b / len(a) - torch.eye(z1.shape[1], dtype=z1.dtype)
    return off.diagonal().square().sum() + 0.0051 * (off.square().sum() - off.diagonal().square().sum())


def _dense_vicreg(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    total = 25 * (z1 - z2).square().mean()
    for z in (z1, z2):
        covariance = torch.cov(z.T)
        spread = (covariance.diagonal() + 1e-4).sqrt()
        off = covariance.square().sum() - covariance.diagonal().square().sum()
        total = total + 12.5 * (1 - spread).clamp(min=0).mean() + off / z.shape[1]
    return total


PAIRS: dict[str, tuple[Loss, Loss]] = {
    "info_nce": (lambda a, b, t: losses.info_nce(a, b, temperature=t), _dense_info_nce),
    "nt_xent": (lambda a, b, t: losses.nt_xent(a, b, temperature=t), _dense_nt_xent),
    "symmetric_info_nce": (lambda a, b, t: losses.symmetric_info_nce(a, b, temperature=t), _dense_symmetric),
    "decoupled": (lambda a, b, t: losses.decoupled(a, b, temperature=t), _dense_decoupled),
    "debiased": (
        lambda a, b, t: losses.debiased(a, b, temperature=t, positive_prior=0.01),
        lambda a, b, t: _dense_hard(a, b, t, 0.0, 0.01),
    ),
    "hard_negative": (
        lambda a, b, t: losses.hard_negative(a, b, temperature=t, beta=0.5, positive_prior=0.01),
        lambda a, b, t: _dense_hard(a, b, t, 0.5, 0.01),
    ),
    "top_k_info_nce": (lambda a, b, t: losses.top_k_info_nce(a, b, temperature=t, k=8), _dense_top_k),
    "sup_con": (
        lambda a, b, t: losses.sup_con(torch.cat([a, b]), _labels(2 * len(a), a.device), temperature=t),
        _dense_sup_con,
    ),
    "sigmoid_pairs": (
        lambda a, b, t: losses.sigmoid_pairs(a, b, logit_scale=1 / t, logit_bias=-10.0),
        _dense_sigmoid,
    ),
    "nce": (
        lambda a, b, t: losses.nce(a, b, b.flip(0), temperature=t, bank_size=1000, log_normalizer=9.0),
        _dense_nce,
    ),
    "triplet": (lambda a, b, t: losses.triplet(a, b, b.roll(1, 0), margin=6.0), _dense_triplet),
    "batch_triplet": (
        lambda a, b, t: losses.batch_triplet(torch.cat([a, b]), _labels(2 * len(a), a.device), margin=1.0),
        _dense_batch_triplet,
    ),
    "cosine_regression": (lambda a, b, t: losses.cosine_regression(a, b), _dense_cosine_regression),
    "barlow_twins": (lambda a, b, t: losses.barlow_twins(a, b), _dense_barlow_twins),
    "vicreg": (lambda a, b, t: losses.vicreg(a, b), _dense_vicreg),
}
