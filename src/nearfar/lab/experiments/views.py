"""Views: an encoder learns what they share, and no more; how much that is can be counted."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.evaluation.geometry import alignment
from nearfar.lab.estimators import expected_gap, gaussian_information, info_nce_bound, optimal_bounds
from nearfar.lab.findings import Cell, Claim, Line, Panel, Part, Progress, Table, experiment, mean_and_error
from nearfar.lab.information import mutual_information
from nearfar.lab.networks import minimize, mlp
from nearfar.lab.samples import sampled_mutual_information
from nearfar.losses import info_nce

_VALUES = 8  # of each factor
_CODE = 8  # numbers that show a factor
_BATCH = 128
_TAU = 0.1
_ROWS = 4096  # of which one half makes the read-out, and the other is read
_READ = 0.05  # nats that training may leave of a factor, or take: 2 % of log 8
_POLICIES = {  # name: which of (shape, colour) the second view keeps
    "both kept": (True, True),
    "colour changed": (True, False),
    "shape changed": (False, True),
    "both changed": (False, False),
}


@experiment(
    "The bound cannot exceed I(v1; v2), what the views share. An encoder that reaches it tells log 8 nats of what "
    "they keep, and nothing of what they change."
)
def views(generator: torch.Generator, quick: bool, progress: Progress) -> list[Part]:
    """Things with a shape and a colour, of which views keep one, both or none; then views with more and more noise."""
    return [_factors(generator, quick, progress), _noise(generator, quick, progress)]


def shared_information(keeps: tuple[bool, bool]) -> float:
    """I(v1; v2) of two factors with 8 values each, from the table of both views' factors.

    >>> math.isclose(shared_information((True, False)), math.log(8))
    True
    """
    same, any_other = torch.eye(_VALUES).double() / _VALUES, torch.full((_VALUES, _VALUES), _VALUES**-2).double()
    shape, color = (same if kept else any_other for kept in keeps)
    return mutual_information(torch.kron(shape, color))


def best_bound(values: int, n: int) -> float:
    """`log N - E[log(1 + Binomial(N - 1, 1/K))]`, of the best critic where views share one of K equally likely values.

    All candidates with the right value look alike; the loss is the log of their number.
    """
    count = torch.arange(n, dtype=torch.float64)
    chance = torch.distributions.Binomial(n - 1, torch.tensor(1 / values, dtype=torch.float64)).log_prob(count).exp()
    return max(0.0, math.log(n) - float((chance * (1 + count).log()).sum()))


def _factors(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    codes = torch.randn(2, _VALUES, _CODE, generator=generator)  # of shapes and of colours
    mixed, _ = torch.linalg.qr(torch.randn(2 * _CODE, 2 * _CODE, generator=generator))

    def show(factors: Tensor) -> Tensor:
        """(n, 16) inputs of (n, 2) factors, with noise of their own."""
        plain = torch.cat([codes[0, factors[:, 0]], codes[1, factors[:, 1]]], 1) @ mixed
        shown: Tensor = plain + 0.1 * torch.randn(plain.shape, generator=generator)
        return shown

    def two_views(n: int, keeps: tuple[bool, bool]) -> tuple[Tensor, Tensor, Tensor]:
        first, new = torch.randint(_VALUES, (2, n, 2), generator=generator)
        second = torch.where(torch.tensor(keeps), first, new)
        return show(first), show(second), first

    rows: list[tuple[Cell, ...]] = []
    claims = []
    shares: dict[str, tuple[float, float]] = {}
    told: dict[str, tuple[float, float]] = {}
    for name, keeps in _POLICIES.items():
        progress(f"training, {name}")
        encoder = mlp([2 * _CODE, 64, 16], generator)

        def loss(keeps: tuple[bool, bool] = keeps, encoder: torch.nn.Module = encoder) -> Tensor:
            v1, v2, _ = two_views(_BATCH, keeps)
            return info_nce(encoder(v1), encoder(v2), temperature=_TAU)

        minimize(loss, list(encoder.parameters()), steps=400 if quick else 500, lr=1e-2)
        with torch.no_grad():
            losses = torch.stack([loss() for _ in range(50)]).double()
            v1, v2, factors = two_views(_ROWS, keeps)
            z1, z2 = F.normalize(encoder(v1), dim=1).double(), F.normalize(encoder(v2), dim=1).double()
        bound, error = mean_and_error(math.log(_BATCH) - losses)
        truth, best = shared_information(keeps), best_bound(_VALUES ** sum(keeps), _BATCH)
        explained = [_explained(z1, factors[:, i]) for i in range(2)]
        read = [_read_out(z1, factors[:, i]) for i in range(2)]
        variance = float((z1 - z1.mean(0)).square().sum(1).mean())
        half = float(alignment(z1, z2)) / 2
        shares[name] = (explained[0] / variance, explained[1] / variance)
        rows.append((name, truth, best, bound, *shares[name], half / variance, *read))
        told[name] = (read[0], read[1])
        claims.append(Claim(f"{name}: bound, at most that of the best critic", "≤", best, bound, 4 * error + 1e-6))
        if any(keeps):
            claims.append(Claim(f"{name}: bound, has learned", "≥", 0.97 * best - 0.05, bound, kind="ours"))
        for factor, kept, share, nats in zip(("shape", "colour"), keeps, shares[name], read, strict=True):
            if not kept:
                of = f"{name}: share of variance explained by the {factor}, at most half the alignment's"
                claims.append(Claim(of, "≤", half / variance, share, 0.01, "identity"))
            if any(keeps):  # else nothing is learned, and random weights let both through
                whole = math.log(_VALUES) if kept else 0.0
                claims.append(Claim(f"{name}: nats of the {factor} read out", "=", whole, nats, _READ + _chance(_ROWS)))
    names = [name.replace(" ", "\n") for name in told]
    lines = [Line(factor, names, [nats[i] for nats in told.values()]) for i, factor in enumerate(("shape", "color"))]
    lines.append(Line("log 8", names, [math.log(_VALUES)] * len(names), "limit"))
    panel = Panel("read out of the embeddings", "views", "nats", lines)
    columns = (
        *("views", "I(v1; v2)", "best bound", "bound learned", "explained by shape", "by colour"),
        *("half the alignment", "shape read out, nats", "colour read out"),
    )
    return claims, Table(f"shape and colour, {_VALUES} values each, N = {_BATCH}", columns, rows), [panel]


def _noise(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    """Views x + σε of unit Gaussians x: correlation 1 / (1 + σ²), so I(v1; v2) is known."""
    n, dimension, strengths = 256, 4, (0.25, 0.5, 1.0, 2.0, 4.0)
    rows, found, truths, claims = [], [], [], []
    for sigma in strengths:
        progress(f"noise of {sigma:g}")
        rho = 1 / (1 + sigma**2)
        truth = gaussian_information(rho, dimension)
        found.append(mean_and_error(optimal_bounds(info_nce_bound, n, dimension, rho, generator, 60)))
        truths.append(truth)
        value, error = found[-1]
        gap = expected_gap(truth, n)
        tight = sigma >= 0.5  # N is large against e^{2I}: the first order is most of the gap
        rows.append((sigma, rho, truth, truth - gap if tight else "", f"{value:.4f} ± {error:.4f}"))
        if tight:
            claims.append(Claim(f"noise {sigma:g}: bound", "=", truth - gap, value, min(gap, 0.15) + 4 * error))
    above = max((v - t) / e for (v, e), t in zip(found, truths, strict=True))
    rise = max((b - a) / math.hypot(e, f) for (a, e), (b, f) in pairwise(found))
    claims += [
        Claim("noise: bound above I(v1; v2), in standard errors, largest", "≤", 0.0, above, 5.0),
        Claim("noise: rise of the bound from one strength to the next, in standard errors", "≤", 0.0, rise, 5.0),
    ]
    lines = [*Line.with_theory("bound, best critic", strengths, [v for v, _ in found], truths)]
    lines.append(Line.limit("ceiling log N", strengths, math.log(n)))
    panel = Panel("information that views with noise share", "noise", "nats", lines, log="x")
    columns = ("σ", "correlation", "I(v1; v2)", "less (e^2I - 1) / 2N", "bound")
    return claims, Table(f"views with noise, N = {n}", columns, rows), [panel]


def _explained(z: Tensor, factor: Tensor) -> float:
    """The variance of the means of z over the values of a factor."""
    means = torch.stack([z[factor == value].mean(0) for value in range(_VALUES)])
    weights = torch.bincount(factor, minlength=_VALUES) / len(factor)
    return float((weights * (means - z.mean(0)).square().sum(1)).sum())


def _chance(rows: int) -> float:
    """Four deviations of the nats that half of so many rows show of independent factors: χ² with 49 degrees over 2n."""
    return 4 * math.sqrt(2) * (_VALUES - 1) / rows


def _read_out(z: Tensor, factor: Tensor) -> float:
    """Nats between a factor and what the nearest mean says of it, means of one half, answers of the other."""
    half = len(z) // 2
    means = torch.stack([z[:half][factor[:half] == value].mean(0) for value in range(_VALUES)])
    said = torch.cdist(z[half:], means).argmin(1)
    return sampled_mutual_information(said, factor[half:], correction="miller_madow")
