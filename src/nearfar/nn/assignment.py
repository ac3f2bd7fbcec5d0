"""Prototypes, and how samples are shared out among them: what SwAV and DINO have in common."""

import torch
from torch import Tensor, nn

from nearfar.losses.arguments import check_at_least, l2_normalize, upcast_half
from nearfar.nn.shard import local


class Prototypes(nn.Module):
    """K directions. Scores are cosines: rows and prototypes are of length 1.

    Args:
        dim: of the rows.
        count: K.
    """

    def __init__(self, dim: int, count: int) -> None:
        super().__init__()
        check_at_least("prototypes", count, 2)
        self.weight = nn.Linear(dim, count, bias=False).weight
        self.normalize()

    def forward(self, z: Tensor, *, frozen: Tensor | None = None) -> Tensor:
        """(B, dim) to scores (B, K).

        Args:
            frozen: () a boolean, whether the prototypes get no gradient.
        """
        weight = self.weight
        if frozen is not None:  # a gradient of 0, so that every parameter has one at every step
            weight = torch.where(frozen, weight.detach(), weight)
        return l2_normalize(z) @ l2_normalize(weight).T

    @torch.no_grad()
    def normalize(self) -> None:
        """Bring the weights back to length 1, which scores do not depend on, but steps do."""
        rows = local(self.weight)
        rows.copy_(l2_normalize(rows))

    def extra_repr(self) -> str:
        return f"dim={self.weight.shape[1]}, count={self.weight.shape[0]}"


@torch.no_grad()
def sinkhorn(scores: Tensor, *, epsilon: float, iterations: int = 3) -> Tensor:
    """(B, K) shares of each sample in each prototype, near to the scores, that use all prototypes alike.

    Alternately each prototype gets the same share of the batch, and each sample shares of sum 1; the samples come last.

    Args:
        scores: (B, K).
        epsilon: temperature; the smaller, the nearer are the shares to the largest score of each sample.

    Reference: Cuturi 2013, https://arxiv.org/abs/1306.0895; as in Caron et al. 2020, eq. 3,
    https://arxiv.org/abs/2006.09882

    >>> sinkhorn(torch.tensor([[1.0, 0.0], [0.9, 0.0]]), epsilon=0.05, iterations=100).sum(0).round(decimals=3).tolist()
    [1.0, 1.0]
    """
    check_at_least("epsilon", epsilon, 1e-6)
    shares = upcast_half(scores) / epsilon  # logarithms
    for _ in range(iterations):
        shares = shares - shares.logsumexp(0, keepdim=True)
        shares = shares - shares.logsumexp(1, keepdim=True)
    return shares.exp()


def soft_cross_entropy(target: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """() mean of `-Σ target · log softmax(scores / temperature)` over the rows (B, K)."""
    return -(target * (scores / temperature).log_softmax(1)).sum(1).mean()


def used_prototypes(probabilities: Tensor) -> Tensor:
    """() how many prototypes are in use: the exponential of the entropy of their mean probability. 1 is collapse.

    >>> used_prototypes(torch.eye(4))
    tensor(4.)
    """
    entropy: Tensor = torch.special.entr(probabilities.detach().mean(0)).sum()
    return entropy.exp()
