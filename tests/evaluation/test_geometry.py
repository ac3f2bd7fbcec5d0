"""Geometry against the papers' loops and closed forms."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.evaluation.geometry import (
    alignment,
    covariance_spectrum,
    deviation,
    effective_rank,
    lidar,
    neighborhood,
    participation_ratio,
    similarity_histograms,
    uniformity,
)
from nearfar.losses import tile_size
from tests.support.facts import facts


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_alignment_and_uniformity_equal_the_papers_code() -> None:
    z1, z2 = rows(2, 40, 5)
    x, y = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
    torch.testing.assert_close(alignment(z1, z2), (x - y).norm(dim=1).pow(2).mean())
    expected = torch.pdist(x).pow(2).mul(-2).exp().mean().log()
    torch.testing.assert_close(uniformity(z1), expected)
    with tile_size(8):
        torch.testing.assert_close(uniformity(z1), expected)


def test_uniformity_of_closed_forms() -> None:
    assert float(uniformity(torch.ones(10, 4))) == pytest.approx(0, abs=1e-6)
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert float(uniformity(opposite)) == pytest.approx(-8, abs=1e-5)
    many = F.normalize(rows(4000, 256), dim=1)
    assert float(uniformity(many)) == pytest.approx(-4, abs=0.05)


def test_a_collapse_to_zero_is_no_uniform_sphere() -> None:
    assert float(uniformity(torch.zeros(10, 4))) == pytest.approx(0, abs=1e-6)
    assert float(alignment(torch.zeros(10, 4), torch.zeros(10, 4))) == 0
    assert float(effective_rank(torch.zeros(10, 4))) == 0


def test_effective_rank_is_the_entropy_of_singular_values() -> None:
    z = rows(60, 10)
    share = torch.linalg.svdvals(z) / torch.linalg.svdvals(z).sum() + 1e-7
    torch.testing.assert_close(effective_rank(z), (-(share * share.log()).sum()).exp())
    torch.testing.assert_close(effective_rank(z.T.contiguous()), effective_rank(z))


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_effective_rank_of_a_subspace(rank: int) -> None:
    basis = torch.linalg.qr(rows(32, rank))[0]  # (32, rank)
    z = torch.linalg.qr(rows(500, rank, seed=1))[0] @ basis.T
    assert float(effective_rank(z.float())) == pytest.approx(rank, rel=1e-3)


def test_effective_rank_of_broken_rows_is_nan() -> None:
    assert math.isnan(float(effective_rank(torch.full((4, 3), torch.nan))))


def test_deviation_of_spread_and_collapsed_rows() -> None:
    spread = deviation(rows(5000, 64))
    assert spread.shape == (64,)
    assert float(spread.mean()) == pytest.approx(1 / 8, rel=0.02)
    assert float(deviation(torch.ones(10, 4)).max()) == pytest.approx(0, abs=1e-7)


def test_histograms_count_every_pair() -> None:
    z1, z2 = rows(2, 30, 4)
    edges, positive, negative = similarity_histograms(z1, z2, bins=10)
    s = F.normalize(z1, dim=1) @ F.normalize(z2, dim=1).T
    assert edges.tolist() == pytest.approx([-1 + 0.2 * i for i in range(11)], abs=1e-6)
    assert torch.equal(positive, torch.histc(s.diag(), 10, min=-1, max=1).long())
    others = s[~torch.eye(30, dtype=torch.bool)]
    assert torch.equal(negative, torch.histc(others, 10, min=-1, max=1).long())


def test_histograms_of_a_sample_of_queries() -> None:
    z = rows(50, 4)
    _, positive, negative = similarity_histograms(z, z, queries=7)
    assert int(positive.sum()) == int(positive[-1]) == 50
    assert int(negative.sum()) == 7 * 49


def test_no_pair_is_an_error() -> None:
    with pytest.raises(ValueError, match=facts("rows")):
        uniformity(torch.ones(1, 3))


def test_the_spectrum_is_the_covariances() -> None:
    for z in (rows(50, 8), rows(6, 9)):  # more rows than features, and fewer
        expected = torch.linalg.eigvalsh(torch.cov(z.T, correction=0)).flip(0).clamp_min(0)
        torch.testing.assert_close(covariance_spectrum(z), expected)
    assert participation_ratio(torch.zeros(3)) == 0


@pytest.mark.parametrize("features", [5, 40])  # fewer and more than images
def test_lidar_is_the_papers_sum_over_images_and_views(features: int) -> None:
    z = rows(12, 4, features)
    n, q, d = z.shape
    means = [sum(z[i, j] for j in range(q)) / q for i in range(n)]
    centre = sum(means) / n
    between, within = torch.zeros(d, d, dtype=torch.float64), 1e-4 * torch.eye(d, dtype=torch.float64)
    for i in range(n):
        between += torch.outer(means[i] - centre, means[i] - centre) / n
        for j in range(q):
            within += torch.outer(z[i, j] - means[i], z[i, j] - means[i]) / (n * q)
    values, vectors = torch.linalg.eigh(within)
    root = vectors @ torch.diag(values**-0.5) @ vectors.T
    eigenvalues = torch.linalg.eigvalsh(root @ between @ root).clamp_min(0)
    share = eigenvalues / eigenvalues.sum() + 1e-7
    assert lidar(z) == pytest.approx(math.exp(-float((share * share.log()).sum())), rel=1e-5)


def test_lidar_counts_the_directions_that_tell_images_apart() -> None:
    images = torch.zeros(200, 1, 10, dtype=torch.float64)
    images[:, 0, :3] = 10 * rows(200, 3)
    z = images + 0.1 * rows(200, 6, 10, seed=1)
    assert lidar(z) == pytest.approx(3, abs=0.2)
    assert lidar(torch.ones(4, 3, 2)) == 0
    with pytest.raises(ValueError, match=facts("(4, 1, 2)")):
        lidar(torch.ones(4, 1, 2))


def test_hubness_and_purity_equal_the_loops() -> None:
    z, labels = rows(40, 5), torch.arange(40) % 3
    found = neighborhood(z, labels, k=4)
    u = F.normalize(z, dim=1)
    counts, pure = [0] * 40, []
    for i in range(40):
        nearest = sorted((j for j in range(40) if j != i), key=lambda j: -float(u[i] @ u[j]))[:4]
        pure.append(sum(int(labels[j] == labels[i]) for j in nearest) / 4)
        for j in nearest:
            counts[j] += 1
    assert found.occurrence.tolist() == counts
    assert found.purity is not None and found.purity.tolist() == pytest.approx(pure)
    mean = sum(counts) / 40
    deviation = (sum((c - mean) ** 2 for c in counts) / 40) ** 0.5
    assert found.hubness == pytest.approx(sum((c - mean) ** 3 for c in counts) / 40 / deviation**3)


def test_a_hub_is_seen() -> None:
    z = torch.cat([torch.eye(30, dtype=torch.float64) * 3, torch.ones(1, 30, dtype=torch.float64)])
    assert neighborhood(z, k=1).hubness > 3
    assert neighborhood(z, k=1).purity is None
    with pytest.raises(ValueError, match=facts("rows")):
        neighborhood(z[:1])
