"""Negatives: how many are enough, what the false ones do, and what debiasing mends."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.lab import sphere
from nearfar.lab.findings import Claim, Line, Panel, Part, Progress, Table, experiment, mean_and_error
from nearfar.losses import debiased, info_nce, nt_xent

_TAU = 0.5
_QUERIES = 64
_PAIRS, _DIMENSION, _SPREAD = 128, 16, 0.15  # of the classes on the sphere


@experiment(
    "L - log M tends to log E[e^{s/τ}] - s⁺/τ, the chance in the gradient falls as M^{-1/2}. The debiased sum is "
    "free of false negatives on average where it stays above its floor, and too large, though less than the plain "
    "one, where it does not."
)
def negatives(generator: torch.Generator, quick: bool, progress: Progress) -> list[Part]:
    """Loss and gradient noise of M evenly spread negatives, and the sum of negatives of which some are false."""
    parts = [_number(generator, dimension, quick, progress) for dimension in ((2, 16) if quick else (2, 3, 16))]
    return [*parts, _false(generator, quick, progress), _floor(generator, quick, progress)]


def _number(generator: torch.Generator, dimension: int, quick: bool, progress: Progress) -> Part:
    """The positive is the query itself, so the gradient along the sphere is that of the negatives alone."""
    sizes = (16, 64, 256) if quick else (16, 64, 256, 1024, 4096)
    rows, claims = [], []
    for m in sizes:
        progress(f"D = {dimension}, M = {m}")
        draws = [_loss_and_noise(m, dimension, generator) for _ in range(250 if quick else 300)]
        loss, error = mean_and_error(torch.stack([each for each, _ in draws]))
        squared, squared_error = mean_and_error(torch.stack([each for _, each in draws]))
        predicted, noise = sphere.uniform_loss(m, _TAU, dimension, 1.0), sphere.gradient_noise(m, _TAU, dimension, 1.0)
        rows.append((m, predicted, loss, noise, math.sqrt(squared)))
        if m >= 64:  # below, the second correction counts
            of = f"D = {dimension}, M = {m}"
            claims.append(Claim(f"{of}: loss", "=", predicted, loss, 4 * error + 10 / m**2))
            slack = 4 * squared_error / (2 * math.sqrt(squared)) + 8 * noise / m
            claims.append(Claim(f"{of}: gradient, root mean square", "=", noise, math.sqrt(squared), slack))
    title = {2: "circle", 3: "sphere"}.get(dimension, f"sphere in {dimension} dimensions")
    theory, measured = ([row[column] - math.log(row[0]) for row in rows] for column in (1, 2))
    noise_theory, noise_measured = ([row[column] for row in rows] for column in (3, 4))
    drawn = [
        *Line.with_theory("loss - log M", sizes, measured, theory),
        *Line.with_theory("gradient, rms", sizes, noise_measured, noise_theory),
        Line.limit("limit of loss - log M", sizes, sphere.log_mean_exp(1 / _TAU, dimension) - 1 / _TAU),
    ]
    panel = Panel(title, "negatives M", "nats; gradient", drawn, log="x")
    columns = ("M", "loss, theory", "measured", "gradient rms, theory", "measured")
    return claims, Table(f"{title}: evenly spread embeddings, τ = {_TAU:g}", columns, rows), [panel]


def _loss_and_noise(m: int, dimension: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Mean loss of some queries with the same M negatives, and the mean square of their gradients."""
    query = sphere.sphere_points(_QUERIES, dimension, generator).requires_grad_()
    loss = info_nce(
        query, query.detach(), sphere.sphere_points(m, dimension, generator), temperature=_TAU, reduction="none"
    )
    (gradient,) = torch.autograd.grad(loss.sum(), query)
    return loss.detach().mean(), gradient.square().sum(1).mean()


