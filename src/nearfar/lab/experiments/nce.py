"""NCE: a density and its normaliser learned by telling data from noise, with the error that theory gives."""

import math

import torch
import torch.nn.functional as F

from nearfar.lab.findings import Claim, Findings, Line, Panel, Table, Tell, quiet
from nearfar.lab.nce import (
    TWO_WELLS,
    Fit,
    bank_normaliser_deviation,
    density,
    draw_data,
    fit,
    fit_bank_normaliser,
    least_covariance,
    log_normaliser,
    nce_covariance,
)
from nearfar.lab.sphere import sphere_points
from nearfar.losses import estimate_log_normalizer

_SAMPLES = 2000
_ERRORS = 5.0

Part = tuple[list[Claim], Table, list[Panel]]


def nce(seed: int = 0, *, quick: bool = False, tell: Tell = quiet) -> Findings:
    """Two wells with Gaussian noise of several widths and amounts; then InstDisc's normaliser of a memory bank."""
    generator = torch.Generator().manual_seed(seed)
    parts = [_two_wells(generator, quick, tell), _bank(generator, quick, tell)]
    return Findings(
        "nce",
        "The normaliser is one more parameter; errors have the covariance I⁻¹ - (1 + 1/ν) e eᵀ, over T, which falls "
        "to that of maximum likelihood as the noise grows.",
        claims=[claim for claims, _, _ in parts for claim in claims],
        tables=[table for _, table, _ in parts],
        panels=[panel for _, _, panels in parts for panel in panels],
    )


def _two_wells(generator: torch.Generator, quick: bool, tell: Tell) -> Part:
    theta = torch.tensor(TWO_WELLS, dtype=torch.float64)
    truth = torch.cat([theta, theta.new_tensor([log_normaliser(theta)])])  # (4,)
    repeats, ratios = (20, (1, 4)) if quick else (100, (1, 4, 16))
    widths = (1.0, 2.0) if quick else (1.0, 2.0, 5.0)
    rows, claims, lines = [], [], []
    last: Fit | None = None
    for width in widths:
        measured, predicted = [], []
        for ratio in ratios:
            tell(f"noise of deviation {width:g}, {ratio} for each sample")
            fits = [
                fit(
                    draw_data(theta, _SAMPLES, generator),
                    width * torch.randn(_SAMPLES * ratio, generator=generator, dtype=torch.float64),
                    width,
                )
                for _ in range(repeats)
            ]
            last = fits[0]
            errors = torch.stack([torch.cat([f.theta, theta.new_tensor([f.log_z])]) - truth for f in fits])  # (R, 4)
            covariance = nce_covariance(theta, width, ratio) / _SAMPLES
            deviation = math.sqrt(float(covariance[-1, -1]))
            rms = float(errors[:, -1].square().mean().sqrt())
            # squared errors in units of the predicted covariance: 1 on average
            size = float((errors @ torch.linalg.inv(covariance) * errors).sum(1).mean() / 4)
            of = f"noise {width:g}, ν = {ratio}"
            mean = float(errors[:, -1].mean())
            claims += [
                Claim(
                    f"{of}: log Z learned, mean of {repeats} fits",
                    *("=", float(truth[-1]), float(truth[-1]) + mean, _ERRORS * deviation / math.sqrt(repeats)),
                ),
                Claim(f"{of}: squared error over predicted", "=", 1.0, size, _ERRORS * math.sqrt(2 / (4 * repeats))),
            ]
            rows.append((width, ratio, float(truth[-1]), float(truth[-1]) + mean, deviation, rms, size))
            measured.append(rms)
            predicted.append(deviation)
        lines += [
            Line(f"noise of deviation {width:g}", ratios, measured),
            Line(f"noise of deviation {width:g}", ratios, predicted, "predicted"),
        ]
    least = math.sqrt(float(least_covariance(theta)[-1, -1]) / _SAMPLES)
    lines.append(Line("maximum likelihood", [ratios[0], ratios[-1]], [least, least], "limit"))
    columns = ("noise", "ν", "log Z", "learned, mean", "its deviation, theory", "measured", "squared error / theory")
    assert last is not None
    panels = [_picture(theta, last), Panel("error of log Z", "noise for each sample, ν", "rms", lines, log="xy")]
    return claims, Table(f"two wells, {_SAMPLES} samples, {repeats} fits each", columns, rows), panels


def _picture(theta: torch.Tensor, found: Fit) -> Panel:
    x, p = density(theta)
    _, q = density(found.theta, found.log_z)
    shown = slice(None, None, 60)
    middle = x.abs() <= 3.5
    lines = [
        Line("fitted, with its own normaliser", x[middle][shown].tolist(), q[middle][shown].tolist()),
        Line("true", x[middle][shown].tolist(), p[middle][shown].tolist(), "limit"),
    ]
    return Panel("two wells", "x", "density", lines)


def _bank(generator: torch.Generator, quick: bool, tell: Tell) -> Part:
    """log Z of a memory bank by `losses.nce`, beside the paper's Monte Carlo estimate from the noise alone."""
    n, dimension, samples, ratio = 512, 16, 1000 if quick else 3000, 8
    bank = F.normalize(sphere_points(n, dimension, generator), dim=1)
    query = bank[0]
    rows, claims = [], []
    for tau in (0.5, 0.2, 0.1):
        tell(f"normaliser of a bank, τ = {tau:g}")
        truth = float((bank @ query / tau).logsumexp(0))
        learned = fit_bank_normaliser(query, bank, tau, samples=samples, ratio=ratio, generator=generator)
        deviation = bank_normaliser_deviation(query, bank, tau, samples=samples, ratio=ratio)
        noise = bank[torch.randint(n, (samples,), generator=generator)]
        drawn = float(estimate_log_normalizer(query[None], noise, temperature=tau, bank_size=n))
        rows.append((tau, truth, learned, deviation, drawn))
        claims.append(
            Claim(f"bank, τ = {tau:g}: log Z learned by losses.nce", "=", truth, learned, _ERRORS * deviation)
        )
    columns = ("τ", "log Z", "learned by NCE", "its deviation, theory", "by Monte Carlo from noise")
    return claims, Table(f"a bank of {n}, {samples} samples, ν = {ratio}", columns, rows), []
