"""The linear probe against scikit-learn's logistic regression, and its choice of strength."""

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from nearfar.evaluation.linear import linear_probe, standard
from nearfar.evaluation.logistic import Curvature, curvature, fit_logistic
from nearfar.evaluation.metrics import accuracy
from nearfar.modalities.splits import stratified_split
from tests.support.facts import facts


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load_digits()
    x, y = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target)
    return x[:1200], y[:1200], x[1200:], y[1200:]


@pytest.mark.parametrize("c", [0.001, 0.1, 1.0])
def test_probabilities_are_those_of_scikit_learn(c: float) -> None:
    train, labels, test, test_labels = digits()
    scaler = StandardScaler().fit(train.double().numpy())
    theirs = LogisticRegression(C=c, max_iter=5000, tol=1e-8)
    theirs.fit(scaler.transform(train.double().numpy()), labels.numpy())
    expected = torch.tensor(theirs.predict_proba(scaler.transform(test.double().numpy())))

    ours = linear_probe(train, labels, classes=10, strengths=[c])(test)
    assert (ours.softmax(1) - expected).abs().max() < 1e-3
    assert torch.equal(ours.argmax(1), expected.argmax(1))
    assert accuracy(linear_probe(train, labels, classes=int(labels.max()) + 1)(test), test_labels).value > 0.85


def test_the_gradient_vanishes_at_the_solution() -> None:
    train, labels, _, _ = digits()
    mean, deviation = standard(train)
    x = ((train - mean) / deviation).double()
    weight, bias = fit_logistic(x, labels, classes=10, c=0.1, tolerance=1e-8, iterations=1000)
    error = (x @ weight.T + bias).softmax(1) - torch.nn.functional.one_hot(labels, 10)
    torch.testing.assert_close(error.T @ x / len(x), -weight / (0.1 * len(x)), atol=1e-6, rtol=0)
    assert error.mean(0).abs().max() < 1e-6


