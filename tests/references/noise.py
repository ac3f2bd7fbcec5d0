"""InstDisc's noise-contrastive estimation, Wu et al. 2018."""

import torch
from torch import Tensor

from tests.references.similarity import cosine


def _noise_of(noise: Tensor, i: int) -> list[Tensor]:
    return list(noise if noise.ndim == 2 else noise[i])


def log_normalizer(query: Tensor, noise: Tensor, temperature: float | Tensor, bank_size: int) -> Tensor:
    """Eq. 8, over every query of the batch: log of n times the mean exponential."""
    exponentials = [
        (cosine(query[i], other) / temperature).exp() for i in range(len(query)) for other in _noise_of(noise, i)
    ]
    return (bank_size * sum(exponentials) / len(exponentials)).log().detach()


def nce(
    query: Tensor,
    positive: Tensor,
    noise: Tensor,
    temperature: float | Tensor,
    bank_size: int,
    log_normalizer: float | Tensor,
    proximal: float = 0.0,
) -> Tensor:
    """Eqs. 4 to 7 and 9."""
    z = torch.as_tensor(log_normalizer).to(query).exp()
    rows = []
    for i in range(len(query)):
        others = _noise_of(noise, i)
        noise_mass = len(others) / bank_size  # m Pₙ
        p = (cosine(query[i], positive[i]) / temperature).exp() / z
        total = -(p / (p + noise_mass)).log()
        for other in others:
            p = (cosine(query[i], other) / temperature).exp() / z
            total = total - (noise_mass / (p + noise_mass)).log()
        moved = query[i] / query[i].square().sum().sqrt() - positive[i] / positive[i].square().sum().sqrt()
        rows.append(total + proximal * moved.square().sum())
    return torch.stack(rows)
