"""Information of labels and numbers that were drawn; scipy, scikit-learn, plain loops and known truths beside it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from sklearn.feature_selection import mutual_info_regression
from sklearn.metrics import mutual_info_score

from nearfar import lab
from nearfar.lab import neighbors
from nearfar.lab.estimators import correlated_gaussians, gaussian_information
from tests.support.facts import tells

FORMS = ("conditional", "joint", "divergence")


@pytest.fixture
def labels() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 5, 300)
    return x, (x + generator.integers(0, 2, 300)) % 5


@pytest.mark.parametrize("form", FORMS)
def test_labels_give_scikit_learns_plug_in_estimate(labels: tuple[Any, Any], form: Any) -> None:
    x, y = labels
    expected = pytest.approx(mutual_info_score(x, y), abs=1e-12)
    assert lab.sampled_mutual_information(x, y, form=form) == expected
    words = np.array(list("abcde"))[x]
    assert lab.sampled_mutual_information(words, torch.tensor(y), form=form) == expected
    bits = lab.sampled_mutual_information(x, y, form=form, unit="bits")
    assert bits == pytest.approx(mutual_info_score(x, y) / math.log(2))


@pytest.mark.parametrize("form", FORMS)
def test_labels_give_what_their_table_gives(labels: tuple[Any, Any], form: Any) -> None:
    expected = lab.mutual_information(lab.frequencies(*labels), form=form)
    assert lab.sampled_mutual_information(*labels, form=form) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_many_distinct_labels_take_no_table(form: Any) -> None:
    n = 200_000
    x = np.random.default_rng(0).permutation(n)
    assert lab.sampled_mutual_information(x, x[::-1], form=form) == pytest.approx(math.log(n))
    assert lab.sampled_mutual_information(x, x % 4, form=form, unit="bits") == pytest.approx(2)
    assert lab.sampled_entropy(x, x % 7, x[::-1]) == pytest.approx(math.log(n))
    assert lab.sampled_conditional_entropy(x, x % 4) == pytest.approx(math.log(n / 4))


def test_entropies_of_labels_are_those_of_scipy(labels: tuple[Any, Any]) -> None:
    x, y = labels
    counts = [np.bincount(x), np.bincount(5 * x + y), np.bincount(y)]
    of_x, of_both, of_y = (stats.entropy(c) for c in counts)
    assert lab.sampled_entropy(x) == pytest.approx(of_x)
    assert lab.sampled_entropy(x, y) == pytest.approx(of_both)
    assert lab.sampled_conditional_entropy(x, y) == pytest.approx(of_both - of_y)
    assert lab.sampled_conditional_entropy(x, y, unit="bits") == pytest.approx((of_both - of_y) / math.log(2))
    assert lab.sampled_perplexity(x) == pytest.approx(math.exp(of_x))


def test_samples_of_two_lengths_are_compared_label_by_label() -> None:
    p, q = np.array([3, 7, 7, 9]), torch.tensor([9, 9, 7, 3, 3, 11])
    p_table, q_table = [1 / 4, 2 / 4, 1 / 4, 0], [2 / 6, 1 / 6, 2 / 6, 1 / 6]
    assert lab.sampled_kl_divergence(p, q) == pytest.approx(stats.entropy(p_table, q_table))
    crossed = stats.entropy(p_table) + stats.entropy(p_table, q_table)
    assert lab.sampled_cross_entropy(p, q) == pytest.approx(crossed)
    assert lab.sampled_kl_divergence(q, p) == math.inf  # 11 never came
    assert lab.sampled_kl_divergence(p, p) == 0


@pytest.mark.parametrize("form", FORMS)
def test_miller_madow_takes_most_of_the_bias(form: Any) -> None:
    generator = np.random.default_rng(0)
    draws = [generator.integers(0, 8, (2, 200)) for _ in range(50)]  # independent: the truth is 0
    plain = np.mean([lab.sampled_mutual_information(x, y, form=form) for x, y in draws])
    mended = np.mean([lab.sampled_mutual_information(x, y, form=form, correction="miller_madow") for x, y in draws])
    assert plain > 0.1 and abs(mended) < plain / 3
    x, y = draws[0]
    assert lab.sampled_entropy(x, correction="miller_madow") - lab.sampled_entropy(x) == pytest.approx(7 / 400)
    parts = [lab.sampled_entropy(*each, correction="miller_madow") for each in ((x,), (y,), (x, y))]
    mended = lab.sampled_mutual_information(x, y, form=form, correction="miller_madow")
    assert mended == pytest.approx(parts[0] + parts[1] - parts[2])


@pytest.mark.parametrize("pieces", [1, 7])
def test_mutual_information_of_numbers_is_that_of_scikit_learn(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = correlated_gaussians(300, 1, 0.8, torch.Generator().manual_seed(0), torch.float64)
    x, y = ((values - values.mean()) / values.std(correction=0) for values in (x, y))  # as scikit-learn scales them
    monkeypatch.setattr(neighbors, "_ENTRIES", 300 * 300 // pieces)
    for k in (1, 3, 6):
        expected = mutual_info_regression(x.numpy(), y[:, 0].numpy(), n_neighbors=k, random_state=0)[0]
        assert lab.neighbor_mutual_information(x, y[:, 0], k=k) == pytest.approx(expected, abs=1e-6)


def test_entropies_of_numbers_are_those_of_plain_loops() -> None:
    generator = np.random.default_rng(0)
    p, q, k = generator.normal(size=(40, 2)), generator.normal(size=(25, 2)), 2

    def radius(row: Any, rows: Any, place: int) -> float:
        return sorted(max(abs(row - other)) for other in rows)[place]

    own = special.digamma(40) - special.digamma(k) + np.mean([2 * math.log(2 * radius(row, p, k)) for row in p])
    crossed = special.digamma(26) - special.digamma(k) + np.mean([2 * math.log(2 * radius(row, q, k - 1)) for row in p])
    assert lab.neighbor_entropy(p, k=k) == pytest.approx(own)
    assert lab.neighbor_cross_entropy(p, q, k=k) == pytest.approx(crossed)
    assert lab.neighbor_kl_divergence(p, torch.tensor(q), k=k) == pytest.approx(crossed - own)
    assert lab.neighbor_entropy(p, k=k, unit="bits") == pytest.approx(own / math.log(2))


def test_numbers_of_known_distributions_come_near_the_truth() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = correlated_gaussians(2000, 2, 0.8, generator, torch.float64)
    gaussian, shared = math.log(2 * math.pi * math.e), gaussian_information(0.8, 2)
    assert lab.neighbor_entropy(x) == pytest.approx(gaussian, abs=0.06)
    assert lab.neighbor_entropy(3 * x) == pytest.approx(gaussian + 2 * math.log(3), abs=0.06)
    assert lab.neighbor_mutual_information(x, y) == pytest.approx(shared, abs=0.06)
    assert lab.neighbor_conditional_entropy(x, y) == pytest.approx(gaussian - shared, abs=0.09)
    other = torch.randn(3000, 2, generator=generator, dtype=torch.float64) + 1
    assert lab.neighbor_kl_divergence(x, other) == pytest.approx(1, abs=0.12)  # half of |1 - 0|², twice


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: lab.sampled_entropy([0.1, 0.2]), "bins"),
        (lambda: lab.sampled_mutual_information([1, 2], [1]), "equally long"),
        (lambda: lab.sampled_entropy([]), "sample 1 has"),
        (lambda: lab.sampled_entropy([1, 2], correction="jackknife"), "correction 'jackknife'"),
        (lambda: lab.sampled_entropy(), "sample row"),
        (lambda: lab.frequencies(), "sample row"),
        (lambda: lab.sampled_entropy([[1], [1, 2]]), "sample 1 '[[1], [1, 2]]'"),
        (lambda: lab.sampled_entropy(torch.ones(3, dtype=torch.bfloat16)), "bins"),
        (lambda: lab.sampled_entropy([1, "a"]), "sample 1 words"),
        (lambda: lab.sampled_entropy(["a", "b"], ["a", 2.5]), "sample 2 words 2.5"),
        (lambda: lab.sampled_entropy([None, "a"]), "sample 1 object"),
        (lambda: lab.sampled_mutual_information([1], [1], form="other"), "form 'other'"),
        (lambda: lab.neighbor_entropy([0.0, 1.0, 2.0, 3.0], k=2.5), "k 2.5"),
        (lambda: lab.neighbor_entropy([0.0, 1.0, 2.0, 3.0], k=0), "k 0 1"),
        (lambda: lab.sampled_kl_divergence(["a"], [1]), "words"),
        (lambda: lab.neighbor_entropy([0.0, 1.0, math.nan, 3.0]), "x holds NaN"),
        (lambda: lab.neighbor_entropy([0.0, 1.0]), "k 3 x 2"),
        (lambda: lab.neighbor_entropy([1.0] * 9), "x row k"),
        (lambda: lab.neighbor_entropy([[[1.0]]]), "x (1, 1, 1)"),
        (lambda: lab.neighbor_entropy(["a", "b"]), "x is"),
        (lambda: lab.neighbor_mutual_information([0, 1] * 9, [0, 1] * 9), "label sampled_*"),
        (lambda: lab.neighbor_mutual_information(range(9), range(8)), "x 9 y 8"),
        (lambda: lab.neighbor_kl_divergence(range(9), np.eye(9)), "p 1 q 9"),
    ],
)
def test_what_is_no_sample_is_refused_in_a_line(call: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        call()
    assert tells(str(error.value), said) and "\n" not in str(error.value)
