"""NCE: a density and its normaliser learned by telling data from noise, with the error that theory gives."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.lab.findings import Claim, Line, Panel, Part, Progress, Table, experiment
from nearfar.lab.nce import (
    TWO_WELLS,
    bank_normalizer_deviation,
    density,
    draw_data,
    fit_bank_normalizer,
    fit_each,
    least_covariance,
    log_normalizer,
    nce_covariance,
)
from nearfar.lab.sphere import sphere_points
from nearfar.losses import estimate_log_normalizer

_SAMPLES = 1000
_FITS = 1000
_AT_ONCE = 100  # fits
_ERRORS = 5.0


@experiment(
    "The normaliser is one more parameter; errors have the covariance I⁻¹ - (1 + 1/ν) e eᵀ, over T, which falls "
    "to that of maximum likelihood as the noise grows."
)
def nce(generator: torch.Generator, quick: bool, progress: Progress) -> list[Part]:
    """Two wells with Gaussian noise of several widths and amounts; then InstDisc's normaliser of a memory bank."""
    return [_two_wells(generator, quick, progress), _bank(generator, quick, progress)]


def _two_wells(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    """Many fits of few samples: enough to progress the theorem's covariance from one without its (1 + 1/ν)."""
    theta = torch.tensor(TWO_WELLS, dtype=torch.float64)
    log_z = log_normalizer(theta)
    truth = torch.cat([theta, theta.new_tensor([log_z])])  # (4,)
    widths, ratios = ((1.0, 2.0), (1, 2)) if quick else ((1.0, 2.0, 5.0), (1, 2, 6))
    rows, claims = [], []
    lines: list[Line] = []
    for width in widths:
        measured, predicted = [], []
        for ratio in ratios:
            progress(f"noise of deviation {width:g}, {ratio} for each sample")
            found = torch.cat([_fits(theta, width, ratio, generator) for _ in range(_FITS // _AT_ONCE)])
            errors = found - truth  # (R, 4)
            covariance = nce_covariance(theta, width, ratio) / _SAMPLES
            deviation = math.sqrt(float(covariance[-1, -1]))
            mean, rms = float(errors[:, -1].mean()), float(errors[:, -1].square().mean().sqrt())
            # squared errors in units of the predicted covariance: 1 on average
            size = float((errors @ torch.linalg.inv(covariance) * errors).sum(1).mean() / 4)
            of = f"noise {width:g}, ν = {ratio}"
            chance = _ERRORS * deviation / math.sqrt(_FITS)
            claims += [
                Claim(f"{of}: log Z learned, mean", "=", log_z, log_z + mean, chance),
                Claim(f"{of}: squared error of log Z over theory", "=", 1.0, (rms / deviation) ** 2, _relative(1)),
                Claim(f"{of}: squared error of all four over theory", "=", 1.0, size, _relative(4)),
            ]
            without = math.sqrt(deviation**2 + (1 + 1 / ratio) / _SAMPLES)
            rows.append((width, ratio, log_z + mean, rms, deviation, without, size))
            measured.append(rms)
            predicted.append(deviation)
        lines += Line.with_theory(f"noise of deviation {width:g}", ratios, measured, predicted)
    least = math.sqrt(float(least_covariance(theta)[-1, -1]) / _SAMPLES)
    lines.append(Line.limit("maximum likelihood", ratios, least))
    columns = ("noise", "ν", "log Z, mean", "its deviation", "theory", "without (1 + 1/ν)", "squared error / theory")
    panels = [
        _picture(theta, found[0]),
        Panel("error of log Z", "noise for each sample, ν", "rms", lines, log="xy"),
    ]
    title = f"two wells, log Z = {log_z:.4f}: {_SAMPLES} samples, {_FITS:,} fits each"
    return claims, Table(title, columns, rows), panels


def _fits(theta: Tensor, width: float, ratio: int, generator: torch.Generator) -> Tensor:
    """(R, 4), of as many data sets as are fitted at once."""
    data = draw_data(theta, _AT_ONCE * _SAMPLES, generator).view(_AT_ONCE, _SAMPLES)
    noise = width * torch.randn(_AT_ONCE, ratio * _SAMPLES, generator=generator, dtype=torch.float64)
    return fit_each(data, noise, width)


def _relative(numbers: int) -> float:
    """Four standard errors of a mean over all fits of squared Gaussians, so many to a fit, in units of the mean."""
    return 4 * math.sqrt(2 / (numbers * _FITS))


def _picture(theta: Tensor, found: Tensor) -> Panel:
    x, p = density(theta)
    _, q = density(found[:3], float(found[3]))
    shown = slice(None, None, 60)
    middle = x.abs() <= 3.5
    lines = [
        Line("fitted, with its own normaliser", x[middle][shown].tolist(), q[middle][shown].tolist()),
        Line("true", x[middle][shown].tolist(), p[middle][shown].tolist(), "limit"),
    ]
    return Panel("two wells", "x", "density", lines)


def _bank(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    """log Z of a memory bank by `losses.nce`, beside the paper's Monte Carlo estimate from the noise alone."""
    n, dimension, samples, ratio = 512, 16, 1000 if quick else 3000, 8
    bank = F.normalize(sphere_points(n, dimension, generator), dim=1)
    query = bank[0]
    rows, claims = [], []
    for tau in (0.5, 0.2, 0.1):
        progress(f"normaliser of a bank, τ = {tau:g}")
        truth = float((bank @ query / tau).logsumexp(0))
        learned = fit_bank_normalizer(query, bank, tau, samples=samples, ratio=ratio, generator=generator)
        deviation = bank_normalizer_deviation(query, bank, tau, samples=samples, ratio=ratio)
        noise = bank[torch.randint(n, (samples,), generator=generator)]
        drawn = float(estimate_log_normalizer(query[None], noise, temperature=tau, bank_size=n))
        rows.append((tau, truth, learned, deviation, drawn))
        claims.append(
            Claim(f"bank, τ = {tau:g}: log Z learned by losses.nce", "=", truth, learned, _ERRORS * deviation)
        )
    columns = ("τ", "log Z", "learned by NCE", "its deviation, theory", "by Monte Carlo from noise")
    return claims, Table(f"a bank of {n}, {samples} samples, ν = {ratio}", columns, rows), []