def wide(rows: int, features: int = 700) -> tuple[Tensor, Tensor]:
    """Correlated features, more than the curvature follows one by one, with classes that overlap."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % 4
    hidden = torch.randn(rows, 40, generator=generator)
    hidden[:, :4] += 2 * torch.nn.functional.one_hot(labels, 4)
    x = hidden @ torch.randn(40, features, generator=generator) + torch.randn(rows, features, generator=generator)
    return (x - x.mean(0)) / x.std(0), labels


@pytest.mark.parametrize("rows", [300, 900])  # fewer rows than features, and more
def test_many_correlated_features_are_fitted_as_scikit_learn_does(rows: int) -> None:
    x, labels = wide(rows)
    theirs = LogisticRegression(C=0.01, max_iter=10_000, tol=1e-9).fit(x.double().numpy(), labels.numpy())
    weight, bias = fit_logistic(x, labels, classes=4, c=0.01, refine=True)
    expected = torch.tensor(theirs.predict_proba(x.double().numpy()))
    assert ((x.double() @ weight.T + bias).softmax(1) - expected).abs().max() < 1e-5


def test_the_curvature_sets_the_speed_alone() -> None:
    x, labels = wide(400)
    wrong = Curvature(torch.ones(1, dtype=torch.float64), torch.eye(700, 1, dtype=torch.float64), 3.0)
    fits = [fit_logistic(x.double(), labels, classes=4, c=0.01, shape=s, iterations=2000) for s in (wrong, None)]
    torch.testing.assert_close(*fits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("features", [60, 700])
def test_the_curvature_is_that_of_the_covariance(features: int) -> None:
    x, _ = wide(900, features)
    found = curvature(x)
    exact = torch.linalg.eigvalsh(x.double().T @ x.double() / len(x))
    torch.testing.assert_close(found.values[-30:], exact[-30:], rtol=1e-3, atol=0)
    mass = float(found.values.sum()) + found.rest * (features - len(found.values))
    assert mass == pytest.approx(float(exact.sum()), rel=1e-4)


def test_noise_gets_a_strong_penalty_and_signal_a_weak_one() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % 3
    noise = torch.randn(600, 100, generator=generator)
    blurred = torch.nn.functional.one_hot(labels, 3) * 0.7 + torch.randn(600, 3, generator=generator) * 0.5
    noisy = linear_probe(torch.cat([blurred, noise], 1), labels, classes=3, validation=0.3)
    assert noisy.c <= 0.1
    turned = torch.randn(200, generator=generator).abs().sort().values  # classes by thin shells: needs large weights
    thin = linear_probe(turned[:, None], torch.arange(200) // 67, classes=3, validation=0.3)
    assert thin.c >= 0.1


def test_the_choice_never_sees_test_rows_and_is_repeatable() -> None:
    train, labels, _, _ = digits()
    first, second = (linear_probe(train, labels, classes=10, seed=3) for _ in range(2))
    assert torch.equal(first.weight, second.weight)
    assert first.validation is not None and first.validation > 0.9


def test_standardising_uses_the_training_part_and_survives_constant_features() -> None:
    train, labels, test, _ = digits()
    train[:, 0], test[:, 0] = 7.0, 7.0
    probe = linear_probe(train, labels, classes=10, strengths=[0.1])
    assert float(probe.mean[0]) == 7 and float(probe.deviation[0]) == 1
    assert probe(test * 1.0).isfinite().all()
    moved = linear_probe(train * 100 + 5, labels, classes=10, strengths=[0.1])
    torch.testing.assert_close(moved(test * 100 + 5), probe(test), atol=1e-3, rtol=1e-3)


def test_the_split_is_stratified_disjoint_and_seeded() -> None:
    labels = torch.tensor([0] * 100 + [1] * 10 + [2])
    larger, smaller = stratified_split(labels, share=0.1, seed=0)
    assert sorted(larger.tolist() + smaller.tolist()) == list(range(111))
    assert labels[smaller].bincount(minlength=3).tolist() == [10, 1, 0]
    assert torch.equal(stratified_split(labels, share=0.1, seed=0)[1], smaller)
    assert not torch.equal(stratified_split(labels, share=0.1, seed=1)[1], smaller)
    assert len(stratified_split(labels, share=0.0, seed=0)[1]) == 0


def test_one_sample_of_each_class_is_enough_to_fit() -> None:
    probe = linear_probe(torch.eye(3), torch.arange(3), classes=3)
    assert probe.validation is None
    assert probe(torch.eye(3)).argmax(1).tolist() == [0, 1, 2]


def test_works_under_no_grad() -> None:
    train, labels, _, _ = digits()
    with torch.no_grad():
        assert linear_probe(train, labels, classes=10, strengths=[0.01]).weight.any()


def test_errors_say_what_was_seen() -> None:
    with pytest.raises(ValueError, match=facts("strengths -1 finite 0")):
        linear_probe(torch.eye(3), torch.arange(3), classes=3, strengths=[-1.0])
    probe = linear_probe(torch.eye(3), torch.arange(3), classes=3)
    with pytest.raises(ValueError, match=facts("(2, 5) (N, 3)")):
        probe(torch.zeros(2, 5))


def test_of_equally_accurate_strengths_the_lowest_cross_entropy_is_chosen() -> None:
    generator, labels = torch.Generator().manual_seed(0), torch.arange(200) % 2
    x = torch.randn(200, 5, generator=generator) + 20 * labels[:, None] * torch.eye(5)[0]  # every strength finds 100 %
    probe = linear_probe(x, labels, classes=2)
    fit_rows, held_rows = stratified_split(labels, share=0.1, seed=0)
    losses = {}
    for c in (1e-4, 1e-2, 1.0, 10.0):
        alone = linear_probe(x[fit_rows], labels[fit_rows], classes=2, strengths=[c])
        losses[c] = float(torch.nn.functional.cross_entropy(alone(x[held_rows]), labels[held_rows]))
    assert probe.validation == 1
    assert probe.c == min(losses, key=losses.__getitem__) == 10.0
