"""k-NN against the paper's loops and against scikit-learn."""

import math
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from nearfar.evaluation.knn import knn_accuracy, knn_predict
from nearfar.losses import tile_size
from tests.support.facts import facts


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load_digits()
    x, y = torch.tensor(data.data), torch.tensor(data.target)
    x = x + torch.rand(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)  # no two distances are equal
    return x[:1200], y[:1200], x[1200:], y[1200:]


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("tile", [64, 4096])
def test_unweighted_agrees_with_scikit_learn_to_the_sample(k: int, tile: int) -> None:
    train, labels, test, _ = digits()
    theirs = KNeighborsClassifier(k, metric="cosine", algorithm="brute").fit(train.numpy(), labels.numpy())
    with tile_size(tile):
        ours = knn_predict(train, labels, test, k=k, temperature=None, classes=10)
    assert np.array_equal(ours.argmax(1).numpy(), theirs.predict(test.numpy()))
    np.testing.assert_allclose(ours.numpy(), theirs.predict_proba(test.numpy()), atol=1e-12)


@pytest.mark.parametrize("temperature", [0.01, 0.07, 1.0])
def test_weighted_equals_the_papers_loops(temperature: float) -> None:
    generator = torch.Generator().manual_seed(1)
    train, test = (torch.randn(n, 6, dtype=torch.float64, generator=generator) for n in (30, 7))
    labels = torch.randint(4, (30,), generator=generator)
    ours = knn_predict(train, labels, test, k=9, temperature=temperature, classes=4)
    for i in range(7):
        cosines = [float(test[i] @ row / test[i].norm() / row.norm()) for row in train]
        weights = [0.0] * 4
        for j in sorted(range(30), key=lambda j: -cosines[j])[:9]:
            weights[int(labels[j])] += math.exp(cosines[j] / temperature)
        expected = torch.tensor(weights, dtype=torch.float64) / sum(weights)
        torch.testing.assert_close(ours[i], expected)


def test_the_weights_are_those_of_scikit_learn_with_the_same_function() -> None:
    train, labels, test, test_labels = digits()
    theirs = KNeighborsClassifier(20, metric="cosine", algorithm="brute", weights=lambda d: np.exp((1 - d) / 0.07))
    expected = theirs.fit(train.numpy(), labels.numpy()).score(test.numpy(), test_labels.numpy())
    assert knn_accuracy(train, labels, test, test_labels).value == pytest.approx(expected, abs=1e-12)


def test_a_cold_temperature_stays_finite_in_half_precision() -> None:
    z = torch.randn(20, 8, generator=torch.Generator().manual_seed(0)).half()
    scores = knn_predict(z, torch.arange(20) % 3, z, k=5, temperature=0.001, classes=3)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.sum(1), torch.ones(20))
    assert knn_accuracy(z, torch.arange(20) % 3, z, torch.arange(20) % 3, temperature=0.001).value == 1.0


def test_no_gradient_is_kept_and_fewer_rows_than_k_are_all_asked() -> None:
    z = torch.randn(6, 4, requires_grad=True)
    assert not knn_predict(z, torch.arange(6) % 2, z, k=6, classes=2).requires_grad
    assert knn_accuracy(z, torch.arange(6) % 2, z, torch.arange(6) % 2, k=20).n == 6


def test_errors_say_what_was_seen() -> None:
    z, labels = torch.randn(6, 4), torch.arange(6)
    with pytest.raises(ValueError, match=facts("k 7 1 6")):
        knn_predict(z, labels, z, k=7, classes=6)
    with pytest.raises(ValueError, match=facts("labels 0 5 4")):
        knn_predict(z, labels, z, k=1, classes=5)
    with pytest.raises(ValueError, match=facts("features")):
        knn_predict(z, labels, z[:, :3], k=1, classes=6)


def test_faiss_finds_the_same_neighbors() -> None:
    pytest.importorskip("faiss")
    train, labels, test, _ = digits()
    train, test = train.float(), test.float()
    ours, theirs = (knn_predict(train, labels, test, k=7, classes=10, search=search) for search in ("tiles", "faiss"))  # type: ignore[arg-type]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_without_faiss_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=facts("'nearfar[search]'")):
        knn_predict(torch.eye(3), torch.arange(3), torch.eye(3), k=1, classes=3, search="faiss")
