"""Retrieval, verification and clustering against plain loops and scikit-learn."""

import itertools

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from sklearn.cluster import KMeans
from torch import Tensor

from nearfar.evaluation.clustering import agreement, k_means, purity
from nearfar.evaluation.protocols.retrieval import retrieval
from nearfar.evaluation.protocols.verification import Roc, draw_pairs, pair_similarity, roc
from tests.support.facts import facts


def clouds(n: int = 60, classes: int = 4, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % classes
    centres = 3 * torch.randn(classes, 6, generator=generator, dtype=torch.float64)
    return centres[labels] + noise * torch.randn(n, 6, generator=generator, dtype=torch.float64), labels


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / a.norm() / b.norm())


def test_retrieval_equals_the_loops() -> None:
    z, labels = clouds(noise=3.0)
    labels[7] = 9  # alone in its class: no query, but in the others' galleries
    found = retrieval(z, labels, cutoffs=[1, 5, 100])
    assert found.queries.tolist() == [i for i in range(60) if i != 7]
    for place, i in enumerate(found.queries.tolist()):
        others = sorted((j for j in range(60) if j != i), key=lambda j: -cosine(z[i], z[j]))
        right = [int(labels[j] == labels[i]) for j in others]
        precisions = [sum(right[: r + 1]) / (r + 1) for r in range(59) if right[r]]
        assert float(found.average_precision[place]) == pytest.approx(sum(precisions) / len(precisions))
        for k in (1, 5):
            assert bool(found.recall[k][place]) == any(right[:k])
            assert float(found.precision[k][place]) == pytest.approx(sum(right[:k]) / k)
    assert list(found.recall) == [1, 5]


def test_average_precision_is_scikit_learns() -> None:
    z, labels = clouds(noise=3.0)
    found = retrieval(z, labels, queries=10)
    assert len(found.queries) == 10
    for i, value in zip(found.queries.tolist(), found.average_precision.tolist(), strict=True):
        others = [j for j in range(60) if j != i]
        scores = [cosine(z[i], z[j]) for j in others]
        assert value == pytest.approx(sk.average_precision_score(labels[others] == labels[i], scores))


def test_a_query_never_finds_itself() -> None:
    z = torch.eye(4)[[0, 1, 2, 3, 0, 1]]
    found = retrieval(z, torch.tensor([0, 1, 2, 3, 0, 1]), cutoffs=[1])
    assert found.queries.tolist() == [0, 1, 4, 5] and found.recall[1].all()
    with pytest.raises(ValueError, match=facts("6 label")):
        retrieval(z, torch.arange(6))


@pytest.mark.parametrize("most", [7, 40, 10_000])
def test_pairs_are_of_their_kind_and_never_twice(most: int) -> None:
    labels = torch.tensor([0] * 5 + [1] * 9 + [2] * 2 + [3])
    pairs = draw_pairs(labels, most=most, seed=0)
    of_one_class = 10 + 36 + 1
    assert int(pairs.same.sum()) == int((~pairs.same).sum()) == min(most, of_one_class)
    assert torch.equal(labels[pairs.first] == labels[pairs.second], pairs.same)
    drawn = list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    assert len(set(drawn)) == len(drawn) and all(i < j for i, j in drawn)


def test_every_pair_is_as_likely() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    counts: dict[tuple[int, int], int] = {}
    for seed in range(600):
        pairs = draw_pairs(labels, most=1, seed=seed)
        for i, j in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True):
            counts[i, j] = counts.get((i, j), 0) + 1
    for i, j in itertools.combinations(range(7), 2):
        expected = 600 / 7 if labels[i] == labels[j] else 600 / 14
        assert abs(counts.get((i, j), 0) - expected) < 4.5 * expected**0.5, (i, j)


def test_verification_equals_scikit_learn_and_the_loops() -> None:
    z, labels = clouds(noise=3.0)
    pairs = draw_pairs(labels, most=200, seed=1)
    similarity = pair_similarity(z, pairs)
    for place in (0, 17, 399):
        i, j = int(pairs.first[place]), int(pairs.second[place])
        assert float(similarity[place]) == pytest.approx(cosine(z[i], z[j]))
    curve = roc(similarity, pairs.same)
    assert curve.auc == pytest.approx(sk.roc_auc_score(pairs.same, similarity), abs=1e-6)
    s, same = similarity.tolist(), pairs.same.tolist()
    for false_rate in (0.1, 0.03):
        best = 0.0
        for threshold in s:
            accepted = [x >= threshold for x in s]
            wrong = sum(a and not t for a, t in zip(accepted, same, strict=True)) / 200
            if wrong <= false_rate:
                best = max(best, sum(a and t for a, t in zip(accepted, same, strict=True)) / 200)
        assert curve.true_rate_at(false_rate) == pytest.approx(best)
    errors = []
    for threshold in s:
        wrong = sum(x >= threshold and not t for x, t in zip(s, same, strict=True)) / 200
        missed = sum(x < threshold and t for x, t in zip(s, same, strict=True)) / 200
        errors.append((abs(wrong - missed), (wrong + missed) / 2))
    assert curve.equal_error_rate == pytest.approx(min(errors)[1], abs=0.006)


def test_the_equal_error_rate_of_known_curves() -> None:
    assert Roc(np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0]), 1.0).equal_error_rate == 0
    assert Roc(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 0.5).equal_error_rate == pytest.approx(0.5)


def test_no_pair_of_a_kind_is_said() -> None:
    for labels in (torch.zeros(4, dtype=torch.long), torch.arange(4)):
        with pytest.raises(ValueError, match=facts("pair")):
            draw_pairs(labels, most=10, seed=0)


def test_k_means_is_as_good_as_scikit_learns() -> None:
    z, labels = clouds(200, 5, noise=1.5)
    ours = k_means(z, k=5, seed=0)
    theirs = KMeans(5, n_init=10, random_state=0).fit(z.numpy())
    centres = torch.stack([z[ours == c].mean(0) for c in range(5)])
    assert float((z - centres[ours]).square().sum()) <= 1.0001 * theirs.inertia_
    assert agreement(ours, labels)["NMI"] == pytest.approx(
        sk.normalized_mutual_info_score(labels, theirs.labels_), abs=0.02
    )


def test_agreement_is_scikit_learns() -> None:
    generator = torch.Generator().manual_seed(0)
    clusters, labels = torch.randint(5, (2, 300), generator=generator)
    labels = torch.where(torch.rand(300, generator=generator) < 0.5, clusters % 4, labels)
    found = agreement(clusters, labels)
    assert found["NMI"] == pytest.approx(sk.normalized_mutual_info_score(labels, clusters), abs=1e-6)
    assert found["ARI"] == pytest.approx(sk.adjusted_rand_score(labels, clusters), abs=1e-6)
    table = sk.cluster.contingency_matrix(labels, clusters)
    assert found["purity"] == pytest.approx(table.max(0).sum() / 300)
    assert purity(torch.arange(300), labels) == 1


def test_rows_that_coincide_and_too_many_clusters() -> None:
    assert len(k_means(torch.ones(6, 3), k=3, seed=0)) == 6
    with pytest.raises(ValueError, match=facts("k 7 1 6")):
        k_means(torch.ones(6, 3), k=7, seed=0)
