"""Bounds of mutual information: below the truth, below log N, in their order, with the best critic and trained ones."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nearfar.lab.estimators import (
    BOUNDS,
    Critic,
    Estimator,
    bound_on_batches,
    correlated_gaussians,
    correlation_from_information,
    dv_bound,
    gaussian_information,
    info_nce_bound,
    nwj_bound,
    optimal_critic,
    train_critic,
)
from nearfar.lab.findings import mean_and_error
from nearfar.lab.proof import contrastive_task
from tests.support.facts import facts, tells


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_information_of_gaussians_is_that_of_their_covariance() -> None:
    rho, d = 0.6, 3
    joint = torch.kron(torch.tensor([[1, rho], [rho, 1]], dtype=torch.float64), torch.eye(d, dtype=torch.float64))
    assert gaussian_information(rho, d) == pytest.approx(-0.5 * float(torch.logdet(joint)))
    assert gaussian_information(correlation_from_information(2.5, d), d) == pytest.approx(2.5)


def test_samples_have_the_correlation() -> None:
    x, y = correlated_gaussians(20_000, 2, 0.7, generator(), torch.float64)
    found = torch.corrcoef(torch.cat([x, y], 1).T)
    expected = torch.kron(torch.tensor([[1, 0.7], [0.7, 1]]), torch.eye(2)).double()
    torch.testing.assert_close(found, expected, atol=0.03, rtol=0)


def test_the_best_critic_is_the_log_ratio_of_densities() -> None:
    x, y = correlated_gaussians(5, 2, 0.8, generator(), torch.float64)
    u, w = optimal_critic(x, y, 0.8)
    one = torch.distributions.Normal(0.0, 1.0)
    for i in range(5):
        for j in range(5):
            given_x = torch.distributions.Normal(0.8 * x[i], math.sqrt(1 - 0.8**2))
            ratio = (given_x.log_prob(y[j]) - one.log_prob(y[j])).sum()
            torch.testing.assert_close(u[i] @ w[j], ratio)


def test_bounds_are_their_definitions_on_a_matrix_of_scores() -> None:
    u, w = torch.randn(2, 6, 3, generator=generator(), dtype=torch.float64)
    f = u @ w.T
    others = f[~torch.eye(6, dtype=torch.bool)].exp().mean()
    torch.testing.assert_close(info_nce_bound(u, w), math.log(6) + f.log_softmax(1).diagonal().mean())
    torch.testing.assert_close(dv_bound(u, w), f.diagonal().mean() - others.log())
    paper = (f + 1).diagonal().mean() - math.exp(-1) * (f[~torch.eye(6, dtype=torch.bool)] + 1).exp().mean()
    torch.testing.assert_close(nwj_bound(u, w), paper)


@pytest.mark.parametrize("truth", [1.0, 4.0, 10.0])
def test_info_nce_is_below_the_truth_and_below_log_n(truth: float) -> None:
    n, rho, source = 32, correlation_from_information(truth, 4), generator()

    def draw() -> tuple[Tensor, Tensor]:
        return correlated_gaussians(n, 4, rho, source, torch.float64)

    values = bound_on_batches(info_nce_bound, lambda x, y: optimal_critic(x, y, rho), draw, 100)
    mean, error = mean_and_error(values)
    assert values.max() <= math.log(n) + 1e-12
    assert mean <= truth + 4 * error
    assert mean >= 0.6 * min(truth, math.log(n))  # and no empty bound


def test_no_critic_has_nwj_above_dv() -> None:
    for seed in range(20):
        u, w = 2 * torch.randn(2, 16, 4, generator=generator(seed), dtype=torch.float64)
        assert nwj_bound(u, w) <= dv_bound(u, w) + 1e-12


def test_trained_critics_find_most_of_the_truth_and_not_more() -> None:
    truth, source = 1.0, generator()
    rho = correlation_from_information(truth, 2)

    def draw() -> tuple[Tensor, Tensor]:
        return correlated_gaussians(128, 2, rho, source)

    found: dict[Estimator, float] = {}
    for name, bound in BOUNDS.items():
        critic = Critic(2, source, hidden=32, features=16)
        before, _ = mean_and_error(bound_on_batches(bound, critic, draw, 20))
        train_critic(name, critic, draw, steps=150)
        found[name], error = mean_and_error(bound_on_batches(bound, critic, draw, 50))
        assert before < 0.3 and 0.6 * truth < found[name] <= truth + 4 * error
    assert found["nwj"] <= found["dv"] + 0.1


def test_the_proof_holds_where_all_is_counted() -> None:
    joint = torch.rand(3, 4, generator=generator(), dtype=torch.float64)
    joint /= joint.sum()
    bounds = []
    for n in (1, 2, 3, 4):
        task = contrastive_task(joint, n)
        assert task.least_loss == pytest.approx(math.log(n) - task.information + task.candidates, abs=1e-12)
        assert task.bound(n) <= min(task.information, math.log(n)) + 1e-12
        bounds.append(task.bound(n))
    assert bounds == sorted(bounds) and bounds[0] == pytest.approx(0, abs=1e-12)


def test_counting_agrees_with_the_loss_of_the_best_critic_on_draws() -> None:
    joint = torch.tensor([[0.2, 0.5], [0.3, 0.0]], dtype=torch.float64) + 0.02
    joint /= joint.sum()
    ratio = (joint / (joint.sum(1, keepdim=True) * joint.sum(0))).log()  # (x, c)
    source, n = generator(), 3
    cells = torch.multinomial(joint.flatten(), 60_000, replacement=True, generator=source)
    x, c = cells // 2, cells % 2
    others = torch.multinomial(joint.sum(1), 60_000 * (n - 1), replacement=True, generator=source).view(-1, n - 1)
    scores = ratio[torch.cat([x[:, None], others], 1), c[:, None]]  # (draws, n)
    mean, error = mean_and_error(-scores.log_softmax(1)[:, 0])
    assert contrastive_task(joint, n).least_loss == pytest.approx(mean, abs=4 * error)


ROWS = torch.ones(4, 2)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: correlated_gaussians(4, 2, 2.0, generator()), "rho 2"),
        (lambda: correlated_gaussians(4, 2, math.nan, generator()), "rho nan"),
        (lambda: correlated_gaussians(4, 0, 0.5, generator()), "dimension 0"),
        (lambda: correlated_gaussians(2.5, 2, 0.5, generator()), "n 2.5"),  # type: ignore[arg-type]
        (lambda: optimal_critic(ROWS, ROWS, 1.0), "rho 1"),
        (lambda: optimal_critic(ROWS, ROWS[:3], 0.5), "x (4, 2) y (3, 2)"),
        (lambda: gaussian_information(0.5, -1), "dimension -1 1"),
        (lambda: gaussian_information(math.nan, 2), "rho nan"),
        (lambda: correlation_from_information(1.0, 0), "dimension 0 1"),
        (lambda: correlation_from_information(math.nan, 2), "information nan"),
        (lambda: nwj_bound(ROWS, ROWS[:3]), "u (4, 2) w (3, 2)"),
        (lambda: dv_bound(ROWS, ROWS[:, :1]), "u (4, 2) w (4, 1)"),
        (lambda: info_nce_bound(ROWS, ROWS[:3]), "u (4, 2) w (3, 2)"),
    ],
)
def test_bad_input_is_refused_in_a_line(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert tells(str(error.value), said) and "\n" not in str(error.value)


def test_bad_arguments_are_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match=facts("rho 1")):
        gaussian_information(1.0, 2)
    with pytest.raises(ValueError, match=facts("information -1")):
        correlation_from_information(-1.0, 2)
    with pytest.raises(ValueError, match=facts("estimator 'other' 'info_nce'")):
        train_critic("other", Critic(2, generator()), lambda: correlated_gaussians(4, 2, 0.5, generator()), steps=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=facts("rows")):
        dv_bound(torch.ones(1, 2), torch.ones(1, 2))
    with pytest.raises(ValueError, match=facts("1 measurement")):
        mean_and_error(torch.ones(1))
