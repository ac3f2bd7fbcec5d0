"""Closed forms on the sphere: against Bessel functions, and against points drawn there."""

import math
from collections.abc import Callable

import pytest
import torch
from scipy import special
from torch import Tensor

from nearfar.evaluation.geometry import alignment, uniformity
from nearfar.lab.gradient import (
    autograd_in_similarities,
    effective_negatives,
    gradient_in_query,
    gradient_in_similarities,
    negative_weights,
    uniform_effective_fraction,
    uniform_hardest_weight,
)
from nearfar.lab.sphere import (
    classes_on_sphere,
    cosine_distribution,
    gradient_noise,
    log_mean_exp,
    mean_cosine,
    mean_negative_weight,
    mean_true_negative_weight,
    polygon_uniformity,
    relative_variance,
    rotated,
    rotation_alignment,
    sample_von_mises_fisher,
    sphere_points,
    uniform_loss,
    uniform_uniformity,
    von_mises_fisher_alignment,
)
from nearfar.losses import info_nce, nt_xent
from tests.support.facts import facts, tells


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kappa", [0.1, 2.0, 10.0, 100.0])
@pytest.mark.parametrize("dimension", [2, 3, 8, 64])
def test_mean_exponential_is_the_bessel_function(kappa: float, dimension: int) -> None:
    v = dimension / 2 - 1
    bessel = math.log(special.ive(v, kappa)) + kappa
    expected = bessel + math.lgamma(dimension / 2) - v * math.log(kappa / 2)
    assert log_mean_exp(kappa, dimension) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    ratio = special.ive(v + 1, kappa) / special.ive(v, kappa)
    assert mean_cosine(kappa, dimension) == pytest.approx(ratio, rel=1e-9)


@pytest.mark.parametrize("kappa", [0.5, 10.0, 1000.0, 20_000.0])
@pytest.mark.parametrize("dimension", [65, 1000, 50_000, 200_000])
def test_mean_exponential_in_many_dimensions(kappa: float, dimension: int) -> None:
    mpmath = pytest.importorskip("mpmath")
    expected = float(mpmath.log(mpmath.hyp0f1(mpmath.mpf(dimension) / 2, mpmath.mpf(kappa) ** 2 / 4)))
    assert log_mean_exp(kappa, dimension) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    h = kappa * 1e-4
    slope = (log_mean_exp(kappa + h, dimension) - log_mean_exp(kappa - h, dimension)) / (2 * h)
    assert mean_cosine(kappa, dimension) == pytest.approx(slope, rel=1e-4)
    assert mean_cosine(-kappa, dimension) == pytest.approx(-mean_cosine(kappa, dimension), rel=1e-9)


def test_uniformity_of_circle_and_sphere() -> None:
    assert uniform_uniformity(2) == pytest.approx(math.log(special.i0(4)) - 4, abs=1e-12)
    assert uniform_uniformity(3) == pytest.approx(math.log(math.sinh(4) / 4) - 4, abs=1e-12)
    for dimension in (2, 3, 16):
        z = sphere_points(4000, dimension, torch.Generator().manual_seed(0))
        assert float(uniformity(z)) == pytest.approx(uniform_uniformity(dimension), abs=0.005)


def test_points_at_equal_steps_are_the_most_uniform() -> None:
    angle = 2 * math.pi * torch.arange(7, dtype=torch.float64) / 7
    polygon = torch.stack([angle.cos(), angle.sin()], 1)
    assert float(uniformity(polygon)) == pytest.approx(polygon_uniformity(7), abs=1e-12)
    for seed in range(5):
        assert float(uniformity(polygon + 0.05 * rows(7, 2, seed=seed))) > polygon_uniformity(7)
    assert polygon_uniformity(10_000) == pytest.approx(uniform_uniformity(2), abs=1e-3)


@pytest.mark.parametrize("dimension", [2, 3, 8])
def test_alignment_of_turned_points(dimension: int) -> None:
    generator = torch.Generator().manual_seed(0)
    z = sphere_points(20_000, dimension, generator)
    other = rotated(z, 0.8, generator)
    torch.testing.assert_close(other.norm(dim=1), torch.ones(20_000).double())
    assert float(alignment(z, other)) == pytest.approx(rotation_alignment(0.8), abs=0.02)
    assert other.mean(0).abs().max() < 0.03  # evenly, as before


@pytest.mark.parametrize("kappa", [0.5, 3.0, 40.0])
def test_alignment_of_points_drawn_around_others_on_the_sphere(kappa: float) -> None:
    generator = torch.Generator().manual_seed(0)
    z = sphere_points(20_000, 3, generator)
    other = sample_von_mises_fisher(z, kappa, generator)
    torch.testing.assert_close(other.norm(dim=1), torch.ones(20_000).double())
    assert von_mises_fisher_alignment(kappa) == pytest.approx(2 - 2 * mean_cosine(kappa, 3), rel=1e-9)
    assert float(alignment(z, other)) == pytest.approx(von_mises_fisher_alignment(kappa), abs=0.03)
    assert float((z * other).sum(1).var()) == pytest.approx(1 - 1 / math.tanh(kappa) ** 2 + 1 / kappa**2, rel=0.05)