class _Masses(NamedTuple):
    """What a negative weighs, `e^{s/τ}` on average: one number for each batch."""

    true: Tensor  # by the labels
    plain: Tensor  # as NT-Xent takes it
    debiased: Tensor
    on_floor: Tensor  # share of the rows whose debiased sum is the floor

    def biases(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Of the plain and of the debiased, each with its standard error."""
        return mean_and_error(self.plain - self.true), mean_and_error(self.debiased - self.true)


def _masses(batches: int, classes: int, tau: float, generator: torch.Generator) -> _Masses:
    found = []
    for _ in range(batches):
        labels, z1, z2 = sphere.classes_on_sphere(_PAIRS, classes, _DIMENSION, _SPREAD, generator)
        true = sphere.mean_true_negative_weight(z1, z2, labels, tau)
        plain = nt_xent(z1, z2, temperature=tau, reduction="none")
        mended = debiased(z1, z2, temperature=tau, positive_prior=1 / classes, reduction="none")
        mass = sphere.mean_negative_weight(mended, z1, z2, tau)
        floor = mass <= math.exp(-1 / tau) * (1 + 1e-6)  # what opposite vectors would weigh; and rounding
        found.append(
            torch.stack(
                [
                    true.mean(),
                    sphere.mean_negative_weight(plain, z1, z2, tau).mean(),
                    mass.mean(),
                    floor.double().mean(),
                ]
            )
        )
    return _Masses(*torch.stack(found, 1))


def _false(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    """Classes on the sphere: what the losses take a negative to weigh, beside who knows the labels."""
    tau, counts = 1.0, (2, 4, 8, 16)
    rows, claims = [], []
    biases: list[float] = []
    debiases: list[float] = []
    for classes in counts:
        progress(f"false negatives: {classes} classes")
        (bias, bias_error), (rest, rest_error) = _masses(30 if quick else 200, classes, tau, generator).biases()
        expected = _expected_bias(classes, tau, generator)
        rows.append(
            (classes, 1 / classes, expected, f"{bias:.4f} ± {bias_error:.4f}", f"{rest:.4f} ± {rest_error:.4f}")
        )
        biases.append(bias)
        debiases.append(rest)
        claims += [
            Claim(f"{classes} classes: bias of NT-Xent's sum", "=", expected, bias, 5 * bias_error + 0.02 * expected),
            Claim(f"{classes} classes: bias of the debiased sum", "=", 0.0, rest, 5 * rest_error),
        ]
    lines = [Line("NT-Xent", counts, biases), Line("debiased", counts, debiases), Line.limit("no bias", counts, 0)]
    panel = Panel("mean weight of a negative, minus the truth", "classes", "bias of the mean of exp(s/τ)", lines)
    columns = ("classes", "false negatives", "bias of NT-Xent, theory", "measured", "bias of debiased (theory: 0)")
    return claims, Table(f"false negatives, {_PAIRS} pairs, τ = {tau:g}", columns, rows), [panel]


def _floor(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    """The debiased sum at small temperatures, where its floor N e^{-1/τ} takes the place of many a row.

    Without the floor the sum is right on average, whatever the temperature. A floor can only raise it.
    """
    classes, temperatures = 4, (1.0, 0.5, 0.3, 0.2, 0.1)
    rows, claims = [], []
    over: dict[str, list[float]] = {"NT-Xent": [], "debiased": []}
    for tau in temperatures:
        progress(f"the floor of the debiased sum: τ = {tau:g}")
        found = _masses(60 if quick else 200, classes, tau, generator)
        (bias, error), (rest, rest_error) = found.biases()
        true, share = float(found.true.mean()), float(found.on_floor.mean())
        rows.append((tau, true, true + bias, true + rest, share))
        over["NT-Xent"].append((true + bias) / true)
        over["debiased"].append((true + rest) / true)
        of = f"τ = {tau:g}, {share:.1%} of the rows on the floor: bias of the debiased sum"
        if share < 0.01:
            claims.append(Claim(of, "=", 0.0, rest, 5 * rest_error))
        else:
            plain = bias - 3 * math.hypot(error, rest_error)
            claims += [Claim(of, "≥", 3 * rest_error, rest), Claim(f"{of}, below the plain one's", "≤", plain, rest)]
    lines = [
        *(Line(name, temperatures, values) for name, values in over.items()),
        Line.limit("no bias", temperatures, 1),
    ]
    title = f"mean weight of a negative, {classes} classes"
    panel = Panel(title, "temperature", "mean of exp(s/τ), over the truth", lines, log="xy")
    columns = ("τ", "true negatives", "NT-Xent", "debiased", "rows on the floor")
    return claims, Table(f"what a negative weighs, {classes} classes, {_PAIRS} pairs", columns, rows), [panel]


def _expected_bias(classes: int, tau: float, generator: torch.Generator) -> float:
    """A share 1/K of the negatives is of the class: `(E⁺[e^{s/τ}] - E⁻[e^{s/τ}]) / K`, from pairs drawn apart."""
    labels, z1, z2 = sphere.classes_on_sphere(20_000, classes, _DIMENSION, _SPREAD, generator)
    other = torch.randperm(len(z2), generator=generator)
    same = ((z1 * z2).sum(1) / tau).exp().mean()
    different = ((z1 * z2[other]).sum(1) / tau).exp()[labels != labels[other]].mean()
    return float(same - different) / classes
