"""NCE: the normaliser is found, and its error is the one that the theorem gives."""

import importlib
import math

import pytest
import torch
from scipy import integrate

from nearfar.lab import experiments
from nearfar.lab.nce import (
    TWO_WELLS,
    bank_normalizer_deviation,
    density,
    draw_data,
    features,
    fit,
    fit_bank_normalizer,
    fit_each,
    least_covariance,
    log_normalizer,
    nce_covariance,
)
from nearfar.lab.sphere import sphere_points
from tests.support.facts import facts

THETA = torch.tensor(TWO_WELLS, dtype=torch.float64)


def test_the_true_normaliser_is_scipys() -> None:
    a, b, c = TWO_WELLS
    expected, _ = integrate.quad(lambda x: math.exp(a * x + b * x**2 + c * x**4), -10, 10)
    assert log_normalizer(THETA) == pytest.approx(math.log(expected), abs=1e-9)


def test_data_follow_the_density() -> None:
    x = draw_data(THETA, 50_000, torch.Generator().manual_seed(0))
    grid, p = density(THETA)
    expected = torch.trapezoid(p[:, None] * features(grid), grid, dim=0)
    torch.testing.assert_close(features(x).mean(0), expected, rtol=0.02, atol=0.02)


def test_parameters_and_normaliser_are_found_without_ever_being_told() -> None:
    generator = torch.Generator().manual_seed(0)
    data = draw_data(THETA, 20_000, generator)
    noise = 2 * torch.randn(80_000, generator=generator, dtype=torch.float64)
    found = fit(data, noise, 2.0)
    deviation = (nce_covariance(THETA, 2.0, 4).diagonal() / 20_000).sqrt()
    assert ((found.theta - THETA).abs() < 4 * deviation[:3]).all()
    assert found.log_z == pytest.approx(log_normalizer(THETA), abs=4 * float(deviation[3]))
    assert float(deviation[3]) < 0.02  # four of these are little


def test_the_fit_is_the_maximum_of_the_papers_objective() -> None:
    generator = torch.Generator().manual_seed(1)
    data = draw_data(THETA, 300, generator)
    noise = 1.5 * torch.randn(600, generator=generator, dtype=torch.float64)
    found = fit(data, noise, 1.5)
    at = torch.cat([found.theta, torch.tensor([found.log_z], dtype=torch.float64)]).requires_grad_()
    gauss = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.5 * torch.ones((), dtype=torch.float64))

    def ratio(x: torch.Tensor) -> torch.Tensor:  # h(x), Gutmann & Hyvärinen 2012, section 2.2
        model = (features(x) @ at[:3] - at[3]).exp()
        return model / (model + 2 * gauss.log_prob(x).exp())

    objective = ratio(data).log().sum() + (1 - ratio(noise)).log().sum()
    (slope,) = torch.autograd.grad(objective, at)
    assert slope.abs().max() < 1e-9


def test_the_papers_covariance_and_its_limit() -> None:
    ratio, width = 3.0, 1.3
    x, p = density(THETA)
    g = torch.cat([features(x), -torch.ones_like(x)[:, None]], 1)
    noise = ratio * torch.distributions.Normal(0.0, width).log_prob(x).exp()
    weight = noise / (p + noise)  # P of theorem 3
    information = torch.trapezoid((weight * p)[:, None, None] * g[:, :, None] * g[:, None], x, dim=0)
    mean = torch.trapezoid((weight * p)[:, None] * g, x, dim=0)
    inverse = torch.linalg.inv(information)
    paper = inverse - (1 + 1 / ratio) * torch.outer(inverse @ mean, inverse @ mean)
    torch.testing.assert_close(nce_covariance(THETA, width, ratio), paper, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(nce_covariance(THETA, 2.0, 1e7), least_covariance(THETA), rtol=1e-3, atol=1e-4)


def test_the_normaliser_of_a_bank() -> None:
    generator = torch.Generator().manual_seed(0)
    bank = sphere_points(200, 8, generator)
    truth = float((bank @ bank[0] / 0.3).logsumexp(0))
    found = fit_bank_normalizer(bank[0], bank, 0.3, samples=2000, ratio=4, generator=generator)
    deviation = bank_normalizer_deviation(bank[0], bank, 0.3, samples=2000, ratio=4)
    assert found == pytest.approx(truth, abs=4 * deviation) and deviation < 0.03


def test_many_fits_at_once_are_each_alone() -> None:
    generator = torch.Generator().manual_seed(2)
    data = draw_data(THETA, 4 * 200, generator).view(4, 200)
    noise = 2 * torch.randn(4, 600, generator=generator, dtype=torch.float64)
    for row, each in enumerate(fit_each(data, noise, 2.0)):
        alone = fit(data[row], noise[row], 2.0)
        torch.testing.assert_close(each, torch.cat([alone.theta, torch.tensor([alone.log_z]).double()]))


def test_a_wrong_covariance_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(theta: torch.Tensor, width: float, ratio: float) -> torch.Tensor:
        covariance = nce_covariance(theta, width, ratio)
        covariance[-1, -1] += 1 + 1 / ratio
        return covariance

    monkeypatch.setattr(importlib.import_module("nearfar.lab.experiments.nce"), "nce_covariance", without)
    claims = {c.what: c.agrees for c in experiments.nce(quick=True).claims if "squared error of log Z" in c.what}
    assert len(claims) == 4 and not any(agrees for what, agrees in claims.items() if what.startswith("noise 1"))


@pytest.mark.parametrize(
    ("data", "noise", "said"),
    [
        ([], [1.0], "data (1, 0)"),
        ([1.0], [], "noise (1, 0)"),
        ([math.nan], [1.0], "data NaN infinity"),
        ([1.0], [math.inf], "noise NaN infinity"),
        ([[1.0]], [1.0], "data (1, 1)"),
    ],
)
def test_bad_samples_are_refused_in_a_line(data: list[float], noise: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=facts(said)):
        fit(torch.tensor(data).double(), torch.tensor(noise).double(), 1.0)


def test_bad_noise_is_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match=facts("noise_deviation 0")):
        fit(torch.ones(3).double(), torch.ones(3).double(), 0.0)