def test_loss_and_gradient_of_evenly_spread_negatives() -> None:
    generator, m, tau, dimension = torch.Generator().manual_seed(0), 512, 0.5, 8
    losses, squares = [], []
    for _ in range(60):
        q = sphere_points(32, dimension, generator).requires_grad_()
        loss = info_nce(q, q.detach(), sphere_points(m, dimension, generator), temperature=tau, reduction="none")
        (gradient,) = torch.autograd.grad(loss.sum(), q)
        losses.append(float(loss.detach().mean()))
        squares.append(float(gradient.square().sum(1).mean()))
    assert sum(losses) / 60 == pytest.approx(uniform_loss(m, tau, dimension, 1.0), abs=0.004)
    assert math.sqrt(sum(squares) / 60) == pytest.approx(gradient_noise(m, tau, dimension, 1.0), rel=0.05)
    assert relative_variance(1e-9, dimension) == pytest.approx(0, abs=1e-12)


def test_debiasing_takes_the_false_negatives_out_on_average() -> None:
    from nearfar.losses import debiased

    generator, plain, mended = torch.Generator().manual_seed(0), [], []
    for _ in range(40):
        labels, z1, z2 = classes_on_sphere(64, 4, 8, 0.2, generator)
        true = mean_true_negative_weight(z1, z2, labels, 1.0)
        dense = (z1 @ torch.cat([z1, z2]).T).exp()
        other = labels[:, None] != labels.repeat(2)
        torch.testing.assert_close(true[:64], (dense * other).sum(1) / other.sum(1))
        biased = nt_xent(z1, z2, temperature=1.0, reduction="none")
        less = debiased(z1, z2, temperature=1.0, positive_prior=0.25, reduction="none")
        plain.append(float((mean_negative_weight(biased, z1, z2, 1.0) - true).mean()))
        mended.append(float((mean_negative_weight(less, z1, z2, 1.0) - true).mean()))
    assert sum(plain) / 40 > 0.2 and abs(sum(mended) / 40) < 0.02


@pytest.mark.parametrize("temperature", [0.05, 0.5, 5.0])
def test_the_gradient_in_closed_form_is_autograds(temperature: float) -> None:
    s = rows(5, 9).tanh()
    near, far = gradient_in_similarities(s[:, 0], s[:, 1:], temperature)
    auto_near, auto_far = autograd_in_similarities(s[:, 0], s[:, 1:], temperature)
    torch.testing.assert_close(near, auto_near, rtol=0, atol=1e-10)
    torch.testing.assert_close(far, auto_far, rtol=0, atol=1e-10)
    leaf = s.clone().requires_grad_()  # and the loss as it is written in papers
    (-(leaf / temperature).log_softmax(1)[:, 0]).sum().backward()
    torch.testing.assert_close(torch.cat([near[:, None], far], 1), leaf.grad, rtol=0, atol=1e-10)
    q, k, others = rows(4, 6), rows(4, 6, seed=1), rows(12, 6, seed=2)
    q.requires_grad_()
    info_nce(q, k, others, temperature=temperature, reduction="sum").backward()
    torch.testing.assert_close(gradient_in_query(q.detach(), k, others, temperature), q.grad, rtol=0, atol=1e-10)


def test_temperature_from_the_hardest_alone_to_all_alike() -> None:
    s = rows(6, 50).tanh()
    torch.testing.assert_close(effective_negatives(s, 1e-7), torch.ones(6).double())
    assert effective_negatives(s, 1e5).min() > 49.999
    torch.testing.assert_close(negative_weights(s, 1e-7).argmax(1), s.argmax(1))


def test_weights_of_evenly_spread_negatives() -> None:
    assert uniform_effective_fraction(1e6, 8) == pytest.approx(1)
    assert uniform_hardest_weight(1e6, 8, 0.01) == pytest.approx(0.01, rel=1e-3)
    assert uniform_hardest_weight(0.5, 3, 0.5) == pytest.approx(  # half the sphere: cosines above 0
        (math.exp(2) - 1) / (math.exp(2) - math.exp(-2)), rel=1e-3
    )
    generator = torch.Generator().manual_seed(0)
    s = sphere_points(8, 8, generator) @ sphere_points(20_000, 8, generator).T
    assert float(effective_negatives(s, 0.3).mean()) / 20_000 == pytest.approx(
        uniform_effective_fraction(0.3, 8), rel=0.03
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: uniform_loss(8, 0.0, 3, 1.0), "temperature 0"),
        (lambda: uniform_loss(8, -1.0, 3, 1.0), "temperature -1 0"),
        (lambda: uniform_loss(0, 0.5, 3, 1.0), "negatives 0"),
        (lambda: gradient_noise(8, math.nan, 3, 1.0), "temperature nan 0"),
        (lambda: uniform_effective_fraction(0.0, 3), "temperature 0"),
        (lambda: uniform_hardest_weight(-1.0, 3, 0.01), "temperature -1 0"),
        (lambda: log_mean_exp(math.nan, 3), "kappa nan finite"),
        (lambda: log_mean_exp(1.0, 2.5), "dimension 2.5 2"),  # type: ignore[arg-type]
        (lambda: sample_von_mises_fisher(torch.ones(4, 2), 1.0, torch.Generator()), "z (4, 2)"),
        (lambda: sample_von_mises_fisher(torch.ones(4, 3), 0.0, torch.Generator()), "kappa 0"),
    ],
)
def test_bad_input_is_refused_in_a_line(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert tells(str(error.value), said) and "\n" not in str(error.value)


def test_bad_arguments_are_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match=facts("dimension 1 2")):
        cosine_distribution(1)
    with pytest.raises(ValueError, match=facts("classes 9 8")):
        classes_on_sphere(10, 9, 8, 0.1, torch.Generator())
