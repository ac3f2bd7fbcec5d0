"""Losses of pairs with a score: pairs of a higher score must be more similar."""

import torch
from torch import Tensor

from nearfar.losses import reference
from nearfar.losses.arguments import check_pair, inverse_temperature, l2_normalize
from nearfar.losses.engine.backends import require_all_rows
from nearfar.losses.engine.gathered import warn_if_not_gathered
from nearfar.losses.engine.similarity import paired_similarity


def cosent(z1: Tensor, z2: Tensor, scores: Tensor, *, temperature: float | Tensor) -> Tensor:
    """CoSENT: `log(1 + Σ e^{(s_j - s_i)/τ})` over all i, j where pair i has a higher score than pair j.

    s are the cosines of the pairs. Only the order of the scores counts, and equal ones are not compared. After sorting
    by score the sums are cumulative: memory is linear in the number of pairs.

    Args:
        z1, z2: (B, D), the two of each pair; normalized here.
        scores: (B,), how similar the two should be, on any scale.
        temperature: divides the cosines; may be a tensor that is learned.

    Returns:
        A scalar, in nats; 0 if all scores are the same.

    Reference: Huang et al. 2024, eq. 6, https://doi.org/10.1109/TASLP.2024.3402087

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> float(cosent(z, z, torch.tensor([5.0, 1.0]), temperature=0.05))  # as similar as each other: log 2
    0.6931471824645996
    """
    check_pair("z1", z1, "z2", z2)
    if not isinstance(scores, Tensor) or scores.shape != (z1.shape[0],):
        seen = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"scores is {seen}, expected a tensor of shape ({z1.shape[0]},): one for each pair")
    require_all_rows("cosent")
    warn_if_not_gathered(z1)
    z1, z2 = l2_normalize(z1), l2_normalize(z2)
    order = scores.argsort(stable=True)
    scores, similarity = scores[order].contiguous(), inverse_temperature(temperature, z1) * paired_similarity(z1, z2)
    similarity = similarity[order]  # (B,), by rising score
    above = torch.searchsorted(scores, scores, right=True)  # (B,) the first pair with a higher score
    sums = (-similarity).flip(0).logcumsumexp(0).flip(0)  # (B,) log Σ e^{-s_i/τ} over a pair and all after it
    sums = torch.cat([sums, sums.new_full((1,), -torch.inf)])
    return torch.cat([sums.new_zeros(1), similarity + sums[above]]).logsumexp(0)


def _call_cosent(loss: reference.Function, z1: Tensor, z2: Tensor, temperature: Tensor) -> Tensor:
    return loss(z1, z2, torch.arange(z1.shape[0], device=z1.device) * 7 % 5, temperature=temperature)


@reference.definition_of(cosent, _call_cosent)
def cosent_reference(z1: Tensor, z2: Tensor, scores: Tensor, temperature: reference.Number) -> Tensor:
    """Huang et al. 2024, eq. 6."""
    s = reference.cosine(z1, z2) / temperature
    terms = [s[j] - s[i] for i in range(len(s)) for j in range(len(s)) if scores[i] > scores[j]]
    return torch.stack([torch.zeros_like(s[0]), *terms]).logsumexp(0)
