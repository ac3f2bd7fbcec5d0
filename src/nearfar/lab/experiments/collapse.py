"""What collapse looks like: complete, to a few dimensions, and not at all; and which losses lead there."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.evaluation.geometry import alignment, deviation, effective_rank, uniformity
from nearfar.lab import sphere
from nearfar.lab.findings import Claim, Line, Panel, Part, Progress, Table, experiment, mean_and_error
from nearfar.lab.information import entropy
from nearfar.lab.networks import mlp
from nearfar.losses import nt_xent, vicreg

_TAU = 0.5
_DIMENSION = 32


@experiment(
    "Where all is one point NT-Xent is log(2N - 1), uniformity 0 and RankMe 1. A cloud in r of D dimensions has "
    "RankMe r, and the deviation of a dimension does not show it. Alignment alone collapses."
)
def collapse(generator: torch.Generator, quick: bool, progress: Progress) -> list[Part]:
    """Clouds of which loss, uniformity, rank and deviation are known; then three losses on one small encoder."""
    progress("clouds of known shape")
    n = 1024 if quick else 4096
    return [_clouds(n, generator), _two_views(generator), _trained(generator, quick, progress)]


def _clouds(n: int, generator: torch.Generator) -> Part:
    """Evenly spread in r of 32 dimensions, turned at random so that every axis has a share; and a falling spectrum."""
    turn, _ = torch.linalg.qr(torch.randn(_DIMENSION, _DIMENSION, generator=generator, dtype=torch.float64))
    rows, claims = [], []
    for r in (_DIMENSION, 8, 3, 2):
        z = sphere.sphere_points(n, r, generator) @ turn[:r]
        name = {_DIMENSION: "spread over all", 3: "a sphere", 2: "a circle"}.get(r, f"spread over {r} dimensions")
        loss, rank = float(nt_xent(z, z, temperature=_TAU)), float(effective_rank(z))
        each, spread = float(deviation(z).square().mean().sqrt()), float(uniformity(z))
        # each negative occurs twice: half as many draws, so once more half the relative variance over M
        chance = sphere.relative_variance(1 / _TAU, r) / (2 * (2 * n - 2))
        expected = sphere.uniform_loss(2 * n - 2, _TAU, r, 1.0) - chance
        rows.append((name, r, rank, sphere.uniform_uniformity(r), spread, expected, loss, _DIMENSION**-0.5, each))
        claims += [
            Claim(f"{name}: RankMe", "=", r, rank, 0.5 * r * r / n + 0.01 * r),
            Claim(f"{name}: uniformity", "=", sphere.uniform_uniformity(r), spread, _chance(n, 4.0, r)),
            Claim(f"{name}: NT-Xent", "=", expected, loss, _chance(n, 1 / _TAU, r)),
            Claim(f"{name}: deviation of a dimension, rms", "=", _DIMENSION**-0.5, each, 0.02 * _DIMENSION**-0.5),
        ]
    one = turn[:1].repeat(n, 1)
    loss, rank, spread = float(nt_xent(one, one, temperature=_TAU)), float(effective_rank(one)), float(uniformity(one))
    each = float(deviation(one).max())
    rows.append(("one point", 1, rank, 0.0, spread, sphere.collapsed_loss(n), loss, 0.0, each))
    falling = 1 / torch.arange(1, _DIMENSION + 1, dtype=torch.float64)
    cloud = torch.randn(n, _DIMENSION, generator=generator, dtype=torch.float64) * falling @ turn
    expected, rank_falling = math.exp(entropy(falling / falling.sum())), float(effective_rank(cloud))
    claims += [
        Claim("one point: NT-Xent, log(2N - 1)", "=", sphere.collapsed_loss(n), loss, 1e-9, "identity"),
        Claim("one point: RankMe", "=", 1.0, rank, 1e-4, "identity"),
        Claim("one point: uniformity", "=", 0.0, spread, 1e-9, "identity"),
        Claim("one point: deviation of a dimension, largest", "=", 0.0, each, 1e-12, "identity"),
        Claim("deviations 1, 1/2, 1/3, …: RankMe is e^{entropy of their shares}", "=", expected, rank_falling, 0.4),
    ]
    kept, ranks, spreads = [row[1] for row in rows], [row[2] for row in rows], [row[4] for row in rows]
    lines = [Line("RankMe", kept, ranks), Line("RankMe", [1, _DIMENSION], [1, _DIMENSION], "predicted")]
    panel = Panel("RankMe sees the dimensions", "dimensions of the cloud", "RankMe", lines, log="xy")
    shapes = list(range(2, _DIMENSION + 1))
    lines = [
        Line("uniformity", kept, spreads),
        Line("uniformity", shapes, [sphere.uniform_uniformity(d) for d in shapes], "predicted"),
    ]
    spread_panel = Panel("uniformity of even clouds", "dimensions of the cloud", "uniformity", lines, log="x")
    columns = ("cloud", "RankMe, theory", "", "uniformity, theory", "", "NT-Xent, theory", "", "deviation, theory", "")
    return claims, Table(f"{n:,} points in {_DIMENSION} dimensions, τ = {_TAU:g}", columns, rows), [panel, spread_panel]


def _chance(n: int, kappa: float, dimension: int) -> float:
    """Five deviations of the log of a mean of e^{κ cos} over all pairs of n points, and a little for what is next.

    The mean over the pairs of one point is the same for all points, so only the pairs' own chance is left.
    """
    return 5 * math.sqrt(2 * sphere.relative_variance(kappa, dimension)) / n + 20 / n**2


def _two_views(generator: torch.Generator) -> Part:
    """Alignment on the circle and the sphere, where the second view is turned by an angle or drawn around the first."""
    n, rows, claims = 50_000, [], []
    for place, dimension in (("circle", 2), ("sphere", 3)):
        z = sphere.sphere_points(n, dimension, generator)
        views = [
            (f"turned by {s:g}", sphere.rotated(z, s, generator), sphere.rotation_alignment(s)) for s in (0.1, 0.5, 2.0)
        ]
        if dimension == 3:
            views += [
                (
                    f"drawn, κ = {k:g}",
                    sphere.sample_von_mises_fisher(z, k, generator),
                    sphere.von_mises_fisher_alignment(k),
                )
                for k in (1.0, 10.0)
            ]
        views.append(("drawn anywhere", sphere.sphere_points(n, dimension, generator), 2.0))
        for how, other, predicted in views:
            _, error = mean_and_error((z - other).square().sum(1))
            measured = float(alignment(z, other))
            rows.append((f"{place}, {how}", predicted, measured))
            claims.append(Claim(f"{place}, {how}: alignment", "=", predicted, measured, 5 * error))
    columns = ("second view", "alignment, theory", "measured")
    return claims, Table(f"two views of {n:,} points on the circle and the sphere", columns, rows), []


def _trained(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    """The same encoder, data and views under three losses."""
    n, inputs, outputs, steps = 128 if quick else 256, 16, 8, 150 if quick else 400
    x = torch.randn(n, inputs, generator=generator)
    start = int(torch.randint(2**31, (1,), generator=generator))
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "alignment alone": lambda z1, z2: (F.normalize(z1, dim=1) - F.normalize(z2, dim=1)).square().sum(1).mean(),
        "NT-Xent": lambda z1, z2: nt_xent(z1, z2, temperature=_TAU),
        "VICReg": vicreg,
    }
    rows, lines, claims = [], [], []
    full = outputs**-0.5
    for name, loss in losses.items():
        progress(f"training by {name}")
        own = torch.Generator().manual_seed(start)
        encoder = mlp([inputs, 64, outputs], own)
        optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
        at, seen = [], []
        for step in range(steps + 1):
            first, second = 0.3 * torch.randn(2, n, inputs, generator=own)
            z1, z2 = encoder(x + first), encoder(x + second)
            if step % (steps // 25) == 0:
                at.append(step)
                seen.append(float(deviation(z1.detach()).square().mean().sqrt()) / full)
            optimizer.zero_grad()
            loss(z1, z2).backward()
            optimizer.step()
        rank, spread = float(effective_rank(F.normalize(z1, dim=1))), float(uniformity(z1.detach()))
        rows.append((name, seen[0], seen[-1], rank, spread, float(alignment(z1.detach(), z2.detach()))))
        lines.append(Line(name, at, seen))
        if name == "alignment alone":
            claims.append(Claim(f"{name}: deviation of a dimension, of the full", "≤", 0.0, seen[-1], 0.1, "ours"))
            claims.append(Claim(f"{name}: RankMe", "=", 1.0, rank, 0.5, "ours"))
        else:
            claims.append(Claim(f"{name}: deviation of a dimension, of the full", "≥", 0.9, seen[-1], kind="ours"))
            claims.append(Claim(f"{name}: RankMe of {outputs}", "≥", 0.9 * outputs, rank, kind="ours"))
    panel = Panel("three losses, one encoder", "step", "deviation of a dimension, of the full", lines)
    columns = ("loss", "deviation at first, of the full", "at last", "RankMe", "uniformity", "alignment")
    return claims, Table(f"an encoder to {outputs} dimensions, {steps} steps", columns, rows), [panel]
