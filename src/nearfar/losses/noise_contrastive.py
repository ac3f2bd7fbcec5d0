"""Noise-contrastive estimation: classify samples as data or noise."""

import math

import torch
from torch import Tensor

from nearfar.losses import reference
from nearfar.losses.arguments import (
    Reduction,
    as_scalar,
    check_at_least,
    check_compatible,
    check_finite,
    check_pair,
    check_rows,
    inverse_temperature,
    l2_normalize,
    reduce_loss,
    softplus,
)
from nearfar.losses.engine.precision import no_autocast
from nearfar.losses.engine.similarity import paired_similarity, similarity_logsumexp
from nearfar.losses.sigmoid import similarity_softplus_sum


def nce(
    query: Tensor,
    positive: Tensor,
    noise: Tensor,
    *,
    temperature: float | Tensor,
    bank_size: int,
    log_normalizer: float | Tensor | None = None,
    proximal: float = 0.0,
    ids: Tensor | None = None,
    noise_ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """InstDisc's loss: distinguish a sample's own memory from m memories drawn at random.

    `-log h(i, v) - Σₘ log(1 - h(i', v))` with `h = P / (P + m / n)` and `P = e^{s/τ} / Z`, plus the proximal term
    `λ |v - v_before|²`, where v_before is the memory itself.

    Args:
        query: (B, D), current features; normalized here, like the others.
        positive: (B, D), the memories of the same samples.
        noise: (m, D), memories drawn for the whole batch (in memory linear in B + m), or (B, m, D), drawn for each
            query, as in the paper.
        temperature: divides the cosine similarities; may be a tensor that is learned.
        bank_size: the n of the noise density 1 / n.
        log_normalizer: log Z; the paper estimates it once and keeps it fixed. None: estimated from this noise by
            `estimate_log_normalizer`, without gradient.
        proximal: the weight λ.
        ids, noise_ids: (B,), (m,), with noise (m, D): noise with the query's id is excluded.
        reduction: "mean", "sum" or "none" over the B queries.

    Returns:
        In nats: a scalar, or (B,) for "none".

    Reference: Wu et al. 2018, eqs. 4 to 9, https://arxiv.org/abs/1805.01978
    """
    _check_noise(query, positive, noise, bank_size)
    check_at_least("proximal", proximal, 0.0)
    if (ids is None) != (noise_ids is None):
        raise ValueError("expected both ids and noise_ids or neither: one alone excludes nothing")
    if ids is not None and noise.ndim == 3:
        raise ValueError(f"ids are set and noise has shape {tuple(noise.shape)}, expected (m, D), drawn for all")
    if log_normalizer is None:
        log_normalizer = estimate_log_normalizer(query, noise, temperature=temperature, bank_size=bank_size)
    check_finite("log_normalizer", log_normalizer)
    query, positive, noise = l2_normalize(query), l2_normalize(positive), l2_normalize(noise)
    scale = inverse_temperature(temperature, query)
    # h = sigmoid(s/τ - log Z - log(m/n)): logistic regression of data against noise
    share = noise.shape[-2] / bank_size
    log_share = (
        query.new_full((), share).log() if torch.compiler.is_compiling() else math.log(share)
    )  # any size, traced
    bias = -as_scalar(log_normalizer, query) - log_share
    data = softplus(-(scale * paired_similarity(query, positive) + bias))  # (B,)
    if noise.ndim == 2:
        others = similarity_softplus_sum(query, noise, scale=scale, bias=bias, query_ids=ids, key_ids=noise_ids)  # (B,)
    else:
        others = softplus(scale * _similarity_to_own(query, noise) + bias).sum(1)  # (B,)
    return reduce_loss(data + others + proximal * (query - positive).square().sum(1), reduction)


@torch.no_grad()
def estimate_log_normalizer(query: Tensor, noise: Tensor, *, temperature: float | Tensor, bank_size: int) -> Tensor:
    """log Z by Monte Carlo: `Z ≈ n · mean e^{s/τ}` over the noise of the batch.

    Args:
        query: (B, D); normalized here.
        noise: (m, D) or (B, m, D).
        temperature, bank_size: as for `nce`.

    Returns:
        A scalar without gradient.

    Reference: Wu et al. 2018, eq. 8, https://arxiv.org/abs/1805.01978
    """
    _check_noise(query, query, noise, bank_size)
    query, noise = l2_normalize(query), l2_normalize(noise)
    scale = inverse_temperature(temperature, query)
    if noise.ndim == 2:
        each = similarity_logsumexp(query, noise, scale=scale)  # (B,)
    else:
        each = (scale * _similarity_to_own(query, noise)).logsumexp(1)  # (B,)
    return each.logsumexp(0) + math.log(bank_size / (query.shape[0] * noise.shape[-2]))


def _similarity_to_own(query: Tensor, noise: Tensor) -> Tensor:
    """(B, m), inner products of each query with its own noise."""
    with no_autocast(query):
        return torch.einsum("bd,bmd->bm", query, noise)


def _check_noise(query: Tensor, positive: Tensor, noise: Tensor, bank_size: int) -> None:
    check_pair("query", query, "positive", positive)
    if isinstance(noise, Tensor) and noise.ndim == 3:
        check_rows("noise", noise, rank=3)
        if noise.shape[0] != query.shape[0]:
            raise ValueError(
                f"noise has shape {tuple(noise.shape)}, expected ({query.shape[0]}, m, D): m for each query"
            )
    else:
        check_rows("noise", noise)
    check_compatible("noise", noise, "query", query, features_only=True)
    if not isinstance(bank_size, int) or isinstance(bank_size, bool) or bank_size < 1:
        raise ValueError(f"bank_size is {bank_size!r}, expected a whole number of at least 1")


def estimate_log_normalizer_reference(
    query: Tensor, noise: Tensor, temperature: reference.Number, bank_size: int
) -> Tensor:
    """Wu et al. 2018, eq. 8, over every query of the batch: log of n times the mean exponential."""
    noise_of = noise if noise.ndim == 3 else noise.expand(len(query), *noise.shape)
    each = torch.stack(
        [(reference.cosine(q, others) / temperature).exp() for q, others in zip(query, noise_of, strict=True)]
    )
    return (bank_size * each.mean()).log().detach()


@reference.definition_of(
    nce, lambda loss, a, b, t: loss(a, b, b.flip(0), temperature=t, bank_size=1000, log_normalizer=9.0)
)
def nce_reference(
    query: Tensor,
    positive: Tensor,
    noise: Tensor,
    temperature: reference.Number,
    bank_size: int,
    log_normalizer: reference.Number,
    proximal: float = 0.0,
) -> Tensor:
    """Wu et al. 2018, eqs. 4 to 7 and 9."""
    z = torch.as_tensor(log_normalizer).to(query).exp()
    noise_of = noise if noise.ndim == 3 else noise.expand(len(query), *noise.shape)
    rows = []
    for q, memory, others in zip(query, positive, noise_of, strict=True):
        noise_density = len(others) / bank_size  # m Pₙ
        p_data = (reference.cosine(q, memory) / temperature).exp() / z
        p_noise = (reference.cosine(q, others) / temperature).exp() / z  # (m,)
        loss = -(p_data / (p_data + noise_density)).log() - (noise_density / (p_noise + noise_density)).log().sum()
        moved = -reference.euclidean(q / reference.dot(q, q).sqrt(), memory / reference.dot(memory, memory).sqrt())
        rows.append(loss + proximal * moved)
    return torch.stack(rows)
