"""The gradient of InfoNCE in closed form, and how the temperature concentrates it on hard negatives."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.lab.sphere import log_mean_exp, mean_cosine, positive_inverse
from nearfar.losses import info_nce

_ANGLES = 200_001


def gradient_in_similarities(positive: Tensor, negatives: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """`∂L/∂s⁺ = (P⁺ - 1) / τ` and `∂L/∂s⁻ⱼ = Pⱼ / τ`, P the softmax of the similarities over τ.

    Args:
        positive: (B,) similarities s⁺.
        negatives: (B, M) similarities s⁻.

    Returns:
        (B,) and (B, M) of the loss of each query; together they sum to 0.
    """
    p = torch.cat([positive[:, None], negatives], 1).div(temperature).softmax(1)  # (B, 1 + M)
    return (p[:, 0] - 1) / temperature, p[:, 1:] / temperature


def autograd_in_similarities(positive: Tensor, negatives: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The same from `losses.info_nce` by autograd: a query of similarities, with the axes as keys."""
    s = torch.cat([positive[:, None], negatives], 1).detach().clone().requires_grad_()  # (B, 1 + M)
    axes = torch.eye(s.shape[1], dtype=s.dtype)
    first = axes[:1].expand(len(s), -1).contiguous()
    loss = info_nce(s, first, axes[1:], temperature=temperature, similarity="dot", reduction="sum")
    (found,) = torch.autograd.grad(loss, s)
    return found[:, 0], found[:, 1:]


def gradient_in_query(query: Tensor, positive: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """(B, D), of each query's loss with cosine similarity: `τ⁻¹ [(P⁺ - 1) k⁺ + Σ Pⱼ kⱼ]` along the sphere, over |q|.

    Args:
        query, positive: (B, D); normalised here.
        negatives: (M, D), of all queries; normalised here.
    """
    q, k, others = (F.normalize(x, dim=1) for x in (query, positive, negatives))
    near, far = gradient_in_similarities((q * k).sum(1), q @ others.T, temperature)
    full = near[:, None] * k + far @ others
    along: Tensor = (full - (full * q).sum(1, keepdim=True) * q) / query.norm(dim=1, keepdim=True)
    return along


def negative_weights(negatives: Tensor, temperature: float) -> Tensor:
    """(B, M), the fraction of the gradient that each negative gets: `softmax(s⁻ / τ)`.

    Reference: Wang & Liu 2021, the relative penalty, https://arxiv.org/abs/2012.09740
    """
    return (negatives / temperature).softmax(1)


def effective_negatives(negatives: Tensor, temperature: float) -> Tensor:
    """(B,), the exponential of the entropy of the weights: 1 if the hardest gets all, M if all get the same."""
    entropy: Tensor = torch.special.entr(negative_weights(negatives, temperature)).sum(1)
    return entropy.exp()


def hardest_weight(negatives: Tensor, temperature: float, part: float) -> Tensor:
    """(B,), the weight of the hardest `part` of the negatives."""
    count = max(1, round(part * negatives.shape[1]))
    return negative_weights(negatives, temperature).topk(count, 1).values.sum(1)


def uniform_effective_fraction(temperature: float, dimension: int) -> float:
    """`effective_negatives` / M for many uniform negatives.

    The weights turn the uniform distribution into a von Mises-Fisher one of concentration 1/τ, and the fraction is
    `exp(-KL)` of the two, `KL = κ A(κ) - log E[e^{κ cos}]`.
    """
    kappa = positive_inverse("temperature", temperature)
    return math.exp(log_mean_exp(kappa, dimension) - kappa * mean_cosine(kappa, dimension))


def uniform_hardest_weight(temperature: float, dimension: int, part: float) -> float:
    """`hardest_weight` for many uniform negatives: the mass of that distribution in the cap of area `part`."""
    angle = torch.linspace(0, math.pi, _ANGLES, dtype=torch.float64)
    area = torch.cumulative_trapezoid(angle.sin() ** (dimension - 2), angle)
    tilted = angle.sin() ** (dimension - 2) * ((angle.cos() - 1) * positive_inverse("temperature", temperature)).exp()
    mass = torch.cumulative_trapezoid(tilted, angle)
    place = int(torch.searchsorted(area / area[-1], torch.tensor(part, dtype=torch.float64)))
    return float(mass[place] / mass[-1])
